"""The picture of the first page of the guide: how each species of iris uses the kernels.

Run it with ``python docs/pictures/start.py``; it needs ``skmix[plot]``.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier
from skmix.plots import plot_projections

IMAGES = Path(__file__).parents[1] / "images"


def draw() -> None:
    """Draw the kernels in the plane of the petals, as each species weighs them."""
    iris = load_iris(as_frame=True)
    X, y = iris.data, iris.target_names[iris.target]
    model = SharedKernelClassifier(4, random_state=0).fit(X, y)
    figure = Figure(figsize=(11.0, 3.7), layout="constrained")
    for place, species in enumerate(model.classes_):
        axes = figure.add_subplot(1, 3, place + 1)
        plot_projections(
            model,
            species,
            X,
            y,
            axes,
            features=["petal length (cm)", "petal width (cm)"],
            n_std=2.0,
        )
        axes.set_title(species, fontsize=11)
    figure.savefig(IMAGES / "start.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    matplotlib.use("agg")
    draw()
