"""EM on a stream: its first batch is a pass of batch EM, and averages are averages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, expected_pass, random_model, random_rows

from skmix.engine.after.streams import Running, absorb
from skmix.engine.records import Options, Parameters
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of


def assert_same(found: Parameters, expected: Parameters) -> None:
    for name in ("weights", "means", "covariances", "class_prior"):
        assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-8, atol=1e-11)


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
    found, running, likelihood = absorb(X, classes, model, frame, options, decay=0.6, row_weights=weights)
    expected, true_likelihood = expected_pass(X, classes, model, covariance_type, weights)
    assert_same(found, expected)
    assert_allclose(likelihood, true_likelihood, rtol=1e-9)
    total = len(X) if weights is None else weights.sum()
    assert_allclose(running.n_rows, total)

    # Entering at the same model, the second batch leaves the average of two equal statistics.
    again, running, _ = absorb(X, classes, model, running, options, decay=0.6, row_weights=weights)
    assert_same(again, expected)
    assert_allclose(running.n_rows, 2 * total)


def test_the_state_of_a_stream_comes_back_from_its_arrays() -> None:
    random = np.random.default_rng(6)
    X, classes = random_rows(random, 40, 3, 2)
    model = replace(random_model(random, 3, 3, 2), class_prior=np.full(3, 1 / 3))
    options = Options(floor=0.0)
    model, running, _ = absorb(X, classes, model, measure(X, structure_of("full")), options, decay=0.6)
    again = Running.from_dict(running.to_dict())
    assert again.n_rows == 40.0
    found, expected = (
        absorb(X[::2], classes[::2], model, own, options, decay=0.6) for own in (again, running)
    )
    for name in ("weights", "means", "covariances", "class_prior"):
        assert_array_equal(getattr(found[0], name), getattr(expected[0], name))
    assert found[2] == expected[2]


def test_a_batch_that_would_make_a_kernel_singular_leaves_kernels_as_they_are() -> None:
    model = Parameters(np.ones((1, 2)), np.zeros((1, 1)), np.full((1, 1, 1), 0.1), np.full(2, 0.5))
    frame = measure(np.array([[0.0], [9.0]]), structure_of("full"))
    X, classes = np.full((4, 1), 2.0), np.array([0, 0, 0, 1])
    found, _, _ = absorb(X, classes, model, frame, Options(floor=0.0), decay=0.6)
    assert_allclose(found.means, model.means, atol=1e-12)
    assert_allclose(found.covariances, model.covariances)
    assert_allclose(found.class_prior, [0.75, 0.25])


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_a_kernel_that_narrows_in_a_batch_keeps_its_digits(covariance_type: str) -> None:
    """So many rows are compiled, with moments about the origin of the frame."""
    random = np.random.default_rng(0)
    wide, narrow = random.normal(size=(40_000, 3)), 100.0 + 1e-7 * random.normal(size=(40_000, 3))
    X = np.concatenate([wide, narrow])
    shape = (2, 3) if covariance_type == "diag" else (2,)
    model = Parameters(np.full((2, 1), 0.5), np.array([[0.0] * 3, [100.0] * 3]), np.ones(shape), np.ones(1))
    options = Options(covariance_type=covariance_type, floor=0.0, n_jobs=1)
    frame = measure(X, structure_of(covariance_type))
    found, _, _ = absorb(X, np.zeros(len(X), dtype=np.int64), model, frame, options, decay=0.6)
    variances = (narrow - narrow.mean(axis=0)).var(axis=0)
    assert_allclose(
        found.covariances[1], variances if covariance_type == "diag" else variances.mean(), rtol=1e-5
    )
