"""
Discriminative training
=======================

EM puts kernels where the rows are, not at the boundaries between classes. With too few or too simple
kernels, the densities with the highest likelihood are not the best classifier. ``tune`` changes the same
kernels so that they predict the labels well.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import LinearSegmentedColormap

from skmix import SharedKernelClassifier


# %%
# Two long clusters side by side, which four round kernels describe badly.
def make_bars(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, size=n_rows)
    X = np.column_stack(
        [random.uniform(-6, 6, n_rows), y + random.normal(0.0, 0.3, n_rows)]
    )
    X[:, 1] += 0.25 * X[:, 0]
    return X, y


X, y = make_bars(300, seed=0)
X_test, y_test = make_bars(4000, seed=1)
model = SharedKernelClassifier(4, covariance_type="spherical", random_state=0).fit(X, y)

# %%
# Left and middle: the same model before and after. Shades are the probability of the class above; the line
# is where it is one half.
blue, orange = "#0072b2", "#d55e00"
shades = LinearSegmentedColormap.from_list("classes", ["#f2bf99", "white", "#99c7e0"])
figure, (first, second, last) = plt.subplots(
    1, 3, figsize=(13, 4), layout="constrained"
)
across, up = np.meshgrid(np.linspace(-6.5, 6.5, 150), np.linspace(-2.5, 3.5, 150))
for title, axes in (("After EM", first), ("After tuning", second)):
    if axes is second:
        model.tune(X, y, random_state=0)
    chances = model.predict_proba(np.column_stack([across.ravel(), up.ravel()]))[
        :, 1
    ].reshape(across.shape)
    axes.contourf(across, up, chances, levels=20, cmap=shades)
    axes.contour(across, up, chances, levels=[0.5], colors="black", linewidths=2)
    axes.plot(*X[y == 0].T, "s", color=orange, ms=3, mew=0)
    axes.plot(*X[y == 1].T, "o", color=blue, ms=3, mew=0)
    for mean, variance in zip(model.means_, model.covariances_, strict=True):
        axes.add_patch(
            plt.Circle(
                mean, np.sqrt(variance), fill=False, color="0.25", lw=1.4, ls="--"
            )
        )
    axes.set(xlim=(-6.5, 6.5), ylim=(-2.5, 3.5), xlabel="feature 0", ylabel="feature 1")
    axes.set_title(f"{title}: {1 - model.score(X_test, y_test):.1%} error")

# λ, the weight of the likelihood, is lowered in stages; held-out rows decide where to stop.
rounds = model.tuned_["rounds"]
last.plot([row["log_loss"] for row in rounds], color=blue, lw=2.2)
for i, row in enumerate(rounds):
    if i == 0 or row["trade_off"] != rounds[i - 1]["trade_off"]:
        last.axvline(i, color="0.85", lw=1, zorder=0)
        label = {
            "rotation": 60,
            "size": 9,
            "color": "0.35",
            "xycoords": ("data", "axes fraction"),
        }
        last.annotate(f"λ = {row['trade_off']:g}", (i, 1.02), **label)
last.axhline(model.tuned_["before"]["log_loss"], color=orange, ls="--", lw=2)
last.text(
    len(rounds) - 1,
    model.tuned_["before"]["log_loss"],
    "EM",
    color=orange,
    va="top",
    ha="right",
)
last.set(xlabel="round", ylabel="log-loss of held-out rows", ylim=(0.0, None))
last.spines[["top", "right"]].set_visible(False)
plt.show()
