"""
What sharing is worth by the number of rows
===========================================

Sharing kernels gives a class with few rows a better density if the class is made of the same kernels as the
others. If it lies elsewhere, there is nothing to gain.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data

# %%
# Two common classes of 300 rows and a rare one, over four kernels; `elsewhere` moves the rare class away.
means = np.array([[0.0, 0.0], [4.0, 0.5], [2.0, 3.5], [6.0, 4.0]])
covariances = np.tile([[0.8, 0.2], [0.2, 0.8]], (4, 1, 1))
weights = np.array([[0.4, 0.1, 0.3], [0.4, 0.1, 0.2], [0.1, 0.4, 0.4], [0.1, 0.4, 0.1]])
rare, repeats = 2, 12
counts = [4, 8, 16, 32, 64, 128, 256]


def draw(n_rare, seed, elsewhere):
    X, y = make_shared_kernel_data(
        means, covariances, weights, max(300, n_rare), random_state=seed
    )
    X[y == rare] += [3.0, -3.0] if elsewhere else [0.0, 0.0]
    kept = (y != rare) | (np.cumsum(y == rare) <= n_rare)
    return X[kept], y[kept]


# %%
# The log-density of new rows of the rare class, by shared kernels and by kernels of its own.
settings = {"n_init": 5, "covariance_prior": 2, "max_iter": 500, "random_state": 0}
scores = np.empty((2, 2, len(counts), repeats))
for place, repeat, i in np.ndindex(2, repeats, len(counts)):
    X, y = draw(counts[i], repeat, place)
    X_new, y_new = draw(2000, 1000 + repeat, place)
    new = X_new[y_new == rare]
    shared = SharedKernelMixture(4, **settings).fit(X, y)
    own = SharedKernelMixture(4, **settings).fit(X[y == rare])
    scores[place, 0, i, repeat] = shared.class_log_likelihood(new)[:, rare].mean()
    scores[place, 1, i, repeat] = own.score(new)

# %%
# Medians and quartiles over twelve repeats.
figure, panels = plt.subplots(1, 2, figsize=(10.0, 3.9), layout="constrained")
titles = (
    "the rare class uses the kernels of the others",
    "the rare class lies elsewhere",
)
for axes, title, curves in zip(panels, titles, scores, strict=True):
    for values, colour, marker, name in zip(
        curves,
        ("#0072b2", "#d55e00"),
        "os",
        ("shared kernels", "kernels of its own"),
        strict=True,
    ):
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
        axes.fill_between(counts, low, high, color=colour, alpha=0.2, lw=0.0)
        axes.plot(counts, middle, marker + "-", color=colour, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set(
        xlabel="rows of the rare class",
        ylabel="log-density of its new rows",
        ylim=(-7.0, -3.0),
    )
    axes.set_title(title, fontsize=11)
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
