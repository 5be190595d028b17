"""One variance for every kernel, the same for all features."""

from __future__ import annotations

import numpy as np

from ..compute.arrays import namespace
from ..model import Factor, FloatArray, IntArray, Regulariser
from .base import Wishart
from .diagonal import Diagonal


class Spherical(Diagonal):
    """Covariances of shape (R, K). Densities are those of `Diagonal` with equal variances."""

    name = "spherical"
    pools_as = None
    isotropic = True

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels,)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return super().from_full(covariances).mean(axis=-1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return covariances[..., None, None] * np.eye(n_features)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[0] ** 2

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        xp = namespace(covariances)
        return super().factor(xp.repeat(covariances[..., None], n_features, axis=-1), n_features)

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        variances = self.unbounded(mass, offset, second, regulariser)
        return self.raised(namespace(mass).mean(variances, axis=-1), regulariser.floor)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        xp = namespace(covariances)
        variances = xp.maximum(covariances, xp.mean(floor))
        return variances, self.factor(variances, floor.shape[0])

    def variances(self, covariances: FloatArray) -> FloatArray:
        return covariances[..., None]

    def wishart(self, n_features: int) -> Wishart:
        return Wishart(1, repeats=n_features)

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels
