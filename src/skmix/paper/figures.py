"""The paper's figures, in its order: the illustration, the digits, and the runs of the study."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.plots import draw_kernels, plot_projections, weight_key
from skmix.plots.style import (
    CLASS_COLOURS,
    LEGEND,
    MEDIUM,
    SMALL,
    Figure,
    colour_of,
    dots,
    ellipses,
    finish,
    new_figure,
    panels_for,
)

from .digit_plots import plot_digit_points, plot_digits, plot_feature_overlay, plot_segments
from .digits import FloatArray
from .example import IllustrationRecord
from .images import DIGIT_FEATURES
from .records import FAILED_BELOW, BestRun, FittedMixture, Run, Runs, StudyResults, features_of
from .variants import LABELS, MAIN_KERNELS, METHODS, variant_of

__all__ = ["paper_figures", "plot_accuracy_distribution", "plot_illustration"]

# Half lengths and half widths of the segments in the paper's figures of points.
_SIZES = {"d1": (1.0, 0.2), "d2": (2.0, 0.5)}
# Variants whose best class-wise mixtures are shown in all planes, for every class.
_PROJECTED = ("4D", "6D")
# Images of each digit on the sheet, and lines of their features.
_IMAGES_OF_A_DIGIT = 10
# Rows beneath the kernels: enough to see the class, few enough for a small file.
_ROWS_OF_A_CLASS = 100
_COLOURS = {method: CLASS_COLOURS[c] for method, c in zip(METHODS, (1, 0, 2), strict=True)}
# Most runs of a variant and method that are drawn: as many as in the paper. More could not be told apart.
_MAX_DOTS = 500
# Half the height of the band of dots of a variant and method.
_LANE = 0.36


def paper_figures(results: StudyResults) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw the figures of the paper and of the study, by file name without suffix.

    They are in the paper's order; figures that need missing runs are skipped. No model is fitted. Figures can
    be drawn, saved and discarded one at a time.
    """
    data, runs, best = results.data, results.runs, results.best
    found: dict[str, Callable[[], Figure]] = {}
    found["fig1_segments"] = partial(_drawn, (3.9, 4.8), plot_segments)
    for number, (name, size) in enumerate(_SIZES.items(), start=2):
        title = f"D = {size[0]:g}, d = {size[1]:g}: points and 3σ ellipses"
        look: dict[str, Any] = {"random_state": results.settings.seed, "title": title}
        found[f"fig{number}_points_{name}"] = partial(_drawn, (8.5, 4.0), plot_digit_points, *size, **look)
    digits = [np.flatnonzero(data.train_labels == digit) for digit in np.unique(data.train_labels)]
    chosen = np.concatenate([rows[:_IMAGES_OF_A_DIGIT] for rows in digits])
    images, labels = data.train_images[chosen], data.train_labels[chosen]
    shown = partial(plot_digits, images, labels, n_columns=_IMAGES_OF_A_DIGIT)
    found["fig4_images"] = partial(_drawn, (6.5, 6.4), shown)
    features = data.train_features[chosen]
    found["fig5_pca_features"] = partial(_drawn, (9.5, 3.6), plot_feature_overlay, features, labels)
    for variant in _PROJECTED:
        if (variant, "class-wise") in best:
            found |= _projections(best[variant, "class-wise"], results)
    if any(run.n_kernels == MAIN_KERNELS for run in runs):
        found["accuracy_distribution"] = partial(_drawn, (9.5, 7.6), plot_accuracy_distribution, runs)
    return found


def _drawn(
    size: tuple[float, float], plot: Callable[..., Any], *args: Any, title: str | None = None, **settings: Any
) -> Figure:
    figure = new_figure(*size)
    plot(*args, figure=figure, **settings)
    if title is not None:
        figure.suptitle(title, fontsize=11)
    # Lay out once, instead of once for each file format.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _projections(best: BestRun, results: StudyResults) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw the kernels of a run's first mixture in all planes, class by class."""
    model, run = best.mixtures[0], best.run
    columns = [DIGIT_FEATURES.index(str(name)) for name in model.feature_names_in_]
    features, _ = features_of(results.data, variant_of(run.variant), results.settings)
    found: dict[str, Callable[[], Figure]] = {}
    for label in model.classes_.tolist():
        rows = features[results.data.train_labels == label][:_ROWS_OF_A_CLASS, columns]
        draw = partial(_projection, model, rows, label, f"{run.variant}, {LABELS[run.method]}: digit {label}")
        found[f"projections_{run.variant}_{run.method}_class{label}"] = draw
    return found


def _projection(model: FittedMixture, rows: FloatArray, label: int, title: str) -> Figure:
    """Draw the kernels of a mixture and rows (n, M) of one class in all planes."""
    from matplotlib.figure import Figure

    side = 1.75 * (rows.shape[1] - 1) + 0.7
    margins = {"left": 0.62 / side, "right": 1 - 0.08 / side, "bottom": 0.5 / side, "top": 1 - 0.45 / side}
    # Fixed margins: laying out dozens of panels automatically takes longer than drawing them.
    figure = Figure(figsize=(side, side))
    figure.subplots_adjust(**margins, wspace=0.08, hspace=0.08)
    for panel in plot_projections(model, label, rows, figure=figure):
        panel.locator_params(nbins=3)
    figure.suptitle(title, x=0.62 / side, y=1 - 0.12 / side, ha="left", va="top", fontsize=11)
    return figure


def plot_accuracy_distribution(runs: Iterable[Run], *, figure: Figure | None = None) -> NDArray[Any]:
    """Plot the accuracy of every run at K = 10, and how many runs failed.

    Each variant has a panel, in the order of the study. A dot is a run (at most 500 are drawn), and a bar is
    the median; runs in the grey area count as failed.
    """
    cells = Runs(runs)
    panels = panels_for(len(cells.variants), None, figure, n_columns=2, size=(4.6, 1.25), sharex=True)
    for variant, panel in zip(cells.variants, panels, strict=True):
        panel.axvspan(0.0, FAILED_BELOW, color="0.94", lw=0, zorder=-2)
        for lane, method in enumerate(METHODS):
            own, colour = cells.of(variant, MAIN_KERNELS, method), _COLOURS[method]
            if not own:
                continue
            accuracies = np.array([run.accuracy for run in own])
            shown = accuracies[:_MAX_DOTS]
            # Golden-ratio steps spread the dots over the lane without clumps.
            heights = lane + _LANE * (2.0 * ((0.5 + np.arange(len(shown)) * 0.6180339887) % 1.0) - 1.0)
            dots(panel, np.column_stack([shown, heights]), size=2.2, color=colour, alpha=0.45, zorder=2)
            # Behind the dots, to keep them visible if all runs coincide.
            panel.vlines(np.median(accuracies), lane - 0.47, lane + 0.47, color="black", lw=1.2, zorder=1)
            n_failed = sum(run.failed for run in own)
            look = {"fontweight": "bold", "color": colour} if n_failed else {"color": "0.35"}
            note = f"{n_failed} of {len(own)} failed" if n_failed else "none failed"
            # Beside the panel, where there are no runs.
            panel.annotate(note, (1.03, lane), va="center", fontsize=SMALL, annotation_clip=False, **look)
        panel.set(xlim=(-0.02, 1.02), ylim=(len(METHODS) - 0.45, -0.55), xlabel="accuracy on the test set")
        panel.set_yticks(range(len(METHODS)), [LABELS[each].replace(", ", ",\n") for each in METHODS])
        panel.set_title(variant, fontsize=MEDIUM, loc="left", pad=2)
        panel.tick_params(axis="y", length=0)
    finish(*panels, outer=True)
    return panels


def plot_illustration(record: IllustrationRecord) -> Figure:
    """Plot a run of the paper's two-dimensional illustration, in a figure without a window.

    Of its axes, the first has the rows with the true and the estimated kernels, the next three have the
    kernels with the weights of each class, and the last has a key.
    """
    model, example = record.model, record.example
    classes = model.classes_.tolist()
    own = new_figure(10.0, 3.6)
    layout: Any = [["overview", "0", "1"], ["overview", "2", "key"]]
    placed = own.subplot_mosaic(layout, sharex=True, sharey=True, width_ratios=(2.34, 1.0, 1.0))
    overview, *panels = (placed[name] for name in ("overview", "0", "1", "2"))
    placed["key"].axis("off")
    weight_key(placed["key"], loc="center", **LEGEND)
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    colours = [colour_of(c) for c in range(len(classes))]
    codes = np.searchsorted(model.classes_, record.y)
    # Shuffled, so that no class covers the others.
    order = np.random.RandomState(0).permutation(len(record.y))
    shades = np.array(colours)[codes[order]]
    overview.scatter(*record.X[order].T, c=shades, s=5, alpha=0.3, lw=0, rasterized=True, zorder=0)
    estimated: dict[str, Any] = {"color": "black", "lw": 1.6}
    true: dict[str, Any] = {"color": "#ff5fa8", "lw": 1.6, "ls": (0, (2.5, 2.5))}
    for n_std in (1.0, 2.0):
        ellipses(overview, model.means_, model.covariances_, [estimated] * len(model.means_), n_std)
        ellipses(overview, example.means, example.covariances, [true] * len(example.means), n_std)
    handles = [
        Line2D([], [], marker="o", ls="", ms=4, color=colour, label=f"class {label}")
        for colour, label in zip(colours, classes, strict=True)
    ]
    handles.append(Line2D([], [], label="estimated, 1σ and 2σ", **estimated))
    handles.append(Line2D([], [], label="true", **true))
    overview.legend(handles=handles, loc="lower right", borderpad=0.2, **LEGEND)
    overview.set(title="Kernels, true and estimated", xlabel="feature 0", ylabel="feature 1")

    tops = model.means_ + np.sqrt(model.covariances_[:, 1, 1])[:, None] * (0.0, 1.0)
    halo: dict[str, Any] = {"path_effects": [withStroke(linewidth=2.5, foreground="white")]}
    for c, (label, panel) in enumerate(zip(classes, panels, strict=True)):
        dots(panel, record.X[codes == c], size=1.2)
        draw_kernels(model, label, panel)
        for top, weight in zip(tops, model.weights_[:, c], strict=True):
            place: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
            panel.annotate(f"{weight:.3f}", top, fontsize=SMALL, **place, **halo)
        panel.set_title(f"Weights of class {label}", color=colours[c])
        panel.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    for panel in (overview, *panels):
        panel.set_aspect("equal", anchor="N")
    finish(overview, *panels)
    # The first drawing places axes with equal scales, the second their labels.
    own.draw_without_rendering()
    return own
