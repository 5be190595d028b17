"""
Populations out of kernels
==========================

A population that is not Gaussian gets several kernels: as clusters, kernels cut it into pieces. Merging
kernels that are near each other puts it together again.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import dendrogram

from skmix import SharedKernelMixture, SharedKernelMixtureCV
from skmix.plots import draw_kernels
from skmix.samples import merge_kernels

# %%
# Three populations: one bent, one skewed, one even. BIC chooses the number of kernels.
random = np.random.default_rng(1)
bend = random.normal(size=1500)
bent = np.stack([2.0 * bend, bend**2 + 0.35 * random.normal(size=1500)], axis=1)
skewed = np.stack(
    [random.gamma(1.5, size=900) + 4.0, 0.6 * random.normal(size=900) - 4.0], axis=1
)
angle, radius = (
    random.uniform(0.0, 2.0 * np.pi, size=600),
    1.6 * np.sqrt(random.uniform(size=600)),
)
even = np.stack([radius * np.cos(angle), 6.5 + radius * np.sin(angle)], axis=1)
X = np.concatenate([bent, skewed, even])
true = np.repeat([0, 1, 2], [1500, 900, 600])

search = SharedKernelMixtureCV(
    SharedKernelMixture(init="k-means", n_init=3), criterion="bic", random_state=0
)
model = search.fit(X).best_estimator_
print(f"BIC: {model.n_kernels_} kernels")

# %%
# Average linkage of the kernels' means makes a tree, which is cut where two sets are far apart beside the
# others and beside their own widths.
populations = merge_kernels(model)
found = populations.predict(model, X)
for population in np.unique(found):
    shares = np.bincount(true[found == population], minlength=3) / np.sum(
        found == population
    )
    print(
        f"population {population}: {np.sum(found == population)} rows, "
        f"of the true ones {shares.round(3)}"
    )

# %%
# Left: every row in the colour and with the marker of its kernel. Middle: the tree of merges, cut at the
# dashed line; the height of a merge says how clearly it divides. Right: rows and kernels in the colours of
# their populations.
figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(13, 4.2), layout="constrained", width_ratios=[1, 1.1, 1]
)
kernel_of = model.predict(X)
colours = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#332288"]
for k in range(model.n_kernels_):
    left.plot(*X[kernel_of == k].T, "o^sD"[k // 7], color=colours[k % 7], ms=3, mew=0)
left.set_title(f"{model.n_kernels_} kernels as clusters")


def link_colour(node: int) -> str:
    """Return the colour of a merge: that of its population, black between populations."""
    first, _, height, _ = populations.tree[node - model.n_kernels_]
    if height > populations.cut_height:
        return "black"
    if first >= model.n_kernels_:
        return link_colour(int(first))
    return colours[populations.of_kernels[int(first)]]


dendrogram(populations.tree, link_color_func=link_colour, ax=middle)
middle.axhline(populations.cut_height, color="black", ls="--")
middle.set(title="merges", xlabel="kernel", ylabel="height of the merge")
for population in np.unique(found):
    right.plot(
        *X[found == population].T, "o", color=colours[population], ms=3, alpha=0.35
    )
draw_kernels(model, axes=right, colours=populations.of_kernels, n_std=2.0)
right.set_title(f"{len(populations)} populations")
for axes in (left, right):
    axes.set(xticks=[], yticks=[])
plt.show()
