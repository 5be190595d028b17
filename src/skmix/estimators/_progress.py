"""A progress bar where someone is watching."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]


def _silent(message: str) -> None:
    """Report to nobody."""


@contextmanager
def progress_bar(title: str, total: int | None, *, shown: bool) -> Iterator[Report]:
    """Yield a function to call after each of `total` steps with a word on how it stands.

    The bar is drawn on a terminal only, and only when rich is installed.
    """
    if not (shown and sys.stderr.isatty()):
        yield _silent
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield _silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, message="")

        def report(message: str) -> None:
            bar.update(task, advance=1, message=message)

        yield report
