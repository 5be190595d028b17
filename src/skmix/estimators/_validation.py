"""Checks shared by the estimators: everything here raises a `ValueError` that names the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_n_features,
    _check_sample_weight,
    column_or_1d,
    validate_data,
)

from ..engine.compute.arrays import Array, is_numpy, namespace, pick
from ..engine.compute.devices import is_elsewhere, placed
from ..engine.compute.partitions import is_collection
from ..engine.model import FloatArray, IntArray
from ..engine.sources.gaps import has_gaps
from ..io import Source


@contextmanager
def all_or_nothing(estimator: BaseEstimator) -> Iterator[None]:
    """Leave the estimator as it was when the body raises."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def refuse_blocks(X: Any) -> None:
    """Refuse rows that come in blocks, of files or of Dask, where all of them are needed as an array."""
    if is_collection(X):
        raise ValueError(
            f"This needs rows in memory, but X is a Dask {type(X).__name__}: give X.compute(), or a sample "
            "of its rows where they are too many."
        )
    if isinstance(X, (str, PathLike, Source)):
        raise ValueError(
            f"This needs rows in memory, but X is {getattr(X, 'name', X)!r}: read some of its rows, and give "
            "them as an array."
        )


def refuse_paths(X: Any, **beside: Any) -> None:
    """Refuse paths or names of columns beside rows that are not in a file; arguments go by their names."""
    for name, given in beside.items():
        if isinstance(given, (str, PathLike)):
            raise ValueError(
                f"{name} is {str(given)!r}, a path or the name of a column, which goes with a file; but X is "
                f"a {type(X).__name__}. Give {name} as an array, or X as a path or by open_rows."
            )


def check_rows(estimator: BaseEstimator, X: ArrayLike, *, fitting: bool) -> np.ndarray:
    """Return rows (n, M) of floats in which NaN means missing, each with at least one value.

    When `fitting`, features without any value are refused too, and the estimator remembers their number.
    """
    if is_elsewhere(X):
        return _check_rows_there(estimator, X, fitting=fitting)
    refuse_blocks(X)
    rows: np.ndarray = validate_data(
        estimator,
        X,
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan",
        ensure_min_samples=2 if fitting else 1,
        reset=fitting,
    )
    check_gaps(rows, fitting=fitting)
    return placed(rows)


def _check_rows_there(estimator: BaseEstimator, X: Array, *, fitting: bool) -> Array:
    """Return rows (n, M) of another library, finite and of floats, where they are."""
    xp = namespace(X)
    if X.ndim != 2:
        raise ValueError(f"Expected a 2D array of rows, got {X.ndim} dimension(s) instead.")
    if X.shape[0] < 1 + fitting or X.shape[1] < 1:
        raise ValueError(f"Found array of shape {tuple(X.shape)}; at least {1 + fitting} row(s) are needed.")
    if X.dtype not in (xp.float64, xp.float32):
        if not xp.isdtype(X.dtype, ("bool", "integral", "real floating")):
            raise ValueError(f"X must be of real numbers, got {X.dtype}.")
        X = xp.astype(X, xp.float64)
    # A sum over rows is finite when all of them are, and costs one read.
    suspicious = ~xp.isfinite(xp.sum(X, axis=0, dtype=xp.float64))
    if bool(xp.any(suspicious)) and bool(xp.any(xp.isinf(X))):
        raise ValueError("Input X contains infinity or a value too large for its type.")
    if fitting:
        vars(estimator).pop("feature_names_in_", None)
    _check_n_features(estimator, X, reset=fitting)
    check_gaps(X, fitting=fitting)
    return X


def check_labelled_rows(
    estimator: BaseEstimator, X: ArrayLike, y: ArrayLike | None
) -> tuple[np.ndarray, np.ndarray, IntArray]:
    """Return rows (N, M) to fit, the sorted labels (L,), and each row's label as an index, −1 for none."""
    if is_elsewhere(X):
        rows, labels = _check_rows_there(estimator, X, fitting=True), column_or_1d(y, warn=True)
        if len(labels) != rows.shape[0]:
            raise ValueError(f"X has {rows.shape[0]} rows but y has {len(labels)} labels.")
        assert_all_finite(labels, input_name="y")
        check_classification_targets(labels)
        return rows, *number_labels(labels)
    rows, labels = validate_data(
        estimator,
        X,
        y,
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan",
        ensure_min_samples=2,
    )
    check_gaps(rows, fitting=True)
    check_classification_targets(labels)
    return placed(rows), *number_labels(labels)


def check_gaps(rows: np.ndarray, *, fitting: bool) -> None:
    """Refuse rows, and when fitting also features, that have no value at all."""
    if not has_gaps(rows):
        return
    if not is_numpy(rows):
        raise ValueError(
            "X has missing values (NaN), which are only supported on the CPU: give X as a NumPy array, "
            "without device."
        )
    missing = np.isnan(rows)
    empty = np.flatnonzero(missing.all(axis=1))
    if len(empty):
        raise ValueError(
            f"Row {empty[0]} of X has no value: all {rows.shape[1]} features are NaN "
            f"({len(empty)} such rows). Remove rows that say nothing."
        )
    empty = np.flatnonzero(missing.all(axis=0))
    if fitting and len(empty):
        raise ValueError(
            f"Feature {empty[0]} of X has no value: it is NaN in all {len(rows)} rows "
            f"({len(empty)} such features). Remove features that were never observed."
        )


def number_labels(labels: np.ndarray) -> tuple[np.ndarray, IntArray]:
    """Return the sorted labels (L,) and each row's label as an index into them, −1 for rows without one.

    As in scikit-learn, the number −1 marks a row without a label. But −1 and one other value are taken as the
    two labels of a binary problem, and −1 beside smaller numbers as a label like them.
    """
    classes, codes = np.unique(labels, return_inverse=True)
    if classes.dtype.kind not in "if" or classes[0] != -1 or len(classes) == 2:
        return classes, codes
    if len(classes) == 1:
        raise ValueError(f"All {len(labels)} rows are unlabelled (y is -1 everywhere).")
    return classes[1:], codes - 1


def check_weights(sample_weight: ArrayLike | None, rows: np.ndarray) -> FloatArray | None:
    """Return row weights (N,), not negative and not all zero; None when none were given."""
    if sample_weight is None:
        return None
    # Weights stay on the host, wherever the rows are.
    stand_in = np.empty((rows.shape[0], 0))
    weights: FloatArray = _check_sample_weight(
        sample_weight, stand_in, dtype=np.float64, ensure_non_negative=True
    )
    return weights


def class_sizes(codes: IntArray, weights: FloatArray | None, n_classes: int) -> FloatArray:
    """Return the number (L,) of labelled rows of each class, or the sum of their weights."""
    labelled = codes >= 0
    sizes = np.bincount(
        codes[labelled], weights=None if weights is None else weights[labelled], minlength=n_classes
    )
    return sizes.astype(np.float64)


def weighted_rows(
    rows: np.ndarray, classes: np.ndarray, codes: IntArray, weights: FloatArray | None
) -> tuple[np.ndarray, np.ndarray, IntArray, FloatArray | None]:
    """Leave out rows of weight zero, and labels that no other row has."""
    if weights is None or weights.all():
        return rows, classes, codes, weights
    kept = np.flatnonzero(weights)
    present, codes = np.unique(codes[kept], return_inverse=True)
    if present[0] == -1:
        present, codes = present[1:], codes - 1
    if not len(present):
        raise ValueError("sample_weight is zero for every row that has a label.")
    return pick(rows, kept), classes[present], codes, weights[kept]


def columns_of(X: np.ndarray, columns: list[int]) -> np.ndarray:
    """Return the chosen columns of X, without a copy when they are all of it."""
    if columns == list(range(X.shape[1])):
        return X
    return X[:, columns] if is_numpy(X) else pick(X.T, columns).T


def observed_rows(
    X: np.ndarray,
    codes: IntArray,
    weights: FloatArray | None,
    columns: list[int],
    classes: np.ndarray | None,
    group: int | None = None,
) -> tuple[np.ndarray, IntArray, FloatArray | None]:
    """Return the rows that have a value in some columns, with their classes and weights.

    With `classes`, each of them must have such a row, and each column a value.
    """
    rows = columns_of(X, columns)
    if rows is X or not has_gaps(rows):
        return rows, codes, weights
    observed = ~np.isnan(rows)
    empty = np.flatnonzero(~observed.any(axis=0))
    if classes is not None and len(empty):
        raise ValueError(f"Feature {columns[empty[0]]} of X has no value: it is NaN in all {len(X)} rows.")
    kept = np.flatnonzero(observed.any(axis=1))
    absent = np.setdiff1d(np.arange(0 if classes is None else len(classes)), codes[kept])
    if classes is not None and len(absent):
        which = "" if group is None else f" feature group {group},"
        raise ValueError(f"No row of class {classes[absent[0]]!r} has a value in{which} columns {columns}.")
    return rows[kept], codes[kept], None if weights is None else weights[kept]
