"""Argument checks shared by the generators."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def finite(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as floats; raise if any is not finite."""
    checked = np.asarray(values, dtype=np.float64)
    n_bad = int(np.count_nonzero(~np.isfinite(checked)))
    if n_bad:
        raise ValueError(f"{name} must be finite, but {n_bad} of its {checked.size} values are not.")
    return checked


def whole_number(name: str, value: Any, *, least: int) -> int:
    """Return the value as an int; raise if it is not an integer of at least `least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
    return int(value)


def positive(name: str, value: Any) -> float:
    """Return the value as a float; raise if it is not a positive finite number."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    if not 0.0 < number < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {value}.")
    return number
