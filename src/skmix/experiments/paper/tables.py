"""The paper's tables 1 to 6, with each printed number next to ours, and their files.

Each table compares four sources: ``published``, the number printed in the paper; ``rerun``, the published
method run again; ``robust`` and ``class-wise``, the methods on our engine. A number that is not known, for
instance because a variant was not run, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from skmix.experiments.harness import (
    Claim,
    Entry,
    Row,
    Table,
    Value,
    claims_table,
    csv_text,
    plain_table,
    text_of,
)
from skmix.experiments.paper.claims import Difference
from skmix.experiments.paper.published import REASONS
from skmix.experiments.paper.published_values import METRICS, OK_RUNS, RANKED_METRICS, published_values
from skmix.experiments.paper.records import FAILED_BELOW, Run, StudyResults
from skmix.experiments.paper.runs import Runs, counted_in_sweep, statistics
from skmix.experiments.paper.variants import (
    MAIN_KERNELS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
)
from skmix.io import replacing

SOURCES = ("published", "rerun", "robust", "class-wise")
METHOD_OF_SOURCE: dict[str, Method] = dict(zip(SOURCES[1:], METHODS, strict=True))
TAU = "tau"

# Values by (source, metric, variant).
Statistics = dict[tuple[str, str, str], float | int]


def make_tables(results: StudyResults) -> tuple[Table, ...]:
    """Return the paper's tables, ``table1`` to ``table6``, and the table of ``failures``, of any runs."""
    runs = Runs(results.runs)
    printed = published_values()
    every, ok = _main_statistics(runs, ok_only=False), _main_statistics(runs, ok_only=True)
    above = f"runs with accuracy above {FAILED_BELOW}"
    return (
        _metric_table("table1", "Table 1: all runs, K = 10", runs, METRICS, every, printed.all_runs),
        _ranking_table("table2", "Table 2: ranking by all runs", runs, every, printed.ranking_all_runs),
        _metric_table("table3", f"Table 3: {above}, K = 10", runs, (*METRICS, OK_RUNS), ok, printed.ok_runs),
        _ranking_table("table4", f"Table 4: ranking by {above}", runs, ok, printed.ranking_ok_runs),
        _sweep_table(runs),
        _extremes_table(runs),
        _failures_table(runs),
    )


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
    runs: Runs,
    metrics: tuple[str, ...],
    ours: Statistics,
    published: dict[tuple[str, str], float],
) -> Table:
    """Tables 1 and 3: a row for each metric, a column for each variant."""

    def entry(metric: str, variant: str) -> Entry:
        printed = published[metric, variant]
        return (
            int(printed) if metric == OK_RUNS else printed,
            *(ours.get((source, metric, variant)) for source in SOURCES[1:]),
        )

    rows = tuple(Row((metric,), tuple(entry(metric, name) for name in runs.variants)) for metric in metrics)
    return Table(name, title, ("metric",), "variant", runs.variants, SOURCES, rows)


def _ranking_table(
    name: str, title: str, runs: Runs, ours: Statistics, published: dict[str, tuple[str, ...]]
) -> Table:
    """Tables 2 and 4: the variants from best to worst by each metric, and agreement with the paper."""
    rows = []
    for metric in RANKED_METRICS:
        printed = [variant for variant in published[metric] if variant in runs.variants]
        orders: list[list[str] | None] = [printed]
        agreements: list[Value] = [1.0 if len(printed) > 1 else None]
        for source in SOURCES[1:]:
            values = {variant: ours.get((source, metric, variant)) for variant in runs.variants}
            known = {variant: value for variant, value in values.items() if value is not None}
            complete = len(known) == len(printed)
            orders.append(sorted(known, key=lambda variant: -known[variant]) if complete else None)
            agreements.append(agreement(printed, known) if complete else None)
        entries: list[Entry] = [
            tuple(order[rank] if order is not None else None for order in orders)
            for rank in range(len(printed))
        ]
        rows.append(Row((metric,), (*entries, tuple(agreements))))
    columns = (*(str(rank) for rank in range(1, len(runs.variants) + 1)), TAU)
    note = "tau is Kendall's rank correlation with the published order: 1 is the same order, -1 the reverse."
    return Table(name, title, ("metric",), "rank", columns, SOURCES, tuple(rows), note)


def agreement(order: Sequence[str], values: dict[str, float | int]) -> float | None:
    """Return Kendall's tau-b between an order, best first, and values of which larger is better."""
    if len(order) < 2 or len({values[name] for name in order}) < 2:
        return None
    return float(kendalltau(np.arange(len(order)), [-values[name] for name in order]).statistic)


def _sweep_table(runs: Runs) -> Table:
    """Table 5: mean and standard deviation of the accuracy, and the runs counted, for each K."""
    printed = published_values().sweep
    variants = tuple(name for name in SWEEP_VARIANTS if name in runs.variants)
    measures: dict[str, Callable[[Sequence[Run]], Value]] = {
        "mean": lambda own: statistics(own).get("Mean Acc"),
        "std": lambda own: statistics(own).get("Std Acc"),
        "counted": len,
    }

    def entry(part: str, n_kernels: int, name: str) -> Entry:
        cells = [runs.of(name, n_kernels, method, SWEEP_RUNS) for method in METHODS]
        ours = (measures[part](counted_in_sweep(own)) if own else None for own in cells)
        return (getattr(printed[n_kernels, name], part), *ours)

    rows = tuple(
        Row((str(n_kernels), part), tuple(entry(part, n_kernels, name) for name in variants))
        for n_kernels in SWEEP_KERNELS
        for part in measures
    )
    title = "Table 5: number of kernels (mean and standard deviation of the accuracy, runs counted)"
    note = "Runs with accuracy above 0.5 are counted; at K = 3, where none can be, all are."
    return Table("table5", title, ("K", "accuracy"), "variant", variants, SOURCES, rows, note)


def _extremes_table(runs: Runs) -> Table:
    """Table 6: mean and maximum of the accuracy over all runs."""
    printed = published_values()

    def row(key: str, theirs: dict[str, float], measure: Callable[[list[float]], float]) -> Row:
        entries = []
        for name in runs.variants:
            cells = [runs.of(name, MAIN_KERNELS, method) for method in METHODS]
            ours = (float(measure([run.accuracy for run in own])) if own else None for own in cells)
            entries.append((theirs[name], *ours))
        return Row((key,), tuple(entries))

    rows = (row("mean", printed.mean_accuracy, np.mean), row("maximum", printed.max_accuracy, max))
    title = "Table 6: mean and maximum accuracy of all runs, K = 10"
    note = "The paper speaks of successful runs here, but its means are those of all runs, as in table 1."
    return Table("table6", title, ("accuracy",), "variant", runs.variants, SOURCES, rows, note)


def _failures_table(runs: Runs) -> Table:
    """Which runs failed and why, at every K."""
    counts: dict[str, Callable[[Run], bool]] = {
        **{reason: partial(_has_reason, reason) for reason in REASONS},
        f"finite, accuracy <= {FAILED_BELOW}": lambda run: run.failed and not run.reason,
        "failed": lambda run: run.failed,
        "runs": lambda run: True,
    }
    rows = []
    for n_kernels in SWEEP_KERNELS:
        for variant in VARIANTS:
            cells = [runs.of(variant.name, n_kernels, method) for method in METHODS]
            if any(cells):
                entries = tuple(
                    tuple(sum(map(count, own)) if own else None for own in cells) for count in counts.values()
                )
                rows.append(Row((str(n_kernels), variant.name), entries))
    note = (
        "A reason is counted whenever a run stopped being finite, even if its last finite parameters "
        "classify more than half of the test images; failed are the runs with an accuracy of at most 0.5."
    )
    title, keys = "Failed runs and their reasons", ("K", "variant")
    return Table("failures", title, keys, "outcome", tuple(counts), SOURCES[1:], tuple(rows), note)


def _has_reason(reason: str, run: Run) -> bool:
    return run.reason == reason


def confusion_csv(results: StudyResults) -> str:
    """Return the confusion matrices of the best runs and the published ones as CSV, digits in order 0..9."""
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


def claims_markdown(claims: Iterable[Claim], differences: Iterable[Difference]) -> str:
    """Return the checked claims, and the differences from the paper with likely reasons, as Markdown."""
    claims = list(claims)
    parts = [claims_table(claims, "What the study must show").markdown("#"), ""]
    parts += [f"- *{each.claim}*: {each.note}" for each in claims if each.note]
    rows = [[d.variant, d.quantity, text_of(d.published), text_of(d.rerun), d.reason] for d in differences]
    title = "Where the published method, run again, differs from the paper"
    headings = ("variant", "quantity", "published", "rerun", "likely reason")
    if rows:
        parts += ["", plain_table(title, headings, rows).markdown("#")]
    else:
        parts += ["", f"# {title}", "", "No difference exceeds its sampling error."]
    return "\n".join(parts) + "\n"


def write_tables(
    folder: Path,
    results: StudyResults,
    tables: Iterable[Table],
    claims: Iterable[Claim],
    differences: Iterable[Difference],
) -> None:
    """Write all tables into a folder: CSV, Markdown, confusion matrices, and checked claims."""
    contents = {"confusion_matrices.csv": confusion_csv(results)}
    contents["verdicts.md"] = claims_markdown(claims, differences)
    for table in tables:
        contents[f"{table.name}.csv"] = table.csv()
        contents[f"{table.name}.md"] = table.markdown("#") + "\n"
    for name, content in contents.items():
        with replacing(folder / name) as file:
            file.write(content.encode())
