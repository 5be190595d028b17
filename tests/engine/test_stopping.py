"""The two stopping rules, and what a fit says about how it ended."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_model, random_rows, stack, total_log_likelihood

from skmix.engine.em import is_done
from skmix.engine.model import FloatArray, IntArray, Options, Parameters, Status
from skmix.engine.sources.summary import measure
from skmix.engine.structures import structure_of


def passes_until_done(stopping: Any, tol: float, log_likelihoods: Any, n_rows: int = 1) -> list[int]:
    """Return the pass, counted from 1, in which each start is done; 0 if never.

    Log-likelihoods are (passes, R, C), or (passes, C) of one start.
    """
    values = np.asarray(log_likelihoods, dtype=float)
    values = values[:, None] if values.ndim == 2 else values
    before, latched = np.full(values.shape[1:], np.inf), np.zeros(values.shape[1:], dtype=bool)
    found = np.zeros(values.shape[1], dtype=int)
    for number, now in enumerate(values, start=1):
        done = is_done(Options(stopping=stopping, tol=tol), n_rows, now - before, latched)
        found[done & (found == 0)] = number
        before = now
    return found.tolist()


def problem() -> tuple[FloatArray, IntArray, Parameters]:
    random = np.random.default_rng(0)
    X, classes = random_rows(random, 150, 3, 2)
    return X, classes, stack([random_model(random, 3, 3, 2) for _ in range(6)])


def test_a_class_latches_and_never_unlatches() -> None:
    # Class 0 latches in pass 2 and then moves by 7; class 1 latches in pass 4.
    sequence = [[-9.0, -9.0], [-8.95, -7.0], [-2.0, -5.0], [-1.0, -4.95]]
    assert passes_until_done("per-class", 0.1, sequence) == [4]


@pytest.mark.parametrize("stopping", ["total", "per-class"])
def test_changes_below_the_tolerance_end_a_fit_from_the_second_pass_on(stopping: str) -> None:
    assert passes_until_done(stopping, 0.5, [[1.0], [0.75]]) == [2]
    assert passes_until_done(stopping, 0.5, [[1.0], [1.5]]) == [0]
    assert passes_until_done(stopping, np.inf, [[1.0, 2.0], [100.0, 300.0]]) == [2]
    # Each start by itself.
    assert passes_until_done(stopping, 0.1, [[[0.0], [0.0]], [[1.0], [0.05]], [[1.05], [9.0]]]) == [3, 2]


def test_the_total_rule_is_per_row_and_lets_classes_compensate() -> None:
    sequence = [[0.0, 0.0], [5.0, -4.0], [5.2, -4.1]]
    assert passes_until_done("total", 0.15, sequence) == [3]
    # A change of 1 is a hundredth per row of a hundred rows.
    assert passes_until_done("total", 0.15, sequence, n_rows=100) == [2]


@pytest.mark.parametrize(("stopping", "tol"), [("total", 1e-3), ("per-class", 0.05)])
def test_starts_leave_the_batch_when_they_are_done(stopping: Any, tol: float) -> None:
    X, classes, models = problem()
    result = fit(X, classes, models, Options(stopping=stopping, tol=tol, max_iter=200))
    assert (result.status == Status.CONVERGED).all()
    assert len(set(result.n_iter.tolist())) > 1
    for path, n_iter in zip(result.path, result.n_iter, strict=True):
        assert path.shape == (n_iter, 3)
        assert passes_until_done(stopping, tol, path, len(X)) == [n_iter]


def test_the_path_holds_what_entered_each_pass() -> None:
    X, classes, models = problem()
    result = fit(X, classes, models, Options(tol=0.0, max_iter=4))
    for r in range(6):
        assert_allclose(result.path[r][0], total_log_likelihood(X, classes, models.take(r)), rtol=1e-11)
        last = total_log_likelihood(X, classes, result.parameters.take(r))
        assert_allclose(result.log_likelihood[r], last, rtol=1e-11)
        before = fit(X, classes, models, Options(tol=0.0, max_iter=3)).parameters.take(r)
        assert_allclose(result.path[r][3], total_log_likelihood(X, classes, before), rtol=1e-11)


def test_the_callback_is_called_after_every_pass() -> None:
    X, classes, models = problem()
    told: list[tuple[int, list[int], FloatArray]] = []
    result = fit(
        X,
        classes,
        models,
        Options(tol=1e-3),
        callback=lambda run: told.append((run.n_passes, run.active.tolist(), run.totals())),
    )
    assert [number for number, *_ in told] == list(range(1, result.n_iter.max() + 1))
    # Log-likelihoods are in the frame, those of starts that have ended are their last ones.
    volume = len(X) * measure(X, structure_of("full")).log_volume()
    for number, active, totals in told:
        assert active == np.flatnonzero(result.n_iter >= number).tolist()
        last = [path[min(number, len(path)) - 1].sum() for path in result.path]
        assert_allclose(totals - volume, last, rtol=1e-9)


def test_a_start_that_failed_has_no_log_likelihood() -> None:
    X = np.repeat([[0.0], [1.0]], 20, axis=0)
    start = Parameters(
        np.full((2, 2, 1), 0.5), np.array([[[0.0], [1.0]], [[0.5], [0.5]]]), np.ones((2, 2, 1, 1))
    )
    start.covariances[0] = 1e-3
    totals: list[FloatArray] = []
    result = fit(
        X, None, start, Options(floor=0.0, max_iter=5), callback=lambda run: totals.append(run.totals())
    )
    assert result.status[0] == Status.FAILED
    assert totals[-1][0] == -np.inf
    assert np.isfinite(totals[-1][1])


def test_starts_are_left_alone() -> None:
    X, classes, models = problem()
    before, rows = models.copy(), X.copy()
    fit(X, classes, models, Options(max_iter=3))
    assert_array_equal(models.weights, before.weights)
    assert_array_equal(models.means, before.means)
    assert_array_equal(models.covariances, before.covariances)
    assert_array_equal(X, rows)
