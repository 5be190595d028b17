"""Baum's auxiliary function, in closed form and by enumeration, and the variational bound.

EM for shared kernels rests on one identity: the expectation over all K^N assignments of the N rows to the K
kernels is a double sum over rows and kernels, for any partition of the rows into classes. This module
computes both sides independently, and the lower bound that EM maximises.

`parameters` is the model at which a function is evaluated, and `previous` the model of the responsibilities.
Weights need not sum to one, so that functions can be differentiated in every direction.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr, logsumexp, softmax, xlogy
from sklearn.utils import check_array

from .data.labels import check_length
from .engine.records import FloatArray, Parameters

__all__ = [
    "Parameters",
    "auxiliary_function",
    "auxiliary_function_by_enumeration",
    "entropy_of_responsibilities",
    "log_likelihood",
    "variational_bound",
]

# Most sequences, which take some seconds.
_MOST_SEQUENCES = 1_000_000
# Sequences that are enumerated at a time, to limit memory.
_SEQUENCES_PER_BATCH = 8192


def auxiliary_function(X: ArrayLike, y: ArrayLike, parameters: Parameters, previous: Parameters) -> float:
    """Return Baum's auxiliary function Q(parameters, previous) in closed form.

    Q = sum over rows n and kernels k of w_nk (log pi_k,c(n) + log N(x_n; mu_k, P_k)), with responsibilities
    w_nk of `previous`. A term whose responsibility is zero counts as zero, even if its weight is zero. Q is
    minus infinity if `parameters` gives weight zero to a kernel that `previous` uses.

    Parameters
    ----------
    X : array-like of shape (N, M)
        Rows.
    y : array-like of shape (N,)
        Their classes; the columns of the weights are in the order of the sorted labels.
    parameters, previous : Parameters
        Weights (K, L), means (K, M) and covariances (K, M, M).
    """
    rows, classes = _check_data(X, y, parameters, previous)
    responsibilities = _responsibilities(rows, classes, previous)
    weights = parameters.weights.T[classes]
    log_densities = _log_densities(rows, parameters)
    return float((xlogy(responsibilities, weights) + responsibilities * log_densities).sum())


def auxiliary_function_by_enumeration(
    X: ArrayLike, y: ArrayLike, parameters: Parameters, previous: Parameters
) -> float:
    """Return Baum's auxiliary function by its definition, a sum over all association sequences.

    Q = sum over z of log p(X, z | C, parameters) Pr(z | X, C, previous), where z = (z_1, ..., z_N) runs over
    all K^N assignments of rows to kernels. It exists to check the closed form. Parameters are those of
    `auxiliary_function`; a ValueError is raised if K^N is above a million.
    """
    rows, classes = _check_data(X, y, parameters, previous)
    n_rows, n_kernels = len(rows), len(parameters.means)
    if n_kernels**n_rows > _MOST_SEQUENCES:
        raise ValueError(
            f"{n_kernels} kernels and {n_rows} rows have {n_kernels}**{n_rows} association sequences, more "
            f"than {_MOST_SEQUENCES}; use auxiliary_function or fewer rows."
        )
    log_joint = _log_joint(rows, classes, parameters)
    joint_of_previous = _log_joint(rows, classes, previous)
    # Pr(z_n | x_n, c_n) by Bayes' rule, computed independently of the rest of this module.
    probabilities = np.exp(joint_of_previous - joint_of_previous.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)

    sequences = itertools.product(range(n_kernels), repeat=n_rows)
    every_row = np.arange(n_rows)
    total = 0.0
    while batch := list(itertools.islice(sequences, _SEQUENCES_PER_BATCH)):
        z = np.array(batch, dtype=np.intp)
        probability = probabilities[every_row, z].prod(axis=1)
        possible = probability > 0.0  # 0 log 0 = 0
        log_complete = log_joint[every_row, z[possible]].sum(axis=1)
        total += float((probability[possible] * log_complete).sum())
    return total


def entropy_of_responsibilities(X: ArrayLike, y: ArrayLike, previous: Parameters) -> float:
    """Return the entropy of the hidden assignments given the data, in nats, from 0 to N log K.

    Parameters are those of `auxiliary_function`.
    """
    rows, classes = _check_data(X, y, previous)
    return float(entr(_responsibilities(rows, classes, previous)).sum())


def variational_bound(X: ArrayLike, y: ArrayLike, parameters: Parameters, previous: Parameters) -> float:
    """Return the variational lower bound of the total log-likelihood of `parameters`.

    The bound is Q(parameters, previous) plus the entropy of the responsibilities of `previous`. It equals the
    total log-likelihood if both models are the same, so increasing Q increases it by at least as much.
    Parameters are those of `auxiliary_function`.
    """
    return auxiliary_function(X, y, parameters, previous) + entropy_of_responsibilities(X, y, previous)


def log_likelihood(X: ArrayLike, y: ArrayLike, parameters: Parameters) -> FloatArray:
    """Return the log-likelihood (L,) of the rows of each class: sums of log sum_k pi_k,c N(x_n; mu_k, P_k).

    Parameters are those of `auxiliary_function`.
    """
    rows, classes = _check_data(X, y, parameters)
    log_evidence = logsumexp(_log_joint(rows, classes, parameters), axis=1)
    return np.array([log_evidence[classes == c].sum() for c in range(parameters.weights.shape[1])])


def _log_densities(X: FloatArray, parameters: Parameters) -> FloatArray:
    """Return log N(x_n; mu_k, P_k) of every row and kernel, shape (N, K)."""
    factors = np.linalg.cholesky(parameters.covariances)
    standardised = np.linalg.solve(factors, (X - parameters.means[:, None]).swapaxes(1, 2))  # (K, M, N)
    constant = 0.5 * X.shape[1] * math.log(2.0 * math.pi)
    half_log_determinants = np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
    return -0.5 * (standardised**2).sum(axis=1).T - half_log_determinants - constant


def _log_joint(X: FloatArray, classes: NDArray[np.intp], parameters: Parameters) -> FloatArray:
    """Return log pi_k,c(n) + log N(x_n; mu_k, P_k), shape (N, K); minus infinity for zero weights."""
    with np.errstate(divide="ignore"):
        log_weights: FloatArray = np.log(parameters.weights)
    return log_weights.T[classes] + _log_densities(X, parameters)


def _responsibilities(X: FloatArray, classes: NDArray[np.intp], parameters: Parameters) -> FloatArray:
    """Return w_nk, the equation (E), computed in the log domain, shape (N, K)."""
    return softmax(_log_joint(X, classes, parameters), axis=1)


def _check_data(X: ArrayLike, y: ArrayLike, *models: Parameters) -> tuple[FloatArray, NDArray[np.intp]]:
    """Return the rows (N, M) as floats and their class codes (N,); raise ValueError if shapes differ."""
    rows: FloatArray = check_array(X, dtype=np.float64)
    labels, codes = np.unique(y, return_inverse=True)
    check_length(len(codes), len(rows))
    n_kernels, n_classes = models[0].weights.shape
    if len(labels) != n_classes:
        raise ValueError(
            f"y has {len(labels)} distinct labels but the weights have {n_classes} columns, one per class."
        )
    expected = ((n_kernels, n_classes), (n_kernels, rows.shape[1]), (n_kernels, rows.shape[1], rows.shape[1]))
    for model in models:
        shapes = (model.weights.shape, model.means.shape, model.covariances.shape)
        if shapes != expected:
            raise ValueError(
                f"weights, means and covariances must have shapes {', '.join(map(str, expected))} for X with "
                f"{rows.shape[1]} features; got {', '.join(map(str, shapes))}."
            )
    return rows, codes
