"""What a fitted model says of some features when others are known: conditional densities, filled gaps.

Given the kernel a row came from, its missing values are Gaussian: their mean moves with the observed values
by a slope, and their covariance does not depend on them. The kernel itself is known by its responsibility.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .covariances import structure_of
from .density import log_responsibilities
from .model import FloatArray, IntArray, Parameters
from .sources.gaps import group_rows

# Predicted values of all kernels that are held at once.
_CHUNK = 1 << 20


def condition(
    parameters: Parameters, covariance_type: str, columns: IntArray, values: FloatArray
) -> Parameters:
    """Return the model of the other features, given values of some.

    Parameters
    ----------
    parameters : Parameters
        One model of M features; class priors are left to the caller.
    covariance_type : str
        Its covariance structure, and that of the result.
    columns : ndarray of shape (O,)
        The known features, O < M.
    values : ndarray of shape (O,)
        Their values.

    Returns
    -------
    conditional : Parameters
        Of the other features, in increasing order; the weights are each class's responsibilities for the
        known values.
    """
    n_features, n_classes = parameters.means.shape[1], parameters.weights.shape[1]
    rows = np.full((n_classes, n_features), np.nan)
    rows[:, columns] = values
    weights = np.exp(log_responsibilities(rows, np.arange(n_classes), parameters, covariance_type)).T
    slopes, covariances = structure_of(covariance_type).conditional(
        parameters.covariances[None], columns, n_features
    )
    gaps = np.setdiff1d(np.arange(n_features), columns)
    deviation = values - parameters.means[:, columns]
    means = parameters.means[:, gaps] + (slopes[0] @ deviation[..., None])[..., 0]
    return Parameters(weights, means, covariances[0])


def _incomplete(
    X: np.ndarray, parameters: Parameters, covariance_type: str
) -> Iterator[tuple[IntArray, IntArray, IntArray, FloatArray, FloatArray]]:
    """Yield for each pattern with gaps: rows, known columns, gaps, slopes (K, G, O), covariances left."""
    structure = structure_of(covariance_type)
    n_kernels, n_features = parameters.means.shape
    for index, columns in group_rows(X):
        if len(columns) == n_features:
            continue
        gaps = np.setdiff1d(np.arange(n_features), columns)
        slopes, covariances = structure.conditional(parameters.covariances[None], columns, n_features)
        slopes = np.broadcast_to(slopes[0], (n_kernels, len(gaps), len(columns)))
        yield index, columns, gaps, slopes, covariances


def fill_means(
    X: np.ndarray, responsibilities: FloatArray, parameters: Parameters, covariance_type: str
) -> FloatArray:
    """Return rows with the conditional means of their missing values.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows; NaN where a value is missing.
    responsibilities : ndarray of shape (N, K)
        Of the kernels, given what is observed.
    parameters : Parameters
        One model.
    covariance_type : str
        Its covariance structure.

    Returns
    -------
    ndarray of shape (N, M)
        The rows without gaps, observed values untouched.
    """
    filled = X.astype(np.float64)
    step = max(1, _CHUNK // parameters.means.size)
    for index, columns, gaps, slopes, _ in _incomplete(X, parameters, covariance_type):
        for start in range(0, len(index), step):
            rows = index[start : start + step]
            deviation = filled[np.ix_(rows, columns)] - parameters.means[:, None, columns]
            predicted = parameters.means[:, None, gaps] + deviation @ np.swapaxes(slopes, 1, 2)
            filled[np.ix_(rows, gaps)] = np.einsum("nk,knd->nd", responsibilities[rows], predicted)
    return filled


def draw_missing(
    X: np.ndarray,
    kernels: IntArray,
    parameters: Parameters,
    covariance_type: str,
    random_state: np.random.RandomState,
) -> FloatArray:
    """Return copies of the rows with missing values drawn, given the kernel that each copy came from.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        Rows; NaN where a value is missing.
    kernels : ndarray of shape (C, N)
        The kernel of each of C copies of the rows.
    parameters : Parameters
        One model.
    covariance_type : str
        Its covariance structure.
    random_state : RandomState
        Source of randomness.

    Returns
    -------
    ndarray of shape (C, N, M)
        The copies without gaps.
    """
    structure = structure_of(covariance_type)
    filled = np.tile(X.astype(np.float64), (len(kernels), 1, 1))
    for index, columns, gaps, slopes, covariances in _incomplete(X, parameters, covariance_type):
        roots = np.linalg.cholesky(structure.to_full(covariances, len(parameters.means), len(gaps))[0])
        chosen = kernels[:, index]
        drawn = random_state.standard_normal((*chosen.shape, len(gaps)))
        for k in np.unique(chosen):
            own = np.nonzero(chosen == k)
            deviation = X[np.ix_(index, columns)][own[1]] - parameters.means[k, columns]
            drawn[own] = drawn[own] @ roots[k].T + deviation @ slopes[k].T + parameters.means[k, gaps]
        filled[:, index[:, None], gaps] = drawn
    return filled
