"""A covariance matrix for every kernel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..linalg import invert_lower, raise_eigenvalues, whiten_batch
from ..types import BoolArray, Factor, FloatArray, IntArray, Regulariser
from .base import Product, Structure, prior_log_density


@lru_cache(maxsize=64)
def pairs(n_features: int) -> tuple[IntArray, IntArray]:
    """Return every pair of features once: (i, i + s mod M) for s = 0, 1, … ⌊M/2⌋.

    In this order all products are one strided elementwise product of the rows with themselves, one call
    rather than one for each feature.
    """
    steps = np.arange(n_features * (n_features + 1) // 2) // n_features
    first = np.arange(len(steps)) % n_features
    return first, (first + steps) % n_features


class Full(Structure):
    """Covariances of shape (R, K, M, M)."""

    name = "full"

    def n_second(self, n_features: int) -> int:
        return n_features * (n_features + 1) // 2

    def products(self, twice: FloatArray, out: FloatArray) -> list[Product]:
        n_features, n_rows = len(twice) // 2, twice.shape[1]
        row, column = twice.strides
        whole = (n_features + 1) // 2
        shifted = as_strided(twice, (whole, n_features, n_rows), (row, row, column))
        terms = out[: whole * n_features].reshape(whole, n_features, n_rows)
        products = [(twice[:n_features], shifted, terms)]
        if n_features % 2 == 0:
            # Half the circle away every pair would come twice.
            half = n_features // 2
            products.append((twice[:half], twice[half:n_features], out[whole * n_features :]))
        return products

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels, n_features, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return covariances

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return covariances

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[:, None] * scale

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        n_starts, n_kernels = covariances.shape[:2]
        whitener, log_determinant, positive = whiten_batch(covariances.reshape(-1, n_features, n_features))
        return Factor(
            whitener.reshape(covariances.shape),
            log_determinant.reshape(n_starts, n_kernels),
            np.all(positive.reshape(n_starts, n_kernels), axis=1),
        )

    def quadratic(self, factor: Factor) -> FloatArray:
        precision = np.swapaxes(factor.whitener, -1, -2) @ factor.whitener
        i, j = pairs(precision.shape[-1])
        # x'Qx counts each pair of distinct features twice.
        return precision[..., i, j] * np.where(i == j, -0.5, -1.0)

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        white = factor.whitener @ vectors[..., None]
        return (np.swapaxes(factor.whitener, -1, -2) @ white)[..., 0]

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        white = whitener @ difference
        return np.einsum("dn,dn->n", white, white)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        return weighted.T @ difference

    def pack(self, moments: FloatArray) -> FloatArray:
        i, j = pairs(moments.shape[-1])
        return moments[..., i, j]

    def update(
        self, mass: FloatArray, offset: FloatArray, second: FloatArray, regulariser: Regulariser
    ) -> tuple[FloatArray, Factor]:
        scatter = (
            unpack(second, offset.shape[-1]) - (mass[..., None] * offset)[..., None] * offset[..., None, :]
        )
        return self.finish(scatter, mass, regulariser)

    def finish(
        self, scatter: FloatArray, mass: FloatArray, regulariser: Regulariser
    ) -> tuple[FloatArray, Factor]:
        """Divide scatter (R, K, M, M) by mass (R, K) and apply prior, ridge and floor."""
        covariances = scatter + regulariser.prior_rows * regulariser.prior_covariance
        covariances /= (mass + regulariser.prior_rows)[..., None, None]
        i = np.arange(covariances.shape[-1])
        covariances[..., i, i] += regulariser.ridge
        return bounded(covariances, regulariser.floor)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances[..., columns[:, None], columns]

    def conditional(
        self, covariances: FloatArray, columns: IntArray, n_features: int
    ) -> tuple[FloatArray, FloatArray]:
        gaps = np.setdiff1d(np.arange(n_features), columns)
        n_known = len(columns)
        ordered = self.marginal(covariances, np.concatenate([columns, gaps]))
        whitener = self.factor(ordered, n_features).whitener
        # The last rows of W whiten the gaps once what the known features say of them is taken off. The
        # inverse of their square is a covariance whatever the rounding; a difference of two need not be.
        root = invert_lower(whitener[..., n_known:, n_known:])
        remaining = root @ np.swapaxes(root, -1, -2)
        remaining = 0.5 * (remaining + np.swapaxes(remaining, -1, -2))
        return -(root @ whitener[..., n_known:, :n_known]), remaining

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
        n_kernels, n_features = means.shape[1:]
        gaps = np.setdiff1d(np.arange(n_features), columns)
        # E[x_gaps | x_observed] = constant + slope · x_observed.
        slope, remaining = self.conditional(covariances, columns, n_features)
        remaining = self.to_full(remaining, n_kernels, len(gaps))
        constant = means[..., gaps] - (slope @ means[..., columns, None])[..., 0]

        outer = first[..., None] * shift[..., None, :]
        moments = unpack(second, len(columns)) + outer + np.swapaxes(outer, -1, -2)
        moments += (mass[..., None] * shift)[..., None] * shift[..., None, :]
        sums = first + mass[..., None] * shift
        predicted = (slope @ sums[..., None])[..., 0]

        all_first = np.empty_like(means)
        all_first[..., columns] = sums
        all_first[..., gaps] = mass[..., None] * constant + predicted
        all_second = np.empty((*means.shape, n_features))
        all_second[..., columns[:, None], columns] = moments
        crossed = constant[..., None] * sums[..., None, :] + slope @ moments
        all_second[..., gaps[:, None], columns] = crossed
        all_second[..., columns[:, None], gaps] = np.swapaxes(crossed, -1, -2)
        mixed = predicted[..., None] * constant[..., None, :]
        own = slope @ moments @ np.swapaxes(slope, -1, -2) + mixed + np.swapaxes(mixed, -1, -2)
        own += mass[..., None, None] * (remaining + constant[..., None] * constant[..., None, :])
        all_second[..., gaps[:, None], gaps] = own
        return all_first, self.pack(all_second)

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return self.pack(self.to_full(covariances, n_kernels, n_features))

    def coordinates(self, covariances: FloatArray) -> FloatArray:
        # The inverse Cholesky factor, with the logarithm of its diagonal.
        whitener = self.factor(covariances, covariances.shape[-1]).whitener.copy()
        i = np.arange(whitener.shape[-1])
        whitener[..., i, i] = np.log(whitener[..., i, i])
        return whitener.reshape(len(whitener), -1)

    def from_coordinates(self, numbers: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        whitener = numbers.reshape(shape).copy()
        i = np.arange(shape[-1])
        whitener[..., i, i] = np.exp(whitener[..., i, i])
        bad = ~np.isfinite(whitener).all(axis=(-2, -1)) | ~(whitener[..., i, i] > 0).all(axis=-1)
        whitener[bad] = np.eye(shape[-1])
        root = np.linalg.inv(whitener)
        covariances = np.asarray(root @ np.swapaxes(root, -1, -2), dtype=np.float64)
        covariances[bad] = np.inf
        return covariances

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        return bounded(covariances.copy(), floor)

    def variances(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=-2, axis2=-1)

    def keep(self, alive: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
        return np.where(alive[..., None, None], new, old)

    def log_prior(self, factor: Factor, regulariser: Regulariser) -> FloatArray:
        trace = np.einsum(
            "rked,rkef,df->rk", factor.whitener, factor.whitener, regulariser.prior_covariance, optimize=True
        )
        return prior_log_density(factor.log_determinant, trace, regulariser)

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels * self.n_second(n_features)


def unpack(second: FloatArray, n_features: int) -> FloatArray:
    """Return symmetric matrices (..., M, M) from their packed upper triangles (..., S)."""
    i, j = pairs(n_features)
    matrices = np.empty((*second.shape[:-1], n_features, n_features))
    matrices[..., i, j] = second
    matrices[..., j, i] = second
    return matrices


def bounded(covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
    """Raise covariances (R, K, M, M) to P ⪰ diag(floor) in place; return them and their factor."""
    n_starts, n_kernels, n_features, _ = covariances.shape
    flat = covariances.reshape(-1, n_features, n_features)
    whitener, log_determinant, positive = whiten_batch(flat)
    if floor.all():
        # tr(P⁻¹ diag(floor)) < 1 proves every relative eigenvalue above one, at no cost.
        trace = np.einsum("bed,bed,d->b", whitener, whitener, floor)
        low = np.flatnonzero(~positive | (trace >= 1.0))
        if len(low):
            flat[low] = raise_eigenvalues(flat[low], floor)
            whitener[low], log_determinant[low], positive[low] = whiten_batch(flat[low])
    shape = (n_starts, n_kernels)
    return covariances, Factor(
        whitener.reshape(covariances.shape),
        log_determinant.reshape(shape),
        np.all(positive.reshape(shape), axis=1),
    )
