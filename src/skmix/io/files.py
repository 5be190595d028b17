"""Opening files and arrays as rows that are read in blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..engine.compute.blocks import Block
from .arrays import (
    Values,
    check_exists,
    is_path,
    is_zarr,
    is_zarr_folder,
    refuse_zarr_group,
    values_at,
    values_of,
)
from .parquet import is_parquet, open_parquet
from .sources import Source

# Large enough that the overhead per block does not matter, small enough that three of them fit in any memory.
BLOCK_BYTES = 1 << 25
# Smaller memory-mapped arrays are treated as arrays in memory: joblib passes such arrays to its workers.
MAPPED_BYTES = 1 << 28


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ArrayRows(Source):
    """The rows of a matrix."""

    values: Values
    # Columns that are features; None for all.
    columns: list[int] | None = None

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.values.shape[1] if self.columns is None else len(self.columns)

    def take(self, columns: Sequence[int]) -> Self:
        """Return the rows with some of their features."""
        return replace(self, columns=[c if self.columns is None else self.columns[c] for c in columns])

    def read(self, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks in order."""
        for number, start in enumerate(range(0, self.n_rows, self.chunk_rows)):
            X = self.values.read(start, min(start + self.chunk_rows, self.n_rows))
            if self.columns is not None:
                X = X[:, self.columns]
            if X.dtype not in (np.float64, np.float32) or not X.dtype.isnative:
                X = X.astype(np.float64)
            yield Block(X, number=number)


def open_rows(
    rows: Any,
    *,
    columns: Sequence[int | str] | None = None,
    label: Any = None,
    weight: Any = None,
    chunk_rows: int | None = None,
) -> Source:
    """Open rows that need not fit in memory, for `fit`, `predict` and other methods.

    Parameters
    ----------
    rows : path, ndarray or zarr.Array
        A Parquet file or a folder of them, a .npy file, a Zarr array or its folder, or an array, which may be
        memory-mapped.
    columns : sequence of str or int, default=None
        The features: names of columns of Parquet files, indices otherwise. None uses all columns except those
        of labels and weights.
    label : str, path or array-like of shape (N,), default=None
        Labels: the name of a column of Parquet files, or an array or its file.
    weight : str, path or array-like of shape (N,), default=None
        Weights of the rows, given like labels.
    chunk_rows : int, default=None
        Rows of a block. Up to three blocks are in memory at a time, since the next one is read while one is
        processed. None means about 32 MB. Zarr arrays are read fastest in multiples of their chunks.

    Returns
    -------
    Source
        Rows to pass to an estimator as X.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixture, open_rows
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [4.9]])
    >>> rows = open_rows(X, label=np.array([0, 0, 1, 1, 1, 0]), chunk_rows=2)
    >>> rows.shape
    (6, 1)
    >>> SharedKernelMixture(2, random_state=0).fit(rows).class_count_
    array([3., 3.])
    """
    whole = isinstance(chunk_rows, (int, np.integer)) and not isinstance(chunk_rows, bool)
    if chunk_rows is not None and not (whole and chunk_rows >= 1):
        raise ValueError(f"chunk_rows must be None or an integer of at least 1, got {chunk_rows!r}.")
    _refuse_lists(rows)
    source = _open(rows, chunk_rows)
    if label is not None:
        source = source.labelled(label)
    if weight is not None:
        source = source.weighted(weight)
    return source if columns is None else _choose(source, columns)


def source_of(X: Any) -> Source | None:
    """Return the rows of a path, a Zarr array or a large mapped array; None for anything else."""
    if isinstance(X, Source):
        return X
    refuse_zarr_group(X, "X")
    _refuse_lists(X)
    mapped = isinstance(X, np.memmap) and getattr(X, "_mmap", None) is not None
    if is_path(X) or is_zarr(X) or (mapped and X.nbytes >= MAPPED_BYTES):
        return open_rows(X)
    return None


def _open(rows: Any, chunk_rows: int | None) -> Source:
    if not is_path(rows):
        return _open_array(values_of(rows, "X"), chunk_rows)
    path = Path(rows)
    check_exists(path)
    if (path.is_dir() and not is_zarr_folder(path)) or (path.is_file() and is_parquet(path)):
        # Count 16 bytes per value, which makes blocks smaller: decoding takes several times their memory.
        return open_parquet(path, partial(_rows_of_block, chunk_rows, 16, 1))
    return _open_array(values_at(path), chunk_rows)


def _open_array(values: Values, chunk_rows: int | None) -> ArrayRows:
    if len(values.shape) != 2:
        raise ValueError(f"{values.name} has shape {values.shape}; expected two dimensions (rows, features).")
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise ValueError(
            f"{values.name} is of type {values.dtype}; features must be numbers of at most 64 bits."
        )
    n_rows, n_features = values.shape
    if not n_rows or not n_features:
        raise ValueError(f"{values.name} is empty: its shape is {values.shape}.")
    chunk_rows = _rows_of_block(chunk_rows, values.dtype.itemsize, values.unit, n_features)
    return ArrayRows(
        name=values.name,
        n_rows=n_rows,
        chunk_rows=min(chunk_rows, n_rows),
        stamps=values.stamps,
        values=values,
    )


def _rows_of_block(chunk_rows: int | None, itemsize: int, unit: int, n_columns: int) -> int:
    """Return the rows of a block: `chunk_rows`, or about `BLOCK_BYTES` in multiples of `unit` rows."""
    if chunk_rows is not None:
        return int(chunk_rows)
    n_rows = max(256, BLOCK_BYTES // (n_columns * max(4, itemsize)))
    return unit * max(1, n_rows // unit)


def _choose(source: Source, columns: Sequence[int | str]) -> Source:
    """Return the rows with the chosen features."""
    if isinstance(columns, str) or not len(columns):
        raise ValueError(f"columns must be a list of at least one column, got {columns!r}.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns must not repeat a column, got {list(columns)}.")
    if source.named:
        if not all(isinstance(name, str) for name in columns):
            raise ValueError(f"Columns of Parquet files are chosen by name, got {list(columns)}.")
        chosen = source.select([str(name) for name in columns])
        assert chosen.feature_names  # the property checks the names
        return chosen
    wrong = [c for c in columns if not isinstance(c, (int, np.integer)) or not 0 <= c < source.n_features]
    if wrong:
        raise ValueError(
            f"columns has {wrong[0]!r}, but {source.name} has columns 0 to {source.n_features - 1}."
        )
    return source.take([int(c) for c in columns])


def _refuse_lists(X: Any) -> None:
    if isinstance(X, (list, tuple)) and len(X) and all(is_path(each) for each in X):
        raise ValueError(
            f"X is a list of {len(X)} strings or paths, such as {str(X[0])!r}. Give a single path: put "
            "Parquet files that belong together in a folder, and give the path of the folder."
        )
