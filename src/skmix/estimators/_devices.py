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

from ..engine.compute.arrays import is_numpy, like, to_numpy
from ..engine.compute.devices import detached, here, is_elsewhere, sending
from ..engine.compute.partitions import is_collection
from ..io import source_of
from ._warnings import warn_caller

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


_PRECISIONS = ("float64", "float32", "tf32")


def device_and_precision(device: str | None) -> tuple[str | None, str]:
    """Return the name of the device, and the precision of sums over rows on it."""
    if device is None:
        return None, "float64"
    name, _, precision = device.partition("/")
    if not name or (precision or "float64") not in _PRECISIONS:
        raise ValueError(
            f"device={device!r} is not of the form 'cuda:0' or 'cuda:0/float32'; precisions are "
            f"{', '.join(_PRECISIONS)}."
        )
    return name, precision or "float64"


def on_devices(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of an estimator take arrays of other libraries, and use the estimator's `device`."""

    @wraps(method)
    def call(self: Any, *given: Any, **named: Any) -> Any:
        X = given[0] if given else named.get("X")
        asked = device_and_precision(self.device)[0]
        dispatched = is_elsewhere(X) and (get_config()["array_api_dispatch"] or asked is not None)
        there = name in THERE and (name != "fit" or self._can_fit_there(_labels(given, named)))
        device = None if asked in (None, "cpu") or name not in THERE else asked
        if name == "fit":
            self._check_place(X, device, dispatched=dispatched, there=there)
        if not (dispatched or device or is_elsewhere(getattr(self, "class_prior_", None))):
            return method(self, *given, **named)
        model = self if name == "fit" else on_host(self)
        stays = X if dispatched and there else None
        given = tuple(_prepared(value, stays) for value in given)
        named = {key: _prepared(value, stays) for key, value in named.items()}
        with sending(device if there else None):
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


def _prepared(value: Any, stays: Any) -> Any:
    """Return an argument as the method is to have it: NumPy's, unless it is the rows that stay elsewhere."""
    return detached(value) if value is not None and value is stays else here(value)


def _labels(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return here(given[1] if len(given) > 1 else named.get("y"))


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

    device: str | None

    def _can_fit_there(self, y: Any) -> bool:
        """Return whether rows with these labels can be fitted where they are."""
        return True

    def _check_place(self, X: Any, device: str | None, *, dispatched: bool, there: bool) -> None:
        """Refuse to fit where that cannot be done, rather than do it elsewhere in silence."""
        precision = device_and_precision(self.device)[1]
        if precision != "float64" and device is None and not dispatched:
            raise ValueError(
                f"device={self.device!r}: {precision} is for accelerators; the CPU computes in float64."
            )
        if device is None:
            return
        if source_of(X) is not None or is_collection(X):
            raise ValueError(
                f"device={device!r} needs rows in memory; files and Dask collections are worked on by CPUs. "
                "Leave device out."
            )
        if not there:
            warn_caller(f"This fit needs the rows on the host: device={device!r} is not used.")
