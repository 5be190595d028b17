"""Files of tables: find out their format, and open them."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import ArgumentError
from .._words import listed
from .arrow import pyarrow
from .fcs import MAGIC
from .notation import Notation, is_number, of_text
from .read import open_npy, rows_in_block, stamp
from .tables import TableReader, naming
from .text import TextFile

SUFFIXES = {
    "fcs": (".fcs",),
    "parquet": (".parquet", ".pq"),
    "npy": (".npy",),
    "text": (".csv", ".tsv", ".csv.gz", ".tsv.gz"),
}
"""File name suffixes by format."""
# First bytes of Excel workbooks of before 2007, and of archives such as those since.
_OLD_EXCEL, _ZIP = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"PK\x03\x04"
# Prefix of the columns in which pandas stores its index.
_PANDAS_INDEX = "__index_level_"
# Buffer for reading a Parquet column. Pages that do not fit into it are read directly; a buffer as large as a
# page would copy most of it once more.
_BUFFER_BYTES = 1 << 15


def format_of(path: Path) -> str:
    """The format of a file: 'fcs', 'parquet', 'npy' or 'text'.

    The first bytes decide; if they are damaged, the name does.
    """
    if path.is_dir():
        raise ValueError(
            f"{path} is a folder: give one table. A folder of samples, one file each, is for compose."
        )
    with open(path, "rb") as file:
        start = file.read(10)
    if start.startswith(MAGIC) and start.endswith(b"    "):
        return "fcs"
    if start.startswith(b"PAR1"):
        return "parquet"
    if start.startswith(np.lib.format.MAGIC_PREFIX):
        return "npy"
    if start.startswith(_OLD_EXCEL) or (start.startswith(_ZIP) and _is_workbook(path)):
        raise ValueError(
            f"{path} is a spreadsheet (Excel or alike). Save its sheet as CSV in UTF-8, or read it by "
            "pandas.read_excel and pass the data frame."
        )
    name = path.name.lower()
    return next((format for format, suffixes in SUFFIXES.items() if name.endswith(suffixes)), "text")


def _is_workbook(path: Path) -> bool:
    """Whether an archive holds a workbook of Excel or OpenDocument."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except zipfile.BadZipFile:
        return False
    return any(name.startswith("xl/") or name == "content.xml" for name in names)


# ---------------------------------------------------------------- opening


def open_parquet(path: Path, notation: Notation) -> TableReader:
    """Open a Parquet file."""
    pyarrow()
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as opened:
            schema, n_rows = opened.schema_arrow, opened.metadata.num_rows
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as a Parquet file: {error}") from error
    batches = partial(_batches_of_file, path)
    return _reader(str(path), schema, n_rows, batches, stamps={path: stamp(path)}, notation=notation)


def open_table(table: Any, name: str, **more: Any) -> TableReader:
    """The reader of an Arrow table, with more of its fields if they are given."""
    return _reader(name, table.schema, table.num_rows, partial(_batches_of_table, table), **more)


def _reader(
    name: str, schema: Any, n_rows: int, batches: Callable[[int, list[str]], Iterator[Any]], **more: Any
) -> TableReader:
    name_twice, count = Counter(schema.names).most_common(1)[0] if schema.names else ("", 0)
    if count > 1:
        raise ValueError(f"{name} has two columns called {name_twice!r}. Rename one of them.")
    types = dict(zip(schema.names, schema.types, strict=True))
    types = {column: type_ for column, type_ in types.items() if not column.startswith(_PANDAS_INDEX)}
    block_rows = rows_in_block(8 * max(1, len(types)))
    return TableReader(name=name, n_rows=n_rows, block_rows=block_rows, types=types, batches=batches, **more)


def _batches_of_file(path: Path, n_rows: int, columns: list[str]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    # No prefetching: the columns of a row group may be large.
    with pq.ParquetFile(path, buffer_size=_BUFFER_BYTES, pre_buffer=False) as opened:
        yield from opened.iter_batches(n_rows, columns=columns)


def _batches_of_table(table: Any, n_rows: int, columns: list[str]) -> Iterator[Any]:
    chosen = table.select(columns)
    for start in range(0, table.num_rows, n_rows):
        yield from chosen.slice(start, n_rows).combine_chunks().to_batches()


def open_text(path: Path, notation: Notation) -> TableReader:
    """Read a text file."""
    notation = replace(notation, is_text=True)
    # A pipe or a terminal can be read only once.
    stamps = {path: stamp(path)} if path.is_file() else {}
    with naming(str(path), notation):
        file = TextFile(path, notation)
        if not file.names:
            raise ValueError("the file is empty.")
        if notation.header and all(map(is_number, file.names)):
            problem = f"its first line has numbers instead of names: {listed(file.names)}. "
            raise ArgumentError(f"{problem}Add a line of names, or use ", of_text("header", False), ".")
        reader = open_table(
            file.read(),
            str(path),
            notation=notation,
            again=partial(open_text, path),
            place=file.place,
            origin=path,
            stamps=stamps,
        )
    if not reader.n_rows:
        raise ValueError(f"{path}: it has column names but no rows.")
    return reader


def named_columns(path: Path) -> Any:
    """Read a .npy file as an Arrow table with columns ``column_1`` and so on."""
    reader = open_npy(path)
    rows = reader.matrix[0 : reader.n_rows]
    return pyarrow().table({f"column_{i + 1}": column for i, column in enumerate(rows.T)})
