"""Densities, responsibilities, imputation and sampling under one fitted model.

The result for a row does not depend on the other rows of the call, to the last bit.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from .device import framed as device
from .estep import gaps, host
from .estep.gaps import regressions, rows_by_pattern
from .estep.inputs import Kernels, Rows, native
from .exponentials import log_mix, log_normalise
from .kernels import StudentT, Tail
from .numbers import has_gaps, is_numpy, like, namespace, safe_log, to_numpy
from .records import FARTHEST, FloatArray, Frame, IntArray, Parameters, scale_of
from .structures import Structure, structure_of
from .threads import Workers, workers

# Largest model, in numbers, that is cached once it is prepared for scoring.
_CACHED = 1 << 17
# Models that are cached.
_MOST_PREPARED = 4
# Largest array of values predicted by all kernels.
_PREDICTED = 1 << 20
# Numbers in the matrices of a row up to which BLAS uses one thread anyway: limiting it would take as long as
# the row.
_SMALL = 1 << 10

# Models prepared for scoring, the oldest first.
_prepared: dict[tuple[Any, ...], tuple[Kernels, Frame]] = {}


def kernel_log_densities(
    X: np.ndarray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int = 1,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (N, K), or the logarithms (N, L) of mixtures with weights (K, L).

    Where values are missing the density is that of the observed ones, and 1 if there are none. Complete rows
    of a tensor are evaluated on its device.
    """
    structure, some_missing = structure_of(covariance_type), has_gaps(X)
    if not is_numpy(X):
        if some_missing:
            return like(kernel_log_densities(to_numpy(X), parameters, covariance_type, n_jobs, weights), X)
        return device.log_densities(X, parameters, structure, weights)
    kernels, frame = _prepare(parameters, structure)
    rows = Rows(native(X), None, None, frame)
    small = X.shape[0] == 1 and max(X.shape[1] ** 2, math.prod(parameters.weights.shape)) <= _SMALL
    with nullcontext(Workers(1)) if small else workers(n_jobs) as pool:
        if some_missing:
            covariances = structure.rescale(parameters.covariances[None], 1.0 / frame.scale)
            return gaps.log_densities(rows, kernels, covariances, weights, pool)
        return host.log_densities(rows, kernels, weights, pool)


def _prepare(parameters: Parameters, structure: Structure) -> tuple[Kernels, Frame]:
    """Return the kernels of one model, and the frame that they are in. Small ones are cached."""
    means = np.asarray(parameters.means, dtype=np.float64)
    covariances = np.asarray(parameters.covariances, dtype=np.float64)
    tail = parameters.tail.map(lambda array: np.asarray(array, dtype=np.float64))
    if means.size + covariances.size > _CACHED:
        return _framed(means, covariances, tail, structure)
    arrays = means, covariances, *vars(tail).values()
    # By the bytes, so that a model changed in place is prepared again.
    key = structure.name, means.shape, covariances.shape, *(array.tobytes() for array in arrays)
    found = _prepared.get(key)
    if found is None:
        for oldest in list(_prepared)[: 1 - _MOST_PREPARED]:
            _prepared.pop(oldest, None)
        found = _prepared[key] = _framed(means, covariances, tail.map(np.array), structure)
    return found


def _framed(
    means: FloatArray, covariances: FloatArray, tail: Tail, structure: Structure
) -> tuple[Kernels, Frame]:
    """Return kernels in units that are powers of two, so that squares neither overflow nor underflow.

    They are about the centre of the means, where the digits of differences matter.
    """
    scale = scale_of(means, covariances, structure)
    shift = np.clip((means / scale).mean(axis=0), -FARTHEST, FARTHEST)
    frame = Frame(scale, shift, np.ones_like(scale), np.full_like(scale, FARTHEST))
    model = Parameters(np.ones((1, len(means), 1)), means[None], covariances[None], tail=tail.take(None))
    inside = frame.enter(model, structure)
    kernels = Kernels.of(inside, structure.factor(inside.covariances, means.shape[1]), structure)
    return replace(kernels, constants=kernels.constants - frame.log_volume()), frame


def class_log_likelihood(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    return kernel_log_densities(X, parameters, covariance_type, n_jobs, parameters.weights)


def log_responsibilities(
    X: np.ndarray,
    classes: IntArray,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int = 1,
) -> FloatArray:
    """Return the logarithms of w_nk given each row's class (N,), shape (N, K). Equation (E)."""
    densities = kernel_log_densities(X, parameters, covariance_type, n_jobs)
    return log_normalise(densities + like(safe_log(parameters.weights).T[classes], densities), axis=1)


def most_likely_kernel(X: np.ndarray, parameters: Parameters, covariance_type: str) -> IntArray:
    """Return the kernel of largest responsibility (N,) under the first class."""
    joint = kernel_log_densities(X, parameters, covariance_type) + safe_log(parameters.weights[:, 0])
    return joint.argmax(axis=1)


def averaged_log_responsibilities(
    X: np.ndarray, log_posterior: FloatArray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log-responsibilities (N, K), averaged over classes whose log-probabilities (N, L) are given.

    They stay finite where a responsibility underflows.
    """
    densities = kernel_log_densities(X, parameters, covariance_type, n_jobs)
    per_class = class_log_likelihood(X, parameters, covariance_type, n_jobs)
    xp, weights = namespace(densities), parameters.weights.T
    highest = xp.max(per_class, axis=1, keepdims=True)
    of_classes = (log_posterior - (per_class - highest)).T
    return log_normalise(densities - highest + log_mix(of_classes, weights).T, axis=1)


def marginal(parameters: Parameters, columns: IntArray, structure: Structure) -> Parameters:
    """Return the parameters of the marginal density of some features."""
    return replace(
        parameters,
        means=parameters.means[..., columns],
        covariances=structure.marginal(parameters.covariances, columns),
    )


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
    regression = next(regressions(structure, parameters.covariances[None], [columns], n_features))
    covariances = regression.covariances
    others = np.setdiff1d(np.arange(n_features), columns)
    deviation = values - parameters.means[:, columns]
    means = parameters.means[:, others] + (regression.slopes[0] @ deviation[..., None])[..., 0]
    if isinstance(parameters.tail, StudentT):
        distances = structure.distances(regression.whitener, deviation[None, ..., None])[0].T
        widening = parameters.tail.widening(distances, len(columns))[0]
        covariances = structure.widened(covariances, widening)
    return Parameters(weights, means, covariances[0], tail=parameters.tail.conditional(len(columns)))


def fill_means(
    X: np.ndarray, responsibilities: FloatArray, parameters: Parameters, covariance_type: str
) -> FloatArray:
    """Return rows X (N, M) with the conditional means of their missing values, which are NaN.

    `responsibilities` (N, K) are those given the observed values.
    """
    filled, n_features = X.astype(np.float64), X.shape[1]
    step = max(1, _PREDICTED // parameters.means.size)
    patterns = [(index, known) for index, known in rows_by_pattern(X) if len(known) < n_features]
    structure, covariances = structure_of(covariance_type), parameters.covariances[None]
    found = regressions(structure, covariances, [known for _, known in patterns], n_features)
    for (index, known), regression in zip(patterns, found, strict=True):
        others = np.setdiff1d(np.arange(n_features), known)
        for start in range(0, len(index), step):
            rows = index[start : start + step]
            deviation = filled[np.ix_(rows, known)] - parameters.means[:, None, known]
            predicted = parameters.means[:, None, others] + deviation @ regression.slopes[0].mT
            filled[np.ix_(rows, others)] = np.einsum("nk,knd->nd", responsibilities[rows], predicted)
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
    kernels = choose(parameters.weights.T[classes], random_state)
    structure = structure_of(covariance_type)
    X = random_state.standard_normal((len(classes), parameters.means.shape[1]))
    for k in np.unique(kernels):
        own = kernels == k
        # One dense matrix at a time: with many features, all of them may not fit in memory.
        one = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        root = np.linalg.cholesky(structure.to_full(one, 1, X.shape[1])[0, 0])
        deviations = X[own] @ root.T
        deviations *= parameters.tail.stretch(k, int(own.sum()), random_state)
        X[own] = deviations + parameters.means[k]
    return X, kernels
