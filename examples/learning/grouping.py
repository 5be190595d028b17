"""
Searching for feature sets
============================

A product of small models can beat one model of all features: it has fewer parameters, and a feature that
fits badly spoils only its own group. ``SharedKernelClassifierCV`` looks for the groups.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine

from skmix import SharedKernelClassifierCV

# %%
# Thirteen measurements of 178 wines from three growers. The search begins with every feature by itself and
# merges, leaves out or takes back whatever lowers the log-loss of held-out rows most.
wine = load_wine()
search = SharedKernelClassifierCV(
    feature_sets="auto", n_kernels=3, cv=3, random_state=0
)
search.fit(wine.data, wine.target)
groups = search.classifier_.feature_sets_
names = [
    name.replace("_", " ").removesuffix(" of diluted wines")
    for name in wine.feature_names
]
for columns in groups:
    print("together:", ", ".join(names[c] for c in columns))

# %%
# Left: the loss along the search. Of the steps that are as good as the best, within the error of the
# difference, the first is taken.
orange, blue = "#d55e00", "#0072b2"
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.9), layout="constrained")
in_search = search.cv_results_["stage"] == "feature_sets"
joint, *losses = -search.cv_results_["mean_test_score"][in_search]
chosen = search.cv_results_["param_feature_sets"][in_search].tolist().index(groups) - 1
left.axhline(joint, color="0.5", ls="--", lw=1.2)
left.annotate(
    "all features in one model",
    (len(losses) - 1, joint),
    (0, 4),
    textcoords="offset points",
    ha="right",
    color="0.35",
)
left.plot(losses, "o-", color=blue, lw=2)
left.plot(chosen, losses[chosen], "o", ms=18, mfc="none", mec="black", mew=1.8)
left.annotate(
    "every feature alone", (0, losses[0]), (10, 2), textcoords="offset points"
)
left.annotate(
    "chosen",
    (chosen, losses[chosen]),
    (0, 16),
    textcoords="offset points",
    ha="center",
    weight="bold",
)
left.set(xlabel="step of the search", ylabel="log-loss of held-out rows")
left.spines[["top", "right"]].set_visible(False)

# Right: the groups (framed), and how features depend on each other within the classes.
left_out = [c for c in range(13) if not any(c in columns for columns in groups)]
order = [c for columns in groups for c in columns] + left_out
centres = np.array([wine.data[wine.target == j].mean(axis=0) for j in range(3)])
dependence = np.abs(np.corrcoef((wine.data - centres[wine.target])[:, order].T))
picture = right.imshow(dependence, cmap="Greys", vmin=0, vmax=1)
first = 0
for size in map(len, groups):
    right.add_patch(
        plt.Rectangle(
            (first - 0.5, first - 0.5), size, size, fill=False, ec=orange, lw=3
        )
    )
    first += size
right.set_yticks(
    range(13), [f"({names[c]})" if c in left_out else names[c] for c in order]
)
right.set_xticks([])
right.set_title("groups found (in brackets: left out)")
figure.colorbar(picture, ax=right, shrink=0.8, label="|correlation| within the classes")
plt.show()
