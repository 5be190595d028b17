"""The paper's figures, in its order: the illustration, the digits, and the runs of the study."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
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

from .data import features_of
from .digit_plots import plot_digit_points, plot_digits, plot_feature_overlay, plot_segments
from .digits import FloatArray
from .example import IllustrationRecord
from .images import DIGIT_FEATURES
from .methods import BestRun, FittedMixture
from .printed import published_values
from .study import StudyResults, at_main, main_runs, variants_of
from .tables import counted_in_sweep, statistics, succeeded
from .variants import (
    FAILED_BELOW,
    LABELS,
    MAIN_KERNELS,
    METHODS,
    PRINTED,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    Method,
)

__all__ = ["paper_figures", "plot_accuracy_distribution", "plot_illustration", "plot_sweep"]

# Half lengths and half widths of the segments in the paper's figures of points.
_SIZES = {"d1": (1.0, 0.2), "d2": (2.0, 0.5)}
# Variants whose best class-wise mixtures are shown in all planes, for every class.
_PROJECTED = ("4D", "6D")
# Images of each digit on the sheet, and lines of their features.
_IMAGES_OF_A_DIGIT = 10
# Rows beneath the kernels: enough to see the class, few enough for a small file.
_ROWS_OF_A_CLASS = 100
_COLOURS: dict[Method, str] = {method: CLASS_COLOURS[c] for method, c in zip(METHODS, (1, 0, 2), strict=True)}
_PAPER_COLOUR = "#555555"
# Most runs of a variant and method that are drawn: as many as in the paper. More could not be told apart.
_MAX_DOTS = 500
# Half the height of the band of dots of a variant and method.
_LANE = 0.36


def paper_figures(results: StudyResults) -> dict[str, Callable[[], Figure]]:
    """Return functions that draw the figures of the paper and of the study, by file name without suffix.

    They are in the paper's order; figures that need missing runs are skipped. No model is fitted. Figures can
    be drawn, saved and discarded one at a time, in any process.
    """
    data, runs = results.data, main_runs(results.runs)
    figures: dict[str, Callable[[], Figure]] = {"fig1_segments": partial(_drawn, (3.9, 4.8), plot_segments)}
    for number, (name, size) in enumerate(_SIZES.items(), start=2):
        title = f"D = {size[0]:g}, d = {size[1]:g}: points and 3σ ellipses"
        look: dict[str, Any] = {"random_state": results.settings.seed, "title": title}
        figures[f"fig{number}_points_{name}"] = partial(_drawn, (8.5, 4.0), plot_digit_points, *size, **look)
    digits = [np.flatnonzero(data.train_labels == digit) for digit in np.unique(data.train_labels)]
    chosen = np.concatenate([rows[:_IMAGES_OF_A_DIGIT] for rows in digits])
    labels = data.train_labels[chosen]
    sheet = partial(plot_digits, data.train_images[chosen], labels, n_columns=_IMAGES_OF_A_DIGIT)
    figures["fig4_images"] = partial(_drawn, (6.5, 6.4), sheet)
    features = data.train_features[chosen]
    figures["fig5_pca_features"] = partial(_drawn, (9.5, 3.6), plot_feature_overlay, features, labels)
    for variant in _PROJECTED:
        if (variant, "class-wise") in results.best:
            figures |= _projections(results.best[variant, "class-wise"], results)
    if variants := variants_of(results.runs):
        height = 0.6 + 1.4 * -(-len(variants) // 2)
        figures["accuracy_distribution"] = partial(_drawn, (9.5, height), plot_accuracy_distribution, runs)
    if set(runs.loc[runs["n_kernels"] != MAIN_KERNELS, "variant"]):
        figures["number_of_kernels"] = partial(_drawn, (9.5, 7.0), plot_sweep, runs)
    return figures


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
    model = best.mixtures[0]
    columns = [DIGIT_FEATURES.index(str(name)) for name in model.feature_names_in_]
    features, _ = features_of(results.data, best.variant, results.settings)
    figures: dict[str, Callable[[], Figure]] = {}
    for label in model.classes_.tolist():
        rows = features[results.data.train_labels == label][:_ROWS_OF_A_CLASS, columns]
        title = f"{best.variant}, {LABELS[best.method]}: digit {label}"
        name = f"projections_{best.variant}_{best.method}_class{label}"
        figures[name] = partial(_projection, model, rows, label, title)
    return figures


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


def plot_accuracy_distribution(runs: pd.DataFrame, *, figure: Figure | None = None) -> NDArray[Any]:
    """Plot the accuracy of every run at K = 10, and how many runs failed.

    Each variant has a panel, in the order of the study. A dot is a run (at most 500 are drawn), and a bar is
    the median; runs in the grey area count as failed. Triangles are the paper's median of successful runs and
    its best run.
    """
    variants, paper = variants_of(runs.assign(data_set=0)), published_values()
    panels = panels_for(len(variants), None, figure, n_columns=2, size=(4.6, 1.25), sharex=True)
    for variant, panel in zip(variants, panels, strict=True):
        own = runs[runs["variant"] == variant]
        panel.axvspan(0.0, FAILED_BELOW, color="0.94", lw=0, zorder=-2)
        for lane, method in enumerate(METHODS):
            cell = at_main(own, method)
            if cell.empty:
                continue
            accuracies = cell["accuracy"].to_numpy()
            shown = accuracies[:_MAX_DOTS]
            # Golden-ratio steps spread the dots over the lane without clumps.
            heights = lane + _LANE * (2.0 * ((0.5 + np.arange(len(shown)) * 0.6180339887) % 1.0) - 1.0)
            points = np.column_stack([shown, heights])
            dots(panel, points, size=2.2, color=_COLOURS[method], alpha=0.45, zorder=2)
            # Behind the dots, to keep them visible if all runs coincide.
            panel.vlines(np.median(accuracies), lane - 0.47, lane + 0.47, color="black", lw=1.2, zorder=1)
            n_failed = int((~succeeded(cell)).sum())
            look = {"fontweight": "bold", "color": _COLOURS[method]} if n_failed else {"color": "0.35"}
            note = f"{n_failed} of {len(cell)} failed" if n_failed else "none failed"
            # Beside the panel, where there are no runs.
            panel.annotate(note, (1.03, lane), va="center", fontsize=SMALL, annotation_clip=False, **look)
        marks = [paper.ok_runs.loc["Med Acc", variant], paper.extremes.loc[variant, "maximum"]]
        panel.plot(marks, [-0.5, -0.5], "v", color=_PAPER_COLOUR, ms=4, clip_on=False, zorder=3)
        panel.set(xlim=(-0.02, 1.02), ylim=(len(METHODS) - 0.45, -0.55), xlabel="accuracy on the test set")
        panel.set_yticks(range(len(METHODS)), [LABELS[method].replace(", ", ",\n") for method in METHODS])
        panel.set_title(variant, fontsize=MEDIUM, loc="left", pad=2)
        panel.tick_params(axis="y", length=0)
    finish(*panels, outer=True)
    return panels


def plot_sweep(runs: pd.DataFrame, *, figure: Figure | None = None) -> NDArray[Any]:
    """Plot mean accuracy and lost runs of table 5 against K, and the paper's printed values.

    Each variant has a panel for the mean accuracy of the runs counted, with bands and bars of one standard
    deviation, and below it one for the share of runs lost.
    """
    first = runs[runs["run"] < SWEEP_RUNS]
    found = statistics(first, counted_in_sweep(first))
    found["lost"] = 1.0 - found["OK runs"] / found["runs"]
    paper = published_values().sweep.swaplevel()
    swept = [name for name in SWEEP_VARIANTS if name in set(runs["variant"])]
    shape: dict[str, Any] = {"n_columns": len(swept), "size": (2.6, 2.4), "sharex": True, "sharey": "row"}
    panels = panels_for(2 * len(swept), None, figure, **shape).reshape(2, -1)
    for name, (above, below) in zip(swept, panels.T, strict=True):
        printed = paper.loc[name]
        look: dict[str, Any] = {"color": _PAPER_COLOUR, "ls": "--", "marker": "o", "ms": 3.5, "lw": 1.2}
        above.errorbar(printed.index, printed["mean"], printed["std"], label=PRINTED, **look)
        below.plot(printed.index, 1.0 - printed["counted"] / SWEEP_RUNS, **look)
        for method, marker in zip(METHODS, "sD^", strict=True):
            if (name, method) not in found.index.droplevel("n_kernels"):
                continue
            own = found.xs((name, method), level=("variant", "method"))
            line = {"color": _COLOURS[method], "marker": marker, "ms": 3.5, "lw": 1.4}
            above.plot(own.index, own["Mean Acc"], label=LABELS[method], **line)
            spread = own["Std Acc"].fillna(0.0)
            band = own["Mean Acc"] - spread, own["Mean Acc"] + spread
            above.fill_between(own.index, *band, color=_COLOURS[method], alpha=0.13, lw=0)
            below.plot(own.index, own["lost"], **line)
        above.set(title=name, ylim=(0.2, 1.02), ylabel="mean accuracy of the runs counted")
        below.set(xlabel="number of kernels K", ylabel="share of runs lost", ylim=(-0.03, 1.03))
        below.set_xticks(SWEEP_KERNELS)
    panels[0, 0].legend(loc="lower right", **LEGEND)
    finish(*panels.ravel(), outer=True)
    return panels


def plot_illustration(record: IllustrationRecord) -> Figure:
    """Plot a run of the paper's two-dimensional illustration, in a figure without a window.

    Of its axes, the first has the rows with the true and the estimated kernels, the next three have the
    kernels with the weights of each class, and the last has a key.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    model, example = record.model, record.example
    classes = model.classes_.tolist()
    figure = new_figure(10.0, 3.6)
    layout: Any = [["overview", "0", "1"], ["overview", "2", "key"]]
    placed = figure.subplot_mosaic(layout, sharex=True, sharey=True, width_ratios=(2.34, 1.0, 1.0))
    overview, *panels = (placed[name] for name in ("overview", "0", "1", "2"))
    placed["key"].axis("off")
    weight_key(placed["key"], loc="center", **LEGEND)
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
    figure.draw_without_rendering()
    return figure
