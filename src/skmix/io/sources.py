"""Rows of a file as blocks, read in order in every pass, one block ahead of the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from ..engine.compute.blocks import Answer, Block
from .arrays import Stamp, Values, check_stamp, values_of


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Source(ABC):
    """Rows that are read in blocks; `open_rows` makes one."""

    name: str
    n_rows: int
    chunk_rows: int
    # State of the files when they were opened.
    stamps: dict[Path, Stamp]
    # Labels (N,) and weights (N,) that are not in the same file as the rows.
    labels: Values | None = None
    weights: Values | None = None
    # If given, labels are encoded as indices into these classes (L,) in the first pass, and the codes of each
    # block are cached by its number.
    classes: np.ndarray | None = None
    codes: dict[int, np.ndarray] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<{self.n_rows} rows of {self.name}>"

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number M of features."""

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        return None

    @property
    def named(self) -> bool:
        """Whether features can be selected by name."""
        return False

    @property
    def has_labels(self) -> bool:
        """Whether the rows have labels."""
        return self.labels is not None

    @property
    def shape(self) -> tuple[int, int]:
        """Number of rows and of features."""
        return self.n_rows, self.n_features

    @abstractmethod
    def read(self, *, labels: bool) -> Iterator[Block]:
        """Yield the blocks in order; `labels` is whether to read labels stored in the same file."""

    @abstractmethod
    def take(self, columns: Sequence[int]) -> Self:
        """Return the rows with some of their features, in the same blocks."""

    def select(self, names: Sequence[str]) -> Self:
        """Return the rows with the features of these names, in this order."""
        raise ValueError(f"{self.name} has no feature names; select columns by index.")

    def labelled(self, y: Any) -> Self:
        """Return the rows with labels: an array, its file or, in Parquet files, the name of a column."""
        return replace(self, labels=self._for_each_row(y, "y", "labels"))

    def weighted(self, weights: Any) -> Self:
        """Return the rows with weights, given like labels."""
        values = self._for_each_row(weights, "sample_weight", "weights")
        if values.dtype.kind not in "fiub":
            raise ValueError(f"{values.name} is of type {values.dtype}; weights must be numbers.")
        return replace(self, weights=values)

    def unlabelled(self) -> Self:
        """Return the rows without labels and weights."""
        return replace(self, labels=None, weights=None, classes=None, codes={})

    def coded(self, classes: np.ndarray) -> Self:
        """Return the rows with labels encoded as indices into `classes` (L,)."""
        return replace(self, classes=classes, codes={})

    def _for_each_row(self, given: Any, name: str, what: str) -> Values:
        values = values_of(given, name)
        if values.shape != (self.n_rows,):
            raise ValueError(
                f"{self.name} has {self.n_rows} rows, but {values.name} has shape {values.shape}: "
                f"give {what} for each row."
            )
        return values

    def blocks(self) -> Generator[Block, None, None]:
        """Yield all blocks in order."""
        for opened in (self, self.labels, self.weights):
            for path, before in opened.stamps.items() if opened is not None else ():
                check_stamp(path, before)
        return read_ahead(self._blocks())

    def _blocks(self) -> Iterator[Block]:
        # After an interrupted pass, only some blocks have codes.
        known = self.labels is not None or sum(map(len, self.codes.values())) == self.n_rows
        start = 0
        for block in self.read(labels=not known):
            stop = start + len(block.X)
            if self.weights is not None:
                block = replace(block, weights=self.weights.read(start, stop).astype(np.float64))
            yield self._with_labels(block, start, stop)
            start = stop

    def _with_labels(self, block: Block, start: int, stop: int) -> Block:
        """Return a block with its labels, coded if classes are given."""
        if not self.has_labels:
            return block
        if block.number not in self.codes:
            if self.labels is not None:
                block = replace(block, y=self.labels.read(start, stop))
            if self.classes is None:
                return block
            coded = block.coded(self.classes).y
            assert coded is not None
            self.codes[block.number] = coded
        return replace(block, y=self.codes[block.number], names=None)

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged in order."""
        # Closed immediately if the work fails, so that reading stops.
        with closing(self.blocks()) as blocks:
            answer = work(next(blocks))
            for block in blocks:
                answer = merge(answer, work(block))
        return answer


def read_ahead(blocks: Iterator[Block]) -> Generator[Block, None, None]:
    """Yield blocks while a thread reads the next one."""
    with ThreadPoolExecutor(1, thread_name_prefix="skmix-reader") as pool:
        coming = pool.submit(next, blocks, None)
        try:
            while (block := coming.result()) is not None:
                coming = pool.submit(next, blocks, None)
                yield block
        finally:
            coming.cancel()
