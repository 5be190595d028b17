"""Classifiers side by side: error on each data set, and mean ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.field.field import FIELD, OURS
from skmix.experiments.field.records import Outcome
from skmix.experiments.field.tables import Measure, mean_ranks, summarise
from skmix.plots._common import CLASS_COLOURS, MEDIUM, SMALL, figure_or_new, panels_for, soften

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OURS_COLOUR, _GENERATIVE_COLOUR, _OTHER_COLOUR = CLASS_COLOURS[1], CLASS_COLOURS[0], "0.55"
_GENERATIVE = {each.name for each in FIELD if each.generative}


def plot_ranks(outcomes: Iterable[Outcome], *, measure: Measure = "error", axes: Axes | None = None) -> Axes:
    """Draw the mean rank of each classifier over the data sets, the best on top.

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
        The axes drawn on. Classifiers made of class densities are blue, others grey.
    """
    ranks = mean_ranks(summarise(outcomes), measure)
    names = sorted(ranks, key=lambda name: ranks[name])
    if axes is None:
        axes = figure_or_new(None, (5.2, 0.32 * len(names) + 0.8)).add_subplot()
    places = np.arange(len(names))
    axes.barh(places, [ranks[name] for name in names], 0.65, color=[_colour(name) for name in names])
    for place, name in enumerate(names):
        axes.text(ranks[name] + 0.08, place, f"{ranks[name]:.1f}", va="center", fontsize=SMALL)
    axes.set_yticks(places, names)
    axes.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, len(names) + 0.5))
    axes.set_xlabel(f"mean rank by {measure.replace('_', '-')}, 1 is best", fontsize=SMALL)
    soften(axes)
    return axes


def plot_errors(
    outcomes: Iterable[Outcome], *, axes: Any = None, figure: Figure | None = None
) -> NDArray[Any]:
    """Draw the test error of each classifier, a panel for each data set.

    Parameters
    ----------
    outcomes : iterable of Outcome
        Outcomes of any data sets.
    axes : array of axes, default=None
        Axes to draw into, one for each data set.
    figure : matplotlib figure, default=None
        An empty figure for new axes; None makes one.

    Returns
    -------
    ndarray of axes
        One for each data set. Bars reach one standard error either way.
    """
    summaries = summarise(outcomes)
    if not summaries:
        raise ValueError("there are no outcomes to plot.")
    sets = list(dict.fromkeys(each.data for each in summaries))
    names = _in_order(each.classifier for each in summaries)
    panels = panels_for(len(sets), axes, figure, n_columns=4, size=(3.0, 0.19 * len(names) + 0.6))
    for place, (data, panel) in enumerate(zip(sets, panels, strict=True)):
        for each in summaries:
            if each.data != data:
                continue
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
        first = place % 4 == 0
        panel.set_yticks(range(len(names)), names if first else [""] * len(names), fontsize=SMALL)
        panel.set_ylim(len(names) - 0.4, -0.6)
        panel.set_title(data, fontsize=MEDIUM)
        panel.set_xlabel("test error, %", fontsize=SMALL)
        panel.grid(axis="y", color="0.92", lw=0.6)
        panel.set_axisbelow(True)
    soften(*panels)
    return panels


def _in_order(names: Iterable[str]) -> list[str]:
    """Return names of classifiers in the order of the field, unknown ones last."""
    present = dict.fromkeys(names)
    known = [each.name for each in FIELD if each.name in present]
    return known + [name for name in present if name not in known]


def _colour(name: str) -> str:
    if name == OURS:
        return _OURS_COLOUR
    return _GENERATIVE_COLOUR if name in _GENERATIVE else _OTHER_COLOUR
