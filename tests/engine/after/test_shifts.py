"""Groups with means of their own: the maximum against a numerical one, and the search for their strength."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from oracles import COVARIANCE_TYPES, random_model
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

from skmix.engine.after.shifts import Shifted, check_source, choose_strength, shift_groups
from skmix.engine.loop import fit
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import FloatArray, IntArray, Options, Parameters

OPTIONS = Options(floor=0.0, tol=0.0, max_iter=1)


def shifted_rows(
    seed: int = 0, deviation: float = 0.7, sizes: tuple[int, ...] = (40, 7, 90), spread: float = 2.0
) -> tuple[FloatArray, IntArray]:
    """Return rows (N, 2) of three kernels whose means differ between groups, in no order, and the groups."""
    random = np.random.default_rng(seed)
    groups = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    kernels = random.integers(0, 3, size=len(groups))
    means = spread * np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.0]])
    shifts = deviation * random.normal(size=(len(sizes), 3, 2))
    return means[kernels] + shifts[groups, kernels] + random.normal(size=(len(groups), 2)), groups


def shift(X: Any, groups: Any, start: Parameters, strength: float, options: Options) -> Shifted:
    return shift_groups(Problem.of(open_source(X, groups), options, len(start.means)), start, strength)


def test_the_end_is_the_numerical_maximum() -> None:
    random = np.random.default_rng(7)
    groups = np.repeat([0, 1], 12)
    X = (random.normal(size=24) + np.where(random.random(24) < 0.5, 4.0, 0.0) + 0.8 * groups)[:, None]
    r = 3.0

    def model_of(numbers: FloatArray) -> tuple[Parameters, FloatArray]:
        logits, means, logs, shifts = np.split(numbers, [4, 6, 8])
        weights = np.exp(log_softmax(logits.reshape(2, 2), axis=0))
        return Parameters(weights, means[:, None], np.exp(logs)[:, None, None]), shifts.reshape(2, 2, 1)

    def loss(numbers: FloatArray) -> float:
        model, shifts = model_of(numbers)
        deviations = np.sqrt(model.covariances[:, 0, 0])
        means = (model.means + shifts)[groups, :, 0]
        logs = norm.logpdf(X, means, deviations) + np.log(model.weights.T[groups])
        return float(-logsumexp(logs, axis=1).sum() + 0.5 * r * ((shifts[..., 0] / deviations) ** 2).sum())

    start = np.concatenate([np.zeros(4), [0.0, 4.0], np.zeros(2), np.zeros(4)])
    best = minimize(loss, start, method="BFGS", options={"gtol": 1e-7})
    model, shifts = model_of(best.x)
    found = shift(X, groups, model_of(start)[0], r, replace(OPTIONS, max_iter=250))
    assert_allclose(found.objective[-1], -best.fun, atol=1e-7)
    assert_allclose(found.shifts, shifts, atol=1e-4)
    for name in ("weights", "means", "covariances"):
        assert_allclose(getattr(found.parameters, name), getattr(model, name), rtol=1e-4)


@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_infinite_strength_is_the_plain_fit(kind: str) -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2, kind)
    options = replace(OPTIONS, covariance_type=kind, max_iter=5)
    plain = fit(open_source(X, groups), start.batch(), options)
    found = shift(X, groups, start, np.inf, options)
    assert not found.shifts.any()
    assert_allclose(found.log_likelihood, plain.log_likelihood[0], rtol=1e-10)
    assert_allclose(found.parameters.means, plain.parameters.means[0], rtol=1e-9)
    assert_allclose(found.parameters.covariances, plain.parameters.covariances[0], rtol=1e-9)


def test_every_row_is_held_out_in_one_fold() -> None:
    """Without shifts and passes, log-likelihoods of the folds add up to the one of all rows."""
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    problem = Problem.of(open_source(X, groups), replace(OPTIONS, max_iter=0), 3)
    folds = [shift_groups(problem, start, np.inf, fold=(3, fold)) for fold in range(5)]
    whole = shift_groups(problem, start, np.inf)
    volume = len(X) * problem.frame.log_volume()
    total = sum(fold.log_likelihood.sum() for fold in folds)
    assert_allclose(total - volume, whole.log_likelihood.sum(), rtol=1e-10)
    few = replace(problem, source=open_source(X[:10], groups[:10]))
    for number, fold in enumerate(folds):
        assert fold.log_likelihood.shape == (20,)
        # Of few rows, none may be in a fold.
        held_out = shift_groups(few, start, np.inf, fold=(11, number)).log_likelihood
        assert held_out.shape == (20,)
        assert held_out.any() == (number not in (1, 4))
        # A fit does not see the rows that are held out.
        assert 0.7 < fold.objective[0] / whole.objective[0] < 0.9


def test_held_out_rows_tell_whether_groups_are_shifted() -> None:
    for deviation, expected in ((0.0, [np.inf]), (0.6, [1.0, 3.0, 10.0])):
        X, groups = shifted_rows(10, deviation, sizes=(80,) * 4, spread=5.0)
        start = Parameters(
            np.full((3, 4), 1 / 3),
            5.0 * np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.0]]),
            np.tile(np.eye(2), (3, 1, 1)),
        )
        problem = Problem.of(open_source(X, groups), Options(), 3)
        assert choose_strength(problem, start, seed=0) in expected


def test_groups_without_rows_keep_their_weights_and_common_means() -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 4, 2)
    found = shift(X, groups, start, 4.0, replace(OPTIONS, max_iter=3))
    assert not found.shifts[3].any()
    assert_allclose(found.parameters.weights[:, 3], start.weights[:, 3])


def test_shifts_converge_where_a_row_gains_less_than_tol() -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    found = shift(X, groups, start, 4.0, Options(tol=1e-3, max_iter=500))
    gains = np.diff(found.objective[:-1]) / len(X)
    assert found.converged
    assert gains[-1] < 1e-3
    assert np.all(gains[:-1] >= 1e-3)


def test_few_rows_have_no_shifts_and_rows_without_a_group_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    few = open_source(X[:9], groups[:9])
    monkeypatch.setattr("skmix.engine.after.shifts.shift_groups", None)  # folds may be empty: none is fitted
    assert choose_strength(Problem.of(few, Options(), 3), start, 0) == np.inf
    with pytest.raises(ValueError, match="2 rows have no label"):
        check_source(open_source(X, np.where(np.arange(len(X)) < 2, -1, groups)))


def test_weights_that_are_shrunk_towards_others_may_lower_the_objective() -> None:
    random = np.random.default_rng(57)
    source, start = open_source(3.0 * random.normal(size=(12, 2))), random_model(random, 3, 1, 2)
    options = replace(OPTIONS, freeze="kernels", max_iter=20)
    anchor = np.array([0.98, 0.01, 0.01])
    found = shift_groups(Problem.of(source, options, 3), start, 20.0, anchor=anchor)
    assert np.diff(found.objective).min() < -1.0


def test_passes_end_before_a_covariance_is_singular() -> None:
    X, groups = np.zeros((20, 2)), np.arange(20) % 2
    X[:10] = np.random.default_rng(0).normal(size=(10, 2))
    means = np.array([[0.0, 0.0], [1.0, 1.0]])
    start = Parameters(np.full((2, 2), 0.5), means, np.tile(0.1 * np.eye(2), (2, 1, 1)))
    found = shift(X, groups, start, 1.0, replace(OPTIONS, max_iter=200))
    assert not found.converged
    assert len(found.path) < 200
    assert np.isfinite(found.parameters.covariances).all()
    assert np.linalg.eigvalsh(found.parameters.covariances).min() > 0.0
