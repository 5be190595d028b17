"""The shapes of kernels: Gaussian, or Student's t with heavy tails.

Passes, update rules and densities ask the `tail` of the parameters, which is one of the two. t kernels run on
the host. A row of a t kernel with ν degrees of freedom is Gaussian with covariance P / u, where
u ~ Gamma(ν/2, ν/2). Given the row, u has the mean (ν + M) / (ν + d²), for a squared Mahalanobis distance d².
The E-step weights rows by it (Peel and McLachlan, "Robust mixture modelling using the t distribution", 2000),
and the M-step for ν is the root of log(ν/2) − ψ(ν/2) + 1 + s, where s is the mean of E[log u] − E[u] over the
kernel's rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import digamma, gammaln

from .numbers import Array, FloatArray, IntArray, Record, trigamma

# Smallest learnt degrees of freedom: a Cauchy distribution.
LEAST_DEGREES = 1.0
# Largest learnt degrees of freedom: a t distribution that is Gaussian for all purposes.
MOST_DEGREES = 200.0
# Degrees of freedom of a kernel before the first pass.
START_DEGREES = 10.0
# Most steps of Newton's method for the degrees of freedom.
_NEWTON_STEPS = 50
# Newton's method has converged when log ν changes by less than this.
_CLOSE = 1e-12

# Arrays (R, K) that t kernels add to the statistics of a pass, see `Statistics.of_tail`.
Sums = tuple[FloatArray, ...]


@dataclass(frozen=True)
class Gaussian(Record):
    """Gaussian kernels. Shapes are those of R starts; one model has no first axis."""

    weighted: ClassVar[bool] = False  # whether moments weight rows by their precisions E[u]
    degrees: ClassVar[None] = None

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

    def weigh(
        self, shares: FloatArray, precisions: Any, n_features: int | IntArray
    ) -> tuple[FloatArray, Sums]:
        """Return the weights (R, K, n) of rows in the moments, and what t kernels add to the statistics.

        The shares (R, K, n) are responsibilities times row weights; the rest is as in `at_distances`.
        """
        return shares, ()

    def mass_in_moments(self, mass: FloatArray, sums: Sums) -> FloatArray:
        """Return the sum (R, K) of the weights of rows in the moments, for the mass (R, K)."""
        return mass

    def conditional(self, n_known: int) -> Tail:
        """Return the kernels of the other features, given known values of some."""
        return self

    def stretch(self, kernel: int, n_rows: int, random_state: np.random.RandomState) -> FloatArray | float:
        """Draw the numbers (n, 1) by which deviations of Gaussian rows become those of the kernel's."""
        return 1.0


@dataclass(frozen=True)
class StudentT(Record):
    """Student's t kernels, whose scale matrices are the covariances."""

    degrees: FloatArray  # (..., K): degrees of freedom

    weighted: ClassVar[bool] = True

    def _degrees_like(self, values: Array) -> Array:
        """Return the degrees of freedom with as many axes as the values (R, K, …)."""
        return self.degrees.reshape(self.degrees.shape + (1,) * (values.ndim - self.degrees.ndim))

    def log_peaks(self, log_determinant: Array, n_features: int | IntArray) -> Array:
        degrees = self._degrees_like(log_determinant)
        powers = log_determinant + n_features * np.log(math.pi * degrees)
        return gammaln(0.5 * (degrees + n_features)) - gammaln(0.5 * degrees) - 0.5 * powers

    def at_distances(
        self, distances: FloatArray, peaks: FloatArray, n_features: int | IntArray
    ) -> tuple[FloatArray, FloatArray | None]:
        degrees = self._degrees_like(distances)
        ratio = 1.0 + distances / degrees
        precisions = (degrees + n_features) / (degrees * ratio)
        return peaks - 0.5 * (degrees + n_features) * np.log(ratio), precisions

    def mean_logs(self, n_features: int | IntArray) -> FloatArray:
        """Return E[log u] − log E[u] of rows, (R, K, 1) or (R, K, n)."""
        counts, place = np.unique(n_features, return_inverse=True)
        half = 0.5 * (self.degrees[..., None] + counts)
        return (digamma(half) - np.log(half))[..., place.reshape(-1)]

    def weigh(
        self, shares: FloatArray, precisions: Any, n_features: int | IntArray
    ) -> tuple[FloatArray, Sums]:
        """Return the weights w E[u] (R, K, n) of rows in the moments.

        The sums (R, K) of these weights and of w E[log u] come with them.
        """
        log_precisions = (shares * (np.log(precisions) + self.mean_logs(n_features))).sum(axis=-1)
        weights = shares * precisions
        return weights, (weights.sum(axis=-1), log_precisions)

    def mass_in_moments(self, mass: FloatArray, sums: Sums) -> FloatArray:
        return sums[0]

    def improve(self, mass: FloatArray, alive: Array, sums: Sums) -> StudentT:
        """Return kernels with the likeliest degrees of freedom; only those that are `alive` (R, K) change.

        The mass (R, K) is positive everywhere.
        """
        precisions, log_precisions = sums
        gap = np.where(alive, (log_precisions - precisions) / mass, -1.0)
        return StudentT(np.where(alive, likeliest_degrees(gap), self.degrees))

    def widening(self, distances: FloatArray, n_known: int) -> FloatArray:
        """Return the factors (n, K) of scale matrices given known values at squared distances (n, K)."""
        return (self.degrees + distances) / (self.degrees + n_known)

    def conditional(self, n_known: int) -> Tail:
        return StudentT(self.degrees + n_known)

    def stretch(self, kernel: int, n_rows: int, random_state: np.random.RandomState) -> FloatArray:
        degrees = self.degrees[kernel]
        return np.sqrt(degrees / random_state.chisquare(degrees, size=n_rows))[:, None]


Tail = Gaussian | StudentT
GAUSSIAN = Gaussian()


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
