"""Let the estimators choose: how many kernels, of what shape, and which features belong together.

Run it with ``python examples/choosing.py``; it needs ``skmix[plot]`` and takes about ten seconds.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle
from sklearn.datasets import load_wine

from skmix import SharedKernelClassifier
from skmix.datasets import make_shared_kernel_data
from skmix.plots import save_figure

# Four classes over six kernels, which they share in pairs.
angles = np.arange(6) * np.pi / 3
means = 4.0 * np.column_stack([np.cos(angles), np.sin(angles)])
covariances = np.array([np.diag([1.2, 0.3]) if k % 2 else np.diag([0.3, 1.2]) for k in range(6)])
weights = np.array([[6, 3, 1, 0, 0, 0], [0, 4, 4, 2, 0, 0], [0, 0, 1, 5, 4, 0], [3, 0, 0, 0, 2, 5]]).T / 10.0
X, y = make_shared_kernel_data(means, covariances, weights, 150, random_state=0)
kernels = SharedKernelClassifier("auto", covariance_type="auto", n_init=5, random_state=0).fit(X, y)
print(f"chosen: {kernels.n_kernels_} kernels, {kernels.covariance_type_} covariances")

wine = load_wine(as_frame=True)
groups = SharedKernelClassifier(feature_groups="auto", random_state=0).fit(wine.data, wine.target)
for columns in groups.feature_groups_:
    print("together:", ", ".join(wine.data.columns[columns]))

figure, (left, middle, right) = plt.subplots(
    1, 3, figsize=(14, 4.6), width_ratios=[1, 1, 1.15], layout="constrained"
)

# Okabe and Ito's colours can be told apart by everyone.
colours = {"full": "#0072B2", "tied": "#D55E00", "diag": "#009E73", "spherical": "#CC79A7"}
for name, colour in colours.items():
    rows = [row for row in kernels.selection_ if row["covariance_type"] == name]
    left.plot(
        [r["n_kernels"] for r in rows], [r["value"] for r in rows], "o-", ms=4, color=colour, label=name
    )
best = next(row for row in kernels.selection_ if row["chosen"])
left.plot(best["n_kernels"], best["value"], "o", ms=15, mfc="none", mec="black", mew=1.5)
left.annotate(
    f"chosen: {best['n_kernels']} kernels, {best['covariance_type']}",
    (best["n_kernels"], best["value"]),
    xytext=(14, -22),
    textcoords="offset points",
)
left.set(xlabel="kernels", ylabel="BIC", title="Four classes over six kernels")
left.margins(y=0.12)
left.xaxis.get_major_locator().set_params(integer=True)
left.legend(title="covariances", frameon=False)

joint, *steps = groups.selection_
losses = [row["value"] for row in steps]
middle.axhline(joint["value"], color="0.6", ls="--", lw=1)
middle.text(len(steps) - 1, joint["value"], "all columns together", ha="right", va="bottom", color="0.4")
middle.plot(losses, "o-", ms=4, color="#0072B2")
chosen = next(i for i, row in enumerate(steps) if row["chosen"])
middle.plot(chosen, losses[chosen], "o", ms=15, mfc="none", mec="black", mew=1.5)
middle.annotate("every column alone", (0, losses[0]), xytext=(10, -3), textcoords="offset points")
middle.annotate("chosen", (chosen, losses[chosen]), xytext=(-6, 16), textcoords="offset points", ha="center")
middle.set(xlabel="step of the search", ylabel="held-out log-loss", title="Wine: merge, leave out, take back")
middle.xaxis.get_major_locator().set_params(integer=True)

for axes in (left, middle):
    axes.spines[["top", "right"]].set_visible(False)

left_out = [c for c in range(13) if not any(c in columns for columns in groups.feature_groups_)]
order = [c for columns in groups.feature_groups_ for c in columns] + left_out
within = wine.data - wine.data.groupby(wine.target).transform("mean")
dependence = np.abs(np.corrcoef(within.to_numpy()[:, order].T))
picture = right.imshow(dependence, cmap="Greys", vmin=0, vmax=1)
first = 0
for columns in groups.feature_groups_:
    corner, size = (first - 0.5, first - 0.5), len(columns)
    right.add_patch(Rectangle(corner, size, size, fill=False, ec="#D55E00", lw=2.5))
    first += size
names = [
    wine.data.columns[c].replace("_", " ").replace("od280/od315 of diluted wines", "od280/od315")
    for c in order
]
labels = [f"({name})" if c in left_out else name for c, name in zip(order, names, strict=True)]
right.set_yticks(range(13), labels, fontsize=8)
right.set_xticks([])
right.set_title("Groups found; (left out)")
figure.colorbar(picture, ax=right, shrink=0.8, label="|correlation| within the classes")

save_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "choosing.png")
