"""Low-rank factors plus a diagonal: mixtures of factor analysers."""

from __future__ import annotations

import math

import numpy as np

from ..numbers import FARTHEST_SQUARED, TINY, Array
from ..records import Factor, FloatArray, IntArray, Regulariser
from .diagonal import Diagonal
from .factors import whiten_batch, with_crossed
from .full import ROWS_PER_NUMBER, Structure, Triple, lengths

# Share of the variances that every factor has in a start: a column of zeros would stay zero under EM.
_SEED = 0.01
# Smallest share of d in each feature's variance.
_SMALLEST_SHARE = 1e-12


class LowRank(Diagonal):
    """Low-rank factors plus a diagonal for every kernel: mixtures of factor analysers.

    Covariances of shape (R, K, M, q + 1) are q columns of factors W, and the variances d as the last column:
    P = WWᵀ + diag(d), so that a kernel has M(q + 1) numbers instead of M(M + 1)/2. By the Woodbury identity
    P⁻¹ = diag(1/d) − VᵀV with V = L⁻¹Wᵀdiag(1/d) and LLᵀ = I + Wᵀdiag(1/d)W. A log-density is therefore that
    of a diagonal covariance plus ½‖Vx‖², and a pass needs no M × M matrix. `n_factors` is q, by default
    `automatic_factors`.
    """

    name = "low_rank"
    pools_as = "low_rank"
    projects = True

    def __init__(self, n_factors: int | None = None) -> None:
        self.n_factors = n_factors

    def of(self, covariances: FloatArray) -> Structure:
        return LowRank(covariances.shape[-1] - 1)

    def _count(self, n_features: int) -> int:
        """Return q."""
        return automatic_factors(n_features) if self.n_factors is None else self.n_factors

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        # Factors are unique only up to rotation; a full covariance limits the number of parameters.
        n_factors = self._count(n_features)
        free = n_features * (n_factors + 1) - n_factors * (n_factors - 1) // 2
        return n_kernels * min(free, n_features * (n_features + 1) // 2)

    def rows_wanted(self, n_features: int) -> float:
        return ROWS_PER_NUMBER * (self._count(n_features) + 1)

    def shape(self, n_kernels: int, n_features: int) -> tuple[int, ...]:
        return (n_kernels, n_features, self._count(n_features) + 1)

    def from_full(self, covariances: FloatArray) -> FloatArray:
        # Principal factors of the correlations, exact for M − 1 factors; d is the remainder.
        n_features = covariances.shape[-1]
        n_factors = self._count(n_features)
        variances = np.diagonal(covariances, axis1=-2, axis2=-1)
        deviations = np.sqrt(variances)
        correlations = covariances / (deviations[..., :, None] * deviations[..., None, :])
        values, vectors = np.linalg.eigh(correlations)
        values, vectors = values[..., ::-1], vectors[..., ::-1]
        n_used = min(n_factors, n_features)
        left = values[..., n_used:].mean(axis=-1) if n_used < n_features else values[..., -1]
        sizes = np.sqrt(np.maximum(values[..., :n_used] - left[..., None], 0.0))
        factors = np.zeros((*variances.shape, n_factors))
        factors[..., :n_used] = deviations[..., None] * vectors[..., :n_used] * sizes[..., None, :]
        own = np.maximum(variances - (factors**2).sum(axis=-1), _SMALLEST_SHARE * variances)
        return np.concatenate([factors, own[..., None]], axis=-1)

    def common(self, covariance: FloatArray) -> FloatArray:
        return Structure.common(self, covariance)

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        found = self.from_full(covariances)
        factors, own = found[..., :-1], found[..., -1]
        variances = np.diagonal(covariances, axis1=-2, axis2=-1)
        # Cosines involve all features, since it is unknown which ones are correlated.
        n_features, n_factors = factors.shape[-2:]
        angles = np.outer(np.arange(n_features) + 0.5, np.arange(1, n_factors + 1)) / n_features
        empty = (factors**2).sum(axis=-2) < _SEED * (variances.mean(axis=-1) / n_features)[..., None]
        share = math.sqrt(_SEED / n_factors) * np.sqrt(own)[..., None] * np.cos(np.pi * angles)
        factors = np.where(empty[..., None, :], share, factors)
        own = np.maximum(variances - (factors**2).sum(axis=-1), _SEED * own)
        return np.repeat(np.concatenate([factors, own[..., None]], axis=-1)[:, None], n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        factors, every = covariances[..., :-1], np.arange(n_features)
        full = factors @ factors.mT
        full[..., every, every] += covariances[..., -1]
        return full

    def correlate(
        self, covariances: FloatArray, normal: FloatArray, random_state: np.random.RandomState
    ) -> FloatArray:
        factors, own = covariances[0, 0, :, :-1], covariances[0, 0, :, -1]
        common = random_state.standard_normal((len(normal), factors.shape[1]))
        return normal * np.sqrt(own) + common @ factors.T

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        rescaled = covariances * scale[:, None]
        rescaled[..., -1] *= scale
        return rescaled

    def variances(self, covariances: FloatArray) -> FloatArray:
        return (covariances[..., :-1] ** 2).sum(axis=-1) + covariances[..., -1]

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        return self.parts(covariances)[0]

    def parts(self, covariances: FloatArray) -> tuple[Factor, FloatArray, FloatArray]:
        """Return the factor, the matrices LLᵀ = I + Wᵀdiag(1/d)W and L⁻¹, both (R, K, q, q)."""
        factors, own = covariances[..., :-1], covariances[..., -1]
        shape = (*factors.shape[:2], factors.shape[-1], factors.shape[-1])
        positive = (own > 0) & np.isfinite(own)
        safe = np.where(positive, own, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            weighted = factors / safe[..., None]
            gram = np.eye(shape[-1]) + factors.mT @ weighted
        proper = np.all(np.isfinite(gram), axis=(-2, -1))
        gram = np.where(proper[..., None, None], gram, np.eye(shape[-1]))
        flat, log_determinant, definite = whiten_batch(gram.reshape(-1, *shape[2:]))
        inverse = flat.reshape(shape)
        usable = np.all(positive, axis=-1) & proper & definite.reshape(shape[:2])
        weighted = np.where(usable[..., None, None], weighted, 0.0)
        whitener = np.concatenate([weighted @ inverse.mT, 1.0 / np.sqrt(safe)[..., None]], axis=-1)
        log_determinant = log_determinant.reshape(shape[:2]) + np.log(safe).sum(axis=-1)
        return Factor(whitener, log_determinant, usable.all(axis=1)), gram, inverse

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        return roots**2 * vectors - (projections @ (projections.mT @ vectors[..., None]))[..., 0]

    def precisions(self, factor: Factor) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        return np.maximum(roots**2 - (projections**2).sum(axis=-1), TINY)

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        inside = ((covariance @ projections) * projections).sum(axis=(-2, -1))
        trace: FloatArray = roots**2 @ np.diagonal(covariance) - inside
        return trace

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        projected = whitener[..., :-1].mT @ difference
        whole = lengths(whitener[..., -1:] * difference)
        inside = np.maximum(whole - lengths(projected), 0.0)
        return np.where(whole < FARTHEST_SQUARED, inside, FARTHEST_SQUARED)

    def second_sums(self, difference: FloatArray, weighted: FloatArray, factor: Factor) -> FloatArray:
        along = difference @ np.ascontiguousarray(factor.whitener[..., :-1].mT).mT
        return with_crossed(super().second_sums(difference, weighted, factor), weighted.mT @ along)

    def update(
        self, sums: Triple, regulariser: Regulariser, previous: FloatArray | None = None
    ) -> tuple[FloatArray, Factor]:
        # Maximisation would need the whole scatter S. One EM step of factor analysis needs only diag(S) and
        # SVᵀ, and increases the expected log-likelihood, which is enough for EM to be monotone.
        assert previous is not None, "the step starts from the covariances of the E-step"
        mass, offset, second = sums
        n_features = offset.shape[-1]
        factor, _, inverse = self.parts(previous)
        projections = factor.whitener[..., :-1]
        squares = second[..., :n_features] - mass[..., None] * offset**2
        crossed = second[..., n_features:].reshape(projections.shape)
        along = projections.mT @ offset[..., None]
        crossed = crossed - (mass[..., None] * offset)[..., None] * along.mT
        if regulariser.prior_rows:
            prior = regulariser.prior_covariance
            squares += regulariser.prior_rows * np.diagonal(prior)
            crossed += regulariser.prior_rows * (prior @ projections)
        total = mass[..., None] + regulariser.prior_rows
        squares /= total
        crossed /= total[..., None]
        # With E[z | x] = L⁻ᵀV(x − μ), the factors' mean square is L⁻ᵀL⁻¹ + L⁻ᵀ(VSVᵀ)L⁻¹.
        n_factors = projections.shape[-1]
        middle = np.eye(n_factors) + projections.mT @ crossed
        spread = inverse.mT @ (0.5 * (middle + middle.mT)) @ inverse
        flat, _, _ = whiten_batch(spread.reshape(-1, n_factors, n_factors))
        # Parameter-expanded EM (Liu, Rubin & Wu, 1998) takes a longer step: scale W so that the factors have
        # unit mean square.
        factors = crossed @ inverse @ flat.reshape(spread.shape).mT
        own = squares - (factors**2).sum(axis=-1)
        if regulariser.ridge is not None:
            own += regulariser.ridge
        return self.raised(np.concatenate([factors, own[..., None]], axis=-1), regulariser.floor)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        # The expected log-likelihood separates over d, so the floor on d is exact; it also bounds P.
        raised = covariances.copy()
        raised[..., -1] = np.maximum(raised[..., -1], floor)
        return raised, self.factor(raised, floor.shape[0])

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances[..., columns, :]

    def inflation(self, covariances: FloatArray, factor: Factor) -> FloatArray:
        found = self.variances(covariances) / covariances[..., -1]  # an upper bound
        return np.where(factor.usable, found.max(axis=(1, 2)), np.inf)

    def moved(
        self, second: Array, first: Array, mass: Array, shift: Array, factor: Factor | None = None
    ) -> Array:
        n_features = first.shape[-1]
        squares = super().moved(second[..., :n_features], first, mass, shift)
        assert factor is not None
        projections = factor.whitener[..., :-1]
        along = (projections.mT @ shift[..., None])[..., None, :, 0]
        whole = (projections.mT @ (first + mass * shift)[..., None])[..., None, :, 0]
        crossed = second[..., n_features:].reshape(projections.shape)
        crossed = crossed + first[..., None] * along + shift[..., None] * whole
        return with_crossed(squares, crossed)

    def widened(self, covariances: FloatArray, factors: FloatArray) -> FloatArray:
        own = factors[:, None, None]
        return np.concatenate([covariances[..., :-1] * np.sqrt(own), covariances[..., -1:] * own], axis=-1)


def automatic_factors(n_features: int) -> int:
    """Return the default number of factors of M features: 2√M, up to `most_factors`."""
    return min(round(2.0 * math.sqrt(n_features)), most_factors(n_features))


def most_factors(n_features: int) -> int:
    """Return the number of factors that can represent any covariance of M features."""
    return max(1, n_features - 1)
