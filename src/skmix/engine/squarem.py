"""Fewer passes: squared extrapolation of EM (SQUAREM), guarded so that the likelihood never falls.

Two EM steps θ₀ → θ₁ → θ₂ give r = θ₁ − θ₀ and v = (θ₂ − θ₁) − r; the next pass enters at θ₀ − 2αr + α²v with
α = −‖r‖/‖v‖ instead of at θ₂ (Varadhan and Roland, 2008, scheme S3). The pass itself tells the likelihood of
where it entered: if that is lower than at θ₁, or no density at all, the start goes back to θ₂ and nothing but
the pass is lost. Extrapolation happens where any number is allowed: logarithms of weights, means, and the
Cholesky factors of covariances with the logarithm of their diagonal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .compute.arrays import like, namespace, pick, replaced, to_numpy
from .covariances import Structure
from .covariances.reparametrisation import coordinates, from_coordinates
from .model import BoolArray, Factor, FloatArray, IntArray, Parameters

# Longest step, in units of EM's own, at first and by how much it grows when it was reached.
_FIRST_LIMIT = 4.0
_GROWTH = 4.0
# Gain of the objective per row and pass below which passes count as slow.
_SLOW = 1e-3
# Factor on the stopping rule's tolerance.
STRICTER = 0.3
# Passes of a cycle: two of EM, and one that enters at an extrapolation.
_CYCLE = 3


@dataclass(frozen=True)
class Leaps:
    """Where the accelerator of R starts stands between two passes.

    Attributes
    ----------
    entering : Parameters
        Where the next pass enters.
    older : Parameters
        Where the last pass entered.
    retreat : Parameters
        Where to go if an extrapolation was no gain; of no meaning for starts that do not try one.
    last, calm, steps, limit, tried, reached : ndarray of shape (R,)
        As in `Accelerator`.
    """

    entering: Parameters
    older: Parameters
    retreat: Parameters
    last: FloatArray
    calm: IntArray
    steps: IntArray
    limit: FloatArray
    tried: BoolArray
    reached: FloatArray

    def map(self, of_models: Callable[[Parameters], Parameters], of_numbers: Callable[[Any], Any]) -> Leaps:
        """Return a record of what the functions make of parameters and of the numbers of the starts."""
        made: dict[str, Any] = {
            name: of_models(value) if isinstance(value, Parameters) else of_numbers(value)
            for name, value in vars(self).items()
        }
        return Leaps(**made)


class Accelerator:
    """Decides where the next pass enters, for R starts at once.

    Parameters
    ----------
    n_starts : int
        R.
    structure : Structure
        Covariance structure.
    n_rows : float
        N, or the sum of the rows' weights.
    """

    def __init__(self, n_starts: int, structure: Structure, n_rows: float) -> None:
        self._structure = structure
        self._slow = _SLOW * n_rows
        self._last = np.full(n_starts, -np.inf)
        self._calm = np.zeros(n_starts, dtype=np.int64)  # passes in a row that the stopping rule would end at
        self._older: Parameters | None = None  # θ₀, where the pass before the last entered
        self._steps = np.zeros(n_starts, dtype=np.int64)  # EM steps since the last extrapolation
        self._limit = np.full(n_starts, _FIRST_LIMIT)
        self._tried = np.zeros(n_starts, dtype=bool)  # whether this pass entered at an extrapolation
        self._back = np.zeros(n_starts, dtype=bool)
        self._retreat: Parameters | None = None  # θ₂, where to go if it was no gain
        self._reached = np.full(n_starts, -np.inf)  # likelihood to beat

    def leaps(self, entering: Parameters) -> Leaps:
        """Return where it stands after a pass, given where the next one enters; it shares no numbers."""
        assert self._older is not None
        retreat = entering if self._retreat is None else self._retreat
        numbers: tuple[Any, ...] = (
            self._last,
            self._calm,
            self._steps,
            self._limit,
            self._tried,
            self._reached,
        )
        return Leaps(entering, self._older, retreat, *(array.copy() for array in numbers))

    def go_on(self, leaps: Leaps) -> None:
        """Stand where another accelerator stood."""
        self._older, self._retreat = leaps.older, leaps.retreat
        self._last, self._calm, self._steps = leaps.last.copy(), leaps.calm.copy(), leaps.steps.copy()
        self._limit, self._tried = leaps.limit.copy(), leaps.tried.copy()
        self._reached = leaps.reached.copy()

    def keep(self, which: BoolArray) -> None:
        """Forget the starts that are not in `which`."""
        self._steps, self._limit = self._steps[which], self._limit[which]
        self._tried, self._reached = self._tried[which], self._reached[which]
        self._back, self._last, self._calm = self._back[which], self._last[which], self._calm[which]
        self._older = None if self._older is None else self._older.take(which)
        self._retreat = None if self._retreat is None else self._retreat.take(which)

    def wasted(self, objective: FloatArray, usable: BoolArray) -> BoolArray:
        """Return which starts (R,) entered the pass at an extrapolation that was no gain.

        Parameters
        ----------
        objective : ndarray of shape (R,)
            What EM climbs, of the parameters that entered.
        usable : ndarray of shape (R,)
            Whether the pass ended with proper parameters.
        """
        self._back = self._tried & ~(usable & (objective >= self._reached))
        self._limit[self._back] = np.maximum(_FIRST_LIMIT, self._limit[self._back] / _GROWTH)
        self._steps[self._tried] = 0
        # Far from the end EM's own steps are long, and a leap might land in another basin.
        self._steps[~(objective - self._last < self._slow)] = 0
        self._last = np.where(self._back, self._last, objective)
        return self._back

    def settled(self, done: BoolArray) -> BoolArray:
        """Return which starts (R,) the stopping rule would have ended in every pass of a whole cycle.

        One short step alone proves little: it may be the one that follows a leap.
        """
        self._calm = np.where(self._back, self._calm, np.where(done, self._calm + 1, 0))
        calm: BoolArray = self._calm >= _CYCLE
        return calm

    def onward(
        self,
        entered: Parameters,
        following: Parameters,
        factor: Factor,
        objective: FloatArray,
        floor: FloatArray,
    ) -> tuple[Parameters, Factor]:
        """Return where the next pass enters, and the factor of its covariances.

        Parameters
        ----------
        entered, following : Parameters
            Before and after the pass.
        factor : Factor
            Of the latter's covariances.
        objective : ndarray of shape (R,)
            What EM climbs, of the parameters that entered.
        floor : ndarray of shape (M,)
            Of the covariances.
        """
        onward = following.copy()
        self._steps += 1
        self._tried[:] = False
        if self._back.any():
            assert self._retreat is not None
            onward = onward.put(self._back, self._retreat.take(self._back))
            self._steps[self._back] = 0
        ready = np.flatnonzero(self._steps >= 2)
        if len(ready) and self._older is not None:
            points = [p.take(ready) for p in (self._older, entered, following)]
            proposal, good = self._extrapolate(points[0], points[1], points[2], ready)
            ready = ready[good]
            self._retreat = following
            onward = onward.put(ready, proposal.take(good))
            self._tried[ready] = True
            self._reached[ready] = objective[ready]
        moved = np.flatnonzero(self._back | self._tried)
        if len(moved):
            covariances, new = self._structure.raised(pick(onward.covariances, moved), floor)
            onward = replace(onward, covariances=replaced(onward.covariances, moved, covariances))
            factor = factor.put(moved, new)
        self._older = entered
        return onward, factor

    def _extrapolate(
        self, first: Parameters, second: Parameters, third: Parameters, index: IntArray
    ) -> tuple[Parameters, BoolArray]:
        """Return the extrapolated parameters, and whether each start's is a model."""
        structure = self._structure
        points = [_coordinates(p, structure) for p in (first, second, third)]
        r = [b - a for a, b in zip(points[0], points[1], strict=True)]
        v = [c - 2.0 * b + a for a, b, c in zip(*points, strict=True)]
        length, curvature = _lengths(r), _lengths(v)
        step = np.where(curvature > 0, length / np.where(curvature > 0, curvature, 1.0), 1.0)
        limit = self._limit[index]
        step = np.clip(step, 1.0, limit)
        self._limit[index] = np.where(step >= limit, limit * _GROWTH, limit)
        far = like(step[:, None], points[0][0])
        away = [a + 2.0 * far * b + far**2 * c for a, b, c in zip(points[0], r, v, strict=True)]
        proposal = _from_coordinates(away, third, structure)
        good = step > 1.0  # a step of one is EM's own: nothing is gained by entering there with a proposal
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
