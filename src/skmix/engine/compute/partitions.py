"""Dask collections as blocks of rows, and functions of rows on them.

The partitions of a Dask array or dataframe are the blocks. Their sizes need not be known; that labels and
rows belong together is seen when they are first looked at, block by block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from .blocks import Block, encode
from .cluster import OnCluster, OnThreads, place, unique_name

Answer = TypeVar("Answer")


def is_collection(value: Any) -> bool:
    """Return whether `value` is Dask's: an array, a dataframe, a series, or what it has beside these."""
    return type(value).__module__.split(".")[0] == "dask" and hasattr(value, "__dask_graph__")


def check_kind(value: Any, name: str) -> None:
    """Refuse what Dask has beside these, such as delayed objects, which answer to any name."""
    if is_collection(value) and not hasattr(type(value), "ndim"):
        raise ValueError(
            f"{name} must be a Dask array, dataframe or series, got a Dask {type(value).__name__}. Make one "
            "of it first, as dask.array.from_delayed does, or compute() it."
        )


def _is_frame(value: Any) -> bool:
    return is_collection(value) and hasattr(value, "columns") and value.ndim == 2


def _is_series(value: Any) -> bool:
    return is_collection(value) and hasattr(value, "to_frame") and value.ndim == 1


class DaskBlocks:
    """Blocks on a cluster, or made by Dask's threads; see `engine.blocks.Blocks`.

    Parameters
    ----------
    where : OnCluster or OnThreads
        Who works on them.
    rows, labels, weights : lists of equal length
        Handles of each block's parts; None where there is none.
    numbers : list of int
        What the blocks are called.
    feature_names : list of str, optional
        Names of the features.
    columns : sequence of int, optional
        The features to work on; all, by default.
    n_features : int
        M.
    """

    def __init__(
        self,
        where: OnCluster | OnThreads,
        rows: list[Any],
        labels: list[Any],
        weights: list[Any],
        *,
        numbers: list[int],
        n_features: int,
        feature_names: list[str] | None = None,
        columns: Sequence[int] | None = None,
    ) -> None:
        self.n_features = n_features
        self.feature_names = feature_names
        self._where = where
        self._rows = rows
        self._labels = labels
        self._weights = weights
        self._numbers = numbers
        self._columns = None if columns is None else list(columns)

    def reduce(self, work: Callable[[Block], Answer], merge: Callable[[Answer, Answer], Answer]) -> Answer:
        """Return the answers of all blocks, merged in a fixed order where the blocks are."""
        task = _Task(work, self._columns)
        return self._where.reduce(task, merge, self._rows, self._labels, self._weights, self._numbers)

    def coded(self, classes: np.ndarray) -> DaskBlocks:
        """Return the blocks with classes, indices into `classes`, for labels; they stay with the blocks."""
        if self._labels[0] is None:
            return self
        labels = self._where.derive(_Encode(classes), self._labels)
        return self._with(labels, self.feature_names, self._columns, self.n_features)

    def take(self, columns: list[int]) -> DaskBlocks:
        """Return the blocks with some of their features; the others are left out when a block is read."""
        names = None if self.feature_names is None else [self.feature_names[column] for column in columns]
        own = columns if self._columns is None else [self._columns[column] for column in columns]
        return self._with(self._labels, names, own, len(columns))

    def _with(
        self, labels: list[Any], names: list[str] | None, columns: list[int] | None, n_features: int
    ) -> DaskBlocks:
        return DaskBlocks(
            self._where,
            self._rows,
            labels,
            self._weights,
            numbers=self._numbers,
            n_features=n_features,
            feature_names=names,
            columns=columns,
        )


@dataclass(frozen=True)
class _Task:
    """Does the work on a block given by its parts."""

    work: Callable[[Block], Any]
    columns: list[int] | None

    def __call__(self, rows: np.ndarray, labels: Any, weights: Any, number: int) -> Any:
        block = Block(rows, labels, weights, number)
        return self.work(block if self.columns is None else block.take(self.columns))


@dataclass(frozen=True)
class _Encode:
    """Turns labels (n,) into classes."""

    classes: np.ndarray

    def __call__(self, labels: np.ndarray) -> np.ndarray:
        return encode(labels, self.classes)


@dataclass(frozen=True)
class _Shape:
    """What a block looks like: its rows' shape and kind, and the lengths of its labels and weights."""

    n_rows: int
    n_features: int
    n_labels: int | None
    n_weights: int | None


def open_collections(X: Any, y: Any, weights: Any, version: str) -> DaskBlocks:
    """Return the blocks of Dask collections, kept by the cluster in use if there is one.

    Parameters
    ----------
    X : dask array of shape (N, M) or dask dataframe
        Rows.
    y : dask array, series or dataframe of one column, array-like, or None
        Labels (N,).
    weights : the same
        Weights (N,).
    version : str
        Version of skmix, which all workers must have.

    Raises
    ------
    ValueError
        When X and y do not belong together, or X is no matrix of numbers.
    ClusterError
        When the cluster cannot do the work.
    """
    check_kind(X, "X")
    names = feature_names(X)
    rows = rows_of(X)
    column_y, column_weights = (_column(part, name) for part, name in ((y, "y"), (weights, "sample_weight")))
    rows, column_y = _aligned(rows, column_y, "y")
    rows, column_weights = _aligned(rows, column_weights, "sample_weight")
    # Only now: what can be said without the cluster has been said.
    where = place(version)
    recipes = [
        _recipes(rows, _as_rows),
        _recipes(column_y, np.asarray),
        _recipes(column_weights, _as_weights),
    ]
    n_blocks = len(recipes[0])
    given = [each for each in recipes if each]
    # Together: what rows and labels have in common, such as a file, is read once.
    kept = where.keep([recipe for each in given for recipe in each])
    parts = [kept[i * n_blocks : (i + 1) * n_blocks] for i in range(len(given))]
    handles = [parts.pop(0) if each else [None] * n_blocks for each in recipes]
    shapes: list[_Shape] = where.each(_shape, *handles)
    _check_shapes(shapes)
    # Filters leave empty partitions behind; they have nothing to say, not even how many features there are.
    numbers = [number for number, shape in enumerate(shapes) if shape.n_rows]
    if not numbers:
        raise ValueError(f"X has no rows: all of its {n_blocks} blocks are empty.")
    chosen = [[each[number] for number in numbers] for each in handles]
    n_features = shapes[numbers[0]].n_features
    return DaskBlocks(where, *chosen, numbers=numbers, n_features=n_features, feature_names=names)


def feature_names(X: Any) -> list[str] | None:
    """Return the names of a dataframe's columns; None where they are not strings, or X is an array."""
    if not _is_frame(X):
        return None
    names = list(X.columns)
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        raise TypeError(f"Feature names must all be strings, or none of them: got {names[:5]}.")
    return names if names and all(strings) else None


def rows_of(X: Any) -> Any:
    """Return X as a Dask array of shape (N, M) whose blocks have all features; sizes may be unknown."""
    if _is_frame(X):
        wrong = [name for name, kind in X.dtypes.items() if not _is_number(kind)]
        if wrong:
            raise ValueError(
                f"Column {wrong[0]!r} of X is of type {X.dtypes[wrong[0]]}, which is no number "
                f"({len(wrong)} such columns). Drop or encode it first."
            )
        matrix = X.map_partitions(_as_rows, meta=np.empty((0, len(X.columns))))
        return matrix if hasattr(matrix, "chunks") else matrix.to_dask_array()
    if not hasattr(X, "chunks"):
        raise ValueError(
            f"X must be a Dask array of shape (N, M) or a Dask dataframe, got a Dask {type(X).__name__}."
        )
    if X.ndim != 2:
        raise ValueError(f"X must have two dimensions, rows and features, got a Dask array of {X.ndim}.")
    if not _is_number(X.dtype):
        raise ValueError(f"X must hold numbers, got a Dask array of type {X.dtype}.")
    if math.isnan(X.shape[1]):
        raise ValueError("X must know its number of features: call X.compute_chunk_sizes() first.")
    if X.shape[1] == 0:
        raise ValueError("X has no features: its shape is (N, 0).")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _is_number(kind: Any) -> bool:
    """Return whether a column's type, NumPy's or pandas', is one of real numbers or truth values."""
    return getattr(kind, "kind", "O") in "fiub"


def _column(values: Any, name: str) -> Any:
    """Return labels or weights as a Dask array of shape (N,), or as NumPy's when they are in memory."""
    if values is None:
        return None
    check_kind(values, name)
    column: Any
    if not is_collection(values):
        column = np.asarray(values)
    elif _is_frame(values):
        if len(values.columns) != 1:
            raise ValueError(f"{name} must be one column, got a Dask dataframe of {len(values.columns)}.")
        column = values[values.columns[0]]
    else:
        column = values
    if _is_series(column):
        column = column.map_partitions(np.asarray, meta=np.empty(0, dtype=object))
        column = column if hasattr(column, "chunks") else column.to_dask_array()
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ValueError(f"{name} must be one column, got shape {column.shape}.")
    return column


def _aligned(rows: Any, column: Any, name: str) -> tuple[Any, Any]:
    """Return rows and a column that belongs to them, in blocks of the same rows."""
    import dask.array

    if column is None:
        return rows, None
    known = not np.isnan(rows.shape[0] + column.shape[0])
    if known and rows.shape[0] != column.shape[0]:
        raise ValueError(f"X has {rows.shape[0]} rows but {name} has {column.shape[0]}.")
    in_memory = isinstance(column, np.ndarray)
    if not known and (in_memory or column.numblocks[0] != rows.numblocks[0]):
        # Blocks do not match one by one, so their sizes must be known: this computes them.
        rows = _sized(rows)
        column = column if in_memory else _sized(column)
        if rows.shape[0] != column.shape[0]:
            raise ValueError(f"X has {rows.shape[0]} rows but {name} has {column.shape[0]}.")
        known = True
    if in_memory:
        return rows, dask.array.from_array(column, chunks=(rows.chunks[0],))
    if known and column.chunks[0] != rows.chunks[0]:
        column = column.rechunk((rows.chunks[0],))
    return rows, column


def _sized(array: Any) -> Any:
    """Return a Dask array with the sizes of its blocks, computed where they are unknown."""
    if not any(math.isnan(size) for size in array.chunks[0]):
        return array
    # A copy: the caller's collection stays as it was.
    return array.copy().compute_chunk_sizes()


def _recipes(array: Any, prepare: Callable[[Any], Any]) -> list[Any]:
    """Return the blocks of a Dask array as delayed objects."""
    import dask

    if array is None:
        return []
    lazily = dask.delayed(prepare, pure=True)
    return [lazily(block) for block in array.to_delayed().ravel()]


def _as_rows(values: Any) -> np.ndarray:
    """Return a partition as rows of floats; what is missing becomes NaN."""
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    rows = np.asarray(values)
    return rows if rows.dtype in (np.float64, np.float32) else rows.astype(np.float64)


def _as_weights(values: Any) -> np.ndarray:
    """Return a partition as weights."""
    return np.asarray(values, dtype=np.float64)


def _shape(rows: np.ndarray, labels: Any, weights: Any, *_: Any) -> _Shape:
    lengths = (None if part is None else len(part) for part in (labels, weights))
    return _Shape(rows.shape[0], rows.shape[1], *lengths)


def _check_shapes(shapes: Sequence[_Shape]) -> None:
    """Refuse blocks whose parts do not belong together, by number."""
    widths = {shape.n_features for shape in shapes if shape.n_rows}
    if len(widths) > 1:
        raise ValueError(f"Blocks of X differ in their number of features: {sorted(widths)}.")
    for number, shape in enumerate(shapes):
        for name, length in (("y", shape.n_labels), ("sample_weight", shape.n_weights)):
            if length is not None and length != shape.n_rows:
                raise ValueError(
                    f"X and {name} are cut differently: block {number} of X has {shape.n_rows} rows, that of "
                    f"{name} {length}. Make both from one collection, or call compute_chunk_sizes() on them."
                )


def map_rows(
    X: Any, function: Callable[..., np.ndarray], width: int | None, dtype: Any, y: Any = None
) -> Any:
    """Return what `function` makes of rows, as a Dask array that computes nothing before it is asked to.

    Parameters
    ----------
    X : dask array of shape (n, M) or dask dataframe
        Rows, of known or unknown number.
    function : callable
        Turns rows (n, M), and labels (n,) if there are any, into answers (n,) or (n, width).
    width : int or None
        Number of columns of the answer; None for none.
    dtype : dtype
        Of the answers.
    y : dask array, series or dataframe of one column, array-like, optional
        Labels (n,).

    Returns
    -------
    dask array of shape (n,) or (n, width)
        In the blocks of X.
    """
    import dask.array

    rows, labels = _aligned(rows_of(X), _column(y, "y"), "y")
    # Labels as a column: Dask lays axes side by side from the last one on.
    parts = (rows,) if labels is None else (rows, labels[:, None])
    name = unique_name(function)
    shape: dict[str, Any] = {"drop_axis": 1, "meta": np.empty(0, dtype=dtype)}
    if width is not None:
        shape = {"chunks": (rows.chunks[0], (width,)), "meta": np.empty((0, width), dtype=dtype)}
    lazily = _Lazily(function, width, np.dtype(dtype))
    return dask.array.map_blocks(lazily, *parts, name=name, dtype=dtype, **shape)


@dataclass(frozen=True)
class _Lazily:
    """Applies a function to a block of rows; an empty one needs no model."""

    function: Callable[..., np.ndarray]
    width: int | None
    dtype: np.dtype[Any]

    def __call__(self, rows: np.ndarray, labels: np.ndarray | None = None) -> np.ndarray:
        rows = _as_rows(rows)
        if not len(rows):
            return np.empty(0 if self.width is None else (0, self.width), dtype=self.dtype)
        if labels is None:
            return np.asarray(self.function(rows))
        if len(labels) != len(rows):
            raise ValueError(
                f"X and y are cut differently: a block has {len(rows)} rows and {len(labels)} labels."
            )
        return np.asarray(self.function(rows, labels[:, 0]))


def in_memory(*values: Any) -> tuple[Any, ...]:
    """Return what Dask collections hold; other things as they are."""
    return tuple(value.compute() if is_collection(value) else value for value in values)
