"""Tails: what describes rows far from every kernel, besides Gaussian kernels.

`Tail` itself stands for none: kernels are Gaussian. `StudentT` gives kernels heavy tails, `Background` adds a
uniform distribution beside them. Passes, update rules and densities ask the tail of the parameters, and
branch on nothing else. Models with a tail run on the host.

A row of a t kernel with ν degrees of freedom is Gaussian with covariance P / u, where u ~ Gamma(ν/2, ν/2).
Given the row, u has the mean (ν + M) / (ν + d²), for a squared Mahalanobis distance d². The E-step weights
rows by it (Peel and McLachlan, "Robust mixture modelling using the t distribution", 2000), and the M-step for
ν is the root of log(ν/2) − ψ(ν/2) + 1 + s, where s is the mean of E[log u] − E[u] over the kernel's rows.

The background takes a share of each class's rows, and its density is one over the volume of a box. The
`weights` of the parameters are then shares of the remaining rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from scipy.special import digamma, gammaln

from .compute.arrays import TINY, Array, FloatArray, IntArray, Record, safe_log, trigamma

# Smallest learnt degrees of freedom: a Cauchy distribution.
LEAST_DEGREES = 1.0
# Largest learnt degrees of freedom: a t distribution that is Gaussian for all purposes.
MOST_DEGREES = 200.0
# Degrees of freedom of a kernel before the first pass.
START_DEGREES = 10.0
# Share of the background in each class before the first pass.
START_SHARE = 0.05
# Most steps of Newton's method for the degrees of freedom.
_NEWTON_STEPS = 50
# Newton's method has converged when log ν changes by less than this.
_CLOSE = 1e-12

# Arrays that the tail adds to the statistics of a pass.
Sums = tuple[FloatArray, ...]


@dataclass(frozen=True)
class Tail(Record):
    """No tail: Gaussian kernels alone. Shapes are those of R starts; one model has no first axis."""

    name: ClassVar[str | None] = None
    words: ClassVar[str] = "Gaussian kernels"  # what a model with this tail has
    weighted: ClassVar[bool] = False  # whether moments are weighted by the rows' precisions E[u]
    n_extra: ClassVar[int] = 0  # components besides the kernels, last among log-densities and weights

    # ------------------------------------------------------------ E-step

    def log_peaks(self, log_determinant: Array, n_features: int | IntArray) -> Array:
        """Return the log-densities at the means, for log-determinants (R, K) or (R, K, n)."""
        return -0.5 * (log_determinant + n_features * math.log(2 * math.pi))

    def at_distances(
        self, distances: FloatArray, peaks: FloatArray, n_features: int | IntArray
    ) -> tuple[FloatArray, FloatArray | None]:
        """Return log-densities at squared distances (R, K, n), and the rows' precisions E[u] if weighted.

        `peaks` are the log-densities at the means; `n_features` may differ from row to row (n,).
        """
        return peaks - 0.5 * distances, None

    def log_outside(
        self, codes: Any, add_observed: Callable[[FloatArray], FloatArray] | None = None
    ) -> FloatArray | None:
        """Return the background's log-joints (R, n) for rows of these classes; None without a background.

        `add_observed` sums logarithms (R, M) over each row's observed features, to (R, n); by default all
        features are observed.
        """
        return None

    def weigh(
        self, shares: FloatArray, outside: Any, precisions: Any, n_features: int | IntArray
    ) -> tuple[FloatArray, Sums]:
        """Return the weights (R, K, n) of rows in the moments, and the tail's sums.

        The shares (R, K, n) are responsibilities times the weights of the rows; `outside` (R, C) are sums of
        the probabilities that rows are background; precisions and features are those of `at_distances`.
        """
        return shares, ()

    def of_kernels(self) -> Tail:
        """Return the tail of the kernels, without a background."""
        return self

    # ------------------------------------------------------------ M-step

    def mass_in_moments(self, mass: FloatArray, sums: Sums) -> FloatArray:
        """Return the sum (R, K) of the weights of rows in the moments, for the mass (R, K)."""
        return mass

    def joint(self, weights: FloatArray) -> FloatArray:
        """Return the weights of all components: (..., K, L), or (..., K + 1, L) with the background last."""
        return weights

    def split(self, weights: FloatArray) -> tuple[FloatArray, Tail]:
        """Return the kernels' weights (R, K, C) and the tail for an E-step, from those of all components."""
        return weights, self

    def all_mass(self, mass: FloatArray, sums: Sums) -> FloatArray:
        """Return the mass of all components: (R, K, C), or (R, K + 1, C) with the background last."""
        return mass

    def improve(
        self, class_mass: FloatArray, mass: FloatArray, alive: Array, sums: Sums, *, learn_degrees: bool
    ) -> tuple[FloatArray, Tail]:
        """Return the mass (R, K, L) of the kernels and the next tail.

        `class_mass` is as by `all_mass`, for L classes; `mass` (R, K) is positive, also of kernels that are
        not `alive` (R, K).
        """
        return class_mass, self

    # ------------------------------------------------------------ coordinates and parts

    def transformed(self, function: Callable[[FloatArray], FloatArray]) -> Tail:
        """Return the tail in other coordinates; the function maps values (..., M)."""
        return self

    def marginal(self, columns: IntArray) -> Tail:
        """Return the tail of some of the features."""
        return self

    def take_kernels(self, kernels: IntArray) -> Tail:
        """Return the tail of the chosen kernels (R, k) of each start."""
        return self

    def to_dict(self) -> dict[str, FloatArray]:
        """Return the arrays by name; see `tail_of`."""
        return dict(vars(self))

    # ------------------------------------------------------------ densities of one model

    def log_densities(self, X: np.ndarray) -> FloatArray:
        """Return the log-densities (N, 0 or 1) of the background at rows X (N, M), NaN where missing."""
        return np.empty((len(X), 0))

    def mix(self, log_likelihood: Array, X: Array) -> Array:
        """Return log p(x | class) (N, L) from that of the kernels."""
        return log_likelihood

    def widening(self, distances: FloatArray, n_known: int) -> FloatArray:
        """Return the factors (n, K) of covariances given known values at squared distances (n, K)."""
        return np.ones_like(distances)

    def conditional(
        self, weights: FloatArray, previous: FloatArray, columns: IntArray, others: IntArray
    ) -> tuple[FloatArray, Tail]:
        """Return weights and tail of the other features, given known values of `columns`.

        `weights` (K, L) are the kernels' responsibilities for those values, `previous` the weights before.
        """
        return weights, self

    def expected(self, filled: FloatArray, left: FloatArray, columns: IntArray) -> FloatArray:
        """Add the background's part to expected values (n, G); `left` (n,) is its probability."""
        return filled

    def stretch(self, kernel: int, n_rows: int, random_state: np.random.RandomState) -> FloatArray | float:
        """Draw the factors (n, 1) that turn Gaussian deviations into the kernel's."""
        return 1.0

    def draw(self, n_rows: int, random_state: np.random.RandomState) -> FloatArray:
        """Draw rows (n, M) of the background."""
        raise NotImplementedError("only a background draws rows")


@dataclass(frozen=True)
class StudentT(Tail):
    """Kernels are Student's t distributions, whose scale matrices are the covariances."""

    degrees: FloatArray  # (..., K): degrees of freedom

    name = "t"
    words = "t kernels"
    weighted = True

    @classmethod
    def begin(cls, n_starts: int, n_kernels: int, degrees: float = START_DEGREES) -> StudentT:
        """Return the tail of R starts whose kernels all have these degrees of freedom."""
        return cls(np.full((n_starts, n_kernels), degrees))

    def within_range(self) -> StudentT:
        """Return degrees clipped to the range of learnt ones: otherwise a pass could lower the objective."""
        return StudentT(np.clip(self.degrees, LEAST_DEGREES, MOST_DEGREES))

    def _like(self, values: Array) -> Array:
        """Return the degrees of freedom with as many axes as the values (R, K, …)."""
        shape = self.degrees.shape + (1,) * (values.ndim - self.degrees.ndim)
        return self.degrees.reshape(shape)

    def log_peaks(self, log_determinant: Array, n_features: int | IntArray) -> Array:
        degrees = self._like(log_determinant)
        powers = log_determinant + n_features * np.log(math.pi * degrees)
        return gammaln(0.5 * (degrees + n_features)) - gammaln(0.5 * degrees) - 0.5 * powers

    def at_distances(
        self, distances: FloatArray, peaks: FloatArray, n_features: int | IntArray
    ) -> tuple[FloatArray, FloatArray | None]:
        degrees = self._like(distances)
        ratio = 1.0 + distances / degrees
        values = peaks - 0.5 * (degrees + n_features) * np.log(ratio)
        return values, (degrees + n_features) / (degrees * ratio)

    def mean_logs(self, n_features: int | IntArray) -> FloatArray:
        """Return E[log u] − log E[u] of rows, (R, K, 1) or (R, K, n)."""
        counts, place = np.unique(n_features, return_inverse=True)
        half = 0.5 * (self.degrees[..., None] + counts)
        return (digamma(half) - np.log(half))[..., place.reshape(-1)]

    def weigh(
        self, shares: FloatArray, outside: Any, precisions: Any, n_features: int | IntArray
    ) -> tuple[FloatArray, Sums]:
        logs = (shares * (np.log(precisions) + self.mean_logs(n_features))).sum(axis=-1)
        weights = shares * precisions
        return weights, (weights.sum(axis=-1), logs)

    def mass_in_moments(self, mass: FloatArray, sums: Sums) -> FloatArray:
        return sums[0]

    def improve(
        self, class_mass: FloatArray, mass: FloatArray, alive: Array, sums: Sums, *, learn_degrees: bool
    ) -> tuple[FloatArray, Tail]:
        if not learn_degrees:
            return class_mass, self
        precisions, log_precisions = sums
        gap = np.where(alive, (log_precisions - precisions) / mass, -1.0)
        return class_mass, StudentT(np.where(alive, likeliest_degrees(gap), self.degrees))

    def take_kernels(self, kernels: IntArray) -> Tail:
        return StudentT(np.take_along_axis(self.degrees, kernels, axis=1))

    def widening(self, distances: FloatArray, n_known: int) -> FloatArray:
        return (self.degrees + distances) / (self.degrees + n_known)

    def conditional(
        self, weights: FloatArray, previous: FloatArray, columns: IntArray, others: IntArray
    ) -> tuple[FloatArray, Tail]:
        return weights, StudentT(self.degrees + len(columns))

    def stretch(self, kernel: int, n_rows: int, random_state: np.random.RandomState) -> FloatArray:
        degrees = self.degrees[kernel]
        return np.sqrt(degrees / random_state.chisquare(degrees, size=n_rows))[:, None]


@dataclass(frozen=True)
class Background(Tail):
    """A uniform distribution on a box beside the kernels, with a share in each class."""

    weights: FloatArray  # (..., L): Pr(background | class)
    box: FloatArray  # (..., 2, M): lowest and highest values of the box

    name = "background"
    words = "a background"
    n_extra = 1

    @classmethod
    def begin(cls, n_starts: int, n_classes: int, low: FloatArray, high: FloatArray) -> Background:
        """Return the tail of R starts, with its box from `low` (M,) to `high` (M,)."""
        box = np.tile(np.stack([low, high]), (n_starts, 1, 1))
        return cls(np.full((n_starts, n_classes), START_SHARE), box)

    def of_average(self, class_prior: FloatArray, n_classes: int) -> Background:
        """Return one model's background in which new classes have the average share of the others."""
        return replace(self, weights=np.full(n_classes, self.weights @ class_prior))

    def _log_widths(self) -> FloatArray:
        """Return the logarithms (..., M) of the lengths of the box's sides."""
        return np.log(self.box[..., 1, :] - self.box[..., 0, :])

    def log_outside(
        self, codes: Any, add_observed: Callable[[FloatArray], FloatArray] | None = None
    ) -> FloatArray:
        widths = self._log_widths()
        log_volume = widths.sum(axis=-1, keepdims=True) if add_observed is None else add_observed(widths)
        return safe_log(self.weights)[:, codes] - log_volume

    def weigh(
        self, shares: FloatArray, outside: Any, precisions: Any, n_features: int | IntArray
    ) -> tuple[FloatArray, Sums]:
        return shares, (outside,)

    def of_kernels(self) -> Tail:
        return NONE

    def joint(self, weights: FloatArray) -> FloatArray:
        own = self.weights[..., None, :]
        return np.concatenate([weights * (1.0 - own), own], axis=-2)

    def split(self, weights: FloatArray) -> tuple[FloatArray, Tail]:
        return weights[:, :-1, :], replace(self, weights=weights[:, -1, :])

    def all_mass(self, mass: FloatArray, sums: Sums) -> FloatArray:
        return np.concatenate([mass, sums[0][:, None, :]], axis=1)

    def improve(
        self, class_mass: FloatArray, mass: FloatArray, alive: Array, sums: Sums, *, learn_degrees: bool
    ) -> tuple[FloatArray, Tail]:
        sizes = class_mass.sum(axis=1)
        class_mass, own = class_mass[:, :-1, :], class_mass[:, -1, :]
        weights = np.where(sizes > 0, own / np.maximum(sizes, TINY), self.weights)
        return class_mass, replace(self, weights=weights)

    def transformed(self, function: Callable[[FloatArray], FloatArray]) -> Tail:
        return replace(self, box=function(self.box))

    def marginal(self, columns: IntArray) -> Tail:
        return replace(self, box=self.box[..., columns])

    def log_densities(self, X: np.ndarray) -> FloatArray:
        # Rows outside the box have the same density: whatever is far from all kernels is background.
        return -(~np.isnan(X) @ self._log_widths())[:, None]

    def mix(self, log_likelihood: FloatArray, X: np.ndarray) -> FloatArray:
        left, own = safe_log(1.0 - self.weights), safe_log(self.weights)
        return np.logaddexp(log_likelihood + left, self.log_densities(X) + own)

    def conditional(
        self, weights: FloatArray, previous: FloatArray, columns: IntArray, others: IntArray
    ) -> tuple[FloatArray, Tail]:
        shares = weights.sum(axis=0)
        weights = np.where(shares > 0, weights / np.where(shares > 0, shares, 1.0), previous)
        return weights, Background(1.0 - shares, self.box[:, others])

    def expected(self, filled: FloatArray, left: FloatArray, columns: IntArray) -> FloatArray:
        return filled + left[:, None] * self.box[:, columns].mean(axis=0)

    def draw(self, n_rows: int, random_state: np.random.RandomState) -> FloatArray:
        low, high = self.box
        return random_state.uniform(low, high, size=(n_rows, len(low)))


NONE = Tail()


def tail_of(values: dict[str, Any]) -> Tail:
    """Return the tail with these arrays; see `Tail.to_dict`."""
    kinds: dict[frozenset[str], type[Tail]] = {
        frozenset(): Tail,
        frozenset({"degrees"}): StudentT,
        frozenset({"weights", "box"}): Background,
    }
    return kinds[frozenset(values)](**values)


def likeliest_degrees(mean_gap: FloatArray) -> FloatArray:
    """Return the ν (R, K) that solve log(ν/2) − ψ(ν/2) + 1 + s = 0 for s (R, K), within their range.

    The left side falls with ν. Newton's steps for log ν that leave the bracket of the root are replaced by
    its middle.
    """
    low, high = np.full_like(mean_gap, np.log(LEAST_DEGREES)), np.full_like(mean_gap, np.log(MOST_DEGREES))
    place = 0.5 * (low + high)
    for _ in range(_NEWTON_STEPS):
        half = 0.5 * np.exp(place)
        value = np.log(half) - digamma(half) + 1.0 + mean_gap
        low, high = np.where(value > 0, place, low), np.where(value > 0, high, place)
        last, step = place, place - value / (1.0 - half * trigamma(half))
        place = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        if np.all(np.abs(place - last) < _CLOSE):
            break
    return np.clip(np.exp(place), LEAST_DEGREES, MOST_DEGREES)
