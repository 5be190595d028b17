"""Variational Bayes on the statistics of EM.

Each class's weights have a Dirichlet prior, each kernel's mean and precision a normal–Wishart one, and the
posterior is approximated by a product q(z) q(π) q(μ, Λ). The expected logarithm of weight times density is
that of another weight times another Gaussian,

    E log π_kj + E log N(x; μ_k, Λ_k⁻¹) = log ω_kj + log N(x; m_k, E[Λ_k]⁻¹),

so the E-step of any row source is that of EM with means m_k, covariances E[Λ_k]⁻¹ and weights ω_kj. The rule
turns its statistics into the next posterior. The log-likelihood of the E-step less the `divergence` of
posterior from prior is a lower bound of the log-evidence, and never decreases.

The equations are those of Bishop, "Pattern Recognition and Machine Learning" (2006), section 10.2, for
classes that share their kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import multigammaln

from ..numbers import Array, constant, digamma, namespace, sent_once, to_numpy
from ..records import Factor, FloatArray, Options, Parameters, Prior, Regulariser, Statistics
from ..structures import Structure
from .likelihood import Improved, assign_unlabelled, lost_digits
from .weights import (
    LOWEST_LOG,
    divergence_of_weights,
    expected_log_weights,
    is_known,
    point_weights,
    with_counts,
)

# The default prior on covariances is worth this many rows more than their dimension (Fraley & Raftery, 2007).
_COVARIANCE_ROWS = 2.0
# A kernel that explains less than this many rows is superfluous.
_LEAST_EXPLAINED = 1.0


@dataclass(frozen=True)
class Wishart:
    """The Wishart distribution of the precisions of a structure."""

    dimension: int  # size of the matrices: M, or 1 if features are independent
    copies: int = 1  # number of independent matrices in a precision
    repeats: int = 1  # how often each occurs in a precision: each row counts as that many observations
    shared: bool = False  # whether all kernels have the same precision

    @classmethod
    def of(cls, structure: Structure, n_features: int) -> Wishart:
        """Return the distribution of a structure."""
        if structure.isotropic:
            return cls(1, repeats=n_features)
        return cls(n_features, shared=structure.shared) if structure.triangular else cls(1, copies=n_features)


@dataclass(frozen=True)
class Variational:
    """The update rule of variational Bayes: parameters are posteriors."""

    structure: Structure
    prior: Prior  # of all kernels
    floor: FloatArray  # (M,): variance floor of the starts
    pseudo_rows: FloatArray  # (1, K, S): second-order terms of the pseudo-rows of covariances
    freeze: None = None  # all parameters are learnt
    bounded: bool = True  # the objective is a lower bound of the log-evidence
    monotone: bool = True  # no pass lowers it
    precision: str = "float64"  # of products with rows

    @classmethod
    def of(
        cls,
        structure: Structure,
        prior: Prior,
        floor: FloatArray,
        n_kernels: int,
        precision: str = "float64",
    ) -> Variational:
        """Return the rule for K kernels."""
        n_features = len(floor)
        covariance = structure.from_common(prior.covariance[None], n_kernels)
        rows = prior.covariance_rows / (n_kernels if Wishart.of(structure, n_features).shared else 1)
        terms = rows * structure.terms_of(covariance, n_kernels, n_features)
        return cls(structure, prior, floor, terms, precision=precision)

    def placed(self, place: Callable[[Array], Array]) -> Variational:
        """Return the rule with its arrays where passes run."""
        return replace(self, floor=place(self.floor), pseudo_rows=place(self.pseudo_rows))

    def enter(self, parameters: Parameters) -> tuple[Parameters, Factor]:
        """Return starts as point posteriors, as if after infinitely many rows."""
        parameters = with_counts(parameters)
        covariances, factor = self.structure.raised(parameters.covariances, self.floor)
        return replace(parameters, covariances=covariances), factor

    def improve(
        self, statistics: Statistics, origins: FloatArray, previous: Parameters, factor: Factor
    ) -> Improved:
        """Return the next posteriors: means m_k, covariances E[Λ_k]⁻¹, weights ω_kj and their counts."""
        structure, prior, xp = self.structure, self.prior, namespace(origins)
        n_kernels, n_features = origins.shape[1:]
        counts, class_prior = assign_unlabelled(statistics.mass, previous)
        # As in EM, a kernel without weight in any class stays without rows.
        gone = ~xp.any(previous.weights > 0, axis=-1)[..., None]
        counts = xp.where(gone, 0.0, counts)
        # Add the prior's pseudo-rows to mass and moments, then update without a prior.
        mass = xp.sum(statistics.mass, axis=-1) + prior.mean_rows
        away = -origins[..., None, :]
        second = statistics.second + structure.pack(structure.second_moment(away, prior.mean_rows * away))
        second += self.pseudo_rows
        offset = (statistics.first - prior.mean_rows * origins) / mass[..., None]
        # Pseudo-rows of the prior on means add to the scatter, but not to the degrees of freedom.
        n_owners = n_kernels if Wishart.of(structure, n_features).shared else 1
        left = prior.covariance_rows - n_owners * prior.mean_rows
        no_floor, no_covariance = (
            constant(np.zeros, shape, example=origins) for shape in (n_features, prior.covariance.shape)
        )
        bare = Regulariser(no_floor, None, left, no_covariance, 1.0)
        covariances, next_factor = structure.update((mass, offset, second), bare)
        weights = xp.where(gone, 0.0, expected_weights(counts, structure, prior))
        learnt = Parameters(weights, origins + offset, covariances, class_prior, counts)
        return learnt, next_factor, lost_digits(offset, next_factor, structure, self.precision)

    def log_prior(self, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return zeros (R,): the priors are in the divergence, which the host computes."""
        zeros: FloatArray = namespace(parameters.means).zeros_like(parameters.means[:, 0, 0])
        return zeros

    def objective(self, log_likelihood: FloatArray, parameters: Parameters, factor: Factor) -> FloatArray:
        """Return the lower bound of the log-evidence (R,)."""
        return log_likelihood.sum(axis=1) - divergence(parameters, factor, self.structure, self.prior)

    def finish(self, parameters: Parameters) -> Parameters:
        """Return point estimates with expected weights."""
        return point_estimate(parameters, self.prior)


def prior_of(options: Options, regulariser: Regulariser, structure: Structure, n_kernels: int) -> Prior:
    """Return the prior of the options, with defaults from the data."""
    n_features, rows = len(regulariser.floor), regulariser.prior_rows
    dimension = Wishart.of(structure, n_features).dimension
    if not rows > dimension - 1:
        raise ValueError(
            f"covariance_prior={rows} makes an improper prior on {structure.name} covariances of {dimension} "
            f"features: a variational fit needs covariance_prior > {dimension - 1}."
        )
    return Prior(
        n_kernels=n_kernels,
        concentration=regulariser.weight_prior if options.weight_prior else 1.0 / n_kernels,
        mean_rows=n_kernels ** (-2.0 / n_features),
        covariance_rows=rows,
        covariance=regulariser.prior_covariance,
    )


def default_rows(structure: Structure, n_features: int) -> float:
    """Return the default strength of the prior on covariances, in rows."""
    return Wishart.of(structure, n_features).dimension + _COVARIANCE_ROWS


def wishart_degrees(counts: FloatArray, wishart: Wishart, covariance_rows: float) -> FloatArray:
    """Return the degrees of freedom (R, K or 1) of the precisions' posterior, given counts (R, K, L)."""
    xp = namespace(counts)
    rows: FloatArray = xp.sum(counts, axis=-1)
    if wishart.shared:
        rows = xp.sum(rows, axis=1, keepdims=True)
    return wishart.repeats * (covariance_rows + rows)


def expected_weights(counts: FloatArray, structure: Structure, prior: Prior) -> FloatArray:
    """Return ω (R, K, L), the weights of the E-step, given counts (R, K, L)."""
    xp, n_features = namespace(counts), len(prior.covariance)
    wishart = Wishart.of(structure, n_features)
    logs = expected_log_weights(counts, prior.concentration, prior.n_kernels * prior.concentration)
    degrees = wishart_degrees(counts, wishart, prior.covariance_rows)
    # E log|Λ| − log|E[Λ]|, and the uncertainty of the mean.
    spread = wishart.copies * (_log_scale(degrees, wishart) - wishart.dimension * xp.log(degrees))
    mean_rows = prior.mean_rows + xp.sum(counts, axis=-1)
    logs = logs + (0.5 * (wishart.repeats * spread - n_features / mean_rows))[..., None]
    return xp.exp(xp.where(logs > LOWEST_LOG, logs, LOWEST_LOG))


def divergence(parameters: Parameters, factor: Factor, structure: Structure, prior: Prior) -> FloatArray:
    """Return the Kullback–Leibler divergence (R,) of posteriors from the prior; infinite for points.

    `factor` is that of the posteriors' covariances. The result is on the host.
    """
    assert parameters.counts is not None
    counts, xp = to_numpy(parameters.counts), namespace(parameters.means)
    known = is_known(counts)
    counts = np.where(known[:, None, None], counts, 0.0)
    n_features = len(prior.covariance)
    total = prior.n_kernels * prior.concentration
    of_weights = divergence_of_weights(counts, prior.concentration, total)
    # The means given the precisions.
    share = prior.mean_rows / (prior.mean_rows + np.sum(counts, axis=-1))
    of_means = n_features * (share - np.log(share) - 1.0)
    moved = structure.precision_times(factor, parameters.means) * parameters.means
    of_means += prior.mean_rows * to_numpy(xp.sum(moved, axis=-1))
    of_precisions = _of_precisions(counts, factor, structure, prior)
    total = of_weights + 0.5 * np.sum(of_means, axis=1) + np.sum(of_precisions, axis=1)
    return np.where(known, total, np.inf)


def _of_precisions(counts: FloatArray, factor: Factor, structure: Structure, prior: Prior) -> FloatArray:
    """Return the divergence (R, K or 1) of the precisions' Wishart distributions, of degrees ν, scales W."""
    n_features = len(prior.covariance)
    wishart = Wishart.of(structure, n_features)
    dimension, copies, repeats = wishart.dimension, wishart.copies, wishart.repeats
    now = wishart_degrees(counts, wishart, prior.covariance_rows)
    before = repeats * prior.covariance_rows
    covariance = structure.from_common(prior.covariance[None], 1)
    determinant = structure.factor(covariance, n_features).log_determinant
    # log|W|, as E[Λ] = νW.
    log_now = -to_numpy(factor.log_determinant) / repeats - copies * dimension * np.log(now)
    log_before = -determinant / repeats - copies * dimension * math.log(before)
    trace = to_numpy(structure.trace(factor, sent_once(prior.covariance, factor.whitener))) / repeats
    divergences = 0.5 * (before * log_before - now * log_now + (now - before) * log_now)
    divergences += 0.5 * copies * (now - before) * (_log_scale(now, wishart) - dimension * math.log(2.0))
    divergences -= copies * (multigammaln(0.5 * now, dimension) - multigammaln(0.5 * before, dimension))
    divergences += 0.5 * (before * trace - copies * dimension * now)
    return divergences


def _log_scale(degrees: FloatArray, wishart: Wishart) -> FloatArray:
    """Return E log|Λ| − log|W| of Wishart matrices with these degrees of freedom."""
    less = constant(np.arange, float(wishart.dimension), example=degrees)
    total: FloatArray = namespace(degrees).sum(digamma(0.5 * (degrees[..., None] - less)), axis=-1)
    return total + wishart.dimension * math.log(2.0)


def point_estimate(parameters: Parameters, prior: Prior) -> Parameters:
    """Return models with expected weights.

    A kernel that explains less than one row gets no weight, unless it is the heaviest of a class.
    """
    counts = parameters.counts
    assert counts is not None
    xp, places = namespace(counts), constant(np.arange, counts.shape[1], example=counts)
    needed = xp.any(xp.argmax(counts, axis=1)[:, None, :] == places[:, None], axis=-1)
    alive = (xp.sum(counts, axis=-1) >= _LEAST_EXPLAINED) | needed
    return point_weights(parameters, prior.concentration, alive)
