"""Pictures of the page on where sharing pays, from the outcomes in benchmarks/results.

Run it with ``python docs/pictures/sharing.py``; it needs ``skmix[plot]`` and takes a few seconds.
"""

from __future__ import annotations

from pathlib import Path

from skmix.experiments.field import Outcome, in_study_order
from skmix.paper.harness import read_lines
from skmix.plots import new_figure, plot_gain, plot_sharing, save_figure

IMAGES = Path(__file__).parents[1] / "images"
OUTCOMES = Path(__file__).parents[2] / "benchmarks" / "results" / "sharing.jsonl"


def draw(outcomes: Path = OUTCOMES) -> None:
    """Draw the gain from sharing, and the learning curves by error and by log-loss."""
    points = in_study_order(map(Outcome.from_dict, read_lines(outcomes)))
    draw_gain(points)
    lines = -(-len({point.data for point in points}) // 3)
    for measure, name in (("error", "sharing-error"), ("log_loss", "sharing-log-loss")):
        figure = new_figure(9.6, 2.6 * lines + 0.5)
        plot_sharing(points, measure=measure, figure=figure)
        save_figure(figure, IMAGES / f"{name}.png")


def draw_gain(points: list[Outcome]) -> None:
    """Draw the gain from sharing by error and by log-loss, side by side with one legend."""
    figure = new_figure(9.6, 4.0)
    left, right = figure.subplots(1, 2)
    plot_gain(points, axes=left, legend=False)
    plot_gain(points, measure="log_loss", axes=right, legend=False)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )
    save_figure(figure, IMAGES / "sharing.png")


if __name__ == "__main__":
    draw()
