"""The oracle against the numbers of the published code, to convergence and into failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from skmix.engine.model import Parameters
from skmix.engine.published import fit_published, published_pass, published_passes

Golden = Callable[[str], dict[str, NDArray[Any]]]

CONVERGING = {"illustration": 12, "one_dimensional": 26, "digits_3d": 18, "digits_3d_latched": 24}
FAILING = {"fails_flat_3d": 13, "fails_singular_9d": 15, "fails_indefinite_9d": 9}
LAST_USABLE_PASS = CONVERGING | {name: number - 1 for name, number in FAILING.items()}

RELATIVE = 1e-9
NEGLIGIBLE = 1e-12
"""Below this share of its natural scale a number is the rounding left by a cancellation."""


def start_of(reference: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.intp], Parameters]:
    """Return rows, class columns and starting parameters of a golden file."""
    classes = np.unique(reference["y"], return_inverse=True)[1]
    start = Parameters(reference["weights"][0], reference["means"][0], reference["covariances"][0])
    return reference["X"], classes, start


@pytest.mark.parametrize("name", LAST_USABLE_PASS)
def test_parameters_agree_at_every_stored_pass(golden: Golden, name: str) -> None:
    reference = golden(name)
    X, classes, start = start_of(reference)
    position = {int(number): index for index, number in enumerate(reference["passes"])}
    spread = X.std(axis=0)
    compared = []
    for done in published_passes(X, classes, start, max_iter=LAST_USABLE_PASS[name]):
        if done.number not in position:
            continue
        index = position[done.number]
        assert_allclose(done.parameters.weights, reference["weights"][index], RELATIVE, NEGLIGIBLE)
        # In units of each feature's spread, so that one absolute threshold fits all entries.
        assert_allclose(
            done.parameters.means / spread, reference["means"][index] / spread, RELATIVE, NEGLIGIBLE
        )
        assert_allclose(
            done.parameters.covariances / np.outer(spread, spread),
            reference["covariances"][index] / np.outer(spread, spread),
            RELATIVE,
            NEGLIGIBLE,
        )
        compared.append(done.number)
    assert compared == [number for number in position if 0 < number <= LAST_USABLE_PASS[name]]
    assert len(compared) >= 4


@pytest.mark.parametrize("name", LAST_USABLE_PASS)
def test_log_likelihoods_of_every_class_agree_in_every_pass(golden: Golden, name: str) -> None:
    reference = golden(name)["class_log_likelihood"]
    n_passes = LAST_USABLE_PASS[name]
    fit = fit_published(*start_of(golden(name)), max_iter=n_passes)
    relative = np.full((n_passes, 1), RELATIVE)
    if name == "fails_indefinite_9d":
        # A covariance of condition number 3e10 enters the last pass: six digits are left in its
        # inverse, and libraries of linear algebra differ beyond them.
        relative[-1] = 1e-7
    assert fit.class_log_likelihoods.shape == (n_passes, reference.shape[1])
    error = np.abs(fit.class_log_likelihoods / reference[:n_passes] - 1.0)
    assert (error < relative).all(), error.max(axis=1)


@pytest.mark.parametrize("name", CONVERGING)
def test_classes_latch_and_the_run_ends_in_the_same_pass(golden: Golden, name: str) -> None:
    fit = fit_published(*start_of(golden(name)))
    assert fit.n_iter == CONVERGING[name]
    assert_array_equal(fit.converged, golden(name)["converged"].astype(bool))
    assert fit.converged[-1].all()
    assert not fit.converged[0].any()
    assert fit.finite
    assert fit.failing_pass is None


def test_a_latched_class_stays_latched_while_it_moves(golden: Golden) -> None:
    fit = fit_published(*start_of(golden("digits_3d_latched")))
    last_move = np.abs(np.diff(fit.class_log_likelihoods, axis=0)[-1])
    assert fit.converged[-2].sum() == 9
    assert last_move[fit.converged[-2]].max() == pytest.approx(0.616, abs=1e-3)


@pytest.mark.parametrize("name", FAILING)
def test_failing_starts_fail_in_the_same_pass(golden: Golden, name: str) -> None:
    reference = golden(name)
    n_passes = len(reference["class_log_likelihood"])
    fit = fit_published(*start_of(reference), max_iter=n_passes)
    assert not fit.finite
    assert fit.failing_pass == FAILING[name]
    assert fit.n_iter == n_passes == FAILING[name] + 2
    assert_array_equal(fit.converged, reference["converged"].astype(bool))
    assert_array_equal(
        np.isfinite(fit.class_log_likelihoods).all(axis=1), np.arange(1, n_passes + 1) < FAILING[name]
    )
    assert np.isnan(fit.class_log_likelihoods[-1]).all()
    assert np.isnan(fit.parameters.means).all()


def test_a_failed_run_goes_on_to_the_last_pass_without_warning(golden: Golden) -> None:
    fit = fit_published(*start_of(golden("fails_flat_3d")), max_iter=30)
    assert fit.n_iter == 30
    assert not fit.converged[-1].all()


@pytest.mark.parametrize("name", ["illustration", "one_dimensional", "digits_3d"])
def test_total_never_falls_and_weights_sum_to_one(golden: Golden, name: str) -> None:
    passes = list(published_passes(*start_of(golden(name))))
    totals = np.array([done.class_log_likelihood.sum() for done in passes])
    assert (np.diff(totals) > -1e-9 * np.abs(totals[1:])).all()
    for done in passes:
        assert_allclose(done.parameters.weights.sum(axis=0), 1.0, rtol=1e-13)


def test_one_row_worked_by_hand() -> None:
    """Two unit kernels at 0 and 2, one row of each class: every number follows on paper."""
    X = np.array([[0.0], [2.0]])
    classes = np.array([0, 1])
    start = Parameters(
        weights=np.array([[0.5, 0.25], [0.5, 0.75]]),
        means=np.array([[0.0], [2.0]]),
        covariances=np.ones((2, 1, 1)),
    )
    after, class_log_likelihood = published_pass(X, classes, start)
    far = np.exp(-2.0)
    w_first = 1.0 / (1.0 + far)
    w_second = 0.25 * far / (0.25 * far + 0.75)
    mean = 2.0 * w_second / (w_first + w_second)
    variance = (w_first * mean**2 + w_second * (2.0 - mean) ** 2) / (w_first + w_second)
    assert_allclose(after.weights, [[w_first, w_second], [1.0 - w_first, 1.0 - w_second]], rtol=1e-14)
    assert after.means[0, 0] == pytest.approx(mean, rel=1e-14)
    assert after.covariances[0, 0, 0] == pytest.approx(variance, rel=1e-13)
    evidence = np.array([0.5 * (1.0 + far), 0.25 * far + 0.75]) / np.sqrt(2.0 * np.pi)
    assert_allclose(class_log_likelihood, np.log(evidence), rtol=1e-14)


def test_an_exactly_singular_covariance_spreads_nan_and_raises_nothing() -> None:
    X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    start = Parameters(
        weights=np.full((2, 1), 0.5),
        means=np.array([[0.0, 0.0], [1.0, 1.0]]),
        covariances=np.array([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]]),
    )
    fit = fit_published(X, np.zeros(3, dtype=np.intp), start, max_iter=5)
    assert fit.failing_pass == 1
    assert fit.n_iter == 5
    assert np.isnan(fit.parameters.means).all()


def test_inputs_are_left_alone(golden: Golden) -> None:
    X, classes, start = start_of(golden("one_dimensional"))
    before = start.copy()
    fit_published(X, classes, start, max_iter=3)
    assert_array_equal(start.weights, before.weights)
    assert_array_equal(start.means, before.means)
    assert_array_equal(start.covariances, before.covariances)


def test_a_larger_tolerance_ends_earlier_and_the_first_pass_never_latches(golden: Golden) -> None:
    fit = fit_published(*start_of(golden("one_dimensional")), tolerance=np.inf)
    assert fit.n_iter == 2
    assert_array_equal(fit.converged, [[False] * 3, [True] * 3])


def test_no_pass_is_refused(golden: Golden) -> None:
    with pytest.raises(ValueError, match="max_iter must be at least 1, got 0"):
        fit_published(*start_of(golden("one_dimensional")), max_iter=0)
