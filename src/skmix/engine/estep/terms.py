"""The arithmetic of log-densities and sums that E-steps share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..exponentials import to_shares
from ..numbers import LARGEST_CANCELLATION, Array, namespace
from ..records import Factor, FloatArray, IntArray, Statistics
from ..structures import Structure


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
    shares = joint.copy()
    log_sums = to_shares(shares, axis=1)
    # One product per start, so that its rounding does not depend on the others.
    likelihood = (log_sums[:, None] @ indicators)[:, 0]
    if not with_moments:
        return likelihood, np.zeros((*joint.shape[:2], n_classes)), None
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
