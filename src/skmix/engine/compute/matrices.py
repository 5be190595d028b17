"""Batches of small matrices in compiled code: a vector holds the same number of several matrices."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

from . import simd
from .arrays import TINY
from .native import jit
from .simd import LANES, add, bits, each, fma, load, multiply, of_bits, splat, store, subtract
from .translation import inner


@jit
def eliminate(matrices, singular, whiteners, units, pivots, positive, inflation, memory):
    """Factor symmetric matrices (B, M, M) as `whiten_batch` does, without extended precision.

    Writes whiteners (B, M, M), the units (B, M) and pivots (M, B) of the scaled matrices, which matrices (B,)
    are positive definite, and the largest variance inflation (B,) of each. Memory: 2M² + M + 1 vectors.
    """
    n_matrices, n_features, _ = matrices.shape
    size = n_features**2 * LANES
    rest, inverse, roots = memory[:size], memory[size : 2 * size], memory[2 * size : 2 * size + LANES]
    least = memory[2 * size + LANES :]
    for b in range(0, n_matrices, LANES):
        for lane in range(LANES):
            own = min(b + lane, n_matrices - 1)
            proper = True
            for i in range(n_features):
                proper &= 0.0 < matrices[own, i, i] < math.inf
            positive[own] = proper
            for i in range(n_features):
                power = 1
                if proper:
                    # The bits of a number hold its power of two, unless it is too small for that.
                    variance = matrices[own, i, i]
                    power = (bits(variance) >> 52) - 1022
                    if variance < TINY:
                        power = (bits(variance * 2.0**64) >> 52) - 1022 - 64
                units[own, i] = of_bits((1023 - power // 2) << 52)
                for j in range(i + 1):
                    scaled = matrices[own, i, j] * units[own, i] * units[own, j] if proper else 1.0 * (i == j)
                    rest[(i * n_features + j) * LANES + lane] = scaled
                least[i * LANES + lane] = singular * abs(rest[(i * n_features + i) * LANES + lane])
        for k in range(0, len(inverse), LANES):
            store(inverse, k, splat(0.0))
        for j in range(n_features):
            for lane in range(LANES):
                pivot = rest[(j * n_features + j) * LANES + lane]
                good = pivot > least[j * LANES + lane]
                pivot = pivot if good else 1.0
                roots[lane] = 1.0 / math.sqrt(pivot)
                if b + lane < n_matrices:
                    positive[b + lane] &= good
                    pivots[j, b + lane] = pivot
            root, row = load(roots, 0), j * n_features * LANES
            store(inverse, row + j * LANES, splat(1.0))
            for k in range(row, row + (j + 1) * LANES, LANES):
                store(inverse, k, multiply(load(inverse, k), root))
            for i in range(j + 1, n_features):
                below = i * n_features * LANES
                column = multiply(load(rest, below + j * LANES), root)
                store(rest, below + j * LANES, column)
                for k in range(j + 1, i + 1):
                    product = multiply(column, load(rest, (k * n_features + j) * LANES))
                    store(rest, below + k * LANES, subtract(load(rest, below + k * LANES), product))
                for k in range(0, (j + 1) * LANES, LANES):
                    product = multiply(column, load(inverse, row + k))
                    store(inverse, below + k, subtract(load(inverse, below + k), product))
        for lane in range(min(LANES, n_matrices - b)):
            own, largest = b + lane, 0.0
            for j in range(n_features):
                length = 0.0
                for i in range(j, n_features):
                    number = inverse[(i * n_features + j) * LANES + lane]
                    length += number * number
                    whiteners[own, i, j] = number * units[own, j]
                variance = matrices[own, j, j] * units[own, j] * units[own, j]
                largest = max(largest, length * variance)
            inflation[own] = largest


@inner
def _factor_known_first(covariances, at, order, lower, roots):
    """Write the Cholesky factors of LANES matrices with rows and columns in that order (M,).

    The matrices (M, M, LANES) begin at covariances[at], `lower` is (M + 3, M, LANES), `roots` (M, LANES) are
    the reciprocals of its diagonal. Four rows are worked on at a time: each sum waits for its previous term.
    """
    n_features = len(order)
    row = n_features * LANES
    for i in range(n_features):
        for j in range(i + 1):
            place = at + (order[i] * n_features + order[j]) * LANES
            store(lower, i * row + j * LANES, load(covariances, place))
    for j in range(n_features):
        for i in range(j, n_features, 4):
            sums = [splat(0.0) for _ in each(4)]
            for k in range(0, j * LANES, LANES):
                own = load(lower, j * row + k)
                sums = [fma(own, load(lower, (i + n) * row + k), sums[n]) for n in each(4)]
            place = i * row + j * LANES
            rest = [subtract(load(lower, place + n * row), sums[n]) for n in each(4)]
            if i == j:
                store(roots, j * LANES, rest[0])
                for lane in range(j * LANES, (j + 1) * LANES):
                    roots[lane] = 1.0 / math.sqrt(max(roots[lane], TINY))
            root = load(roots, j * LANES)
            for n in each(4):
                store(lower, place + n * row, multiply(rest[n], root))


@jit
def complete_rows(
    x, first, orders, n_known, covariances, means, distances, logs, ahead, remaining, places, lower, roots,
    white,
):  # fmt: skip
    """Complete rows with gaps under vectors of LANES kernels; one or more vectors share a covariance.

    Rows x (n, M) are ordered by pattern; those of pattern p begin at first[p], first is (P + 1,). The first
    n_known[p] features in orders[p], (P, M), are known. Covariances are (F, M, M, LANES), means
    (G, M, LANES). Written are squared distances (n, G · LANES) of the known values, log-determinants
    (P, F · LANES) of their covariances, and, unless `ahead` (G · LANES, n, M) is empty, differences from the
    means with those expected at gaps. `remaining` holds, from places[p] on, the F · g · g · LANES numbers of
    the lower triangular roots of the covariances of the g missing values given the others. The memory `lower`
    (M + 3, M, LANES), `roots` and `white` (M, LANES) begins with zeros.
    """
    n_features = x.shape[1]
    n_factors, n_vectors = len(covariances) // (n_features**2 * LANES), distances.shape[1] // LANES
    shared, row, size = n_vectors // n_factors, n_features * LANES, n_features**2 * LANES
    for p in range(len(n_known)):
        known, order = n_known[p], orders[p]
        n_gaps = n_features - known
        for f in range(n_factors):
            _factor_known_first(covariances, f * size, order, lower, roots)
            log = splat(0.0)
            for i in range(known):
                log = subtract(log, simd.log(load(roots, i * LANES)))
            store(logs, (p * n_factors + f) * LANES, add(log, log))
            if len(ahead):
                for i in range(n_gaps):
                    for j in range(i + 1):
                        place = places[p] + ((f * n_gaps + i) * n_gaps + j) * LANES
                        own = load(lower, (known + i) * row + (known + j) * LANES)
                        store(remaining, place, own)
            for g in range(f * shared, (f + 1) * shared):
                for n in range(first[p], first[p + 1]):
                    length = splat(0.0)
                    for i in range(known):
                        found = splat(0.0)
                        for j in range(0, i * LANES, LANES):
                            found = fma(load(lower, i * row + j), load(white, j), found)
                        own = load(means, g * row + order[i] * LANES)
                        found = subtract(subtract(splat(x[n, order[i]]), own), found)
                        found = multiply(found, load(roots, i * LANES))
                        store(white, i * LANES, found)
                        length = fma(found, found, length)
                    store(distances, (n * n_vectors + g) * LANES, length)
                    if not len(ahead):
                        continue
                    for i in range(known, n_features):
                        found = splat(0.0)
                        for j in range(0, known * LANES, LANES):
                            found = fma(load(lower, i * row + j), load(white, j), found)
                        store(white, i * LANES, found)
                    for lane in range(LANES):
                        for i in range(known):
                            mean = means[g * row + order[i] * LANES + lane]
                            ahead[g * LANES + lane, n, order[i]] = x[n, order[i]] - mean
                        for i in range(known, n_features):
                            ahead[g * LANES + lane, n, order[i]] = white[i * LANES + lane]


@jit
def add_remaining(mass, orders, n_known, remaining, places, out):
    """Add mass (P, F · LANES) times the remaining covariances to `out` (F, M, M, LANES), lower triangles.

    See `complete_rows` for the others.
    """
    n_features, n_factors = orders.shape[1], mass.shape[1] // LANES
    for p in range(len(n_known)):
        known = n_known[p]
        n_gaps = n_features - known
        for f in range(n_factors):
            weight, own = load(mass, (p * n_factors + f) * LANES), places[p] + f * n_gaps**2 * LANES
            for i in range(n_gaps):
                for j in range(i + 1):
                    found = splat(0.0)
                    for k in range(j + 1):
                        one = load(remaining, own + (i * n_gaps + k) * LANES)
                        found = fma(one, load(remaining, own + (j * n_gaps + k) * LANES), found)
                    place = (f * n_features + orders[p, known + i]) * n_features + orders[p, known + j]
                    store(out, place * LANES, fma(weight, found, load(out, place * LANES)))
