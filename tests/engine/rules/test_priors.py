"""Maximum a posteriori fits: the penalised objective, and what each prior does to its parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import fit
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from oracles import (
    COVARIANCE_TYPES,
    as_full,
    as_structure,
    next_model,
    random_covariances,
    random_model,
    random_rows,
    responsibilities,
    stack,
    total_log_likelihood,
)

from skmix.engine.model import FloatArray, Options, Parameters, Status
from skmix.engine.structures import structure_of

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def log_prior(
    model: Parameters, covariance_type: str, rows: float, scale: FloatArray, concentration: float
) -> float:
    """Return the priors' logarithm up to a constant: inverse Wishart a matrix, Dirichlet a class."""
    n_kernels, n_features = model.means.shape
    full = as_full(model.covariances, covariance_type, n_kernels, n_features)
    if covariance_type == "tied":
        full = full[:1]
    terms = [np.linalg.slogdet(matrix)[1] + np.trace(np.linalg.solve(matrix, scale)) for matrix in full]
    dirichlet = (concentration - 1.0) * np.log(model.weights).sum() if concentration > 1.0 else 0.0
    return float(-0.5 * rows * np.sum(terms) + dirichlet)


@settings(derandomize=True, deadline=None, database=None, max_examples=25)
@given(
    seed=st.integers(0, 2**32 - 1),
    covariance_type=st.sampled_from(COVARIANCE_TYPES),
    rows=st.sampled_from([0.1, 3.0, 50.0]),
    concentration=st.sampled_from([1.0, 1.5, 10.0]),
    floor=st.sampled_from([0.0, 1e-6]),
    own_scale=st.booleans(),
)
@pytest.mark.slow
def test_the_penalised_objective_never_falls(
    seed: int, covariance_type: str, rows: float, concentration: float, floor: float, own_scale: bool
) -> None:
    random = np.random.default_rng(seed)
    n_features, n_kernels, n_classes = 1 + seed % 3, 1 + seed % 4, 1 + seed % 2
    X, classes = random_rows(random, 30, n_classes, n_features)
    X *= 7.3
    models = stack(
        [random_model(random, n_kernels, n_classes, n_features, covariance_type) for _ in range(2)]
    )
    scale = random_covariances(random, 1, n_features)[0] if own_scale else None
    options = Options(
        covariance_type=covariance_type,
        floor=floor,
        tol=0.0,
        covariance_prior=rows,
        covariance_prior_scale=scale,
        weight_prior=concentration,
    )
    expected_scale = scale
    if expected_scale is None:
        expected_scale = np.diag(X.var(axis=0)) / n_kernels ** (2.0 / n_features)
    objectives, offsets = [], []
    for n_passes in range(1, 9):
        result = fit(X, classes, models, replace(options, max_iter=n_passes))
        assert (result.status == Status.STOPPED).all()
        objectives.append(result.objective)
        offsets.append(
            [
                total_log_likelihood(X, classes, model, covariance_type).sum()
                + log_prior(model, covariance_type, rows, expected_scale, concentration)
                for model in (result.parameters.take(r) for r in range(2))
            ]
            - result.objective
        )
    change = np.diff(objectives, axis=0)
    assert (change >= -1e-9 * (np.abs(objectives[1:]) + len(X))).all(), change.min()
    # The engine's objective is the penalised log-likelihood up to one constant.
    assert_allclose(offsets, offsets[0][0], rtol=1e-8, atol=1e-8 * np.abs(objectives).max())


@each_type
def test_a_pass_with_a_covariance_prior_adds_its_rows(covariance_type: str) -> None:
    """P = (S + ν Σ₀) / (mass + ν), the means and weights untouched."""
    random = np.random.default_rng(1)
    X, classes = random_rows(random, 40, 2, 3)
    model = random_model(random, 3, 2, 3, covariance_type)
    scale = random_covariances(random, 1, 3)[0]
    options = Options(covariance_type=covariance_type, floor=0.0, max_iter=1, tol=0.0)
    found = fit(
        X, classes, model.batch(), replace(options, covariance_prior=5.0, covariance_prior_scale=scale)
    ).parameters.take(0)
    plain = next_model(X, classes, model, covariance_type)
    mass = responsibilities(X, classes, model, covariance_type).sum(axis=0)
    full = as_full(plain.covariances, covariance_type, 3, 3)
    if covariance_type == "tied":
        expected = (40.0 * plain.covariances + 5.0 * scale) / 45.0
    elif covariance_type == "full":
        expected = (mass[:, None, None] * full + 5.0 * scale) / (mass + 5.0)[:, None, None]
    elif covariance_type == "diag":
        expected = (mass[:, None] * plain.covariances + 5.0 * np.diag(scale)) / (mass + 5.0)[:, None]
    else:
        expected = (mass * plain.covariances + 5.0 * np.diag(scale).mean()) / (mass + 5.0)
    assert_allclose(found.covariances, expected, rtol=1e-10, atol=1e-12)
    assert_allclose(found.means, plain.means, rtol=1e-10)
    assert_allclose(found.weights, plain.weights, rtol=1e-10)


@each_type
def test_a_strong_covariance_prior_pulls_to_its_covariance(covariance_type: str) -> None:
    random = np.random.default_rng(2)
    X, classes = random_rows(random, 60, 2, 2)
    model = random_model(random, 3, 2, 2, covariance_type)
    scale = np.array([[4.0, 1.0], [1.0, 2.0]])
    distances = []
    for rows in (1.0, 1e2, 1e4, 1e8):
        options = Options(
            covariance_type=covariance_type, covariance_prior=rows, covariance_prior_scale=scale, max_iter=50
        )
        found = fit(X, classes, model.batch(), options).parameters.take(0)
        target = as_full(as_structure(np.stack([scale] * 3), covariance_type), covariance_type, 3, 2)
        distances.append(np.abs(as_full(found.covariances, covariance_type, 3, 2) - target).max())
    assert distances[-1] < 1e-5
    assert (np.diff(distances) < 0).all()


@each_type
def test_the_default_covariance_prior_is_the_features_variance_shared_out(covariance_type: str) -> None:
    random = np.random.default_rng(3)
    X, classes = random_rows(random, 60, 2, 2)
    X *= 3.7 if covariance_type == "spherical" else np.array([3.7, 1e-4])
    model = random_model(random, 4, 2, 2, covariance_type)
    options = Options(covariance_type=covariance_type, covariance_prior=1e12, max_iter=1)
    found = fit(X, classes, model.batch(), options).parameters.take(0)
    target = np.stack([np.diag(X.var(axis=0)) / 4.0] * 4)
    unit = np.outer(X.std(axis=0), X.std(axis=0))
    assert_allclose(
        as_full(found.covariances, covariance_type, 4, 2) / unit,
        as_full(as_structure(target, covariance_type), covariance_type, 4, 2) / unit,
        rtol=1e-8,
        atol=1e-8,
    )


@each_type
def test_a_weight_prior_adds_its_counts_and_keeps_weights_positive(covariance_type: str) -> None:
    random = np.random.default_rng(4)
    X, classes = random_rows(random, 40, 2, 2)
    model = random_model(random, 4, 2, 2, covariance_type)
    model.means[3] += 1e5
    model = replace(model, weights=np.array([[0.5, 0.0], [0.25, 0.5], [0.0, 0.25], [0.25, 0.25]]))
    options = Options(covariance_type=covariance_type, max_iter=1, tol=0.0, weight_prior=1.5)
    found = fit(X, classes, model.batch(), options).parameters.take(0)
    w = responsibilities(X, classes, model, covariance_type)
    for c in range(2):
        counts = w[classes == c].sum(axis=0) + 0.5
        assert_allclose(found.weights[:, c], counts / counts.sum(), rtol=1e-10)
    assert found.weights.min() > 0.0
    long = fit(X, classes, model.batch(), replace(options, max_iter=60)).parameters
    assert long.weights.min() > 0.5 / (40 + 4 * 0.5) * 0.999
    assert_allclose(long.weights.sum(axis=1), 1.0, rtol=1e-13)
    without = fit(X, classes, model.batch(), replace(options, weight_prior=None)).parameters
    assert without.weights.min() == 0.0


@pytest.mark.parametrize(
    "changed", [{"covariance_prior": None}, {"weight_prior": 1.0}, {"weight_prior": None}]
)
def test_priors_of_no_strength_change_nothing(changed: dict[str, Any]) -> None:
    random = np.random.default_rng(5)
    X, classes = random_rows(random, 50, 2, 2)
    models = stack([random_model(random, 3, 2, 2) for _ in range(2)])
    plain = fit(X, classes, models, Options(max_iter=6, tol=0.0))
    same = fit(X, classes, models, replace(Options(max_iter=6, tol=0.0), **changed))
    assert_allclose(same.parameters.covariances, plain.parameters.covariances, rtol=1e-14)
    assert_allclose(same.objective, plain.log_likelihood.sum(axis=1), rtol=1e-14)


@each_type
def test_a_covariance_prior_cures_degenerate_kernels_without_a_floor(covariance_type: str) -> None:
    X = np.array([[0.0, 1.0], [0.0, 1.0], [5.0, 1.0], [5.0, 1.0], [9.0, 1.0]])
    model = Parameters(
        np.full((2, 1), 0.5),
        X[[0, 2]],
        as_structure(np.stack([np.eye(2)] * 2), covariance_type),
    )
    options = Options(covariance_type=covariance_type, floor=0.0, max_iter=40)
    if covariance_type != "spherical":
        assert fit(X, None, model.batch(), options).status[0] == Status.FAILED
    cured = fit(X, None, model.batch(), replace(options, covariance_prior=0.5))
    assert cured.status[0] == Status.CONVERGED
    full = as_full(cured.parameters.covariances[0], covariance_type, 2, 2)
    assert np.linalg.eigvalsh(full).min() > 1e-4


def test_the_best_start_is_the_best_of_the_penalised_objective() -> None:
    random = np.random.default_rng(6)
    X, classes = random_rows(random, 60, 2, 2)
    models = stack([random_model(random, 3, 2, 2) for _ in range(8)])
    options = Options(max_iter=3, tol=0.0, covariance_prior=30.0, weight_prior=3.0)
    result = fit(X, classes, models, options)
    scale = np.diag(X.var(axis=0)) / 3.0
    penalised = [
        total_log_likelihood(X, classes, result.parameters.take(r)).sum()
        + log_prior(result.parameters.take(r), "full", 30.0, scale, 3.0)
        for r in range(8)
    ]
    assert result.best == int(np.argmax(penalised))
    assert result.best != int(np.argmax(result.log_likelihood.sum(axis=1)))


@pytest.mark.parametrize("covariance_type", ["full", "diag", "low_rank"])
def test_the_ridge_is_absolute_in_the_units_of_the_data(covariance_type: str) -> None:
    """As scikit-learn's reg_covar: added to every variance, whatever the scales of the features."""
    random = np.random.default_rng(0)
    X = random.normal(size=(200, 3)) * np.array([0.03, 1.0, 500.0])
    structure = structure_of(covariance_type, 2)
    common = structure.from_full(np.cov(X.T, bias=True)[None, None])
    start = Parameters(np.ones((1, 1, 1)), X.mean(axis=0)[None, None], common)
    options = Options(covariance_type=covariance_type, floor=0.0, max_iter=1, tol=0.0)
    plain, ridged = (
        structure.variances(fit(X, None, start, replace(options, ridge=ridge)).parameters.covariances)
        for ridge in (0.0, 0.01)
    )
    assert_allclose(plain[0, 0], X.var(axis=0), rtol=1e-8)
    assert_allclose(ridged - plain, 0.01, rtol=1e-6, atol=1e-9 * X.var())


def test_the_resolution_is_a_floor_in_the_units_of_the_data() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) * np.array([0.03, 1.0, 500.0])
    start = Parameters(np.ones((1, 1, 1)), X.mean(axis=0)[None, None], X.var(axis=0)[None, None])
    resolution = X.var(axis=0) * np.array([2.0, 0.5, 3.0])
    options = Options(covariance_type="diag", floor=0.0, max_iter=1, tol=0.0, resolution=resolution)
    found = fit(X, None, start, options).parameters.covariances[0, 0]
    assert_allclose(found, X.var(axis=0) * np.array([2.0, 1.0, 3.0]), rtol=1e-6)
