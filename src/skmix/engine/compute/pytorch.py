"""PyTorch's own ways of the operations, with kernels of Triton on a CUDA device where it works."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from .arrays import _CHUNK_ON_ACCELERATOR, Array, Operations, Work

# Two calls warm up what is made at first use; the third is recorded.
_CALLS_BEFORE_RECORDING = 3


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

    def expand(
        self,
        rows: Array,
        scale: Array,
        shift: Array,
        farthest: float,
        pairs: tuple[Array, Array],
        indicators: Array | None,
        dtype: Any,
    ) -> Array:
        """Return rows (n, M) in the frame, products of pairs of their features, and indicators, stacked."""
        n_rows, n_features = rows.shape
        n_second, n_indicators = len(pairs[0]), 1 if indicators is None else len(indicators)
        terms = self._array("terms", (n_features + n_second + n_indicators, n_rows), dtype)
        x, products = terms[:n_features], terms[n_features : n_features + n_second]
        if self._fused is not None:
            self._fused.enter(rows, scale, shift, x)
        else:
            x.copy_((rows.to(scale.dtype) * (1.0 / scale) - shift).T)
        if math.isfinite(farthest):
            x.clamp_(-farthest, farthest)
        if self._fused is not None:
            self._fused.products(terms, pairs[0], pairs[1], n_features)
        else:
            torch.mul(x[pairs[0]], x[pairs[1]], out=products)
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

    def forget(self) -> None:
        """Drop memory that is kept from pass to pass."""
        self._memory.arrays.clear()

    def release(self) -> None:
        """Give all memory that is only kept for later back to the device."""
        self.forget()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def recorder(self, work: Work) -> Callable[[list[Array], Hashable], list[Array]]:
        """Return work that asks the host nothing, made faster where calls with the same shapes follow."""
        return _Recorder(work) if self._device.type == "cuda" else super().recorder(work)

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
        if self._device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            # A recording outlives what is kept here.
            return torch.empty(shape, dtype=dtype, device=self._device)
        arrays = self._memory.arrays
        memory = arrays.get(name)
        if memory is None or memory.numel() < size or memory.dtype != dtype:
            arrays.pop(name, None)
            # What is made in inference mode could not be written to outside it.
            with torch.inference_mode(False):
                memory = arrays[name] = torch.empty(size, dtype=dtype, device=self._device)
        return memory[:size].view(shape)


class _Recorder:
    """Work recorded as a CUDA graph, which a device then runs without the host's help.

    Parameters
    ----------
    work : callable
        From arrays to arrays, without a question to the device.
    """

    def __init__(self, work: Work) -> None:
        self._work = work
        self._key: Hashable = None
        self._calls = 0
        self._graph: Any = None
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, arrays: list[Array], key: Hashable) -> list[Array]:
        """Return what the work makes of the arrays; a recording once the same shapes came several times."""
        key = (key, tuple(array.shape for array in arrays))
        if key != self._key:
            self._key, self._calls, self._graph = key, 0, None
        self._calls += 1
        if self._calls == _CALLS_BEFORE_RECORDING:
            self._record(arrays)
        if self._graph is None:
            return self._work(arrays)
        torch._foreach_copy_(self._inputs, arrays)
        self._graph.replay()
        made = [torch.empty_like(output) for output in self._outputs]
        torch._foreach_copy_(made, self._outputs)
        return made

    def _record(self, arrays: list[Array]) -> None:
        with torch.cuda.device(arrays[0].device):
            self._inputs = [array.clone() for array in arrays]
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
            stream.wait_stream(torch.cuda.current_stream())
            try:
                with torch.cuda.stream(stream):
                    graph.capture_begin(capture_error_mode="thread_local")
                    try:
                        self._outputs = self._work(self._inputs)
                    finally:
                        graph.capture_end()
                self._graph = graph
            except Exception as error:
                # What cannot be recorded can still be done step by step.
                warnings.warn(f"A pass could not be recorded: {error!r:.200}.", RuntimeWarning, stacklevel=2)
                self._outputs = []
            torch.cuda.current_stream().wait_stream(stream)


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
