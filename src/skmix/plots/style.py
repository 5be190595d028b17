"""The style of all plots: colours, figures and axes, ellipses and dots.

Plots of one's own that use it look like those of `skmix.plots`.
"""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .._extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    # matplotlib is imported when something is drawn.
    Axes = Figure = Any

__all__ = [
    "CLASS_COLOURS",
    "DASHES",
    "LEGEND",
    "MEDIUM",
    "ROWS_COLOUR",
    "SMALL",
    "colour_of",
    "dots",
    "ellipses",
    "finish",
    "new_figure",
    "panels_for",
    "picture_of",
    "short_name",
    "title_of",
]

FloatArray = NDArray[np.float64]
# Colour, width and style of a line.
Line = dict[str, Any]

# Light grey, for rows beneath the kernels.
ROWS_COLOUR = "0.72"
# Font size of labels, ticks and notes.
SMALL = 8
# Font size of titles of panels.
MEDIUM = 10
# Six colours of Okabe and Ito and two of Tol: safe for colour-blind readers, and legible on white.
CLASS_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#332288", "#882255")
# Line styles that tell classes of the same colour apart.
DASHES = ("-", "--", ":", "-.")
LEGEND: dict[str, Any] = {"fontsize": SMALL, "title_fontsize": SMALL, "frameon": False}
# Most dots that a vector file draws one by one; more are rasterised.
_MAX_VECTORS = 1000
# Most shapes of a picture in a page that is SVG, which shows them sharp at any size.
_MAX_SHAPES = 3000
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
# Most characters of a title from data.
_LONGEST_TITLE = 28


def colour_of(number: int) -> str:
    """Return the colour of a class or population; colours repeat after the last one."""
    return CLASS_COLOURS[int(number) % len(CLASS_COLOURS)]


def round_of(number: int) -> int:
    """Return how many times the palette has been cycled, which chooses the dashes."""
    return int(number) // len(CLASS_COLOURS) % len(DASHES)


def short_name(name: Any, noun: str = "kernel") -> str:
    """Return the short name of a kernel, such as k0, or of a population, such as 0."""
    # A bare number would be read as a weight, a class or a population.
    return f"k{name}" if noun == "kernel" else str(name)


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of this size in inches, with automatic layout and without a window."""
    need("matplotlib", "Plots need")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def figure_or_new(figure: Figure | None, size: tuple[float, float]) -> Figure:
    """Return the given figure, or a new pyplot figure of that size."""
    if figure is not None:
        return figure
    need("matplotlib", "Plots need")
    import matplotlib.pyplot as plt

    return plt.figure(figsize=size, layout="constrained")


def panels_for(
    n_panels: int,
    axes: Any,
    figure: Figure | None = None,
    *,
    n_columns: int = 1,
    size: tuple[float, float] = (4.0, 3.0),
    **share: Any,
) -> NDArray[Any]:
    """Return n_panels axes: the given ones, or new ones of that size (inches) in the figure or a new one."""
    if axes is not None:
        if figure is not None:
            raise ValueError("axes cannot be combined with figure.")
        given = np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
        if len(given) != n_panels:
            raise ValueError(f"{n_panels} axes are needed, got {len(given)}.")
        return given
    columns = min(n_columns, n_panels)
    lines = -(-n_panels // columns)
    figure = figure_or_new(figure, (size[0] * columns, size[1] * lines))
    grid = figure.subplots(lines, columns, squeeze=False, **share).ravel()
    for unused in grid[n_panels:]:
        unused.remove()
    return grid[:n_panels]


def finish(*panels: Axes, label_size: float = SMALL, outer: bool = False) -> None:
    """Set font sizes and grey frames, so that data stand out; `outer` hides labels between panels."""
    for panel in panels:
        panel.title.set_fontsize(MEDIUM)
        panel.xaxis.label.set_fontsize(label_size)
        panel.yaxis.label.set_fontsize(label_size)
        panel.tick_params(labelsize=SMALL, color="0.6")
        panel.spines[:].set_color("0.6")
        if outer:
            panel.label_outer()


def title_of(panel: Axes, title: str) -> None:
    """Give a panel a title from data: dollar signs are no formulas, and long titles are cut."""
    panel.set_title(
        title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…", parse_math=False
    )


def picture_of(figure: Figure, n_shapes: int) -> str:
    """Return a figure as the address of an image inside a page: SVG, or PNG if there are very many shapes."""
    from matplotlib import rc_context

    kind, file = "svg" if n_shapes <= _MAX_SHAPES else "png", io.BytesIO()
    # Without a date, and with fixed names of its parts, the same figure has the same characters.
    fixed: dict[str, Any] = {"metadata": {"Date": None}} if kind == "svg" else {"dpi": 150}
    with rc_context({"svg.hashsalt": "skmix"}), warnings.catch_warnings(action="ignore"):
        figure.savefig(file, format=kind, **fixed)
    content, media = file.getvalue(), "image/png"
    if kind == "svg":
        # XML has no control characters, which names from data may have.
        content, media = _CONTROLS.sub(b"", content), "image/svg+xml"
    return f"data:{media};base64,{base64.b64encode(content).decode()}"


def ellipses(
    axes: Axes, means: FloatArray, covariances: FloatArray, lines: Sequence[Line], n_std: float
) -> None:
    """Draw kernels of means (K, 2) and covariances (K, 2, 2) as ellipses, each with its own line style."""
    from matplotlib.patches import Ellipse

    variances, directions = np.linalg.eigh(covariances)
    lengths = 2.0 * n_std * np.sqrt(np.maximum(variances, 0.0))
    angles = np.degrees(np.arctan2(directions[:, 1, 0], directions[:, 0, 0]))
    for mean, length, angle, line in zip(means, lengths, angles, lines, strict=True):
        axes.add_artist(Ellipse(tuple(mean), length[0], length[1], angle=float(angle), fill=False, **line))
    # Artists do not update the limits, and computing them from the outlines is slow.
    reach = n_std * np.sqrt(np.maximum(np.diagonal(covariances, axis1=1, axis2=2), 0.0))
    axes.update_datalim(np.concatenate([means - reach, means + reach]))
    axes.autoscale_view()


def dots(axes: Axes, rows: FloatArray, size: float = 2.4, marker: str = "o", **style: Any) -> None:
    """Draw rows (n, 2) beneath everything else, rasterised when there are many."""
    settings: dict[str, Any] = {"color": ROWS_COLOUR, "zorder": 0} | style
    axes.plot(*rows.T, marker, ms=size, mew=0.0, rasterized=len(rows) > _MAX_VECTORS, **settings)
