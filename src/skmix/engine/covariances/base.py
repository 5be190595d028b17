"""The interface of covariance structures.

A Gaussian log-density is linear in the second-order terms of x, in x and in 1, so one matrix product computes
it for all kernels of all starts. A structure defines which second-order terms it needs, how a covariance is
turned into their coefficients, and how their weighted sums are turned into a covariance. To add a structure,
add a file with such a class and a line in ``covariances/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..compute.arrays import namespace, pick
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Regulariser, Statistics

# Rows that a kernel needs per covariance parameter and feature. With fewer, shrinkage gives higher held-out
# likelihoods in all cases of benchmarks/few_rows.py; with more it depends on the data.
ROWS_PER_NUMBER = 3.0

Product = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class Wishart:
    """The Wishart distribution of the precisions of a structure, in variational fits.

    Attributes
    ----------
    dimension : int
        Size of the matrices: M, or 1 if features are independent.
    copies : int
        Number of independent matrices in a precision.
    repeats : int
        How often each of them occurs in a precision: each row counts as that many observations.
    shared : bool
        Whether all kernels have the same precision.
    """

    dimension: int
    copies: int = 1
    repeats: int = 1
    shared: bool = False


class Structure(ABC):
    """A stateless covariance structure with S second-order terms."""

    name: str
    isotropic: bool = False
    """Whether rescaling must use one scale for all features."""
    triangular: bool = False
    """Whether whiteners are lower triangular matrices; otherwise they are diagonals, or factors."""
    projects: bool = False
    """Whether log-densities have a term ½‖Vx‖² besides those that are linear in second-order terms."""
    pools_as: str | None = None
    """Structure whose fit gives the covariance to shrink towards; None if covariances are not shrunk."""
    largest_cancellation: float = 2.0**24
    """Largest magnitude of cancelling terms in a log-density; 2^24 leaves an accuracy of about 1e-9."""

    def of(self, covariances: FloatArray) -> Structure:
        """Return the structure with the number of factors of these covariances, if it has any."""
        return self

    def n_sums(self, n_features: int) -> int:
        """Return the length of `Statistics.second`: S, and M · q where there are q projections."""
        return self.n_second(n_features)

    @abstractmethod
    def n_second(self, n_features: int) -> int:
        """Return S."""

    @abstractmethod
    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        """Return the two features, (S,) and (S,), of each second-order term."""

    @abstractmethod
    def products(self, twice: FloatArray, out: FloatArray) -> list[Product]:
        """Return (left, right, out) of the products that make the second-order terms `out` (S, n).

        All are views of `out` and of `twice` (2M, n), which holds the rows x (M, n) twice.
        """

    @abstractmethod
    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        """Return the shape of one model's covariances."""

    @abstractmethod
    def from_full(self, covariances: FloatArray) -> FloatArray:
        """Return the structure's approximation of full covariances (R, K, M, M), averaged if shared."""

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        """Return starting covariances of K kernels from a common one (R, M, M)."""
        return self.from_full(np.repeat(covariances[:, None], n_kernels, axis=1))

    @abstractmethod
    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return full covariances (R, K, M, M)."""

    @abstractmethod
    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the covariances of x · scale, scale (M,)."""

    @abstractmethod
    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        """Return the whiteners and determinants of the covariances of R starts."""

    @abstractmethod
    def quadratic(self, factor: Factor) -> FloatArray:
        """Return the coefficients (R, K or 1, S) of the second-order terms in the log-density."""

    def projections(self, factor: Factor) -> FloatArray | None:
        """Return the V (R, K, q, M) of a structure that projects."""
        return None

    @abstractmethod
    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        """Return P⁻¹v for vectors (R, K, M)."""

    @abstractmethod
    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        """Return squared Mahalanobis lengths (..., n) of differences (..., M, n) under kernels' whiteners."""

    @abstractmethod
    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        """Return second moments from rows (..., n, M) and the same rows times their weights."""

    @abstractmethod
    def pack(self, moments: FloatArray) -> FloatArray:
        """Return second moments of k kernels as second-order terms (k, S)."""

    @abstractmethod
    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        """Return the covariances that maximise the expected log-likelihood, and their factor: (M3).

        Parameters
        ----------
        mass : ndarray of shape (R, K)
            Responsibility mass, positive.
        offset : ndarray of shape (R, K, M)
            New mean less the origin of the moments.
        second : ndarray of shape (R, K, S)
            Second-order sums about that origin; for a structure that projects, followed by sums of x(Vx)ᵀ.
        regulariser : Regulariser
            Floor, ridge and prior.
        previous : ndarray, optional
            Covariances of the E-step: a structure that projects makes one step from them, which increases the
            expected log-likelihood without maximising it.
        """

    @abstractmethod
    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        """Return the covariances of some features."""

    @abstractmethod
    def conditional(
        self, covariances: FloatArray, columns: IntArray, n_features: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return the regression of the other G of M features on O known ones, `columns` (O,).

        The slopes have the shape (R, K or 1, G, O), the remaining covariances that of the structure.
        """

    @abstractmethod
    def complete(
        self, observed: Statistics, columns: IntArray, shift: FloatArray, parameters: Parameters
    ) -> tuple[FloatArray, FloatArray]:
        """Return the expected moments, first and second, of all M features, given those of O observed ones.

        Parameters
        ----------
        observed : Statistics
            Statistics of the observed features.
        columns : ndarray of shape (O,)
            Indices of the observed features.
        shift : ndarray of shape (R, K, O)
            Origin of their moments, relative to the origin of the result.
        parameters : Parameters
            Parameters of all features, with means relative to the origin of the result.
        """

    @abstractmethod
    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return the second-order terms (R, K, S), about the mean, of a unit mass with these covariances."""

    @abstractmethod
    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        """Return covariances raised to P ⪰ diag(floor), floor (M,), and their factor."""

    @abstractmethod
    def variances(self, covariances: FloatArray) -> FloatArray:
        """Return variances (R, K or 1, M or 1) of the kernels."""

    def where_alive(self, alive: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
        """Return `new` covariances of kernels that are `alive` (R, K), and `old` ones of the others."""
        xp = namespace(new)
        which = xp.reshape(alive, alive.shape + (1,) * (new.ndim - 2))
        return xp.where(which, new, old)

    def log_prior(self, factor: Factor, regulariser: Regulariser) -> FloatArray:
        """Return −ν/2 Σ (log|P| + tr(Σ₀P⁻¹)), (R,): the inverse-Wishart prior, up to a constant."""
        terms = factor.log_determinant + self.trace(factor, regulariser.prior_covariance)
        return -0.5 * regulariser.prior_rows * namespace(terms).sum(terms, axis=-1)

    @abstractmethod
    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        """Return the number of free covariance parameters."""

    def rows_wanted(self, n_features: int) -> float:
        """Return the number of rows of a kernel above which its covariance should not be shrunk."""
        return 0.0

    def wishart(self, n_features: int) -> Wishart | None:
        """Return the distribution of precisions in variational fits; None without a conjugate prior."""
        return None

    @abstractmethod
    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        """Return tr(ΣP⁻¹), shape (R, K or 1), of one covariance Σ (M, M)."""

    def take_kernels(self, covariances: FloatArray, kernels: IntArray) -> FloatArray:
        """Return the covariances of the chosen kernels (R, k) of each start."""
        index = kernels.reshape(kernels.shape + (1,) * (covariances.ndim - 2))
        return np.take_along_axis(covariances, index, axis=1)

    def whitener_of(self, factor: Factor, r: int, k: int) -> FloatArray:
        """Return the whitener of kernel k of start r."""
        return factor.whitener[r, min(k, factor.whitener.shape[1] - 1)]

    def whiteners_of(self, factor: Factor, kernels: Sequence[tuple[int, int]]) -> FloatArray:
        """Return the whiteners (q, …) of q kernels, given as (start, kernel)."""
        n_starts, n_kernels = factor.whitener.shape[:2]
        flat = namespace(factor.whitener).reshape(
            factor.whitener, (n_starts * n_kernels, *factor.whitener.shape[2:])
        )
        return pick(flat, [r * n_kernels + min(k, n_kernels - 1) for r, k in kernels])
