"""Compiled loops of the published arithmetic: NumPy would pass over arrays (K, M, N) for each operation.

They do the same operations in the same order as NumPy and, in matrix products, OpenBLAS on ARM: each product
is added without rounding it first.
"""

# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.compute.native import jit
from ..engine.compute.simd import LANES, add, dot, each, fma, load, multiply, splat, store, subtract
from ..engine.compute.translation import Generated, inner

FloatArray = NDArray[np.float64]
# Most rows whose products are summed before the sum is added to that of earlier rows.
_SUMMED = 320
_number: Any = Generated(lambda builder, vector, lane: builder.extract_element(vector, lane))


def padded(x: FloatArray) -> FloatArray:
    """Return an array (m, n) with columns of zeros up to a multiple of LANES."""
    out = np.zeros((len(x), -(-x.shape[1] // LANES) * LANES))
    out[:, : x.shape[1]] = x
    return out


@jit
def exponents(features, means, inverses, out):
    """Write −½ (x_n − μ_k)ᵀ P_k⁻¹ (x_n − μ_k) into out (K, N).

    Arguments are a tuple of M features (N,), means (K, M), inverses (K, M, M); N is a multiple of LANES.
    """
    for k in range(len(out)):
        for n in range(0, out.shape[1], LANES):
            ahead = [subtract(load(features[j], n), splat(means[k, j])) for j in each(len(features))]
            total = splat(0.0)
            for i in each(len(features)):
                projected = dot([splat(inverses[k, i, j]) for j in each(len(features))], ahead)
                total = add(total, multiply(projected, ahead[i]))
            store(out[k], n, multiply(total, splat(-0.5)))


def scatter(responsibilities: FloatArray, rows: FloatArray, means: FloatArray) -> FloatArray:
    """Return Σ_n r_kn (x_n − μ_k) (x_n − μ_k)ᵀ, (R, K, M, M), of rows (M, N) about means (R, K, M)."""
    *shape, n_features = means.shape
    if n_features == 1:
        ahead = rows[0] - means
        return (responsibilities * ahead)[:, :, None] @ ahead[:, :, :, None]
    rows, means = padded(rows.T), padded(means.reshape(-1, n_features))
    out = np.zeros((len(means), n_features, means.shape[1]))
    _scatter(tuple(range(n_features)), responsibilities.reshape(-1, len(rows)), rows, means, out)
    return out[:, :, :n_features].reshape(*shape, n_features, n_features)


@jit
def _scatter(features, responsibilities, rows, means, out):
    for k in range(len(out)):
        first = 0
        while first < len(rows):
            size = len(rows) - first
            if size >= 2 * _SUMMED:
                size = _SUMMED
            elif size > _SUMMED:
                size = (size // 2 + 7) // 8 * 8
            for part in _parts(len(features)):
                _add_products(responsibilities[k], rows, means[k], first, first + size, out[k], part)
            first += size


def _parts(n_features: int) -> list[list[tuple[int, int, int]]]:
    """Return the sums of a kernel in parts that fit into the registers: number, feature and vector."""
    n_vectors = -(-n_features // LANES)
    sums = [(i, v) for i in range(n_features) for v in range(n_vectors)]
    size = 12 if n_vectors < 4 else 2 * n_vectors
    parts = [sums[a : a + size] for a in range(0, len(sums), size)]
    return [[(n, *own) for n, own in enumerate(part)] for part in parts]


@inner
def _add_products(weights, rows, mean, first, last, out, part):
    sums = [splat(0.0) for _ in part]
    for r in range(first, last):
        ahead = [subtract(load(rows[r], v * LANES), load(mean, v * LANES)) for v in each(part[-1][2] + 1)]
        weighted = [multiply(splat(weights[r]), own) for own in ahead]
        sums = [fma(splat(_number(weighted[i // LANES], i % LANES)), ahead[v], sums[n]) for n, i, v in part]
    for n, i, v in part:
        store(out[i], v * LANES, add(load(out[i], v * LANES), sums[n]))
