"""Comparison of classifiers: errors, mean ranks, learning curves, and the gain from shared kernels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.field.classifiers import FIELD, OURS
from skmix.experiments.field.classifiers import in_order as ordered
from skmix.experiments.field.comparison import Outcome
from skmix.experiments.field.data import KINDS, in_words, kind_and_classes
from skmix.experiments.field.sharing import CLASSIFIERS, OURS_BY_PARTS, PAIRS, TRUE, LearningMeasure
from skmix.experiments.field.sharing import gain as gain_of
from skmix.experiments.field.tables import mean_ranks, summarise
from skmix.plots._common import (
    CLASS_COLOURS,
    DASHES,
    LEGEND,
    SMALL,
    Axes,
    Figure,
    finish,
    handles_of,
    panels_for,
)

# Ours is always vermilion; in comparisons, other generative classifiers are blue and the rest grey.
_VERMILION, _BLUE, _GREY = CLASS_COLOURS[1], CLASS_COLOURS[0], "0.55"
_FIELD_COLOURS = {each.name: _BLUE for each in FIELD if each.generative} | {OURS: _VERMILION}
_COLOURS = tuple(CLASS_COLOURS[number] for number in (1, 0, 5, 2, 3, 4))
_MARKERS = "osD^vPX*<>"
_KIND_COLOURS = dict(zip(KINDS, CLASS_COLOURS, strict=False))
_OTHER_COLOURS = ("0.25", "0.6", CLASS_COLOURS[3], CLASS_COLOURS[5])
# Errors are drawn in per cent.
_UNITS: dict[LearningMeasure, float] = {"error": 100.0, "log_loss": 1.0}


def plot_ranks(outcomes: Iterable[Outcome], *, axes: Axes | None = None) -> Axes:
    """Plot the mean rank by error of each classifier over the data sets, the best on top.

    Generative classifiers are blue, others grey.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Outcomes of all classifiers on at least one data set.
    axes : Axes, default=None
        Where to draw; None makes a new figure.
    """
    ranks = mean_ranks(summarise(outcomes), "error")
    names = sorted(ranks, key=lambda name: ranks[name])
    (panel,) = panels_for(1, axes, size=(5.2, 0.32 * len(names) + 0.8))
    colours = [_FIELD_COLOURS.get(name, _GREY) for name in names]
    bars = panel.barh(range(len(names)), [ranks[name] for name in names], 0.65, color=colours)
    panel.bar_label(bars, fmt="%.1f", padding=4, fontsize=SMALL)
    panel.set_yticks(range(len(names)), names)
    panel.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, len(names) + 0.5))
    panel.set_xlabel("mean rank by error, 1 is best")
    finish(panel)
    return panel


def plot_errors(
    outcomes: Iterable[Outcome], *, axes: Any = None, figure: Figure | None = None
) -> NDArray[Any]:
    """Plot the test error of each classifier, with its standard error, in a panel for each data set.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Outcomes of any data sets.
    axes, figure : default=None
        Axes to draw into, one for each data set, or an empty figure for new axes. By default a new figure.
    """
    summaries = summarise(outcomes)
    if not summaries:
        raise ValueError("there are no outcomes to plot.")
    sets = list(dict.fromkeys(each.data for each in summaries))
    names = ordered([each.classifier for each in summaries], [each.name for each in FIELD])
    size = (3.0, 0.19 * len(names) + 0.6)
    panels = panels_for(len(sets), axes, figure, n_columns=4, size=size, sharey=True)
    for data, panel in zip(sets, panels, strict=True):
        for each in (each for each in summaries if each.data == data):
            value, error = (100.0 * part["error"] for part in (each.values, each.standard_errors))
            place, bar = names.index(each.classifier), None if np.isnan(error) else error
            colour = _FIELD_COLOURS.get(each.classifier, _GREY)
            panel.errorbar(value, place, xerr=bar, fmt="o", color=colour, ms=5.0, lw=1.2)
        panel.set_yticks(range(len(names)), names)
        panel.set(title=data, xlabel="test error, %", ylim=(len(names) - 0.4, -0.6), axisbelow=True)
        panel.grid(axis="y", color="0.92", lw=0.6)
    finish(*panels)
    return panels


def plot_sharing(
    points: Sequence[Outcome],
    *,
    measure: LearningMeasure = "error",
    axes: Any = None,
    figure: Figure | None = None,
) -> NDArray[Any]:
    """Plot test error or log-loss against the training rows of each class, a panel for each data set.

    Lines are medians over the draws, bars reach from the lower to the upper quartile; a classifier that
    failed in some draw has no point. A thin grey line marks the true densities, the best possible. Log-losses
    far above that of guessing are cut off. The legend is below the panels, or in the first one if their
    figure has no constrained layout.

    Parameters
    ----------
    points : sequence of Outcome
        Points of learning curves.
    measure : {'error', 'log_loss'}, default='error'
        What is drawn.
    axes, figure : default=None
        Axes to draw into, one for each data set, or an empty figure for new axes. By default a new figure.
    """
    if not points:
        raise ValueError("there are no points to plot.")
    sets = list(dict.fromkeys(point.data for point in points))
    names = ordered([point.classifier for point in points], CLASSIFIERS)
    panels = panels_for(len(sets), axes, figure, n_columns=3, size=(3.6, 2.9))
    for data, panel in zip(sets, panels, strict=True):
        own = [point for point in points if point.data == data]
        for name in names:
            _draw_curve(panel, name, [point for point in own if point.classifier == name], measure)
        bottom, top = panel.get_ylim()
        guessing = 1.3 * float(np.log(own[0].n_classes))
        if measure == "log_loss" and top > guessing:
            lowest = panel.dataLim.y0
            bottom, top = lowest - 0.05 * (guessing - lowest), guessing
        panel.set(title=_title(own[0]), ylim=(max(bottom, 0.0), top))
        _mark_rows(panel, points)
    for panel in panels[:: min(3, len(panels))]:
        panel.set_ylabel("test error, %" if measure == "error" else "log-loss")
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    target, place = panels[0], {}
    if isinstance(target.figure.get_layout_engine(), ConstrainedLayoutEngine):
        target, place = target.figure, {"loc": "outside lower center", "ncols": min(4, len(names))}
    target.legend(*handles_of(panels, names), **LEGEND, **place)
    finish(*panels)
    return panels


def plot_gain(
    points: Sequence[Outcome],
    *,
    measure: LearningMeasure = "error",
    axes: Axes | None = None,
    legend: bool = True,
) -> Axes:
    """Plot how much shared kernels improve on own ones against the training rows of each class.

    There is a line for each data set: the median of the differences within draws, with bars from the lower to
    the upper quartile. Above zero sharing pays. Each kind of simulated classes has a colour.

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
    """
    cells = defaultdict(list)
    for point in points:
        cells[point.data, point.rows_per_class, point.classifier].append(point)
    lines: dict[tuple[str, str], dict[int, NDArray[Any]]] = defaultdict(dict)
    for data in dict.fromkeys(point.data for point in points):
        for shared, apart in PAIRS:
            for rows in _sizes(points):
                found = gain_of(cells[data, rows, shared], cells[data, rows, apart], measure)
                if len(found):
                    lines[data, shared][rows] = _UNITS[measure] * found
    if not lines:
        raise ValueError("no draw has both shared and own kernels, so there is nothing to plot.")
    (panel,) = panels_for(1, axes, size=(7.2, 3.6))
    panel.axhline(0.0, color="0.2", lw=1.0, zorder=1)
    styles = _styles(list(lines))
    for number, ((data, shared), values) in enumerate(lines.items()):
        label = _title(next(point for point in points if point.data == data))
        label += ", by parts" if shared == OURS_BY_PARTS else ""
        # A small offset separates the error bars of different lines.
        offset = 1.02 ** (number - (len(lines) - 1) / 2)
        _draw_medians(panel, values, offset, ms=4.5, lw=1.4, label=label, **styles[data, shared])
    _mark_rows(panel, points)
    bottom, top = panel.get_ylim()
    room = 0.18 * (top - bottom)
    # With room for the words above and below the lines.
    bottom, top = min(bottom, -room) - 0.5 * room, max(top, room) + 0.5 * room
    panel.set_ylim(bottom, top)
    panel.axhspan(bottom, 0.0, color="0.96", lw=0.0, zorder=0)
    style: dict[str, Any] = {"transform": panel.transAxes, "fontsize": SMALL, "color": "0.35", "ha": "right"}
    panel.text(0.985, 0.97, "sharing pays", va="top", **style)
    panel.text(0.985, 0.03, "own kernels better", va="bottom", **style)
    name, unit = ("error", ", points") if measure == "error" else ("log-loss", "")
    panel.set_ylabel(f"{name} of own kernels less that of shared ones{unit}")
    if legend:
        panel.legend(**LEGEND, loc="center left", bbox_to_anchor=(1.01, 0.5))
    finish(panel)
    return panel


def _draw_curve(panel: Axes, name: str, curve: Sequence[Outcome], measure: LearningMeasure) -> None:
    """Draw the curve of one classifier on one data set."""
    if not curve:
        return
    if name == TRUE:
        # The true densities have one value for each draw, regardless of the number of rows.
        floor = {point.repeat: _UNITS[measure] * getattr(point, measure) for point in curve}
        panel.axhline(float(np.median(list(floor.values()))), color="0.5", lw=0.9, label=name, zorder=1)
        return
    values = {}
    for size in _sizes(curve):
        outcomes = [point for point in curve if point.rows_per_class == size]
        # A median over only the draws that succeeded would be too optimistic.
        if not any(outcome.failure for outcome in outcomes):
            values[size] = _UNITS[measure] * np.array([getattr(outcome, measure) for outcome in outcomes])
    place = (*CLASSIFIERS, name).index(name)
    colour = _COLOURS[place] if place < len(_COLOURS) else "0.3"
    # The first classifier of the study is drawn on top.
    order = 2.0 + 0.1 * (len(_MARKERS) - place)
    _draw_medians(
        panel, values, color=colour, marker=_MARKERS[place], ms=4.0, lw=1.2, label=name, zorder=order
    )


def _draw_medians(axes: Axes, values: Mapping[int, NDArray[Any]], offset: float = 1.0, **style: Any) -> None:
    """Draw medians and quartiles of independent draws against rows per class."""
    quartiles = [np.quantile(each, [0.25, 0.5, 0.75]) for each in values.values()]
    low, middle, high = np.reshape(quartiles, (-1, 3)).T
    bars = [middle - low, high - middle]
    axes.errorbar([offset * rows for rows in values], middle, bars, elinewidth=0.9, **style)


def _styles(lines: Sequence[tuple[str, str]]) -> dict[tuple[str, str], dict[str, str]]:
    """Return the style of each line: kinds differ in colour, data sets of a kind in marker and dashes."""
    others = [data for data in dict.fromkeys(data for data, _ in lines) if kind_and_classes(data) is None]
    used: Counter[str] = Counter()
    styles = {}
    # From the end, so that the most classes, and those by parts, have solid lines.
    for number, (data, shared) in reversed(list(enumerate(lines))):
        kind = kind_and_classes(data)
        colour = _KIND_COLOURS[kind[0]] if kind else _OTHER_COLOURS[others.index(data) % len(_OTHER_COLOURS)]
        marker, dashes = _MARKERS[number % len(_MARKERS)], DASHES[used[colour] % len(DASHES)]
        styles[data, shared] = {"color": colour, "marker": marker, "ls": dashes}
        used[colour] += 1
    return styles


def _mark_rows(axes: Axes, points: Sequence[Outcome]) -> None:
    """Format the horizontal axis for training rows per class."""
    ticks = _sizes(points)
    axes.set_xscale("log")
    axes.set_xticks(ticks, map(str, ticks))
    axes.minorticks_off()
    axes.set(xlim=(ticks[0] / 1.3, ticks[-1] * 1.3), xlabel="training rows of each class")


def _sizes(points: Sequence[Outcome]) -> list[int]:
    return sorted({point.rows_per_class for point in points})


def _title(point: Outcome) -> str:
    """Return a data set's name in words."""
    if kind_and_classes(point.data) is not None:
        return in_words(point.data)
    name = "seven-segment digits" if point.data == "seven_segment" else point.data
    return f"{name}, {point.n_classes} classes"
