"""
Novelty detection
=================

A classifier names one of its classes even for a row that belongs to none of them. A density shows that the
row is unusual: ``reject_below`` refuses rows that are less likely than nearly all training rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skmix import SharedKernelClassifier

# %%
# The model learns the digits 0 to 7 and refuses about one in fifty of them that are new. 8 and 9 are
# novel.
images, digits = load_digits(return_X_y=True)
known = digits < 8
X, X_test, y, y_test = train_test_split(images[known], digits[known], random_state=0)
classifier = SharedKernelClassifier(
    8, covariance_prior=20.0, reject_below=0.02, outlier_label=-1, random_state=0
)
model = make_pipeline(PCA(20, random_state=0), classifier).fit(X, y)
rows = {
    "digits 0 to 7": X_test,
    "8 and 9": images[~known],
    "negatives of 0 to 7": 16 - X_test,
}
refused = {
    name: f"{name}: {np.mean(model.predict(values) == -1):.0%} refused"
    for name, values in rows.items()
}
print(*refused.values(), sep="\n")

# %%
# Left: log-densities of three kinds of images, and the threshold.
figure = plt.figure(figsize=(12, 4.4), layout="constrained")
left, right = figure.subfigures(1, 2, width_ratios=[1, 1])
axes = left.subplots()
for (name, values), colour in zip(
    rows.items(), ("#0072b2", "#d55e00", "#009e73"), strict=True
):
    scores = model.score_samples(values)
    axes.hist(
        scores,
        np.arange(-240, -40, 4),
        density=True,
        color=colour,
        alpha=0.65,
        label=refused[name],
    )
axes.axvline(classifier.threshold_, color="black", ls="--", lw=2, label="threshold")
axes.legend(frameon=False, loc="upper left")
axes.set(xlabel="log-density", yticks=[])
axes.spines[["top", "right", "left"]].set_visible(False)

# Right: accepted digits, and novel ones that are refused or not, with the class named for each.
guesses, novel = model.predict(X_test), rows["8 and 9"]
named = model.predict(novel)
lines = (
    ("known,\naccepted", X_test[guesses >= 0], guesses[guesses >= 0]),
    ("novel,\nrefused", novel[named < 0], named[named < 0]),
    ("novel,\naccepted", novel[named >= 0], named[named >= 0]),
)
grid = right.subplots(3, 6)
for (title, pictures, labels), panels in zip(lines, grid, strict=True):
    panels[0].text(-1.5, 3.5, title, ha="right", va="center", size=11)
    for panel, picture, label in zip(panels, pictures, labels, strict=False):
        panel.imshow(picture.reshape(8, 8), cmap="Greys")
        panel.set_title("refused" if label < 0 else f"“{label}”", size=10, pad=3)
        panel.axis("off")
plt.show()
