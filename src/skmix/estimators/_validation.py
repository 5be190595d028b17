"""Checks shared by the estimators: everything here raises a `ValueError` that names the numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Real
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

from ..engine.backends.arrays import Array, is_numpy, namespace, pick
from ..engine.backends.devices import is_elsewhere, placed
from ..engine.backends.partitions import is_collection
from ..engine.kernels import Structure, structure_of
from ..engine.patterns import has_gaps
from ..engine.starts import uniform_weights
from ..engine.types import FloatArray, IntArray, Parameters
from ..sources import Source

_SUM_TOLERANCE = 1e-6


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


def as_numbers(values: Any, name: str) -> FloatArray:
    """Return a new float64 array."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}.") from None


def check_distribution(values: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    """Return non-negative numbers of that shape whose columns sum to one."""
    array = as_numbers(values, name)
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, got {array.shape}.")
    wrong = array[~(np.isfinite(array) & (array >= 0))]
    if len(wrong):
        raise ValueError(f"{name} must be finite and not negative, got {wrong[0]}.")
    sums = array.sum(axis=0)
    worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))]
    if abs(worst - 1.0) > _SUM_TOLERANCE:
        which = f"each column of {name}" if array.ndim > 1 else name
        raise ValueError(f"{which} must sum to one, got a sum of {worst:.6g}.")
    return array / sums


def check_covariances(values: Any, structure: Structure, n_kernels: int, n_features: int) -> FloatArray:
    """Return covariances of the right shape, symmetric and positive definite."""
    covariance_type = structure.name
    array = as_numbers(values, "covariances")
    shape = structure.shape(n_kernels, n_features)
    if array.shape != shape:
        raise ValueError(
            f"covariances must have shape {shape} for covariance_type={covariance_type!r} with {n_kernels} "
            f"kernels and {n_features} features, got {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError("covariances must be finite.")
    if structure.projects:
        if not np.all(array[..., -1] > 0):
            raise ValueError(
                "the last column of covariances has the features' variances, which must be positive, got "
                f"{array[..., -1].min():.3g}."
            )
        return array
    full = structure.to_full(array[None], n_kernels, n_features)[0]
    for k, matrix in enumerate(full):
        gap = np.abs(matrix - matrix.T)
        deviations = np.sqrt(np.abs(np.diagonal(matrix)))
        if np.any(gap > 1e-6 * deviations[:, None] * deviations):
            raise ValueError(
                f"the covariance of kernel {k} is not symmetric: entries differ by {gap.max():.3g}."
            )
        smallest = np.linalg.eigvalsh(matrix)[0]
        if not smallest > 0:
            raise ValueError(
                f"the covariance of kernel {k} is not positive definite: "
                f"its smallest eigenvalue is {smallest:.3g}."
            )
    if array.ndim > 1 and array.shape[-1] == array.shape[-2] == n_features and covariance_type != "diag":
        array = 0.5 * (array + np.swapaxes(array, -1, -2))
    return array


def check_start(
    start: Mapping[str, Any],
    structure: Structure,
    n_kernels: int | None,
    n_classes: int,
    default_covariance: FloatArray,
) -> Parameters:
    """Return the starting point that a dict of `means`, `covariances` and `weights` describes.

    Parameters
    ----------
    start : mapping
        `means` (K, M) is required; `covariances` defaults to the features' variances over K^(2/M), and
        `weights` (K, L) to uniform ones.
    structure : Structure
        Covariance structure.
    n_kernels : int or None
        K; None takes it from the means.
    n_classes : int
        L.
    default_covariance : ndarray of shape (M,)
        The features' variances.
    """
    unknown = set(start) - {"means", "covariances", "weights"}
    if unknown or "means" not in start:
        raise ValueError(
            "init given as a dict needs 'means' and may have 'covariances' and 'weights', "
            f"got the keys {sorted(map(str, start))}."
        )
    n_features = len(default_covariance)
    means = as_numbers(start["means"], "means")
    expected = "n_kernels" if n_kernels is None else n_kernels
    if means.ndim != 2 or means.shape[1] != n_features or len(means) != (n_kernels or len(means) or -1):
        raise ValueError(f"means must have shape ({expected}, {n_features}), got {means.shape}.")
    if not np.all(np.isfinite(means)):
        raise ValueError("means must be finite.")
    n_kernels = len(means)
    if start.get("covariances") is None:
        full = np.diag(default_covariance / n_kernels ** (2.0 / n_features))
        covariances = structure.from_common(full[None], n_kernels)[0]
    else:
        covariances = check_covariances(start["covariances"], structure, n_kernels, n_features)
    if start.get("weights") is None:
        weights = uniform_weights(1, n_kernels, n_classes)[0]
    else:
        weights = check_distribution(start["weights"], (n_kernels, n_classes), "weights")
    return Parameters(weights, means, covariances)


def column_index(column: Any, n_features: int, position: Mapping[str, int] | None, where: str) -> int:
    """Return the index of a column given by index or name; `where` it was given is for the error."""
    if isinstance(column, str):
        if position is None:
            raise ValueError(f"{where} names {column!r}, but X has no feature names.")
        if column not in position:
            raise ValueError(f"{where} names {column!r}, but features are {list(position)}.")
        return position[column]
    if not isinstance(column, (int, np.integer)) or isinstance(column, (bool, np.bool_)):
        raise ValueError(f"{where} has {column!r}, which is no column index or name.")
    if not 0 <= column < n_features:
        raise ValueError(f"{where} has column {int(column)}, but X has {n_features} feature(s).")
    return int(column)


def check_features(
    features: Iterable[Any], n_features: int, names: Sequence[str] | None, where: str
) -> list[int]:
    """Return features given by index or name as indices, at least one and each once."""
    if isinstance(features, str) or not isinstance(features, Iterable):
        raise ValueError(f"{where} must be a list of columns, got {features!r}.")
    position = None if names is None else {name: i for i, name in enumerate(names)}
    columns = [column_index(column, n_features, position, where) for column in features]
    if not columns:
        raise ValueError(f"{where} is empty.")
    repeated = [column for i, column in enumerate(columns) if column in columns[:i]]
    if repeated:
        raise ValueError(f"{where} has column {repeated[0]} more than once.")
    return columns


def check_given(given: Mapping[Any, Any], n_features: int, names: Sequence[str] | None) -> dict[int, float]:
    """Return known values by column index, finite and fewer than there are features."""
    if not isinstance(given, Mapping):
        raise ValueError(f"given must be a dict from features to values, got {given!r}.")
    columns = check_features(given, n_features, names, "given")
    if len(columns) == n_features:
        raise ValueError(f"given has values of all {n_features} features: no feature is left.")
    known: dict[int, float] = {}
    for column, (feature, value) in zip(columns, given.items(), strict=True):
        if not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ValueError(f"given has {value!r} for feature {feature!r}, which is no finite number.")
        known[column] = float(value)
    return known


def check_feature_groups(
    groups: Sequence[Sequence[Any]], n_features: int, names: Sequence[str] | None
) -> list[list[int]]:
    """Return feature groups as column indices, each column in at most one group."""
    if isinstance(groups, str) or not isinstance(groups, Sequence) or len(groups) == 0:
        raise ValueError(f"feature_groups must be a non-empty list of lists of columns, got {groups!r}.")
    position = None if names is None else {name: i for i, name in enumerate(names)}
    seen: dict[int, int] = {}
    resolved: list[list[int]] = []
    for g, group in enumerate(groups):
        if isinstance(group, str) or not isinstance(group, (Sequence, np.ndarray)):
            raise ValueError(f"feature group {g} must be a list of columns, got {group!r}.")
        if len(group) == 0:
            raise ValueError(f"feature group {g} is empty.")
        columns: list[int] = []
        for column in group:
            index = column_index(column, n_features, position, f"feature group {g}")
            if index in seen:
                raise ValueError(f"column {index} is in feature group {seen[index]} and again in group {g}.")
            seen[index] = g
            columns.append(index)
        resolved.append(columns)
    return resolved


def check_covariance_prior(prior: Any, n_features: int) -> tuple[float | None, FloatArray | None]:
    """Return the strength in rows, and the covariance when given, of the inverse-Wishart prior."""
    if prior is None:
        return None, None
    if isinstance(prior, tuple):
        if len(prior) != 2:
            raise ValueError(f"covariance_prior as a tuple is (rows, covariance), got {len(prior)} entries.")
        rows, covariance = prior
        scale = check_covariances(covariance, structure_of("tied"), 1, n_features)
    else:
        rows, scale = prior, None
    if not isinstance(rows, Real) or not 0 < float(rows) < np.inf:
        raise ValueError(f"covariance_prior must be a positive number of rows, got {rows!r}.")
    return float(rows), scale


def check_shrinkage(estimator: Any) -> None:
    """Refuse shrinkage beside what says the opposite of it."""
    if estimator.shrinkage is None:
        return
    if estimator.covariance_prior is not None:
        raise ValueError(
            f"shrinkage={estimator.shrinkage!r} is a prior on covariances too: it does not go with "
            "covariance_prior."
        )
    if estimator.freeze is not None:
        raise ValueError(
            f"shrinkage={estimator.shrinkage!r} fits all kernels twice: it does not go with "
            f"freeze={estimator.freeze!r}."
        )


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
