"""Which device works on rows: what estimators name, and what this machine has."""

from __future__ import annotations

from functools import cache
from typing import Any

from ..engine.numbers import Array, has_gaps, is_device_array, is_numpy, room_on, send, taken_in, to_numpy
from ._settings import is_robust_fit
from .checks import warn_caller
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
    kind, device = array.device.type, estimator.device
    if device is None:
        stays = kind != "cpu"
    else:
        name = device_and_precision(device)[0]
        stays = name is not None and name.partition(":")[0] == kind
    return array if stays else to_numpy(array)


def sent(rows: Any, device: str | None) -> Array:
    """Complete NumPy rows on a device, if one is given; other rows unchanged."""
    return rows if device is None or not is_numpy(rows) or has_gaps(rows) else send(rows, device)


def has_room(device: str, X: Any) -> bool:
    """Whether a device has room for rows."""
    return bool(X.nbytes <= room_on(device))


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
