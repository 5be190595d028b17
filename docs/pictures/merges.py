"""Picture of the page on populations: kernels of real cells, the tree of their merges, and populations.

Run it with ``python docs/pictures/merges.py``; it needs ``skmix[cytometry,plot,tables]`` and takes about ten
seconds. The cells are bacteria (docs/data/README.txt) and blood (tests/data/README.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import dendrogram

from skmix import compose, open_rows
from skmix.plots import draw_kernels
from skmix.plots.style import CLASS_COLOURS
from skmix.samples.merging import HEIGHT

ROOT = Path(__file__).parents[2]
IMAGES = Path(__file__).parents[1] / "images"
BACTERIA = ROOT / "docs" / "data" / "plate" / "mixed" / "mixed-H07.fcs"
BLOOD = ROOT / "tests" / "data" / "0877408774.B08.fcs"


def draw_merges() -> None:
    """Draw bacteria and blood cells in two markers each, one row of panels for each."""
    figure = Figure(figsize=(12.0, 7.0), layout="constrained")
    panels = figure.subplots(2, 3, width_ratios=[1, 1.2, 1])
    _draw_row(panels[0], BACTERIA, ["B1-A", "Y2-A"])
    _draw_row(panels[1], BLOOD, ["FL1-H", "FL2-H"], transform="arcsinh:5")
    figure.savefig(IMAGES / "merges.png", dpi=110)


def _draw_row(panels: Any, file: Path, markers: list[str], **reading: Any) -> None:
    """Draw cells with their kernels, the tree of merges, and the cells of each population."""
    study = compose([file], markers=markers, **reading)
    X = np.concatenate(
        [block.X for block in open_rows([file], columns=markers, **reading).blocks()]
    )
    model, populations = study.model, study.populations
    labels = populations.predict(model, X)
    panels[0].plot(*X.T, ".", color="0.75", ms=1, rasterized=True)
    draw_kernels(model, axes=panels[0], colours=populations.of_kernels)
    panels[0].set(
        xlabel=markers[0], ylabel=markers[1], title=f"{len(model.means_)} kernels"
    )
    dendrogram(
        populations.tree, ax=panels[1], no_labels=True, link_color_func=lambda _: "0.35"
    )
    panels[1].axhline(HEIGHT, color="0.35", ls="--", lw=1.0)
    panels[1].set(ylabel="height", title=f"merges above {HEIGHT} divide populations")
    for number in range(len(populations)):
        colour = CLASS_COLOURS[number % len(CLASS_COLOURS)]
        panels[2].plot(
            *X[labels == number].T, ".", color=colour, ms=1.5, rasterized=True
        )
    panels[2].set(
        xlabel=markers[0], ylabel=markers[1], title=f"{len(populations)} populations"
    )


if __name__ == "__main__":
    matplotlib.use("agg")
    draw_merges()
