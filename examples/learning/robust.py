"""
Outliers: t kernels and a background
====================================

Outliers pull at Gaussian kernels. Student's t kernels give way, and a uniform background takes the outliers
away from the kernels.
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
# The same mixture with Gaussian kernels, t kernels, and Gaussian kernels with a background.
settings = {
    "Gaussian": {},
    "Student's t": {"tail": "t"},
    "Gaussian, background": {"tail": "background"},
}
models = {
    name: SharedKernelMixture(3, init="k-means", n_init=3, random_state=0, **each).fit(
        X
    )
    for name, each in settings.items()
}
for name, model in models.items():
    away = np.sqrt(((model.means_[:, None] - centres) ** 2).sum(axis=2)).min(axis=0)
    print(
        f"{name}: distances of the true means from the next one found {away.round(2)}"
    )
print(
    "share of the background: "
    f"{models['Gaussian, background'].background_weights_[0]:.3f}"
)

# %%
# Gaussian kernels widen, or leave a population to describe the outliers. Outliers that are most probably
# background are crosses.
figure, every = plt.subplots(
    1, 3, figsize=(13, 4.4), layout="constrained", sharex=True, sharey=True
)
for axes, (name, model) in zip(every, models.items(), strict=True):
    noise = 1.0 - model.predict_proba(X).sum(axis=1) > 0.5
    axes.scatter(*X[~noise].T, s=3, color="0.6")
    axes.scatter(*X[noise].T, s=24, color="#d55e00", marker="x")
    draw_kernels(model, axes=axes, n_std=2.0)
    axes.set(title=name, xlim=(-16, 16), ylim=(-16, 16), xticks=[], yticks=[])
plt.show()
