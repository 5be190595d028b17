"""Progress, monitoring and checkpoints of a fit, through scikit-learn's callbacks.

A fit is a task, and each of its passes a subtask; in a search, each of its candidates.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from ..engine.loop import Run, RunState
from ..engine.records import FloatArray, Frame
from ..engine.rows.dask import ClusterError
from ..io.models import Record, pack, read_file, unpack, write_file

try:
    from sklearn.callback import CallbackSupportMixin as CallbackSupportMixin
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Adds `set_callbacks` for a `Checkpoint`, which does not use scikit-learn's callbacks."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Set the callbacks of the estimator; without any, remove them."""
            if not all(isinstance(callback, Checkpoint) for callback in callbacks):
                raise TypeError("Callbacks other than Checkpoint need scikit-learn 1.9 or later.")
            self._skl_callbacks = list(callbacks)
            return self

        def __sklearn_clone__(self) -> Any:
            """Return an unfitted estimator with the same settings and callbacks."""
            other = super().__sklearn_clone__()  # type: ignore[misc]
            return other.set_callbacks(*getattr(self, "_skl_callbacks", ()))


# ---------------------------------------------------------------- progress of all fits


# Takes a message after each step and, if steps differ in work, the `share` of it that is done, from 0 to 1.
Report = Callable[..., None]
# Takes a title and the number of steps, None if it is unknown.
Watcher = Callable[[str, int | None], AbstractContextManager[Report]]
# See `monitoring`.
Monitor = Callable[[int, float], dict[str, Any]]

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
) -> Iterator[Callable[[str], None]]:
    """Make the body a task of an estimator's callbacks, which ends even if the body fails.

    Yield a function that reports a subtask by its name; there are at most `most` of them, None if unknown.
    X, y and sample_weight are the arguments of `fit`.
    """
    if not (getattr(estimator, "_skl_callbacks", ()) and hasattr(estimator, "_init_callback_context")):
        yield lambda name: None
        return
    metadata = None if sample_weight is None else {"sample_weight": sample_weight}
    given = {"estimator": estimator, "X": X, "y": y, "metadata": metadata}
    task = estimator._init_callback_context(max_subtasks=most)

    def step(name: str) -> None:
        subtask = task.subcontext(name).call_on_fit_task_begin(**given)
        subtask.call_on_fit_task_end(**given)

    task.call_on_fit_task_begin(**given)
    try:
        yield step
    except BaseException:
        # The user needs the error of the body, not one that follows from it.
        with suppress(Exception):
            task.call_on_fit_task_end(**given)
        raise
    task.call_on_fit_task_end(**given)


@contextmanager
def monitoring(
    estimator: Any, X: Any, y: Any, sample_weight: Any, n_parts: int, path: Path | None
) -> Iterator[Monitor]:
    """Call the callbacks of an estimator while the body fits its `n_parts` mixtures.

    X, y and sample_weight are the arguments of `fit`; `path` is the file of a `Checkpoint`, if there is one.
    Yield a function that takes the number of a mixture, and the number of its rows or the sum of their
    weights, and returns the arguments of `fit_model` that report and save its passes.
    """
    paths = [path and (Path(f"{path}.{number}") if n_parts > 1 else path) for number in range(n_parts)]
    watched = bool(getattr(estimator, "_skl_callbacks", ())) or watcher_of_fits.get() is not None
    with task_of(estimator, X, y, sample_weight, n_parts * estimator.max_iter) as step:

        def part(number: int, n_rows: float) -> dict[str, Any]:
            watching = _passes(n_rows, estimator.max_iter, step) if watched else None
            return {"watching": watching, "path": paths[number]}

        yield part
    for each in filter(None, paths):
        each.unlink(missing_ok=True)


@contextmanager
def _passes(n_rows: float, most: int, step: Callable[[str], None]) -> Iterator[Any]:
    """Yield a function to call after each of at most `most` passes of one mixture."""
    best, since = float("nan"), time.monotonic()

    def after_pass(run: Run) -> None:
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
        step("pass")

    with progress_bar("fitting", most) as report:
        yield after_pass


# ---------------------------------------------------------------- checkpoints

_KIND = "Checkpoint"
# Seconds between two writes: a pass over few rows takes less time than writing a file.
_EVERY = 5.0
# Settings that may change when a fit is resumed, because they do not affect its result.
_FREE = {"max_iter", "n_jobs", "random_state"}
# Tolerance of row statistics: a restarted cluster sums in another order.
_TOLERANCE = 1e-9


class Checkpoint:
    """Callback that saves the passes of a fit in a file, so that an interrupted fit can be resumed.

    `fit` writes the file every few seconds, and when it fails. A later `fit` with the same rows and settings
    resumes there and removes the file at its end. With several feature sets, there is a file for each. The
    passes that find a common covariance (``covariance_prior='auto'``) are not saved.

    Parameters
    ----------
    path : path-like
        The file.

    Examples
    --------
    >>> from skmix import Checkpoint, SharedKernelMixture
    >>> model = SharedKernelMixture(20).set_callbacks(Checkpoint("fit.skmix"))
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing: `fit` reads and writes the file itself, since callbacks do not get its state."""

    teardown = on_fit_task_begin = on_fit_task_end = setup


def checkpoint_path(estimator: Any) -> Path | None:
    """Return the file of the estimator's `Checkpoint`, if it has one; raise ValueError if it is invalid."""
    for callback in getattr(estimator, "_skl_callbacks", ()):
        if isinstance(callback, Checkpoint):
            path = Path(callback.path)
            if estimator.inference == "variational":
                raise ValueError(
                    "Checkpoint cannot be combined with inference='variational': remove the callback."
                )
            if path.is_dir():
                raise ValueError(f"Checkpoint needs a file, but {path} is a folder. Give a path in it.")
            if not path.resolve().parent.is_dir():
                raise ValueError(f"Checkpoint needs an existing folder, but {path.parent} is not one.")
            return path
    return None


class SavedRun:
    """The state of one mixture's fit in a file of arrays and plain values, which contains no code.

    The settings of the model, the frame of the rows, and the labels and sizes (L,) of the classes identify
    the fit. `prior` is the learnt prior on covariances, in rows and covariance, which is found before the
    first pass.
    """

    def __init__(self, path: Path, model: Any, frame: Frame, classes: np.ndarray, sizes: FloatArray) -> None:
        self.path = path
        self.prior: tuple[float, FloatArray] | None = None
        settings = model.get_params(deep=False).items()
        self._settings = {
            **{name: _text(value) for name, value in settings if name not in _FREE and value is not None},
            "n_features": str(len(frame.scale)),
            "classes": str([str(label) for label in classes.tolist()]),
        }
        self._rows = {"class sizes": np.asarray(sizes), "units": frame.scale, "origin": frame.shift}
        self._run: Run | None = None
        self._written = time.monotonic()

    def __call__(self, run: Run) -> None:
        """Write the state after the first pass, and then every few seconds."""
        first = self._run is None
        self._run = run
        if first or time.monotonic() - self._written >= _EVERY:
            self.write()

    def write(self) -> int:
        """Write the state of the fit, and return its number of passes; 0 before the first."""
        if self._run is None:
            return 0
        state = self._run.state()
        prior = None if self.prior is None else list(self.prior)
        fields = {"settings": self._settings, "rows": self._rows, "prior": prior, "state": asdict(state)}
        write_file(self.path, *pack(Record(_KIND, fields)))
        self._written = time.monotonic()
        return int(state.n_iter.max())

    def read(self) -> RunState | None:
        """Return the state of the interrupted fit; None if there is no file.

        Raise ValueError if the file is not a checkpoint, or belongs to another fit.
        """
        if not self.path.exists():
            return None
        try:
            record = unpack(*read_file(self.path))
        except ValueError as error:
            raise ValueError(
                f"{self.path} cannot be read as a checkpoint ({str(error).rstrip('.')}). Use another path, "
                "or remove the file to start again."
            ) from error
        if not isinstance(record, Record) or record.kind != _KIND:
            raise ValueError(f"{self.path} is not a checkpoint. Use another path.")
        difference = self._difference(record.fields["settings"], record.fields["rows"])
        if difference:
            raise ValueError(
                f"The checkpoint {self.path} belongs to another fit: {difference}. Fit with the same rows "
                "and settings to resume it, use another path, or remove the file to start again."
            )
        prior = record.fields.get("prior")
        self.prior = None if prior is None else (float(prior[0]), np.array(prior[1]))
        return RunState.from_dict(record.fields["state"])

    def _difference(self, settings: dict[str, str], rows: dict[str, FloatArray]) -> str:
        """Return the first difference between another fit and this one, in words; empty if there is none."""
        for name in sorted(settings.keys() | self._settings.keys()):
            theirs, ours = settings.get(name), self._settings.get(name)
            if theirs != ours:
                return f"it has {name}={theirs}, this one {name}={ours}"
        for name, values in self._rows.items():
            if not np.allclose(rows[name], values, rtol=_TOLERANCE, atol=_TOLERANCE):
                return f"its rows have {name} {rows[name].tolist()}, these {values.tolist()}"
        return ""


def _text(value: Any) -> str:
    """Return a text that is equal for equal settings, whatever the type and layout of arrays."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    parts = value if isinstance(value, dict) else dict(enumerate(value))
    plain = {
        name: part if isinstance(part, str) else np.array(part, dtype=np.float64, order="C")
        for name, part in parts.items()
    }
    return f"{type(value).__name__} {joblib.hash(plain)[:12]}"


@contextmanager
def saving(run: SavedRun) -> Iterator[None]:
    """Write the state when the body ends or fails; if it fails, mention the file in the error."""
    try:
        yield
    except BaseException as error:
        n_passes = run.write()
        if not n_passes:
            raise
        kept = (
            f"{n_passes} passes are kept in {run.path}: fit again, with the same rows and settings, "
            "to resume there."
        )
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error} {kept}") from error
        error.add_note(kept)
        raise
    run.write()
