"""Decimal marks that may separate thousands: three digits after every mark of a column of a text file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .notation import of_text
from .problems import ColumnError, unusable

_NAMES = {".": "point", ",": "comma"}


def doubtful_marks(table: Any, names: Sequence[str]) -> list[ColumnError]:
    """Errors of columns of numbers whose decimal marks may separate thousands.

    All of them are followed by three digits, and another column of the file has another decimal mark. `table`
    is a `TableReader`.
    """
    notation = table.notation
    if table.again is None or notation.thousands is not None:
        return []
    other = next((name for name in table.types if _has_other_mark(table, name)), None)
    if other is None:
        return []
    errors, as_text = [], table.read_again(as_text=(*notation.as_text, *names))
    for name in names:
        marked = sorted(text for text in as_text.label_texts(name) or () if notation.mark in text)
        is_doubtful = notation.are_numbers(marked) and all(map(notation.swapped.is_grouped, marked))
        if marked and is_doubtful:
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


def _has_other_mark(table: Any, name: str) -> bool:
    """Whether a column has numbers with the other decimal mark, not all of them thousands."""
    texts, other = table.label_texts(name) or (), table.notation.swapped
    as_thousands = replace(table.notation, thousands=other.mark)
    return other.are_numbers(texts) and any(
        other.mark in text and not as_thousands.is_grouped(text) for text in texts
    )
