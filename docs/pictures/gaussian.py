"""Picture of the page on scikit-learn's mixture: seconds of default fits.

Those of benchmarks/drop_in.py.
Run it with ``python docs/pictures/gaussian.py``; it needs ``skmix[plot]``.
"""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
IMAGES = Path(__file__).parents[1] / "images"


def draw() -> None:
    """Draw the seconds of both libraries against the rows of each problem."""
    measured = json.loads((ROOT / "benchmarks/results/drop_in.json").read_text("utf-8"))
    problems = sorted(measured["problems"], key=lambda each: each["n_rows"])
    figure = Figure(figsize=(5.2, 3.5), layout="constrained")
    axes = figure.subplots()
    rows = [each["n_rows"] for each in problems]
    for each in problems:
        seconds = [each[side]["wall"] for side in ("scikit-learn", "skmix")]
        axes.plot([each["n_rows"]] * 2, seconds, color="0.8", zorder=1)
    for name, label, colour in (
        ("scikit-learn", "scikit-learn's GaussianMixture", "0.4"),
        ("drop-in", "GaussianMixture of skmix", "#0072b2"),
        ("skmix", "SharedKernelMixture", "#d55e00"),
    ):
        seconds = [each[name]["wall"] for each in problems]
        axes.plot(rows, seconds, "o", ms=6, color=colour, label=label, zorder=2)
    axes.set(
        xscale="log", yscale="log", xlabel="rows", ylabel="seconds of a default fit"
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    figure.savefig(IMAGES / "gaussian.png", dpi=140, metadata={"Software": None})


if __name__ == "__main__":
    draw()
