"""Pictures of fitted models: each function takes a model or a record and returns matplotlib axes.

matplotlib is imported when something is drawn, so that everything else works without it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from skmix.engine.kernels import structure_of
from skmix.study.files import replacing
from skmix.study.illustration import IllustrationRecord

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FloatArray = NDArray[np.float64]
Feature = int | str
Style = Literal["paper", "accessible"]

__all__ = [
    "draw_kernels",
    "plot_illustration",
    "plot_projections",
    "plot_reliability",
    "save_figure",
    "weight_key",
]

# A class's weight of a kernel decides how the kernel is drawn, in the steps of the paper's table 7.
_STEPS = (0.0, 0.01, 0.1, 0.2, 0.3, 0.4, 0.5)
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
_ROWS_COLOUR = "0.72"
_CLASS_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")


@dataclass(frozen=True)
class _Kernels:
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
    model : fitted SharedKernelMixture, SharedKernelClassifier or GaussianMixture
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
    _matplotlib()
    kernels = _kernels_of(model)
    columns = [kernels.feature(feature) for feature in features]
    weights = kernels.weights_of(label)
    lines = [_line(weight, style) for weight in weights]
    order = np.argsort(weights, kind="stable")
    _ellipses(
        axes,
        kernels.means[order][:, columns],
        kernels.covariances[order][:, columns][:, :, columns],
        [lines[k] for k in order],
        n_std,
    )
    return axes


def plot_projections(
    model: Any,
    label: Hashable | None = None,
    X: ArrayLike | None = None,
    y: Sequence[Hashable] | NDArray[Any] | None = None,
    axes: Any = None,
    *,
    features: Sequence[Feature] | None = None,
    style: Style = "paper",
    n_std: float = 1.0,
) -> NDArray[Any]:
    """Plot a fitted model's kernels in every plane of two features, as one class weighs them.

    With one feature the plot is a curve: the density of the class and, below it, what each kernel adds.

    Parameters
    ----------
    model : fitted SharedKernelMixture, SharedKernelClassifier or GaussianMixture
        The model, of any covariance type. Of a classifier with feature groups, plot ``model.models_[g]``.
    label : hashable, default=None
        Class whose weights choose the lines; None takes the weights of all classes together, by their priors.
    X : array-like of shape (n, M), default=None
        Rows to show beneath the kernels.
    y : sequence of n labels, default=None
        Labels of the rows; with them and a `label`, only that class's rows are shown.
    axes : axes or array of axes, default=None
        Axes to draw into, one for each pair of features in the order (0, 1), (0, 2), …, (1, 2), …; None makes
        a new figure, with a key to the lines.
    features : sequence of int or str, default=None
        Features to plot, by index or name; None plots all.
    style : {'paper', 'accessible'}, default='paper'
        Colours and thicknesses, see `draw_kernels`.
    n_std : float, default=1.0
        Distance of the ellipses from the means, in standard deviations.

    Returns
    -------
    ndarray of axes
        One for each pair of features, in that order; a single one for one feature.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> from skmix.plots import plot_projections
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SharedKernelClassifier(random_state=0).fit(X, y)
    >>> axes = plot_projections(classifier, 2, X, y, style="accessible")  # doctest: +SKIP
    """
    _matplotlib()
    kernels = _kernels_of(model)
    weights = kernels.weights_of(label)
    chosen = range(len(kernels.names)) if features is None else features
    columns = [kernels.feature(feature) for feature in chosen]
    if not columns:
        raise ValueError("features is empty: choose at least one.")
    rows = _rows_of(X, y, label, len(kernels.names))
    pairs = list(itertools.combinations(columns, 2))
    own_figure = axes is None
    panels = _corner(len(columns)) if own_figure else np.atleast_1d(np.asarray(axes, dtype=object)).ravel()
    if len(panels) != max(len(pairs), 1):
        raise ValueError(
            f"{len(columns)} feature(s) need {max(len(pairs), 1)} axes, one for each pair; got {len(panels)}."
        )
    if not pairs:
        _curve(panels[0], kernels, columns[0], weights, rows, style)
    for panel, (i, j) in zip(panels, pairs, strict=False):
        if rows is not None:
            _dots(panel, rows[:, (i, j)])
        draw_kernels(model, label, panel, features=(i, j), style=style, n_std=n_std)
        panel.set(xlabel=kernels.names[i], ylabel=kernels.names[j])
    if own_figure:
        figure: Figure = panels[0].figure
        for panel in panels:
            panel.label_outer()
        if label is not None:
            figure.suptitle(f"class {label}")
        steps = sorted({_step(weight) for weight in weights}, reverse=True)
        # The upper right half of a corner of panels is free.
        handles = _key(style, steps) + panels[0].get_legend_handles_labels()[0]
        if len(columns) < 3:
            figure.legend(handles=handles, title="weight", loc="outside right upper", frameon=False)
        else:
            figure.legend(handles=handles, title="weight", loc="upper right", frameon=False)
    return panels


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
    _matplotlib()
    settings: dict[str, Any] = {"title": "weight in the class", "frameon": False} | legend
    axes.legend(handles=_key(style, list(range(len(_STEPS)))[::-1]), **settings)
    return axes


def plot_illustration(record: IllustrationRecord, figure: Figure | None = None) -> NDArray[Any]:
    """Plot a run of the paper's two-dimensional illustration.

    Parameters
    ----------
    record : IllustrationRecord
        What `skmix.study.run_illustration` returned.
    figure : matplotlib figure, default=None
        An empty figure to draw into. None makes one without a window, ready for ``savefig``.

    Returns
    -------
    ndarray of 1 + L axes
        First the rows with the true and the estimated kernels, then the kernels as each class weighs them.
    """
    _matplotlib()
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    if figure is None:
        figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    model, example = record.model, record.example
    classes = model.classes_.tolist()
    n_classes = len(classes)
    n_lines = n_classes // 2 + 1
    grid = figure.add_gridspec(n_lines, 4, width_ratios=(1.17, 1.17, 1.0, 1.0))
    overview = figure.add_subplot(grid[:, :2])
    cells = [grid[line, 2 + column] for line in range(n_lines) for column in range(2)]
    panels = [figure.add_subplot(cell, sharex=overview, sharey=overview) for cell in cells[:n_classes]]
    colours = [_CLASS_COLOURS[c % len(_CLASS_COLOURS)] for c in range(n_classes)]
    codes = np.searchsorted(model.classes_, record.y)

    # Shuffled, so that no class lies on top of the others.
    order = np.random.RandomState(0).permutation(len(record.y))
    across, up = record.X[order].T
    shades = np.array(colours)[codes[order]]
    overview.scatter(across, up, c=shades, s=5, alpha=0.3, lw=0, rasterized=True, zorder=0)
    estimated: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.6, "linestyle": "solid"}
    true: dict[str, Any] = {"edgecolor": "#ff5fa8", "linewidth": 1.6, "linestyle": (0, (2.5, 2.5))}
    for n_std in (1.0, 2.0):
        _ellipses(overview, model.means_, model.covariances_, [estimated] * len(model.means_), n_std)
        _ellipses(overview, example.means, example.covariances, [true] * len(example.means), n_std)
    handles: list[Artist] = [
        Line2D([], [], marker="o", ls="", ms=4, color=colour, label=f"class {label}")
        for colour, label in zip(colours, classes, strict=True)
    ]
    for name, line in (("estimated, 1σ and 2σ", estimated), ("true", true)):
        handles.append(Line2D([], [], color=line["edgecolor"], lw=1.6, ls=line["linestyle"], label=name))
    overview.legend(handles=handles, loc="lower right", fontsize=8, frameon=False, borderpad=0.2)
    overview.set_title("Kernels, true and estimated", fontsize=10)
    overview.set_xlabel("feature 0", fontsize=9)
    overview.set_ylabel("feature 1", fontsize=9)
    overview.tick_params(labelsize=8)

    for c, (label, panel) in enumerate(zip(classes, panels, strict=True)):
        _dots(panel, record.X[codes == c], size=1.2)
        draw_kernels(model, label, panel, style="accessible")
        tops = model.means_[:, 1] + np.sqrt(model.covariances_[:, 1, 1])
        for across_k, top, weight in zip(model.means_[:, 0], tops, model.weights_[:, c], strict=True):
            number = panel.annotate(
                f"{weight:.3f}", (across_k, top), (0, 4), textcoords="offset points", ha="center", fontsize=8
            )
            number.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        panel.set_title(f"Weights of class {label}", fontsize=10, color=colours[c])
        panel.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    if len(cells) > n_classes:
        corner = figure.add_subplot(cells[n_classes])
        corner.axis("off")
        weight_key(corner, style="accessible", loc="center", fontsize=8, title_fontsize=8)
    for panel in (overview, *panels):
        panel.set_aspect("equal", anchor="N")
        for spine in panel.spines.values():
            spine.set_color("0.6")
    return np.array([overview, *panels], dtype=object)


def save_figure(figure: Figure, path: str | os.PathLike[str], *, dpi: float = 120.0) -> None:
    """Save a figure beside its place and rename it into it; the suffix of the path says the format.

    Dates and versions are left out of the file, so that the same figure gives the same bytes.

    Parameters
    ----------
    figure : matplotlib figure
        The figure.
    path : path-like
        File to make or to replace.
    dpi : float, default=120.0
        Dots per inch of the picture, or of its parts that are no vectors.
    """
    import matplotlib

    kind = Path(path).suffix.lower().lstrip(".")
    undated: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
        "png": {"Software": None},
        "svg": {"Date": None},
    }
    packed: dict[str, Any] = {"pil_kwargs": {"optimize": True}} if kind == "png" else {}
    # Fonts as TrueType: many publishers refuse the default, and the letters stay editable.
    with replacing(path) as file, matplotlib.rc_context({"pdf.fonttype": 42}):
        figure.savefig(file, format=kind, dpi=dpi, metadata=undated.get(kind), **packed)


def _matplotlib() -> None:
    """Say what to install when matplotlib is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install skmix[plot]") from error


def _kernels_of(model: Any) -> _Kernels:
    """Return what a fitted model says about its kernels."""
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
    return _Kernels(classes, weights, prior, means, full, [str(name) for name in names])


def _rows_of(X: ArrayLike | None, y: Any, label: Hashable | None, n_features: int) -> FloatArray | None:
    """Return the rows to show, of one class when their labels are known."""
    if X is None:
        return None
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features:
        raise ValueError(f"X must have shape (rows, {n_features}), got {rows.shape}.")
    if y is None or label is None:
        return rows
    labels = np.asarray(y).tolist()
    if len(labels) != len(rows):
        raise ValueError(f"X has {len(rows)} rows but y has {len(labels)} labels.")
    return rows[[known == label for known in labels]]


def _step(weight: float) -> int:
    """Return the step of the line style that a weight falls into."""
    return int(np.searchsorted(_STEPS, weight, side="right")) - 1


def _line(weight: float, style: str) -> dict[str, Any]:
    """Return the line that stands for a weight."""
    if style not in _COLOURS:
        raise ValueError(f"style={style!r} is not one of {', '.join(map(repr, _COLOURS))}.")
    step = _step(weight)
    return {
        "edgecolor": _COLOURS[style][step],
        "linewidth": _WIDTHS[style][step],
        "linestyle": _DASHES[step],
    }


def _key(style: str, steps: list[int]) -> list[Artist]:
    """Return handles for a legend of the given steps."""
    from matplotlib.lines import Line2D

    lines = [_line(_STEPS[step], style) for step in steps]
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


def _ellipses(
    axes: Axes, means: FloatArray, covariances: FloatArray, lines: list[dict[str, Any]], n_std: float
) -> None:
    """Draw the ellipses of kernels in the plane: means (K, 2), covariances (K, 2, 2), a line each."""
    from matplotlib.patches import Ellipse

    variances, directions = np.linalg.eigh(covariances)
    lengths = 2.0 * n_std * np.sqrt(np.maximum(variances, 0.0))
    angles = np.degrees(np.arctan2(directions[:, 1, 0], directions[:, 0, 0]))
    for mean, length, angle, line in zip(means, lengths, angles, lines, strict=True):
        axes.add_patch(Ellipse(tuple(mean), length[0], length[1], angle=float(angle), fill=False, **line))
    axes.autoscale_view()


def _dots(axes: Axes, rows: FloatArray, size: float = 2.4) -> None:
    """Draw rows (n, 2) beneath everything else; as pixels, since thousands of vectors make a slow page."""
    axes.plot(*rows.T, "o", color=_ROWS_COLOUR, ms=size, mew=0.0, zorder=0, rasterized=True)


def _curve(
    axes: Axes, kernels: _Kernels, column: int, weights: FloatArray, rows: FloatArray | None, style: str
) -> None:
    """Draw the density of one feature, and each kernel's part of it."""
    means, deviations = kernels.means[:, column], np.sqrt(kernels.covariances[:, column, column])
    # Points around every kernel that matters, so that none is too narrow to be seen.
    seen = weights >= min(_STEPS[1], weights.max())
    grid = np.unique(means[seen, None] + deviations[seen, None] * np.linspace(-4.0, 4.0, 201))
    scaled = (grid - means[:, None]) / deviations[:, None]
    parts = weights[:, None] * np.exp(-0.5 * scaled**2) / (np.sqrt(2.0 * np.pi) * deviations[:, None])
    if rows is not None:
        axes.hist(rows[:, column], bins="auto", density=True, color=_ROWS_COLOUR, alpha=0.6, zorder=0)
    for k in np.argsort(weights, kind="stable"):
        line = _line(weights[k], style)
        axes.plot(grid, parts[k], color=line["edgecolor"], lw=line["linewidth"], ls=line["linestyle"])
    axes.plot(grid, parts.sum(axis=0), color="black", lw=1.0, label="all kernels")
    axes.set(xlabel=kernels.names[column], ylabel="all kernels")
    axes.set_ylim(bottom=0.0)


def _corner(n_features: int) -> NDArray[Any]:
    """Return axes of a new figure for all pairs of features, laid out as a lower triangle."""
    import matplotlib.pyplot as plt

    side = max(n_features - 1, 1)
    size = max(2.0 * side, 4.0)
    figure, grid = plt.subplots(
        side,
        side,
        sharex="col",
        sharey="row",
        squeeze=False,
        figsize=(size + (1.2 if side == 1 else 0.0), size),
        layout="constrained",
    )
    for i, j in itertools.product(range(side), range(side)):
        if j > i:
            figure.delaxes(grid[i, j])
    return np.array([grid[j - 1, i] for i in range(side) for j in range(i + 1, side + 1)], dtype=object)


def plot_reliability(
    classifier: Any, X: ArrayLike, y: ArrayLike, *, n_bins: int = 10, axes: Axes | None = None
) -> Axes:
    """Draw how often a classifier is right against how sure it is.

    Rows are sorted into bins of equal width by the probability of the class predicted for them. A point above
    the diagonal is too timid, one below it too sure; bars are 95 % intervals (Wilson). Grey columns
    show the share of the rows in each bin. After `calibrate`, the curve without the temperature is drawn too.

    Parameters
    ----------
    classifier : SharedKernelClassifier
        A fitted classifier; anything with `predict_proba` and `classes_` will do.
    X : array-like of shape (n, M)
        Rows that were used neither for training nor for calibration.
    y : array-like of shape (n,)
        Their labels.
    n_bins : int, default=10
        Number of bins between 0 and 1.
    axes : Axes, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        The axes drawn on. The legend has the expected calibration error: the mean distance of the rows' bins
        from the diagonal.
    """
    import matplotlib.pyplot as plt

    check_is_fitted(classifier)
    if n_bins < 1:
        raise ValueError(f"n_bins must be at least 1, got {n_bins}.")
    probabilities = np.asarray(classifier.predict_proba(X))
    labels = np.asarray(y).ravel()
    if len(labels) != len(probabilities):
        raise ValueError(f"X has {len(probabilities)} rows but y has {len(labels)} labels.")
    correct = classifier.classes_[probabilities.argmax(axis=1)] == labels
    curves = {"classifier": probabilities}
    temperature = getattr(classifier, "temperature_", 1.0)
    if temperature != 1.0:
        powers = temperature * np.asarray(classifier.predict_log_proba(X))
        raw = np.exp(powers - powers.max(axis=1, keepdims=True))
        curves = {
            "before calibration": raw / raw.sum(axis=1, keepdims=True),
            f"temperature {temperature:.2g}": probabilities,
        }
    if axes is None:
        axes = plt.subplots(figsize=(4.6, 4.4), layout="constrained")[1]
    axes.plot([0.0, 1.0], [0.0, 1.0], color="0.5", lw=1.0, zorder=1)
    looks = [(_CLASS_COLOURS[1], "s--"), (_CLASS_COLOURS[0], "o-")][-len(curves) :]
    for (name, values), (colour, marker) in zip(curves.items(), looks, strict=True):
        confidence = values.max(axis=1)
        bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
        used, bins, counts = np.unique(bins, return_inverse=True, return_counts=True)
        sure = np.bincount(bins, confidence) / counts
        right = np.bincount(bins, correct) / counts
        error = float(np.abs(right - sure) @ counts / len(labels))
        shrink = 1.0 + 1.96**2 / counts
        centre = (right + 1.96**2 / (2.0 * counts)) / shrink
        half = 1.96 * np.sqrt(right * (1.0 - right) / counts + (0.98 / counts) ** 2) / shrink
        bars = np.maximum([right - (centre - half), centre + half - right], 0.0)
        axes.errorbar(
            sure,
            right,
            bars,
            fmt=marker,
            color=colour,
            lw=1.6,
            ms=5.0,
            capsize=2.0,
            label=f"{name}: {error:.3f}",
        )
    # Of the last curve, the probabilities that the classifier reports.
    axes.bar((used + 0.5) / n_bins, counts / len(labels), 0.96 / n_bins, color="0.9", zorder=0)
    axes.set(xlabel="probability of the predicted class", ylabel="share of correct predictions")
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    axes.legend(title="calibration error", loc="upper left", frameon=False)
    return axes
