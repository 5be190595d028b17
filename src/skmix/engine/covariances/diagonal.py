"""A variance for every kernel and feature."""

from __future__ import annotations

import numpy as np

from ..compute.arrays import namespace
from ..model import Factor, FloatArray, IntArray, Parameters, Regulariser, Statistics
from .base import Product, Structure, Wishart


class Diagonal(Structure):
    """Covariances of shape (R, K, M)."""

    name = "diag"
    pools_as: str | None = "diag"

    def n_second(self, n_features: int) -> int:
        return n_features

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        every = np.arange(n_features)
        return every, every

    def products(self, twice: FloatArray, out: FloatArray) -> list[Product]:
        x = twice[: len(twice) // 2]
        return [(x, x, out)]

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=-2, axis2=-1).copy()

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return covariances[..., None] * np.eye(n_features)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale**2

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        xp = namespace(covariances)
        positive = (covariances > 0) & xp.isfinite(covariances)
        safe = xp.where(positive, covariances, 1.0)
        return Factor(1.0 / xp.sqrt(safe), xp.sum(xp.log(safe), axis=-1), xp.all(positive, axis=(1, 2)))

    def quadratic(self, factor: Factor) -> FloatArray:
        return -0.5 * factor.whitener**2

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        return factor.whitener**2 * vectors

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        white = whitener[..., None] * difference
        return namespace(white).sum(white * white, axis=-2)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        return namespace(weighted).sum(weighted * difference, axis=-2)

    def pack(self, moments: FloatArray) -> FloatArray:
        return moments

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        return self.raised(self.unbounded(mass, offset, second, regulariser), regulariser.floor)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances[..., columns]

    def conditional(
        self, covariances: FloatArray, columns: IntArray, n_features: int
    ) -> tuple[FloatArray, FloatArray]:
        gaps = np.setdiff1d(np.arange(n_features), columns)
        return np.zeros((len(covariances), 1, len(gaps), len(columns))), self.marginal(covariances, gaps)

    def complete(
        self, observed: Statistics, columns: IntArray, shift: FloatArray, parameters: Parameters
    ) -> tuple[FloatArray, FloatArray]:
        mass, first, second = np.sum(observed.mass, axis=-1), observed.first, observed.second
        means, covariances = parameters.means, parameters.covariances
        # Missing values are independent of observed ones: they have the kernel's mean and variance.
        variances = np.broadcast_to(self.variances(covariances), means.shape)
        all_first = mass[..., None] * means
        all_second = mass[..., None] * (means**2 + variances)
        all_first[..., columns] = first + mass[..., None] * shift
        all_second[..., columns] = second + 2.0 * first * shift + mass[..., None] * shift**2
        return all_first, all_second

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        shape = (len(covariances), n_kernels, n_features)
        return np.broadcast_to(self.variances(covariances), shape).copy()

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        variances = namespace(covariances).maximum(covariances, floor)
        return variances, self.factor(variances, floor.shape[0])

    def unbounded(
        self, mass: FloatArray, offset: FloatArray, second: FloatArray, regulariser: Regulariser
    ) -> FloatArray:
        """Return the variances (R, K, M) before the floor."""
        scatter = second - mass[..., None] * offset**2
        xp = namespace(scatter)
        scatter += regulariser.prior_rows * xp.linalg.diagonal(regulariser.prior_covariance)
        variances: FloatArray = scatter / (mass + regulariser.prior_rows)[..., None] + regulariser.ridge
        return variances

    def variances(self, covariances: FloatArray) -> FloatArray:
        return covariances

    def wishart(self, n_features: int) -> Wishart | None:
        return Wishart(1, copies=n_features)

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        trace: FloatArray = factor.whitener**2 @ namespace(covariance).linalg.diagonal(covariance)
        return trace

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels * n_features
