"""
Online learning
===============

Rows that come in batches and are never seen again: ``partial_fit`` keeps averages of the sums that a pass
of EM needs, and updates the kernels.
"""

from copy import deepcopy

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.plots import draw_kernels

# %%
# Three classes over five kernels, in a random order.
angles = 2 * np.pi * np.arange(5) / 5
means = 3.0 * np.column_stack([np.cos(angles), np.sin(angles)])
spread = np.array([[1.0, 0.6], [0.6, 0.8]])
weights = np.array([[6, 3, 1, 0, 0], [0, 1, 6, 3, 0], [2, 0, 0, 3, 5]]).T / 10
X, y = make_shared_kernel_data(
    means, np.tile(spread, (5, 1, 1)), weights, 2000, random_state=0
)
order = np.random.default_rng(0).permutation(len(X))
X, y = X[order], y[order]
whole = SharedKernelMixture(5, n_init=5, random_state=0).fit(X, y).score(X, y)

# %%
# Two streams of the same rows, in small and in large batches: after each batch, the log-likelihood of all
# rows. Of the small batches, three states are kept.
scores = {50: [], 400: []}
kept = {}
for size, values in scores.items():
    model = SharedKernelMixture(5, n_init=5, random_state=0)
    for start in range(0, len(X), size):
        batch = slice(start, start + size)
        model.partial_fit(X[batch], y[batch], classes=[0, 1, 2])
        values.append(model.score(X, y))
        if size == 50 and batch.stop in (50, 500, 6000):
            kept[batch.stop] = deepcopy(model)

# %%
# The kernels over the last 500 rows, and the log-likelihood beside that of a fit to all rows at once.
figure, (*panels, last) = plt.subplots(
    1, 4, figsize=(13, 3.7), layout="constrained", width_ratios=[2, 2, 2, 2.6]
)
for panel, (seen, model) in zip(panels, kept.items(), strict=True):
    panel.scatter(*X[max(seen - 500, 0) : seen].T, s=8, color="0.75", lw=0)
    draw_kernels(model, None, panel, n_std=2.0)
    panel.set(
        title=f"after {seen} rows",
        xlim=(-6, 6),
        ylim=(-6, 6),
        aspect="equal",
        xticks=[],
        yticks=[],
    )
for (size, values), colour in zip(scores.items(), ("#d55e00", "#0072b2"), strict=True):
    seen = size * np.arange(1, len(values) + 1)
    last.plot(seen, values, color=colour, lw=2, label=f"batches of {size}")
last.axhline(whole, color="black", ls="--", lw=1.2, label="all rows at once")
last.set(xlabel="rows seen", ylabel="log-likelihood per row", xscale="log")
last.legend(frameon=False, loc="lower right")
last.spines[["top", "right"]].set_visible(False)
plt.show()
