"""What PyTorch does beyond the array API standard: copies, memory, whole-tensor operations, CUDA graphs."""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch

from .threads import ProcessSetting

# A tensor.
Array = Any
# From tensors to tensors, on one device; the work never waits for the device.
Work = Callable[[list[Array]], list[Array]]

# Numbers in the expanded rows and joint densities of a chunk: enough to keep an accelerator busy.
_CHUNK_ON_ACCELERATOR = 1 << 27
# The same on a CPU: few enough to stay in its cache.
_CHUNK_ON_CPU = 1 << 20
# Fewest bytes of a device's memory that are left for the work on rows.
_WORK_BYTES = 1 << 32
# Smallest share of a device's free memory that is left for the work on rows.
_WORK_SHARE = 0.1
# The first two calls of repeated work warm up; the third is captured as a graph.
_CALLS_BEFORE_CAPTURE = 3
# Bytes up to which an array is copied by way of pinned memory, which PyTorch never returns to the system.
_MOST_PINNED = 1 << 26
# Steps of the matrix sign that enlarge eigenvalues: they resolve ratios up to 3.44^26 = 1e14.
_GROWING_STEPS = 26
# Steps of the matrix sign that square its errors.
_SQUARING_STEPS = 6


def send(X: np.ndarray, device: str) -> Array:
    """Copy rows (n, M) to a device; refuse rows that do not fit."""
    place = _place(device)
    values = np.ascontiguousarray(X if X.flags.writeable else X.copy())
    try:
        return torch.as_tensor(values, device=place)
    except torch.OutOfMemoryError:
        free, _ = torch.cuda.mem_get_info(place)
        raise MemoryError(
            f"X takes {X.nbytes / 2**30:.1f} GiB, but {device} has only {free / 2**30:.1f} GiB free. Fit "
            "fewer rows, or fit on the CPU with device=None."
        ) from None


def room_on(device: str) -> float:
    """Count the bytes of rows that a device has room for, beside the work on them; infinite for CPUs."""
    place = _place(device)
    if place.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(place)
    # What PyTorch has reserved and does not use is free as well.
    free += torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return max(0.0, free - max(_WORK_BYTES, _WORK_SHARE * free))


def _place(device: str) -> torch.device:
    """Find the device of that name; refuse one that does not exist or cannot compute in float64."""
    try:
        place = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=place).item()
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        n_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise ValueError(
            f"device={device!r} cannot be used: {str(error).splitlines()[0]}. "
            f"PyTorch {torch.__version__} sees {n_devices} CUDA device(s)."
        ) from error
    return place


class TorchOperations:
    """Operations on the tensors of one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.is_cuda = device.type == "cuda"
        # Numbers in the expanded rows and joint densities of a chunk.
        self.chunk = _CHUNK_ON_CPU if device.type == "cpu" else _CHUNK_ON_ACCELERATOR
        self._constant = lru_cache(maxsize=256)(
            lambda make, arguments: torch.as_tensor(make(*arguments), device=device)
        )
        # While a graph is captured, the constants that it reads: the graph keeps them alive.
        self.constants_of_graph: list[Array] | None = None

    def constant(self, make: Callable[..., np.ndarray], arguments: tuple[Any, ...]) -> Array:
        """Call ``make(*arguments)`` and copy the array to the device, where it is kept."""
        tensor = self._constant(make, arguments)
        if self.constants_of_graph is not None:
            self.constants_of_graph.append(tensor)
        return tensor

    def from_numpy(self, values: np.ndarray, dtype: Any = None) -> Array:
        """Copy values to the device, without waiting until it has done its work so far."""
        # Replays of a graph would read pinned memory that is used for something else by then. A copy that is
        # waited for makes the capture fail, and the pass runs without a graph.
        capturing = self.is_cuda and torch.cuda.is_current_stream_capturing()
        if not self.is_cuda or capturing or values.nbytes > _MOST_PINNED:
            return torch.asarray(values, dtype=dtype, device=self.device)
        pinned = torch.as_tensor(np.asarray(values, order="C")).pin_memory()
        tensor = pinned.to(self.device, non_blocking=True)
        return tensor if dtype is None else tensor.to(dtype)

    def to_numpy(self, tensor: Array) -> np.ndarray:
        """Copy a tensor to the host."""
        values: np.ndarray = tensor.detach().cpu().numpy()
        return values

    def spare_memory(self) -> int:
        """Count the bytes of the device that a fit may take to save time: half of the free ones."""
        return int(torch.cuda.mem_get_info(self.device)[0]) // 2 if self.is_cuda else 0

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the error says that the device is out of memory.

        During a capture it does not: a graph needs memory of its own, so the work may fit without one.
        """
        capturing = self.constants_of_graph is not None
        return not capturing and isinstance(error, (torch.OutOfMemoryError, MemoryError))

    def release(self) -> None:
        """Return memory that PyTorch keeps for later to the device."""
        if self.is_cuda:
            torch.cuda.empty_cache()

    def raise_to_one(self, matrices: Array) -> Array:
        """Raise the eigenvalues of symmetric matrices (B, M, M) that are below one to one.

        max(A, 1) = ½ (A + 1 + |A − 1|), and |B| = B sign(B), where the sign comes from an iteration of matrix
        products. On CUDA these are many times faster than eigenvectors, and the host need not wait for them.
        """
        eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
        above = matrices - eye
        # Divided by a bound of the spectral norm, so that all eigenvalues are in [−1, 1].
        norm = above.abs().sum(dim=-1).amax(dim=-1)[:, None, None]
        sign = above / norm.clamp_min(torch.finfo(matrices.dtype).tiny)
        # Eigenvalues of magnitude x are mapped to about 3.44 x until they are between 0.7 and 1.2.
        for _ in range(_GROWING_STEPS):
            square = sign @ sign
            factor = torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315)
            sign = torch.baddbmm(sign, sign, factor, beta=3.4445)
        # The errors of these are squared in each of the last steps.
        for _ in range(_SQUARING_STEPS):
            sign = torch.baddbmm(sign, sign, sign @ sign, beta=1.5, alpha=-0.5)
        return 0.5 * (matrices + eye + above @ sign)

    def replayed(self, work: Work) -> Callable[[list[Array], Hashable], list[Array]]:
        """The same work, replayed where it is repeated with tensors of the same shapes; see `Replayed`."""
        return Replayed(work, self)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Set the precision of float32 matrix products in the body."""
        if name == "tf32" and not self.is_cuda:
            raise ValueError(f"TF32 needs a CUDA device, got {self.device}.")
        if name == "float64":
            yield
            return
        with _products.to("high" if name == "tf32" else "highest"):
            yield


def _set_products(precision: str) -> Callable[[], object]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    return partial(torch.set_float32_matmul_precision, before)


# The precision of float32 matrix products.
_products = ProcessSetting(_set_products)


class Replayed:
    """Work on tensors that is repeated, and on CUDA devices captured as a graph and replayed."""

    def __init__(self, work: Work, operations: TorchOperations) -> None:
        self._work, self._operations = work, operations
        self._key: Hashable = None
        self._calls = 0
        self._graph: Any = None
        self._inputs: list[Array] = []
        self._outputs: list[Array] = []
        self._constants: list[Array] = []  # the graph reads them, so they must live as long as it does

    def __call__(self, tensors: list[Array], key: Hashable) -> list[Array]:
        """Do the work; `key` stands for everything else that it depends on."""
        if not self._operations.is_cuda:
            return self._work(tensors)
        key = (key, tuple(tensor.shape for tensor in tensors))
        if key != self._key:
            self._key, self._calls, self._graph = key, 0, None
        self._calls += 1
        if self._calls == _CALLS_BEFORE_CAPTURE:
            self._capture(tensors)
        if self._graph is None:
            return self._work(tensors)
        torch._foreach_copy_(self._inputs, tensors)
        self._graph.replay()
        results = [torch.empty_like(output) for output in self._outputs]
        torch._foreach_copy_(results, self._outputs)
        return results

    def _capture(self, tensors: list[Array]) -> None:
        operations, collects = self._operations, gc.isenabled()
        with torch.cuda.device(operations.device):
            self._inputs = [tensor.clone() for tensor in tensors]
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
            stream.wait_stream(torch.cuda.current_stream())
            # A graph has memory of its own: it cannot use what PyTorch keeps for later.
            operations.release()
            # Freeing another graph, held by a reference cycle, would end the capture.
            gc.disable()
            try:
                with torch.cuda.stream(stream):
                    graph.capture_begin(capture_error_mode="thread_local")
                    operations.constants_of_graph = []
                    try:
                        self._outputs = self._work(self._inputs)
                    finally:
                        self._constants, operations.constants_of_graph = operations.constants_of_graph, None
                        graph.capture_end()
                self._graph = graph
            except Exception as error:
                warnings.warn(
                    f"Passes will be slower: capturing a CUDA graph failed with {error!r:.200}.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._outputs = []
            finally:
                if collects:
                    gc.enable()
            torch.cuda.current_stream().wait_stream(stream)
