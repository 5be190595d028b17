"""Densities, responsibilities, imputation and sampling under one fitted model.

The result for a row does not depend on the other rows of the call, to the last bit, unless the number of rows
decides whether compiled code is worth loading.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from .compute.arrays import like, namespace, safe_log
from .compute.threads import Workers, workers
from .estep.completion import conditional
from .estep.gaps import group_rows, marginal
from .estep.terms import log_sum as log_sum
from .model import FloatArray, IntArray, Parameters
from .rules.likelihood import all_weights
from .sources import open_array
from .structures import Structure, structure_of

# Largest array of values predicted by all kernels.
_CHUNK = 1 << 20
# Numbers in the matrices of a row up to which products are too small for BLAS to use threads: limiting them
# would take as long as the row.
_SMALL = 1 << 10


def log_normalise(log_joint: FloatArray) -> FloatArray:
    """Return log-probabilities (n, m) from log-joints (n, m).

    The largest is subtracted first: next to log-joints of 1e16 the log of the sum would be rounded away.
    """
    xp = namespace(log_joint)
    relative = log_joint - xp.max(log_joint, axis=1, keepdims=True)
    return relative - xp.log(xp.sum(xp.exp(relative), axis=1, keepdims=True))


def evaluate(
    X: np.ndarray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Return log-densities of kernels, shape (N, K), or of mixtures with weights (K, L); see `ArrayRows`."""
    rows, structure = open_array(X), structure_of(covariance_type)
    rows.check_covered(parameters, structure)
    if X.shape[0] == 1 and max(X.shape[1] ** 2, math.prod(parameters.weights.shape)) <= _SMALL:
        return rows.log_densities(parameters, structure, Workers(1), weights)
    with workers(n_jobs) as pool:
        return rows.log_densities(parameters, structure, pool, weights)


def kernel_log_densities(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return the kernels' log-densities, shape (N, K)."""
    return evaluate(X, parameters, covariance_type, n_jobs)


def class_log_likelihood(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    mixed = evaluate(X, parameters, covariance_type, n_jobs, parameters.weights)
    return parameters.tail.mix(mixed, X)


def all_log_densities(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return the kernels' log-densities (N, K), or (N, K + 1) with that of the background last."""
    found = evaluate(X, parameters, covariance_type, n_jobs)
    if not parameters.tail.n_extra:
        return found
    return np.concatenate([found, parameters.tail.log_densities(X)], axis=1)


def all_log_weights(parameters: Parameters) -> FloatArray:
    """Return the log-weights (K, L), or (K + 1, L), that belong to `all_log_densities`."""
    return safe_log(all_weights(parameters))


def log_responsibilities(
    X: np.ndarray,
    classes: IntArray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int = 1,
) -> FloatArray:
    """Return the logarithms of w_nk given each row's class (N,), shape (N, K). Equation (E)."""
    densities = all_log_densities(X, parameters, covariance_type, n_jobs)
    found = log_normalise(densities + like(all_log_weights(parameters).T[classes], densities))
    return found[:, : parameters.means.shape[0]]


def most_likely_kernel(X: np.ndarray, parameters: Parameters, covariance_type: str) -> IntArray:
    """Return the kernel of largest responsibility (N,) under the first class."""
    joint = evaluate(X, parameters, covariance_type, 1) + safe_log(parameters.weights[:, 0])
    return joint.argmax(axis=1)


def averaged_log_responsibilities(
    X: np.ndarray, log_posterior: FloatArray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log-responsibilities (N, K), averaged over classes whose log-probabilities (N, L) are given.

    They stay finite where a responsibility underflows.
    """
    densities = all_log_densities(X, parameters, covariance_type, n_jobs)
    per_class = class_log_likelihood(X, parameters, covariance_type, n_jobs)
    log_weights = like(all_log_weights(parameters), densities)
    xp = namespace(densities)
    averaged = xp.full_like(densities, -np.inf)
    for c in range(per_class.shape[1]):
        own = densities + log_weights[:, c] - per_class[:, c, None] + log_posterior[:, c, None]
        averaged = xp.logaddexp(averaged, own)
    return log_normalise(averaged)[:, : parameters.means.shape[0]]


def condition(
    parameters: Parameters, covariance_type: str, columns: IntArray, values: FloatArray
) -> Parameters:
    """Return the model of the other features, in increasing order, given `values` (O,) of `columns` (O,).

    Weights are each class's responsibilities for the known values; class priors are left to the caller. A t
    kernel is wider the farther the values are from its mean, so that tied scale matrices become full ones.
    """
    n_features, n_classes = parameters.means.shape[1], parameters.weights.shape[1]
    rows = np.full((n_classes, n_features), np.nan)
    rows[:, columns] = values
    weights = np.exp(log_responsibilities(rows, np.arange(n_classes), parameters, covariance_type)).T
    structure = structure_of(covariance_type)
    slopes, covariances = conditional(structure, parameters.covariances[None], columns, n_features)
    gaps = np.setdiff1d(np.arange(n_features), columns)
    deviation = values - parameters.means[:, columns]
    means = parameters.means[:, gaps] + (slopes[0] @ deviation[..., None])[..., 0]
    if parameters.tail.weighted:
        scales = _scales(values[None], columns, parameters, structure)[0]
        covariances = structure.widened(covariances, scales)
    weights, tail = parameters.tail.conditional(weights, parameters.weights, columns, gaps)
    return Parameters(weights, means, covariances[0], tail=tail)


def _scales(
    values: FloatArray, columns: IntArray, parameters: Parameters, structure: Structure
) -> FloatArray:
    """Return the factors (n, K) of the kernels' covariances given values (n, O) of `columns` (O,)."""
    if not (len(columns) and parameters.tail.weighted):
        return np.ones((len(values), len(parameters.means)))
    part = marginal(parameters, columns, structure)
    whitener = structure.factor(part.covariances[None], len(columns)).whitener
    distances = structure.distances(whitener, values.T - part.means[None, ..., None])[0].T
    return parameters.tail.widening(distances, len(columns))


def _incomplete(
    X: np.ndarray, parameters: Parameters, covariance_type: str
) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]]:
    """Yield for each pattern of gaps: rows, known columns, gaps, slopes (K, G, O), remaining covariances."""
    structure = structure_of(covariance_type)
    n_kernels, n_features = parameters.means.shape
    for index, columns in group_rows(X):
        if len(columns) == n_features:
            continue
        gaps = np.setdiff1d(np.arange(n_features), columns)
        slopes, covariances = conditional(structure, parameters.covariances[None], columns, n_features)
        slopes = np.broadcast_to(slopes[0], (n_kernels, len(gaps), len(columns)))
        yield index, columns, gaps, slopes, covariances


def fill_means(
    X: np.ndarray, responsibilities: FloatArray, parameters: Parameters, covariance_type: str
) -> FloatArray:
    """Return rows X (N, M) with the conditional means of their missing values, which are NaN.

    `responsibilities` (N, K) are those given the observed values, without that of a background.
    """
    filled = X.astype(np.float64)
    left = 1.0 - responsibilities.sum(axis=1)
    step = max(1, _CHUNK // parameters.means.size)
    for index, columns, gaps, slopes, _ in _incomplete(X, parameters, covariance_type):
        for start in range(0, len(index), step):
            rows = index[start : start + step]
            deviation = filled[np.ix_(rows, columns)] - parameters.means[:, None, columns]
            predicted = parameters.means[:, None, gaps] + deviation @ np.swapaxes(slopes, 1, 2)
            found = np.einsum("nk,knd->nd", responsibilities[rows], predicted)
            filled[np.ix_(rows, gaps)] = parameters.tail.expected(found, left[rows], gaps)
    return filled


def draw_missing(
    X: np.ndarray,
    kernels: IntArray,
    parameters: Parameters,
    covariance_type: str,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Return C copies (C, N, M) of rows X (N, M) whose missing values, NaN, are drawn.

    `kernels` (C, N) is the kernel of each row and copy, K for the background.
    """
    structure, n_kernels = structure_of(covariance_type), len(parameters.means)
    filled = np.tile(X.astype(np.float64), (len(kernels), 1, 1))
    for index, columns, gaps, slopes, covariances in _incomplete(X, parameters, covariance_type):
        roots = np.linalg.cholesky(structure.to_full(covariances, len(parameters.means), len(gaps))[0])
        chosen = kernels[:, index]
        drawn = random_state.standard_normal((*chosen.shape, len(gaps)))
        known = X[np.ix_(index, columns)].astype(np.float64)
        scales = _scales(known, columns, parameters, structure)
        for k in np.unique(chosen):
            own = np.nonzero(chosen == k)
            if k == n_kernels:
                drawn[own] = parameters.tail.draw(len(own[0]), gaps, random_state)
                continue
            wide = parameters.tail.stretch(k, len(own[1]), random_state, len(columns))
            drawn[own] *= np.sqrt(scales[own[1], k, None]) * wide
            deviation = known[own[1]] - parameters.means[k, columns]
            drawn[own] = drawn[own] @ roots[k].T + deviation @ slopes[k].T + parameters.means[k, gaps]
        filled[:, index[:, None], gaps] = drawn
    return filled


def choose(probabilities: FloatArray, random_state: np.random.RandomState) -> IntArray:
    """Draw an index (n,) for each row of probabilities (n, m)."""
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative /= cumulative[:, -1:]
    threshold = random_state.uniform(size=len(probabilities))
    return (threshold[:, None] >= cumulative).sum(axis=1).astype(np.int64)


def draw(
    parameters: Parameters, covariance_type: str, classes: IntArray, random_state: np.random.RandomState
) -> tuple[FloatArray, IntArray]:
    """Draw a row of each of the `classes` (n,); return the rows (n, M) and their kernels (n,).

    Rows of the background have the number K.
    """
    n_kernels, n_features = parameters.means.shape
    kernels = choose(all_weights(parameters).T[classes], random_state)
    structure = structure_of(covariance_type)
    X = random_state.standard_normal((len(classes), n_features))
    for k in np.unique(kernels):
        own = kernels == k
        if k == n_kernels:
            X[own] = parameters.tail.draw(int(own.sum()), slice(None), random_state)
            continue
        # One dense matrix at a time: with many features, all of them may not fit in memory.
        one = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        deviations = structure.correlate(one, X[own], random_state)
        deviations *= parameters.tail.stretch(k, int(own.sum()), random_state)
        X[own] = deviations + parameters.means[k]
    return X, kernels
