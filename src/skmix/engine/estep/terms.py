"""Arithmetic that E-steps share: responsibilities, moments, and log-densities as linear functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..exponentials import to_shares
from ..kernels import Sums
from ..numbers import LARGEST_CANCELLATION, Array, namespace
from ..records import Factor, FloatArray, IntArray, Statistics
from ..structures import Structure
from .inputs import Kernels


def share(
    joint: FloatArray, codes: IntArray, weights: FloatArray | None, n_classes: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return log-likelihoods (R, C), mass (R, K, C), and responsibilities times row weights (R, K, n).

    `joint` (R, K, n) is log π_k,c(n) N(x_n; μ_k, P_k) of n rows with class codes (n,) and weights (n,); it is
    overwritten. If each start has rows of its own, codes and weights are (R, n).
    """
    is_member = (codes[..., None] == np.arange(n_classes)).astype(np.float64)
    members = is_member if weights is None else is_member * weights[..., None]
    # (E): w_nk ∝ π_k,c(n) N(x_n; μ_k, P_k)
    shares, log_sums = joint, to_shares(joint, axis=1)
    # (LL), by one product for each start, so that its rounding does not depend on the others.
    log_likelihood = (log_sums[:, None] @ members)[:, 0]
    mass = shares @ members
    if weights is not None:
        shares *= weights[..., None, :]
    return log_likelihood, mass, shares


def sum_moments(
    differences: FloatArray, shares: FloatArray, precisions: Any, n_features: Any, kernels: Kernels
) -> tuple[FloatArray, FloatArray, Sums]:
    """Return first moments (R, K, M), second moments (R, K, S) and sums of the tail.

    They are sums over rows of their differences (R, K, n, M) from the origins, by shares (R, K, n) as in
    `share`. A tail that weights rows takes their precisions (R, K, n) and numbers of observed features.
    """
    row_weights, of_tail = kernels.tail.weigh(shares, precisions, n_features)
    weighted = differences * row_weights[..., None]
    second = kernels.structure.second_moment(differences, weighted)
    return weighted.sum(axis=-2), kernels.structure.pack(second), of_tail


def likelihood_alone(log_likelihood: FloatArray, kernels: Kernels) -> Statistics:
    """Return the statistics of a pass without moments: all but the log-likelihoods (R, C) are zero."""
    mass, first = np.zeros(kernels.log_weights.shape), np.zeros(kernels.means.shape)
    return Statistics(log_likelihood, mass, first, np.zeros((*kernels.means.shape[:2], 1)))


def expand_densities(
    means: Array, factor: Factor, structure: Structure, bounds: FloatArray
) -> tuple[Array, Array, Array]:
    """Return log-densities less those at the means (R, K, M), as coefficients (R, K, M + S) of rows' terms.

    Also return their values (R, K) at the origin, and which kernels (R, K) are delicate: with terms of
    magnitudes up to `bounds` (M + S,) they would cancel too many digits, so compute them from differences.
    """
    xp, quadratic = namespace(means), structure.quadratic(factor)
    linear = structure.precision_times(factor, means)
    at_zero = -0.5 * xp.sum(linear * means, axis=-1)
    quadratic = xp.broadcast_to(quadratic, (*at_zero.shape, quadratic.shape[-1]))
    coefficients = xp.concat([linear, quadratic], axis=-1)
    magnitude = xp.abs(coefficients) @ bounds + xp.abs(at_zero)
    return coefficients, at_zero, ~(magnitude <= LARGEST_CANCELLATION["float64"])


def moved(
    statistics: Statistics, origins: FloatArray, new_origins: FloatArray, structure: Structure
) -> Statistics:
    """Return statistics whose moments are about `new_origins` (R, K, M) instead of `origins` (R, K, M).

    The tail does not weight rows.
    """
    first, shift = statistics.first, origins - new_origins
    weight = namespace(first).sum(statistics.mass, axis=-1)[..., None]
    second = structure.moved(statistics.second, first, weight, shift)
    return replace(statistics, first=first + weight * shift, second=second)
