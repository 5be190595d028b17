"""Kernels as ellipses, their lines showing how a class weighs them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np

from skmix.plots._common import MEDIUM, Axes, FloatArray, ellipses, grey_frames, need_matplotlib, panels_for
from skmix.plots._models import Feature, kernels_of

Style = Literal["paper", "accessible"]

# A class's weight of a kernel decides how the kernel is drawn, in the steps of the paper's table 7.
STEPS = (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
STEP_NAMES = ("< 0.01", "0.01 – 0.1", "0.1 – 0.2", "0.2 – 0.3", "0.3 – 0.4", "0.4 – 0.5", "≥ 0.5")
WIDTHS: dict[str, tuple[float, ...]] = {
    "paper": (0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0),
    "accessible": (0.7, 0.9, 1.2, 1.6, 2.1, 2.7, 3.4),
}
COLOURS: dict[str, tuple[str, ...]] = {
    "paper": ("yellow", "green", "cyan", "magenta", "red", "blue", "black"),
    # Falling lightness, so that the order survives any colour vision and a grey print; the lightest still
    # has a contrast of 3 to 1 against white.
    "accessible": ("#ed6925", "#d44842", "#b73557", "#932667", "#6a176e", "#420a68", "#160b39"),
}


def draw_kernels(
    model: Any,
    label: Hashable | None = None,
    axes: Axes | None = None,
    *,
    features: Sequence[Feature] | None = None,
    style: Style = "paper",
    n_std: float = 1.0,
) -> Axes:
    """Draw a fitted model's kernels as ellipses, their lines showing the weights in one class.

    In one feature kernels are curves: what each adds to the density of the class, and the density above them.

    Parameters
    ----------
    model : fitted SharedKernelMixture, SharedKernelClassifier or GaussianMixture, or GroupModel of a study
        The model, of any covariance type.
    label : hashable, default=None
        Class whose weights choose the lines; None averages the classes by their priors.
    axes : matplotlib axes, default=None
        Where to draw; None makes a new figure.
    features : sequence of one or two of int or str, default=None
        The features on the horizontal and the vertical axis, by index or name; a single one is shown as
        curves. None takes the first two, or the only one.
    style : {'paper', 'accessible'}, default='paper'
        'paper' has the widths and colours of the paper's table 7; 'accessible' has colours of falling
        lightness that are safe for any colour vision and legible on white.
    n_std : float, default=1.0
        Distance of the ellipses from the means, in standard deviations.

    Returns
    -------
    matplotlib axes
        The axes, with one ellipse or curve for each kernel, the heaviest on top.
    """
    kernels = kernels_of(model)
    chosen = range(min(2, len(kernels.names))) if features is None else features
    if not 1 <= len(chosen) <= 2:
        raise ValueError(f"kernels are drawn in one feature or in two, got {len(chosen)}.")
    columns = [kernels.feature(feature) for feature in chosen]
    weights = kernels.weights_of(label)
    order = np.argsort(weights, kind="stable")
    lines = [line_of(weights[k], style) for k in order]
    (panel,) = panels_for(1, axes, None, size=(4.2, 3.6))
    if axes is None:
        grey_frames(panel)
        panel.set_xlabel(kernels.names[columns[0]], fontsize=MEDIUM)
        panel.set_ylabel(kernels.names[columns[1]] if len(columns) == 2 else "density", fontsize=MEDIUM)
    means, covariances = kernels.take(columns)
    if len(columns) == 2:
        ellipses(panel, means[order], covariances[order], lines, n_std)
    else:
        _draw_curves(panel, weights[order], means[order, 0], np.sqrt(covariances[order, 0, 0]), lines)
    return panel


def _draw_curves(
    axes: Axes, weights: FloatArray, means: FloatArray, deviations: FloatArray, lines: list[dict[str, Any]]
) -> None:
    """Draw the density of one feature, and each kernel's part of it; all arrays have shape (K,)."""
    # Points around every kernel that matters, so that narrow ones are visible too.
    seen = weights >= min(STEPS[1], weights.max())
    grid = np.unique(means[seen, None] + deviations[seen, None] * np.linspace(-4.0, 4.0, 201))
    scaled = (grid - means[:, None]) / deviations[:, None]
    parts = weights[:, None] * np.exp(-0.5 * scaled**2) / (np.sqrt(2.0 * np.pi) * deviations[:, None])
    for part, line in zip(parts, lines, strict=True):
        axes.plot(grid, part, color=line["edgecolor"], lw=line["linewidth"], ls=line["linestyle"])
    # Beneath the parts: where one kernel is the whole density, its line must remain visible.
    axes.plot(grid, parts.sum(axis=0), color="0.35", lw=5.0, alpha=0.35, label="all kernels", zorder=1.5)
    axes.set_ylim(bottom=0.0)


def weight_key(axes: Axes, *, style: Style = "paper", **legend: Any) -> Axes:
    """Add a legend of line styles to axes: which line stands for which weight.

    Parameters
    ----------
    axes : matplotlib axes
        Where to put it.
    style : {'paper', 'accessible'}, default='paper'
        The style the kernels were drawn in.
    **legend
        Passed on to ``axes.legend``.

    Returns
    -------
    matplotlib axes
        The given axes.
    """
    need_matplotlib()
    settings: dict[str, Any] = {"title": "weight in the class", "frameon": False} | legend
    axes.legend(handles=key_handles(style, range(len(STEPS))[::-1]), **settings)
    return axes


def step_of(weight: float) -> int:
    """Return the step of the line style that a weight falls into."""
    return int(np.searchsorted(STEPS, weight, side="right")) - 1


def line_of(weight: float, style: str) -> dict[str, Any]:
    """Return the line style that stands for a weight."""
    if style not in COLOURS:
        raise ValueError(f"style={style!r} is not one of {', '.join(map(repr, COLOURS))}.")
    step = step_of(weight)
    return {
        "edgecolor": COLOURS[style][step],
        "linewidth": WIDTHS[style][step],
        "linestyle": "solid" if step else "dashed",
    }


def key_handles(style: str, steps: Sequence[int]) -> list[Any]:
    """Return handles for a legend of the given steps."""
    from matplotlib.lines import Line2D

    handles = []
    for step in steps:
        line = line_of(STEPS[step], style)
        look = {"color": line["edgecolor"], "lw": line["linewidth"], "ls": line["linestyle"]}
        handles.append(Line2D([], [], label=STEP_NAMES[step], **look))
    return handles
