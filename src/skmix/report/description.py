"""Descriptions of fitted models as plain values, and in words."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import is_classifier

from .._words import listed
from ..data.recipe import Recipe, in_words
from ..model.densities import n_parameters
from ..model.kernel_sets import chosen_model, feature_names, kernel_sets, numbered
from .intervals import outwards
from .prediction import n_blurred, outlier_threshold

# A kernel serves a class that has at least this weight on it.
_SERVED = 0.01
# Most features and categories that are named.
_MAX_NAMES = 12


def describe(model: Any) -> dict[str, Any]:
    """Return a description of a fitted model as numbers, strings, lists and dictionaries, ready for JSON.

    If several models are averaged, `n_members` is their number, and the rest describes the best of them.
    `feature_sets` has the features, kernels and weights of each feature set; `n_shared` of its kernels have a
    weight of at least 0.01 in two or more classes. `columns` are those of the user, with the categories of
    text, and `features` what they were encoded as; `scale` is that of features of files. `quality` is what
    `skmix fit` found, None if it is unknown or the model has been fitted again since. `sharing` is what a
    search chose, 'own' or 'shared' kernels. `settings` differ from their defaults.
    """
    recipe, chosen = Recipe.of(model), chosen_model(model)
    names = recipe.names or list(map(numbered, range(recipe.n_features)))
    used_names = feature_names(model) or names
    change = getattr(model, "feature_map_", None)
    by_rank = change is not None and change.curves is not None
    n_transformed = 0
    if change is not None:
        n_transformed = len(change.powers) if by_rank else int(np.count_nonzero(change.powers != 1.0))
    n_members = len(getattr(model, "classifiers_", getattr(model, "mixtures_", [model])))
    mixtures = getattr(chosen, "models_", [chosen])
    likelihoods: list[Any] = [getattr(mixture, "log_likelihood_", None) for mixture in mixtures]
    log_likelihood = None if None in likelihoods else float(sum(likelihoods))
    threshold, strength = outlier_threshold(model), float(getattr(chosen, "group_shift_", np.inf))
    quality, preparation = getattr(model, "quality_", None), recipe.preparation
    is_scaled = "compensate" in preparation or preparation["transform"] != "none"
    return {
        "kind": type(model).__name__,
        "columns": [
            {
                "name": name if isinstance(name, str) else numbered(name),
                "categories": kind if isinstance(kind, list) else None,
            }
            for name, kind in recipe.kinds.items()
        ],
        "features": names,
        "scale": in_words(preparation) if is_scaled else None,
        "n_transformed": n_transformed,
        "by_rank": by_rank,
        "n_components": None if change is None or change.matrix is None else len(used_names),
        "n_members": n_members if n_members > 1 else None,
        "target": getattr(model, "target_name_", None),
        "classes": _classes(chosen),
        "covariance_type": str(getattr(chosen, "covariance_type_", chosen.covariance_type)),
        "n_parameters": n_parameters(chosen),
        "feature_sets": [
            {
                "features": [used_names[d] for d in kernels.columns],
                "n_kernels": len(kernels.means),
                "n_shared": int(np.count_nonzero((kernels.weights >= _SERVED).sum(axis=1) > 1)),
                "weights": kernels.weights.tolist(),
                "shares": kernels.weights_of(None).tolist(),
                "means": kernels.means.tolist(),
                "degrees": mixture.kernel_degrees_.tolist() if hasattr(mixture, "kernel_degrees_") else None,
            }
            for kernels, mixture in zip(kernel_sets(model), mixtures, strict=True)
        ],
        "sharing": getattr(model, "best_params_", {}).get("kernels"),
        "group_shift": None if strength == np.inf else strength,
        "converged": all(bool(mixture.converged_) for mixture in mixtures),
        "n_iter": int(chosen.n_iter_),
        "log_likelihood": log_likelihood,
        "quality": quality if quality and quality["log_likelihood"] == log_likelihood else None,
        "outlier_threshold": None if threshold == -np.inf else threshold,
        "n_blurred": n_blurred(chosen),
        "temperature": float(getattr(chosen, "temperature_", 1.0)),
        "settings": settings_of(model),
    }


def _classes(model: Any) -> list[dict[str, Any]]:
    """Label, rows and prior of each class; none for a mixture of one class."""
    if not is_classifier(model) and len(getattr(model, "classes_", [0])) == 1:
        return []
    counts = getattr(model, "class_count_", np.full(len(model.classes_), np.nan))
    return [
        {"label": str(label), "n_rows": None if np.isnan(count) else float(count), "prior": float(prior)}
        for label, count, prior in zip(model.classes_.tolist(), counts, model.class_prior_, strict=True)
    ]


def settings_of(model: Any) -> dict[str, Any]:
    """The parameters that differ from their defaults, as values for JSON or as text.

    Parameters of a nested estimator are prefixed with its name, as in ``set_params``.
    """
    default = type(model)().get_params(deep=False)
    settings: dict[str, Any] = {}
    for name, value in model.get_params(deep=False).items():
        if hasattr(value, "get_params"):
            settings |= {f"{name}__{inner}": setting for inner, setting in settings_of(value).items()}
        elif repr(value) != repr(default[name]):
            plain = isinstance(value, bool | int | str) or (isinstance(value, float) and np.isfinite(value))
            text = " ".join(repr(value).split())
            settings[name] = value if plain else text if len(text) <= 80 else text[:77] + "..."
    return settings


# ---------------------------------------------------------------- in words


def facts(described: dict[str, Any]) -> dict[str, str]:
    """Return how a described model was fitted and what it does, in words; what it does not is left out."""
    columns = [
        column["name"] + (f" ({listed(column['categories'], _MAX_NAMES)})" if column["categories"] else "")
        for column in described["columns"]
    ]
    n_columns = f"{len(columns)}: " if len(columns) <= _MAX_NAMES else ""
    kernels = ", ".join(str(part["n_kernels"]) for part in described["feature_sets"])
    if len(described["classes"]) > 1:
        kernels += f", {serving(described)}"
    fit = ending(described)
    if described["log_likelihood"] is not None:
        fit += f", log-likelihood {described['log_likelihood']:.6g}"
    found = {
        "features": n_columns + listed(columns, _MAX_NAMES),
        "scale": described["scale"],
        "kernels": ", ".join([kernels, *(text for name, text in traits(described) if name == "kernels")]),
        "covariances": described["covariance_type"],
        "parameters": str(described["n_parameters"]),
        "fit": fit,
    }
    if described["n_transformed"]:
        name, how = ("ranks", "") if described["by_rank"] else ("powers", " (Yeo-Johnson)")
        found[name] = f"of {described['n_transformed']} features{how}"
    if described["n_components"]:
        found["components"] = str(described["n_components"])
    if described["n_members"]:
        found["averaged"] = f"{described['n_members']} models; this is the best one"
    if described["temperature"] != 1.0:
        how = "less" if described["temperature"] > 1.0 else "more"
        found["calibrated"] = f"with temperature {described['temperature']:.3g} ({how} extreme probabilities)"
    if described["outlier_threshold"] is not None:
        found["outliers"] = f"rows with a log-density below {described['outlier_threshold']:.4g}"
        if described["n_blurred"]:
            found["outliers"] += ", by kernels that are widened in features with rare values"
    found |= {name: text for name, text in traits(described) if name != "kernels"}
    found["target"] = described["target"]
    if quality := described["quality"]:
        found["accuracy"] = f"{100 * quality['training_accuracy']:.1f} % on the training rows"
        found["tested"] = _tested(quality["tested"]) if quality["tested"] else None
    return {name: text for name, text in found.items() if text is not None}


def _tested(tested: dict[str, Any]) -> str:
    """The accuracy on rows that were not fitted."""
    shares, accuracy = [100 * share for share in tested["by_fold"]], f"{100 * tested['accuracy']:.1f} %"
    how = f"on {tested['n_rows']:g} held-out rows, by a second fit; the model is fitted to all rows"
    if len(shares) > 1:
        folds = outwards(min(shares), max(shares), ".1f")
        how = f"by {len(shares)}-fold cross-validation (folds from {folds} %)"
    return f"{accuracy} {how}, log-loss {tested['log_loss']:.3f}"


def serving(described: dict[str, Any]) -> str:
    """How many kernels of a described model serve more than one class, in words."""
    n_kernels, n_shared = (
        sum(part[name] for part in described["feature_sets"]) for name in ("n_kernels", "n_shared")
    )
    if n_shared == 0:
        if described["sharing"] == "own" and "kernels" not in described["settings"]:
            return "not shared (one class each); this scored better than sharing"
        return "each of one class"
    which = "" if n_kernels == 1 else "all of " if n_shared == n_kernels else f"{n_shared} of "
    return f"{which}which {'serves' if n_shared == 1 else 'serve'} more than one class"


def traits(described: dict[str, Any], nouns: tuple[str, str] = ("rows", "group")) -> list[tuple[str, str]]:
    """The tails and shifts of a described model, as pairs of name and text.

    `nouns` are the words for rows, and for a group with its own means.
    """
    pairs = []
    rows, group = nouns
    degrees = [value for part in described["feature_sets"] for value in part["degrees"] or ()]
    if degrees:
        ends = dict.fromkeys(f"{end:.3g}" for end in (min(degrees), max(degrees)))
        pairs.append(("kernels", f"Student’s t, {' to '.join(ends)} degrees of freedom"))
    if described["group_shift"] is not None:
        strength = f"{described['group_shift']:g} {rows}"
        pairs.append(("shifts", f"own means of each {group}; the prior on shifts counts as {strength}"))
    return pairs


def ending(described: dict[str, Any]) -> str:
    """How the fit of a described model or study ended, in words."""
    ended = "converged" if described["converged"] else "did not converge"
    return f"{ended} in {described['n_iter']} {'pass' if described['n_iter'] == 1 else 'passes'}"
