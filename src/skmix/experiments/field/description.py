"""What a fitted model is, in plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from skmix.experiments.field.predictions import is_classifier, outlier_threshold


def describe(model: Any) -> dict[str, Any]:
    """Return what a fitted model is as numbers, strings, lists and dictionaries, ready for JSON.

    Parameters
    ----------
    model : SharedKernelClassifier, SharedKernelMixture or GaussianMixture
        A fitted model.

    Returns
    -------
    dict
        Its ``kind``, ``features``, ``target``, ``classes`` (label, rows, prior), ``groups`` (the features,
        kernels and weights of each feature group; a single one as a rule), the number of free parameters of
        its densities, how the fit ended, the threshold of outliers, the temperature, and the ``settings``
        that are not defaults.
    """
    n_features = int(model.n_features_in_)
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    names = names or [f"feature {place}" for place in range(1, n_features + 1)]
    threshold = outlier_threshold(model)
    columns = getattr(model, "feature_groups_", [list(range(n_features))])
    parts = getattr(model, "models_", [model])
    return {
        "kind": type(model).__name__,
        "features": names,
        "target": getattr(model, "target_name_", None),
        "classes": _classes(model),
        "covariance_type": str(getattr(model, "covariance_type_", model.covariance_type)),
        "n_parameters": sum(int(part._n_parameters()) for part in parts),
        "groups": [
            _group(part, [names[column] for column in own]) for part, own in zip(parts, columns, strict=True)
        ],
        "converged": all(bool(part.converged_) for part in parts),
        "n_iter": int(model.n_iter_),
        "log_likelihood": _log_likelihood(parts),
        "outlier_threshold": None if threshold == -np.inf else threshold,
        "temperature": float(getattr(model, "temperature_", 1.0)),
        "settings": _settings(model),
    }


def _classes(model: Any) -> list[dict[str, Any]]:
    if not is_classifier(model) and len(getattr(model, "classes_", [0])) == 1:
        return []
    counts = getattr(model, "class_count_", np.full(len(model.classes_), np.nan))
    return [
        {"label": str(label), "n_rows": None if np.isnan(count) else float(count), "prior": float(prior)}
        for label, count, prior in zip(model.classes_.tolist(), counts, model.class_prior_, strict=True)
    ]


def _group(part: Any, names: list[str]) -> dict[str, Any]:
    weights = np.asarray(part.weights_, dtype=np.float64)
    weights = weights.reshape(len(weights), -1)
    prior = getattr(part, "class_prior_", np.ones(1))
    return {
        "features": names,
        "n_kernels": len(weights),
        "weights": weights.tolist(),
        "shares": (weights @ prior).tolist(),
        "means": np.asarray(part.means_, dtype=np.float64).tolist(),
    }


def _log_likelihood(parts: list[Any]) -> float | None:
    if not all(hasattr(part, "log_likelihood_") for part in parts):
        return None
    return float(sum(part.log_likelihood_ for part in parts))


def _settings(model: Any) -> dict[str, Any]:
    """Return the parameters that differ from their defaults, as values that JSON has or as text."""
    default = type(model)().get_params(deep=False)
    settings = {}
    for name, value in model.get_params(deep=False).items():
        if repr(value) != repr(default[name]):
            plain = isinstance(value, bool | int | str) or (isinstance(value, float) and np.isfinite(value))
            settings[name] = value if plain else repr(value)
    return settings
