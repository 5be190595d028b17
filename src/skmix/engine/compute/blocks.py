"""Rows in blocks: what a file read in pieces and the partitions of a Dask collection have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np

from .arrays import FloatArray

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Block:
    """Some of the rows, in memory.

    Attributes
    ----------
    X : ndarray of shape (n, M)
        Rows, float64 or float32; NaN where a value is missing.
    y : ndarray of shape (n,) or None
        Labels; in coded blocks the class of each row, 0 … L − 1, and −1 for none. None for one class.
    weights : ndarray of shape (n,) or None
        Weights of the rows; None when all are one.
    number : int
        Which block it is, for what is random: the same in every pass, and no other block has it.
    names : ndarray of shape (C,) or None
        When given, labels are indices into these: names are slow to sort, and there are few of them.
    """

    X: np.ndarray
    y: np.ndarray | None = None
    weights: FloatArray | None = None
    number: int = 0
    names: np.ndarray | None = None

    def keep(self, which: np.ndarray) -> Block:
        """Return the rows that `which` selects."""
        y = None if self.y is None else self.y[which]
        weights = None if self.weights is None else self.weights[which]
        return replace(self, X=self.X[which], y=y, weights=weights)

    def take(self, columns: Sequence[int]) -> Block:
        """Return some of the features."""
        return replace(self, X=self.X[:, list(columns)])

    def coded(self, classes: np.ndarray) -> Block:
        """Return the block with classes for labels."""
        if self.y is None:
            return self
        if self.names is None:
            return replace(self, y=encode(self.y, classes))
        return replace(self, y=encode(self.names, classes)[self.y], names=None)

    def telling(self) -> Block:
        """Return the rows that say something: they have a weight, and a value."""
        block = self
        if block.weights is not None and not block.weights.all():
            block = block.keep(np.flatnonzero(block.weights))
        if np.isnan(block.X).any():
            valued = ~np.isnan(block.X).all(axis=1)
            block = block if valued.all() else block.keep(np.flatnonzero(valued))
        return block


class Blocks(Protocol):
    """Labelled rows in blocks."""

    @property
    def n_features(self) -> int:
        """Number M of features."""
        ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        ...

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged; merging is associative, and answers may be reused."""
        ...

    def coded(self, classes: np.ndarray) -> Blocks:
        """Return the blocks with classes, indices into `classes`, for labels."""
        ...

    def take(self, columns: list[int]) -> Blocks:
        """Return the blocks with some of their features."""
        ...


def encode(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return labels (n,) as indices into the sorted classes (L,), −1 for those that are not among them.

    They are of the smallest type: up to 16 bits, ordering rows by class is a radix sort and ten times faster.
    """
    found = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    codes = np.where(classes[found] == labels, found, -1)
    # One more than there are classes is what rows without a label may be called.
    return codes.astype(np.min_scalar_type(-len(classes) - 1))
