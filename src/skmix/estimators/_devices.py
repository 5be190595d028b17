"""Estimators on arrays of other libraries: where the work is done, and as what its results come back.

Inside, an estimator's own arrays are NumPy's. Rows of PyTorch, CuPy or JAX stay where they are while they are
fitted or scored; what an estimator learnt from them is handed out as arrays of their kind.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import wraps
from typing import Any

import numpy as np
from sklearn import get_config

from ..engine.backends.arrays import is_numpy, like, to_numpy
from ..engine.backends.devices import here, is_elsewhere, send

# Methods whose work is done where the rows are. Others work on the host, whatever they are given.
THERE = {
    "fit",
    "predict",
    "predict_proba",
    "predict_log_proba",
    "class_log_likelihood",
    "score_samples",
    "kernel_log_densities",
    "log_responsibilities",
    "responsibilities",
    "transform",
}
# Methods that change the estimator.
_CHANGES = {"fit", "partial_fit", "add_class", "calibrate", "tune"}


def on_devices(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of an estimator take arrays of other libraries, and use the estimator's `device`."""

    @wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        X = given[0] if given else named.get("X")
        dispatched = is_elsewhere(X) and (get_config()["array_api_dispatch"] or self._asked() is not None)
        there = name in self._there and (name != "fit" or self._can_fit_there(_labels(given, named)))
        sent = there and self._asked() not in (None, "cpu") and isinstance(X, np.ndarray)
        if not (dispatched or sent or is_elsewhere(getattr(self, "class_prior_", None))):
            return method(self, *given, **named)
        model = self if name == "fit" else on_host(self)
        given = tuple(here(value) for value in given)
        named = {key: here(value) for key, value in named.items()}
        rows = given[0] if given else named.get("X")
        if there and (dispatched or sent):
            rows = X if dispatched else send(_numbers(X), str(self._asked()))
        if given:
            given = (rows, *given[1:])
        elif "X" in named:
            named["X"] = rows
        result = method(model, *given, **named)
        if name in _CHANGES:
            home = X if dispatched else getattr(self, "class_prior_", None)
            vars(self).update(vars(model))
            if is_elsewhere(home):
                hand_out(self, home)
            return self
        if dispatched:
            return _as(result, X)
        return here(result)

    return call


def _labels(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return here(given[1] if len(given) > 1 else named.get("y"))


def _numbers(X: Any) -> np.ndarray:
    """Return rows as float32 or float64, which is all that a device is sent."""
    return X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)


def _as(result: Any, home: Any) -> Any:
    """Return numbers as an array of the library and device of `home`; anything else as it is."""
    if isinstance(result, np.ndarray) and result.dtype.kind in "fiub":
        return like(result, home)
    return result


def on_host(estimator: Any) -> Any:
    """Return the estimator, or a copy of it whose arrays are NumPy's."""
    if not is_elsewhere(getattr(estimator, "class_prior_", None)):
        return estimator
    other = copy(estimator)
    for name, value in vars(estimator).items():
        if is_elsewhere(value):
            setattr(other, name, to_numpy(value))
    if hasattr(estimator, "models_"):
        other.models_ = [on_host(model) for model in estimator.models_]
    return other


def hand_out(estimator: Any, home: Any) -> None:
    """Turn what an estimator has learnt into arrays of the library and device of `home`."""
    for name, value in vars(estimator).items():
        if name.endswith("_") and is_numpy(value):
            setattr(estimator, name, _as(value, home))
    for model in getattr(estimator, "models_", ()):
        hand_out(model, home)


class OnDevice:
    """What `on_devices` asks an estimator."""

    _there = frozenset(THERE)

    def _asked(self) -> str | None:
        """Return the device that was asked for."""
        return getattr(self, "device", None)

    def _can_fit_there(self, y: Any) -> bool:
        """Return whether rows with these labels can be fitted where they are."""
        return True
