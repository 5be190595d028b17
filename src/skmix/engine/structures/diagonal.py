"""Independent features within kernels: a variance for each feature, or one for all."""

from __future__ import annotations

import numpy as np

from ..numbers import TINY, clip, namespace
from ..records import Factor, FloatArray, IntArray, Regulariser
from .factors import HUGE
from .full import Structure, Triple, lengths


class Diagonal(Structure):
    """A variance for every kernel and feature: shape (R, K, M)."""

    name = "diag"
    triangular = False
    pools_as: str | None = "diag"

    def rows_wanted(self, n_features: int) -> float:
        return 0.0

    def pairs(self, n_features: int) -> tuple[IntArray, IntArray]:
        every = np.arange(n_features)
        return every, every

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=-2, axis2=-1).copy()

    def common(self, covariance: FloatArray) -> FloatArray:
        return covariance if covariance.ndim == 1 else np.diagonal(covariance).copy()

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        return np.repeat(covariances[:, None], n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return self.variances(covariances)[..., None] * np.eye(n_features)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale**2

    def variances(self, covariances: FloatArray) -> FloatArray:
        return covariances

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        shape = (len(covariances), n_kernels, n_features)
        return np.broadcast_to(self.variances(covariances), shape).copy()

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        xp = namespace(covariances)
        safe = clip(covariances, TINY, HUGE)
        usable = xp.all(safe == covariances, axis=(1, 2))
        return Factor(xp.reciprocal(xp.sqrt(safe)), xp.sum(xp.log(safe), axis=-1), usable)

    def quadratic(self, factor: Factor) -> FloatArray:
        return -0.5 * factor.whitener**2

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        return factor.whitener**2 * vectors

    def precisions(self, factor: Factor) -> FloatArray:
        return factor.whitener**2

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        trace: FloatArray = factor.whitener**2 @ covariance
        return trace

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        return lengths(whitener[..., None] * difference)

    def second_moment(self, difference: FloatArray, weighted: FloatArray) -> FloatArray:
        return namespace(weighted).sum(weighted * difference, axis=-2)

    def pack(self, moments: FloatArray) -> FloatArray:
        return moments

    def update(self, sums: Triple, regulariser: Regulariser) -> tuple[FloatArray, Factor]:
        mass, offset, second = sums
        variances, xp = second - mass[..., None] * offset**2, namespace(mass)
        if regulariser.prior_rows:
            variances += regulariser.prior_rows * regulariser.prior_covariance
            mass = mass + regulariser.prior_rows
        variances /= mass[..., None]
        if regulariser.ridge is not None:
            variances += regulariser.ridge
        return self.raised(xp.mean(variances, axis=-1) if self.isotropic else variances, regulariser.floor)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        xp = namespace(covariances)
        variances = xp.maximum(covariances, xp.mean(floor) if self.isotropic else floor)
        return variances, self.factor(variances, floor.shape[0])

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances if self.isotropic else covariances[..., columns]

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        return np.ones(len(covariances))

    def from_root(self, root: FloatArray) -> FloatArray:
        return root[..., 0] ** 2 if self.isotropic else root**2


class Spherical(Diagonal):
    """One variance for every kernel, the same for all features: shape (R, K)."""

    name = "spherical"
    pools_as = None
    isotropic = True

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return n_kernels

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels,)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return super().from_full(covariances).mean(axis=-1)

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        return super().from_common(covariances, n_kernels).mean(axis=-1)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[0] ** 2

    def variances(self, covariances: FloatArray) -> FloatArray:
        return covariances[..., None]

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        xp = namespace(covariances)
        return super().factor(xp.repeat(covariances[..., None], n_features, axis=-1), n_features)
