"""The weights of all kernels in all classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from skmix.plots._common import CLASS_COLOURS, SMALL, panels_for, soften
from skmix.plots._matrix import draw_matrix, size_of
from skmix.plots._models import kernels_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_weights(
    model: Any,
    *,
    order: Literal["class", "number"] = "class",
    axes: Axes | None = None,
    figure: Figure | None = None,
) -> Axes:
    """Plot how much each class uses each kernel: shades, with the weights as numbers where there is room.

    Shades grow with the square root of the weight over the largest. A line with several dark cells is a
    kernel that classes share. A model of one class has bars instead.

    Parameters
    ----------
    model : fitted SharedKernelMixture, SharedKernelClassifier or GaussianMixture, or GroupModel of a study
        The model. Of a classifier with feature groups, plot ``model.models_[g]``.
    order : {'class', 'number'}, default='class'
        'class' puts kernels together that the same class uses most, the heaviest first; 'number' leaves them
        as they are in the model.
    axes : matplotlib axes, default=None
        Axes to draw into.
    figure : matplotlib figure, default=None
        An empty figure for new axes; None makes one.

    Returns
    -------
    matplotlib axes
        The axes: kernels down, numbered from 1 as in the pages of `skmix.report`; classes across.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.plots import plot_weights
    >>> classifier = SharedKernelClassifier(6, random_state=0).fit(*load_iris(return_X_y=True))
    >>> axes = plot_weights(classifier)  # doctest: +SKIP
    """
    if order not in ("class", "number"):
        raise ValueError(f"order={order!r} is not one of 'class', 'number'.")
    kernels = kernels_of(model)
    n_kernels, n_classes = kernels.weights.shape
    places = np.arange(n_kernels)
    if order == "class":
        # By the class of the largest weight, then from large to small.
        places = np.lexsort((-kernels.weights.max(axis=1), kernels.weights.argmax(axis=1)))
    weights = kernels.weights[places]
    names, labels = [str(k + 1) for k in places], [str(label) for label in kernels.classes]
    size = size_of(names, labels) if n_classes > 1 else (4.2, size_of(names, [""])[1])
    (panel,) = panels_for(1, axes, figure, n_columns=1, size=size)
    if n_classes == 1:
        panel.barh(np.arange(n_kernels), weights[:, 0], 0.8, color=CLASS_COLOURS[0])
        shown = range(0, n_kernels, -(-n_kernels // 45))
        panel.set_yticks(shown, [names[line] for line in shown])
        panel.set(ylim=(n_kernels - 0.4, -0.6), xlim=(0.0, None))
        panel.set_xlabel("weight", fontsize=SMALL)
        soften(panel)
    else:
        shades = np.sqrt(weights / max(weights.max(), np.finfo(float).tiny))
        texts = [[f"{weight:.2f}" if weight >= 0.005 else "" for weight in line] for line in weights]
        draw_matrix(panel, shades, texts, names, labels)
        panel.set_xlabel("class", fontsize=SMALL)
    panel.set_ylabel("kernel", fontsize=SMALL)
    return panel
