"""Confusion matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from skmix.plots._common import MEDIUM, SMALL, panels_for
from skmix.plots._matrix import draw_matrix, size_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_confusion(
    matrix: ArrayLike,
    labels: Sequence[Any] | None = None,
    *,
    title: str | None = None,
    axes: Axes | None = None,
    figure: Figure | None = None,
) -> Axes:
    """Plot a confusion matrix: counts as numbers, their shares of the true class as shades.

    Shades grow with the square root of the share, so that rare errors are seen. Of more than thirty classes
    there are shades alone.

    Parameters
    ----------
    matrix : array-like of shape (L, L)
        Counts (or shares); rows are true classes, columns predicted ones.
    labels : sequence of L labels, default=None
        Names of the classes; None numbers them from 0.
    title : str, default=None
        Title of the axes; None shows the accuracy.
    axes : matplotlib axes, default=None
        Axes to draw into.
    figure : matplotlib figure, default=None
        An empty figure for new axes; None makes one.

    Returns
    -------
    matplotlib axes
        The axes.

    Examples
    --------
    >>> from skmix.plots import plot_confusion
    >>> axes = plot_confusion([[9, 1], [2, 8]], labels=["cat", "dog"])  # doctest: +SKIP
    """
    counts = np.asarray(matrix)
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not len(counts):
        raise ValueError(f"a confusion matrix is square, got shape {counts.shape}.")
    if not np.all(np.isfinite(counts)) or counts.min() < 0:
        raise ValueError("a confusion matrix has finite counts, none of them negative.")
    names = [str(label) for label in (range(len(counts)) if labels is None else labels)]
    if len(names) != len(counts):
        raise ValueError(f"the matrix has {len(counts)} classes but there are {len(names)} labels.")
    width, height = size_of(names, names)
    (panel,) = panels_for(1, axes, figure, n_columns=1, size=(width, height + 0.2))

    totals = counts.sum(axis=1, keepdims=True)
    shades = np.sqrt(counts / np.where(totals > 0, totals, 1))
    whole = np.issubdtype(counts.dtype, np.integer)
    texts = [
        ["" if not count > 0 else str(count) if whole else f"{count:.2f}" for count in row] for row in counts
    ]
    draw_matrix(panel, shades, texts, names, names)
    panel.set_aspect("equal")
    panel.set_xlabel("predicted", fontsize=SMALL)
    panel.set_ylabel("true", fontsize=SMALL)
    accuracy = np.trace(counts) / max(counts.sum(), np.finfo(float).tiny)
    panel.set_title(f"accuracy {accuracy:.3f}" if title is None else title, fontsize=MEDIUM)
    return panel
