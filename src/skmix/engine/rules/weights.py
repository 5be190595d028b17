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
from scipy import special

from ..numbers import Array, clip, digamma, gammaln, namespace, to_numpy, trigamma, where
from ..records import BoolArray, FloatArray, Parameters

# Exponentials of lower logarithms would be subnormal, and slow; such weights are negligible.
LOWEST_LOG = -700.0
# Lower limit of a_k, for a kernel without rows in any class.
_LEAST_A = 1e-8
# Upper limit of α, for classes that do not differ.
_MOST_ALPHA = 1e6
# Steps towards the most likely concentration in a pass.
_STEPS_OF_PASS = 3
# Largest change of a logarithm in a step.
_LONGEST_STEP = 2.0
# A step of Newton's method that changes no number by more than this share is taken as it is.
_SHORT_STEP = 1e-3
# Largest factor by which α grows in a pass. All classes look alike before kernels have found their rows, and
# a fit does not return from an α that is too high.
_GROWTH = 1.1


def with_counts(parameters: Parameters) -> Parameters:
    """Return starts with counts, infinite unless known."""
    if parameters.counts is not None:
        return parameters
    return replace(parameters, counts=namespace(parameters.weights).full_like(parameters.weights, np.inf))


def begin(parameters: Parameters) -> Parameters:
    """Return starts with counts, infinite unless known, and with a concentration."""
    parameters, weights = with_counts(parameters), parameters.weights
    xp = namespace(weights)
    if parameters.concentration is None:
        # As many rows as kernels, shared like the weights of all classes together.
        common = xp.sum(weights, axis=-1) * (weights.shape[1] / weights.shape[-1])
        parameters = replace(parameters, concentration=clip(common, _LEAST_A, np.inf))
    return parameters


def expected_log_weights(counts: FloatArray, concentration: Any, total: Any) -> FloatArray:
    """Return E log π (R, K, L) under Dirichlet posteriors.

    `counts` are (R, K, L); the concentration a of the prior and its `total` α are numbers, or broadcast with
    the counts and their sums (R, 1, L).
    """
    sums = namespace(counts).sum(counts, axis=1, keepdims=True) + total
    return digamma(counts + concentration) - digamma(sums)


def divergence_of_weights(counts: FloatArray, concentration: Any, total: Any) -> FloatArray:
    """Return the divergence (R,) of the weights' posteriors from their prior, for arrays on the host."""
    expected = expected_log_weights(counts, concentration, total)
    sums = np.sum(counts, axis=1) + np.reshape(total, (-1, 1))
    totals = special.gammaln(sums) - special.gammaln(np.reshape(total, (-1, 1)))
    gains = special.gammaln(counts + concentration) - special.gammaln(concentration)
    return np.sum(totals - np.sum(gains - counts * expected, axis=1), axis=-1)


def log_evidence(counts: FloatArray, sizes: FloatArray, concentration: FloatArray) -> FloatArray:
    """Return the Dirichlet–multinomial log-likelihood (R,) of counts (R, K, L) with sums (R, L).

    The concentration is (R, K). There is no multinomial coefficient: the rows have an order.
    """
    xp, n_classes = namespace(counts), counts.shape[-1]
    total = xp.sum(concentration, axis=1)
    gains = xp.sum(gammaln(counts + concentration[..., None]), axis=-1) - n_classes * gammaln(concentration)
    losses = xp.sum(gammaln(sizes + total[:, None]), axis=-1) - n_classes * gammaln(total)
    evidence: FloatArray = xp.sum(gains, axis=1) - losses
    return evidence


def learn_concentration(counts: FloatArray, concentration: FloatArray) -> FloatArray:
    """Return a concentration (R, K) under which the counts (R, K, L) are likelier, by a few steps.

    Each step takes the better of two: Newton's step for log a, whose Hessian is a diagonal plus a matrix of
    rank one, and Minka's fixed point, which never lowers the likelihood ("Estimating a Dirichlet
    distribution", 2000). The sum α grows by a limited factor.
    """
    xp, n_classes = namespace(counts), counts.shape[-1]
    sizes = xp.sum(counts, axis=1)
    has_rows = (xp.sum(sizes, axis=-1) > 0)[:, None]
    most = clip(_GROWTH * xp.sum(concentration, axis=1, keepdims=True), 0.0, _MOST_ALPHA)
    reached = log_evidence(counts, sizes, concentration)
    for _ in range(_STEPS_OF_PASS):
        a, total = concentration, xp.sum(concentration, axis=1)[:, None]
        after, sums = counts + a[..., None], sizes + total
        gains = xp.sum(digamma(after), axis=-1) - n_classes * digamma(a)
        losses = xp.sum(digamma(sums), axis=-1, keepdims=True) - n_classes * digamma(total)
        # Without rows, or with too few to change a digit, nothing can be learnt.
        some = has_rows & (losses > 0)
        losses = where(some, losses, 1.0)
        curvature = n_classes * trigamma(a) - xp.sum(trigamma(after), axis=-1)
        common = n_classes * trigamma(total) - xp.sum(trigamma(sums), axis=-1, keepdims=True)
        gradient = a * (gains - losses)
        diagonal = a**2 * curvature - gradient
        # Where the likelihood is convex in log a, it is concave in a.
        diagonal = where(diagonal > 0, diagonal, a**2 * curvature)
        diagonal = where(diagonal > 0, diagonal, 1.0)
        share = a / diagonal
        left = 1.0 - common * xp.sum(a * share, axis=1, keepdims=True)
        among = common * xp.sum(share * gradient, axis=1, keepdims=True) / where(left > 0, left, 1.0)
        newton = a * xp.exp(clip(gradient / diagonal + share * among, -_LONGEST_STEP, _LONGEST_STEP))
        newton = _within_limits(newton, most)
        for proposal in (_within_limits(a * gains / losses, most), newton):
            value = log_evidence(counts, sizes, proposal)
            better = some[:, 0] & (value > reached)
            if proposal is newton:
                # For short steps the difference is rounding noise.
                short = xp.all(xp.abs(newton - a) < _SHORT_STEP * a, axis=1) & (left[:, 0] > 0)
                better = better | (some[:, 0] & short)
            concentration = where(better[:, None], proposal, concentration)
            reached = where(better, value, reached)
    return concentration


def _within_limits(concentration: FloatArray, most: FloatArray) -> FloatArray:
    """Return a concentration (R, K) with no number too small, and no sum above `most` (R, 1)."""
    total = namespace(concentration).sum(concentration, axis=1, keepdims=True)
    return clip(
        concentration * clip(most / clip(total, _LEAST_A, np.inf), 0.0, 1.0),
        _LEAST_A,
        np.inf,
    )


def with_posterior(
    parameters: Parameters, counts: FloatArray, previous: Parameters, *, learn: bool
) -> Parameters:
    """Return parameters with hierarchical weights for counts (R, K, L), and their prior too if `learn`."""
    xp, concentration = namespace(counts), previous.concentration
    assert concentration is not None
    if learn:
        concentration = learn_concentration(counts, concentration)
    total = xp.sum(concentration, axis=1)[:, None, None]
    logs = expected_log_weights(counts, concentration[..., None], total)
    weights = xp.exp(clip(logs, LOWEST_LOG, 0.0))
    return replace(parameters, weights=weights, counts=counts, concentration=concentration)


def point_weights(parameters: Parameters, concentration: Any, alive: Array | None = None) -> Parameters:
    """Return parameters with expected weights, given the prior's concentration; see `expected_log_weights`.

    Kernels that are not `alive` (R, K) get none. Starts without a posterior keep their weights.
    """
    counts = parameters.counts
    assert counts is not None
    known = is_known(counts)[:, None, None]
    after = where(known, counts, 0.0) + concentration
    after = after if alive is None else where(alive[..., None], after, 0.0)
    means = after / namespace(counts).sum(after, axis=1, keepdims=True)
    return replace(parameters, weights=where(known, means, parameters.weights))


def log_ratio(parameters: Parameters) -> FloatArray:
    """Return the term (R,) of hierarchical weights in the objective, on the host: minus their divergence."""
    assert parameters.counts is not None
    assert parameters.concentration is not None
    counts, concentration = to_numpy(parameters.counts), to_numpy(parameters.concentration)
    known = is_known(counts)
    counts = np.where(known[:, None, None], counts, 0.0)
    total = concentration.sum(axis=1)[:, None, None]
    return np.where(known, -divergence_of_weights(counts, concentration[..., None], total), -np.inf)


def is_known(counts: FloatArray) -> BoolArray:
    """Return which starts (R,) have a posterior; the others are still points."""
    xp = namespace(counts)
    known: BoolArray = xp.all(xp.isfinite(counts), axis=(1, 2))
    return known
