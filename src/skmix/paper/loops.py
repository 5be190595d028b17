"""Compiled loops of the study: NumPy would pass over arrays (K, M, N) for each operation.

The loops of the published arithmetic do the same operations in the same order as NumPy and, in matrix
products, OpenBLAS on ARM: each product is added without rounding it first.
"""

# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine.compute.native import jit
from ..engine.compute.simd import LANES, Code, store
from ..engine.compute.translation import FLOAT, INT, Generated

FloatArray = NDArray[np.float64]
# Most rows whose products are summed before the sum is added to that of earlier rows.
_SUMMED = 320


def _quadratic(
    code: Code, rows: Any, at: Any, step: Any, means: Any, mean_at: Any, inverses: Any, inverse_at: Any,
    n_features: int,
) -> Any:  # fmt: skip
    """Return −½ (x − μ)ᵀ P⁻¹ (x − μ) of LANES rows x, unrolled over features."""
    build, ahead, total = code.builder, [], None
    for j in range(n_features):
        mean = code.broadcast(means, code.plus(mean_at, j))
        ahead.append(build.fsub(code.load(rows, at), mean))
        at = build.add(at, step)
    for i in range(n_features):
        found = code.splat(FLOAT(0.0))
        for j in range(n_features):
            factor = code.broadcast(inverses, code.plus(inverse_at, i * n_features + j))
            found = code.fma(factor, ahead[j], found)
        product = build.fmul(found, ahead[i])
        total = product if total is None else build.fadd(total, product)
    return build.fmul(total, code.splat(FLOAT(-0.5)))


_quadratic_of = Generated(lambda builder, *given: _quadratic(Code(builder), *given), literals=1)


def padded(x: FloatArray) -> FloatArray:
    """Return an array (m, n) with columns of zeros up to a multiple of LANES."""
    out = np.zeros((len(x), -(-x.shape[1] // LANES) * LANES))
    out[:, : x.shape[1]] = x
    return out


def exponents(rows: FloatArray, means: FloatArray, inverses: FloatArray) -> FloatArray:
    """Return −½ (x_n − μ_k)ᵀ P_k⁻¹ (x_n − μ_k) of rows (M, N), means (K, M) and inverses (K, M, M)."""
    n_rows = rows.shape[1]
    rows, *others = map(np.ascontiguousarray, (padded(rows) if n_rows % LANES else rows, means, inverses))
    out = np.empty((len(means), rows.shape[1]))
    _exponents(tuple(range(len(rows))), rows, *others, out)
    return out[:, :n_rows]


@jit
def _exponents(features, rows, means, inverses, out):
    n_features = len(features)
    n_kernels, n_rows = out.shape
    for k in range(n_kernels):
        for n in range(0, n_rows, LANES):
            at, inverse_at = k * n_features, k * n_features**2
            found = _quadratic_of(rows, n, n_rows, means, at, inverses, inverse_at, len(features))
            store(out, k * n_rows + n, found)


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
    n_kernels, n_rows = out.shape
    for k in range(n_kernels):
        for n in range(n_rows):
            own = responsibilities[k, n]
            out[k, n] = 0.0 if own < least[k] else own


def _products(
    code: Code, rows: Any, at: Any, weights: Any, weights_at: Any, means: Any, mean_at: Any, count: Any,
    out: Any, out_at: Any, n_features: int,
) -> None:  # fmt: skip
    """Add Σ_n r_n (x_n − μ) (x_n − μ)ᵀ to `out`, row after row, unrolled over features."""
    build, n_vectors = code.builder, -(-n_features // LANES)
    width = n_vectors * LANES
    # So many rows of sums fit into the registers.
    size = 12 // n_vectors if n_vectors < 4 else 2
    for first in range(0, n_features, size):
        cells = [(i, v) for i in range(first, min(first + size, n_features)) for v in range(n_vectors)]

        def terms(n: Any, cells: Any = cells) -> Any:
            row = build.add(at, build.mul(n, n.type(width)))
            weight, ahead = code.broadcast(weights, build.add(weights_at, n)), []
            for v in range(n_vectors):
                mean = code.load(means, code.plus(mean_at, v * LANES))
                ahead.append(build.fsub(code.load(rows, code.plus(row, v * LANES)), mean))
            weighted = [build.fmul(weight, each) for each in ahead]
            lanes = {i: build.extract_element(weighted[i // LANES], INT(i % LANES)) for i, _ in cells}
            return [lambda s, i=i, v=v: code.fma(code.splat(lanes[i]), ahead[v], s) for i, v in cells]

        found = code.sums(count, 1, [code.splat(FLOAT(0.0))] * len(cells), terms)
        for value, (i, v) in zip(found, cells, strict=True):
            place = code.plus(out_at, i * width + v * LANES)
            code.store(build.fadd(code.load(out, place), value), out, place)


_add_products = Generated(lambda builder, *given: _products(Code(builder), *given), literals=1)


def scatter(responsibilities: FloatArray, rows: FloatArray, means: FloatArray) -> FloatArray:
    """Return Σ_n r_kn (x_n − μ_k) (x_n − μ_k)ᵀ (K, M, M) of padded rows (N, W) about means (K, M)."""
    n_kernels, n_features = means.shape
    if n_features == 1:
        ahead = rows[:, 0] - means
        return (responsibilities * ahead)[:, None] @ ahead[:, :, None]
    out = np.zeros((n_kernels, n_features, rows.shape[1]))
    _scatter(tuple(range(n_features)), responsibilities, rows, padded(means), out)
    return out[:, :, :n_features]


@jit
def _scatter(features, responsibilities, rows, means, out):
    n_features = len(features)
    n_rows, width = rows.shape
    for k in range(len(out)):
        first = 0
        while first < n_rows:
            size = n_rows - first
            if size >= 2 * _SUMMED:
                size = _SUMMED
            elif size > _SUMMED:
                size = (size // 2 + 7) // 8 * 8
            _add_products(
                rows, first * width, responsibilities, k * n_rows + first, means, k * width, size, out,
                k * n_features * width, len(features),
            )  # fmt: skip
            first += size


@jit
def relative_logs(whitened, offsets, constants, out, highest):
    """Write log-densities (K, n) of whitened rows (K, M, n), less the highest (n,), which starts at −∞.

    `offsets` (K, M) are the whitened means, `constants` (K,) the log-densities at the means.
    """
    n_kernels, n_features, n_rows = whitened.shape
    for k in range(n_kernels):
        for n in range(n_rows):
            out[k, n] = 0.0
        for d in range(n_features):
            for n in range(n_rows):
                deviation = whitened[k, d, n] - offsets[k, d]
                out[k, n] += deviation * deviation
        for n in range(n_rows):
            out[k, n] = constants[k] - 0.5 * out[k, n]
            highest[n] = max(highest[n], out[k, n])
    for k in range(n_kernels):
        for n in range(n_rows):
            out[k, n] -= highest[n]


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
