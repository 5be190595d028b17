"""Compiled elementwise loops of the study: NumPy would pass over arrays (K, M, N) for each operation.

The loops of the published arithmetic do the same operations in the same order as NumPy.
"""

# mypy: disable-error-code="no-untyped-def, misc"

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..engine.compute.native import jit


@jit
def deviate(rows, means, out):
    """Write rows (M, N) less each of the means (K, M) into out (K, M, N)."""
    n_kernels, n_features, n_rows = out.shape
    for k in range(n_kernels):
        for d in range(n_features):
            for n in range(n_rows):
                out[k, d, n] = rows[d, n] - means[k, d]


@jit
def exponents(projected, deviations, out):
    """Write −½ Σ_d projected · deviations, both (K, M, N), into out (K, N)."""
    n_kernels, n_features, n_rows = deviations.shape
    for k in range(n_kernels):
        for n in range(n_rows):
            out[k, n] = projected[k, 0, n] * deviations[k, 0, n]
        for d in range(1, n_features):
            for n in range(n_rows):
                out[k, n] += projected[k, d, n] * deviations[k, d, n]
        for n in range(n_rows):
            out[k, n] *= -0.5


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
def weigh(responsibilities, rows, means, deviations, weighted):
    """Write rows less the means, and the same times the responsibilities, both (K, M, N)."""
    n_kernels, n_features, n_rows = deviations.shape
    for k in range(n_kernels):
        for d in range(n_features):
            for n in range(n_rows):
                deviation = rows[d, n] - means[k, d]
                deviations[k, d, n] = deviation
                weighted[k, d, n] = responsibilities[k, n] * deviation


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
