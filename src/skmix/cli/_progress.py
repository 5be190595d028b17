"""Progress display with the time left, for work that takes more than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

from skmix.cli._printing import verbatim


class TimeLeft(TimeRemainingColumn):
    """The time left if all steps are needed; nothing if their number is unknown."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        return Text("") if task.total is None else Text("at most ") + super().render(task) + Text(" left")


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
            short = verbatim(message.split(",")[0], in_line=True)
            self.update(task, completed=completed, total=expected, message=short, refresh=steps > 1)

        task = self.add_task(title, total=total, message="")
        try:
            yield report
        finally:
            self.remove_task(task)


@contextmanager
def display(console: Console, patience: float) -> Iterator[Watch]:
    """Show tasks on a terminal, after `patience` seconds, until the end of the body."""
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
        yield watch
    finally:
        timer.cancel()
        if timer.is_alive():
            timer.join()
        if watch.live.is_started:
            watch.stop()


@contextmanager
def watching(console: Console | None = None, patience: float = 2.0) -> Iterator[Watch]:
    """Show the progress of reading, fitting and predicting on the error stream, after `patience` seconds."""
    from skmix.estimators.callbacks import watched_by

    with display(console or Console(stderr=True), patience) as watch, watched_by(watch.steps):
        yield watch
