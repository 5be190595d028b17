"""The picture of the guide's page on samples: the same kernels in three samples, weighted differently.

Run it with ``python docs/pictures/samples.py``; it needs ``skmix[plot]``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.plots import new_figure, plot_projections, save_figure

IMAGES = Path(__file__).parents[1] / "images"


def draw() -> None:
    """Draw the kernels in the plane of two markers, as each sample weighs them."""
    means = np.array([[0.0, 2.0], [3.0, 1.0], [6.0, 3.0]])
    covariances = np.tile(0.4 * np.eye(2), (3, 1, 1))
    weights = np.array([[0.6, 0.5, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.6]])
    X, number = make_shared_kernel_data(means, covariances, weights, 600, random_state=0)
    y = np.array(["sample1", "sample2", "sample3"])[number]
    model = SharedKernelMixture(3, init="k-means", n_init=5, random_state=0).fit(X, y)
    figure = new_figure(11.0, 3.7)
    for place, name in enumerate(model.classes_):
        axes = figure.add_subplot(1, 3, place + 1)
        plot_projections(model, name, X, y, axes, style="accessible", n_std=2.0)
        axes.set(title=name, xlabel="CD3", ylabel="CD4")
    save_figure(figure, IMAGES / "samples.png", dpi=110)


if __name__ == "__main__":
    matplotlib.use("agg")
    draw()
