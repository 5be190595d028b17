"""How the values of a table are written: missing values, decimal marks, separators of thousands, dates."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np

from .._errors import Argument, ArgumentError
from .._words import nearest

WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
BOOLEANS = ("true", "false")
MISSING = (
    *("", "?", "NA", "N/A", "n/a", "na", "NaN", "nan", "NAN", "-NaN", "-nan", "null", "NULL", "Null", "None"),
    *("<NA>", "#N/A", "#N/A N/A", "#NA", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
"""Words that usually stand for a missing value in text files."""
THOUSANDS = (".", ",", "'", "’", " ")
"""Characters that separate thousands."""
AUTO = "auto"
"""Leaves a setting open: a fit uses the default of the format, and a fitted model the setting of its fit."""

# Further words for a missing number; in columns of text they may be categories.
_MISSING_NUMBERS = ("-", "--", ".", "none", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", "#NAME?", "#NULL!")
# Blanks that count as spaces between digits.
_BLANKS = str.maketrans("\u00a0\u202f\u2009", "   ")
# Dates that can be read only one way: 2024-01-31 and 31.01.2024, with or without a time of day.
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d.*)?")
_DOTTED_DATE = re.compile(r"(\d\d?)\.(\d\d?)\.(\d{4})([T ]\d.*)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SECONDS_PER_DAY = 86400.0


@dataclass(frozen=True)
class Notation:
    """How the values of a table are written; `decimal` and the fields after it apply to text files only."""

    # Words and numbers for missing values. Text files also have the usual words, unless one here is empty.
    missing: Sequence[str] = ()
    # Columns to read as categories, whether they hold numbers or any number of distinct texts.
    categorical: Sequence[str] = ()
    # 'auto' leaves out columns that cannot be features; None refuses them.
    drop: str | None = None
    # Decimal mark; None for the mark of the model, and for a point in a fit.
    decimal: str | None = None
    # Separator of thousands, "" if there is none; None if unknown: then ambiguous numbers are refused.
    thousands: str | None = None
    header: bool = True
    sep: str | None = None
    encoding: str | None = None
    # Columns to read as text even if they hold numbers.
    as_text: Sequence[str] = ()
    # Whether the table is a text file, in which columns have no type.
    is_text: bool = False

    @classmethod
    def of(cls, text: Mapping[str, Any] | None, **settings: Any) -> Notation:
        """The notation that a user describes by a dictionary, and by settings that are not None."""
        settings = {**(text or {}), **{name: value for name, value in settings.items() if value is not None}}
        names = [each.name for each in fields(cls) if each.name != "is_text"]
        for name in settings:
            if name not in names:
                known = f"{', '.join(names)}.{nearest(name, names)}"
                raise ArgumentError(Argument("text"), f" has the key {name!r}; its keys are {known}")
        if isinstance(settings.get("missing"), str):
            raise ArgumentError(Argument("missing", settings["missing"]), " is not a list of words.")
        return cls(**settings)

    def __post_init__(self) -> None:
        if self.decimal not in (None, ".", ","):
            raise ArgumentError(Argument("decimal", self.decimal), " is neither a point nor a comma.")
        try:
            codecs.lookup(self.encoding or "utf-8")
        except LookupError:
            raise ArgumentError(Argument("encoding", self.encoding), " is not known to Python.") from None
        if self.drop not in (None, AUTO):
            raise ArgumentError(
                Argument("drop", self.drop), " is neither None nor 'auto': choose the columns to keep."
            )
        thousands = Argument("thousands", self.thousands)
        if self.thousands not in (None, "", *THOUSANDS):
            raise ArgumentError(thousands, f" is not one of {' '.join(THOUSANDS[:-1])} and a space.")
        if self.thousands == self.mark:
            raise ArgumentError(thousands, " is the decimal mark too: change it with ", other_mark(self), ".")

    @property
    def mark(self) -> str:
        """The decimal mark."""
        return self.decimal or "."

    @property
    def has_usual_words(self) -> bool:
        """Whether words such as NA stand for a missing value, as in text files, which have no nulls."""
        return self.is_text and "" not in self.missing

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words that stand for a missing value."""
        return (*MISSING, *self.missing) if self.has_usual_words else tuple(self.missing)

    @cached_property
    def number_words(self) -> tuple[str, ...]:
        """Words that stand for a missing number."""
        return (*self.words, *_MISSING_NUMBERS) if self.has_usual_words else self.words

    @cached_property
    def numbers(self) -> list[float]:
        """Numbers that stand for a missing value."""
        # They may be written with the decimal mark of another file.
        parsed = (Notation().number(word.replace(",", ".")) for word in self.missing)
        return [number for number in parsed if number == number]

    def number(self, text: str) -> float:
        """Parse a number, or 1 for true and 0 for false; NaN for any other text."""
        if text.lower() in BOOLEANS:
            return float(text.lower() == "true")
        text = self.plain(text)
        # Python would also accept 1_000 and digits of other scripts.
        return float(text) if text.isascii() and "_" not in text and is_number(text) else np.nan

    def are_numbers(self, values: Iterable[str]) -> bool:
        """Whether all values are numbers or stand for missing ones."""
        return all(value in self.number_words or not np.isnan(self.number(value)) for value in values)

    def plain(self, text: str) -> str:
        """Write a number without separators of thousands and with a point as decimal mark.

        A point used otherwise becomes a question mark.
        """
        if self.thousands and self.is_grouped(text):
            text = text.translate(_BLANKS).replace(self.thousands, "")
        return text if self.mark == "." else text.replace(".", "?").replace(self.mark, ".")

    def is_grouped(self, text: str) -> bool:
        """Whether a text is a number of thousands, all of them separated."""
        return self._grouped.fullmatch(text.translate(_BLANKS)) is not None

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        point, separator = re.escape(self.mark), re.escape(self.thousands or "")
        return re.compile(rf"[-+]?[1-9]\d{{0,2}}({separator}\d{{3}})+({point}\d*)?", re.ASCII)

    @property
    def swapped(self) -> Notation:
        """The notation in which this decimal mark separates thousands, and the other is the decimal mark."""
        return replace(self, decimal="," if self.mark == "." else ".", thousands=self.mark)


def is_number(text: str) -> bool:
    """Whether Python can parse a text as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def days_of(value: Any) -> float:
    """Days from 1970 to a date or its text, such as 2024-01-31 10:30 or 31.01.2024; NaN for anything else."""
    text = str(value).strip()
    if dotted := _DOTTED_DATE.fullmatch(text):
        day, month, year, time = dotted.groups(default="")
        text = f"{year}-{month:0>2}-{day:0>2}{time}"
    if not _ISO_DATE.fullmatch(text):
        return np.nan
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return np.nan
    date = date if date.tzinfo else date.replace(tzinfo=UTC)
    return (date - _EPOCH).total_seconds() / _SECONDS_PER_DAY


def plain_text(value: Any) -> str | None:
    """A category or label as text, equal for 1, 1.0, "1" and "1.0"; None if it is missing."""
    if isinstance(value, str):
        value = value.strip()
        return value[:-2] if value.endswith(".0") and WHOLE.fullmatch(value[:-2]) else value
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


# ---------------------------------------------------------------- arguments in messages


def in_list(name: str, value: str) -> Argument:
    """An entry of the argument `text` of `open_rows` that is a list of one value."""
    return of_text(name, value, [value])


def of_text(name: str, value: Any, entry: Any = None) -> Argument:
    """An entry of the argument `text` of `open_rows`, worded with another value if one is given."""
    settings = {name: value if entry is None else entry}
    return Argument(name, value, wording=f"open_rows(..., text={settings})")


def other_mark(notation: Notation) -> Argument:
    """The setting of the other decimal mark."""
    return of_text("decimal", notation.swapped.decimal)
