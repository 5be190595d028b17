"""The runs of the paper's study: their accuracies, and accuracy against the number of kernels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.experiments.paper.records import FAILED_BELOW, Run
from skmix.experiments.paper.runs import counted_in_sweep
from skmix.experiments.paper.variants import MAIN_KERNELS, METHODS, VARIANTS, Method
from skmix.plots._common import (
    CLASS_COLOURS,
    MEDIUM,
    SMALL,
    Figure,
    FloatArray,
    dots,
    grey_frames,
    outer,
    panels_for,
)

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
            # Behind the dots, which it would hide where all runs end alike.
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
