"""
Conditional densities
=====================

Conditional densities of a Gaussian mixture have a closed form. Given the value of one feature,
``condition`` returns a model of the others, in which the classes have the probabilities that the value
gives them.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelClassifier
from skmix.datasets import make_shared_kernel_data

# %%
# Two classes over three kernels.
means = np.array([[0.0, 0.0], [3.2, 3.0], [5.5, -0.8]])
covariances = np.array(
    [[[1.4, 0.9], [0.9, 1.0]], [[1.0, -0.6], [-0.6, 0.8]], [[0.9, 0.3], [0.3, 0.6]]]
)
weights = np.array([[0.7, 0.1], [0.3, 0.3], [0.0, 0.6]])
X, y = make_shared_kernel_data(means, covariances, weights, 250, random_state=0)
model = SharedKernelClassifier(3, random_state=0).fit(X, y)

# %%
# Three cuts through the density. Each is a fitted model of the second feature by itself.
cuts = (0.0, 2.6, 5.0)
heights = np.linspace(-4.5, 6.5, 300)
slices = [model.condition({0: cut}) for cut in cuts]
for cut, rest in zip(cuts, slices, strict=True):
    print(
        f"feature 0 is {cut}: "
        f"the classes have probabilities {rest.class_prior_.round(2)}"
    )

# %%
# Left: the density and the cuts. Right: the conditional density at each cut; the area of a colour is the
# probability of the class.
blue, orange = "#0072b2", "#d55e00"
figure, axes = plt.subplots(
    1,
    4,
    figsize=(12, 4.4),
    layout="constrained",
    width_ratios=[3, 1, 1, 1],
    sharey=True,
)
across, up = np.meshgrid(np.linspace(-4, 9, 200), heights)
density = np.exp(
    model.score_samples(np.column_stack([across.ravel(), up.ravel()]))
).reshape(across.shape)
axes[0].contourf(across, up, density, 10, cmap="Greys", vmax=2 * density.max())
axes[0].plot(*X[y == 0].T, "o", color=blue, ms=3, mew=0, label="class 0")
axes[0].plot(*X[y == 1].T, "^", color=orange, ms=4, mew=0, label="class 1")
axes[0].legend(loc="upper left", frameon=False, markerscale=2)
axes[0].set(xlabel="feature 0", ylabel="feature 1", ylim=(-4.5, 6.5))
for letter, cut, rest, panel in zip("abc", cuts, slices, axes[1:], strict=True):
    axes[0].axvline(cut, color="black", lw=1.4, ls="--")
    axes[0].annotate(
        letter,
        (cut, 6.5),
        (0, 3),
        textcoords="offset points",
        ha="center",
        weight="bold",
    )
    parts = rest.class_prior_ * np.exp(rest.class_log_likelihood(heights[:, None]))
    panel.fill_betweenx(heights, 0, parts[:, 0], color=blue, alpha=0.85, lw=0)
    panel.fill_betweenx(
        heights, parts[:, 0], parts.sum(axis=1), color=orange, alpha=0.85, lw=0
    )
    panel.set(title=f"{letter}: feature 0 is {cut}", xlim=(0, 0.72), xlabel="density")
    for c, colour in enumerate((blue, orange)):
        text = {
            "color": colour,
            "ha": "right",
            "size": 11,
            "weight": "bold",
            "transform": panel.transAxes,
        }
        panel.text(0.97, 0.93 - 0.07 * c, f"{rest.class_prior_[c]:.0%}", **text)
    panel.spines[["top", "right"]].set_visible(False)
plt.show()
