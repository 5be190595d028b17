"""Kernels with heavy tails: densities, degrees of freedom and draws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, as_full, random_model, random_rows
from scipy import stats
from scipy.special import digamma

from skmix.engine import scoring as density
from skmix.engine.kernels import StudentT, likeliest_degrees
from skmix.engine.records import FloatArray, IntArray, Parameters

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
DEGREES = np.array([1.5, 3.0, 8.0, 100.0])


def problem(covariance_type: str, *, gaps: bool = False) -> tuple[FloatArray, IntArray, Parameters]:
    random = np.random.default_rng(0)
    X, classes = random_rows(random, 25, 2, 3)
    X[:3] *= 10.0  # far from all kernels
    if gaps:
        gone = random.uniform(size=X.shape) < 0.3
        gone[np.arange(25), random.integers(0, 3, size=25)] = False
        X[gone], X[4] = np.nan, np.nan
    model = random_model(random, 4, 2, 3, covariance_type)
    return X, classes, replace(model, tail=StudentT(DEGREES))


@pytest.mark.parametrize("degrees", [1.2, 3.0, 10.0, 60.0, 120.0, 195.0])
def test_degrees_of_freedom_solve_their_equation(degrees: float) -> None:
    """In their whole range, and at its ends where the solution lies beyond."""
    half = 0.5 * degrees
    gap = digamma(half) - np.log(half) - 1.0
    assert_allclose(likeliest_degrees(np.array([[gap]])), degrees, rtol=1e-9)
    # The mean of E[log u] − E[u] is at most −1, that of rows which are Gaussian for all purposes.
    assert_allclose(likeliest_degrees(np.array([[-1.0, -1.0 - 1e-9, -9.0]])), [[200.0, 200.0, 1.0]])


def assert_drawn(values: FloatArray, distribution: object) -> None:
    assert stats.kstest(values, distribution.cdf).pvalue > 1e-3  # type: ignore[attr-defined]


@each_type
def test_drawn_rows_have_the_distribution_of_their_kernel(covariance_type: str) -> None:
    _, _, model = problem(covariance_type)
    classes = np.repeat([0, 1], [4000, 4000])
    X, kernels = density.draw(model, covariance_type, classes, np.random.RandomState(0))
    full = as_full(model.covariances, covariance_type, 4, 3)
    for c in (0, 1):
        shares = np.bincount(kernels[classes == c], minlength=4) / 4000.0
        assert_allclose(shares, model.weights[:, c], atol=0.03)
    for k in range(4):
        own = X[kernels == k]
        for j in range(3):
            assert_drawn(own[:, j], stats.t(DEGREES[k], model.means[k, j], np.sqrt(full[k, j, j])))
        # Features have a common tail: squared distances over M are those of an F distribution.
        away = own - model.means[k]
        squares = np.einsum("nd,de,ne->n", away, np.linalg.inv(full[k]), away) / 3.0
        assert_drawn(squares, stats.f(3, DEGREES[k]))
