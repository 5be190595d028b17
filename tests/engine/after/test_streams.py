"""EM on a stream: its first batch is a pass of batch EM, and averages are averages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, as_full, random_model

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
