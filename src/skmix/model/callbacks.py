"""Progress and monitoring of a fit, through scikit-learn's callbacks.

A fit is a task, and each of its passes a subtask; in a search, each of its candidates. After a pass, a
callback that asks for `fitted_estimator` gets the model so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np

from ..engine.loop import Run
from .fitted import Fitted

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Says which version has callbacks."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Refuse callbacks."""
            raise TypeError("Callbacks need scikit-learn 1.9 or later.")


# ---------------------------------------------------------------- progress of all fits


# Takes a message after each step and, if steps differ in work, the `share` of it that is done, from 0 to 1.
Report = Callable[..., None]
# Takes a title and the number of steps, None if it is unknown.
Watcher = Callable[[str, int | None], AbstractContextManager[Report]]
# Takes a run after a pass, and a function that returns the record of the mixture so far, if there is one.
AfterPass = Callable[[Run, Callable[[], Fitted | None]], None]
# Takes that record, and returns the attributes of the estimator so far.
Attributes = Callable[[Fitted], dict[str, Any]]
# See `monitoring`.
Monitor = Callable[[float, Attributes | None], AbstractContextManager[AfterPass] | None]

watcher_of_fits: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Report the progress of all fits in the body to a watcher."""
    before = watcher_of_fits.set(watcher)
    try:
        yield
    finally:
        watcher_of_fits.reset(before)


def progress_bar(title: str, total: int | None) -> AbstractContextManager[Report]:
    """Return a context that yields a function to call after each of `total` steps, with a message."""
    watcher = watcher_of_fits.get()
    return nullcontext(lambda message, *, share=None: None) if watcher is None else watcher(title, total)


# Seconds between two lines, and the least share of the time so far.
_PAUSE, _SHARE = 2.0, 0.1


class Lines:
    """Watcher that prints lines of text, ever less often, so that a long fit does not flood a notebook.

    `ends` is when a time limit ends the work, by the clock of `time.monotonic`.
    """

    def __init__(self, name: str, ends: float = float("inf")) -> None:
        self._name, self._ends = name, ends
        self._began = self._last = time.monotonic()

    @contextmanager
    def __call__(self, title: str, total: int | None) -> Iterator[Report]:
        """Yield a function that prints a message after a step, if the last line is long enough ago."""
        title = f"{title}, " if title else ""

        def report(message: str = "", *, steps: int = 1, share: float | None = None) -> None:
            now = time.monotonic()
            if now - self._last < max(_PAUSE, _SHARE * (now - self._began)):
                return
            self._last, left = now, ""
            if self._ends < float("inf"):
                left = f", at most {_duration(max(self._ends - now, 0.0))} left"
            elif share is not None:
                left = f", about {100 * share:.0f} % done"
            self.tell(f"{title}{message}{left}")

        yield report

    def tell(self, message: str) -> None:
        """Print a message after the time so far."""
        print(f"[{self._name}] {_duration(time.monotonic() - self._began)}: {message}", flush=True)


def _duration(seconds: float) -> str:
    if seconds < 60.0:
        return f"{seconds:.0f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes} min {seconds:.0f} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


# ---------------------------------------------------------------- the passes of a fit


@contextmanager
def task_of(
    estimator: Any, X: Any, y: Any, sample_weight: Any, most: int | None
) -> Iterator[Callable[..., None]]:
    """Make the body a task of an estimator's callbacks, which ends even if the body fails.

    Yield a function that reports a subtask by its name and, if there is a model so far, a function that
    returns its fitted attributes. There are at most `most` subtasks, None if unknown. X, y and sample_weight
    are the arguments of `fit`.
    """
    if not (getattr(estimator, "_skl_callbacks", ()) and hasattr(estimator, "_init_callback_context")):
        yield lambda name, attributes=None: None
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    arguments = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
    task = estimator._init_callback_context(max_subtasks=most)

    def step(name: str, attributes: Callable[[], dict[str, Any] | None] | None = None) -> None:
        subtask = task.subcontext(name).call_on_fit_task_begin(**arguments)
        subtask.call_on_fit_task_end(**arguments, reconstruction_attributes=attributes)

    task.call_on_fit_task_begin(**arguments)
    try:
        yield step
    except BaseException:
        # The user needs the error of the body, not one that follows from it.
        with suppress(Exception):
            task.call_on_fit_task_end(**arguments)
        raise
    task.call_on_fit_task_end(**arguments)


@contextmanager
def monitoring(estimator: Any, X: Any, y: Any, sample_weight: Any, n_parts: int) -> Iterator[Monitor]:
    """Call the callbacks of an estimator while the body fits its `n_parts` mixtures.

    X, y and sample_weight are the arguments of `fit`. Yield a function that takes the number of rows of a
    mixture, or the sum of their weights, and how to get the estimator's attributes from the mixture so far;
    it returns a context that yields a function to call after each pass, or None if nobody watches.
    """
    watched = bool(getattr(estimator, "_skl_callbacks", ())) or watcher_of_fits.get() is not None
    with task_of(estimator, X, y, sample_weight, n_parts * estimator.max_iter) as step:

        def watch(n_rows: float, attributes: Attributes | None) -> AbstractContextManager[AfterPass] | None:
            return _passes(n_rows, estimator.max_iter, step, attributes) if watched else None

        yield watch


@contextmanager
def _passes(
    n_rows: float, most: int, step: Callable[..., None], attributes: Attributes | None
) -> Iterator[AfterPass]:
    """Yield a function to call after each of at most `most` passes of one mixture."""
    best, since = float("nan"), time.monotonic()

    def attributes_so_far(so_far: Callable[[], Fitted | None]) -> dict[str, Any] | None:
        record = None if attributes is None else so_far()
        return None if attributes is None or record is None else attributes(record)

    def after_pass(run: Run, so_far: Callable[[], Fitted | None]) -> None:
        nonlocal best, since
        mean = float(run.totals().max()) / n_rows
        change, best = mean - best, mean
        gained = "" if np.isnan(change) else f", changed by {change:.2e}"
        n_starts = len(run.active)
        report(
            f"pass {run.n_passes}: {n_starts} start{'' if n_starts == 1 else 's'}, mean log-likelihood "
            f"{best:.5f}{gained}, {time.monotonic() - since:.2g} s a pass"
        )
        since = time.monotonic()
        step("pass", partial(attributes_so_far, so_far))

    with progress_bar("fitting", most) as report:
        yield after_pass
