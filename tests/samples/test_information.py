"""The information about weights against numerical integrals, and intervals against closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats
from scipy.optimize import approx_fprime
from scipy.special import logsumexp

from skmix.engine import scoring as density
from skmix.engine.records import Parameters
from skmix.model import Kernels
from skmix.samples import information, judging

MEANS, DEVIATIONS = np.array([0.0, 2.0, 4.5]), np.array([1.0, 0.7, 1.2])
WEIGHTS = np.array([[0.6, 0.2], [0.3, 0.3], [0.1, 0.5]])
SIZES = np.array([400.0, 1000.0])
N_EACH = 10000


def model() -> Parameters:
    return Parameters(WEIGHTS, MEANS[:, None], DEVIATIONS[:, None, None] ** 2)


def log_mixed(logs: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return logsumexp(logs, axis=1, b=weights)


def errors_of(
    X: np.ndarray,
    logs: np.ndarray,
    parameters: Parameters,
    kind: str,
    sizes: np.ndarray,
    shift: float | None = None,
) -> information.KernelErrors | None:
    kernels = Kernels(parameters, kind, is_estimate=True, n_jobs=1)
    return information.kernel_errors(X, logs, kernels, parameters.weights, sizes, shift=shift)


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


def integral(weights: np.ndarray, deviations: np.ndarray, *, tied: bool = False) -> np.ndarray:
    """Return the information (P, P) of one row about weights, means and standard deviations."""
    grid, theta = np.linspace(-8.0, 14.0, 4001), [*MEANS, *(deviations[:1] if tied else deviations)]
    slopes = gradients(np.array(theta), weights, grid, tied=tied)
    p = stats.norm.pdf(grid[:, None], MEANS, deviations) @ weights
    return (slopes * p[:, None]).T @ slopes * (grid[1] - grid[0])


def brute_force(deviations: np.ndarray, *, tied: bool) -> list[np.ndarray]:
    """Return the covariances of both classes' weights, from the information about all parameters."""
    n_theta = 4 if tied else 6
    total = np.zeros((6 + n_theta, 6 + n_theta))
    for j, size in enumerate(SIZES):
        own = size * integral(WEIGHTS[:, j], deviations, tied=tied)
        place = np.concatenate([3 * j + np.arange(3), 6 + np.arange(n_theta)])
        total[np.ix_(place, place)] += own
    # On the simplex: two free weights of each class.
    free = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    basis = np.zeros((6 + n_theta, 4 + n_theta))
    basis[:3, :2], basis[3:6, 2:4], basis[6:, 4:] = free, free, np.eye(n_theta)
    covariance = basis @ np.linalg.inv(basis.T @ total @ basis) @ basis.T
    return [covariance[:3, :3], covariance[3:6, 3:6]]


@pytest.mark.parametrize("tied", [False, True])
def test_errors_of_kernels_are_those_of_the_information_about_everything(tied: bool) -> None:
    deviations = np.full(3, 0.9) if tied else DEVIATIONS
    covariances = np.array([[0.81]]) if tied else deviations[:, None, None] ** 2
    parameters, kind = Parameters(WEIGHTS, MEANS[:, None], covariances), "tied" if tied else "full"
    X, log_densities = drawn(parameters, kind)
    ratios = information.density_ratios(log_densities)
    errors = errors_of(X, log_densities, parameters, kind, SIZES)
    for j, expected in enumerate(brute_force(deviations, tied=tied)):
        found = information.covariance(ratios, WEIGHTS[:, j], SIZES[j], None, errors)
        known = information.covariance(ratios, WEIGHTS[:, j], SIZES[j])
        assert_allclose(np.diag(found), np.diag(expected), rtol=0.12)
        assert_allclose(found.sum(axis=1), 0.0, atol=1e-12)
        # The errors of kernels matter here.
        assert np.trace(expected) > 1.3 * np.trace(known)


def test_errors_of_shifts_are_those_of_the_information_about_weights_and_means() -> None:
    """Means have a prior of sixty rows, in units of the kernels' deviations; the rest is known."""
    X, log_densities = drawn(model())
    ratios = information.density_ratios(log_densities)
    total = 400.0 * integral(WEIGHTS[:, 0], DEVIATIONS)[:6, :6]
    total[[3, 4, 5], [3, 4, 5]] += 60.0 / DEVIATIONS**2
    basis = np.zeros((6, 5))
    basis[:3, :2], basis[3:, 2:] = [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]], np.eye(3)
    expected = np.diag(basis @ np.linalg.inv(basis.T @ total @ basis) @ basis.T)[:3]
    one = Parameters(WEIGHTS[:, :1], MEANS[:, None], DEVIATIONS[:, None, None] ** 2)
    errors = errors_of(X, log_densities, one, "full", SIZES[:1], shift=60.0)
    found, known = (
        np.diag(information.covariance(ratios, WEIGHTS[:, 0], 400.0, None, each)) for each in (errors, None)
    )
    assert_allclose(found, expected, rtol=0.1)
    assert np.all(expected > 1.05 * known)


def test_lower_tails_are_those_of_beta_binomial_counts() -> None:
    a, b = np.array([0.2, 12.0, 40.0]), np.array([19.8, 8.0, 2000.0])
    for size, counts, atol in ((300, (0, 1, 7, 24), 0.0), (300, (25, 140, 299), 0.003), (4, (0, 3, 4), 0.0)):
        for count in counts:
            found = judging.lower_tail(float(count), float(size - count), a, b)
            assert_allclose(found, stats.betabinom(size, a, b).cdf(count), rtol=1e-9, atol=atol)
    # A quarter of a row counts by a quarter.
    exact = stats.betabinom(300, a, b)
    expected = 0.75 * exact.cdf(6) + 0.25 * exact.cdf(7)
    assert_allclose(judging.lower_tail(6.25, 293.75, a, b), expected, rtol=1e-9)


def posterior_by_integration(counts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return shares, concentrations and weights of a dense grid, for beta-binomial counts of groups."""
    typical = np.median(sizes)
    angle = (np.arange(120) + 0.5) * (0.5 * np.pi / 120)
    inflation = (np.arange(30) + 0.5) * (np.log1p(0.9 * typical) / 30)
    mean, total = np.meshgrid(np.sin(angle) ** 2, typical / np.expm1(inflation) - 1.0)
    mean, total = mean.ravel(), total.ravel()
    logs = sum(
        stats.betabinom(int(n), mean * total, (1.0 - mean) * total).logpmf(c)
        for c, n in zip(counts, sizes, strict=True)
    )
    weights = np.exp(logs - np.max(logs))
    return mean, total, weights / weights.sum()


def test_shares_are_judged_by_the_posterior_of_the_others() -> None:
    first, sizes = np.array([12, 20, 31, 9, 14, 60]), np.array([80, 100, 120, 60, 100, 100])
    usual = np.arange(6) != 4
    p_values, means = judging.judge_proportions(np.column_stack([first, sizes - first]).astype(float), usual)
    for j in (0, 4, 5):
        others = usual & (np.arange(6) != j)
        mean, total, weights = posterior_by_integration(first[others], sizes[others])
        assert_allclose(means[j, 0], weights @ mean, rtol=0.01)
        marginal = stats.betabinom(sizes[j], mean * total, (1.0 - mean) * total)
        higher = first[j] > sizes[j] * means[j, 0]
        tail = marginal.sf(first[j] - 1) if higher else marginal.cdf(first[j])
        # The median size, for the prior, is that of all usual groups.
        assert_allclose(p_values[j, 0], min(1.0, 2.0 * weights @ tail), rtol=0.06)
    assert_allclose(p_values[:, 0], p_values[:, 1], rtol=1e-6)


def test_parts_learn_from_each_other_how_much_groups_differ() -> None:
    """Against integrals over each part's inflation, its distribution among parts, and their weights."""
    random, inflation = np.random.default_rng(0), (np.arange(30) + 0.5) * 0.2
    evidence = -0.5 * ((inflation[None, :, None] - random.uniform(1.0, 4.0, (4, 1, 2))) / 0.4) ** 2
    evidence[3] = 0.0
    expected = np.zeros((4, 30, 2))
    for g in range(4):
        for r in range(2):
            for spread in judging._SPREADS:
                for middle in inflation:
                    among = np.exp(-0.5 * ((inflation - middle) / spread) ** 2)
                    among /= among.sum()
                    others = [np.log(among @ np.exp(evidence[h, :, r])) for h in range(4) if h != g]
                    # Of four shares, three say everything.
                    weight = np.exp(np.sum(others) * 2.0 / 3.0) / spread
                    expected[g, :, r] += weight * among * np.exp(evidence[g, :, r])
    expected /= expected.sum(axis=1, keepdims=True)
    assert_allclose(judging._pooled(evidence, inflation), expected, rtol=1e-9)
    # A part without rows has what the others have.
    assert expected[3, :20].sum() > 0.8


def values_of(found: np.ndarray, error: float, skew: float = 0.0) -> judging.Residuals:
    """Return values of groups that have the same error and skewness."""
    return judging.Residuals(found, np.full(len(found), error), np.full(len(found), skew))


def test_groups_are_judged_by_p_values_for_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bonferroni for the parts and the value of a group, and Holm for groups; new ones among themselves."""
    p_parts = np.array([[1e-4, 0.5, 0.9], [0.0022, 0.5, 0.9], [0.4, 0.02, 0.9], *[[0.3, 0.6, 0.9]] * 5])
    z, of_fit = np.array([0.0, 1.0, 0.5, 3.5, 0.1, 0.2, -2.0, 0.3]), np.arange(8) < 6
    monkeypatch.setattr(judging, "judge_proportions", lambda counts, _: (p_parts[:, : counts.shape[1]],) * 2)
    monkeypatch.setattr(judging, "judge_residuals", lambda *_: z)
    for values, tests in ((values_of(z, 1.0), 4), (None, 3)):
        found = judging.judge(np.ones((8, 3)), values, of_fit, 1e-9)
        p_values = np.where(values is None, np.nan, 2.0 * stats.norm.sf(np.abs(z)))
        assert_allclose(found.p_composition, np.minimum(1.0, 3.0 * p_parts.min(axis=1)))
        assert_allclose(found.p_likelihood, p_values)
        least = tests * np.fmin(p_parts.min(axis=1), p_values)
        for some in (np.arange(6), np.array([6, 7])):
            order = some[np.argsort(least[some], kind="stable")]
            steps = [max((len(order) - k) * least[order[k]] for k in range(i + 1)) for i in range(len(order))]
            assert_allclose(found.p_adjusted[order], np.minimum(steps, 1.0))
    # One part says nothing.
    monkeypatch.undo()
    one = judging.judge(np.ones((8, 1)), values_of(z, 1.0), np.ones(8, dtype=bool), 1e-9)
    assert_array_equal(one.p_composition, 1.0)
    assert_allclose(one.p_adjusted.min(), min(1.0, 8.0 * one.p_likelihood.min()))


def test_an_unusual_group_does_not_hide_another() -> None:
    """The second one is found once the first does not tell any longer what is usual."""
    counts = np.random.default_rng(0).multinomial(1000, [0.6, 0.35, 0.05], size=10).astype(float)
    counts[3], counts[4] = [0.0, 0.0, 1000.0], [480.0, 300.0, 220.0]
    found = judging.judge(counts, None, np.ones(10, dtype=bool), 0.05)
    assert_array_equal(np.flatnonzero(found.p_adjusted <= 0.05), [3, 4])
    assert found.usual_proportions[4, 2] == pytest.approx(0.05, abs=0.02)
    # At a level at which the first is not found, it hides the second.
    hidden = judging.judge(counts, None, np.ones(10, dtype=bool), 1e-300)
    assert hidden.p_adjusted[4] > 0.05


def test_weights_that_are_fitted_explain_a_part_of_the_likelihood() -> None:
    # Kernels far apart: log p is log w_k + c − χ²/2, and the first two terms are what the weights fit.
    random, n_features, means = np.random.default_rng(0), 3, np.array([0.0, 50.0, 100.0])
    X = random.normal(size=(3, 20000, n_features))
    X[..., 0] += means[:, None]
    from_mean = [((X.reshape(-1, n_features) - [at, 0.0, 0.0]) ** 2).sum(axis=1) for at in means]
    logs = -0.5 * np.stack(from_mean, axis=1) - 0.5 * n_features * np.log(2.0 * np.pi)
    w = np.array([0.7, 0.3, 0.0])
    mixed = log_mixed(logs, w)
    found = information.log_likelihood_moments(mixed, information.density_ratios(logs), w, 5.0)
    entropy = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    expected = -entropy - 0.5 * n_features * (1.0 + np.log(2.0 * np.pi))
    assert_allclose(found[0], expected, rtol=0.005)
    # Those of a half chi-squared variate, with a little more where the prior of the shares is felt.
    assert_allclose(found[1:], [n_features / 2, -np.sqrt(8.0 / n_features)], rtol=0.1)
