"""Where sharing pays: learning curves of all classifiers, and the gain from sharing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.field.records import FloatArray
from skmix.experiments.field.sharing import CLASSIFIERS, OURS_BY_PARTS, PAIRS, TRUE, Learning
from skmix.experiments.field.sharing_tables import LearningMeasure, gain, in_order
from skmix.experiments.field.simulated import KINDS, in_words, kind_and_classes
from skmix.plots._common import (
    CLASS_COLOURS,
    MEDIUM,
    SMALL,
    figure_or_new,
    panels_for,
    soften,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LABELS: dict[LearningMeasure, str] = {"error": "test error, %", "log_loss": "log-loss"}
_GAIN_LABELS: dict[LearningMeasure, str] = {
    "error": "error of own kernels less that of shared ones, points",
    "log_loss": "log-loss of own kernels less that of shared ones",
}
# Vermilion is ours everywhere, and yellow, the palest, goes to the mildest rival.
_COLOURS = tuple(CLASS_COLOURS[number] for number in (1, 0, 5, 2, 3, 4))
_MARKERS = "osD^vPX*<>"
_FLOOR_COLOUR = "0.5"
# Log-losses so many times that of guessing are cut off: they would hide the others.
_MOST_OF_GUESSING = 1.3
_KIND_COLOURS = dict(zip(KINDS, (CLASS_COLOURS[0], CLASS_COLOURS[1], CLASS_COLOURS[2]), strict=True))
_OTHER_COLOURS = ("0.25", "0.6", CLASS_COLOURS[3], CLASS_COLOURS[5])
_ASIDE, _MARGIN = 1.02, 1.3
_DASHES = ("-", "--", ":", "-.")


def plot_sharing(
    points: Sequence[Learning],
    *,
    measure: LearningMeasure = "error",
    axes: Any = None,
    figure: Figure | None = None,
) -> NDArray[Any]:
    """Draw test error or log-loss against the training rows of each class, a panel for each data set.

    Parameters
    ----------
    points : sequence of Learning
        Points of learning curves.
    measure : {'error', 'log_loss'}, default='error'
        What is drawn.
    axes : array of axes, default=None
        Axes to draw into, one for each data set.
    figure : matplotlib figure, default=None
        An empty figure for new axes; None makes one.

    Returns
    -------
    ndarray of axes
        One for each data set. Lines are means over the draws, bars reach one standard error either way; what
        failed in some draw has no point. A thin grey line is the true densities', which nobody can better.
        Log-losses far above that of guessing are cut off. The legend stands below the panels, or in the first
        one where their figure is not laid out by constraints.
    """
    if not points:
        raise ValueError("there are no points to plot.")
    sets = list(dict.fromkeys(point.data for point in points))
    names = in_order(point.classifier for point in points)
    panels = panels_for(len(sets), axes, figure, n_columns=3, size=(3.6, 2.9))
    for data, panel in zip(sets, panels, strict=True):
        own = [point for point in points if point.data == data]
        for name in names:
            _draw_curve(panel, [point for point in own if point.classifier == name], measure)
        _mark_rows(panel, points)
        panel.set_title(_title(own[0]), fontsize=MEDIUM)
        _set_limits(panel, own[0], measure)
    for panel in panels[:: min(3, len(panels))]:
        panel.set_ylabel(_LABELS[measure], fontsize=SMALL)
    _explain(panels)
    soften(*panels)
    return panels


def plot_gain(
    points: Sequence[Learning],
    *,
    measure: LearningMeasure = "error",
    axes: Axes | None = None,
    legend: bool = True,
) -> Axes:
    """Draw the gain from sharing against the training rows of each class, a line for each data set.

    Parameters
    ----------
    points : sequence of Learning
        Points of learning curves, of classifiers with shared and with own kernels.
    measure : {'error', 'log_loss'}, default='error'
        In which own kernels lose to shared ones; errors are drawn in points of a hundred.
    axes : Axes, default=None
        Where to draw; None makes a new figure.
    legend : bool, default=True
        Whether the lines are named on the right of the axes.

    Returns
    -------
    Axes
        The axes drawn on. Lines are means of the differences within draws, bars reach one standard error
        either way. Above zero sharing pays. A kind of simulated classes has a colour, and more classes have
        another marker.
    """
    lines = _gains(points, measure)
    if not lines:
        raise ValueError("no draw has both shared and own kernels, so there is nothing to plot.")
    if axes is None:
        axes = figure_or_new(None, (7.2, 3.6)).add_subplot()
    axes.axhline(0.0, color="0.2", lw=1.0, zorder=1)
    styles = _styles(list(lines))
    for number, ((data, shared), values) in enumerate(lines.items()):
        # A little aside, so that bars of several lines can be told apart.
        aside = _ASIDE ** (number - (len(lines) - 1) / 2)
        colour, marker, dashes = styles[data, shared]
        title = _title(next(point for point in points if point.data == data))
        axes.errorbar(
            [aside * rows for rows in values],
            [each.mean() for each in values.values()],
            [_standard_error(each) for each in values.values()],
            color=colour,
            marker=marker,
            ls=dashes,
            ms=4.5,
            lw=1.4,
            elinewidth=0.9,
            label=f"{title}, by parts" if shared == OURS_BY_PARTS else title,
        )
    _mark_rows(axes, points)
    _name_the_sides(axes)
    axes.set_ylabel(_GAIN_LABELS[measure], fontsize=SMALL)
    if legend:
        axes.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    soften(axes)
    return axes


def _draw_curve(panel: Axes, curve: Sequence[Learning], measure: LearningMeasure) -> None:
    """Draw the curve of one classifier on one data set."""
    if not curve:
        return
    name = curve[0].classifier
    unit = 100.0 if measure == "error" else 1.0
    if name == TRUE:
        # They learn nothing, so that a draw has one value however many rows there are.
        floor = {point.outcome.repeat: unit * getattr(point.outcome, measure) for point in curve}
        panel.axhline(float(np.mean(list(floor.values()))), color=_FLOOR_COLOUR, lw=0.9, label=name, zorder=1)
        return
    values: dict[int, FloatArray] = {}
    for size in sorted({point.rows_per_class for point in curve}):
        outcomes = [point.outcome for point in curve if point.rows_per_class == size]
        # A mean of the draws that went well would flatter.
        if not any(outcome.failure for outcome in outcomes):
            values[size] = np.array([unit * getattr(outcome, measure) for outcome in outcomes])
    place = CLASSIFIERS.index(name) if name in CLASSIFIERS else len(CLASSIFIERS)
    panel.errorbar(
        list(values),
        [each.mean() for each in values.values()],
        [_standard_error(each) for each in values.values()],
        color=_COLOURS[place] if place < len(_COLOURS) else "0.3",
        marker=_MARKERS[place],
        ms=4.0,
        lw=1.2,
        elinewidth=0.9,
        label=name,
        # The first of the study is drawn last, so that no other hides it.
        zorder=2.0 + 0.1 * (len(_MARKERS) - place),
    )


def _set_limits(panel: Axes, point: Learning, measure: LearningMeasure) -> None:
    """Cut off what is below zero, and log-losses that would hide the others."""
    bottom, top = panel.get_ylim()
    most = _MOST_OF_GUESSING * float(np.log(_n_classes(point)))
    if measure == "log_loss" and top > most:
        # The margin below was a share of a much longer axis.
        lowest = panel.dataLim.y0
        bottom, top = lowest - 0.05 * (most - lowest), most
    panel.set_ylim(max(bottom, 0.0), top)


def _explain(panels: NDArray[Any]) -> None:
    """Name the classifiers of all panels once."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    handles = {
        label: handle
        for panel in panels
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    names = in_order(handles)
    figure = panels[0].figure
    if isinstance(figure.get_layout_engine(), ConstrainedLayoutEngine):
        target, place = figure, {"loc": "outside lower center", "ncols": min(4, len(names))}
    else:
        target, place = panels[0], {}
    target.legend([handles[name] for name in names], names, fontsize=SMALL, frameon=False, **place)


def _gains(
    points: Sequence[Learning], measure: LearningMeasure
) -> dict[tuple[str, str], dict[int, FloatArray]]:
    """Return differences of the draws, by data set and classifier that shares, and by rows of a class."""
    unit = 100.0 if measure == "error" else 1.0
    lines: dict[tuple[str, str], dict[int, FloatArray]] = {}
    for data in dict.fromkeys(point.data for point in points):
        for shared, apart in PAIRS:
            for rows in sorted({point.rows_per_class for point in points if point.data == data}):
                with_it, without = (
                    [
                        point.outcome
                        for point in points
                        if (point.data, point.classifier, point.rows_per_class) == (data, name, rows)
                    ]
                    for name in (shared, apart)
                )
                found = unit * gain(with_it, without, measure)
                if len(found):
                    lines.setdefault((data, shared), {})[rows] = found
    return lines


def _styles(lines: Sequence[tuple[str, str]]) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return colour, marker and dashes of each line: kinds differ in colour, those of a kind in the rest."""
    others = [data for data in dict.fromkeys(data for data, _ in lines) if kind_and_classes(data) is None]
    seen: dict[str, int] = {}
    styles = {}
    # From the end, so that the most classes, and those by parts, have the solid lines.
    for number, (data, shared) in reversed(list(enumerate(lines))):
        simulated = kind_and_classes(data)
        if simulated is None:
            place, other = divmod(others.index(data), len(_OTHER_COLOURS))
            colour = _OTHER_COLOURS[other]
        else:
            colour = _KIND_COLOURS[simulated[0]]
            place = seen.get(simulated[0], 0)
            seen[simulated[0]] = place + 1
        styles[data, shared] = colour, _MARKERS[number % len(_MARKERS)], _DASHES[place % len(_DASHES)]
    return styles


def _mark_rows(axes: Axes, points: Sequence[Learning]) -> None:
    ticks = sorted({point.rows_per_class for point in points})
    axes.set_xscale("log")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlim(ticks[0] / _MARGIN, ticks[-1] * _MARGIN)
    axes.minorticks_off()
    axes.set_xlabel("training rows of each class", fontsize=SMALL)


def _name_the_sides(axes: Axes) -> None:
    """Leave room on both sides of zero, and say what they mean."""
    bottom, top = axes.get_ylim()
    room = 0.18 * (top - bottom)
    bottom, top = min(bottom, -room), max(top, room) + 0.3 * room
    axes.set_ylim(bottom, top)
    axes.axhspan(bottom, 0.0, color="0.96", lw=0.0, zorder=0)
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": SMALL, "color": "0.35", "ha": "right"}
    axes.text(0.985, 0.97, "sharing pays", va="top", **style)
    axes.text(0.985, 0.03, "own kernels better", va="bottom", **style)


def _title(point: Learning) -> str:
    """Return what data are, in words."""
    if kind_and_classes(point.data) is not None:
        return in_words(point.data)
    name = "seven-segment digits" if point.data == "seven_segment" else point.data
    return f"{name}, {_n_classes(point)} classes"


def _n_classes(point: Learning) -> int:
    return point.outcome.n_train // point.rows_per_class


def _standard_error(values: FloatArray) -> float:
    """Return that of a mean of independent draws; a single one has none to show."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
