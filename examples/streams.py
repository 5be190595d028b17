"""Streams: the log-likelihood of all rows while batches come in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.plots import save_figure


def main() -> None:
    random = np.random.default_rng(3)
    means = 2.0 * random.normal(size=(6, 4))
    covariances = np.tile(np.eye(4), (6, 1, 1))
    weights = random.dirichlet(np.full(6, 0.5), size=4).T
    X, y = make_shared_kernel_data(means, covariances, weights, 5000, random_state=0)
    order = random.permutation(len(X))
    X, y = X[order], y[order]
    whole = SharedKernelMixture(6, init="k-means++", n_init=5, random_state=0).fit(X, y).score(X, y)
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    for size, colour in ((100, "#d55e00"), (200, "#009e73"), (500, "#0072b2")):
        model = SharedKernelMixture(6, init="k-means++", n_init=5, random_state=0)
        scores = []
        for start in range(0, len(X), size):
            model.partial_fit(X[start : start + size], y[start : start + size], classes=np.arange(4))
            scores.append(model.score(X, y))
        seen = size * np.arange(1, len(scores) + 1)
        axes.plot(seen, scores, color=colour, label=f"batches of {size}")
    axes.axhline(whole, color="0.3", ls="--", lw=1, label="all rows at once")
    axes.axhspan(whole - 0.01 * abs(whole), whole, color="0.5", alpha=0.15, lw=0, label="within 1 % of it")
    axes.set_ylim(whole - 0.06 * abs(whole), whole + 0.01 * abs(whole))
    axes.set_xlabel("rows seen")
    axes.set_ylabel("log-likelihood per row, of all rows")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")
    save_figure(figure, Path(__file__).parents[1] / "docs" / "images" / "streams.png", dpi=150)


if __name__ == "__main__":
    main()
