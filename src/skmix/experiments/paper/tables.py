"""The paper's tables 1 to 6 as plain data, each number of the paper beside our three.

Four sources stand side by side in every table: ``published``, the number printed in the paper; ``rerun``, the
published method run again here; ``robust`` and ``class-wise``, ours. A number that is not known, say
because a variant was not run, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import kendalltau

from skmix.experiments.paper.published import REASONS
from skmix.experiments.paper.published_values import METRICS, OK_RUNS, RANKED_METRICS, published_values
from skmix.experiments.paper.records import FAILED_BELOW, Run, StudyResults
from skmix.experiments.paper.variants import (
    MAIN_KERNELS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
)

SOURCES = ("published", "rerun", "robust", "class-wise")
METHOD_OF_SOURCE: dict[str, Method] = dict(zip(SOURCES[1:], METHODS, strict=True))

Value = float | int | str | None
# One value for each source of the table.
Entry = tuple[Value, ...]

# With this few kernels no run can pass the threshold, and the paper counts them all.
_ALL_COUNTED_UP_TO = 3


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes
    ----------
    keys : tuple of str
        What the line is about, one for each of the table's `key_names`.
    entries : tuple of tuples
        One entry for each column of the table, with one value for each of its sources.
    """

    keys: tuple[str, ...]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Table:
    """A table whose every cell holds one value from each of several sources.

    Attributes
    ----------
    name : str
        Name of its files.
    title : str
        What it shows.
    key_names : tuple of str
        What the keys of its rows are.
    column_name : str
        What its columns are.
    columns : tuple of str
        Their headings.
    sources : tuple of str
        Where the values of an entry come from.
    rows : tuple of Row
        Its lines.
    note : str
        What a reader should know besides.
    """

    name: str
    title: str
    key_names: tuple[str, ...]
    column_name: str
    columns: tuple[str, ...]
    sources: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str = ""

    def value(self, keys: str | tuple[str, ...], column: str, source: str) -> Value:
        """Return one value by the names of its row, column and source."""
        wanted = (keys,) if isinstance(keys, str) else keys
        row = next(row for row in self.rows if row.keys == wanted)
        return row.entries[self.columns.index(column)][self.sources.index(source)]


def make_tables(results: StudyResults) -> tuple[Table, ...]:
    """Return tables 1 to 6, and the table of failures.

    Parameters
    ----------
    results : StudyResults
        Runs of any part of the study.

    Returns
    -------
    tuple of Table
        ``table1`` … ``table6`` and ``failures``.
    """
    runs = Runs(results.runs)
    published = published_values()
    all_runs, ok_runs = _main_statistics(runs, ok_only=False), _main_statistics(runs, ok_only=True)
    names = runs.variants
    return (
        _metric_table("table1", "Table 1: all runs, K = 10", names, METRICS, all_runs, published.all_runs),
        _ranking_table("table2", "Table 2: ranking by all runs", names, all_runs, published.ranking_all_runs),
        _metric_table(
            "table3",
            "Table 3: runs with accuracy above 0.5, K = 10",
            names,
            (*METRICS, OK_RUNS),
            ok_runs,
            published.ok_runs,
        ),
        _ranking_table(
            "table4",
            "Table 4: ranking by runs with accuracy above 0.5",
            names,
            ok_runs,
            published.ranking_ok_runs,
        ),
        _sweep_table(runs),
        _extremes_table(runs),
        _failures_table(runs),
    )


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


Statistics = dict[tuple[str, str, str], float | int]


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


def _main_statistics(runs: Runs, *, ok_only: bool) -> Statistics:
    """Return the metrics of all variants at K = 10, by (source, metric, variant)."""
    found: Statistics = {}
    for source, method in METHOD_OF_SOURCE.items():
        for name in runs.variants:
            own = runs.of(name, MAIN_KERNELS, method)
            counted = [run for run in own if not run.failed] if ok_only else own
            for metric, value in statistics(counted).items():
                found[source, metric, name] = value
            if own:
                found[source, OK_RUNS, name] = sum(not run.failed for run in own)
    return found


def _metric_table(
    name: str,
    title: str,
    variants: tuple[str, ...],
    metrics: tuple[str, ...],
    ours: Statistics,
    published: dict[tuple[str, str], float],
) -> Table:
    """Tables 1 and 3: a line for each metric, a column for each variant."""

    def entry(metric: str, variant: str) -> Entry:
        printed = published[metric, variant]
        return (
            int(printed) if metric == OK_RUNS else printed,
            *(ours.get((source, metric, variant)) for source in SOURCES[1:]),
        )

    return Table(
        name,
        title,
        ("metric",),
        "variant",
        variants,
        SOURCES,
        tuple(Row((metric,), tuple(entry(metric, variant) for variant in variants)) for metric in metrics),
    )


TAU = "tau"


def _ranking_table(
    name: str,
    title: str,
    variants: tuple[str, ...],
    ours: Statistics,
    published: dict[str, tuple[str, ...]],
) -> Table:
    """Tables 2 and 4: the variants from best to worst by each metric, and agreement with the paper."""
    rows = []
    for metric in RANKED_METRICS:
        printed = [variant for variant in published[metric] if variant in variants]
        orders: list[list[str] | None] = [printed]
        agreements: list[Value] = [1.0 if len(printed) > 1 else None]
        for source in SOURCES[1:]:
            values = {variant: ours.get((source, metric, variant)) for variant in variants}
            known = {variant: value for variant, value in values.items() if value is not None}
            complete = len(known) == len(printed)
            orders.append(sorted(known, key=lambda variant: -known[variant]) if complete else None)
            agreements.append(agreement(printed, known) if complete else None)
        entries: list[Entry] = [
            tuple(order[rank] if order is not None else None for order in orders)
            for rank in range(len(printed))
        ]
        rows.append(Row((metric,), (*entries, tuple(agreements))))
    ranks = tuple(str(rank) for rank in range(1, len(variants) + 1))
    return Table(
        name,
        title,
        ("metric",),
        "rank",
        (*ranks, TAU),
        SOURCES,
        tuple(rows),
        "tau is Kendall's rank correlation with the published order: 1 is the same order, -1 the reverse.",
    )


def agreement(order: Sequence[str], values: dict[str, float | int]) -> float | None:
    """Return Kendall's tau-b between an order, best first, and values of which larger is better."""
    if len(order) < 2 or len({values[name] for name in order}) < 2:
        return None
    return float(kendalltau(np.arange(len(order)), [-values[name] for name in order]).statistic)


def counted_in_sweep(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that table 5 counts: those above the threshold; all of them with very few kernels."""
    return [run for run in runs if run.n_kernels <= _ALL_COUNTED_UP_TO or not run.failed]


def _sweep_table(runs: Runs) -> Table:
    """Table 5: mean and standard deviation of the accuracy, and the runs counted, for each K."""
    printed = published_values().sweep
    variants = tuple(name for name in SWEEP_VARIANTS if name in runs.variants)
    parts: tuple[tuple[str, Callable[[int, str], Value], Callable[[Sequence[Run]], Value]], ...] = (
        (
            "mean",
            lambda k, name: printed[k, name].mean,
            lambda own: statistics(own).get("Mean Acc"),
        ),
        ("std", lambda k, name: printed[k, name].std, lambda own: statistics(own).get("Std Acc")),
        ("counted", lambda k, name: printed[k, name].counted, len),
    )
    rows = []
    for n_kernels in SWEEP_KERNELS:
        for part, theirs, measure in parts:
            entries: list[Entry] = []
            for name in variants:
                own = [runs.of(name, n_kernels, method, SWEEP_RUNS) for method in METHOD_OF_SOURCE.values()]
                entries.append(
                    (
                        theirs(n_kernels, name),
                        *(measure(counted_in_sweep(some)) if some else None for some in own),
                    )
                )
            rows.append(Row((str(n_kernels), part), tuple(entries)))
    return Table(
        "table5",
        "Table 5: number of kernels (mean and standard deviation of the accuracy, runs counted)",
        ("K", "accuracy"),
        "variant",
        variants,
        SOURCES,
        tuple(rows),
        "Runs with accuracy above 0.5 are counted; at K = 3, where none can be, all are.",
    )


def _extremes_table(runs: Runs) -> Table:
    """Table 6: mean and maximum of the accuracy over all runs."""
    printed = published_values()

    def entry(name: str, theirs: dict[str, float], measure: Callable[[list[float]], float]) -> Entry:
        cells = [runs.of(name, MAIN_KERNELS, method) for method in METHOD_OF_SOURCE.values()]
        ours = (measure([run.accuracy for run in cell]) if cell else None for cell in cells)
        return (theirs[name], *ours)

    return Table(
        "table6",
        "Table 6: mean and maximum accuracy of all runs, K = 10",
        ("accuracy",),
        "variant",
        runs.variants,
        SOURCES,
        (
            Row(
                ("mean",),
                tuple(
                    entry(name, printed.mean_accuracy, lambda values: float(np.mean(values)))
                    for name in runs.variants
                ),
            ),
            Row(("maximum",), tuple(entry(name, printed.max_accuracy, max) for name in runs.variants)),
        ),
        "The paper speaks of successful runs here, but its means are those of all runs, as in table 1.",
    )


def _failures_table(runs: Runs) -> Table:
    """Which runs failed and why, at every K."""
    low = f"finite, accuracy <= {FAILED_BELOW}"
    columns = (*REASONS, low, "failed", "runs")

    def count(own: Sequence[Run], column: str) -> Value:
        if not own:
            return None
        if column == "runs":
            return len(own)
        if column == "failed":
            return sum(run.failed for run in own)
        if column == low:
            return sum(run.failed and not run.reason for run in own)
        return sum(run.reason == column for run in own)

    rows = []
    for n_kernels in SWEEP_KERNELS:
        for variant in VARIANTS:
            cells = [runs.of(variant.name, n_kernels, method) for method in METHODS]
            if any(cells):
                entries = tuple(tuple(count(own, column) for own in cells) for column in columns)
                rows.append(Row((str(n_kernels), variant.name), entries))
    return Table(
        "failures",
        "Failed runs and their reasons",
        ("K", "variant"),
        "outcome",
        columns,
        SOURCES[1:],
        tuple(rows),
        "A reason is counted whenever a run stopped being finite, even if what was left of it classified "
        "more than half of the test images; failed are the runs with an accuracy of at most 0.5.",
    )
