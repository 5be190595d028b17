"""Remains of the checks of settings, until nothing reads settings of estimators below them any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..engine.records import FloatArray, Parameters
from ..engine.starts import uniform_weights
from ..engine.structures import Structure
from .arguments import as_numbers, check_covariances, check_distribution
from .settings import AUTO_TOL, _freeze, _stopping, _tail, is_wide


def fitted_start(init: Any) -> Any:
    """Return the fitted model that a start is; None for a name or dicts. Refuse one that is not fitted."""
    if isinstance(init, str | Mapping | list):
        return None
    if not hasattr(init, "class_prior_"):
        raise ValueError(f"init is a {type(init).__name__} that is not fitted.")
    return init


def covariance_type_of(model: Any, n_rows: int, n_features: int) -> str:
    """Return the name of a mixture's covariance type; 'auto' depends on the start and on the rows."""
    name: str = model.covariance_type
    if name != "auto":
        return name
    fitted = fitted_start(model.init)
    if fitted is not None:
        return str(fitted.covariance_type_)
    given = isinstance(model.init, Mapping) and model.init.get("covariances") is not None
    return "diag" if is_wide(n_rows, n_features) and not given else "full"


def check_tail(tail: Any) -> tuple[str | None, float | None]:
    is_robust, degrees = _tail(tail)
    return "t" if is_robust else None, degrees


def is_robust(model: Any) -> bool:
    """Return whether a model has t kernels. Such models run on the CPU."""
    return check_tail(getattr(model, "tail", None))[0] is not None


def check_tol(tol: Any) -> tuple[str, float]:
    stopping, value = _stopping(tol)
    return stopping, AUTO_TOL[0] if value is None else value


def freeze_of(model: Any) -> str | None:
    return _freeze(model.init)


def is_robust_fit(model: Any) -> bool:
    """Return whether a model was fitted with t kernels, whatever its settings are now."""
    return any(hasattr(each, "kernel_degrees_") for each in getattr(model, "models_", [model]))


def check_start(
    start: Mapping[str, Any],
    structure: Structure,
    n_kernels: int | None,
    n_classes: int,
    default_covariance: FloatArray,
) -> Parameters:
    """Return the start in a dict of `means` (K, M), `covariances` and `weights` (K, L).

    Only means are required. Covariances default to `default_covariance` (M,), the variances of the features,
    over K^(2/M), and weights to uniform ones; those of one class may have shape (K,). Without `n_kernels`,
    the means determine K.
    """
    unknown = set(start) - {"means", "covariances", "weights", "freeze"}
    if unknown or "means" not in start:
        raise ValueError(
            "init as a dict needs 'means' and may have 'covariances', 'weights' and 'freeze', got the keys "
            f"{sorted(map(str, start))}."
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
        common = structure.common(default_covariance / n_kernels ** (2.0 / n_features))
        covariances = structure.from_common(common[None], n_kernels)[0]
    else:
        covariances = check_covariances(start["covariances"], structure, n_kernels, n_features)
    if start.get("weights") is None:
        weights = uniform_weights(1, n_kernels, n_classes)[0]
    else:
        weights = as_numbers(start["weights"], "weights")
        weights = weights[:, None] if weights.ndim == n_classes == 1 else weights
        weights = check_distribution(weights, (n_kernels, n_classes), "weights")
    return Parameters(weights, means, covariances)
