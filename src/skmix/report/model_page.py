"""The page of a fitted model: an explorer of kernels, weights, classes and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import entropy

from ..plots._models import DrawnKernels, kernel_sets
from ..plots.kernels import STEPS
from ..plots.style import FloatArray, short_name
from .description import describe, facts, serving
from .rendering import decimals, kernel_values, line_styles, number_text, render_page

# Most features and axes that a page offers.
_MAX_FEATURES = 40
# Most entries of covariances on a page: about half a megabyte.
_MAX_ENTRIES = 80_000
# Most directions of difference that a page offers as axes.
_MAX_AXES = 4
# Most features whose planes are shown side by side.
_MAX_PLANES = 6


def model_page(model: Any, *, title: str) -> str:
    """Return the page of a fitted model: one HTML file that opens offline and fetches nothing.

    The model is any estimator of this library. The same arguments give the same characters.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.report import model_page
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SharedKernelClassifier(random_state=0).fit(X, y)
    >>> page = model_page(model, title="Iris")
    >>> page.splitlines()[0]
    '<!doctype html>'
    """
    return render_page("model.html.j2", model_data(model, title=title))


def model_data(model: Any, *, title: str) -> dict[str, Any]:
    """Return the contents of the page as plain values."""
    sets = kernel_sets(model)
    described = describe(model)
    chosen = sorted(described["settings"].items())
    names = [str(label) for label in sets[0].classes]
    counts = [each["n_rows"] for each in described["classes"]] or [None] * len(names)
    return {
        "title": title,
        "n_kernels": [len(kernels.means) for kernels in sets],
        "serving": serving(described),
        "n_features": [len(kernels.names) for kernels in sets],
        # This many kernels of equal weight have the same entropy.
        "n_effective": [number_text(np.exp(entropy(kernels.weights_of(None))), 1) for kernels in sets],
        "n_parameters": described["n_parameters"],
        "settings": [
            ("estimator", described["kind"]),
            *facts(described).items(),
            *((name, value if type(value) is str else repr(value)) for name, value in chosen),
        ],
        "classes": names,
        "class_rows": [_class(sets, c, names[c], counts[c]) for c in range(len(names))],
        "counted": counts[0] is not None,
        "prior": decimals(sets[0].prior, 5),
        "feature_sets": [
            mixture_values(
                kernels, *offered_planes(kernels, len(sets)), name=f"set {place}" if len(sets) > 1 else ""
            )
            for place, kernels in enumerate(sets, start=1)
        ],
        **line_styles(),
    }


def _class(sets: Sequence[DrawnKernels], c: int, name: str, count: float | None) -> dict[str, Any]:
    weights = [each.weights[:, c] for each in sets]
    return {
        "name": name,
        "prior": number_text(float(sets[0].prior[c])),
        "count": "–" if count is None else f"{count:g}",
        "used": " + ".join(str(int((own >= STEPS[1]).sum())) for own in weights),
        "effective": " + ".join(number_text(np.exp(entropy(own)), 1) for own in weights),
        "heaviest": " + ".join(f"{short_name(own.argmax())} ({own.max():.2f})" for own in weights),
    }


def offered_planes(kernels: DrawnKernels, n_sets: int) -> tuple[list[int], FloatArray]:
    """Return the features that fit on a page, and the axes (q, M) along which kernels differ most."""
    n_kernels, n_features = kernels.means.shape
    # The largest F with F (F + 1) / 2 entries for every kernel.
    fit = int(np.sqrt(2.0 * _MAX_ENTRIES / (n_sets * n_kernels) + 0.25) - 0.5)
    n_axes = min(_MAX_AXES, n_kernels - 1) if n_features > 2 else 0
    room = max(2, min(_MAX_FEATURES, fit) - n_axes)
    features = list(range(n_features)) if n_features <= room else kernels.most_separate(room)
    axes = kernels.directions_of_difference(n_axes) if n_axes else np.zeros((0, n_features))
    return features, axes


def mixture_values(
    kernels: DrawnKernels, features: list[int], axes: FloatArray, *, name: str
) -> dict[str, Any]:
    """Return a mixture in the offered features and axes, with covariances as flat upper triangles."""
    n_features = len(kernels.names)
    means, covariances = kernels.project(np.concatenate([np.eye(n_features)[features], axes]))
    best = np.argsort(-kernels.separation()[features], kind="stable")
    # With many features, the first two axes show more than any two features.
    first = [len(features), len(features) + 1] if len(axes) > 1 and n_features > _MAX_PLANES else None
    return {
        "name": name,
        "features": [kernels.names[d] for d in features],
        "axes": [f"axis {d + 1}" for d in range(len(axes))],
        "first": first or sorted(best[:2].tolist()),
        "planes": sorted(best[:_MAX_PLANES].tolist()) if len(features) > 2 else [],
        "note": ""
        if len(features) == n_features
        else f"You can choose {len(features)} of the {n_features} features: those in which the kernels are "
        "furthest apart.",
        **kernel_values(kernels.weights, means, covariances),
    }
