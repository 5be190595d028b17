"""Covariance structures by their definitions, and the linear algebra beneath them."""

from __future__ import annotations

from dataclasses import replace

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
each_size = pytest.mark.parametrize("n_features", [1, 2, 3, 4, 5, 18])

N_STARTS, N_KERNELS = 2, 3


def no_regulariser(n_features: int) -> Regulariser:
    return Regulariser(
        floor=np.zeros(n_features),
        ridge=np.zeros(n_features),
        prior_rows=0.0,
        prior_covariance=np.eye(n_features),
        weight_prior=1.0,
    )


def batch_of_covariances(seed: int, structure: Structure, n_features: int) -> tuple[FloatArray, FloatArray]:
    """Return covariances of two starts in the structure's shape, and the same as full ones."""
    random = np.random.default_rng(seed)
    own = np.stack(
        [
            as_structure(random_covariances(random, N_KERNELS, n_features), structure.name)
            for _ in range(N_STARTS)
        ]
    )
    return own, dense(own, structure, n_features)


def dense(covariances: FloatArray, structure: Structure, n_features: int) -> FloatArray:
    return np.stack([as_full(c, structure.name, N_KERNELS, n_features) for c in covariances])


def second_order_terms(structure: Structure, x: FloatArray) -> FloatArray:
    """Return the second-order terms (S, n) of rows x (M, n)."""
    first, second = structure.pairs(len(x))
    return x[first] * x[second]


@each_structure
@each_size
def test_conversions_and_units(structure: Structure, n_features: int) -> None:
    own, full = batch_of_covariances(0, structure, n_features)
    assert structure.shape(N_KERNELS, n_features) == own.shape[1:]
    assert_allclose(structure.to_full(own, N_KERNELS, n_features), full, rtol=1e-15)
    assert_allclose(structure.from_full(full), own, rtol=1e-14)
    general = np.stack(
        [random_covariances(np.random.default_rng(s), N_KERNELS, n_features) for s in range(N_STARTS)]
    )
    expected = np.stack([as_structure(covariances, structure.name) for covariances in general])
    assert_allclose(structure.from_full(general), expected, rtol=1e-14)
    scale = np.random.default_rng(1).uniform(0.1, 10.0, size=1 if structure.isotropic else n_features)
    scale = np.broadcast_to(scale, n_features)
    found = dense(structure.rescale(own, scale), structure, n_features)
    assert_allclose(found, full * np.outer(scale, scale), rtol=1e-13)


def test_free_parameters_are_counted_as_scikit_learn_counts_them() -> None:
    counts = {name: structure.n_parameters(5, 4) for name, structure in STRUCTURES.items()}
    assert counts == {"full": 50, "tied": 10, "diag": 20, "spherical": 5}


@each_structure
@each_size
def test_factors_stand_for_dense_inverses(structure: Structure, n_features: int) -> None:
    """log|P|, x'P⁻¹x directly and as a linear function of second-order terms, P⁻¹v, and the log-prior."""
    own, full = batch_of_covariances(2, structure, n_features)
    factor, random = structure.factor(own, n_features), np.random.default_rng(2)
    assert factor.usable.all()
    log_determinants, precision = np.linalg.slogdet(full)[1], np.linalg.inv(full)
    found = np.broadcast_to(factor.log_determinant, log_determinants.shape)
    assert_allclose(found, log_determinants, rtol=1e-12, atol=1e-13)
    x = random.normal(size=(n_features, 7))
    lengths = np.einsum("dn,rkde,en->rkn", x, precision, x)
    found = np.broadcast_to(structure.distances(factor.whitener, x), lengths.shape)
    assert_allclose(found, lengths, rtol=1e-10)
    found = np.broadcast_to(structure.quadratic(factor) @ second_order_terms(structure, x), lengths.shape)
    assert_allclose(found, -0.5 * lengths, rtol=1e-10, atol=1e-11)
    vectors = random.normal(size=(N_STARTS, N_KERNELS, n_features))
    expected = np.einsum("rkde,rke->rkd", precision, vectors)
    assert_allclose(structure.precision_times(factor, vectors), expected, rtol=1e-10, atol=1e-12)
    # −ν/2 (log|P| + tr(Σ₀ P⁻¹)), once for each matrix that the structure has.
    prior = random_covariances(random, 1, n_features)[0]
    own_form = structure.common(prior)
    assert own_form.ndim == (1 if structure.name in ("diag", "spherical") else 2)
    regulariser = replace(no_regulariser(n_features), prior_rows=2.5, prior_covariance=own_form)
    terms = (log_determinants + np.einsum("de,rked->rk", prior, precision))[
        :, : 1 if structure.shared else None
    ]
    assert_allclose(structure.log_prior(factor, regulariser), -1.25 * terms.sum(axis=1), rtol=1e-10)


def degenerate_statistics(
    structure: Structure, n_features: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return statistics of rows in a plane (a line, a point), whose covariances are singular."""
    random = np.random.default_rng(8)
    x = random.normal(size=(N_STARTS, 20, n_features))
    x[..., 0] *= 0.05
    x[..., -1] = x[..., 0]
    w = random.dirichlet(np.ones(N_KERNELS), size=(N_STARTS, 20))
    mass = w.sum(axis=1)
    means = np.einsum("rnk,rnd->rkd", w, x) / mass[..., None]
    deviations = x[:, :, None, :] - means[:, None]
    scatter = np.einsum("rnk,rnkd,rnke->rkde", w, deviations, deviations)
    second = np.stack([w[r].T @ second_order_terms(structure, x[r].T).T for r in range(N_STARTS)])
    return mass, means, second, scatter


@each_structure
@pytest.mark.parametrize("n_features", [1, 2, 4, 18])
def test_the_floor_is_kept_and_nothing_above_it_is_better(structure: Structure, n_features: int) -> None:
    """Among covariances P ⪰ diag(floor) the update has the largest expected log-likelihood.

    The admissible set is convex: a step from the update towards any other point of it stays inside.
    """
    mass, offset, second, scatter = degenerate_statistics(structure, n_features)
    random = np.random.default_rng(9)
    floor = random.uniform(0.05, 0.4, size=n_features)
    plain, _ = structure.update((mass, offset, second), no_regulariser(n_features))
    if structure.isotropic:
        floor[:] = plain.mean()
    regulariser = replace(no_regulariser(n_features), floor=floor)
    covariances, factor = structure.update((mass, offset, second), regulariser)
    assert factor.usable.all()
    full = dense(covariances, structure, n_features)
    root = np.sqrt(floor)
    assert np.linalg.eigvalsh(full / np.outer(root, root)).min() > 1.0 - 1e-10
    assert not np.allclose(covariances, plain)

    def expected_log_likelihood(own: FloatArray, r: int) -> float:
        matrices = as_full(own, structure.name, N_KERNELS, n_features)
        terms = [
            mass[r, k] * np.linalg.slogdet(matrices[k])[1]
            + np.trace(np.linalg.solve(matrices[k], scatter[r, k]))
            for k in range(N_KERNELS)
        ]
        return -0.5 * float(np.sum(terms))

    for r in range(N_STARTS):
        best = expected_log_likelihood(covariances[r], r)
        for scale in (1e-6, 1e-3, 1.0):
            for _ in range(10):
                above = random_covariances(random, N_KERNELS, n_features, ridge=0.0)
                other = as_structure(scale * above + np.diag(floor), structure.name)
                for step in (1e-4, 1e-2, 0.3, 1.0):
                    moved = covariances[r] + step * (other - covariances[r])
                    assert expected_log_likelihood(moved, r) <= best + 1e-10 * abs(best)


def test_the_floor_of_one_variance_is_the_mean_of_the_features_floors() -> None:
    variances, factor = structure_of("spherical").raised(np.array([[0.5, 5.0, 2.5]]), np.array([1.0, 3.0]))
    assert_array_equal(variances, [[2.0, 5.0, 2.5]])
    assert_allclose(factor.log_determinant, 2.0 * np.log(variances))


@each_structure
def test_without_a_floor_a_singular_covariance_is_marked(structure: Structure) -> None:
    mass, offset, second, _ = degenerate_statistics(structure, 3)
    second[1], offset[1] = 0.0, 0.0
    covariances, factor = structure.update((mass, offset, second), no_regulariser(3))
    assert not factor.usable[1]
    assert np.isfinite(factor.whitener).all()
    assert np.isfinite(factor.log_determinant).all()
    assert_allclose(dense(covariances, structure, 3)[1], 0.0)
    if structure.name in ("full", "tied"):
        # A copied feature is singular too; variances alone do not show it.
        assert not factor.usable[0]
    else:
        assert factor.usable[0]


@each_structure
@pytest.mark.parametrize("n_features", [1, 3, 4])
def test_kernels_are_chosen_widened_and_drawn(structure: Structure, n_features: int) -> None:
    own, full = batch_of_covariances(15, structure, n_features)
    kernels = np.array([[2, 0], [1, 1]])
    taken = structure.take_kernels(own, kernels)
    expected = np.stack([matrices[index] for matrices, index in zip(full, kernels, strict=True)])
    found = np.stack([as_full(c, structure.name, 2, n_features) for c in taken])
    assert_array_equal(found, expected)
    factors = np.array([2.0, 3.0, 5.0])
    if not structure.shared:
        wide = dense(structure.widened(own, factors), structure, n_features)
        assert_allclose(wide, factors[:, None, None] * full, rtol=1e-14)
    for r, k in [(1, 2), (0, 0)]:
        # Rows of the identity show the root of the covariance.
        one = structure.take_kernels(own[r : r + 1], np.array([[k]]))
        drawn = structure.correlate(one, np.eye(n_features))
        assert_allclose(drawn.T @ drawn, full[r, k], rtol=1e-9, atol=1e-12)


@each_structure
@pytest.mark.parametrize("n_features", [1, 3, 4])
def test_terms_of_a_unit_mass_make_its_covariance_again(structure: Structure, n_features: int) -> None:
    own, _ = batch_of_covariances(16, structure, n_features)
    terms = structure.terms_of(own, N_KERNELS, n_features)
    assert terms.shape == (N_STARTS, N_KERNELS, structure.n_second(n_features))
    mass, offset = np.ones((N_STARTS, N_KERNELS)), np.zeros((N_STARTS, N_KERNELS, n_features))
    found, factor = structure.update((mass, offset, terms), no_regulariser(n_features))
    assert_allclose(found, own, rtol=1e-12)
    assert factor.usable.all()


@pytest.mark.parametrize("structure", [STRUCTURES["full"], STRUCTURES["tied"]], ids=["full", "tied"])
def test_variance_inflation_is_that_of_regressions_on_the_other_features(structure: Structure) -> None:
    """A variance over what is left of it given all other features: 1 / (1 − R²), the largest of a start."""
    own, full = batch_of_covariances(17, structure, 3)
    variances, precisions = (np.einsum("rkdd->rkd", each) for each in (full, np.linalg.inv(full)))
    expected = (variances * precisions).max(axis=(1, 2))
    factor = structure.factor(own, 3)
    assert_allclose(structure.inflation(own, factor), expected, rtol=1e-9)
    broken = replace(factor, usable=np.array([True, False]))
    assert_allclose(structure.inflation(own, broken), [expected[0], np.inf], rtol=1e-9)


# ---------------------------------------------------------------- linear algebra

ORDERS = [1, 2, 3, 7, 16, 17, 30]
"""Both sides of the order above which matrices are factored one by one."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e-30, 1e30, 1e200])
def test_whiteners_and_determinants(order: int, scale: float) -> None:
    plain = random_covariances(np.random.default_rng(0), 9, order)
    matrices = scale * plain
    before = matrices.copy()
    whiteners, log_determinants, positive = whiten_batch(matrices)
    assert_array_equal(matrices, before)
    assert positive.all()
    assert_allclose(whiteners @ matrices @ whiteners.swapaxes(1, 2), [np.eye(order)] * 9, atol=1e-11)
    expected = np.linalg.slogdet(plain)[1] + order * np.log(scale)
    assert_allclose(log_determinants, expected, rtol=1e-11, atol=1e-12)
    assert_array_equal(whiteners, np.tril(whiteners))
    assert (np.diagonal(whiteners, axis1=1, axis2=2) > 0).all()


def singular(order: int) -> dict[str, FloatArray]:
    """Return matrices of that order that have no Cholesky factor."""
    direction = np.random.default_rng(2).normal(size=order)
    indefinite = np.eye(order)
    indefinite[-1, -1] = -1.0
    broken = np.eye(order)
    broken[0, 0] = np.nan
    infinite = np.eye(order)
    infinite[0, 0] = np.inf
    found = {
        "zero": np.zeros((order, order)),
        "indefinite": indefinite,
        "negative": -np.eye(order),
        "nan": broken,
        "infinite": infinite,
    }
    if order > 1:
        found["rank one"] = np.outer(direction, direction)
        found["copied feature"] = np.eye(order)
        found["copied feature"][:2, :2] = 1.0
    return found


@pytest.mark.parametrize("order", [1, 2, 5, 17])
def test_one_bad_matrix_does_not_disturb_the_batch(order: int) -> None:
    good = random_covariances(np.random.default_rng(3), 2, order)
    alone = whiten_batch(good)
    for name, bad in singular(order).items():
        whiteners, log_determinants, positive = whiten_batch(np.stack([good[0], bad, good[1]]))
        assert_array_equal(positive, [True, False, True], err_msg=name)
        assert_allclose(whiteners[[0, 2]], alone[0], rtol=1e-13)
        assert_allclose(log_determinants[[0, 2]], alone[1], rtol=1e-13)
        assert np.isfinite(whiteners).all(), name
        assert np.isfinite(log_determinants).all(), name


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
    assert_array_equal(found[2], expected[2])
    # Of matrices that are not positive definite, whiteners and determinants are undefined.
    whiteners, log_determinants = (array[found[2]] for array in found[:2])
    lengths = np.abs(expected[0][found[2]]).max(axis=(1, 2))
    assert_allclose(
        whiteners / lengths[:, None, None], expected[0][found[2]] / lengths[:, None, None], atol=1e-9
    )
    assert_allclose(log_determinants, expected[1][found[2]], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("order", [2, 3, 8, 17])
def test_matrices_singular_to_working_precision_are_not_positive(order: int) -> None:
    """Of half the rank: what elimination leaves is rounding, of either sign."""
    random = np.random.default_rng(7)
    size = 10.0 ** random.uniform(-5.0, 5.0, size=(50, 1, 1))
    roots = size * random.normal(size=(50, order, max(1, order // 2)))
    assert not whiten_batch(roots @ roots.swapaxes(1, 2))[2].any()


@pytest.mark.parametrize("order", [2, 3, 8, 18])
@pytest.mark.parametrize("condition", [1e4, 1e6, 1e8])
def test_ill_conditioned_matrices_keep_their_digits(order: int, condition: float) -> None:
    """Squared lengths of whitened vectors, and determinants, against sixty digits."""
    # What 1e8 leaves of double precision is 1e-8; where there is an extended one, it must be used.
    extended = np.finfo(np.longdouble).eps < np.finfo(np.float64).eps
    for seed in range(8):
        random = np.random.default_rng(seed)
        vectors = np.linalg.qr(random.normal(size=(order, order)))[0]
        matrix = (vectors * np.geomspace(1.0, 1.0 / condition, order)) @ vectors.T
        matrix = 0.5 * (matrix + matrix.T)
        whiteners, log_determinants, positive = whiten_batch(matrix[None])
        assert positive[0]
        x = random.normal(size=order)
        with mp.workdps(60):
            # One factor for both: multiplication at 60 digits is slow.
            factor = mp.cholesky(mp.matrix(matrix.tolist()))
            white: list[mp.mpf] = []
            for i, value in enumerate(x.tolist()):
                white.append((value - sum(factor[i, j] * white[j] for j in range(i))) / factor[i, i])
            length = float(sum(each**2 for each in white))
            log_determinant = float(2 * sum(mp.log(factor[i, i]) for i in range(order)))
        assert ((whiteners[0] @ x) ** 2).sum() == pytest.approx(length, rel=1e-9 if extended else 1e-8)
        assert log_determinants[0] == pytest.approx(log_determinant, rel=1e-10 if extended else 1e-9)


@pytest.mark.parametrize("smallest", [0.4, 0.9, 0.99])
def test_a_floor_that_is_just_missed_is_kept_too(smallest: float) -> None:
    """The test for matrices above the floor, a trace, must not let through what is a little below it."""
    turned = np.linalg.qr(np.random.default_rng(7).normal(size=(3, 3)))[0]
    matrix = turned @ np.diag([smallest, 20.0, 30.0]) @ turned.T
    floor = np.array([1.0, 4.0, 0.25])
    unit = np.sqrt(np.outer(floor, floor))
    raised, (whiteners, log_determinants, _) = whiten_bounded((matrix * unit)[None].copy(), floor)
    assert_allclose(np.linalg.eigvalsh(raised[0] / unit), [1.0, 20.0, 30.0], rtol=1e-12)
    assert_allclose(whiteners[0] @ raised[0] @ whiteners[0].T, np.eye(3), atol=1e-12)
    assert_allclose(log_determinants[0], np.linalg.slogdet(raised[0])[1], rtol=1e-12)
