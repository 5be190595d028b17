"""Tuning a model that is too small to describe its classes. Makes the picture of the guide page.

Run it with ``python examples/tuning.py``; it needs ``skmix[plot]`` and takes a few seconds.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from skmix import SharedKernelClassifier
from skmix.plots import save_figure

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "tuning.png"
BLUE, ORANGE = "#0072b2", "#d55e00"


def bars(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two long clusters side by side: round kernels describe them badly."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, size=n_rows)
    X = np.column_stack([random.uniform(-6, 6, n_rows), y + random.normal(0.0, 0.3, n_rows)])
    X[:, 1] += 0.25 * X[:, 0]
    return X, y


X, y = bars(300, seed=0)
new, labels = bars(4000, seed=1)
model = SharedKernelClassifier(4, covariance_type="spherical", random_state=0).fit(X, y)
figure, axes = plt.subplots(1, 3, figsize=(12.0, 3.8), layout="constrained")
across, up = np.meshgrid(np.linspace(-6.5, 6.5, 200), np.linspace(-2.5, 3.5, 200))
for title, axis in zip(("after EM", "after tuning"), axes[:2], strict=True):
    if title == "after tuning":
        model.tune(X, y, random_state=0)
    chances = model.predict_proba(np.column_stack([across.ravel(), up.ravel()]))[:, 1].reshape(across.shape)
    axis.contourf(across, up, chances, levels=20, cmap="PuOr", alpha=0.35)
    axis.contour(across, up, chances, levels=[0.5], colors="black", linewidths=1.6)
    for code, colour in enumerate((ORANGE, BLUE)):
        axis.plot(*X[y == code].T, "o", color=colour, ms=2.6, mew=0.0)
    for mean, variance in zip(model.means_, model.covariances_, strict=True):
        axis.add_patch(plt.Circle(mean, np.sqrt(variance), fill=False, color="0.3", lw=1.2))
    axis.set(xlim=(-6.5, 6.5), ylim=(-2.5, 3.5))
    axis.set_title(f"{title}: {1 - model.score(new, labels):.1%} error", fontsize=11)

last = axes[2]
rounds = model.tuned_["rounds"]
last.plot([r["log_loss"] for r in rounds], color=BLUE, lw=1.8)
starts = [i for i, r in enumerate(rounds) if i == 0 or r["trade_off"] != rounds[i - 1]["trade_off"]]
for i in starts:
    last.axvline(i, color="0.8", lw=0.8, zorder=0)
    last.annotate(f"λ = {rounds[i]['trade_off']:g}", (i, 1.0), xycoords=("data", "axes fraction"), fontsize=8,
                  rotation=90, va="top", ha="left")  # fmt: skip
last.axhline(model.tuned_["before"]["log_loss"], color=ORANGE, ls="--", label="EM")
last.set(xlabel="round", ylabel="log-loss of held-out rows", ylim=(0.0, None))
last.legend(frameon=False, loc="center right")
last.set_title("on the way", fontsize=11)
save_figure(figure, PICTURE)
