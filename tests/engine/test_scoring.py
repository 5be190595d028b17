"""Densities, responsibilities and conditional distributions by definition; mixing of kernels' densities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracles
import pytest
from libraries import LIBRARIES, each_library
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, random_model, random_rows

from skmix.engine import scoring
from skmix.engine.exponentials import log_mix
from skmix.engine.kernels import StudentT
from skmix.engine.numbers import to_numpy
from skmix.engine.records import FloatArray, IntArray, Parameters

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def problem(
    covariance_type: str, n_kernels: int = 4, n_features: int = 3, n_rows: int = 60
) -> tuple[FloatArray, IntArray, Parameters]:
    random = np.random.default_rng(0)
    X, classes = random_rows(random, n_rows, 3, n_features)
    return X, classes, random_model(random, n_kernels, 3, n_features, covariance_type)


@each_type
def test_rows_whose_nearest_kernel_has_no_weight_in_a_class(covariance_type: str) -> None:
    """The class's own terms are exp(−5000) beside the nearest kernel's: they must not be lost."""
    _, _, model = problem(covariance_type, n_kernels=3, n_features=2)
    model = replace(
        model,
        weights=np.array([[1.0, 0.0, 0.4], [0.0, 1.0, 0.6], [0.0, 0.0, 0.0]]),
        means=np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]]),
    )
    X = np.array([[0.1, 0.2], [99.0, 1.0], [50.0, 3.0], [0.0, 99.0], [300.0, -300.0]])
    expected = oracles.class_log_likelihood(X, model, covariance_type)
    assert expected.min() < -2000.0
    found = scoring.class_log_likelihood(X, model, covariance_type)
    assert_allclose(found, expected, rtol=1e-10)
    w = np.exp(scoring.log_responsibilities(X, np.array([0, 1, 0, 1, 0]), model, covariance_type))
    assert_array_equal(w, np.eye(3)[[0, 1, 0, 1, 0]])


def test_subnormal_likelihoods_keep_their_digits() -> None:
    """Relative to the nearest kernel the terms of the class are 1e-290 to 1e-323: few digits are left."""
    model = Parameters(np.eye(2), np.array([[0.0], [100.0]]), np.ones((2, 1, 1)))
    X = 50.0 - np.linspace(6.6, 7.5, 40)[:, None]
    expected = oracles.class_log_likelihood(X, model)
    assert_allclose(scoring.class_log_likelihood(X, model, "full"), expected, rtol=1e-14)
    logs = oracles.kernel_log_densities(X, model)
    assert_allclose(log_mix(logs.T, model.weights).T, expected, rtol=1e-14)


@pytest.mark.parametrize("t", [False, True])
@each_type
def test_a_model_changed_in_place_is_prepared_anew(covariance_type: str, t: bool) -> None:
    """Prepared models are kept by their values, not by the identity of their arrays."""
    X, _, model = problem(covariance_type)
    degrees = np.full(4, 5.0)
    model = replace(model, tail=StudentT(degrees)) if t else model
    for array in (model.means, model.covariances, model.weights, degrees):
        scoring.class_log_likelihood(X, model, covariance_type)
        array *= 1.5
        found = scoring.class_log_likelihood(X, model, covariance_type)
        assert_allclose(found, oracles.class_log_likelihood(X, model, covariance_type), rtol=1e-10)


# ---------------------------------------------------------------- tensors


@each_library
def test_far_rows_on_a_device_are_those_of_numpy(library: str) -> None:
    """Near and far rows are evaluated apart there, and come back in their order."""
    X, classes, model = problem("full")
    model.weights[:2, 0] = 0.0  # the nearest kernels of many rows
    X[::3] *= 1e4
    X[1::10] *= 1e120
    X[2::20] *= 5.0
    there = LIBRARIES[library](X)
    for got, expected in (
        (scoring.class_log_likelihood(rows, model, "full") for rows in (there, X)),
        (scoring.log_responsibilities(rows, classes, model, "full") for rows in (there, X)),
        (scoring.class_log_likelihood(rows[::3, :], model, "full") for rows in (there, X)),
    ):
        assert type(got) is type(there)
        assert_allclose(to_numpy(got), expected, rtol=1e-10, atol=1e-10)


@each_library
def test_a_model_that_devices_do_not_cover_is_refused(library: str) -> None:
    X, _, model = problem("full")
    heavy = replace(model, tail=StudentT(np.full(4, 5.0)))
    with pytest.raises(ValueError, match="Passes on a device do not cover t kernels"):
        scoring.class_log_likelihood(LIBRARIES[library](X), heavy, "full")


# ---------------------------------------------------------------- conditional distributions


def test_nearly_collinear_features_leave_a_covariance() -> None:
    # The last feature is the sum of the others up to one part in a million; the difference of two matrices,
    # the textbook's formula, has few digits of what is left, and may make it negative.
    rest = 1e-12
    covariances = np.array([[[1.0, 0.3, 1.3], [0.3, 1.0, 1.3], [1.3, 1.3, 2.6 + rest]]])
    model = Parameters(np.ones((1, 1)), np.zeros((1, 3)), covariances)
    found = scoring.condition(model, "full", np.array([0, 1]), np.array([1e3, -2e3]))
    # 2.6 + 1e-12 itself is rounded to four digits of the 1e-12.
    assert_allclose(found.covariances, [[[rest]]], rtol=1e-3)
    assert_allclose(found.means, [[-1e3]], rtol=1e-9)
