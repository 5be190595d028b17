"""
Starts compared
===============

EM finds a local maximum, so starting points matter. Four kinds of starts on the paper's digits, 15 starts
each, all with the same engine.
"""

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelClassifier
from skmix.paper import digit_features, make_seven_segment_digits

# %%
# Six of the paper's features.
columns = [1, 3, 4, 11, 12, 13]
images, y = make_seven_segment_digits(40, random_state=0)
test_images, y_test = make_seven_segment_digits(40, random_state=1)
X, X_test = (digit_features(each)[:, columns] for each in (images, test_images))

# %%
# ``"uniform"`` is the paper's start, ``"class"`` the default here: k-means++ inside each class, so that
# every class has a kernel of its own to begin with.
kinds = {
    "uniform": ("#d55e00", "s", "uniform\n(the paper's)"),
    "random_from_data": ("#e69f00", "v", "random\nfrom data"),
    "k-means": ("#009e73", "^", "k-means"),
    "class": ("#0072b2", "o", "class\n(the default)"),
}
ends = {}
for init in kinds:
    models = [
        SharedKernelClassifier(
            10, init=init, max_iter=500, tol=1e-3, random_state=seed
        ).fit(X, y)
        for seed in range(15)
    ]
    ends[init] = np.array(
        [
            [model.log_likelihood_ / len(X), model.score(X_test, y_test)]
            for model in models
        ]
    )
    print(
        f"{init}: accuracy {ends[init][:, 1].mean():.2f} on average, "
        f"{ends[init][:, 1].min():.2f} at worst"
    )

# %%
# A point is a run: how well it describes the training rows, and how well it classifies others. The
# likelihood alone would not lead to the best classifier; a good start does.
figure, (left, right) = plt.subplots(
    1, 2, figsize=(11, 4.4), layout="constrained", width_ratios=[4, 3], sharey=True
)
random = np.random.default_rng(0)
for place, (init, (colour, marker, _)) in enumerate(kinds.items()):
    left.scatter(*ends[init].T, s=42, color=colour, marker=marker, alpha=0.6, lw=0)
    aside = place + random.uniform(-0.25, 0.25, size=15)
    right.scatter(
        aside, ends[init][:, 1], s=42, color=colour, marker=marker, alpha=0.6, lw=0
    )
    right.hlines(
        ends[init][:, 1].mean(), place - 0.35, place + 0.35, color="black", lw=2
    )
left.set(
    xlabel="log-likelihood per training row",
    ylabel="accuracy on test digits",
    title="60 runs",
)
right.set_xticks(range(4), [label for *_, label in kinds.values()])
right.set_title("by start; lines are averages")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
plt.show()
