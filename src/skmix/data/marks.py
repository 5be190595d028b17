"""Decimal marks that may separate thousands: three digits after every mark of a column of a text file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .arrow import numbers_of
from .notation import of_text
from .problems import ColumnError, unusable

_NAMES = {".": "point", ",": "comma"}
# Rounding of a thousand times a number that has three decimals, at most.
_ROUNDING = 1e-6


def doubtful_marks(table: Any, names: Sequence[str]) -> list[ColumnError]:
    """Errors of columns of numbers whose decimal marks may separate thousands.

    All of them are followed by three digits, and another column of the file has another decimal mark. `table`
    is a `TableReader`.
    """
    notation = table.notation
    if not notation.is_text or notation.thousands is not None or table.origin is None:
        return []
    doubtful = [name for name in names if _has_three_decimals(table, name)]
    other = next((name for name in table.types if _has_other_mark(table, name)), None) if doubtful else None
    if other is None:
        return []
    errors, as_text = [], table.read_again(as_text=(*notation.as_text, *doubtful))
    for name in doubtful:
        marked = sorted(text for text in as_text.label_texts(name) or () if notation.mark in text)
        if marked and all(map(notation.swapped.is_grouped, marked)):
            mark, other_mark = _NAMES[notation.mark], _NAMES[notation.swapped.mark]
            errors.append(
                unusable(
                    name,
                    f"has three digits after every {mark}, as in {marked[0]!r}, and column {other!r} has a "
                    f"decimal {other_mark}: which is the decimal mark? If the {mark} separates thousands, "
                    "use ",
                    of_text("decimal", notation.swapped.mark),
                    " and ",
                    of_text("thousands", notation.mark),
                    f"; if the {mark} is a decimal mark, use ",
                    of_text("thousands", ""),
                    ".",
                )
            )
    return errors


def _has_three_decimals(table: Any, name: str) -> bool:
    """Whether the numbers with fractions in a column may all be thousands, divided by a thousand."""
    if table.is_untyped(name):
        texts = table.label_texts(name) or ()
        return table.notation.are_numbers(texts) and any(map(table.notation.swapped.is_grouped, texts))
    if str(table.types[name]) != "double":
        return False
    has_fractions = False
    for batch in table.batches(table.block_rows, [name]):
        values = numbers_of(batch.column(name))
        values = np.abs(values[np.isfinite(values) & (values % 1.0 != 0.0)])
        thousands = 1000.0 * values
        is_whole = np.abs(thousands - np.round(thousands)) <= _ROUNDING
        if not np.all(is_whole & (values >= 1.0) & (values < 1000.0)):
            return False
        has_fractions |= len(values) > 0
    return has_fractions


def _has_other_mark(table: Any, name: str) -> bool:
    """Whether a column has numbers with the other decimal mark, not all of them thousands."""
    texts, other = table.label_texts(name) or (), table.notation.swapped
    as_thousands = replace(table.notation, thousands=other.mark)
    return other.are_numbers(texts) and any(
        other.mark in text and not as_thousands.is_grouped(text) for text in texts
    )
