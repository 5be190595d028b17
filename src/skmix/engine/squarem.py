"""Fewer passes: squared extrapolation of EM (SQUAREM), guarded so that the likelihood never falls.

Two EM steps θ₀ → θ₁ → θ₂ give r = θ₁ − θ₀ and v = (θ₂ − θ₁) − r; the next pass enters at θ₀ − 2αr + α²v with
α = −‖r‖/‖v‖ instead of at θ₂ (Varadhan and Roland, 2008, scheme S3). That pass finds the likelihood of where
it entered: if it is lower than at θ₁, or not a number, the start goes back to θ₂ and only the pass is lost.
Extrapolation uses coordinates in which every number is allowed: logarithms of weights, means, and the
Cholesky factors of covariances with the logarithm of their diagonal.
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

# Longest step, in units of EM's own, at first and the factor it grows by when reached.
_FIRST_LIMIT = 4.0
_GROWTH = 4.0
# Gain of the objective per row and pass below which passes count as slow.
_SLOW = 1e-3
# Factor on the stopping rule's tolerance: extrapolation shortens EM's own steps.
STRICTER = 0.3
# Passes of a cycle: two of EM, and one that enters at an extrapolation.
_CYCLE = 3


@dataclass
class SquaremState:
    """Where the extrapolation of R starts stands between two passes."""

    entering: Parameters  # where the next pass enters
    older: Parameters  # where the last pass entered, θ₁ of the next extrapolation
    retreat: Parameters  # where to go back to if an extrapolation was no gain, θ₂
    last: FloatArray  # (R,): objective of the last pass that counted
    calm: IntArray  # (R,): passes in a row at which the stopping rule would have ended
    steps: IntArray  # (R,): EM steps since the last extrapolation
    limit: FloatArray  # (R,): longest step allowed
    tried: BoolArray  # (R,): whether the next pass enters at an extrapolation
    reached: FloatArray  # (R,): objective that it must reach

    @classmethod
    def begin(cls, entering: Parameters) -> SquaremState:
        """Return the state before the first pass."""
        shape = entering.means.shape[0]
        low, none = np.full(shape, -np.inf), np.zeros(shape, dtype=np.int64)
        limit = np.full(shape, _FIRST_LIMIT)
        return cls(entering, entering, entering, low, none, none.copy(), limit, none.astype(bool), low.copy())

    def map(self, models: Callable[[Parameters], Parameters], numbers: Callable[[Any], Any]) -> SquaremState:
        """Return what the functions make of parameters and of arrays with one number for each start."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        made: dict[str, Any] = {
            name: models(value) if isinstance(value, Parameters) else numbers(value) for name, value in values
        }
        return SquaremState(**made)

    def take(self, index: Any) -> SquaremState:
        """Return the starts that `index` selects."""
        return self.map(lambda parameters: parameters.take(index), lambda values: values[index])


class Squarem:
    """Decides where the next pass enters, for a batch of starts that fit `n_rows` rows by an update rule."""

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
        """Return which starts (R,) entered the pass at an extrapolation that was no gain.

        `objective` (R,) is that of the parameters that entered; `usable` (R,) says whether the pass ended
        with proper parameters.
        """
        state = self.state
        self._back = state.tried & ~(usable & (objective >= state.reached))
        state.limit[self._back] = np.maximum(_FIRST_LIMIT, state.limit[self._back] / _GROWTH)
        state.steps[state.tried] = 0
        # Far from the end EM's own steps are long, and a leap might land in another basin.
        state.steps[~(objective - state.last < self._slow)] = 0
        state.last = np.where(self._back, state.last, objective)
        return self._back

    def settled(self, done: BoolArray) -> BoolArray:
        """Return which starts (R,) the stopping rule would have ended in every pass of a whole cycle.

        One short step alone proves little: it may be the one that follows an extrapolation.
        """
        calm = np.where(done, self.state.calm + 1, 0)
        self.state.calm = np.where(self._back, self.state.calm, calm)
        settled: BoolArray = self.state.calm >= _CYCLE
        return settled

    def onward(
        self, entered: Parameters, following: Parameters, factor: Factor, objective: FloatArray
    ) -> tuple[Parameters, Factor]:
        """Return where the next pass enters, and the factor of its covariances.

        `entered` and `following` are the parameters before and after the pass, `factor` is that of the
        latter, and `objective` (R,) that of the former.
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
        """Return the extrapolated parameters, and whether each start's (R,) are a model."""
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
        good = step > 1.0  # a step of one is EM's own
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
