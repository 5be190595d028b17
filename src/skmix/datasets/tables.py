"""Tables of anybody's making: features by name, a column of labels, and errors that name the column."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from skmix.datasets._formats import Chunk, Opened, Progress, opened
from skmix.datasets.files import MISSING, FloatArray

BoolArray = NDArray[np.bool_]

_WHOLE = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_WITH_COMMAS = re.compile(r"[-+]?[0-9]+([.,' ][0-9]+)*,[0-9]+([eE][-+]?[0-9]+)?")
_TRUTH = {"true": 1.0, "false": 0.0}
# More labels than this, and they are no classes: numbers with a fraction, or nearly one label for each row.
_MOST_FRACTIONS = 10
_MOST_OF_FEW_ROWS = 20
_MOST_NAMED = 10


class ColumnError(ValueError):
    """A column that is missing or cannot be used.

    Attributes
    ----------
    column : str
        Its name.
    is_feature : bool
        Whether leaving the column out would help.
    """

    def __init__(self, message: str, column: str, *, is_feature: bool = False) -> None:
        super().__init__(message)
        self.column = column
        self.is_feature = is_feature


@dataclass(frozen=True, eq=False)
class TableRows:
    """Rows of a table.

    Attributes
    ----------
    X : ndarray of shape (n, M)
        Features; NaN where a value is missing.
    feature_names : tuple of str
        Names of the columns of X.
    labels : list or None
        What stands in the column of labels, as text or as numbers; see `class_labels`.
    kept : dict of str to list
        Other columns that were asked for, as they stand in the table.
    notes : tuple of str
        What the reader left out.
    """

    X: FloatArray
    feature_names: tuple[str, ...]
    labels: list[Any] | None = None
    kept: dict[str, list[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_rows(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    features: Sequence[str] | None = None,
    target: str | None = None,
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
    header: bool = True,
    progress: Progress | None = None,
) -> TableRows:
    r"""Read a table with a header: CSV, TSV (each also compressed by gzip), Parquet or NPZ.

    Formats are told by their content. In an NPZ file, vectors are columns and a matrix is several, named by
    an array ``feature_names`` if there is one.

    Parameters
    ----------
    source : path-like or binary stream
        The table.
    features : list of str, default=None
        Columns to take, in this order; None takes all but the others named here.
    target : str, default=None
        Column of labels.
    drop : list of str, default=()
        Columns to leave out. They need not exist when `features` are given.
    keep : list of str, default=()
        Columns to hand on as they are.
    header : bool, default=True
        Whether the first line of a text file has names. Without them columns are ``column_1``, ``column_2`` …
    progress : callable, default=None
        Called with the share that has been read, from 0 to 1.

    Returns
    -------
    TableRows
        Features as numbers; empty values, ``NA``, ``NaN``, ``null`` and ``?`` are missing, ``true`` and
        ``false`` are 1 and 0.

    Raises
    ------
    ColumnError
        For a column that is missing, twice there or no number; it names the column, a value and its line.
    ValueError
        For anything else that is wrong with the table.
    OSError
        When the file cannot be read.

    Examples
    --------
    >>> import io
    >>> from skmix.datasets import read_rows
    >>> rows = read_rows(io.BytesIO(b"a,b,kind\n1,2,x\n3,,y\n"), target="kind")
    >>> rows.X
    array([[ 1.,  2.],
           [ 3., nan]])
    >>> rows.labels
    ['x', 'y']
    """
    where = Path(source) if isinstance(source, str | os.PathLike) else source
    name = str(where) if isinstance(where, Path) else "standard input"
    try:
        with opened(where, header=header) as table:
            return _read(table, features, target, drop, keep, progress or (lambda share: None), header)
    except ColumnError as error:
        raise ColumnError(f"{name}: {error}", error.column, is_feature=error.is_feature) from None
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _read(
    table: Opened,
    features: Sequence[str] | None,
    target: str | None,
    drop: Sequence[str],
    keep: Sequence[str],
    progress: Progress,
    header: bool,
) -> TableRows:
    _check_names(table.names, header)
    beside = ([] if target is None else [target]) + list(keep)
    _check_present(table.names, [*(features or ()), *beside, *(drop if features is None else ())])
    if features is None:
        unnamed = [place for place, name in enumerate(table.names, start=1) if not name]
        names = [name for name in table.names if name not in (*beside, *drop)]
        if "" in names:
            raise ColumnError(
                f"column {unnamed[0]} has no name. Often that is an index of the rows, which is no feature.",
                "",
                is_feature=True,
            )
    else:
        names = list(features)
    if not names:
        raise ValueError(f"no column is left as a feature; the table has {_listed(table.names)}.")
    extra = [name or "(no name)" for name in table.names if name not in (*names, *beside, *drop)]
    notes = [*table.notes, *([f"ignored, as the model does not know it: {_listed(extra)}"] if extra else [])]
    places = [table.names.index(name) for name in (*names, *beside)]
    blocks, others = [], [[] for _ in beside]  # type: list[FloatArray], list[list[Any]]
    for chunk in table.chunks(places, progress):
        block = np.column_stack([_numbers(chunk, place, name) for place, name in enumerate(names)])
        empty = np.flatnonzero(np.isnan(block).all(axis=1))
        if len(empty):
            raise ValueError(
                f"{chunk.place(empty[0])} has no value in any of the {len(names)} features. Remove rows that "
                "say nothing."
            )
        blocks.append(block)
        for collected, place in zip(others, range(len(names), len(places)), strict=True):
            collected.extend(_as_they_are(chunk, place, beside[place - len(names)]))
    if not blocks:
        raise ValueError("it has names of columns but no rows.")
    columns = dict(zip(beside, others, strict=True))
    return TableRows(
        np.concatenate(blocks),
        tuple(names),
        None if target is None else columns[target],
        {name: columns[name] for name in keep},
        tuple(notes),
    )


def _check_names(names: Sequence[str], header: bool) -> None:
    if not names:
        raise ValueError("it is empty.")
    for place, name in enumerate(names):
        if name and name in names[:place]:
            raise ColumnError(f"two columns are called {name!r}. Rename one of them.", name)
    if header and all(_is_number(name) for name in names):
        raise ValueError(
            f"its first line has numbers instead of names: {_listed(names)}. Add a line of names, or say "
            "that there is none (--no-header, header=False)."
        )


def _check_present(names: Sequence[str], wanted: Sequence[str]) -> None:
    missing = [name for name in wanted if name not in names]
    if missing:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        there = f"there are {_listed(names)}."
        if len(names) == 1:
            there = f"there is {names[0]!r} alone. Columns are told apart by commas, semicolons or tabs."
        raise ColumnError(f"there is no column {missing[0]!r}{more}; {there}", missing[0])


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(str, names[:_MOST_NAMED]))
    return shown if len(names) <= _MOST_NAMED else f"{shown} … ({len(names)} in all)"


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _numbers(chunk: Chunk, place: int, name: str) -> FloatArray:
    """Return a column of a chunk as finite numbers or NaN."""
    values = chunk.columns[place]
    if isinstance(values, str):
        raise ColumnError(
            f"column {name!r} is of type {values}; a feature must be a number.", name, is_feature=True
        )
    if isinstance(values, np.ndarray):
        numbers = values.astype(np.float64)
    else:
        try:
            # Many times faster, and enough for a column of numbers alone.
            numbers = np.array(values, dtype=np.float64)
        except (ValueError, TypeError):
            numbers = np.array([_number(value, chunk, row, name) for row, value in enumerate(values)])
    infinite = np.flatnonzero(np.isinf(numbers))
    if len(infinite):
        raise ColumnError(
            f"column {name!r} is infinite on {chunk.place(infinite[0])}; leave unknown values empty.",
            name,
            is_feature=True,
        )
    return numbers


def _number(value: str | None, chunk: Chunk, row: int, name: str) -> float:
    stripped = "" if value is None else value.strip()
    if stripped in MISSING:
        return np.nan
    try:
        return float(stripped)
    except ValueError:
        if stripped.lower() in _TRUTH:
            return _TRUTH[stripped.lower()]
    shown = stripped if len(stripped) <= 40 else f"{stripped[:40]}…"
    if _WITH_COMMAS.fullmatch(stripped):
        raise ColumnError(
            f"column {name!r} has a comma in the number {shown!r} on {chunk.place(row)}. Write a point "
            "before decimals, and nothing between thousands.",
            name,
        )
    raise ColumnError(
        f"column {name!r} holds text, such as {shown!r} on {chunk.place(row)}; a feature must be a number.",
        name,
        is_feature=True,
    )


def _as_they_are(chunk: Chunk, place: int, name: str) -> list[Any]:
    values = chunk.columns[place]
    if isinstance(values, str):
        raise ColumnError(f"column {name!r} is of type {values}, neither numbers nor text.", name)
    return values.tolist() if isinstance(values, np.ndarray) else list(values)


def class_labels(values: Sequence[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table as labels of classes.

    Parameters
    ----------
    values : list of length n
        The column, see `TableRows`.
    name : str
        Its name, for errors.

    Returns
    -------
    labels : ndarray of shape (n,)
        Integers if all labels are whole numbers, text otherwise.
    known : ndarray of shape (n,), bool
        Where there is a label.

    Raises
    ------
    ColumnError
        If the column has fewer than two labels, or so many that it holds a quantity or a name for each row.
    """
    text = [_text(value) for value in values]
    known = np.array([value is not None for value in text], dtype=np.bool_)
    present = sorted({value for value in text if value is not None})
    n_known = int(known.sum())
    if len(present) < 2:
        told = f"the one label {present[0]!r}" if present else "no label"
        raise ColumnError(
            f"column {name!r} has {told} in {len(text)} rows; classes must be two or more.", name
        )
    fractions = [value for value in present if not _WHOLE.fullmatch(value) and _is_number(value)]
    if len(fractions) > _MOST_FRACTIONS or (len(present) > _MOST_OF_FEW_ROWS and 2 * len(present) > n_known):
        raise ColumnError(
            f"column {name!r} has {len(present)} different values in {n_known} rows, such as {present[0]!r}: "
            "these are no classes. Name a column of few labels, or none for a density of all columns.",
            name,
        )
    if all(_WHOLE.fullmatch(value) for value in present):
        whole = np.array([0 if value is None else int(value) for value in text], dtype=np.int64)
        if min(map(int, present)) >= 0:
            return whole, known
    # Text, too, where numbers are negative: estimators take -1 for a row without a label.
    return np.array(["" if value is None else value for value in text]), known


def labels_like(values: Sequence[Any], classes: NDArray[Any], name: str) -> tuple[NDArray[Any], BoolArray]:
    """Return a column of a table as labels of known classes.

    Parameters
    ----------
    values : list of length n
        The column.
    classes : ndarray of shape (L,)
        The classes of a model.
    name : str
        Name of the column, for errors.

    Returns
    -------
    labels : ndarray of shape (n,)
        Of the type of `classes`; the first of them where the label is missing.
    known : ndarray of shape (n,), bool
        Where there is a label.

    Raises
    ------
    ColumnError
        If a label is none of the classes.
    """
    places = {_text(label): place for place, label in enumerate(classes.tolist())}
    text = [_text(value) for value in values]
    unseen = sorted({value for value in text if value is not None and value not in places})
    if unseen:
        raise ColumnError(
            f"column {name!r} has labels that the model does not know: {_listed(unseen)}; it knows "
            f"{_listed([str(known) for known in places])}.",
            name,
        )
    known = np.array([value is not None for value in text], dtype=np.bool_)
    return classes[[0 if value is None else places[value] for value in text]], known


def _text(value: Any) -> str | None:
    """Return a label as text, the same for 1, 1.0, "1" and "1.0"; None if it is missing."""
    if isinstance(value, str):
        value = value.strip()
        if value in MISSING:
            return None
        return value[:-2] if value.endswith(".0") and _WHOLE.fullmatch(value[:-2]) else value
    if value is None or value != value:
        return None
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
