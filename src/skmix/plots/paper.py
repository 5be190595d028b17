"""The paper's figures: its illustration, the runs of its study, and all others in the paper's order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.paper.data import features_of
from skmix.experiments.paper.illustration import IllustrationRecord
from skmix.experiments.paper.published_values import published_sweep
from skmix.experiments.paper.records import FAILED_BELOW, BestRun, Run, StudyResults, counted_in_sweep
from skmix.experiments.paper.variants import (
    FEATURES,
    MAIN_KERNELS,
    METHODS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
    variant_of,
)
from skmix.plots._common import (
    CLASS_COLOURS,
    MEDIUM,
    SMALL,
    Axes,
    Figure,
    FloatArray,
    dots,
    ellipses,
    given_axes,
    grey_frames,
    need_matplotlib,
    new_figure,
    outer,
    panels_for,
)
from skmix.plots.digits import plot_digit_points, plot_digits, plot_feature_overlay, plot_segments
from skmix.plots.kernels import draw_kernels, plot_projections, weight_key
from skmix.plots.matrices import plot_confusion

_SIZES = {"d1": (1.0, 0.2), "d2": (2.0, 0.5)}
"""Half lengths and half widths of the segments in the paper's figures of points."""
_PROJECTED = ("4D", "6D")
_IMAGES_OF_A_DIGIT = 10
_ROWS_OF_A_CLASS = 100
"""Rows beneath the kernels: enough to see the class, few enough for a small file."""
METHOD_COLOURS: dict[Method, str] = {
    "published": CLASS_COLOURS[1],
    "robust": CLASS_COLOURS[0],
    "class-wise": CLASS_COLOURS[2],
}
_MARKERS: dict[Method, str] = {"published": "o", "robust": "s", "class-wise": "^"}
# Offsets in K, so that error bars do not cover one another.
_DODGE: dict[Method, float] = {"published": -0.15, "robust": 0.0, "class-wise": 0.15}
_PRINTED = "printed in the paper"
_MAX_DOTS = 500
_LANE = 0.36
"""Half the height of the band that the dots of one configuration fill."""


def paper_figures(
    results: StudyResults,
    *,
    published: Mapping[tuple[str, int], tuple[float, float]] | None = None,
    projected_methods: tuple[Method, ...] = ("class-wise",),
) -> Iterator[tuple[str, Figure]]:
    """Yield every figure of the paper and of the study, one at a time.

    No model is fitted; figures are drawn one at a time, so that each can be discarded once saved.

    Parameters
    ----------
    results : StudyResults
        The study; figures of missing parts are skipped.
    published : dict of (variant, K) to (mean accuracy, share of runs lost), default=None
        Published values for the figure of accuracy against K; None uses the paper's.
    projected_methods : tuple of {"published", "robust", "class-wise"}, default=("class-wise",)
        The methods whose best 4-D and 6-D models are shown, for every class.

    Yields
    ------
    name : str
        A file name without suffix.
    figure : matplotlib figure
        The figure.
    """
    need_matplotlib()
    printed = published_sweep() if published is None else published
    for name, figure in _all_figures(results, printed, projected_methods):
        if figure.get_layout_engine() is not None:
            # Lay out once here, instead of once for each format it is saved in.
            figure.draw_without_rendering()
            figure.set_layout_engine("none")
        yield name, figure


def _all_figures(
    results: StudyResults,
    printed: Mapping[tuple[str, int], tuple[float, float]],
    projected_methods: tuple[Method, ...],
) -> Iterator[tuple[str, Figure]]:
    """Yield names and figures."""
    data, runs = results.data, results.runs
    figure = new_figure(3.9, 4.8)
    plot_segments(figure=figure)
    yield "fig1_segments", figure
    for number, (name, (half_length, half_width)) in enumerate(_SIZES.items(), start=2):
        figure = new_figure(8.5, 4.0)
        plot_digit_points(half_length, half_width, random_state=results.settings.seed, figure=figure)
        figure.suptitle(f"D = {half_length:g}, d = {half_width:g}: points and 3σ ellipses", fontsize=11)
        yield f"fig{number}_points_{name}", figure
    first = [
        np.flatnonzero(data.train_labels == digit)[:_IMAGES_OF_A_DIGIT]
        for digit in np.unique(data.train_labels)
    ]
    chosen = np.concatenate(first)
    figure = new_figure(6.5, 6.4)
    images, labels = data.train_images[chosen], data.train_labels[chosen]
    plot_digits(images, labels, n_columns=_IMAGES_OF_A_DIGIT, figure=figure)
    yield "fig4_images", figure
    figure = new_figure(9.5, 3.6)
    plot_feature_overlay(data.train_features, data.train_labels, n_samples=_IMAGES_OF_A_DIGIT, figure=figure)
    yield "fig5_pca_features", figure
    for variant in _PROJECTED:
        for method in projected_methods:
            if (variant, method) in results.best:
                yield from _projections(results.best[variant, method], results)
    if any(run.n_kernels == MAIN_KERNELS for run in runs):
        figure = new_figure(9.5, 7.6)
        plot_accuracy_distribution(runs, figure=figure)
        yield "accuracy_distribution", figure
    sweep = [run for run in runs if run.run < SWEEP_RUNS and run.variant in SWEEP_VARIANTS]
    if len({run.n_kernels for run in sweep}) > 1:
        figure = new_figure(10.0, 4.6)
        plot_accuracy_against_kernels(sweep, printed, figure=figure)
        yield "accuracy_against_kernels", figure
    for variant in (each.name for each in VARIANTS):
        best = [results.best[variant, method].run for method in METHODS if (variant, method) in results.best]
        if best:
            figure = new_figure(3.9 * len(best), 4.3)
            panels = figure.subplots(1, len(best), squeeze=False)[0]
            for run, panel in zip(best, panels, strict=True):
                title = f"{run.variant}, {run.method}: {run.accuracy:.3f}"
                plot_confusion(run.confusion, title=title, axes=panel)
            yield f"confusion_{variant}", figure


def _projections(best: BestRun, results: StudyResults) -> Iterator[tuple[str, Figure]]:
    """Yield the kernels of a run's first mixture in all planes, class by class."""
    from matplotlib.figure import Figure

    model, run = best.groups[0], best.run
    columns = [FEATURES.index(str(name)) for name in model.feature_names_in_]
    features, _ = features_of(results.data, variant_of(run.variant), results.settings)
    side = 1.75 * (len(columns) - 1) + 0.7
    margins = {"left": 0.62 / side, "right": 1 - 0.08 / side, "bottom": 0.5 / side, "top": 1 - 0.45 / side}
    for label in model.classes_.tolist():
        rows = features[results.data.train_labels == label][:_ROWS_OF_A_CLASS, columns]
        # Fixed margins: laying out dozens of panels automatically takes longer than drawing them.
        figure = Figure(figsize=(side, side))
        figure.subplots_adjust(**margins, wspace=0.08, hspace=0.08)
        for panel in plot_projections(model, label, rows, figure=figure):
            panel.locator_params(nbins=3)
        title = f"{run.variant}, {run.method}: digit {label}"
        figure.suptitle(title, x=0.62 / side, y=1 - 0.12 / side, ha="left", va="top", fontsize=11)
        yield f"projections_{run.variant}_{run.method}_class{label}", figure


def plot_accuracy_distribution(
    runs: Iterable[Run],
    *,
    n_kernels: int = MAIN_KERNELS,
    axes: Any = None,
    figure: Figure | None = None,
) -> NDArray[Any]:
    """Plot the accuracy of every run, and how many runs failed.

    Parameters
    ----------
    runs : iterable of Run
        Runs of any variants and methods.
    n_kernels : int, default=10
        Only runs with this K are shown.
    axes, figure : default=None
        Axes to draw into, one for each variant, or an empty figure for new axes. By default a new figure.

    Returns
    -------
    ndarray of axes
        One for each variant that has runs, in the order of the study. A dot is a run (at most 500 are drawn),
        a bar the median; in the grey area a run counts as failed.
    """
    by_cell: dict[tuple[str, Method], list[Run]] = defaultdict(list)
    for run in runs:
        if run.n_kernels == n_kernels:
            by_cell[run.variant, run.method].append(run)
    variants = _in_order({variant for variant, _ in by_cell})
    if not variants:
        raise ValueError(f"there are no runs with {n_kernels} kernels to plot.")
    panels = panels_for(len(variants), axes, figure, n_columns=2, size=(4.6, 1.25), sharex=True)
    for variant, panel in zip(variants, panels, strict=True):
        panel.axvspan(0.0, FAILED_BELOW, color="0.94", lw=0, zorder=-2)
        for lane, method in enumerate(METHODS):
            own = by_cell.get((variant, method), [])
            if not own:
                continue
            accuracies = _accuracies(own)
            shown = accuracies[:_MAX_DOTS]
            # Golden-ratio steps spread the dots over the lane without clumps.
            heights = lane + _LANE * (2.0 * ((0.5 + np.arange(len(shown)) * 0.6180339887) % 1.0) - 1.0)
            rows = np.column_stack([shown, heights])
            dots(panel, rows, size=2.2, color=METHOD_COLOURS[method], alpha=0.45, zorder=2)
            median = np.median(accuracies)
            # Behind the dots, to keep them visible where all runs coincide.
            panel.plot([median, median], [lane - 0.47, lane + 0.47], color="black", lw=1.2, zorder=1)
            n_failed = sum(run.failed for run in own)
            panel.text(
                FAILED_BELOW - 0.015,
                lane,
                f"{n_failed} of {len(own)} failed" if n_failed else "none failed",
                ha="right",
                va="center",
                fontsize=SMALL,
                fontweight="bold" if n_failed else "normal",
                color=METHOD_COLOURS[method] if n_failed else "0.35",
            )
        panel.set(xlim=(-0.02, 1.02), ylim=(len(METHODS) - 0.45, -0.55))
        panel.set_yticks(range(len(METHODS)), METHODS)
        panel.set_title(variant, fontsize=MEDIUM, loc="left", pad=2)
        panel.tick_params(axis="y", length=0)
        panel.label_outer()
        if outer(panel, "bottom"):
            panel.set_xlabel("accuracy on the test set", fontsize=SMALL)
    grey_frames(*panels)
    return panels


def plot_accuracy_against_kernels(
    runs: Iterable[Run],
    published: Mapping[tuple[str, int], tuple[float, float]] | None = None,
    *,
    axes: Any = None,
    figure: Figure | None = None,
) -> NDArray[Any]:
    """Plot accuracy and the share of lost runs against the number of kernels.

    As in the paper's table 5 the accuracy is the mean over the runs that were not lost, that is, whose
    accuracy is above one half; with three kernels, which cannot reach that, all runs count.

    Parameters
    ----------
    runs : iterable of Run
        Runs of any variants and methods; variants with only one K are left out.
    published : dict of (variant, K) to (mean accuracy, share of runs lost), default=None
        The published values, shown for comparison.
    axes, figure : default=None
        Axes to draw into, one for each variant for accuracies and then one for each for shares of lost runs,
        or an empty figure for new axes. By default a new figure.

    Returns
    -------
    ndarray of axes, shape (2, variants)
        Accuracies above, shares of lost runs below. Error bars are one standard deviation.
    """
    cells: dict[tuple[str, Method], dict[int, list[Run]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        cells[run.variant, run.method][run.n_kernels].append(run)
    variants = _in_order({variant for (variant, _), by_kernels in cells.items() if len(by_kernels) > 1})
    if not variants:
        raise ValueError("accuracy against K needs a variant with runs for two numbers of kernels or more.")
    n = len(variants)
    flat = panels_for(
        2 * n, axes, figure, n_columns=n, size=(2.5, 1.9), sharex=True, sharey="row", height_ratios=(2, 1)
    )
    panels = flat.reshape(2, n)
    for variant, (above, below) in zip(variants, panels.T, strict=True):
        ticks: set[int] = set()
        for method in METHODS:
            by_kernels = sorted(cells.get((variant, method), {}).items())
            if not by_kernels:
                continue
            ticks.update(k for k, _ in by_kernels)
            ks = np.array([k for k, _ in by_kernels], dtype=float) + _DODGE[method]
            means, deviations, lost = np.array([_summary(own) for _, own in by_kernels]).T
            look = {"color": METHOD_COLOURS[method], "marker": _MARKERS[method]}
            above.errorbar(ks, means, deviations, elinewidth=0.8, ms=3.5, lw=1.2, label=method, **look)
            below.plot(ks, lost, ms=3.5, lw=1.2, label=method, **look)
        points = sorted((k, *value) for (name, k), value in (published or {}).items() if name == variant)
        if points:
            ks, *values = np.array(points).T
            for panel, each in zip((above, below), values, strict=True):
                panel.plot(ks, each, "D", mfc="none", mec="black", ms=5, label=_PRINTED, zorder=5)
        above.set_title(variant, fontsize=MEDIUM)
        below.set_xlabel("kernels K", fontsize=SMALL)
        below.set_xticks(sorted(ticks))
        for panel in (above, below):
            panel.set_ylim(-0.03, 1.03)
            panel.grid(axis="y", color="0.92", lw=0.6)
            panel.set_axisbelow(True)
    panels[0, 0].set_ylabel("mean accuracy", fontsize=SMALL)
    panels[1, 0].set_ylabel("share of runs lost", fontsize=SMALL)
    found = dict(zip(*reversed(panels[0, 0].get_legend_handles_labels()), strict=True))
    names = [name for name in (*METHODS, _PRINTED) if name in found]
    legend: dict[str, Any] = {"fontsize": SMALL - 1, "frameon": False, "loc": "lower right"}
    panels[0, 0].legend([found[name] for name in names], names, **legend)
    grey_frames(*flat)
    return panels


def _in_order(names: set[str]) -> list[str]:
    """Return names of variants in the order of the study, unknown ones last."""
    known = [variant.name for variant in VARIANTS]
    return [name for name in known if name in names] + sorted(names - set(known))


def _accuracies(runs: list[Run]) -> FloatArray:
    """Return accuracies (n,); a run without one counts as zero."""
    return np.nan_to_num(np.array([run.accuracy for run in runs], dtype=np.float64), nan=0.0)


def _summary(runs: list[Run]) -> tuple[float, float, float]:
    """Return mean and standard deviation over the runs not lost, NaN if there is none, and the share lost."""
    kept = _accuracies(counted_in_sweep(runs))
    if not len(kept):
        return float("nan"), float("nan"), 1.0
    return float(kept.mean()), float(kept.std()), 1.0 - len(kept) / len(runs)


def plot_illustration(
    record: IllustrationRecord, figure: Figure | None = None, *, axes: Any = None
) -> NDArray[Any]:
    """Plot a run of the paper's two-dimensional illustration.

    Parameters
    ----------
    record : IllustrationRecord
        What `skmix.experiments.paper.run_illustration` returned.
    figure : matplotlib figure, default=None
        An empty figure to draw into. None makes one without a window, ready for ``savefig``.
    axes : array of 1 + L axes, default=None
        Axes to draw into instead: the overview, then one for each class. The legend of the lines is left out.

    Returns
    -------
    ndarray of 1 + L axes
        First the rows with the true and the estimated kernels, then the kernels with each class's weights.
    """
    need_matplotlib()
    from matplotlib.lines import Line2D
    from matplotlib.patheffects import withStroke

    model, example = record.model, record.example
    classes = model.classes_.tolist()
    n_classes = len(classes)
    corner = None
    if axes is None:
        overview, panels, corner = _lay_out(figure, n_classes)
    else:
        overview, *panels = given_axes(axes, 1 + n_classes, figure)
    colours = [CLASS_COLOURS[c % len(CLASS_COLOURS)] for c in range(n_classes)]
    codes = np.searchsorted(model.classes_, record.y)

    # Shuffled, so that no class covers the others.
    order = np.random.RandomState(0).permutation(len(record.y))
    shades = np.array(colours)[codes[order]]
    across, up = record.X[order].T
    overview.scatter(across, up, c=shades, s=5, alpha=0.3, lw=0, rasterized=True, zorder=0)
    estimated: dict[str, Any] = {"edgecolor": "black", "linewidth": 1.6, "linestyle": "solid"}
    true: dict[str, Any] = {"edgecolor": "#ff5fa8", "linewidth": 1.6, "linestyle": (0, (2.5, 2.5))}
    for n_std in (1.0, 2.0):
        ellipses(overview, model.means_, model.covariances_, [estimated] * len(model.means_), n_std)
        ellipses(overview, example.means, example.covariances, [true] * len(example.means), n_std)
    handles = [
        *(
            Line2D([], [], marker="o", ls="", ms=4, color=colour, label=f"class {label}")
            for colour, label in zip(colours, classes, strict=True)
        ),
        *(
            Line2D([], [], color=line["edgecolor"], lw=1.6, ls=line["linestyle"], label=name)
            for name, line in (("estimated, 1σ and 2σ", estimated), ("true", true))
        ),
    ]
    overview.legend(handles=handles, loc="lower right", fontsize=SMALL, frameon=False, borderpad=0.2)
    overview.set_title("Kernels, true and estimated", fontsize=MEDIUM)
    overview.set_xlabel("feature 0", fontsize=SMALL)
    overview.set_ylabel("feature 1", fontsize=SMALL)

    tops = model.means_ + np.sqrt(model.covariances_[:, 1, 1])[:, None] * (0.0, 1.0)
    for c, (label, panel) in enumerate(zip(classes, panels, strict=True)):
        dots(panel, record.X[codes == c], size=1.2)
        draw_kernels(model, label, panel, style="accessible")
        for top, weight in zip(tops, model.weights_[:, c], strict=True):
            style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": SMALL}
            number = panel.annotate(f"{weight:.3f}", top, (0, 4), **style)
            number.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
        panel.set_title(f"Weights of class {label}", fontsize=MEDIUM, color=colours[c])
        panel.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
    if corner is not None:
        weight_key(corner, style="accessible", loc="center", fontsize=SMALL, title_fontsize=SMALL)
    for panel in (overview, *panels):
        panel.set_aspect("equal", anchor="N")
        grey_frames(panel)
    if axes is None:
        # Axes with equal scales are placed by a first drawing, and their labels by the second.
        own: Any = overview.figure
        own.draw_without_rendering()
    return np.array([overview, *panels], dtype=object)


def _lay_out(figure: Figure | None, n_classes: int) -> tuple[Axes, list[Axes], Axes | None]:
    """Return the overview, a panel for each class next to it, and an empty corner if one is left."""
    figure = new_figure(10.0, 3.6) if figure is None else figure
    n_lines = n_classes // 2 + 1
    grid = figure.add_gridspec(n_lines, 4, width_ratios=(1.17, 1.17, 1.0, 1.0))
    overview = figure.add_subplot(grid[:, :2])
    cells = [grid[line, 2 + column] for line in range(n_lines) for column in range(2)]
    panels = [figure.add_subplot(cell, sharex=overview, sharey=overview) for cell in cells[:n_classes]]
    corner = None
    if len(cells) > n_classes:
        corner = figure.add_subplot(cells[n_classes])
        corner.axis("off")
    return overview, panels, corner
