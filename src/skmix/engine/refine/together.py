"""EM for many models at once that have as many kernels each, but rows of their own: folds, or classes.

Log-densities and moments are matrix products with the rows' expanded terms. These lose digits if a kernel is
far narrower than the range of the rows, so there is a prior on covariances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..compute.arrays import TINY, Record, safe_log
from ..compute.threads import one_blas_thread
from ..em import time_is_up
from ..estep.terms import expand_densities, log_mix, share
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
) -> tuple[Parameters, Factor]:
    """Run EM from one start for each of R models, and return their parameters and factor.

    A group of models ends when the mean log-likelihood of its rows changes by less than `tol`; all end when
    time is up.
    """
    floor, n_groups = np.ones(task.x.shape[1]), task.groups.max() + 1
    least = tol * np.bincount(task.groups, task.weights.sum(axis=1))
    last, active = np.full(n_groups, -np.inf), np.arange(len(task.groups))
    with one_blas_thread():
        terms = _terms(task.x, structure)
        covariances, factor = structure.raised(starts.covariances.copy(), floor)
        current = Parameters(starts.weights, starts.means, covariances)
        ended, factors = current.copy(), factor.copy()
        for _ in range(max_iter):
            likelihood, current = _improve(task, terms, current, factor, structure)
            covariances, factor = structure.raised(current.covariances, floor)
            current = Parameters(current.weights, current.means, covariances)
            reached = np.bincount(task.groups, likelihood, minlength=n_groups)
            going = (np.abs(reached - last) >= least)[task.groups]
            last = reached
            if not going.all():
                ended, factors = ended.put(active, current), factors.put(active, factor)
                task, current, factor = task.take(going), current.take(going), factor.take(going)
                active, terms = active[going], terms[going]
            if not len(active) or time_is_up():
                break
    return ended.put(active, current), factors.put(active, factor)


def _improve(
    task: Task, terms: FloatArray, current: Parameters, factor: Factor, structure: Structure
) -> tuple[FloatArray, Parameters]:
    """Do one pass: return the log-likelihood (R,) of the models, and the next ones without a floor."""
    n_features, n_classes, rows = task.x.shape[1], current.weights.shape[-1], task.prior_rows
    joint = _log_densities(task.x, terms, current, factor, structure)
    joint += np.take_along_axis(safe_log(current.weights), task.codes[:, None], axis=2)
    likelihood, class_mass, shares = share(joint, task.codes, task.weights, n_classes, with_moments=True)
    assert shares is not None
    sums = shares @ terms.mT
    mass = sums[..., -1:]
    means = np.where(mass > 0.0, sums[..., :n_features] / np.maximum(mass, TINY), current.means)
    if structure.shared:
        # Responsibilities sum to one.
        scatter = (task.x * task.weights[:, None]) @ task.x.mT - (mass * means).mT @ means
        total = (mass[..., 0].sum(axis=1) + rows)[:, None, None]
        covariances = (scatter + rows[:, None, None] * task.prior_covariance) / total
    else:
        scatter = unpack(sums[..., n_features:-1], n_features)
        scatter -= (mass * means)[..., None] * means[..., None, :]
        scatter += (rows[:, None, None] * task.prior_covariance)[:, None]
        covariances = scatter / (mass + rows[:, None, None])[..., None]
    weights = class_mass / np.maximum(class_mass.sum(axis=1, keepdims=True), TINY)
    return likelihood.sum(axis=1), Parameters(weights, means, covariances)


def class_log_densities(
    x: FloatArray, parameters: Parameters, factor: Factor, structure: Structure
) -> FloatArray:
    """Return log p(x | class), shape (L, n), of rows x (M, n) under one model with a leading axis of one."""
    with one_blas_thread():
        terms = _terms(x[None], structure)
        return log_mix(_log_densities(x[None], terms, parameters, factor, structure)[0], parameters.weights[0])


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
    x: FloatArray, terms: FloatArray, parameters: Parameters, factor: Factor, structure: Structure
) -> FloatArray:
    """Return the log-densities (R, K, n) of rows x (R, M, n) with their terms (R, D, n)."""
    means, n_features = parameters.means, x.shape[1]
    if structure.shared:
        coefficients = structure.precision_times(factor, means)
        at_zero = -0.5 * np.sum(coefficients * means, axis=-1)
    else:
        no_bounds = np.zeros(terms.shape[1] - 1)
        coefficients, at_zero, _ = expand_densities(means, factor, structure, no_bounds)
    peaks = at_zero + NONE.log_peaks(factor.log_determinant, n_features)
    values: FloatArray = np.concatenate([coefficients, peaks[..., None]], axis=-1) @ terms
    if structure.shared:
        values -= 0.5 * structure.distances(factor.whitener[:, 0], x)[:, None]
    return values
