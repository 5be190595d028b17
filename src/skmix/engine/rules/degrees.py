"""Degrees of freedom of Student's t kernels.

A row of a t kernel with ν degrees of freedom is Gaussian with covariance P / u, where u ~ Gamma(ν/2, ν/2).
Given the row, u has the mean (ν + M) / (ν + d²), for a squared Mahalanobis distance d². The E-step weights
rows by it (Peel and McLachlan, "Robust mixture modelling using the t distribution", 2000), and the M-step for
ν is the root of log(ν/2) − ψ(ν/2) + 1 + s, where s is the mean of E[log u] − E[u] over the kernel's rows.
"""

from __future__ import annotations

import numpy as np

from ..compute.arrays import digamma, trigamma
from ..model import FloatArray

# Range of learnt degrees of freedom: from a Cauchy distribution to one that is Gaussian for all purposes.
LEAST, MOST = 1.0, 200.0
# Of a kernel before the first pass.
START = 10.0
# Most steps of Newton's method, and the change of log ν after which it has converged.
_STEPS, _CLOSE = 50, 1e-12


def likeliest_degrees(mean_gap: FloatArray) -> FloatArray:
    """Return the ν (R, K) that solve log(ν/2) − ψ(ν/2) + 1 + s = 0 for s (R, K), within their range.

    The left side falls with ν. Newton's steps for log ν that leave the bracket of the root are replaced by
    its middle.
    """
    low, high = np.full_like(mean_gap, np.log(LEAST)), np.full_like(mean_gap, np.log(MOST))
    place = 0.5 * (low + high)
    for _ in range(_STEPS):
        half = 0.5 * np.exp(place)
        value = np.log(half) - digamma(half) + 1.0 + mean_gap
        low, high = np.where(value > 0, place, low), np.where(value > 0, high, place)
        last, step = place, place - value / (1.0 - half * trigamma(half))
        place = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
        if np.all(np.abs(place - last) < _CLOSE):
            break
    return np.clip(np.exp(place), LEAST, MOST)
