"""Passes of EM that the core makes one after the other are those of the update rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from definitions import each_set
from numpy.testing import assert_allclose, assert_array_equal

from skmix.engine.estep import host
from skmix.engine.loop import Run, run
from skmix.engine.problem import Problem, open_source
from skmix.engine.records import Options, Parameters, Result, Status
from skmix.engine.rules.likelihood import Likelihood
from skmix.engine.structures import structure_of

OWN_COVARIANCES = ["full", "diag", "spherical"]
each_type = pytest.mark.parametrize("covariance_type", OWN_COVARIANCES)
PRIOR = {"covariance_prior": 4.0, "weight_prior": 1.5}


def rows_of(n_features: int, n_rows: int = 400, offset: float = 0.0) -> np.ndarray:
    """Return rows of three clusters."""
    random = np.random.default_rng(n_features)
    centres = 2.0 * random.normal(size=(3, n_features))
    turn = np.eye(n_features) + 0.3 * random.normal(size=(n_features, n_features))
    return offset + centres[np.arange(n_rows) % 3] + random.normal(size=(n_rows, n_features)) @ turn


def problem_of(
    X: np.ndarray, covariance_type: str, n_classes: int = 1, weighted: bool = False, **options: Any
) -> tuple[Problem, Parameters]:
    """Return a problem of four kernels and a start, in the frame."""
    random, structure = np.random.default_rng(1), structure_of(covariance_type)
    codes = random.integers(n_classes, size=len(X)) if n_classes > 1 else None
    weights = random.uniform(0.5, 2.0, size=len(X)) if weighted else None
    options = {"max_iter": 12, "tol": 0.0, **options}
    problem = Problem.of(
        open_source(X, codes, weights), Options(covariance_type=covariance_type, **options), 4
    )
    covariances = structure.from_common(structure.common(problem.frame.variance)[None], 4)
    means = problem.frame.rows(X[:4].astype(np.float64)).T[None]
    shares = random.dirichlet(np.ones(4), size=n_classes).T[None]
    return problem, Parameters(shares, means, covariances)


def both(problem: Problem, start: Parameters, monkeypatch: pytest.MonkeyPatch) -> tuple[Result, Result, int]:
    """Return the results by the core and by the update rule, and passes of the latter in the first."""
    steps, step = [0], Run.step

    def counted(self: Run) -> None:
        steps[0] += 1
        step(self)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "step", counted)
        result = run(problem, start)
    with monkeypatch.context() as patch:
        patch.setattr(Likelihood, "climbs", False)
        expected = run(problem, start)
    return result, expected, steps[0]


def check(result: Result, expected: Result, digits: float = 1e-9) -> None:
    """Compare results of one start."""
    assert result.n_iter == expected.n_iter
    assert result.status == expected.status
    for name in ("weights", "means", "covariances"):
        one, other = (getattr(each.parameters, name) for each in (result, expected))
        assert one.shape == other.shape
        assert_allclose(one, other, rtol=digits, atol=digits, err_msg=name)
    assert_allclose(result.path[0], expected.path[0], rtol=digits)
    assert_allclose(result.log_likelihood, expected.log_likelihood, rtol=digits)
    assert_allclose(result.objective, expected.objective, rtol=digits)


@each_type
@pytest.mark.parametrize("n_features", [1, 2, 5, 9, 18])
@pytest.mark.parametrize(
    "changed",
    [
        {},
        PRIOR,
        {"covariance_prior": 3.0, "ridge": 0.1},
        {"n_classes": 3, "weighted": True},
        {**PRIOR, "n_classes": 2},
        {"floor": 0.0},
    ],
    ids=str,
)
def test_passes_are_those_of_the_update_rule(
    covariance_type: str, n_features: int, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, start = problem_of(rows_of(n_features), covariance_type, **changed)
    for _ in each_set():
        result, expected, n_steps = both(problem, start, monkeypatch)
        check(result, expected)
        assert not n_steps


@pytest.mark.parametrize("kind", ["few", "many", "far"])
def test_a_callback_sees_every_pass_and_changes_no_bit(kind: str) -> None:
    """Also if some passes are left to the update rule."""
    X = rows_of(3, offset=1e7 if kind == "far" else 0.0)
    problem, start = problem_of(X, "full", max_iter=150 if kind == "many" else 12, **PRIOR)
    seen: list[int] = []
    watched, alone = run(problem, start, lambda fit: seen.append(fit.n_passes)), run(problem, start)
    assert seen == list(range(1, alone.n_iter[0] + 1))
    for name in ("weights", "means", "covariances"):
        assert_array_equal(getattr(watched.parameters, name), getattr(alone.parameters, name))
    assert_array_equal(watched.path[0], alone.path[0])


@each_type
@pytest.mark.parametrize("kind", ["single", "by features", "far"])
def test_rows_of_other_kinds(covariance_type: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = rows_of(4, offset=1e4 if kind == "far" else 0.0)
    X = X.astype(np.float32) if kind == "single" else np.asfortranarray(X)
    result, expected, n_steps = both(*problem_of(X, covariance_type, **PRIOR), monkeypatch)
    check(result, expected)
    assert not n_steps


@each_type
def test_passes_end_by_the_tolerance(covariance_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, start = problem_of(rows_of(3), covariance_type, tol=1e-4, max_iter=150)
    result, expected, n_steps = both(problem, start, monkeypatch)
    check(result, expected)
    assert result.status == Status.CONVERGED
    assert 2 < result.n_iter[0] < 150
    assert not n_steps
    # More passes than the core makes at once.
    problem, start = problem_of(rows_of(3), covariance_type, max_iter=150)
    result, expected, _ = both(problem, start, monkeypatch)
    check(result, expected, 1e-7)
    assert result.n_iter == 150


@each_type
@pytest.mark.parametrize("what", ["floor", "empty", "nearly empty", "nearly singular"])
def test_what_is_unusual_is_left_to_the_update_rule(
    covariance_type: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X = rows_of(3)
    changed: dict[str, Any] = {"floor": 0.5} if what == "floor" else {"covariance_prior": 4.0}
    if what == "nearly singular":
        X[:, 2] = X[:, :2].sum(axis=1) + 1e-5 * X[:, 2]
        changed = {"floor": 0.0}
    problem, start = problem_of(X, covariance_type, **changed)
    if "empty" in what:
        means = start.means.copy()
        # In deviations: responsibilities are zero, or so small that their squares are.
        means[0, 3] = 1e80 if what == "empty" else 29.0 * np.sqrt(problem.frame.variance) * np.eye(3)[0]
        start = replace(start, means=means)
    result, expected, n_steps = both(problem, start, monkeypatch)
    check(result, expected, 1e-6)
    # The core knows floors of independent features, which need no eigenvalues.
    assert (n_steps > 0) == ("empty" in what or covariance_type == "full")


@each_type
def test_kernels_that_are_far_and_narrow(covariance_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments about zero would lose their digits."""
    X = rows_of(3)
    X[:100] = 1e3 + 1e-3 * X[:100]
    problem, start = problem_of(X, covariance_type, floor=0.0)
    means, covariances = start.means.copy(), start.covariances.copy()
    means[0, 0] = problem.frame.rows(X[:100]).mean(axis=1)
    covariances[:, 0] *= 1e-10
    start = replace(start, means=means, covariances=covariances)
    result, expected, n_steps = both(problem, start, monkeypatch)
    check(result, expected, 1e-6)
    # Independent features: differences from the means keep them, where the core would else use products. A
    # full covariance meets a mean that has moved too far for its width.
    assert (n_steps > 0) == (covariance_type == "full")


def test_a_class_without_rows_keeps_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, start = problem_of(rows_of(3), "full", n_classes=2)
    start = replace(start, weights=np.concatenate([start.weights, start.weights[..., :1]], axis=-1))
    result, expected, n_steps = both(problem, start, monkeypatch)
    check(result, expected)
    assert n_steps
    assert_allclose(result.parameters.weights[..., 2], start.weights[..., 2])


@each_type
def test_passes_end_before_one_that_lowers_the_objective(covariance_type: str) -> None:
    problem, start = problem_of(rows_of(3), covariance_type)
    rule = problem.rule
    current, factor = rule.enter(start)
    stopping = {"objective": np.inf, "likelihood": np.inf, "least_change": 0.0, "most": 5}
    setting = problem.frame, problem.structure
    rows = problem.source.in_frame(setting[0], 1)
    for is_monotone, n_passes in ((True, 0), (False, 5)):
        climbed = host.climb(
            rows, current, factor, setting[1], rule.regulariser, stopping | {"is_monotone": is_monotone}
        )
        assert len(climbed.objectives) == n_passes
        assert not climbed.is_done
    # Without weight, no kernel has a likelihood.
    nowhere = replace(current, weights=np.zeros_like(current.weights))
    stopping |= {"objective": -np.inf, "is_monotone": True}
    climbed = host.climb(rows, nowhere, factor, setting[1], rule.regulariser, stopping)
    assert len(climbed.objectives) == 0
    assert_allclose(climbed.parameters.means, current.means)
