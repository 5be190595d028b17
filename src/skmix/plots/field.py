"""Comparison of classifiers: errors, mean ranks, learning curves, and the gain from shared kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.field.classifiers import FIELD, OURS, in_order
from skmix.experiments.field.comparison import Measure, Outcome, mean_ranks, summarise
from skmix.experiments.field.data import KINDS, in_words, kind_and_classes
from skmix.experiments.field.sharing import (
    CLASSIFIERS,
    OURS_BY_PARTS,
    PAIRS,
    TRUE,
    LearningMeasure,
    gain,
)
from skmix.plots._common import (
    CLASS_COLOURS,
    MEDIUM,
    SMALL,
    Axes,
    Figure,
    FloatArray,
    figure_or_new,
    grey_frames,
    panels_for,
)

_GENERATIVE = {each.name for each in FIELD if each.generative}
_LABELS: dict[LearningMeasure, str] = {"error": "test error, %", "log_loss": "log-loss"}
_GAIN_LABELS: dict[LearningMeasure, str] = {
    "error": "error of own kernels less that of shared ones, points",
    "log_loss": "log-loss of own kernels less that of shared ones",
}
# Our classifier is always vermilion.
_COLOURS = tuple(CLASS_COLOURS[number] for number in (1, 0, 5, 2, 3, 4))
_MARKERS = "osD^vPX*<>"
_KIND_COLOURS = dict(zip(KINDS, CLASS_COLOURS, strict=False))
_OTHER_COLOURS = ("0.25", "0.6", CLASS_COLOURS[3], CLASS_COLOURS[5])
_DASHES = ("-", "--", ":", "-.")


def plot_ranks(outcomes: Iterable[Outcome], *, measure: Measure = "error", axes: Axes | None = None) -> Axes:
    """Plot the mean rank of each classifier over the data sets, the best on top.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Outcomes of all classifiers on at least one data set.
    measure : str, default='error'
        What is ranked.
    axes : Axes, default=None
        Where to draw; None makes a new figure.

    Returns
    -------
    Axes
        The axes. Generative classifiers are blue, others grey.
    """
    ranks = mean_ranks(summarise(outcomes), measure)
    names = sorted(ranks, key=lambda name: ranks[name])
    (panel,) = panels_for(1, axes, None, size=(5.2, 0.32 * len(names) + 0.8))
    places = np.arange(len(names))
    panel.barh(places, [ranks[name] for name in names], 0.65, color=[_colour(name) for name in names])
    for place, name in enumerate(names):
        panel.text(ranks[name] + 0.08, place, f"{ranks[name]:.1f}", va="center", fontsize=SMALL)
    panel.set_yticks(places, names)
    panel.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, len(names) + 0.5))
    panel.set_xlabel(f"mean rank by {measure.replace('_', '-')}, 1 is best", fontsize=SMALL)
    grey_frames(panel)
    return panel


def plot_errors(
    outcomes: Iterable[Outcome], *, axes: Any = None, figure: Figure | None = None
) -> NDArray[Any]:
    """Plot the test error of each classifier, a panel for each data set.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Outcomes of any data sets.
    axes, figure : default=None
        Axes to draw into, one for each data set, or an empty figure for new axes. By default a new figure.

    Returns
    -------
    ndarray of axes
        One for each data set. Error bars are one standard error.
    """
    summaries = summarise(outcomes)
    if not summaries:
        raise ValueError("there are no outcomes to plot.")
    sets = list(dict.fromkeys(each.data for each in summaries))
    names = in_order((each.classifier for each in summaries), [each.name for each in FIELD])
    panels = panels_for(len(sets), axes, figure, n_columns=4, size=(3.0, 0.19 * len(names) + 0.6))
    for place, (data, panel) in enumerate(zip(sets, panels, strict=True)):
        for each in (each for each in summaries if each.data == data):
            error = each.standard_errors["error"]
            panel.errorbar(
                100.0 * each.values["error"],
                names.index(each.classifier),
                xerr=None if np.isnan(error) else 100.0 * error,
                fmt="o",
                color=_colour(each.classifier),
                ms=5.0,
                lw=1.2,
            )
        shown = names if place % 4 == 0 else [""] * len(names)
        panel.set_yticks(range(len(names)), shown, fontsize=SMALL)
        panel.set_ylim(len(names) - 0.4, -0.6)
        panel.set_title(data, fontsize=MEDIUM)
        panel.set_xlabel("test error, %", fontsize=SMALL)
        panel.grid(axis="y", color="0.92", lw=0.6)
        panel.set_axisbelow(True)
    grey_frames(*panels)
    return panels


def plot_sharing(
    points: Sequence[Outcome],
    *,
    measure: LearningMeasure = "error",
    axes: Any = None,
    figure: Figure | None = None,
) -> NDArray[Any]:
    """Plot test error or log-loss against the training rows of each class, a panel for each data set.

    Parameters
    ----------
    points : sequence of Outcome
        Points of learning curves.
    measure : {'error', 'log_loss'}, default='error'
        What is drawn.
    axes, figure : default=None
        Axes to draw into, one for each data set, or an empty figure for new axes. By default a new figure.

    Returns
    -------
    ndarray of axes
        One for each data set. Lines are means over the draws, error bars one standard error; a classifier
        that failed in some draw has no point. A thin grey line marks the true densities, the best possible.
        Log-losses far above that of guessing are cut off. The legend is below the panels, or in the first
        one if their figure has no constrained layout.
    """
    if not points:
        raise ValueError("there are no points to plot.")
    sets = list(dict.fromkeys(point.data for point in points))
    names = in_order((point.classifier for point in points), CLASSIFIERS)
    panels = panels_for(len(sets), axes, figure, n_columns=3, size=(3.6, 2.9))
    for data, panel in zip(sets, panels, strict=True):
        own = [point for point in points if point.data == data]
        for name in names:
            _draw_curve(panel, [point for point in own if point.classifier == name], measure)
        _mark_rows(panel, points)
        panel.set_title(_title(own[0]), fontsize=MEDIUM)
        bottom, top = panel.get_ylim()
        guessing = 1.3 * float(np.log(own[0].n_classes))
        if measure == "log_loss" and top > guessing:
            lowest = panel.dataLim.y0
            bottom, top = lowest - 0.05 * (guessing - lowest), guessing
        panel.set_ylim(max(bottom, 0.0), top)
    for panel in panels[:: min(3, len(panels))]:
        panel.set_ylabel(_LABELS[measure], fontsize=SMALL)
    _add_legend(panels)
    grey_frames(*panels)
    return panels


def plot_gain(
    points: Sequence[Outcome],
    *,
    measure: LearningMeasure = "error",
    axes: Axes | None = None,
    legend: bool = True,
) -> Axes:
    """Plot how much shared kernels improve on own ones against the training rows of each class.

    Parameters
    ----------
    points : sequence of Outcome
        Points of learning curves, of classifiers with shared and with own kernels.
    measure : {'error', 'log_loss'}, default='error'
        The measure that is compared; errors are drawn in percentage points.
    axes : Axes, default=None
        Where to draw; None makes a new figure.
    legend : bool, default=True
        Whether to add a legend on the right.

    Returns
    -------
    Axes
        The axes, with a line for each data set. Lines are means of the differences within draws, error bars
        one standard error. Above zero sharing pays. Each kind of simulated classes has a colour.
    """
    lines: dict[tuple[str, str], dict[int, FloatArray]] = {}
    for data in dict.fromkeys(point.data for point in points):
        for shared, apart in PAIRS:
            for rows in _sizes(points):
                found = _differences(points, data, rows, (shared, apart), measure)
                if len(found):
                    lines.setdefault((data, shared), {})[rows] = found
    if not lines:
        raise ValueError("no draw has both shared and own kernels, so there is nothing to plot.")
    if axes is None:
        axes = figure_or_new(None, (7.2, 3.6)).add_subplot()
    axes.axhline(0.0, color="0.2", lw=1.0, zorder=1)
    styles = _styles(list(lines))
    for number, ((data, shared), values) in enumerate(lines.items()):
        title = _title(next(point for point in points if point.data == data))
        label = f"{title}, by parts" if shared == OURS_BY_PARTS else title
        # A small offset separates the error bars of different lines.
        offset = 1.02 ** (number - (len(lines) - 1) / 2)
        _draw_means(axes, values, offset, ms=4.5, lw=1.4, label=label, **styles[data, shared])
    _mark_rows(axes, points)
    bottom, top = axes.get_ylim()
    room = 0.18 * (top - bottom)
    bottom, top = min(bottom, -room), max(top, room) + 0.3 * room
    axes.set_ylim(bottom, top)
    axes.axhspan(bottom, 0.0, color="0.96", lw=0.0, zorder=0)
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "color": "0.35", "ha": "right"}
    axes.text(0.985, 0.97, "sharing pays", va="top", **style)
    axes.text(0.985, 0.03, "own kernels better", va="bottom", **style)
    axes.set_ylabel(_GAIN_LABELS[measure], fontsize=SMALL)
    if legend:
        axes.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    grey_frames(axes)
    return axes


def _draw_curve(panel: Axes, curve: Sequence[Outcome], measure: LearningMeasure) -> None:
    """Draw the curve of one classifier on one data set."""
    if not curve:
        return
    name, unit = curve[0].classifier, _unit(measure)
    if name == TRUE:
        # The true densities have one value for each draw, regardless of the number of rows.
        floor = {point.repeat: unit * getattr(point, measure) for point in curve}
        panel.axhline(float(np.mean(list(floor.values()))), color="0.5", lw=0.9, label=name, zorder=1)
        return
    values: dict[int, FloatArray] = {}
    for size in _sizes(curve):
        outcomes = [point for point in curve if point.rows_per_class == size]
        # A mean over only the draws that succeeded would be too optimistic.
        if not any(outcome.failure for outcome in outcomes):
            values[size] = np.array([unit * getattr(outcome, measure) for outcome in outcomes])
    place = CLASSIFIERS.index(name) if name in CLASSIFIERS else len(CLASSIFIERS)
    colour = _COLOURS[place] if place < len(_COLOURS) else "0.3"
    # The first classifier of the study is drawn on top.
    order = 2.0 + 0.1 * (len(_MARKERS) - place)
    _draw_means(panel, values, color=colour, marker=_MARKERS[place], ms=4.0, lw=1.2, label=name, zorder=order)


def _draw_means(axes: Axes, values: dict[int, FloatArray], offset: float = 1.0, **style: Any) -> None:
    """Draw means and standard errors of independent draws against rows per class."""
    errors = [each.std(ddof=1) / np.sqrt(len(each)) if len(each) > 1 else 0.0 for each in values.values()]
    means = [each.mean() for each in values.values()]
    axes.errorbar([offset * rows for rows in values], means, errors, elinewidth=0.9, **style)


def _differences(
    points: Sequence[Outcome], data: str, rows: int, pair: tuple[str, str], measure: LearningMeasure
) -> FloatArray:
    """Return how much own kernels lose to shared ones in each draw that has both."""
    own = [each for each in points if (each.data, each.rows_per_class) == (data, rows)]
    shared, apart = ([each for each in own if each.classifier == name] for name in pair)
    return _unit(measure) * gain(shared, apart, measure)


def _styles(lines: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the style of each line: kinds differ in colour, data sets of a kind in marker and dashes."""
    others = [data for data in dict.fromkeys(data for data, _ in lines) if kind_and_classes(data) is None]
    used: Counter[str] = Counter()
    styles = {}
    # From the end, so that the most classes, and those by parts, have solid lines.
    for number, (data, shared) in reversed(list(enumerate(lines))):
        kind = kind_and_classes(data)
        colour = _KIND_COLOURS[kind[0]] if kind else _OTHER_COLOURS[others.index(data) % len(_OTHER_COLOURS)]
        marker, dashes = _MARKERS[number % len(_MARKERS)], _DASHES[used[colour] % len(_DASHES)]
        styles[data, shared] = {"color": colour, "marker": marker, "ls": dashes}
        used[colour] += 1
    return styles


def _add_legend(panels: NDArray[Any]) -> None:
    """Add one legend for the classifiers of all panels."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    handles: dict[str, Any] = {}
    for panel in panels:
        handles |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    names = in_order(handles, CLASSIFIERS)
    target, place = panels[0], {}
    if isinstance(target.figure.get_layout_engine(), ConstrainedLayoutEngine):
        target, place = target.figure, {"loc": "outside lower center", "ncols": min(4, len(names))}
    target.legend([handles[name] for name in names], names, fontsize=SMALL, frameon=False, **place)


def _mark_rows(axes: Axes, points: Sequence[Outcome]) -> None:
    """Format the horizontal axis for training rows per class."""
    ticks = _sizes(points)
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(ticks[0] / 1.3, ticks[-1] * 1.3)
    axes.minorticks_off()
    axes.set_xlabel("training rows of each class", fontsize=SMALL)


def _sizes(points: Sequence[Outcome]) -> list[int]:
    return sorted({point.rows_per_class for point in points})


def _unit(measure: LearningMeasure) -> float:
    return 100.0 if measure == "error" else 1.0


def _title(point: Outcome) -> str:
    """Return a data set's name in words."""
    if kind_and_classes(point.data) is not None:
        return in_words(point.data)
    name = "seven-segment digits" if point.data == "seven_segment" else point.data
    return f"{name}, {point.n_classes} classes"


def _colour(name: str) -> str:
    """Return the colour of a classifier: ours, generative or other."""
    return CLASS_COLOURS[1] if name == OURS else CLASS_COLOURS[0] if name in _GENERATIVE else "0.55"
