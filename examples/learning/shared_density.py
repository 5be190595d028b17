"""
A rare class from twelve rows
=============================

Kernels that are learnt from the rows of a rare class alone follow single rows. If kernels are learnt from all
classes together, the twelve rows of the rare class determine little more than its weights.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import multivariate_normal

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data

# %%
# Two common classes and a rare one, all over the same four kernels.
means = np.array([[0.0, 0.0], [4.0, 0.5], [2.0, 3.5], [6.0, 4.0]])
covariances = np.array(
    [
        [[1.1, 0.6], [0.6, 0.7]],
        [[0.5, -0.3], [-0.3, 0.9]],
        [[0.9, -0.4], [-0.4, 0.5]],
        [[0.6, 0.3], [0.3, 0.8]],
    ]
)
weights = np.array([[0.4, 0.1, 0.3], [0.4, 0.1, 0.2], [0.1, 0.4, 0.4], [0.1, 0.4, 0.1]])
X, y = make_shared_kernel_data(means, covariances, weights, 300, random_state=3)
rare = 2
kept = (y != rare) | (np.cumsum(y == rare) <= 12)
X, y = X[kept], y[kept]

# %%
# Both fits have four kernels, the same prior on covariances and the same number of starts.
settings = {"n_init": 5, "covariance_prior": 2, "max_iter": 500, "random_state": 0}
own = SharedKernelMixture(4, **settings).fit(X[y == rare])
shared = SharedKernelMixture(4, **settings).fit(X, y)

across, up = np.meshgrid(np.linspace(-3.5, 9.0, 200), np.linspace(-3.5, 7.0, 200))
grid = np.stack([across, up], axis=-1)
truth = sum(
    weight * multivariate_normal(mean, covariance).pdf(grid)
    for weight, mean, covariance in zip(
        weights[:, rare], means, covariances, strict=True
    )
)
panels = {
    "kernels of its own": own.score_samples(grid.reshape(-1, 2)),
    "kernels shared by all classes": shared.class_log_likelihood(grid.reshape(-1, 2))[
        :, rare
    ],
    "the truth": np.log(truth),
}

# %%
# The density of the rare class, with the rows that each fit has seen.
figure, places = plt.subplots(1, 3, figsize=(12.0, 3.9), layout="constrained")
levels = np.linspace(-9.0, -2.0, 8)
for place, (axes, (title, density)) in enumerate(
    zip(places, panels.items(), strict=True)
):
    axes.contourf(
        across, up, density.reshape(across.shape), levels, cmap="Blues", extend="max"
    )
    if place == 1:
        axes.plot(*X[y != rare].T, "o", color="0.6", ms=1.6, mew=0.0, alpha=0.6)
    if place < 2:
        axes.plot(*X[y == rare].T, "o", color="#d55e00", ms=6.0, mec="white", mew=0.8)
    axes.set_title(title, fontsize=11)
    axes.set(xlim=(-3.5, 9.0), ylim=(-3.5, 7.0), xticks=[], yticks=[])
plt.show()
