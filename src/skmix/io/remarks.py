"""Remarks on columns of a table that are numbers, but may be no measurements."""

from __future__ import annotations

import re

import numpy as np

from .._errors import Argument, ArgumentWarning
from ..engine.model import FloatArray
from .encoding import ColumnError
from .tables import TableRows

# With fewer rows, integers may be consecutive by chance.
_MIN_COUNTED = 10
# Names of columns of identifiers.
_IDENTIFIER = re.compile(r"(^|[\W_])(?i:ids?|key|index)([\W_]|$)|(Id|ID)$")
# Numbers that people write for a missing value.
_SENTINELS = {float(sign + "9" * n) for n in (2, 3, 4, 5, 6) for sign in ("-", "")} - {99.0}


def column_remarks(rows: TableRows) -> list[ArgumentWarning]:
    """Return remarks on constants, identifiers and numbers that may stand for missing values.

    Raises ColumnError if a column has no value in any row, and ValueError if there are no rows.
    """
    if not len(rows.X):
        raise ValueError("the table has column names but no rows.")
    places = {name: place for place, name in enumerate(rows.feature_names)}
    found = []
    for name in (name for name, kind in rows.columns.items() if kind is None):
        column = rows.X[:, places[name]]
        known = column[~np.isnan(column)]
        if not len(known):
            raise ColumnError(f"column {name!r} has no value in any row.", column=name, is_feature=True)
        found += _remarks(name, known, len(column))
    return found


def _remarks(name: str, known: FloatArray, n_rows: int) -> list[ArgumentWarning]:
    """Return remarks on a column, given those of its values (n,) that are known."""
    least, most = known.min(), known.max()
    drop = (" leave it out with ", Argument("drop", name, wording=f"drop=[{name!r}]"), ".")
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
            remedy = Argument("missing", f"{value:g}", wording=f"missing=['{value:g}']")
            found.append(
                ArgumentWarning(
                    f"{start} is {value:g} in {n_such} {'row' if n_such == 1 else 'rows'}, far from all "
                    "other values. If that stands for a missing value, add ",
                    remedy,
                    ".",
                )
            )
    return found
