"""Compiled loops of the study: NumPy would pass over arrays (K, M, N) for each operation.

The loops of the published arithmetic do the same operations in the same order as NumPy and, in matrix
products, OpenBLAS on ARM: each product is added without rounding it first.
"""

# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.compute import simd
from ..engine.compute.native import jit
from ..engine.compute.simd import LANES, add, dot, each, fma, larger, load, multiply, splat, store, subtract
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


@jit
def normalise(joint, normalisers, weights, sizes, evidence):
    """Turn exponentials (R, K, N) into responsibilities; write the rows' densities to evidence (R, N)."""
    n_runs, n_kernels, n_classes = weights.shape
    for r in range(n_runs):
        for n in range(joint.shape[2]):
            evidence[r, n] = 0.0
        for k in range(n_kernels):
            a = 0
            for c in range(n_classes):
                for n in range(a, a + sizes[c]):
                    joint[r, k, n] = joint[r, k, n] / normalisers[r, k] * weights[r, k, c]
                    evidence[r, n] += joint[r, k, n]
                a += sizes[c]
        for k in range(n_kernels):
            for n in range(joint.shape[2]):
                joint[r, k, n] /= evidence[r, n]


@jit
def leave_out(responsibilities, least, out):
    """Write responsibilities (K, N) to `out`, with zeros instead of those below the least (K,)."""
    for k in range(len(out)):
        for n in range(out.shape[1]):
            own = responsibilities[k, n]
            out[k, n] = 0.0 if own < least[k] else own


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


@jit
def relative_densities(features, whiteners, offsets, constants, out, highest):
    """Write densities (K, N) of rows, relative to those with the highest logarithm (N,), for M features (N,).

    Whiteners (K, M, M) are lower triangles, the whitened means `offsets` (K, M), and the log-densities there
    `constants` (K,). N is a multiple of LANES.
    """
    for n in range(0, len(highest), LANES):
        x, high = [load(own, n) for own in features], splat(-math.inf)
        for k in range(len(out)):
            length = splat(0.0)
            for i in each(len(features)):
                white = dot([splat(whiteners[k, i, j]) for j in each(i + 1)], [x[j] for j in each(i + 1)])
                ahead = subtract(white, splat(offsets[k, i]))
                length = add(length, multiply(ahead, ahead))
            log = subtract(splat(constants[k]), multiply(splat(0.5), length))
            store(out[k], n, log)
            high = larger(log, high)
        store(highest, n, high)
        for k in range(len(out)):
            store(out[k], n, simd.exp(subtract(load(out[k], n), high)))


def decide(
    likelihoods: NDArray[np.float64], least: float, close: float
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the class (n,) with the largest product of likelihoods (S, L, n) over S feature sets.

    Likelihoods below `least` are raised to it. Also return which rows are doubtful: a likelihood of the
    winner was raised, or another product is within a relative distance `close` of the winner's.
    """
    best = np.zeros(likelihoods.shape[-1])
    winners, doubtful = np.zeros(len(best), dtype=np.int64), np.zeros(len(best), dtype=bool)
    _decide(likelihoods, least, close, best, winners, doubtful)
    return winners, doubtful


@jit
def _decide(likelihoods, least, close, best, winners, doubtful):
    n_sets, n_classes, n_rows = likelihoods.shape
    for c in range(n_classes):
        for n in range(n_rows):
            product, low = 1.0, False
            for s in range(n_sets):
                low |= likelihoods[s, c, n] < least
                product *= max(likelihoods[s, c, n], least)
            if product > best[n]:
                doubtful[n] = low or product * (1.0 - close) < best[n]
                best[n], winners[n] = product, c
            elif product > best[n] * (1.0 - close):
                doubtful[n] = True
