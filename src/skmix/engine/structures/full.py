"""Unrestricted covariances, of each kernel or of all: the structure that others are made from."""

from __future__ import annotations

import numpy as np

from ..numbers import FARTHEST_SQUARED, Array, constant, namespace, take
from ..records import Factor, FloatArray, IntArray, Regulariser
from .factors import factor_of, index_of, unpack, whiten_batch, whiten_bounded

# Rows that a kernel needs per covariance parameter and feature. With fewer, shrinkage gives higher held-out
# likelihoods in all cases of benchmarks/few_rows.py; with more it depends on the data.
ROWS_PER_NUMBER = 3.0

# Mass (R, K), offsets of the means (R, K, M) and second-order sums (R, K, S) of `Structure.update`.
Triple = tuple[FloatArray, FloatArray, FloatArray]


def lengths(white: FloatArray) -> FloatArray:
    """Return finite squared lengths (..., n) of whitened differences (..., M, n), which become squares."""
    with np.errstate(over="ignore"):
        found: FloatArray = np.square(white, out=white).sum(axis=-2)
    return np.fmin(found, FARTHEST_SQUARED, out=found)


class Structure:
    """A stateless covariance structure with S second-order terms.

    This class is the unrestricted one, a matrix for every kernel: covariances of shape (R, K, M, M).
    """

    name = "full"
    isotropic = False  # whether rescaling must use one scale for all features
    shared = False  # whether all kernels have the same covariance
    triangular = True  # whether whiteners are lower triangular matrices; otherwise diagonals
    # Structure whose fit gives the covariance to shrink towards; None if covariances are not shrunk.
    pools_as: str | None = "tied"

    def n_second(self, n_features: int) -> int:
        """Return S."""
        return len(self.pairs(n_features)[0])

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        """Return the number of free covariance parameters."""
        return (1 if self.shared else n_kernels) * self.n_second(n_features)

    def rows_wanted(self, n_features: int) -> float:
        """Return the number of rows of a kernel above which its covariance should not be shrunk."""
        return ROWS_PER_NUMBER * n_features

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        """Return the two features, (S,) and (S,), of each second-order term."""
        return index_of(n_features, "first"), index_of(n_features, "second")

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        """Return the shape of one model's covariances."""
        return (n_kernels, n_features, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        """Return the structure's approximation of full covariances (R, K, M, M), averaged if shared."""
        return covariances

    def common(self, covariance: FloatArray) -> FloatArray:
        """Return a covariance (M, M), or variances (M,), as (M, M); as (M,) if features are independent."""
        return np.diag(covariance) if covariance.ndim == 1 else covariance

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        """Return starting covariances of K kernels from a common one, (R, M, M) or (R, M) as by `common`."""
        one = self.from_full(covariances[:, None])
        return one if self.shared else np.repeat(one, n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return full covariances (R, K, M, M)."""
        return covariances

    def correlate(self, covariances: FloatArray, normal: FloatArray) -> FloatArray:
        """Return deviations (n, M) with the covariance of one kernel, from standard normal numbers (n, M)."""
        return normal @ np.linalg.cholesky(self.to_full(covariances, 1, normal.shape[1])[0, 0]).T

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Return the covariances of x · scale, scale (M,)."""
        return covariances * scale[:, None] * scale

    def widened(self, covariances: FloatArray, factors: FloatArray) -> FloatArray:
        """Return covariances times a factor (K,) for each kernel; a shared covariance becomes K of them."""
        stack = self.by_kernel(covariances)
        return stack * factors.reshape((-1,) + (1,) * (stack.ndim - 2))

    def variances(self, covariances: FloatArray) -> FloatArray:
        """Return variances (R, K or 1, M or 1) of the kernels."""
        return namespace(covariances).linalg.diagonal(self.by_kernel(covariances))

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        """Return the second-order terms (R, K, S), about the mean, of a unit mass with these covariances."""
        return self.pack(self.to_full(covariances, n_kernels, n_features))

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        """Return the whiteners and determinants of the covariances of R starts."""
        stack = self.by_kernel(covariances)
        flat = namespace(stack).reshape(stack, (-1, n_features, n_features))
        return factor_of(whiten_batch(flat), stack.shape)

    def by_kernel(self, covariances: FloatArray) -> FloatArray:
        """Return covariances with an axis of kernels, (R, K or 1, M, M)."""
        return covariances[:, None, ...] if self.shared else covariances

    def quadratic(self, factor: Factor) -> FloatArray:
        """Return the coefficients (R, K or 1, S) of the second-order terms in the log-density."""
        whitener = factor.whitener
        precision = namespace(whitener).matrix_transpose(whitener) @ whitener
        return self.pack(precision) * constant(
            index_of, precision.shape[-1], "multiplicity", example=precision
        )

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        """Return P⁻¹v for vectors (R, K, M)."""
        whitener = factor.whitener
        return (namespace(whitener).matrix_transpose(whitener) @ (whitener @ vectors[..., None]))[..., 0]

    def precisions(self, factor: Factor) -> FloatArray:
        """Return the diagonals (R, K or 1, M) of the inverse covariances."""
        return (factor.whitener**2).sum(-2)

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        """Return tr(ΣP⁻¹), shape (R, K or 1), of one covariance Σ as by `common`."""
        whitener = factor.whitener
        return namespace(whitener).sum((whitener @ covariance) * whitener, axis=(-2, -1))

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        """Return squared Mahalanobis lengths (..., n) of differences (..., M, n) under kernels' whiteners."""
        return lengths(whitener @ difference)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        """Return second moments from rows (..., n, M) and the same rows times their weights."""
        return namespace(weighted).matrix_transpose(weighted) @ difference

    def second_sums(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        """Return second-order sums (R, K, S) of the same."""
        return self.pack(self.second_moment(difference, weighted))

    def pack(self, moments: FloatArray) -> FloatArray:
        """Return second moments of k kernels as second-order terms (k, S)."""
        xp, n_features = namespace(moments), moments.shape[-1]
        flat = xp.reshape(moments, (*moments.shape[:-2], n_features * n_features))
        return take(flat, constant(index_of, n_features, "packed", example=moments), axis=-1)

    def update(self, sums: Triple, regulariser: Regulariser) -> tuple[FloatArray, Factor]:
        """Return the covariances that maximise the expected log-likelihood, and their factor: (M3).

        The sums are the positive mass (R, K), the new means less the origins of the moments (R, K, M), and
        the second-order sums (R, K, S) about these origins.
        """
        mass, offset, second = sums
        xp, n_features = namespace(mass), offset.shape[-1]
        weighted = mass[..., None] * offset
        if self.shared:
            covariances = unpack(xp.sum(second, axis=1), n_features)
            covariances = covariances - xp.matrix_transpose(weighted) @ offset
            mass = xp.sum(mass, axis=1)
        else:
            covariances = unpack(second, n_features)
            covariances -= weighted[..., None] * offset[..., None, :]
        if regulariser.prior_rows:
            covariances += regulariser.prior_rows * regulariser.prior_covariance
            mass = mass + regulariser.prior_rows
        covariances /= mass[..., None, None]
        if regulariser.ridge is not None:
            covariances += regulariser.ridge * constant(np.eye, n_features, example=covariances)
        return self.raised(covariances, regulariser.floor)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        """Return covariances raised to P ⪰ diag(floor), floor (M,), and their factor."""
        xp, stack = namespace(covariances), self.by_kernel(covariances)
        flat, found = whiten_bounded(xp.reshape(covariances, (-1, *covariances.shape[-2:])), floor)
        return xp.reshape(flat, covariances.shape), factor_of(found, stack.shape)

    def take_kernels(self, covariances: FloatArray, kernels: IntArray) -> FloatArray:
        """Return the covariances of the chosen kernels (R, k) of each start."""
        if self.shared:
            return covariances
        index = kernels.reshape(kernels.shape + (1,) * (covariances.ndim - 2))
        return np.take_along_axis(covariances, index, axis=1)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        """Return the covariances of some features."""
        return covariances[..., columns[:, None], columns]

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        """Return the largest variance inflation (R,) of each start, infinite where it is not usable.

        A subset of the features has no larger one.
        """
        found = self.variances(covariances) * self.precisions(factor)
        return np.where(factor.usable, found.max(axis=(1, 2)), np.inf)

    def moved(self, second: Array, first: Array, mass: Array, shift: Array) -> Array:
        """Return second-order sums (R, K, S) about other origins: the old ones less `shift` (R, K, M).

        `first` (R, K, M) and `mass` (R, K, 1) are the other sums.
        """
        one, other = first[..., None, :], shift[..., None, :]
        moments = self.second_moment(one, other) + self.second_moment(other, one)
        moments += self.second_moment(other, mass[..., None] * other)
        return second + self.pack(moments)

    def log_prior(self, factor: Factor, regulariser: Regulariser) -> FloatArray:
        """Return −ν/2 Σ (log|P| + tr(Σ₀P⁻¹)), (R,): the inverse-Wishart prior, up to a constant."""
        terms = factor.log_determinant + self.trace(factor, regulariser.prior_covariance)
        return -0.5 * regulariser.prior_rows * namespace(terms).sum(terms, axis=-1)

    def from_root(self, root: FloatArray) -> FloatArray:
        """Return the covariances whose whiteners have these inverses."""
        covariances = root @ root.mT
        covariances = 0.5 * (covariances + covariances.mT)
        return covariances[:, 0] if self.shared else covariances


class Tied(Structure):
    """One covariance matrix for all kernels: shape (R, M, M), with a kernel axis of one in factors."""

    name = "tied"
    pools_as = None
    shared = True

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_features, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return covariances.mean(axis=-3)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return np.repeat(covariances[..., None, :, :], n_kernels, axis=-3)
