"""Factors and variances against the dense matrices they stand for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose
from oracles import expected_pass, random_covariances, random_model

from skmix.engine.density import draw
from skmix.engine.model import FloatArray, Options, Parameters, Regulariser
from skmix.engine.squarem import constrained, unconstrained
from skmix.engine.starts import uniform
from skmix.engine.structures import STRUCTURES, LowRank, structure_of
from skmix.engine.structures.low_rank import automatic_factors, most_factors

FULL = STRUCTURES["full"]


def dense(covariances: FloatArray) -> FloatArray:
    """Return P = WWᵀ + diag(d), by its definition."""
    factors, own = covariances[..., :-1], covariances[..., -1]
    return np.einsum("...dq,...eq->...de", factors, factors) + own[..., None] * np.eye(own.shape[-1])


def random_factors(random: np.random.Generator, *shape: int) -> FloatArray:
    """Return covariances (..., M, q + 1) far from diagonal ones."""
    found = random.normal(size=shape)
    found[..., -1] = random.uniform(0.2, 1.5, size=shape[:-1])
    return found


def factor_analysis_step(scatter: FloatArray, covariances: FloatArray) -> FloatArray:
    """Return the P (M, M) that one step of parameter-expanded EM makes, all of it with dense matrices."""
    factors = covariances[:, :-1]
    slopes = factors.T @ np.linalg.inv(dense(covariances))  # E[z | x] = slopes · (x − μ)
    spread = np.eye(factors.shape[1]) - slopes @ factors + slopes @ scatter @ slopes.T
    loadings = scatter @ slopes.T @ np.linalg.inv(spread)
    own = np.diag(scatter - loadings @ slopes @ scatter)
    return loadings @ spread @ loadings.T + np.diag(own)


def test_the_number_of_factors_is_twice_the_root_of_that_of_features() -> None:
    assert [automatic_factors(m) for m in (1, 2, 3, 16, 64, 784)] == [1, 1, 2, 8, 16, 56]
    assert [most_factors(m) for m in (1, 2, 784)] == [1, 1, 783]
    assert structure_of("low_rank").shape(5, 16) == (5, 16, 9)
    assert structure_of("low_rank", 7).shape(5, 16) == (5, 16, 8)
    assert structure_of("low_rank").of(np.ones((2, 3, 16, 4))).shape(3, 16) == (3, 16, 4)


@pytest.mark.parametrize(("n_features", "n_factors"), [(1, 1), (2, 1), (5, 2), (5, 7), (30, 20)])
def test_woodbury_is_the_dense_inverse(n_features: int, n_factors: int) -> None:
    random = np.random.default_rng(0)
    structure = LowRank()
    own = random_factors(random, 2, 3, n_features, n_factors + 1)
    factor = structure.factor(own, n_features)
    assert factor.usable.all()
    assert_allclose(factor.log_determinant, np.linalg.slogdet(dense(own))[1], rtol=1e-11, atol=1e-12)
    precision = np.linalg.inv(dense(own))
    vectors = random.normal(size=(2, 3, n_features))
    expected = np.einsum("rkde,rke->rkd", precision, vectors)
    assert_allclose(structure.precision_times(factor, vectors), expected, rtol=1e-9, atol=1e-10)
    x = random.normal(size=(n_features, 6))
    expected = np.einsum("dn,rkde,en->rkn", x, precision, x)
    projected = factor.whitener[..., :-1].mT @ x
    found = -2.0 * structure.quadratic(factor) @ x**2 - (projected**2).sum(axis=2)
    assert_allclose(found, expected, rtol=1e-9, atol=1e-10)
    assert_allclose(structure.distances(factor.whitener, x), expected, rtol=1e-9, atol=1e-10)
    prior = random_covariances(random, 1, n_features)[0]
    regulariser = Regulariser(np.zeros(n_features), np.zeros(n_features), 3.0, prior, 1.0)
    expected = FULL.log_prior(FULL.factor(dense(own), n_features), regulariser)
    assert_allclose(structure.log_prior(factor, regulariser), expected, rtol=1e-10)


def test_a_variance_that_is_not_positive_spoils_its_start_alone() -> None:
    own = random_factors(np.random.default_rng(1), 3, 2, 4, 3)
    own[0, 1, 2, -1] = 0.0
    own[1, 0, 0, -1], own[1, 0, 0, 0] = 1e-300, 1e200
    assert LowRank().factor(own, 4).usable.tolist() == [False, False, True]


@pytest.mark.parametrize("n_features", [1, 2, 3, 6])
def test_with_all_factors_every_covariance_can_be_written(n_features: int) -> None:
    full = random_covariances(np.random.default_rng(2), 4, n_features)[None]
    structure = LowRank(most_factors(n_features))
    own = structure.from_full(full)
    assert own.shape[1:] == structure.shape(4, n_features)
    assert_allclose(dense(own), full, rtol=1e-12, atol=1e-13)
    assert_allclose(structure.to_full(own, 4, n_features), full, rtol=1e-12, atol=1e-13)
    assert_allclose(structure.variances(own), np.diagonal(full, axis1=2, axis2=3), rtol=1e-12)
    assert structure.n_parameters(3, n_features) == FULL.n_parameters(3, n_features)


def test_few_factors_keep_the_variances_and_count_up_to_rotations() -> None:
    full = random_covariances(np.random.default_rng(3), 4, 9)[None]
    own = LowRank(2).from_full(full)
    assert_allclose(
        np.diagonal(dense(own), axis1=2, axis2=3), np.diagonal(full, axis1=2, axis2=3), rtol=1e-12
    )
    assert LowRank(2).n_parameters(5, 9) == 5 * (9 * 2 + 9 - 1)


def test_no_factor_starts_at_zero_where_it_would_stay() -> None:
    random = np.random.RandomState(0)
    start = uniform(2, 3, 1, 6, LowRank(3), random)
    assert ((start.covariances[..., :-1] ** 2).sum(axis=-2) > 0).all()
    assert_allclose(np.diagonal(dense(start.covariances), axis1=2, axis2=3), 0.3, rtol=1e-12)


def test_rescaling_and_coordinates() -> None:
    random = np.random.default_rng(4)
    structure, own = LowRank(), random_factors(random, 2, 3, 4, 3)
    scale = random.uniform(0.1, 10.0, size=4)
    assert_allclose(dense(structure.rescale(own, scale)), dense(own) * np.outer(scale, scale), rtol=1e-13)
    numbers = unconstrained(structure, own)
    assert numbers.shape == own.shape
    assert_allclose(constrained(structure, numbers), own, rtol=1e-14)


def test_delicate_kernels_take_the_same_step() -> None:
    """Far from the others' origin and narrow, a kernel is computed from differences."""
    random = np.random.default_rng(7)
    X = np.concatenate([random.normal(size=(30, 4)), 1.0 + 1e-5 * random.normal(size=(30, 4))])
    classes = np.zeros(60, dtype=np.int64)
    covariances = random_factors(random, 2, 4, 3)
    covariances[1, :, :-1] *= 1e-5
    covariances[1, :, -1] *= 1e-10
    model = Parameters(np.full((2, 1), 0.5), np.array([np.zeros(4), np.ones(4)]), covariances)
    options = Options(covariance_type="low_rank", max_iter=1, tol=0.0, floor=0.0)
    found = fit(X, classes, model.batch(), options)
    expected, log_likelihood = expected_pass(
        X, classes, replace(model, covariances=dense(covariances)), "full"
    )
    step = factor_analysis_step(expected.covariances[1], covariances[1])
    assert_allclose(found.path[0][0].sum(), log_likelihood, rtol=1e-9)
    assert_allclose(dense(found.parameters.take(0).covariances)[1], step, rtol=1e-6, atol=1e-16)
    assert_allclose(found.parameters.take(0).means, expected.means, rtol=1e-12)


def test_rows_drawn_have_the_covariance() -> None:
    random = np.random.default_rng(13)
    model = replace(random_model(random, 2, 1, 3), covariances=random_factors(random, 2, 3, 2))
    X, kernels = draw(model, "low_rank", np.zeros(40_000, dtype=np.int64), np.random.RandomState(0))
    for k in range(2):
        found = np.cov(X[kernels == k].T)
        assert_allclose(found, dense(model.covariances)[k], atol=0.1 * np.abs(found).max())
