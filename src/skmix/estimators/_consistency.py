"""Whether the fitted attributes of an estimator belong together, as a file that is read must show.

The same checks run before a file is written, so that nothing is saved that could not be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from ..engine.covariances import COVARIANCE_TYPES, structure_of
from ._settings import check_covariance_prior, check_distribution, check_feature_groups
from ._variational import OF_THE_POSTERIOR

# Attributes of precision and covariance are each other's inverse to this, and to rounding.
_INVERSE_TOLERANCE = 1e-3
OF_ONE_MODEL = (
    "weights_",
    "means_",
    "covariances_",
    "converged_",
    "log_likelihood_",
    "log_likelihood_path_",
    "start_status_",
    "start_log_likelihoods_",
    *OF_THE_POSTERIOR,
)
_OF_THE_FIT = ("log_likelihood_", "log_likelihood_path_", "start_status_", "start_log_likelihoods_")


def check_mixture(model: Any) -> None:
    """Check a fitted `SharedKernelMixture`; ValueError names what is wrong."""
    covariance_type = _attribute(model, "covariance_type_", str)
    if covariance_type not in COVARIANCE_TYPES:
        raise ValueError(f"its covariance type is {covariance_type!r}")
    if model.covariance_type in COVARIANCE_TYPES and model.covariance_type != covariance_type:
        raise ValueError(
            f"covariance_type is {model.covariance_type!r}, but {covariance_type!r} was fitted: fit again"
        )
    means = _means(model)
    n_kernels, n_features = means.shape
    n_classes = _labels(model)
    _distribution(model, "class_prior_", (n_classes,))
    _distribution(model, "weights_", (n_kernels, n_classes))
    _covariances(_numbers(model, "covariances_"), covariance_type, n_kernels, n_features)
    _features(model, n_features)
    if hasattr(model, "covariance_prior_"):
        check_covariance_prior(_attribute(model, "covariance_prior_", tuple), n_features)
    _attribute(model, "converged_", bool)
    _attribute(model, "n_iter_", Integral)
    if not any(hasattr(model, name) for name in _OF_THE_FIT):
        return  # a marginal or conditional of another model, which was never fitted itself
    if np.isnan(_attribute(model, "log_likelihood_", float)):
        raise ValueError("log_likelihood_ is NaN")
    path = _numbers(model, "log_likelihood_path_", finite=False)
    if path.ndim != 2 or path.shape[1] not in (n_classes, n_classes + 1):
        raise ValueError(f"log_likelihood_path_ has shape {path.shape} for {n_classes} classes")
    if any(hasattr(model, name) for name in OF_THE_POSTERIOR):
        _posterior(model, n_kernels, n_classes)
    status = _attribute(model, "start_status_", np.ndarray)
    reached = _numbers(model, "start_log_likelihoods_", finite=False)
    if status.dtype.kind != "U" or status.ndim != 1 or status.shape != reached.shape:
        raise ValueError(
            f"start_status_ {status.shape} and start_log_likelihoods_ {reached.shape} do not belong together"
        )


def _posterior(model: Any, n_kernels: int, n_classes: int) -> None:
    """Check what a variational fit has left."""
    if np.isnan(_attribute(model, "lower_bound_", float)):
        raise ValueError("lower_bound_ is NaN")
    if _numbers(model, "lower_bound_path_", finite=False).ndim != 1:
        raise ValueError("lower_bound_path_ is not one path")
    shapes = {
        "weight_concentration_": (n_kernels, n_classes),
        "mean_precision_": (n_kernels,),
        "degrees_of_freedom_": (n_kernels,),
    }
    for name, shape in shapes.items():
        values = _numbers(model, name)
        if values.shape != shape or not np.all(values > 0):
            raise ValueError(
                f"{name} has shape {values.shape}, not {shape}, or numbers that are not positive"
            )


def check_classifier(model: Any) -> None:
    """Check a fitted `SharedKernelClassifier` and its models."""
    n_classes = _labels(model)
    _distribution(model, "class_prior_", (n_classes,))
    n_features = _attribute(model, "n_features_in_", Integral)
    _features(model, n_features)
    _attribute(model, "n_iter_", Integral)
    models = _attribute(model, "models_", list)
    groups = check_feature_groups(_attribute(model, "feature_groups_", list), n_features, None)
    if len(groups) != len(models):
        raise ValueError(f"it has {len(models)} models for {len(groups)} feature groups")
    for group, (columns, part) in enumerate(zip(groups, models, strict=True)):
        if type(part).__name__ != "SharedKernelMixture":
            raise ValueError(f"the model of feature group {group} is a {type(part).__name__}")
        check_mixture(part)
        if part.means_.shape[1] != len(columns):
            raise ValueError(
                f"the model of feature group {group} has {part.means_.shape[1]} features "
                f"for {len(columns)} columns"
            )
        if not _same(part.classes_, model.classes_):
            raise ValueError(f"the model of feature group {group} has other classes")
    for name in OF_ONE_MODEL:
        if hasattr(model, name) != (len(models) == 1 and hasattr(models[0], name)):
            raise ValueError(f"{name} does not go with {len(models)} feature groups")
        if hasattr(model, name) and not _same(getattr(model, name), getattr(models[0], name)):
            raise ValueError(f"{name} differs from that of its model")


def check_gaussian(model: Any) -> None:
    """Check a fitted `GaussianMixture`."""
    means = _means(model)
    n_kernels, n_features = means.shape
    structure = structure_of(model.covariance_type)
    _distribution(model, "weights_", (n_kernels,))
    covariances = _numbers(model, "covariances_")
    _covariances(covariances, model.covariance_type, n_kernels, n_features)
    shape = structure.shape(n_kernels, n_features)
    roots, precisions = _numbers(model, "precisions_cholesky_"), _numbers(model, "precisions_")
    if not roots.shape == precisions.shape == shape:
        raise ValueError(f"its precisions have the shapes {roots.shape} and {precisions.shape}, not {shape}")
    _inverse(*(_matrices(a, model.covariance_type, n_features) for a in (covariances, roots, precisions)))
    _features(model, n_features)
    _attribute(model, "converged_", bool)
    _attribute(model, "n_iter_", Integral)
    if np.isnan(_attribute(model, "lower_bound_", float)):
        raise ValueError("lower_bound_ is NaN")
    bounds = _attribute(model, "lower_bounds_", list)
    if any(not isinstance(bound, float) or np.isnan(bound) for bound in bounds):
        raise ValueError("lower_bounds_ are not all numbers")


def check_classifier_search(search: Any) -> None:
    """Check a fitted `SharedKernelClassifierCV` and its classifier."""
    _search(search, "classifier_", "SharedKernelClassifier")
    n_features = search.n_features_in_
    if _attribute(search, "projection_", (tuple, type(None))) is not None:
        offset, matrix = search.projection_
        if offset.shape != (n_features,) or matrix.shape[:1] != (n_features,) or matrix.ndim != 2:
            raise ValueError(
                f"projection_ has shapes {offset.shape}, {matrix.shape} for {n_features} features"
            )
        n_features = matrix.shape[1]
    if search.classifier_.n_features_in_ != n_features:
        raise ValueError(
            f"classifier_ takes {search.classifier_.n_features_in_} features, but is given {n_features}"
        )


def check_mixture_search(search: Any) -> None:
    """Check a fitted `SharedKernelMixtureCV` and its mixture."""
    _search(search, "best_estimator_", "SharedKernelMixture")


def _search(search: Any, name: str, kind: str) -> None:
    """Check what both searches have, and the model of the given name and class."""
    model = vars(search).get(name)
    if type(model).__name__ != kind:
        raise ValueError(f"{name} is a {type(model).__name__}")
    CHECKS[kind](model)
    _attribute(search, "n_features_in_", Integral)
    _attribute(search, "best_params_", dict)
    table = _attribute(search, "cv_results_", dict)
    if len({len(column) for column in table.values()}) != 1:
        raise ValueError("the columns of cv_results_ differ in length")
    if not _same(_attribute(search, "classes_", np.ndarray), model.classes_):
        raise ValueError(f"{name} has other classes")


CHECKS: dict[str, Callable[[Any], None]] = {
    "SharedKernelMixture": check_mixture,
    "SharedKernelClassifier": check_classifier,
    "GaussianMixture": check_gaussian,
    "SharedKernelClassifierCV": check_classifier_search,
    "SharedKernelMixtureCV": check_mixture_search,
}


def _attribute(model: Any, name: str, kind: type | tuple[type, ...]) -> Any:
    if name not in vars(model):
        raise ValueError(f"{name} is missing")
    value = vars(model)[name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is a {type(value).__name__}")
    return value


def _numbers(model: Any, name: str, *, finite: bool = True) -> np.ndarray:
    array: np.ndarray = _attribute(model, name, np.ndarray)
    if array.dtype not in (np.float64, np.float32):
        raise ValueError(f"{name} is an array of {array.dtype}")
    if finite and not np.all(np.isfinite(array)):
        raise ValueError(f"{name} has values that are NaN or infinite")
    return array


def _means(model: Any) -> np.ndarray:
    means = _numbers(model, "means_")
    if means.ndim != 2 or 0 in means.shape:
        raise ValueError(f"means_ has shape {means.shape}")
    return means


def _labels(model: Any) -> int:
    """Return the number of classes, whose labels must be sorted and unlike each other."""
    labels = _attribute(model, "classes_", np.ndarray)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"classes_ has shape {labels.shape}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("classes_ has NaN")
    try:
        ordered = bool(np.all(labels[1:] > labels[:-1]))
    except TypeError as error:
        raise ValueError(f"classes_ has labels that cannot be compared: {error}") from None
    if not ordered:
        raise ValueError(f"classes_ are not sorted and distinct: {labels[:5].tolist()}")
    return len(labels)


def _features(model: Any, n_features: int) -> None:
    """Check the number of features and their names, where there are any."""
    known = _attribute(model, "n_features_in_", Integral)
    if known != n_features or known < 1:
        raise ValueError(f"n_features_in_ is {known} for {n_features} features")
    if "feature_names_in_" not in vars(model):
        return
    names = _attribute(model, "feature_names_in_", np.ndarray)
    if names.shape != (n_features,) or any(not isinstance(name, str) for name in names):
        raise ValueError(f"feature_names_in_ are not {n_features} names")


def _distribution(model: Any, name: str, shape: tuple[int, ...]) -> None:
    values = _numbers(model, name)
    if values.dtype == np.float32:
        # Single precision does not sum to one as closely; the rest of the check stays.
        values = values.astype(np.float64)
        if values.shape == shape and np.all(np.abs(values.sum(axis=0) - 1.0) < 1e-4):
            values /= values.sum(axis=0)
    check_distribution(values, shape, name)


def _matrices(array: np.ndarray, covariance_type: str, n_features: int) -> np.ndarray:
    """Return matrices (B, M, M) of structures that have them, otherwise the variances (B, 1, 1)."""
    order = n_features if structure_of(covariance_type).n_second(n_features) > n_features else 1
    return array.astype(np.float64).reshape(-1, order, order)


def _covariances(array: np.ndarray, covariance_type: str, n_kernels: int, n_features: int) -> None:
    structure = structure_of(covariance_type)
    if array.ndim == 3 and array.shape[-1] > 1:
        structure = structure.of(array)
    shape = structure.shape(n_kernels, n_features)
    if array.shape != shape:
        raise ValueError(
            f"covariances_ has shape {array.shape}, not {shape} as {n_kernels} kernels of {n_features} "
            f"features have with covariance_type={covariance_type!r}"
        )
    # Factors make symmetric matrices, whatever they are.
    matrices = np.empty((0, 1, 1)) if structure.projects else _matrices(array, covariance_type, n_features)
    deviations = np.sqrt(np.abs(np.diagonal(matrices, axis1=1, axis2=2)))
    gap = np.abs(matrices - np.swapaxes(matrices, 1, 2))
    if np.any(gap > 1e-6 * deviations[:, :, None] * deviations[:, None, :]):
        raise ValueError(f"covariances_ are not symmetric: entries differ by {gap.max():.3g}")
    # The engine's own criterion, which bad scaling does not mislead.
    if not structure.factor(array.astype(np.float64)[None], n_features).usable[0]:
        raise ValueError("covariances_ are not positive definite")


def _inverse(covariances: np.ndarray, roots: np.ndarray, precisions: np.ndarray) -> None:
    """Check U (B, M, M) against P and P⁻¹ = UUᵀ, as closely as their conditioning allows."""
    if not np.all(np.diagonal(roots, axis1=1, axis2=2) > 0):
        raise ValueError("precisions_cholesky_ has a diagonal that is not positive")
    magnitude = np.abs(roots) @ np.swapaxes(np.abs(roots), 1, 2)
    product = roots @ np.swapaxes(roots, 1, 2)
    if np.any(np.abs(product - precisions) > _INVERSE_TOLERANCE * magnitude):
        raise ValueError("precisions_ are not the squares of precisions_cholesky_")
    white = np.swapaxes(roots, 1, 2) @ covariances @ roots
    # Variance inflation, P_ii (P⁻¹)_ii, is what rounding is multiplied by; attributes may be float32.
    inflation = np.einsum("bdd,bdd->bd", covariances, precisions).max(axis=1)
    order = covariances.shape[1]
    allowed = _INVERSE_TOLERANCE + 8 * order * np.finfo(np.float32).eps * inflation
    if np.any(np.abs(white - np.eye(order)) > allowed[:, None, None]):
        raise ValueError("precisions_cholesky_ does not belong to covariances_")


def _same(one: Any, other: Any) -> bool:
    """Whether two attributes have the same type and values."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        equal_nan = one.dtype.kind == "f" and other.dtype.kind == "f"
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=equal_nan)
    return type(one) is type(other) and bool(one == other)
