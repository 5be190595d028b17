"""Populations of a mixture: the tree of merges, and kernels in the colours of their populations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from skmix.estimators.rows import prepared_frame
from skmix.plots._common import (
    CLASS_COLOURS,
    DASHES,
    LEGEND,
    MARKERS,
    MEDIUM,
    SMALL,
    Axes,
    Figure,
    colour_of,
    dots,
    ellipses,
    finish,
    panels_for,
    round_of,
)
from skmix.plots._models import Feature, kernels_of, part_label

_BETWEEN = "0.45"
"""Colour of what belongs to several populations."""
_MAX_LEAVES = 60
"""Kernels whose numbers are written below the tree."""


def plot_merges(model: Any, axes: Axes | None = None, *, figure: Figure | None = None) -> Axes:
    """Plot the tree of merges of a mixture's kernels, each population in a colour, and where it was cut.

    Parameters
    ----------
    model : SharedKernelMixture
        A fitted mixture whose kernels were merged by `merge_kernels`.
    axes, figure : default=None
        Axes to draw into, or an empty figure for new axes. By default a new figure.
    """
    populations = _populations_of(model)
    tree = np.asarray(model.merge_tree_)
    n_kernels, n_populations = len(populations), int(populations.max()) + 1
    if n_kernels == 1:
        raise ValueError("the mixture has one kernel, and no merges to plot.")
    (panel,) = panels_for(1, axes, figure, size=(float(np.clip(0.3 * n_kernels, 4.0, 12.0)), 3.4))
    # SciPy loads slowly, and matplotlib must be there.
    from matplotlib.lines import Line2D
    from scipy.cluster.hierarchy import dendrogram

    colours = [colour_of(g) for g in populations]
    made = n_kernels - n_populations
    for step, one in enumerate(tree[:, 0].astype(int).tolist()):
        # Merges before the cut are inside of a population.
        colours.append(colours[one] if step < made else _BETWEEN)
    dendrogram(
        tree,
        ax=panel,
        link_color_func=lambda node: colours[node],
        no_labels=n_kernels > _MAX_LEAVES,
        leaf_label_func=part_label,
        leaf_rotation=0 if n_kernels <= 20 else 90,
    )
    levels = np.concatenate([[0.0], tree[:, 2], [1.05]])
    panel.axhline(0.5 * (levels[made] + levels[made + 1]), color="black", ls="--", lw=1.0)
    panel.set(xlabel="kernel", ylabel="height of the merge", ylim=(0.0, 1.05))
    handles = [Line2D([], [], color=colour_of(g), label=f"{g}") for g in range(n_populations)]
    if n_populations <= 2 * len(CLASS_COLOURS):
        panel.legend(
            handles=handles, title="population", loc="center left", bbox_to_anchor=(1.0, 0.5), **LEGEND
        )
    finish(panel)
    return panel


def draw_populations(
    model: Any,
    X: ArrayLike | None = None,
    axes: Axes | None = None,
    *,
    features: Sequence[Feature] = (0, 1),
    n_std: float = 2.0,
) -> Axes:
    """Draw the kernels of a mixture as ellipses, and rows as dots, in the colours of their populations.

    Parameters
    ----------
    model : SharedKernelMixture
        A fitted mixture whose kernels were merged by `merge_kernels`.
    X : array-like of shape (n, M), default=None
        Rows to show beneath the kernels.
    axes : matplotlib axes, default=None
        Where to draw; None makes a new figure.
    features : sequence of two of int or str, default=(0, 1)
        The features on the horizontal and the vertical axis, by index or name.
    n_std : float, default=2.0
        Distance of the ellipses from the means, in standard deviations.
    """
    populations = _populations_of(model)
    kernels = kernels_of(model)
    if len(features) != 2:
        raise ValueError(f"populations are drawn in two features, got {len(features)}.")
    columns = [kernels.feature(feature) for feature in features]
    (panel,) = panels_for(1, axes, size=(4.6, 3.8))
    if X is not None:
        found = model.predict(X, populations=True)
        rows = np.asarray(prepared_frame(model, X), dtype=np.float64)[:, columns]
        for g in range(int(populations.max()) + 1):
            marker = MARKERS[round_of(g)]
            dots(panel, rows[np.asarray(found) == g], marker=marker, color=colour_of(g), alpha=0.35)
    means, covariances = kernels.project(np.eye(len(kernels.names))[columns])
    lines = [{"color": colour_of(g), "ls": DASHES[round_of(g)], "lw": 1.4} for g in populations]
    ellipses(panel, means, covariances, lines, n_std)
    for g in range(int(populations.max()) + 1):
        panel.plot([], [], color=colour_of(g), ls=DASHES[round_of(g)], label=f"{g}")
    if axes is None:
        panel.set(xlabel=kernels.names[columns[0]], ylabel=kernels.names[columns[1]])
        panel.legend(title="population", **LEGEND | {"fontsize": SMALL + 1, "title_fontsize": SMALL + 1})
        finish(panel, label_size=MEDIUM)
    return panel


def _populations_of(model: Any) -> Any:
    """Return the population (K,) of each kernel of a mixture."""
    check_is_fitted(model)
    if not hasattr(model, "populations_"):
        raise NotFittedError(f"This {type(model).__name__} has no populations: call merge_kernels() first.")
    return np.asarray(model.populations_)
