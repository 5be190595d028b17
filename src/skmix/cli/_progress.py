"""Progress display with the time left, for work that takes more than two seconds."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Column
from rich.text import Text

from skmix.cli._printing import verbatim


class TimeLeft(ProgressColumn):
    """The time left, if it can be told."""

    def render(self, task: Task) -> Text:
        """Return the text of the column; steps that may not all be needed have an upper bound."""
        left = None if task.total is None or not task.completed else task.time_remaining
        if left is None:
            return Text("")
        # It runs down between two steps, and an estimate that has passed is not shown.
        left -= task.get_time() - task.fields["updated"]
        if left <= 0.0:
            return Text("")
        bound = "at most" if task.fields["bounded"] else "about"
        return Text(f"{bound} {timedelta(seconds=math.ceil(left))} left", style="progress.remaining")


class Watch(Progress):
    """A display of tasks."""

    @contextmanager
    def steps(self, title: str, total: int | None) -> Iterator[Callable[..., None]]:
        """Show a task of some steps; yields a function to call after each, with a short message."""
        done = 0

        def report(message: str = "", *, steps: int = 1, share: float | None = None) -> None:
            nonlocal done
            done += steps
            # A fit may continue beyond the expected number of steps.
            completed, expected = float(done), None if total is None else max(total, done + 1)
            if share is not None:
                completed, expected = share, 1
            # The whole message would hide the time left on a narrow terminal.
            short = verbatim(message.split(",")[0])
            now: dict[str, Any] = {"message": short, "updated": self.get_time()}
            self.update(task, completed=completed, total=expected, refresh=steps > 1, **now)

        # Passes end as soon as a fit converges.
        task = self.add_task(title, total=total, message="", updated=0.0, bounded=title == "fitting")
        try:
            yield report
        finally:
            self.remove_task(task)


@contextmanager
def watching(console: Console | None = None, patience: float = 2.0) -> Iterator[Watch]:
    """Show the progress of the body's work on a terminal, the error stream, after `patience` seconds."""
    from skmix.model.callbacks import watched_by

    console = console or Console(stderr=True)
    watch = Watch(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        TimeElapsedColumn(),
        TimeLeft(table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[message]}", markup=False),
        console=console,
        transient=True,
        # Runs of a study differ in length: estimate their speed from a long period.
        speed_estimate_period=120.0,
    )
    timer = threading.Timer(patience, watch.start)
    if console.is_terminal:
        timer.start()
        if not patience:
            timer.join()
    try:
        with watched_by(watch.steps):
            yield watch
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if watch.live.is_started:
            watch.stop()
