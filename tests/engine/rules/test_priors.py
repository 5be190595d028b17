"""Maximum a posteriori fits: the penalised objective, and what each prior does to its parameters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose
from oracles import (
    COVARIANCE_TYPES,
    as_full,
    as_structure,
    random_model,
    random_rows,
)

from skmix.engine.model import Options, Parameters, Status
from skmix.engine.structures import structure_of

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


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


@pytest.mark.parametrize("covariance_type", [*COVARIANCE_TYPES, "low_rank"])
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
    assert_allclose(plain, structure.variances(common), rtol=1e-8)
    assert_allclose(ridged - plain, 0.01, rtol=1e-6, atol=1e-9 * X.var())


def test_the_resolution_is_a_floor_in_the_units_of_the_data() -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)) * np.array([0.03, 1.0, 500.0])
    start = Parameters(np.ones((1, 1, 1)), X.mean(axis=0)[None, None], X.var(axis=0)[None, None])
    resolution = X.var(axis=0) * np.array([2.0, 0.5, 3.0])
    options = Options(covariance_type="diag", floor=0.7, max_iter=1, tol=0.0, resolution=resolution)
    found = fit(X, None, start, options).parameters.covariances[0, 0]
    assert_allclose(found, X.var(axis=0) * np.array([2.0, 1.0, 3.0]), rtol=1e-6)
