"""Batches of small matrices in compiled code: a vector holds the same number of several matrices."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from .simd import LANES, compiled, load, multiply, splat, store, subtract

_SMALLEST = float(np.finfo(np.float64).tiny)  # smallest normal number


@compiled
def normalise(second, places, mass, offset, prior, rows, ridge, out):
    """Write covariances (B, M · M) from second moments (B, S), as `Structure.update` does.

    The entries of a matrix are at `places` (M · M,) among its moments. `prior` (M · M,) is added to them,
    `rows` to the mass (B,), and `ridge` (M · M,) to the quotient.
    """
    n_matrices, order = offset.shape
    for b in range(n_matrices):
        for i in range(order):
            weighted = mass[b] * offset[b, i]
            for j in range(order):
                at = i * order + j
                out[b, at] = second[b, places[at]] - weighted * offset[b, j]
        divisor = mass[b] + rows
        for at in range(order * order):
            out[b, at] = (out[b, at] + prior[at]) / divisor + ridge[at]


@compiled
def eliminate(matrices, singular, whiteners, units, pivots, positive, inflation):
    """Factor symmetric matrices (B, M, M) as `whiten_batch` does, without extended precision.

    Writes whiteners (B, M, M), the units (B, M) and pivots (M, B) of the scaled matrices, which matrices (B,)
    are positive definite, and the largest variance inflation (B,) of each.
    """
    n_matrices, order, _ = matrices.shape
    rest, inverse = np.zeros(order * order * LANES), np.zeros(order * order * LANES)
    roots, least = np.empty(LANES), np.empty(order * LANES)
    bits, unit_bits = matrices.view(np.int64), units.view(np.int64)
    for b in range(0, n_matrices, LANES):
        for lane in range(LANES):
            own = min(b + lane, n_matrices - 1)
            proper = True
            for i in range(order):
                proper &= 0.0 < matrices[own, i, i] < math.inf
            positive[own] = proper
            for i in range(order):
                power = 1
                if proper:
                    # The bits of a number hold its power of two, unless it is too small for that.
                    power, variance = (bits[own, i, i] >> 52) - 1022, matrices[own, i, i]
                    if variance < _SMALLEST:
                        power = math.frexp(variance)[1]
                unit_bits[own, i] = (1023 - power // 2) << 52
                for j in range(i + 1):
                    scaled = matrices[own, i, j] * units[own, i] * units[own, j] if proper else 1.0 * (i == j)
                    rest[(i * order + j) * LANES + lane] = scaled
                least[i * LANES + lane] = singular * abs(rest[(i * order + i) * LANES + lane])
        inverse[:] = 0.0
        for j in range(order):
            for lane in range(LANES):
                pivot = rest[(j * order + j) * LANES + lane]
                good = pivot > least[j * LANES + lane]
                pivot = pivot if good else 1.0
                roots[lane] = 1.0 / math.sqrt(pivot)
                if b + lane < n_matrices:
                    positive[b + lane] &= good
                    pivots[j, b + lane] = pivot
            root, row = load(roots, 0), j * order * LANES
            store(inverse, row + j * LANES, splat(1.0))
            for k in range(row, row + (j + 1) * LANES, LANES):
                store(inverse, k, multiply(load(inverse, k), root))
            for i in range(j + 1, order):
                below = i * order * LANES
                column = multiply(load(rest, below + j * LANES), root)
                store(rest, below + j * LANES, column)
                for k in range(j + 1, i + 1):
                    product = multiply(column, load(rest, (k * order + j) * LANES))
                    store(rest, below + k * LANES, subtract(load(rest, below + k * LANES), product))
                for k in range(0, (j + 1) * LANES, LANES):
                    product = multiply(column, load(inverse, row + k))
                    store(inverse, below + k, subtract(load(inverse, below + k), product))
        for lane in range(min(LANES, n_matrices - b)):
            own, largest = b + lane, 0.0
            for j in range(order):
                length = 0.0
                for i in range(j, order):
                    number = inverse[(i * order + j) * LANES + lane]
                    length += number * number
                    whiteners[own, i, j] = number * units[own, j]
                variance = matrices[own, j, j] * units[own, j] * units[own, j]
                largest = max(largest, length * variance)
            inflation[own] = largest
