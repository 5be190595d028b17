"""EM on a stream: its first batch is a pass of batch EM, and averages are averages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_full, expected_pass, random_model, random_rows

from skmix.engine.after.streams import Running, resume, update_from_batch
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import Frame, Options, Parameters
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of

NAMES = ("weights", "means", "covariances", "class_prior")


def update(
    batch: tuple[Any, ...], model: Parameters, running: Running | Frame, options: Options
) -> tuple[Parameters, Running, float]:
    """Update a model with a batch of rows, classes and weights, or with the first one in a frame."""
    frame, past = (running, None) if isinstance(running, Frame) else (running.frame, running)
    problem = Problem.of(open_source(*batch), options, len(model.means), frame)
    return update_from_batch(problem, model, past, decay=0.6)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_batch_is_one_pass_and_repeating_it_is_another(
    covariance_type: str, weighted: bool
) -> None:
    random = np.random.default_rng(0)
    X, classes = random_rows(random, 40, 3, 3)
    classes[5:12] = -1
    X[random.uniform(size=X.shape) < 0.1] = np.nan
    X[np.isnan(X).all(axis=1)] = 0.0
    model = replace(random_model(random, 4, 3, 3, covariance_type), class_prior=random.dirichlet(np.ones(3)))
    weights = random.uniform(0.5, 2.0, size=len(X)) if weighted else None
    options = Options(covariance_type=covariance_type, floor=0.0)
    frame = measure(X, structure_of(covariance_type), row_weights=weights)
    expected, true_likelihood = expected_pass(X, classes, model, covariance_type, weights)
    total, running = len(X) if weights is None else weights.sum(), frame
    # Entering at the same model, the second batch leaves the average of two equal statistics.
    for n_batches in (1, 2):
        found, running, likelihood = update((X, classes, weights), model, running, options)
        for name in NAMES:
            assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-11)
        assert_allclose(likelihood, true_likelihood, rtol=1e-9)
        assert_allclose(running.n_rows, n_batches * total)


def test_the_past_fades_by_the_share_of_the_newest_batch() -> None:
    """The average moves by η = t^−decay, and priors count all rows of the stream."""
    random = np.random.default_rng(3)
    X, classes = random_rows(random, 90, 2, 2)
    model = replace(random_model(random, 3, 2, 2), class_prior=np.full(2, 0.5))
    options = Options(covariance_prior=7.0, weight_prior=3.0)
    frame, batches = measure(X, structure_of("full")), [(X[:60], classes[:60]), (X[60:], classes[60:])]
    (first, past, _), (_, alone, _) = (update(batch, model, frame, options) for batch in batches)
    expected = fit(*batches[0], model.batch(), replace(options, max_iter=1), frame=frame).parameters.take(0)
    for name in ("weights", "means", "covariances"):
        assert_allclose(getattr(first, name), getattr(expected, name), rtol=1e-8, atol=1e-11)
    _, running, _ = update(batches[1], model, past, options)
    step = (1.0 / 3.0) ** 0.6
    mass = (1.0 - step) * past.statistics.mass + step * alone.statistics.mass
    assert_allclose(running.statistics.mass, mass, rtol=1e-10)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_fitted_model_becomes_statistics_that_give_it_back(covariance_type: str) -> None:
    model = random_model(np.random.default_rng(2), 3, 2, 2, covariance_type)
    model = replace(model, class_prior=np.array([0.25, 0.75]))
    share = model.weights @ np.array([0.25, 0.75])
    running = resume(model, measure(model.means, structure_of(covariance_type)), covariance_type, 100.0)
    second = as_full(model.covariances, covariance_type, 3, 2)
    second = second + model.means[:, :, None] * model.means[:, None]
    mean = share @ model.means
    variance = np.diag(np.einsum("k,kde->de", share, second)) - mean**2
    assert_allclose(running.frame.variance * running.frame.scale**2, variance, rtol=1e-10)
    # A batch that counts for next to nothing leaves the model as it is.
    batch = model.means[:2], np.array([0, 1]), np.full(2, 1e-14)
    found, _, _ = update(batch, model, running, Options(covariance_type=covariance_type, floor=0.0))
    for name in NAMES:
        assert_allclose(getattr(found, name), getattr(model, name), rtol=1e-7, atol=1e-9)


def test_the_state_of_a_stream_comes_back_from_its_arrays() -> None:
    random = np.random.default_rng(6)
    X, classes = random_rows(random, 40, 3, 2)
    model = replace(random_model(random, 3, 3, 2), class_prior=np.full(3, 1 / 3))
    options = Options(floor=0.0)
    model, running, _ = update((X, classes), model, measure(X, structure_of("full")), options)
    again = Running.from_dict(running.to_dict())
    assert again.n_rows == 40.0
    found, expected = (update((X[::2], classes[::2]), model, state, options) for state in (again, running))
    for name in NAMES:
        assert_array_equal(getattr(found[0], name), getattr(expected[0], name))
    assert found[2] == expected[2]


def test_a_batch_that_would_make_a_kernel_singular_leaves_kernels_as_they_are() -> None:
    model = Parameters(np.ones((1, 2)), np.zeros((1, 1)), np.full((1, 1, 1), 0.1), np.full(2, 0.5))
    frame = measure(np.array([[0.0], [9.0]]), structure_of("full"))
    batch = np.full((4, 1), 2.0), np.array([0, 0, 0, 1])
    found, _, _ = update(batch, model, frame, Options(floor=0.0))
    assert_allclose(found.means, model.means, atol=1e-12)
    assert_allclose(found.covariances, model.covariances)
    assert_allclose(found.class_prior, [0.75, 0.25])


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_a_kernel_that_narrows_in_a_batch_keeps_its_digits(covariance_type: str) -> None:
    """Moments of such kernels are about the origin of the frame at first."""
    random = np.random.default_rng(0)
    wide, narrow = random.normal(size=(40_000, 3)), 100.0 + 1e-7 * random.normal(size=(40_000, 3))
    X = np.concatenate([wide, narrow])
    shape = (2, 3) if covariance_type == "diag" else (2,)
    model = Parameters(np.full((2, 1), 0.5), np.array([[0.0] * 3, [100.0] * 3]), np.ones(shape), np.ones(1))
    frame = measure(X, structure_of(covariance_type))
    options = Options(covariance_type=covariance_type, floor=0.0)
    found, _, _ = update((X, np.zeros(len(X), dtype=np.int64)), model, frame, options)
    variances = (narrow - narrow.mean(axis=0)).var(axis=0)
    assert_allclose(
        found.covariances[1], variances if covariance_type == "diag" else variances.mean(), rtol=1e-5
    )
