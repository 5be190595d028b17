"""Arrow columns as NumPy arrays, and tables of them. pyarrow is imported on first use."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.compute import need

NUMERIC = ("boolean", "number", "decimal", "null")
"""Kinds of columns that can be features and weights."""
# Prefix of the columns in which pandas stores its index.
_PANDAS_INDEX = "__index_level_"

Stamp = tuple[int, int]
"""Size of a file and time of its last change."""
# Buffer for reading a Parquet column. Pages that do not fit into it are read directly; a buffer as large as a
# page would copy most of it once more.
_BUFFER_BYTES = 1 << 15


def pyarrow() -> Any:
    """Return pyarrow, or raise an ImportError that says what to install."""
    return need("pyarrow", "Tables and data frames need")


@cache
def kind_of(type_: Any) -> str | None:
    """Return the kind of an Arrow type: one of `NUMERIC`, 'text', or None for any other type."""
    import pyarrow.types as types

    tests = {
        "boolean": (types.is_boolean,),
        "number": (types.is_integer, types.is_floating),
        "decimal": (types.is_decimal,),
        "null": (types.is_null,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
    }
    plain = type_.value_type if types.is_dictionary(type_) else type_
    return next((kind for kind, checks in tests.items() if any(is_kind(plain) for is_kind in checks)), None)


def numbers_of(column: Any) -> np.ndarray:
    """Return a numeric column (n,); NaN where values are missing."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_decimal(column.type) or column.null_count == len(column):
        # Arrow would turn a column without any value into an array of objects.
        column = column.cast(pa.float64())
    values: np.ndarray = column.to_numpy(zero_copy_only=False)
    return values


# ---------------------------------------------------------------- tables


@dataclass(frozen=True)
class Table:
    """Columns of a file or a data frame, read in batches of rows."""

    name: str
    # Arrow type of each column, in order.
    types: dict[str, Any]
    n_rows: int
    # Takes n and the names of some columns; yields record batches of at most n rows.
    batches: Callable[[int, list[str]], Iterator[Any]]
    # Takes a row number, counted from 0; returns where that row is, such as "line 12".
    place: Callable[[int], str] = lambda row: f"row {row + 1}"
    # A `Notation`: how values are written.
    notation: Any = None
    # Whether the table is a text file, in which columns have no type.
    is_text: bool = False
    stamps: dict[Path, Stamp] = field(default_factory=dict)

    def column(self, name: str) -> Any:
        """Return a column (n,) in memory."""
        import pyarrow as pa

        found = list(self.batches(1 << 16, [name]))
        if not found:
            return pa.array([], self.types[name])
        return pa.Table.from_batches(found).unify_dictionaries().column(name).combine_chunks()


def table_in_memory(table: Any, name: str) -> Table:
    """Return an Arrow table as a `Table`."""
    return _table(name, table.schema, table.num_rows, partial(_batches_of_table, table))


def open_parquet(path: Path) -> Table:
    """Open a Parquet file."""
    pyarrow()
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as opened:
            schema, n_rows = opened.schema_arrow, opened.metadata.num_rows
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a Parquet file: {error}") from error
    return _table(str(path), schema, n_rows, partial(_batches_of_file, path), stamps={path: stamp(path)})


def _table(name: str, schema: Any, n_rows: int, batches: Callable[..., Iterator[Any]], **more: Any) -> Table:
    types = dict(zip(schema.names, schema.types, strict=True))
    if len(types) < len(schema.names):
        twice = Counter(schema.names).most_common(1)[0][0]
        raise ValueError(f"{name} has two columns called {twice!r}. Rename one of them.")
    types = {column: type_ for column, type_ in types.items() if not column.startswith(_PANDAS_INDEX)}
    return Table(name, types, n_rows, batches, **more)


def _batches_of_file(path: Path, n_rows: int, columns: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    # No prefetching: the columns of a row group may be large.
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as opened:
        yield from opened.iter_batches(n_rows, columns=columns)


def _batches_of_table(table: Any, n_rows: int, columns: list[str]) -> Iterator[Any]:
    chosen = table.select(columns)
    for start in range(0, table.num_rows, n_rows):
        yield from chosen.slice(start, n_rows).combine_chunks().to_batches()


def stamp(path: Path) -> Stamp:
    """Return the size of a file and the time of its last change."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns
