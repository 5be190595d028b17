"""Unconstrained coordinates of covariances, for extrapolation and unconstrained optimisation.

A covariance is represented by its whitener W, lower triangular or diagonal, with the logarithm of its
diagonal: any values give a positive definite covariance. `coordinates` and `from_coordinates` convert the
covariances of R starts, in any array library. `Local` represents W = VW₀ by V, where W₀ belongs to a given
model: zero is that model, steps are in units of its kernels, and gradients are available.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..compute.arrays import constant, namespace
from ..model import BoolArray, Factor, FloatArray, IntArray
from .base import Structure
from .full import unpack
from .linalg import invert_lower


def coordinates(covariances: FloatArray, structure: Structure) -> FloatArray:
    """Return covariances of R starts as unconstrained numbers (R, Q)."""
    xp = namespace(covariances)
    if structure.projects:
        # Factors are unconstrained.
        numbers = xp.concat([covariances[..., :-1], xp.log(covariances[..., -1:])], axis=-1)
    elif structure.triangular:
        whitener = structure.factor(covariances, covariances.shape[-1]).whitener
        diagonal = constant(_diagonal, whitener.shape[-1], example=whitener)
        numbers = xp.where(diagonal, xp.log(xp.where(diagonal, whitener, 1.0)), whitener)
    else:
        numbers = xp.log(covariances)
    return xp.reshape(numbers, (covariances.shape[0], -1))


def from_coordinates(numbers: FloatArray, shape: tuple[int, ...], structure: Structure) -> FloatArray:
    """Return the covariances of that shape with these coordinates (R, Q); not finite where they overflow."""
    xp = namespace(numbers)
    numbers = xp.reshape(numbers, shape)
    with np.errstate(over="ignore"):
        if structure.projects:
            return xp.concat([numbers[..., :-1], xp.exp(numbers[..., -1:])], axis=-1)
        if not structure.triangular:
            return xp.exp(numbers)
        diagonal = constant(_diagonal, shape[-1], example=numbers)
        whitener = xp.where(diagonal, xp.exp(xp.where(diagonal, numbers, 0.0)), numbers)
    good = xp.all(xp.isfinite(whitener) & (~diagonal | (whitener > 0)), axis=(-2, -1))[..., None, None]
    root = xp.linalg.inv(xp.where(good, whitener, constant(np.eye, shape[-1], example=numbers)))
    return xp.where(good, root @ xp.matrix_transpose(root), np.inf)


class Local:
    """Coordinates around the covariances of one model, B = K of them, or B = 1 if kernels share one.

    Parameters
    ----------
    factor : Factor
        Factor of the given covariances, with a leading axis of one start.
    structure : Structure
        Covariance structure, which must not project.

    Attributes
    ----------
    shape : tuple of int
        B, and the number of coordinates of each covariance.
    """

    def __init__(self, factor: Factor, structure: Structure) -> None:
        if structure.projects:
            raise ValueError(
                f"Covariances of type {structure.name!r} cannot be tuned; those of 'full', 'tied', 'diag' "
                "and 'spherical' can."
            )
        self.structure = structure
        self._base, self._log_determinant = factor.whitener[0], factor.log_determinant[0]
        self._root = invert_lower(self._base) if structure.triangular else 1.0 / self._base
        self.shape = len(self._base), structure.n_parameters(1, self._base.shape[-1])

    def stretch(self, numbers: FloatArray) -> FloatArray:
        """Return V of coordinates (B, …): (B, M, M) or (B, M or 1)."""
        if not self.structure.triangular:
            return np.exp(numbers)
        n_features = self._base.shape[-1]
        stretch = np.zeros((len(self._base), n_features * n_features))
        stretch[:, _triangle(n_features)] = numbers
        diagonal = stretch[:, :: n_features + 1]
        np.exp(diagonal, out=diagonal)
        return stretch.reshape(-1, n_features, n_features)

    def factor(self, stretch: FloatArray) -> Factor:
        """Return the factor (1, B, …) of the stretched covariances."""
        if self.structure.triangular:
            whitener, diagonal = stretch @ self._base, np.diagonal(stretch, axis1=-2, axis2=-1)
        else:
            whitener = stretch * self._base
            diagonal = np.broadcast_to(stretch, whitener.shape)
        log_determinant = self._log_determinant - 2.0 * np.log(diagonal).sum(axis=-1)
        return Factor(whitener[None], log_determinant[None], np.ones(1, dtype=bool))

    def covariances(self, factor: Factor) -> FloatArray:
        """Return the covariances of a factor, with a leading axis of one start."""
        if self.structure.triangular:
            root = invert_lower(factor.whitener)
            full = root @ np.swapaxes(root, -1, -2)
            return self.structure.from_full(0.5 * (full + np.swapaxes(full, -1, -2)))
        variances: FloatArray = 1.0 / factor.whitener**2
        return variances[..., 0] if self.structure.isotropic else variances

    def moved(self, steps: FloatArray) -> FloatArray:
        """Return W₀⁻¹s, the moves (K, M) of means by steps (K, M) in the kernels' units."""
        if self.structure.triangular:
            moved: FloatArray = (self._root @ steps[..., None])[..., 0]
            return moved
        return steps * self._root

    def gradients(
        self, stretch: FloatArray, factor: Factor, mass: FloatArray, first: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradients with respect to steps of the means (K, M), and to coordinates (B, …).

        Parameters
        ----------
        stretch, factor
            V of the coordinates where the gradients are taken, and the factor there.
        mass : ndarray of shape (K,)
            Sums of the derivatives g_nk of the objective with respect to log N(x_n; μ_k, P_k).
        first, second : ndarray of shape (K, M) and (K, S)
            Sums of g_nk times x_n − μ_k, and times its second-order terms.
        """
        whitener, n_features = factor.whitener[0], first.shape[-1]
        if not self.structure.triangular:
            of_each = mass[:, None] - whitener**2 * second
            if self.shape[1] == 1:
                of_each = of_each.sum(axis=1, keepdims=True)
            return stretch * whitener * first, of_each
        of_steps = (np.swapaxes(stretch, -1, -2) @ (whitener @ first[..., None]))[..., 0]
        if len(self._base) == 1:
            mass, second = mass.sum(keepdims=True), second.sum(axis=0, keepdims=True)
        # ∂/∂V of −½ tr(VW₀ S (VW₀)ᵀ) + m log |V|, S the scatter.
        whole = -(whitener @ unpack(second, n_features)) @ np.swapaxes(self._base, -1, -2)
        diagonal = np.einsum("kdd->kd", whole)
        diagonal *= np.einsum("kdd->kd", stretch)
        diagonal += mass[:, None]
        return of_steps, whole.reshape(len(whole), -1)[:, _triangle(n_features)]


def _diagonal(n_features: int) -> BoolArray:
    """Return the mask of the diagonal of a matrix (M, M)."""
    return np.eye(n_features, dtype=bool)


@lru_cache(maxsize=64)
def _triangle(n_features: int) -> IntArray:
    """Return the indices of the lower triangle in a flat matrix (M · M,)."""
    i, j = np.tril_indices(n_features)
    return i * n_features + j
