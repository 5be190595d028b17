"""What one pass over blocks of rows tells before a fit: their frame, their labels, and a sample for starts.

Surveys of disjoint rows merge, like statistics do, and it does not matter in what order: the sample because
every row draws a key from a generator of its block, and the smallest keys of each label stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..compute.threads import workers
from ..covariances import Structure
from ..model import FloatArray, IntArray
from .blocks import Block, Blocks
from .frame import Frame
from .moments import Moments, merge_moments, moments_of

_CHUNK = 1 << 14
# Rows of each label that are kept for the starts: as many as this, and as these numbers in all allow.
_MOST_ROWS = 1 << 14
_FEWEST_ROWS = 64
_SAMPLED = 1 << 22


@dataclass(frozen=True)
class Sample:
    """Some rows of each label, chosen at random, in the order of the data.

    Attributes
    ----------
    X : ndarray of shape (s, M)
        The rows.
    labels : ndarray of shape (s,)
        Their labels, as indices into those of the survey.
    weights : ndarray of shape (s,) or None
        Their weights.
    keys : ndarray of shape (s,)
        What they drew: the rows with the smallest keys of each label stay.
    places : ndarray of shape (s, 2)
        Block and row they come from.
    """

    X: np.ndarray
    labels: IntArray
    weights: FloatArray | None
    keys: FloatArray
    places: IntArray

    def keep(self, which: IntArray) -> Sample:
        """Return the rows that `which` selects."""
        weights = None if self.weights is None else self.weights[which]
        return Sample(self.X[which], self.labels[which], weights, self.keys[which], self.places[which])


@dataclass(frozen=True)
class Survey:
    """What a pass over rows that say something (see `Block.telling`) found.

    Attributes
    ----------
    n_rows : int
        Number of rows.
    n_empty : int
        Rows, with a weight, that have no value.
    moments : Moments
        Of each feature.
    gaps : bool
        Whether values are missing.
    labels : ndarray of shape (C,) or None
        The labels there are, sorted; None when rows have none, and then C is one.
    n_labelled : ndarray of shape (C,)
        Rows of each label.
    sizes : ndarray of shape (C,)
        The same, or the sum of their weights.
    observed : ndarray of shape (C, M)
        The same of each feature's values.
    sample : Sample
        Rows for the starts.
    """

    n_rows: int
    n_empty: int
    moments: Moments
    gaps: bool
    labels: np.ndarray | None
    n_labelled: IntArray
    sizes: FloatArray
    observed: FloatArray
    sample: Sample

    def take(self, columns: Sequence[int]) -> Survey:
        """Return the survey of some of the features of rows without gaps."""
        assert not self.gaps
        chosen = list(columns)
        return replace(
            self,
            moments=self.moments.take(chosen),
            observed=self.observed[:, chosen],
            sample=replace(self.sample, X=self.sample.X[:, chosen]),
        )

    def coded(self, classes: np.ndarray) -> Survey:
        """Return the survey of the same rows with classes for labels."""
        if self.labels is None:
            return self
        place = {label: code for code, label in enumerate(classes.tolist())}
        codes = np.array([place.get(label, -1) for label in self.labels.tolist()], dtype=np.int64)
        present = np.unique(codes)
        which = np.searchsorted(present, codes)
        into = (which == np.arange(len(present))[:, None]).astype(np.float64)
        return replace(
            self,
            labels=present,
            n_labelled=(into @ self.n_labelled).astype(np.int64),
            sizes=into @ self.sizes,
            observed=into @ self.observed,
            sample=replace(self.sample, labels=which[self.sample.labels]),
        )

    def frame(self, structure: Structure, columns: Sequence[int] | None = None) -> Frame:
        """Return the rows' frame; `columns` are for error messages."""
        return self.moments.frame(structure, columns)

    def class_sums(self, values: FloatArray, n_classes: int) -> FloatArray:
        """Return what coded labels have (C, …) by class (n_classes, …); rows without a label are the last."""
        if self.labels is None:
            return values
        sums = np.zeros((n_classes, *values.shape[1:]))
        sums[self.labels.astype(np.int64)] = values
        return sums


@dataclass(frozen=True)
class Look:
    """Surveys a block.

    Attributes
    ----------
    seed : int
        Seed of the sample.
    """

    seed: int = 0

    def __call__(self, block: Block) -> Survey:
        """Return the block's survey."""
        # Threads of BLAS would change the rounding from machine to machine.
        with workers(1):
            return self._look(block)

    def _look(self, block: Block) -> Survey:
        check_block(block)
        n_empty = _count_empty(block)
        block = block.telling()
        n_rows, n_features = block.X.shape
        weights = block.weights
        moments = moments_of(block.X[:_CHUNK], None if weights is None else weights[:_CHUNK])
        for a in range(_CHUNK, n_rows, _CHUNK):
            own = None if weights is None else weights[a : a + _CHUNK]
            moments = merge_moments(moments, moments_of(block.X[a : a + _CHUNK], own))
        labels, index = None, np.zeros(n_rows, dtype=np.int64)
        if block.y is not None:
            labels, index = number(block.y, block.names)
        n_labels = 1 if labels is None else len(labels)
        n_labelled = np.bincount(index, minlength=n_labels)
        sizes = np.bincount(index, weights=weights, minlength=n_labels).astype(np.float64)
        missing = np.isnan(block.X)
        observed = np.repeat(sizes[:, None], n_features, axis=1)
        for j in np.flatnonzero(missing.any(axis=0)):
            seen = ~missing[:, j]
            own = None if weights is None else weights[seen]
            observed[:, j] = np.bincount(index[seen], weights=own, minlength=n_labels)
        keys = np.random.default_rng([self.seed, block.number]).random((n_rows,))
        kept = smallest(keys, index, rows_of_label(n_labels, n_features))
        places = np.column_stack([np.full(len(kept), block.number), kept])
        drawn = None if weights is None else weights[kept]
        sample = Sample(block.X[kept], index[kept], drawn, keys[kept], places)
        gaps = bool(missing.any())
        return Survey(n_rows, n_empty, moments, gaps, labels, n_labelled, sizes, observed, sample)


def merge_surveys(a: Survey, b: Survey) -> Survey:
    """Return the survey of the rows of both."""
    if (a.labels is None) != (b.labels is None):
        raise ValueError("Some blocks have labels and others have none.")
    labels, index_a, index_b = None, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    if a.labels is not None and b.labels is not None:
        if len(a.labels) and len(b.labels) and kind_of(a.labels) != kind_of(b.labels):
            raise ValueError(
                f"Labels differ in kind between blocks: {a.labels[:3].tolist()} … are {a.labels.dtype}, "
                f"{b.labels[:3].tolist()} … are {b.labels.dtype}. Give all of them one type."
            )
        given = [part for part in (a.labels, b.labels) if len(part)] or [a.labels]
        labels = number(np.concatenate(given))[0]
        index_a, index_b = np.searchsorted(labels, a.labels), np.searchsorted(labels, b.labels)
    n_labels = 1 if labels is None else len(labels)

    def total(of_a: np.ndarray, of_b: np.ndarray) -> np.ndarray:
        sums = np.zeros((n_labels, *of_a.shape[1:]), dtype=of_a.dtype)
        sums[index_a] += of_a
        sums[index_b] += of_b
        return sums

    return Survey(
        a.n_rows + b.n_rows,
        a.n_empty + b.n_empty,
        merge_moments(a.moments, b.moments),
        a.gaps or b.gaps,
        labels,
        total(a.n_labelled, b.n_labelled),
        total(a.sizes, b.sizes),
        total(a.observed, b.observed),
        _merge_samples(
            replace(a.sample, labels=index_a[a.sample.labels]),
            replace(b.sample, labels=index_b[b.sample.labels]),
            n_labels,
        ),
    )


def _merge_samples(a: Sample, b: Sample, n_labels: int) -> Sample:
    """Return the smallest keys of both, in the order of the data."""
    weights = None
    if a.weights is not None or b.weights is not None:
        weights = np.concatenate(
            [np.ones(len(part.X)) if part.weights is None else part.weights for part in (a, b)]
        )
    both = Sample(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.labels, b.labels]),
        weights,
        np.concatenate([a.keys, b.keys]),
        np.concatenate([a.places, b.places]),
    )
    kept = smallest(both.keys, both.labels, rows_of_label(n_labels, a.X.shape[1]))
    return both.keep(kept[np.lexsort(both.places[kept].T[::-1])])


def rows_of_label(n_labels: int, n_features: int) -> int:
    """Return how many rows of each label a sample keeps: never more when there are more labels."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _SAMPLED // (max(1, n_labels) * n_features)))


def smallest(keys: FloatArray, labels: IntArray, n_kept: int) -> IntArray:
    """Return the indices, increasing, of the `n_kept` smallest keys (n,) of each label (n,)."""
    if len(keys) <= n_kept:
        return np.arange(len(keys))
    order = np.lexsort([keys, labels])
    counts = np.bincount(labels)
    rank = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < n_kept])


def number(labels: np.ndarray, names: np.ndarray | None = None) -> tuple[np.ndarray, IntArray]:
    """Return the sorted labels there are, and each label (n,), or index of a name, as an index into them."""
    if names is not None:
        present = np.flatnonzero(np.bincount(labels, minlength=len(names)))
        found, which = number(names[present])
        index_of = np.zeros(len(names), dtype=np.int64)
        index_of[present] = which
        return found, index_of[labels]
    if labels.dtype.kind == "f" and np.any(labels != np.floor(labels)):
        wrong = labels[labels != np.floor(labels)][0]
        raise ValueError(f"Unknown label type: {wrong} is no label. Labels are whole numbers or names.")
    try:
        found, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"Labels cannot be sorted: {error}. Is one of them missing?") from None
    return found, index


def kind_of(labels: np.ndarray) -> str:
    """Return in one letter what labels are; whole numbers are alike, however they are stored."""
    kind: str = labels.dtype.kind
    return "n" if kind in "iuf" else kind


def check_block(block: Block) -> None:
    """Refuse blocks whose parts do not belong together, infinite values and bad weights."""
    n_rows = len(block.X)
    for name, part in (("labels", block.y), ("weights", block.weights)):
        if part is not None and part.shape != (n_rows,):
            raise ValueError(f"Block {block.number} has {n_rows} rows, but {name} of shape {part.shape}.")
    for a in range(0, n_rows, _CHUNK):
        infinite = np.isinf(block.X[a : a + _CHUNK])
        if infinite.any():
            i, j = np.argwhere(infinite)[0]
            raise ValueError(
                f"X contains infinity: feature {j} in row {a + i} of block {block.number}. "
                "NaN marks missing values; remove what is infinite."
            )
    if block.weights is not None:
        bad = ~(np.isfinite(block.weights) & (block.weights >= 0))
        if bad.any():
            raise ValueError(
                f"sample_weight must be finite and not negative, got {block.weights[bad][0]} "
                f"in block {block.number}."
            )


def _count_empty(block: Block) -> int:
    """Return the number of rows, with a weight, that have no value."""
    empty = np.isnan(block.X).all(axis=1)
    if block.weights is not None:
        empty &= block.weights > 0
    return int(empty.sum())


def survey(blocks: Blocks, seed: int = 0) -> Survey:
    """Look at all blocks once."""
    return blocks.reduce(Look(seed), merge_surveys)
