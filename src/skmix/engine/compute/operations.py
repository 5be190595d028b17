"""The array API standard, and the operations beyond it that the engine needs of an array library."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

# An array of any library that follows the array API standard.
Array = Any
# From arrays to arrays, on one device.
Work = Callable[[list[Array]], list[Array]]

# Numbers in a chunk's expanded rows and joint densities: enough to keep a device busy in little memory.
CHUNK_ON_ACCELERATOR = 1 << 26
_CHUNK_ON_CPU = 1 << 20
# Logarithms relative to the largest are raised to this, since subnormal numbers are slow on CPUs.
_LOWEST_LOG = {"float64": -600.0, "float32": -80.0}


def is_numpy(array: Any) -> bool:
    """Return whether this is a NumPy array or scalar."""
    return isinstance(array, (np.ndarray, np.generic))


def namespace(array: Any) -> Any:
    """Return the functions for an array, by the names of the array API standard."""
    return np if is_numpy(array) else _namespace(type(array), array)


_namespaces: dict[type, Any] = {}


def _namespace(kind: type, array: Any) -> Any:
    if kind not in _namespaces:
        import array_api_compat as compat

        if compat.is_jax_array(array) and not _jax_has_float64():
            raise ValueError(
                "skmix needs float64, which JAX disables by default: call "
                "jax.config.update('jax_enable_x64', True) before creating X."
            )
        _namespaces[kind] = compat.array_namespace(array)
    return _namespaces[kind]


def _jax_has_float64() -> bool:
    import jax

    return bool(jax.dtypes.canonicalize_dtype(np.float64) == np.float64)


def device_of(array: Any) -> Any:
    """Return the device of an array; None for NumPy."""
    if is_numpy(array):
        return None
    from array_api_compat import device

    return device(array)


class Operations:
    """Operations beyond the array API standard, implemented with the standard alone."""

    chunk = _CHUNK_ON_CPU
    """Numbers in a chunk's expanded rows and joint densities."""

    def __init__(self, xp: Any, device: Any) -> None:
        self.device = device
        self.constant = lru_cache(maxsize=256)(
            lambda make, arguments: xp.asarray(make(*arguments), device=device)
        )

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
        """Return the terms (M + S + C, n) of rows (n, M): in the frame, products of pairs, and indicators.

        `scale` and `shift` (M,) are the frame, magnitudes are clipped to `farthest`, `pairs` (S,) are the
        features of each product, and `indicators` (C, n) of classes are a row of ones when None.
        """
        xp = namespace(rows)
        x = xp.astype(rows, scale.dtype) * (1.0 / scale) - shift
        if math.isfinite(farthest):
            x = xp.clip(x, -farthest, farthest)
        x = xp.astype(x, dtype, copy=False).T
        products = xp.take(x, pairs[0], axis=0) * xp.take(x, pairs[1], axis=0)
        return xp.concat([x, products, xp.ones_like(x[:1, :]) if indicators is None else indicators])

    def normalise(self, values: Array) -> tuple[Array, Array]:
        """Return responsibilities (R, K, n) and log-sums (R, n); may overwrite the log-joints (R, K, n)."""
        xp = namespace(values)
        largest = xp.max(values, axis=1, keepdims=True)
        relative = values - largest
        lowest = _LOWEST_LOG["float32" if values.dtype == xp.float32 else "float64"]
        joint = xp.exp(xp.where(relative > lowest, relative, lowest))
        total = xp.sum(joint, axis=1, keepdims=True)
        return joint / total, (xp.log(total) + largest)[:, 0, :]

    def cholesky(self, matrices: Array) -> tuple[Array, Array]:
        """Return lower Cholesky factors (B, M, M), and which (B,) exist; the others are the identity."""
        xp = namespace(matrices)
        try:
            lower = xp.linalg.cholesky(matrices)
        except Exception:
            # Some libraries raise for the whole batch when one matrix is singular.
            lower = xp.stack([_cholesky_or_nan(matrices[b, :, :]) for b in range(matrices.shape[0])])
        good = xp.all(xp.reshape(xp.isfinite(lower), (lower.shape[0], -1)), axis=1)
        eye = xp.eye(lower.shape[-1], dtype=lower.dtype, device=device_of(lower))
        return xp.where(good[:, None, None], lower, eye), good

    def invert_lower(self, lower: Array) -> Array:
        """Return the inverses of lower triangular matrices (B, M, M)."""
        xp = namespace(lower)
        return xp.tril(xp.linalg.inv(lower))

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error means that the device is out of memory."""
        return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)

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


class CupyOperations(Operations):
    """CuPy arrays on a CUDA device."""

    chunk = CHUNK_ON_ACCELERATOR

    def to_numpy(self, array: Array) -> np.ndarray:
        """Return the values on the host."""
        return np.asarray(array.get())

    def release(self) -> None:
        """Return cached memory to the device."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()


class JaxOperations(Operations):
    """JAX arrays."""

    def __init__(self, xp: Any, device: Any) -> None:
        super().__init__(xp, device)
        if getattr(device, "platform", "cpu") != "cpu":
            self.chunk = CHUNK_ON_ACCELERATOR

    def invert_lower(self, lower: Array) -> Array:
        """Return the inverses of lower triangular matrices (B, M, M)."""
        from jax.scipy.linalg import solve_triangular

        xp = namespace(lower)
        return solve_triangular(lower, xp.broadcast_to(xp.eye(lower.shape[-1]), lower.shape), lower=True)
