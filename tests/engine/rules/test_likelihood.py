"""Maximum likelihood with priors: the M-step by hand, penalised objectives, and hierarchical weights."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    COVARIANCE_TYPES,
    as_structure,
    kernel_log_densities,
    random_model,
    random_rows,
    responsibilities,
)
from scipy.optimize import minimize

from skmix.engine import loop as em
from skmix.engine.kernels import StudentT
from skmix.engine.problem import open_source
from skmix.engine.records import FloatArray, Options, Parameters, Regulariser, Statistics, Status
from skmix.engine.rows.summary import measure
from skmix.engine.rules.likelihood import Likelihood
from skmix.engine.rules.weights import learn_concentration, log_evidence, with_concentration
from skmix.engine.structures import structure_of

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


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_weighted_scatter_of_t_kernels_is_divided_by_the_number_of_rows(covariance_type: str) -> None:
    random = np.random.default_rng(2)
    X, classes = random_rows(random, 40, N_CLASSES, N_FEATURES)
    model = random_model(random, 4, N_CLASSES, N_FEATURES, covariance_type)
    shares = responsibilities(X, classes, model, covariance_type)
    weights = shares * random.uniform(0.2, 1.5, size=shares.shape)
    sums = replace(
        statistics_of(X, weights, classes, covariance_type),
        mass=statistics_of(X, shares, classes, covariance_type).mass,
        of_tail=(weights.sum(axis=0)[None], np.zeros((1, 4))),
    )
    found = improved(sums, replace(model, tail=StudentT(np.full(4, 5.0))), covariance_type)
    means = weights.T @ X / weights.sum(axis=0)[:, None]
    away = X[:, None] - means
    scatter = np.einsum("nk,nkd,nke->kde", weights, away, away)
    if covariance_type == "tied":
        expected = scatter.sum(axis=0) / len(X)
    else:
        expected = as_structure(scatter / shares.sum(axis=0)[:, None, None], covariance_type)
    assert_allclose(found.means, means)
    assert_allclose(found.covariances, expected)


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
    options = Options(floor=0.0, tol=1e9, max_iter=1)
    found = em.fit(source, both, options, frame=frame, previous=-20.0)
    assert found.status.tolist() == [Status.FAILED, Status.CONVERGED]
    # It keeps what entered the pass.
    assert_allclose(found.parameters.means[0], start.means, atol=1e-12)


# ---------------------------------------------------------------- priors


def test_the_resolution_is_a_floor_in_the_units_of_the_data() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) * np.array([0.03, 1.0, 500.0])
    start = Parameters(np.ones((1, 1, 1)), X.mean(axis=0)[None, None], X.var(axis=0)[None, None])
    resolution = X.var(axis=0) * np.array([2.0, 0.5, 3.0])
    options = Options(covariance_type="diag", floor=0.7, max_iter=1, tol=0.0, resolution=resolution)
    found = fit(X, None, start, options).parameters.covariances[0, 0]
    assert_allclose(found, X.var(axis=0) * np.array([2.0, 1.0, 3.0]), rtol=1e-6)


# ---------------------------------------------------------------- hierarchical weights


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
def test_the_concentration_learnt_is_the_likeliest(n_classes: int, concentration: FloatArray) -> None:
    counts = drawn(np.random.default_rng(2), n_classes, concentration, (3, 60))
    evidence = log_evidence(counts[None], concentration[None])
    assert_allclose(evidence, by_urn(counts, concentration), rtol=1e-12)
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


def test_a_start_has_a_concentration_of_as_many_rows_as_kernels() -> None:
    """Shared like the weights of all classes, unless one is given."""
    weights = np.array([[[0.5, 0.1], [0.2, 0.2], [0.3, 0.7]]])
    start = Parameters(weights, np.zeros((1, 3, 2)), np.tile(np.eye(2), (1, 3, 1, 1)))
    assert_allclose(with_concentration(start).concentration, [[3 * 0.3, 3 * 0.2, 3 * 0.5]])
    known = replace(start, concentration=np.ones((1, 3)))
    assert with_concentration(known).concentration is known.concentration


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
