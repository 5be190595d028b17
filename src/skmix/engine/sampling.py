"""Drawing rows from a fitted model."""

from __future__ import annotations

import numpy as np

from .covariances import structure_of
from .model import FloatArray, IntArray, Parameters


def choose(probabilities: FloatArray, random_state: np.random.RandomState) -> IntArray:
    """Return for each row of probabilities (n, m), summing to one, an index (n,) drawn by them."""
    cumulative = np.cumsum(probabilities, axis=1)
    cumulative /= cumulative[:, -1:]
    threshold = random_state.uniform(size=len(probabilities))
    return (threshold[:, None] >= cumulative).sum(axis=1).astype(np.int64)


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
    n_features = parameters.means.shape[1]
    kernels = choose(parameters.weights.T[classes], random_state)
    structure = structure_of(covariance_type)
    X = random_state.standard_normal((len(classes), n_features))
    for k in np.unique(kernels):
        # One dense matrix at a time: of many features, all of them may be more than there is memory for.
        one = structure.take_kernels(parameters.covariances[None], np.array([[k]]))
        root = np.linalg.cholesky(structure.to_full(one, 1, n_features)[0, 0])
        own = kernels == k
        X[own] = X[own] @ root.T + parameters.means[k]
    return X, kernels
