"""The interface of covariance structures.

A Gaussian log-density is linear in the second-order terms of x, in x itself and in 1, so for all kernels of
all starts it is one matrix product. A structure says which second-order terms it needs, how a covariance
becomes their coefficients, and how their weighted sums become a covariance again. A new structure is one new
file with such a class, and a line in ``covariances/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..compute.arrays import namespace, pick
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Regulariser, Statistics

# Rows a kernel needs for each number that its covariance has per feature. With fewer, shrinkage gives higher
# held-out likelihoods in all cases of benchmarks/few_rows.py; with more it depends on the data.
ROWS_PER_NUMBER = 3.0

Product = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class Wishart:
    """The Wishart distribution of the precisions of a structure, in variational fits.

    Attributes
    ----------
    dimension : int
        Size of the matrices: M, or 1 where features do not vary together.
    copies : int
        Number of independent matrices that make up a precision.
    repeats : int
        How often each of them occurs in a precision: each row is that many observations of it.
    shared : bool
        Whether all kernels have the same precision.
    """

    dimension: int
    copies: int = 1
    repeats: int = 1
    shared: bool = False


class Structure(ABC):
    """A covariance structure, without state. S is the number of second-order terms it needs."""

    name: str
    isotropic: bool = False
    """Whether features must share one scale for the structure to survive rescaling."""
    triangular: bool = False
    """Whether whiteners are lower triangular matrices; otherwise they are diagonals, or factors."""
    projects: bool = False
    """Whether log-densities have a term ½‖Vx‖² besides those that are linear in second-order terms."""
    pools_as: str | None = None
    """Structure whose fit gives the covariance to shrink towards; None where covariances are not shrunk."""
    largest_cancellation: float = 2.0**24
    """Largest sum of terms of a log-density that may cancel; 2^24 leaves an accuracy of about 1e-9."""

    def of(self, covariances: FloatArray) -> Structure:
        """Return the structure with the size of these covariances, where it has one of its own."""
        return self

    def n_sums(self, n_features: int) -> int:
        """Return the length of `Statistics.second`: S, and M · q where there are q projections."""
        return self.n_second(n_features)

    @abstractmethod
    def n_second(self, n_features: int) -> int:
        """Return S."""

    @abstractmethod
    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        """Return the two features (S,) and (S,) whose product each second-order term is."""

    @abstractmethod
    def products(self, twice: FloatArray, out: FloatArray) -> list[Product]:
        """Return (left, right, out) of the products that make the second-order terms `out` (S, n).

        All are views of `out` and of `twice` (2M, n), which holds the rows x (M, n) two times.
        """

    @abstractmethod
    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        """Return the shape of one model's covariances."""

    @abstractmethod
    def from_full(self, covariances: FloatArray) -> FloatArray:
        """Return the structure's covariances nearest to full ones (R, K, M, M), averaged where it shares."""

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        """Return covariances to start from, with one (R, M, M) that all K kernels have."""
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
        """Return the second moments of kernels' rows (..., n, M), given also times their weights."""

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
            Second-order sums about that origin; a structure that projects has those of x(Vx)ᵀ behind them.
        regulariser : Regulariser
            Floor, ridge and prior.
        previous : ndarray, optional
            Covariances that the sums were collected with: a structure that projects makes one step from them,
            which raises the expected log-likelihood without maximising it.
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
            Of the observed features.
        columns : ndarray of shape (O,)
            Which features those are.
        shift : ndarray of shape (R, K, O)
            The origin of their moments, less the origin that the result is to have.
        parameters : Parameters
            Of all features; the means are less the latter origin.
        """

    @abstractmethod
    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return the second-order terms (R, K, S), about the mean, of a unit mass with these covariances."""

    @abstractmethod
    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        """Return covariances raised to P ⪰ diag(floor), floor (M,), and their factor."""

    @abstractmethod
    def variances(self, covariances: FloatArray) -> FloatArray:
        """Return variances (R, K or 1, M or 1) of the kernels, to hold against squared offsets."""

    def keep(self, alive: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
        """Return `new` covariances where kernels are `alive` (R, K), `old` ones elsewhere."""
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
        """Return the number of rows of a kernel from which on its covariance is better not shrunk."""
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
        """Return the whiteners (q, …) of some kernels, given by start and kernel."""
        n_starts, n_kernels = factor.whitener.shape[:2]
        flat = namespace(factor.whitener).reshape(
            factor.whitener, (n_starts * n_kernels, *factor.whitener.shape[2:])
        )
        return pick(flat, [r * n_kernels + min(k, n_kernels - 1) for r, k in kernels])
