"""Former names of `compute.arrays` and `compute.torch`; remove when nothing imports them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from . import arrays
from .arrays import Array

detached, send = arrays.detached, arrays.send
is_elsewhere, here = arrays.is_device_array, arrays.on_host


class _Place(threading.local):
    device: str | None = None


_place = _Place()


@contextmanager
def sending(device: str | None) -> Iterator[None]:
    """Have validated rows sent to the device of that name, if there is one."""
    before, _place.device = _place.device, device
    try:
        yield
    finally:
        _place.device = before


def placed(X: np.ndarray) -> Array:
    """Return validated rows (n, M) where they are to be worked on; those with gaps stay."""
    return X if _place.device is None or np.isnan(X).any() else send(X, _place.device)
