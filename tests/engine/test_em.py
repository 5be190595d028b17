"""The loop of EM: when it stops, what ends it as failed, snapshots, and extrapolation between passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from calls import fit
from libraries import needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from oracles import COVARIANCE_TYPES, random_model, random_rows, stack
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, open_rows
from skmix.engine import em, starts
from skmix.engine.em import RunState, is_done
from skmix.engine.model import FloatArray, IntArray, Options, Parameters, Regulariser, Status
from skmix.engine.refine import shift
from skmix.engine.rules.likelihood import Likelihood
from skmix.engine.rules.variational import Variational
from skmix.engine.sources import open_source
from skmix.engine.sources.blocks import BlockRows
from skmix.engine.sources.streamed import StreamedRows
from skmix.engine.sources.summary import measure
from skmix.engine.squarem import Squarem, _coordinates, _from_coordinates, unconstrained
from skmix.engine.structures import structure_of

# ---------------------------------------------------------------- stopping


def passes_until_done(stopping: Any, tol: float, log_likelihoods: Any, n_rows: int = 1) -> list[int]:
    """Return the pass, counted from 1, in which each start is done; 0 if never.

    Log-likelihoods are (passes, R, C), or (passes, C) of one start.
    """
    values = np.asarray(log_likelihoods, dtype=float)
    values = values[:, None] if values.ndim == 2 else values
    before, latched = np.full(values.shape[1:], np.inf), np.zeros(values.shape[1:], dtype=bool)
    found = np.zeros(values.shape[1], dtype=int)
    for number, now in enumerate(values, start=1):
        done, latched = is_done(Options(stopping=stopping, tol=tol), n_rows, now - before, latched)
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


# ---------------------------------------------------------------- passes that lower the objective

X, Y = random_rows(np.random.default_rng(0), 200, 2, 3)
KINDS = ["array", "gaps", "blocks", "tensor", "streamed"]


def source_of(kind: str) -> Any:
    """Return the rows as a source of that kind."""
    gappy = X.copy()
    gappy[::3, 1] = np.nan
    if kind in ("blocks", "streamed"):
        blocks = open_rows(X, label=Y, chunk_rows=60).coded(np.arange(2))
        return BlockRows(blocks) if kind == "blocks" else StreamedRows(blocks, "cpu")
    return open_source(torch.as_tensor(X) if kind == "tensor" else gappy if kind == "gaps" else X, Y)


def broken(kind: Any, after: int) -> Any:
    """Return an M-step that halves the distance of means from the origin from some pass on."""
    improve, calls = kind.improve, [0]

    def worse(self: Any, *given: Any) -> Any:
        found, *others = improve(self, *given)
        calls[0] += 1
        return (replace(found, means=0.5 * found.means) if calls[0] > after else found), *others

    return worse


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=needs_torch if k in KINDS[3:] else ()) for k in KINDS]
)
@pytest.mark.parametrize(
    "changed",
    [{}, {"accelerate": True}, {"weight_prior": "hierarchical"}, {"inference": "variational"}],
    ids=["plain", "accelerated", "hierarchical", "variational"],
)
def test_a_start_whose_objective_falls_fails_with_both_numbers(
    kind: str, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    start = stack([random_model(np.random.default_rng(1), 3, 2, 3)])
    options = Options(max_iter=8, tol=0.0, covariance_prior=5.0, **changed)
    assert em.fit(source_of(kind), start, options).status[0] == Status.STOPPED
    rule = Variational if "inference" in changed else Likelihood
    monkeypatch.setattr(rule, "improve", broken(rule, after=4))
    found = em.fit(source_of(kind), start, options)
    assert found.status[0] == Status.FAILED
    assert found.fell is not None
    before, after = found.fell[0]
    assert before > after
    assert found.n_iter[0] < 8


def test_the_last_pass_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    start = stack([random_model(np.random.default_rng(1), 3, 2, 3)])
    monkeypatch.setattr(Likelihood, "improve", broken(Likelihood, after=5))
    assert em.fit(open_source(X, Y), start, Options(max_iter=6, tol=0.0)).status[0] == Status.FAILED


def test_a_ridge_is_not_part_of_the_objective_and_may_lower_it() -> None:
    """scikit-learn's reg_covar widens kernels after the M-step."""
    starts = stack([random_model(np.random.default_rng(1), 6, 2, 3)])
    starts = em.fit(open_source(X, Y), starts, Options(max_iter=50, tol=0.0)).parameters
    found = em.fit(open_source(X, Y), starts, Options(max_iter=60, tol=0.0, ridge=1.0))
    assert np.diff(found.path[0].sum(axis=1)).min() < 0
    assert found.status[0] == Status.STOPPED


FELL = r"objective fell from -?\d+\.\d+ to -?\d+\.\d+ in one pass"


@pytest.mark.parametrize(
    ("estimator", "place"),
    [
        (SharedKernelMixture(3, random_state=0), (em.Passes, "step")),
        (SharedKernelMixture(3, random_state=0, group_shift=5.0), (shift, "improve")),
    ],
    ids=["mixture", "shifts"],
)
def test_estimators_say_that_the_objective_fell(
    estimator: Any, place: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, calls = getattr(*place), [0]

    def worse(*given: Any) -> Any:
        found, *others = whole(*given)
        calls[0] += 1
        return (replace(found, means=0.5 * found.means) if calls[0] == 2 else found), *others

    monkeypatch.setattr(*place, worse)
    with pytest.raises(ValueError, match=FELL):
        estimator.fit(X, Y)


def test_a_start_that_fell_is_left_out_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    improve = Likelihood.improve

    def worse(self: Likelihood, *given: Any) -> Any:
        found, *others = improve(self, *given)
        scale = np.where(np.arange(len(found.means)) == 1, 0.5, 1.0) if len(found.means) == 2 else np.ones(1)
        return replace(found, means=scale[:, None, None] * found.means), *others

    monkeypatch.setattr(Likelihood, "improve", worse)
    with pytest.warns(UserWarning, match="1 of 2 starts failed. The objective fell"):
        model = SharedKernelMixture(3, n_init=2, random_state=0, max_iter=500).fit(X, Y)
    assert model.start_status_.tolist() == ["converged", "failed"]


@pytest.mark.parametrize("seed", range(3))
def test_nearly_singular_covariances_may_lose_digits(seed: int) -> None:
    """Two features that are nearly the same, far from the origin: a good fit loses digits in each pass."""
    random, classes = np.random.default_rng(seed), np.repeat([0, 1], 200)
    one = random.normal(size=400) + 2.0 * classes
    rows = np.column_stack([one + 1e3, one + 1e3 + 1e-7 * random.normal(size=400)])
    settings: Any = {"variance_floor": 1e-14, "covariance_prior": None, "tol": 0.0, "max_iter": 40}
    model = SharedKernelMixture(4, random_state=0, **settings)
    with pytest.warns(ConvergenceWarning):
        model.fit(rows, np.where(random.uniform(size=400) < 0.3, -1, classes + 1))
    assert model.start_status_.tolist() == ["stopped"]


# ---------------------------------------------------------------- snapshots

Golden = Callable[[str], dict[str, NDArray[Any]]]


def states_of(X: Any, classes: Any, starts: Parameters, options: Options) -> tuple[list[RunState], Any]:
    """Return the state after every pass, as it comes back from plain values, and the result."""
    states: list[RunState] = []
    result = fit(X, classes, starts, options, callback=lambda run: states.append(run.state()))
    return [RunState.from_dict(asdict(state)) for state in states], result


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


# ---------------------------------------------------------------- extrapolation

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
        starts.k_means(X, classes, starts.Wanted(2, 4, 4, frame, structure, np.random.RandomState(0))),
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
