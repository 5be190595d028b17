"""Arrow columns as NumPy arrays. pyarrow is imported on first use."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ..engine.compute import how_to_install

NUMERIC = ("boolean", "number", "decimal", "null")
"""Kinds of columns that can be features and weights."""
PANDAS_INDEX = "__index_level_"
"""How the names of columns begin that pandas writes for its index."""


def pyarrow() -> Any:
    """Return pyarrow, or raise an ImportError that says what to install."""
    try:
        import pyarrow
    except ModuleNotFoundError:
        raise ImportError(f"Tables and data frames need pyarrow: {how_to_install('cli')}") from None
    return pyarrow


@cache
def kind_of(type_: Any) -> str | None:
    """Return the kind of values of an Arrow type: one of `NUMERIC`, 'text', or None for others."""
    import pyarrow.types as types

    tests = {
        "boolean": (types.is_boolean,),
        "number": (types.is_integer, types.is_floating),
        "decimal": (types.is_decimal,),
        "null": (types.is_null,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
    }
    plain = type_.value_type if types.is_dictionary(type_) else type_
    return next((kind for kind, those in tests.items() if any(test(plain) for test in those)), None)


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
