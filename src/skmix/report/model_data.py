"""What the page of a fitted model says: its kernels, weights and settings as plain values."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.plots import kernels as lines
from skmix.plots._common import CLASS_COLOURS, FloatArray
from skmix.plots._models import Kernels, groups_of
from skmix.report.description import describe
from skmix.report.numbers import decimals, joined, significant, text

_MOST_ROWS = 2000
"""More rows than these neither fit a small page nor tell anything more."""
_MOST_FEATURES = 40
_MOST_ENTRIES = 80_000
"""Of covariances: about half a megabyte."""
_MOST_AXES = 4
_MOST_PLANES = 6
"""Features whose planes are shown side by side."""
_IN_USE = lines.STEPS[1]
_LONGEST = 80
"""Characters of a setting."""


def model_data(
    model: Any, *, title: str, X: ArrayLike | None = None, y: ArrayLike | None = None
) -> dict[str, Any]:
    """Return what the page of a model says, as plain values.

    Parameters
    ----------
    model : fitted SharedKernelClassifier, SharedKernelMixture or GaussianMixture
        The model, of any covariance type and number of features, with feature groups or without.
    title : str
        Title of the page.
    X : array-like of shape (n, M), default=None
        Rows to draw beneath the kernels, at most 2000 of them, chosen by chance; NaN marks a missing value.
    y : array-like of shape (n,), default=None
        Their labels.

    Returns
    -------
    dict
        What ``model.html.j2`` shows: nothing but strings, numbers, lists and dictionaries.
    """
    check_is_fitted(model)
    groups = groups_of(model)
    names = [str(label) for label in groups[0].classes]
    prior = groups[0].prior
    rows, labels, note = _rows(model, X, y, groups[0].classes)
    kept = [_offered(kernels, len(groups)) for kernels in groups]
    return {
        "title": title,
        "contents": [
            {"id": "summary", "title": "Summary"},
            {"id": "kernels", "title": "Kernels"},
            {"id": "weights", "title": "Weights"},
            *([{"id": "classes", "title": "Classes"}] if len(names) > 1 else []),
            {"id": "settings", "title": "Settings"},
        ],
        "lead": _lead(model, groups),
        "facts": _facts(model, groups),
        "settings": _settings(model),
        "classes": names,
        "class_rows": [_class(groups, c, names[c], model) for c in range(len(names))],
        "counted": hasattr(model, "class_count_"),
        "prior": decimals(prior, 5),
        "groups": [
            _mixture(kernels, offered, place, len(groups))
            for place, (kernels, offered) in enumerate(zip(groups, kept, strict=True))
        ],
        "rows": None if rows is None else {"labels": labels, "values": _row_values(rows, groups, kept)},
        "rows_note": note,
        "colours": list(CLASS_COLOURS),
        "steps": list(lines.STEPS),
        "step_names": list(lines.STEP_NAMES),
        "styles": {
            style: {"widths": list(lines.WIDTHS[style]), "colours": list(lines.COLOURS[style])}
            for style in ("paper", "accessible")
        },
    }


def _lead(model: Any, groups: Sequence[Kernels]) -> str:
    """Return the page's first sentence."""
    n_classes = len(groups[0].classes)
    kernels = [len(each.means) for each in groups]
    many = "kernel" if sum(kernels) == 1 else "kernels"
    shared = f" that {n_classes} classes share" if n_classes > 1 else ""
    if len(groups) == 1:
        features = len(groups[0].names)
        return f"{kernels[0]} Gaussian {many}{shared}, in {_count(features, 'feature')}."
    return (
        f"{len(groups)} groups of features, with {joined(map(str, kernels))} Gaussian kernels{shared}; "
        "the densities of the groups are multiplied."
    )


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _facts(model: Any, groups: Sequence[Kernels]) -> list[dict[str, str]]:
    """Return the numbers on top of the page."""
    facts = [{"name": "kernels", "value": " + ".join(str(len(each.means)) for each in groups)}]
    if len(groups[0].classes) > 1:
        facts.append({"name": "classes", "value": str(len(groups[0].classes))})
    facts.append({"name": "features", "value": " + ".join(str(len(each.names)) for each in groups)})
    effective = [np.exp(_entropy(each.weights_of(None))) if len(each.means) > 1 else 1.0 for each in groups]
    facts.append({"name": "kernels in effect", "value": " + ".join(text(each, 1) for each in effective)})
    facts.append({"name": "free parameters", "value": str(describe(model)["n_parameters"])})
    return facts


def _entropy(shares: FloatArray) -> float:
    positive = shares[shares > 0]
    return float(-(positive * np.log(positive)).sum())


def _settings(model: Any) -> list[tuple[str, str]]:
    """Return how the model was made and how its fit ended."""
    parts = getattr(model, "models_", [model])
    covariances = dict.fromkeys(getattr(part, "covariance_type_", part.covariance_type) for part in parts)
    said = [("estimator", type(model).__name__), ("covariances", joined(covariances))]
    if all(hasattr(part, "converged_") for part in parts):
        said.append(("converged", joined("yes" if part.converged_ else "no" for part in parts)))
        said.append(("passes", joined(str(part.n_iter_) for part in parts)))
    if hasattr(model, "log_likelihood_"):
        said.append(("log-likelihood of the training rows", f"{model.log_likelihood_:.6g}"))
    elif hasattr(model, "lower_bound_"):
        said.append(("log-likelihood of a training row", f"{model.lower_bound_:.6g}"))
    if getattr(model, "temperature_", 1.0) != 1.0:
        said.append(("temperature", f"{model.temperature_:.3g}"))
    threshold = getattr(model, "threshold_", -np.inf)
    if np.isfinite(threshold):
        said.append(("rows are refused below a log-density of", f"{threshold:.4g}"))
    defaults = {
        name: parameter.default for name, parameter in inspect.signature(type(model)).parameters.items()
    }
    for name, value in sorted(model.get_params(deep=False).items()):
        if value is not defaults.get(name):
            plain = " ".join(repr(value).split())
            if plain != repr(defaults.get(name)):
                said.append((name, plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"))
    return said


def _class(groups: Sequence[Kernels], c: int, name: str, model: Any) -> dict[str, Any]:
    """Return a line of the table of classes."""
    weights = [each.weights[:, c] for each in groups]
    counts = getattr(model, "class_count_", None)
    return {
        "name": name,
        "prior": text(float(groups[0].prior[c])),
        "count": "–" if counts is None else f"{counts[c]:g}",
        "used": " + ".join(str(int((own >= _IN_USE).sum())) for own in weights),
        "effective": " + ".join(text(float(np.exp(_entropy(own))), 1) for own in weights),
        "heaviest": " + ".join(f"{int(own.argmax()) + 1} ({own.max():.2f})" for own in weights),
    }


def _offered(kernels: Kernels, n_groups: int) -> tuple[list[int], FloatArray]:
    """Return the features that a page has room for, and the axes (q, M) along which kernels differ most."""
    n_kernels, n_features = kernels.means.shape
    # The largest F with F (F + 1) / 2 entries for every kernel.
    fit = int(np.sqrt(2.0 * _MOST_ENTRIES / (n_groups * n_kernels) + 0.25) - 0.5)
    n_axes = min(_MOST_AXES, n_kernels - 1) if n_features > 2 else 0
    room = max(2, min(_MOST_FEATURES, fit) - n_axes)
    features = list(range(n_features)) if n_features <= room else kernels.most_separate(room)
    axes = kernels.directions_of_difference(n_axes) if n_axes else np.zeros((0, n_features))
    return features, axes


def _mixture(
    kernels: Kernels, offered: tuple[list[int], FloatArray], place: int, n_groups: int
) -> dict[str, Any]:
    """Return a group's mixture in the features and axes on offer, covariances as upper triangles by rows."""
    features, axes = offered
    n_features = len(kernels.names)
    means, covariances = kernels.project(np.concatenate([np.eye(n_features)[features], axes]))
    upper = np.triu_indices(means.shape[1])
    separation = kernels.separation()[features]
    best = np.argsort(-separation, kind="stable")
    # Where there are many features the axes tell more than any two of them.
    first = [len(features), len(features) + 1] if len(axes) > 1 and n_features > _MOST_PLANES else None
    note = ""
    if len(features) < n_features:
        note = (
            f"{len(features)} of the {n_features} features are offered: those in which the kernels "
            "are furthest apart."
        )
    return {
        "name": f"group {place + 1}" if n_groups > 1 else "",
        "features": [kernels.names[d] for d in features],
        "axes": [f"axis {d + 1}" for d in range(len(axes))],
        "first": first or sorted(best[:2].tolist()),
        "planes": sorted(best[:_MOST_PLANES].tolist()) if len(features) > 2 else [],
        "note": note,
        "weights": decimals(kernels.weights, 5),
        "means": significant(means, 5),
        "covariances": significant(covariances[:, upper[0], upper[1]], 5),
    }


def _rows(
    model: Any, X: ArrayLike | None, y: ArrayLike | None, classes: Sequence[Any]
) -> tuple[FloatArray | None, list[int | None] | None, str]:
    """Return the rows to draw, the places of their labels among the classes, and a note on both."""
    if X is None:
        if y is not None:
            raise ValueError("y has labels of rows, but there are no rows: give X too.")
        return None, None, ""
    settings: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan"}
    # Rows without names are taken as they come; names are held against those of the model.
    if hasattr(X, "columns"):
        rows = validate_data(model, X, reset=False, **settings)
    else:
        rows = check_array(X, **settings)
    if rows.shape[1] != model.n_features_in_:
        raise ValueError(
            f"X has {rows.shape[1]} features, but the model was fitted to {model.n_features_in_}."
        )
    codes: list[int | None] | None = None
    if y is not None:
        known = np.asarray(y).ravel().tolist()
        if len(known) != len(rows):
            raise ValueError(f"X has {len(rows)} rows but y has {len(known)} labels.")
        places = {label: c for c, label in enumerate(classes)}
        codes = [places.get(label) for label in known]
    chosen = np.arange(len(rows))
    note = ""
    if len(rows) > _MOST_ROWS:
        chosen = np.sort(np.random.RandomState(0).choice(len(rows), _MOST_ROWS, replace=False))
        note = f"{_MOST_ROWS} of the {len(rows)} rows are drawn, chosen by chance."
    return rows[chosen], None if codes is None else [codes[row] for row in chosen], note


def _row_values(
    rows: FloatArray, groups: Sequence[Kernels], kept: Sequence[tuple[list[int], FloatArray]]
) -> list[Any]:
    """Return the rows' values for each group, a list for each feature or axis on offer."""
    values = []
    for kernels, (features, axes) in zip(groups, kept, strict=True):
        own = rows[:, kernels.columns]
        values.append(significant(np.concatenate([own[:, features], own @ axes.T], axis=1).T, 5))
    return values
