"""Temperature scaling: the divisor of log-joints that minimises the log-loss of held-out rows."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from ..exponentials import log_sum_exp
from ..records import FloatArray, IntArray

# Highest temperature: all classes are practically equally probable.
_HIGHEST = 1e6
# Lowest temperature: one class is practically certain.
_LOWEST = 1e-6
# Stands for a log-density of −∞, whose product with a probability of zero would be NaN. It is below all
# others (`FARTHEST_SQUARED`), and stays finite when it is divided by the lowest temperature.
_IMPOSSIBLE = -1e301


def least_log_loss(
    log_joints: FloatArray, codes: IntArray, weights: FloatArray | None = None, *, lowest: float = 1.0
) -> tuple[float, float]:
    """Return the temperature of least log-loss, and that loss.

    Log-joints (n, L) are up to a constant for each row; codes (n,) are the true classes, weights (n,) the
    weights of the rows. The loss is convex in the inverse temperature, so its slope has one root unless it is
    monotone. The default limit never sharpens probabilities: if no row is misclassified, the best temperature
    would be zero.
    """
    margins = _margins(log_joints, codes)
    relative = margins - margins.max(axis=0)
    shares = np.full(len(codes), 1.0 / len(codes)) if weights is None else weights / weights.sum()

    def slope(log_inverse: float) -> float:
        """Derivative of the loss with respect to the inverse temperature."""
        powers = np.exp(np.exp(log_inverse) * relative)
        return float(shares @ ((powers * margins).sum(axis=0) / powers.sum(axis=0)))

    low, high = -np.log(_HIGHEST), -np.log(max(lowest, _LOWEST))
    if slope(high) <= 0.0:
        best = high
    elif slope(low) >= 0.0:
        best = low
    else:
        best = brentq(slope, low, high, xtol=1e-12)
    temperature = float(np.exp(-best))
    return temperature, float(shares @ log_losses(log_joints, codes, temperature))


def log_losses(log_joints: FloatArray, codes: IntArray, temperature: float = 1.0) -> FloatArray:
    """Return −log Pr(class | x) of each row's true class, shape (n,); see `least_log_loss`."""
    losses = log_sum_exp(_margins(log_joints, codes) / temperature, axis=0)
    return np.where(log_joints[np.arange(len(codes)), codes] == -np.inf, np.inf, losses)


def _margins(log_joints: FloatArray, codes: IntArray) -> FloatArray:
    """Return log-joints (L, n) less those of the true classes, zero for rows whose class is impossible.

    Rows are the last axis, since sums over a few numbers each would be slow.
    """
    joints = np.maximum(log_joints.T, _IMPOSSIBLE, order="C")
    of_true_class = joints[codes, np.arange(len(codes))]
    return np.where(of_true_class > _IMPOSSIBLE, joints - of_true_class, 0.0)
