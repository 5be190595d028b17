"""Arrow columns as NumPy arrays of numbers or lists of labels. pyarrow is imported on first use."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_number(kind: Any) -> bool:
    """Return whether values of an Arrow type are numbers or booleans."""
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return is_number(kind.value_type)
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    return any(test(kind) for test in tests)


def is_text(kind: Any) -> bool:
    """Return whether values of an Arrow type are strings."""
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return is_text(kind.value_type)
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view))


def label_kind(kind: Any) -> str | None:
    """Return the kind of labels of an Arrow type: 'boolean', 'number', 'string', or None for other types."""
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return label_kind(kind.value_type)
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind) or types.is_floating(kind):
        return "number"
    return "string" if is_text(kind) else None


def numbers_of(column: Any) -> np.ndarray:
    """Return a column (n,) of numbers; NaN where values are missing."""
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
