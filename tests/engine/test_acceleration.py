"""Extrapolation between passes: fewer of them, never lower, and nothing else changed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES

from skmix.engine import starts
from skmix.engine.model import FloatArray, IntArray, Options, Parameters, Regulariser
from skmix.engine.rules.likelihood import Likelihood
from skmix.engine.sources.summary import measure
from skmix.engine.squarem import Squarem, _coordinates, _from_coordinates, unconstrained
from skmix.engine.structures import structure_of

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


@cache
def overlapping(covariance_type: str) -> tuple[FloatArray, IntArray, Parameters]:
    random = np.random.default_rng(0)
    centres = 1.2 * random.normal(size=(4, 2))
    X = centres[random.integers(4, size=500)] + random.normal(size=(500, 2))
    classes = random.integers(2, size=500)
    structure = structure_of(covariance_type)
    frame = measure(X, structure)
    return (
        X,
        classes,
        starts.k_means_plus_plus(X, starts.Wanted(2, 4, 4, frame, structure, np.random.RandomState(0))),
    )


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_half_the_passes_lead_as_high_and_no_leap_lowers_a_start(covariance_type: str) -> None:
    X, classes, begin = overlapping(covariance_type)
    options = Options(covariance_type=covariance_type, max_iter=5000, tol=1e-7)
    plain = fit(X, classes, begin, options)
    slow = np.flatnonzero(plain.n_iter >= 100)
    assert len(slow) >= 2
    r = slow[0]
    half = replace(options, accelerate=True, tol=0.0, max_iter=int(plain.n_iter[r]) // 2)
    fast = fit(X, classes, begin.take(slice(r, r + 1)), half)
    # The stopping rule's own resolution: 1e-7 a row.
    assert fast.log_likelihood.sum() > plain.log_likelihood[r].sum() - 1e-7 * len(X)
    fast = fit(X, classes, begin, replace(options, accelerate=True))
    ends = fast.log_likelihood.sum(axis=1) - plain.log_likelihood.sum(axis=1)
    assert np.all(ends > -1e-7 * len(X))
    for path in fast.path:
        total = path.sum(axis=1)
        assert np.all(np.diff(total) > -1e-9 * np.abs(total[1:]))


@each_type
def test_coordinates_and_back_are_the_same_with_weights_of_zero(covariance_type: str) -> None:
    _, _, begin = overlapping(covariance_type)
    weights = begin.weights.copy()
    weights[:, :, 0] = 0.0, 0.5, 0.3, 0.2
    given, structure = replace(begin, weights=weights), structure_of(covariance_type)
    found = _from_coordinates(_coordinates(given, structure), given, structure)
    assert_allclose(found.weights, weights, rtol=1e-12)
    assert_allclose(found.means, given.means, rtol=1e-12)
    assert_allclose(found.covariances, given.covariances, rtol=1e-10, atol=1e-12)


def test_fits_leap_only_near_their_end_and_less_far_after_a_failure() -> None:
    """The state between passes of three starts: one gains much, one little, one leapt in vain."""
    _, _, begin = overlapping("full")
    state, n_rows = Squarem.begin(begin.take(slice(3))), 1000.0
    state.last[:], state.steps[:], state.limit[:] = -500.0, 2, 64.0
    state.tried[2], state.reached[2] = True, -499.0
    # A thousandth of a row's log-likelihood in a pass is little.
    objective = np.array([-498.9, -499.1, -499.5])
    wasted = state.wasted(objective, np.ones(3, dtype=bool), n_rows)
    assert wasted.tolist() == [False, False, True]
    assert state.steps.tolist() == [0, 2, 0]
    assert state.limit.tolist() == [64.0, 64.0, 16.0]
    assert state.last.tolist() == [-498.9, -499.1, -500.0]
    state.limit[2] = 5.0
    state.wasted(objective, np.ones(3, dtype=bool), n_rows)
    assert state.limit[2] == 4.0
    # What could not be factored is of no use, however high.
    assert state.wasted(np.zeros(3), np.zeros(3, dtype=bool), n_rows).tolist() == [False, False, True]


def test_an_accelerated_fit_ends_after_three_calm_passes_in_a_row() -> None:
    _, _, begin = overlapping("full")
    state = Squarem.begin(begin.take(slice(1)))
    calm, not_calm, no, yes = np.array([True]), np.array([False]), np.array([False]), np.array([True])
    passes = [(calm, no), (calm, no), (not_calm, no), (calm, no), (calm, no), (calm, yes), (calm, no)]
    ends = [bool(state.settled(done, wasted)[0]) for done, wasted in passes]
    assert ends == [False] * 6 + [True]


@each_type
def test_a_leap_is_that_of_the_scheme_in_its_coordinates(covariance_type: str) -> None:
    """θ₀ − 2αr + α²v with α = −‖r‖/‖v‖, unless the limit is shorter."""
    X, classes, begin = overlapping(covariance_type)
    structure = structure_of(covariance_type)
    passes = [begin.take(slice(1))]
    for n in (30, 31, 32):
        options = Options(covariance_type=covariance_type, max_iter=n, tol=0.0, floor=0.0)
        passes.append(fit(X, classes, begin.take(slice(1)), options).parameters)
    points = passes[1:]
    state = Squarem.begin(points[0])
    state.limit[:] = 1e6
    rule = Likelihood(structure, Regulariser(np.zeros(2), None, 0.0, np.eye(2), 1.0))
    proposal, good = state._extrapolate(rule, points, np.array([0]))

    def coordinates(model: Parameters) -> FloatArray:
        logs = np.log(model.weights).ravel()
        numbers = unconstrained(structure, model.covariances)
        return np.concatenate([logs, model.means.ravel(), numbers.ravel()])

    a, b, c = map(coordinates, points)
    r, v = b - a, c - 2 * b + a
    alpha = -np.linalg.norm(r) / np.linalg.norm(v)
    expected = a - 2 * alpha * r + alpha**2 * v
    assert good.all()
    assert alpha < -1.0
    found = coordinates(proposal)
    n_weights = points[0].weights.size
    # Weights are normalised afterwards.
    gap = (found - expected)[:n_weights].reshape(points[0].weights.shape[1:])
    assert_allclose(gap, np.broadcast_to(gap[:1], gap.shape), atol=1e-8)
    assert_allclose(found[n_weights:], expected[n_weights:], rtol=1e-7, atol=1e-9)


def test_an_accelerated_fit_ends_only_where_its_steps_gain_less_than_a_third_of_tol() -> None:
    """Its steps are shorter than they look from the gains of the extrapolations between them."""
    X, classes, begin = overlapping("full")
    fast = fit(X, classes, begin, Options(max_iter=500, tol=1e-4, accelerate=True))
    assert fast.n_iter.max() < 500
    for path in fast.path:
        assert np.all(np.abs(np.diff(path.sum(axis=1)))[-3:] < 0.3 * 1e-4 * len(X))


def test_after_a_pass_a_start_goes_on_leaps_or_returns() -> None:
    """Three starts: one whose steps are too few yet, one that is ready, and one whose leap was in vain."""
    X, classes, begin = overlapping("full")
    passes = [begin.take(slice(3))]
    for n in (10, 20, 21, 22):
        options = Options(max_iter=n, tol=0.0, floor=0.0)
        passes.append(fit(X, classes, begin.take(slice(3)), options).parameters)
    _, retreat, older, entered, following = passes
    structure = structure_of("full")
    rule = Likelihood(structure, Regulariser(np.zeros(2), None, 0.0, np.eye(2), 1.0))
    state = Squarem.begin(begin.take(slice(3)))
    state.retreat, state.older, state.limit[:] = retreat, older, 1e6
    state.steps[:], state.tried[2] = [0, 1, 5], True
    proposal, good = state._extrapolate(rule, [p.take([1]) for p in (older, entered, following)], [1])
    assert good.all()
    state.limit[:] = 1e6
    wasted, objective = np.array([False, False, True]), np.array([-1.0, -2.0, -3.0])
    factor = structure.factor(following.covariances, 2)
    found, new = state.onward(rule, entered, following, factor, objective, wasted)
    for r, expected in enumerate((following.take(0), proposal.take(0), retreat.take(2))):
        for name in ("weights", "means", "covariances"):
            assert_allclose(getattr(found, name)[r], getattr(expected, name), rtol=1e-12)
    expected_factor = structure.factor(found.covariances, 2)
    assert_allclose(new.whitener, expected_factor.whitener, rtol=1e-9)
    assert_allclose(new.log_determinant, expected_factor.log_determinant, rtol=1e-9)
    assert state.tried.tolist() == [False, True, False]
    assert state.steps.tolist() == [1, 2, 0]
    assert state.reached[1] == -2.0
    assert_array_equal(state.older.means, entered.means)
    assert_array_equal(state.retreat.means[1], following.means[1])
    assert_array_equal(state.entering.means, found.means)
