"""What Arrow's types mean here: numbers, labels, or neither. Nothing but arrays is known."""

from __future__ import annotations

from typing import Any

import numpy as np


def load_pyarrow() -> Any:
    """Return pyarrow's Parquet library."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install skmix[parquet]") from None
    return pq


def is_number(kind: Any) -> bool:
    """Return whether an Arrow type is one of numbers."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return is_number(kind.value_type)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def label_kind(kind: Any) -> str | None:
    """Return what labels of an Arrow type are; None when they are no labels."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return label_kind(kind.value_type)
    if pa.types.is_boolean(kind):
        return "truth"
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    strings = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return "string" if any(test(kind) for test in strings) else None


def numbers_of(column: Any) -> np.ndarray:
    """Return a column of numbers, NaN where they are missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values
