"""The published algorithm against the numbers of the published code, to convergence and into failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from skmix.paper import Settings, published_pass, published_passes, published_run
from skmix.paper.methods import fit_batch
from skmix.paper.published import REASONS, failure_reason
from skmix.paper.records import StudyData
from skmix.paper.variants import variant_of
from skmix.theory import Parameters

Golden = Callable[[str], dict[str, NDArray[Any]]]

CONVERGING = {"illustration": 12, "one_dimensional": 26, "digits_3d": 18, "digits_3d_latched": 24}
FAILING = {"fails_flat_3d": 13, "fails_singular_9d": 15, "fails_indefinite_9d": 9}
LAST_USABLE_PASS = CONVERGING | {name: number - 1 for name, number in FAILING.items()}

RELATIVE = 1e-9
# Below this share of its natural scale a number is the rounding left by a cancellation.
NEGLIGIBLE = 1e-12


def start_of(reference: dict[str, NDArray[Any]]) -> tuple[NDArray[Any], NDArray[np.intp], Parameters]:
    """Return rows, classes and starting parameters of a golden file."""
    classes = np.unique(reference["y"], return_inverse=True)[1]
    start = Parameters(reference["weights"][0], reference["means"][0], reference["covariances"][0])
    return reference["X"], classes, start


@pytest.mark.parametrize("name", LAST_USABLE_PASS)
def test_every_pass_agrees_with_the_published_code(golden: Golden, name: str) -> None:
    reference, n_passes = golden(name), LAST_USABLE_PASS[name]
    X, classes, start = start_of(reference)
    position = {int(number): index for index, number in enumerate(reference["passes"])}
    # In units of each feature's spread, so that one absolute threshold fits all entries.
    spread = X.std(axis=0)
    units = {"weights": 1.0, "means": spread, "covariances": np.outer(spread, spread)}
    passes = list(published_passes(X, classes, start, max_iter=n_passes))
    assert len(passes) == n_passes
    stored = [done for done in passes if done.number in position]
    assert len(stored) >= 4
    for done in stored:
        for part, unit in units.items():
            expected = reference[part][position[done.number]]
            assert_allclose(getattr(done.parameters, part) / unit, expected / unit, RELATIVE, NEGLIGIBLE)
    relative = np.full((n_passes, 1), RELATIVE)
    if name == "fails_indefinite_9d":
        # A covariance of condition number 3e10 enters the last pass: six digits are left in its
        # inverse, and libraries of linear algebra differ beyond them.
        relative[-1] = 1e-7
    found = np.stack([done.class_log_likelihood for done in passes])
    assert (np.abs(found / reference["class_log_likelihood"][:n_passes] - 1.0) < relative).all()


@pytest.mark.parametrize("name", CONVERGING)
def test_classes_converge_and_the_run_ends_in_the_same_pass(golden: Golden, name: str) -> None:
    reference = golden(name)
    passes = list(published_passes(*start_of(reference)))
    assert len(passes) == CONVERGING[name]
    assert_array_equal([done.converged for done in passes], reference["converged"].astype(bool))
    run = published_run(*start_of(reference))
    assert (run.n_iter, run.converged, run.failing_pass) == (CONVERGING[name], True, None)
    assert run.log_likelihood == pytest.approx(reference["class_log_likelihood"][-1].sum(), rel=RELATIVE)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("fails_flat_3d", "constant feature"),
        ("fails_indefinite_9d", "too few rows"),
        ("fails_singular_9d", None),
    ],
)
def test_a_failed_run_ends_in_the_failing_pass(golden: Golden, file: str, reason: str | None) -> None:
    """With the parameters before that pass, and the reason that the authors' numbers show."""
    X, classes, start = start_of(golden(file))
    run = published_run(X, classes, start)
    assert run.failing_pass == run.n_iter == FAILING[file]
    assert not run.converged
    assert np.isnan(run.log_likelihood)
    assert run.reason == reason if reason else run.reason in REASONS
    # NaN spreads in the passes after it.
    passes = list(published_passes(X, classes, start, max_iter=FAILING[file] + 2))
    assert [done.finite for done in passes] == [done.number < FAILING[file] for done in passes]
    assert_array_equal([done.converged for done in passes], golden(file)["converged"].astype(bool))
    assert np.isnan(passes[-1].class_log_likelihood).all()
    assert np.isnan(passes[-1].parameters.means).all()
    before = published_run(X, classes, start, max_iter=FAILING[file] - 1)
    assert before.failing_pass is None
    assert_array_equal(run.mixtures[0].covariances, before.mixtures[0].covariances)


def test_an_exactly_singular_covariance_spreads_nan_and_raises_nothing() -> None:
    X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 2.0]])
    covariances = np.stack([np.eye(2), np.ones((2, 2))])
    start = Parameters(np.full((2, 1), 0.5), np.array([[0.0, 0.0], [1.0, 1.0]]), covariances)
    after, class_log_likelihood = published_pass(X.T, np.array([3]), start)
    assert np.isnan(after.means).all()
    assert np.isnan(class_log_likelihood).all()


def failing_model(n_features: int) -> tuple[Parameters, NDArray[np.float64], NDArray[np.int64]]:
    """Return two regular kernels on forty rows of one class, to be made singular."""
    rows = np.random.RandomState(0).normal(size=(n_features, 40))
    return (
        Parameters(
            np.array([[0.5], [0.5]]),
            np.zeros((2, n_features)),
            np.tile(np.eye(n_features), (2, 1, 1)),
        ),
        rows,
        np.array([40]),
    )


def test_reasons_are_distinguished() -> None:
    good, rows, sizes = failing_model(3)
    flat = good.copy()
    flat.covariances[1, 2, 2] = 0.0
    assert failure_reason(flat, rows, sizes) == "constant feature"
    few = flat.copy()
    few.weights[:, 0] = 37 / 40, 3 / 40
    assert failure_reason(few, rows, sizes) == "too few rows"
    # Responsibilities rarely add up to a whole number: half a row more than features is still too few.
    for rows_of_kernel, reason in ((3.4, "too few rows"), (3.6, "constant feature")):
        few.weights[:, 0] = 1 - rows_of_kernel / 40, rows_of_kernel / 40
        assert failure_reason(few, rows, sizes) == reason
    # A kernel of many rows whose features all vary: neither of the two roots.
    skewed = good.copy()
    skewed.covariances[1] = 1.0 + 1e-17 * np.eye(3)
    assert failure_reason(skewed, rows, sizes) == "overflow"
    # A kernel whose densities are finite does not matter.
    finite_one = skewed.copy()
    finite_one.weights[:, 0] = 2 / 40, 38 / 40
    assert failure_reason(finite_one, rows, sizes) == "overflow"
    finite_one = skewed.copy()
    finite_one.covariances[0, 2, 2] = 1e-10
    assert failure_reason(finite_one, rows, sizes) == "overflow"


def test_a_failed_feature_set_fails_the_run(data: StudyData, settings: Settings) -> None:
    """In the product form one failure is enough, and its reason is the run's."""
    plain = Settings(seed=settings.seed, dither="paper", train_per_digit=30, test_per_digit=10, max_iter=40)
    fits = fit_batch(data, variant_of("3Dx3D"), 10, "published", range(25), plain)
    failed = [fit for fit in fits if fit.reason]
    assert 0 < len(failed) < len(fits)
    assert all(len(fit.mixtures) == 2 and np.isnan(fit.log_likelihood) for fit in failed)
    assert all(fit.failing_pass is not None and not fit.converged for fit in failed)
