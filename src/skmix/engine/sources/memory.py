"""Rows on their way into the engine: ordered by class, cut into blocks, put into the frame, expanded.

A Gaussian log-density is linear in x, in the products of its features and in 1; the log-weight of a class is
linear in the indicator of that class. A row expanded into these terms needs one product with the coefficients
of all kernels to give its log-joint densities, and one with its responsibilities to give all statistics.

The cuts depend on the sizes of the problem alone, never on the number of threads, and blocks are always
summed in order: the same data give the same bits however many threads work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from ..compute.threads import Workspace, aligned
from ..covariances import Structure
from ..model import FloatArray, IntArray
from .frame import Frame

# Numbers that stay in a core's second-level cache beside what else is used.
_CACHED = 1 << 17
# Expanded rows are read by matrix products, which have a cache scheme of their own: they may be more.
_EXPANDED = 1 << 21
# Below this many multiplications OpenBLAS takes a route without packing, which suits skinny products.
_SMALL_PRODUCT = 1_000_000
# Numbers of a part's expanded rows and responsibilities together, within a second-level cache, and how many
# products it takes: threads hand over the interpreter between operations, so that two of them keep two cores
# busy only when operations are long; but products have a best size of their own.
_PART = 155_000
_TILES = 3
_CLASSES_PER_PART = 16
# Data up to this size are put into the frame, and expanded, once and kept, not once a pass.
_SMALL = 1 << 20


@dataclass(frozen=True)
class Plan:
    """How the work of a pass is cut.

    Attributes
    ----------
    tile : int
        Rows of one matrix product.
    part : int
        Rows expanded into second-order terms at once, a multiple of `tile`.
    block : int
        Rows of one task, a multiple of `part`.
    group : int
        Starts of one task.
    """

    tile: int
    part: int
    block: int
    group: int


def plan(n_rows: int, n_classes: int, n_starts: int, n_kernels: int, n_coefficients: int) -> Plan:
    """Cut a pass so that each task's arrays stay in cache and its matrix products are of a good shape.

    Parameters
    ----------
    n_rows, n_classes, n_starts, n_kernels : int
        N, L, R and K.
    n_coefficients : int
        Length of an expanded row without its class, M + S.
    """
    block = min(n_rows, max(320, min(12288, 2 * _CACHED // n_kernels)))
    group = min(n_starts, max(1, _CACHED // (n_kernels * block)))
    # An expanded row has an indicator of each class in its part: with many small classes, take short parts.
    width = n_coefficients + min(n_classes, _CLASSES_PER_PART)
    tile = max(64, min(max(320, _EXPANDED // width), _CLASSES_PER_PART * n_rows // n_classes))
    tiles = 1
    if n_kernels <= 16:
        small = min(_SMALL_PRODUCT // (n_kernels * width), _PART // (_TILES * (width + n_kernels)))
        tile, tiles = min(tile, max(320, small)), _TILES
    if n_rows <= tile:
        return Plan(n_rows, n_rows, block, group)
    if n_rows <= tiles * tile:
        # One part, in products of equal size.
        n_tiles = -(-n_rows // tile)
        tile = 64 * -(-n_rows // (64 * n_tiles))
        return Plan(tile, n_tiles * tile, n_tiles * tile, group)
    # Rows a power of two apart would fall into the same lines of the cache: take odd multiples of 64.
    tile = 64 * _odd(min(tile, block) // 64)
    part = tile * _odd(min(tiles, block // tile))
    return Plan(tile, part, part * (block // part), group)


def _odd(number: int) -> int:
    """Return the largest odd number up to `number`, at least one."""
    return max(1, (number + 1) // 2 * 2 - 1)


class Terms:
    """Memory for rows expanded into x, second-order terms, and indicators of their classes.

    Parameters
    ----------
    structure : Structure
        Says which second-order terms.
    n_features, n_rows, n_classes : int
        M, n, and the number C of consecutive classes to indicate.
    workspace : Workspace, optional
        Lends the memory; by default it is new.

    Attributes
    ----------
    matrix : ndarray of shape (M + S + C, n)
        The expanded rows.
    transposed : ndarray of shape (n, M + S + C)
        The same memory.
    """

    def __init__(
        self,
        structure: Structure,
        n_features: int,
        n_rows: int,
        n_classes: int = 1,
        workspace: Workspace | None = None,
    ) -> None:
        n_second = structure.n_second(n_features)
        shape = (2 * n_features + n_second + n_classes, n_rows)
        if workspace is None:
            memory = aligned(shape[0] * shape[1]).reshape(shape)
        else:
            memory = workspace.array("terms", shape)
        twice, second = memory[: 2 * n_features], memory[2 * n_features : 2 * n_features + n_second]
        # A second copy of x lies in front: products of pairs that wrap around run on into x.
        self._twice = twice.reshape(2, n_features, n_rows)
        self._products = structure.products(twice, second)
        self._indicators = memory[2 * n_features + n_second :]
        self._indicators[:] = 1.0
        self.matrix = memory[n_features:]
        self.transposed = self.matrix.T

    def fill(self, x: FloatArray, segments: Sequence[tuple[int, int, int]] = ()) -> None:
        """Expand rows x (M, n); `segments` say which class's indicator is one where."""
        self._twice[:] = x
        for left, right, out in self._products:
            np.multiply(left, right, out=out)
        if len(self._indicators) > 1:
            self._indicators[:] = 0.0
            first = segments[0][0]
            for c, i, j in segments:
                self._indicators[c - first, i:j] = 1.0


@dataclass(frozen=True)
class Part:
    """Consecutive rows of a block, expanded.

    Attributes
    ----------
    start, stop : int
        First and last-plus-one row, counted from the block's first.
    x : ndarray of shape (M, n)
        The rows.
    terms : Terms
        The rows expanded.
    segments : list of (class, first row, last-plus-one row)
        The classes present, rows counted from `start`.
    tile : int
        Rows of one matrix product.
    weights : ndarray of shape (n,) or None
        Weights of the rows; None when all are one.
    """

    start: int
    stop: int
    x: FloatArray
    terms: Terms
    segments: list[tuple[int, int, int]]
    tile: int
    weights: FloatArray | None = None

    @property
    def classes(self) -> slice:
        """The consecutive classes that the terms indicate."""
        return slice(self.segments[0][0], self.segments[-1][0] + 1)

    @cached_property
    def codes(self) -> IntArray:
        """Class of each row (n,)."""
        return np.repeat([c for c, _, _ in self.segments], [j - i for _, i, j in self.segments])


class Ordered:
    """Which rows are of which class: rows are visited class by class.

    Parameters
    ----------
    shape : tuple of int
        N and M.
    classes : ndarray of shape (N,) or None
        Class of each row, 0 … L − 1; None for one class.
    n_classes : int
        L.
    frame : Frame
        Coordinates of the loop.
    structure : Structure
        Covariance structure, which says what rows are expanded into.
    weights : ndarray of shape (N,), optional
        Positive weights of the rows; a row of weight two counts like two rows.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        classes: IntArray | None,
        n_classes: int,
        frame: Frame,
        structure: Structure,
        weights: FloatArray | None = None,
    ) -> None:
        self.frame = frame
        self.structure = structure
        self.n_rows, self.n_features = shape
        self.n_classes = n_classes
        self.n_coefficients = self.n_features + structure.n_second(self.n_features)
        self._order: IntArray | None = None
        if classes is None or n_classes == 1:
            self._bounds = np.array([0, self.n_rows])
        else:
            counts = np.bincount(classes, minlength=n_classes)
            self._bounds = np.concatenate([[0], np.cumsum(counts)])
            if np.any(np.diff(classes) < 0):
                self._order = np.argsort(classes, kind="stable")
        self._weights = weights if weights is None or self._order is None else weights[self._order]

    @cached_property
    def class_sizes(self) -> FloatArray:
        """Number of rows (L,) of each class, or the sum of their weights."""
        if self._weights is None:
            return np.diff(self._bounds).astype(np.float64)
        return np.array([self._weights[a:b].sum() for a, b in pairwise(self._bounds)])

    def log_volume(self) -> FloatArray:
        """Return for each class (L,) what the frame adds to its log-likelihood."""
        volumes: FloatArray = self.class_sizes * self.frame.log_volume()
        return volumes

    def weights(self, start: int, stop: int) -> FloatArray | None:
        """Return the weights (n,) of rows start … stop − 1; None when all are one."""
        return None if self._weights is None else self._weights[start:stop]

    def cuts(self, block: int) -> list[tuple[int, int]]:
        """Return the first and last-plus-one rows of blocks of that many rows."""
        return [(a, min(a + block, self.n_rows)) for a in range(0, self.n_rows, block)]

    def segments(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (class, i, j) for the classes with rows in start … stop − 1, i and j relative to `start`."""
        if len(self._bounds) == 2:
            return [(0, 0, stop - start)]
        first = int(np.searchsorted(self._bounds, start, side="right")) - 1
        last = int(np.searchsorted(self._bounds, stop, side="left"))
        inside = np.clip(self._bounds[first : last + 1], start, stop) - start
        return [(first + c, int(i), int(j)) for c, (i, j) in enumerate(pairwise(inside)) if j > i]


class Rows(Ordered):
    """Labelled rows in memory, cut into blocks and parts.

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
    structure : Structure
        Covariance structure, which says what rows are expanded into.
    weights : ndarray of shape (N,), optional
        Positive weights of the rows; a row of weight two counts like two rows.
    """

    def __init__(
        self,
        X: np.ndarray,
        classes: IntArray | None,
        n_classes: int,
        frame: Frame,
        structure: Structure,
        weights: FloatArray | None = None,
    ) -> None:
        super().__init__((X.shape[0], X.shape[1]), classes, n_classes, frame, structure, weights)
        self._X = X
        self._kept: FloatArray | None = None
        self._parts: dict[tuple[int, int, Plan], list[Part]] = {}
        if X.size <= _SMALL:
            whole = X if self._order is None else X[self._order]
            self._kept = frame.rows(whole, np.empty((self.n_features, self.n_rows)))

    def plan(self, n_starts: int, n_kernels: int) -> Plan:
        """Return how to cut a pass of R starts of K kernels."""
        return plan(self.n_rows, self.n_classes, n_starts, n_kernels, self.n_coefficients)

    def block(self, start: int, stop: int, workspace: Workspace) -> FloatArray:
        """Return rows start … stop − 1 in the frame, shape (M, n)."""
        if self._kept is not None:
            return self._kept[:, start:stop]
        rows = self._X[start:stop] if self._order is None else self._X[self._order[start:stop]]
        return self.frame.rows(rows, workspace.array("rows", (self.n_features, stop - start)))

    def parts(self, x: FloatArray, start: int, stop: int, cut: Plan, workspace: Workspace) -> Iterable[Part]:
        """Yield the block x of rows start … stop − 1 in expanded parts of `cut.part` rows.

        A part lives until the next one is asked for, unless the data are small enough to be kept.
        """
        if self.n_rows * self.n_coefficients > _SMALL:
            return self._expand(x, start, stop, cut, workspace)
        key = (start, stop, cut)
        if key not in self._parts:
            self._parts[key] = list(self._expand(x, start, stop, cut, None))
        return self._parts[key]

    def _expand(
        self, x: FloatArray, start: int, stop: int, cut: Plan, workspace: Workspace | None
    ) -> Iterator[Part]:
        for a in range(start, stop, cut.part):
            b = min(a + cut.part, stop)
            segments = self.segments(a, b)
            shape = (self.n_features, b - a, segments[-1][0] - segments[0][0] + 1)
            if workspace is None:
                terms = Terms(self.structure, *shape)
            else:
                terms = workspace.latest(shape, lambda: Terms(self.structure, *shape, workspace))  # noqa: B023
            here = x[:, a - start : b - start]
            terms.fill(here, segments)
            yield Part(a - start, b - start, here, terms, segments, cut.tile, self.weights(a, b))
