"""Pictures of the page on populations: hills and valleys of the density of real cells.

Run it with ``python docs/pictures/hills.py``; it needs ``skmix[cytometry,plot,tables]`` and takes about ten
seconds. The cells are bacteria (docs/data/README.txt) and blood (tests/data/README.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from skmix import Study, compose, open_rows
from skmix.plots import draw_kernels
from skmix.samples.merging import BLUR, HEIGHT, PLACES, log_density

ROOT = Path(__file__).parents[2]
IMAGES = Path(__file__).parents[1] / "images"
BACTERIA = ROOT / "docs" / "data" / "plate" / "mixed" / "mixed-H07.fcs"
BLOOD = ROOT / "tests" / "data" / "0877408774.B08.fcs"
BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "0.72"


class Hills:
    """A sample in two markers, its study, and the blurred kernels that decide about populations."""

    def __init__(self, file: Path, markers: list[str], **reading: Any) -> None:
        self.study: Study = compose([file], markers=markers, **reading)
        self.markers = markers
        rows = open_rows([file], columns=markers, **reading)
        self.X = np.concatenate([block.X for block in rows.blocks()])
        model = self.study.model
        self.weights, self.means = model.weights_[:, 0], model.means_
        self.covariances = model.covariances_
        widths = np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))
        medians = np.quantile(
            widths, 0.5, axis=0, weights=self.weights, method="inverted_cdf"
        )
        self.blurred = self.covariances + np.diag((BLUR * medians) ** 2)
        self.peaks = self.density(self.means)

    def density(self, points: np.ndarray, *, blurred: bool = True) -> np.ndarray:
        """Return the density (n,) at points (n, 2), up to a constant."""
        covariances = self.blurred if blurred else self.covariances
        return np.exp(log_density(points, self.weights, self.means, covariances))

    def ridgeline(self, one: int, other: int, places: np.ndarray) -> np.ndarray:
        """Return points (n, 2) of the ridgeline between two kernels, at places (n,) from 0 to 1."""
        first, second = np.linalg.inv(self.blurred[[one, other]])
        return np.array(
            [
                np.linalg.solve(
                    (1.0 - a) * first + a * second,
                    (1.0 - a) * first @ self.means[one]
                    + a * second @ self.means[other],
                )
                for a in places
            ]
        )

    def members(self, population: int) -> np.ndarray:
        """Return the kernels of a population, the highest first."""
        own = np.flatnonzero(self.study.populations.of_kernels == population)
        return own[np.argsort(-self.peaks[own])]

    def draw(self, axes: Any, colours: np.ndarray | None) -> None:
        """Draw the cells, and kernels in the given colours."""
        axes.plot(*self.X.T, ".", color=GREY, ms=1.5, zorder=0)
        if colours is not None:
            draw_kernels(self.study.model, axes=axes, colours=colours, n_std=1.5)
        axes.set(xlabel=self.markers[0], ylabel=self.markers[1])

    def draw_walk(self, axes: Any, one: int, other: int, title: str) -> None:
        """Draw the density along a ridgeline, its lowest place, and the height that the valley may have."""
        places = np.linspace(0.0, 1.0, 201)
        heights = self.density(self.ridgeline(one, other, places))
        lower = min(self.peaks[one], self.peaks[other])
        looked = self.density(self.ridgeline(one, other, PLACES)) / lower
        lowest = int(np.argmin(looked))
        axes.plot(places, heights / lower, color=BLUE, lw=2.0)
        axes.plot(PLACES, looked, ".", color=BLUE, ms=7, label="where it is looked at")
        axes.axhline(1.0 - HEIGHT, color="0.4", ls="--", lw=1.0)
        axes.plot(
            PLACES[lowest], looked[lowest], "o", color=ORANGE, ms=8, label="lowest"
        )
        axes.text(0.0, 1.0 - HEIGHT, "half of the lower top", va="bottom", size=8)
        axes.set(
            xlim=(-0.02, 1.02),
            ylim=(0.0, 1.15 * (heights / lower).max()),
            xlabel="place on the ridgeline",
            ylabel="density / lower top",
            title=title,
        )
        axes.legend(fontsize=8, frameon=False, loc="upper right")


def save(figure: Figure, name: str) -> None:
    """Save a figure without the version of matplotlib, so that the same figure gives the same bytes."""
    figure.savefig(IMAGES / name, dpi=110, metadata={"Software": None})


def draw_hills() -> None:
    """Draw cells, kernels and populations, and walks between kernels that are one population or two."""
    hills = Hills(BACTERIA, ["B1-A", "Y2-A"])
    found = hills.study.populations
    n_kernels, n_populations = len(hills.means), len(found)
    figure = Figure(figsize=(11.0, 3.7), layout="constrained")
    panels = figure.subplots(1, 3, sharex=True, sharey=True)
    titles = ("cells", f"{n_kernels} kernels", f"{n_populations} populations")
    kernels = (None, np.arange(n_kernels), found.of_kernels)
    for axes, title, colours in zip(panels, titles, kernels, strict=True):
        hills.draw(axes, colours)
        axes.set_title(title)
    save(figure, "hills.png")

    # The largest population, and the one that the shallowest valley divides from it.
    own = hills.members(0)
    walks = [hills.ridgeline(own[0], hills.members(p)[0], PLACES) for p in (1, 2)]
    nearest = 1 + int(np.argmax([hills.density(walk).min() for walk in walks]))
    figure = Figure(figsize=(11.0, 3.7), layout="constrained")
    panels = figure.subplots(1, 2)
    hills.draw_walk(panels[0], own[0], own[1], "two kernels of one hill: merged")
    hills.draw_walk(
        panels[1], own[0], hills.members(nearest)[0], "two hills: they stay apart"
    )
    save(figure, "saddles.png")


def draw_spike() -> None:
    """Draw a spike at the lowest value of a detector, and the walk from it to its population's top."""
    hills = Hills(BLOOD, ["FL1-H", "FL2-H"], transform="arcsinh:5")
    found = hills.study.populations.of_kernels
    # The narrowest kernel in FL2 lies at the lowest value.
    spike = int(np.argmin(hills.covariances[:, 1, 1]))
    top = hills.members(found[spike])[0]
    figure = Figure(figsize=(11.0, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    hills.draw(left, found)
    left.plot(
        *hills.ridgeline(spike, top, np.linspace(0.0, 1.0, 101)).T, color="k", lw=1.5
    )
    left.set_title("blood cells, and kernels in the colours of populations")
    places = np.linspace(0.0, 1.0, 401)
    line = hills.ridgeline(spike, top, places)
    for blurred, style in (
        (False, {"color": ORANGE, "lw": 1.2, "label": "as fitted"}),
        (True, {"color": BLUE, "lw": 2.0, "label": "blurred"}),
    ):
        heights = hills.density(line, blurred=blurred)
        right.plot(places, heights / hills.density(line[-1:], blurred=blurred), **style)
    looked = hills.density(hills.ridgeline(spike, top, PLACES)) / hills.peaks[top]
    right.plot(PLACES, looked, ".", color=BLUE, ms=7, label="where it is looked at")
    right.set(
        xlabel="place on the ridgeline, from the spike to the top",
        ylabel="density / that of the top",
        title="the way from the spike (black line on the left)",
        ylim=(0.0, None),
    )
    right.legend(fontsize=8, frameon=False)
    save(figure, "spike.png")


if __name__ == "__main__":
    matplotlib.use("agg")
    draw_hills()
    draw_spike()
