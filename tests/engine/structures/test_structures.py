"""Every covariance structure against dense matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES, as_full, as_structure, random_covariances

from skmix.engine.model import FloatArray, Regulariser
from skmix.engine.structures import STRUCTURES, Structure, structure_of

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
    counts = {name: STRUCTURES[name].n_parameters(5, 4) for name in COVARIANCE_TYPES}
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
        drawn = structure.correlate(one, np.eye(n_features), np.random.RandomState(0))
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
