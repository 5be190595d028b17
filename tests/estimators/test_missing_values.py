"""What missing values cost: statistical comparisons over replicates, with fixed seeds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from oracles import as_full, as_structure

from skmix import SharedKernelMixture
from skmix.datasets import make_shared_kernel_data
from skmix.engine.model import FloatArray

MEANS = np.array([[0.0, 0.0, 0.0, 0.0], [6.0, 6.0, 0.0, 6.0], [0.0, 7.0, 7.0, -6.0]])
WEIGHTS = np.array([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6]])
N_PER_CLASS = 150
SHARE = 0.2


def true_covariances() -> FloatArray:
    """Return covariances (3, 4, 4) with correlations of up to 0.6."""
    factors = np.array([[0.7, 0.7, -0.5, 0.3], [0.8, -0.6, 0.6, 0.0], [0.5, 0.7, 0.7, 0.7]])
    return factors[:, :, None] * factors[:, None, :] + 0.5 * np.eye(4)


class Fits(NamedTuple):
    """Parameters of all replicates, each as one vector: arrays of shape (replicates, parameters)."""

    complete: FloatArray
    with_gaps: FloatArray
    complete_cases: FloatArray
    truth: FloatArray


def vector(model: SharedKernelMixture) -> FloatArray:
    return np.concatenate([model.weights_.ravel(), model.means_.ravel(), model.covariances_.ravel()])


def fitted(X: FloatArray, y: np.ndarray, covariance_type: str) -> FloatArray:
    # Started at the truth, so that kernels keep their numbers and parameters can be compared.
    start = {
        "means": MEANS,
        "covariances": as_structure(true_covariances(), covariance_type),
        "weights": WEIGHTS,
    }
    return vector(SharedKernelMixture(init=start, covariance_type=covariance_type, tol=1e-6).fit(X, y))


def replicate(covariance_type: str, n_replicates: int, *, depending_on_a_value: bool = False) -> Fits:
    """Fit complete rows, the same rows with gaps, and only those rows that have none."""
    complete, with_gaps, complete_cases = [], [], []
    covariances = as_structure(true_covariances(), covariance_type)
    truth = np.concatenate([WEIGHTS.ravel(), MEANS.ravel(), covariances.ravel()])
    full = as_full(covariances, covariance_type, *MEANS.shape)
    for seed in range(n_replicates):
        X, y = make_shared_kernel_data(MEANS, full, WEIGHTS, N_PER_CLASS, random_state=seed)
        random = np.random.RandomState(1000 + seed)
        gaps = random.uniform(size=X.shape) < SHARE
        if depending_on_a_value:
            # Missing at random, but not completely: feature 0 is always seen and decides about the others.
            gaps[:, 0] = False
            gaps[:, 1:] = (X[:, :1] > np.median(X[:, 0])) & (random.uniform(size=(len(X), 3)) < 0.5)
        gaps[gaps.all(axis=1), 0] = False
        complete.append(fitted(X, y, covariance_type))
        with_gaps.append(fitted(np.where(gaps, np.nan, X), y, covariance_type))
        whole = ~gaps.any(axis=1)
        complete_cases.append(fitted(X[whole], y[whole], covariance_type))
    return Fits(np.array(complete), np.array(with_gaps), np.array(complete_cases), truth)


def root_mean_square(deviations: FloatArray) -> FloatArray:
    """Return the root of the mean square (parameters,) over the replicates."""
    return np.sqrt(np.mean(deviations**2, axis=0))


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_gaps_move_parameters_less_than_complete_case_analysis_errs(covariance_type: str) -> None:
    # So many that chance alone does not reverse the order of two root mean squares, one half of the other.
    fits = replicate(covariance_type, 40)
    moved = root_mean_square(fits.with_gaps - fits.complete)
    error_of_complete_cases = root_mean_square(fits.complete_cases - fits.truth)
    spread_of_complete_cases = fits.complete_cases.std(axis=0, ddof=1)
    assert np.all(moved < error_of_complete_cases)
    assert np.all(moved < spread_of_complete_cases)
    # And the estimate itself is the better one: for almost every parameter alone, and clearly on the whole.
    error = root_mean_square(fits.with_gaps - fits.truth)
    assert np.mean(error < error_of_complete_cases) > 0.9
    assert np.mean((error / error_of_complete_cases) ** 2) < 0.75
    # It is no further from the truth than so few observed values warrant.
    assert np.mean((error / root_mean_square(fits.complete - fits.truth)) ** 2) < 1.0 / (1.0 - SHARE) ** 2


@pytest.mark.slow
def test_gaps_that_depend_on_an_observed_value_bias_complete_cases_only() -> None:
    fits = replicate("full", 15, depending_on_a_value=True)
    standard_errors = fits.complete.std(axis=0, ddof=1) / np.sqrt(15)

    def bias(estimates: FloatArray) -> FloatArray:
        return np.abs(np.mean(estimates - fits.complete, axis=0)) / standard_errors

    # Rows with gaps come from some kernels more than from others, whose weights then seem larger.
    weights = slice(0, WEIGHTS.size)
    assert np.median(bias(fits.complete_cases)[weights]) > 5.0
    assert np.all(bias(fits.with_gaps)[weights] < 1.0)
    assert np.sqrt(np.mean(bias(fits.with_gaps) ** 2)) < 2.0
