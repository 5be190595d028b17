"""Rows on their way into the engine: ordered by class, cut into blocks, put into the frame.

The cuts depend on the sizes of the problem alone, never on the number of threads, and blocks are always
summed in order: the same data give the same bits however many threads work.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .frame import Frame
from .types import FloatArray, IntArray

# Numbers that stay in a core's second-level cache beside what else is used.
_CACHED = 1 << 17
# Expanded rows are read by matrix products, which have a cache scheme of their own: they may be more.
_EXPANDED = 1 << 20
# Below this many multiplications OpenBLAS takes a route without packing, which suits skinny products.
_SMALL_PRODUCT = 1_000_000
# Data up to this size are put into the frame once and kept, not once a pass.
_SMALL = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How the work of a pass is cut.

    Attributes
    ----------
    part : int
        Rows expanded into second-order terms at once.
    block : int
        Rows of one task, a multiple of `part`.
    group : int
        Starts of one task.
    """

    part: int
    block: int
    group: int


def plan(n_rows: int, n_starts: int, n_kernels: int, n_coefficients: int) -> Plan:
    """Cut a pass so that each task's arrays stay in cache and its matrix products are of a good shape.

    Parameters
    ----------
    n_rows, n_starts, n_kernels : int
        N, R and K.
    n_coefficients : int
        Length S + M + 1 of an expanded row.
    """
    block = min(n_rows, max(320, min(8192, 2 * _CACHED // n_kernels)))
    group = min(n_starts, max(1, _CACHED // (n_kernels * block)))
    part = max(320, _EXPANDED // n_coefficients)
    if group * n_kernels <= 16:
        part = min(part, max(320, _SMALL_PRODUCT // (group * n_kernels * n_coefficients)))
    if n_rows <= part:
        return Plan(n_rows, block, group)
    # Rows a power of two apart would fall into the same lines of the cache: take an odd multiple of 64.
    part = 64 * ((min(part, block) // 64 - 1) | 1)
    return Plan(part, part * (block // part), group)


@dataclass(frozen=True)
class Block:
    """Consecutive rows in the frame.

    Attributes
    ----------
    x : ndarray of shape (M, n)
        The rows, feature-major.
    bounds : ndarray of shape (L + 1,)
        Class j's rows are bounds[j] … bounds[j + 1] − 1, counted from the block's first row; they may lie
        outside the block.
    """

    x: FloatArray
    bounds: IntArray

    def segments(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (class, i, j) for the classes with rows in start … stop − 1, i and j relative to `start`."""
        if len(self.bounds) == 2:
            return [(0, 0, stop - start)]
        first = int(np.searchsorted(self.bounds, start, side="right")) - 1
        last = int(np.searchsorted(self.bounds, stop, side="left"))
        inside = np.clip(self.bounds[first : last + 1], start, stop) - start
        return [(first + c, int(i), int(j)) for c, (i, j) in enumerate(pairwise(inside)) if j > i]


class Rows:
    """Labelled rows, cut into blocks.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows, float64 or float32.
    classes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1; None for one class.
    n_classes : int
        L.
    frame : Frame
        Coordinates of the loop.
    """

    def __init__(self, X: np.ndarray, classes: IntArray | None, n_classes: int, frame: Frame) -> None:
        self.frame = frame
        self.n_rows, self.n_features = X.shape
        self.n_classes = n_classes
        self._X = X
        self._order: IntArray | None = None
        if classes is None or n_classes == 1:
            self._bounds = np.array([0, self.n_rows])
        else:
            counts = np.bincount(classes, minlength=n_classes)
            self._bounds = np.concatenate([[0], np.cumsum(counts)])
            if np.any(np.diff(classes) < 0):
                self._order = np.argsort(classes, kind="stable")
        self._kept: FloatArray | None = None
        if X.size <= _SMALL:
            whole = X if self._order is None else X[self._order]
            self._kept = frame.rows(whole, np.empty((self.n_features, self.n_rows)))

    @property
    def class_sizes(self) -> IntArray:
        """Number of rows (L,) of each class."""
        return np.diff(self._bounds)

    def cuts(self, block: int) -> list[tuple[int, int]]:
        """Return the first and last-plus-one rows of blocks of that many rows."""
        return [(a, min(a + block, self.n_rows)) for a in range(0, self.n_rows, block)]

    def block(self, start: int, stop: int, memory: FloatArray | None = None) -> Block:
        """Return the block of rows start … stop − 1, in `memory` (M, n) when given."""
        bounds = self._bounds - start
        if self._kept is not None:
            return Block(self._kept[:, start:stop], bounds)
        rows = self._X[start:stop] if self._order is None else self._X[self._order[start:stop]]
        out = np.empty((self.n_features, stop - start)) if memory is None else memory
        return Block(self.frame.rows(rows, out), bounds)
