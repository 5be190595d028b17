"""Compiled elementwise loops of the study: NumPy would pass over arrays (K, M, N) for each operation.

The loops of the published arithmetic do the same operations in the same order as NumPy.
"""

# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

import math

import numpy as np
from numba import njit

compiled = njit(nogil=True, error_model="numpy", cache=True)
# Rows at a time, of which all features stay in a core's first-level cache.
_BLOCK = 256
# Logarithm of a density that is negligible beside the highest: below `methods._UNDERFLOW`.
_FAR = -300.0


@njit(nogil=True, error_model="numpy", cache=True, fastmath={"contract"})
def _project(n_rows, row, deviations, out):
    """Write a row (M,) of an inverse times deviations (M, ≥ n): the features in order, as BLAS adds them."""
    n_features, first = len(row), deviations[0]
    for n in range(n_rows):
        out[n] = row[0] * first[n]
    done = 1
    while done + 4 <= n_features:
        a, b, c, d = row[done], row[done + 1], row[done + 2], row[done + 3]
        p, q, r, s = deviations[done], deviations[done + 1], deviations[done + 2], deviations[done + 3]
        for n in range(n_rows):
            out[n] = d * s[n] + (c * r[n] + (b * q[n] + (a * p[n] + out[n])))
        done += 4
    while done < n_features:
        a, p = row[done], deviations[done]
        for n in range(n_rows):
            out[n] = a * p[n] + out[n]
        done += 1


@compiled
def exponents(rows, means, inverses, out):
    """Write −½ (x_n − μ_k)ᵀ P_k⁻¹ (x_n − μ_k) of rows (M, N), means (K, M) and inverses into out (K, N)."""
    n_kernels, n_features = means.shape
    deviations, projected, total = np.empty((n_features, _BLOCK)), np.empty(_BLOCK), np.empty(_BLOCK)
    for begin in range(0, rows.shape[1], _BLOCK):
        n_rows = min(_BLOCK, rows.shape[1] - begin)
        for k in range(n_kernels):
            for d in range(n_features):
                own, row, mean = deviations[d], rows[d, begin:], means[k, d]
                for n in range(n_rows):
                    own[n] = row[n] - mean
            total[:] = 0.0
            for d in range(n_features):
                _project(n_rows, inverses[k, d], deviations, projected)
                own = deviations[d]
                for n in range(n_rows):
                    total[n] += projected[n] * own[n]
            written = out[k, begin:]
            for n in range(n_rows):
                written[n] = -0.5 * total[n]


@compiled
def normalise(joint, normalisers, weights, sizes, evidence):
    """Turn exponentials (R, K, N) into responsibilities; write the rows' densities to evidence (R, N)."""
    n_runs, n_kernels, n_classes = weights.shape
    evidence[:] = 0.0
    for r in range(n_runs):
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


@compiled
def weigh(responsibilities, rows, means, deviations, weighted):
    """Write rows less the means, and the same times the responsibilities, both (K, M, N)."""
    n_kernels, n_features, n_rows = deviations.shape
    for k in range(n_kernels):
        for d in range(n_features):
            for n in range(n_rows):
                deviation = rows[d, n] - means[k, d]
                deviations[k, d, n] = deviation
                weighted[k, d, n] = responsibilities[k, n] * deviation


@compiled
def relative_densities(whitened, offsets, constants, out, highest):
    """Write densities (K, n) of whitened rows (K, M, n), relative to the highest of a row.

    `highest` (n,) are the logarithms of these, −∞ before; `offsets` (K, M) are the whitened means, and
    `constants` (K,) the log-densities at the means.
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
            difference = out[k, n] - highest[n]
            out[k, n] = math.exp(difference) if difference > _FAR else 0.0


@compiled
def decide(likelihoods, least, close):
    """Return the class (n,) with the largest product of likelihoods (S, L, n) over S feature sets.

    Likelihoods below `least` are raised to it. Also return which rows are doubtful: a likelihood of the
    winner was raised, or another product is within a relative distance `close` of the winner's.
    """
    n_sets, n_classes, n_rows = likelihoods.shape
    winners, doubtful = np.zeros(n_rows, dtype=np.int64), np.zeros(n_rows, dtype=np.bool_)
    best = np.zeros(n_rows)
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
    return winners, doubtful
