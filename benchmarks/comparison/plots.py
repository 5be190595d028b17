"""Pictures of the comparison: mean ranks, errors, learning curves, and the gain from sharing kernels."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .classifiers import FIELD, OURS, OURS_BY_DEFAULT, in_order
from .data import KINDS, FloatArray, in_words, kind_and_classes
from .running import Outcome
from .sharing import CLASSIFIERS, OURS_BY_PARTS, PAIRS, TRUE, LearningMeasure, gain
from .tables import mean_ranks, summarise

SMALL = 8
LEGEND: dict[str, Any] = {"fontsize": SMALL, "frameon": False}
# Six colours of Okabe and Ito, safe for colour-blind readers.
BLUE, VERMILION, GREEN, PINK, SKY, ORANGE = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"
DASHES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX*<>"
# Shared kernels are vermilion; other generative classifiers of the comparison are blue and the rest grey.
FIELD_COLOURS = {each.name: BLUE for each in FIELD if each.generative} | {
    OURS: VERMILION,
    OURS_BY_DEFAULT: VERMILION,
}
CURVE_COLOURS = dict(zip(CLASSIFIERS, (VERMILION, BLUE, ORANGE, GREEN, PINK, SKY), strict=False))
KIND_COLOURS = dict(zip(KINDS, (BLUE, VERMILION, GREEN), strict=True))
OTHER_COLOURS = ("0.25", "0.6", PINK, ORANGE)
# Errors are drawn in per cent.
UNITS: dict[LearningMeasure, float] = {"error": 100.0, "log_loss": 1.0}


def draw_ranks(outcomes: Iterable[Outcome], path: Path) -> None:
    """Draw the mean rank by error of each classifier, the best on top, over the data sets that all have."""
    ranks = mean_ranks(summarise(outcomes), "error")
    names = sorted(ranks, key=lambda name: ranks[name])
    figure = _figure(5.2, 0.32 * len(names) + 0.8)
    panel = figure.add_subplot()
    colours = [FIELD_COLOURS.get(name, "0.55") for name in names]
    bars = panel.barh(range(len(names)), [ranks[name] for name in names], 0.65, color=colours)
    panel.bar_label(bars, fmt="%.1f", padding=4, fontsize=SMALL)
    panel.set_yticks(range(len(names)), names)
    panel.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, len(names) + 0.5))
    panel.set_xlabel("mean rank by error, 1 is best")
    _save(figure, path)


def draw_errors(outcomes: Iterable[Outcome], path: Path) -> None:
    """Draw the test error of each classifier, with its standard error, in a panel for each data set."""
    summaries = summarise(outcomes)
    sets = list(dict.fromkeys(each.data for each in summaries))
    names = in_order([each.classifier for each in summaries], [each.name for each in FIELD])
    n_lines, n_columns = -(-len(sets) // 4), min(4, len(sets))
    figure = _figure(3.0 * n_columns + 1.0, (0.19 * len(names) + 0.8) * n_lines)
    for data, panel in zip(sets, _panels(figure, len(sets), n_columns, sharey=True), strict=True):
        for each in (each for each in summaries if each.data == data):
            value, error = (100.0 * part["error"] for part in (each.values, each.standard_errors))
            place, bar = names.index(each.classifier), None if np.isnan(error) else error
            colour = FIELD_COLOURS.get(each.classifier, "0.55")
            panel.errorbar(value, place, xerr=bar, fmt="o", color=colour, ms=5.0, lw=1.2)
        panel.set_yticks(range(len(names)), names)
        panel.set(title=data, xlabel="test error, %", ylim=(len(names) - 0.4, -0.6), axisbelow=True)
        panel.grid(axis="y", color="0.92", lw=0.6)
    _save(figure, path)


def draw_curves(points: Sequence[Outcome], measure: LearningMeasure, path: Path) -> None:
    """Draw test error or log-loss against the training rows of each class, a panel for each data set.

    Lines are medians over the draws, bars reach from the lower to the upper quartile; a classifier that
    failed in some draw has no point. A thin grey line marks the true densities, the best possible. Log-losses
    far above that of guessing are cut off.
    """
    sets = list(dict.fromkeys(point.data for point in points))
    names = in_order([point.classifier for point in points], CLASSIFIERS)
    figure = _figure(9.6, 2.6 * -(-len(sets) // 3) + 0.5)
    panels = _panels(figure, len(sets), min(3, len(sets)))
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
    for panel in panels[::3]:
        panel.set_ylabel("test error, %" if measure == "error" else "log-loss")
    _legend_below(figure, min(4, len(names)), names)
    _save(figure, path)


def draw_gain(points: Sequence[Outcome], path: Path) -> None:
    """Draw how much shared kernels improve on own ones, by error and by log-loss, against the training rows.

    There is a line for each data set: the median of the differences within draws, with bars from the lower to
    the upper quartile. Above zero sharing pays. Each kind of simulated classes has a colour.
    """
    figure = _figure(9.6, 4.0)
    panels = figure.subplots(1, 2)
    for panel, measure in zip(panels, UNITS, strict=True):
        _draw_gain(panel, points, measure)
    _legend_below(figure, 3, panels[0].get_legend_handles_labels()[1])
    _save(figure, path)


def _draw_gain(panel: Axes, points: Sequence[Outcome], measure: LearningMeasure) -> None:
    lines = gains(points, measure)
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


def gains(
    points: Sequence[Outcome], measure: LearningMeasure
) -> dict[tuple[str, str], dict[int, FloatArray]]:
    """Return the gain of each draw by data set and classifier, then by training rows of each class."""
    cells = defaultdict(list)
    for point in points:
        cells[point.data, point.rows_per_class, point.classifier].append(point)
    lines: dict[tuple[str, str], dict[int, FloatArray]] = defaultdict(dict)
    for data in dict.fromkeys(point.data for point in points):
        for shared, apart in PAIRS:
            for rows in _sizes(points):
                found = gain(cells[data, rows, shared], cells[data, rows, apart], measure)
                if len(found):
                    lines[data, shared][rows] = UNITS[measure] * found
    return lines


def _draw_curve(panel: Axes, name: str, curve: Sequence[Outcome], measure: LearningMeasure) -> None:
    """Draw the curve of one classifier on one data set."""
    if not curve:
        return
    if name == TRUE:
        # The true densities have one value for each draw, regardless of the number of rows.
        floor = {point.repeat: UNITS[measure] * getattr(point, measure) for point in curve}
        panel.axhline(float(np.median(list(floor.values()))), color="0.5", lw=0.9, label=name, zorder=1)
        return
    values = {}
    for size in _sizes(curve):
        outcomes = [point for point in curve if point.rows_per_class == size]
        # A median over only the draws that succeeded would be too optimistic.
        if not any(outcome.failure for outcome in outcomes):
            values[size] = UNITS[measure] * np.array([getattr(outcome, measure) for outcome in outcomes])
    place = CLASSIFIERS.index(name)
    # The first classifier of the study is drawn on top.
    style = {"color": CURVE_COLOURS[name], "marker": MARKERS[place], "zorder": 3.0 - 0.1 * place}
    _draw_medians(panel, values, ms=4.0, lw=1.2, label=name, **style)


def _draw_medians(axes: Axes, values: Mapping[int, FloatArray], offset: float = 1.0, **style: Any) -> None:
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
        colour = KIND_COLOURS[kind[0]] if kind else OTHER_COLOURS[others.index(data) % len(OTHER_COLOURS)]
        marker, dashes = MARKERS[number % len(MARKERS)], DASHES[used[colour] % len(DASHES)]
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


# ---------------------------------------------------------------- figures


def _figure(width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), layout="constrained")


def _panels(figure: Figure, n_panels: int, n_columns: int, **share: Any) -> Any:
    """Return the first n_panels axes of a grid, and remove the others."""
    grid = figure.subplots(-(-n_panels // n_columns), n_columns, squeeze=False, **share).ravel()
    for unused in grid[n_panels:]:
        unused.remove()
    return grid[:n_panels]


def _legend_below(figure: Figure, n_columns: int, order: Sequence[str]) -> None:
    """Add one legend of all panels below them."""
    found: dict[str, Any] = {}
    for panel in figure.axes:
        found |= dict(zip(*reversed(panel.get_legend_handles_labels()), strict=True))
    names = [name for name in order if name in found]
    handles = [found[name] for name in names]
    figure.legend(handles, names, loc="outside lower center", ncols=n_columns, **LEGEND)


def _save(figure: Figure, path: Path) -> None:
    """Save a figure without the version of matplotlib: the same figure gives the same bytes."""
    for panel in figure.axes:
        panel.title.set_fontsize(10)
        panel.xaxis.label.set_fontsize(SMALL)
        panel.yaxis.label.set_fontsize(SMALL)
        panel.tick_params(labelsize=SMALL, color="0.6")
        panel.spines[:].set_color("0.6")
    figure.savefig(path, dpi=120, metadata={"Software": None})
