"""The seam to other array libraries: PyTorch, CuPy, JAX, and all that keep the array API standard.

The small steps of the engine ask `namespace` for the functions that suit their arrays; NumPy's pay nothing
for it. What the standard lacks, or what a library does better than by the standard, is an operation of
`Operations`, about a dozen in all.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
# An array of any library that keeps the array API standard.
Array = Any

# Numbers of a chunk's expanded rows and joint densities: large enough for the device's matrix products, small
# beside its memory.
_CHUNK_ON_ACCELERATOR = 1 << 26
_CHUNK_ON_CPU = 1 << 20
# Lists of integers up to this length are kept on a device when they were sent once.
_FEW_NUMBERS = 4096
# Logarithms relative to the largest are raised to this, since subnormal numbers are slow on CPUs.
_LOWEST_LOG = {"float64": -600.0, "float32": -80.0}


def is_numpy(array: Any) -> bool:
    """Return whether this is a NumPy array or number."""
    return isinstance(array, (np.ndarray, np.generic))


def namespace(array: Any) -> Any:
    """Return the functions for an array, by the names of the array API standard."""
    return np if is_numpy(array) else _namespace(type(array), array)


# From arrays to arrays, on one device.
Work = Callable[[list[Array]], list[Array]]

_namespaces: dict[type, Any] = {}


def _namespace(kind: type, array: Any) -> Any:
    if kind not in _namespaces:
        from array_api_compat import array_namespace

        _namespaces[kind] = array_namespace(array)
    return _namespaces[kind]


def device_of(array: Any) -> Any:
    """Return the device an array is on; None for NumPy's."""
    if is_numpy(array):
        return None
    from array_api_compat import device

    return device(array)


def like(values: Any, example: Any, dtype: Any = None) -> Any:
    """Return values, of NumPy or already at home, as an array of the example's library and device."""
    if is_numpy(example):
        return np.asarray(values, dtype=dtype)
    if not is_numpy(values) and dtype is None:
        return values
    xp = namespace(example)
    if is_numpy(values) and not values.flags.writeable:
        values = values.copy()
    return xp.asarray(values, dtype=dtype, device=device_of(example))


def to_numpy(array: Any) -> np.ndarray:
    """Return an array's values on the host; a NumPy array as it is."""
    return array if is_numpy(array) else operations_of(array).to_numpy(array)


def pick(array: Any, index: Any) -> Any:
    """Return the entries along the first axis that a slice, an integer, None, a mask or integers choose."""
    if is_numpy(array):
        return array[index]
    if index is None or isinstance(index, (slice, int, np.integer)):
        return array[int(index) if isinstance(index, np.integer) else index, ...]
    return namespace(array).take(array, _numbers_at(_positions(index), array), axis=0)


def replaced(array: Any, index: Any, values: Any) -> Any:
    """Return the array with the entries that a mask or integers choose along the first axis replaced.

    NumPy's are replaced in place.
    """
    if is_numpy(array):
        array[index] = to_numpy(values)
        return array
    xp = namespace(array)
    source = np.arange(array.shape[0])
    source[_positions(index)] = array.shape[0] + np.arange(values.shape[0])
    return xp.take(xp.concat([array, values]), _numbers_at(source, array), axis=0)


def _positions(index: Any) -> np.ndarray:
    index = np.asarray(index)
    return np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64)


def _numbers_at(numbers: np.ndarray, example: Any) -> Any:
    """Return integers (n,) where the example is; the same few are sent once."""
    if len(numbers) > _FEW_NUMBERS:
        return like(numbers, example)
    return constant(_numbers, numbers.tobytes(), example=example)


def _numbers(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.int64).copy()


class _Doubts(threading.local):
    """What a thread noticed of conditions that hold seldom."""

    def __init__(self) -> None:
        self.assumed_false: list[Array] | None = None
        self.found = False


_doubts = _Doubts()


def arises(condition: Array) -> bool:
    """Return whether a condition, which holds seldom, holds anywhere.

    Asking a device makes the host wait for it. Inside `unasked` the answer is no, and the condition is noted.
    """
    if is_numpy(condition):
        return bool(condition.any())
    anywhere = namespace(condition).any(condition)
    if _doubts.assumed_false is not None:
        _doubts.assumed_false.append(anywhere)
        return False
    answer = bool(anywhere)
    _doubts.found |= answer
    return answer


@contextmanager
def unasked() -> Iterator[list[Array]]:
    """Yield the conditions that the body assumes to hold nowhere, rather than ask for."""
    noted: list[Array] = []
    _doubts.assumed_false = noted
    try:
        yield noted
    finally:
        _doubts.assumed_false = None


@contextmanager
def noticing() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether any condition did arise in the body."""
    _doubts.found = False
    yield lambda: _doubts.found


@lru_cache(maxsize=256)
def _constant(make: Callable[..., np.ndarray], arguments: tuple[Any, ...], place: tuple[str, str]) -> Any:
    return _places[place](make(*arguments))


_places: dict[tuple[str, str], Callable[[np.ndarray], Any]] = {}


def constant(make: Callable[..., np.ndarray], *arguments: Any, example: Any) -> Any:
    """Return a constant array that `make` makes of the arguments, where the example is; made once."""
    if is_numpy(example):
        return make(*arguments)
    xp, device = namespace(example), device_of(example)
    place = (xp.__name__, str(device))
    if place not in _places:
        _places[place] = lambda values: xp.asarray(values, device=device)
    return _constant(make, arguments, place)


class Operations:
    """What the engine asks of a library beyond the standard's functions, written with these alone."""

    chunk = _CHUNK_ON_CPU
    """Numbers of a chunk's expanded rows and joint densities."""

    def to_numpy(self, array: Array) -> np.ndarray:
        """Return the values on the host."""
        return np.asarray(array)

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
        """Return rows (n, M) in the frame, products of pairs of their features, and indicators, stacked.

        Parameters
        ----------
        rows : array of shape (n, M)
            Rows as they are.
        scale, shift : array of shape (M,)
            The frame.
        farthest : float
            Magnitude to draw rows in to.
        pairs : tuple of two arrays of shape (S,)
            The features of each product.
        indicators : array of shape (C, n) or None
            None is a row of ones.
        dtype : dtype
            Of the result.

        Returns
        -------
        array of shape (M + S + C, n)
            The terms.
        """
        xp = namespace(rows)
        x = xp.astype(rows, scale.dtype) * (1.0 / scale) - shift
        if math.isfinite(farthest):
            x = xp.clip(x, -farthest, farthest)
        x = xp.astype(x, dtype, copy=False).T
        products = xp.take(x, pairs[0], axis=0) * xp.take(x, pairs[1], axis=0)
        if indicators is None:
            indicators = xp.ones_like(x[:1, :])
        return xp.concat([x, products, indicators])

    def normalise(self, values: Array) -> tuple[Array, Array]:
        """Return responsibilities (R, K, n) and log-sums (R, n) of log-joints (R, K, n).

        The values' memory may be used again.
        """
        xp = namespace(values)
        largest = xp.max(values, axis=1, keepdims=True)
        relative = values - largest
        lowest = _LOWEST_LOG["float32" if values.dtype == xp.float32 else "float64"]
        joint = xp.exp(xp.where(relative > lowest, relative, lowest))
        total = xp.sum(joint, axis=1, keepdims=True)
        return joint / total, (xp.log(total) + largest)[:, 0, :]

    def cholesky(self, matrices: Array) -> tuple[Array, Array]:
        """Return lower Cholesky factors (B, M, M), and whether each (B,) is one.

        A factor that is none is finite and means nothing.
        """
        xp = namespace(matrices)
        try:
            lower = xp.linalg.cholesky(matrices)
        except Exception:
            # One singular matrix spoils the batch for libraries that raise: find out which.
            lower = self._cholesky_each(matrices)
        good = xp.all(xp.reshape(xp.isfinite(lower), (lower.shape[0], -1)), axis=1)
        eye = xp.eye(lower.shape[-1], dtype=lower.dtype, device=device_of(lower))
        return xp.where(good[:, None, None], lower, eye), good

    def _cholesky_each(self, matrices: Array) -> Array:
        xp = namespace(matrices)
        factors = []
        for b in range(matrices.shape[0]):
            try:
                factors.append(xp.linalg.cholesky(matrices[b, :, :]))
            except Exception:
                factors.append(matrices[b, :, :] * math.nan)
        return xp.stack(factors)

    def invert_lower(self, lower: Array) -> Array:
        """Return the inverses of lower triangular matrices (B, M, M)."""
        xp = namespace(lower)
        return xp.tril(xp.linalg.inv(lower))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error says that the device has no memory left."""
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

    def forget(self) -> None:
        """Drop memory that is kept from pass to pass."""

    def release(self) -> None:
        """Give all memory that is only kept for later back to the device."""
        self.forget()

    def recorder(self, work: Work) -> Callable[[list[Array], Hashable], list[Array]]:
        """Return work that asks the host nothing, made faster where calls with the same shapes follow.

        It takes the arrays, and a key that says what the work depends on beside them.
        """
        return lambda arrays, key: work(arrays)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Hold matrix products of float32 numbers to the precision of that name."""
        if name == "tf32":
            raise ValueError("precision='tf32' needs arrays of PyTorch on a CUDA device.")
        yield


class CupyOperations(Operations):
    """CuPy arrays on a CUDA device."""

    chunk = _CHUNK_ON_ACCELERATOR

    def to_numpy(self, array: Array) -> np.ndarray:
        """Return the values on the host."""
        return np.asarray(array.get())

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error says that the device has no memory left."""
        return type(error).__name__ == "OutOfMemoryError"

    def release(self) -> None:
        """Give all memory that is only kept for later back to the device."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


class JaxOperations(Operations):
    """JAX arrays."""

    def __init__(self, accelerator: bool) -> None:
        if accelerator:
            self.chunk = _CHUNK_ON_ACCELERATOR

    def invert_lower(self, lower: Array) -> Array:
        """Return the inverses of lower triangular matrices (B, M, M)."""
        from jax.scipy.linalg import solve_triangular

        xp = namespace(lower)
        return solve_triangular(lower, xp.broadcast_to(xp.eye(lower.shape[-1]), lower.shape), lower=True)


_operations: dict[str, Operations] = {}


def operations_of(array: Any) -> Operations:
    """Return the operations for arrays of this library on this device."""
    device = device_of(array)
    library = type(array).__module__.partition(".")[0]
    key = f"{library} {device}"
    if key not in _operations:
        _operations[key] = _make(library, device)
    return _operations[key]


def _make(library: str, device: Any) -> Operations:
    if library == "torch":
        from .pytorch import TorchOperations

        return TorchOperations(device)
    if library == "cupy":
        return CupyOperations()
    if library in ("jax", "jaxlib"):
        return JaxOperations(accelerator=getattr(device, "platform", "cpu") != "cpu")
    return Operations()


def as_float64(values: Array, example: Array) -> Array:
    """Return values as float64 numbers where the example is."""
    xp = namespace(example)
    return like(np.asarray(values, dtype=np.float64) if is_numpy(values) else values, example, xp.float64)
