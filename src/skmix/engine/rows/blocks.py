"""Rows in blocks: parts of a file, or partitions on a cluster.

Statistics of disjoint rows add, so one `reduce` over the blocks is all that a summary or an E-step needs:
apply a function to every block and merge the results. Both functions can be pickled and sent to where blocks
are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from ..measured import values_of
from ..numbers import Array, FloatArray, IntArray, namespace, pick, send, to_numpy
from ..records import Factor, Parameters, Setting
from ..threads import one_blas_thread
from .source import ArrayRows, Centres, Expected, GapRows, MemoryRows, ReduceClasses, RowSource, Selection
from .summary import Sample, Summary, sampled_of_class, summarise

Answer = TypeVar("Answer")
# Rows checked for infinite values at a time.
_CHECKED = 1 << 14
# Numbers in the scatters of blocks that are kept between passes; those of other blocks are computed again.
_SCATTERS = 1 << 22


@dataclass(frozen=True)
class Block:
    """Some of the rows, in memory."""

    X: Array  # (n, M): rows, float64 or float32, also on a device; NaN where a value is missing
    y: IntArray | None = None  # (n,): class of each row, 0 … L − 1, and −1 for none; None for one class
    weights: FloatArray | None = None  # (n,): weights of the rows; None when all are one
    number: int = 0  # of the block, the same in every pass; seeds its draws and keys its cache

    def rows(self, which: np.ndarray | slice) -> Self:
        """Return the rows that `which` selects."""
        y = None if self.y is None else self.y[which]
        weights = None if self.weights is None else self.weights[which]
        return replace(self, X=pick(self.X, which), y=y, weights=weights)

    def with_features(self, columns: Sequence[int]) -> Self:
        """Return some of the features."""
        return replace(self, X=self.X[:, list(columns)])

    @property
    def row_weights(self) -> FloatArray:
        """Weights (n,), ones if none were given."""
        return np.ones(len(self.X)) if self.weights is None else self.weights

    @property
    def codes(self) -> IntArray:
        """Class codes (n,) of rows that have them."""
        assert self.y is not None
        return self.y

    def labelled(self) -> Self:
        """Return the rows that have a class."""
        has_class = None if self.y is None else self.y >= 0
        return self if has_class is None or has_class.all() else self.rows(np.flatnonzero(has_class))

    def weighted(self) -> Self:
        """Return the rows of positive weight."""
        if self.weights is None or self.weights.all():
            return self
        return self.rows(np.flatnonzero(self.weights))

    def informative(self) -> Self:
        """Return the rows of positive weight that have at least one value."""
        block, xp = self.weighted(), namespace(self.X)
        values = values_of(block.X)
        if bool(xp.any(xp.isnan(values))):
            has_value = ~to_numpy(xp.all(xp.isnan(values), axis=1))
            block = block if has_value.all() else block.rows(np.flatnonzero(has_value))
        return block

    def check(self) -> None:
        """Refuse parts of different lengths and bad weights."""
        self.check_length("labels", self.y)
        self.check_length("weights", self.weights)
        if self.weights is not None:
            is_bad = ~(np.isfinite(self.weights) & (self.weights >= 0))
            if is_bad.any():
                raise ValueError(
                    f"sample_weight must be finite and not negative, got {self.weights[is_bad][0]} "
                    f"in block {self.number}."
                )

    def check_length(self, name: str, values: np.ndarray | None) -> None:
        """Refuse labels or weights unless there is one for each row."""
        n_rows = len(self.X)
        if values is not None and values.shape != (n_rows,):
            raise ValueError(
                f"Block {self.number} has {n_rows} rows, but {name} of shape {values.shape}. In Dask "
                "they must have the same chunks: make them from one, or call compute_chunk_sizes()."
            )

    def refuse_infinite(self) -> None:
        """Refuse infinite values."""
        for a in range(0, len(self.X), _CHECKED):
            is_infinite = np.isinf(self.X[a : a + _CHECKED])
            if is_infinite.any():
                i, j = np.argwhere(is_infinite)[0]
                raise ValueError(
                    f"X contains infinity: feature {j} in row {a + i} of block {self.number}. "
                    "NaN marks missing values; remove infinite ones."
                )


class Blocks(Protocol):
    """Rows in blocks."""

    @property
    def runs_elsewhere(self) -> bool:
        """Whether other processes or threads, which share out the cores, work on the blocks."""

    @property
    def n_features(self) -> int:
        """Number M of features."""

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the merged answers of all blocks; `merge` is associative and must not change them."""

    def with_features(self, columns: list[int]) -> Blocks:
        """Return the blocks with some of their features."""


class BlockRows(RowSource):
    """Rows in blocks; rows of weight zero or without any value are skipped."""

    def __init__(self, blocks: Blocks, summary: Summary | None = None, seed: int = 0) -> None:
        super().__init__(blocks.n_features, summary)
        self.blocks, self._seed = blocks, seed
        self.runs_elsewhere = blocks.runs_elsewhere

    def _summarise(self) -> Summary:
        return summarise_blocks(self.blocks, self._seed)

    def with_features(self, columns: Sequence[int]) -> BlockRows:
        """Return the rows with some of their features; see `RowSource`. With gaps, they get a new summary."""
        summary = None if self.summary.gaps else self.summary.with_features(columns)
        return self._with_blocks(self.blocks.with_features(list(columns)), summary)

    def _with_blocks(self, blocks: Blocks, summary: Summary | None) -> BlockRows:
        """Return a source of the same kind over other blocks."""
        return BlockRows(blocks, summary, self._seed)

    def start_rows(self) -> tuple[np.ndarray, IntArray, FloatArray | None]:
        """Return the sample, its class codes, and weights that correct for the sampling.

        Small classes are sampled more densely than large ones. A sample of all rows keeps their order and
        weights, so that starts are the same as for rows in memory.
        """
        sample, moments, counts = self.summary.sample, self.summary.moments, self.summary.counts
        assert sample is not None
        X, label, weights = sample.X, sample.codes + 1, sample.weights
        if len(X) < self.summary.n_rows:
            rows_behind = counts[label] / np.bincount(label)[label]
            weights = np.where(np.isnan(weights), rows_behind, weights * rows_behind)
        unseen = np.isnan(X).all(axis=0)
        X = np.where(unseen, moments.mean, X).astype(X.dtype) if unseen.any() else X
        return X, sample.codes, None if np.isnan(weights).all() else np.nan_to_num(weights, nan=1.0)

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        work: Callable[[Block], Expected | None]
        if self.summary.gaps:
            work = partial(_expect_with_gaps, (parameters, factor, setting, centres))
        else:
            # Complete rows need the factor alone: do not send the covariances.
            arguments = replace(parameters, covariances=np.empty(0)), factor, setting, centres
            # Scatters stay in the process that computed them: a copy of the empty dictionary goes elsewhere.
            scatters: dict[int, FloatArray] = self._keep(setting.frame, None, dict)
            work = partial(_expect_complete, arguments, self.summary.n_empty > 0, scatters)
        total = self.blocks.reduce(work, _add)
        assert total is not None
        return total

    def by_class(self, selection: Selection | None = None) -> ReduceClasses:
        kind = GapRows if self.summary.gaps else MemoryRows
        return partial(_reduce_classes, self.blocks, kind, selection)


def _expect_complete(
    arguments: tuple[Parameters, Factor, Setting, Centres | None],
    some_empty: bool,
    scatters: dict[int, FloatArray],
    block: Block,
) -> Expected | None:
    """Do the E-step of a block without gaps; None for a block without rows.

    `arguments` are those of `RowSource.expect`; `some_empty` is whether rows may have no value. The block's
    scatter is taken from `scatters`, or added to it for the next pass in this process.
    """
    block = block.informative() if some_empty else block.weighted()
    if not len(block.X):
        return None
    parameters, _, setting, _ = arguments
    rows = MemoryRows(block.X, block.y, block.weights)
    framed = rows.in_frame(setting.frame, parameters.weights.shape[-1])
    if block.number in scatters:
        framed.scatter = scatters[block.number]
    # On a worker of a cluster, BLAS is not limited yet.
    with one_blas_thread():
        expected = rows.expect(*arguments)
    if "scatter" in vars(framed) and len(scatters) * rows.n_features**2 < _SCATTERS:
        scatters[block.number] = framed.scatter
    return expected


def _expect_with_gaps(
    arguments: tuple[Parameters, Factor, Setting, Centres | None], block: Block
) -> Expected | None:
    """Do the E-step of a block that may have gaps; None for a block without rows."""
    block = block.informative()
    if not len(block.X):
        return None
    with one_blas_thread():
        return GapRows(block.X, block.y, block.weights).expect(*arguments)


def _add(a: Expected | None, b: Expected | None) -> Expected | None:
    """Return the sum of statistics about the same origins, leaving both unchanged."""
    if a is None or b is None:
        return b if a is None else a
    return a[0].plus(b[0]), a[1]


def _reduce_classes(
    blocks: Blocks, kind: type[ArrayRows], selection: Selection | None, work: Any, merge: Any, empty: Any
) -> Any:
    """See `ReduceClasses`."""
    return blocks.reduce(partial(_reduce_classes_of, kind, selection, work, merge, empty), merge)


def _reduce_classes_of(
    kind: type[ArrayRows], selection: Selection | None, work: Any, merge: Any, empty: Any, block: Block
) -> Any:
    block = block.informative()
    with one_blas_thread():
        rows = kind(block.X, block.y, block.weights)
        return rows.by_class(selection, block.number)(work, merge, empty)


# ---------------------------------------------------------------- the summary


def summarise_blocks(blocks: Blocks, seed: int = 0) -> Summary:
    """Return the summary of all blocks, with a random sample."""
    return blocks.reduce(partial(summarise_block, seed, None), add).trimmed()


def summarise_block(seed: int, device: str | None, block: Block) -> Summary:
    """Return the summary of a block, with a random sample."""
    block.check()
    n_weighted = len(block.X) if block.weights is None else np.count_nonzero(block.weights)
    block = block.informative()
    X = block.X if device is None else send(block.X, device)
    with np.errstate(invalid="ignore"):  # infinite values are refused when the range is known
        summary = summarise(X, block.y, block.weights)
    if np.isinf([summary.moments.low, summary.moments.high]).any():
        block.refuse_infinite()
    n_rows = len(block.X)
    codes = np.zeros(n_rows, dtype=np.int64) if block.y is None else block.y.astype(np.int64)
    keys = np.random.default_rng([seed, block.number]).random(n_rows)
    places = np.column_stack([np.full(n_rows, block.number), np.arange(n_rows)])
    weights = np.full(n_rows, np.nan) if block.weights is None else block.weights
    sample = Sample(block.X, codes, weights, keys, places)
    sample = sample.smallest(sampled_of_class(summary.counts, block.X.shape[1]))
    return replace(summary, n_empty=int(n_weighted - n_rows), sample=sample)
