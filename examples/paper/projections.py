"""
Projections of a fitted model
=============================

A model of four features in every plane of two. The kernels are the same for all classes; the line width shows
how much a class uses each of them.

It needs pandas.
"""

import matplotlib.pyplot as plt
import pandas as pd

from skmix import SharedKernelClassifier
from skmix.paper import DIGIT_FEATURES, digit_features, make_seven_segment_digits
from skmix.plots import plot_projections

# %%
# The paper's variant 4D: three quadrants and one entry of the principal axis. A frame's columns name the
# features.
images, digits = make_seven_segment_digits(100, random_state=0)
X = pd.DataFrame(digit_features(images), columns=DIGIT_FEATURES)[
    ["q2", "q3", "q4", "pca 4"]
]
model = SharedKernelClassifier(10, init="random_from_data", random_state=0).fit(
    X, digits
)

# %%
# 0 and 8 differ in the middle bar alone. 0 uses one kernel; 8 uses it, too, and another one of its own.
for digit in (0, 8):
    weights = {
        k: round(w, 2)
        for k, w in enumerate(model.weights_[:, digit].tolist())
        if w >= 0.1
    }
    print(f"digit {digit}, weights of kernels: {weights}")

# %%
# The rows of the class are grey, the ellipses hold one standard deviation.
figure = plt.figure(figsize=(12, 6), layout="constrained")
for part, digit in zip(figure.subfigures(1, 2), (0, 8), strict=True):
    plot_projections(model, digit, X, digits, figure=part)
    part.suptitle(f"digit {digit}", weight="bold")
plt.show()
