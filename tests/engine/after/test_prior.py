"""Shrinkage: the marginal likelihood against integrals, and the amount against what rows were drawn with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from calls import drawn, fit, with_shrinkage
from numpy.testing import assert_allclose
from oracles import random_covariances, responsibilities
from scipy.integrate import quad
from scipy.stats import invgamma, invwishart, multivariate_normal, wishart

from skmix.engine.after.prior import (
    KernelRows,
    errors_left_out,
    likeliest_rows,
    log_marginal_likelihood,
    prior_of_start,
    reduce_correlations,
    relative_eigenvalues,
)
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import FloatArray, IntArray, Options, Parameters
from skmix.engine.rows.summary import measure
from skmix.engine.starts import Drawing, class_wise
from skmix.engine.structures import structure_of
from skmix.engine.structures.factors import rescaled


def test_marginal_likelihood_of_one_feature_is_an_integral() -> None:
    """A scatter of m rows is p · chi-square with m − 1 degrees; p has an inverse gamma prior of mean one."""
    mass, spread = 7.0, 3.2

    def direct(rows: float) -> float:
        prior = invgamma(0.5 * (rows + 2.0), scale=0.5 * rows)
        assert_allclose(prior.mean(), 1.0)

        def density(p: float) -> float:
            return float(p ** (-0.5 * (mass - 1.0)) * np.exp(-0.5 * spread / p) * prior.pdf(p))

        return float(np.log(quad(density, 0.0, np.inf)[0]))

    found = [log_marginal_likelihood(v, np.array([mass]), np.array([[spread]]), 1) for v in (0.5, 4.0, 30.0)]
    expected = [direct(v) for v in (0.5, 4.0, 30.0)]
    assert_allclose(np.diff(found), np.diff(expected), rtol=1e-6)


def test_marginal_likelihood_of_matrices_is_an_average() -> None:
    """Against the mean of Wishart densities over many covariances drawn from the prior."""
    target = random_covariances(np.random.default_rng(0), 1, 2)[0]
    scatter, mass = 6.0 * random_covariances(np.random.default_rng(1), 1, 2)[0], 9.0
    spreads = relative_eigenvalues(scatter[None], target, np.array([mass]))

    def direct(rows: float) -> float:
        drawn = invwishart(rows + 3.0, rows * target).rvs(20_000, random_state=0)
        inverse = np.linalg.inv(drawn)
        logs = 0.5 * (mass - 1.0) * np.linalg.slogdet(inverse)[1]
        return float(np.log(np.mean(np.exp(logs - 0.5 * np.einsum("nde,ed->n", inverse, scatter)))))

    found = [log_marginal_likelihood(v, np.array([mass]), spreads, 2) for v in (2.0, 20.0)]
    assert_allclose(found[1] - found[0], direct(20.0) - direct(2.0), rtol=0.05)


def test_the_likeliest_amount_is_what_scatters_were_drawn_with() -> None:
    target = np.eye(3)
    for rows in (6.0, 60.0):
        drawn = invwishart(rows + 4.0, rows * target).rvs(200, random_state=1)
        random = np.random.default_rng(2)
        scatters = np.stack([wishart(14, p).rvs(random_state=random) for p in drawn])
        found = likeliest_rows(
            np.full(200, 15.0), relative_eigenvalues(scatters, target, np.full(200, 15.0)), 3
        )
        assert 0.7 * rows < found < 1.5 * rows
    same = wishart(14, target).rvs(400, random_state=3)
    mass = np.full(400, 15.0)
    assert likeliest_rows(mass, relative_eigenvalues(same, target, mass), 3) > 300.0
    variances = same[:, [0, 1, 2], [0, 1, 2]]
    assert likeliest_rows(mass, relative_eigenvalues(variances, target, mass), 1) > 300.0


def test_features_that_are_constant_in_some_kernels_do_not_decide() -> None:
    """Of those that vary, the rows wanted are the same as if there were no others."""
    random = np.random.default_rng(5)
    target = random_covariances(random, 1, 4)[0]
    scatters = np.stack([wishart(14, target).rvs(random_state=random) for _ in range(30)])
    mass = np.full(30, 15.0)
    expected = likeliest_rows(mass, relative_eigenvalues(scatters[:, :3, :3], target[:3, :3], mass), 3)
    scatters[:, 3] = scatters[:, :, 3] = 0.0
    assert likeliest_rows(mass, relative_eigenvalues(scatters, target, mass), 4) == pytest.approx(expected)
    variances = np.diagonal(scatters, axis1=1, axis2=2)
    alone = likeliest_rows(mass, relative_eigenvalues(variances[:, :3], target[:3, :3], mass), 1)
    assert likeliest_rows(mass, relative_eigenvalues(variances, target, mass), 1) == pytest.approx(alone)
    assert likeliest_rows(mass, relative_eigenvalues(np.zeros((30, 4, 4)), target, mass), 4) == 1e6
    # A ten-thousandth of the common variance is as good as none.
    scatters[:, 3, 3] = 15e-4 * target[3, 3]
    assert likeliest_rows(mass, relative_eigenvalues(scatters, target, mass), 4) == pytest.approx(expected)


def test_correlations_are_reduced_by_the_share_of_their_variance_that_is_chance() -> None:
    """For one correlation ρ of n rows: by Var(ρ) / ρ², with the variance that simulated correlations have."""
    rho, n_rows = 0.6, 40
    random = np.random.default_rng(6)
    drawn = random.multivariate_normal(np.zeros(2), [[1.0, rho], [rho, 1.0]], size=(4000, n_rows))
    chance = np.var([np.corrcoef(rows.T)[0, 1] for rows in drawn])
    covariance = np.array([[4.0, 2.0 * rho], [2.0 * rho, 1.0]])
    found, share = reduce_correlations(covariance, n_rows)
    assert_allclose(share, chance / rho**2, rtol=0.1)
    assert_allclose(found, [[4.0, 2.0 * rho * (1.0 - share)], [2.0 * rho * (1.0 - share), 1.0]])
    # The formula itself, for so few rows that each counts.
    assert_allclose(reduce_correlations(covariance, 4)[1], (1.0 - rho**2) ** 2 / 3.0 / rho**2, rtol=1e-12)


def problem(covariance_type: str) -> tuple[FloatArray, IntArray, Parameters, Options]:
    random = np.random.default_rng(6)
    classes = np.repeat(np.arange(3), 15)
    root = random.normal(size=(8, 8))
    X = 4.0 * random.normal(size=(3, 8))[classes] + random.normal(size=(45, 8)) @ root
    structure = structure_of(covariance_type)
    starts = drawn(
        class_wise, X, classes, Drawing(3, 2, 3, measure(X, structure), structure, np.random.RandomState(0))
    )
    return X, classes, starts, Options(covariance_type=covariance_type, tol=0.0, max_iter=1)


def test_covariances_are_shrunk_towards_the_tied_one() -> None:
    """A prior without end leaves nothing else."""
    X, classes, starts, options = problem("full")
    frame = measure(X, structure_of("full"))
    _, scale = with_shrinkage(X, classes, starts, options, frame=frame)
    strong = replace(options, covariance_prior=1e9, covariance_prior_scale=scale, max_iter=5)
    covariances = fit(X, classes, starts, strong, frame=frame).parameters.covariances
    target = np.broadcast_to(scale, covariances.shape)
    assert_allclose(covariances, target, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------- without a fit


def prior_of(
    X: FloatArray, classes: IntArray, start: Parameters, weights: Any = None, frame: Any = None, **given: Any
) -> tuple[float, FloatArray]:
    """Return ν and T under given options; the frame is that of the rows unless it is given too."""
    options = Options(**given)
    structure = structure_of(options.covariance_type)
    frame = frame or measure(X, structure)
    problem = Problem.of(open_source(X, classes), options, len(start.means), frame)
    inside = replace(start, means=start.means / frame.scale - frame.shift)
    strength, scale = prior_of_start(problem, X, classes, weights, inside)
    return strength, rescaled(scale, frame.scale)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_prior_of_separate_kernels_is_the_pooled_covariance_at_its_likeliest_strength(
    covariance_type: str,
) -> None:
    random = np.random.default_rng(0)
    sizes = np.array([30, 50, 80])
    classes = np.repeat(np.arange(3), sizes)
    roots = np.linalg.cholesky(invwishart(10.0, 6.0 * np.eye(3)).rvs(3, random_state=1))
    # So far apart that every strength predicts the classes.
    X = 30.0 * classes[:, None] + np.einsum("nde,ne->nd", roots[classes], random.normal(size=(160, 3)))
    # Kernels may start anywhere: each class has one.
    start = Parameters(np.eye(3), random.normal(size=(3, 3)), np.zeros(0))
    rows, common = prior_of(X, classes, start, covariance_type=covariance_type)
    scatters = np.stack([n * np.cov(X[classes == c].T, bias=True) for c, n in enumerate(sizes)])
    pooled = scatters.sum(axis=0) / 160.0
    expected = np.diag(pooled) if covariance_type == "diag" else reduce_correlations(pooled, 157.0)[0]
    assert_allclose(common, expected, rtol=1e-9)
    if covariance_type == "diag":
        scatters = np.diagonal(scatters, axis1=1, axis2=2)
    spreads, order = relative_eigenvalues(scatters, common, sizes), 3 if covariance_type == "full" else 1
    assert 1.0 < rows < 160.0
    best = log_marginal_likelihood(rows, sizes, spreads, order)
    for other in (0.8 * rows, 1.25 * rows):
        assert log_marginal_likelihood(other, sizes, spreads, order) < best
    shared = replace(start, weights=np.full((3, 3), 1 / 3))
    assert prior_of(X, classes, shared, covariance_type=covariance_type)[0] == 1.0


@pytest.mark.parametrize("by_feature", [False, True])
def test_rows_are_predicted_without_themselves(by_feature: bool) -> None:
    """Against parts and T that are computed again without each row; T keeps its denominator.

    Of a row with a mass above one, one is left out.
    """
    random = np.random.default_rng(0)
    part, classes = np.repeat([0, 1, 2, 3], [6, 9, 7, 1]), np.array([0, 0, 1, 1])
    x = random.normal(size=(23, 3)) * [1.0, 2.0, 0.5] + part[:, None]
    masses, strengths, kept = random.uniform(0.5, 2.0, size=23), np.array([0.7, 20.0]), 0.8
    masses[-1] = 0.9

    def moments(left: FloatArray, k: int) -> tuple[float, FloatArray, FloatArray]:
        own, rows = left[part == k], x[part == k]
        mean = np.average(rows, axis=0, weights=own)
        return own.sum(), mean, (rows - mean).T * own @ (rows - mean)

    def common(left: FloatArray) -> FloatArray:
        total = sum(moments(left, k)[2] for k in np.unique(part[left > 0])) / masses.sum()
        # In the diagonal case only variances count; otherwise rows are taken from what was kept alone.
        rest = np.diag(np.diagonal(whole)) * (1.0 - kept)
        return np.diag(np.diagonal(total)) if by_feature else kept * total + rest

    whole = sum(moments(masses, k)[2] for k in range(4)) / masses.sum()
    parts = [KernelRows(x[part == k], masses[part == k]) for k in range(4)]
    target = common(masses)
    target = np.diagonal(target) if by_feature else target
    found = errors_left_out(x, masses, part, parts, classes, strengths, target, kept)
    for n in range(23):
        left = masses - np.minimum(masses, 1.0) * (np.arange(23) == n)
        for rows, error in zip(strengths, found[n], strict=True):
            joint = np.zeros(2)
            for k in np.unique(part[left > 0]):
                mass, mean, scatter = moments(left, k)
                scatter = np.diag(np.diagonal(scatter)) if by_feature else scatter
                covariance = (scatter + rows * common(left)) / (rows + mass)
                joint[classes[k]] += mass * multivariate_normal(mean, covariance).pdf(x[n])
            expected = 2.0 * (1.0 - joint[classes[part[n]]] / joint.sum()) ** 2
            assert error == pytest.approx(expected, rel=1e-6, abs=1e-12)


def test_a_row_whose_class_has_no_other_rows_has_no_error() -> None:
    x, part = np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1])
    parts = [KernelRows(x[part == k], np.ones(np.sum(part == k))) for k in range(2)]
    errors = errors_left_out(x, np.ones(3), part, parts, np.arange(2), np.ones(1), np.eye(1), 1.0)
    assert errors[2, 0] == 0.0 < errors[0, 0]


def test_a_weight_counts_like_repeated_rows_in_the_prior() -> None:
    random = np.random.default_rng(1)
    classes, weights = np.arange(80) % 2, random.integers(1, 4, size=80)
    X = np.exp(random.normal(size=(80, 2))) + classes[:, None]
    again, frame = np.repeat(np.arange(80), weights), measure(X, structure_of("full"))
    start = Parameters(np.eye(2), X[:2], np.zeros(0))
    weighted = prior_of(X, classes, start, weights.astype(float), frame=frame)
    repeated = prior_of(X[again], classes[again], start, frame=frame)
    assert weighted[0] == pytest.approx(repeated[0], rel=1e-9)
    assert_allclose(weighted[1], repeated[1], rtol=1e-9)


def test_heavy_tails_need_a_stronger_prior_than_their_scatters_say() -> None:
    classes = np.arange(200) % 2
    X = np.exp(1.5 * np.random.default_rng(0).normal(size=(200, 4))) + classes[:, None]
    start = Parameters(np.eye(2), np.stack([X[classes == c].mean(axis=0) for c in (0, 1)]), np.zeros(0))
    rows, common = prior_of(X, classes, start)
    scatters = np.stack([100 * np.cov(X[classes == c].T, bias=True) for c in (0, 1)])
    sizes = np.array([100.0, 100.0])
    assert likeliest_rows(sizes, relative_eigenvalues(scatters, common, sizes), 4) < 20.0
    assert rows > 200.0


def test_the_mild_prior_puts_rows_into_the_nearest_kernel_of_their_class() -> None:
    classes = np.arange(400) % 2
    place = np.where(np.arange(400) % 4 < 2, 0.0, 50.0)
    X = np.random.default_rng(0).normal(size=(400, 2)) + place[:, None]
    frame = measure(X, structure_of("full"))
    means = np.array([[0.0, 0.0], [50.0, 50.0], [0.0, 0.0], [50.0, 50.0]])
    own = Parameters(np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 0.5], [0.0, 0.5]]), means, np.zeros(0))
    _, common = prior_of(X, classes, own)
    assert_allclose(np.diagonal(common), 1.0, rtol=0.2)
    # Rows without a label do not count.
    labelled = np.where(np.arange(400) < 200, classes, -1)
    some = prior_of(X, labelled, own, frame=frame)
    only = prior_of(X[:200], classes[:200], own, np.ones(200), frame=frame)
    assert_allclose(some[1], only[1], rtol=1e-9)


def test_the_strength_is_the_likeliest_for_the_scatters_of_the_first_fit() -> None:
    """From responsibilities row by row, and the best of many strengths."""
    X, classes, starts, options = problem("full")
    # Kernels that differ in width, so that the likeliest strength is not the largest.
    centres = np.stack([X[classes == c].mean(axis=0) for c in range(3)])[classes]
    X = centres + np.array([0.5, 1.0, 3.0])[classes][:, None] * (X - centres)
    frame = measure(X, structure_of("full"))
    strength, scale = with_shrinkage(X, classes, starts, options, frame=frame)
    starts = replace(starts, covariances=structure_of("tied").from_full(starts.covariances))
    first = fit(X, classes, starts, replace(options, covariance_type="tied"), frame=frame)
    model = first.parameters.take(first.best)
    w = responsibilities(X, classes, model, "tied")
    mass = w.sum(axis=0)
    away = X[:, None] - w.T @ X / mass[:, None]
    scatters = np.einsum("nk,nkd,nke->kde", w, away, away)
    target, order = reduce_correlations(model.covariances, 45.0 - 3.0)[0], 8
    assert_allclose(scale, target, rtol=1e-9)
    spreads = relative_eigenvalues(scatters, target, mass)
    tried = np.geomspace(1e-2, 1e6, 2001)
    best = tried[np.argmax([log_marginal_likelihood(rows, mass, spreads, order) for rows in tried])]
    assert 0.1 < best < 1e4
    assert strength == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_the_mild_prior_is_not_below_the_floor(covariance_type: str) -> None:
    """A feature that is constant within kernels has the floor's variance."""
    classes = np.arange(80) % 2
    X = np.stack([np.random.default_rng(2).normal(size=80) + 9.0 * classes, 5.0 * classes], axis=1)
    start = Parameters(np.eye(2), np.stack([X[classes == c].mean(axis=0) for c in (0, 1)]), np.zeros(0))
    _, common = prior_of(X, classes, start, covariance_type=covariance_type, floor=0.01)
    variances = common if covariance_type == "diag" else np.diagonal(common)
    within = np.mean([X[classes == c, 0].var() for c in (0, 1)])
    assert_allclose(variances, [within, 0.01 * X[:, 1].var()], rtol=1e-6)
