"""
Outliers: t kernels
===================

Outliers shift and widen Gaussian kernels. They hardly change Student's t kernels.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.plots import draw_kernels

# %%
# Three Gaussian populations, and a tenth of the rows anywhere.
random = np.random.default_rng(3)
centres = np.array([[-5.0, 0.0], [4.0, 4.0], [4.0, -4.0]])
roots = np.array(
    [[[1.0, 0.0], [0.6, 0.8]], [[0.6, 0.0], [0.0, 1.4]], [[1.2, 0.0], [-0.8, 0.7]]]
)
kernel = random.integers(3, size=900)
X = centres[kernel] + np.einsum(
    "nij,nj->ni", roots[kernel], random.normal(size=(900, 2))
)
X = np.concatenate([X, random.uniform(-40.0, 40.0, size=(100, 2))])

# %%
# The same mixture with Gaussian kernels and with t kernels.
models = {
    name: SharedKernelMixture(
        3, tail=tail, init="k-means", n_init=3, random_state=0
    ).fit(X)
    for name, tail in (("Gaussian", None), ("Student's t", "t"))
}
for name, model in models.items():
    away = np.sqrt(((model.means_[:, None] - centres) ** 2).sum(axis=2)).min(axis=0)
    print(
        f"{name}: distances of the true means from the next one found {away.round(2)}"
    )

# %%
# Gaussian kernels widen, or leave a population to describe the outliers.
figure, every = plt.subplots(
    1, 2, figsize=(9, 4.4), layout="constrained", sharex=True, sharey=True
)
for axes, (name, model) in zip(every, models.items(), strict=True):
    axes.scatter(*X.T, s=3, color="0.6")
    draw_kernels(model, axes=axes, n_std=2.0)
    axes.set(title=name, xlim=(-16, 16), ylim=(-16, 16), xticks=[], yticks=[])
plt.show()
