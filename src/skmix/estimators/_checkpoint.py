"""Passes kept in a file, so that a fit that was cut short goes on where it was.

The file has the form of model files: arrays and plain values, nothing that could run. It says which fit it
belongs to, by its settings and the outline of its rows, and another fit is told so instead of taking it up.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..engine.compute.dask import ClusterError
from ..engine.em import RunState as Snapshot
from ..engine.model import FloatArray, Parameters
from ..engine.sources.summary import Frame
from ..engine.squarem import SquaremState as Leaps
from ..io import Record, decode, encode, read, write

try:
    from sklearn.callback import CallbackSupportMixin
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Callbacks of an estimator."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Set the callbacks of the estimator, none to remove them."""
            vars(self).pop("_skl_callbacks", None)
            if callbacks:
                self._skl_callbacks = list(callbacks)
            return self


_KIND = "Checkpoint"
# Seconds between two writings at least: a pass over few rows is over sooner than a file is written.
_EVERY = 5.0
# Settings that may change on the way: they decide how long, not where to.
_FREE = {"max_iter", "n_jobs", "random_state", "warm_start"}
# A cluster sums in another order after it has been started again.
_TOLERANCE = 1e-9


class KeptPasses:
    """The passes of one fit in a file.

    Parameters
    ----------
    path : path-like
        The file.
    settings : dict of str to str
        What the fit was asked for.
    frame : Frame
        Of the rows.
    classes : ndarray of shape (L,)
        Labels.
    sizes : ndarray of shape (L,)
        Rows of each class, or the sum of their weights.

    Attributes
    ----------
    prior : tuple of float and ndarray of shape (M, M), or None
        Rows and covariance of the prior that shrinks, found before the first pass that is kept.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        settings: dict[str, str],
        frame: Frame,
        classes: np.ndarray,
        sizes: FloatArray,
    ) -> None:
        self.path = Path(path)
        self._settings = settings
        self._rows: dict[str, Any] = {
            "n_features": len(frame.scale),
            "classes": [str(label) for label in classes.tolist()],
            "sizes": np.asarray(sizes),
            "scale": frame.scale,
            "shift": frame.shift,
        }
        self.prior: tuple[float, FloatArray] | None = None
        self._snapshot: Callable[[], Snapshot] | None = None
        self._written = time.monotonic()

    def __call__(self, snapshot: Callable[[], Snapshot]) -> None:
        """Write where the fit stands, if it is time; the first pass is always written."""
        first = self._snapshot is None
        self._snapshot = snapshot
        if first or time.monotonic() - self._written >= _EVERY:
            self.write()

    def write(self) -> int:
        """Write where the fit stands, and return after how many passes; 0 when there was none yet."""
        from .. import __version__

        if self._snapshot is None:
            return 0
        state = self._snapshot()
        leaps = None if state.squarem is None else _fields(state.squarem)
        record = Record(
            _KIND,
            {
                "settings": self._settings,
                "rows": self._rows,
                "prior": None if self.prior is None else list(self.prior),
                "state": {**vars(state), "parameters": _fields(state.parameters), "squarem": leaps},
            },
        )
        write(self.path, *encode(record), __version__)
        self._written = time.monotonic()
        return int(state.n_iter.max())

    def read(self) -> Snapshot | None:
        """Return where the fit was when it was cut short; None when there is no file.

        Raises
        ------
        ValueError
            When the file is of another fit, with the difference, or no checkpoint at all.
        """
        if not self.path.exists():
            return None
        try:
            record = decode(*read(self.path))
        except ValueError as error:
            raise ValueError(
                f"{self.path} cannot be read as a checkpoint ({str(error).rstrip('.')}). Use another path, "
                "or remove the file to start anew."
            ) from error
        if not isinstance(record, Record) or record.kind != _KIND:
            raise ValueError(
                f"{self.path} is a model or something else, but no checkpoint. Use another path."
            )
        difference = self._difference(record.fields)
        if difference:
            raise ValueError(
                f"The checkpoint {self.path} is of another fit: {difference}. Fit with the same rows and "
                "settings to go on from it, use another path, or remove the file to start anew."
            )
        prior = record.fields.get("prior")
        self.prior = None if prior is None else (float(prior[0]), np.array(prior[1]))
        state = dict(record.fields["state"])
        parameters = _parameters(state.pop("parameters"))
        path = [np.array(passes) for passes in state.pop("path")]
        bounds = [np.array(passes) for passes in state.pop("bounds")]
        leaps = state.pop("squarem", None)
        numbers = {name: np.array(value) for name, value in state.items()}
        return Snapshot(
            parameters, path=path, bounds=bounds, squarem=None if leaps is None else _leaps(leaps), **numbers
        )

    def _difference(self, fields: dict[str, Any]) -> str:
        """Return in what another fit differs from this one; nothing when it does not."""
        theirs, ours = fields["settings"], self._settings
        for name in sorted(theirs.keys() | ours.keys()):
            if theirs.get(name) != ours.get(name):
                return f"it has {name}={theirs.get(name)}, this one {name}={ours.get(name)}"
        rows = fields["rows"]
        for name in ("n_features", "classes"):
            if rows[name] != self._rows[name]:
                return f"its rows have {name} {rows[name]}, these {self._rows[name]}"
        if not np.allclose(rows["sizes"], self._rows["sizes"], rtol=_TOLERANCE):
            return f"its classes have sizes {rows['sizes'].tolist()}, these {self._rows['sizes'].tolist()}"
        for name in ("scale", "shift"):
            if not np.allclose(rows[name], self._rows[name], rtol=_TOLERANCE, atol=_TOLERANCE):
                return "its rows have another mean or spread than these"
        return ""


def _fields(record: Parameters | Leaps) -> dict[str, Any]:
    """Return what a record holds, and the records in it, as plain values."""
    return {
        name: _fields(value) if isinstance(value, Parameters) else value
        for name, value in vars(record).items()
        if value is not None
    }


def _parameters(fields: dict[str, Any]) -> Parameters:
    return Parameters(**{name: np.array(value) for name, value in fields.items()})


def _leaps(fields: dict[str, Any]) -> Leaps:
    made: dict[str, Any] = {
        name: _parameters(value) if isinstance(value, dict) else np.array(value)
        for name, value in fields.items()
    }
    return Leaps(**made)


def settings_of(estimator: Any) -> dict[str, str]:
    """Return the settings that decide where a fit goes, as texts to compare."""
    return {
        name: _text(value)
        for name, value in estimator.get_params(deep=False).items()
        if name not in _FREE and value is not None
    }


def _text(value: Any) -> str:
    if isinstance(value, (bool, int, float, str)):
        return repr(value)
    content, arrays = encode(_listed(value))
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(arrays[name].tobytes())
    return f"{type(value).__name__} {digest.hexdigest()[:12]}"


def _listed(value: Any) -> Any:
    """Return a value with its arrays in order, so that equal settings make equal texts."""
    if isinstance(value, dict):
        return {name: np.asarray(each, dtype=np.float64) for name, each in sorted(value.items())}
    return value


class Checkpoint:
    """Callback that saves the passes of a fit, so that an interrupted fit can go on.

    Set it with ``estimator.set_callbacks(Checkpoint("fit.ckpt"))``. `fit` writes the file every few seconds
    and when it fails. A later `fit` with the same rows and settings goes on from there; when one ends, the
    file is removed. With feature groups there is a file for each. Passes of the first of two fits, which
    finds a common covariance, are not saved, nor are those that fit feature groups together.

    Parameters
    ----------
    path : path-like
        The file.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing: `fit` reads the file itself."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Do nothing: `fit` writes the file itself."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing."""


def checkpoint_path(estimator: Any) -> Path | None:
    """Return the file of the estimator's `Checkpoint`; None without one."""
    for callback in getattr(estimator, "_skl_callbacks", ()):
        if isinstance(callback, Checkpoint):
            return Path(callback.path)
    return None


def check_checkpoint(estimator: Any) -> None:
    """Refuse a path that cannot be written."""
    path = checkpoint_path(estimator)
    if path is None:
        return
    if estimator.inference == "variational":
        raise ValueError("Checkpoint does not go with inference='variational': remove the callback.")
    if path.is_dir():
        raise ValueError(f"Checkpoint needs a file, but {path} is a folder. Give a path in it.")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise ValueError(f"Checkpoint is to be a file in {folder}, which is no folder.")


def checkpoint_of(estimator: Any, frame: Frame, classes: np.ndarray, sizes: FloatArray) -> KeptPasses | None:
    """Return the checkpoint of a mixture's fit; None when it is to have none."""
    path = checkpoint_path(estimator)
    return None if path is None else KeptPasses(path, settings_of(estimator), frame, classes, sizes)


def path_of_group(path: str | os.PathLike[str], group: int, n_groups: int) -> Any:
    """Return where the model of one feature group has its checkpoint."""
    return path if n_groups == 1 else f"{os.fspath(path)}.{group}"


def callbacks_of_group(classifier: Any, group: int, n_groups: int) -> list[Any]:
    """Return the callbacks of the model of one feature group, with a checkpoint of its own."""
    return [
        Checkpoint(path_of_group(callback.path, group, n_groups))
        if isinstance(callback, Checkpoint)
        else callback
        for callback in getattr(classifier, "_skl_callbacks", ())
    ]


@contextmanager
def keeping(checkpoint: KeptPasses | None) -> Iterator[None]:
    """Write the last pass when the body fails, and say so in the error."""
    if checkpoint is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        n_passes = checkpoint.write()
        if not n_passes:
            raise
        kept = (
            f"{n_passes} passes are kept in {checkpoint.path}: fit again, with the same rows and settings, "
            "to go on from there."
        )
        if isinstance(error, ClusterError):
            raise ClusterError(f"{error} {kept}") from error
        error.add_note(kept)
        raise
    checkpoint.write()


@contextmanager
def checkpointed(estimator: Any) -> Iterator[None]:
    """Check the checkpoint of a fit first, and remove it when the fit is over."""
    check_checkpoint(estimator)
    yield
    path = checkpoint_path(estimator)
    if path is not None:
        n_groups = len(getattr(estimator, "models_", [estimator]))
        for group in range(n_groups):
            Path(path_of_group(path, group, n_groups)).unlink(missing_ok=True)
