"""Which device works on rows: what estimators name, and what this machine has."""

from __future__ import annotations

from functools import cache
from typing import Any

from sklearn.utils.validation import _check_n_features

from ..engine.measured import Measured
from ..engine.numbers import (
    Array,
    has_gaps,
    is_device_array,
    is_numpy,
    namespace,
    room_on,
    send,
    taken_in,
    to_numpy,
)
from .checks import note_rows, warn_caller
from .settings import device_and_precision


def device_of(estimator: Any) -> str | None:
    """The name of an estimator's device, None for the CPU."""
    return device_and_precision(estimator.device)[0]


def on_device_or_host(estimator: Any, X: Any) -> Any:
    """An array of another library as a tensor where it is processed, else as a NumPy array.

    A tensor stays on its device if that is an accelerator, unless the estimator names another kind of device.
    Other values are returned unchanged.
    """
    if not is_device_array(X):
        return X
    array = taken_in(X)
    if is_numpy(array):
        return array
    kind, device = array.device.type, device_of(estimator)
    stays = kind != "cpu" if estimator.device is None else (device or "").partition(":")[0] == kind
    return array if stays else to_numpy(array)


def sent(rows: Any, device: str | None) -> Array:
    """Complete NumPy rows on a device, if one is given; other rows unchanged."""
    stays = device is None or not is_numpy(rows) or isinstance(rows, Measured) or has_gaps(rows)
    return rows if stays or device is None else send(rows, device)


def has_room(device: str, X: Any) -> bool:
    """Whether a device has room for rows."""
    return bool(X.nbytes <= room_on(device))


def is_robust_fit(model: Any) -> bool:
    """Whether a model was fitted with t kernels, whatever its settings are now."""
    return any(hasattr(part, "kernel_degrees_") for part in getattr(model, "models_", [model]))


def device_of_scores(model: Any) -> str | None:
    """The device for scores: the model's one, if this machine has it; None for the CPU.

    Models with t kernels are scored on the CPU.
    """
    device = device_of(model)
    return device if device is not None and not is_robust_fit(model) and _is_here(device) else None


@cache
def _is_here(device: str) -> bool:
    """Whether this machine has a device; warn once if not, for models fitted elsewhere."""
    try:
        room_on(device)
    except (ImportError, ValueError) as error:
        warn_caller(f"{error} Rows are scored on the CPU.")
        return False
    return True


def warn_of_host(reason: str, device: str | None) -> None:
    """Warn that a fit runs on the host; refuse the name of a device that this machine does not have."""
    if device is not None:
        room_on(device)
    warn_caller(f"{reason}: this fit runs on the host, not on the device.")


def check_device_values(estimator: Any, X: Array, least: int | None) -> Array:
    """Check a tensor of rows (n, M); see `check_values`."""
    xp, n_needed = namespace(X), 1 if least is None else least
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead.")
    if X.shape[0] < n_needed or X.shape[1] < 1:
        raise ValueError(f"Found array of shape {tuple(X.shape)}; at least {n_needed} row(s) are needed.")
    if X.dtype not in (xp.float64, xp.float32):
        if not xp.isdtype(X.dtype, ("bool", "integral", "real floating")):
            raise ValueError(f"X must be of real numbers, got {X.dtype}.")
        X = xp.astype(X, xp.float64)
    # Finite sums prove that all values are finite, and are cheap.
    finite = bool(xp.all(xp.isfinite(xp.sum(X, axis=0, dtype=xp.float64))))
    if not finite and bool(xp.any(xp.isinf(X))):
        raise ValueError("Input X contains infinity or a value too large for its type.")
    if least is not None:
        note_rows(estimator, feature_names_in_=None, recipe_=None)
    _check_n_features(estimator, X, reset=least is not None)
    return X
