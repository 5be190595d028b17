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
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from skmix.cli._printing import verbatim


class Watch(Progress):
    """A display of tasks."""

    @contextmanager
    def steps(self, title: str, total: int | None) -> Iterator[Callable[..., None]]:
        """Show a task of some steps; yields a function to call after each, with a short message."""
        task, done = self.add_task(title, total=total, message=""), 0

        def report(message: str = "", *, steps: int = 1, share: float | None = None) -> None:
            nonlocal done
            done += steps
            # A fit may continue beyond the expected number of steps.
            completed, expected = (done, total and max(total, done + 1)) if share is None else (share, 1)
            # The whole message would hide the time left on a narrow terminal.
            short = verbatim(message.split(",")[0])
            self.update(task, completed=completed, total=expected, refresh=steps > 1, message=short)

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
        TimeRemainingColumn(),
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
