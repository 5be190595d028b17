"""EM for many models at once that have as many kernels each, but rows of their own: folds, or classes.

Log-densities and moments are matrix products with the rows' expanded terms. These lose digits if a kernel is
far narrower than the range of the rows, so there is a prior on covariances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..estep.terms import share
from ..exponentials import log_mix
from ..kernels import GAUSSIAN
from ..loop import time_is_up
from ..numbers import TINY, Record, safe_log
from ..records import FloatArray, IntArray, Parameters
from ..structures import Structure
from ..structures.factors import multiplicity, unpack
from ..threads import one_blas_thread


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


@dataclass(frozen=True)
class Model(Record):
    """R models with full or tied covariances."""

    weights: FloatArray  # (R, K, L)
    means: FloatArray  # (R, K, M)
    covariances: FloatArray  # (R, K, M, M) or (R, M, M)
    precisions: FloatArray  # their inverses

    @classmethod
    def of(cls, weights: FloatArray, means: FloatArray, covariances: FloatArray) -> Model:
        """Return models whose covariances are raised to P ⪰ I."""
        precisions: FloatArray = np.linalg.inv(covariances).astype(np.float64, copy=False)
        # tr(P⁻¹) < 1 proves that no eigenvalue is below one.
        low = np.nonzero(np.trace(precisions, axis1=-2, axis2=-1) >= 1.0)
        if len(low[0]):
            values, vectors = np.linalg.eigh(covariances[low])
            raised = np.maximum(values, 1.0)[..., None, :]
            covariances = covariances.copy()
            covariances[low], precisions[low] = (
                (vectors * raised) @ vectors.mT,
                (vectors / raised) @ vectors.mT,
            )
        return cls(weights, means, covariances, precisions)


def fit_together(task: Task, starts: Parameters, structure: Structure, *, max_iter: int, tol: float) -> Model:
    """Run EM from one start for each of R models with full or tied covariances, and return them.

    A group of models ends when the mean log-likelihood of its rows changes by less than `tol`; all end when
    time is up.
    """
    n_groups, active = task.groups.max() + 1, np.arange(len(task.groups))
    last, least = np.full(n_groups, -np.inf), tol * np.bincount(task.groups, task.weights.sum(axis=1))
    with one_blas_thread():
        terms = _terms(task.x, structure)
        current = Model.of(starts.weights, starts.means, starts.covariances)
        ended = current
        for _ in range(max_iter):
            likelihood, current = _improve(task, terms, current, structure)
            reached = np.bincount(task.groups, likelihood, minlength=n_groups)
            going = (np.abs(reached - last) >= least)[task.groups]
            last = reached
            if not going.all():
                ended = ended.put(active, current)
                task, current, active, terms = (
                    task.take(going),
                    current.take(going),
                    active[going],
                    terms[going],
                )
            if not len(active) or time_is_up():
                break
    return ended.put(active, current)


def _improve(task: Task, terms: FloatArray, current: Model, structure: Structure) -> tuple[FloatArray, Model]:
    """Do one pass: return the log-likelihood (R,) of the models, and the next ones."""
    n_features, n_classes, rows = task.x.shape[1], current.weights.shape[-1], task.prior_rows[:, None, None]
    joint = _log_densities(task.x, terms, current, structure)
    logs = safe_log(current.weights)
    joint += logs if n_classes == 1 else np.take_along_axis(logs, task.codes[:, None], axis=2)
    likelihood, class_mass, shares = share(joint, task.codes, task.weights, n_classes)
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
    return likelihood.sum(axis=1), Model.of(weights, means, covariances)


def class_log_densities(x: FloatArray, model: Model, structure: Structure) -> FloatArray:
    """Return log p(x | class), shape (L, n), of rows x (M, n) under one model with a leading axis of one."""
    with one_blas_thread():
        values = _log_densities(x[None], _terms(x[None], structure), model, structure)
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


def _log_densities(x: FloatArray, terms: FloatArray, model: Model, structure: Structure) -> FloatArray:
    """Return the log-densities (R, K, n) of rows x (R, M, n) with their terms (R, D, n)."""
    means, n_features, precision = model.means, x.shape[1], structure.by_kernel(model.precisions)
    linear = (precision @ means[..., None])[..., 0]
    roots = np.linalg.cholesky(structure.by_kernel(model.covariances))
    log_determinant = 2.0 * np.log(np.diagonal(roots, axis1=-2, axis2=-1)).sum(axis=-1)
    peaks = GAUSSIAN.log_peaks(log_determinant, n_features) - 0.5 * np.sum(linear * means, axis=-1)
    parts = [linear, peaks[..., None]]
    if not structure.shared:
        parts.insert(1, structure.pack(precision) * multiplicity(n_features))
    values: FloatArray = np.concatenate(parts, axis=-1) @ terms
    if structure.shared:
        values -= 0.5 * np.sum(x * (precision[:, 0] @ x), axis=1, keepdims=True)
    return values
