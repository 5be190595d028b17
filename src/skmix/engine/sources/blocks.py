"""Rows in blocks as a source: every E-step is one `reduce` over the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..compute.blocks import Block, Blocks
from ..compute.threads import one_blas_thread
from ..model import Factor, FloatArray, IntArray, Parameters, Statistics
from .base import Centres, RowSource
from .gaps import GapRows
from .memory import MemoryRows
from .summary import Setting, Summary, draw_sample, merge_summaries, number, summarise

Sums = tuple[Statistics, FloatArray]


@dataclass(frozen=True)
class Summarise:
    """Summarises a block, including a random sample from `seed`."""

    seed: int = 0

    def __call__(self, block: Block) -> Summary:
        """Return the block's summary."""
        block.check()
        empty = np.isnan(block.X).all(axis=1)
        if block.weights is not None:
            empty &= block.weights > 0
        block = block.informative()
        labels, index = None, None
        if block.y is not None:
            labels, index = number(block.y, block.names)
        # With more BLAS threads the rounding would differ between machines.
        with one_blas_thread:
            found = summarise(block.X, index, block.weights)
        if index is None:
            index = np.zeros(len(block.X), dtype=np.int64)
        sample = draw_sample(block.X, index, block.weights, len(found.sizes), self.seed, block.number)
        return replace(found, labels=labels, n_empty=int(empty.sum()), sample=sample)


def summarise_blocks(blocks: Blocks, seed: int = 0) -> Summary:
    """Return the summary of all blocks."""
    return blocks.reduce(Summarise(seed), merge_summaries)


class BlockRows(RowSource):
    """Rows in blocks, with encoded labels; rows of weight zero or without any value are skipped."""

    def __init__(
        self, blocks: Blocks, summary: Summary | None = None, seed: int = 0, empty: bool = False
    ) -> None:
        self.blocks = blocks
        self._empty = empty  # whether rows may have no value in any of the features
        self.n_features = blocks.n_features
        self._seed = seed
        self._summary = summary

    @property
    def summary(self) -> Summary:  # type: ignore[override]
        """Data summary of the rows."""
        if self._summary is None:
            self._summary = summarise_blocks(self.blocks, self._seed)
        return self._summary

    def coded(self, classes: np.ndarray) -> BlockRows:
        """Return the rows with labels encoded as indices into `classes`."""
        return BlockRows(self.blocks.coded(classes), self.summary.coded(classes), self._seed, self._empty)

    def take(self, columns: Sequence[int]) -> BlockRows:
        """Return some of the features; with gaps, a new summary leaves out rows that have none of them."""
        summary = None if self.summary.gaps else self.summary.take(columns)
        return BlockRows(self.blocks.take(list(columns)), summary, self._seed, self.summary.gaps)

    def start_rows(self) -> tuple[np.ndarray, IntArray, FloatArray | None]:
        """Return the sample, its class codes, and weights that correct for the sampling."""
        return self.summary.start_rows()

    def expect(
        self,
        parameters: Parameters,
        factor: Factor,
        setting: Setting,
        centres: Centres | None = None,
        moments: bool = True,
    ) -> Sums:
        """Do the E-step; see `RowSource`."""
        work = Expect(parameters, factor, setting, self.summary.gaps, centres, moments, self._empty)
        return self.blocks.reduce(work, add)


@dataclass(frozen=True)
class Expect:
    """The E-step of a block: that of rows in memory."""

    parameters: Parameters  # as for `RowSource.expect`
    factor: Factor  # as for `RowSource.expect`
    setting: Setting  # as for `RowSource.expect`
    gaps: bool  # whether any block has gaps: all blocks must take moments about the same origins
    centres: Centres | None  # as for `RowSource.expect`
    moments: bool  # as for `RowSource.expect`
    empty: bool = False  # whether rows may have no value at all

    def __call__(self, block: Block) -> Sums:
        """Return the statistics of a block, and the origins of its moments."""
        if self.gaps or self.empty or block.weights is not None:
            block = block.informative()
        if not len(block.X):
            return self._nothing()
        kind: Any = GapRows if self.gaps else MemoryRows
        source = kind(block.X, block.y, block.weights)
        # On a worker of a cluster, BLAS is not limited yet.
        with one_blas_thread:
            found: Sums = source.expect(
                self.parameters, self.factor, self.setting, self.centres, self.moments
            )
        return found

    def _nothing(self) -> Sums:
        """Return the statistics of an empty block; NaN origins are replaced by those of another block."""
        shape, n_classes = self.parameters.means.shape, self.parameters.weights.shape[-1]
        n_sums = self.setting.structure.n_sums(shape[-1])
        none = Statistics(
            np.zeros((shape[0], n_classes)),
            np.zeros((*shape[:2], n_classes)),
            np.zeros(shape),
            np.zeros((*shape[:2], n_sums)),
        )
        return none, np.full(shape, np.nan)


def add(a: Sums, b: Sums) -> Sums:
    """Return the sum, leaving both inputs unchanged: a cluster may need them again."""
    (left, origins), (right, others) = a, b
    total = Statistics(
        left.log_likelihood + right.log_likelihood,
        left.mass + right.mass,
        left.first + right.first,
        left.second + right.second,
    )
    return total, np.where(np.isnan(origins), others, origins)
