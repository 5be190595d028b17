"""All figures of the paper, and those of the study that go with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from skmix.experiments.paper.data import features_of
from skmix.experiments.paper.published_values import published_sweep
from skmix.experiments.paper.records import BestRun, StudyResults
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
from skmix.plots._common import Figure, need_matplotlib, new_figure
from skmix.plots.digits import plot_digit_points, plot_digits, plot_feature_overlay, plot_segments
from skmix.plots.matrices import plot_confusion
from skmix.plots.projections import plot_projections
from skmix.plots.study import plot_accuracy_against_kernels, plot_accuracy_distribution

_SIZES = {"d1": (1.0, 0.2), "d2": (2.0, 0.5)}
"""Half lengths and half widths of the segments in the paper's figures of points."""
_PROJECTED = ("4D", "6D")
_IMAGES_OF_A_DIGIT = 10
_ROWS_OF_A_CLASS = 100
"""Rows beneath the kernels: enough to see the class, few enough for a small file."""


def paper_figures(
    results: StudyResults,
    *,
    published: Mapping[tuple[str, int], tuple[float, float]] | None = None,
    projected_methods: tuple[Method, ...] = ("class-wise",),
) -> Iterator[tuple[str, Figure]]:
    """Yield every figure of the paper and of the study, one at a time.

    Nothing is fitted again; each figure is made when it is requested and can be dropped once saved.

    Parameters
    ----------
    results : StudyResults
        The study; parts that it lacks give no figure.
    published : dict of (variant, K) to (mean accuracy, share of runs lost), default=None
        Published values for the figure of accuracy against K; None takes the paper's.
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
