"""Errors of values, as users give them: an array, a data frame, a file, or columns beside the values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from .._words import listed, nearest
from ..data.dask import is_collection
from ..data.missing import without_mask
from ..data.opening import source_of
from ..data.recipe import Recipe
from ..engine.measured import Measured
from ..engine.numbers import on_host
from ..engine.records import FloatArray
from .checks import check_features
from .frames import PreparedRows, TableColumns, is_frame, read_frame, read_into_memory, take_columns


@dataclass(frozen=True, eq=False)
class RowsWithErrors(PreparedRows):
    """Rows in memory, with the standard deviations of the errors of their values."""

    errors: Any = None  # (n, M): not negative; NaN or infinite where they are unknown

    def __getitem__(self, rows: Any) -> RowsWithErrors:
        return replace(self, X=self.X[rows], errors=self.errors[rows])

    def noted_in(self, estimator: Any, least: int) -> Any:
        """See `PreparedRows`."""
        _refuse_t_kernels(estimator)
        _refuse_preparation(self.preparation or {})
        plain = replace(self, preparation=None)
        return _measured(PreparedRows.noted_in(plain, estimator, least), self.errors)

    def of_model(self, model: Any) -> Any:
        """See `PreparedRows`."""
        _refuse_t_kernels(model)
        _refuse_preparation(Recipe.of(model).preparation)
        # Columns that are no features of the model may be encoded.
        _refuse_preparation({**(self.preparation or {}), "columns": None})
        X, errors, known = self.X, self.errors, getattr(model, "feature_names_in_", None)
        if self.feature_names is not None and known is not None:
            for name in known:
                if name not in self.feature_names:
                    hint = nearest(name, self.feature_names)
                    raise ValueError(f"X has no column {name!r}, which the model was fitted to.{hint}")
            places = [self.feature_names.index(name) for name in known]
            X, errors = X[:, places], errors[:, places]
        return _measured(check_features(model, X, known), errors)


def with_errors(
    X: Any, y: Any, sample_weight: Any, errors: Any, name: str = "y"
) -> tuple[RowsWithErrors, Any, Any]:
    """Rows with errors, labels (n,) and weights (n,), in memory; see `fit` for the arguments."""
    if is_collection(X) or is_collection(errors):
        raise ValueError("errors cannot be combined with Dask collections: give X.compute(), or a file.")
    source = None if isinstance(X, PreparedRows) else source_of(X, y, sample_weight)
    table = TableColumns.of(X if source is None else source, y, sample_weight)
    if source is None and is_frame(X):
        X, y, sample_weight = take_columns(X, y, sample_weight, name=name)
    rows, labels, weights = _read(X if source is None else source)
    rows = replace(rows, table_columns=table)
    if source is not None:
        y, sample_weight = labels, weights
    values, names = rows.X, rows.feature_names
    if not isinstance(errors, str | Mapping):
        return RowsWithErrors(**vars(rows), errors=_errors_of(errors, names)), y, sample_weight
    if names is None:
        raise ValueError(f"errors is {errors!r}, which needs columns with names: a data frame or a table.")
    columns = _columns(names, errors)
    kept = [column for column in names if column not in columns.values()]
    beside = np.zeros((len(values), len(kept)))
    for column, of_errors in columns.items():
        beside[:, kept.index(column)] = values[:, names.index(of_errors)]
    rows = replace(rows, X=values[:, [names.index(column) for column in kept]], feature_names=kept)
    return RowsWithErrors(**vars(rows), errors=beside), y, sample_weight


def _read(X: Any) -> tuple[PreparedRows, Any, Any]:
    """Rows of any kind, labels and weights, in memory."""
    source = source_of(X)
    if source is not None:
        return read_into_memory(source)
    if isinstance(X, PreparedRows):
        return X, None, None
    if not is_frame(X):
        return PreparedRows(np.asarray(without_mask(on_host(X), np.nan))), None, None
    return read_frame(X), None, None


def _columns(names: list[str], errors: Any) -> dict[str, str]:
    """The column of errors of each column that has one."""
    if isinstance(errors, str):
        columns = {name: f"{name}{errors}" for name in names if f"{name}{errors}" in names}
        if not columns or not errors:
            those = f"X has {listed(names, 20)}"
            raise ValueError(f"No column of X ends in {errors!r} beside one without it: {those}.")
        return columns
    for name in (*errors, *errors.values()):
        if name not in names:
            raise ValueError(f"errors names {name!r}, but X has {listed(names, 20)}.{nearest(name, names)}")
    if twice := {*errors} & {*errors.values()}:
        raise ValueError(f"errors has {min(twice)!r} both as values and as errors.")
    return dict(errors)


def _errors_of(errors: Any, names: list[str] | None) -> FloatArray:
    """Errors (n, M) that are not columns of X, in the order of its columns."""
    read, _, _ = _read(errors)
    values, of_errors = np.asarray(read.X, dtype=np.float64), read.feature_names
    if names is None or of_errors is None:
        return values
    if missing := [name for name in names if name not in of_errors]:
        raise ValueError(f"errors has no column {missing[0]!r}: it needs those of X, {listed(names)}.")
    return values[:, [of_errors.index(name) for name in names]]


def _measured(X: np.ndarray, errors: FloatArray) -> Any:
    """Rows X (n, M) with errors (n, M), or without them if all are zero."""
    if errors.shape != X.shape:
        raise ValueError(f"errors has the shape {errors.shape}, and X has {X.shape}: each value needs one.")
    if (errors < 0.0).any():
        row, column = np.argwhere(errors < 0.0)[0]
        raise ValueError(
            f"errors must not be negative, got {errors[row, column]:g} in row {row}, column {column}."
        )
    X = np.where(np.isfinite(errors), X, np.nan)
    errors = np.where(np.isnan(X), 0.0, errors)
    return Measured(X, errors) if errors.any() else X


def _refuse_t_kernels(model: Any) -> None:
    has_t_kernels = any(hasattr(part, "kernel_degrees_") for part in getattr(model, "models_", [model]))
    if getattr(model, "tail", None) is not None or has_t_kernels:
        raise ValueError(
            "errors cannot be combined with tail='t': the density of a t variable plus a Gaussian error has "
            "no closed form. Leave out one of them."
        )


def _refuse_preparation(preparation: Mapping[str, Any]) -> None:
    is_encoded = any(kind is not None for kind in (preparation.get("columns") or {}).values())
    if is_encoded or preparation.get("transform", "none") != "none":
        raise ValueError(
            "errors are in the units of the values, but columns of these rows are encoded, or on another "
            "scale. Leave out columns of text and dates, and open files by open_rows(..., transform=None)."
        )


def with_drawn_errors(model: Any, X: FloatArray, errors: Any) -> FloatArray:
    """Drawn rows X (n, M) with errors of these standard deviations; NaN where one is not finite."""
    _refuse_preparation(Recipe.of(model).preparation)
    deviations = np.asarray(errors, dtype=np.float64)
    if deviations.shape not in (X.shape, X.shape[1:]):
        raise ValueError(f"errors has the shape {deviations.shape}, and the rows have {X.shape}.")
    noise = check_random_state(model.random_state).standard_normal(X.shape)
    return np.where(np.isfinite(deviations), X + deviations * noise, np.nan)
