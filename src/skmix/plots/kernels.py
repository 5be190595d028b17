"""Kernels as ellipses, their lines telling how a class weighs them."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skmix.engine.kernels import structure_of
from skmix.plots._common import FloatArray, ellipses, need_matplotlib
from skmix.study.records import GroupModel

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

Feature = int | str
Style = Literal["paper", "accessible"]

# A class's weight of a kernel decides how the kernel is drawn, in the steps of the paper's table 7.
STEPS = (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
_STEP_NAMES = ("< 0.01", "0.01 – 0.1", "0.1 – 0.2", "0.2 – 0.3", "0.3 – 0.4", "0.4 – 0.5", "≥ 0.5")
_DASHES = ("dashed", "solid", "solid", "solid", "solid", "solid", "solid")
_WIDTHS: dict[str, tuple[float, ...]] = {
    "paper": (0.5, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0),
    "accessible": (0.7, 0.9, 1.2, 1.6, 2.1, 2.7, 3.4),
}
_COLOURS: dict[str, tuple[str, ...]] = {
    "paper": ("yellow", "green", "cyan", "magenta", "red", "blue", "black"),
    # Falling lightness, so that the order survives any colour vision and a grey print; the lightest still
    # has a contrast of 3 to 1 against white.
    "accessible": ("#ed6925", "#d44842", "#b73557", "#932667", "#6a176e", "#420a68", "#160b39"),
}


@dataclass(frozen=True)
class Kernels:
    """The kernels of a fitted model, whatever its class and covariance structure.

    Attributes
    ----------
    classes : list of L labels
        Class labels.
    weights : ndarray of shape (K, L)
        Pr(kernel k | class j).
    prior : ndarray of shape (L,)
        Class priors.
    means : ndarray of shape (K, M)
        Kernel means.
    covariances : ndarray of shape (K, M, M)
        Kernel covariances.
    names : list of M str
        Names of the features.
    """

    classes: list[Any]
    weights: FloatArray
    prior: FloatArray
    means: FloatArray
    covariances: FloatArray
    names: list[str]

    def weights_of(self, label: Hashable | None) -> FloatArray:
        """Return the weights (K,) of one class; for None, those of all classes together."""
        if label is None:
            return self.weights @ self.prior
        for column, known in enumerate(self.classes):
            if known == label:
                return self.weights[:, column]
        raise ValueError(f"label={label!r} is not one of the model's classes {self.classes}.")

    def feature(self, feature: Feature) -> int:
        """Return the column of a feature given by index or name."""
        if isinstance(feature, str):
            if feature not in self.names:
                raise ValueError(f"feature {feature!r} is not one of {self.names}.")
            return self.names.index(feature)
        if not 0 <= feature < len(self.names):
            raise ValueError(f"feature {feature} does not exist: the model has {len(self.names)} feature(s).")
        return int(feature)


def draw_kernels(
    model: Any,
    label: Hashable | None,
    axes: Axes,
    *,
    features: tuple[Feature, Feature] = (0, 1),
    style: Style = "paper",
    n_std: float = 1.0,
) -> Axes:
    """Draw a fitted model's kernels as ellipses, their lines telling the weights in one class.

    Parameters
    ----------
    model : fitted SharedKernelMixture, SharedKernelClassifier or GaussianMixture, or GroupModel of a study
        The model, of any covariance type.
    label : hashable or None
        Class whose weights choose the lines; None takes the weights of all classes together, by their priors.
    axes : matplotlib axes
        Where to draw.
    features : pair of int or str, default=(0, 1)
        The features on the horizontal and the vertical axis, by index or name.
    style : {'paper', 'accessible'}, default='paper'
        'paper' has the thicknesses and colours of the paper's table 7; 'accessible' colours of falling
        lightness that are safe for any colour vision and legible on white.
    n_std : float, default=1.0
        Distance of the ellipses from the means, in standard deviations.

    Returns
    -------
    matplotlib axes
        The given axes, with one ellipse for each kernel, the heaviest on top.
    """
    need_matplotlib()
    kernels = kernels_of(model)
    columns = [kernels.feature(feature) for feature in features]
    weights = kernels.weights_of(label)
    lines = [line_of(weight, style) for weight in weights]
    order = np.argsort(weights, kind="stable")
    ellipses(
        axes,
        kernels.means[order][:, columns],
        kernels.covariances[order][:, columns][:, :, columns],
        [lines[k] for k in order],
        n_std,
    )
    return axes


def weight_key(axes: Axes, *, style: Style = "paper", **legend: Any) -> Axes:
    """Add the key of line styles to axes: which line stands for which weight.

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
    axes.legend(handles=key_handles(style, list(range(len(STEPS)))[::-1]), **settings)
    return axes


def kernels_of(model: Any) -> Kernels:
    """Return what a fitted model says about its kernels."""
    # The models that a study keeps are records, which are never without their numbers.
    if not isinstance(model, GroupModel):
        check_is_fitted(model)
    n_groups = len(getattr(model, "models_", [model]))
    if n_groups > 1:
        raise ValueError(
            f"The model has {n_groups} feature groups, each with its own kernels: plot one of model.models_."
        )
    means = np.asarray(model.means_, dtype=np.float64)
    n_kernels, n_features = means.shape
    covariances = np.asarray(model.covariances_, dtype=np.float64)
    full = structure_of(model.covariance_type).to_full(covariances[None], n_kernels, n_features)[0]
    # An ordinary mixture has weights (K,) and no classes.
    weights = np.asarray(model.weights_, dtype=np.float64).reshape(n_kernels, -1)
    classes = getattr(model, "classes_", np.zeros(1, dtype=int)).tolist()
    prior = np.asarray(getattr(model, "class_prior_", [1.0]), dtype=np.float64)
    names = getattr(model, "feature_names_in_", [f"feature {d}" for d in range(n_features)])
    return Kernels(classes, weights, prior, means, full, [str(name) for name in names])


def step_of(weight: float) -> int:
    """Return the step of the line style that a weight falls into."""
    return int(np.searchsorted(STEPS, weight, side="right")) - 1


def line_of(weight: float, style: str) -> dict[str, Any]:
    """Return the line that stands for a weight."""
    if style not in _COLOURS:
        raise ValueError(f"style={style!r} is not one of {', '.join(map(repr, _COLOURS))}.")
    step = step_of(weight)
    return {
        "edgecolor": _COLOURS[style][step],
        "linewidth": _WIDTHS[style][step],
        "linestyle": _DASHES[step],
    }


def key_handles(style: str, steps: list[int]) -> list[Artist]:
    """Return handles for a legend of the given steps."""
    from matplotlib.lines import Line2D

    lines = [line_of(STEPS[step], style) for step in steps]
    return [
        Line2D(
            [],
            [],
            color=line["edgecolor"],
            lw=line["linewidth"],
            ls=line["linestyle"],
            label=_STEP_NAMES[step],
        )
        for step, line in zip(steps, lines, strict=True)
    ]
