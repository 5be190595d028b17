"""
Accelerated EM
==============

Where kernels overlap, EM is slow: each pass gains a little less than the one before. ``accelerate=True``
extrapolates between passes (SQUAREM).
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture

# %%
# Four clusters that run into each other, and two starts. Plain fits have 420 passes, accelerated ones
# 150.
warnings.simplefilter("ignore", ConvergenceWarning)
random = np.random.default_rng(1)
centres = 2.5 * random.normal(size=(4, 2))
X = centres[random.integers(4, size=500)] + random.normal(size=(500, 2))
plain, fast = (
    [
        SharedKernelMixture(
            4,
            covariance_prior=None,
            tol=0.0,
            max_iter=passes,
            accelerate=accelerate,
            random_state=seed,
        ).fit(X)
        for seed in range(2)
    ]
    for accelerate, passes in ((False, 420), (True, 150))
)

# %%
# How far the log-likelihood still is from the best that was found, pass by pass. Dots: a thousandth is
# left.
top = max(model.log_likelihood_path_.sum(axis=1).max() for model in plain + fast)
figure, axes = plt.subplots(figsize=(8, 4.4), layout="constrained")
for models, colour, style, name in (
    (plain, "#d55e00", "--", "plain"),
    (fast, "#0072b2", "-", "accelerate=True"),
):
    reached = []
    for model in models:
        left = np.maximum(top - model.log_likelihood_path_.sum(axis=1), 1e-9)
        axes.semilogy(np.arange(1, len(left) + 1), left, style, color=colour, lw=1.8)
        reached.append(1 + np.argmax(left < 1e-3))
        axes.plot(reached[-1], 1e-3, "o", color=colour, ms=9)
    axes.plot(
        [],
        [],
        style,
        color=colour,
        lw=1.8,
        label=f"{name}: {reached[0]} and {reached[1]} passes",
    )
axes.axhline(1e-3, color="0.6", lw=1, zorder=0)
axes.set(
    xlabel="passes",
    ylabel="log-likelihood still to gain",
    xlim=(0, 420),
    ylim=(1e-6, 1e3),
)
axes.legend(frameon=False, loc="upper right", title="two starts each, to the dots")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
