"""The paper's tables 1 to 6, with each printed number next to ours, and their files.

Each table compares four sources, `SOURCES`: the paper's printed number, the paper's algorithm, rerun, and the
robust and class-wise methods on our engine. An unknown number, for instance of a variant that was not run, is
None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from .printed import METRICS, OK_RUNS, RANKED_METRICS, published_values
from .published import REASONS
from .study import StudyResults, main_runs, variants_of
from .variants import (
    FAILED_BELOW,
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
METHOD_OF_SOURCE: dict[str, Method] = {label: method for method, label in LABELS.items()}
TAU = "tau"
# Largest K at which table 5 counts all runs: with so few kernels, no run can reach the accuracy of success.
_ALL_COUNTED_UP_TO = 3


@dataclass(frozen=True)
class Table:
    """A table that compares sources."""

    name: str  # of its files
    title: str
    # A row for each entry of the table, a column for each source; the index has the keys of the entry's row
    # and, last, of its column. Values are numbers, text or None.
    cells: pd.DataFrame
    note: str = ""

    def text(self) -> pd.DataFrame:
        """Return the table as text: a line for each row and source."""
        words = self.cells.map(text_of)
        words.columns.name = "source"
        return words.stack().unstack(words.index.names[-1], sort=False).reset_index()

    def markdown(self) -> str:
        """Return the table in Markdown, with its title and note."""
        shown = f"# {self.title}\n\n{markdown(self.text())}\n"
        return f"{shown}\n{self.note}\n" if self.note else shown

    def csv(self) -> str:
        """Return the table as CSV in full precision, a line for each entry."""
        return str(self.cells.to_csv(lineterminator="\n"))


def text_of(value: Any) -> str:
    """Return a value as text: floats with three decimals, None as empty text."""
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def markdown(table: pd.DataFrame) -> str:
    """Return a table of text in Markdown, with numbers right-aligned."""
    words = table.astype(str).replace(r"\|", r"\\|", regex=True)
    numeric = [words[name].str.fullmatch(r"|-?[\d.]+").all() and words[name].any() for name in words]
    lines = [words.columns, ["--:" if right else "---" for right in numeric], *words.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# ---------------------------------------------------------------- statistics of runs


def statistics(runs: pd.DataFrame, counted: Any = True) -> pd.DataFrame:
    """Return statistics of the counted ones of runs, under the paper's names.

    Returns
    -------
    DataFrame
        A row for each K, variant and method; columns are the median, the mean and the standard deviation of
        both metrics, "OK runs", how many runs are counted, "Max Acc" and "runs", how many there are.
    """
    keys = ["n_kernels", "variant", "method"]
    marked = runs.assign(counted=counted)
    groups = marked[marked["counted"]].groupby(keys)
    found = marked.groupby(keys)["counted"].agg(["sum", "size"]).set_axis([OK_RUNS, "runs"], axis="columns")
    for name, metric in (("Acc", "accuracy"), ("MIoU", "mean_iou")):
        for short, function in (("Med", "median"), ("Mean", "mean"), ("Std", "std"), ("Max", "max")):
            found[f"{short} {name}"] = groups[metric].agg(function)
    return found


def succeeded(runs: pd.DataFrame) -> pd.Series:
    """Return for each run whether it succeeded by the paper's criterion, an accuracy above one half."""
    return runs["accuracy"] > FAILED_BELOW


def counted_in_sweep(runs: pd.DataFrame) -> pd.Series:
    """Return which runs table 5 counts: those that succeeded or, with very few kernels, all."""
    return succeeded(runs) | (runs["n_kernels"] <= _ALL_COUNTED_UP_TO)


# ---------------------------------------------------------------- the tables


def make_tables(results: StudyResults) -> dict[str, Table]:
    """Return the paper's tables, ``table1`` to ``table6``, and the table ``failures``, by name.

    Table 5, the sweep over K, is missing if none of its variants was run.
    """
    runs, variants = main_runs(results.runs), variants_of(results.runs)
    paper = published_values()
    everything, ok = statistics(runs), statistics(runs, succeeded(runs))
    above = f"runs with accuracy above {FAILED_BELOW}"
    swept = [name for name in SWEEP_VARIANTS if name in variants]
    note = (
        f"OK (successful) runs are those with accuracy above {FAILED_BELOW}, of {MAIN_RUNS} in the "
        f"paper and of {everything['runs'].max()} of each method here."
    )
    tables = [
        Table("table1", "Table 1: all runs, K = 10", _metrics(paper.all_runs, everything, METRICS, variants)),
        _ranking("table2", "Table 2: ranking by all runs", paper.ranking_all_runs, everything, variants),
        Table(
            "table3",
            f"Table 3: {above}, K = 10",
            _metrics(paper.ok_runs, ok, (*METRICS, OK_RUNS), variants),
            note,
        ),
        _ranking("table4", f"Table 4: ranking by {above}", paper.ranking_ok_runs, ok, variants),
        *([_sweep(runs, swept)] if swept else []),
        _extremes(everything, variants),
        _failures(runs),
    ]
    return {table.name: table for table in tables}


def _value(table: pd.DataFrame, row: Any, column: str) -> Any:
    """Return a number of a table, and None if it is not known; counts are integers."""
    if row not in table.index or pd.isna(table.loc[row, column]):
        return None
    value = table.loc[row, column]
    return int(value) if column in (OK_RUNS, "runs") else float(value)


def _cells(entries: dict[Any, Sequence[Any]], names: Sequence[str]) -> pd.DataFrame:
    """Return entries by their keys, which have names, as the cells of a table."""
    index = pd.MultiIndex.from_tuples(entries, names=names)
    sources = SOURCES[-len(next(iter(entries.values()))) :]
    return pd.DataFrame(list(entries.values()), index, sources, dtype=object)


def _metrics(
    paper: pd.DataFrame, found: pd.DataFrame, metrics: Sequence[str], variants: Sequence[str]
) -> pd.DataFrame:
    """Tables 1 and 3: a row for each metric, a column for each variant."""
    entries: dict[Any, Sequence[Any]] = {}
    for metric in metrics:
        for name in variants:
            ours = [_value(found, (MAIN_KERNELS, name, method), metric) for method in METHODS]
            entries[metric, name] = (_value(paper.T, name, metric), *ours)
    return _cells(entries, ["metric", "variant"])


def _ranking(name: str, title: str, paper: pd.DataFrame, found: pd.DataFrame, variants: list[str]) -> Table:
    """Tables 2 and 4: the variants from best to worst by each metric, and agreement with the paper."""
    entries: dict[Any, Sequence[Any]] = {}
    for metric in RANKED_METRICS:
        printed = [variant for variant in paper.loc[metric] if variant in variants]
        orders: list[list[Any]] = [[*printed, 1.0 if len(printed) > 1 else None]]
        for method in METHODS:
            keys = {variant: (MAIN_KERNELS, variant, method) for variant in variants}
            values = {variant: _value(found, key, metric) for variant, key in keys.items()}
            if None in values.values():
                orders.append([None] * (len(variants) + 1))
            else:
                best_first = sorted(values, key=lambda variant: -values[variant])
                orders.append([*best_first, agreement(printed, values)])
        for place, row in enumerate(zip(*orders, strict=True), start=1):
            entries[metric, str(place) if place <= len(variants) else TAU] = row
    note = "tau is Kendall's rank correlation with the printed order: 1 is the same order, -1 the reverse."
    return Table(name, title, _cells(entries, ["metric", "rank"]), note)


def agreement(order: Sequence[str], values: dict[str, float]) -> float | None:
    """Return Kendall's tau-b between an order, best first, and values of which larger is better."""
    if len(order) < 2 or len({values[name] for name in order}) < 2:
        return None
    return float(kendalltau(np.arange(len(order)), [-values[name] for name in order]).statistic)


def _sweep(runs: pd.DataFrame, variants: Sequence[str]) -> Table:
    """Table 5: mean and standard deviation of the accuracy, and the runs counted, for each K."""
    first = runs[runs["run"] < SWEEP_RUNS]
    found = statistics(first, counted_in_sweep(first))
    paper = published_values().sweep
    entries: dict[Any, Sequence[Any]] = {}
    for n_kernels in SWEEP_KERNELS:
        for field, metric in (("mean", "Mean Acc"), ("std", "Std Acc"), ("counted", OK_RUNS)):
            for name in variants:
                printed = paper.loc[(n_kernels, name), field]
                ours = [_value(found, (n_kernels, name, method), metric) for method in METHODS]
                entries[n_kernels, field, name] = (int(printed) if metric == OK_RUNS else printed, *ours)
    title = "Table 5: number of kernels (mean and standard deviation of the accuracy, runs counted)"
    note = "Runs with accuracy above 0.5 are counted; at K = 3, where none can reach it, all runs are."
    return Table("table5", title, _cells(entries, ["K", "accuracy", "variant"]), note)


def _extremes(found: pd.DataFrame, variants: Sequence[str]) -> Table:
    """Table 6: mean and maximum of the accuracy over all runs."""
    entries: dict[Any, Sequence[Any]] = {}
    for field, metric in (("mean", "Mean Acc"), ("maximum", "Max Acc")):
        for name in variants:
            ours = [_value(found, (MAIN_KERNELS, name, method), metric) for method in METHODS]
            entries[field, name] = (float(published_values().extremes.loc[name, field]), *ours)
    title = "Table 6: mean and maximum accuracy of all runs, K = 10"
    note = "The paper says that these are successful runs, but its means are those of all runs in table 1."
    return Table("table6", title, _cells(entries, ["accuracy", "variant"]), note)


def _failures(runs: pd.DataFrame) -> Table:
    """The table of failures: how many runs end singular and why, and how many fail, at every K."""
    ok, singular = succeeded(runs), runs["reason"] != ""
    outcomes = pd.DataFrame({reason: runs["reason"] == reason for reason in REASONS})
    outcomes["singular"] = singular
    outcomes[f"singular but > {FAILED_BELOW}"] = singular & ok
    outcomes[f"finite but <= {FAILED_BELOW}"] = ~singular & ~ok
    outcomes["failed"] = ~ok
    outcomes["runs"] = True
    keys = ["n_kernels", "variant", "method"]
    counts = outcomes.groupby([runs[key] for key in keys]).sum()
    entries: dict[Any, Sequence[Any]] = {}
    for n_kernels in SWEEP_KERNELS:
        for name in VARIANTS:
            cells = [(n_kernels, name, method) for method in METHODS]
            for outcome in outcomes if any(cell in counts.index for cell in cells) else ():
                entries[n_kernels, name, outcome] = [
                    int(counts.loc[cell, outcome]) if cell in counts.index else None for cell in cells
                ]
    note = (
        "A run ends singular when a covariance becomes singular, for one of the reasons; it is tested with "
        "the parameters from before that pass. By the paper's criterion, a run fails if its accuracy is at "
        f"most {FAILED_BELOW}: failed = singular - singular above {FAILED_BELOW} + finite."
    )
    cells = _cells(entries, ["K", "variant", "outcome"])
    return Table("failures", "Runs that end singular, and runs that fail", cells, note)


def confusion_matrices(results: StudyResults) -> pd.DataFrame:
    """Return the confusion matrices of the best runs and the printed ones, digits in order 0..9."""
    rows = []
    for variant in dict.fromkeys(variant for variant, _ in results.best):
        matrices = {PRINTED: ("", published_values().confusion[variant])}
        for method in METHODS:
            if best := results.best.get((variant, method)):
                matrices[LABELS[method]] = (str(best.run), best.confusion)
        for source, (run, matrix) in matrices.items():
            rows += [(variant, source, run, digit, *counts) for digit, counts in enumerate(matrix.tolist())]
    return pd.DataFrame(rows, columns=["variant", "source", "run", "true digit", *map(str, range(10))])
