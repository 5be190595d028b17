"""Covariance structures against dense matrices, and whiteners against sixty digits."""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from by_reference import by_reference
from numpy.testing import assert_allclose, assert_array_equal
from oracles import as_full, as_structure, random_covariances

from skmix.engine.records import FloatArray, Regulariser
from skmix.engine.structures import STRUCTURES, Structure
from skmix.engine.structures.factors import whiten_batch, whiten_bounded

each_structure = pytest.mark.parametrize("structure", list(STRUCTURES.values()), ids=list(STRUCTURES))

N_STARTS, N_KERNELS = 2, 3


def bare(n_features: int) -> Regulariser:
    """Return a regulariser without floor, ridge and priors."""
    return Regulariser(np.zeros(n_features), None, 0.0, np.eye(n_features), 1.0)


def dense(covariances: FloatArray, structure: Structure, n_features: int) -> FloatArray:
    return np.stack([as_full(own, structure.name, N_KERNELS, n_features) for own in covariances])


def terms(structure: Structure, x: FloatArray) -> FloatArray:
    """Return the second-order terms (S, n) of rows x (M, n)."""
    first, second = structure.pairs(len(x))
    return x[first] * x[second]


# ---------------------------------------------------------------- the M-step


def degenerate_sums(
    structure: Structure, n_features: int
) -> tuple[tuple[FloatArray, FloatArray, FloatArray], FloatArray]:
    """Return sums of rows in a plane (a line, a point), whose covariances are singular, and the scatters."""
    random = np.random.default_rng(8)
    x = random.normal(size=(N_STARTS, 20, n_features))
    x[..., 0] *= 0.05
    x[..., -1] = x[..., 0]
    w = random.dirichlet(np.ones(N_KERNELS), size=(N_STARTS, 20))
    mass = w.sum(axis=1)
    means = np.einsum("rnk,rnd->rkd", w, x) / mass[..., None]
    deviations = x[:, :, None, :] - means[:, None]
    scatter = np.einsum("rnk,rnkd,rnke->rkde", w, deviations, deviations)
    second = np.stack([w[r].T @ terms(structure, x[r].T).T for r in range(N_STARTS)])
    return (mass, means, second), scatter


@each_structure
@pytest.mark.parametrize("n_features", [1, 2, 4, 18])
def test_the_floor_is_kept_and_nothing_above_it_is_better(structure: Structure, n_features: int) -> None:
    """Among covariances P ⪰ diag(floor) the update has the largest expected log-likelihood.

    The admissible set is convex: a step from the update towards any other point of it stays inside.
    """
    sums, scatter = degenerate_sums(structure, n_features)
    random = np.random.default_rng(9)
    floor = random.uniform(0.05, 0.4, size=n_features)
    plain, _ = structure.update(sums, bare(n_features))
    if structure.isotropic:
        floor[:] = plain.mean()
    covariances, factor = structure.update(sums, replace(bare(n_features), floor=floor))
    assert factor.usable.all()
    root = np.sqrt(floor)
    relative = dense(covariances, structure, n_features) / np.outer(root, root)
    assert np.linalg.eigvalsh(relative).min() > 1.0 - 1e-10
    assert not np.allclose(covariances, plain)

    def expected_log_likelihood(candidate: FloatArray, r: int) -> float:
        matrices = as_full(candidate, structure.name, N_KERNELS, n_features)
        traces = np.trace(np.linalg.solve(matrices, scatter[r]), axis1=1, axis2=2)
        return -0.5 * float(np.sum(sums[0][r] * np.linalg.slogdet(matrices)[1] + traces))

    for r in range(N_STARTS):
        best = expected_log_likelihood(covariances[r], r)
        for scale in (1e-6, 1e-3, 1.0):
            for _ in range(10):
                above = random_covariances(random, N_KERNELS, n_features, ridge=0.0)
                other = as_structure(scale * above + np.diag(floor), structure.name)
                for step in (1e-4, 1e-2, 0.3, 1.0):
                    candidate = covariances[r] + step * (other - covariances[r])
                    assert expected_log_likelihood(candidate, r) <= best + 1e-10 * abs(best)


@each_structure
def test_without_a_floor_a_singular_covariance_is_marked(structure: Structure) -> None:
    (mass, offset, second), _ = degenerate_sums(structure, 3)
    second[1, 0], offset[1, 0] = 0.0, 0.0
    covariances, factor = structure.update((mass, offset, second), bare(3))
    assert np.isfinite(factor.whitener).all()
    assert np.isfinite(factor.log_determinant).all()
    if not structure.shared:
        assert_allclose(dense(covariances, structure, 3)[1, 0], 0.0)
    # In the first start a feature is copied: it is singular too, which variances alone do not show.
    assert factor.usable.tolist() == [not structure.triangular, False]


# ---------------------------------------------------------------- whiteners


def singular(order: int) -> dict[str, FloatArray]:
    """Return matrices of that order that have no Cholesky factor."""
    unit = np.eye(order)
    matrices = {"zero": 0.0 * unit, "negative": -unit}
    for name, value in (("indefinite", -1.0), ("nan", np.nan), ("infinite", np.inf)):
        matrices[name] = np.diag(np.where(np.arange(order) == order - 1, value, 1.0))
    if order > 1:
        matrices["rank one"] = np.outer(np.arange(order) + 1.0, np.arange(order) + 1.0)
        matrices["copied feature"] = unit.copy()
        matrices["copied feature"][:2, :2] = 1.0
    return matrices


@pytest.mark.parametrize("order", [1, 2, 5, 16, 33])
def test_the_reference_whitens_as_the_core_does(order: int) -> None:
    random = np.random.default_rng(4)
    good = random_covariances(random, 21, order) * np.exp(10.0 * random.normal(size=(21, 1, 1)))
    narrow = np.ones((order, order)) + 1e-8 * np.eye(order)
    tiny, huge = 1e-310 * good[0], 1e300 * good[0]
    matrices = np.stack([*good[:10], *singular(order).values(), narrow, tiny, huge, *good[10:]])
    found = whiten_batch(matrices)
    with by_reference():
        expected = whiten_batch(matrices)
    assert_array_equal(found.positive, expected.positive)
    # Of matrices that are not positive definite, whiteners and determinants are undefined.
    found, expected = found.take(found.positive), expected.take(expected.positive)
    largest = np.abs(expected.whiteners).max(axis=(1, 2), keepdims=True)
    assert_allclose(found.whiteners / largest, expected.whiteners / largest, atol=1e-9)
    assert_allclose(found.log_determinants, expected.log_determinants, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("order", [2, 3, 8, 18])
@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8])
def test_ill_conditioned_matrices_keep_their_digits(order: int, condition: float) -> None:
    """Squared lengths of whitened vectors, and determinants, against sixty digits."""
    # What 1e8 leaves of double precision is 1e-8; where there is an extended one, it must be used.
    extended = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
    for seed in range(4):
        random = np.random.default_rng(seed)
        vectors = np.linalg.qr(random.normal(size=(order, order)))[0]
        matrix = (vectors * np.geomspace(1.0, 1.0 / condition, order)) @ vectors.T
        matrix = 0.5 * (matrix + matrix.T)
        whitened, x = whiten_batch(matrix[None]), random.normal(size=order)
        assert whitened.positive[0]
        with mp.workdps(60):
            exact = mp.matrix(matrix.tolist())
            length = float((mp.matrix(x.tolist()).T * mp.lu_solve(exact, mp.matrix(x.tolist())))[0])
            log_determinant = float(mp.log(mp.det(exact)))
        found = ((whitened.whiteners[0] @ x) ** 2).sum()
        assert found == pytest.approx(length, rel=1e-9 if extended else 1e-8)
        rel = 1e-10 if extended else 1e-9
        assert whitened.log_determinants[0] == pytest.approx(log_determinant, rel=rel)


@pytest.mark.parametrize("smallest", [0.4, 0.9, 0.99])
def test_a_floor_that_is_just_missed_is_kept_too(smallest: float) -> None:
    """The test for matrices above the floor, a trace, must not let through what is a little below it."""
    turned = np.linalg.qr(np.random.default_rng(7).normal(size=(3, 3)))[0]
    matrix = turned @ np.diag([smallest, 20.0, 30.0]) @ turned.T
    floor = np.array([1.0, 4.0, 0.25])
    unit = np.sqrt(np.outer(floor, floor))
    raised, whitened = whiten_bounded((matrix * unit)[None].copy(), floor)
    assert_allclose(np.linalg.eigvalsh(raised[0] / unit), [1.0, 20.0, 30.0], rtol=1e-12)
    assert_allclose(whitened.whiteners[0] @ raised[0] @ whitened.whiteners[0].T, np.eye(3), atol=1e-12)
    assert_allclose(whitened.log_determinants[0], np.linalg.slogdet(raised[0])[1], rtol=1e-12)
