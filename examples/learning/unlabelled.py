"""
Semi-supervised learning
========================

Labels are often the expensive part of the data. Rows without a label still show where kernels belong; a
handful of labels then names them.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelClassifier
from skmix.datasets import make_seven_segment_digits
from skmix.features import digit_features

# %%
# A thousand images of digits. Some have a label, the others -1 in its place.
# (Two rows a class are soon fitted as well as rounding allows.)
warnings.simplefilter("ignore", ConvergenceWarning)
columns = [1, 3, 4, 11, 12, 13]
images, digits = make_seven_segment_digits(100, random_state=0)
test_images, test_digits = make_seven_segment_digits(60, random_state=1)
X, X_test = (digit_features(each)[:, columns] for each in (images, test_images))
counts, n_repeats = (2, 3, 5, 10, 20, 50, 100), 3

# %%
# Each number of labels three times, with the labelled rows alone and with all rows.
alone, helped = np.empty((2, len(counts), n_repeats))
for i, count in enumerate(counts):
    for repeat in range(n_repeats):
        random = np.random.default_rng(repeat)
        shown = [
            random.choice(np.flatnonzero(digits == d), count, replace=False)
            for d in range(10)
        ]
        shown = np.concatenate(shown)
        y = np.full(len(digits), -1)
        y[shown] = digits[shown]
        model = SharedKernelClassifier(tol=1e-3, random_state=repeat)
        alone[i, repeat] = model.fit(X[shown], digits[shown]).score(X_test, test_digits)
        helped[i, repeat] = model.fit(X, y).score(X_test, test_digits)

# %%
# Rows without a label help most where labels are fewest, on the average of three draws; from twenty labels a
# digit on they make no difference.
figure, axes = plt.subplots(figsize=(7.5, 4.4), layout="constrained")
for name, values, colour, marker in (
    ("with the rows that have no label", helped, "#0072b2", "o"),
    ("labelled rows alone", alone, "#d55e00", "s"),
):
    axes.fill_between(
        counts, values.min(axis=1), values.max(axis=1), color=colour, alpha=0.15, lw=0
    )
    axes.plot(
        counts,
        values.mean(axis=1),
        marker=marker,
        color=colour,
        lw=2.2,
        ms=7,
        label=name,
    )
    print(name, values.mean(axis=1).round(3))
axes.set_xscale("log")
axes.set_xticks(counts, [str(count) for count in counts])
axes.minorticks_off()
axes.set(xlabel="labels of each digit, of 100 rows", ylabel="accuracy on test digits")
axes.spines[["top", "right"]].set_visible(False)
axes.legend(frameon=False, loc="lower right", title="mean, lowest and highest of three")
plt.show()
