"""One set of functions for NumPy arrays and PyTorch tensors.

`namespace` returns the functions of an array's library by the names of the array API standard. What the
standard lacks, or PyTorch does faster in its own way, are methods of `operations_of(array)`. Arrays of other
libraries become NumPy arrays or tensors by `taken_in`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._extras import how_to_install

# A NumPy array or a PyTorch tensor.
Array = Any
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Rows at a larger squared distance from a kernel count as this far from it: log-densities stay finite.
FARTHEST_SQUARED = 1e300
# Smallest normal number, and smallest usable variance.
TINY = float(np.finfo(np.float64).tiny)
# Logarithms of shares below which shares are zero, by type: subnormal numbers would be slow, and nothing
# needs them. In float64 this is 1e-200, as in the core.
LOWEST_LOG = {"float64": -460.0, "float32": -80.0}
# A sum of exponentials below this, relative to the largest of all, has lost terms that count to underflow.
LEAST_SUM = 1e-150
# Mass below this comes only from the lowest shares: the kernel or the weight is empty.
EMPTY_MASS = 1e-130
# The logarithm of zero in matrix products, where −∞ times zero would be NaN.
LOG_ZERO = -1e30
# Sums of terms this much larger than their result keep an accuracy of about 1e-9 where products with rows are
# float64. Where they are not, errors of up to about 0.004 and 1 remain: better accuracy takes too long.
LARGEST_CANCELLATION = {"float64": 2.0**24, "float32": 2.0**18, "tf32": 2.0**13}
# Columns of a matrix product on the host: the rounding of a column depends on this size, not on the others.
TILE = 64
# Host arrays up to this length are cached on the device.
_SHORT = 4096
# The CPU, and memory of the CPU that a CUDA device reads, as DLPack numbers them.
_ON_CPU = (1, 3)
# Rows that are searched for missing values at a time.
_SCANNED = 1 << 13

Some = TypeVar("Some", bound="Record")


def is_numpy(array: Any) -> bool:
    """Return whether this is a NumPy array or scalar."""
    return isinstance(array, (np.ndarray, np.generic))


def namespace(array: Array) -> Any:
    """Return the functions for an array, by the names of the array API standard."""
    return np if isinstance(array, (np.ndarray, np.generic)) else _torch_namespace()


@lru_cache
def _torch_namespace() -> Any:
    from array_api_compat import torch

    return torch


def has_gaps(X: Array) -> bool:
    """Return whether any value of X (N, M) is missing."""
    if not is_numpy(X):
        xp = namespace(X)
        return bool(xp.any(xp.isnan(xp.sum(X, axis=0))) and xp.any(xp.isnan(X)))
    return any(bool(np.isnan(X[a : a + _SCANNED]).any()) for a in range(0, len(X), _SCANNED))


def operations_of(array: Array) -> Any:
    """Return what PyTorch does beyond the array API standard, for tensors on the device of this one."""
    return _torch_operations(array.device)


@lru_cache
def _torch_operations(device: Any) -> Any:
    from .tensors import TorchOperations

    return TorchOperations(device)


def is_device_array(value: Any) -> bool:
    """Return whether this is an array in memory of a library other than NumPy."""
    if is_numpy(value):
        return False
    return all(hasattr(type(value), name) for name in ("__dlpack__", "__dlpack_device__", "shape", "dtype"))


def like(values: Any, example: Any, dtype: Any = None) -> Any:
    """Return values, of NumPy or of the example's library, as an array of that library on its device."""
    if is_numpy(example):
        return np.asarray(values, dtype=dtype)
    if is_numpy(values):
        return operations_of(example).from_numpy(values if values.flags.writeable else values.copy(), dtype)
    return values if dtype is None else values.to(example.device, dtype)


def as_float64(values: Array, example: Array) -> Array:
    """Return values as a float64 array of the example's library and device."""
    return like(values, example, namespace(example).float64)


def to_numpy(array: Any) -> np.ndarray:
    """Return an array as a NumPy array on the host."""
    return array if is_numpy(array) else operations_of(array).to_numpy(array)


def on_host(value: Any) -> Any:
    """Return an array of another library as a NumPy array, anything else as it is."""
    return to_numpy(taken_in(value)) if is_device_array(value) else value


def taken_in(array: Any) -> Any:
    """Return an array of another library as a NumPy array or, on a device, as a PyTorch tensor.

    It shares memory with the given one where DLPack can. Tensors are detached from their autograd graph.
    """
    if any(kind.__module__.partition(".")[0] == "torch" for kind in type(array).__mro__):
        return array.detach() if array.requires_grad else array
    device = array.__dlpack_device__()[0]
    if device in _ON_CPU:
        return np.from_dlpack(array)
    try:
        from torch.utils.dlpack import from_dlpack
    except ImportError as error:
        library = type(array).__module__.partition(".")[0]
        raise ImportError(
            f"X is an array of {library} on a device, which skmix reads through PyTorch: "
            f"{how_to_install('torch')}, or give X as a NumPy array."
        ) from error
    return from_dlpack(array)


def send(X: np.ndarray, device: str) -> Array:
    """Return rows (n, M) as a PyTorch tensor on the device of that name."""
    return _torch(device).send(X, device)


def room_on(device: str) -> float:
    """Return how many bytes of rows the PyTorch device of that name has room for."""
    return float(_torch(device).room_on(device))


def _torch(device: str) -> Any:
    try:
        from . import tensors as torch
    except ImportError as error:
        raise ImportError(
            f"device={device!r} needs PyTorch: {how_to_install('torch')}, or leave device out."
        ) from error
    return torch


def pick(array: Any, index: Any) -> Any:
    """Index the first axis by a slice, an integer, None, a mask or integers."""
    if is_numpy(array):
        if type(array) is type(index) is np.ndarray and index.dtype.kind == "i" and array.flags.c_contiguous:
            return array.take(index, axis=0)  # several times as fast
        return array[index]
    if index is None or isinstance(index, (slice, int, np.integer)):
        return array[int(index) if isinstance(index, np.integer) else index, ...]
    return take(array, _places(index, array), axis=0)


def take(array: Any, index: Any, axis: int) -> Any:
    """Index an axis by integers (q,), none of them negative, of the array's library."""
    return array.take(index, axis=axis) if is_numpy(array) else array.index_select(axis, index)


def clip(values: Any, lowest: float, highest: float) -> Any:
    """Return values between two numbers; NaN stays."""
    # Some versions of the common namespace make the host wait.
    return values.clip(lowest, highest) if is_numpy(values) else values.clamp(lowest, highest)


def where(condition: Any, one: Any, other: Any) -> Any:
    """Return `one` where a condition holds, otherwise `other`: float64 numbers, or a number for all."""
    if is_numpy(condition):
        return np.where(condition, one, other)
    # Cache the scalar on the device.
    one, other = (
        constant(np.array, value, example=condition) if isinstance(value, float) else value
        for value in (one, other)
    )
    return namespace(condition).where(condition, one, other)


def replaced(array: Any, index: Any, values: Any) -> Any:
    """Return a copy of the array with new values along the first axis at a mask or integers."""
    if is_numpy(array):
        array = array.copy()
        array[index] = to_numpy(values)
        return array
    return array.index_copy(0, _places(index, array), values)


def _places(index: Any, example: Any) -> Any:
    """Return a mask or integers as integers on the example's device."""
    if is_device_array(index):
        return index
    index = np.asarray(index)
    return sent_once(np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64), example)


def sent_once(values: np.ndarray, example: Any) -> Any:
    """Return a host array on the example's device; equal values, if they are short, are sent only once."""
    if is_numpy(example) or len(values) > _SHORT:
        return like(values, example)
    return constant(_parse, values.tobytes(), values.dtype.str, values.shape, example=example)


def _parse(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()


def constant(make: Callable[..., np.ndarray], *arguments: Any, example: Any) -> Any:
    """Return the array ``make(*arguments)`` on the example's device, where it is cached."""
    return make(*arguments) if is_numpy(example) else operations_of(example).constant(make, arguments)


def safe_log(values: FloatArray) -> FloatArray:
    """Return logarithms, −∞ for zero."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def gammaln(array: Any) -> Any:
    """Return log Γ of positive numbers."""
    return special.gammaln(array) if is_numpy(array) else namespace(array).special.gammaln(array)


def digamma(array: Any) -> Any:
    """Return the derivative of log Γ."""
    return special.digamma(array) if is_numpy(array) else namespace(array).special.digamma(array)


def trigamma(array: Any) -> Any:
    """Return the second derivative of log Γ of positive numbers, to twelve digits.

    ψ'(x) = ψ'(x + 1) + 1 / x², and far from zero it has an asymptotic series. SciPy's is slower by far.
    """
    total, x = 0.0, array
    for _ in range(8):
        total, x = total + 1.0 / (x * x), x + 1.0
    y = 1.0 / (x * x)
    series = 1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66))))
    return total + (1.0 + y * series) / x + 0.5 * y


# ---------------------------------------------------------------- sums of exponentials


def log_sum_exp(logs: Array, axis: int) -> Array:
    """Return log Σ exp(a) over an axis of logarithms a; −∞ where all of them are −∞."""
    xp = namespace(logs)
    largest = xp.max(logs, axis=axis, keepdims=True)
    finite = where(largest > -np.inf, largest, 0.0)
    with np.errstate(divide="ignore"):
        sums = xp.log(xp.sum(xp.exp(logs - finite), axis=axis, keepdims=True)) + finite
    return xp.squeeze(sums, axis=axis)


def log_normalise(logs: Array, axis: int) -> Array:
    """Return log-probabilities, which sum to one over an axis, from logarithms up to a constant.

    The largest is subtracted first: next to logarithms of 1e16 the log of the sum would be rounded away.
    """
    xp = namespace(logs)
    relative = logs - xp.max(logs, axis=axis, keepdims=True)
    return relative - xp.log(xp.sum(xp.exp(relative), axis=axis, keepdims=True))


def to_shares(logs: Array, axis: int) -> Array:
    """Turn logarithms into shares, which sum to one over an axis, in place; return the log-sums."""
    xp = namespace(logs)
    largest, lowest = xp.max(logs, axis=axis, keepdims=True), LOWEST_LOG[str(logs.dtype).split(".")[-1]]
    logs -= largest
    logs[logs < lowest] = -np.inf
    xp.exp(logs, out=logs)
    total = xp.sum(logs, axis=axis, keepdims=True)
    logs /= total
    return xp.squeeze(xp.log(total) + largest, axis=axis)


def log_mix(logs: Array, weights: FloatArray) -> Array:
    """Return log Σ_k w_kj exp(a_kn), shape (L, n), of logarithms a (K, n) and weights w (K, L), of NumPy.

    On the host the result for a row does not depend on the others, to the last bit.
    """
    if not is_numpy(logs):
        return _log_mix(logs, weights)
    mixed = _log_mix(_tiles(logs), weights).swapaxes(0, 1)
    return mixed.reshape(weights.shape[1], -1)[:, : logs.shape[1]]


def _log_mix(logs: Array, weights: FloatArray) -> Array:
    """Return log Σ_k w_kj exp(a_kn), shape (..., L, n), of logarithms a (..., K, n) and weights w (K, L)."""
    xp = namespace(logs)
    largest = xp.max(logs, axis=-2, keepdims=True)
    sums = like(weights, logs).T @ xp.exp(logs - largest)
    with np.errstate(divide="ignore"):
        mixed = xp.log(sums) + largest
    is_lost = sums < LEAST_SUM
    if not occurs(is_lost):
        return mixed
    # In some classes the kernels nearest to a row have no weight: sum over the others, relative to their own
    # largest.
    for c in range(weights.shape[1]):
        kernels = np.flatnonzero(weights[:, c])
        if len(kernels) and occurs(is_lost[..., c, :]):
            terms = take(logs, like(kernels, logs), axis=-2) + like(np.log(weights[kernels, c, None]), logs)
            mixed[..., c, :] = where(is_lost[..., c, :], log_sum_exp(terms, axis=-2), mixed[..., c, :])
    return mixed


def _tiles(columns: FloatArray) -> FloatArray:
    """Return columns (K, n) in tiles (T, K, 64), with the last column repeated where there are fewer."""
    (n_kernels, n_columns), n_whole = columns.shape, columns.shape[1] // TILE
    tiles = np.empty((-(-n_columns // TILE), n_kernels, TILE))
    tiles[:n_whole] = columns[:, : n_whole * TILE].reshape(n_kernels, n_whole, TILE).swapaxes(0, 1)
    if n_whole < len(tiles):
        tiles[n_whole] = padded(columns[:, n_whole * TILE :])
    return tiles


def padded(columns: FloatArray) -> FloatArray:
    """Return up to 64 columns (K, n) with the last one repeated, (K, 64)."""
    n = columns.shape[1]
    return columns if n == TILE else columns.take(np.minimum(np.arange(TILE), n - 1), axis=1)


# ---------------------------------------------------------------- records of arrays


class Record:
    """A frozen dataclass of arrays, tuples of arrays, or records, with a common first axis."""

    def _combine(self, function: Callable[..., Any], *others: Record) -> Self:
        """Apply a function to the arrays of this record and of others of the same kind; the rest stays."""

        def combined(own: Any, *rest: Any) -> Any:
            if isinstance(own, Record):
                return own._combine(function, *rest)
            if isinstance(own, tuple):
                return tuple(map(combined, own, *rest))
            return function(own, *rest) if hasattr(own, "ndim") and not isinstance(own, float) else own

        fields = [vars(record).values() for record in (self, *others)]
        return type(self)(*map(combined, *fields))

    def map(self, function: Callable[[Array], Array]) -> Self:
        """Return a record with the function applied to each array."""
        return self._combine(function)

    def take(self, index: Any) -> Self:
        """Return the starts that `index` selects along the leading axis."""
        return self._combine(lambda array: pick(array, index))

    def put(self, index: Any, other: Self) -> Self:
        """Return a copy of this record with the starts that `index` selects replaced."""
        return self._combine(lambda own, new: replaced(own, index, new), other)


def join(records: Sequence[Some]) -> Some:
    """Concatenate records along the first axis."""
    return records[0]._combine(lambda *parts: namespace(parts[0]).concat(list(parts)), *records[1:])


# ---------------------------------------------------------------- rare conditions


@dataclass
class Conditions:
    """The rare conditions that were met in the body of `recorded`."""

    earlier: list[int] | None = None  # the counts of an earlier pass, if this one is optimistic
    held: list[Any] = field(default_factory=list)  # results of `occurs`, or if optimistic its conditions (B,)
    counts: list[int] = field(default_factory=list)  # in how many places each call of `rare` found its own


_conditions: ContextVar[Conditions | None] = ContextVar("conditions", default=None)


def occurs(condition: Array) -> bool:
    """Return whether a rare condition holds anywhere.

    Reading the result makes the host wait for the device. An optimistic pass therefore assumes that it is
    False, and records the condition to check it afterwards.
    """
    if is_numpy(condition):
        return bool(condition.any())
    xp, conditions = namespace(condition), _conditions.get()
    if conditions is not None and conditions.earlier is not None:
        conditions.held.append(xp.reshape(condition, (-1,)))
        return False
    anywhere = bool(xp.any(condition))
    if conditions is not None:
        conditions.held.append(anywhere)
    return anywhere


def rare(condition: Array) -> Array | None:
    """Return the places (q,) where a rare condition (B,) holds; None if nowhere.

    An optimistic pass returns a fixed number of places, the last pass's count rounded up, true ones first.
    It records whether there are more, like `occurs`.
    """
    conditions = _conditions.get()
    if is_numpy(condition) or conditions is None or conditions.earlier is None:
        index = np.flatnonzero(to_numpy(condition))
        if conditions is not None:
            conditions.counts.append(len(index))
        return index if len(index) else None
    xp, n_places = namespace(condition), conditions.earlier[len(conditions.counts)]
    conditions.counts.append(n_places)
    if not n_places:
        occurs(condition)
        return None
    n_places = min(max(8, 1 << (n_places - 1).bit_length()), condition.shape[0])
    occurs(xp.count_nonzero(condition) > n_places)
    order = xp.argsort(xp.astype(~condition, xp.int8), stable=True)
    return order[:n_places]


@contextmanager
def recorded(earlier: list[int] | None = None) -> Iterator[Conditions]:
    """Yield the conditions met in the body; it is optimistic if the counts of an `earlier` pass are given.

    Optimistic results stay on the device.
    """
    conditions = Conditions(earlier)
    before = _conditions.set(conditions)
    try:
        yield conditions
    finally:
        _conditions.reset(before)
