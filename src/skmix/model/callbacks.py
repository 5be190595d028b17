"""Progress of long work: watchers of all fits, and scikit-learn's callbacks of one estimator.

`task` tells both of every step. A step of a fit is a pass, and one of a search a candidate; after a pass,
callbacks that ask for `fitted_estimator` get the model so far.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
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


# Takes a message after each step and, if steps differ in work, the `share` of it that is done, from 0 to 1.
Report = Callable[..., None]
# Takes a title and the number of steps, None if it is unknown.
Watcher = Callable[[str, int | None], AbstractContextManager[Report]]
# Takes a message after a step, its `share`, and the `model`: a function that returns the fitted attributes.
Step = Callable[..., None]
# Takes a run after a pass, and a function that returns the record of the mixture so far, if there is one.
AfterPass = Callable[[Run, Callable[[], Fitted | None]], None]

# Seconds between two lines, and the least share of the time so far.
_PAUSE, _SHARE = 2.0, 0.1
_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Report the progress of all work in the body to a watcher."""
    before = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(before)


def progress_bar(title: str, total: int | None) -> AbstractContextManager[Report]:
    """A context that yields a function to call after each of `total` steps, with a message."""
    watcher = _watcher.get()
    return nullcontext(lambda message, *, share=None: None) if watcher is None else watcher(title, total)


def is_watched(estimator: Any) -> bool:
    """Whether a watcher, or a callback of the estimator, wants to know of the steps of its fit."""
    return _watcher.get() is not None or bool(getattr(estimator, "_skl_callbacks", ()))


@contextmanager
def task(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    bar: AbstractContextManager[Report],
    *,
    total: int | None = None,
    subtask: str = "pass",
) -> Iterator[Step]:
    """Tell a progress bar, and the callbacks of an estimator, of the steps that the body calls.

    X, y and sample_weight are the arguments of `fit`. There are at most `total` steps, None if unknown.
    """
    if not (getattr(estimator, "_skl_callbacks", ()) and hasattr(estimator, "_init_callback_context")):
        with bar as report:
            yield lambda message, *, model=None, **share: report(message, **share)
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    arguments = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
    context = estimator._init_callback_context(max_subtasks=total)
    context.call_on_fit_task_begin(**arguments)
    try:
        with bar as report:

            def step(message: str, *, model: Any = None, **share: float) -> None:
                report(message, **share)
                part = context.subcontext(subtask).call_on_fit_task_begin(**arguments)
                part.call_on_fit_task_end(**arguments, reconstruction_attributes=model)

            yield step
    except BaseException:
        # The user needs the error of the body, not one that follows from it.
        with suppress(Exception):
            context.call_on_fit_task_end(**arguments)
        raise
    context.call_on_fit_task_end(**arguments)


@contextmanager
def fit_task(estimator: Any, X: Any, y: Any, sample_weight: Any, n_parts: int) -> Iterator[Step | None]:
    """Make the body, which fits `n_parts` mixtures, a task; yield None if nobody wants to know of passes."""
    most = n_parts * estimator.max_iter
    bar = progress_bar("fitting", most)
    with task(estimator, X, y, sample_weight, bar, total=most) as step:
        yield step if is_watched(estimator) else None


def after_pass(
    step: Step | None, n_rows: float, attributes: Callable[[Fitted], dict[str, Any]] | None
) -> AfterPass | None:
    """A function to call after each pass over rows of this total weight; None without a `step`.

    `attributes` are those of the estimator, given the record of its mixture so far; None if it has several.
    """
    if step is None:
        return None
    best, since = float("nan"), time.monotonic()

    def call(run: Run, so_far: Callable[[], Fitted | None]) -> None:
        nonlocal best, since

        def model() -> dict[str, Any] | None:
            record = None if attributes is None else so_far()
            return None if attributes is None or record is None else attributes(record)

        before, best = best, float(run.totals().max()) / n_rows
        changed = "" if np.isnan(before) else f", changed by {best - before:.2e}"
        n_starts = len(run.active)
        step(
            f"pass {run.n_passes}: {n_starts} start{'' if n_starts == 1 else 's'}, mean log-likelihood "
            f"{best:.5f}{changed}, {time.monotonic() - since:.2g} s a pass",
            model=model,
        )
        since = time.monotonic()

    return call


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
