"""EM for many models at once that have as many kernels each, but rows of their own: folds, or classes.

Log-densities and moments are matrix products with the rows' expanded terms. These lose digits if a kernel is
far narrower than the range of the rows, so there is a prior on covariances.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..compute.arrays import TINY, Record, safe_log
from ..compute.threads import one_blas_thread
from ..em import time_is_up
from ..estep.terms import log_mix, share
from ..model import Factor, FloatArray, IntArray, Parameters
from ..structures import Structure
from ..structures.linalg import unpack
from ..tails import NONE


@dataclass(frozen=True)
class Task(Record):
    """R models to fit, in coordinates whose unit is the floor of the standard deviations.

    Models with fewer rows than others are padded with rows of weight zero.
    """

    x: FloatArray  # (R, M, n)
    codes: IntArray  # (R, n): class of each row
    weights: FloatArray  # (R, n)
    prior_rows: FloatArray  # (R,): strength of the prior on covariances
    prior_covariance: FloatArray  # (R, M, M)
    groups: IntArray  # (R,): models with the same number end together


def fit_together(
    task: Task, starts: Parameters, structure: Structure, *, max_iter: int, tol: float
) -> Parameters:
    """Run EM from one start for each of R models with full or tied covariances, and return them.

    A group of models ends when the mean log-likelihood of its rows changes by less than `tol`; all end when
    time is up.
    """
    n_groups, active = task.groups.max() + 1, np.arange(len(task.groups))
    last, least = np.full(n_groups, -np.inf), tol * np.bincount(task.groups, task.weights.sum(axis=1))
    with one_blas_thread():
        terms = _terms(task.x, structure)
        current, factor = _raised(starts.copy(), structure)
        ended = current.copy()
        for _ in range(max_iter):
            likelihood, current, factor = _improve(task, terms, current, factor, structure)
            reached = np.bincount(task.groups, likelihood, minlength=n_groups)
            going = (np.abs(reached - last) >= least)[task.groups]
            last = reached
            if not going.all():
                ended = ended.put(active, current)
                task, current, factor = task.take(going), current.take(going), factor.take(going)
                active, terms = active[going], terms[going]
            if not len(active) or time_is_up():
                break
    return ended.put(active, current)


def _raised(parameters: Parameters, structure: Structure) -> tuple[Parameters, Factor]:
    """Return models with covariances raised, in place, to P ⪰ I, and their factor."""
    floor = np.ones(parameters.means.shape[-1])
    covariances, factor = structure.raised(parameters.covariances, floor)
    return replace(parameters, covariances=covariances), factor


def _improve(
    task: Task, terms: FloatArray, current: Parameters, factor: Factor, structure: Structure
) -> tuple[FloatArray, Parameters, Factor]:
    """Do one pass: return the log-likelihood (R,) of the models, the next ones, and their factor."""
    n_features, n_classes, rows = task.x.shape[1], current.weights.shape[-1], task.prior_rows[:, None, None]
    joint = _log_densities(task.x, terms, current.means, factor, structure)
    logs = safe_log(current.weights)
    joint += logs if n_classes == 1 else np.take_along_axis(logs, task.codes[:, None], axis=2)
    likelihood, class_mass, shares = share(joint, task.codes, task.weights, n_classes, with_moments=True)
    assert shares is not None
    sums = shares @ terms.mT
    mass, prior = sums[..., -1:], rows * task.prior_covariance
    means = np.where(mass > 0.0, sums[..., :n_features] / np.maximum(mass, TINY), current.means)
    if structure.shared:
        # Responsibilities sum to one.
        scatter = (task.x * task.weights[:, None]) @ task.x.mT - (mass * means).mT @ means
        covariances = (scatter + prior) / (mass.sum(axis=1, keepdims=True) + rows)
    else:
        scatter = unpack(sums[..., n_features:-1], n_features)
        scatter -= (mass * means)[..., None] * means[..., None, :]
        covariances = (scatter + prior[:, None]) / (mass + rows)[..., None]
    weights = class_mass / np.maximum(class_mass.sum(axis=1, keepdims=True), TINY)
    return likelihood.sum(axis=1), *_raised(Parameters(weights, means, covariances), structure)


def class_log_densities(x: FloatArray, model: Parameters, structure: Structure) -> FloatArray:
    """Return log p(x | class), shape (L, n), of rows x (M, n) under one model with a leading axis of one."""
    with one_blas_thread():
        factor = structure.factor(model.covariances, len(x))
        values = _log_densities(x[None], _terms(x[None], structure), model.means, factor, structure)
        return log_mix(values[0], model.weights[0])


def _terms(x: FloatArray, structure: Structure) -> FloatArray:
    """Return the terms (R, D, n) of rows x (R, M, n): values, second-order terms unless shared, and ones."""
    (n_models, n_features, n_rows), (first, second) = x.shape, structure.pairs(x.shape[1])
    n_second = 0 if structure.shared else len(first)
    terms = np.empty((n_models, n_features + n_second + 1, n_rows))
    terms[:, :n_features], terms[:, -1] = x, 1.0
    if n_second:
        np.multiply(x[:, first], x[:, second], out=terms[:, n_features:-1])
    return terms


def _log_densities(
    x: FloatArray, terms: FloatArray, means: FloatArray, factor: Factor, structure: Structure
) -> FloatArray:
    """Return the log-densities (R, K, n) of rows x (R, M, n) with their terms (R, D, n)."""
    linear = structure.precision_times(factor, means)
    peaks = NONE.log_peaks(factor.log_determinant, means.shape[-1]) - 0.5 * np.sum(linear * means, axis=-1)
    parts = [linear, peaks[..., None]]
    if not structure.shared:
        parts.insert(1, structure.quadratic(factor))
    values: FloatArray = np.concatenate(parts, axis=-1) @ terms
    if structure.shared:
        values -= 0.5 * structure.distances(factor.whitener, x[:, None])
    return values
