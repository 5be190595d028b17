"""Columns of Arrow tables as numbers, dates and categories. pyarrow is imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from .._extras import need
from ..engine.records import FloatArray
from .notation import Notation, days_of, plain_text

NUMERIC = ("boolean", "number", "decimal", "null")
"""Kinds of columns that can be features and weights without any encoding."""
_MICROSECONDS_PER_DAY = 86_400_000_000


def pyarrow() -> Any:
    """Import pyarrow, or raise an ImportError that says what to install."""
    return need("pyarrow", "Tables and data frames need")


@cache
def kind_of(arrow_type: Any) -> str | None:
    """The kind of an Arrow type: one of `NUMERIC`, 'text', 'date', or None for any other type."""
    import pyarrow.types as types

    plain = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    if types.is_integer(plain) or types.is_floating(plain):
        return "number"
    if types.is_string(plain) or types.is_large_string(plain) or types.is_string_view(plain):
        return "text"
    if types.is_date(plain) or types.is_timestamp(plain):
        return "date"
    others = {"boolean": types.is_boolean, "decimal": types.is_decimal, "null": types.is_null}
    return next((kind for kind, is_kind in others.items() if is_kind(plain)), None)


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


def texts_of(column: Any, words: Sequence[str]) -> Any:
    """Strip the values of a column of text, and replace those among `words` by null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    text = pc.utf8_trim_whitespace(column.cast(pa.string()))
    is_missing = pc.is_in(text, value_set=pa.array(words, pa.string()))
    return pc.if_else(is_missing, pa.scalar(None, pa.string()), text)


def numbers_in(column: Any, notation: Notation) -> tuple[FloatArray, int | None]:
    """Numbers (n,), NaN for missing values, and the first row that holds anything else, if there is one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wrong = None
    if kind_of(column.type) in NUMERIC:
        values = np.array(numbers_of(column), dtype=np.float64, copy=True if notation.numbers else None)
    else:
        text = plain = texts_of(column, notation.number_words)
        if notation.mark != ".":  # as `Notation.plain` does
            plain = pc.replace_substring(pc.replace_substring(text, ".", "?"), notation.mark, ".")
        try:
            # Separators of thousands are left in, and Arrow cannot parse them.
            values = np.array(numbers_of(plain.cast(pa.float64())))
        except pa.ArrowInvalid:
            values, wrong = _parsed(text, notation.number)
    for number in notation.numbers:
        values[values == number] = np.nan
    return values, wrong


def days_in(column: Any, notation: Notation) -> tuple[FloatArray, int | None]:
    """Days since 1970 (n,), NaN for missing values, and the first row that holds no date, if there is one."""
    import pyarrow as pa

    if kind_of(column.type) != "date":
        return _parsed(texts_of(column, notation.number_words), days_of)
    days = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
    return numbers_of(days) / _MICROSECONDS_PER_DAY, None


def _parsed(text: Any, parse: Callable[[str], float]) -> tuple[FloatArray, int | None]:
    """Parse each distinct text of a column (n,) once; also the first row whose text cannot be parsed."""
    coded = text.dictionary_encode()
    numbers = [parse(value) for value in coded.dictionary.to_pylist()]
    codes = coded.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
    values = np.array([*numbers, np.nan])[codes]
    wrong = np.flatnonzero(np.isnan(values) & (codes < len(numbers)))
    return values, int(wrong[0]) if len(wrong) else None


def categories_in(column: Any, words: Sequence[str]) -> Any:
    """The category of each row as Arrow text, null for missing values."""
    import pyarrow as pa

    if kind_of(column.type) == "text":
        column = texts_of(column, words)
    coded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    plain = [plain_text(value) for value in coded.dictionary.to_pylist()]
    return pa.array(plain, pa.string()).take(coded.indices)
