"""Readers: they yield the rows of arrays, in blocks and in order, in memory that is used again."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..engine.compute.blocks import Block
from .values import Values

# Size of a block: large enough that passing from one to the next costs nothing, and three of them are little.
BLOCK_BYTES = 1 << 25
# The block that is worked on, and the one that is read meanwhile.
_BUFFERS = 2


class Ring:
    """Memory for a few blocks, lent in turn."""

    def __init__(self, length: int = _BUFFERS) -> None:
        self._buffers = [np.empty(0, dtype=np.uint8) for _ in range(length)]
        self._next = 0

    def lend(self, size: int) -> np.ndarray:
        """Return memory of at least so many bytes; what was lent `length` times ago is lent again."""
        index, self._next = self._next, (self._next + 1) % len(self._buffers)
        if self._buffers[index].nbytes < size:
            self._buffers[index] = np.empty(size, dtype=np.uint8)
        return self._buffers[index]


class Reader(Protocol):
    """Rows to be read in blocks."""

    @property
    def name(self) -> str:
        """What to call them in errors."""
        ...

    @property
    def n_rows(self) -> int:
        """Number N of rows."""
        ...

    @property
    def n_features(self) -> int:
        """Number M of features."""
        ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        ...

    @property
    def has_labels(self) -> bool:
        """Whether blocks have labels."""
        ...

    def check(self) -> None:
        """Raise when the rows are not what they were when they were opened."""
        ...

    def blocks(self, columns: Sequence[int] | None, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks, each until the next but one is asked for.

        Parameters
        ----------
        columns : sequence of int or None
            Features to read; None reads all.
        labels : bool
            False when labels are known already and need not be read.
        """
        ...


@dataclass(frozen=True)
class ArrayReader:
    """The rows of a matrix.

    Attributes
    ----------
    values : Values
        The matrix, of shape (N, M).
    chunk_rows : int
        Rows of a block.
    """

    values: Values
    chunk_rows: int
    feature_names: list[str] | None = None
    has_labels: bool = False

    @property
    def name(self) -> str:
        """What to call the rows in errors."""
        return self.values.name

    @property
    def n_rows(self) -> int:
        """Number N of rows."""
        return self.values.shape[0]

    @property
    def n_features(self) -> int:
        """Number M of features."""
        return self.values.shape[1]

    def check(self) -> None:
        """Raise when the array is not what it was."""
        self.values.check()

    def blocks(self, columns: Sequence[int] | None, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks."""
        ring = Ring()
        width = self.n_features * self.values.dtype.itemsize
        for number, start in enumerate(range(0, self.n_rows, self.chunk_rows)):
            stop = min(start + self.chunk_rows, self.n_rows)
            X = self.values.read(start, stop, ring.lend((stop - start) * width))
            if columns is not None:
                X = X[:, list(columns)]
            if X.dtype not in (np.float64, np.float32) or not X.dtype.isnative:
                X = X.astype(np.float64)
            yield Block(X, number=number)


def array_reader(values: Values, chunk_rows: int | None) -> ArrayReader:
    """Return the reader of a matrix, which must be one of numbers."""
    if len(values.shape) != 2:
        raise ValueError(f"{values.name} has shape {values.shape}; rows of features have two dimensions.")
    if values.dtype.kind not in "fiub" or values.dtype.itemsize > 8:
        raise ValueError(
            f"{values.name} is of type {values.dtype}; features are numbers of at most 64 bits. Convert it."
        )
    n_rows, n_features = values.shape
    if not n_rows or not n_features:
        raise ValueError(f"{values.name} is empty: its shape is {values.shape}.")
    if chunk_rows is None:
        chunk_rows = rows_of_block(n_features, values.dtype.itemsize)
        if values.unit > 1:
            # Whole chunks: one that is cut would be read twice.
            chunk_rows = values.unit * max(1, chunk_rows // values.unit)
    return ArrayReader(values, min(chunk_rows, n_rows))


def rows_of_block(n_features: int, itemsize: int) -> int:
    """Return how many rows make a block."""
    return max(256, BLOCK_BYTES // (n_features * max(4, itemsize)))


def read_ahead(blocks: Iterator[Block]) -> Generator[Block, None, None]:
    """Yield blocks while a thread reads the next one."""
    with ThreadPoolExecutor(1, thread_name_prefix="skmix-reader") as pool:
        coming = pool.submit(next, blocks, None)
        try:
            while (block := coming.result()) is not None:
                coming = pool.submit(next, blocks, None)
                yield block
        finally:
            # When the work has failed, what is being read must be over before its memory goes.
            coming.cancel() or coming.exception()


def check_chunk_rows(chunk_rows: Any) -> int | None:
    """Return a number of rows, at least one."""
    if chunk_rows is None:
        return None
    if isinstance(chunk_rows, bool) or not isinstance(chunk_rows, (int, np.integer)) or chunk_rows < 1:
        raise ValueError(f"chunk_rows must be None or an integer of at least 1, got {chunk_rows!r}.")
    return int(chunk_rows)


def is_path(thing: Any) -> bool:
    """Return whether something is the path of a file."""
    return isinstance(thing, (str, os.PathLike))
