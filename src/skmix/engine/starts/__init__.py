"""Starting points, R at a time, and what makes them better before the first pass over all rows."""

from __future__ import annotations

from .drawing import (
    Drawing,
    class_wise,
    from_responsibilities,
    k_means,
    random_from_data,
    uniform,
    uniform_weights,
)
from .samples import draw_rows, refined, without_outliers
from .seeds import draw_seeds

__all__ = [
    "Drawing",
    "class_wise",
    "draw_rows",
    "draw_seeds",
    "from_responsibilities",
    "k_means",
    "random_from_data",
    "refined",
    "uniform",
    "uniform_weights",
    "without_outliers",
]
