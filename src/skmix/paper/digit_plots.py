"""Plots of seven-segment digits: layout, points, images and features."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from skmix.plots.style import (
    CLASS_COLOURS,
    MEDIUM,
    ROWS_COLOUR,
    SMALL,
    Axes,
    Figure,
    dots,
    ellipses,
    finish,
    panels_for,
)

from .digits import sample_points, segment_layout

# Dark blue, for a single series.
INK = "#1a3a5c"
# Pixels between the images of a sheet.
_GAP = 2


def plot_segments(*, figure: Figure) -> Axes:
    """Plot the layout of the seven segments with their numbers into an empty figure."""
    from matplotlib.patches import Rectangle

    layout = segment_layout()
    half_length, half_width = layout.half_length, layout.half_width
    (panel,) = panels_for(1, None, figure)
    for number, (centre, lies) in enumerate(zip(layout.centres, layout.horizontal, strict=True), start=1):
        half = np.array((half_length, half_width) if lies else (half_width, half_length))
        panel.add_patch(Rectangle(tuple(centre - half), *(2 * half), fc="#dbe6f1", ec=INK, lw=1.2))
        panel.annotate(str(number), tuple(centre), ha="center", va="center", color=INK, fontsize=12)
    step = half_length + half_width
    ticks = [-2 * step, -step, 0.0, step, 2 * step]
    panel.set(xlim=(-1.6 * step, 2.4 * step), ylim=(-2.6 * step, 2.9 * step), aspect="equal")
    panel.set(xticks=ticks[1:-1], yticks=ticks, xlabel="x", ylabel="y")
    # Dimension lines, with lengths above them or to their right.
    top, right = 2 * step + 1.8 * half_width, step + 2.2 * half_width
    bar = {"arrowstyle": "|-|,widthA=0.25,widthB=0.25", "color": "0.4", "shrinkA": 0, "shrinkB": 0}
    text: dict[str, Any] = {"textcoords": "offset points", "fontsize": SMALL, "color": "0.3"}
    panel.annotate("", (-half_length, top), (half_length, top), arrowprops=bar)
    panel.annotate(f"2D = {2 * half_length:g}", (0.0, top), (0, 4), ha="center", va="bottom", **text)
    panel.annotate("", (right, -half_width), (right, half_width), arrowprops=bar)
    panel.annotate(f"2d = {2 * half_width:g}", (right, 0.0), (6, 0), ha="left", va="center", **text)
    finish(panel)
    return panel


def plot_digit_points(
    half_length: float, half_width: float, *, random_state: int, figure: Figure
) -> NDArray[Any]:
    """Plot points of the digits 0 to 9 with ellipses of three standard deviations; return axes (10,)."""
    layout = segment_layout(half_length, half_width)
    points, index = sample_points(np.arange(10), layout, random_state)
    panels = panels_for(10, None, figure, n_columns=5, sharex=True, sharey=True)
    line, limits = {"color": CLASS_COLOURS[1], "lw": 1.0}, (-layout.bound, layout.bound)
    for digit, panel in enumerate(panels):
        dots(panel, points[index == digit], size=1.3, color=INK, alpha=0.6)
        _, centres, covariances = layout.lit(np.array([digit]))
        ellipses(panel, centres, covariances, [line] * len(centres), 3.0)
        panel.set(title=str(digit), aspect="equal", xlim=limits, ylim=limits)
        panel.locator_params(nbins=3)
    finish(*panels)
    return panels


def plot_digits(images: ArrayLike, labels: ArrayLike, n_columns: int, *, figure: Figure) -> Axes:
    """Plot a sheet of images (n, height, width), row by row; dark is high.

    Labels (n,) are shown on the left of each row that begins with a new one.
    """
    tiles, names = np.asarray(images, dtype=np.float64), np.asarray(labels)
    n, height, width = tiles.shape
    n_rows = -(-n // n_columns)
    # Scale each image to its brightest pixel, and add a gap on the right and below.
    brightest = np.maximum(tiles.max(axis=(1, 2), keepdims=True), np.finfo(float).tiny)
    padded = np.full((n_rows * n_columns, height + _GAP, width + _GAP), np.nan)
    padded[:n, :height, :width] = tiles / brightest
    sheet = padded.reshape(n_rows, n_columns, height + _GAP, width + _GAP).swapaxes(1, 2)
    sheet = sheet.reshape(n_rows * (height + _GAP), -1)[:-_GAP, :-_GAP]
    (panel,) = panels_for(1, None, figure)
    panel.imshow(sheet, cmap="gray_r", vmin=0.0, vmax=1.0)
    firsts = range(0, n, n_columns)
    new = [first for first in firsts if first == 0 or names[first] != names[first - n_columns]]
    middles = [first // n_columns * (height + _GAP) + height / 2 for first in new]
    # A light grey background separates the images from the gaps.
    panel.set(xticks=[], facecolor="0.85")
    panel.set_yticks(middles, [str(names[first]) for first in new])
    panel.tick_params(left=False, labelsize=MEDIUM)
    panel.spines[:].set_visible(False)
    return panel


def plot_feature_overlay(
    features: ArrayLike, labels: ArrayLike, *, n_samples: int = 10, figure: Figure
) -> NDArray[Any]:
    """Overlay the principal-axis features of a few images of each class; return axes (L,).

    The first ten of the features (n, M) are entries of the axis, as in `skmix.paper.digit_features`.
    """
    values, names = np.asarray(features, dtype=np.float64), np.asarray(labels)
    classes = np.unique(names)
    panels = panels_for(len(classes), None, figure, n_columns=5, sharex=True, sharey=True)
    entries = np.arange(1, 11)
    for label, panel in zip(classes.tolist(), panels, strict=True):
        panel.axhline(0.0, color=ROWS_COLOUR, lw=0.6, zorder=0)
        panel.plot(entries, values[names == label][:n_samples, :10].T, color=INK, lw=0.8, alpha=0.55)
        panel.set(title=str(label), xticks=entries[::3], xlabel="pca", ylabel="entry")
    finish(*panels, outer=True)
    return panels
