"""The study on the terminal: progress while it runs, and its tables when it is done."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from skmix.experiments import paper as study
from skmix.experiments.harness.tables import text_of

# Off the terminal a line is printed whenever another such share of the runs is done.
_SHARE_OF_LINE = 0.25
# Runs of the three methods differ in length: look far enough back to see all of them.
_SECONDS_OF_SPEED = 120.0


@contextmanager
def progress(
    console: Console, n_runs: int, n_kept: int, n_jobs: int
) -> Iterator[Callable[[Sequence[Any]], None]]:
    """Show how far the study has come: a bar with the time left on a terminal, a few plain lines elsewhere.

    Parameters
    ----------
    console : Console
        Where.
    n_runs : int
        Runs to make.
    n_kept : int
        Runs that an earlier call has made.
    n_jobs : int
        Processes at work.

    Yields
    ------
    callable
        To be called with the runs of each batch.
    """
    if n_kept:
        typer.echo(f"{n_kept} runs are kept from before.")
    if not n_runs:
        yield lambda runs: None
        return
    typer.echo(f"Making {n_runs} runs on {n_jobs} process{'es' if n_jobs > 1 else ''}.")
    begun = time.monotonic()
    if console.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        bar = Progress(*columns, console=console, transient=True, speed_estimate_period=_SECONDS_OF_SPEED)
        with bar:
            task = bar.add_task("runs", total=n_runs)
            yield lambda runs: bar.advance(task, len(runs))
    else:
        yield _Lines(n_runs)
    typer.echo(f"Made {n_runs} runs in {time.monotonic() - begun:.0f} s.")


class _Lines:
    """Prints a line each time another quarter of the runs is done."""

    def __init__(self, n_runs: int) -> None:
        self._n_runs = n_runs
        self._done = 0
        self._next = _SHARE_OF_LINE

    def __call__(self, runs: Sequence[Any]) -> None:
        self._done += len(runs)
        share = self._done / self._n_runs
        if self._next <= share < 1.0:
            typer.echo(f"{self._done} of {self._n_runs} runs done.")
            self._next = share - share % _SHARE_OF_LINE + _SHARE_OF_LINE


def print_tables(console: Console, tables: Sequence[study.Table]) -> None:
    """Print tables 1 to 6, and why runs failed at the paper's K."""
    for table in tables:
        if table.name == "failures":
            _print_failures(console, table)
        else:
            _print_table(console, table)


def print_verdicts(
    console: Console,
    verdicts: Sequence[study.Claim],
    differences: Sequence[study.Difference],
    beyond: Sequence[study.Beyond],
) -> None:
    """Print the checked claims, the differences from the paper, and the classifiers beyond it."""
    shown = _table(["classifier", "accuracy", "mean IoU"])
    for each in beyond:
        shown.add_row(each.description, f"{each.accuracy:.4f}", f"{each.mean_iou:.4f}")
    _show(console, "Beyond the paper's features", shown)
    shown = _table(["claim", "target", "measured", "holds"], wrap=True)
    for verdict in verdicts:
        shown.add_row(verdict.claim, verdict.target, verdict.measured, "yes" if verdict.holds else "NO")
        shown.add_section()
    _show(console, "What must come out", shown)
    for verdict in verdicts:
        if verdict.note:
            console.print(f"{verdict.claim}: {verdict.note}", style="dim")
    if differences:
        shown = _table(["variant", "quantity", "published", "rerun", "likely reason"], wrap=True)
        for found in differences:
            shown.add_row(
                found.variant, found.quantity, text_of(found.published), text_of(found.rerun), found.reason
            )
            shown.add_section()
        _show(console, "Where the published method, run again, differs from the paper", shown)


def _print_table(console: Console, table: study.Table) -> None:
    """Print a table: for each of its rows a heading, and a line for each source.

    Rows that share their first key, such as the K of table 5, are printed as one, their values side by side.
    """
    shown = _table(["", *table.columns])
    for key, group in itertools.groupby(table.rows, key=lambda row: row.keys[0]):
        rows = list(group)
        parts = [row.keys[1] for row in rows if len(row.keys) > 1]
        heading = f"{table.key_names[0]} = {key}" if parts else key
        shown.add_row(heading, style="bold")
        for lines in zip(*(table.source_lines(row) for row in rows), strict=True):
            values = zip(*(values for _, values in lines), strict=True)
            shown.add_row(f"  {lines[0][0]}", *(" ".join(filter(None, cell)) for cell in values))
        shown.add_section()
    _show(console, table.title, shown, table.note)


def _print_failures(console: Console, table: study.Table) -> None:
    """Print the failures of the published method at the paper's K; the file has all K and methods."""
    shown = _table(["", *table.columns], wrap=True)
    for row in table.rows:
        n_kernels, variant = row.keys
        _, values = table.source_lines(row)[0]
        if n_kernels == str(study.MAIN_KERNELS) and any(values):
            shown.add_row(variant, *values)
    if shown.row_count:
        _show(console, f"Why runs of the published method failed, K = {study.MAIN_KERNELS}", shown)


def _show(console: Console, title: str, shown: Table, note: str = "") -> None:
    console.print(f"\n{title}", style="bold", highlight=False)
    console.print(shown)
    if note:
        console.print(note, highlight=False)


def _table(headings: Sequence[str], *, wrap: bool = False) -> Table:
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(headings):
        numbers = place > 0 and not wrap
        shown.add_column(heading, justify="right" if numbers else "left", no_wrap=numbers)
    return shown
