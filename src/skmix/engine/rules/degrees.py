"""Degrees of freedom of Student's t kernels.

A row of a t kernel with ν degrees of freedom is Gaussian with covariance P / u, where u ~ Gamma(ν/2, ν/2).
Given the row, u has the mean (ν + M) / (ν + d²), for a squared Mahalanobis distance d². The E-step weights
rows by it (Peel and McLachlan, "Robust mixture modelling using the t distribution", 2000), and the M-step for
ν is the root of log(ν/2) − ψ(ν/2) + 1 + s, where s is the mean of E[log u] − E[u] over the kernel's rows.
"""

from __future__ import annotations

import numpy as np

from ..compute.arrays import clip, digamma, namespace, trigamma, where
from ..model import FloatArray

# Range of learnt degrees of freedom: from a Cauchy distribution to one that is Gaussian for all purposes.
LEAST, MOST = 1.0, 200.0
# Of a kernel before the first pass.
START = 10.0
# Steps of Newton's method, of which each at least halves the bracket if it does not converge on its own.
_STEPS = 20


def likeliest_degrees(mean_gap: FloatArray) -> FloatArray:
    """Return the ν (R, K) that solve log(ν/2) − ψ(ν/2) + 1 + s = 0 for s (R, K), within their range.

    The left side falls with ν. Newton's steps for log ν that leave the bracket of the root are replaced by
    its middle.
    """
    xp = namespace(mean_gap)
    low = xp.full_like(mean_gap, np.log(LEAST))
    high = xp.full_like(mean_gap, np.log(MOST))
    place = 0.5 * (low + high)
    for _ in range(_STEPS):
        half = 0.5 * xp.exp(place)
        value = xp.log(half) - digamma(half) + 1.0 + mean_gap
        low, high = where(value > 0, place, low), where(value > 0, high, place)
        step = place - value / (1.0 - half * trigamma(half))
        place = where((step > low) & (step < high), step, 0.5 * (low + high))
    return clip(xp.exp(place), LEAST, MOST)
