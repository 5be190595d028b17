"""Table files as Arrow batches: CSV, TSV, Parquet and NPZ, recognised by their content, not by their names.

Errors are `ValueError` without the name of the file, which the caller adds.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

SEPARATORS = ("\t", ",", ";")
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
# The column names of a CSV file must be within its first bytes, and each of its rows must fit into a block.
_HEAD_BYTES = 1 << 22
_BLOCK_BYTES = 1 << 24
_BATCH_ROWS = 1 << 16
# Columns that pandas writes for its index.
PANDAS_INDEX = "__index_level_"
# Arrays of an NPZ file that name the columns of its matrix.
_COLUMN_NAMES = ("feature_names", "columns")
_DAMAGE = (zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, csv.Error, NotImplementedError)


@dataclass(frozen=True)
class Table:
    """An open table; only the column names have been read."""

    names: list[str]
    # From the distinct positions of some columns to Arrow record batches of these columns, in this order,
    # each with the share of the table read so far.
    batches: Callable[[Sequence[int]], Iterator[tuple[Any, float]]]
    # From a row number, counted from 0, to its position in the file, such as "line 12".
    place: Callable[[int], str]
    # Notes on content that is ignored.
    notes: list[str] = field(default_factory=list)


@contextmanager
def open_table(source: Path | BinaryIO, *, header: bool) -> Iterator[Table]:
    """Open a file or a stream; `header` is whether the first line of a text file has names."""
    from pyarrow import ArrowException

    # A pipe can be read only once, while Parquet and NPZ files must be seekable.
    if isinstance(source, Path) and (source.is_file() or not source.exists()):
        reopen: Callable[[], Any] = partial(open, source, "rb")
    else:
        reopen = partial(io.BytesIO, source.read_bytes() if isinstance(source, Path) else source.read())
    try:
        with reopen() as file:
            start = file.read(4)
            file.seek(0)
            if start == _PARQUET:
                yield _parquet(file)
            elif start == _ZIP:
                yield _npz(file)
            else:
                yield _csv(reopen, file.seek(0, io.SEEK_END), start.startswith(_GZIP), header)
    except UnicodeDecodeError as error:
        raise ValueError(_not_utf8(error.reason)) from None
    except _DAMAGE as error:
        raise ValueError(f"it is damaged, or not a table ({error}).") from None
    except ArrowException as error:
        if "UTF8" in str(error):
            raise ValueError(_not_utf8("invalid bytes")) from None
        raise ValueError(f"it is damaged, or not a table ({error}).") from None


def _not_utf8(reason: str) -> str:
    return f"it is neither text in UTF-8 ({reason}) nor Parquet nor NPZ. Save it as CSV in UTF-8."


def _csv(reopen: Callable[[], Any], size: int, packed: bool, header: bool) -> Table:
    """Open text in UTF-8; all values are read as text."""

    def unpacked(file: BinaryIO) -> Any:
        return gzip.GzipFile(fileobj=file) if packed else file

    with reopen() as file:
        head = codecs.getincrementaldecoder("utf-8-sig")().decode(unpacked(file).read(_HEAD_BYTES))
    # Separators and line ends within quotes do not count.
    first = re.split("[\r\n]", re.sub('"[^"]*"', "", head).lstrip("\r\n"), maxsplit=1)[0]
    separator = max(SEPARATORS, key=first.count)
    records = enumerate(csv.reader(io.StringIO(head, newline=""), delimiter=separator))
    n_blank, record = next((each for each in records if each[1]), (0, []))
    names = [name.strip() if header else f"column_{i}" for i, name in enumerate(record, start=1)]

    def place(row: int) -> str:
        """Return the line at which a row ends. Only needed for errors, so the file is read again."""
        with reopen() as file, suppress(csv.Error):
            text = io.TextIOWrapper(unpacked(file), "utf-8", "replace", newline="")
            lines = csv.reader(text, delimiter=separator)
            for number, _ in enumerate(filter(None, lines)):
                if number == row + header:
                    return f"line {lines.line_num}"
        return f"row {row + 1}"

    def batches(columns: Sequence[int]) -> Iterator[tuple[Any, float]]:
        import pyarrow as pa
        import pyarrow.csv as pacsv

        keys = [str(column) for column in range(len(names))]
        invalid: list[Any] = []

        def refuse(row: Any) -> str:
            invalid.append(row)
            return "error"

        with reopen() as file:
            try:
                reader = pacsv.open_csv(
                    unpacked(file),
                    # Arrow counts rows, for errors, only without threads.
                    pacsv.ReadOptions(
                        column_names=keys,
                        skip_rows_after_names=n_blank + header,
                        block_size=_BLOCK_BYTES,
                        use_threads=False,
                    ),
                    pacsv.ParseOptions(
                        delimiter=separator,
                        newlines_in_values=True,
                        invalid_row_handler=refuse,
                    ),
                    pacsv.ConvertOptions(
                        column_types=dict.fromkeys(keys, pa.string()),
                        include_columns=[keys[column] for column in columns],
                    ),
                )
                for batch in reader:
                    yield batch, file.tell() / size
            except pa.ArrowInvalid:
                if not invalid:
                    raise
                row = invalid[0]
                raise ValueError(
                    f"{place(row.number - 1 - n_blank - header)} has {row.actual_columns} values, "
                    f"but the first line has {row.expected_columns}."
                ) from None

    return Table(names, batches, place)


def _parquet(file: BinaryIO) -> Table:
    import pyarrow.parquet as pq

    try:
        opened = pq.ParquetFile(file)
    except (OSError, ValueError) as error:
        raise ValueError(f"it is not a complete Parquet file: {error}") from None
    names = [name for name in opened.schema_arrow.names if not name.startswith(PANDAS_INDEX)]

    def batches(columns: Sequence[int]) -> Iterator[tuple[Any, float]]:
        wanted, n_read = [names[column] for column in columns], 0
        for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted):
            n_read += batch.num_rows
            yield batch.select(wanted), n_read / opened.metadata.num_rows

    return Table(names, batches, lambda row: f"row {row + 1}")


def _npz(file: BinaryIO) -> Table:
    """Open arrays: a vector is a column, a matrix several columns."""
    import pyarrow as pa

    with closing(np.load(file, allow_pickle=False)) as stored:
        arrays: dict[str, np.ndarray] = {}
        for name in stored.files:
            try:
                arrays[name] = stored[name]
            except ValueError:
                raise ValueError(f"array {name!r} holds Python objects; save numbers or text.") from None
    matrices = [array for array in arrays.values() if array.ndim == 2]
    titles = next((arrays.pop(name) for name in _COLUMN_NAMES if name in arrays), None)
    # The first matrix, or else the first vector, determines the number of rows.
    n_rows = next((len(array) for array in (*matrices, *arrays.values()) if array.ndim), 0)
    columns: dict[str, Any] = {}
    notes = []
    for name, array in arrays.items():
        if array.ndim not in (1, 2) or len(array) != n_rows or array.dtype.kind not in "biufU":
            notes.append(
                f"array {name!r} of type {array.dtype} and shape {array.shape} is left out: it is not a "
                f"column of numbers or text with {n_rows} rows"
            )
        elif array.ndim == 1:
            columns[name] = array
        else:
            own = [f"{name}_{i}" for i in range(1, array.shape[1] + 1)]
            if len(matrices) == 1 and titles is not None and titles.shape == (array.shape[1],):
                own = [str(title) for title in titles]
            columns.update(zip(own, array.T, strict=True))
    names = list(columns)

    def batches(chosen: Sequence[int]) -> Iterator[tuple[Any, float]]:
        native = [columns[names[c]] for c in chosen]
        found = [pa.array(array.astype(array.dtype.newbyteorder("="))) for array in native]
        yield pa.RecordBatch.from_arrays(found, [names[c] for c in chosen]), 1.0

    return Table(names, batches, lambda row: f"row {row + 1}", notes)
