"""Progress display with the time left, for work that takes more than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

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

from skmix.estimators import watched_by

PATIENCE = 2.0
"""Seconds before anything is shown."""


class TimeLeft(TimeRemainingColumn):
    """The time left if all steps are needed; nothing if their number is unknown."""

    def render(self, task: Task) -> Text:
        """Return the text of the column."""
        return Text("") if task.total is None else Text("at most ") + super().render(task) + Text(" left")


class Watch:
    """A display of tasks that appears on a terminal after `patience` seconds."""

    def __init__(self, console: Console, patience: float) -> None:
        self._progress = Progress(
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
        self._lock = threading.Lock()
        self._over = False
        self._timer = threading.Timer(patience, self._appear)
        self._timer.daemon = True
        if console.is_terminal and patience > 0.0:
            self._timer.start()
        elif console.is_terminal:
            self._appear()

    def _appear(self) -> None:
        with self._lock:
            if not self._over:
                self._progress.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the display."""
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._progress.live.is_started:
                self._progress.stop()

    @contextmanager
    def steps(self, title: str, total: int | None) -> Iterator[Callable[..., None]]:
        """Show a task of some steps; yields a function to call after each, with a short message."""
        task = self._progress.add_task(title, total=total, message="")

        def report(message: str = "", *, steps: int = 1) -> None:
            # The whole message would hide the time left on a narrow terminal.
            short = message.split(",")[0]
            self._progress.update(task, advance=steps, message=short, refresh=steps > 1)
            shown = self._progress.tasks[self._progress.task_ids.index(task)]
            if shown.total is not None and shown.completed >= shown.total:
                # A search may continue beyond the expected number of steps.
                self._progress.update(task, total=shown.completed + 1)

        try:
            yield report
        finally:
            self._progress.remove_task(task)

    @contextmanager
    def share(self, title: str) -> Iterator[Callable[[float], None]]:
        """Show a task whose completed share is known; yields a function to call with it, from 0 to 1."""
        task = self._progress.add_task(title, total=1.0, message="")
        try:
            yield lambda done: self._progress.update(task, completed=done)
        finally:
            self._progress.remove_task(task)


@contextmanager
def watching(console: Console | None = None, patience: float = PATIENCE) -> Iterator[Watch]:
    """Show the progress of reading, fitting and predicting on the error stream, after `patience` seconds."""
    with Watch(console or Console(stderr=True), patience) as watch, watched_by(watch.steps):
        yield watch
