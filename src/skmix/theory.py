"""Baum's auxiliary function, in closed form and by enumeration, and the variational bounds.

EM for shared kernels rests on one identity: the expectation over all K^N assignments of the N rows to the K
kernels is a double sum over rows and kernels, for any partition of the rows into classes. This module
computes both sides independently, the lower bound that EM maximises, and that of variational Bayes, where the
parameters are random too.

`parameters` is the model at which a function is evaluated, and `previous` the model of the responsibilities.
Weights need not sum to one, so that functions can be differentiated in every direction.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import digamma, entr, gammaln, logsumexp, multigammaln, softmax, xlogy
from sklearn.utils import check_array

from .engine.model import FloatArray, Parameters
from .io.labels import check_length

__all__ = [
    "Beliefs",
    "Parameters",
    "auxiliary_function",
    "auxiliary_function_by_enumeration",
    "entropy_of_responsibilities",
    "evidence_bound",
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


@dataclass(frozen=True)
class Beliefs:
    """A distribution of all parameters: Dirichlet for weights, normal-Wishart for kernels.

    The mean of a kernel with precision Lambda is N(means_k, (mean_precision_k Lambda)^-1), and Lambda has a
    Wishart distribution with degrees_of_freedom_k and the expectation covariances_k^-1.
    """

    concentration: FloatArray  #: (K, L), of each class's weights
    means: FloatArray  #: (K, M), expected
    mean_precision: FloatArray  #: (K,), strength of the distribution of each mean, in rows
    degrees_of_freedom: FloatArray  #: (K,), of each precision, above M - 1
    covariances: FloatArray  #: (K, M, M), inverses of the expected precisions


def evidence_bound(X: ArrayLike, y: ArrayLike, posterior: Beliefs, prior: Beliefs) -> float:
    """Return the mean-field lower bound of the log-evidence of the rows, given their classes.

    The evidence is the probability of the rows with all parameters integrated out. The bound is the
    expectation of the terms of Q over `posterior`, plus the entropy of the best responsibilities, less the
    divergence of `posterior` from `prior`. It is highest when `posterior` is nearest to the true one. X and y
    are those of `auxiliary_function`; both beliefs have the same shapes.
    """
    totals = posterior.concentration.sum(axis=0)
    expected = Parameters(posterior.concentration / totals, posterior.means, posterior.covariances)
    rows, classes = _check_data(X, y, expected)
    n_features = rows.shape[1]
    degrees = posterior.degrees_of_freedom
    # E log pi (K, L), and E log|Lambda| (K,) less the log-determinant of the expected precision.
    log_weights = digamma(posterior.concentration) - digamma(totals)
    shift = digamma(0.5 * (degrees[:, None] - np.arange(n_features))).sum(axis=1)
    shift -= n_features * np.log(0.5 * degrees)
    log_precision = shift - np.linalg.slogdet(posterior.covariances)[1]
    precisions = np.linalg.inv(posterior.covariances)

    def expected_log(beliefs: Beliefs) -> float:
        """Return the expectation over `posterior` of the logarithm of a density of the parameters."""
        concentration, degrees = beliefs.concentration, beliefs.degrees_of_freedom
        of_weights = gammaln(concentration.sum(axis=0)) - gammaln(concentration).sum(axis=0)
        of_weights = of_weights + ((concentration - 1.0) * log_weights).sum(axis=0)
        away = posterior.means - beliefs.means
        distance = np.einsum("kd,kde,ke->k", away, precisions, away) + n_features / posterior.mean_precision
        of_mean = 0.5 * (n_features * np.log(beliefs.mean_precision / (2.0 * math.pi)) + log_precision)
        of_mean -= 0.5 * beliefs.mean_precision * distance
        inverse_scale = degrees[:, None, None] * beliefs.covariances
        of_precision = 0.5 * degrees * (np.linalg.slogdet(inverse_scale)[1] - n_features * math.log(2.0))
        of_precision -= multigammaln(0.5 * degrees, n_features)
        of_precision += 0.5 * (degrees - n_features - 1.0) * log_precision
        of_precision -= 0.5 * np.einsum("kde,ked->k", inverse_scale, precisions)
        return float(of_weights.sum() + (of_mean + of_precision).sum())

    # E log N(x; mu, Lambda^-1), from its value at the expected mean and precision.
    log_densities = _log_densities(rows, expected) + 0.5 * (shift - n_features / posterior.mean_precision)
    log_evidence = logsumexp(log_weights.T[classes] + log_densities, axis=1)
    return float(log_evidence.sum()) - (expected_log(posterior) - expected_log(prior))


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
