"""What labels in a text file are: all of them whole numbers, or truths, or text, as a data frame has them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from .encoding import BOOLEANS, WHOLE, plain_text


def reader_of(words: Collection[str]) -> Callable[[str], Any]:
    """Return the function from a label's text to the label, where all labels are these texts.

    Whole numbers with leading zeros are identifiers, and stay text; of text, blanks around it do not count.
    """
    plain = [str(plain_text(word)) for word in words]
    if all(WHOLE.fullmatch(word) for word in plain):
        return lambda word: int(str(plain_text(word)))
    if all(word.lower() in BOOLEANS for word in plain):
        return lambda word: word.strip().lower() == "true"
    return str.strip
