"""Numbers on their way into the page: rounded, and never NaN, which JSON lacks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def decimals(values: Any, digits: int) -> Any:
    """Return floats as nested lists, rounded to so many decimals, None where they are not finite.

    Parameters
    ----------
    values : array-like of any shape
        Numbers.
    digits : int
        Decimals to keep.

    Returns
    -------
    float, None or nested lists of them
        In the shape of the values.
    """
    # Adding zero turns -0.0 into 0.0.
    rounded = np.round(np.asarray(values, dtype=np.float64), digits) + 0.0
    return _plain(rounded.tolist())


def significant(values: Any, digits: int) -> Any:
    """Return floats as nested lists, rounded to so many significant digits, None where not finite."""
    array = np.asarray(values, dtype=np.float64)
    rounded = [float(f"{value:.{digits}g}") for value in array.ravel()]
    return _plain(np.reshape(rounded, array.shape).tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if math.isfinite(value) else None


def text(value: float | None, digits: int = 3) -> str:
    """Return a number as it is printed, a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def mean(values: Iterable[float]) -> float:
    """Return the mean, NaN of nothing."""
    array = np.fromiter(values, dtype=np.float64)
    return float(array.mean()) if array.size else math.nan


def joined(words: Iterable[str]) -> str:
    """Return words as a list in a sentence: "a, b and c"."""
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last
