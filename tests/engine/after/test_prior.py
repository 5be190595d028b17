"""The default prior: the marginal likelihood against integrals, rows left out against fits without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import random_covariances
from scipy.integrate import quad
from scipy.stats import invgamma, invwishart, multivariate_normal

from skmix.engine.after.prior import (
    Parts,
    errors_left_out,
    likeliest_strength,
    log_marginal_likelihood,
    prior_of_start,
    reduce_correlations,
    relative_eigenvalues,
)
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import FloatArray, IntArray, Options, Parameters
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of
from skmix.engine.structures.factors import rescaled

each_kind = pytest.mark.parametrize("covariance_type", ["full", "diag"])


def prior_of(X: FloatArray, codes: IntArray, start: Parameters, **settings: Any) -> tuple[float, FloatArray]:
    """Return ν and T in the data's coordinates."""
    options = Options(**settings)
    frame = measure(X, structure_of(options.covariance_type))
    problem = Problem.of(open_source(X, codes), options, len(start.means), frame)
    inside = replace(start, means=start.means / frame.scale - frame.shift)
    strength, common = prior_of_start(problem, X, codes, None, inside, few_rows=False)
    return strength, rescaled(common, frame.scale)


def parts_of(x: FloatArray, part: IntArray, kind: str = "full", **given: Any) -> Parts:
    masses, codes = given.get("masses", np.ones(len(x))), given.get("codes", np.arange(part.max() + 1))
    return Parts(x, masses, part, codes, structure_of(kind))


# ---------------------------------------------------------------- the marginal likelihood


def test_marginal_likelihood_of_one_feature_is_an_integral() -> None:
    """A scatter of m rows is p · chi-square with m − 1 degrees; p has an inverse gamma prior of mean one."""
    mass, spread = 7.0, 3.2

    def direct(rows: float) -> float:
        prior = invgamma(0.5 * (rows + 2.0), scale=0.5 * rows)
        assert_allclose(prior.mean(), 1.0)

        def density(p: float) -> float:
            return float(p ** (-0.5 * (mass - 1.0)) * np.exp(-0.5 * spread / p) * prior.pdf(p))

        return float(np.log(quad(density, 0.0, np.inf)[0]))

    logs = [log_marginal_likelihood(v, np.array([mass]), np.array([[spread]])) for v in (0.5, 4.0, 30.0)]
    assert_allclose(np.diff(logs), np.diff([direct(v) for v in (0.5, 4.0, 30.0)]), rtol=1e-6)


def test_marginal_likelihood_of_matrices_is_an_average() -> None:
    """Against the mean of Wishart densities over many covariances drawn from the prior."""
    common = random_covariances(np.random.default_rng(0), 1, 2)[0]
    scatter, mass = 6.0 * random_covariances(np.random.default_rng(1), 1, 2)[0], 9.0
    eigenvalues = relative_eigenvalues(scatter, common, mass)

    def direct(rows: float) -> float:
        drawn = invwishart(rows + 3.0, rows * common).rvs(20_000, random_state=0)
        inverse = np.linalg.inv(drawn)
        logs = 0.5 * (mass - 1.0) * np.linalg.slogdet(inverse)[1]
        return float(np.log(np.mean(np.exp(logs - 0.5 * np.einsum("nde,ed->n", inverse, scatter)))))

    few, many = (log_marginal_likelihood(v, np.array([mass]), eigenvalues) for v in (2.0, 20.0))
    assert_allclose(many - few, direct(20.0) - direct(2.0), rtol=0.05)


@pytest.mark.parametrize("strength", [6.0, 60.0, np.inf])
@each_kind
def test_the_likeliest_strength_is_what_covariances_were_drawn_with(
    covariance_type: str, strength: float
) -> None:
    random = np.random.default_rng(1)
    x, part = random.normal(size=(6000, 3)), np.repeat(np.arange(400), 15)
    if np.isfinite(strength) and covariance_type == "full":
        drawn = invwishart(strength + 4.0, strength * np.eye(3)).rvs(400, random_state=1)
        x = np.einsum("nde,ne->nd", np.linalg.cholesky(drawn)[part], x)
    elif np.isfinite(strength):
        x *= np.sqrt(invgamma(0.5 * strength + 1.0, scale=0.5 * strength).rvs((400, 3), random_state=1))[part]
    common = np.eye(3) if covariance_type == "full" else np.ones(3)
    likeliest = likeliest_strength(parts_of(x, part, covariance_type), common)
    assert min(300.0, 0.7 * strength) < likeliest < 1.5 * strength


# ---------------------------------------------------------------- rows left out


@each_kind
def test_rows_are_predicted_without_themselves(covariance_type: str) -> None:
    """Against parts and T that are computed again without each row; T keeps its denominator.

    Of a row with a mass above one, one is left out.
    """
    random, by_feature = np.random.default_rng(0), covariance_type == "diag"
    part, codes = np.repeat([0, 1, 2, 3], [6, 9, 7, 1]), np.array([0, 0, 1, 1])
    x = random.normal(size=(23, 3)) * [1.0, 2.0, 0.5] + part[:, None]
    masses, strengths, kept = random.uniform(0.5, 2.0, size=23), np.array([0.7, 20.0]), 0.8
    masses[-1], total = 0.9, masses[:-1].sum() + 0.9

    def moments(left: FloatArray, k: int) -> tuple[float, FloatArray, FloatArray]:
        weights, rows = left[part == k], x[part == k]
        mean = np.average(rows, axis=0, weights=weights)
        scatter = (rows - mean).T * weights @ (rows - mean)
        return weights.sum(), mean, np.diag(np.diag(scatter)) if by_feature else scatter

    def common(left: FloatArray) -> FloatArray:
        pooled = sum(moments(left, k)[2] for k in np.unique(part[left > 0])) / total
        # Full covariances: rows are taken from what was kept alone.
        return pooled if by_feature else kept * pooled + (1.0 - kept) * np.diag(np.diag(whole))

    whole = sum(moments(masses, k)[2] for k in range(4)) / total
    target = np.diag(whole) if by_feature else common(masses)
    parts = parts_of(x, part, covariance_type, masses=masses, codes=codes)
    errors = errors_left_out(parts, np.arange(23), strengths, target, 1.0 if by_feature else kept)
    for n in range(23):
        left = masses - np.minimum(masses, 1.0) * (np.arange(23) == n)
        for rows, error in zip(strengths, errors[n], strict=True):
            joint = np.zeros(2)
            for k in np.unique(part[left > 0]):
                mass, mean, scatter = moments(left, k)
                covariance = (scatter + rows * common(left)) / (rows + mass)
                joint[codes[k]] += mass * multivariate_normal(mean, covariance).pdf(x[n])
            expected = 2.0 * (1.0 - joint[codes[part[n]]] / joint.sum()) ** 2
            assert error == pytest.approx(expected, rel=1e-6, abs=1e-12)


# ---------------------------------------------------------------- the prior of a start


@each_kind
def test_the_prior_is_the_pooled_covariance_at_its_likeliest_strength(covariance_type: str) -> None:
    random, sizes = np.random.default_rng(0), np.array([30, 50, 80])
    codes = np.repeat(np.arange(3), sizes)
    roots = np.linalg.cholesky(invwishart(10.0, 6.0 * np.eye(3)).rvs(3, random_state=1))
    # So far apart that every strength predicts the classes.
    X = 30.0 * codes[:, None] + np.einsum("nde,ne->nd", roots[codes], random.normal(size=(160, 3)))
    # Kernels that are not shared may start anywhere: each class has one.
    start = Parameters(np.eye(3), random.normal(size=(3, 3)), np.zeros(0))
    strength, common = prior_of(X, codes, start, covariance_type=covariance_type)
    parts = parts_of(X, codes, covariance_type)
    pooled = sum(n * np.cov(X[codes == c].T, bias=True) for c, n in enumerate(sizes)) / 160.0
    expected = np.diag(pooled) if covariance_type == "diag" else reduce_correlations(pooled, 157.0)[0]
    assert_allclose(common, expected, rtol=1e-9)
    eigenvalues = [relative_eigenvalues(parts.scatter(k), common, n) for k, n in enumerate(sizes)]
    scatters = np.repeat(sizes, len(eigenvalues[0])), np.concatenate(eigenvalues)
    assert 1.0 < strength < 160.0
    for other in (0.8 * strength, 1.25 * strength):
        assert log_marginal_likelihood(other, *scatters) < log_marginal_likelihood(strength, *scatters)


@each_kind
def test_the_prior_is_not_below_the_floor(covariance_type: str) -> None:
    """A feature that is constant within kernels has the floor's variance."""
    codes = np.arange(80) % 2
    X = np.stack([np.random.default_rng(2).normal(size=80) + 9.0 * codes, 5.0 * codes], axis=1)
    start = Parameters(np.eye(2), np.stack([X[codes == c].mean(axis=0) for c in (0, 1)]), np.zeros(0))
    _, common = prior_of(X, codes, start, covariance_type=covariance_type, floor=0.01)
    variances = common if covariance_type == "diag" else np.diagonal(common)
    within = np.mean([X[codes == c, 0].var() for c in (0, 1)])
    assert_allclose(variances, [within, 0.01 * X[:, 1].var()], rtol=1e-6)
