"""Checks of the numbers, parameters and columns that users give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from ..data.recipe import Recipe
from ..engine.records import FloatArray
from ..engine.structures import Structure

# Largest deviation of a sum of probabilities from one.
_SUM_TOLERANCE = 1e-6
# Largest difference of symmetric entries of a covariance, relative to the deviations of the two features.
_ASYMMETRY = 1e-6
# Smallest variance: the squares of rows, divided by a smaller one, overflow.
_LEAST_VARIANCE = 1e-305


# ---------------------------------------------------------------- numbers


def as_numbers(values: Any, name: str) -> FloatArray:
    """A new float64 array of the values."""
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}.") from None


def check_count(count: Any, what: str, otherwise: str = "") -> None:
    """Raise ValueError, which begins with `what`, unless `count` is an integer of at least one."""
    if not isinstance(count, Integral) or isinstance(count, bool) or count < 1:
        raise ValueError(f"{what} an integer of at least 1{otherwise}, got {count!r}.")


def check_distribution(values: Any, shape: tuple[int, ...], name: str) -> FloatArray:
    """Non-negative numbers of this shape, normalised so that columns sum to one."""
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
    """Covariances in the shape of a structure, which must be symmetric and positive definite."""
    array = as_numbers(values, "covariances")
    shape = structure.shape(n_kernels, n_features)
    if array.shape != shape:
        raise ValueError(
            f"covariances must have shape {shape} for covariance_type={structure.name!r} with {n_kernels} "
            f"kernels and {n_features} features, got {array.shape}."
        )
    if not np.all(np.isfinite(array)):
        raise ValueError("covariances must be finite.")
    if structure.triangular:
        full = structure.to_full(array[None], n_kernels, n_features)[0]
        deviations = np.sqrt(np.abs(np.diagonal(full, axis1=1, axis2=2)))
        differences = np.abs(full - np.swapaxes(full, 1, 2))
        is_asymmetric = differences > _ASYMMETRY * deviations[:, :, None] * deviations[:, None, :]
        if is_asymmetric.any():
            k = int(is_asymmetric.any(axis=(1, 2)).argmax())
            raise ValueError(
                f"the covariance of kernel {k} is not symmetric: entries differ by "
                f"{differences[k].max():.3g}."
            )
        array = 0.5 * (array + np.swapaxes(array, -1, -2))
    # The engine's test of definiteness does not depend on the units of features.
    if not structure.factor(array[None], n_features).usable[0]:
        full = structure.to_full(array[None], n_kernels, n_features)[0]
        # A variance that is not positive counts as an eigenvalue.
        smallest = np.diagonal(full, axis1=1, axis2=2).min(axis=1)
        for k in np.flatnonzero(smallest > 0).tolist():
            deviations = np.sqrt(np.diagonal(full[k]))
            smallest[k] = np.linalg.eigvalsh(full[k] / deviations[:, None] / deviations)[0]
        raise ValueError(
            f"the covariance of kernel {smallest.argmin()} is not positive definite: its smallest eigenvalue "
            f"is {smallest.min():.3g}, with features in units of their deviations."
        )
    variances = structure.variances(array[None])
    if not _LEAST_VARIANCE <= variances.min() <= variances.max() < np.inf:
        raise ValueError(
            f"covariances have variances from {variances.min():.3g} to {variances.max():.3g}, which are too "
            "far from one for sums of squares: rescale the features."
        )
    return array


# ---------------------------------------------------------------- columns


def indices_of(chosen: Iterable[Any], columns: Recipe, where: str, *, once: bool = True) -> list[int]:
    """Indices of columns given by index or name, without repetition if `once`; errors call them `where`."""
    # Sets have no order, and generators can be read only once.
    if isinstance(chosen, (str, Mapping)) or not hasattr(chosen, "__getitem__"):
        raise ValueError(f"{where} must be a list of columns, got {chosen!r}.")
    indices: list[int] = []
    for name in chosen:
        column = columns.index(name, where)
        if once and column in indices:
            raise ValueError(f"{where} has column {column} more than once.")
        indices.append(column)
    if not indices:
        raise ValueError(f"{where} is empty.")
    return indices


def check_given(given: Mapping[Any, Any], columns: Recipe) -> tuple[list[int], FloatArray]:
    """Indices of the columns with given values, and the features (1, M), NaN for other columns."""
    if not isinstance(given, Mapping):
        raise ValueError(f"given must be a dict from columns to values, got {given!r}.")
    known = indices_of(list(given), columns, "given")
    if len(known) == len(columns.kinds):
        raise ValueError(f"given has values of all {len(known)} columns: no column is left.")
    row = np.full((1, columns.n_features), np.nan)
    for column, value in zip(known, given.values(), strict=True):
        row[0, columns.features[column]] = columns.encode(column, value)
    return known, columns.to_scale(row)


def check_feature_sets(sets: Sequence[Sequence[Any]], columns: Recipe) -> list[list[int]]:
    """Indices of the features in each set of columns; a column is in at most one set."""
    if isinstance(sets, str) or not isinstance(sets, Sequence) or len(sets) == 0:
        raise ValueError(f"feature_sets must be a non-empty list of lists of columns, got {sets!r}.")
    set_of: dict[int, int] = {}
    features: list[list[int]] = []
    for number, names in enumerate(sets):
        indices = indices_of(names, columns, f"feature set {number}", once=False)
        for column in indices:
            if column in set_of:
                raise ValueError(
                    f"column {column} is in feature set {set_of[column]} and again in set {number}."
                )
            set_of[column] = number
        features.append(columns.features_of(indices))
    return features
