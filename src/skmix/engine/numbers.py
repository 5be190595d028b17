"""NumPy arrays and PyTorch tensors by one set of functions, and records of arrays.

`namespace` has the functions of the array API standard; the functions below are for what it lacks, or where a
direct call is faster. Arrays of any other library become NumPy arrays or tensors by `taken_in`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import special

from .._extras import how_to_install
from .measured import Measured, values_of

# A NumPy array or a PyTorch tensor.
Array = Any
FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Rows at a larger squared distance from a kernel count as this far from it: log-densities stay finite.
FARTHEST_SQUARED = 1e300
# Smallest normal number, and smallest usable variance.
TINY = float(np.finfo(np.float64).tiny)
# Sums of terms this much larger than their result keep an accuracy of about 1e-9 where products with rows are
# float64. Where they are not, errors of up to about 0.004 and 1 remain: better accuracy takes too long.
LARGEST_CANCELLATION = {"float64": 2.0**24, "float32": 2.0**18, "tf32": 2.0**13}
# Host arrays up to this length are kept on the device after they were sent.
_SHORT = 4096
# DLPack's numbers of the CPU, and of CPU memory that CUDA devices read too.
_ON_CPU = (1, 3)

Some = TypeVar("Some", bound="Record")


def is_numpy(array: Any) -> bool:
    """Whether this is a NumPy array or scalar, or rows with errors, which are of NumPy."""
    return isinstance(array, (np.ndarray, np.generic, Measured))


def is_device_array(value: Any) -> bool:
    """Whether this is an array in memory of a library other than NumPy, on the CPU or on a device."""
    if is_numpy(value):
        return False
    return all(hasattr(type(value), name) for name in ("__dlpack__", "__dlpack_device__", "shape", "dtype"))


def namespace(array: Array) -> Any:
    """The functions for an array, by the names of the array API standard."""
    return np if is_numpy(array) else _torch_namespace()


@lru_cache
def _torch_namespace() -> Any:
    from array_api_compat import torch

    return torch


def operations_of(tensor: Array) -> Any:
    """The `TorchOperations` of the device of a tensor."""
    return _torch_operations(tensor.device)


@lru_cache
def _torch_operations(device: Any) -> Any:
    from .tensors import TorchOperations

    return TorchOperations(device)


def send(X: np.ndarray, device: str) -> Array:
    """Copy rows (n, M) to the PyTorch device of that name."""
    return _torch_module(device).send(X, device)


def room_on(device: str) -> float:
    """Count the bytes of rows that the PyTorch device of that name has room for."""
    return float(_torch_module(device).room_on(device))


def _torch_module(device: str) -> Any:
    try:
        from . import tensors
    except ImportError as error:
        raise ImportError(
            f"device={device!r} needs PyTorch: {how_to_install('torch')}, or leave device out."
        ) from error
    return tensors


def taken_in(array: Any) -> Any:
    """Turn an array of another library into a NumPy array or, if it is on a device, into a PyTorch tensor.

    The result shares memory with the array where DLPack can. Tensors are detached from their autograd graph.
    """
    if any(kind.__module__.partition(".")[0] == "torch" for kind in type(array).__mro__):
        return array.detach() if array.requires_grad else array
    if array.__dlpack_device__()[0] in _ON_CPU:
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


def to_numpy(array: Array) -> np.ndarray:
    """Copy a tensor to the host, as a NumPy array; NumPy arrays are returned unchanged."""
    return array if is_numpy(array) else operations_of(array).to_numpy(array)


def on_host(value: Any) -> Any:
    """Copy an array of any other library to the host, as a NumPy array; other values are unchanged."""
    return to_numpy(taken_in(value)) if is_device_array(value) else value


def like(values: Array, example: Array, dtype: Any = None) -> Any:
    """Convert values, of NumPy or of the example's library, to that library and the example's device."""
    if is_numpy(example):
        return np.asarray(values, dtype=dtype)
    if is_numpy(values):
        return operations_of(example).from_numpy(values if values.flags.writeable else values.copy(), dtype)
    return values if dtype is None else values.to(example.device, dtype)


def as_float64(values: Array, example: Array) -> Array:
    """Convert values to float64, of the example's library and on its device."""
    return like(values, example, namespace(example).float64)


def constant(make: Callable[..., np.ndarray], *arguments: Any, example: Array) -> Any:
    """Call ``make(*arguments)`` and convert the array to the example's device, where it is kept."""
    return make(*arguments) if is_numpy(example) else operations_of(example).constant(make, arguments)


def sent_once(values: np.ndarray, example: Array) -> Any:
    """Convert a host array to the example's device; equal values are sent once, unless they are many."""
    if is_numpy(example) or len(values) > _SHORT:
        return like(values, example)
    return constant(_parse, values.tobytes(), values.dtype.str, values.shape, example=example)


def _parse(data: bytes, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()


def has_gaps(X: Array) -> bool:
    """Whether any value of X (N, M) is missing."""
    X, xp = values_of(X), namespace(X)
    return len(X) > 0 and bool(xp.isnan(xp.min(X)))  # a minimum is NaN if any of the values is


def pick(array: Array, index: Any) -> Any:
    """Index the first axis by a slice, an integer, None, a mask or integers."""
    if is_numpy(array):
        if type(array) is type(index) is np.ndarray and index.dtype.kind == "i" and array.flags.c_contiguous:
            return array.take(index, axis=0)  # several times as fast
        return array[index]
    if index is None or isinstance(index, (slice, int, np.integer)):
        return array[int(index) if isinstance(index, np.integer) else index, ...]
    return take(array, _places(index, array), axis=0)


def take(array: Array, index: Any, axis: int) -> Any:
    """Index an axis by integers (q,) of the array's library; none of them may be negative."""
    return array.take(index, axis=axis) if is_numpy(array) else array.index_select(axis, index)


def replaced(array: Array, index: Any, values: Array) -> Any:
    """Copy an array, with new values along the first axis at a mask or integers."""
    if is_numpy(array):
        array = array.copy()
        array[index] = to_numpy(values)
        return array
    return array.index_copy(0, _places(index, array), values)


def _places(index: Any, example: Array) -> Any:
    """Convert a mask or integers to integers on the example's device."""
    if is_device_array(index):
        return index
    index = np.asarray(index)
    return sent_once(np.flatnonzero(index) if index.dtype == bool else index.astype(np.int64), example)


def clip(values: Array, lowest: float, highest: float) -> Any:
    """Clip values to a range; NaN stays."""
    # Some versions of the common namespace make the host wait.
    return values.clip(lowest, highest) if is_numpy(values) else values.clamp(lowest, highest)


def where(condition: Array, one: Any, other: Any) -> Any:
    """Choose `one` where a condition holds and `other` elsewhere: float64 arrays, or one number for all."""
    if is_numpy(condition):
        return np.where(condition, one, other)
    # A number that was sent before costs no copy.
    one, other = (
        constant(np.array, value, example=condition) if isinstance(value, float) else value
        for value in (one, other)
    )
    return namespace(condition).where(condition, one, other)


def safe_log(values: FloatArray) -> FloatArray:
    """Logarithms, −∞ for zero."""
    with np.errstate(divide="ignore"):
        return np.log(values)


def gammaln(array: Array) -> Any:
    """Log Γ of positive numbers."""
    return special.gammaln(array) if is_numpy(array) else namespace(array).special.gammaln(array)


def digamma(array: Array) -> Any:
    """The derivative of log Γ."""
    return special.digamma(array) if is_numpy(array) else namespace(array).special.digamma(array)


def trigamma(array: Array) -> Any:
    """The second derivative of log Γ of positive numbers, to twelve digits, far faster than SciPy's."""
    # ψ'(x) = ψ'(x + 1) + 1 / x², and far from zero it has an asymptotic series.
    total, x = 0.0, array
    for _ in range(8):
        total, x = total + 1.0 / (x * x), x + 1.0
    y = 1.0 / (x * x)
    series = 1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * (5 / 66))))
    return total + (1.0 + y * series) / x + 0.5 * y


class Record:
    """A frozen dataclass of arrays, tuples of arrays, or records, with a common first axis."""

    def _combine(self, function: Callable[..., Any], *others: Record) -> Self:
        """Apply a function to the arrays of this record and of others of its kind; other fields stay."""

        def combined(value: Any, *rest: Any) -> Any:
            if isinstance(value, np.ndarray):
                return function(value, *rest)
            if isinstance(value, Record):
                return value._combine(function, *rest)
            if isinstance(value, tuple):
                return tuple(map(combined, value, *rest))
            is_array = hasattr(value, "ndim") and not isinstance(value, float)
            return function(value, *rest) if is_array else value

        fields = [vars(record).values() for record in (self, *others)]
        return type(self)(*map(combined, *fields))

    def map(self, function: Callable[[Array], Array]) -> Self:
        """Apply a function to each array."""
        return self._combine(function)

    def take(self, index: Any) -> Self:
        """Select starts along the first axis; see `pick`."""
        return self._combine(lambda array: pick(array, index))

    def put(self, index: Any, other: Self) -> Self:
        """Copy this record, with the starts that `index` selects replaced."""
        return self._combine(lambda array, values: replaced(array, index, values), other)


def join(records: Sequence[Some]) -> Some:
    """Concatenate records along the first axis."""
    return records[0]._combine(lambda *parts: namespace(parts[0]).concat(list(parts)), *records[1:])
