"""What is wrong with columns of tables, and the options that mend it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from .._errors import Argument, ArgumentError, ArgumentWarning
from ..engine.records import FloatArray
from .notation import AUTO, THOUSANDS, Notation, in_list, of_text, other_mark

NEW_LINE = "\n- "
"""What each of several errors begins with."""
# A column with more distinct values than this holds text if there are fewer than two rows per value.
_MOST_OF_FEW_ROWS = 10
# A column with a value of more characters than this holds text.
_LONGEST_CATEGORY = 200
# Numbers with another decimal mark, thousands separators, a currency sign or a per cent sign.
_LIKE_NUMBER = re.compile(
    r"[-+]?([$€£¥]\s?)?[-+]?[0-9.,'’ \u00a0\u202f]*[0-9][.,]?([eE][-+]?[0-9]+)?\s?[%$€£¥]?"
)
# With fewer rows, whole numbers may be consecutive by chance.
_MIN_COUNTED = 10
# Names of columns of identifiers.
_IDENTIFIER = re.compile(r"(^|[\W_])(?i:ids?|key|index)([\W_]|$)|(Id|ID)$")
# Numbers that people write for a missing value.
_SENTINELS = {float(sign + "9" * n) for n in (2, 3, 4, 5, 6) for sign in ("-", "")} - {99.0}


class ColumnError(ArgumentError):
    """A column that is missing or cannot be used; if it `is_feature`, leaving it out would help."""

    def __init__(self, *parts: str, column: str, is_feature: bool = False) -> None:
        super().__init__(*parts)
        self.column = column
        self.is_feature = is_feature

    def of_table(self, name: str) -> ColumnError:
        """The same error with the name of the table in front."""
        return ColumnError(f"{name}: ", *self.pieces, column=self.column, is_feature=self.is_feature)


class TableError(ColumnError):
    """Several columns that cannot be features, with one way to leave out all of them."""

    def __init__(self, errors: Sequence[ColumnError], remedy: str, start: str = "") -> None:
        what = f"{start}{len(errors)} columns cannot be features as they are. To leave out all of them, use "
        lines = [piece for error in errors for piece in (NEW_LINE, *error.pieces)]
        super().__init__(what, remedy, ".", *lines, column="", is_feature=True)
        self.errors, self.remedy = errors, remedy

    def of_table(self, name: str) -> ColumnError:
        """The same errors with the name of the table in front."""
        return TableError(self.errors, self.remedy, f"{name}: ")


def refuse_columns(errors: Sequence[ColumnError]) -> None:
    """Raise the error of a column, or one for several."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TableError(errors, of_text("drop", AUTO))


def unusable(name: str, *parts: str) -> ColumnError:
    """The error of a column that cannot be a feature."""
    return ColumnError(f"column {name!r} ", *parts, column=name, is_feature=True)


def otherwise_drop(name: str) -> tuple[str, ...]:
    """The advice to leave a column out, as the end of a message."""
    return _drop(" Otherwise, leave it out with ", name)


def _drop(advice: str, name: str) -> tuple[str, ...]:
    return advice, Argument("drop", name, wording="open_rows(..., columns=[...])"), "."


# ---------------------------------------------------------------- columns of text


def categories_error(
    name: str, counts: Counter[str], value: str, notation: Notation, example: Callable[[], str]
) -> ColumnError | None:
    """The error of a column of text whose values, with their counts, are no categories; None if they are.

    `value` is the first one that is not a number, and `example` words it with its place.
    """
    separators = separators_error(name, counts, notation, example)
    if separators is not None:
        return ColumnError(*separators.pieces, *otherwise_drop(name), column=name, is_feature=True)
    declare = in_list("categorical", name), ".", *otherwise_drop(name)
    n_known = counts.total()
    notations = notation, replace(notation.swapped, thousands="")
    if notation.decimal is None and notations[1].are_numbers(counts):
        what = f"holds numbers with another decimal mark, {example()}. Use "
        return unusable(name, what, other_mark(notation), "; if these are categories, ", *declare)
    n_numbers = sum(
        count for text, count in counts.items() if not np.isnan([way.number(text) for way in notations]).all()
    )
    if _LIKE_NUMBER.fullmatch(value) or 2 * n_numbers >= n_known:
        return unusable(
            name,
            f"holds numbers and text, {example()}. Write plain numbers, like 1200.5; for another "
            "decimal mark, use ",
            other_mark(notation),
            "; if the text stands for a missing value, ",
            in_list("missing", value),
            "; if these are categories, ",
            *declare,
        )
    longest = max(map(len, counts))
    if longest > _LONGEST_CATEGORY or (len(counts) > _MOST_OF_FEW_ROWS and 2 * len(counts) > n_known):
        size = f"{len(counts)} different values of up to {longest} characters in {n_known} rows"
        what = f"holds text, {example()}: {size}. If these are categories, use "
        return unusable(name, what, *declare)
    return None


def separators_error(
    name: str, values: Iterable[str], notation: Notation, example: Callable[[], str]
) -> ColumnError | None:
    """The error that a separator of thousands would make numbers of all values of a column; None if not."""
    if notation.thousands is not None:
        return None
    values = [*values]
    marks = [notation.mark, notation.swapped.mark]
    for decimal in marks:
        for thousands in THOUSANDS:
            if thousands == decimal:
                continue
            read = replace(notation, decimal=decimal, thousands=thousands)
            if read.are_numbers(values) and any(map(read.is_grouped, values)):
                ways: list[str] = [of_text("thousands", thousands)]
                if decimal != notation.mark:
                    # In this order, also where these are changes of a data frame.
                    ways += [" and ", of_text("decimal", decimal)]
                elif replace(notation, decimal=marks[1], thousands="").are_numbers(values):
                    ways += ["; if it is the decimal mark, use ", other_mark(notation)]
                what = f"holds numbers with a separator of thousands, {example()}. Use "
                return unusable(name, what, *ways, ".")
    return None


# ---------------------------------------------------------------- columns of numbers


class ColumnRemark(ArgumentWarning):
    """A remark on a column that may be no measurement."""

    def __init__(self, *parts: str, column: str) -> None:
        super().__init__(f"column {column!r} ", *parts)
        self.column = column


def column_remarks(X: FloatArray, names: Sequence[str]) -> list[ColumnRemark]:
    """Remarks on numeric columns (n, q) with names (q,) that may be identifiers, constants or codes."""
    columns = ((name, column, ~np.isnan(column)) for name, column in zip(names, X.T, strict=True))
    return [
        remark
        for name, column, known in columns
        if known.any()
        for remark in _remarks(name, column[known], len(column))
    ]


def refuse_empty_columns(X: FloatArray, names: Sequence[str]) -> None:
    """Raise ColumnError if some of the numeric columns (n, q) with names (q,) have no value."""
    empty = [name for name, column in zip(names, X.T, strict=True) if np.isnan(column).all()]
    refuse_columns(
        [unusable(name, "has no value in any row.", *_drop(" Leave it out with ", name)) for name in empty]
    )


def _remarks(name: str, known: FloatArray, n_rows: int) -> list[ColumnRemark]:
    """Remarks on a column, given its values that are known."""
    least, most = known.min(), known.max()
    drop = _drop(" leave it out with ", name)
    if least == most:
        what = f"is {least:g} in all rows that have a value. It carries no information:"
        return [ColumnRemark(what, *drop, column=name)]
    remarks = []
    if len(known) >= _MIN_COUNTED and np.array_equal(known, np.round(known)):
        n_distinct, what = len(np.unique(known)), ""
        if len(known) == n_rows and most - least == n_rows - 1 == n_distinct - 1:
            what = f"numbers the rows from {least:.0f} to {most:.0f}"
        elif _IDENTIFIER.search(name) and n_distinct == len(known):
            what = "has a different whole number in every row"
        if what:
            what += ". If this is an identifier and not a measurement,"
            remarks.append(ColumnRemark(what, *drop, column=name))
    for value in {least, most} & _SENTINELS:
        others = known[known != value]
        if np.abs(others - value).min() > np.ptp(others):
            n_such = len(known) - len(others)
            what = (
                f"is {value:g} in {n_such} {'row' if n_such == 1 else 'rows'}, far from all other values. If "
                "that stands for a missing value, add "
            )
            remarks.append(ColumnRemark(what, in_list("missing", f"{value:g}"), ".", column=name))
    return remarks
