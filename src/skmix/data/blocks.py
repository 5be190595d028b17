"""Blocks of rows with labels, which become class codes when all labels are known.

One pass over the blocks collects their labels and the summary of the rows, by class code.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from operator import add
from typing import Protocol, Self

import numpy as np

from ..engine.rows.blocks import Answer, Block, Blocks, summarise_block
from ..engine.rows.summary import Summary
from .labels import distinct_labels, encode
from .recipe import Preparation


@dataclass(frozen=True)
class LabelledBlock(Block):
    """A block whose rows have labels and, when it is coded, class codes instead."""

    labels: np.ndarray | None = None  # (n,): NaN or None for rows without one; with names, indices into these
    names: np.ndarray | None = None  # (C,): the labels that indices stand for, which sort faster

    def rows(self, which: np.ndarray | slice) -> Self:
        """The rows that `which` selects."""
        selected = super().rows(which)
        return selected if self.labels is None else replace(selected, labels=self.labels[which])

    def all_labels(self) -> np.ndarray:
        """The label (n,) of each row."""
        assert self.labels is not None
        return self.labels if self.names is None else self.names[self.labels]

    def coded(self, classes: np.ndarray) -> Self:
        """The block with class codes, which are indices into the sorted `classes` (L,)."""
        if self.labels is None:
            return self
        y = encode(self.labels, classes) if self.names is None else encode(self.names, classes)[self.labels]
        return replace(self, y=y, labels=None, names=None)

    def check(self) -> None:
        """Refuse parts of different lengths and bad weights."""
        self.check_length("labels", self.labels)
        super().check()


def read_ahead(blocks: Iterator[LabelledBlock]) -> Generator[LabelledBlock, None, None]:
    """Yield blocks while a thread reads the next one."""
    with ThreadPoolExecutor(1, thread_name_prefix="skmix-reader") as pool:
        following = pool.submit(next, blocks, None)
        try:
            while (block := following.result()) is not None:
                following = pool.submit(next, blocks, None)
                yield block
        finally:
            following.cancel()


class LabelledBlocks(Blocks, Protocol):
    """Rows in blocks with labels, from files or a cluster."""

    @property
    def name(self) -> str:
        """Name of the rows in errors."""

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""

    @property
    def preparation(self) -> Preparation | None:
        """How values are transformed and encoded while they are read; None if they are not."""

    def reduce(
        self, work: Callable[[LabelledBlock], Answer], merge: Callable[[Answer, Answer], Answer]
    ) -> Answer:
        """The merged answers of all blocks; `merge` is associative and must not change them."""

    def coded(self, classes: np.ndarray) -> LabelledBlocks:
        """The blocks for the passes of a fit, with class codes: indices into the sorted `classes` (L,)."""


@dataclass(frozen=True)
class LabelSummary:
    """The labels of all rows and the summary of the rows, whose class codes are indices into the labels."""

    labels: np.ndarray | None  # (C,): sorted; None for rows without labels
    summary: Summary

    def __add__(self, other: LabelSummary) -> LabelSummary:
        """The summary of the rows of both; see `Summary`."""
        if self.labels is None and other.labels is None:
            return LabelSummary(None, self.summary + other.summary)
        if self.labels is None or other.labels is None:
            raise ValueError(
                "Some blocks have labels and others have none. Give labels for all blocks or for none."
            )
        parts = [labels for labels in (self.labels, other.labels) if len(labels)] or [self.labels]
        if len(set(map(_kind_of, parts))) > 1:
            kinds = " and ".join(f"{labels[:3].tolist()} … ({labels.dtype})" for labels in parts)
            raise ValueError(f"Labels differ in kind between blocks: {kinds}. Give all of them one type.")
        labels = np.unique(np.concatenate(parts))
        return LabelSummary(labels, self.coded(labels) + other.coded(labels))

    def coded(self, classes: np.ndarray) -> Summary:
        """The summary with indices into the sorted `classes` (L,) as class codes, −1 for other labels."""
        if self.labels is None:
            return self.summary
        return self.summary.recoded(encode(self.labels, classes), len(classes))


def summarise_labels(blocks: LabelledBlocks, seed: int, device: str | None = None) -> LabelSummary:
    """The labels and the summary of all blocks, with a random sample that depends on the seed.

    Moments are computed on a `device` if one is given.
    """
    total = blocks.reduce(partial(_summarise, seed, device), add)
    return replace(total, summary=total.summary.trimmed())


def _summarise(seed: int, device: str | None, block: LabelledBlock) -> LabelSummary:
    if block.labels is None:
        return LabelSummary(None, summarise_block(seed, device, block))
    block.check()
    n_rows = len(block.weighted().X)
    block = block.informative()
    assert block.labels is not None
    labels, codes = distinct_labels(block.labels, block.names)
    summary = summarise_block(seed, device, replace(block, y=codes, labels=None, names=None))
    return LabelSummary(labels, replace(summary, n_empty=n_rows - len(block.X)))


def _kind_of(labels: np.ndarray) -> str:
    """The kind of labels as one letter, the same for all numeric types."""
    kind: str = np.array(labels[:1].tolist()).dtype.kind
    return "n" if kind in "iuf" else kind
