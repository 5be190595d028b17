"""Log-densities and one whole pass against sixty digits, where double precision is under strain.

Covariances are compared in units of the kernel's own standard deviations, and means too: 1e-8 of a mean that
is 1e6 deviations from zero would be no accuracy at all.
"""

from __future__ import annotations

from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from calls import fit
from libraries import needs_torch, torch
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, as_full, as_structure

from skmix.engine.records import FloatArray, IntArray, Options, Parameters, Status
from skmix.engine.scoring import class_log_likelihood, kernel_log_densities

DIGITS = 60
RELATIVE = 1e-8
EPSILON = np.finfo(np.float64).eps

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def exact_pass(
    X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str
) -> tuple[FloatArray, FloatArray, Parameters]:
    """Return log-densities (N, K), log-likelihoods (L,) and the next model: (E), (LL), (M1), (M2), (M3).

    They are computed with sixty digits, and rounded to doubles at the end.
    """
    with mp.workdps(DIGITS):
        (n_rows, n_features), (n_kernels, n_classes) = X.shape, model.weights.shape
        rows, kernels = [mp.matrix(row.tolist()) for row in X], range(n_kernels)
        log_densities = mp.matrix(n_rows, n_kernels)
        for k, full in enumerate(as_full(model.covariances, covariance_type, n_kernels, n_features)):
            covariance, mean = mp.matrix(full.tolist()), mp.matrix(model.means[k].tolist())
            precision = covariance**-1
            level = mp.log(mp.det(covariance)) + n_features * mp.log(2 * mp.pi)
            for n, row in enumerate(rows):
                log_densities[n, k] = -(level + ((row - mean).T * precision * (row - mean))[0]) / 2
        w, weights = mp.matrix(n_rows, n_kernels), mp.matrix(n_kernels, n_classes)
        per_class = [mp.mpf(0)] * n_classes
        for n, c in enumerate(classes.tolist()):
            joint = [mp.mpf(float(model.weights[k, c])) * mp.exp(log_densities[n, k]) for k in kernels]
            per_class[c] += mp.log(mp.fsum(joint))
            for k in kernels:
                w[n, k] = joint[k] / mp.fsum(joint)
                weights[k, c] += w[n, k] / int((classes == c).sum())
        masses = [mp.fsum(w[:, k]) for k in kernels]
        means = [sum((w[n, k] * rows[n] for n in range(n_rows)), 0 * rows[0]) / masses[k] for k in kernels]
        scatters = [mp.matrix(n_features) for _ in kernels]
        for k in kernels:
            for n, row in enumerate(rows):
                scatters[k] += w[n, k] * (row - means[k]) * (row - means[k]).T
        if covariance_type == "tied":
            covariances = _doubles(sum(scatters[1:], scatters[0]) / n_rows)
        else:
            full = np.stack([_doubles(s / m) for s, m in zip(scatters, masses, strict=True)])
            covariances = as_structure(full, covariance_type)
        new_means = np.stack([_doubles(mean)[:, 0] for mean in means])
        likelihood = np.array([float(value) for value in per_class])
        return _doubles(log_densities), likelihood, Parameters(_doubles(weights), new_means, covariances)


def _doubles(matrix: mp.matrix) -> FloatArray:
    return np.array(matrix.tolist(), dtype=np.float64)


def assert_pass_is_exact(X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str) -> None:
    """Compare log-densities and one unguarded pass of the engine with the exact ones."""
    log_densities, likelihood, exact = exact_pass(X, classes, model, covariance_type)
    scale = np.maximum(np.abs(log_densities), 1.0)
    densities = kernel_log_densities(X, model, covariance_type)
    assert_allclose(densities / scale, log_densities / scale, rtol=0, atol=RELATIVE)

    options = Options(covariance_type=covariance_type, floor=0.0, tol=0.0, max_iter=1)
    result = fit(X, classes, model.batch(), options)
    assert result.status[0] == Status.STOPPED
    found = result.parameters.take(0)
    assert_allclose(result.path[0][0], likelihood, rtol=RELATIVE)
    assert_allclose(found.weights, exact.weights, rtol=RELATIVE, atol=1e-12)
    full, found_full = (as_full(p.covariances, covariance_type, *p.means.shape) for p in (exact, found))
    deviation = np.sqrt(np.diagonal(full, axis1=1, axis2=2))
    error = np.abs(found.means - exact.means)
    assert (error <= RELATIVE * deviation + 2 * EPSILON * np.abs(exact.means)).all(), error / deviation
    unit = deviation[:, :, None] * deviation[:, None, :]
    assert_allclose(found_full / unit, full / unit, rtol=0, atol=RELATIVE)


def with_condition(random: np.random.Generator, n_features: int, condition: float) -> FloatArray:
    """Return a covariance of unit largest eigenvalue with that condition number, in random directions."""
    vectors = np.linalg.qr(random.normal(size=(n_features, n_features)))[0]
    covariance = (vectors * np.geomspace(1.0, 1.0 / condition, n_features)) @ vectors.T
    return 0.5 * (covariance + covariance.T)


def rows_and_model(
    random: np.random.Generator, centres: FloatArray, full: FloatArray, covariance_type: str
) -> tuple[FloatArray, IntArray, Parameters]:
    """Return ten rows around every centre, of two classes, and the kernels that they are drawn from."""
    around = zip(centres, full, strict=True)
    X = np.concatenate([random.multivariate_normal(*one, size=10, method="cholesky") for one in around])
    weights = random.dirichlet(np.ones(len(full)), size=2).T
    return X, np.arange(len(X)) % 2, Parameters(weights, centres, as_structure(full, covariance_type))


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("n_features", [2, 4])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_ill_conditioned_covariances(condition: float, n_features: int, offset: float) -> None:
    random = np.random.default_rng(1)
    full = np.stack([with_condition(random, n_features, condition) for _ in range(2)])
    centres = 2.0 * random.normal(size=(2, n_features))
    X, classes, model = rows_and_model(random, centres, full, "full")
    X, model = X + offset, replace(model, means=centres + offset)
    assert_pass_is_exact(X, classes, model, "full")
    assert_pass_is_exact(X, classes, replace(model, covariances=full[0]), "tied")


@each_type
@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize(
    ("deviation", "distance", "offset"),
    [(1.0, 2.0, 1e6), (1e-4, 2.0, 1e6), (1e5, 2.0, 1e6), (1e-6, 1e6, 0.0), (1e-6, 1e6, 1e9)],
)
def test_data_far_from_zero_and_clusters_far_apart(
    covariance_type: str, n_features: int, deviation: float, distance: float, offset: float
) -> None:
    """Up to a million standard deviations from each other, and more from zero, in different directions."""
    random = np.random.default_rng(3)
    full = deviation**2 * np.stack([with_condition(random, n_features, 10.0) for _ in range(3)])
    away = offset * np.array([1.0, -3.0, 0.7])[:n_features]
    centres = deviation * (distance * random.normal(size=(3, n_features)) + away)
    assert_pass_is_exact(*rows_and_model(random, centres, full, covariance_type), covariance_type)


@each_type
@pytest.mark.parametrize("n_features", [1, 2, 3])
def test_narrow_clusters_seen_from_broad_kernels(covariance_type: str, n_features: int) -> None:
    """Kernels a hundred thousand times broader than the clusters, beside them: the pass must find both."""
    random = np.random.default_rng(5)
    full = 1e-12 * np.stack([with_condition(random, n_features, 10.0) for _ in range(3)])
    # Far enough from each other that every broad kernel takes one whole narrow cluster.
    centres = 3.0 * np.arange(3)[:, None] + 0.2 * random.normal(size=(3, n_features))
    X, classes, model = rows_and_model(random, centres, full, covariance_type)
    broad = as_structure(np.stack([0.01 * np.eye(n_features)] * 3), covariance_type)
    model = replace(model, means=centres + 0.3, covariances=broad)
    _, _, exact = exact_pass(X, classes, model, covariance_type)
    narrowed = as_full(exact.covariances, covariance_type, 3, n_features)
    assert np.diagonal(narrowed, axis1=1, axis2=2).max() < 1e-10
    assert_pass_is_exact(X, classes, model, covariance_type)


@each_type
def test_a_narrow_cluster_inside_a_broad_one(covariance_type: str) -> None:
    narrow, broad = (1e-3, 1e-3) if covariance_type == "tied" else (1e-12, 1.0)
    full, centres = np.stack([narrow * np.eye(2), broad * np.eye(2)]), np.array([[1.0, -0.5], [0.2, 0.1]])
    problem = rows_and_model(np.random.default_rng(6), centres, full, covariance_type)
    assert_pass_is_exact(*problem, covariance_type)


@pytest.mark.parametrize("kind", ["array", pytest.param("tensor", marks=needs_torch)])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("narrow", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("distance", [0.01, 3.0, 300.0])
def test_the_narrowest_direction_keeps_its_digits(
    covariance_type: str, kind: str, narrow: float, distance: float
) -> None:
    """In its own units, of clusters apart in this direction, on both sides of where products lose digits."""
    random = np.random.default_rng(9)
    vectors = np.linalg.qr(random.normal(size=(3, 3)))[0]
    full = np.stack([(vectors * [1.0, 0.5, narrow]) @ vectors.T] * 3)
    centres = distance * np.array([[-1.0], [0.2], [1.0]]) * vectors[:, 2]
    X, classes, model = rows_and_model(random, centres, full, covariance_type)
    _, _, exact = exact_pass(X, classes, model, covariance_type)
    options = Options(covariance_type=covariance_type, floor=0.0, tol=0.0, max_iter=1)
    rows = torch.as_tensor(X) if kind == "tensor" else X
    found = fit(rows, classes, model.batch(), options).parameters.take(0)
    whiteners = np.linalg.inv(np.linalg.cholesky(exact.covariances))
    white = whiteners @ found.covariances @ whiteners.mT
    assert_allclose(white, np.broadcast_to(np.eye(3), white.shape), rtol=0, atol=1e-7)


@each_type
def test_features_of_very_different_scales(covariance_type: str) -> None:
    random = np.random.default_rng(7)
    unit = np.ones(3) if covariance_type == "spherical" else np.array([1e-9, 1.0, 1e12])
    full = np.stack([with_condition(random, 3, 10.0) for _ in range(2)])
    X, classes, model = rows_and_model(random, 2.0 * random.normal(size=(2, 3)), full, covariance_type)
    covariances = as_structure(full * np.outer(unit, unit), covariance_type)
    model = replace(model, means=model.means * unit, covariances=covariances)
    assert_pass_is_exact(X * unit, classes, model, covariance_type)


@each_type
def test_log_likelihoods_of_rows_far_from_every_kernel(covariance_type: str) -> None:
    random = np.random.default_rng(8)
    full = np.stack([with_condition(random, 2, 10.0) for _ in range(3)])
    _, _, model = rows_and_model(random, random.normal(size=(3, 2)), full, covariance_type)
    X = np.array([[50.0, 0.0], [1e5, -1e4], [3e8, 1e8], [0.1, 0.2]])
    found = class_log_likelihood(X, model, covariance_type)
    for c in range(2):
        exact = [exact_pass(X[n : n + 1], np.array([c]), model, covariance_type) for n in range(4)]
        assert_allclose(found[:, c], [likelihood[c] for _, likelihood, _ in exact], rtol=RELATIVE)


@each_type
@pytest.mark.parametrize("kind", ["array", pytest.param("tensor", marks=needs_torch)])
def test_rows_with_gaps_keep_their_digits_where_a_mean_leaps(covariance_type: str, kind: str) -> None:
    """A start 7e6 deviations away: the second E-step, about the new mean, must subtract it from the rows."""
    random, deviation = np.random.default_rng(0), 1e-6
    X = deviation * random.normal(size=(400, 3))
    X[random.uniform(size=400) < 0.3, 2] = np.nan
    # What is missing has the mean of the start, which is right in this feature.
    start = np.array([[7.0, 0.0, 0.0]])
    squares = [np.mean((column - column.mean()) ** 2) for column in X[:, :2].T]
    missing = np.isnan(X[:, 2])
    filled = np.where(missing, 0.0, X[:, 2])
    squares.append(np.mean((filled - filled.mean()) ** 2) + missing.mean() * deviation**2)
    covariances = as_structure(deviation**2 * np.eye(3)[None], covariance_type)
    model = Parameters(np.ones((1, 1)), start, covariances)
    options = Options(covariance_type=covariance_type, max_iter=1, tol=0.0, floor=0.0)
    rows = torch.as_tensor(X) if kind == "tensor" else X
    found = fit(rows, None, model.batch(), options).parameters.take(0).covariances
    if covariance_type == "spherical":
        variances, squares = found, [float(np.mean(squares))]
    else:
        variances = found[0] if covariance_type == "diag" else np.diagonal(found.reshape(3, 3))
    assert_allclose(variances, squares, rtol=1e-12)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_rows_with_gaps_under_nearly_singular_covariances(covariance_type: str) -> None:
    """Features that are equal up to one part in a hundred thousand: passes take extended precision."""
    random = np.random.default_rng(9)
    covariance = np.ones((4, 4)) + 1e-10 * with_condition(random, 4, 10.0)
    whole = random.normal(size=(20, 1)) + 1e-5 * random.normal(size=(20, 4))
    X = np.where(np.arange(4) == np.arange(20)[:, None] % 4, np.nan, whole)
    covariances = covariance if covariance_type == "tied" else covariance[None]
    model = Parameters(np.ones((1, 1)), np.zeros((1, 4)), covariances)
    expected = []
    for row in X:
        seen = np.flatnonzero(~np.isnan(row))
        part = Parameters(np.ones((1, 1)), np.zeros((1, 3)), covariance[None][:, seen[:, None], seen])
        expected.append(exact_pass(row[None, seen], np.zeros(1, dtype=int), part, "full")[0][0, 0])
    found = kernel_log_densities(X, model, covariance_type)
    assert_allclose(found[:, 0], expected, rtol=RELATIVE)
    options = Options(covariance_type=covariance_type, floor=0.0, tol=0.0, max_iter=1)
    result = fit(X, None, model.batch(), options)
    assert_allclose(result.path[0][0, 0], np.sum(expected), rtol=RELATIVE)
