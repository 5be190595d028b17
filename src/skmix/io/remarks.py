"""Remarks on numeric columns that may be identifiers, constants or codes for missing values."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from .._errors import ArgumentWarning
from ..engine.records import FloatArray
from .encoding import ColumnError, in_list

# With fewer rows, whole numbers may be consecutive by chance.
_MIN_COUNTED = 10
# Names of columns of identifiers.
_IDENTIFIER = re.compile(r"(^|[\W_])(?i:ids?|key|index)([\W_]|$)|(Id|ID)$")
# Numbers that people write for a missing value.
_SENTINELS = {float(sign + "9" * n) for n in (2, 3, 4, 5, 6) for sign in ("-", "")} - {99.0}


def column_remarks(X: FloatArray, names: Sequence[str]) -> list[ArgumentWarning]:
    """Return remarks on numeric columns (n, q) with names (q,); raise ColumnError if one has no value."""
    found = []
    for name, column in zip(names, X.T, strict=True):
        known = column[~np.isnan(column)]
        if not len(known):
            raise ColumnError(f"column {name!r} has no value in any row.", column=name, is_feature=True)
        found += _remarks(name, known, len(column))
    return found


def _remarks(name: str, known: FloatArray, n_rows: int) -> list[ArgumentWarning]:
    least, most = known.min(), known.max()
    drop = (" leave it out with ", in_list("drop", name), ".")
    start = f"column {name!r}"
    if least == most:
        what = f"{start} is {least:g} in all rows that have a value. It carries no information:"
        return [ArgumentWarning(what, *drop)]
    found = []
    n_distinct = len(np.unique(known))
    whole = len(known) >= _MIN_COUNTED and np.array_equal(known, np.round(known))
    what = ""
    if whole and len(known) == n_rows and most - least == n_rows - 1 == n_distinct - 1:
        what = f"numbers the rows from {least:.0f} to {most:.0f}"
    elif whole and _IDENTIFIER.search(name) and n_distinct == len(known):
        what = "has a different whole number in every row"
    if what:
        what += ". If this is an identifier and not a measurement,"
        found.append(ArgumentWarning(f"{start} {what}", *drop))
    for value in {least, most} & _SENTINELS:
        others = known[known != value]
        if np.abs(others - value).min() > np.ptp(others):
            n_such = len(known) - len(others)
            found.append(
                ArgumentWarning(
                    f"{start} is {value:g} in {n_such} {'row' if n_such == 1 else 'rows'}, far from all "
                    "other values. If that stands for a missing value, add ",
                    in_list("missing", f"{value:g}"),
                    ".",
                )
            )
    return found
