"""The array API standard, and operations beyond it, here of NumPy arrays."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

import numpy as np
from scipy import special

# A NumPy array or a PyTorch tensor.
Array = Any
# From arrays to arrays, on one device.
Work = Callable[[list[Array]], list[Array]]

# Numbers in a chunk's expanded rows and joint densities: enough to keep a device busy in little memory.
CHUNK_ON_ACCELERATOR = 1 << 27
_CHUNK_ON_CPU = 1 << 20
# Logarithms relative to the largest are raised to this, since subnormal numbers are slow on CPUs.
_LOWEST_LOG = {"float64": -600.0, "float32": -80.0}


def is_numpy(array: Any) -> bool:
    """Return whether this is a NumPy array or scalar."""
    return isinstance(array, (np.ndarray, np.generic))


def namespace(array: Any) -> Any:
    """Return the functions for an array, by the names of the array API standard."""
    return _NUMPY if is_numpy(array) else _namespace(type(array), array)


# NumPy 2.0 lacks cumulative_sum, a function of the standard.
_NUMPY = np if hasattr(np, "cumulative_sum") else import_module("array_api_compat.numpy")
_namespaces: dict[type, Any] = {}


def _namespace(kind: type, array: Any) -> Any:
    if kind not in _namespaces:
        import array_api_compat as compat

        _namespaces[kind] = compat.array_namespace(array)
    return _namespaces[kind]


def device_of(array: Any) -> Any:
    """Return the device of an array; None for NumPy."""
    if is_numpy(array):
        return None
    from array_api_compat import device

    return device(array)


def exponentials(relative: Array) -> Array:
    """Return the exponentials of logarithms relative to the largest; very small ones are zero."""
    xp = namespace(relative)
    lowest = _LOWEST_LOG["float32" if relative.dtype == xp.float32 else "float64"]
    return xp.where(relative > lowest, xp.exp(xp.where(relative > lowest, relative, lowest)), 0.0)


class Operations:
    """Operations beyond the array API standard, of NumPy arrays."""

    chunk = _CHUNK_ON_CPU
    """Numbers in a chunk's expanded rows and joint densities."""

    def __init__(self, xp: Any, device: Any) -> None:
        self._xp, self.device = xp, device
        self._constant = lru_cache(maxsize=256)(
            lambda make, arguments: xp.asarray(make(*arguments), device=device)
        )
        # The constants used since `held` was set, by work that is captured.
        self.held: list[Array] | None = None

    def constant(self, make: Callable[..., np.ndarray], arguments: tuple[Any, ...]) -> Array:
        """Return the array ``make(*arguments)`` on the device, where it is cached."""
        found = self._constant(make, arguments)
        if self.held is not None:
            self.held.append(found)
        return found

    def from_numpy(self, values: np.ndarray, dtype: Any = None) -> Array:
        """Return values of the host on the device."""
        return self._xp.asarray(values, dtype=dtype, device=self.device)

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
        padding: int = 0,
    ) -> Array:
        """Return the terms of rows (n, M): in the frame, products of pairs, and indicators, (M + S + C, n).

        `scale` and `shift` (M,) are the frame, magnitudes are clipped to `farthest`, `pairs` (S,) are the
        features of each product. As many rows of zeros as `padding` tells follow the `indicators` (C, n).
        """
        xp = namespace(rows)
        x = xp.astype(rows, scale.dtype) * (1.0 / scale) - shift
        if math.isfinite(farthest):
            x = xp.clip(x, -farthest, farthest)
        x = xp.astype(x, dtype, copy=False).T
        products = xp.take(x, pairs[0], axis=0) * xp.take(x, pairs[1], axis=0)
        zeros = xp.zeros((padding, x.shape[1]), dtype=dtype, device=device_of(x))
        return xp.concat([x, products, *([] if indicators is None else [indicators]), zeros])

    def take(self, array: Array, index: Array, axis: int = 0) -> Array:
        """Index an axis by integers (q,), none of them negative."""
        return namespace(array).take(array, index, axis=axis)

    def clip(self, values: Array, lowest: float | None, highest: float | None) -> Array:
        """Return values between two numbers; NaN stays."""
        return namespace(values).clip(values, lowest, highest)

    def put(self, array: Array, index: Array, values: Array) -> Array:
        """Return the array (n, …) with new values (q, …) at places (q,); it may be overwritten."""
        xp, own = namespace(array), namespace(array).arange(array.shape[0], device=device_of(array))
        found = index[None, :] == own[:, None]
        moved = array.shape[0] + xp.argmax(xp.astype(found, xp.int8), axis=1)
        return xp.take(xp.concat([array, values]), xp.where(xp.any(found, axis=1), moved, own), axis=0)

    def distances(self, x: Array, means: Array, whiteners: Array) -> Array:
        """Return squared lengths (q, n) of W(x − μ), rows x (M, n), W (q, M, M) triangular or (q, M)."""
        parts = []
        for some in self._groups(x, means.shape[0]):
            difference, own = x[None, ...] - means[some, :, None], whiteners[some, ...]
            white = own @ difference if own.ndim == 3 else own[..., None] * difference
            parts.append(namespace(x).sum(white * white, axis=1))
        return namespace(x).concat(parts)

    def moments_about(self, x: Array, origins: Array, weights: Array) -> tuple[Array, Array]:
        """Return the weighted sums (q, M) of differences of rows x (M, n) from origins, and of their squares.

        Weights are (q, n).
        """
        xp, first, second = namespace(x), [], []
        for some in self._groups(x, origins.shape[0]):
            difference = x[None, ...] - origins[some, :, None]
            weighted = difference * weights[some, None, :]
            first.append(xp.sum(weighted, axis=-1))
            second.append(xp.sum(weighted * difference, axis=-1))
        return xp.concat(first), xp.concat(second)

    def _groups(self, x: Array, n_kernels: int) -> list[slice]:
        """Split kernels so that the differences of rows x (M, n) from their means fit in memory."""
        most = max(1, self.chunk // (x.shape[0] * x.shape[1]))
        return [slice(a, min(a + most, n_kernels)) for a in range(0, n_kernels, most)]

    def normalise(self, values: Array, offsets: Array, weights: Array | None) -> tuple[Array, Array, Array]:
        """Return responsibilities times weights (n,), log-sums (R, n), and sums (R, K) of the former.

        `values` (R, K, n) plus `offsets` (R, K) are the log-joints; they may be overwritten.
        """
        xp = namespace(values)
        values = values + offsets[..., None]
        largest = xp.max(values, axis=1, keepdims=True)
        joint = exponentials(values - largest)
        total = xp.sum(joint, axis=1, keepdims=True)
        shares = joint * ((1.0 if weights is None else weights) / total)
        mass = xp.sum(xp.astype(shares, xp.float64, copy=False), axis=-1)
        return shares, (xp.log(total) + largest)[:, 0, :], mass

    def draw_seeds(self, sample: Array, first: int, chances: Array) -> Array:
        """Return seeds (q + 1, M) of k-means++ among rows (n, M): the first, and one for each chance (q,).

        The host reads nothing, so that it need not wait for a device.
        """
        xp, n_rows = namespace(sample), sample.shape[0]
        seeds, nearest = [sample[first : first + 1, :]], xp.full_like(sample[:, 0], np.inf)
        for q in range(chances.shape[0]):
            nearest = xp.minimum(nearest, xp.sum((sample - seeds[-1]) ** 2, axis=1))
            cumulative = xp.cumulative_sum(nearest)
            place = xp.searchsorted(cumulative, chances[q : q + 1] * cumulative[-1:], side="right")
            # With fewer distinct rows than seeds all distances are zero, and the last row is repeated.
            seeds.append(xp.take(sample, xp.clip(place, 0, n_rows - 1), axis=0))
        return xp.concat(seeds)

    def cholesky(self, matrices: Array) -> tuple[Array, Array]:
        """Return lower Cholesky factors (B, M, M), and which (B,) exist; the others are undefined."""
        xp = namespace(matrices)
        try:
            lower = xp.linalg.cholesky(matrices)
        except Exception:
            # Some libraries raise for the whole batch when one matrix is singular.
            lower = xp.stack([_cholesky_or_nan(matrices[b, :, :]) for b in range(matrices.shape[0])])
        return lower, xp.all(xp.reshape(xp.isfinite(lower), (lower.shape[0], -1)), axis=1)

    def invert_lower(self, lower: Array) -> Array:
        """Return the inverses of lower triangular matrices (B, M, M)."""
        xp = namespace(lower)
        return xp.tril(xp.linalg.inv(lower))

    def raise_to_one(self, matrices: Array) -> Array:
        """Return symmetric matrices (B, M, M) with their eigenvalues below one raised to one."""
        xp = namespace(matrices)
        values, vectors = xp.linalg.eigh(matrices)
        values = xp.where(values > 1.0, values, 1.0)
        return (vectors * values[..., None, :]) @ xp.matrix_transpose(vectors)

    def spare_memory(self) -> int:
        """Return how many bytes of the device a fit may take to save time."""
        return 0

    def gammaln(self, array: Array) -> Array:
        """Return log Γ of positive numbers."""
        return special.gammaln(array)

    def digamma(self, array: Array) -> Array:
        """Return the derivative of log Γ."""
        return special.digamma(array)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error means that the device is out of memory."""
        return isinstance(error, MemoryError)

    def release(self) -> None:
        """Return cached memory to the device."""

    def capture(self, work: Work) -> Callable[[list[Array], Hashable], list[Array]]:
        """Return a faster version, for repeated calls with the same shapes, of work that never synchronises.

        It takes the arrays, and a key for everything else that the work depends on.
        """
        return lambda arrays, key: work(arrays)

    @contextmanager
    def precision(self, name: str) -> Iterator[None]:
        """Set the precision of float32 matrix products."""
        if name == "tf32":
            raise ValueError("TF32 needs PyTorch tensors on a CUDA device.")
        yield


def _cholesky_or_nan(matrix: Array) -> Array:
    try:
        return namespace(matrix).linalg.cholesky(matrix)
    except Exception:
        return matrix * math.nan


def physical_memory() -> float:
    """Return the bytes of the machine's memory; infinite where the system does not tell."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return math.inf
