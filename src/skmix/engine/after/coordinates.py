"""Coordinates of the models around a given one, in which an optimiser may move freely.

A model near the given one has Q coordinates, which are zero for the given model itself:

- of weights (K, L): a weight is multiplied by the exponential of its coordinate, and the weights of each
  class are normalised, so that a weight of zero stays zero;
- of means (K, M): a mean moves by W⁻¹ times its coordinates, with the whitening factor W of the given
  covariance, so that steps are in units of the kernel;
- of B covariances, one if all kernels share it, otherwise K: the whitening factor W becomes VW. The
  coordinates are the lower triangle of V, with the logarithm of its diagonal. Where features are independent,
  V is diagonal, or one number for all features.

Whitening factors are G triangular blocks of m features each: one block of all M features, or, where features
are independent, M blocks of one.
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
        n_features = parameters.means.shape[1]
        self._factor = structure.factor(parameters.covariances[None], n_features)
        self.n_covariances = self._factor.whitener.shape[1]  # B
        side = n_features if structure.triangular else 1  # m
        self._whiteners = self._factor.whitener.reshape(self.n_covariances, -1, side, side)  # (B, G, m, m)
        self._roots = invert_lower(self._whiteners)
        self._triangle = np.flatnonzero(np.tri(side))  # places in a flat block
        n_changed = 1 if structure.isotropic else self._whiteners.shape[1]
        self._shape = self.n_covariances, n_changed, len(self._triangle)  # of the coordinates of V
        self._sizes = parameters.weights.size, parameters.means.size, int(np.prod(self._shape))
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
        means = base.means + self._by_block(self._roots, steps.reshape(base.means.shape))
        return Candidate(weights, means, self._changed(changes.reshape(self._shape)))

    def _by_block(self, blocks: FloatArray, vectors: FloatArray) -> FloatArray:
        """Return vectors (K, M) times blocks (B, G, m, m)."""
        columns = vectors.reshape(len(vectors), *blocks.shape[1:3], 1)
        return (blocks @ columns).reshape(vectors.shape)

    def _changed(self, coordinates: FloatArray) -> Factor:
        """Return the factor of the covariances for coordinates (B, G or 1, m (m + 1) / 2) of V."""
        n_blocks, side = self._whiteners.shape[1:3]
        flat = np.zeros((*self._shape[:2], side**2))
        flat[..., self._triangle] = coordinates
        diagonal = flat[..., :: side + 1]
        # log |V|; blocks that have the same V count each.
        log_change = diagonal.sum(axis=(1, 2)) * (n_blocks / self._shape[1])
        np.exp(diagonal, out=diagonal)
        whiteners = flat.reshape(*self._shape[:2], side, side) @ self._whiteners
        log_determinant = self._factor.log_determinant - 2.0 * log_change
        return Factor(whiteners.reshape(self._factor.whitener.shape), log_determinant, self._factor.usable)

    def parameters_of(self, candidate: Candidate) -> Parameters:
        """Return the parameters of a model, in the frame."""
        whitener = candidate.factor.whitener
        roots = invert_lower(whitener.reshape(self._whiteners.shape)).reshape(whitener.shape)
        return Parameters(candidate.weights, candidate.means, self.structure.from_root(roots)[0])

    def gradient(self, candidate: Candidate, sums: Sums) -> FloatArray:
        """Return the gradient (Q,) at a model, from sums about its means."""
        of_weights = sums.weights - candidate.weights * sums.weights.sum(axis=0)
        of_means = self.structure.precision_times(candidate.factor, sums.first[None])[0]  # P⁻¹ Σ g (x − μ)
        of_steps = self._by_block(self._roots.mT, of_means)

        # A shared covariance has the sums over all kernels.
        n_sharing = len(sums.mass) // self.n_covariances
        mass = sums.mass.reshape(-1, n_sharing).sum(axis=1)
        second = sums.second.reshape(len(mass), n_sharing, -1).sum(axis=1)
        # ∂/∂V of m log|V| − ½ tr(VW S (VW)ᵀ), with S the second moments; of the diagonal, ∂/∂log V.
        n_blocks, side = self._whiteners.shape[1:3]
        whiteners = candidate.factor.whitener.reshape(self._whiteners.shape)
        moments = unpack(second.reshape(len(mass), n_blocks, -1), side)
        of_changes = -(whiteners @ moments) @ self._whiteners.mT
        diagonal = np.einsum("bgdd->bgd", of_changes)
        diagonal *= np.einsum("bgdd->bgd", whiteners) / np.einsum("bgdd->bgd", self._whiteners)
        diagonal += mass[:, None, None]
        of_triangle = of_changes.reshape(len(mass), n_blocks, -1)[..., self._triangle]
        # Blocks that have the same V have the sum of their gradients.
        of_triangle = of_triangle.reshape(*self._shape[:2], -1, self._shape[2]).sum(axis=2)
        return np.concatenate([of_weights.ravel(), of_steps.ravel(), of_triangle.ravel()])
