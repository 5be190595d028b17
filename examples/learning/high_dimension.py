"""
High-dimensional data
=====================

An image of 8 × 8 pixels has 64 features, and a full covariance of them has 2080 numbers. A few dozen images
of each digit do not determine them all. There are two remedies: shrink covariances towards a common one, or
take principal components first. The curves are measured numbers, so run this inside a checkout.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skmix import SharedKernelClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=1000, stratify=y, random_state=0
)

# %%
# One kernel for each digit, in three versions. ``covariance_prior=None`` is plain maximum likelihood; by
# default covariances are shrunk while kernels have fewer than three rows for each feature, here 192.
settings = {"tol": 1e-3, "random_state": 0}
components = make_pipeline(PCA(15, random_state=0), SharedKernelClassifier(**settings))
versions = {
    "full, maximum likelihood": (
        SharedKernelClassifier(covariance_prior=None, **settings),
        "#D55E00",
        "s",
    ),
    "full, shrunk (default)": (SharedKernelClassifier(**settings), "#0072B2", "o"),
    "15 components, then the default": (components, "#CC79A7", "D"),
}
own = np.concatenate([np.flatnonzero(y_train == digit)[:10] for digit in range(10)])
for name, (model, *_) in versions.items():
    score = model.fit(X_train[own], y_train[own]).score(X_test, y_test)
    print(f"{name}: {1 - score:.1%} wrong after ten images of each digit")

# %%
# What a covariance describes: the directions in which the images of a digit differ most from their mean.
model = versions["full, shrunk (default)"][0].fit(X_train, y_train)
tiles = []
for k in model.weights_[:, [0, 3, 7]].argmax(axis=0):
    variances, axes = np.linalg.eigh(model.covariances_[k])
    mean = model.means_[k]
    steps = [1.5 * np.sqrt(variances[-i]) * axes[:, -i] for i in (1, 2)]
    tiles.append([mean, *(mean + sign * step for step in steps for sign in (-1, 1))])
sheet = np.full((3 * 9 - 1, 5 * 9 - 1), np.nan)
for i, j in np.ndindex(3, 5):
    sheet[9 * i : 9 * i + 8, 9 * j : 9 * j + 8] = tiles[i][j].reshape(8, 8)

# %%
# With few rows maximum likelihood fails first; beside shrinking, principal components do best.
# ``benchmarks/digits.py`` has measured the curves.
here = Path.cwd()
folders = [path / "benchmarks" for path in (here, *here.parents)]
folder = next(filter(Path.is_dir, folders), folders[0])
measured = pd.read_csv(folder / "results" / "digits.csv")
figure, (left, right) = plt.subplots(
    1, 2, figsize=(11.5, 4.4), layout="constrained", width_ratios=[5, 4]
)
for name, (_, colour, marker) in versions.items():
    curve = measured[measured["fit"] == name]
    sizes = curve["rows of a digit"]
    bounds = curve["lower quartile"], curve["upper quartile"]
    left.fill_between(sizes, *bounds, color=colour, alpha=0.18, lw=0)
    left.plot(sizes, curve["median"], marker=marker, color=colour, label=name)
left.set(
    xscale="log",
    yscale="log",
    xlabel="training images of each digit",
    ylabel="test error, %",
)
left.set_xticks(sizes, sizes)
left.set_yticks([2, 3, 5, 10, 20], [2, 3, 5, 10, 20])
left.minorticks_off()
n_repeats = curve["repeats"].iloc[0]
left.legend(frameon=False, title=f"median and quartiles of {n_repeats} repeats")

right.imshow(sheet, cmap="Greys", vmin=0, vmax=16)
right.set_xticks(
    9 * np.arange(5) + 3.5, ["mean", "first −", "first +", "second −", "second +"]
)
right.xaxis.tick_top()
right.set(yticks=[], title="kernels of 0, 3 and 7: means and two principal axes")
right.spines[:].set_visible(False)
plt.show()
