"""Write files atomically, and tables: write a new file in the same folder, then rename it over the old one.

An interruption leaves a complete file, old or new.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .arrow import pyarrow

WRITABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
"""File name suffixes of tables that can be written."""
# How many rows of a text file to format at a time, to bound the memory.
_BATCH_ROWS = 1 << 16


def is_device(path: str | os.PathLike[str]) -> bool:
    """Whether a path names a device, pipe or open stream, which is never replaced."""
    place = Path(path)
    special = place.exists() and not place.is_file() and not place.is_dir()
    return special or os.path.abspath(place).startswith(("/dev/std", "/dev/fd/", "/proc/"))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new binary file that replaces `path` if the body succeeds.

    If `path` is a symbolic link, its target is replaced. Devices and pipes, such as ``/dev/null`` and
    ``/dev/stdout``, are written to directly.
    """
    if is_device(path):
        # A pipe's real path is not a file.
        with open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {Path(path).parent}.")
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            # Without this, a crash of the machine could leave an empty file.
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


# ---------------------------------------------------------------- tables


def writable_folder(path: str | os.PathLike[str]) -> Path:
    """Create a folder if it is missing and return it; raise OSError if it is not writable.

    Call this before long work, which would otherwise fail at the end.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder


def _alike(values: NDArray[Any]) -> NDArray[Any]:
    """Values (n,) of one type: if some are text, numbers become text, as in text files."""
    if values.dtype != object or not any(isinstance(value, str) for value in values):
        return values
    return np.array([value if value is None else str(value) for value in values], dtype=object)


def write_columns(target: str | os.PathLike[str] | BinaryIO, columns: Mapping[str, NDArray[Any]]) -> None:
    r"""Write a table; a file is replaced atomically.

    Parameters
    ----------
    target : path-like or binary stream
        The file, whose suffix determines the format (see `WRITABLE`); a stream receives CSV.
    columns : mapping of str to ndarray of shape (n,)
        Columns of numbers or text. Text files have enough digits to restore each number exactly.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from skmix.data import write_columns
    >>> write_columns(stream := io.BytesIO(), {"a": np.array([1.0, 2.5])})
    >>> stream.getvalue()
    b'a\n1.0\n2.5\n'
    """
    if not isinstance(target, str | os.PathLike):
        _write_text(target, columns, ",")
        return
    kind = check_writable(Path(target))
    separator = "\t" if kind.startswith(".tsv") else ","
    with replacing(target) as file:
        if kind == ".parquet":
            pa = pyarrow()
            import pyarrow.parquet as pq

            pq.write_table(pa.table({name: pa.array(_alike(each)) for name, each in columns.items()}), file)
        elif kind.endswith(".gz"):
            # No name or date, so that the same table gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                _write_text(packed, columns, separator)
        else:
            _write_text(file, columns, separator)


def check_writable(path: Path) -> str:
    """The suffix of a table's name, one of `WRITABLE`, or raise ValueError; devices receive CSV."""
    if is_device(path):
        return ".csv"
    for ending in WRITABLE:
        if path.name.lower().endswith(ending):
            return ending
    raise ValueError(f"{path}: the name of a table must end in {', '.join(WRITABLE)}.")


def _write_text(file: IO[bytes] | gzip.GzipFile, columns: Mapping[str, NDArray[Any]], separator: str) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    n_rows = max((len(values) for values in columns.values()), default=0)
    for first in range(0, n_rows, _BATCH_ROWS):
        part = slice(first, first + _BATCH_ROWS)
        writer.writerows(zip(*(_cells(values[part]) for values in columns.values()), strict=True))
    # The caller closes the file.
    text.detach()


def _cells(values: NDArray[Any]) -> list[Any]:
    """Values (n,) as cells of a text file, empty for missing ones."""
    return ["" if value is None or value != value else value for value in values.tolist()]
