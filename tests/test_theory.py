"""Baum's auxiliary function: closed form against enumeration, and what EM rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from oracles import random_model

from skmix.engine.records import FloatArray, Parameters
from skmix.paper import published_pass
from skmix.theory import (
    auxiliary_function,
    auxiliary_function_by_enumeration,
    entropy_of_responsibilities,
    log_likelihood,
    variational_bound,
)

reproducible = settings(derandomize=True, deadline=None, database=None, max_examples=25)

WORKED_X = np.array([[-0.7], [0.4], [1.9], [2.6], [0.1]])
WORKED_Y = np.array([1, 1, 2, 1, 2])
WORKED_PREVIOUS = Parameters(
    weights=np.array([[0.6, 0.3], [0.4, 0.7]]),
    means=np.array([[0.0], [2.0]]),
    covariances=np.array([[[1.0]], [[0.5]]]),
)
WORKED_PARAMETERS = Parameters(
    weights=np.array([[0.2, 0.5], [0.8, 0.5]]),
    means=np.array([[0.3], [1.2]]),
    covariances=np.array([[[0.7]], [[2.0]]]),
)

labels_of_rows = st.lists(st.integers(0, 3), min_size=1, max_size=6)
seeds = st.integers(0, 2**32 - 1)


def random_case(
    labels: list[int], n_kernels: int, n_features: int, seed: int
) -> tuple[FloatArray, NDArray[np.intp], Parameters, Parameters]:
    """Return rows, their class columns, and two models for the given pattern of classes."""
    random = np.random.default_rng(seed)
    classes = np.unique(labels, return_inverse=True)[1]
    n_classes = len(set(labels))
    X = random.normal(scale=1.5, size=(len(labels), n_features))
    parameters = random_model(random, n_kernels, n_classes, n_features)
    previous = random_model(random, n_kernels, n_classes, n_features)
    return X, classes, parameters, previous


def gradient(
    function: Callable[[FloatArray], float], at: FloatArray, *, symmetric: bool = False
) -> FloatArray:
    """Return the central-difference gradient with respect to every entry of `at`.

    With `symmetric`, the entries (k, d, e) and (k, e, d) move together, as those of a covariance do.
    """
    slopes = np.empty_like(at)
    for index in np.ndindex(at.shape):
        step = 1e-5 * max(1.0, abs(float(at[index])))
        direction = np.zeros_like(at)
        direction[index] = step
        if symmetric:
            direction[index[0], index[2], index[1]] = step
        slopes[index] = (function(at + direction) - function(at - direction)) / (2.0 * step)
    return slopes


def gradients_of_q(
    X: FloatArray, y: NDArray[Any], parameters: Parameters, previous: Parameters
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the numerical gradients of Q with respect to weights, means and covariances."""

    def q(**changed: FloatArray) -> float:
        return auxiliary_function(X, y, replace(parameters, **changed), previous)

    return (
        gradient(lambda weights: q(weights=weights), parameters.weights),
        gradient(lambda means: q(means=means), parameters.means),
        gradient(lambda covariances: q(covariances=covariances), parameters.covariances, symmetric=True),
    )


def m_step(X: FloatArray, classes: NDArray[np.intp], previous: Parameters) -> Parameters:
    """Return the parameters after one pass of the published algorithm."""
    order = np.argsort(classes, kind="stable")
    return published_pass(X[order].T, np.bincount(classes), previous)[0]


@reproducible
@given(labels=labels_of_rows, n_kernels=st.integers(1, 3), n_features=st.integers(1, 3), seed=seeds)
# So many sequences are enumerated in several batches.
@example(labels=[0, 1, 1, 0, 2, 2, 0, 1, 0], n_kernels=3, n_features=1, seed=3)
def test_closed_form_equals_enumeration_for_any_class_pattern(
    labels: list[int], n_kernels: int, n_features: int, seed: int
) -> None:
    X, classes, parameters, previous = random_case(labels, n_kernels, n_features, seed)
    closed = auxiliary_function(X, classes, parameters, previous)
    enumerated = auxiliary_function_by_enumeration(X, classes, parameters, previous)
    assert closed == pytest.approx(enumerated, rel=1e-10, abs=1e-10)


def test_m_step_is_stationary_with_several_features_and_unequal_classes() -> None:
    random = np.random.default_rng(20)
    classes = random.permutation(np.repeat([0, 1, 2], [25, 12, 3]))
    X = random.normal(size=(40, 2)) + 2.0 * random.integers(0, 3, size=(40, 1))
    previous = random_model(random, 3, 3, 2)
    best = m_step(X, classes, previous)
    by_weights, by_means, by_covariances = gradients_of_q(X, classes, best, previous)
    assert_allclose(by_weights, np.tile([25.0, 12.0, 3.0], (3, 1)), rtol=1e-6)
    assert_allclose(by_means, 0.0, atol=1e-6)
    assert_allclose(by_covariances, 0.0, atol=1e-6)
    # Elsewhere the gradient is not zero.
    by_weights, by_means, by_covariances = gradients_of_q(X, classes, previous, previous)
    assert np.ptp(by_weights, axis=0).min() > 0.1
    assert min(np.abs(by_means).max(), np.abs(by_covariances).max()) > 1.0


@reproducible
@given(labels=labels_of_rows, n_kernels=st.integers(1, 3), n_features=st.integers(1, 3), seed=seeds)
def test_variational_bound_touches_the_log_likelihood_from_below(
    labels: list[int], n_kernels: int, n_features: int, seed: int
) -> None:
    """So a gain of Q is at most the gain of the log-likelihood."""
    X, classes, parameters, previous = random_case(labels, n_kernels, n_features, seed)
    total = log_likelihood(X, classes, parameters).sum()
    assert variational_bound(X, classes, parameters, previous) <= total + 1e-9 * (1.0 + abs(total))
    assert variational_bound(X, classes, parameters, parameters) == pytest.approx(total, rel=1e-10, abs=1e-10)


def test_entropy_lies_between_certainty_and_ignorance() -> None:
    alike = replace(WORKED_PREVIOUS, weights=np.full((2, 2), 0.5), means=np.zeros((2, 1)))
    alike = replace(alike, covariances=np.ones((2, 1, 1)))
    assert entropy_of_responsibilities(WORKED_X, WORKED_Y, alike) == pytest.approx(5.0 * np.log(2.0))
    certain = replace(WORKED_PREVIOUS, weights=np.array([[1.0, 0.0], [0.0, 1.0]]))
    assert entropy_of_responsibilities(WORKED_X, WORKED_Y, certain) == 0.0


def test_log_likelihood_far_from_every_kernel_stays_finite() -> None:
    X = WORKED_X + 1e4
    assert np.isfinite(log_likelihood(X, WORKED_Y, WORKED_PREVIOUS)).all()
    assert np.isfinite(variational_bound(X, WORKED_Y, WORKED_PARAMETERS, WORKED_PREVIOUS))


def test_zero_weight_times_zero_responsibility_is_zero() -> None:
    hard = replace(WORKED_PREVIOUS, weights=np.array([[1.0, 0.3], [0.0, 0.7]]))
    for function in (auxiliary_function, auxiliary_function_by_enumeration):
        assert np.isfinite(function(WORKED_X, WORKED_Y, hard, hard))
        assert function(WORKED_X, WORKED_Y, hard, WORKED_PREVIOUS) == -np.inf
    assert auxiliary_function(WORKED_X, WORKED_Y, hard, hard) == pytest.approx(
        auxiliary_function_by_enumeration(WORKED_X, WORKED_Y, hard, hard), rel=1e-13
    )


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    X, y, model = WORKED_X, WORKED_Y, WORKED_PREVIOUS
    three_kernels = random_model(np.random.default_rng(0), 3, 2, 1)
    for call, message in (
        (lambda: log_likelihood(X[:, 0], y, model), "Expected 2D array, got 1D array"),
        (lambda: log_likelihood(X, y[:4], model), "X has 5 rows but y has 4 labels"),
        (lambda: log_likelihood(X, [1, 1, 2, 1, 3], model), "y has 3 distinct labels but .* 2 columns"),
        (lambda: log_likelihood(np.tile(X, (1, 2)), y, model), r"\(2, 2, 2\) for X with 2 .* \(2, 1, 1\)"),
        (lambda: auxiliary_function(X, y, model, three_kernels), r"\(2, 2\), .*; got \(3, 2\)"),
        (
            lambda: auxiliary_function_by_enumeration(np.tile(X, (4, 1)), np.tile(y, 4), model, model),
            r"2\*\*20 association sequences, more than 1000000",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            call()
