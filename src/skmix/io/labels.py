"""What the labels of a column are: all of them whole numbers, or truths, or text."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from .encoding import BOOLEANS, WHOLE, ColumnError, is_number, plain_text


def reader_of(words: Collection[str], name: str) -> Callable[[str], Any]:
    """Return the function from a label's text to the label, where these texts are all labels of a column.

    Whole numbers with leading zeros are identifiers, and stay text; of text, blanks around it do not count.
    Raises ColumnError if all labels are numbers, but not all of them are whole.
    """
    plain = [str(plain_text(word)) for word in words]
    if all(WHOLE.fullmatch(word) for word in plain):
        return lambda word: int(str(plain_text(word)))
    if all(word.lower() in BOOLEANS for word in plain):
        return lambda word: word.strip().lower() == "true"
    if all(map(is_number, plain)):
        refuse_fractions(map(float, plain), name)
    return str.strip


def refuse_fractions(labels: Iterable[float], name: str) -> None:
    """Raise ColumnError if one of the numbers in a column of labels is not whole, as of a quantity."""
    wrong = [label for label in labels if not float(label).is_integer()]
    if wrong:
        raise ColumnError(
            f"column {name!r} has the label {min(wrong)}, which is not a whole number. Use whole numbers or "
            "text.",
            name,
        )


def as_integers(labels: np.ndarray) -> np.ndarray:
    """Return labels (n,) that are whole numbers as integers unless they are too large; others as they are."""
    is_whole = labels.dtype.kind == "f" and np.all((labels == np.rint(labels)) & (np.abs(labels) < 2**53))
    return labels.astype(np.int64) if is_whole else labels
