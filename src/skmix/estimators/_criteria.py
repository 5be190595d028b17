"""What candidates are judged by: smaller is better for all of them."""

from __future__ import annotations

import numpy as np

from ..engine.covariances import Structure
from ..engine.density import log_responsibilities
from ..engine.model import FloatArray, IntArray, Parameters
from ..engine.refine.temperature import least_log_loss, log_losses


def n_free_parameters(structure: Structure, n_kernels: int, n_features: int, n_classes: int) -> int:
    """Return the number of free parameters: means, covariances, and K − 1 weights a class."""
    covariances = structure.n_parameters(n_kernels, n_features)
    return covariances + n_kernels * n_features + (n_kernels - 1) * n_classes


def assignment_entropy(
    X: np.ndarray,
    codes: IntArray,
    row_weights: FloatArray | None,
    parameters: Parameters,
    covariance_type: str,
    n_jobs: int,
) -> float:
    """Return −Σ_n Σ_k w_nk log w_nk: how undecided the rows are between kernels, each in its own class.

    A row without a label (−1) is taken as one of the mixture of all classes.
    """
    if parameters.class_prior is not None:
        mixed = parameters.weights @ parameters.class_prior
        weights = np.column_stack([parameters.weights, mixed])
        parameters = Parameters(weights, parameters.means, parameters.covariances)
        codes = np.where(codes < 0, weights.shape[1] - 1, codes)
    logs = log_responsibilities(X, codes, parameters, covariance_type, n_jobs)
    shares = np.exp(logs)
    per_row = -np.sum(shares * np.where(shares > 0, logs, 0.0), axis=1)
    return float(per_row.sum() if row_weights is None else per_row @ row_weights)


def softened_log_losses(
    log_likelihood: FloatArray,
    codes: IntArray,
    class_prior: FloatArray,
    row_weights: FloatArray | None = None,
) -> FloatArray:
    """Return the log-loss (n,) of each row's class posterior, softened as far as it helps the mean.

    Posteriors are proportional to prior · likelihood^a, with the a in [0, 1] that makes the mean loss
    smallest. It judges what the likelihoods know about the classes, not how loudly they say it: a product of
    models counts what its groups have in common twice, which makes it too sure of itself but need not make
    it wrong.

    Parameters
    ----------
    log_likelihood : ndarray of shape (n, L)
        log p(x | class j).
    codes : ndarray of shape (n,)
        Class of each row.
    class_prior : ndarray of shape (L,)
        Class priors.
    row_weights : ndarray of shape (n,), optional
        Weights of the rows.
    """
    with np.errstate(divide="ignore"):
        log_prior = np.log(class_prior)
    temperature, _ = least_log_loss(log_likelihood, codes, row_weights, log_prior=log_prior)
    return log_losses(log_likelihood, codes, temperature, log_prior)
