"""
Semi-supervised learning
========================

Labels are often expensive. Rows without a label still help to estimate the kernels; a few labels are then
enough to assign kernels to classes. The picture draws measured numbers, so run this inside a checkout.
"""

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelClassifier
from skmix.paper import digit_features, make_seven_segment_digits

# %%
# A thousand images of digits. Two of each have a label, the others -1 in its place.
# (Two rows a class are soon fitted as well as rounding allows.)
warnings.simplefilter("ignore", ConvergenceWarning)
columns = [1, 3, 4, 11, 12, 13]
images, digits = make_seven_segment_digits(100, random_state=0)
test_images, test_digits = make_seven_segment_digits(100, random_state=1)
X, X_test = (digit_features(each)[:, columns] for each in (images, test_images))
random = np.random.default_rng(0)
shown = np.concatenate(
    [random.choice(np.flatnonzero(digits == d), 2, replace=False) for d in range(10)]
)
y = np.full(len(digits), -1)
y[shown] = digits[shown]

# %%
# Learnt from the labelled rows alone, and from all rows.
model = SharedKernelClassifier(tol=1e-3, random_state=0)
print(
    "labelled rows alone:",
    model.fit(X[shown], digits[shown]).score(X_test, test_digits),
)
print("all rows:", model.fit(X, y).score(X_test, test_digits))

# %%
# One draw proves little: with other labels, rows without a label may increase the error.
# ``benchmarks/digits.py`` has repeated this with new images, for more and more labels. They help most where
# labels are fewest.
here = Path.cwd()
folders = [path / "benchmarks" for path in (here, *here.parents)]
folder = next(filter(Path.is_dir, folders), folders[0])
measured = pd.read_csv(folder / "results" / "digits.csv")

figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
for name, kind, colour, marker in (
    ("with the rows that have no label", "all rows", "#0072b2", "o"),
    ("labelled rows alone", "labelled rows alone", "#d55e00", "s"),
):
    curve = measured[measured["fit"] == kind]
    counts = curve["rows of a digit"]
    low, middle, high = (
        curve[each] / 100 for each in ("lower quartile", "median", "upper quartile")
    )
    axes.fill_between(counts, low, high, color=colour, alpha=0.18, lw=0)
    axes.plot(counts, middle, marker=marker, color=colour, lw=2.2, ms=7, label=name)
n_repeats = curve["repeats"].iloc[0]
axes.set_xscale("log")
axes.set_xticks(counts, [str(count) for count in counts])
axes.minorticks_off()
axes.set(xlabel="labels of each digit, of 100 rows", ylabel="accuracy on test digits")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(
    frameon=False,
    loc="lower right",
    title=f"median and quartiles of {n_repeats} repeats",
)
plt.show()
