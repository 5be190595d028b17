"""One covariance matrix for all kernels."""

from __future__ import annotations

import numpy as np

from ..compute.arrays import namespace
from ..model import BoolArray, Factor, FloatArray, IntArray, Regulariser
from .base import Wishart
from .full import Full, unpack


class Tied(Full):
    """Covariances of shape (R, M, M). The densities are those of `Full` with a kernel axis of one."""

    name = "tied"
    pools_as = None

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_features, n_features)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        return covariances.mean(axis=-3)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        return np.repeat(covariances[..., None, :, :], n_kernels, axis=-3)

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        return super().factor(covariances[:, None, ...], n_features)

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        xp = namespace(mass)
        scatter = unpack(xp.sum(second, axis=1), offset.shape[-1])
        scatter -= xp.matrix_transpose(mass[..., None] * offset) @ offset
        all_mass = xp.sum(mass, axis=1, keepdims=True)
        covariances, factor = self.finish(scatter[:, None, ...], all_mass, regulariser)
        return covariances[:, 0, ...], factor

    def conditional(
        self, covariances: FloatArray, columns: IntArray, n_features: int
    ) -> tuple[FloatArray, FloatArray]:
        slope, remaining = super().conditional(covariances, columns, n_features)
        return slope, remaining[:, 0]

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        raised, factor = super().raised(covariances[:, None, ...], floor)
        return raised[:, 0, ...], factor

    def variances(self, covariances: FloatArray) -> FloatArray:
        return super().variances(covariances[:, None, ...])

    def where_alive(self, alive: BoolArray, new: FloatArray, old: FloatArray) -> FloatArray:
        xp = namespace(new)
        return xp.where(xp.any(alive, axis=1)[:, None, None], new, old)

    def take_kernels(self, covariances: FloatArray, kernels: IntArray) -> FloatArray:
        return covariances

    def wishart(self, n_features: int) -> Wishart:
        return Wishart(n_features, shared=True)

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        return self.n_second(n_features)
