"""Covariance structures against dense matrices, and whiteners against sixty digits."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from by_reference import by_reference
from numpy.testing import assert_allclose, assert_array_equal
from oracles import as_full, as_structure, random_covariances

from skmix.engine.records import FloatArray, Regulariser
from skmix.engine.structures import STRUCTURES, Structure, structure_of
from skmix.engine.structures.factors import whiten_batch, whiten_bounded

each_structure = pytest.mark.parametrize("structure", list(STRUCTURES.values()), ids=list(STRUCTURES))
each_size = pytest.mark.parametrize("n_features", [1, 2, 3, 18])

N_STARTS, N_KERNELS = 2, 3


def bare(n_features: int) -> Regulariser:
    """Return a regulariser without floor, ridge and priors."""
    return Regulariser(np.zeros(n_features), None, 0.0, np.eye(n_features), 1.0)


def dense(covariances: FloatArray, structure: Structure, n_features: int) -> FloatArray:
    return np.stack([as_full(own, structure.name, N_KERNELS, n_features) for own in covariances])


def problem(structure: Structure, n_features: int) -> tuple[np.random.Generator, FloatArray, FloatArray]:
    """Return random numbers, covariances of two starts in the shape of the structure, and as full ones."""
    random = np.random.default_rng(n_features)
    full = [random_covariances(random, N_KERNELS, n_features) for _ in range(N_STARTS)]
    covariances = np.stack([as_structure(own, structure.name) for own in full])
    return random, covariances, dense(covariances, structure, n_features)


def terms(structure: Structure, x: FloatArray) -> FloatArray:
    """Return the second-order terms (S, n) of rows x (M, n)."""
    first, second = structure.pairs(len(x))
    return x[first] * x[second]


# ---------------------------------------------------------------- conversions


@each_structure
@each_size
def test_conversions_and_units(structure: Structure, n_features: int) -> None:
    random, covariances, full = problem(structure, n_features)
    assert structure.shape(N_KERNELS, n_features) == covariances.shape[1:]
    assert_allclose(structure.to_full(covariances, N_KERNELS, n_features), full, rtol=1e-15)
    variances = np.broadcast_to(structure.variances(covariances), full.shape[:3])
    assert_allclose(variances, np.diagonal(full, axis1=2, axis2=3), rtol=1e-15)
    scale = random.uniform(0.1, 10.0, size=1 if structure.isotropic else n_features) * np.ones(n_features)
    rescaled = dense(structure.rescale(covariances, scale), structure, n_features)
    assert_allclose(rescaled, full * np.outer(scale, scale), rtol=1e-13)
    # One covariance for all kernels, given as a matrix or by its variances.
    general = random_covariances(random, 1, n_features)[0]
    for one in (general, np.diagonal(general)):
        common = structure.common(one)
        same = structure.from_common(common[None], N_KERNELS)[0]
        expected = np.tile(one if one.ndim == 2 else np.diag(one), (N_KERNELS, 1, 1))
        assert_allclose(same, as_structure(expected, structure.name), rtol=1e-14)


@each_structure
def test_kernels_and_features_are_chosen_and_kernels_widened(structure: Structure) -> None:
    _, covariances, full = problem(structure, 4)
    kernels, columns = np.array([[2, 0], [1, 1]]), np.array([3, 1])
    chosen = structure.take_kernels(covariances, kernels)
    expected = np.stack([matrices[index] for matrices, index in zip(full, kernels, strict=True)])
    assert_array_equal([as_full(own, structure.name, 2, 4) for own in chosen], expected)
    marginal = structure.marginal(covariances, columns)
    assert_array_equal(dense(marginal, structure, 2), full[..., columns[:, None], columns])
    ratios = np.array([2.0, 3.0, 5.0])
    wide = structure.widened(covariances, ratios)
    wide = wide if structure.shared else dense(wide, structure, 4)
    assert_allclose(wide, ratios[:, None, None] * full, rtol=1e-14)


def test_free_parameters_are_counted_as_scikit_learn_counts_them() -> None:
    counts = {name: structure.n_parameters(5, 4) for name, structure in STRUCTURES.items()}
    assert counts == {"full": 50, "tied": 10, "diag": 20, "spherical": 5}


# ---------------------------------------------------------------- factors


@each_structure
@each_size
def test_factors_stand_for_dense_inverses(structure: Structure, n_features: int) -> None:
    """log|P|, x'P⁻¹x directly and as a linear function of second-order terms, P⁻¹v, and the log-prior."""
    random, covariances, full = problem(structure, n_features)
    factor, by_kernel = structure.factor(covariances, n_features), full.shape[:2]
    assert factor.usable.all()
    log_determinants, precision = np.linalg.slogdet(full)[1], np.linalg.inv(full)
    found = np.broadcast_to(factor.log_determinant, by_kernel)
    assert_allclose(found, log_determinants, rtol=1e-12, atol=1e-13)
    x = random.normal(size=(n_features, 7))
    lengths = np.einsum("dn,rkde,en->rkn", x, precision, x)
    found = np.broadcast_to(structure.distances(factor.whitener, x), lengths.shape)
    assert_allclose(found, lengths, rtol=1e-10)
    found = np.broadcast_to(structure.quadratic(factor) @ terms(structure, x), lengths.shape)
    assert_allclose(found, -0.5 * lengths, rtol=1e-10, atol=1e-11)
    vectors = random.normal(size=(*by_kernel, n_features))
    expected = np.einsum("rkde,rke->rkd", precision, vectors)
    assert_allclose(structure.precision_times(factor, vectors), expected, rtol=1e-10, atol=1e-12)
    diagonals = np.diagonal(precision, axis1=2, axis2=3)
    assert_allclose(np.broadcast_to(structure.precisions(factor), diagonals.shape), diagonals, rtol=1e-10)
    # −ν/2 (log|P| + tr(Σ₀ P⁻¹)), once for each matrix that the structure has.
    prior = random_covariances(random, 1, n_features)[0]
    regulariser = replace(bare(n_features), prior_rows=2.5, prior_covariance=structure.common(prior))
    each = log_determinants + np.einsum("de,rked->rk", prior, precision)
    expected = -1.25 * each[:, : 1 if structure.shared else None].sum(axis=1)
    assert_allclose(structure.log_prior(factor, regulariser), expected, rtol=1e-10)


@each_structure
def test_variance_inflation_is_that_of_regressions_on_the_other_features(structure: Structure) -> None:
    """A variance over what is left of it given all other features: 1 / (1 − R²), the largest of a start."""
    _, covariances, full = problem(structure, 3)
    variances, precisions = (np.einsum("rkdd->rkd", each) for each in (full, np.linalg.inv(full)))
    expected = (variances * precisions).max(axis=(1, 2))
    factor = structure.factor(covariances, 3)
    assert_allclose(structure.inflation(covariances, factor), expected, rtol=1e-9)
    broken = replace(factor, usable=np.array([True, False]))
    assert_allclose(structure.inflation(covariances, broken), [expected[0], np.inf], rtol=1e-9)


# ---------------------------------------------------------------- the M-step


@each_structure
@pytest.mark.parametrize("n_features", [1, 3, 4])
def test_moments_about_other_origins_and_of_a_unit_mass(structure: Structure, n_features: int) -> None:
    random, covariances, _ = problem(structure, n_features)
    mass, still = np.ones((N_STARTS, N_KERNELS)), np.zeros((N_STARTS, N_KERNELS, n_features))
    second = structure.terms_of(covariances, N_KERNELS, n_features)
    assert second.shape == (N_STARTS, N_KERNELS, structure.n_second(n_features))
    found, factor = structure.update((mass, still, second), bare(n_features))
    assert_allclose(found, covariances, rtol=1e-12)
    assert factor.usable.all()
    # Weighted rows about the origin and about another point.
    x, weights, point = random.normal(size=(n_features, 9)), random.random(9), random.normal(size=n_features)
    second, expected = ((terms(structure, rows) @ weights)[None, None] for rows in (x, x - point[:, None]))
    first, total = (x @ weights)[None, None], weights.sum()[None, None, None]
    assert_allclose(structure.moved(second, first, total, -point[None, None]), expected, rtol=1e-10)


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


def test_the_floor_of_one_variance_is_the_mean_of_the_features_floors() -> None:
    variances, factor = structure_of("spherical").raised(np.array([[0.5, 5.0, 2.5]]), np.array([1.0, 3.0]))
    assert_array_equal(variances, [[2.0, 5.0, 2.5]])
    assert_allclose(factor.log_determinant, 2.0 * np.log(variances))


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


@pytest.mark.parametrize("order", [1, 2, 3, 16, 17, 30])
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
def test_whiteners_and_determinants(order: int, scale: float) -> None:
    plain = random_covariances(np.random.default_rng(0), 9, order)
    matrices = scale * plain
    before = matrices.copy()
    whitened = whiten_batch(matrices)
    assert_array_equal(matrices, before)
    assert whitened.positive.all()
    whiteners = whitened.whiteners
    assert_allclose(whiteners @ matrices @ whiteners.mT, [np.eye(order)] * 9, atol=1e-11)
    expected = np.linalg.slogdet(plain)[1] + order * np.log(scale)
    assert_allclose(whitened.log_determinants, expected, rtol=1e-11, atol=1e-12)
    assert_array_equal(whiteners, np.tril(whiteners))
    assert (np.diagonal(whiteners, axis1=1, axis2=2) > 0).all()


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


@pytest.mark.parametrize("order", [1, 2, 5, 17])
def test_one_bad_matrix_does_not_disturb_the_batch(order: int) -> None:
    good = random_covariances(np.random.default_rng(3), 2, order)
    alone = whiten_batch(good)
    for name, bad in singular(order).items():
        whitened = whiten_batch(np.stack([good[0], bad, good[1]]))
        assert_array_equal(whitened.positive, [True, False, True], err_msg=name)
        assert_allclose(whitened.whiteners[[0, 2]], alone.whiteners, rtol=1e-13)
        assert_allclose(whitened.log_determinants[[0, 2]], alone.log_determinants, rtol=1e-13)
        assert np.isfinite(whitened.whiteners).all(), name
        assert np.isfinite(whitened.log_determinants).all(), name


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


@pytest.mark.parametrize("order", [2, 3, 8, 17])
@pytest.mark.parametrize("passes", [nullcontext, by_reference])
def test_matrices_singular_to_working_precision_are_not_positive(order: int, passes: Any) -> None:
    """Of half the rank: what elimination leaves is rounding, of either sign."""
    random = np.random.default_rng(7)
    size = 10.0 ** random.uniform(-5.0, 5.0, size=(50, 1, 1))
    roots = size * random.normal(size=(50, order, max(1, order // 2)))
    with passes():
        assert not whiten_batch(roots @ roots.mT).positive.any()


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
