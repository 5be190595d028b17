"""Checks of rows, warnings to users, and attributes that a fit sets or takes back."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data

from .._errors import ArgumentWarning
from ..data.dask import is_collection
from ..data.missing import is_missing, refuse_masked_weights, without_mask
from ..data.recipe import Preparation, Recipe
from ..engine.measured import values_of
from ..engine.numbers import Array, has_gaps, is_numpy, namespace, on_host, pick, to_numpy
from ..engine.records import BoolArray, FloatArray

# Attributes in which scikit-learn keeps the callbacks of a running fit.
OF_CALLBACKS = ("_callback_fit_ctx", "_skl_callbacks_to_teardown")
_FLOATS = [np.dtype(np.float64), np.dtype(np.float32)]


# ---------------------------------------------------------------- warnings


def warn_caller(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn from the innermost line of code outside skmix and scikit-learn."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("skmix", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def warn_of(notes: Iterable[ArgumentWarning | str]) -> None:
    """Warn of notes on tables."""
    for note in notes:
        warn_caller(f"{str(note).rstrip('.')}.")


def check_identifiers(values: Any, name: str) -> np.ndarray:
    """Identifiers (n,) of bags or groups of rows, in memory; raise ValueError if some rows have none."""
    identifiers = np.asarray(without_mask(computed(values), None))
    if n_missing := np.count_nonzero(is_missing(identifiers)):
        n_rows = len(identifiers)
        raise ValueError(f"{name} has no value in {n_missing} of {n_rows} rows. Leave these rows out.")
    return identifiers


# ---------------------------------------------------------------- attributes of estimators


def note_rows(estimator: Any, **attributes: Any) -> None:
    """Set attributes such as n_features_in_ in an estimator; None removes an attribute."""
    for name, value in attributes.items():
        if value is not None:
            setattr(estimator, name, value)
        elif hasattr(estimator, name):
            delattr(estimator, name)


def note_columns(
    estimator: Any, n_features: int, names: Sequence[str] | None, preparation: Preparation | None
) -> None:
    """Note the columns of training rows, not the features that encode them, and the preparation."""
    columns = (preparation or {}).get("columns")
    if columns is not None:
        n_features, names = len(columns), list(columns)
    named = None if names is None else np.array(names, dtype=object)
    note_rows(estimator, n_features_in_=n_features, feature_names_in_=named, recipe_=preparation)


@contextmanager
def updating(estimator: Any) -> Iterator[None]:
    """Change the estimator in the body; restore the previous fit if the body raises."""
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        # Keep the attributes that scikit-learn needs to tear down the callbacks.
        callbacks = {name: attributes[name] for name in OF_CALLBACKS if name in attributes}
        attributes.clear()
        attributes.update(before | callbacks)
        raise


# ---------------------------------------------------------------- values


def check_values(estimator: Any, X: Any, least: int | None = None, names: Sequence[Any] | None = None) -> Any:
    """Check rows by scikit-learn, and return them as floats (n, M), NaN for missing values.

    Masked values are missing ones. A fit requires at least `least` rows, and notes their features in the
    estimator. Errors name the column of an infinite value if the `names` (M,) are known.
    """
    if least is not None:
        note_rows(estimator, recipe_=None)
    X = without_mask(X, np.nan)
    with _naming_infinite(X, names):
        return validate_data(
            estimator,
            X,
            dtype=_FLOATS,
            ensure_all_finite="allow-nan",
            ensure_min_samples=1 if least is None else least,
            reset=least is not None,
        )


def check_features(model: Any, X: Any, names: Sequence[Any] | None = None) -> np.ndarray:
    """Check prepared rows (n, M), and that they have the features of a fitted model; see `check_values`."""
    with _naming_infinite(X, names):
        rows: np.ndarray = check_array(X, dtype=_FLOATS, ensure_all_finite="allow-nan", input_name="X")
    n_features = Recipe.of(model).n_features
    if rows.shape[1] != n_features:
        raise ValueError(
            f"X has {rows.shape[1]} features, but {type(model).__name__} is expecting {n_features} features "
            "as input."
        )
    return rows


@contextmanager
def _naming_infinite(X: Any, names: Sequence[Any] | None) -> Iterator[None]:
    """Name the column and the row of an infinite value that the body refuses."""
    try:
        yield
    except ValueError:
        if names is not None:
            infinite = np.isinf(check_array(X, dtype=_FLOATS, ensure_all_finite=False))
            for row, column in np.argwhere(infinite)[:1]:
                raise ValueError(
                    f"Column {str(names[column])!r} of X is infinite in row {row}, counted from 0. Replace "
                    "infinite values, by NaN if they are unknown."
                ) from None
        raise


def is_valid(estimator: Any, X: np.ndarray) -> bool:
    """Whether rows pass a quick check; `validate_data` takes longer than the density of one row."""
    if X.dtype not in _FLOATS or X.ndim != 2 or hasattr(estimator, "feature_names_in_"):
        return False
    if X.shape[1] != estimator.n_features_in_ or not len(X):
        return False
    with np.errstate(all="ignore"):
        return bool(np.isfinite(X.sum()))


def check_labelled(estimator: Any, labels: Any, advice: str = "give the labels.") -> None:
    """Refuse to fit a classifier to rows without labels."""
    if labels is None and is_classifier(estimator):
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is None: {advice}"
        )


def columns_of(X: Array, columns: list[int]) -> Array:
    """The chosen columns of X, without a copy if these are all columns."""
    if columns == list(range(X.shape[1])):
        return X
    return X[:, columns] if is_numpy(X) else pick(X.T, columns).T


# ---------------------------------------------------------------- weights and gaps


def computed(values: Any) -> Any:
    """Scores or labels that are lazy or on a device as a NumPy array; others unchanged."""
    return on_host(values.compute() if is_collection(values) else values)


def check_weights(sample_weight: Any, n_rows: int) -> FloatArray | None:
    """Row weights (n,) that are not negative and not all zero; None if none were given."""
    if sample_weight is None:
        return None
    values = computed(sample_weight)
    refuse_masked_weights(values)
    weights: FloatArray = _check_sample_weight(
        values, np.empty((n_rows, 0)), dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():  # older scikit-learn lets them pass
        raise ValueError("Sample weights must contain at least one non-zero number.")
    return weights


def used_rows(X: Array, weights: FloatArray | None) -> BoolArray | None:
    """Which rows (n,) of positive weight have a value, which a fit uses; None if it uses all.

    Warn of rows without a value.
    """
    used = np.ones(len(X), dtype=bool) if weights is None else weights > 0.0
    if has_gaps(X):
        is_empty = to_numpy(namespace(X).isnan(values_of(X)).all(axis=1)) & used
        # A fit to rows that are all empty is refused because of its features.
        if is_empty.any() and not is_empty[used].all():
            warn_of_empty_rows(
                int(is_empty.sum()), int(used.sum()), "X", f"row {is_empty.argmax()}, counted from 0"
            )
            used &= ~is_empty
    return None if used.all() else used


def warn_of_empty_rows(n_empty: int, n_rows: int, name: str, first: str) -> None:
    """Warn that a fit leaves out rows without any value, of which the first one is named."""
    warn_caller(f"{n_empty} of {n_rows} rows of {name} have no value and are left out; the first is {first}.")


def check_gaps(rows: Array, estimator: Any = None) -> None:
    """Raise ValueError for rows without any value, and in a fit of an estimator for features without any."""
    if not has_gaps(rows):
        return
    missing: Array = to_numpy(namespace(rows).isnan(values_of(rows)))
    empty = np.flatnonzero(missing.all(axis=1))
    if len(empty):
        such = f"{len(empty)} such row{'s' * (len(empty) > 1)}"
        raise ValueError(
            f"Row {empty[0]} of X has no value ({such}). Remove such rows, or give them a weight of zero."
        )
    if estimator is not None:
        refuse_empty_features(missing.all(axis=0), len(missing), Recipe.of(estimator).names)


def refuse_empty_features(is_empty: np.ndarray, n_rows: int, names: Sequence[str] | None) -> None:
    """Raise ValueError if features (M,) have no value in any of the rows."""
    empty = np.flatnonzero(is_empty)
    if len(empty):
        feature = empty[0] if names is None else repr(str(names[empty[0]]))
        others = f", and so are {len(empty) - 1} other features" if len(empty) > 1 else ""
        raise ValueError(
            f"Feature {feature} of X has no value: it is NaN in all {n_rows} rows{others}. Remove features "
            "that were never observed."
        )
