"""Batches of small matrices in compiled code: a vector holds the same number of several matrices."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from .simd import LANES, compiled, load, multiply, splat, store, subtract


@compiled
def eliminate(matrices, units, singular, whiteners, pivots, positive, inflation):
    """Factor symmetric matrices (B, M, M), times units (B, M) on both sides, as `_eliminate` does.

    Writes whiteners (B, M, M) of the matrices themselves, pivots (M, B), which matrices (B,) are positive
    definite, and the largest variance inflation (B,) of each.
    """
    n_matrices, order, _ = matrices.shape
    rest, inverse = np.zeros(order * order * LANES), np.zeros(order * order * LANES)
    roots, least = np.empty(LANES), np.empty(order * LANES)
    for b in range(0, n_matrices, LANES):
        for lane in range(LANES):
            own = min(b + lane, n_matrices - 1)
            for i in range(order):
                for j in range(i + 1):
                    scaled = matrices[own, i, j] * units[own, i] * units[own, j]
                    rest[(i * order + j) * LANES + lane] = scaled
                least[i * LANES + lane] = singular * abs(rest[(i * order + i) * LANES + lane])
        inverse[:] = 0.0
        for lane in range(min(LANES, n_matrices - b)):
            positive[b + lane] = True
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
                largest = max(largest, length * matrices[own, j, j] * units[own, j] ** 2)
            inflation[own] = largest
