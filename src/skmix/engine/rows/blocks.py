"""Rows in blocks as a source: the summary and every E-step are one `reduce` over the blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..numbers import send
from ..records import Factor, FloatArray, Frame, IntArray, Parameters, Setting
from ..threads import one_blas_thread
from .base import Centres, Expected, GapRows, MemoryRows, RowSource
from .labelled import Block, Blocks, distinct_labels
from .summary import Summary, merge_moments, summarise

# Most rows of a label in the sample for the starts.
_MOST_SAMPLED = 1 << 14
# Fewest rows of a label in it.
_FEWEST_SAMPLED = 64
# Numbers in the whole sample, if that leaves enough rows of each label.
_SAMPLE = 1 << 22
# Numbers in the scatters of blocks that are kept between passes; those of other blocks are computed again.
_SCATTERS = 1 << 22
# Fields of a row in the sample: its label as an index into the summary's arrays, its weight or NaN, a random
# key (the sample has the rows with the smallest keys of each label), and its place in the data.
_RECORD = [("label", "i8"), ("weight", "f8"), ("key", "f8"), ("block", "i8"), ("row", "i8")]


class Scatters(dict[int, tuple[Frame, FloatArray]]):
    """Scatters of blocks in a frame, by the block's number. Pickling drops them: each process has its own."""

    def __reduce__(self) -> tuple[type[Scatters], tuple[()]]:
        return Scatters, ()


class BlockRows(RowSource):
    """Rows in blocks, with encoded labels; rows of weight zero or without any value are skipped."""

    def __init__(self, blocks: Blocks, summary: Summary | None = None, seed: int = 0) -> None:
        self.blocks, self.n_features, self._seed = blocks, blocks.n_features, seed
        self._scatters, self.is_shared_out = Scatters(), getattr(blocks, "is_shared_out", False)
        if summary is not None:
            vars(self)["summary"] = summary

    @cached_property
    def summary(self) -> Summary:  # type: ignore[override]
        """Data summary of the rows."""
        found = summarise_blocks(self.blocks, self._seed)
        return found if found.labels is None else found.coded(np.arange(found.labels.max(initial=0) + 1))

    def with_features(self, columns: Sequence[int]) -> BlockRows:
        """Return the rows with some of their features; see `RowSource`. With gaps, they get a new summary."""
        summary = None if self.summary.gaps else self.summary.with_features(columns)
        return BlockRows(self.blocks.with_features(list(columns)), summary, self._seed)

    def start_rows(self) -> tuple[np.ndarray, IntArray, FloatArray | None]:
        """Return the sample, its class codes, and weights that correct for the sampling.

        Small classes are sampled more densely than large ones. A sample of all rows keeps their order and
        weights, so that starts are the same as for rows in memory.
        """
        assert self.summary.sample is not None
        (X, drawn), moments, counts = self.summary.sample, self.summary.moments, self.summary.counts
        label, weights = drawn["label"], drawn["weight"]
        if len(X) < self.summary.n_rows:
            share = counts[label] / np.bincount(label)[label]
            weights = np.where(np.isnan(weights), share, weights * share)
        unseen = np.isnan(X).all(axis=0)
        X = np.where(unseen, moments.mean * moments.unit, X).astype(X.dtype) if unseen.any() else X
        return X, label - 1, None if np.isnan(weights).all() else np.nan_to_num(weights, nan=1.0)

    def expect(
        self, parameters: Parameters, factor: Factor, setting: Setting, centres: Centres | None = None
    ) -> Expected:
        some_empty = self.summary.gaps or self.summary.n_empty > 0
        kind: Any = GapRows
        if not self.summary.gaps:
            # Complete rows need the factor alone: do not send the covariances.
            kind, parameters = MemoryRows, replace(parameters, covariances=np.empty(0))
        arguments = parameters, factor, setting, centres
        work = partial(expect_block, kind, some_empty, arguments, self._scatters)
        found = self.blocks.reduce(work, add)
        assert found is not None
        return found

    def clear_cache(self) -> None:
        self._scatters.clear()


def expect_block(
    kind: Any, some_empty: bool, arguments: tuple[Any, ...], scatters: Scatters, block: Block
) -> Expected | None:
    """Return the statistics of a block and the origins of its moments; None for a block without rows.

    All blocks are of one kind, so that their moments have the same origins. `some_empty` is whether rows of
    the blocks may have no value; `arguments` are those of `RowSource.expect`. The block's scatter is
    added to `scatters`, for the next pass in this process.
    """
    block = block.informative() if some_empty else block.weighted()
    if not len(block.X):
        return None
    rows = kind(block.X, block.y, block.weights)
    rows.scatter = scatters.get(block.number)
    # On a worker of a cluster, BLAS is not limited yet.
    with one_blas_thread():
        found: Expected = rows.expect(*arguments)
    if rows.scatter is not None and len(scatters) * rows.n_features**2 < _SCATTERS:
        scatters[block.number] = rows.scatter
    return found


def add(a: Expected | None, b: Expected | None) -> Expected | None:
    """Return the sum, leaving both inputs unchanged."""
    if a is None or b is None:
        return b if a is None else a
    return a[0].plus(b[0]), a[1]


def summarise_blocks(blocks: Blocks, seed: int = 0, device: str | None = None) -> Summary:
    """Return the summary of all blocks, with a random sample; moments are computed on a `device` if given."""
    found = blocks.reduce(partial(summarise_block, seed, device=device), merge_summaries)
    return trimmed(found)


def summarise_block(seed: int, block: Block, device: str | None = None) -> Summary:
    """Return the summary of a block, with a random sample."""
    block.check(values=device is None)
    n_weighted = len(block.X) if block.weights is None else np.count_nonzero(block.weights)
    block = block.informative()
    labels, index = (None, None) if block.y is None else distinct_labels(block.y, block.names)
    found = summarise(block.X if device is None else send(block.X, device), index, block.weights)
    if np.isinf([found.moments.low, found.moments.high]).any():
        block.check()
    label = np.ones(len(block.X), dtype=np.int64) if index is None else index + 1
    keys = np.random.default_rng([seed, block.number]).random(len(label))
    kept = smallest(keys, label, rows_of_label(found.counts, block.X.shape[1]))
    drawn = np.empty(len(kept), dtype=_RECORD)
    drawn["label"], drawn["key"], drawn["block"], drawn["row"] = label[kept], keys[kept], block.number, kept
    drawn["weight"] = np.nan if block.weights is None else block.weights[kept]
    n_empty = int(n_weighted - len(block.X))
    return replace(found, labels=labels, n_empty=n_empty, sample=(block.X[kept], drawn))


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Return the summary of the rows of both, whose sample may be larger than it has to be: see `trimmed`."""
    if (a.labels is None) != (b.labels is None):
        raise ValueError(
            "Some blocks have labels and others have none. Give labels for all blocks or for none."
        )
    labels = None
    if a.labels is not None:
        given = [each for each in (a.labels, b.labels) if each is not None and len(each)]
        if len(set(map(_kind_of, given))) > 1:
            kinds = " and ".join(f"{each[:3].tolist()} … ({each.dtype})" for each in given)
            raise ValueError(f"Labels differ in kind between blocks: {kinds}. Give all of them one type.")
        labels = np.unique(np.concatenate(given or [a.labels]))
        a, b = a.coded(labels), b.coded(labels)
    assert a.sample is not None
    assert b.sample is not None
    X, drawn = (np.concatenate(parts) for parts in zip(a.sample, b.sample, strict=True))
    found = Summary(
        merge_moments(a.moments, b.moments),
        a.counts + b.counts,
        a.sizes + b.sizes,
        a.observed + b.observed,
        labels,
        a.n_empty + b.n_empty,
        (X, drawn),
    )
    # Sorting takes longer than anything else here: do it when half of the sample goes.
    n_labels = np.count_nonzero(found.counts)
    return trimmed(found) if len(X) > 2 * n_labels * rows_of_label(found.counts, X.shape[1]) else found


def trimmed(summary: Summary) -> Summary:
    """Return the summary with no more rows in its sample than it needs, in the order of the data.

    Rows that are left out early would be left out later: more labels leave fewer rows of each.
    """
    assert summary.sample is not None
    X, drawn = summary.sample
    kept = smallest(drawn["key"], drawn["label"], rows_of_label(summary.counts, X.shape[1]))
    kept = kept[np.lexsort([drawn["row"][kept], drawn["block"][kept]])]
    return replace(summary, sample=(X[kept], drawn[kept]))


def _kind_of(labels: np.ndarray) -> str:
    """Return the kind of labels as one letter, the same for all numeric types."""
    kind: str = np.array(labels[:1].tolist()).dtype.kind
    return "n" if kind in "iuf" else kind


def rows_of_label(counts: IntArray, n_features: int) -> int:
    """Return how many rows of each label a sample has at most, given the number of rows of each label."""
    n_labels = max(1, int(np.count_nonzero(counts)))
    return max(_FEWEST_SAMPLED, min(_MOST_SAMPLED, _SAMPLE // (n_labels * n_features)))


def smallest(keys: FloatArray, labels: IntArray, n_kept: int) -> IntArray:
    """Return the indices, increasing, of the `n_kept` smallest keys (n,) of each label (n,)."""
    counts = np.bincount(labels)
    if not len(keys) or counts.max() <= n_kept:
        return np.arange(len(keys))
    order = np.lexsort([keys, labels])
    rank = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < n_kept])
