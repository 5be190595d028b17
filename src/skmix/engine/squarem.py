"""Squared extrapolation of EM (SQUAREM), safeguarded so that the likelihood never decreases.

Two EM steps θ₀ → θ₁ → θ₂ give r = θ₁ − θ₀ and v = (θ₂ − θ₁) − r; the next pass enters at θ₀ − 2αr + α²v with
α = −‖r‖/‖v‖ instead of at θ₂ (Varadhan and Roland, 2008, scheme S3). That pass also yields the likelihood at
the extrapolated point: if it is lower than at θ₁, or NaN, the start returns to θ₂ at the cost of one pass.
Extrapolation uses unconstrained coordinates: logarithms of weights, means, and `unconstrained` covariances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .compute.arrays import Array, Record, constant, like, namespace, to_numpy
from .model import BoolArray, Factor, FloatArray, IntArray, Parameters
from .rules import UpdateRule
from .rules.likelihood import with_frozen
from .structures import Diagonal, LowRank, Structure

# Initial limit on the length of an extrapolation, in EM steps.
_FIRST_LIMIT = 4.0
# Factor by which the limit grows when a step reaches it, and shrinks when one is rejected.
_GROWTH = 4.0
# Extrapolate only once the objective gains less than this per row and pass.
_SLOW = 1e-3
# Factor on the stopping rule's tolerance: between extrapolations EM takes shorter steps.
STRICTER = 0.3
# Passes of a cycle: two of EM, and one from an extrapolation.
_CYCLE = 3


@dataclass
class Squarem(Record):
    """Chooses the input of each pass of R starts: the state of the extrapolation between two passes."""

    entering: Parameters  # input of the next pass
    older: Parameters  # input of the last pass, θ₁ of the next extrapolation
    retreat: Parameters  # θ₂, used again if an extrapolation is rejected
    last: FloatArray  # (R,): objective of the last accepted pass
    calm: IntArray  # (R,): consecutive passes at which the stopping rule held
    steps: IntArray  # (R,): EM steps since the last extrapolation
    limit: FloatArray  # (R,): longest step allowed
    tried: BoolArray  # (R,): whether the next pass starts from an extrapolation
    reached: FloatArray  # (R,): objective that the extrapolation must reach

    @classmethod
    def begin(cls, entering: Parameters) -> Squarem:
        """Return the state before the first pass."""
        shape = entering.means.shape[0]
        low, none = np.full(shape, -np.inf), np.zeros(shape, dtype=np.int64)
        limit = np.full(shape, _FIRST_LIMIT)
        return cls(entering, entering, entering, low, none, none.copy(), limit, none.astype(bool), low.copy())

    def in_place(self, place: Callable[[Array], Array]) -> Squarem:
        """Return a copy whose parameters, but not the numbers (R,), are in that place."""
        copied = self.copy()
        models = {name: getattr(copied, name).map(place) for name in ("entering", "older", "retreat")}
        return replace(copied, **models)

    def wasted(self, objective: FloatArray, usable: BoolArray, n_rows: float) -> BoolArray:
        """Return which starts (R,) entered the pass at an extrapolation that is rejected.

        `objective` (R,) is at the pass's input; `usable` (R,) is whether its output is valid.
        """
        wasted: BoolArray = self.tried & ~(usable & (objective >= self.reached))
        self.limit[wasted] = np.maximum(_FIRST_LIMIT, self.limit[wasted] / _GROWTH)
        self.steps[self.tried] = 0
        # Far from convergence EM steps are long, and an extrapolation might land in another basin.
        self.steps[~(objective - self.last < _SLOW * n_rows)] = 0
        self.last = np.where(wasted, self.last, objective)
        return wasted

    def settled(self, done: BoolArray, wasted: BoolArray) -> BoolArray:
        """Return the starts (R,) for which the stopping rule held in every pass of a cycle.

        A single short step is not enough: it may be the one after an extrapolation.
        """
        self.calm = np.where(wasted, self.calm, np.where(done, self.calm + 1, 0))
        return self.calm >= _CYCLE

    def onward(
        self,
        rule: UpdateRule,
        entered: Parameters,
        following: Parameters,
        factor: Factor,
        objective: FloatArray,
        wasted: BoolArray,
    ) -> tuple[Parameters, Factor]:
        """Return the input of the next pass and its factor.

        `entered` and `following` are the parameters before and after the last pass; `factor` belongs to
        `following`, `objective` (R,) to `entered`.
        """
        onward = following.copy()
        self.steps += 1
        self.tried[:] = False
        if wasted.any():
            onward = onward.put(wasted, self.retreat.take(wasted))
            self.steps[wasted] = 0
        ready = np.flatnonzero(self.steps >= 2)
        if len(ready):
            points = [p.take(ready) for p in (self.older, entered, following)]
            proposal, good = self._extrapolate(rule, points, ready)
            ready = ready[good]
            self.retreat = following
            onward = onward.put(ready, proposal.take(good))
            self.tried[ready] = True
            self.reached[ready] = objective[ready]
        moved = np.flatnonzero(wasted | self.tried)
        if len(moved):
            raised, new = rule.enter(onward.take(moved))
            onward, factor = onward.put(moved, raised), factor.put(moved, new)
        self.older, self.entering = entered, onward
        return onward, factor

    def _extrapolate(
        self, rule: UpdateRule, points: list[Parameters], index: IntArray
    ) -> tuple[Parameters, BoolArray]:
        """Return the parameters extrapolated from three, and which starts (R,) may use them."""
        coordinates = [_coordinates(p, rule.structure) for p in points]
        r = [b - a for a, b, _ in zip(*coordinates, strict=True)]
        v = [c - 2.0 * b + a for a, b, c in zip(*coordinates, strict=True)]
        length, curvature = _lengths(r), _lengths(v)
        step = np.where(curvature > 0, length / np.where(curvature > 0, curvature, 1.0), 1.0)
        limit = self.limit[index]
        step = np.clip(step, 1.0, limit)
        self.limit[index] = np.where(step >= limit, limit * _GROWTH, limit)
        far = like(step[:, None], r[0])
        away = [a + 2.0 * far * b + far**2 * c for a, b, c in zip(coordinates[0], r, v, strict=True)]
        proposal = with_frozen(rule.freeze, _from_coordinates(away, points[2], rule.structure), points[2])
        good = step > 1.0  # a step of one is the EM step
        for array in (proposal.weights, proposal.means, proposal.covariances):
            xp = namespace(array)
            good &= to_numpy(xp.all(xp.isfinite(xp.reshape(array, (len(step), -1))), axis=1))
        return proposal, good


def _coordinates(parameters: Parameters, structure: Structure) -> list[FloatArray]:
    """Return parameters of R starts as unconstrained numbers, three arrays with R rows."""
    xp, n_starts = namespace(parameters.means), parameters.means.shape[0]
    logs = xp.log(xp.where(parameters.weights > 0, parameters.weights, 1.0))
    numbers = (logs, parameters.means, unconstrained(structure, parameters.covariances))
    return [xp.reshape(array, (n_starts, -1)) for array in numbers]


def _lengths(parts: list[FloatArray]) -> FloatArray:
    """Return the lengths (R,) of vectors given in parts (R, …), on the host."""
    return np.sqrt(sum(to_numpy(namespace(part).sum(part**2, axis=1)) for part in parts))


def _from_coordinates(numbers: list[FloatArray], model: Parameters, structure: Structure) -> Parameters:
    """Return the parameters with these coordinates; weights of zero stay zero."""
    xp, shaped = namespace(numbers[0]), (model.weights, model.means, model.covariances)
    logs, means, rest = (xp.reshape(a, b.shape) for a, b in zip(numbers, shaped, strict=True))
    logs = xp.where(model.weights > 0, logs, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
        weights /= xp.sum(weights, axis=1, keepdims=True)
        covariances = constrained(structure, rest)
    return replace(model, weights=weights, means=means, covariances=covariances)


def unconstrained(structure: Structure, covariances: FloatArray) -> FloatArray:
    """Return unconstrained numbers in the shape of covariances: any values give positive definite matrices.

    They are logarithms of variances, or whitening factors with the logarithms of their diagonals. The factors
    of low-rank covariances are unconstrained themselves.
    """
    xp = namespace(covariances)
    if isinstance(structure, LowRank):
        return xp.concat([covariances[..., :-1], xp.log(covariances[..., -1:])], axis=-1)
    if isinstance(structure, Diagonal):
        return xp.log(covariances)
    whitener = structure.factor(covariances, covariances.shape[-1]).whitener
    diagonal = constant(np.eye, whitener.shape[-1], example=whitener) > 0.0
    numbers = xp.where(diagonal, xp.log(xp.where(diagonal, whitener, 1.0)), whitener)
    return xp.reshape(numbers, covariances.shape)


def constrained(structure: Structure, numbers: FloatArray) -> FloatArray:
    """Return the covariances of unconstrained numbers; not finite where they overflow."""
    xp, n_features = namespace(numbers), numbers.shape[-1]
    if isinstance(structure, LowRank):
        return xp.concat([numbers[..., :-1], xp.exp(numbers[..., -1:])], axis=-1)
    if isinstance(structure, Diagonal):
        return xp.exp(numbers)
    diagonal = constant(np.eye, n_features, example=numbers) > 0.0
    whitener = xp.where(diagonal, xp.exp(xp.where(diagonal, numbers, 0.0)), numbers)
    good = xp.all(xp.isfinite(whitener) & (~diagonal | (whitener > 0)), axis=(-2, -1))[..., None, None]
    root = xp.linalg.inv(xp.where(good, whitener, constant(np.eye, n_features, example=numbers)))
    return xp.where(good, root @ xp.matrix_transpose(root), np.inf)
