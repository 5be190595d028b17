"""The compiled loops of the study do what NumPy's operations did."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.stats import multivariate_normal

from skmix.paper import loops, methods
from skmix.paper.methods import predict
from skmix.paper.published import FloatArray, IntArray, published_pass
from skmix.theory import Parameters


def plain_pass(rows: FloatArray, sizes: IntArray, parameters: Parameters) -> tuple[Parameters, FloatArray]:
    """Return a pass of the published algorithm, one operation of NumPy after the other."""
    bounds = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    with np.errstate(all="ignore"):
        deviations = rows - parameters.means[:, :, None]
        projected = np.linalg.inv(parameters.covariances) @ deviations
        joint = np.exp(-0.5 * (projected * deviations).sum(axis=1))
        volumes = (2.0 * math.pi) ** len(rows) * np.linalg.det(parameters.covariances)
        joint = joint / np.sqrt(volumes)[:, None] * np.repeat(parameters.weights, sizes, axis=1)
        evidence = joint.sum(axis=0)
        joint /= evidence
        in_class = np.add.reduceat(joint, bounds, axis=1)
        mass = in_class.sum(axis=1)
        means = (joint @ rows.T) / mass[:, None]
        deviations = rows - means[:, :, None]
        covariances = (joint[:, None, :] * deviations) @ deviations.transpose(0, 2, 1) / mass[:, None, None]
        log_likelihood = np.add.reduceat(np.log(evidence), bounds)
    return Parameters(in_class / sizes, means, covariances), log_likelihood


@pytest.mark.parametrize("width", [1.0, 0.05, 1e-3])
def test_a_published_pass_is_that_of_plain_operations(width: float) -> None:
    random, sizes = np.random.default_rng(3), np.array([40, 25, 60])
    rows = np.repeat(random.normal(size=(3, 25)), 5, axis=1) + 0.1 * random.normal(size=(3, 125))
    # The last kernel is on a single row: the others have shares of it far below the smallest normal number.
    rows[:, -1] = 30.0
    means = np.concatenate([random.normal(size=(3, 3)), [[30.0, 30.0, 30.0]]])
    covariances = np.tile(width * np.eye(3), (4, 1, 1))
    parameters = Parameters(random.dirichlet(np.ones(4), size=3).T, means, covariances)
    found, expected = published_pass(rows, sizes, parameters), plain_pass(rows, sizes, parameters)
    for ours, theirs in zip(vars(found[0]).values(), vars(expected[0]).values(), strict=True):
        assert_array_equal(ours, theirs)
    assert_array_equal(found[1], expected[1])


def test_the_first_of_classes_with_the_same_weights_wins() -> None:
    random = np.random.default_rng(4)
    weights = np.tile(random.dirichlet(np.ones(3))[:, None], (1, 4))
    group = Parameters(weights, random.normal(size=(3, 2)), np.tile(np.eye(2), (3, 1, 1)))
    assert_array_equal(predict([random.normal(size=(2, 50))], [group]), np.zeros(50))


@pytest.mark.parametrize("n_features", [1, 3])
def test_decisions_are_those_of_the_textbook(monkeypatch: pytest.MonkeyPatch, n_features: int) -> None:
    """Rows are scored in blocks of 64."""
    monkeypatch.setattr(methods, "_CACHED", 1)
    random = np.random.default_rng(5)
    roots = random.normal(size=(3, n_features, n_features))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(n_features)
    weights = random.dirichlet(np.ones(3), size=4).T
    model = Parameters(weights, 2.0 * random.normal(size=(3, n_features)), covariances)
    rows = 2.0 * random.normal(size=(n_features, 150))
    logs = np.array(
        [
            multivariate_normal(mean, covariance).logpdf(rows.T)
            for mean, covariance in zip(model.means, covariances, strict=True)
        ]
    )
    assert_array_equal(predict([rows], [model]), (weights.T @ np.exp(logs)).argmax(axis=0))


def test_decisions_are_those_of_the_products() -> None:
    """Of two feature sets; a row is doubtful if another class is near, or the winner was raised."""
    random = np.random.default_rng(6)
    likelihoods = random.uniform(size=(2, 5, 400)) ** 4
    least, close = 0.01, 0.2
    winners, doubtful = loops.decide(likelihoods, least, close)
    products = np.maximum(likelihoods, least).prod(axis=0)
    assert_array_equal(winners, products.argmax(axis=0))
    second, first = np.sort(products, axis=0)[-2:]
    raised = (likelihoods < least).any(axis=0)[winners, np.arange(400)]
    assert_array_equal(doubtful, (second > (1.0 - close) * first) | raised)
    assert 0 < raised.sum() < doubtful.sum() < 400
