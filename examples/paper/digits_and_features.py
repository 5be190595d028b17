"""
Digits and their features
=========================

The paper's data are simulated images of seven-segment digits. Each image becomes fourteen numbers: ten
entries of its first principal axis, and the share of its bright pixels in each quadrant.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patheffects import withStroke

from skmix.paper import DIGIT_FEATURES, digit_features, make_seven_segment_digits
from skmix.paper.digit_plots import plot_digits, plot_feature_overlay

# %%
# A lit segment is a Gaussian cloud of points, and an image counts the points in its 28 × 28 pixels.
images, digits = make_seven_segment_digits(60, random_state=0)
X = digit_features(images)
print(X.shape, ", ".join(DIGIT_FEATURES))

# %%
# The axis (middle) tells how columns vary together, so 2 and 5, which are mirror images, look alike. The
# quadrants (right) tell them apart, but not 0, 1 and 8, which are symmetric.
figure = plt.figure(figsize=(13, 5), layout="constrained")
left, middle, right = figure.subfigures(1, 3, width_ratios=[3.4, 5, 4])
first = np.concatenate([np.flatnonzero(digits == d)[:8] for d in range(10)])
plot_digits(images[first], digits[first], n_columns=8, figure=left).set_title("images")
plot_feature_overlay(X, digits, n_samples=20, figure=middle)
middle.suptitle("entries of the principal axis")

axes = right.subplots()
upper, lower = X[:, DIGIT_FEATURES.index("q2")], X[:, DIGIT_FEATURES.index("q3")]
colours = ["#000000", "#e69f00", "#56b4e9", "#009e73", "#8a8a00"]
colours += ["#0072b2", "#d55e00", "#cc79a7", "#7f7f7f", "#6a3d9a"]
aside = {
    0: (-16, 12),
    1: (-16, -12),
    8: (8, -18),
    7: (0, 14),
}  # where names would hide each other or the rows
for digit, colour in enumerate(colours):
    own = digits == digit
    axes.scatter(upper[own], lower[own], s=9, color=colour, alpha=0.5, lw=0)
    name = {
        "color": colour,
        "size": 17,
        "weight": "bold",
        "ha": "center",
        "va": "center",
        "path_effects": [withStroke(linewidth=3, foreground="white")],
    }
    middle = upper[own].mean(), lower[own].mean()
    axes.annotate(
        str(digit), middle, aside.get(digit, (0, 0)), textcoords="offset points", **name
    )
axes.set(xlabel="q2, upper left", ylabel="q3, lower left")
axes.spines[["top", "right"]].set_visible(False)
right.suptitle("shares of quadrants")
plt.show()
