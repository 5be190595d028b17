"""The arithmetic of log-densities and sums that E-steps share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..numbers import Array, is_numpy, like, namespace, occurs, safe_log
from ..records import Factor, FloatArray, IntArray, Statistics
from ..rules.likelihood import LARGEST_CANCELLATION
from ..structures import Structure

# A class likelihood below this, relative to the row's most likely kernel, has lost digits to underflow.
_LOST = 1e-280
# Responsibilities below this are zero: subnormal numbers would be slow, and nothing needs them.
_SMALLEST_SHARE = 1e-200


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


def log_sum(log_joint: Array) -> Array:
    """Return log Σ_j exp(a_nj), shape (n,), of log-joints a (n, m)."""
    xp = namespace(log_joint)
    largest = xp.max(log_joint, axis=1)
    finite = xp.where(largest > -np.inf, largest, 0.0)
    with np.errstate(divide="ignore"):
        return xp.log(xp.sum(xp.exp(log_joint - finite[:, None]), axis=1)) + finite


def log_mix(values: Array, weights: FloatArray) -> Array:
    """Return log Σ_k w_kj exp(v_kn), shape (L, n), of logarithms v (K, n) and weights w (K, L)."""
    xp, shares = namespace(values), like(weights, values)
    largest = xp.max(values, axis=0)
    densities = xp.exp(values - largest)
    sums = shares.T @ densities
    lost = sums < _LOST
    logs = xp.log(xp.where(lost, 1.0, sums)) + largest
    if not occurs(lost):
        return logs
    # In some class the rows' nearest kernels have no weight: sum over the other kernels.
    log_weights = safe_log(weights)
    if not is_numpy(values):
        own = [log_sum((values + like(log_weights[:, c, None], values)).T) for c in range(weights.shape[1])]
        return xp.where(lost, xp.stack(own), logs)
    for c in np.flatnonzero(lost.any(axis=1)):
        rows, kernels = np.flatnonzero(lost[c]), np.flatnonzero(weights[:, c])
        logs[c, rows] = -np.inf
        if len(kernels):
            terms = values[np.ix_(kernels, rows)] + log_weights[kernels, c, None]
            highest = terms.max(axis=0)
            # All terms of a row that the class rules out are −∞.
            highest = np.where(np.isfinite(highest), highest, 0.0)
            # A cumulative sum adds in the same order for any number of rows; a plain sum does not.
            logs[c, rows] = safe_log(np.cumsum(np.exp(terms - highest), axis=0)[-1]) + highest
    return logs


def share(
    joint: FloatArray,
    codes: IntArray,
    weights: FloatArray | None,
    n_classes: int,
    with_moments: bool,
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return log-likelihoods (R, C), mass (R, K, C) and responsibilities (R, K, n) of n rows: equation (E).

    The rows have log-joints (R, K, n), class codes (n,) and weights (n,), by which responsibilities are
    multiplied. If each start has rows of its own, codes and weights are (R, n). Where moments are left out,
    the mass is zero and responsibilities are None.
    """
    indicators = np.ones((*codes.shape, 1))
    if n_classes > 1:
        indicators = (codes[..., None] == np.arange(n_classes)).astype(np.float64)
    if weights is not None:
        indicators *= weights[..., None]
    largest = joint.max(axis=1)
    shares = joint - largest[:, None]
    np.exp(shares, out=shares)
    total = shares.sum(axis=1)
    # One product per start, so that its rounding does not depend on the others.
    likelihood = ((np.log(total) + largest)[:, None] @ indicators)[:, 0]
    if not with_moments:
        return likelihood, np.zeros((*joint.shape[:2], n_classes)), None
    shares /= total[:, None]
    np.putmask(shares, shares < _SMALLEST_SHARE, 0.0)
    return likelihood, shares @ indicators, shares if weights is None else shares * weights[..., None, :]


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
