"""A fit that goes on from a snapshot of any pass ends like the one it was taken from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

from skmix.engine.em import RunState
from skmix.engine.model import Options, Parameters, Status

Golden = Callable[[str], dict[str, NDArray[Any]]]


def states_of(X: Any, classes: Any, starts: Parameters, options: Options) -> tuple[list[RunState], Any]:
    """Return the state after every pass, as it comes back from plain values, and the result."""
    states: list[RunState] = []
    result = fit(X, classes, starts, options, callback=lambda run: states.append(run.state()))
    return [RunState.from_dict(state.to_dict()) for state in states], result


def test_every_state_leads_to_the_same_end(golden: Golden) -> None:
    # The rule stops in pass 24, while a latched class still moves: who forgets that goes on.
    reference = golden("digits_3d_latched")
    X, classes = reference["X"], np.unique(reference["y"], return_inverse=True)[1]
    weights, means, covariances = (reference[name][0] for name in ("weights", "means", "covariances"))
    shifts = 0.02 * np.random.default_rng(0).normal(size=(4, *means.shape))
    shifts[0] = 0.0
    starts = Parameters(np.tile(weights, (4, 1, 1)), means + shifts, np.tile(covariances, (4, 1, 1, 1)))
    options = Options(floor=0.0, tol=0.1, stopping="per-class", max_iter=100)
    states, whole = states_of(X, classes, starts, options)
    assert whole.n_iter[0] == 24
    assert len(states) == whole.n_iter.max()
    assert len(set(whole.n_iter.tolist())) > 1
    for number in (1, 12, 21, 23, len(states)):
        taken = states[number - 1]
        assert taken.n_iter.max() == number
        resumed = fit(X, classes, starts, options, resume=taken)
        assert_array_equal(resumed.n_iter, whole.n_iter)
        assert_array_equal(resumed.status, whole.status)
        assert_allclose(resumed.objective, whole.objective, rtol=1e-11)
        assert_allclose(resumed.parameters.means, whole.parameters.means, rtol=1e-8, atol=1e-10)
        for path, other in zip(resumed.path, whole.path, strict=True):
            assert_allclose(path, other, rtol=1e-10)


def test_an_accelerated_fit_goes_on_to_the_bit() -> None:
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(150, 2)), rng.normal(size=(150, 2)) + 1.5])
    classes = np.repeat([0, 1], 150)
    starts = Parameters(np.full((4, 3, 2), 1 / 3), rng.normal(size=(4, 3, 2)), np.ones((4, 3, 2)))
    options = Options("diag", max_iter=400, tol=1e-7, accelerate=True)
    states, whole = states_of(X, classes, starts, options)
    leaps = [taken.squarem for taken in states]
    tried = np.array([each.tried for each in leaps if each is not None])
    # Some extrapolations are wasted, which repeats a row of the path; starts leave the batch one by one.
    assert tried.sum(axis=0).min() > 3
    assert any((np.diff(path, axis=0) == 0).all(axis=1).any() for path in whole.path)
    assert [len(path) for path in whole.path] == whole.n_iter.tolist()
    assert len(set(whole.n_iter.tolist())) > 1
    for taken in states[len(states) // 3 :: len(states) // 3][:2]:
        resumed = fit(X, classes, starts, options, resume=taken)
        assert_array_equal(resumed.n_iter, whole.n_iter)
        assert_array_equal(resumed.parameters.means, whole.parameters.means)
        assert_array_equal(resumed.parameters.covariances, whole.parameters.covariances)
        assert_array_equal(resumed.parameters.weights, whole.parameters.weights)
        for path, other in zip(resumed.path, whole.path, strict=True):
            assert_array_equal(path, other)


def test_the_total_rule_remembers_the_last_pass(golden: Golden) -> None:
    reference = golden("illustration")
    X, classes = reference["X"], np.unique(reference["y"], return_inverse=True)[1]
    start = Parameters(reference["weights"][0], reference["means"][0], reference["covariances"][0]).batch()
    options = Options(tol=1e-3)
    states, whole = states_of(X, classes, start, options)
    resumed = fit(X, classes, start, options, resume=states[-2])
    assert resumed.n_iter[0] == whole.n_iter[0] == len(states)


def test_a_saved_extrapolation_that_is_singular_is_taken_back() -> None:
    """It is not the start that failed: the fit goes on from its last EM step."""
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 1.5])
    starts = Parameters(np.full((1, 2, 1), 0.5), rng.normal(size=(1, 2, 2)), np.tile(np.eye(2), (1, 2, 1, 1)))
    options = Options(max_iter=300, tol=1e-6, accelerate=True)
    states, whole = states_of(X, None, starts, options)
    for tried, status in ((True, Status.CONVERGED), (False, Status.FAILED)):
        taken = next(s for s in states if s.squarem is not None and bool(s.squarem.tried[0]) == tried)
        assert taken.squarem is not None
        entering = replace(taken.squarem.entering, covariances=np.full((1, 2, 2, 2), np.nan))
        broken = replace(taken, squarem=replace(taken.squarem, entering=entering))
        resumed = fit(X, None, starts, options, resume=broken)
        assert resumed.status[0] == status
        if tried:
            assert_allclose(resumed.objective, whole.objective, rtol=1e-6)
