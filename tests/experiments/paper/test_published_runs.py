"""The fast form of the published algorithm does what the oracle does, failures included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from skmix.engine.model import Parameters
from skmix.engine.published import fit_published, published_passes
from skmix.experiments.paper import Settings, StudyData
from skmix.experiments.paper.methods import fit_batch
from skmix.experiments.paper.published import REASONS, failure_reason, published_runs
from skmix.experiments.paper.variants import variant_of

Golden = Callable[[str], dict[str, NDArray[Any]]]


def paper_starts(n_starts: int, n_features: int, n_kernels: int = 10) -> Parameters:
    random = np.random.RandomState(0)
    return Parameters(
        np.full((n_starts, n_kernels, 10), 1.0 / n_kernels),
        random.uniform(size=(n_starts, n_kernels, n_features)),
        np.tile(0.3 * np.eye(n_features), (n_starts, n_kernels, 1, 1)),
    )


def passes_before_singularity(X: Any, classes: Any, start: Parameters, most: int) -> int:
    """Return how many passes the oracle makes before rounding alone decides the sign of a determinant."""
    number = 0
    for done in published_passes(X, classes, start, max_iter=most):
        covariances = done.parameters.covariances
        if not np.isfinite(covariances).all():
            return number
        deviations = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        if deviations.min() < 1e-6:
            return number
        correlations = covariances / (deviations[:, :, None] * deviations[:, None, :])
        if np.linalg.eigvalsh(correlations).min() < 1e-8:
            return number
        number = done.number
    return number


@pytest.mark.parametrize("name", ["3D", "6D"])
def test_runs_are_the_oracles(data: StudyData, name: str) -> None:
    """Undithered features, so that some runs fail.

    They are the same runs. A feature that is constant fails them in the same pass; in which pass a kernel of
    too few rows does is a matter of rounding, so there the parameters are compared before that begins.
    """
    X = np.ascontiguousarray(data.train_features[:, variant_of(name).columns[0]])
    starts = paper_starts(12, X.shape[1])
    runs = published_runs(X, data.train_labels, starts, max_iter=40)
    reasons = []
    for r, run in enumerate(runs):
        start = starts.take(r)
        oracle = fit_published(X, data.train_labels, start, max_iter=40)
        assert (run.failing_pass is None) == (oracle.failing_pass is None)
        compared = run
        if oracle.failing_pass is None:
            assert run.n_iter == oracle.n_iter
            assert run.converged == bool(oracle.converged[-1].all())
            assert run.log_likelihood == pytest.approx(oracle.class_log_likelihoods[-1].sum(), rel=1e-9)
        else:
            reasons.append(run.reason)
            assert np.isnan(run.log_likelihood)
            if run.reason == "constant feature":
                assert run.failing_pass == oracle.failing_pass
            sound = passes_before_singularity(X, data.train_labels, start, 40)
            assert 5 <= sound < oracle.failing_pass
            oracle = fit_published(X, data.train_labels, start, max_iter=sound)
            (compared,) = published_runs(X, data.train_labels, starts.take(slice(r, r + 1)), max_iter=sound)
        for field in ("weights", "means", "covariances"):
            np.testing.assert_allclose(
                getattr(compared.parameters, field), getattr(oracle.parameters, field), rtol=0, atol=1e-9
            )
    assert {"constant feature", "too few rows"} <= set(reasons)
    assert len(reasons) < len(runs)


def test_a_failed_run_keeps_what_entered_the_failing_pass(data: StudyData) -> None:
    X = np.ascontiguousarray(data.train_features[:, variant_of("3D").columns[0]])
    starts = paper_starts(12, 3)
    failed = [
        (r, run)
        for r, run in enumerate(published_runs(X, data.train_labels, starts, max_iter=40))
        if run.failing_pass is not None
    ]
    for r, run in failed:
        assert run.failing_pass is not None
        before = published_runs(
            X, data.train_labels, starts.take(slice(r, r + 1)), max_iter=run.failing_pass - 1
        )[0]
        assert before.failing_pass is None
        np.testing.assert_array_equal(run.parameters.covariances, before.parameters.covariances)
        assert run.n_iter == run.failing_pass
        assert not run.converged


@pytest.mark.parametrize(
    ("file", "failing_pass", "reason"),
    [
        ("fails_flat_3d", 13, "constant feature"),
        ("fails_indefinite_9d", 9, "too few rows"),
        ("fails_singular_9d", 15, None),
    ],
)
def test_failures_of_the_published_code(
    golden: Golden, file: str, failing_pass: int, reason: str | None
) -> None:
    """Its starts fail in the same pass, for the reason that its authors' numbers show."""
    case = golden(file)
    _, classes = np.unique(case["y"], return_inverse=True)
    start = Parameters(case["weights"][:1], case["means"][:1], case["covariances"][:1])
    (run,) = published_runs(case["X"], classes, start, max_iter=100)
    assert run.failing_pass == failing_pass
    assert not run.converged
    assert run.reason == reason if reason else run.reason in REASONS


def guilty_model(n_features: int) -> tuple[Parameters, NDArray[np.float64], NDArray[np.int64]]:
    """Two good kernels on forty rows of one class, ready to be spoilt."""
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


def test_reasons_are_told_apart() -> None:
    good, rows, sizes = guilty_model(3)
    flat = good.copy()
    flat.covariances[1, 2, 2] = 0.0
    assert failure_reason(flat, rows, sizes) == "constant feature"
    few = flat.copy()
    few.weights[:, 0] = 37 / 40, 3 / 40
    assert failure_reason(few, rows, sizes) == "too few rows"
    # A kernel of many rows whose features all vary: neither of the two roots.
    skewed = good.copy()
    skewed.covariances[1] = 1.0 + 1e-17 * np.eye(3)
    assert failure_reason(skewed, rows, sizes) == "overflow"
    # What another kernel looks like does not matter when it is not to blame.
    innocent = skewed.copy()
    innocent.weights[:, 0] = 2 / 40, 38 / 40
    assert failure_reason(innocent, rows, sizes) == "overflow"
    innocent = skewed.copy()
    innocent.covariances[0, 2, 2] = 1e-10
    assert failure_reason(innocent, rows, sizes) == "overflow"


def test_a_failed_group_fails_the_run(data: StudyData, settings: Settings) -> None:
    """In the product form one bad group is enough, and its reason is the run's."""
    plain = Settings(seed=settings.seed, dither="paper", train_per_digit=30, test_per_digit=10, max_iter=40)
    fits = fit_batch(data, variant_of("3Dx3D"), 10, "published", range(25), plain)
    failed = [fit for fit in fits if fit.reason]
    assert 0 < len(failed) < len(fits)
    assert all(len(fit.groups) == 2 and np.isnan(fit.log_likelihood) for fit in failed)
    assert all(fit.failing_pass is not None and not fit.converged for fit in failed)
