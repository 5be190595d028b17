"""The page of a fitted model: its kernels in pictures, weights, classes and settings."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import entropy

from ..model.kernel_sets import DrawnKernels, kernel_sets
from ..plots.kernels import STEPS, draw_kernels, plot_projections
from ..plots.style import MEDIUM, SMALL, finish, new_figure, picture_of, short_name, title_of
from .description import describe, facts, serving
from .rendering import HeatCell, number_text, render_page

# Most features whose planes are drawn.
_MAX_FEATURES = 6
# Most classes that have a picture, and pictures side by side.
_MAX_PICTURES, _SIDE_BY_SIDE = 12, 4
# Kernels of at least this weight have a number in the picture of a class.
_NUMBERED = 0.1
# Most cells of the heat map: more would be megabytes that nobody reads.
_MAX_CELLS = 20_000


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
    sets, described = kernel_sets(model), describe(model)
    names = [str(label) for label in sets[0].classes]
    counts = [entry["n_rows"] for entry in described["classes"]] or [None] * len(names)
    content = {
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
            *((name, str(value)) for name, value in sorted(described["settings"].items())),
        ],
        "classes": names,
        "class_rows": [_class(sets, c, names[c], counts[c]) for c in range(len(names))],
        "counted": counts[0] is not None,
        "feature_sets": [_feature_set(kernels, names) for kernels in sets],
    }
    return render_page("model.html.j2", content)


def _class(sets: Sequence[DrawnKernels], c: int, name: str, count: float | None) -> dict[str, Any]:
    """What the table of classes says of one class."""
    weights = [kernels.weights[:, c] for kernels in sets]
    return {
        "name": name,
        "prior": number_text(float(sets[0].prior[c])),
        "count": "–" if count is None else f"{count:g}",
        "used": " + ".join(str(int((of_set >= STEPS[1]).sum())) for of_set in weights),
        "effective": " + ".join(number_text(np.exp(entropy(of_set)), 1) for of_set in weights),
        "heaviest": " + ".join(f"{short_name(of_set.argmax())} ({of_set.max():.2f})" for of_set in weights),
    }


def _feature_set(kernels: DrawnKernels, classes: list[str]) -> dict[str, Any]:
    """Pictures and weights of the kernels of a feature set."""
    order = _order(kernels)
    shown = order[: max(1, _MAX_CELLS // len(classes))]
    largest, drawn = kernels.weights.max(), kernels.most_separate(_MAX_FEATURES)
    return {
        "features": kernels.names,
        "drawn": [kernels.names[d] for d in drawn],
        "projections": _projections(kernels, drawn),
        "by_class": _by_class(kernels) if len(classes) > 1 else None,
        "n_left_out": len(order) - len(shown),
        "lines": [
            (
                short_name(k),
                [
                    HeatCell.of(
                        f"{weight:.2f}" if weight >= 0.005 else "",
                        weight / largest,
                        f"kernel {short_name(k)} in class {name}: weight {weight:.4f}",
                    )
                    for name, weight in zip(classes, kernels.weights[k].tolist(), strict=True)
                ],
            )
            for k in shown
        ],
    }


def _order(kernels: DrawnKernels) -> list[int]:
    """The kernels by the class that uses them most; of very many, those of most rows."""
    overall = kernels.weights_of(None)
    heaviest = np.argsort(-overall, kind="stable")[: max(1, _MAX_CELLS // len(kernels.classes))]
    by_class = kernels.weights[heaviest].argmax(axis=1)
    order = np.lexsort((-kernels.weights[heaviest].max(axis=1), by_class))
    rest = np.argsort(-overall, kind="stable")[len(heaviest) :]
    return [*heaviest[order].tolist(), *rest.tolist()]


def _projections(kernels: DrawnKernels, features: list[int]) -> str:
    """A picture of the kernels in all planes of some features."""
    side = max(len(features) - 1, 1)
    figure = new_figure(max(2.1 * side, 4.5) + (1.2 if side == 1 else 0.0), max(2.1 * side, 4.0))
    plot_projections(kernels, figure=figure, features=features)
    return picture_of(figure, n_shapes=len(kernels.means) * len(features) * side)


def _by_class(kernels: DrawnKernels) -> dict[str, Any]:
    """A picture of the weights of each class, in the plane in which the kernels differ most."""
    plane = kernels
    directions = kernels.directions_of_difference(2)
    if len(kernels.names) > 2 and len(directions) == 2:
        plane = kernels.along(directions, ["axis 1", "axis 2"])
    largest = np.argsort(-kernels.prior, kind="stable")[:_MAX_PICTURES]
    n_columns = min(len(largest), _SIDE_BY_SIDE)
    n_lines = -(-len(largest) // n_columns)
    figure = new_figure(2.6 * n_columns, 2.5 * n_lines)
    panels = figure.subplots(n_lines, n_columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, c in itertools.zip_longest(panels, sorted(largest.tolist())):
        if c is None:
            panel.remove()
            continue
        draw_kernels(plane, kernels.classes[c], panel)
        for k in np.flatnonzero(kernels.weights[:, c] >= _NUMBERED) if plane.means.shape[1] > 1 else ():
            panel.text(*plane.means[k, :2], short_name(k), fontsize=SMALL, ha="center", va="center")
        title_of(panel, str(kernels.classes[c]))
        panel.set_xlabel(plane.names[0], parse_math=False)
        panel.set_ylabel(plane.names[1] if len(plane.names) > 1 else "density", parse_math=False)
    finish(*panels[: len(largest)], label_size=MEDIUM, outer=True)
    return {
        "picture": picture_of(figure, n_shapes=len(kernels.means) * len(largest)),
        "is_discriminant": plane is not kernels,
        "n_left_out": len(kernels.classes) - len(largest),
    }
