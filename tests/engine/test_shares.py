"""The information about weights against numerical integrals, and intervals against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, as_full, random_model
from scipy import stats
from scipy.optimize import approx_fprime

from skmix.engine import density, shares
from skmix.engine.model import Parameters

MEANS, DEVIATIONS = np.array([0.0, 2.0, 4.5]), np.array([1.0, 0.7, 1.2])
WEIGHTS = np.array([[0.6, 0.2], [0.3, 0.3], [0.1, 0.5]])
SIZES = np.array([400.0, 1000.0])
N_EACH = 30000


def model() -> Parameters:
    return Parameters(WEIGHTS, MEANS[:, None], DEVIATIONS[:, None, None] ** 2)


def drawn(parameters: Parameters, covariance_type: str = "full") -> tuple[np.ndarray, np.ndarray]:
    """Return rows, as many from each kernel, and the kernels' log-densities."""
    n_kernels = len(parameters.means)
    apart = Parameters(np.eye(n_kernels), parameters.means, parameters.covariances)
    kernels = np.repeat(np.arange(n_kernels), N_EACH)
    X = density.draw(apart, covariance_type, kernels, np.random.RandomState(1))[0]
    return X, density.kernel_log_densities(X, parameters, covariance_type)


def gradients(theta: np.ndarray, weights: np.ndarray, grid: np.ndarray, *, tied: bool) -> np.ndarray:
    """Return the derivatives (n, P) of the log-density by weights, means and standard deviations."""

    def log_density(values: np.ndarray) -> np.ndarray:
        deviations = np.repeat(values[6:], 3) if tied else values[6:]
        return np.log(stats.norm.pdf(grid[:, None], values[3:6], deviations) @ values[:3])

    return approx_fprime(np.concatenate([weights, theta]), log_density, 1e-6)


def brute_force(deviations: np.ndarray, *, tied: bool) -> list[np.ndarray]:
    """Return the covariances of both classes' weights, from the information about all parameters."""
    grid = np.linspace(-8.0, 14.0, 4001)
    theta = np.concatenate([MEANS, deviations[:1] if tied else deviations])
    n_theta = len(theta)
    total = np.zeros((6 + n_theta, 6 + n_theta))
    for j, size in enumerate(SIZES):
        slopes = gradients(theta, WEIGHTS[:, j], grid, tied=tied)
        p = stats.norm.pdf(grid[:, None], MEANS, deviations) @ WEIGHTS[:, j]
        own = size * (slopes * p[:, None]).T @ slopes * (grid[1] - grid[0])
        place = np.concatenate([3 * j + np.arange(3), 6 + np.arange(n_theta)])
        total[np.ix_(place, place)] += own
    # On the simplex: two free weights of each class.
    free = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    basis = np.zeros((6 + n_theta, 4 + n_theta))
    basis[:3, :2], basis[3:6, 2:4], basis[6:, 4:] = free, free, np.eye(n_theta)
    covariance = basis @ np.linalg.inv(basis.T @ total @ basis) @ basis.T
    return [covariance[:3, :3], covariance[3:6, 3:6]]


def test_the_information_is_the_integral() -> None:
    _, log_densities = drawn(model())
    grid = np.linspace(-8.0, 14.0, 4001)
    f = stats.norm.pdf(grid[:, None], MEANS, DEVIATIONS)
    p = f @ WEIGHTS[:, 0]
    expected = 400.0 * (f / p[:, None]).T @ f * (grid[1] - grid[0])
    found = shares.information(shares.density_ratios(log_densities), WEIGHTS[:, 0], 400.0)
    assert_allclose(found, expected, rtol=0.02)


@pytest.mark.parametrize("tied", [False, True])
def test_errors_of_kernels_are_those_of_the_information_about_everything(tied: bool) -> None:
    deviations = np.full(3, 0.9) if tied else DEVIATIONS
    covariances = np.array([[0.81]]) if tied else deviations[:, None, None] ** 2
    parameters, kind = Parameters(WEIGHTS, MEANS[:, None], covariances), "tied" if tied else "full"
    X, log_densities = drawn(parameters, kind)
    ratios = shares.density_ratios(log_densities)
    errors = shares.kernel_errors(X, log_densities, parameters, kind, SIZES)
    for j, expected in enumerate(brute_force(deviations, tied=tied)):
        found = shares.covariance(ratios, WEIGHTS[:, j], SIZES[j], errors=errors)
        known = shares.covariance(ratios, WEIGHTS[:, j], SIZES[j])
        assert_allclose(np.diag(found), np.diag(expected), rtol=0.12)
        assert_allclose(found.sum(axis=1), 0.0, atol=1e-12)
        # The errors of kernels matter here.
        assert np.trace(expected) > 1.3 * np.trace(known)


def test_kernels_far_apart_have_the_covariance_of_counts() -> None:
    w = np.array([0.7, 0.25, 0.05])
    ratios = np.repeat(3.0 * np.eye(3), 10, axis=0)
    expected = (np.diag(w) - np.outer(w, w)) / 1e4
    assert_allclose(shares.covariance(ratios, w, 1e4), expected, rtol=1e-3, atol=1e-10)
    # With a prior, that of the Dirichlet posterior, whose rows are those of both and one more.
    prior = np.array([40.0, 30.0, 30.0])
    posterior = stats.dirichlet(w * 600.0)
    assert_allclose(shares.covariance(ratios, w, 500.0, prior) * 600.0 / 601.0, posterior.cov(), rtol=1e-9)


def test_intervals_of_counts_are_those_of_jeffreys() -> None:
    share, n = np.array([0.0, 0.01, 0.4, 1.0]), 200.0
    lower, upper = shares.intervals(share, np.zeros(4), np.array(n), 0.9)
    posterior = stats.beta(n * share + 0.5, n * (1.0 - share) + 0.5)
    assert_allclose(lower[1:], posterior.ppf(0.05)[1:].clip(max=share[1:]), rtol=1e-9)
    assert_allclose(upper[:-1], posterior.ppf(0.95)[:-1], rtol=1e-9)
    assert lower[0] == 0.0
    assert upper[-1] == 1.0


def test_intervals_of_kernels_that_overlap_are_normal() -> None:
    share, n, variance = 0.4, 1e6, 1e-4
    lower, upper = shares.intervals(np.array(share), np.array(n * variance - 0.24), np.array(n), 0.95)
    assert_allclose([lower, upper], stats.norm(share, 0.01).ppf([0.025, 0.975]), rtol=1e-4)
    # A share of zero has one limit.
    lower, upper = shares.intervals(np.array(0.0), np.array(n * variance), np.array(n), 0.95)
    assert lower == 0.0
    assert_allclose(upper, 0.0196, rtol=0.01)


def test_the_distribution_of_the_other_groups_is_found() -> None:
    random, true = np.random.default_rng(0), 80.0 * np.array([0.6, 0.3, 0.1])
    w = random.dirichlet(true, size=60)
    counts = np.array([random.multinomial(2000, p) for p in w]).T.astype(float)
    fold = shares.folds(60)
    draws = shares.usual_shares(counts, np.ones(60, dtype=bool), fold)
    found = np.exp(np.log(draws).mean(axis=(0, 2)))
    assert_allclose(found, np.stack([true, 80.0 - true], axis=1), rtol=0.35)
    assert_allclose(found[:, 0] / found.sum(axis=1), true / 80.0, rtol=0.1)
    assert len(np.unique(fold)) == 32


def test_tail_probabilities_are_those_of_beta_binomial_counts() -> None:
    a, n = np.array([12.0, 8.0, 60.0]), 300
    counts = np.array([80, 11, 209])
    found = shares.tail_probabilities(counts / n, float(n), np.stack([a, a.sum() - a], axis=1)[:, None])
    marginal = stats.betabinom(n, a, a.sum() - a)
    expected = 2.0 * np.minimum(marginal.cdf(counts), marginal.sf(counts - 1))
    assert_allclose(found, np.minimum(expected, 1.0), rtol=0.15)


def test_weights_that_are_fitted_explain_a_part_of_the_likelihood() -> None:
    # Kernels far apart: log p is log w_k + c − χ²/2, and the first two terms are what the weights fit.
    random, n_features, means = np.random.default_rng(0), 3, np.array([0.0, 50.0, 100.0])
    X = random.normal(size=(3, 20000, n_features))
    X[..., 0] += means[:, None]
    from_mean = [((X.reshape(-1, n_features) - [at, 0.0, 0.0]) ** 2).sum(axis=1) for at in means]
    logs = -0.5 * np.stack(from_mean, axis=1) - 0.5 * n_features * np.log(2.0 * np.pi)
    w = np.array([0.7, 0.3, 0.0])
    found = shares.log_likelihood_moments(logs, shares.density_ratios(logs), w, 5.0)
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    expected = -entropy - 0.5 * n_features * (1.0 + np.log(2.0 * np.pi))
    assert_allclose(found[0], expected, rtol=0.005)
    # Those of a half chi-squared variate, with a little more where the prior of the shares is felt.
    assert_allclose(found[1:], [n_features / 2, -np.sqrt(8.0 / n_features)], rtol=0.1)


def test_kernels_without_weight_change_no_likelihood() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.normal(at, 1.0, size=500) for at in (0.0, 1.5, 100.0)])
    logs = -0.5 * (x[:, None] - [0.0, 1.5, 100.0]) ** 2
    for prior in (None, np.array([3.0, 9.0, 5.0])):
        found, expected = (
            shares.log_likelihood_moments(
                own, shares.density_ratios(own), w, 50.0, None if prior is None else prior[: len(w)]
            )
            for own, w in ((logs, np.array([0.4, 0.6, 0.0])), (logs[:1000, :2], np.array([0.4, 0.6])))
        )
        assert_allclose(found, expected, rtol=1e-6)


def test_a_prior_on_all_but_the_background() -> None:
    # Apart from each other, shares are those of the background and, within the rest, of a posterior.
    ratios, w = 3.0 * np.eye(3), np.array([0.5, 0.3, 0.2])
    prior, n = np.array([10.0, 30.0]), 1e4
    found = shares.covariance(ratios, w, n, prior)
    inside = stats.dirichlet(np.array([0.625, 0.375]) * (0.8 * n + 40.0))
    variance = 0.8**2 * inside.var() + np.array([0.625, 0.375]) ** 2 * 0.2 * 0.8 / n
    assert_allclose(np.diagonal(found), [*variance, 0.2 * 0.8 / n], rtol=1e-3)


def test_density_ratios_have_means_of_one() -> None:
    logs = np.random.default_rng(0).normal(size=(60, 3))
    assert_allclose(shares.density_ratios(logs).mean(axis=0), 1.0, rtol=1e-12)


def test_some_classes_stand_for_the_rows_of_many() -> None:
    sizes = np.random.default_rng(0).uniform(1.0, 9.0, size=100)
    chosen, rows = shares._representatives(sizes)
    assert len(chosen) <= 16
    assert rows.sum() == pytest.approx(sizes.sum())
    chosen, rows = shares._representatives(sizes[:16])
    assert_allclose(rows, sizes[:16])


def test_unusual_groups_do_not_tell_what_is_usual() -> None:
    counts = np.random.default_rng(0).multinomial(500, [0.6, 0.3, 0.1], size=6).T.astype(float)
    usual, fold, other = np.arange(6) != 2, shares.folds(6), counts.copy()
    other[:, 2] = [0.0, 0.0, 500.0]
    found = [shares.usual_shares(each, usual, fold) for each in (counts, other)]
    assert_allclose(found[0], found[1], rtol=1e-9)


@pytest.mark.parametrize("tails", [False, True])
@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_scores_are_derivatives_in_whitened_coordinates(kind: str, tails: bool) -> None:
    """By mean and covariance: μ + L e and L (1 + A) Lᵀ, with units in which a row's information is one."""
    random = np.random.default_rng(0)
    parameters = random_model(random, 2, 1, 3, kind)
    degrees = np.array([3.0, 7.0]) if tails else None
    parameters = Parameters(parameters.weights, parameters.means, parameters.covariances, degrees=degrees)
    X, near = random.normal(size=(20, 3)), [np.arange(0, 20, 2), np.arange(1, 20, 3)]
    full, step = as_full(parameters.covariances, kind, 2, 3), 1e-5
    moves = [
        np.outer(a, b) + np.outer(b, a) if i != j else np.sqrt(2.0) * np.outer(a, a)
        for i, a in enumerate(np.eye(3))
        for j, b in enumerate(np.eye(3))
        if j <= i
    ]
    if kind == "diag":
        moves = [np.sqrt(2.0) * np.outer(a, a) for a in np.eye(3)]
    elif kind == "spherical":
        moves = [np.sqrt(2.0 / 3.0) * np.eye(3)]

    def logs(k: int, mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        if degrees is None:
            return np.asarray(stats.multivariate_normal(mean, covariance).logpdf(X[near[k]]))
        return np.asarray(stats.multivariate_t(mean, covariance, df=degrees[k]).logpdf(X[near[k]]))

    found = shares._scores(X, near, parameters, kind, kind)
    for k in range(2):
        root = np.linalg.cholesky(full[k])
        ends = [
            [(parameters.means[k] + sign * step * root @ e, full[k]) for sign in (1.0, -1.0)]
            for e in np.eye(3)
        ]
        ends += [
            [(parameters.means[k], root @ (np.eye(3) + sign * step * A) @ root.T) for sign in (1.0, -1.0)]
            for A in moves
        ]
        slopes = [(logs(k, *ahead) - logs(k, *behind)) / (2.0 * step) for ahead, behind in ends]
        assert_allclose(found[k], np.transpose(slopes), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["diag", "spherical"])
def test_errors_of_kernels_with_one_feature_do_not_depend_on_the_structure(kind: str) -> None:
    covariances = DEVIATIONS[:, None] ** 2 if kind == "diag" else DEVIATIONS**2
    parameters = Parameters(WEIGHTS, MEANS[:, None], covariances)
    X, log_densities = drawn(parameters, kind)
    errors = shares.kernel_errors(X, log_densities, parameters, kind, SIZES)
    expected = shares.kernel_errors(X, log_densities, model(), "full", SIZES)
    assert errors is not None
    assert expected is not None
    for j in (0, 1):
        forces, others = (each.forces(WEIGHTS[:, j], SIZES[j]) for each in (errors, expected))
        assert_allclose(forces @ forces.T, others @ others.T, rtol=1e-6)


def many_parameters() -> tuple[np.ndarray, np.ndarray, Parameters]:
    """Return rows, log-densities and a model of twelve kernels that overlap, of 60 parameters."""
    parameters = random_model(np.random.default_rng(0), 12, 2, 2)
    apart = Parameters(np.eye(12), parameters.means, parameters.covariances)
    X = density.draw(apart, "full", np.repeat(np.arange(12), 400), np.random.RandomState(0))[0]
    return X, density.kernel_log_densities(X, parameters, "full"), parameters


def test_some_directions_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    X, log_densities, parameters = many_parameters()
    totals = []
    for draws in (20, 60):
        monkeypatch.setattr(shares, "_DRAWS", draws)
        errors = shares.kernel_errors(X, log_densities, parameters, "full", SIZES)
        assert errors is not None
        assert errors.slopes[0].shape[1] == draws
        totals.append(sum(float((own**2).mean()) * own.shape[1] for own in errors.slopes))
    assert totals[0] == pytest.approx(totals[1], rel=0.3)


def test_kernels_with_too_many_parameters_count_by_diagonals_by_scales_or_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, log_densities, parameters = many_parameters()
    monkeypatch.setattr(shares, "_DRAWS", 1000)
    for most, each in ((60, 5), (59, 4), (47, 3), (36, 3)):
        monkeypatch.setattr(shares, "_MOST_PARAMETERS", most)
        errors = shares.kernel_errors(X, log_densities, parameters, "full", SIZES)
        assert errors is not None
        assert errors.slopes[0].shape[1] == 12 * each
    monkeypatch.setattr(shares, "_MOST_PARAMETERS", 35)
    assert shares.kernel_errors(X, log_densities, parameters, "full", SIZES) is None


def test_weights_away_from_zero_have_one_row_more() -> None:
    found = shares.away_from_zero(np.array([0.75, 0.25, 0.0, 0.0]), 8.0)
    assert_allclose(found, np.array([6.25, 2.25, 0.25, 0.25]) / 9.0)


def test_a_part_that_all_other_groups_lack_is_not_impossible() -> None:
    """Its share is about that of half a row among all of theirs."""
    counts = np.array([[400.0, 380.0, 420.0, 410.0], [100.0, 120.0, 80.0, 90.0], [0.0, 0.0, 0.0, 0.0]])
    draws = shares.usual_shares(counts, np.ones(4, dtype=bool), shares.folds(4))
    assert draws.shape[:2] == (4, 3)
    for j in range(4):
        others = np.delete(counts, j, axis=1).sum()
        own = np.median(draws[j, 2, :, 0] / draws[j, 2].sum(axis=1))
        assert 0.1 / others < own < 5.0 / others
        share = np.median(draws[j, 0, :, 0] / draws[j, 0].sum(axis=1))
        assert share == pytest.approx(np.delete(counts, j, axis=1)[0].sum() / others, abs=0.05)
