"""Pictures of the page on shared kernels: what sharing does for a class with few rows, and when it does not.

Run it with ``python docs/pictures/shared_kernels.py``; it needs ``skmix[plot]`` and takes about ten seconds.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data

IMAGES = Path(__file__).parents[1] / "images"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
MEANS = np.array([[0.0, 0.0], [4.0, 0.5], [2.0, 3.5], [6.0, 4.0]])
COVARIANCES = np.array(
    [
        [[1.1, 0.6], [0.6, 0.7]],
        [[0.5, -0.3], [-0.3, 0.9]],
        [[0.9, -0.4], [-0.4, 0.5]],
        [[0.6, 0.3], [0.3, 0.8]],
    ]
)
# Two common classes and a rare one, all over the same four kernels.
SHARED = np.array([[0.4, 0.1, 0.3], [0.4, 0.1, 0.2], [0.1, 0.4, 0.4], [0.1, 0.4, 0.1]])
RARE = 2


def rows_of(
    n_common: int, n_rare: int, seed: int, *, elsewhere: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of the three classes; `elsewhere` moves those of the rare one away from the others."""
    X, y = make_shared_kernel_data(
        MEANS, COVARIANCES, SHARED, max(n_common, n_rare), random_state=seed
    )
    kept = np.concatenate(
        [np.flatnonzero(y == c)[: n_rare if c == RARE else n_common] for c in range(3)]
    )
    X, y = X[kept], y[kept]
    if elsewhere:
        X[y == RARE] += [3.0, -3.0]
    return X, y


def fitted(X: np.ndarray, y: np.ndarray, *, shared: bool) -> SharedKernelMixture:
    """Return kernels learnt from all classes, or from the rows of the rare class alone.

    Both have four kernels, the same prior on covariances and the same number of starts.
    """
    settings = {
        "n_init": 5,
        "covariance_prior": 2,
        "random_state": 0,
        "max_iter": 500,
    }
    if shared:
        return SharedKernelMixture(4, **settings).fit(X, y)
    rare = X[y == RARE]
    return SharedKernelMixture(min(4, len(rare)), **settings).fit(rare)


def score_of_rare(model: SharedKernelMixture, X: np.ndarray) -> float:
    """Return the mean log-density of rows of the rare class."""
    column = RARE if model.weights_.shape[1] > 1 else 0
    return float(model.class_log_likelihood(X)[:, column].mean())


def draw_densities() -> None:
    """Draw the rare class's density from twelve rows: by its own kernels, by shared ones, and the truth."""
    X, y = rows_of(300, 12, seed=3)
    across, up = np.meshgrid(np.linspace(-3.5, 9.0, 200), np.linspace(-3.5, 7.0, 200))
    grid = np.column_stack([across.ravel(), up.ravel()])
    true = np.log(
        SHARED[:, RARE]
        @ [gaussian(grid, *kernel) for kernel in zip(MEANS, COVARIANCES, strict=True)]
    )
    own, shared = fitted(X, y, shared=False), fitted(X, y, shared=True)
    panels = {
        "kernels of its own": own.class_log_likelihood(grid)[:, 0],
        "kernels shared by all classes": shared.class_log_likelihood(grid)[:, RARE],
        "the truth": true,
    }
    figure = Figure(figsize=(12.0, 3.9), layout="constrained")
    levels = np.linspace(-9.0, -2.0, 8)
    for place, (title, values) in enumerate(panels.items()):
        axes = figure.add_subplot(1, 3, place + 1)
        axes.contourf(
            across, up, values.reshape(across.shape), levels, cmap="Blues", extend="max"
        )
        if place < 2:
            if place == 1:
                axes.plot(*X[y != RARE].T, "o", color="0.6", ms=1.6, mew=0.0, alpha=0.6)
            axes.plot(*X[y == RARE].T, "o", color=ORANGE, ms=6.0, mec="white", mew=0.8)
        axes.set_title(title, fontsize=11)
        axes.set(xlim=(-3.5, 9.0), ylim=(-3.5, 7.0), xticks=[], yticks=[])
    figure.savefig(IMAGES / "shared-density.png", dpi=110, metadata={"Software": None})


def gaussian(X: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Return the density of each row."""
    away = X - mean
    distances = np.einsum("nd,de,ne->n", away, np.linalg.inv(covariance), away)
    return np.exp(-0.5 * distances) / np.sqrt(np.linalg.det(2.0 * np.pi * covariance))


def draw_curves(
    repeats: int = 12, counts: tuple[int, ...] = (4, 8, 16, 32, 64, 128, 256)
) -> None:
    """Draw how well new rows of the rare class are described, against its number of rows."""
    figure = Figure(figsize=(10.0, 3.9), layout="constrained")
    titles = (
        "the rare class uses the kernels of the others",
        "the rare class lies elsewhere",
    )
    for place, title in enumerate(titles):
        axes = figure.add_subplot(1, 2, place + 1)
        scores = np.empty((2, len(counts), repeats))
        for repeat in range(repeats):
            new, labels = rows_of(0, 2000, seed=1000 + repeat, elsewhere=bool(place))
            for i, count in enumerate(counts):
                X, y = rows_of(300, count, seed=repeat, elsewhere=bool(place))
                for which, shared in enumerate((True, False)):
                    scores[which, i, repeat] = score_of_rare(
                        fitted(X, y, shared=shared), new[labels == RARE]
                    )
        for values, colour, marker, name in zip(
            scores,
            (BLUE, ORANGE),
            "os",
            ("shared kernels", "kernels of its own"),
            strict=True,
        ):
            low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=1)
            axes.fill_between(counts, low, high, color=colour, alpha=0.2, lw=0.0)
            axes.plot(counts, middle, marker + "-", color=colour, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set(
            xlabel="rows of the rare class",
            ylabel="log-density of its new rows",
            ylim=(-7.0, -3.0),
        )
        axes.set_title(title, fontsize=11)
        axes.legend(frameon=False, loc="lower right")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(IMAGES / "shared-rows.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    matplotlib.use("agg")
    draw_densities()
    draw_curves()
