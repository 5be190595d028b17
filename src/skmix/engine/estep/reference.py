"""The E-step, log-densities and passes of k-means in plain NumPy.

This is the definition: the compiled core is tested against it. It makes all passes where there is no core.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from ..exponentials import TILE, log_mix, padded
from ..records import FloatArray, IntArray, Statistics
from .inputs import HELD, Kernels, Rows, in_batches
from .terms import likelihood_alone, share, sum_moments


def expect(rows: Rows, kernels: Kernels, *, with_moments: bool = True) -> Statistics:
    """Do the E-step: return the statistics of all rows, with moments about the kernels' origins."""
    n_starts, n_kernels, n_features = kernels.means.shape
    # Rows are cut by the size of one start, so that the rounding of a start does not depend on the others.
    n_rows = max(1, len(rows.X))
    step = min(n_rows, max(TILE, HELD // (n_kernels * n_features)))
    together = max(1, HELD // (n_kernels * n_features * step))

    def of_starts(_: IntArray, some: Kernels) -> Statistics:
        parts = (_expect(rows, a, a + step, some, with_moments) for a in range(0, n_rows, step))
        return reduce(Statistics.plus, parts)

    statistics = in_batches(kernels, np.zeros(n_starts, dtype=bool), together, of_starts)
    # Distances that are not numbers count as far. The sums of a start with NaN among its parameters must not
    # pass for those of a fit.
    for array in (kernels.means, kernels.factor.whitener, kernels.constants, kernels.log_weights):
        statistics.log_likelihood[np.isnan(array.reshape(n_starts, -1)).any(axis=1)] = np.nan
    return statistics


def _expect(rows: Rows, a: int, b: int, kernels: Kernels, with_moments: bool) -> Statistics:
    """Do the E-step of rows a … b − 1."""
    x = rows.frame.rows(rows.X[a:b])
    codes = np.zeros(x.shape[1], dtype=np.int64) if rows.codes is None else rows.codes[a:b]
    weights = None if rows.weights is None else rows.weights[a:b]
    n_classes = kernels.log_weights.shape[-1]
    differences = x - kernels.means[..., None]
    # log N(x_n; μ_k, P_k), or that of a t kernel.
    values, precisions = _log_densities(differences, kernels)
    joint = values + kernels.log_weights[..., codes]
    log_likelihood, mass, shares = share(joint, codes, weights, n_classes)
    if not with_moments:
        return likelihood_alone(log_likelihood, kernels)
    if kernels.origins is not kernels.means:
        differences = x - kernels.origins[..., None]
    sums = sum_moments(differences.mT, shares, precisions, len(x), kernels)
    return Statistics(log_likelihood, mass, *sums)


def _log_densities(differences: FloatArray, kernels: Kernels) -> tuple[FloatArray, FloatArray | None]:
    """Return log-densities (R, K, n) of rows by their differences (R, K, M, n) from the means.

    Also return the rows' precisions (R, K, n) if the tail weights them.
    """
    distances = kernels.structure.distances(kernels.factor.whitener, differences)
    return kernels.tail.at_distances(distances, kernels.constants[..., None], differences.shape[-2])


def log_densities(rows: Rows, kernels: Kernels, weights: FloatArray | None) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), under one start, or their mixtures (N, L) by weights (K, L).

    Rows are worked on in tiles of 64: their rounding depends on the size of products, not on other rows.
    """
    n_rows = len(rows.X)
    result = np.empty((n_rows, kernels.means.shape[1] if weights is None else weights.shape[1]))
    for a in range(0, n_rows, TILE):
        x = padded(rows.frame.rows(rows.X[a : a + TILE]))
        values = _log_densities(x - kernels.means[..., None], kernels)[0][0]
        tile = values if weights is None else log_mix(values, weights)
        result[a : a + TILE] = tile[:, : n_rows - a].T
    return result


def lloyd(rows: Rows, centres: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return sums (K, M + 1) over the rows nearest to each centre, and the nearest centre (N,) of each row.

    The sums are of the rows and of their weights.
    """
    n_kernels, n_features = centres.shape
    sums, nearest = np.zeros((n_kernels, n_features + 1)), np.empty(len(rows.X), dtype=np.int64)
    halves, step = 0.5 * np.vecdot(centres, centres), max(1, HELD // n_kernels)
    for a in range(0, len(rows.X), step):
        x = rows.frame.rows(rows.X[a : a + step]).T
        # ‖x − c‖² = ‖x‖² − 2 (x · c − ½ ‖c‖²)
        nearest[a : a + step] = np.argmax(x @ centres.T - halves, axis=1)
        weights = np.ones(len(x)) if rows.weights is None else rows.weights[a : a + step]
        values = np.column_stack([x, np.ones(len(x))]) * weights[:, None]
        sums += (nearest[a : a + step] == np.arange(n_kernels)[:, None]).astype(np.float64) @ values
    return sums, nearest
