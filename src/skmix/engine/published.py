"""The published algorithm as stated: linear domain, full covariances, no safeguards.

This module is an oracle, not an engine. Tests compare the engine with it, and it shows how the
published arithmetic fails: once a covariance turns singular its density is infinite or undefined,
the normalisation (E) turns that into NaN, and the pooled sums (M2), (M3) hand it to every kernel.
Nothing here prevents that. To fit data, use the engine.

The labels beside the lines are those of ``docs/notation.md``: (E) the association probabilities,
(M1) the weights, (M2) the means, (M3) the covariances, (LL) the log-likelihood of a class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.engine.model import FloatArray, Parameters


@dataclass(frozen=True)
class PublishedPass:
    """What one pass leaves behind.

    Attributes
    ----------
    number : int
        The pass, counted from 1.
    parameters : Parameters
        The parameters leaving the pass: weights (K, L), means (K, M), covariances (K, M, M).
    class_log_likelihood : ndarray of shape (L,)
        Log-likelihood of each class's rows under the parameters *entering* the pass.
    converged : ndarray of shape (L,), bool
        The classes that have latched in this pass or an earlier one.
    """

    number: int
    parameters: Parameters
    class_log_likelihood: FloatArray
    converged: NDArray[np.bool_]


@dataclass(frozen=True)
class PublishedFit:
    """A finished run of the published algorithm.

    Attributes
    ----------
    parameters : Parameters
        The parameters leaving the last pass: weights (K, L), means (K, M), covariances (K, M, M).
    class_log_likelihoods : ndarray of shape (n_iter, L)
        Log-likelihood of each class under the parameters entering each pass.
    converged : ndarray of shape (n_iter, L), bool
        The latches after each pass.
    n_iter : int
        Passes done.
    failing_pass : int or None
        The first pass, counted from 1, that left a NaN or an infinity in the parameters or in the
        log-likelihoods; None when every pass was finite.
    """

    parameters: Parameters
    class_log_likelihoods: FloatArray
    converged: NDArray[np.bool_]
    n_iter: int
    failing_pass: int | None

    @property
    def finite(self) -> bool:
        """Whether every pass left finite numbers."""
        return self.failing_pass is None


def published_pass(
    X: FloatArray, classes: NDArray[np.integer[Any]], parameters: Parameters
) -> tuple[Parameters, FloatArray]:
    """Do one pass of the published algorithm.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows of features.
    classes : ndarray of shape (N,)
        Column of the weights that belongs to each row, 0 to L - 1.
    parameters : Parameters
        Weights (K, L), means (K, M) and covariances (K, M, M) entering the pass.

    Returns
    -------
    parameters : Parameters
        The parameters leaving the pass, in the same shapes; possibly not finite.
    class_log_likelihood : ndarray of shape (L,)
        Log-likelihood of each class's rows under the parameters entering the pass.
    """
    n_classes = parameters.weights.shape[1]
    rows_of_class = [classes == c for c in range(n_classes)]

    with np.errstate(all="ignore"):  # the published code lets NaN spread, and so does its oracle
        joint = parameters.weights.T[classes] * _densities(X, parameters)  # (E) numerator, (N, K)
        evidence = joint.sum(axis=1)  # (E) denominator, (N,)
        responsibilities = joint / evidence[:, np.newaxis]  # (E), (N, K)
        class_log_likelihood = np.array([np.log(evidence[rows]).sum() for rows in rows_of_class])  # (LL)

        mass_in_class = np.stack([responsibilities[rows].sum(axis=0) for rows in rows_of_class], axis=1)
        class_sizes = np.array([rows.sum() for rows in rows_of_class])
        weights = mass_in_class / class_sizes  # (M1): the rows of one class, (K, L)

        mass = responsibilities.sum(axis=0)  # from here on the rows of all classes, (K,)
        means = np.einsum("nk,nd->kd", responsibilities, X) / mass[:, np.newaxis]  # (M2)
        deviations = X[:, np.newaxis, :] - means  # (M3): about the new means, (N, K, M)
        weighted = responsibilities[:, :, np.newaxis] * deviations
        covariances = np.stack([weighted[:, k].T @ deviations[:, k] for k in range(len(mass))])
        covariances = covariances / mass[:, np.newaxis, np.newaxis]  # (M3), (K, M, M)

    return Parameters(weights, means, covariances), class_log_likelihood


def published_passes(
    X: FloatArray,
    classes: NDArray[np.integer[Any]],
    parameters: Parameters,
    *,
    max_iter: int = 100,
    tolerance: float = 0.1,
) -> Iterator[PublishedPass]:
    """Yield after every pass, until every class has latched or `max_iter` passes are done.

    A class latches in any pass after the first in which its log-likelihood has moved by less than
    `tolerance`, and stays latched even if it moves again. A comparison with NaN is false, so a run
    that has failed goes on to `max_iter`, as the published one does.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows of features.
    classes : ndarray of shape (N,)
        Column of the weights that belongs to each row, 0 to L - 1.
    parameters : Parameters
        The start: weights (K, L), means (K, M), covariances (K, M, M).
    max_iter : int, default=100
        Largest number of passes.
    tolerance : float, default=0.1
        Absolute change of a class's log-likelihood below which the class latches.

    Yields
    ------
    PublishedPass
        The parameters leaving the pass, the log-likelihoods entering it, and the latches.
    """
    n_classes = parameters.weights.shape[1]
    converged = np.zeros(n_classes, dtype=bool)
    previous = np.full(n_classes, np.nan)  # NaN, so that no class can latch in the first pass
    for number in range(1, max_iter + 1):
        parameters, class_log_likelihood = published_pass(X, classes, parameters)
        with np.errstate(invalid="ignore"):  # the difference of two infinities
            converged = converged | (np.abs(class_log_likelihood - previous) < tolerance)
        yield PublishedPass(number, parameters, class_log_likelihood, converged)
        if converged.all():
            return
        previous = class_log_likelihood


def fit_published(
    X: FloatArray,
    classes: NDArray[np.integer[Any]],
    parameters: Parameters,
    *,
    max_iter: int = 100,
    tolerance: float = 0.1,
) -> PublishedFit:
    """Run the published algorithm to its end.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows of features.
    classes : ndarray of shape (N,)
        Column of the weights that belongs to each row, 0 to L - 1.
    parameters : Parameters
        The start: weights (K, L), means (K, M), covariances (K, M, M).
    max_iter : int, default=100
        Largest number of passes, at least 1.
    tolerance : float, default=0.1
        Absolute change of a class's log-likelihood below which the class latches.

    Returns
    -------
    PublishedFit
        The last parameters with the trace of every pass, finite or not.
    """
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}.")
    passes = list(published_passes(X, classes, parameters, max_iter=max_iter, tolerance=tolerance))
    return PublishedFit(
        parameters=passes[-1].parameters,
        class_log_likelihoods=np.stack([done.class_log_likelihood for done in passes]),
        converged=np.stack([done.converged for done in passes]),
        n_iter=len(passes),
        failing_pass=next((done.number for done in passes if not _is_finite(done)), None),
    )


def _densities(X: FloatArray, parameters: Parameters) -> FloatArray:
    """Return N(x_n; mu_k, P_k) of every row and kernel, shape (N, K), in the linear domain."""
    n_features = X.shape[1]
    densities = np.empty((len(X), len(parameters.means)))
    for k, (mean, covariance) in enumerate(zip(parameters.means, parameters.covariances, strict=True)):
        deviations = X - mean
        quadratic = np.einsum("nd,de,ne->n", deviations, _inverse(covariance), deviations)
        normaliser = np.sqrt((2.0 * math.pi) ** n_features * np.linalg.det(covariance))
        densities[:, k] = np.exp(-0.5 * quadratic) / normaliser
    return densities


def _inverse(covariance: FloatArray) -> FloatArray:
    """Return the inverse of a matrix (M, M); all infinite, as in Matlab, when there is none."""
    try:
        inverse: FloatArray = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    except np.linalg.LinAlgError:
        inverse = np.full_like(covariance, np.inf)
    return inverse


def _is_finite(done: PublishedPass) -> bool:
    """Return whether a pass left finite parameters and log-likelihoods."""
    left = done.parameters
    arrays = (left.weights, left.means, left.covariances, done.class_log_likelihood)
    return all(bool(np.isfinite(array).all()) for array in arrays)
