"""Sums of exponentials: logarithms of sums, shares, and mixtures, without overflow or underflow."""

from __future__ import annotations

import numpy as np

from .conditions import occurs
from .numbers import Array, FloatArray, is_numpy, like, namespace, take, where

# Logarithms of shares below which shares are zero, by type: subnormal numbers would be slow, and nothing
# needs them. In float64 this is 1e-200, as in the core.
LOWEST_LOG = {"float64": -460.0, "float32": -80.0}
# A sum of exponentials below this, relative to the largest of all, has lost terms that count to underflow.
LEAST_SUM = 1e-150
# Mass below this comes only from the lowest shares: the kernel or the weight is empty.
EMPTY_MASS = 1e-130
# Columns of a matrix product on the host: the rounding of a column depends on this size, not on the others.
TILE = 64


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
    if is_numpy(logs):
        np.putmask(logs, logs < lowest, -np.inf)
    else:
        logs.masked_fill_(logs < lowest, -np.inf)  # for which the host need not wait
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
    tiles = padded(logs).reshape(len(logs), -1, TILE).swapaxes(0, 1)
    mixed = _log_mix(tiles, weights).swapaxes(0, 1)
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


def padded(columns: FloatArray) -> FloatArray:
    """Return columns (K, n) with the last one repeated until their number is a multiple of 64."""
    n_more = -columns.shape[1] % TILE
    return np.concatenate([columns, columns[:, -1:].repeat(n_more, axis=1)], axis=1) if n_more else columns
