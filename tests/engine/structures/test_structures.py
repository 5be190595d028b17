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
def test_shapes_and_conversions(structure: Structure, n_features: int) -> None:
    own, full = batch_of_covariances(0, structure, n_features)
    assert structure.shape(N_KERNELS, n_features) == own.shape[1:]
    assert_allclose(structure.to_full(own, N_KERNELS, n_features), full, rtol=1e-15)
    assert_allclose(structure.from_full(full), own, rtol=1e-14)
    general = np.stack(
        [random_covariances(np.random.default_rng(s), N_KERNELS, n_features) for s in range(N_STARTS)]
    )
    expected = np.stack([as_structure(covariances, structure.name) for covariances in general])
    assert_allclose(structure.from_full(general), expected, rtol=1e-14)


def test_free_parameters_are_counted_as_scikit_learn_counts_them() -> None:
    counts = {name: STRUCTURES[name].n_parameters(5, 4) for name in COVARIANCE_TYPES}
    assert counts == {"full": 50, "tied": 10, "diag": 20, "spherical": 5}


@each_structure
@each_size
def test_rescaling(structure: Structure, n_features: int) -> None:
    own, full = batch_of_covariances(1, structure, n_features)
    scale = np.random.default_rng(1).uniform(0.1, 10.0, size=n_features)
    if structure.isotropic:
        scale[:] = scale[0]
    found = dense(structure.rescale(own, scale), structure, n_features)
    assert_allclose(found, full * np.outer(scale, scale), rtol=1e-13)


@each_structure
@each_size
def test_factor_whitens_and_knows_the_determinant(structure: Structure, n_features: int) -> None:
    own, full = batch_of_covariances(2, structure, n_features)
    factor = structure.factor(own, n_features)
    assert factor.usable.all()
    expected = np.linalg.slogdet(full)[1]
    found = np.broadcast_to(factor.log_determinant, expected.shape)
    assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    x = np.random.default_rng(2).normal(size=(n_features, 7))
    for r in range(N_STARTS):
        for k in range(N_KERNELS):
            lengths = structure.distances(structure.whiteners_of(factor, [(r, k)])[0], x)
            direct = np.einsum("dn,dn->n", x, np.linalg.solve(full[r, k], x))
            assert_allclose(lengths, direct, rtol=1e-11)


@each_structure
@each_size
def test_quadratic_coefficients_and_precisions(structure: Structure, n_features: int) -> None:
    """−½ x'P⁻¹x is linear in the second-order terms, and P⁻¹v is P⁻¹v."""
    own, full = batch_of_covariances(3, structure, n_features)
    factor = structure.factor(own, n_features)
    random = np.random.default_rng(3)
    x = random.normal(size=(n_features, 6))
    quadratic = structure.quadratic(factor)
    quadratic = np.broadcast_to(quadratic, (N_STARTS, N_KERNELS, quadratic.shape[-1]))
    found = quadratic @ second_order_terms(structure, x)
    precision = np.linalg.inv(full)
    expected = -0.5 * np.einsum("dn,rkde,en->rkn", x, precision, x)
    assert_allclose(found, expected, rtol=1e-10, atol=1e-11)
    vectors = random.normal(size=(N_STARTS, N_KERNELS, n_features))
    expected = np.einsum("rkde,rke->rkd", precision, vectors)
    assert_allclose(structure.precision_times(factor, vectors), expected, rtol=1e-10, atol=1e-12)


def statistics(
    seed: int, structure: Structure, n_features: int, origin: FloatArray | float = 0.0
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return mass, offset, packed second moments about an origin, and the scatters (R, K, M, M)."""
    random = np.random.default_rng(seed)
    n_rows = 2 * n_features + 5
    x = random.normal(size=(N_STARTS, n_rows, n_features)) @ random.normal(size=(n_features, n_features))
    w = random.dirichlet(np.ones(N_KERNELS), size=(N_STARTS, n_rows))
    mass = w.sum(axis=1)
    means = np.einsum("rnk,rnd->rkd", w, x) / mass[..., None]
    deviations = x[:, :, None, :] - means[:, None]
    scatter = np.einsum("rnk,rnkd,rnke->rkde", w, deviations, deviations)
    second = np.stack(
        [(w[r].T @ second_order_terms(structure, (x[r] - origin).T).T) for r in range(N_STARTS)]
    )
    return mass, means - origin, second, scatter


def expected_update(
    mass: FloatArray, scatter: FloatArray, structure: Structure, regulariser: Regulariser
) -> FloatArray:
    """Return the structure's covariances from scatters, with prior and ridge, by their definition."""
    prior, rows = structure_of("full").common(regulariser.prior_covariance), regulariser.prior_rows
    if structure.name == "tied":
        pooled = (scatter.sum(axis=1) + rows * prior) / (mass.sum(axis=1) + rows)[:, None, None]
        return pooled + np.diag(regulariser.ridge)
    full = (scatter + rows * prior) / (mass + rows)[..., None, None] + np.diag(regulariser.ridge)
    return np.stack([as_structure(covariances, structure.name) for covariances in full])


@each_structure
@pytest.mark.parametrize("n_features", [1, 3])
def test_update_with_prior_and_ridge(structure: Structure, n_features: int) -> None:
    mass, offset, second, scatter = statistics(6, structure, n_features)
    random = np.random.default_rng(6)
    regulariser = replace(
        no_regulariser(n_features),
        prior_rows=3.5,
        prior_covariance=structure.common(random_covariances(random, 1, n_features)[0]),
        ridge=random.uniform(0.1, 1.0, size=n_features),
    )
    covariances, _ = structure.update((mass, offset, second), regulariser)
    expected = expected_update(mass, scatter, structure, regulariser)
    assert_allclose(covariances, expected, rtol=1e-12)


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
@pytest.mark.parametrize("n_features", [1, 3])
def test_log_prior_is_the_inverse_wisharts_up_to_a_constant(structure: Structure, n_features: int) -> None:
    """−ν/2 (log|P| + tr(Σ₀ P⁻¹)), once for each matrix that the structure has."""
    own, full = batch_of_covariances(13, structure, n_features)
    prior = random_covariances(np.random.default_rng(13), 1, n_features)[0]
    own_form = structure.common(prior)
    assert own_form.ndim == (1 if structure.name in ("diag", "spherical") else 2)
    regulariser = replace(no_regulariser(n_features), prior_rows=2.5, prior_covariance=own_form)
    found = structure.log_prior(structure.factor(own, n_features), regulariser)
    matrices = full[:, :1] if structure.name == "tied" else full
    trace = np.trace(np.linalg.solve(matrices, np.broadcast_to(prior, matrices.shape)), axis1=2, axis2=3)
    expected = -1.25 * (np.linalg.slogdet(matrices)[1] + trace).sum(axis=1)
    assert_allclose(found, expected, rtol=1e-12)


@each_structure
@pytest.mark.parametrize("n_features", [1, 3, 4])
def test_kernels_are_chosen_widened_whitened_and_drawn(structure: Structure, n_features: int) -> None:
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
    factor, chosen = structure.factor(own, n_features), [(1, 2), (0, 0), (1, 0)]
    whiteners = structure.whiteners_of(factor, chosen)
    for whitener, (r, k) in zip(whiteners, chosen, strict=True):
        matrix = whitener if whitener.ndim == 2 else np.diag(np.broadcast_to(whitener, n_features))
        assert_allclose(matrix @ full[r, k] @ matrix.T, np.eye(n_features), atol=1e-9)
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
