"""A covariance matrix for every kernel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..compute.arrays import Array, constant, is_numpy, namespace
from ..model import Factor, FloatArray, IntArray, Parameters, Regulariser, Statistics
from .base import ROWS_PER_NUMBER, Product, Structure, Wishart
from .linalg import invert_lower, whiten_batch, whiten_bounded


@lru_cache(maxsize=64)
def pairs(n_features: int) -> tuple[IntArray, IntArray]:
    """Return every pair of features once: (i, i + s mod M) for s = 0, 1, … ⌊M/2⌋.

    In this order all products are one strided elementwise product of the rows with themselves: one call
    instead of one per feature.
    """
    steps = np.arange(n_features * (n_features + 1) // 2) // n_features
    first = np.arange(len(steps)) % n_features
    return first, (first + steps) % n_features


@lru_cache(maxsize=64)
def _packed(n_features: int) -> IntArray:
    """Return the index (S,) of each pair in a flat matrix (M · M,)."""
    i, j = pairs(n_features)
    return i * n_features + j


@lru_cache(maxsize=64)
def _unpacked(n_features: int) -> IntArray:
    """Return the pair (M · M,) of each entry of a flat matrix."""
    i, j = pairs(n_features)
    where = np.empty((n_features, n_features), dtype=np.int64)
    where[i, j] = where[j, i] = np.arange(len(i))
    return where.ravel()


@lru_cache(maxsize=64)
def _multiplicity(n_features: int) -> FloatArray:
    """Return −½ times how often each pair (S,) of features occurs in x'Qx."""
    i, j = pairs(n_features)
    return np.where(i == j, -0.5, -1.0)


class Full(Structure):
    """Covariances of shape (R, K, M, M)."""

    name = "full"
    triangular = True
    pools_as: str | None = "tied"

    def n_second(self, n_features: int) -> int:
        return n_features * (n_features + 1) // 2

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        return pairs(n_features)

    def products(self, twice: FloatArray, out: FloatArray) -> list[Product]:
        n_features, n_rows = len(twice) // 2, twice.shape[1]
        row, column = twice.strides
        whole = (n_features + 1) // 2
        shifted = as_strided(twice, (whole, n_features, n_rows), (row, row, column))
        terms = out[: whole * n_features].reshape(whole, n_features, n_rows)
        products = [(twice[:n_features], shifted, terms)]
        if n_features % 2 == 0:
            # At an offset of M/2 every pair would occur twice.
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
        xp = namespace(covariances)
        found = whiten_batch(xp.reshape(covariances, (-1, n_features, n_features)))
        return _factor(*found, covariances.shape)

    def quadratic(self, factor: Factor) -> FloatArray:
        whitener = factor.whitener
        precision = namespace(whitener).matrix_transpose(whitener) @ whitener
        return self.pack(precision) * constant(_multiplicity, precision.shape[-1], example=precision)

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        whitener = factor.whitener
        return (namespace(whitener).matrix_transpose(whitener) @ (whitener @ vectors[..., None]))[..., 0]

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        white = whitener @ difference
        return namespace(white).sum(white * white, axis=-2)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        return namespace(weighted).matrix_transpose(weighted) @ difference

    def pack(self, moments: FloatArray) -> FloatArray:
        xp, n_features = namespace(moments), moments.shape[-1]
        flat = xp.reshape(moments, (*moments.shape[:-2], n_features * n_features))
        return xp.take(flat, constant(_packed, n_features, example=moments), axis=-1)

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
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
        covariances += regulariser.ridge * constant(np.eye, covariances.shape[-1], example=covariances)
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
        # The last rows of W whiten the gaps given the known features. The inverse of their square is positive
        # definite despite rounding, unlike the textbook's difference of two matrices.
        root = invert_lower(whitener[..., n_known:, n_known:])
        remaining = root @ np.swapaxes(root, -1, -2)
        remaining = 0.5 * (remaining + np.swapaxes(remaining, -1, -2))
        return -(root @ whitener[..., n_known:, :n_known]), remaining

    def complete(
        self, observed: Statistics, columns: IntArray, shift: FloatArray, parameters: Parameters
    ) -> tuple[FloatArray, FloatArray]:
        mass, first, second = np.sum(observed.mass, axis=-1), observed.first, observed.second
        means, covariances = parameters.means, parameters.covariances
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

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        return bounded(covariances.copy() if is_numpy(covariances) else covariances, floor)

    def variances(self, covariances: FloatArray) -> FloatArray:
        return namespace(covariances).linalg.diagonal(covariances)

    def rows_wanted(self, n_features: int) -> float:
        return ROWS_PER_NUMBER * n_features

    def wishart(self, n_features: int) -> Wishart:
        return Wishart(n_features)

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        whitener = factor.whitener
        return namespace(whitener).sum((whitener @ covariance) * whitener, axis=(-2, -1))

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels * self.n_second(n_features)


def unpack(second: FloatArray, n_features: int) -> FloatArray:
    """Return symmetric matrices (..., M, M) from their packed upper triangles (..., S)."""
    xp = namespace(second)
    flat = xp.take(second, constant(_unpacked, n_features, example=second), axis=-1)
    return xp.reshape(flat, (*second.shape[:-1], n_features, n_features))


def bounded(covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
    """Raise covariances (R, K, M, M) to P ⪰ diag(floor); return them and their factor.

    NumPy arrays change in place.
    """
    xp, n_features = namespace(covariances), covariances.shape[-1]
    flat, whitened = whiten_bounded(xp.reshape(covariances, (-1, n_features, n_features)), floor)
    return xp.reshape(flat, covariances.shape), _factor(*whitened, covariances.shape)


def _factor(whitener: Array, log_determinant: Array, positive: Array, shape: tuple[int, ...]) -> Factor:
    """Return the factor of covariances of that shape (R, K, M, M), given that of a batch of R · K."""
    xp = namespace(whitener)
    return Factor(
        xp.reshape(whitener, shape),
        xp.reshape(log_determinant, shape[:2]),
        xp.all(xp.reshape(positive, shape[:2]), axis=1),
    )
