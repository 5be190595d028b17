"""Densities, responsibilities, imputation and sampling under one fitted model.

The result for a row does not depend on the other rows of the call, to the last bit, unless the number of rows
decides whether compiled code is worth loading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import logsumexp

from .compute.arrays import Array, as_float64, is_numpy, like, namespace, occurs, pick, to_numpy
from .compute.threads import Workers, workers
from .covariances import Structure, structure_of
from .model import FloatArray, IntArray, Parameters
from .sources import reference
from .sources.device import FramedRows, prepare
from .sources.gaps import group_rows, has_gaps, marginal
from .sources.memory import worth_compiling
from .sources.reference import Kernels, Rows
from .sources.summary import FARTHEST, Frame, chunks, power_of_two

# On a device, rows within this many scales of the heaviest kernel are evaluated from expanded terms.
_NEAR = 4.0
# Largest model, in numbers, that is cached once it is prepared.
_CACHED = 1 << 17
# A class likelihood below this, relative to the row's most likely kernel, has lost digits to underflow.
_UNDERFLOW = 1e-280
# Largest array of values predicted by all kernels.
_CHUNK = 1 << 20


def frame_of(parameters: Parameters, structure: Structure) -> Frame:
    """Return the frame in which to evaluate one model on rows near it."""
    return _frame(parameters.means, parameters.covariances, _heaviest(parameters.weights), structure)


def _scale(means: FloatArray, covariances: FloatArray, structure: Structure) -> FloatArray:
    """Return the scale (M,) of means (K, M) and covariances, in powers of two."""
    spread = np.sqrt(structure.variances(covariances[None])[0])
    reach = np.ptp(means, axis=0) + spread.max(axis=0)
    if structure.isotropic:
        reach = np.full_like(reach, reach.max())
    return power_of_two(reach)


def _heaviest(weights: FloatArray) -> int:
    """Return the kernel of the largest mean weight, of weights (K, L)."""
    return int(weights.mean(axis=1).argmax())


def _frame(means: FloatArray, covariances: FloatArray, heaviest: int, structure: Structure) -> Frame:
    """Return the frame of means (K, M) and covariances, with the mean of the heaviest kernel at zero."""
    scale = _scale(means, covariances, structure)
    return Frame(scale, means[heaviest] / scale, np.ones(len(scale)), np.full(len(scale), _NEAR))


def evaluate(
    X: np.ndarray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), or the logarithms of their mixtures with weights (K, L).

    NaN marks a missing value: the density is then that of the observed values, and 1 if there are none.
    Arrays of other libraries must be complete; the result is then a new array of that library.
    """
    structure = structure_of(covariance_type)
    if not is_numpy(X):
        return _evaluate_on_device(X, parameters, structure, weights)
    n_kernels, n_features = parameters.means.shape
    compiled = worth_compiling(len(X), n_kernels, n_features)
    with workers(n_jobs) as pool:
        if not has_gaps(X):
            return _evaluate_complete(X, parameters, structure, weights, compiled, pool)
        out = np.zeros((len(X), n_kernels if weights is None else weights.shape[1]))
        for index, columns in group_rows(X):
            if len(columns):
                part = marginal(parameters, columns, structure)
                own = X[np.ix_(index, columns)]
                out[index] = _evaluate_complete(own, part, structure, weights, compiled, pool)
    return out


def _evaluate_complete(
    X: np.ndarray,
    parameters: Parameters,
    structure: Structure,
    weights: FloatArray | None,
    compiled: bool,
    pool: Workers,
) -> FloatArray:
    """Evaluate rows X (n, M) without gaps."""
    kernels, scale = _prepare(parameters, structure)
    rows = Rows(X, None, None, scale, np.zeros(len(scale)), FARTHEST)
    if compiled:
        from .sources import compiled as fast

        return fast.evaluate(rows, kernels, weights, pool)
    out = np.empty((len(X), kernels.means.shape[1] if weights is None else weights.shape[1]))
    for a, values in reference.tiles(rows, kernels):
        found = values if weights is None else log_mix(values, weights)
        n = min(found.shape[1], len(X) - a)
        out[a : a + n] = found[:, :n].T
    return out


def _prepare(parameters: Parameters, structure: Structure) -> tuple[Kernels, FloatArray]:
    """Prepare one model for rows times a scale (M,). Small ones are cached."""
    means = np.asarray(parameters.means, dtype=np.float64)
    covariances = np.asarray(parameters.covariances, dtype=np.float64)
    if means.size + covariances.size > _CACHED:
        return _scaled(means, covariances, structure)
    numbers = means.tobytes(), means.shape, covariances.tobytes(), covariances.shape
    return _prepare_cached(*numbers, structure.name)


@lru_cache(maxsize=4)
def _prepare_cached(
    means: bytes, shape: tuple[int, ...], covariances: bytes, covariances_shape: tuple[int, ...], name: str
) -> tuple[Kernels, FloatArray]:
    """Prepare the model of these numbers; bytes, so that a model changed in place is prepared again."""
    arrays = np.frombuffer(means).reshape(shape), np.frombuffer(covariances).reshape(covariances_shape)
    return _scaled(*arrays, structure_of(name))


def _scaled(means: FloatArray, covariances: FloatArray, structure: Structure) -> tuple[Kernels, FloatArray]:
    """Return kernels in units that are powers of two, so that squares neither overflow nor underflow."""
    scale = _scale(means, covariances, structure)
    inside = Parameters(
        np.ones((1, len(means), 1)), means[None] / scale, structure.rescale(covariances[None], 1.0 / scale)
    )
    kernels = Kernels.of(inside, structure.factor(inside.covariances, means.shape[1]), structure)
    return replace(kernels, constants=kernels.constants - np.log(scale).sum()), 1.0 / scale


def _evaluate_on_device(
    X: Array, parameters: Parameters, structure: Structure, mixing: FloatArray | None
) -> Array:
    """Evaluate rows X (N, M) of another library, on their device."""
    xp = namespace(X)
    frame = frame_of(parameters, structure)
    weights = np.ones((1, len(parameters.means), 1))
    inside = frame.enter(replace(parameters.batch(), weights=weights), structure)
    inside = inside.map(lambda array: as_float64(array, X))
    scale, shift = as_float64(frame.scale, X), as_float64(frame.shift, X)
    parts = [xp.all(xp.abs(X[cut, :] / scale - shift) <= _NEAR, axis=1) for cut in chunks(X)]
    is_near = np.concatenate([to_numpy(part) for part in parts])
    groups = [(np.flatnonzero(is_near), _NEAR), (np.flatnonzero(~is_near), FARTHEST)]
    results = []
    for index, bound in groups:
        if not len(index):
            continue
        rows_of = X if len(index) == X.shape[0] else pick(X, index)
        rows = FramedRows(rows_of, None, 1, replace(frame, bound=np.full(X.shape[1], bound)), structure)
        prepared = prepare(inside, structure, rows.bound)
        level = float(to_numpy(prepared.levels)[0]) - frame.log_volume()

        def reduced(values: Array, a: int, b: int, level: float = level) -> Array:
            own = values[0, ...] + level
            return own.T if mixing is None else log_mix(own, mixing).T

        results += rows.map_joints(prepared, reduced)
    if is_near.all() or not is_near.any():
        return xp.concat(results)
    return pick(xp.concat(results), np.argsort(np.concatenate([index for index, _ in groups])))


def _log(weights: FloatArray) -> FloatArray:
    """Return logarithms, −∞ for zero."""
    with np.errstate(divide="ignore"):
        return np.log(weights)


def log_sum(log_joint: Array) -> Array:
    """Return log Σ_j exp(a_nj), shape (n,), of log-joints a (n, m)."""
    if is_numpy(log_joint):
        return logsumexp(log_joint, axis=1)
    xp = namespace(log_joint)
    largest = xp.max(log_joint, axis=1)
    finite = xp.where(largest > -np.inf, largest, 0.0)
    return xp.log(xp.sum(xp.exp(log_joint - finite[:, None]), axis=1)) + finite


def log_normalise(log_joint: FloatArray) -> FloatArray:
    """Return log-probabilities (n, m) from log-joints (n, m).

    The largest is subtracted first: next to log-joints of 1e16 the log of the sum would be rounded away.
    """
    xp = namespace(log_joint)
    relative = log_joint - xp.max(log_joint, axis=1, keepdims=True)
    return relative - xp.log(xp.sum(xp.exp(relative), axis=1, keepdims=True))


def log_mix(values: Array, weights: FloatArray) -> Array:
    """Return log Σ_k w_kj exp(v_kn), shape (L, n), of logarithms v (K, n) and weights w (K, L)."""
    xp, shares = namespace(values), like(weights, values)
    largest = xp.max(values, axis=0)
    densities = xp.exp(values - largest)
    sums = shares.T @ densities
    lost = sums < _UNDERFLOW
    logs = xp.log(xp.where(lost, 1.0, sums)) + largest
    if not occurs(lost):
        return logs
    # In some class the rows' nearest kernels have no weight: sum over the other kernels.
    log_weights = _log(weights)
    if not is_numpy(values):
        own = [log_sum((values + like(log_weights[:, c, None], values)).T) for c in range(weights.shape[1])]
        return xp.where(lost, xp.stack(own), logs)
    for c in np.flatnonzero(lost.any(axis=1)):
        rows, kernels = np.flatnonzero(lost[c]), np.flatnonzero(weights[:, c])
        logs[c, rows] = -np.inf
        if len(kernels):
            terms = values[np.ix_(kernels, rows)] + log_weights[kernels, c, None]
            highest = terms.max(axis=0)
            # A cumulative sum adds in the same order for any number of rows; a plain sum does not.
            logs[c, rows] = np.log(np.cumsum(np.exp(terms - highest), axis=0)[-1]) + highest
    return logs


def kernel_log_densities(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K)."""
    return evaluate(X, parameters, covariance_type, n_jobs)


def class_log_likelihood(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    return evaluate(X, parameters, covariance_type, n_jobs, parameters.weights)


def log_responsibilities(
    X: np.ndarray,
    classes: IntArray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int = 1,
) -> FloatArray:
    """Return the logarithms of w_nk given each row's class (N,), shape (N, K). Equation (E)."""
    densities = evaluate(X, parameters, covariance_type, n_jobs)
    return log_normalise(densities + like(_log(parameters.weights).T[classes], densities))


def most_likely_kernel(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> IntArray:
    """Return the kernel of largest responsibility (N,) under the first class."""
    joint = evaluate(X, parameters, covariance_type, n_jobs) + _log(parameters.weights[:, 0])
    return joint.argmax(axis=1)


def averaged_log_responsibilities(
    X: np.ndarray, log_posterior: FloatArray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log-responsibilities (N, K), averaged over classes whose log-probabilities (N, L) are given.

    They stay finite where a responsibility underflows.
    """
    densities = kernel_log_densities(X, parameters, covariance_type, n_jobs)
    per_class = class_log_likelihood(X, parameters, covariance_type, n_jobs)
    log_weights = like(_log(parameters.weights), densities)
    xp = namespace(densities)
    averaged = xp.full_like(densities, -np.inf)
    for c in range(per_class.shape[1]):
        own = densities + log_weights[:, c] - per_class[:, c, None] + log_posterior[:, c, None]
        averaged = xp.logaddexp(averaged, own)
    return log_normalise(averaged)


def condition(
    parameters: Parameters, covariance_type: str, columns: IntArray, values: FloatArray
) -> Parameters:
    """Return the model of the other features, in increasing order, given `values` (O,) of `columns` (O,).

    Weights are each class's responsibilities for the known values; class priors are left to the caller.
    """
    n_features, n_classes = parameters.means.shape[1], parameters.weights.shape[1]
    rows = np.full((n_classes, n_features), np.nan)
    rows[:, columns] = values
    weights = np.exp(log_responsibilities(rows, np.arange(n_classes), parameters, covariance_type)).T
    slopes, covariances = structure_of(covariance_type).conditional(
        parameters.covariances[None], columns, n_features
    )
    gaps = np.setdiff1d(np.arange(n_features), columns)
    deviation = values - parameters.means[:, columns]
    means = parameters.means[:, gaps] + (slopes[0] @ deviation[..., None])[..., 0]
    return Parameters(weights, means, covariances[0])


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
        slopes, covariances = structure.conditional(parameters.covariances[None], columns, n_features)
        slopes = np.broadcast_to(slopes[0], (n_kernels, len(gaps), len(columns)))
        yield index, columns, gaps, slopes, covariances


def fill_means(
    X: np.ndarray, responsibilities: FloatArray, parameters: Parameters, covariance_type: str
) -> FloatArray:
    """Return rows X (N, M) with the conditional means of their missing values, which are NaN.

    `responsibilities` (N, K) are those given the observed values.
    """
    filled = X.astype(np.float64)
    step = max(1, _CHUNK // parameters.means.size)
    for index, columns, gaps, slopes, _ in _incomplete(X, parameters, covariance_type):
        for start in range(0, len(index), step):
            rows = index[start : start + step]
            deviation = filled[np.ix_(rows, columns)] - parameters.means[:, None, columns]
            predicted = parameters.means[:, None, gaps] + deviation @ np.swapaxes(slopes, 1, 2)
            filled[np.ix_(rows, gaps)] = np.einsum("nk,knd->nd", responsibilities[rows], predicted)
    return filled


def draw_missing(
    X: np.ndarray,
    kernels: IntArray,
    parameters: Parameters,
    covariance_type: str,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Return C copies (C, N, M) of rows X (N, M) whose missing values, NaN, are drawn.

    `kernels` (C, N) is the kernel of each row and copy.
    """
    structure = structure_of(covariance_type)
    filled = np.tile(X.astype(np.float64), (len(kernels), 1, 1))
    for index, columns, gaps, slopes, covariances in _incomplete(X, parameters, covariance_type):
        roots = np.linalg.cholesky(structure.to_full(covariances, len(parameters.means), len(gaps))[0])
        chosen = kernels[:, index]
        drawn = random_state.standard_normal((*chosen.shape, len(gaps)))
        for k in np.unique(chosen):
            own = np.nonzero(chosen == k)
            deviation = X[np.ix_(index, columns)][own[1]] - parameters.means[k, columns]
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
    """Draw a row of each of the `classes` (n,); return the rows (n, M) and their kernels (n,)."""
    n_features = parameters.means.shape[1]
    kernels = choose(parameters.weights.T[classes], random_state)
    structure = structure_of(covariance_type)
    X = random_state.standard_normal((len(classes), n_features))
    for k in np.unique(kernels):
        # One dense matrix at a time: with many features, all of them may not fit in memory.
        one = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        root = np.linalg.cholesky(structure.to_full(one, 1, n_features)[0, 0])
        own = kernels == k
        X[own] = X[own] @ root.T + parameters.means[k]
    return X, kernels
