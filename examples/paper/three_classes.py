"""
Three classes, three kernels
============================

The paper's illustration. Three classes use the same three kernels, each in its own proportions. Kernels
are learned from the rows of all classes, weights from the rows of one.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.paper import illustration
from skmix.plots import draw_kernels

# %%
# The data are simulated, so the truth is known.
truth = illustration()
X, y = make_shared_kernel_data(
    truth.means, truth.covariances, truth.weights, truth.n_per_class, random_state=0
)

# %%
# The paper gives the start. ``SharedKernelMixture(n_kernels=3)`` would find one by itself.
settings = {"tol": 0.1, "stopping": "per-class", "max_iter": 50}
model = SharedKernelMixture(init=truth.start, **settings).fit(X, y)
off = np.abs(model.weights_ - truth.weights).max()
print(f"weights off by {off:.3f} at most")

# %%
# Left: the means move from the starts (crosses) to the rows; the ellipses hold 2 standard
# deviations. Right: how much each class uses each kernel, estimated (bars) and true (lines).
colours = ["#0072b2", "#d55e00", "#009e73"]
markers = ["o", "^", "s"]
figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[3, 2]
)
for c in range(3):
    rows = X[y == c][:250]
    left.scatter(
        *rows.T,
        s=9,
        color=colours[c],
        marker=markers[c],
        alpha=0.45,
        lw=0,
        label=f"class {c}",
    )
draw_kernels(model, None, left, n_std=2.0)
for k, (before, after) in enumerate(
    zip(truth.start["means"], model.means_, strict=True)
):
    left.annotate("", after, before, arrowprops={"arrowstyle": "->", "lw": 1.4})
    left.plot(*before, "kx", ms=8, mew=2)
    left.annotate(f"k{k}", (after[0], after[1] + 1.5), ha="center", weight="bold")
left.set(xlabel="feature 0", ylabel="feature 1", xlim=(-3.5, 9.5), ylim=(-2.2, 6.2))
key = left.legend(
    loc="lower right", frameon=False, markerscale=2, ncols=3, handletextpad=0.1
)
for handle in key.legend_handles:
    handle.set_alpha(1.0)

places = np.arange(3)
for c in range(3):
    across = places + 0.27 * (c - 1)
    right.bar(across, model.weights_[:, c], width=0.25, color=colours[c])
    right.hlines(
        truth.weights[:, c], across - 0.125, across + 0.125, color="black", lw=2
    )
right.set_xticks(places, [f"k{k}" for k in places])
right.set(
    xlabel="kernel",
    ylabel="weight in the class",
    title="estimated (bars) and true (lines)",
)
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
