"""Coordinates of the models around a given one, in which an optimiser may move freely.

A model near the given one has Q coordinates, which are zero for the given model itself:

- of weights (K, L): a weight is multiplied by the exponential of its coordinate, and the weights of each
  class are normalised, so that a weight of zero stays zero;
- of means (K, M): a mean moves by W⁻¹ times its coordinates, with the whitening factor W of the given
  covariance, so that steps are in units of the kernel;
- of B covariances, one if all kernels share it, otherwise K: the whitening factor W becomes VW. For full and
  tied covariances the coordinates are the lower triangle of V, with the logarithm of its diagonal. Where
  features are independent, V is diagonal, or one number for all features; the coordinates are its logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from operator import add, mul
from typing import NamedTuple

import numpy as np

from ..records import Factor, FloatArray, Parameters
from ..structures import Structure
from ..structures.factors import invert_lower, unpack

# Largest coordinates of weights and covariances, which are exponents: larger ones would overflow.
_FARTHEST_POWER = 30.0
# Largest coordinates of means.
_FARTHEST_STEP = 1e6


@dataclass(frozen=True)
class Candidate:
    """A model near the given one, in the frame."""

    weights: FloatArray  # (K, L)
    means: FloatArray  # (K, M)
    change: FloatArray  # V: (B, M, M), or its diagonal (B, M) or (B, 1)
    factor: Factor  # of the covariances, with a leading axis of one start; its whiteners are VW


class Sums(NamedTuple):
    """A function of a model and its derivatives, as sums over rows. Sums of disjoint rows add.

    g_nk is the derivative with respect to log N(x_n; μ_k, P_k).
    """

    value: float
    weights: FloatArray  # (K, L): derivatives with respect to the logarithms of weights, before normalisation
    mass: FloatArray  # (K,): Σ_n g_nk
    first: FloatArray  # (K, M): Σ_n g_nk (x_n − o_k), about the origins o_k
    second: FloatArray  # (K, S): Σ_n g_nk times the second-order terms of x_n − o_k

    def plus(self, other: Sums) -> Sums:
        """Add the sums over other rows."""
        return Sums(*map(add, self, other))

    def times(self, number: float) -> Sums:
        """Multiply by a number."""
        return Sums(*map(partial(mul, number), self))


class Coordinates:
    """The coordinates around one model in the frame, whose parameters have no axis of starts."""

    def __init__(self, parameters: Parameters, structure: Structure) -> None:
        self.parameters, self.structure = parameters, structure
        factor = structure.factor(parameters.covariances[None], parameters.means.shape[1])
        self._changes = (_Triangles if structure.triangular else _Diagonals)(factor)
        self.n_covariances = factor.whitener.shape[1]  # B
        self._shape = self.n_covariances, structure.n_parameters(1, parameters.means.shape[1])
        self._sizes = [parameters.weights.size, parameters.means.size, self._shape[0] * self._shape[1]]
        self.size = sum(self._sizes)  # Q

    def candidate(self, coordinates: FloatArray) -> Candidate:
        """Return the model at coordinates (Q,), which are clipped to where nothing overflows."""
        limits = np.repeat([_FARTHEST_POWER, _FARTHEST_STEP, _FARTHEST_POWER], self._sizes)
        coordinates = np.clip(coordinates, -limits, limits)
        powers, steps, changes = np.split(coordinates, np.cumsum(self._sizes)[:-1])
        base = self.parameters
        powers = powers.reshape(base.weights.shape)
        weights = base.weights * np.exp(powers - powers.max(axis=0))
        weights /= weights.sum(axis=0)
        means = base.means + self._changes.unwhiten(steps.reshape(base.means.shape))
        return Candidate(weights, means, *self._changes.change(changes.reshape(self._shape)))

    def parameters_of(self, candidate: Candidate) -> Parameters:
        """Return the parameters of a model, in the frame."""
        roots = self._changes.invert(candidate.factor.whitener)
        return Parameters(candidate.weights, candidate.means, self.structure.from_root(roots)[0])

    def gradient(self, candidate: Candidate, sums: Sums) -> FloatArray:
        """Return the gradient (Q,) at a model, from sums about its means."""
        mass, second = sums.mass, sums.second
        if self.n_covariances < len(mass):
            mass, second = mass.sum(keepdims=True), second.sum(axis=0, keepdims=True)
        of_weights = sums.weights - candidate.weights * sums.weights.sum(axis=0)
        of_means, of_covariances = self._changes.gradients(candidate, sums.first, mass, second)
        if of_covariances.shape != self._shape:  # one number for all features
            of_covariances = of_covariances.sum(axis=1)
        return np.concatenate([of_weights.ravel(), of_means.ravel(), of_covariances.ravel()])


class _Triangles:
    """Changes V of lower triangular whitening factors W, (B, M, M)."""

    def __init__(self, base: Factor) -> None:
        self._base, self._n_features = base, base.whitener.shape[-1]
        self._roots = invert_lower(base.whitener)[0]
        self._triangle = np.flatnonzero(np.tri(self._n_features))  # places in a flat matrix

    def unwhiten(self, steps: FloatArray) -> FloatArray:
        """Return W⁻¹s for steps s (K, M)."""
        return (self._roots @ steps[..., None])[..., 0]

    def invert(self, whitener: FloatArray) -> FloatArray:
        return invert_lower(whitener)

    def change(self, coordinates: FloatArray) -> tuple[FloatArray, Factor]:
        """Return V, and the factor of the changed covariances, for coordinates (B, M (M + 1) / 2)."""
        flat = np.zeros((len(coordinates), self._n_features**2))
        flat[:, self._triangle] = coordinates
        diagonal = flat[:, :: self._n_features + 1]
        log_determinant = self._base.log_determinant - 2.0 * diagonal.sum(axis=-1)
        np.exp(diagonal, out=diagonal)
        change = flat.reshape(-1, self._n_features, self._n_features)
        return change, Factor(change @ self._base.whitener, log_determinant, self._base.usable)

    def gradients(
        self, candidate: Candidate, first: FloatArray, mass: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the gradients with respect to steps of the means (K, M) and to changes."""
        change, whitener = candidate.change, candidate.factor.whitener[0]
        of_steps = (change.mT @ (whitener @ first[..., None]))[..., 0]  # W⁻ᵀ P⁻¹ f with P⁻¹ = (VW)ᵀ VW
        # ∂/∂V of m log|V| − ½ tr(VW S (VW)ᵀ), with S the second moments; of the diagonal, ∂/∂log V.
        of_changes = -(whitener @ unpack(second, self._n_features)) @ self._base.whitener[0].mT
        diagonal = np.einsum("bdd->bd", of_changes)
        diagonal *= np.einsum("bdd->bd", change)
        diagonal += mass[:, None]
        return of_steps, of_changes.reshape(len(of_changes), -1)[:, self._triangle]


class _Diagonals:
    """The same for the diagonals (B, M) of whitening factors; V is (B, M) or (B, 1)."""

    def __init__(self, base: Factor) -> None:
        self._base, self._n_features = base, base.whitener.shape[-1]

    def unwhiten(self, steps: FloatArray) -> FloatArray:
        return steps / self._base.whitener[0]

    def invert(self, whitener: FloatArray) -> FloatArray:
        return 1.0 / whitener

    def change(self, coordinates: FloatArray) -> tuple[FloatArray, Factor]:
        change = np.exp(coordinates)
        log_determinant = self._base.log_determinant - 2.0 * self._n_features * coordinates.mean(axis=-1)
        return change, Factor(change * self._base.whitener, log_determinant, self._base.usable)

    def gradients(
        self, candidate: Candidate, first: FloatArray, mass: FloatArray, second: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        whitener = candidate.factor.whitener[0]
        return candidate.change * whitener * first, mass[:, None] - whitener**2 * second
