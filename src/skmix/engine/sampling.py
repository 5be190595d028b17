"""Drawing rows from a fitted model."""

from __future__ import annotations

import numpy as np

from .kernels import structure_of
from .types import FloatArray, IntArray, Parameters


def draw(
    parameters: Parameters, covariance_type: str, classes: IntArray, random_state: np.random.RandomState
) -> tuple[FloatArray, IntArray]:
    """Draw one row for each requested class.

    Parameters
    ----------
    parameters : Parameters
        One model.
    covariance_type : str
        Its covariance structure.
    classes : ndarray of shape (n,)
        Class of each row to draw, 0 … L − 1.
    random_state : RandomState
        Source of randomness.

    Returns
    -------
    X : ndarray of shape (n, M)
        Rows.
    kernels : ndarray of shape (n,)
        The kernel each row came from.
    """
    n_kernels, n_features = parameters.means.shape
    cumulative = np.cumsum(parameters.weights, axis=0)
    cumulative /= cumulative[-1]
    threshold = random_state.uniform(size=len(classes))
    kernels = (threshold[:, None] >= cumulative.T[classes]).sum(axis=1).astype(np.int64)
    full = structure_of(covariance_type).to_full(parameters.covariances[None], n_kernels, n_features)[0]
    roots = np.linalg.cholesky(full)
    X = random_state.standard_normal((len(classes), n_features))
    for k in np.unique(kernels):
        own = kernels == k
        X[own] = X[own] @ roots[k].T + parameters.means[k]
    return X, kernels
