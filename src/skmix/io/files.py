"""Rows of a file as blocks: read in order, pass after pass, the next block while one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.compute.blocks import Answer, Block
from .parquet import ParquetReader, is_parquet, parquet_reader
from .readers import Reader, array_reader, check_chunk_rows, is_path, read_ahead
from .values import Values, check_exists, is_zarr, is_zarr_folder, refuse_groups, values_at, values_of

# Mapped arrays below this many bytes are read like any array: workers of joblib are handed small ones.
MAPPED_BYTES = 1 << 28


@dataclass(frozen=True, eq=False)
class Source:
    """Rows that are read in blocks; `open_rows` makes one.

    Attributes
    ----------
    reader : Reader
        Reads the rows.
    labels, weights : Values or None
        Labels and weights of the rows, when they are not in the same file.
    columns : list of int or None
        Features that are used; None uses all.
    classes : ndarray of shape (L,) or None
        When given, blocks have indices into these for labels.
    codes : dict
        The indices of blocks that were read before: labels are looked at once.
    """

    reader: Reader
    labels: Values | None = None
    weights: Values | None = None
    columns: list[int] | None = None
    classes: np.ndarray | None = None
    codes: dict[int, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    @property
    def name(self) -> str:
        """What to call the rows in errors."""
        return self.reader.name

    @property
    def n_rows(self) -> int:
        """Number N of rows."""
        return self.reader.n_rows

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.reader.n_features if self.columns is None else len(self.columns)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.n_rows, self.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        names = self.reader.feature_names
        return names if names is None or self.columns is None else [names[c] for c in self.columns]

    @property
    def named(self) -> bool:
        """Whether features have names to choose them by."""
        return isinstance(self.reader, ParquetReader)

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.labels is not None or self.reader.has_labels

    def blocks(self) -> Generator[Block, None, None]:
        """Yield all blocks in order; each is good until the next is asked for."""
        self.reader.check()
        for values in (self.labels, self.weights):
            if values is not None:
                values.check()
        return read_ahead(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        # A pass that was broken off has left the codes of some blocks only.
        known = self.labels is not None or sum(map(len, self.codes.values())) == self.n_rows
        start = 0
        for block in self.reader.blocks(self.columns, labels=self.reader.has_labels and not known):
            stop = start + len(block.X)
            if self.weights is not None:
                block = replace(block, weights=_read(self.weights, start, stop).astype(np.float64))
            yield self._labelled(block, start, stop)
            start = stop

    def _labelled(self, block: Block, start: int, stop: int) -> Block:
        if not self.has_labels:
            return block
        if block.number in self.codes:
            assert len(self.codes[block.number]) == len(block.X)
            return replace(block, y=self.codes[block.number], names=None)
        if self.labels is not None:
            block = replace(block, y=_read(self.labels, start, stop))
        if self.classes is None:
            return block
        block = block.coded(self.classes)
        assert block.y is not None
        self.codes[block.number] = block.y
        return block

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged in order."""
        # Closed at once when the work fails: the reader must not go on.
        with closing(self.blocks()) as blocks:
            answer = work(next(blocks))
            for block in blocks:
                answer = merge(answer, work(block))
        return answer

    def coded(self, classes: np.ndarray) -> Source:
        """Return the rows with indices into `classes` for labels."""
        return replace(self, classes=classes, codes={})

    def take(self, columns: list[int]) -> Source:
        """Return the rows with some of their features."""
        before = list(range(self.n_features)) if self.columns is None else self.columns
        # Codes are those of the same rows: what one finds serves the other.
        return replace(self, columns=[before[c] for c in columns])

    def select(self, names: Sequence[str]) -> Source:
        """Return the rows with the features of these names, in this order."""
        if not isinstance(self.reader, ParquetReader):
            raise ValueError(f"{self.name} has no feature names; columns are chosen by number.")
        return replace(self, reader=self.reader.select(list(names)), columns=None)

    def labelled(self, y: Any) -> Source:
        """Return the rows with labels: a column's name, or values of their own."""
        if isinstance(self.reader, ParquetReader) and isinstance(y, str):
            return replace(self, reader=self.reader.labelled(y), labels=None)
        return replace(self, labels=self._beside(y, "y", "labels"))

    def weighted(self, weights: Any) -> Source:
        """Return the rows with weights: a column's name, or values of their own."""
        if isinstance(self.reader, ParquetReader) and isinstance(weights, str):
            return replace(self, reader=self.reader.weighted(weights), weights=None)
        values = self._beside(weights, "sample_weight", "weights")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{values.name} is of type {values.dtype}; weights are numbers.")
        return replace(self, weights=values)

    def unlabelled(self) -> Source:
        """Return the rows without their labels and weights."""
        reader = self.reader
        if isinstance(reader, ParquetReader):
            reader = reader.bare()
        return replace(self, reader=reader, labels=None, weights=None, classes=None, codes={})

    def _beside(self, given: Any, name: str, what: str) -> Values:
        values = values_of(given, name)
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"{self.name} has {self.n_rows} rows, but {values.name} has shape {values.shape}: "
                f"one of its {what} belongs to each row."
            )
        return values


def open_rows(
    rows: Any,
    *,
    columns: Sequence[int | str] | None = None,
    label: Any = None,
    weight: Any = None,
    chunk_rows: int | None = None,
) -> Source:
    """Open rows that need not fit into memory, for `fit`, `predict` and the like.

    Parameters
    ----------
    rows : path, ndarray or zarr.Array
        A Parquet file or a folder of them, a .npy file, a Zarr array or its folder, or an array, which may be
        mapped from a file.
    columns : sequence of str or int, default=None
        The features: names of columns of Parquet files, indices otherwise. None takes all, but those of
        labels and weights.
    label : str, path or array-like of shape (N,), default=None
        Labels: the name of a column of Parquet files, or an array or its file.
    weight : str, path or array-like of shape (N,), default=None
        Weights of the rows, given like labels.
    chunk_rows : int, default=None
        Rows that are in memory at a time, twice: while some are worked on, others are read. None takes about
        32 MB. Zarr arrays are read fastest in multiples of their chunks.

    Returns
    -------
    Source
        What estimators take for X.

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
    chunk_rows = check_chunk_rows(chunk_rows)
    reader: Reader
    _refuse_lists(rows)
    if is_path(rows):
        reader = _reader_at(Path(rows), chunk_rows)
    else:
        reader = array_reader(values_of(rows, "X"), chunk_rows)
    source = Source(reader)
    if label is not None:
        source = source.labelled(label)
    if weight is not None:
        source = source.weighted(weight)
    if columns is None:
        return source
    return _choose(source, columns)


def _reader_at(path: Path, chunk_rows: int | None) -> Reader:
    check_exists(path)
    if path.is_dir() and not is_zarr_folder(path):
        return parquet_reader(path, chunk_rows)
    if path.is_file() and is_parquet(path):
        return parquet_reader(path, chunk_rows)
    return array_reader(values_at(path), chunk_rows)


def _choose(source: Source, columns: Sequence[int | str]) -> Source:
    """Return the rows with the chosen features."""
    if isinstance(columns, str) or not len(columns):
        raise ValueError(f"columns must be a list of at least one column, got {columns!r}.")
    if len(set(columns)) < len(columns):
        raise ValueError(f"columns has a column more than once: {list(columns)}.")
    if isinstance(source.reader, ParquetReader):
        if not all(isinstance(name, str) for name in columns):
            raise ValueError(f"Columns of Parquet files are chosen by name, got {list(columns)}.")
        chosen = source.select([str(name) for name in columns])
        assert chosen.feature_names is not None
        return chosen
    wrong = [c for c in columns if not isinstance(c, (int, np.integer)) or not 0 <= c < source.n_features]
    if wrong:
        raise ValueError(
            f"columns has {wrong[0]!r}, but {source.name} has columns 0 to {source.n_features - 1}."
        )
    return source.take([int(c) for c in columns])


def source_of(X: Any) -> Source | None:
    """Return rows that are read in blocks: a path, a Zarr array, a large mapped one; None for any other."""
    if isinstance(X, Source):
        return X
    refuse_groups(X, "X")
    _refuse_lists(X)
    if is_path(X) or is_zarr(X):
        return open_rows(X)
    if isinstance(X, np.memmap) and X.nbytes >= MAPPED_BYTES and getattr(X, "_mmap", None) is not None:
        return open_rows(X)
    return None


def _refuse_lists(X: Any) -> None:
    if isinstance(X, (list, tuple)) and len(X) and all(is_path(each) for each in X):
        raise ValueError(
            f"X is a list of {len(X)} texts or paths, such as {str(X[0])!r}. Give one path: Parquet files "
            "that belong together may lie in one folder, whose path is given."
        )


def _read(values: Values, start: int, stop: int) -> np.ndarray:
    """Return a range of labels or weights, in memory of its own."""
    return values.read(start, stop, np.empty((stop - start) * values.dtype.itemsize, dtype=np.uint8))
