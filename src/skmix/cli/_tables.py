"""The tables of commands: standard input, the roles of columns, and the rows of a fit."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix._words import listed
from skmix.cli._common import STANDARD, hidden_folders, in_options, note
from skmix.data import ColumnError, Source, open_rows
from skmix.data.formats import format_of, named_columns
from skmix.data.labels import check_classes, number_labels, typed
from skmix.data.missing import is_missing
from skmix.data.notation import AUTO
from skmix.data.problems import refuse_empty_columns
from skmix.data.write import is_device
from skmix.model.frames import read_into_memory, remarks_of
from skmix.model.measured import with_errors as with_errors


@contextmanager
def table_at(data: str) -> Iterator[Path]:
    """Yield the path of a table, after copying standard input or a pipe, which can be read only once."""
    path = Path(data)
    if data != STANDARD and not is_device(path):
        yield path
        return
    with ExitStack() as stack:
        stream = sys.stdin.buffer if data == STANDARD else stack.enter_context(open(data, "rb"))
        folder = stack.enter_context(tempfile.TemporaryDirectory()) + os.sep
        hidden_folders.append(folder)
        path = Path(folder, "standard input" if data == STANDARD else path.name)
        with open(path, "wb") as copy:
            shutil.copyfileobj(stream, copy)
        yield path


def open_table(
    path: Path,
    text: dict[str, Any],
    *,
    target: str | None = None,
    weight: str | None = None,
    drop: Collection[str] = (),
    **reading: Any,
) -> Source:
    """Open a table by `open_rows`, with labels and weights in columns; all others but `drop` are features."""
    # The columns of a matrix get names.
    rows = named_columns(path) if format_of(path) == "npy" else path
    roles = [name for name in (target, weight) if name is not None]
    text = text | {"as_text": [] if target is None else [target]}
    source = open_rows(rows, text=text, **reading)
    reader: Any = source.first
    if AUTO in drop and AUTO not in reader.all_names:
        drop = [name for name in drop if name != AUTO]
        source = open_rows(rows, text=text | {"drop": AUTO}, **reading)
        reader = source.first
    used = [*roles, *text.get("categorical", ())]
    reader.check_present([*used, *drop])
    for name in drop:
        if name in used:
            raise ColumnError(f"column {name!r} cannot be both used and left out.", column=name)
    # Of an FCS file, channels like Time are no features.
    present = reader.all_names if reader.is_table else source.feature_names or []
    if left := [name for name in reader.all_names if name not in present]:
        note(f"left out, because they measure no marker of their own: {listed(left)}.")
    features = [name for name in present if name not in {*roles, *drop}]
    if not features:
        raise ValueError(f"no column is left as a feature; the table has {listed(reader.all_names)}.")
    source = source.select(features)
    # Labels and weights may be channels of an FCS file.
    if target is not None:
        source = source.labelled(target if reader.is_table else np.array(reader.column(target)))
    if weight is not None:
        source = source.weighted(weight if reader.is_table else np.array(reader.column(weight)))
    return source


def columns_of(path: Path, text: dict[str, Any], names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Columns (n,) of a table as they are written."""
    if not names:
        return {}
    reader: Any = open_rows(path, text=text | {"as_text": [*names]}).first
    reader.check_present(names)
    return {name: np.array(reader.column(name), dtype=object) for name in names}


def if_there(path: Path, text: dict[str, Any], weight: str | None) -> str | None:
    """The column of weights of a fit if a table has it, else None with a note."""
    reader: Any = None if weight is None else open_rows(path, text=text).first
    if reader is None or weight in reader.all_names:
        return weight
    note(f"there is no column {weight!r}, the weights of the fit: each row counts once.")
    return None


def rows_to_fit(source: Source, target: str | None, unlabelled: str) -> tuple[Any, Any, Any]:
    """Read a table; return the rows that have a value and a weight, labels (n,) and weights (n,) or None.

    Notes say what is odd about its columns. What is `unlabelled` is refused, dropped, or used without label.
    """
    try:
        rows, y, weights = read_into_memory(source)
    except ColumnError as error:
        if target is not None or not error.is_feature or not error.column:
            raise
        raise ValueError(f"{in_options(error)} If it holds labels, use --target {error.column!r}.") from None
    names = rows.feature_names or []
    kinds = (rows.preparation or {}).get("columns") or dict.fromkeys(names)
    numbers = [name for name, kind in kinds.items() if kind is None]
    values = rows.X[:, np.array([names.index(name) for name in numbers], dtype=np.intp)]
    if target is not None and y is not None:
        check_classes(y, target, source.name)
    refuse_empty_columns(values, numbers)
    for remark in remarks_of(source, rows.X):
        note(f"{in_options(remark).rstrip('.')}.")
    if target is None and (coded := [name for name, kind in kinds.items() if kind is not None]):
        use = f"If {coded[-1]!r} is the column of labels, use --target {coded[-1]!r}."
        note(f"without --target, all columns are features. {use}")
    is_empty = np.isnan(rows.X).all(axis=1)
    if is_empty.any():
        first = source.place(int(is_empty.argmax()))
        note(f"{is_empty.sum()} of {len(rows)} rows have no value and are left out; the first is {first}.")
    usable = ~is_empty if weights is None else ~is_empty & (weights > 0.0)
    if target is not None and y is not None:
        y, known = _labels(y)
        if not known[~is_empty].all() and unlabelled == "refuse":
            n_missing, n_rows = (~known & ~is_empty).sum(), (~is_empty).sum()
            raise ValueError(
                f"column {target!r} has no label in {n_missing} of {n_rows} rows. Leave these rows out with "
                "--unlabelled drop, or learn from them too with --unlabelled use. If words such as NA are "
                "classes, use --missing ''."
            )
        usable &= known | (unlabelled == "use")
        y = y[usable]
        if not is_missing(y).any():
            # Without empty cells, Python might take a class −1 for rows without a label.
            labels, known = _labels(typed(y))
            y = labels if known.all() else typed(y).astype(str)
    return rows[usable], y, None if weights is None else weights[usable]


def _labels(y: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels (n,), None for a row without one, and which rows have one.

    The number −1 marks rows without a label, as in Python, unless empty cells do. Where it may also be a
    class, which Python refuses, the labels become text.
    """
    known = ~is_missing(y)
    try:
        known = number_labels(y)[1] >= 0
    except ValueError:
        y = y.astype(str)
    if known.all():
        return typed(y), known
    y = y.astype(object)
    y[~known] = None
    return y, known
