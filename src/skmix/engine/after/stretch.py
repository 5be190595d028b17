"""Coordinates of means and covariances around one model, for discriminative training.

A covariance with the whitening factor W₀ becomes that of W = VW₀. Each of B covariances has Q coordinates: V
with the logarithm of its diagonal. Zero is the model itself, and steps are in units of its kernels.
Covariances are shared if B is one and there are several kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..records import Factor, FloatArray, Parameters
from ..structures import Diagonal, Structure
from ..structures.factors import index_of, invert_lower, unpack
from ..structures.full import Triple


@dataclass(frozen=True)
class Stretch:
    """The coordinates around a model of full or tied covariances."""

    structure: Structure
    base: Factor  # of the model, with a leading axis of one start

    @property
    def shape(self) -> tuple[int, int]:
        """B and Q."""
        return self.base.whitener.shape[1], self.structure.n_parameters(1, self.base.whitener.shape[-1])

    @cached_property
    def _root(self) -> FloatArray:
        """W₀⁻¹."""
        return invert_lower(self.base.whitener)[0]

    def steps(self, steps: FloatArray) -> FloatArray:
        """Return W₀⁻¹s of steps (K, M) of the means."""
        return (self._root @ steps[..., None])[..., 0]

    def stretched(self, coordinates: FloatArray) -> tuple[FloatArray, Factor]:
        """Return V, (B, M, M) or (B, M or 1), of coordinates (B, Q), and the factor of VW₀."""
        n_features = self.base.whitener.shape[-1]
        stretch = np.zeros((len(coordinates), n_features * n_features))
        stretch[:, index_of(n_features, "triangle")] = coordinates
        diagonal = stretch[:, :: n_features + 1]
        log_determinant = self.base.log_determinant - 2.0 * diagonal.sum(axis=-1)
        np.exp(diagonal, out=diagonal)
        stretch = stretch.reshape(-1, n_features, n_features)
        return stretch, Factor(stretch @ self.base.whitener, log_determinant, self.base.usable)

    def covariances(self, factor: Factor) -> FloatArray:
        """Return the covariances (1, …) of a factor."""
        return self.structure.from_root(invert_lower(factor.whitener))

    def gradients(self, stretch: FloatArray, factor: Factor, sums: Triple) -> tuple[FloatArray, FloatArray]:
        """Return the gradients with respect to steps of the means (K, M), and to coordinates (B, Q).

        `stretch` is V and `factor` that of VW₀. The sums, (K,), (K, M) and (K, S), are those of the
        derivatives g_nk of the objective with respect to log N(x_n; μ_k, P_k), times 1, x_n − μ_k and its
        second-order terms.
        """
        (mass, first, second), whitener, n_features = sums, factor.whitener[0], stretch.shape[-1]
        of_steps = (stretch.mT @ (whitener @ first[..., None]))[..., 0]
        if len(whitener) < len(mass):
            mass, second = mass.sum(keepdims=True), second.sum(axis=0, keepdims=True)
        # ∂/∂V of −½ tr(VW₀ S (VW₀)ᵀ) + m log |V|, S the scatter.
        whole = -(whitener @ unpack(second, n_features)) @ self.base.whitener[0].mT
        diagonal = np.einsum("kdd->kd", whole)
        diagonal *= np.einsum("kdd->kd", stretch)
        diagonal += mass[:, None]
        return of_steps, whole.reshape(len(whole), -1)[:, index_of(n_features, "triangle")]

    def expand(self, x: FloatArray, out: FloatArray) -> None:
        """Write the second-order terms (S, n) of rows x (M, n) into `out`, in the order of `pairs`."""
        n_features = len(x)
        for step in range(n_features // 2 + 1):
            own = out[step * n_features : (step + 1) * n_features]
            ahead = min(n_features - step, len(own))  # at a step of M/2 every pair would occur twice
            np.multiply(x[:ahead], x[step : step + ahead], out=own[:ahead])
            np.multiply(x[ahead : len(own)], x[: len(own) - ahead], out=own[ahead:])


@dataclass(frozen=True)
class DiagonalStretch(Stretch):
    """The coordinates around a model of diagonal or spherical covariances."""

    def steps(self, steps: FloatArray) -> FloatArray:
        return 1.0 / self.base.whitener[0] * steps

    def stretched(self, coordinates: FloatArray) -> tuple[FloatArray, Factor]:
        stretch, n_features = np.exp(coordinates), self.base.whitener.shape[-1]
        log_determinant = self.base.log_determinant - 2.0 * n_features * coordinates.mean(axis=-1)
        return stretch, Factor(stretch * self.base.whitener, log_determinant, self.base.usable)

    def covariances(self, factor: Factor) -> FloatArray:
        return self.structure.from_root(1.0 / factor.whitener)

    def gradients(self, stretch: FloatArray, factor: Factor, sums: Triple) -> tuple[FloatArray, FloatArray]:
        (mass, first, second), whitener = sums, factor.whitener[0]
        of_each = mass[:, None] - whitener**2 * second
        if self.shape[1] < of_each.shape[1]:
            of_each = of_each.sum(axis=1, keepdims=True)
        return stretch * whitener * first, of_each

    def expand(self, x: FloatArray, out: FloatArray) -> None:
        np.multiply(x, x, out=out)


def stretch_of(parameters: Parameters, structure: Structure) -> Stretch:
    """Return the coordinates around one model."""
    kind = DiagonalStretch if isinstance(structure, Diagonal) else Stretch
    return kind(structure, structure.factor(parameters.covariances[None], parameters.means.shape[1]))
