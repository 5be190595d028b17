"""Log-densities and one whole pass against sixty digits, where double precision is under strain.

Covariances are compared in units of the kernel's own standard deviations, and means too: 1e-8 of a mean that
is 1e6 deviations from zero would be no accuracy at all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class ExactPass:
    """One pass computed with sixty digits, rounded to doubles at the end."""

    log_densities: FloatArray
    class_log_likelihood: FloatArray
    weights: FloatArray
    means: FloatArray
    covariances: FloatArray


def exact_pass(X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str) -> ExactPass:
    """Return equations (E), (M1), (M2), (M3) in extended precision."""
    with mp.workdps(DIGITS):
        n_rows, n_features = X.shape
        n_kernels, n_classes = model.weights.shape
        full = as_full(model.covariances, covariance_type, n_kernels, n_features)
        rows = [mp.matrix(row.tolist()) for row in X]
        log_densities = mp.matrix(n_rows, n_kernels)
        for k in range(n_kernels):
            covariance = mp.matrix(full[k].tolist())
            precision = covariance**-1
            level = mp.log(mp.det(covariance)) + n_features * mp.log(2 * mp.pi)
            mean = mp.matrix(model.means[k].tolist())
            for n, row in enumerate(rows):
                difference = row - mean
                log_densities[n, k] = -(level + (difference.T * precision * difference)[0]) / 2
        w = mp.matrix(n_rows, n_kernels)
        per_class = [mp.mpf(0)] * n_classes
        weights = mp.matrix(n_kernels, n_classes)
        for n, c in enumerate(classes.tolist()):
            joint = [
                mp.mpf(float(model.weights[k, c])) * mp.exp(log_densities[n, k]) for k in range(n_kernels)
            ]
            total = mp.fsum(joint)
            per_class[c] += mp.log(total)
            for k in range(n_kernels):
                w[n, k] = joint[k] / total
                weights[k, c] += w[n, k] / int((classes == c).sum())
        means, scatters, masses = [], [], []
        for k in range(n_kernels):
            mass = mp.fsum(w[n, k] for n in range(n_rows))
            mean = mp.matrix(n_features, 1)
            for n, row in enumerate(rows):
                mean += w[n, k] / mass * row
            scatter = mp.matrix(n_features, n_features)
            for n, row in enumerate(rows):
                difference = row - mean
                scatter += w[n, k] * difference * difference.T
            means.append(mean)
            scatters.append(scatter)
            masses.append(mass)
        if covariance_type == "tied":
            pooled = mp.matrix(n_features, n_features)
            for scatter in scatters:
                pooled += scatter / n_rows
            covariances = _doubles(pooled)
        else:
            each = np.stack([_doubles(s / m) for s, m in zip(scatters, masses, strict=True)])
            covariances = as_structure(each, covariance_type)
        return ExactPass(
            _doubles(log_densities),
            np.array([float(value) for value in per_class]),
            _doubles(weights),
            np.stack([_doubles(mean)[:, 0] for mean in means]),
            covariances,
        )


def _doubles(matrix: mp.matrix) -> FloatArray:
    return np.array(matrix.tolist(), dtype=np.float64)


def assert_pass_is_exact(X: FloatArray, classes: IntArray, model: Parameters, covariance_type: str) -> None:
    """Compare log-densities and one unguarded pass of the engine with the exact ones."""
    exact = exact_pass(X, classes, model, covariance_type)
    densities = kernel_log_densities(X, model, covariance_type)
    scale = np.maximum(np.abs(exact.log_densities), 1.0)
    assert_allclose(densities / scale, exact.log_densities / scale, rtol=0, atol=RELATIVE)

    options = Options(covariance_type=covariance_type, floor=0.0, tol=0.0, max_iter=1)
    result = fit(X, classes, model.batch(), options)
    assert result.status[0] == Status.STOPPED
    found = result.parameters.take(0)
    assert_allclose(result.path[0][0], exact.class_log_likelihood, rtol=RELATIVE)
    assert_allclose(found.weights, exact.weights, rtol=RELATIVE, atol=1e-12)
    n_kernels, n_features = exact.means.shape
    full = as_full(exact.covariances, covariance_type, n_kernels, n_features)
    deviation = np.sqrt(np.diagonal(full, axis1=1, axis2=2))
    error = np.abs(found.means - exact.means)
    assert (error <= RELATIVE * deviation + 2 * EPSILON * np.abs(exact.means)).all(), error / deviation
    unit = deviation[:, :, None] * deviation[:, None, :]
    found_full = as_full(found.covariances, covariance_type, n_kernels, n_features)
    assert_allclose(found_full / unit, full / unit, rtol=0, atol=RELATIVE)


def with_condition(random: np.random.Generator, n_features: int, condition: float) -> FloatArray:
    """Return a covariance of unit largest eigenvalue with that condition number, in random directions."""
    vectors = np.linalg.qr(random.normal(size=(n_features, n_features)))[0]
    covariance = (vectors * np.geomspace(1.0, 1.0 / condition, n_features)) @ vectors.T
    return 0.5 * (covariance + covariance.T)


def drawn(random: np.random.Generator, centres: FloatArray, covariances: FloatArray, each: int) -> FloatArray:
    """Return `each` rows around every centre."""
    clouds = [
        random.multivariate_normal(mean, covariance, size=each, method="cholesky")
        for mean, covariance in zip(centres, covariances, strict=True)
    ]
    return np.concatenate(clouds)


def weights_of(random: np.random.Generator, n_kernels: int) -> FloatArray:
    return random.dirichlet(np.ones(n_kernels), size=2).T


def assert_clouds_are_exact(
    random: np.random.Generator, centres: FloatArray, full: FloatArray, each: int, covariance_type: str
) -> None:
    """Compare a pass over rows around every centre, from the kernels that they are drawn from."""
    X = drawn(random, centres, full, each)
    model = Parameters(weights_of(random, len(full)), centres, as_structure(full, covariance_type))
    assert_pass_is_exact(X, np.arange(len(X)) % 2, model, covariance_type)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6, 1e8])
@pytest.mark.parametrize("n_features", [2, 4])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_ill_conditioned_covariances(condition: float, n_features: int, offset: float) -> None:
    random = np.random.default_rng(1)
    covariances = np.stack([with_condition(random, n_features, condition) for _ in range(2)])
    centres = 2.0 * random.normal(size=(2, n_features))
    X = drawn(random, centres, covariances, 10) + offset
    classes = np.arange(len(X)) % 2
    model = Parameters(weights_of(random, 2), centres + offset, covariances)
    assert_pass_is_exact(X, classes, model, "full")
    tied = replace(model, covariances=covariances[0])
    assert_pass_is_exact(X, classes, tied, "tied")


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
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
    assert_clouds_are_exact(random, centres, full, 8, covariance_type)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("n_features", [1, 2, 3])
def test_narrow_clusters_seen_from_broad_kernels(covariance_type: str, n_features: int) -> None:
    """Kernels a hundred thousand times broader than the clusters, beside them: the pass must find both."""
    random = np.random.default_rng(5)
    full = 1e-12 * np.stack([with_condition(random, n_features, 10.0) for _ in range(3)])
    # Far enough from each other that every broad kernel takes one whole narrow cluster.
    centres = 3.0 * np.arange(3)[:, None] + 0.2 * random.normal(size=(3, n_features))
    X = drawn(random, centres, full, 8)
    broad = np.stack([0.01 * np.eye(n_features)] * 3)
    model = Parameters(weights_of(random, 3), centres + 0.3, as_structure(broad, covariance_type))
    exact = exact_pass(X, np.arange(len(X)) % 2, model, covariance_type)
    narrowed = as_full(exact.covariances, covariance_type, 3, n_features)
    assert np.diagonal(narrowed, axis1=1, axis2=2).max() < 1e-10
    assert_pass_is_exact(X, np.arange(len(X)) % 2, model, covariance_type)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_narrow_cluster_inside_a_broad_one(covariance_type: str) -> None:
    full = np.stack([1e-12 * np.eye(2), np.eye(2)])
    if covariance_type == "tied":
        full = np.stack([1e-3 * np.eye(2)] * 2)
    centres = np.array([[1.0, -0.5], [0.2, 0.1]])
    assert_clouds_are_exact(np.random.default_rng(6), centres, full, 12, covariance_type)


@pytest.mark.parametrize("kind", ["array", pytest.param("tensor", marks=needs_torch)])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("narrow", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("distance", [0.01, 0.3, 3.0, 30.0, 300.0])
def test_the_narrowest_direction_keeps_its_digits(
    covariance_type: str, kind: str, narrow: float, distance: float
) -> None:
    """In its own units, of clusters apart in this direction, on both sides of where products lose digits."""
    random, n_features = np.random.default_rng(9), 3
    vectors = np.linalg.qr(random.normal(size=(n_features, n_features)))[0]
    full = (vectors * [1.0, 0.5, narrow]) @ vectors.T
    centres = distance * np.array([[-1.0], [0.2], [1.0]]) * vectors[:, 2]
    X = drawn(random, centres, np.stack([full] * 3), 8)
    model = Parameters(weights_of(random, 3), centres, as_structure(np.stack([full] * 3), covariance_type))
    exact = exact_pass(X, np.arange(24) % 2, model, covariance_type)
    options = Options(covariance_type=covariance_type, floor=0.0, tol=0.0, max_iter=1)
    rows = torch.as_tensor(X) if kind == "tensor" else X
    found = fit(rows, np.arange(24) % 2, model.batch(), options).parameters.take(0)
    whiteners = np.linalg.inv(np.linalg.cholesky(exact.covariances))
    white = whiteners @ found.covariances @ whiteners.mT
    assert_allclose(white, np.broadcast_to(np.eye(n_features), white.shape), rtol=0, atol=1e-7)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_features_of_very_different_scales(covariance_type: str) -> None:
    random = np.random.default_rng(7)
    unit = np.array([1e-9, 1.0, 1e12])
    if covariance_type == "spherical":
        unit = np.ones(3)
    full = np.stack([with_condition(random, 3, 10.0) for _ in range(2)]) * np.outer(unit, unit)
    centres = 2.0 * random.normal(size=(2, 3)) * unit
    X = drawn(random, centres / unit, full / np.outer(unit, unit), 10) * unit
    model = Parameters(weights_of(random, 2), centres, as_structure(full, covariance_type))
    assert_pass_is_exact(X, np.arange(len(X)) % 2, model, covariance_type)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_log_likelihoods_of_rows_far_from_every_kernel(covariance_type: str) -> None:
    random = np.random.default_rng(8)
    full = np.stack([with_condition(random, 2, 10.0) for _ in range(3)])
    model = Parameters(weights_of(random, 3), random.normal(size=(3, 2)), as_structure(full, covariance_type))
    X = np.array([[50.0, 0.0], [1e5, -1e4], [3e8, 1e8], [0.1, 0.2]])
    found = class_log_likelihood(X, model, covariance_type)
    for c in range(2):
        exact = [exact_pass(X[n : n + 1], np.array([c]), model, covariance_type) for n in range(4)]
        assert_allclose(found[:, c], [e.class_log_likelihood[c] for e in exact], rtol=RELATIVE)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("kind", ["array", pytest.param("tensor", marks=needs_torch)])
def test_rows_with_gaps_keep_their_digits_where_a_mean_leaps(covariance_type: str, kind: str) -> None:
    """A start 7e6 deviations away: the second E-step, about the new mean, must subtract it from the rows."""
    random, deviation = np.random.default_rng(0), 1e-6
    X = 7.0 + deviation * random.normal(size=(400, 3))
    X[random.uniform(size=400) < 0.3, 2] = np.nan
    # What is missing has the mean of the start, which is right in this feature.
    start = np.array([[0.0, 7.0, 7.0]])
    squares = [np.mean((column - column.mean()) ** 2) for column in X[:, :2].T]
    missing = np.isnan(X[:, 2])
    filled = np.where(missing, 7.0, X[:, 2])
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
    assert_allclose(variances, squares, rtol=1e-8)
