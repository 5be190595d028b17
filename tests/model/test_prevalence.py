"""Shares of classes in unlabelled rows: optimum, intervals and their coverage, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import brentq, minimize
from scipy.stats import chi2, norm

from skmix import SharedKernelClassifier, SharedKernelClassifierCV

MEANS = np.array([0.0, 1.5, 3.0])
TRUE = np.array([0.2, 0.5, 0.3])


def known(n_classes: int = 3, **more: Any) -> SharedKernelClassifier:
    """A classifier whose classes are known normal distributions."""
    means = MEANS[:n_classes, None]
    ones, weights = np.ones((n_classes, 1, 1)), np.eye(n_classes)
    return SharedKernelClassifier.from_parameters(weights, means, ones, **more)


def draw(shares: np.ndarray, n_rows: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return random.normal(random.choice(MEANS[: len(shares)], n_rows, p=shares))[:, None]


def mean_log_likelihood(X: np.ndarray, shares: np.ndarray, weights: np.ndarray | None = None) -> float:
    """log p of rows under normal densities, by scipy."""
    mixed = norm.pdf(X, MEANS[: len(shares)]) @ shares
    return float(np.average(np.log(mixed), weights=weights))


def best(X: np.ndarray, n_classes: int, weights: np.ndarray | None = None, **fixed: float) -> Any:
    """The maximum by a general optimiser, with one share fixed if asked."""
    constraints = [{"type": "eq", "fun": lambda s: s.sum() - 1.0}]
    bounds = [(0.0, 1.0)] * n_classes
    if fixed:
        bounds[int(fixed["j"])] = (fixed["value"], fixed["value"])
    rest = (1.0 - fixed.get("value", 0.0)) / (n_classes - bool(fixed))
    start = np.array([fixed["value"] if fixed and k == fixed["j"] else rest for k in range(n_classes)])
    return minimize(
        lambda s: -mean_log_likelihood(X, s, weights),
        start,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_shares_maximise_the_likelihood_whatever_the_prior(weighted: bool) -> None:
    X = draw(TRUE, 800, 0)
    weights = np.random.default_rng(1).integers(0, 4, 800).astype(float) if weighted else None
    found = [known(class_prior=prior).prevalence(X, weights).shares for prior in (None, [0.6, 0.3, 0.1])]
    assert_allclose(found[0], best(X, 3, weights).x, atol=2e-5)
    assert_allclose(found[1], found[0], atol=1e-5)


def test_the_interval_of_two_classes_is_that_of_the_likelihood() -> None:
    X = draw(np.array([0.3, 0.7]), 300, 2)
    found = known(2).prevalence(X)
    top = mean_log_likelihood(X, found.shares)

    def excess(share: float) -> float:
        drop = top - mean_log_likelihood(X, np.array([share, 1 - share]))
        return 2 * len(X) * drop - chi2.ppf(0.95, 1)

    assert_allclose(found.low[0], brentq(excess, 0.0, found.shares[0]), atol=1e-6)
    assert_allclose(found.high[0], brentq(excess, found.shares[0], 1.0), atol=1e-6)
    assert_allclose(found.low + found.high[::-1], 1.0, atol=1e-6)


def test_intervals_of_three_classes_follow_the_information_and_the_profile() -> None:
    X = draw(TRUE, 4000, 3)
    found = known().prevalence(X)
    # The Hessian of the log-likelihood of two free shares, by differences.
    step, shares = 1e-4, found.shares

    def value(a: float, b: float) -> float:
        moved = np.array([shares[0] + a, shares[1] + b, shares[2] - a - b])
        return len(X) * mean_log_likelihood(X, moved)

    steps = step * np.eye(2)
    hessian = np.array(
        [
            [sum(s * t * value(*(s * u + t * v)) for s in (1, -1) for t in (1, -1)) for u in steps]
            for v in steps
        ]
    ) / (4 * step**2)
    deviations = np.sqrt(np.diag(np.linalg.inv(-hessian)))
    for j in range(2):
        wide = (found.high[j] - found.low[j]) / 2
        assert_allclose(wide, 1.96 * deviations[j], rtol=0.03)
        for limit in (found.low[j], found.high[j]):
            drop = best(X, 3, j=j, value=limit).fun - best(X, 3).fun
            assert_allclose(2 * len(X) * drop, chi2.ppf(0.95, 1), rtol=0.05)


@pytest.mark.parametrize("weighted", [False, True])
def test_an_absent_class_has_an_interval_that_reaches_zero(weighted: bool) -> None:
    X = draw(np.array([0.5, 0.5]), 500, 4)
    found = known().prevalence(X, np.full(500, 2.0) if weighted else None)
    assert found.shares[2] < 0.02
    assert found.low[2] == 0.0
    assert 0.0 < found.high[2] < 0.06
    alone = known().prevalence(np.zeros((50, 1)))
    assert_allclose(alone.shares, [1.0, 0.0, 0.0], atol=1e-9)
    assert 0.7 < alone.low[0] < 1.0 == alone.high[0]
    assert_allclose(alone.low[1:], 0.0)
    assert (alone.high[1:] > 0.0).all()


@pytest.mark.slow
@pytest.mark.parametrize("shares", [[0.2, 0.5, 0.3], [0.02, 0.58, 0.4], [0.0, 0.5, 0.5]])
def test_intervals_cover_as_often_as_they_say(shares: list[float]) -> None:
    model, n_studies = known(), 400
    covered = np.zeros(3)
    for seed in range(n_studies):
        found = model.prevalence(draw(np.array(shares), 150, 100 + seed))
        covered += (found.low <= shares) & (shares <= found.high)
    # Three standard errors of a share of 400; near a bound, the interval is on the safe side.
    assert (covered / n_studies > 0.95 - 0.033).all()
    assert (covered / n_studies <= 1.0).all()


def test_adjusted_probabilities_use_the_new_shares() -> None:
    X, model = draw(TRUE, 500, 5), known(class_prior=[0.1, 0.1, 0.8])
    found = model.prevalence(X, adjust=True)
    joint = norm.pdf(X, MEANS) * found.shares
    assert found.probabilities is not None
    assert_allclose(found.probabilities, joint / joint.sum(axis=1, keepdims=True), atol=1e-9)
    assert_allclose(found.probabilities.mean(axis=0), found.shares, atol=1e-5)
    assert model.prevalence(X).probabilities is None


def test_rows_without_values_do_not_count() -> None:
    random = np.random.default_rng(6)
    X, y = random.normal(size=(300, 3)), random.integers(0, 2, 300)
    X[:, 0] += 2.0 * y
    model = SharedKernelClassifier(4, tail="t", random_state=0).fit(X, y)
    rows = np.vstack([X[:50], np.full((30, 3), np.nan)])
    with_empty, without = model.prevalence(rows), model.prevalence(X[:50])
    assert_allclose(with_empty.shares, without.shares, atol=1e-6)
    assert_allclose(with_empty.low, without.low, atol=1e-6)
    with pytest.raises(ValueError, match="no value in the features of the model"):
        model.prevalence(np.full((5, 3), np.nan))


def test_a_row_of_weight_zero_may_be_impossible_under_the_shares_of_the_others() -> None:
    means, variances = [[0.0], [100.0]], np.ones((2, 1, 1))
    model = SharedKernelClassifier.from_parameters(np.eye(2), means, variances)
    found = model.prevalence([[0.0], [0.5], [100.0]], [1.0, 1.0, 0.0], adjust=True)
    without = model.prevalence([[0.0], [0.5]])
    assert_allclose(found.shares, [1.0, 0.0])
    assert_allclose([found.low, found.high], [without.low, without.high])
    assert found.probabilities is not None
    assert_allclose(found.probabilities[2], [0.0, 1.0], atol=1e-12)


def test_all_rows_are_of_the_only_class() -> None:
    X = np.random.default_rng(8).normal(size=(20, 2))
    found = SharedKernelClassifier(1).fit(X, np.zeros(20)).prevalence(X)
    assert [*found.shares, *found.low, *found.high] == [1.0, 1.0, 1.0]


def test_a_search_estimates_shares() -> None:
    random = np.random.default_rng(7)
    y = random.integers(0, 2, 400)
    X = random.normal(size=(400, 2)) + 3.0 * y[:, None]
    search = SharedKernelClassifierCV(n_kernels=[2, 4], random_state=0).fit(X, y)
    z = (random.random(1000) < 0.9).astype(int)
    found = search.prevalence(random.normal(size=(1000, 2)) + 3.0 * z[:, None])
    assert_allclose(found.shares[1], z.mean(), atol=0.02)
    assert list(found.as_dict()) == ["label", "share", "low", "high"]


def test_a_class_that_the_prior_excludes_is_refused() -> None:
    model = known(class_prior=[0.0, 0.5, 0.5])
    with pytest.raises(ValueError, match="The class prior of 0 is zero"):
        model.prevalence([[0.0]])
