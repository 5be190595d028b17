"""Telling arrays of other libraries apart, and sending rows to a device that was asked for by name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .arrays import Array, is_numpy, to_numpy


def is_elsewhere(array: Any) -> bool:
    """Return whether this is an array of a library other than NumPy that computes at once."""
    if array is None or is_numpy(array) or isinstance(array, (str, list, tuple, dict)):
        return False
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        return False
    import array_api_compat as compat

    unsuitable = (compat.is_dask_array, compat.is_ndonnx_array, compat.is_pydata_sparse_array)
    return compat.is_array_api_obj(array) and not any(is_one(array) for is_one in unsuitable)


def detached(array: Any) -> Any:
    """Return an array without the record that PyTorch keeps for derivatives."""
    return array.detach() if getattr(array, "requires_grad", False) else array


def here(value: Any) -> Any:
    """Return an array of another library as NumPy's; anything else as it is."""
    return to_numpy(detached(value)) if is_elsewhere(value) else value


class _Place(threading.local):
    """Where a thread's validated rows are sent."""

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
    if _place.device is None or np.isnan(X).any():
        return X
    return send(X, _place.device)


def send(X: np.ndarray, device: str) -> Array:
    """Return rows (n, M) as a PyTorch tensor on the device of that name.

    Raises
    ------
    ImportError
        Without PyTorch.
    ValueError
        When there is no such device, or it cannot compute in float64.
    MemoryError
        When the rows do not fit.
    """
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"device={device!r} needs PyTorch: pip install 'skmix[torch]', or leave device out."
        ) from error
    try:
        place = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=place).item()
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise ValueError(
            f"device={device!r} cannot be used: {str(error).splitlines()[0]}. "
            f"PyTorch {torch.__version__} sees {n_devices} CUDA device(s)."
        ) from error
    values = np.ascontiguousarray(X if X.flags.writeable else X.copy())
    try:
        return torch.as_tensor(values, device=place)
    except torch.OutOfMemoryError:
        free, _ = torch.cuda.mem_get_info(place)
        raise MemoryError(
            f"X takes {X.nbytes / 2**30:.1f} GiB, and {device} has {free / 2**30:.1f} GiB free. Fit part "
            "of the rows there, or all of them without device."
        ) from None
