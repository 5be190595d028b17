"""Parquet files as columns of numbers and text, for tables that fit into memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from .arrow import is_number, label_kind, load_pyarrow, numbers_of

_INDEX = "__index_level_"
_BATCH_ROWS = 1 << 16


class ParquetColumns:
    """The columns of an opened Parquet file.

    Parameters
    ----------
    file : binary file
        Opened for reading, and able to seek.

    Attributes
    ----------
    names : list of str
        The columns, less those that pandas writes for its index.
    n_rows : int
        Number of rows.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = load_pyarrow().ParquetFile(file)
        self._schema = self._file.schema_arrow
        self.names = [name for name in self._schema.names if not name.startswith(_INDEX)]
        self.n_rows = int(self._file.metadata.num_rows)

    def batches(self, names: Sequence[str]) -> Iterator[list[Any]]:
        """Yield some columns, in their order, batch by batch.

        Yields
        ------
        list
            For each column an array of numbers, NaN where they are missing; or a list of text, None where it
            is missing; or, for what is neither, the name of its type.
        """
        kinds = {name: self._schema.field(name).type for name in names}
        readable = [name for name in names if is_number(kinds[name]) or label_kind(kinds[name])]
        if not readable:
            yield [str(kinds[name]) for name in names]
            return
        for batch in self._file.iter_batches(_BATCH_ROWS, columns=readable):
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield [_values(found[name], kinds[name]) if name in found else str(kinds[name]) for name in names]


def _values(column: Any, kind: Any) -> Any:
    if not is_number(kind):
        return column.to_pylist()
    if column.null_count == len(column):
        # Arrow gives what has no value at all as objects.
        return np.full(len(column), np.nan)
    return numbers_of(column)


def write_parquet(file: BinaryIO, columns: Mapping[str, np.ndarray]) -> None:
    """Write columns of one length, of numbers or text, as a Parquet file."""
    parquet = load_pyarrow()
    import pyarrow as pa

    parquet.write_table(pa.table({name: pa.array(values) for name, values in columns.items()}), file)
