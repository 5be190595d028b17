"""Blocks of rows: a file read piece by piece, or the partitions of a cluster.

Statistics of disjoint rows add, so `reduce` is all that a fit needs: apply a function to every block and
merge the results. Both functions can be pickled, so that they can be sent to where the blocks are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from ..numbers import Array, BoolArray, FloatArray, IntArray, namespace, pick, to_numpy

Answer = TypeVar("Answer")
# Rows checked for infinite values at a time.
_CHECKED = 1 << 14


@dataclass(frozen=True)
class Block:
    """Some of the rows, in memory."""

    X: Array  # (n, M): rows, float64 or float32, also on a device; NaN where a value is missing
    # (n,): labels, NaN or None for rows without one; in encoded blocks the class of each row, 0 … L − 1, and
    # −1 for none. None for one class.
    y: np.ndarray | None = None
    weights: FloatArray | None = None  # (n,): weights of the rows; None when all are one
    number: int = 0  # of the block, the same in every pass; seeds its draws and keys its cache
    names: np.ndarray | None = None  # (C,): if given, y holds indices into these names, which sort faster

    def rows(self, which: np.ndarray | slice) -> Block:
        """Return the rows that `which` selects."""
        y = None if self.y is None else self.y[which]
        weights = None if self.weights is None else self.weights[which]
        return replace(self, X=pick(self.X, which), y=y, weights=weights)

    def with_features(self, columns: Sequence[int]) -> Block:
        """Return some of the features."""
        return replace(self, X=self.X[:, list(columns)])

    @property
    def row_weights(self) -> FloatArray:
        """Weights (n,), ones if none were given."""
        return np.ones(len(self.X)) if self.weights is None else self.weights

    @property
    def codes(self) -> IntArray:
        """Class codes (n,) of an encoded block."""
        assert self.y is not None
        return self.y

    def labelled(self) -> Block:
        """Return the rows of an encoded block that have a class."""
        known = None if self.y is None else self.y >= 0
        return self if known is None or known.all() else self.rows(np.flatnonzero(known))

    def coded(self, classes: np.ndarray) -> Block:
        """Return the block with labels encoded as indices into `classes`."""
        if self.y is None:
            return self
        y = encode(self.y, classes) if self.names is None else encode(self.names, classes)[self.y]
        return replace(self, y=y, names=None)

    def weighted(self) -> Block:
        """Return the rows of positive weight."""
        if self.weights is None or self.weights.all():
            return self
        return self.rows(np.flatnonzero(self.weights))

    def informative(self) -> Block:
        """Return the rows of positive weight that have at least one value."""
        block, xp = self.weighted(), namespace(self.X)
        if bool(xp.any(xp.isnan(block.X))):
            valued = ~to_numpy(xp.all(xp.isnan(block.X), axis=1))
            block = block if valued.all() else block.rows(np.flatnonzero(valued))
        return block

    def check(self, *, values: bool = True) -> None:
        """Refuse parts of different lengths, bad weights and, unless told otherwise, infinite values."""
        n_rows = len(self.X)
        for name, part in (("labels", self.y), ("weights", self.weights)):
            if part is not None and part.shape != (n_rows,):
                raise ValueError(
                    f"Block {self.number} has {n_rows} rows, but {name} of shape {part.shape}. In Dask "
                    "they must have the same chunks: make them from one, or call compute_chunk_sizes()."
                )
        for a in range(0, n_rows if values else 0, _CHECKED):
            infinite = np.isinf(self.X[a : a + _CHECKED])
            if infinite.any():
                i, j = np.argwhere(infinite)[0]
                raise ValueError(
                    f"X contains infinity: feature {j} in row {a + i} of block {self.number}. "
                    "NaN marks missing values; remove infinite ones."
                )
        if self.weights is not None:
            bad = ~(np.isfinite(self.weights) & (self.weights >= 0))
            if bad.any():
                raise ValueError(
                    f"sample_weight must be finite and not negative, got {self.weights[bad][0]} "
                    f"in block {self.number}."
                )


class Blocks(Protocol):
    """Labelled rows in blocks."""

    @property
    def n_features(self) -> int:
        """Number M of features."""

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the merged answers of all blocks; `merge` is associative and must not change them."""

    def coded(self, classes: np.ndarray) -> Blocks:
        """Return the blocks with labels encoded as indices into `classes`."""

    def with_features(self, columns: list[int]) -> Blocks:
        """Return the blocks with some of their features."""


def is_blocks(X: Any) -> bool:
    """Return whether X is rows in blocks, judged by its class: some objects have any attribute."""
    return all(hasattr(type(X), method) for method in ("reduce", "coded", "with_features"))


def is_missing(labels: np.ndarray) -> BoolArray:
    """Return which labels (n,) are NaN, None or pandas.NA: those of rows without a label."""
    if labels.dtype.kind == "f":
        return np.isnan(labels)
    if labels.dtype.kind != "O":
        return np.zeros(len(labels), dtype=bool)
    # Comparing pandas.NA with itself gives neither True nor False.
    return np.array([x is None or type(x).__name__ == "NAType" or x != x for x in labels], dtype=bool)


def without_mask(values: Any, missing: float | None) -> Any:
    """Return a masked array as an ordinary one with `missing`, NaN or None, in place of masked values.

    Anything else is returned unchanged: most functions of NumPy ignore a mask.
    """
    if not isinstance(values, np.ma.MaskedArray):
        return values
    is_masked = np.ma.getmaskarray(values)
    if not is_masked.any():
        return values.data
    plain: np.ndarray = values.data.astype(object if missing is None else np.float64)
    plain[is_masked] = missing
    return plain


def refuse_masked_weights(weights: Any) -> None:
    """Raise ValueError for row weights of which some are masked."""
    if not isinstance(weights, np.ma.MaskedArray):
        return
    n_masked = np.count_nonzero(np.ma.getmaskarray(weights))
    if n_masked:
        raise ValueError(
            f"sample_weight is masked in {n_masked} of {weights.size} rows: give each of them a weight, 0 to "
            "leave the row out."
        )


def distinct_labels(labels: np.ndarray, names: np.ndarray | None = None) -> tuple[np.ndarray, IntArray]:
    """Return the distinct labels (C,), sorted, and each label (n,) as an index into them, −1 if missing.

    With `names`, labels are indices into these.
    """
    if names is not None:
        present = np.flatnonzero(np.bincount(labels, minlength=len(names)))
        index_of = np.zeros(len(names), dtype=np.int64)
        found, index_of[present] = distinct_labels(names[present])
        return found, index_of[labels]
    missing = is_missing(labels)
    index = np.full(len(labels), -1)
    try:
        found, index[~missing] = np.unique(labels[~missing], return_inverse=True)
    except TypeError as error:
        raise ValueError(f"y has labels that cannot be compared with each other: {error}.") from None
    if found.dtype.kind == "f" and np.any(found != np.floor(found)):
        wrong = found[found != np.floor(found)][0]
        raise ValueError(
            f"Unknown label type: {wrong} is not a whole number. Use integers or strings as labels."
        )
    return found, index


def encode(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return labels (n,) as indices into the sorted classes (L,), −1 for others.

    The integer type is the smallest possible: up to 16 bits, NumPy orders rows by class with a radix sort,
    which is ten times faster.
    """
    # One more code, after the last class, stands for rows without a label.
    codes = np.full(len(labels), -1, dtype=np.min_scalar_type(-len(classes) - 1))
    known = ~is_missing(labels)
    own = labels[known]
    found = np.minimum(np.searchsorted(classes, own), len(classes) - 1)
    codes[known] = np.where(classes[found] == own, found, -1)
    return codes
