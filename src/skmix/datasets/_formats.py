"""Tables as they lie in files: CSV, TSV, Parquet and NPZ, recognised by what they hold, not by their names.

Whatever is wrong with a file ends in a `ValueError` or `OSError`; who asked for the file adds its name.
"""

from __future__ import annotations

import csv
import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol, cast

import numpy as np

from skmix.io.columns import ParquetColumns

Progress = Callable[[float], None]
"""Takes the share of a table that has been read."""

_CHUNK_ROWS = 1 << 14
_GZIP, _PARQUET, _ZIP = b"\x1f\x8b", b"PAR1", b"PK\x03\x04"
# The most of a header that is looked at to find what separates its names.
_HEADER_BYTES = 1 << 16
_SEPARATORS = ("\t", ",", ";")
# Arrays of an NPZ file that name the columns of another.
_NAMES_OF_COLUMNS = ("feature_names", "columns")
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, csv.Error, NotImplementedError)


class Chunk:
    """Some rows of some columns.

    Parameters
    ----------
    columns : list
        For each column an array of numbers, a list of text, or the name of a type that is neither.
    places : sequence of int
        Where each row stands, as a person counts.
    unit : str
        What is counted: lines or rows.
    """

    def __init__(self, columns: list[Any], places: Sequence[int], unit: str) -> None:
        self.columns = columns
        self._places = places
        self._unit = unit

    def __len__(self) -> int:
        return len(self._places)

    def place(self, row: int) -> str:
        """Return where a row of the chunk stands, such as ``line 12``."""
        return f"{self._unit} {self._places[row]}"


class Opened(Protocol):
    """A table of which only the names have been read."""

    names: list[str]
    notes: list[str]

    def chunks(self, columns: Sequence[int], progress: Progress) -> Iterator[Chunk]:
        """Yield the rows of some columns in order."""
        ...


@contextmanager
def opened(source: Path | BinaryIO, *, header: bool) -> Iterator[Opened]:
    """Lend the table in a file or a stream.

    Parameters
    ----------
    source : Path or binary stream
        Where it is.
    header : bool
        Whether the first line of a text file has names.
    """
    with open(source, "rb") if isinstance(source, Path) else nullcontext(source) as stream:
        # Parquet and NPZ are read from their ends, which a pipe has only when all of it has been read.
        file = stream if isinstance(source, Path) and stream.seekable() else io.BytesIO(stream.read())
        try:
            with _table(file, header) as table:
                yield table
        except UnicodeDecodeError as error:
            raise ValueError(
                f"it is not text in UTF-8 ({error.reason}), nor Parquet or NPZ. Save it as CSV in UTF-8."
            ) from None
        except _DAMAGED as error:
            raise ValueError(f"it is damaged or no table ({error}).") from None


@contextmanager
def _table(file: BinaryIO, header: bool) -> Iterator[Opened]:
    """Lend the table in a file that can be read from any place."""
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    start = file.read(4)
    file.seek(0)
    if start == _PARQUET:
        yield _Parquet(file)
    elif start == _ZIP:
        yield _Arrays(file)
    else:
        packed = start.startswith(_GZIP)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file
        with io.TextIOWrapper(stream, encoding="utf-8-sig", newline="") as text:
            # How far a file has been read is known of the file itself, compressed or not.
            yield _Text(text, lambda: file.tell() / size, header=header)


class _Text:
    """Lines of values with a separator between them."""

    def __init__(self, text: io.TextIOWrapper, share: Callable[[], float], *, header: bool) -> None:
        self._share = share
        self.notes: list[str] = []
        first = text.readline(_HEADER_BYTES)
        counts = {separator: first.count(separator) for separator in _SEPARATORS}
        separator = max(counts, key=lambda each: counts[each])
        self._lines = csv.reader(_again(first, text), delimiter=separator)
        names = next(self._lines, [])
        self._ahead = [] if header else [(1, names)]
        self.names = [
            value.strip() if header else f"column_{place}" for place, value in enumerate(names, start=1)
        ]

    def chunks(self, columns: Sequence[int], progress: Progress) -> Iterator[Chunk]:
        width = len(self.names)
        lines: list[list[str]] = []
        places: list[int] = []
        for place, line in self._numbered():
            if not line:
                continue
            if len(line) != width:
                raise ValueError(f"line {place} has {len(line)} values, the first line has {width}.")
            lines.append(line)
            places.append(place)
            if len(lines) == _CHUNK_ROWS:
                progress(self._share())
                yield Chunk([[line[column] for line in lines] for column in columns], places, "line")
                lines, places = [], []
        if lines:
            yield Chunk([[line[column] for line in lines] for column in columns], places, "line")

    def _numbered(self) -> Iterator[tuple[int, list[str]]]:
        yield from self._ahead
        for line in self._lines:
            yield self._lines.line_num, line


def _again(first: str, rest: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a text of which the start of the first has been read."""
    yield first if first.endswith(("\n", "\r")) or not first else first + rest.readline()
    yield from rest


class _Parquet:
    """The columns of a Parquet file."""

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._columns = ParquetColumns(file)
        except ImportError:
            raise
        except Exception as error:
            # Arrow has kinds of errors of its own, and none of them says more than this.
            raise ValueError(f"this is no whole Parquet file: {error}") from None
        self.names = self._columns.names
        self.notes: list[str] = []

    def chunks(self, columns: Sequence[int], progress: Progress) -> Iterator[Chunk]:
        names, first = [self.names[column] for column in columns], 1
        if not self._columns.n_rows:
            return
        for values in self._columns.batches(names):
            # Columns of types that cannot be read have no rows; one is enough to refuse them.
            n_rows = next((len(each) for each in values if not isinstance(each, str)), 1)
            yield Chunk(values, range(first, first + n_rows), "row")
            first += n_rows
            progress(first / self._columns.n_rows)


class _Arrays:
    """The arrays of an NPZ file: vectors are columns, matrices several of them."""

    def __init__(self, file: BinaryIO) -> None:
        self.notes: list[str] = []
        self._columns: dict[str, np.ndarray] = {}
        with np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        matrices = [name for name, array in arrays.items() if array.ndim == 2]
        titles = next((arrays.pop(name) for name in _NAMES_OF_COLUMNS if name in arrays), None)
        # Rows are what the matrices have, or where there is none, the first of the vectors.
        shaped = [arrays[name] for name in matrices] or [a for a in arrays.values() if a.ndim == 1]
        n_rows = len(shaped[0]) if shaped else 0
        for name, array in arrays.items():
            if array.ndim not in (1, 2) or len(array) != n_rows:
                self.notes.append(f"array {name!r} of shape {array.shape} is no column of {n_rows} rows")
            elif array.ndim == 1:
                self._columns[name] = array
            else:
                own = [f"{name}_{place}" for place in range(1, array.shape[1] + 1)]
                if len(matrices) == 1 and titles is not None and titles.shape == (array.shape[1],):
                    own = [str(title) for title in titles]
                self._columns.update(zip(own, array.T, strict=True))
        self.names = list(self._columns)
        self._n_rows = n_rows

    def chunks(self, columns: Sequence[int], progress: Progress) -> Iterator[Chunk]:
        values = [_plain(self._columns[self.names[column]]) for column in columns]
        if self._n_rows:
            yield Chunk(values, range(1, self._n_rows + 1), "row")


def _plain(array: np.ndarray) -> Any:
    """Return numbers as an array, text as a list, and of anything else the type."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind == "U":
        return array.tolist()
    return str(array.dtype)
