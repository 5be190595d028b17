"""Progress with the time left, for work that takes more than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from skmix.estimators import watched_by

PATIENCE = 2.0
"""Seconds before anything is shown."""


class Watch:
    """A display of tasks that stays hidden as long as they are quick.

    Parameters
    ----------
    console : Console
        A terminal; on anything else nothing is shown.
    patience : float
        Seconds before it appears.
    """

    def __init__(self, console: Console, patience: float) -> None:
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            TextColumn("at most"),
            TimeRemainingColumn(),
            TextColumn("left {task.fields[message]}"),
            console=console,
            transient=True,
        )
        self._lock = threading.Lock()
        self._over = False
        self._timer = threading.Timer(patience, self._appear)
        self._timer.daemon = True
        if console.is_terminal:
            self._timer.start()

    def _appear(self) -> None:
        with self._lock:
            if not self._over:
                self._progress.start()

    def close(self) -> None:
        """Take the display away."""
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._progress.live.is_started:
                self._progress.stop()

    @contextmanager
    def steps(self, title: str, total: int | None) -> Iterator[Callable[[str], None]]:
        """Show a task of some steps; yields what to call after each, with a word on how it stands."""
        task = self._progress.add_task(title, total=total, message="")

        def report(message: str) -> None:
            # What is said on a pass is long, and on a narrow terminal would hide the time left.
            self._progress.update(task, advance=1, message=message[:60])

        try:
            yield report
        finally:
            self._progress.remove_task(task)

    @contextmanager
    def share(self, title: str) -> Iterator[Callable[[float], None]]:
        """Show a task of which the share that is done is known, from 0 to 1; yields what to call with it."""
        task = self._progress.add_task(title, total=1.0, message="")
        try:
            yield lambda done: self._progress.update(task, completed=done)
        finally:
            self._progress.remove_task(task)


@contextmanager
def watching(console: Any = None, patience: float = PATIENCE) -> Iterator[Watch]:
    """Show on the error stream how reading, fitting and predicting go, once they take long."""
    watch = Watch(console or Console(stderr=True), patience)
    try:
        with watched_by(watch.steps):
            yield watch
    finally:
        watch.close()
