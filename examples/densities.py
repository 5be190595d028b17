"""A density taken apart: a condition, a threshold for novelty, a temperature. Makes the guide page's picture.

Run it with ``python examples/densities.py``; it needs ``skmix[plot]``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelClassifier
from skmix.datasets import make_shared_kernel_data
from skmix.plots import plot_reliability, save_figure

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "densities.png"
COLOURS = ("#0072b2", "#d55e00")

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.0, 4.2), layout="constrained")

means = np.array([[0.0, 0.0], [3.2, 3.0], [5.5, -0.8]])
covariances = np.array([[[1.4, 0.9], [0.9, 1.0]], [[1.0, -0.6], [-0.6, 0.8]], [[0.9, 0.3], [0.3, 0.6]]])
weights = np.array([[0.7, 0.1], [0.3, 0.3], [0.0, 0.6]])
X, y = make_shared_kernel_data(means, covariances, weights, 250, random_state=0)
model = SharedKernelClassifier(3, reject_below=0.03, random_state=0).fit(X, y)

across, up = np.meshgrid(np.linspace(-4.5, 9.0, 240), np.linspace(-6.5, 7.0, 240))
surface = model.score_samples(np.column_stack([across.ravel(), up.ravel()])).reshape(across.shape)

# Left: the density, cut where the first feature is 2.6, and what is left along the cut.
cut = 2.6
rest = model.condition({0: cut})
left.contourf(across, up, np.exp(surface), 9, cmap="Greys")
left.axvline(cut, color="black", lw=1.0, ls=":")
height = up[:, 0]
parts = rest.class_prior_ * np.exp(rest.class_log_likelihood(height[:, None]))
for c, colour in enumerate(COLOURS):
    label = f"class {c}, now {rest.class_prior_[c]:.0%}"
    side = 7.0 if c else -7.0
    left.fill_betweenx(height, cut, cut + side * parts[:, c], color=colour, alpha=0.7, lw=0.0, label=label)
left.legend(loc="upper left", frameon=False)
left.set_title(f"condition({{0: {cut}}})", fontsize=11)

# Middle: rows below the threshold, and strangers.
strangers = np.random.default_rng(1).uniform([-4.5, -4.0], [9.0, 7.0], size=(60, 2))
middle.contour(across, up, surface, [model.threshold_], colors="black", linewidths=1.4, linestyles="solid")
for rows, marker, size in ((X, "o", 12), (strangers, "^", 26)):
    predicted = model.predict(rows)
    for label, colour in ((0, COLOURS[0]), (1, COLOURS[1]), (-1, "0.45")):
        own = predicted == label
        if label == -1:
            middle.scatter(*rows[own].T, s=size, marker=marker, facecolors="none", edgecolors=colour, lw=0.9)
        else:
            middle.scatter(*rows[own].T, s=size, marker=marker, color=colour, alpha=0.7, lw=0.0)
handles = [
    plt.Line2D([], [], marker=marker, color="none", mec="0.3", mfc=face, ms=6, label=name)
    for marker, face, name in (
        ("o", "0.3", "training rows"),
        ("^", "0.3", "new rows"),
        ("^", "none", "refused"),
    )
]
middle.legend(handles=handles, loc="lower left", framealpha=0.95, edgecolor="none")
middle.set_title("reject_below=0.03", fontsize=11)
for axes in (left, middle):
    axes.set(xlim=(-4.5, 9.0), ylim=(-6.5, 7.0), xlabel="feature 0", ylabel="feature 1")

# Right: six readings of one quantity, taken as independent evidence, make a classifier too sure of itself.
random = np.random.default_rng(2)
labels = random.integers(0, 3, size=9000)
quantity = 1.2 * labels + random.normal(size=9000)
readings = quantity[:, None] + 0.4 * random.normal(size=(9000, 6))
reader = SharedKernelClassifier(feature_groups=[[d] for d in range(6)], random_state=0, max_iter=500)
reader.fit(readings[:1000], labels[:1000]).calibrate(readings[1000:2000], labels[1000:2000])
plot_reliability(reader, readings[2000:], labels[2000:], axes=right)
right.set_title("calibrate", fontsize=11)
for axes in (left, middle, right):
    axes.spines[["top", "right"]].set_visible(False)

save_figure(figure, PICTURE)
