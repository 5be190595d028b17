"""Low-rank factors plus a diagonal for every kernel: mixtures of factor analysers.

P = WWᵀ + diag(d) with q columns W, so that a kernel has M(q + 1) numbers instead of M(M + 1)/2. By the
Woodbury identity P⁻¹ = diag(1/d) − VᵀV with V = L⁻¹Wᵀdiag(1/d) and LLᵀ = I + Wᵀdiag(1/d)W. A log-density is
therefore that of a diagonal covariance plus ½‖Vx‖², and a pass needs no M × M matrix.
"""

from __future__ import annotations

import math

import numpy as np

from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Regulariser, Statistics
from .base import ROWS_PER_NUMBER, Structure
from .diagonal import Diagonal
from .linalg import whiten_batch

# A column of zeros would stay zero under EM: in a start every factor has this share of the variances.
_SEED = 0.01
# Smallest share of d in each feature's variance.
_SMALLEST_SHARE = 1e-12


def automatic_factors(n_features: int) -> int:
    """Return the default number of factors of M features: 2√M, up to `most_factors`."""
    return min(round(2.0 * math.sqrt(n_features)), most_factors(n_features))


def most_factors(n_features: int) -> int:
    """Return the number of factors that can represent any covariance of M features."""
    return max(1, n_features - 1)


class LowRank(Diagonal):
    """Covariances of shape (R, K, M, q + 1): q columns of factors W, and the variances d as the last column.

    `n_factors` is q, by default `automatic_factors`.
    """

    name = "low_rank"
    pools_as = "low_rank"
    projects = True
    # Hundreds of features, some of them nearly constant, reach 2^24 without harm. This limit leaves an
    # accuracy of about 1e-7.
    largest_cancellation = 2.0**30

    def __init__(self, n_factors: int | None = None) -> None:
        self.n_factors = n_factors

    def of(self, covariances: FloatArray) -> Structure:
        return LowRank(covariances.shape[-1] - 1)

    def _count(self, n_features: int) -> int:
        """Return q."""
        return automatic_factors(n_features) if self.n_factors is None else self.n_factors

    def n_sums(self, n_features: int) -> int:
        return n_features * (1 + self._count(n_features))

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
        lengths = np.sqrt(np.maximum(values[..., :n_used] - left[..., None], 0.0))
        factors = np.zeros((*variances.shape, n_factors))
        factors[..., :n_used] = deviations[..., None] * vectors[..., :n_used] * lengths[..., None, :]
        own = np.maximum(variances - (factors**2).sum(axis=-1), _SMALLEST_SHARE * variances)
        return np.concatenate([factors, own[..., None]], axis=-1)

    def from_common(self, covariances: FloatArray, n_kernels: int) -> FloatArray:
        found = self.from_full(covariances)
        factors, own = found[..., :-1], found[..., -1]
        variances = np.diagonal(covariances, axis1=-2, axis2=-1)
        # Cosines involve all features, since it is unknown which ones are correlated.
        n_features, n_factors = factors.shape[-2:]
        waves = np.cos(
            np.pi * np.outer(np.arange(n_features) + 0.5, np.arange(1, n_factors + 1)) / n_features
        )
        empty = (factors**2).sum(axis=-2) < _SEED * (variances.mean(axis=-1) / n_features)[..., None]
        share = math.sqrt(_SEED / n_factors) * np.sqrt(own)[..., None] * waves
        factors = np.where(empty[..., None, :], share, factors)
        own = np.maximum(variances - (factors**2).sum(axis=-1), _SEED * own)
        return np.repeat(np.concatenate([factors, own[..., None]], axis=-1)[:, None], n_kernels, axis=1)

    def to_full(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        factors, own = covariances[..., :-1], covariances[..., -1]
        full: FloatArray = factors @ np.swapaxes(factors, -1, -2)
        every = np.arange(n_features)
        full[..., every, every] += own
        return full

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        rescaled = covariances * scale[:, None]
        rescaled[..., -1] *= scale
        return rescaled

    def factor(self, covariances: FloatArray, n_features: int) -> Factor:
        return self._parts(covariances)[0]

    def _parts(self, covariances: FloatArray) -> tuple[Factor, FloatArray, FloatArray]:
        """Return the factor, the matrices LLᵀ = I + Wᵀdiag(1/d)W and L⁻¹, both (R, K, q, q)."""
        factors, own = covariances[..., :-1], covariances[..., -1]
        shape = (*factors.shape[:2], factors.shape[-1], factors.shape[-1])
        positive = (own > 0) & np.isfinite(own)
        safe = np.where(positive, own, 1.0)
        with np.errstate(over="ignore", invalid="ignore"):
            weighted = factors / safe[..., None]
            gram = np.eye(shape[-1]) + np.swapaxes(factors, -1, -2) @ weighted
        proper: BoolArray = np.all(np.isfinite(gram), axis=(-2, -1))
        gram = np.where(proper[..., None, None], gram, np.eye(shape[-1]))
        flat, log_determinant, definite = whiten_batch(gram.reshape(-1, *shape[2:]))
        inverse = flat.reshape(shape)
        usable = np.all(positive, axis=-1) & proper & definite.reshape(shape[:2])
        weighted = np.where(usable[..., None, None], weighted, 0.0)
        projections = weighted @ np.swapaxes(inverse, -1, -2)
        whitener = np.concatenate([projections, 1.0 / np.sqrt(safe)[..., None]], axis=-1)
        log_determinant = log_determinant.reshape(shape[:2]) + np.log(safe).sum(axis=-1)
        return Factor(whitener, log_determinant, usable.all(axis=1)), gram, inverse

    def projections(self, factor: Factor) -> FloatArray:
        return np.ascontiguousarray(np.swapaxes(factor.whitener[..., :-1], -1, -2))

    def quadratic(self, factor: Factor) -> FloatArray:
        quadratic: FloatArray = -0.5 * factor.whitener[..., -1] ** 2
        return quadratic

    def precision_times(self, factor: Factor, vectors: FloatArray) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        projected = np.swapaxes(projections, -1, -2) @ vectors[..., None]
        times: FloatArray = roots**2 * vectors - (projections @ projected)[..., 0]
        return times

    def distances(self, whitener: FloatArray, difference: FloatArray) -> FloatArray:
        projected = np.swapaxes(whitener[..., :-1], -1, -2) @ difference
        lengths = np.einsum("...dn,...dn,...d->...n", difference, difference, whitener[..., -1] ** 2)
        return np.maximum(lengths - (projected * projected).sum(axis=-2), 0.0)

    def update(
        self,
        mass: FloatArray,
        offset: FloatArray,
        second: FloatArray,
        regulariser: Regulariser,
        previous: FloatArray | None = None,
    ) -> tuple[FloatArray, Factor]:
        # Maximisation would need the whole scatter S. One EM step of factor analysis needs only diag(S) and
        # SVᵀ, and increases the expected log-likelihood, which is enough for EM to be monotone.
        assert previous is not None, "the step starts from the covariances of the E-step"
        n_features = offset.shape[-1]
        factor, _, inverse = self._parts(previous)
        projections = factor.whitener[..., :-1]
        squares = second[..., :n_features] - mass[..., None] * offset**2
        crossed = second[..., n_features:].reshape(projections.shape)
        along = np.swapaxes(projections, -1, -2) @ offset[..., None]
        crossed = crossed - (mass[..., None] * offset)[..., None] * np.swapaxes(along, -1, -2)
        if regulariser.prior_rows:
            prior = regulariser.prior_covariance
            squares += regulariser.prior_rows * np.diagonal(prior)
            crossed += regulariser.prior_rows * (prior @ projections)
        total: FloatArray = mass[..., None] + regulariser.prior_rows
        squares /= total
        crossed /= total[..., None]
        # With E[z | x] = L⁻ᵀV(x − μ), the factors' mean square is L⁻ᵀL⁻¹ + L⁻ᵀ(VSVᵀ)L⁻¹.
        n_factors = projections.shape[-1]
        middle = np.eye(n_factors) + np.swapaxes(projections, -1, -2) @ crossed
        spread = np.swapaxes(inverse, -1, -2) @ (0.5 * (middle + np.swapaxes(middle, -1, -2))) @ inverse
        flat, _, _ = whiten_batch(spread.reshape(-1, n_factors, n_factors))
        root = flat.reshape(spread.shape)
        # Parameter-expanded EM (Liu, Rubin & Wu, 1998) takes a longer step: scale W so that the factors have
        # unit mean square.
        factors = crossed @ inverse @ np.swapaxes(root, -1, -2)
        own = squares - (factors**2).sum(axis=-1) + regulariser.ridge
        return self.raised(np.concatenate([factors, own[..., None]], axis=-1), regulariser.floor)

    def marginal(self, covariances: FloatArray, columns: IntArray) -> FloatArray:
        return covariances[..., columns, :]

    def conditional(
        self, covariances: FloatArray, columns: IntArray, n_features: int
    ) -> tuple[FloatArray, FloatArray]:
        gaps = np.setdiff1d(np.arange(n_features), columns)
        factor, _, inverse = self._parts(self.marginal(covariances, columns))
        remaining = self.marginal(covariances, gaps).copy()
        # Factors scaled to their conditional covariance.
        remaining[..., :-1] = remaining[..., :-1] @ np.swapaxes(inverse, -1, -2)
        return remaining[..., :-1] @ np.swapaxes(factor.whitener[..., :-1], -1, -2), remaining

    def complete(
        self, observed: Statistics, columns: IntArray, shift: FloatArray, parameters: Parameters
    ) -> tuple[FloatArray, FloatArray]:
        mass, first, second = np.sum(observed.mass, axis=-1), observed.first, observed.second
        means, covariances = parameters.means, parameters.covariances
        n_features, n_known = means.shape[-1], len(columns)
        gaps = np.setdiff1d(np.arange(n_features), columns)
        known, gram, inverse = self._parts(self.marginal(covariances, columns))
        whole, _, whole_inverse = self._parts(covariances)
        seen, unseen = known.whitener[..., :-1], whole.whitener[..., gaps, :-1]
        own, mass = covariances[..., gaps, -1], mass[..., None]

        # Sums about the new origin: of x, x² and x(Vx)ᵀ, with V of the observed features; and Vx, Vx(Vx)ᵀ.
        sums = first + mass * shift
        squares = second[..., :n_known] + 2.0 * first * shift + mass * shift**2
        moved, along = (_row(np.swapaxes(seen, -1, -2) @ v[..., None]) for v in (shift, first))
        crossed = second[..., n_known:].reshape(seen.shape) + first[..., None] * moved
        crossed = crossed + shift[..., None] * (along + mass[..., None] * moved)
        total = along + mass[..., None] * moved
        both = np.swapaxes(seen, -1, -2) @ crossed

        # E[x_gaps | x_observed] = constant + slope · Vx, with covariance slope · slopeᵀ + diag(d).
        slope = covariances[..., gaps, :-1] @ np.swapaxes(inverse, -1, -2)
        constant = means[..., gaps] - _column(slope @ (np.swapaxes(seen, -1, -2) @ means[..., columns, None]))
        predicted = _column(slope @ np.swapaxes(total, -1, -2))
        inside = both + mass[..., None] * np.eye(both.shape[-1])

        all_first = np.empty_like(means)
        all_first[..., columns] = sums
        all_first[..., gaps] = mass * constant + predicted
        all_squares = np.empty_like(means)
        all_squares[..., columns] = squares
        all_squares[..., gaps] = (
            mass * (constant**2 + own) + 2.0 * constant * predicted + ((slope @ inside) * slope).sum(axis=-1)
        )
        # Sums of x(Vx)ᵀ with V of all features: converted from V of the observed ones, plus the gaps' share.
        turned = inverse @ gram @ np.swapaxes(whole_inverse, -1, -2)
        share = _row(np.swapaxes(unseen, -1, -2) @ constant[..., None])
        mixed = np.swapaxes(slope, -1, -2) @ unseen
        all_crossed = np.empty((*means.shape, seen.shape[-1]))
        all_crossed[..., columns, :] = crossed @ (turned + mixed) + sums[..., None] * share
        all_crossed[..., gaps, :] = (
            constant[..., None] * (total @ (turned + mixed) + mass[..., None] * share)
            + slope @ (both @ turned + inside @ mixed)
            + predicted[..., None] * share
            + (mass * own)[..., None] * unseen
        )
        return all_first, _packed(all_squares, all_crossed)

    def terms_of(self, covariances: FloatArray, n_kernels: int, n_features: int) -> FloatArray:
        projections = self.factor(covariances, n_features).whitener[..., :-1]
        factors, own = covariances[..., :-1], covariances[..., -1]
        crossed = own[..., None] * projections + factors @ (np.swapaxes(factors, -1, -2) @ projections)
        return _packed(self.variances(covariances), crossed)

    def raised(self, covariances: FloatArray, floor: FloatArray) -> tuple[FloatArray, Factor]:
        # The expected log-likelihood separates over d, so the floor on d is exact; it also bounds P.
        raised = covariances.copy()
        raised[..., -1] = np.maximum(raised[..., -1], floor)
        return raised, self.factor(raised, floor.shape[0])

    def variances(self, covariances: FloatArray) -> FloatArray:
        variances: FloatArray = (covariances[..., :-1] ** 2).sum(axis=-1) + covariances[..., -1]
        return variances

    def rows_wanted(self, n_features: int) -> float:
        return ROWS_PER_NUMBER * (self._count(n_features) + 1)

    def wishart(self, n_features: int) -> None:
        return None

    def trace(self, factor: Factor, covariance: FloatArray) -> FloatArray:
        projections, roots = factor.whitener[..., :-1], factor.whitener[..., -1]
        trace: FloatArray = roots**2 @ np.diagonal(covariance)
        return trace - ((covariance @ projections) * projections).sum(axis=(-2, -1))

    def n_parameters(self, n_kernels: int, n_features: int) -> int:
        # Factors are unique only up to rotation; a full covariance limits the number of parameters.
        n_factors = self._count(n_features)
        free = n_features * (n_factors + 1) - n_factors * (n_factors - 1) // 2
        return n_kernels * min(free, n_features * (n_features + 1) // 2)


def _packed(squares: FloatArray, crossed: FloatArray) -> FloatArray:
    """Concatenate sums of squares (R, K, M) and of x(Vx)ᵀ (R, K, M, q), as in `Statistics.second`."""
    flat = crossed.reshape(*squares.shape[:2], -1)
    return np.concatenate([squares, flat], axis=-1)


def _row(columns: FloatArray) -> FloatArray:
    """Return vectors (…, q, 1) as rows (…, 1, q)."""
    return np.swapaxes(columns, -1, -2)


def _column(columns: FloatArray) -> FloatArray:
    """Return vectors (…, q, 1) as (…, q)."""
    return columns[..., 0]
