"""The paper's tables 1 to 6, with each printed number next to ours, and their files.

Each table compares four sources, `SOURCES`: the paper's printed number, the paper's algorithm, rerun, and the
robust and class-wise methods on our engine. An unknown number, for instance of a variant that was not run, is
None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from skmix.data.write import replacing

from . import records
from .claims import Difference
from .harness import Row, Table, Value, csv_text, plain_table, text_of
from .printed import METRICS, OK_RUNS, RANKED_METRICS, published_values
from .published import REASONS
from .records import FAILED_BELOW, Run, Runs, StudyResults
from .variants import (
    LABELS,
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    PRINTED,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
)

SOURCES = (PRINTED, *LABELS.values())
METHOD_OF_SOURCE: dict[str, Method] = dict(zip(SOURCES[1:], METHODS, strict=True))
TAU = "tau"

# A function of the runs of a cell that returns those that a table counts.
Counted = Callable[[Sequence[Run]], Sequence[Run]]


def make_tables(results: StudyResults) -> tuple[Table, ...]:
    """Return the paper's tables, ``table1`` to ``table6``, and the table ``failures``."""
    runs = Runs(results.runs)
    printed = published_values()
    above = f"runs with accuracy above {FAILED_BELOW}"
    with_ok = (*METRICS, OK_RUNS)
    return (
        _metric_table("table1", "Table 1: all runs, K = 10", runs, METRICS, list, printed.all_runs),
        _ranking_table("table2", "Table 2: ranking by all runs", runs, list, printed.ranking_all_runs),
        _metric_table("table3", f"Table 3: {above}, K = 10", runs, with_ok, _ok, printed.ok_runs),
        _ranking_table("table4", f"Table 4: ranking by {above}", runs, _ok, printed.ranking_ok_runs),
        _sweep_table(runs),
        _extremes_table(runs),
        _failures_table(runs),
    )


def _ok(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if not run.failed]


def _statistic(metric: str, counted: Counted, runs: Sequence[Run]) -> Value:
    """Return a metric over the counted runs of a cell, or their number for the metric `OK_RUNS`."""
    chosen = counted(runs)
    return len(chosen) if metric == OK_RUNS else records.statistics(chosen).get(metric)


def _row(
    keys: tuple[str, ...],
    runs: Runs,
    measure: Callable[[list[Run]], Value],
    printed: Mapping[str, Value],
    n_kernels: int = MAIN_KERNELS,
    most: int | None = None,
) -> Row:
    """Return a row with the printed value of each variant and the values of its first `most` runs."""
    entries = []
    for name, value in printed.items():
        cells = [runs.of(name, n_kernels, method, most) for method in METHODS]
        entries.append((value, *(measure(own) if own else None for own in cells)))
    return Row(keys, tuple(entries))


def _metric_table(
    name: str,
    title: str,
    runs: Runs,
    metrics: tuple[str, ...],
    counted: Counted,
    paper: dict[tuple[str, str], float],
) -> Table:
    """Tables 1 and 3: a row for each metric, a column for each variant."""
    rows = []
    for metric in metrics:
        printed = {variant: paper[metric, variant] for variant in runs.variants}
        rows.append(_row((metric,), runs, partial(_statistic, metric, counted), printed))
    note = ""
    if OK_RUNS in metrics:
        most = max((len(runs.of(v, MAIN_KERNELS, m)) for v in runs.variants for m in METHODS), default=0)
        note = (
            f"OK (successful) runs are those with accuracy above {FAILED_BELOW}, of {MAIN_RUNS} in the "
            f"paper and of {most} of each method here."
        )
    return Table(name, title, ("metric",), "variant", runs.variants, SOURCES, tuple(rows), note)


def _ranking_table(
    name: str, title: str, runs: Runs, counted: Counted, paper: dict[str, tuple[str, ...]]
) -> Table:
    """Tables 2 and 4: the variants from best to worst by each metric, and agreement with the paper."""
    rows = []
    for metric in RANKED_METRICS:
        printed = [variant for variant in paper[metric] if variant in runs.variants]
        orders: list[list[str | None]] = [[*printed]]
        agreements: list[Value] = [1.0 if len(printed) > 1 else None]
        for method in METHODS:
            cells = {variant: counted(runs.of(variant, MAIN_KERNELS, method)) for variant in runs.variants}
            values = {variant: records.statistics(own)[metric] for variant, own in cells.items() if own}
            complete = len(values) == len(printed)
            best_first = sorted(values, key=lambda variant: -values[variant])
            orders.append([*best_first] if complete else [None] * len(printed))
            agreements.append(agreement(printed, values) if complete else None)
        rows.append(Row((metric,), (*zip(*orders, strict=True), tuple(agreements))))
    columns = (*(str(rank) for rank in range(1, len(runs.variants) + 1)), TAU)
    note = "tau is Kendall's rank correlation with the printed order: 1 is the same order, -1 the reverse."
    return Table(name, title, ("metric",), "rank", columns, SOURCES, tuple(rows), note)


def agreement(order: Sequence[str], values: Mapping[str, float]) -> float | None:
    """Return Kendall's tau-b between an order, best first, and values of which larger is better."""
    if len(order) < 2 or len({values[name] for name in order}) < 2:
        return None
    return float(kendalltau(np.arange(len(order)), [-values[name] for name in order]).statistic)


def _sweep_table(runs: Runs) -> Table:
    """Table 5: mean and standard deviation of the accuracy, and the runs counted, for each K."""
    paper = published_values().sweep
    variants = tuple(name for name in SWEEP_VARIANTS if name in runs.variants)
    rows = []
    for n_kernels in SWEEP_KERNELS:
        for field, metric in (("mean", "Mean Acc"), ("std", "Std Acc"), ("counted", OK_RUNS)):
            measure = partial(_statistic, metric, records.counted_in_sweep)
            printed = {name: getattr(paper[n_kernels, name], field) for name in variants}
            rows.append(_row((str(n_kernels), field), runs, measure, printed, n_kernels, SWEEP_RUNS))
    title = "Table 5: number of kernels (mean and standard deviation of the accuracy, runs counted)"
    note = "Runs with accuracy above 0.5 are counted; at K = 3, where none can reach it, all runs are."
    return Table("table5", title, ("K", "accuracy"), "variant", variants, SOURCES, tuple(rows), note)


def _extremes_table(runs: Runs) -> Table:
    """Table 6: mean and maximum of the accuracy over all runs."""
    mean = {name: published_values().mean_accuracy[name] for name in runs.variants}
    largest = {name: published_values().max_accuracy[name] for name in runs.variants}
    rows = (
        _row(("mean",), runs, partial(_statistic, "Mean Acc", list), mean),
        _row(("maximum",), runs, lambda own: max(run.accuracy for run in own), largest),
    )
    title = "Table 6: mean and maximum accuracy of all runs, K = 10"
    note = "The paper says that these are successful runs, but its means are those of all runs in table 1."
    return Table("table6", title, ("accuracy",), "variant", runs.variants, SOURCES, rows, note)


def _failures_table(runs: Runs) -> Table:
    """The table of failures: how many runs end singular and why, and how many fail, at every K."""
    above, below = f"singular but > {FAILED_BELOW}", f"finite but <= {FAILED_BELOW}"
    columns = (*REASONS, "singular", above, below, "failed", "runs")

    def counts(own: list[Run]) -> list[Value]:
        if not own:
            return [None] * len(columns)
        return [
            *(sum(run.reason == reason for run in own) for reason in REASONS),
            sum(run.singular for run in own),
            sum(run.singular and not run.failed for run in own),
            sum(run.failed and not run.singular for run in own),
            sum(run.failed for run in own),
            len(own),
        ]

    rows = []
    for n_kernels in SWEEP_KERNELS:
        for variant in VARIANTS:
            cells = [runs.of(variant.name, n_kernels, method) for method in METHODS]
            if any(cells):
                entries = zip(*map(counts, cells), strict=True)
                rows.append(Row((str(n_kernels), variant.name), tuple(entries)))
    note = (
        "A run ends singular when a covariance becomes singular, for one of the reasons; it is tested with "
        "the parameters from before that pass. By the paper's criterion, a run fails if its accuracy is at "
        f"most {FAILED_BELOW}: failed = singular - singular above {FAILED_BELOW} + finite."
    )
    title = "Runs that end singular, and runs that fail"
    return Table("failures", title, ("K", "variant"), "outcome", columns, SOURCES[1:], tuple(rows), note)


def confusion_csv(results: StudyResults) -> str:
    """Return the confusion matrices of the best runs and the printed ones as CSV, digits in order 0..9."""
    lines: list[Sequence[Value]] = [["variant", "source", "run", "true digit", *range(10)]]
    printed = published_values().confusion
    for variant in dict.fromkeys(variant for variant, _ in results.best):
        matrices: dict[str, tuple[Value, np.ndarray]] = {SOURCES[0]: (None, printed[variant])}
        for source, method in METHOD_OF_SOURCE.items():
            if (variant, method) in results.best:
                best = results.best[variant, method].run
                matrices[source] = (best.run, best.confusion)
        for source, (run, matrix) in matrices.items():
            lines += [[variant, source, run, digit, *counts] for digit, counts in enumerate(matrix.tolist())]
    return csv_text(lines)


def differences_table(differences: Iterable[Difference]) -> Table:
    """Return differences from the paper, with their likely reasons, as a table."""
    rows = [[d.variant, d.quantity, text_of(d.printed), text_of(d.rerun), d.reason] for d in differences]
    title = "Where the paper's algorithm, rerun, differs from the paper"
    note = "" if rows else "No difference exceeds its sampling error."
    return plain_table(title, ("variant", "quantity", *SOURCES[:2], "likely reason"), rows, note=note)


def write_tables(
    folder: Path,
    results: StudyResults,
    tables: Iterable[Table],
    verdicts: Iterable[Table],
) -> None:
    """Write all tables, confusion matrices and verdicts into a folder, as CSV and Markdown."""
    contents = {"confusion_matrices.csv": confusion_csv(results)}
    contents["verdicts.md"] = "\n\n".join(each.markdown("#") for each in verdicts) + "\n"
    for table in tables:
        contents[f"{table.name}.csv"] = table.csv()
        contents[f"{table.name}.md"] = table.markdown("#") + "\n"
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write(content.encode())
