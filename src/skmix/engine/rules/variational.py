"""Variational Bayes on the statistics of EM.

Each class's weights have a Dirichlet prior, each kernel's mean and precision a normal–Wishart one, and the
posterior is approximated by a product q(z) q(π) q(μ, Λ). The expected logarithm of weight times density is
that of another weight times another Gaussian,

    E log π_kj + E log N(x; μ_k, Λ_k⁻¹) = log ω_kj + log N(x; m_k, E[Λ_k]⁻¹),

so the E-step of any row source is that of EM with means m_k, covariances E[Λ_k]⁻¹ and weights ω_kj. The rule
turns its statistics into the next posterior. The log-likelihood of the E-step less the divergence of
posterior from prior is a lower bound of the log-evidence, and never decreases.

The equations are those of Bishop, "Pattern Recognition and Machine Learning" (2006), section 10.2, for
classes that share their kernels. Symbols are those of ``docs/notation.md``: α, β and ν with counts, and α₀,
β₀, ν₀ and Σ₀ of the prior, whose means are at the origin of the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..numbers import Array, Record, clip, constant, digamma, gammaln, namespace, where
from ..records import Factor, FloatArray, Options, Parameters, Prior, Regulariser, Statistics
from ..structures import Structure
from .likelihood import Improved, assign_unlabelled, lost_digits
from .weights import (
    LOWEST_LOG,
    divergence_of_weights,
    expected_log_weights,
    posterior_counts,
    with_mean_weights,
    without_posterior,
)

# The default prior on covariances is worth this many rows more than their dimension (Fraley & Raftery, 2007).
_COVARIANCE_ROWS = 2.0
# A kernel that explains less than this many rows is superfluous.
_LEAST_EXPLAINED = 1.0


@dataclass(frozen=True)
class Variational(Record):
    """The update rule of variational Bayes: parameters are posteriors."""

    structure: Structure
    prior: Prior
    pseudo_rows: Regulariser  # the prior on covariances, without a floor
    log_determinant: float  # of the prior's covariance
    floor: FloatArray  # (M,): variance floor of the starts
    precision: str = "float64"  # of products with rows
    freeze: None = None  # all parameters are learnt
    bounded: bool = True  # the objective is a lower bound of the log-evidence
    monotone: bool = True  # no pass lowers it

    @classmethod
    def of(
        cls, options: Options, regulariser: Regulariser, structure: Structure, n_kernels: int
    ) -> Variational:
        """Return the rule for K kernels, with the options' prior and defaults from the data."""
        n_features, rows = len(regulariser.floor), regulariser.prior_rows
        dimension = Wishart.of(structure, n_features).dimension
        if not rows > dimension - 1:
            raise ValueError(
                f"covariance_prior={rows} makes an improper prior on {structure.name} covariances of "
                f"{dimension} features: a variational fit needs covariance_prior > {dimension - 1}."
            )
        prior = Prior(
            concentration=regulariser.weight_prior if options.weight_prior else 1.0 / n_kernels,
            mean_rows=n_kernels ** (-2.0 / n_features),
            covariance_rows=rows,
            covariance=regulariser.prior_covariance,
        )
        pseudo_rows = replace(regulariser, floor=np.zeros(n_features), ridge=None)
        common = structure.from_common(prior.covariance[None], 1)
        log_determinant = float(structure.factor(common, n_features).log_determinant[0, 0])
        return cls(structure, prior, pseudo_rows, log_determinant, regulariser.floor, options.precision)

    def enter(self, parameters: Parameters) -> tuple[Parameters, Factor]:
        """Return starts as point posteriors, as if after infinitely many rows."""
        covariances, factor = self.structure.raised(parameters.covariances, self.floor)
        return replace(without_posterior(parameters), covariances=covariances), factor

    # ------------------------------------------------------------ the M-step

    def improve(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> Improved:
        """Return the next posteriors: means m_k, covariances E[Λ_k]⁻¹, weights ω_kj and their counts."""
        structure, mean_rows, xp = self.structure, self.prior.mean_rows, namespace(origins)
        counts, class_prior = assign_unlabelled(statistics.mass, previous)
        # As in EM, a kernel without weight in any class stays without rows.
        gone = ~xp.any(previous.weights > 0, axis=-1)[..., None]
        counts = xp.where(gone, 0.0, counts)
        weights = xp.where(gone, 0.0, self.expected_weights(counts))
        # The β₀ rows of the prior at zero, the origin of the frame, are −o_k from the origin of the moments.
        mass = xp.sum(statistics.mass, axis=-1)
        offset = (statistics.first - mean_rows * origins) / (mass + mean_rows)[..., None]
        means = origins + offset
        # S_k − β_k m_k m_kᵀ: these rows count in the scatter about the mean, but not as degrees of freedom.
        second = structure.moved(statistics.second, statistics.first, mass[..., None], -offset)
        apart = means[..., None, :]
        second = second + structure.pack(structure.second_moment(apart, mean_rows * apart))
        covariances, next_factor = structure.update((mass, xp.zeros_like(offset), second), self.pseudo_rows)
        following = Parameters(weights, means, covariances, class_prior, counts)
        return following, next_factor, lost_digits(offset, next_factor, structure, self.precision)

    def expected_weights(self, counts: FloatArray) -> FloatArray:
        """Return ω (R, K, L), the weights of the E-step, given counts (R, K, L)."""
        xp, prior, n_features = namespace(counts), self.prior, len(self.prior.covariance)
        wishart = Wishart.of(self.structure, n_features)
        half = 0.5 * wishart_degrees(counts, self.structure, prior)
        # E log|Λ| − log|E[Λ]|
        spread = _sum_over_halves(digamma, half, wishart.dimension) - wishart.dimension * xp.log(half)
        of_means = n_features / (prior.mean_rows + xp.sum(counts, axis=-1))  # M / β_k
        of_kernels = 0.5 * (wishart.copies * wishart.repeats * spread - of_means)
        logs = expected_log_weights(counts + prior.concentration) + of_kernels[..., None]
        weights: FloatArray = xp.exp(clip(logs, LOWEST_LOG, np.inf))
        return weights

    # ------------------------------------------------------------ the bound, and the end

    def log_prior(self, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return what the lower bound of the log-evidence adds to the log-likelihood, (R,).

        It is minus the Kullback–Leibler divergence of posteriors from the prior, −∞ for starts that are
        points. `factor` belongs to the posteriors' covariances.
        """
        prior, xp = self.prior, namespace(parameters.means)
        known, counts = posterior_counts(parameters)
        divergence = divergence_of_weights(counts, xp.full_like(counts[..., 0], prior.concentration))
        # Of the means, given the precisions, with β₀ / β_k and β₀ m_kᵀ E[Λ_k] m_k.
        share = prior.mean_rows / (prior.mean_rows + xp.sum(counts, axis=-1))
        products = self.structure.precision_times(factor, parameters.means) * parameters.means
        of_means = parameters.means.shape[-1] * (share - xp.log(share) - 1.0)
        of_means = of_means + prior.mean_rows * xp.sum(products, axis=-1)
        divergence = divergence + 0.5 * xp.sum(of_means, axis=1)
        divergence = divergence + xp.sum(self._divergence_of_precisions(counts, factor), axis=1)
        return where(known, -divergence, -np.inf)

    def _divergence_of_precisions(self, counts: FloatArray, factor: Factor) -> FloatArray:
        """Return the divergence (R, K or 1) of Wishart distributions, whose means E[Λ] have that factor."""
        dimension, copies, repeats = Wishart.of(self.structure, len(self.prior.covariance))
        half = 0.5 * wishart_degrees(counts, self.structure, self.prior)
        prior_half = 0.5 * repeats * self.prior.covariance_rows
        # log|E Λ₀| − log|E Λ| and tr(Σ₀ E[Λ])
        log_ratio = (factor.log_determinant - self.log_determinant) / repeats
        trace = self.structure.trace(factor, self.pseudo_rows.prior_covariance) / repeats
        of_copies = (
            (half - prior_half) * _sum_over_halves(digamma, half, dimension)
            - _sum_over_halves(gammaln, half, dimension)
            + float(_sum_over_halves(gammaln, np.array(prior_half), dimension))
            + dimension * (prior_half * namespace(half).log(half / prior_half) - half)
        )
        divergence: FloatArray = prior_half * (log_ratio + trace) + copies * of_copies
        return divergence

    def finish(self, parameters: Parameters) -> Parameters:
        """Return point estimates with expected weights.

        A kernel that explains less than one row gets no weight, unless it is the heaviest of a class.
        """
        counts = parameters.counts
        assert counts is not None
        xp, places = namespace(counts), constant(np.arange, counts.shape[1], example=counts)
        is_heaviest = xp.any(xp.argmax(counts, axis=1)[:, None, :] == places[:, None], axis=-1)
        alive = (xp.sum(counts, axis=-1) >= _LEAST_EXPLAINED) | is_heaviest
        return with_mean_weights(parameters, self.prior.concentration, alive)


# ---------------------------------------------------------------- Wishart distributions of precisions


class Wishart(NamedTuple):
    """What the precision of a structure is made of: matrices with Wishart distributions."""

    dimension: int  # size of the matrices: M, or 1 if features are independent
    copies: int  # number of independent matrices in a precision
    repeats: int  # how often each occurs in a precision: each row counts as that many observations

    @classmethod
    def of(cls, structure: Structure, n_features: int) -> Wishart:
        """Return the distribution of a structure."""
        if structure.triangular:
            return cls(n_features, 1, 1)
        return cls(1, 1, n_features) if structure.isotropic else cls(1, n_features, 1)


def default_rows(structure: Structure, n_features: int) -> float:
    """Return the default strength of the prior on covariances, in rows."""
    return Wishart.of(structure, n_features).dimension + _COVARIANCE_ROWS


def wishart_degrees(counts: FloatArray, structure: Structure, prior: Prior) -> FloatArray:
    """Return the degrees of freedom ν (R, K or 1) of the precisions' posterior, given counts (R, K, L)."""
    rows: FloatArray = namespace(counts).sum(counts, axis=-1)
    if structure.shared:
        rows = namespace(rows).sum(rows, axis=1, keepdims=True)
    return Wishart.of(structure, len(prior.covariance)).repeats * (prior.covariance_rows + rows)


def _sum_over_halves(function: Callable[[Array], Array], values: Array, dimension: int) -> Array:
    """Return Σ_i f(a − i/2) over i = 0 … dimension − 1 for values a.

    With log Γ it is the logarithm of the multivariate Γ function up to a constant, with ψ its derivative.
    """
    halves = constant(np.arange, 0.0, 0.5 * dimension, 0.5, example=values)
    return namespace(values).sum(function(values[..., None] - halves), axis=-1)
