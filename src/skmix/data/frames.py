"""Data frames of pandas, polars and pyarrow: as Arrow tables, and as features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from .._errors import Argument
from ..engine.records import FloatArray
from .arrow import pyarrow
from .encoding import Kind
from .formats import open_table
from .notation import AUTO
from .problems import ColumnError, TableError, column_remarks
from .source import Source


def as_arrow_table(thing: Any) -> Any:
    """A data frame as an Arrow table, None for anything else; pandas and polars are not imported."""
    library = type(thing).__module__.split(".")[0]
    if not hasattr(thing, "columns") or library not in ("pandas", "polars", "pyarrow"):
        return None
    pa = pyarrow()
    if library == "pandas":
        for name, values in thing.items():
            _check_types(name, values)
        return pa.Table.from_pandas(thing, preserve_index=False)
    if library == "polars":
        return thing.to_arrow()
    return thing if isinstance(thing, pa.Table) else pa.Table.from_batches([thing])


def _check_types(name: Any, values: Any) -> None:
    """Raise ColumnError unless Arrow has a type for a column (n,) of pandas."""
    pa = pyarrow()
    if values.dtype.kind == "c":
        problem = f"column {name!r} holds complex numbers; a feature must be real numbers or categories."
        raise ColumnError(problem, column=name)
    if values.dtype != object:
        return
    try:
        pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        types = ", ".join(sorted({type(value).__name__ for value in values}))
        raise ColumnError(
            f"column {name!r} holds values of different types: {types}. For numbers, use "
            f"pandas.to_numeric(X[{name!r}], errors='coerce'); for categories, "
            f"X.astype({{{name!r}: str}}).astype({{{name!r}: 'category'}}).",
            column=name,
        ) from None


def encode_frame(
    frame: Any, columns: Mapping[str, Kind] | None = None, writing: Mapping[str, Any] | None = None
) -> tuple[np.ndarray, Source]:
    """The features (n, M) of a data frame, and their source, which knows the kinds of the columns.

    `columns` are the kinds that a model keeps; None infers them. `writing` is that of its recipe.
    """
    arrow = as_arrow_table(frame)
    if arrow is None:
        raise TypeError(
            f"X is a {type(frame).__name__} with columns of text: only data frames of pandas, polars and "
            "pyarrow are encoded."
        )
    reader, n_rows = open_table(arrow, "X", place="row {}".format), max(1, arrow.num_rows)
    # The estimator checks the values.
    source = Source(name="X", readers={"X": reader}, chunk_rows=n_rows, is_checked=True)
    library = type(frame).__module__.split(".")[0]
    try:
        source = source if columns is None else source.encoded(columns, writing)
        blocks = [X for X, _ in source.rows()]
    except TableError as error:
        remedy = _remedy(library, [problem.column for problem in error.errors], Argument("drop", AUTO))
        raise TableError([_for_frame(library, problem) for problem in error.errors], remedy) from None
    except ColumnError as error:
        raise _for_frame(library, error) from None
    X = np.concatenate(blocks) if blocks else np.empty((0, source.n_features))
    return np.ascontiguousarray(X, dtype=np.float64), source


# What to do about columns of a data frame X of each library, in place of an argument of `open_rows`.
_REMEDIES = {
    "pandas": {
        "drop": "X.drop(columns={columns})",
        "categorical": "X.astype({{{column!r}: 'category'}})",
        "missing": "X.replace({{{column!r}: {value!r}}}, float('nan'))",
        "decimal": "X[{column!r}].str.replace({value!r}, '.')",
        "thousands": "X[{column!r}].str.replace({value!r}, '')",
    },
    "polars": {
        "drop": "X.drop({listed})",
        "categorical": "X.cast({{{column!r}: polars.Categorical}})",
        "missing": "polars.col({column!r}).replace({value!r}, None)",
        "decimal": "polars.col({column!r}).str.replace({value!r}, '.')",
        "thousands": "polars.col({column!r}).str.replace_all({value!r}, '', literal=True)",
    },
    "pyarrow": {"drop": "X.drop_columns({columns})"},
}


def frame_remarks(frame: Any, X: FloatArray, names: Sequence[str]) -> list[str]:
    """Remarks on numeric columns (n, q) of a data frame with names (q,); see `column_remarks`."""
    library = type(frame).__module__.split(".")[0]
    return [
        remark.worded(partial(_remedy, library, [remark.column])).removesuffix(".")
        for remark in column_remarks(X, names)
    ]


def _remedy(library: str, columns: list[str], argument: Argument) -> str:
    pattern = _REMEDIES.get(library, {}).get(argument.name)
    if pattern is None:
        return argument
    listed = ", ".join(map(repr, columns))
    return pattern.format(column=columns[0], columns=columns, listed=listed, value=argument.value)


def _for_frame(library: str, error: ColumnError) -> ColumnError:
    """The error of a column with remedies for data frames of a library."""
    message = error.worded(partial(_remedy, library, [error.column]))
    return ColumnError(message, column=error.column, is_feature=error.is_feature)
