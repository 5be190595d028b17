"""Arrow columns as NumPy arrays. pyarrow is imported on first use."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from .._extras import need

NUMERIC = ("boolean", "number", "decimal", "null")
"""Kinds of columns that can be features and weights."""

Stamp = tuple[int, int]
"""Size of a file and time of its last change."""


def pyarrow() -> Any:
    """Return pyarrow, or raise an ImportError that says what to install."""
    return need("pyarrow", "Tables and data frames need")


@cache
def kind_of(type_: Any) -> str | None:
    """Return the kind of an Arrow type: one of `NUMERIC`, 'text', or None for any other type."""
    import pyarrow.types as types

    tests = {
        "boolean": (types.is_boolean,),
        "number": (types.is_integer, types.is_floating),
        "decimal": (types.is_decimal,),
        "null": (types.is_null,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
    }
    plain = type_.value_type if types.is_dictionary(type_) else type_
    return next((kind for kind, checks in tests.items() if any(is_kind(plain) for is_kind in checks)), None)


def numbers_of(column: Any) -> np.ndarray:
    """Return a numeric column (n,); NaN where values are missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(column.type) or column.null_count == len(column):
        # Arrow would turn a column without any value into an array of objects.
        column = column.cast(pa.float64())
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


def stamp(path: Path) -> Stamp:
    """Return the size of a file and the time of its last change."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
