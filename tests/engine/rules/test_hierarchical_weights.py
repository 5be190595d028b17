"""Hierarchical weights: the prior by other routes, a bound that never falls, and what one class gains."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import kernel_log_densities, random_model, random_rows
from scipy.optimize import minimize

from skmix.engine.model import FloatArray, Options, Parameters
from skmix.engine.rules.weights import begin, learn_concentration, log_evidence


def by_urn(counts: FloatArray, concentration: FloatArray) -> float:
    """Return the log-probability of whole counts (K, L) of rows in some order, drawn from Pólya's urns."""
    total, terms = float(concentration.sum()), []
    for own in counts.T.astype(int):
        terms += [math.log(a + i) for a, n in zip(concentration, own, strict=True) for i in range(n)]
        terms += [-math.log(total + i) for i in range(own.sum())]
    return math.fsum(terms)


def drawn(
    random: np.random.Generator, n_classes: int, concentration: FloatArray, sizes: tuple[int, int]
) -> FloatArray:
    """Return counts (K, L) of classes whose weights come from one Dirichlet distribution."""
    weights = random.dirichlet(concentration, size=n_classes)
    return random.multinomial(random.integers(*sizes, size=n_classes), weights).T.astype(np.float64)


def hierarchical(**given: Any) -> Options:
    return Options(**{"weight_prior": "hierarchical", "tol": 0.0, **given})


CASES = [
    (2, np.array([0.3, 0.8])),
    (3, np.array([0.5, 2.0, 1.0])),
    (12, np.array([0.05, 0.2, 0.4, 1.0])),
    (40, np.array([40.0, 20.0, 60.0, 5.0])),
]


@pytest.mark.parametrize(("n_classes", "concentration"), CASES)
def test_the_evidence_of_counts_is_that_of_polyas_urn(n_classes: int, concentration: FloatArray) -> None:
    counts = drawn(np.random.default_rng(1), n_classes, concentration, (3, 60))
    found = log_evidence(counts[None], counts.sum(axis=0)[None], concentration[None])
    assert_allclose(found, by_urn(counts, concentration), rtol=1e-12)


@pytest.mark.parametrize(("n_classes", "concentration"), CASES)
def test_the_concentration_learnt_is_the_likeliest(n_classes: int, concentration: FloatArray) -> None:
    counts = drawn(np.random.default_rng(2), n_classes, concentration, (3, 60))
    found = np.ones((1, len(concentration)))
    values = [by_urn(counts, found[0])]
    for _ in range(80):
        found = learn_concentration(counts[None], found)
        values.append(by_urn(counts, found[0]))
    assert (np.diff(values) > -1e-9).all()

    def loss(logs: FloatArray) -> float:
        return -by_urn(counts, np.exp(logs))

    near = minimize(
        loss, np.log(concentration), method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-12}
    )
    best = minimize(loss, near.x, method="BFGS")
    assert values[-1] == pytest.approx(-best.fun, abs=1e-6)
    assert_allclose(np.log(found[0]), best.x, atol=2e-3)


# ---------------------------------------------------------------- fits


def test_between_distant_kernels_the_bound_is_the_evidence_and_weights_are_posterior_means() -> None:
    random = np.random.default_rng(7)
    counts = drawn(random, 6, np.array([1.0, 2.0, 0.5]), (5, 30))
    kernels = np.concatenate([np.repeat(np.arange(3), own.astype(int)) for own in counts.T])
    classes = np.repeat(np.arange(6), counts.sum(axis=0).astype(int))
    centres = 1e3 * np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 2.0]])
    X = centres[kernels] + random.normal(size=(len(kernels), 2))
    model = Parameters(np.full((3, 6), 1 / 3), centres, np.tile(np.eye(2), (3, 1, 1)))
    result = fit(X, classes, model.batch(), hierarchical(freeze="kernels", floor=0.0, max_iter=30))
    learnt = result.parameters.concentration
    assert learnt is not None
    assert result.counts is not None
    assert_allclose(result.counts[0], counts, atol=1e-9)
    densities = kernel_log_densities(X, model)[np.arange(len(X)), kernels].sum()
    assert_allclose(result.objective, by_urn(counts, learnt[0]) + densities, rtol=1e-10)
    expected = (counts + learnt[0][:, None]) / (counts.sum(axis=0) + learnt[0].sum())
    assert_allclose(result.parameters.weights[0], expected, rtol=1e-10)
    # No other prior is likelier.
    for factor in ([1.05, 1.0, 1.0], [1.0, 0.95, 1.0], [1.03, 1.03, 1.03], [0.97, 0.97, 0.97]):
        assert by_urn(counts, learnt[0] * factor) < by_urn(counts, learnt[0])


def test_a_given_prior_stays() -> None:
    random = np.random.default_rng(11)
    X, classes = random_rows(random, 50, 2, 2)
    prior = np.array([[3.0, 1.0, 0.2]])
    start = replace(random_model(random, 3, 2, 2).batch(), concentration=prior)
    result = fit(X, classes, start, Options(weight_prior="given", max_iter=50))
    assert result.parameters.concentration is not None
    assert_allclose(result.parameters.concentration, prior)
    assert result.counts is not None
    after = result.counts[0] + prior[0][:, None]
    assert_allclose(result.parameters.weights[0], after / after.sum(axis=0), rtol=1e-12)


def test_a_start_has_a_concentration_of_as_many_rows_as_kernels() -> None:
    """Shared like the weights of all classes, unless one is given; and no rows are known of it yet."""
    weights = np.array([[[0.5, 0.1], [0.2, 0.2], [0.3, 0.7]]])
    start = Parameters(weights, np.zeros((1, 3, 2)), np.tile(np.eye(2), (1, 3, 1, 1)))
    found = begin(start)
    assert found.concentration is not None
    assert_allclose(found.concentration, [[3 * 0.3, 3 * 0.2, 3 * 0.5]])
    assert found.counts is not None
    assert np.isinf(found.counts).all()
    assert found.counts.shape == weights.shape
    assert begin(start, hierarchical=False).concentration is None
    known = replace(start, concentration=np.ones((1, 3)), counts=2.0 * weights)
    again = begin(known)
    assert again.concentration is known.concentration
    assert again.counts is known.counts


def test_concentrations_stay_within_limits() -> None:
    """Classes that are alike have an infinite likeliest sum: it grows by a tenth at a time, to a million."""
    alike, a = np.tile([[30.0], [60.0], [10.0], [0.0]], (1, 1, 5)), np.ones((1, 4))
    for _ in range(150):
        a = learn_concentration(alike, a)
    assert a.sum() == pytest.approx(1e6)
    assert_allclose(a[0] / a.sum(), [0.3, 0.6, 0.1, 0.0], atol=1e-6)
    assert (a > 0).all()
    once = learn_concentration(np.full((1, 2, 20), 500.0), np.array([[3.0, 3.0]]))
    assert once.sum() == pytest.approx(1.1 * 6.0, rel=1e-9)
    # Where classes differ, the sum may fall at once.
    differ = np.where(np.arange(20) % 2, [[500.0], [0.0]], [[0.0], [500.0]])[None]
    assert learn_concentration(differ, np.array([[50.0, 50.0]])).sum() < 50.0


@pytest.mark.parametrize("rows", [0.0, 1e-20])
def test_rows_too_light_to_change_a_digit_teach_nothing(rows: float) -> None:
    assert_array_equal(learn_concentration(np.full((1, 2, 3), rows), np.array([[2.0, 5.0]])), [[2.0, 5.0]])
