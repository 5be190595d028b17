"""Squared extrapolation of EM (SQUAREM), safeguarded so that the likelihood never decreases.

Two EM steps θ₀ → θ₁ → θ₂ give r = θ₁ − θ₀ and v = (θ₂ − θ₁) − r; the next pass enters at θ₀ − 2αr + α²v with
α = −‖r‖/‖v‖ instead of at θ₂ (Varadhan and Roland, 2008, scheme S3). That pass also yields the likelihood at
the extrapolated point: if it is lower than at θ₁, or NaN, the start returns to θ₂ at the cost of one pass.
Extrapolation uses unconstrained coordinates: logarithms of weights, means, and Cholesky factors of
covariances with the logarithm of their diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from .compute.arrays import like, namespace, to_numpy
from .covariances import Structure
from .covariances.reparametrisation import coordinates, from_coordinates
from .model import BoolArray, Factor, FloatArray, IntArray, Parameters
from .rules.base import UpdateRule, with_frozen

# Initial limit on the step length, in EM steps, and the factor by which it grows when reached.
_FIRST_LIMIT = 4.0
_GROWTH = 4.0
# Extrapolate only once the objective gains less than this per row and pass.
_SLOW = 1e-3
# Factor on the stopping rule's tolerance: between extrapolations EM takes shorter steps.
STRICTER = 0.3
# Passes of a cycle: two of EM, and one from an extrapolation.
_CYCLE = 3


@dataclass
class SquaremState:
    """The state of the extrapolation of R starts between two passes."""

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
    def begin(cls, entering: Parameters) -> SquaremState:
        """Return the state before the first pass."""
        shape = entering.means.shape[0]
        low, none = np.full(shape, -np.inf), np.zeros(shape, dtype=np.int64)
        limit = np.full(shape, _FIRST_LIMIT)
        return cls(entering, entering, entering, low, none, none.copy(), limit, none.astype(bool), low.copy())

    def map(self, models: Callable[[Parameters], Parameters], numbers: Callable[[Any], Any]) -> SquaremState:
        """Apply one function to the parameters and another to the arrays (R,)."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        made: dict[str, Any] = {
            name: models(value) if isinstance(value, Parameters) else numbers(value) for name, value in values
        }
        return SquaremState(**made)

    def take(self, index: Any) -> SquaremState:
        """Return the starts that `index` selects."""
        return self.map(lambda parameters: parameters.take(index), lambda values: values[index])


class Squarem:
    """Chooses the input of each pass, for a batch of starts fitted to `n_rows` rows by an update rule."""

    def __init__(self, structure: Structure, rule: UpdateRule, n_rows: float, state: SquaremState) -> None:
        self._structure = structure
        self._rule = rule
        self._slow = _SLOW * n_rows
        self.state = state
        self._back = np.zeros(len(state.last), dtype=bool)

    def take(self, which: BoolArray) -> None:
        """Drop the starts that are not in `which`."""
        self.state, self._back = self.state.take(which), self._back[which]

    def wasted(self, objective: FloatArray, usable: BoolArray) -> BoolArray:
        """Return which starts (R,) entered the pass at an extrapolation that is rejected.

        `objective` (R,) is at the pass's input; `usable` (R,) is whether its output is valid.
        """
        state = self.state
        self._back = state.tried & ~(usable & (objective >= state.reached))
        state.limit[self._back] = np.maximum(_FIRST_LIMIT, state.limit[self._back] / _GROWTH)
        state.steps[state.tried] = 0
        # Far from convergence EM steps are long, and an extrapolation might land in another basin.
        state.steps[~(objective - state.last < self._slow)] = 0
        state.last = np.where(self._back, state.last, objective)
        return self._back

    def settled(self, done: BoolArray) -> BoolArray:
        """Return the starts (R,) for which the stopping rule held in every pass of a cycle.

        A single short step is not enough: it may be the one after an extrapolation.
        """
        calm = np.where(done, self.state.calm + 1, 0)
        self.state.calm = np.where(self._back, self.state.calm, calm)
        settled: BoolArray = self.state.calm >= _CYCLE
        return settled

    def onward(
        self, entered: Parameters, following: Parameters, factor: Factor, objective: FloatArray
    ) -> tuple[Parameters, Factor]:
        """Return the input of the next pass and its factor.

        `entered` and `following` are the parameters before and after the last pass; `factor` belongs to
        `following`, `objective` (R,) to `entered`.
        """
        state = self.state
        onward = following.copy()
        state.steps += 1
        state.tried[:] = False
        if self._back.any():
            onward = onward.put(self._back, state.retreat.take(self._back))
            state.steps[self._back] = 0
        ready = np.flatnonzero(state.steps >= 2)
        if len(ready):
            points = [p.take(ready) for p in (state.older, entered, following)]
            proposal, good = self._extrapolate(points[0], points[1], points[2], ready)
            ready = ready[good]
            state.retreat = following
            onward = onward.put(ready, proposal.take(good))
            state.tried[ready] = True
            state.reached[ready] = objective[ready]
        moved = np.flatnonzero(self._back | state.tried)
        if len(moved):
            raised, new = self._rule.enter(onward.take(moved))
            onward, factor = onward.put(moved, raised), factor.put(moved, new)
        state.older, state.entering = entered, onward
        return onward, factor

    def _extrapolate(
        self, first: Parameters, second: Parameters, third: Parameters, index: IntArray
    ) -> tuple[Parameters, BoolArray]:
        """Return the extrapolated parameters, and which starts (R,) may use them."""
        points = [_coordinates(p, self._structure) for p in (first, second, third)]
        r = [b - a for a, b in zip(points[0], points[1], strict=True)]
        v = [c - 2.0 * b + a for a, b, c in zip(*points, strict=True)]
        length, curvature = _lengths(r), _lengths(v)
        step = np.where(curvature > 0, length / np.where(curvature > 0, curvature, 1.0), 1.0)
        limit = self.state.limit[index]
        step = np.clip(step, 1.0, limit)
        self.state.limit[index] = np.where(step >= limit, limit * _GROWTH, limit)
        far = like(step[:, None], points[0][0])
        away = [a + 2.0 * far * b + far**2 * c for a, b, c in zip(points[0], r, v, strict=True)]
        proposal = with_frozen(self._rule, _from_coordinates(away, third, self._structure), third)
        good = step > 1.0  # a step of one is the EM step
        for array in (proposal.weights, proposal.means, proposal.covariances):
            xp = namespace(array)
            good &= to_numpy(xp.all(xp.isfinite(xp.reshape(array, (len(step), -1))), axis=1))
        return proposal, good


def _coordinates(parameters: Parameters, structure: Structure) -> list[FloatArray]:
    """Return parameters of R starts as unconstrained numbers, three arrays with R rows."""
    xp, n_starts = namespace(parameters.means), parameters.means.shape[0]
    logs = xp.log(xp.where(parameters.weights > 0, parameters.weights, 1.0))
    numbers = (logs, parameters.means, coordinates(parameters.covariances, structure))
    return [xp.reshape(array, (n_starts, -1)) for array in numbers]


def _lengths(parts: list[FloatArray]) -> FloatArray:
    """Return the lengths (R,) of vectors given in parts (R, …), on the host."""
    return np.sqrt(sum(to_numpy(namespace(part).sum(part**2, axis=1)) for part in parts))


def _from_coordinates(numbers: list[FloatArray], model: Parameters, structure: Structure) -> Parameters:
    """Return the parameters with these coordinates; weights of zero stay zero."""
    xp = namespace(numbers[0])
    logs = xp.reshape(numbers[0], model.weights.shape)
    logs = xp.where(model.weights > 0, logs, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = xp.exp(logs - xp.max(logs, axis=1, keepdims=True))
        weights /= xp.sum(weights, axis=1, keepdims=True)
        covariances = from_coordinates(numbers[2], model.covariances.shape, structure)
    means = xp.reshape(numbers[1], model.means.shape)
    return replace(model, weights=weights, means=means, covariances=covariances)
