"""Arrow columns as NumPy arrays. pyarrow is imported on first use."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .._extras import need

NUMERIC = ("boolean", "number", "decimal", "null")
"""Kinds of columns that can be features and weights."""


def pyarrow() -> Any:
    """Import pyarrow, or raise an ImportError that says what to install."""
    return need("pyarrow", "Tables and data frames need")


@cache
def kind_of(arrow_type: Any) -> str | None:
    """The kind of an Arrow type: one of `NUMERIC`, 'text', or None for any other type."""
    import pyarrow.types as types

    plain = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    if types.is_boolean(plain):
        return "boolean"
    if types.is_integer(plain) or types.is_floating(plain):
        return "number"
    if types.is_decimal(plain):
        return "decimal"
    if types.is_null(plain):
        return "null"
    is_text = types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain)
    return "text" if is_text else None


def numbers_of(column: Any) -> np.ndarray:
    """A numeric column (n,); NaN where values are missing."""
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
