"""Densities, responsibilities, imputation, conditional models and draws, under one fitted model.

The result for a row does not depend on the other rows of the call, to the last bit.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from .device import framed as device
from .estep import errors, gaps, host
from .estep.gaps import regressions, rows_by_pattern
from .estep.inputs import Kernels, Rows
from .exponentials import log_mix, log_normalise
from .kernels import GAUSSIAN, StudentT
from .measured import Measured
from .numbers import has_gaps, is_numpy, like, namespace, safe_log, to_numpy
from .records import FARTHEST, FloatArray, Frame, IntArray, Parameters, scale_of
from .structures import Structure, structure_of
from .threads import Workers, workers

# Most numbers of a model that is kept once it is prepared for scoring.
_MOST_NUMBERS = 1 << 17
# Models that are kept.
_MOST_PREPARED = 4
# Most numbers predicted by all kernels at a time.
_PREDICTED = 1 << 20
# Numbers in a row's matrices up to which BLAS uses one thread anyway: to limit it would only take time.
_SMALL = 1 << 10


class Prepared(NamedTuple):
    """A model in the frame of its scores; the kernels' densities are those in the data's coordinates."""

    frame: Frame
    kernels: Kernels  # of one start and one class
    covariances: FloatArray  # with a first axis of one


def _prepare(parameters: Parameters, structure: Structure) -> Prepared:
    """Return the prepared model; the last small ones are kept."""
    degrees = () if parameters.tail.degrees is None else (parameters.tail.degrees,)
    values = parameters.means, parameters.covariances, *degrees
    arrays = [np.asarray(array, dtype=np.float64) for array in values]
    if sum(array.size for array in arrays) > _MOST_NUMBERS:
        return _enter(structure, *arrays)
    # By the bytes, so that a model changed in place is prepared again.
    return _kept(structure, *((array.shape, array.tobytes()) for array in arrays))


@lru_cache(maxsize=_MOST_PREPARED)
def _kept(structure: Structure, *arrays: tuple[tuple[int, ...], bytes]) -> Prepared:
    """See `_enter`; arrays are shapes and bytes."""
    return _enter(structure, *(np.frombuffer(data).reshape(shape) for shape, data in arrays))


def _enter(
    structure: Structure, means: FloatArray, covariances: FloatArray, degrees: FloatArray | None = None
) -> Prepared:
    """Return a model in units that are powers of two, so that squares neither overflow nor underflow.

    The frame is about the centre of the means, where the digits of differences matter.
    """
    scale = scale_of(means, covariances, structure)
    shift = np.clip((means / scale).mean(axis=0), -FARTHEST, FARTHEST)
    frame = Frame(scale, shift, np.ones_like(scale), np.full_like(scale, FARTHEST))
    tail = GAUSSIAN if degrees is None else StudentT(degrees)
    model = Parameters(np.ones((len(means), 1)), means, covariances, tail=tail)
    inside = frame.enter(model.batch(), structure)
    kernels = Kernels.of(inside, structure.factor(inside.covariances, means.shape[1]), structure)
    kernels = replace(kernels, constants=kernels.constants - frame.log_volume())
    return Prepared(frame, kernels, inside.covariances)


# ---------------------------------------------------------------- densities and responsibilities


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
    model = _prepare(parameters, structure)
    if isinstance(X, Measured):
        with workers(n_jobs) as pool:
            return errors.log_densities(X, model.frame, model.kernels, model.covariances, weights, pool)
    rows = Rows(X, None, None, model.frame)
    is_small = X.shape[0] == 1 and max(X.shape[1] ** 2, math.prod(parameters.weights.shape)) <= _SMALL
    with nullcontext(Workers(1)) if is_small else workers(n_jobs) as pool:
        if some_missing:
            return gaps.log_densities(rows, model.kernels, model.covariances, weights, pool)
        return host.log_densities(rows, model.kernels, weights, pool)


def class_log_likelihood(
    X: np.ndarray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
) -> FloatArray:
    """Return log p(x_n | class j), shape (N, L)."""
    return kernel_log_densities(X, parameters, covariance_type, n_jobs, parameters.weights)


def log_responsibilities(
    X: np.ndarray, classes: IntArray, parameters: Parameters, covariance_type: str, n_jobs: int = 1
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
    relative = densities - namespace(densities).max(densities, axis=1, keepdims=True)
    # w_nk(j) = π_kj p(x_n | k) / p(x_n | j), with densities relative to those of the row's nearest kernel.
    per_class = log_mix(relative.T, parameters.weights)
    of_classes = log_mix(log_posterior.T - per_class, parameters.weights.T)
    return log_normalise(relative + of_classes.T, axis=1)


# ---------------------------------------------------------------- imputation, conditional models and draws


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

    Weights are each class's responsibilities for the values; class priors are left to the caller. A t kernel
    is wider the farther the values are from its mean, so that tied scale matrices become full ones.
    """
    structure, tail = structure_of(covariance_type), parameters.tail
    n_features, n_classes = parameters.means.shape[1], parameters.weights.shape[1]
    rows = np.full((n_classes, n_features), np.nan)
    rows[:, columns] = values
    weights = np.exp(log_responsibilities(rows, np.arange(n_classes), parameters, covariance_type)).T
    regression = next(regressions(structure, parameters.covariances[None], [columns], n_features))
    covariances = regression.covariances
    # E[x_g | x_o] = μ_g + B (x_o − μ_o)
    others = np.setdiff1d(np.arange(n_features), columns)
    differences = values - parameters.means[:, columns]
    means = parameters.means[:, others] + (regression.slopes[0] @ differences[..., None])[..., 0]
    if isinstance(tail, StudentT):
        distances = structure.distances(regression.whitener, differences[None, ..., None])[0].T
        covariances = structure.widened(covariances, tail.widening(distances, len(columns))[0])
    return Parameters(weights, means, covariances[0], tail=tail.conditional(len(columns)))


def fill_means(
    X: np.ndarray, responsibilities: FloatArray, parameters: Parameters, covariance_type: str
) -> FloatArray:
    """Return rows X (N, M) with the conditional means of their missing values, which are NaN.

    `responsibilities` (N, K) are those given the observed values. Values with errors are replaced by the
    conditional means of what was measured.
    """
    if isinstance(X, Measured):
        arguments = parameters.means, parameters.covariances, structure_of(covariance_type)
        return errors.clean_means(X, responsibilities, *arguments)
    filled, n_features = X.astype(np.float64), X.shape[1]
    patterns = [(rows, observed) for rows, observed in rows_by_pattern(X) if len(observed) < n_features]
    structure, covariances = structure_of(covariance_type), parameters.covariances[None]
    of_patterns = regressions(structure, covariances, [o for _, o in patterns], n_features)
    step = max(1, _PREDICTED // parameters.means.size)
    for (rows, observed), regression in zip(patterns, of_patterns, strict=True):
        missing = np.setdiff1d(np.arange(n_features), observed)
        for some in (rows[a : a + step] for a in range(0, len(rows), step)):
            differences = filled[np.ix_(some, observed)] - parameters.means[:, None, observed]
            # E[x_g | x_o] under each kernel, (K, n, G)
            predicted = parameters.means[:, None, missing] + differences @ regression.slopes[0].mT
            filled[np.ix_(some, missing)] = np.einsum("nk,knd->nd", responsibilities[some], predicted)
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
    structure = structure_of(covariance_type)
    kernels = choose(parameters.weights.T[classes], random_state)
    X = random_state.standard_normal((len(classes), parameters.means.shape[1]))
    for k in np.unique(kernels):
        is_drawn = kernels == k
        # One dense matrix at a time: with many features, all of them may not fit in memory.
        covariance = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        root = np.linalg.cholesky(structure.to_full(covariance, 1, X.shape[1])[0, 0])
        deviations = X[is_drawn] @ root.T
        deviations *= parameters.tail.stretch(k, int(is_drawn.sum()), random_state)
        X[is_drawn] = deviations + parameters.means[k]
    return X, kernels
