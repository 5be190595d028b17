"""Variational Bayes: too many kernels by EM and by variational fits, and what it does to held-out rows.

Run it with ``python examples/variational.py``; it needs ``skmix[plot]`` and takes about ten seconds.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier
from skmix.datasets import illustration, make_shared_kernel_data
from skmix.plots import draw_kernels, save_figure

WAYS = {
    "EM": ({"inference": "em", "shrinkage": 0}, "#D55E00"),
    "variational": ({"inference": "variational"}, "#0072B2"),
}
PER_CLASS = (1, 2, 3, 4, 6)


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    example = illustration()
    X, y = make_shared_kernel_data(example.means, example.covariances, example.weights, 60, random_state=0)
    figure, axes = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    settings = {"n_kernels": 12, "max_iter": 500, "random_state": 1}
    models = {
        "EM: all 12 kernels stay": SharedKernelClassifier(**settings),
        "variational: {} are left": SharedKernelClassifier(
            **settings, inference="variational", annihilate=True
        ),
    }
    for (title, model), panel in zip(models.items(), axes, strict=False):
        model.fit(X, y)
        panel.scatter(X[:, 0], X[:, 1], s=6, c="0.7", linewidths=0)
        draw_kernels(model, None, panel, style="accessible", n_std=2.0)
        panel.set(title=title.format(model.n_kernels_), xlim=(-4.5, 9.0), ylim=(-1.0, 5.2))

    wine, labels = load_wine(return_X_y=True)
    splits = list(StratifiedShuffleSplit(10, test_size=0.3, random_state=0).split(wine, labels))
    for name, (chosen, colour) in WAYS.items():
        losses = np.empty((len(splits), len(PER_CLASS)))
        for i, (training, held_out) in enumerate(splits):
            for j, n_kernels in enumerate(PER_CLASS):
                model = SharedKernelClassifier(3 * n_kernels, max_iter=500, random_state=i, **chosen)
                model.fit(wine[training], labels[training])
                losses[i, j] = log_loss(labels[held_out], model.predict_proba(wine[held_out]))
        axes[2].plot(PER_CLASS, losses.mean(axis=0), "o-", color=colour, label=name)
        print(name, losses.mean(axis=0).round(3))
    axes[2].set(
        xlabel="kernels a class at the start",
        ylabel="held-out log-loss",
        title="Wine: 13 features, about 41 rows a class",
        yscale="log",
    )
    axes[2].legend(frameon=False)
    axes[2].spines[["top", "right"]].set_visible(False)
    save_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "variational.png")


if __name__ == "__main__":
    main()
