"""PyTorch's own ways of the operations, with kernels of Triton on a CUDA device where it works."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from .arrays import _CHUNK_ON_ACCELERATOR, Array, Operations


class _Memory(threading.local):
    """Memory that one thread uses again and again."""

    def __init__(self) -> None:
        self.arrays: dict[str, Any] = {}


class TorchOperations(Operations):
    """PyTorch tensors on one device.

    Parameters
    ----------
    device : torch.device
        The device.
    """

    def __init__(self, device: Any) -> None:
        self._device = torch.device(device)
        self._memory = _Memory()
        self._fused: Any = None
        if self._device.type != "cpu":
            self.chunk = _CHUNK_ON_ACCELERATOR
        if self._device.type == "cuda":
            self._fused = _fused_kernels(self._device)

    def to_numpy(self, array: Array) -> np.ndarray:
        """Return the values on the host."""
        values: np.ndarray = array.detach().cpu().numpy()
        return values

    def to_device(self, values: np.ndarray, device: Any) -> Array:
        """Return values of the host on a device."""
        return torch.as_tensor(values if values.flags.writeable else values.copy(), device=device)

    def enter(self, rows: Array, scale: Array, shift: Array, bound: float) -> Array:
        """Return rows (n, M) in the frame, feature-major (M, n), their magnitudes at most `bound`."""
        if self._fused is None or math.isfinite(bound):
            return super().enter(rows, scale, shift, bound)
        return self._fused.enter(rows, scale, shift)

    def expand(self, x: Array, first: Array, second: Array, indicators: Array | None) -> Array:
        """Return rows x (M, n), the products of the named pairs of features, and indicators, stacked."""
        n_features, n_rows = x.shape
        n_second, n_indicators = len(first), 1 if indicators is None else len(indicators)
        terms = self._array("terms", (n_features + n_second + n_indicators, n_rows), x.dtype)
        terms[:n_features] = x
        if self._fused is not None:
            self._fused.products(terms, first, second, n_features)
        else:
            torch.mul(x[first], x[second], out=terms[n_features : n_features + n_second])
        terms[n_features + n_second :] = 1.0 if indicators is None else indicators
        return terms

    def normalise(self, values: Array) -> tuple[Array, Array]:
        """Return responsibilities (R, K, n) and log-sums (R, n) of log-joints (R, K, n)."""
        if self._fused is None:
            return super().normalise(values)
        return self._fused.normalise(values)

    def cholesky(self, matrices: Array) -> tuple[Array, Array]:
        """Return lower Cholesky factors (B, M, M), and whether each (B,) is one."""
        lower, info = torch.linalg.cholesky_ex(matrices)
        good = info == 0
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
        return torch.where(good[:, None, None], lower, eye), good

    def invert_lower(self, lower: Array) -> Array:
        """Return the inverses of lower triangular matrices (B, M, M)."""
        eye = torch.eye(lower.shape[-1], dtype=lower.dtype, device=lower.device)
        return torch.linalg.solve_triangular(lower, eye.expand_as(lower), upper=False)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error says that the device has no memory left."""
        return isinstance(error, (torch.OutOfMemoryError, MemoryError))

    def release(self) -> None:
        """Give memory that is only kept for later back to the device."""
        self._memory.arrays.clear()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Hold matrix products of float32 numbers to the precision of that name."""
        if name == "tf32" and self._device.type != "cuda":
            raise ValueError(f"precision='tf32' needs a CUDA device, got {self._device}.")
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high" if name == "tf32" else "highest")
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _array(self, name: str, shape: tuple[int, ...], dtype: Any) -> Any:
        """Return uninitialised memory, the same each time that name and type ask for as much or less."""
        size = math.prod(shape)
        arrays = self._memory.arrays
        memory = arrays.get(name)
        if memory is None or memory.numel() < size or memory.dtype != dtype:
            arrays.pop(name, None)
            memory = arrays[name] = torch.empty(size, dtype=dtype, device=self._device)
        return memory[:size].view(shape)


def _fused_kernels(device: Any) -> Any:
    """Return the kernels of Triton; None where Triton is missing or cannot compile."""
    try:
        from . import fused

        fused.check(device)
    except Exception as error:  # Triton needs a compiler, a driver and a device of its liking
        warnings.warn(
            f"Passes take longer without Triton, which cannot be used here: {error!r:.200}.",
            RuntimeWarning,
            stacklevel=2,
        )
        return None
    return fused
