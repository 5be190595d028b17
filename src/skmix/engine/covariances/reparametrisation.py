"""Free coordinates of a structure's covariances around given ones, for optimisers that want no bounds.

Zero is the given covariance itself. Steps are taken in the units of its kernel, whatever the features' own:
the whitener W of P becomes V·W with a lower triangular V, whose diagonal is kept as logarithms. So every
number stands for a proper covariance, and results do not depend on how the features are scaled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache

import numpy as np

from ..model import Factor, FloatArray, IntArray
from .full import unpack
from .linalg import invert_lower


class Chart(ABC):
    """Coordinates around the covariances of one model, B = K of them or one for all.

    Parameters
    ----------
    factor : Factor
        Of the given covariances, with a leading axis of one start.
    """

    def __init__(self, factor: Factor) -> None:
        self.base = factor.whitener[0]
        self.log_determinant = factor.log_determinant[0]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """Kernels with coordinates of their own, B, and the coordinates of each."""

    @abstractmethod
    def stretch(self, numbers: FloatArray) -> FloatArray:
        """Return V of coordinates (B, …), in the shape that `moved`, `factor` and `gradients` want."""

    @abstractmethod
    def factor(self, stretch: FloatArray) -> Factor:
        """Return the factor (1, B, …) of the stretched covariances."""

    @abstractmethod
    def covariances(self, factor: Factor) -> FloatArray:
        """Return the structure's covariances, with a leading axis of one start, of a factor."""

    @abstractmethod
    def moved(self, steps: FloatArray) -> FloatArray:
        """Return W⁻¹s, the moves (K, M) of means by steps (K, M) in the kernels' units."""

    @abstractmethod
    def gradients(
        self, stretch: FloatArray, factor: Factor, mass: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradient with respect to steps of the means (K, M), and to coordinates (B, …).

        Parameters
        ----------
        stretch : ndarray
            V of the coordinates where the gradient is taken.
        factor : Factor
            Of the covariances there.
        mass : ndarray of shape (K,)
            Sums of the derivatives g_nk of the objective with respect to log N(x_n; μ_k, P_k).
        first, second : ndarray of shape (K, M) and (K, S)
            Sums of g_nk times x_n − μ_k, and times its second-order terms.
        """


class FullChart(Chart):
    """A triangle for each kernel."""

    def __init__(self, factor: Factor) -> None:
        super().__init__(factor)
        self._root = invert_lower(self.base)

    @property
    def shape(self) -> tuple[int, int]:
        n_features = self.base.shape[-1]
        return len(self.base), n_features * (n_features + 1) // 2

    def stretch(self, numbers: FloatArray) -> FloatArray:
        n_features = self.base.shape[-1]
        stretch = np.zeros((len(self.base), n_features * n_features))
        stretch[:, _triangle(n_features)] = numbers
        diagonal = stretch[:, :: n_features + 1]
        np.exp(diagonal, out=diagonal)
        return stretch.reshape(-1, n_features, n_features)

    def factor(self, stretch: FloatArray) -> Factor:
        diagonal = np.diagonal(stretch, axis1=-2, axis2=-1)
        log_determinant = self.log_determinant - 2.0 * np.log(diagonal).sum(axis=-1)
        return Factor((stretch @ self.base)[None], log_determinant[None], np.ones(1, dtype=bool))

    def covariances(self, factor: Factor) -> FloatArray:
        root = invert_lower(factor.whitener)
        covariances: FloatArray = root @ np.swapaxes(root, -1, -2)
        return 0.5 * (covariances + np.swapaxes(covariances, -1, -2))

    def moved(self, steps: FloatArray) -> FloatArray:
        moved: FloatArray = (self._root @ steps[..., None])[..., 0]
        return moved

    def gradients(
        self, stretch: FloatArray, factor: Factor, mass: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        whitener, n_features = factor.whitener[0], first.shape[-1]
        of_steps = (np.swapaxes(stretch, -1, -2) @ (whitener @ first[..., None]))[..., 0]
        mass, second = self._pooled(mass, second)
        # ∂/∂V of −½ tr(VW S (VW)ᵀ) + m log |V|, S the scatter.
        whole = -(whitener @ unpack(second, n_features)) @ np.swapaxes(self.base, -1, -2)
        diagonal = np.einsum("kdd->kd", whole)
        diagonal *= np.einsum("kdd->kd", stretch)
        diagonal += mass[:, None]
        return of_steps, whole.reshape(len(whole), -1)[:, _triangle(n_features)]

    def _pooled(self, mass: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the sums of the kernels that have coordinates of their own."""
        return mass, second


class TiedChart(FullChart):
    """One triangle for all kernels."""

    def covariances(self, factor: Factor) -> FloatArray:
        return super().covariances(factor)[:, 0]

    def _pooled(self, mass: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
        return mass.sum(keepdims=True), second.sum(axis=0, keepdims=True)


class DiagonalChart(Chart):
    """A logarithm for each kernel and feature."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape[0], self.base.shape[1]

    def stretch(self, numbers: FloatArray) -> FloatArray:
        return np.exp(numbers)

    def factor(self, stretch: FloatArray) -> Factor:
        whitener = stretch * self.base
        log_determinant = -2.0 * np.log(whitener).sum(axis=-1)
        return Factor(whitener[None], log_determinant[None], np.ones(1, dtype=bool))

    def covariances(self, factor: Factor) -> FloatArray:
        return 1.0 / factor.whitener**2

    def moved(self, steps: FloatArray) -> FloatArray:
        return steps / self.base

    def gradients(
        self, stretch: FloatArray, factor: Factor, mass: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        whitener = factor.whitener[0]
        return stretch * whitener * first, mass[:, None] - whitener**2 * second


class SphericalChart(DiagonalChart):
    """A logarithm for each kernel."""

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape[0], 1

    def covariances(self, factor: Factor) -> FloatArray:
        return super().covariances(factor)[..., 0]

    def gradients(
        self, stretch: FloatArray, factor: Factor, mass: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        of_steps, of_each = super().gradients(stretch, factor, mass, first, second)
        return of_steps, of_each.sum(axis=1, keepdims=True)


_CHARTS: dict[str, type[Chart]] = {
    "full": FullChart,
    "tied": TiedChart,
    "diag": DiagonalChart,
    "spherical": SphericalChart,
}


def chart_of(covariance_type: str) -> type[Chart]:
    """Return the coordinates of the structure of that name."""
    try:
        return _CHARTS[covariance_type]
    except KeyError:
        known = ", ".join(map(repr, _CHARTS))
        raise ValueError(
            f"Covariances of the type {covariance_type!r} cannot be tuned; those of {known} can."
        ) from None


@lru_cache(maxsize=64)
def _triangle(n_features: int) -> IntArray:
    """Return where in a flat matrix (M · M,) its lower triangle is."""
    i, j = np.tril_indices(n_features)
    return i * n_features + j
