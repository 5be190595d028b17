"""Runs of a study by cell, and their statistics as the paper reports them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from skmix.experiments.paper.records import Run
from skmix.experiments.paper.variants import MAIN_KERNELS, METHODS, VARIANTS

# With so few kernels no run can reach the threshold, and the paper counts them all.
_ALL_COUNTED_UP_TO = 3


class Runs:
    """The runs of a study, by cell.

    Parameters
    ----------
    runs : iterable of Run
        In any order.
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        self._cells: dict[tuple[str, int, str], list[Run]] = {}
        for run in runs:
            self._cells.setdefault((run.variant, run.n_kernels, run.method), []).append(run)
        for own in self._cells.values():
            own.sort(key=lambda run: run.run)

    def of(self, variant: str, n_kernels: int, method: str, most: int | None = None) -> list[Run]:
        """Return the runs of one cell in order, the first `most` of them."""
        return self._cells.get((variant, n_kernels, method), [])[:most]

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that have runs at K = 10, in the paper's order."""
        return tuple(
            variant.name
            for variant in VARIANTS
            if any((variant.name, MAIN_KERNELS, method) in self._cells for method in METHODS)
        )


def statistics(runs: Sequence[Run]) -> dict[str, float]:
    """Return median, mean and standard deviation of both metrics over some runs, by the paper's names."""
    found: dict[str, float] = {}
    for name, values in (
        ("Acc", [run.accuracy for run in runs]),
        ("MIoU", [run.mean_iou for run in runs]),
    ):
        if values:
            found[f"Med {name}"] = float(np.median(values))
            found[f"Mean {name}"] = float(np.mean(values))
        if len(values) > 1:
            found[f"Std {name}"] = float(np.std(values, ddof=1))
    return found


def counted_in_sweep(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that table 5 counts: those above the threshold; all of them with very few kernels."""
    return [run for run in runs if run.n_kernels <= _ALL_COUNTED_UP_TO or not run.failed]
