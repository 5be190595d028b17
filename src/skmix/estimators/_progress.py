"""A progress bar where someone is watching."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Any

from ..engine.model import FloatArray, IntArray
from ._compat import Progress

Report = Callable[[str], None]
Watcher = Callable[[str, int | None], AbstractContextManager[Report]]

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Let somebody else show how fits go, whatever their `verbose`.

    Parameters
    ----------
    watcher : callable
        Called with the title and the number of steps of what begins, None if it is unknown. It returns a
        context that lends a function to call after each step.
    """
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def _silent(message: str) -> None:
    """Report to nobody."""


@contextmanager
def progress_bar(title: str, total: int | None, *, shown: bool) -> Iterator[Report]:
    """Yield a function to call after each of `total` steps with a word on how it stands.

    The bar is drawn on a terminal only, and only when rich is installed.
    """
    watcher = _watcher.get()
    if watcher is not None:
        with watcher(title, total) as report:
            yield report
        return
    if not (shown and sys.stderr.isatty()):
        yield _silent
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bar
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
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, message="")

        def report(message: str) -> None:
            bar.update(task, advance=1, message=message)

        yield report


@contextmanager
def passes_shown(estimator: Any, n_rows: float) -> Iterator[Progress | None]:
    """Yield what to call after each pass of a fit; None when nobody wants to know.

    Parameters
    ----------
    estimator : SharedKernelMixture
        The estimator that is fitted.
    n_rows : float
        Number of rows, or the sum of their weights.
    """
    context = None
    if getattr(estimator, "_skl_callbacks", None):
        context = estimator._init_callback_context(max_subtasks=estimator.max_iter)
        context.call_on_fit_task_begin(estimator=estimator)
    if _watcher.get() is None and context is None:
        yield None
        return
    with progress_bar("passes", estimator.max_iter, shown=True) as report:
        told = Passes(report, n_rows)

        def after_pass(number: int, active: IntArray, log_likelihoods: FloatArray) -> None:
            told(number, active, log_likelihoods)
            if context is not None:
                task = context.subcontext(task_name="pass")
                task.call_on_fit_task_begin(estimator=estimator)
                task.call_on_fit_task_end(estimator=estimator)

        yield after_pass
    if context is not None:
        context.call_on_fit_task_end(estimator=estimator)


class Passes:
    """Tells of each pass its number, what it gained and how long it took.

    Parameters
    ----------
    report : callable
        Takes the message.
    n_rows : float
        Number of rows, or the sum of their weights.
    """

    def __init__(self, report: Report, n_rows: float) -> None:
        self._report = report
        self._n_rows = n_rows
        self._best = float("nan")
        self._since = time.monotonic()

    def __call__(self, number: int, active: IntArray, log_likelihoods: FloatArray) -> None:
        """Report a pass; the change is that of the best start's mean log-likelihood."""
        now, best = time.monotonic(), float(log_likelihoods.max()) / self._n_rows
        change, self._best = best - self._best, best
        gained = "" if change != change else f", changed by {change:.2e}"
        self._report(
            f"pass {number}: {len(active)} starts, mean log-likelihood {best:.5f}{gained}, "
            f"{now - self._since:.2g} s a pass"
        )
        self._since = now
