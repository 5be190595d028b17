"""Models made of given parameters, without a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..data.missing import is_missing
from ..engine.kernels import GAUSSIAN, StudentT
from ..engine.records import FloatArray, Parameters
from ..engine.structures import STRUCTURES, Structure, structure_of
from .arguments import as_numbers, check_covariances, check_distribution
from .checks import note_columns
from .fitted import Fitted, fields_of


def fitted_of(
    weights: Any,
    means: Any,
    covariances: Any,
    *,
    covariance_type: str | None = None,
    degrees: Any = None,
    classes: Any = None,
    class_prior: Any = None,
    class_count: Any = None,
) -> Fitted:
    """The record of a mixture with these parameters; see `SharedKernelMixture.from_parameters`."""
    means = as_numbers(means, "means")
    if means.ndim != 2 or not means.size or not np.isfinite(means).all():
        raise ValueError(f"means must be finite numbers of shape (K, M), got the shape {means.shape}.")
    n_kernels, n_features = means.shape
    weights = as_numbers(weights, "weights")
    weights = weights[:, None] if weights.ndim == 1 else weights
    labels = _labels(classes, weights.shape[-1] if weights.ndim == 2 else 1)
    n_classes = len(labels)
    weights = check_distribution(weights, (n_kernels, n_classes), "weights")
    structure = _structure(np.shape(covariances), n_kernels, n_features, covariance_type)
    covariances = check_covariances(covariances, structure, n_kernels, n_features)
    tail = GAUSSIAN if degrees is None else StudentT(_degrees(degrees, n_kernels))
    prior = np.full(n_classes, 1.0 / n_classes)
    if class_prior is not None:
        prior = check_distribution(class_prior, (n_classes,), "class_prior")
    count = np.zeros(n_classes)
    if class_count is not None:
        count = as_numbers(class_count, "class_count")
        if count.shape != (n_classes,) or not (np.isfinite(count) & (count >= 0)).all():
            raise ValueError(f"class_count must be {n_classes} numbers of rows, got {class_count!r}.")
    order = np.argsort(labels, kind="stable")  # labels are sorted, as those of a fit
    parameters = Parameters(weights[:, order], means, covariances, tail=tail)
    return Fitted(
        classes=labels[order],
        class_prior=prior[order],
        class_count=count[order],
        expected_count=count[order],
        covariance_type=structure.name,
        converged=True,
        n_iter=0,
        **fields_of(parameters),
    )


def parameters_in(model: Any) -> dict[str, Any]:
    """The arguments of `fitted_of` for a fitted Gaussian mixture of scikit-learn, or its drop-in."""
    from sklearn.mixture import GaussianMixture  # slow to import

    if not isinstance(model, GaussianMixture):
        # Others have more than these parameters: classes, tails, shifts, or a posterior.
        raise TypeError(
            "from_parameters takes arrays, or a fitted GaussianMixture of scikit-learn or skmix, got a "
            f"{type(model).__name__}."
        )
    check_is_fitted(model)
    names = ("weights_", "means_", "covariances_", "covariance_type")
    return {name.rstrip("_"): getattr(model, name) for name in names}


def note_features(estimator: Any, n_features: int, names: Any) -> None:
    """Note the number of features, and their names if there are any."""
    if names is not None:
        names = [str(name) for name in names]
        if len(names) != n_features or len(set(names)) != n_features:
            raise ValueError(f"feature_names must be {n_features} different names, got {names}.")
    note_columns(estimator, n_features, names, None)


def _labels(classes: Any, n_classes: int) -> np.ndarray:
    if classes is None:
        return np.arange(n_classes)
    values = np.empty(len(classes), dtype=object)
    values[:] = [*classes]
    if len(values) != n_classes:
        raise ValueError(f"weights are of {n_classes} classes, and classes has {len(values)} labels.")
    if is_missing(values).any() or len({isinstance(label, str) for label in values}) > 1:
        raise ValueError(f"classes must be known labels of one kind, got {values.tolist()}.")
    labels = np.asarray(classes)
    if len(np.unique(labels)) != n_classes:
        raise ValueError(f"classes must be different labels, got {labels.tolist()}.")
    return labels


def _degrees(degrees: Any, n_kernels: int) -> FloatArray:
    values = np.broadcast_to(as_numbers(degrees, "degrees"), (n_kernels,)).copy()
    if not (np.isfinite(values) & (values >= 1.0)).all():
        raise ValueError(f"degrees must be finite numbers of at least 1, got {degrees!r}.")
    return values


def _structure(
    shape: tuple[int, ...], n_kernels: int, n_features: int, covariance_type: str | None
) -> Structure:
    """The structure of covariances of that shape, which may be of several; a name says which."""
    if covariance_type is not None:
        if covariance_type not in STRUCTURES:
            raise ValueError(
                f"covariance_type must be one of {', '.join(STRUCTURES)}, got {covariance_type!r}."
            )
        return structure_of(covariance_type)
    fitting = [name for name in STRUCTURES if structure_of(name).shape(n_kernels, n_features) == shape]
    if len(fitting) != 1:
        which = (
            f"may be {' or '.join(fitting)}: name the covariance_type" if fitting else "are of no structure"
        )
        raise ValueError(
            f"covariances of shape {shape} with {n_kernels} kernels and {n_features} features {which}."
        )
    return structure_of(fitting[0])
