"""Matrices of shades, of any size: counts of a confusion matrix, weights of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from skmix.plots._common import FRAME_COLOUR, SMALL, FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_CELL = 0.34
"""Inches of a cell that has room for a number."""
_SMALL_CELL = 0.12
_LONGEST_SIDE = 10.0
_MOST_WRITTEN = 30
"""Lines or columns of a matrix whose cells have numbers in them."""
_MOST_TICKS = 45
_LETTER = 0.075
"""Inches of a small letter."""


def side_of(n_cells: int) -> float:
    """Return the inches of so many cells in a new figure."""
    if n_cells > _MOST_WRITTEN:
        return min(max(_SMALL_CELL * n_cells, 5.0), _LONGEST_SIDE)
    return max(_CELL * n_cells, 2.0)


def size_of(lines: list[str], columns: list[str]) -> tuple[float, float]:
    """Return width and height in inches of a new figure for a matrix with these names."""
    tall = _LETTER * max(map(len, columns)) if _stand(columns) else 0.15
    return side_of(len(columns)) + _LETTER * max(map(len, lines)) + 0.5, side_of(len(lines)) + tall + 0.6


def _stand(columns: list[str]) -> bool:
    """Return whether the names of columns are too long to lie side by side."""
    return _LETTER * max(map(len, columns)) > side_of(len(columns)) / len(columns)


def draw_matrix(
    panel: Axes, shades: FloatArray, texts: Sequence[Sequence[str]], lines: list[str], columns: list[str]
) -> None:
    """Draw a matrix of shades with numbers in it, where there is room for them.

    Parameters
    ----------
    panel : matplotlib axes
        Where to draw.
    shades : ndarray of shape (n, m)
        Shades from 0, white, to 1.
    texts : n sequences of m str
        What is written into the cells; dark cells have white letters.
    lines, columns : lists of n and m str
        Names of lines and columns; of very many only some are written.
    """
    panel.imshow(shades, cmap="Blues", vmin=0.0, vmax=1.15, aspect="auto")
    if max(shades.shape) <= _MOST_WRITTEN:
        for i, line in enumerate(texts):
            for j, text in enumerate(line):
                if not text:
                    continue
                colour = "white" if shades[i, j] > 0.65 else "black"
                panel.text(j, i, text, ha="center", va="center", fontsize=SMALL - 1, color=colour)
    down, across = (range(0, len(names), -(-len(names) // _MOST_TICKS)) for names in (lines, columns))
    panel.set_yticks(down, [lines[i] for i in down], fontsize=SMALL)
    turned = 90.0 if _stand(columns) else 0.0
    panel.set_xticks(across, [columns[j] for j in across], fontsize=SMALL, rotation=turned)
    panel.tick_params(length=0)
    for spine in panel.spines.values():
        spine.set_color(FRAME_COLOUR)
