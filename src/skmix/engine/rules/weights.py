"""Dirichlet posteriors of the classes' weights, and the prior that classes have in common.

The weights of class j have the prior Dirichlet(a_1, …, a_K). In a hierarchical model a = α β is learnt from
all classes: α says how alike they are, in rows, and β is what they have in common. As in variational Bayes,
the weights have a posterior q(π) beside the responsibilities q(z), whether kernels have one or are points.
Given the expected rows n_kj of class j and kernel k, it is Dirichlet(a + n_j), and the bound depends on a
only through the Dirichlet–multinomial likelihood of the counts,

    Σ_j [log Γ(α) − log Γ(α + n_j) + Σ_k log Γ(a_k + n_kj) − log Γ(a_k)],

the sum over classes of log ∫ Π_k π_kj^n_kj p(π_j | a) dπ_j. `learn_concentration` raises it, so the bound
never falls. The E-step has exp E log π_kj in place of weights. A point estimate of the weights would not do:
where a_k < 1, the most likely ones are zero.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..numbers import clip, digamma, gammaln, namespace, trigamma, where
from ..records import BoolArray, FloatArray, Parameters

# Exponentials of lower logarithms would be subnormal, and slow; such weights are negligible.
LOWEST_LOG = -700.0
# Lower limit of a_k, for a kernel without rows in any class.
_LEAST_A = 1e-8
# Upper limit of α, for classes that do not differ.
_MOST_ALPHA = 1e6
# Largest factor by which α grows in a pass. All classes look alike before kernels have found their rows, and
# a fit does not return from an α that is too high.
_GROWTH = 1.1
# Steps towards the most likely concentration in a pass.
_STEPS_OF_PASS = 3
# Largest change of a logarithm in a step.
_LONGEST_STEP = 2.0
# A step of Newton's method that changes no number by more than this share is taken without a comparison.
_SHORT_STEP = 1e-3


# ---------------------------------------------------------------- the posterior, given its prior


def without_posterior(parameters: Parameters) -> Parameters:
    """Mark the weights of starts as point estimates: their counts are infinite, as if after endless rows."""
    return replace(parameters, counts=namespace(parameters.weights).full_like(parameters.weights, np.inf))


def posterior_counts(parameters: Parameters) -> tuple[BoolArray, FloatArray]:
    """Return which starts (R,) have a posterior, and the counts (R, K, L), zero for the other starts."""
    counts = parameters.counts
    assert counts is not None
    xp = namespace(counts)
    known = xp.all(xp.isfinite(counts), axis=(1, 2))
    return known, where(known[:, None, None], counts, 0.0)


def expected_log_weights(concentration: FloatArray) -> FloatArray:
    """Return E log π (R, K, L) under Dirichlet distributions with these concentrations (R, K, L)."""
    total = namespace(concentration).sum(concentration, axis=1, keepdims=True)
    return digamma(concentration) - digamma(total)


def with_mean_weights(
    parameters: Parameters, concentration: Any, alive: BoolArray | None = None
) -> Parameters:
    """Return parameters whose weights are the means of their posteriors.

    The concentration of the prior is (R, K, 1), or one number. Kernels that are not `alive` (R, K) get no
    weight. Starts without a posterior keep their weights.
    """
    known, counts = posterior_counts(parameters)
    after = counts + concentration
    if alive is not None:
        after = where(alive[..., None], after, 0.0)
    means = after / namespace(after).sum(after, axis=1, keepdims=True)
    return replace(parameters, weights=where(known[:, None, None], means, parameters.weights))


def log_evidence(counts: FloatArray, concentration: FloatArray) -> FloatArray:
    """Return the Dirichlet–multinomial log-likelihood (R,) of counts (R, K, L), given a prior's a (R, K).

    There is no multinomial coefficient: the rows have an order.
    """
    xp, n_classes = namespace(counts), counts.shape[-1]
    total, sizes = xp.sum(concentration, axis=1), xp.sum(counts, axis=1)
    gains = xp.sum(gammaln(counts + concentration[..., None]), axis=-1) - n_classes * gammaln(concentration)
    losses = xp.sum(gammaln(sizes + total[:, None]), axis=-1) - n_classes * gammaln(total)
    evidence: FloatArray = xp.sum(gains, axis=1) - losses
    return evidence


def divergence_of_weights(counts: FloatArray, concentration: FloatArray) -> FloatArray:
    """Return the Kullback–Leibler divergence (R,) of the posteriors from their prior.

    It is E log p(z | π) − log p(z) for rows with these counts (R, K, L), given the prior's a (R, K).
    """
    logs = expected_log_weights(counts + concentration[..., None])
    return namespace(counts).sum(counts * logs, axis=(1, 2)) - log_evidence(counts, concentration)


# ---------------------------------------------------------------- the prior of hierarchical weights


def with_concentration(parameters: Parameters) -> Parameters:
    """Return starts with a concentration a (R, K), unless they have one.

    It is of as many rows as kernels, shared like the weights of all classes together.
    """
    if parameters.concentration is not None:
        return parameters
    weights = parameters.weights
    common = namespace(weights).sum(weights, axis=-1) * (weights.shape[1] / weights.shape[-1])
    return replace(parameters, concentration=clip(common, _LEAST_A, np.inf))


def improve_hierarchical(
    parameters: Parameters, counts: FloatArray, concentration: FloatArray, *, learn: bool
) -> Parameters:
    """Return parameters whose weights have posteriors given counts (R, K, L) and a (R, K), learnt or not."""
    if learn:
        concentration = learn_concentration(counts, concentration)
    logs = expected_log_weights(counts + concentration[..., None])
    weights = namespace(logs).exp(clip(logs, LOWEST_LOG, 0.0))
    return replace(parameters, weights=weights, counts=counts, concentration=concentration)


def learn_concentration(counts: FloatArray, concentration: FloatArray) -> FloatArray:
    """Return a concentration (R, K) under which the counts (R, K, L) are likelier, by a few steps.

    Each step takes the better of Newton's step for log a and Minka's fixed point, which never lowers the
    likelihood ("Estimating a Dirichlet distribution", 2000). The sum α grows by a limited factor.
    """
    xp = namespace(counts)
    most = clip(_GROWTH * xp.sum(concentration, axis=1, keepdims=True), 0.0, _MOST_ALPHA)
    reached = log_evidence(counts, concentration)
    for _ in range(_STEPS_OF_PASS):
        fixed_point, newton, informative, is_concave = _steps(counts, concentration)
        fixed_point, newton = _within_limits(fixed_point, most), _within_limits(newton, most)
        # The gain of a short step is rounding noise.
        is_short = xp.all(xp.abs(newton - concentration) < _SHORT_STEP * concentration, axis=1)
        for proposal, is_safe in ((fixed_point, False), (newton, is_short & is_concave)):
            value = log_evidence(counts, proposal)
            better = informative & ((value > reached) | is_safe)
            concentration = where(better[:, None], proposal, concentration)
            reached = where(better, value, reached)
    return concentration


def _steps(counts: FloatArray, a: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray, BoolArray]:
    """Return the fixed point's and Newton's next concentrations (R, K) after a (R, K).

    Also return whether counts (R, K, L) teach anything, and whether the likelihood is concave in log a, (R,).
    """
    xp, n_classes = namespace(counts), counts.shape[-1]
    sizes, total = xp.sum(counts, axis=1), xp.sum(a, axis=1)[:, None]
    after, after_total = counts + a[..., None], sizes + total
    # The derivative by a_k is gains_k − losses.
    gains = xp.sum(digamma(after), axis=-1) - n_classes * digamma(a)
    losses = xp.sum(digamma(after_total), axis=-1, keepdims=True) - n_classes * digamma(total)
    # Without rows, or with too few to change a digit, nothing can be learnt.
    informative = (xp.sum(sizes, axis=-1)[:, None] > 0) & (losses > 0)
    losses = where(informative, losses, 1.0)
    # In log a, minus the Hessian is diag(diagonal) − common · a aᵀ.
    gradient = a * (gains - losses)
    curvature = a**2 * (n_classes * trigamma(a) - xp.sum(trigamma(after), axis=-1))
    common = n_classes * trigamma(total) - xp.sum(trigamma(after_total), axis=-1, keepdims=True)
    # Where the likelihood is convex in log a, it is concave in a.
    diagonal = where(curvature > gradient, curvature - gradient, curvature)
    diagonal = where(diagonal > 0, diagonal, 1.0)
    # Newton's step, gradient over minus the Hessian, by Sherman & Morrison.
    scaled = a / diagonal
    pivot = 1.0 - common * xp.sum(a * scaled, axis=1, keepdims=True)
    shared = common * xp.sum(scaled * gradient, axis=1, keepdims=True) / where(pivot > 0, pivot, 1.0)
    step = clip(gradient / diagonal + scaled * shared, -_LONGEST_STEP, _LONGEST_STEP)
    return a * gains / losses, a * xp.exp(step), informative[:, 0], pivot[:, 0] > 0


def _within_limits(concentration: FloatArray, most: FloatArray) -> FloatArray:
    """Return a concentration (R, K) with no number too small, and no sum above `most` (R, 1)."""
    total = clip(namespace(concentration).sum(concentration, axis=1, keepdims=True), _LEAST_A, np.inf)
    return clip(concentration * clip(most / total, 0.0, 1.0), _LEAST_A, np.inf)
