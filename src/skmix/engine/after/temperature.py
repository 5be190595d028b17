"""Temperature scaling: the divisor of log-joints that minimises the log-loss of held-out rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from ..records import FloatArray, IntArray

# Highest temperature: all classes are practically equally probable.
_HIGHEST = 1e6
# Lowest temperature: one class is practically certain.
_LOWEST = 1e-6


def least_log_loss(
    log_joints: FloatArray,
    codes: IntArray,
    weights: FloatArray | None = None,
    *,
    lowest: float = 1.0,
) -> tuple[float, float]:
    """Return the temperature of least log-loss, and that loss.

    Log-joints (n, L) are up to a constant for each row; codes (n,) are the true classes, weights (n,) those
    of the rows. The loss is convex in the inverse temperature, so its slope has one root unless it is
    monotone. The default limit never sharpens probabilities: if no row is misclassified, the best temperature
    would be zero.
    """
    gaps, offset = _relative(log_joints, codes)
    shares = np.full(len(codes), 1.0 / len(codes)) if weights is None else weights / weights.sum()

    def slope(log_inverse: float) -> float:
        exponents = np.exp(log_inverse) * gaps + offset
        powers = np.exp(exponents - exponents.max(axis=0))
        expected = (powers * gaps).sum(axis=0) / powers.sum(axis=0)
        return float(shares @ expected)

    low, high = -np.log(_HIGHEST), -np.log(max(lowest, _LOWEST))
    if slope(high) <= 0.0:
        found = high
    elif slope(low) >= 0.0:
        found = low
    else:
        found = brentq(slope, low, high, xtol=1e-12)
    temperature = float(np.exp(-found))
    losses = log_losses(log_joints, codes, temperature)
    return temperature, float(shares @ losses)


def log_losses(log_joints: FloatArray, codes: IntArray, temperature: float = 1.0) -> FloatArray:
    """Return −log Pr(class | x) of each row's true class, shape (n,); see `least_log_loss`."""
    gaps, offset = _relative(log_joints, codes)
    exponents = gaps / temperature + offset
    largest = exponents.max(axis=0)
    losses = np.log(np.exp(exponents - largest).sum(axis=0)) + largest
    return np.where(log_joints[np.arange(len(codes)), codes] == -np.inf, np.inf, losses)


def _relative(log_joints: FloatArray, codes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return log-joints (L, n) less that of the true class, and terms (L, n) independent of the temperature.

    A class of density zero has probability zero at any temperature, so its −inf is in the second. Rows are
    the last axis, since sums over a few numbers each would be slow.
    """
    joints, every = log_joints.T, np.arange(len(codes))
    own = joints[codes, every]
    possible = (joints > -np.inf) & (own > -np.inf)
    gaps = np.subtract(joints, own, where=possible, out=np.zeros(joints.shape))
    offset = np.where(possible, 0.0, -np.inf)
    offset[codes, every] = 0.0
    return gaps, offset
