"""Columns into files: CSV, TSV, Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from skmix.io import replacing
from skmix.io.columns import write_parquet

WRITABLE = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
"""How names of tables end that can be written."""

_ROWS_AT_A_TIME = 1 << 14


def write_columns(
    target: str | os.PathLike[str] | BinaryIO,
    columns: Mapping[str, NDArray[Any]],
    *,
    digits: int | None = None,
) -> None:
    r"""Write a table: a file is written beside its place and renamed into it.

    Parameters
    ----------
    target : path-like or binary stream
        The file, whose name says what it becomes (see `WRITABLE`); a stream becomes CSV.
    columns : mapping of str to ndarray of shape (n,)
        Columns of numbers or text, all of one length.
    digits : int, default=None
        Significant digits of numbers in text; None writes all that matter. Parquet always has all.

    Raises
    ------
    ValueError
        When the name has another ending.
    OSError
        When the file cannot be written.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from skmix.datasets import write_columns
    >>> write_columns(stream := io.BytesIO(), {"a": np.array([1.0, 2.5])})
    >>> stream.getvalue()
    b'a\n1.0\n2.5\n'
    """
    if not isinstance(target, str | os.PathLike):
        _write_text(target, columns, ",", digits)
        return
    path = Path(target)
    kind = check_writable(path)
    with replacing(path) as file:
        if kind == ".parquet":
            write_parquet(file, columns)
        elif kind.endswith(".gz"):
            # No name and no date, so that the same table gives the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                _write_text(packed, columns, "\t" if kind.startswith(".tsv") else ",", digits)
        else:
            _write_text(file, columns, "\t" if kind == ".tsv" else ",", digits)


def check_writable(path: Path) -> str:
    """Return how the name of a table ends, or say how it may."""
    name = path.name.lower()
    for ending in WRITABLE:
        if name.endswith(ending):
            return ending
    raise ValueError(f"{path}: the name of a table must end in {', '.join(WRITABLE)}.")


def _write_text(
    file: IO[bytes] | gzip.GzipFile, columns: Mapping[str, NDArray[Any]], separator: str, digits: int | None
) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(columns)
    n_rows = max((len(values) for values in columns.values()), default=0)
    for first in range(0, n_rows, _ROWS_AT_A_TIME):
        part = slice(first, first + _ROWS_AT_A_TIME)
        writer.writerows(zip(*(_told(values[part], digits) for values in columns.values()), strict=True))
    # The file stays its owner's to close.
    text.detach()


def _told(values: NDArray[Any], digits: int | None) -> list[Any]:
    """Return values as they are written; a number that is missing is an empty place."""
    if values.dtype.kind != "f":
        return ["" if value is None else value for value in values.tolist()]
    if digits is None:
        return ["" if np.isnan(value) else value for value in values.tolist()]
    return ["" if np.isnan(value) else f"{value:.{digits}g}" for value in values.tolist()]
