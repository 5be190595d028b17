"""What a covariance structure of Gaussian kernels must offer the engine.

A Gaussian log-density is linear in the second-order terms of x, in x itself and in 1, so for all kernels of
all starts it is one matrix product. A structure says which second-order terms it needs, how a covariance
becomes their coefficients, and how their weighted sums become a covariance again. A new structure is one new
file with such a class, and a line in ``kernels/__init__.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..compute.arrays import namespace, pick
from ..model import BoolArray, Factor, FloatArray, IntArray, Regulariser

ROWS_PER_NUMBER = 3.0
"""Rows a kernel needs for each number that its covariance has for a feature.

With fewer, shrunk covariances describe other rows better in all that benchmarks/few_rows.py measures; with
more it depends on the data.
"""

Product = tuple[FloatArray, FloatArray, FloatArray]


@dataclass(frozen=True)
class Wishart:
    """How the precisions of a structure are distributed when they are not known.

    Attributes
    ----------
    dimension : int
        Size of the matrices: M, or 1 where features do not vary together.
    copies : int
        Number of independent matrices that make up a precision.
    repeats : int
        How often each of them comes in a precision: each row is that many observations of it.
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
    """Structure that finds what kernels have in common, to shrink towards it; None when nothing shrinks."""
    largest_cancellation: float = 2.0**24
    """Largest sum of terms of a log-density that may cancel; 2^24 leaves an accuracy of about 1e-9."""

    def of(self, covariances: FloatArray) -> Structure:
        """Return the structure with whatever size of its own these covariances (…) have."""
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
        """Return the products that make second-order terms: for each, left × right goes to the third array.

        Parameters
        ----------
        twice : ndarray of shape (2M, n)
            Memory of the rows x (M, n), and of x once more below it.
        out : ndarray of shape (S, n)
            Memory of their second-order terms. All arrays returned are views of the two.
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
        """Make covariances of R starts ready for densities."""

    @abstractmethod
    def quadratic(self, factor: Factor) -> FloatArray:
        """Return the coefficients (R, K or 1, S) of the second-order terms in the log-density."""

    def projections(self, factor: Factor) -> FloatArray | None:
        """Return the V (R, K, q, M) of a structure that projects.

        ‖Vx‖² may not exceed what the second-order terms take off, so that it adds nothing to the rounding.
        """
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

        A structure that projects raises it instead, from the covariances that the sums were collected with.

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
            Covariances that the sums were collected with.
        """

    @abstractmethod
    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        """Return the covariances of some features."""

    @abstractmethod
    def conditional(
        self, covariances: FloatArray, columns: IntArray, n_features: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return how the other G of M features depend on O of them.

        Parameters
        ----------
        covariances : ndarray
            Of all features.
        columns : ndarray of shape (O,)
            The features that are known.
        n_features : int
            M.

        Returns
        -------
        slopes : ndarray of shape (R, K or 1, G, O)
            The mean of the others is theirs plus the slope times the deviation of the known ones.
        covariances : ndarray
            What is left of the others' covariances, in the shape of the structure.
        """

    @abstractmethod
    def complete(
        self,
        mass: FloatArray,
        first: FloatArray,
        second: FloatArray,
        columns: IntArray,
        shift: FloatArray,
        means: FloatArray,
        covariances: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return expected moments of all M features, given those of O observed ones.

        Parameters
        ----------
        mass : ndarray of shape (R, K)
            Responsibility mass.
        first, second : ndarray of shape (R, K, O) and (R, K, S)
            Moments of the observed features.
        columns : ndarray of shape (O,)
            Which features those are.
        shift : ndarray of shape (R, K, O)
            Their origin, less the origin that the result is to have.
        means : ndarray of shape (R, K, M)
            Kernel means, less the latter origin.
        covariances : ndarray
            Of all features.
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

    @abstractmethod
    def keep(self, alive: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
        """Return `new` covariances where kernels are `alive` (R, K), `old` ones elsewhere."""

    @abstractmethod
    def log_prior(self, factor: Factor, regulariser: Regulariser) -> FloatArray:
        """Return the logarithm (R,) of the inverse-Wishart prior, up to a constant."""

    @abstractmethod
    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        """Return the number of free covariance parameters."""

    def rows_wanted(self, n_features: int) -> float:
        """Return from how many rows on a kernel's covariance is better left as it is than shrunk."""
        return 0.0

    def wishart(self, n_features: int) -> Wishart | None:
        """Return how precisions are distributed in a variational fit; None where none is possible."""
        return None

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        """Return tr(ΣP⁻¹), shape (R, K or 1), of one covariance Σ (M, M)."""
        raise NotImplementedError(f"{self.name} covariances have no conjugate prior.")

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


def prior_log_density(log_determinant: FloatArray, trace: FloatArray, regulariser: Regulariser) -> FloatArray:
    """Return −ν/2 Σ (log|P| + tr(Σ₀P⁻¹)), summed over the last axis."""
    terms: FloatArray = -0.5 * regulariser.prior_rows * (log_determinant + trace)
    return namespace(terms).sum(terms, axis=-1)
