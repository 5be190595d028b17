"""Plots of a model's kernels as ellipses, with line styles for the weights of a class."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm

from ..model.kernel_sets import Feature, drawn_kernels, rows_of
from ..model.rows import enter
from .style import (
    DASHES,
    LEGEND,
    MEDIUM,
    ROWS_COLOUR,
    SMALL,
    Axes,
    Figure,
    FloatArray,
    Line,
    colour_of,
    dots,
    ellipses,
    figure_or_new,
    finish,
    panels_for,
    round_of,
)

# Weights at which the line style of a kernel changes, as in the paper's table 7.
STEPS = (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
# Their names in legends.
STEP_NAMES = ("< 0.01", "0.01 – 0.1", "0.1 – 0.2", "0.2 – 0.3", "0.3 – 0.4", "0.4 – 0.5", "≥ 0.5")
# Line widths of the steps.
WIDTHS = (0.7, 0.9, 1.2, 1.6, 2.1, 2.7, 3.4)
# Colours of the steps. Lightness decreases, so that the order is visible to colour-blind readers and in grey;
# the lightest has a contrast of 3 to 1 against white.
COLOURS = ("#ed6925", "#d44842", "#b73557", "#932667", "#6a176e", "#420a68", "#160b39")
# Most features of a new figure, unless they are given: panels of more are too small.
_MAX_FEATURES = 8


def draw_kernels(
    model: Any,
    label: Hashable | None = None,
    axes: Axes | None = None,
    *,
    features: Sequence[Feature] | None = None,
    colours: Sequence[int] | NDArray[np.integer] | None = None,
    n_std: float = 1.0,
) -> Axes:
    """Draw a fitted model's kernels as ellipses, with line styles that show the weights of a class.

    The heaviest kernel is on top. With one feature, kernels are curves: the density of the class, and the
    contribution of each kernel.

    Parameters
    ----------
    model : fitted SharedKernelMixture, SharedKernelClassifier or GaussianMixture, or GroupModel of a study
        The model, of any covariance type.
    label : hashable, default=None
        Class whose weights determine the line styles; None averages the classes by their priors.
    axes : matplotlib axes, default=None
        Where to draw; None makes a new figure.
    features : sequence of one or two of int or str, default=None
        The features on the horizontal and the vertical axis, by index or name; a single one is shown as
        curves. None takes the first two, or the only one.
    colours : sequence of K int, default=None
        Number of each kernel's colour, such as its population (``populations.of_kernels``). Lines then show
        colours instead of weights.
    n_std : float, default=1.0
        Distance of the ellipses from the means, in standard deviations.
    """
    kernels = drawn_kernels(model)
    chosen = range(min(2, len(kernels.names))) if features is None else features
    if not 1 <= len(chosen) <= 2:
        raise ValueError(f"features must be one or two, got {len(chosen)}.")
    columns = kernels.indices(chosen)
    weights = kernels.weights_of(label)
    lines = [_line_of(weight) for weight in weights]
    if colours is not None:
        if len(colours) != len(weights):
            raise ValueError(f"The model has {len(weights)} kernels, but colours has {len(colours)} numbers.")
        lines = [{"color": colour_of(c), "ls": DASHES[round_of(c)], "lw": 1.4} for c in colours]
    (panel,) = panels_for(1, axes, size=(4.2, 3.6))
    _draw(panel, weights, *kernels.project(np.eye(len(kernels.names))[columns]), lines, n_std)
    if axes is None:
        _name_axes(panel, kernels.names, columns)
        finish(panel, label_size=MEDIUM)
    return panel


def _draw(
    axes: Axes,
    weights: FloatArray,
    means: FloatArray,
    covariances: FloatArray,
    lines: Sequence[Line],
    n_std: float,
) -> None:
    """Draw kernels of weights (K,), means (K, F) and covariances (K, F, F), where F is one or two."""
    order = np.argsort(weights, kind="stable")
    weights, means, covariances = weights[order], means[order], covariances[order]
    lines = [lines[k] for k in order]
    if means.shape[1] == 2:
        ellipses(axes, means, covariances, lines, n_std)
        return
    deviations = np.sqrt(covariances[:, 0])
    # Points around every kernel of some weight, so that narrow ones are visible too.
    seen = weights >= min(STEPS[1], weights.max())
    grid = np.unique(means[seen] + deviations[seen] * np.linspace(-4.0, 4.0, 201))
    curves = weights[:, None] * norm.pdf(grid, means, deviations)
    for curve, line in zip(curves, lines, strict=True):
        axes.plot(grid, curve, **line)
    # Beneath the kernels, so that a kernel that makes up the whole density remains visible.
    axes.plot(grid, curves.sum(axis=0), color="0.35", lw=5.0, alpha=0.35, label="all kernels", zorder=1.5)
    axes.set_ylim(bottom=0.0)


def weight_key(axes: Axes, **legend: Any) -> Axes:
    """Add a legend of line styles and weights to axes, with further settings of ``axes.legend``."""
    settings: dict[str, Any] = {"title": "weight in the class", "frameon": False} | legend
    axes.legend(handles=_key_handles(range(len(STEPS))[::-1]), **settings)
    return axes


def _step_of(weight: float) -> int:
    return int(np.searchsorted(STEPS, weight, side="right")) - 1


def _line_of(weight: float) -> Line:
    step = _step_of(weight)
    return {"color": COLOURS[step], "lw": WIDTHS[step], "ls": "solid" if step else "dashed"}


def _key_handles(steps: Sequence[int]) -> list[Any]:
    from matplotlib.lines import Line2D

    return [Line2D([], [], label=STEP_NAMES[step], **_line_of(STEPS[step])) for step in steps]


def plot_projections(
    model: Any,
    label: Hashable | None = None,
    X: ArrayLike | None = None,
    y: Sequence[Hashable] | NDArray[Any] | None = None,
    axes: Any = None,
    *,
    figure: Figure | None = None,
    features: Sequence[Feature] | None = None,
    n_std: float = 1.0,
) -> NDArray[Any]:
    """Plot a fitted model's kernels in every plane of two features, with the weights of one class.

    With one feature the plot shows curves: the density of the class, and the contribution of each kernel.
    With more than eight features a new figure shows the eight in which the kernels differ most.

    Parameters
    ----------
    model, label, n_std
        As for `draw_kernels`. If the model has feature sets, plot ``model.models_[g]``.
    X : array-like of shape (n, M), default=None
        Rows to show beneath the kernels.
    y : sequence of n labels, default=None
        Labels of the rows, unless they were opened with labels; with a `label`, only the rows of that class
        are shown.
    axes : axes or array of axes, default=None
        Axes to draw into, one for each pair of features in the order (0, 1), (0, 2), …, (1, 2), …; None makes
        a new figure with a legend.
    figure : matplotlib figure, default=None
        An empty figure for panels and legend, instead of `axes`.
    features : sequence of int or str, default=None
        Features to plot, by index or name. None plots all; in a new figure at most eight, those in which the
        kernels are furthest apart.
    """
    kernels = drawn_kernels(model)
    weights = kernels.weights_of(label)
    n_features = len(kernels.names)
    columns = kernels.indices(range(n_features) if features is None else features)
    title = [] if label is None else [f"class {label}"]
    if features is None and axes is None and n_features > _MAX_FEATURES:
        columns = kernels.most_separate(_MAX_FEATURES)
        title.append(f"{_MAX_FEATURES} of {n_features} features: where the kernels differ most")
    rows = None if X is None else rows_of(model, X)
    if rows is not None and label is not None:
        given = enter(model, X, y).with_own_labels()
        if given.y is not None:
            labels = given.labels(len(rows), unlabelled=True).tolist()
            rows = rows[[each == label for each in labels]]
    means, covariances = kernels.project(np.eye(n_features)[columns])
    lines = [_line_of(weight) for weight in weights]
    pairs: list[tuple[int, ...]] = list(itertools.combinations(range(len(columns)), 2)) or [(0,)]
    panels = _corner(len(columns), figure) if axes is None else panels_for(len(pairs), axes, figure)
    for panel, pair in zip(panels, pairs, strict=True):
        own = [columns[place] for place in pair]
        if rows is not None and len(pair) == 2:
            dots(panel, rows[:, own])
        elif rows is not None:
            known = rows[np.isfinite(rows[:, own[0]]), own[0]]
            panel.hist(known, bins="auto", density=True, color=ROWS_COLOUR, alpha=0.6, zorder=0)
        _draw(panel, weights, means[:, pair], covariances[:, pair][:, :, pair], lines, n_std)
        _name_axes(panel, kernels.names, own)
    if axes is None:
        finish(*panels, label_size=MEDIUM, outer=True)
        if title:
            panels[0].figure.suptitle(", ".join(title))
        steps = sorted({_step_of(weight) for weight in weights}, reverse=True)
        panels[0].figure.legend(
            handles=_key_handles(steps) + panels[0].get_legend_handles_labels()[0],
            title="weight",
            # The upper right half of a triangle of panels is free.
            loc="upper right" if len(columns) > 2 else "outside right upper",
            **LEGEND | {"fontsize": SMALL + 1, "title_fontsize": MEDIUM},
        )
    return panels


def _name_axes(panel: Axes, names: Sequence[str], columns: Sequence[int]) -> None:
    # Names are data: a dollar sign begins no formula.
    panel.set_xlabel(names[columns[0]], parse_math=False)
    panel.set_ylabel(names[columns[1]] if len(columns) == 2 else "density", parse_math=False)


def _corner(n_features: int, figure: Figure | None) -> NDArray[Any]:
    """Return axes for all pairs of features, laid out as a lower triangle in the figure or a new one."""
    side = max(n_features - 1, 1)
    size = max(2.0 * side, 4.0)
    own = figure_or_new(figure, (size + (1.2 if side == 1 else 0.0), size))
    grid, panels = own.add_gridspec(side, side), np.full((side, side), None)
    # A line for each vertical feature, a column for each horizontal one.
    for line, column in np.transpose(np.tril_indices(side)).tolist():
        shared = {"sharex": panels[column, column], "sharey": panels[0, line]}
        panels[column, line] = own.add_subplot(grid[line, column], **shared)
    return panels[np.triu_indices(side)]
