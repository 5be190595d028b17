"""The M-step of statistics that are made by hand: kernels and classes without rows, and starts that fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, random_model, random_rows, responsibilities
from scipy.special import digamma

from skmix.engine import em
from skmix.engine.em import RunState
from skmix.engine.model import FloatArray, Options, Parameters, Regulariser, Statistics, Status
from skmix.engine.rules.likelihood import Likelihood
from skmix.engine.sources import open_source
from skmix.engine.sources.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.tails import likeliest_degrees

N_CLASSES, N_FEATURES = 3, 2


def rule_of(covariance_type: str) -> Likelihood:
    """Return the rule of EM without priors and floor."""
    bare = Regulariser(np.zeros(N_FEATURES), None, 0.0, np.eye(N_FEATURES), 1.0)
    return Likelihood(structure_of(covariance_type), bare)


def improved(statistics: Statistics, model: Parameters, covariance_type: str) -> Parameters:
    """Return the next parameters of one model, whose statistics have moments about zero."""
    rule, batch = rule_of(covariance_type), model.batch()
    factor = rule.structure.factor(batch.covariances, N_FEATURES)
    found, next_factor, _ = rule.improve(statistics, np.zeros_like(batch.means), batch, factor)
    expected = rule.structure.factor(found.covariances, N_FEATURES)
    assert_allclose(next_factor.whitener, expected.whitener, rtol=1e-12)
    assert_allclose(next_factor.log_determinant, expected.log_determinant, rtol=1e-12)
    assert next_factor.usable.all()
    return found.take(0)


def statistics_of(X: FloatArray, shares: FloatArray, classes: np.ndarray, covariance_type: str) -> Statistics:
    """Return the sums of rows with these responsibilities (N, K), about zero."""
    structure, members = structure_of(covariance_type), np.eye(N_CLASSES)[classes]
    second = np.stack([structure.pack(structure.second_moment(X, own[:, None] * X)) for own in shares.T])
    return Statistics(
        np.zeros((1, N_CLASSES)), (shares.T @ members)[None], (shares.T @ X)[None], second[None]
    )


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("mass", [0.0, 1e-200, 1e-140])
def test_a_kernel_without_rows_stays_where_it_is(covariance_type: str, mass: float) -> None:
    """What rounding leaves of a mass tells nothing of means and covariances."""
    random = np.random.default_rng(0)
    X, classes = random_rows(random, 40, N_CLASSES, N_FEATURES)
    model = random_model(random, 4, N_CLASSES, N_FEATURES, covariance_type)
    shares = responsibilities(X, classes, model, covariance_type)
    shares[:, 1] = mass / len(X)
    found = improved(statistics_of(X, shares, classes, covariance_type), model, covariance_type)
    others = [0, 2, 3]
    assert_array_equal(found.means[1], model.means[1])
    assert_array_equal(found.weights[1], 0.0)
    assert_allclose(found.means[others], (shares.T @ X)[others] / shares.sum(axis=0)[others, None])
    if covariance_type != "tied":
        assert_array_equal(found.covariances[1], model.covariances[1])
        assert not np.any(found.covariances[others] == model.covariances[others])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_model_without_rows_stays_as_it_is(covariance_type: str) -> None:
    model = random_model(np.random.default_rng(0), 4, N_CLASSES, N_FEATURES, covariance_type)
    nothing = np.empty((0, N_FEATURES)), np.empty((0, 4)), np.empty(0, dtype=np.int64)
    found = improved(statistics_of(*nothing, covariance_type), model, covariance_type)
    for name in ("weights", "means", "covariances"):
        assert_array_equal(getattr(found, name), getattr(model, name))


def test_a_class_without_rows_keeps_its_weights() -> None:
    random = np.random.default_rng(1)
    X, classes = random_rows(random, 40, N_CLASSES, N_FEATURES)
    model = random_model(random, 4, N_CLASSES, N_FEATURES)
    shares = responsibilities(X, classes, model)
    present = classes != 2
    found = improved(statistics_of(X[present], shares[present], classes[present], "full"), model, "full")
    assert_array_equal(found.weights[:, 2], model.weights[:, 2])
    for c in (0, 1):
        assert_allclose(found.weights[:, c], shares[classes == c].mean(axis=0))


def test_a_start_that_fails_in_the_pass_in_which_it_would_end_has_failed() -> None:
    """Its last change is small, and its covariance singular."""
    X = np.array([[0.0, 0.0], [0.1, 0.2], [-0.2, 0.1], [0.3, -0.1], [50.0, 50.0]])
    # The second kernel has a single row.
    start = Parameters(np.full((2, 1), 0.5), np.array([[0.0, 0.0], [50.0, 50.0]]), np.stack([np.eye(2)] * 2))
    both = Parameters(*(np.stack([a, a]) for a in (start.weights, start.means, start.covariances)))
    both.means[1, 1] = 0.1  # which makes the second start a sound one
    source, structure = open_source(X, None), structure_of("full")
    frame = measure(X, structure)
    state = RunState.begin(frame.enter(both, structure), 1, 1)
    state = replace(state, previous=np.full((2, 1), -20.0))
    options = Options(floor=0.0, tol=1e9, max_iter=1)
    found = em.fit(source, both, options, frame=frame, resume=state)
    assert found.status.tolist() == [Status.FAILED, Status.CONVERGED]
    # It keeps what entered the pass.
    assert_allclose(found.parameters.means[0], start.means, atol=1e-12)


@pytest.mark.parametrize("degrees", [1.2, 3.0, 10.0, 60.0, 120.0, 195.0])
def test_degrees_of_freedom_solve_their_equation(degrees: float) -> None:
    """In their whole range, and at its ends where the solution lies beyond."""
    half = 0.5 * degrees
    gap = digamma(half) - np.log(half) - 1.0
    assert_allclose(likeliest_degrees(np.array([[gap]])), degrees, rtol=1e-9)
    # The mean of E[log u] − E[u] is at most −1, that of rows which are Gaussian for all purposes.
    assert_allclose(likeliest_degrees(np.array([[-1.0, -1.0 - 1e-9, -9.0]])), [[200.0, 200.0, 1.0]])
