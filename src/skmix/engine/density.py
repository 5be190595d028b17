"""Densities of rows under one fitted model, block by block."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from scipy.special import logsumexp

from .compute.arrays import Array, arises, as_float64, is_numpy, like, namespace, to_numpy
from .compute.threads import workers
from .covariances import structure_of
from .model import FloatArray, IntArray, Parameters
from .sources.device import DeviceRows
from .sources.expanded import Rows, log_joint, prepare
from .sources.gaps import group_rows, has_gaps, marginal
from .sources.summary import frame_of

# A class likelihood below this, relative to the row's most likely kernel, has lost digits to underflow.
_UNDERFLOW = 1e-280

# Receives log N(x_n; μ_k, P_k) of some rows (K, n), and which rows they are; returns (n, …).
Which = slice | IntArray
Reduction = Callable[[FloatArray, Which], np.ndarray]
Output = TypeVar("Output", FloatArray, IntArray)


def evaluate(
    X: np.ndarray,
    parameters: Parameters,
    covariance_type: str,
    reduce: Reduction,
    out: Output,
    n_jobs: int,
) -> Output:
    """Reduce the kernels' log-densities block by block into `out`.

    Parameters
    ----------
    X : array of shape (N, M)
        Rows; NaN where a value is missing: their densities are those of what is observed. With an array of
        another library than NumPy, which may have no gaps, the work is done and the result is where it is.
    parameters : Parameters
        One model, in the data's coordinates.
    covariance_type : str
        Its covariance structure.
    reduce : callable
        From log-densities (K, n) of the rows it is told to the rows' results (n, …).
    out : ndarray of shape (N, …)
        Where results go, unless X is of another library.
    n_jobs : int
        Number of threads.
    """
    structure = structure_of(covariance_type)
    if not is_numpy(X):
        return _evaluate_there(X, parameters, covariance_type, reduce)
    if has_gaps(X):
        for index, columns in group_rows(X):
            if not len(columns):
                # Nothing is observed: the density of nothing is one.
                out[index] = reduce(np.zeros((len(parameters.means), len(index))), index)
                continue
            part = marginal(parameters, columns, structure)
            results = np.empty((len(index), *out.shape[1:]), dtype=out.dtype)
            evaluate(
                X[np.ix_(index, columns)],
                part,
                covariance_type,
                lambda values, which: reduce(values, index[which]),  # noqa: B023
                results,
                n_jobs,
            )
            out[index] = results
        return out
    frame = frame_of(parameters, structure, X)
    rows = Rows(X, None, 1, frame, structure)
    n_kernels = len(parameters.means)
    # Weights are the reduction's business.
    neutral = Parameters(np.ones((1, n_kernels, 1)), parameters.means[None], parameters.covariances[None])
    prepared = prepare(frame.enter(neutral, structure), structure, frame.bound)
    level = prepared.levels[0] - frame.log_volume()
    cut = rows.plan(1, n_kernels)
    with workers(n_jobs) as pool:

        def work(task: tuple[int, int]) -> None:
            start, stop = task
            workspace = pool.workspace
            x = rows.block(start, stop, workspace)
            for part in rows.parts(x, start, stop, cut, workspace):
                values = workspace.array("values", (1, n_kernels, part.stop - part.start))
                log_joint(part, prepared, values)
                values += level
                a, b = start + part.start, start + part.stop
                out[a:b] = reduce(values[0], slice(a, b))

        for _ in pool.map(work, rows.cuts(cut.block)):
            pass
    return out


def _evaluate_there(X: Array, parameters: Parameters, covariance_type: str, reduce: Reduction) -> Array:
    """Reduce the kernels' log-densities of rows X (N, M) of another library, where they are."""
    structure = structure_of(covariance_type)
    frame = frame_of(parameters, structure, X)
    rows = DeviceRows(X, None, 1, frame, structure)
    n_kernels = len(parameters.means)
    neutral = Parameters(np.ones((1, n_kernels, 1)), parameters.means[None], parameters.covariances[None])
    inside = frame.enter(neutral, structure).map(lambda array: as_float64(array, X))
    prepared = prepare(inside, structure, rows.bound)
    level = float(to_numpy(prepared.levels)[0]) - frame.log_volume()
    results = rows.map_joints(prepared, lambda values, a, b: reduce(values[0, ...] + level, slice(a, b)))
    return namespace(X).concat(results)


def _empty(X: Array, *shape: int) -> FloatArray:
    """Return memory for numbers (N, …) of rows X (N, M)."""
    return np.empty((X.shape[0], *shape) if is_numpy(X) else 0)


def log_sum(log_joint: Array) -> Array:
    """Return log Σ_j exp(a_nj), shape (n,), of log-joints a (n, m)."""
    if is_numpy(log_joint):
        return logsumexp(log_joint, axis=1)
    xp = namespace(log_joint)
    largest = xp.max(log_joint, axis=1)
    finite = xp.where(largest > -np.inf, largest, 0.0)
    return xp.log(xp.sum(xp.exp(log_joint - finite[:, None]), axis=1)) + finite


def log_normalise(log_joint: FloatArray) -> FloatArray:
    """Return log-probabilities (n, m) from log-joints (n, m) that may be too large to hold their own sum.

    Subtracting the largest first keeps the sum's logarithm, which vanishes beside 1e16.
    """
    xp = namespace(log_joint)
    relative = log_joint - xp.max(log_joint, axis=1, keepdims=True)
    return relative - xp.log(xp.sum(xp.exp(relative), axis=1, keepdims=True))


def kernel_log_densities(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K)."""
    out = _empty(X, len(parameters.means))
    return evaluate(X, parameters, covariance_type, lambda values, which: values.T, out, n_jobs)


def class_log_likelihood(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    weights = parameters.weights
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)

    def reduce(values: FloatArray, which: Which) -> FloatArray:
        if not is_numpy(values):
            return _class_log_likelihood_there(values, weights, log_weights)
        largest = values.max(axis=0)
        likelihood = weights.T @ np.exp(values - largest)
        lost = likelihood < _UNDERFLOW
        likelihood[lost] = 1.0
        logs: FloatArray = np.log(likelihood) + largest
        for c in np.flatnonzero(lost.any(axis=1)):
            # The rows' nearest kernels have no weight in this class: sum the terms of those that have.
            rows, kernels = np.flatnonzero(lost[c]), np.flatnonzero(weights[:, c])
            logs[c, rows] = logsumexp(values[np.ix_(kernels, rows)] + log_weights[kernels, c, None], axis=0)
        return logs.T

    return evaluate(X, parameters, covariance_type, reduce, _empty(X, weights.shape[1]), n_jobs)


def _class_log_likelihood_there(values: Array, weights: FloatArray, log_weights: FloatArray) -> Array:
    """Return log p(x_n | class j), shape (n, L), of log-densities (K, n) of another library."""
    xp = namespace(values)
    shares, logs = as_float64(weights, values), as_float64(log_weights, values)
    largest = xp.max(values, axis=0)
    likelihood = shares.T @ xp.exp(values - largest)
    lost = likelihood < _UNDERFLOW
    found = xp.log(xp.where(lost, 1.0, likelihood)) + largest
    if arises(lost):
        # The rows' nearest kernels have no weight in some class: sum the terms of those that have.
        each = [log_sum((values + logs[:, c, None]).T) for c in range(weights.shape[1])]
        found = xp.where(lost, xp.stack(each), found)
    return found.T


def log_responsibilities(
    X: np.ndarray,
    classes: IntArray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int = 1,
) -> FloatArray:
    """Return the logarithms of w_nk given each row's class (N,), shape (N, K). Equation (E)."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(parameters.weights)

    def reduce(values: FloatArray, which: Which) -> FloatArray:
        return log_normalise(values.T + like(log_weights.T[classes[which]], values))

    out = _empty(X, len(parameters.means))
    return evaluate(X, parameters, covariance_type, reduce, out, n_jobs)


def most_likely_kernel(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> IntArray:
    """Return the kernel of largest responsibility (N,) under the first class."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(parameters.weights[:, :1])

    def reduce(values: FloatArray, which: Which) -> IntArray:
        return np.argmax(values + log_weights, axis=0)

    out = np.empty(len(X), dtype=np.int64)
    return evaluate(X, parameters, covariance_type, reduce, out, n_jobs)


def averaged_log_responsibilities(
    X: np.ndarray, log_posterior: FloatArray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log-responsibilities (N, K), averaged over classes whose log-probabilities (N, L) are given.

    They stay finite where a responsibility underflows.
    """
    densities = kernel_log_densities(X, parameters, covariance_type, n_jobs)
    per_class = class_log_likelihood(X, parameters, covariance_type, n_jobs)
    with np.errstate(divide="ignore"):
        log_weights = like(np.log(parameters.weights), densities)
    xp = namespace(densities)
    averaged = xp.full_like(densities, -np.inf)
    for c in range(per_class.shape[1]):
        own = densities + log_weights[:, c] - per_class[:, c, None] + log_posterior[:, c, None]
        averaged = xp.logaddexp(averaged, own)
    return log_normalise(averaged)
