"""Labels and weights of the rows of files: from columns of tables, arrays, and files of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arrow import kind_of
from .missing import without_mask
from .read import Stamp, existing, is_path, load_npy, stamp


def for_each_row(
    values: Any, name: str, what: str, table: str, n_rows: int
) -> tuple[np.ndarray, dict[Path, Stamp]]:
    """Labels or weights (N,), given as an array or its file, and the state of the file.

    Errors call the values `name` or, in advice, `what`; `table` is the name of the rows.
    """
    beside = {}
    if is_path(values):
        path = existing(values)
        beside, name = {path: stamp(path)}, str(path)
        values = load_npy(path)
    else:
        values = np.asarray(without_mask(values, np.nan))
        if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
            values = np.array(values.tolist())
    if values.shape != (n_rows,):
        raise ValueError(
            f"{table} has {n_rows} rows, but {name} has shape {values.shape}: give {what}, one for each row."
        )
    if what == "weights" and values.dtype.kind not in "fiub":
        raise ValueError(f"{name} is of type {values.dtype}; weights must be numbers.")
    return values, beside


def types_of(tables: Sequence[Any], column: str, kinds: Sequence[str], rule: str) -> dict[str, Any]:
    """The Arrow types of a column by table; raise ValueError unless they are of these kinds."""
    for table in tables:
        table.check_present([column])
    types = {table.name: table.types[column] for table in tables}
    for name, arrow_type in types.items():
        if kind_of(arrow_type) not in kinds:
            raise ValueError(f"Column {column!r} of {name} is of type {arrow_type}; {rule}.")
    return types


def labels_in_column(
    tables: Sequence[Any], column: str
) -> tuple[np.ndarray, np.ndarray, frozenset[str] | None]:
    """The labels in a column of tables as indices (N,) into names (C,), of which None are missing labels.

    Names in text files are texts, and the third result is all of them; it is None if columns have a type.
    """
    rule = "labels must be whole numbers, strings or booleans"
    (first, kind), *others = types_of(tables, column, ("boolean", "number", "text"), rule).items()
    for other, other_kind in others:
        if kind_of(other_kind) != kind_of(kind):
            raise ValueError(
                f"Labels differ in kind: column {column!r} is {kind} in {first} and {other_kind} in {other}."
            )
    indices, names = zip(*(table.labels(column) for table in tables), strict=True)
    starts = np.cumsum([0, *map(len, names)])
    labels = np.concatenate([index + start for index, start in zip(indices, starts[:-1], strict=True)])
    labels, all_names = labels.astype(np.min_scalar_type(int(starts[-1]))), np.concatenate(names)
    are_texts = all(table.is_untyped(column) for table in tables)
    return labels, all_names, frozenset(all_names.tolist()) - {None} if are_texts else None
