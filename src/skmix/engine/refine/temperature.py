"""How far to soften probabilities: the temperature at which held-out rows lose least."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from ..model import FloatArray, IntArray

# Beyond this all classes are as good as equally probable.
_LARGEST_LOG_TEMPERATURE = float(np.log(1e6))


def least_log_loss(
    log_joints: FloatArray, codes: IntArray, weights: FloatArray | None = None
) -> tuple[float, float]:
    """Return the temperature, at least 1, of least log-loss, and that loss.

    Probabilities are never sharpened: where no row is misclassified, nothing else would stop that.

    Parameters
    ----------
    log_joints : ndarray of shape (n, L)
        Log-joints of rows and classes.
    codes : ndarray of shape (n,)
        The true classes.
    weights : ndarray of shape (n,), optional
        Weights of the rows.
    """
    largest = log_joints.max(axis=1)
    gaps = log_joints - largest[:, None]
    reached = log_joints[np.arange(len(codes)), codes] - largest

    def log_loss(log_temperature: float) -> float:
        inverse = np.exp(-log_temperature)
        losses = np.log(np.exp(inverse * gaps).sum(axis=1)) - inverse * reached
        return float(np.average(losses, weights=weights))

    found = minimize_scalar(log_loss, bounds=(0.0, _LARGEST_LOG_TEMPERATURE), method="bounded")
    # The search never looks at the bound itself.
    log_temperature = 0.0 if log_loss(0.0) <= found.fun else float(found.x)
    return float(np.exp(log_temperature)), log_loss(log_temperature)
