"""Groups with means of their own: passes against their equations, the maximum against a numerical one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from libraries import LIBRARIES, each_library, needs_torch
from numpy.testing import assert_allclose, assert_array_equal
from oracles import (
    COVARIANCE_TYPES,
    as_full,
    as_structure,
    expected_pass,
    random_model,
    responsibilities,
    total_log_likelihood,
)
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp
from scipy.stats import norm

from skmix.engine.em import fit
from skmix.engine.model import FloatArray, IntArray, Options, Parameters
from skmix.engine.refine.shift import GroupRows, Part, Shifted, choose_strength, shift_groups
from skmix.engine.sources import open_source
from skmix.engine.sources.streamed import StreamedRows
from skmix.engine.structures import structure_of
from skmix.io import open_rows

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


def shift(
    X: Any,
    groups: Any,
    start: Parameters,
    strength: float,
    options: Options,
    weights: Any = None,
    **given: Any,
) -> Shifted:
    source = open_source(X, groups, weights)
    structure = structure_of(options.covariance_type).of(start.covariances[None])
    rows = GroupRows(source, start.weights.shape[1])
    return shift_groups(rows, start, strength, options, source.summary.frame(structure))


def of_group(model: Parameters, shifts: FloatArray, j: int) -> Parameters:
    return replace(model, weights=model.weights[:, [j]], means=model.means + shifts[j])


def penalised(
    X: FloatArray, groups: IntArray, model: Parameters, shifts: FloatArray, r: float, kind: str
) -> float:
    """Return Σ log p(x | group) − r/2 Σ δᵀP⁻¹δ from its definition."""
    total = 0.0
    precisions = np.linalg.inv(as_full(model.covariances, kind, *model.means.shape))
    for j in range(len(shifts)):
        own = X[groups == j]
        codes = np.zeros(len(own), dtype=np.int64)
        total += total_log_likelihood(own, codes, of_group(model, shifts, j), kind).sum()
        total -= 0.5 * r * np.einsum("kd,kde,ke->", shifts[j], precisions, shifts[j])
    return total


def next_shifted(
    X: FloatArray, groups: IntArray, model: Parameters, shifts: FloatArray, r: float, kind: str
) -> tuple[Parameters, FloatArray]:
    """Do one pass row by row: textbook EM for means with a prior, by normal equations."""
    (n_groups, n_kernels, n_features), n_rows = shifts.shape, len(X)
    w = np.empty((n_rows, n_kernels))
    for j in range(n_groups):
        own = groups == j
        codes = np.zeros(own.sum(), dtype=np.int64)
        w[own] = responsibilities(X[own], codes, of_group(model, shifts, j), kind)
    weights = np.stack([w[groups == j].mean(axis=0) for j in range(n_groups)], axis=1)
    means, found = np.empty_like(model.means), np.empty_like(shifts)
    scatter = np.zeros((n_kernels, n_features, n_features))
    for k in range(n_kernels):
        # Unknowns μ, δ_1 … δ_L: weighted rows x = μ + δ_j, and r rows 0 = δ_j in each group.
        design = np.zeros((n_rows + n_groups, 1 + n_groups))
        design[:n_rows, 0] = 1.0
        design[np.arange(n_rows), 1 + groups] = 1.0
        design[n_rows:, 1:] = np.eye(n_groups)
        target = np.concatenate([X, np.zeros((n_groups, n_features))])
        root = np.sqrt(np.append(w[:, k], np.full(n_groups, r)))[:, None]
        solution = np.linalg.lstsq(root * design, root * target, rcond=None)[0]
        means[k], found[:, k] = solution[0], solution[1:]
        left = root * (target - design @ solution)
        scatter[k] = left.T @ left
    mass = w.sum(axis=0)[:, None, None]
    covariances = scatter.sum(axis=0) / n_rows if kind == "tied" else as_structure(scatter / mass, kind)
    return Parameters(weights, means, covariances), found


@pytest.mark.parametrize("strength", [0.3, 4.0, 100.0])
@pytest.mark.parametrize("kind", COVARIANCE_TYPES)
def test_passes_follow_their_equations(kind: str, strength: float) -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2, kind)
    model, shifts, values = start, np.zeros((3, 3, 2)), []
    for _ in range(4):
        values.append(penalised(X, groups, model, shifts, strength, kind))
        model, shifts = next_shifted(X, groups, model, shifts, strength, kind)
    values.append(penalised(X, groups, model, shifts, strength, kind))
    found = shift(X, groups, start, strength, replace(OPTIONS, covariance_type=kind, max_iter=4))
    assert_allclose(found.objective, values, rtol=1e-9)
    assert_allclose(found.shifts, shifts, rtol=1e-7, atol=1e-9)
    for name in ("weights", "means", "covariances"):
        assert_allclose(getattr(found.parameters, name), getattr(model, name), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("prior", [None, 5.0])
@pytest.mark.parametrize("kind", [*COVARIANCE_TYPES, "low_rank"])
def test_the_penalised_likelihood_never_falls(kind: str, prior: float | None) -> None:
    X, groups = shifted_rows(2, deviation=1.0)
    full = random_model(np.random.default_rng(3), 3, 3, 2)
    start = replace(full, covariances=structure_of(kind).from_full(full.covariances[None])[0])
    options = Options(covariance_type=kind, tol=0.0, max_iter=60, covariance_prior=prior)
    found = shift(X, groups, start, 2.0, options)
    assert len(found.objective) == 61
    assert np.diff(found.objective).min() > -1e-9
    assert found.objective[-1] > found.objective[0] + 1.0


def test_gaps_are_integrated_out_and_the_likelihood_never_falls() -> None:
    X, groups = shifted_rows(4)
    gaps = X.copy()
    gaps[np.random.default_rng(5).random(X.shape) < 0.3] = np.nan
    gaps[np.isnan(gaps).all(axis=1)] = 0.0
    start = random_model(np.random.default_rng(6), 3, 3, 2)
    found = shift(gaps, groups, start, 2.0, replace(OPTIONS, max_iter=40))
    assert np.diff(found.objective).min() > -1e-9
    precisions, total = np.linalg.inv(found.parameters.covariances), 0.0
    for j, own in enumerate(found.shifts):
        codes = np.zeros((groups == j).sum(), dtype=np.int64)
        total += expected_pass(gaps[groups == j], codes, of_group(found.parameters, found.shifts, j), "full")[
            1
        ]
        total -= np.einsum("kd,kde,ke->", own, precisions, own)
    assert_allclose(found.objective[-1], total, rtol=1e-9)


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
    found = shift(X, groups, model_of(start)[0], r, replace(OPTIONS, max_iter=500))
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


def test_frozen_kernels_stay_and_groups_move() -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    found = shift(X, groups, start, 4.0, replace(OPTIONS, freeze="kernels", max_iter=3))
    assert_allclose(found.parameters.means, start.means)
    assert_allclose(found.parameters.covariances, start.covariances)
    own = X[groups == 0]
    first = shift(X, groups, start, 4.0, replace(OPTIONS, freeze="kernels"))
    w = responsibilities(own, np.zeros(len(own), dtype=np.int64), of_group(start, np.zeros((1, 3, 2)), 0))
    mass = w.sum(axis=0)[:, None]
    assert_allclose(first.shifts[0], mass / (mass + 4.0) * (w.T @ own / mass - start.means))


def test_a_weight_of_two_is_two_rows() -> None:
    X, groups = shifted_rows()
    weights = np.random.default_rng(8).integers(1, 4, size=len(X))
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    options = replace(OPTIONS, max_iter=5)
    repeated = shift(np.repeat(X, weights, axis=0), np.repeat(groups, weights), start, 4.0, options)
    weighted = shift(X, groups, start, 4.0, options, weights.astype(np.float64))
    # Frames differ, as variances do.
    assert_allclose(weighted.shifts, repeated.shifts, rtol=1e-9, atol=1e-12)
    assert_allclose(weighted.objective, repeated.objective, rtol=1e-10)


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("kind", [*COVARIANCE_TYPES, "low_rank"])
def test_rows_in_blocks_are_the_rows_in_memory(kind: str, gaps: bool) -> None:
    X, groups = shifted_rows()
    if gaps:
        X[::5, 1] = np.nan
    weights = np.random.default_rng(9).uniform(0.5, 2.0, len(X))
    full = random_model(np.random.default_rng(1), 3, 3, 2)
    start = replace(full, covariances=structure_of(kind).from_full(full.covariances[None])[0])
    options = replace(OPTIONS, covariance_type=kind, max_iter=5)
    blocks = open_rows(X, label=groups, weight=weights, chunk_rows=23).coded(np.arange(3))
    found = shift(blocks, None, start, 4.0, options)
    expected = shift(X, groups, start, 4.0, options, weights)
    assert_allclose(found.shifts, expected.shifts, rtol=1e-8, atol=1e-10)
    assert_allclose(found.objective, expected.objective, rtol=1e-10)


@each_library
@pytest.mark.parametrize("gaps", [False, True])
def test_rows_of_other_libraries_are_the_same(library: str, gaps: bool) -> None:
    X, groups = shifted_rows()
    if gaps:
        X[::5, 1] = np.nan
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    found = shift(LIBRARIES[library](X), groups, start, 4.0, replace(OPTIONS, max_iter=5))
    expected = shift(X, groups, start, 4.0, replace(OPTIONS, max_iter=5))
    assert isinstance(found.shifts, np.ndarray)
    assert_allclose(found.shifts, expected.shifts, rtol=1e-7, atol=1e-9)


@needs_torch
def test_rows_that_are_streamed_to_a_device_are_refused() -> None:
    X, groups = shifted_rows()
    blocks = open_rows(X, label=groups).coded(np.arange(3))
    with pytest.raises(ValueError, match="streamed to a device"):
        GroupRows(StreamedRows(blocks, "cpu"), 3)


def test_every_row_is_held_out_in_one_fold() -> None:
    taken = [Part(3, fold, held_out=True).of(2, 100)[0] for fold in range(5)]
    assert_array_equal(np.sort(np.concatenate(taken)), np.arange(100))
    others = [Part(3, fold, held_out=False).of(2, 100)[0] for fold in range(5)]
    for own, rest in zip(taken, others, strict=True):
        assert_array_equal(np.sort(np.append(own, rest)), np.arange(100))


def test_held_out_rows_tell_whether_groups_are_shifted() -> None:
    for deviation, expected in ((0.0, [np.inf]), (0.6, [1.0, 3.0, 10.0])):
        X, groups = shifted_rows(10, deviation, sizes=(100,) * 6, spread=5.0)
        start = Parameters(
            np.full((3, 6), 1 / 3),
            5.0 * np.array([[0.0, 0.0], [2.0, 1.0], [-1.0, 2.0]]),
            np.tile(np.eye(2), (3, 1, 1)),
        )
        source = open_source(X, groups)
        frame = source.summary.frame(structure_of("full"))
        assert choose_strength(source, start, Options(), frame, seed=0) in expected


def test_groups_without_rows_keep_their_weights_and_common_means() -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 4, 2)
    found = shift(X, groups, start, 4.0, replace(OPTIONS, max_iter=3))
    assert not found.shifts[3].any()
    assert_allclose(found.parameters.weights[:, 3], start.weights[:, 3])


def test_all_folds_of_few_rows_are_held_out_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    X, groups = shifted_rows(sizes=(10, 10))
    start, seen = random_model(np.random.default_rng(1), 3, 2, 2), set()

    def watched(source: Any, n_groups: int, part: Part) -> GroupRows:
        seen.add((part.fold, part.held_out))
        return GroupRows(source, n_groups, part)

    monkeypatch.setattr("skmix.engine.refine.shift.GroupRows", watched)
    source = open_source(X, groups)
    choose_strength(source, start, replace(OPTIONS, floor=0.1), source.summary.frame(structure_of("full")), 0)
    assert seen == {(fold, held_out) for fold in range(5) for held_out in (False, True)}


def test_shifts_converge_where_a_row_gains_less_than_tol() -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    found = shift(X, groups, start, 4.0, Options(tol=1e-3, max_iter=500))
    gains = np.diff(found.objective[:-1]) / len(X)
    assert found.converged
    assert gains[-1] < 1e-3
    assert np.all(gains[:-1] >= 1e-3)


def test_weights_of_a_group_are_drawn_to_the_common_ones() -> None:
    """By m / (m + r) of the way, for m expected rows of the kernel, and then they are normalised."""
    X, _ = shifted_rows(sizes=(60,))
    start = random_model(np.random.default_rng(1), 3, 1, 2)
    anchor, source = np.array([0.1, 0.2, 0.7]), open_source(X, np.zeros(60, dtype=np.int64))
    frame = source.summary.frame(structure_of("full"))
    found = shift_groups(GroupRows(source, 1), start, 5.0, OPTIONS, frame, anchor=anchor)
    mass = responsibilities(X, np.zeros(60, dtype=np.int64), start, "full").sum(axis=0)
    expected = mass / (mass + 5.0) * mass / 60.0 + 5.0 / (mass + 5.0) * anchor
    assert_allclose(found.parameters.weights[:, 0], expected / expected.sum(), rtol=1e-8)


class Call(NamedTuple):
    """What a fit of the search was given: the parts of the rows, the start, the strength and the shifts."""

    part: Part
    judged: Part
    means: FloatArray
    strength: float
    shifts: FloatArray | None
    max_iter: int


def searched(
    monkeypatch: pytest.MonkeyPatch, gains: dict[float, float], noise: float = 0.0
) -> tuple[float, list[Call]]:
    """Return the strength of least loss and all fits, for gains of each part of held-out rows.

    Fits are replaced by stand-ins with these gains; `noise` is their deviation between parts. Means of a fit
    are those that it began with plus one, and its shifts are equal to the strength.
    """
    X, groups = shifted_rows()
    start, source = random_model(np.random.default_rng(1), 3, 3, 2), open_source(X, groups)
    frame, calls = source.summary.frame(structure_of("full")), list[Call]()
    deviations = np.random.default_rng(0).normal(size=(5, 20))
    deviations = (deviations - deviations.mean()) / deviations.std(ddof=1)

    def stand_in(rows: Any, begin: Any, strength: float, options: Options, _: Any, **given: Any) -> Shifted:
        judged, fold = given["judge"].part, rows.part.fold
        calls.append(Call(rows.part, judged, begin.means, strength, given["shifts"], options.max_iter))
        value = 1000.0 * fold + np.arange(20.0)
        if np.isfinite(strength):
            value = value + gains[strength] + noise * deviations[fold]
        own = replace(begin, means=begin.means + 1.0)
        return Shifted(own, np.full((3, 3, 2), strength), value, value, value, None, True)

    monkeypatch.setattr("skmix.engine.refine.shift.shift_groups", stand_in)
    return choose_strength(source, start, Options(), frame, 7), calls


def strengths(calls: list[Call], fold: int) -> list[float]:
    return [call.strength for call in calls if call.part.fold == fold]


def test_the_search_goes_on_until_two_strengths_in_a_row_are_worse(monkeypatch: pytest.MonkeyPatch) -> None:
    inf, tried = np.inf, [300.0, 100.0, 30.0, 10.0, 3.0, 1.0]
    for gains, best, n_tried in (
        ([1.0, 0.5, 2.0, 1.9, 1.8, 9.0], 30.0, 5),
        ([-1.0] * 6, inf, 2),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 1.0, 6),
    ):
        found, calls = searched(monkeypatch, dict(zip(tried, gains, strict=True)))
        assert found == best
        for fold in range(5):
            assert strengths(calls, fold) == [inf, *tried[:n_tried]]


def test_each_fit_of_the_search_begins_where_the_one_before_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = dict.fromkeys((300.0, 100.0, 30.0, 10.0, 3.0, 1.0), -1.0)
    _, calls = searched(monkeypatch, gains)
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    for fold in range(5):
        first, *others = [call for call in calls if call.part.fold == fold]
        assert first.shifts is None
        assert_array_equal(first.means, start.means)
        before = first
        for call in others:
            assert_array_equal(call.means, before.means + 1.0)
            assert_array_equal(call.shifts, np.full((3, 3, 2), before.strength))
            before = call
    for call in calls:
        fold = call.part.fold
        assert (call.part, call.judged) == (Part(7, fold, held_out=False), Part(7, fold, held_out=True))
        assert call.max_iter == 50


def test_shifts_must_gain_more_than_two_standard_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred parts of deviation one: a mean gain of 0.1 is one standard error."""
    for gain, expected in ((0.19, np.inf), (0.21, 300.0)):
        gains = dict.fromkeys((300.0, 100.0, 30.0, 10.0, 3.0, 1.0), 0.0) | {300.0: gain}
        assert searched(monkeypatch, gains, noise=1.0)[0] == expected


def test_of_many_rows_one_fold_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = shifted_rows()
    gains = dict.fromkeys((300.0, 100.0, 30.0, 10.0, 3.0, 1.0), 1.0)
    for enough, n_folds in ((len(X) + 1, 5), (len(X), 1)):
        monkeypatch.setattr("skmix.engine.refine.shift._ENOUGH_ROWS", enough)
        _, calls = searched(monkeypatch, gains)
        assert {call.part.fold for call in calls} == set(range(n_folds))


def test_few_rows_have_no_shifts_and_rows_without_a_group_are_refused() -> None:
    X, groups = shifted_rows()
    start = random_model(np.random.default_rng(1), 3, 3, 2)
    few = open_source(X[:9], groups[:9])
    assert choose_strength(few, start, Options(), few.summary.frame(structure_of("full")), 0) == np.inf
    with pytest.raises(ValueError, match="2 rows have no label"):
        GroupRows(open_source(X, np.where(np.arange(len(X)) < 2, -1, groups)), 3)


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
