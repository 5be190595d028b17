"""PyTorch: rows sent to a device, and operations on its tensors.

On a CUDA device passes are captured as CUDA graphs.
"""

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
# From tensors to tensors, on one device.
Work = Callable[[list[Array]], list[Array]]

# Numbers in a chunk's expanded rows and joint densities: enough to keep an accelerator busy.
_CHUNK_ON_ACCELERATOR = 1 << 27
# The same on a CPU: few enough to stay in its cache.
_CHUNK_ON_CPU = 1 << 20
# Logarithms relative to the largest whose exponentials are zero.
_LOWEST_LOG = {torch.float64: -600.0, torch.float32: -80.0}
# Fewest bytes of a device's memory that are left for the work on rows.
_WORK_BYTES = 1 << 32
# Smallest share of a device's free memory that is left for the work on rows.
_WORK_SHARE = 0.1
# The first two calls warm up; the third is captured.
_CALLS_BEFORE_CAPTURE = 3
# Bytes up to which an array is copied by way of pinned memory, which PyTorch never returns to the system.
_MOST_PINNED = 1 << 26
# Steps of the matrix sign that enlarge eigenvalues: they resolve ratios up to 3.44^26 = 1e14.
_GROWING_STEPS = 26
# Steps of the matrix sign that square its errors.
_SQUARING_STEPS = 6


def send(X: np.ndarray, device: str) -> Array:
    """Return rows (n, M) as a tensor on a device; refuse rows that do not fit."""
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
    """Return how many bytes of rows a device has room for, beside the work on them; infinite for CPUs."""
    place = _place(device)
    if place.type != "cuda":
        return math.inf
    free, _ = torch.cuda.mem_get_info(place)
    # What PyTorch has reserved and does not use is free as well.
    free += torch.cuda.memory_reserved(place) - torch.cuda.memory_allocated(place)
    return max(0.0, free - max(_WORK_BYTES, _WORK_SHARE * free))


def _place(device: str) -> torch.device:
    """Return the device of that name; refuse one that does not exist or cannot compute in float64."""
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
    """Operations beyond the array API standard, of PyTorch tensors on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._cuda = device.type == "cuda"
        # Numbers in a chunk's expanded rows and joint densities.
        self.chunk = _CHUNK_ON_CPU if device.type == "cpu" else _CHUNK_ON_ACCELERATOR
        self._constant = lru_cache(maxsize=256)(
            lambda make, arguments: torch.as_tensor(make(*arguments), device=device)
        )
        # Constants used during a capture; the graph keeps them alive.
        self.held: list[Array] | None = None

    def constant(self, make: Callable[..., np.ndarray], arguments: tuple[Any, ...]) -> Array:
        """Return the array ``make(*arguments)`` on the device, where it is cached."""
        found = self._constant(make, arguments)
        if self.held is not None:
            self.held.append(found)
        return found

    def from_numpy(self, values: np.ndarray, dtype: Any = None) -> Array:
        """Return values on the device. The host does not wait until the device has done its work so far."""
        # Replays of a graph would read pinned memory that is used for something else by then. A copy that is
        # waited for makes the capture fail, and the pass runs without a graph.
        capturing = self._cuda and torch.cuda.is_current_stream_capturing()
        if not self._cuda or capturing or values.nbytes > _MOST_PINNED:
            return torch.asarray(values, dtype=dtype, device=self.device)
        pinned = torch.as_tensor(np.asarray(values, order="C")).pin_memory()
        found = pinned.to(self.device, non_blocking=True)
        return found if dtype is None else found.to(dtype)

    def to_numpy(self, array: Array) -> np.ndarray:
        """Return the values on the host."""
        values: np.ndarray = array.detach().cpu().numpy()
        return values

    def normalise(self, values: Array, offsets: Array, weights: Array | None) -> tuple[Array, Array, Array]:
        """Return responsibilities times weights (n,), log-sums (R, n), and sums (R, K) of the former.

        `values` (R, K, n) plus `offsets` (R, K) are the log-joints; they are overwritten.
        """
        values = values.add_(offsets[..., None])
        largest = values.amax(dim=1, keepdim=True)
        values.sub_(largest)
        # Subnormal numbers are slow on CPUs.
        values.masked_fill_(values <= _LOWEST_LOG[values.dtype], -math.inf).exp_()
        total = values.sum(dim=1, keepdim=True)
        values.mul_((1.0 if weights is None else weights) / total)
        return values, (torch.log(total) + largest)[:, 0], values.sum(dim=-1, dtype=torch.float64)

    def raise_to_one(self, matrices: Array) -> Array:
        """Return symmetric matrices (B, M, M) with their eigenvalues below one raised to one.

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

    def spare_memory(self) -> int:
        """Return how many bytes of the device a fit may take to save time: half of what is free."""
        return int(torch.cuda.mem_get_info(self.device)[0]) // 2 if self._cuda else 0

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error means that the device is out of memory.

        During a capture it does not: a graph needs memory of its own, so the work may fit without one.
        """
        return self.held is None and isinstance(error, (torch.OutOfMemoryError, MemoryError))

    def release(self) -> None:
        """Return cached memory to the device."""
        if self._cuda:
            torch.cuda.empty_cache()

    def capture(self, work: Work) -> Callable[[list[Array], Hashable], list[Array]]:
        """Return work that never synchronises as a CUDA graph, for repeated calls with the same shapes.

        The graph takes the arrays, and a key for everything else that the work depends on.
        """
        return _Graph(work, self) if self._cuda else lambda arrays, key: work(arrays)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Set the precision of float32 matrix products."""
        if name == "tf32" and not self._cuda:
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


class _Graph:
    """Work captured as a CUDA graph and replayed."""

    def __init__(self, work: Work, operations: TorchOperations) -> None:
        self._work, self._operations = work, operations
        self._constants: list[Array] = []  # the graph reads them, so they must live as long as it does
        self._key: Hashable = None
        self._calls = 0
        self._graph: Any = None
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, arrays: list[Array], key: Hashable) -> list[Array]:
        """Return ``work(arrays)``, replayed after several consecutive calls with the same key and shapes."""
        key = (key, tuple(array.shape for array in arrays))
        if key != self._key:
            self._key, self._calls, self._graph = key, 0, None
        self._calls += 1
        if self._calls == _CALLS_BEFORE_CAPTURE:
            self._capture(arrays)
        if self._graph is None:
            return self._work(arrays)
        torch._foreach_copy_(self._inputs, arrays)
        self._graph.replay()
        made = [torch.empty_like(output) for output in self._outputs]
        torch._foreach_copy_(made, self._outputs)
        return made

    def _capture(self, arrays: list[Array]) -> None:
        with torch.cuda.device(arrays[0].device), _without_garbage_collection():
            self._inputs = [array.clone() for array in arrays]
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]
            stream.wait_stream(torch.cuda.current_stream())
            # A graph has memory of its own: it cannot use what is cached.
            self._operations.release()
            try:
                with torch.cuda.stream(stream):
                    graph.capture_begin(capture_error_mode="thread_local")
                    self._operations.held = []
                    try:
                        self._outputs = self._work(self._inputs)
                    finally:
                        self._constants, self._operations.held = self._operations.held, None
                        graph.capture_end()
                self._graph = graph
            except Exception as error:
                warnings.warn(
                    f"Passes will be slower: capturing a CUDA graph failed with {error!r:.200}.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                self._outputs = []
            torch.cuda.current_stream().wait_stream(stream)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable garbage collection: freeing another graph, held by a reference cycle, would end the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
