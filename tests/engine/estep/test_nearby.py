"""Passes that skip kernels are those of all kernels, and skip only what is provably irrelevant."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from clusters import elongated
from numpy.testing import assert_allclose, assert_array_equal

from skmix.engine.compute.threads import workers
from skmix.engine.estep import reference
from skmix.engine.estep.reference import Kernels, Rows
from skmix.engine.model import Parameters, Statistics
from skmix.engine.structures import structure_of

pytest.importorskip("llvmlite", reason="LLVM is not installed: there is no compiled code to test")
from skmix.engine.estep import compiled, nearby


def problem(
    n_features: int = 5,
    *,
    n_rows: int = 3000,
    n_kernels: int = 60,
    n_classes: int = 1,
    weighted: bool = False,
    spread: float = 12.0,
    ratio: float = 5.0,
) -> tuple[Rows, Kernels]:
    """Return rows around elongated kernels whose axes differ by up to `ratio`, at a typical distance."""
    random = np.random.default_rng(n_features)
    X, means, roots = elongated(random, n_rows, n_kernels, n_features, spread, ratio)
    structure, covariances = structure_of("full"), (roots @ roots.mT)[None]
    weights = random.dirichlet(np.ones(n_kernels), size=n_classes).T[None]
    rows = Rows(
        X,
        random.integers(n_classes, size=n_rows) if n_classes > 1 else None,
        random.uniform(0.5, 2.0, size=n_rows) if weighted else None,
        np.full(n_features, 0.5),
        0.1 * random.normal(size=n_features),
    )
    moved = means + 0.1 * random.normal(size=means.shape)
    parameters = Parameters(
        weights, moved[None] * rows.scale - rows.shift, structure.rescale(covariances, rows.scale)
    )
    factor = structure.factor(parameters.covariances, n_features)
    return rows, Kernels.of(parameters, factor, structure)


def assert_same(found: Statistics, expected: Statistics) -> None:
    """Compare statistics to 1e-9 of each kernel's largest number."""
    for name, value in vars(expected).items():
        if not len(value):  # there is no tail
            continue
        own = getattr(found, name)
        if name == "first":
            # First moments about the mean cancel: their unit is the spread, not their sum.
            own, value = (
                np.concatenate([a, expected.mass.sum(axis=-1)[..., None]], axis=-1) for a in (own, value)
            )
        scale = np.maximum(np.abs(value).max(axis=-1, keepdims=True), 1e-250)
        assert_allclose(own / scale, value / scale, rtol=0, atol=1e-9, err_msg=name)


def passes(
    rows: Rows, kernels: Kernels, n_passes: int = 3, *, n_jobs: int = 2, **options: Any
) -> list[Statistics]:
    """Return the statistics of some passes with the same kernels."""
    homes, found = None, []
    with workers(n_jobs) as pool:
        for _ in range(n_passes):
            one, homes = nearby.expect(rows, kernels, kernels.means, pool, homes, **options)
            found.append(one)
    return found


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list of the tiles of each pass that skips kernels."""
    tiles, evaluate = [], nearby._sums

    def watched(job: Any, pool: Any) -> Any:
        tiles.append(job.tiles)
        return evaluate(job, pool)

    monkeypatch.setattr(nearby, "_sums", watched)
    return tiles


# Loops over features are unrolled up to 16: code for each number takes seconds to compile.
@pytest.mark.parametrize("n_features", [5, 17])
def test_statistics_are_those_of_the_reference(n_features: int, seen: list[Any]) -> None:
    rows, kernels = problem(n_features, n_classes=3, weighted=True, spread=30.0)
    expected = reference.expect(rows, kernels, kernels.means)
    for found in passes(rows, kernels):
        assert_same(found, expected)
        # A weight whose rows were all skipped stays positive: zero would stay zero.
        assert np.all(found.mass > 0)
    *_, only = passes(rows, kernels, with_moments=False)
    assert len(seen) == 6
    assert_allclose(only.log_likelihood, expected.log_likelihood, rtol=1e-11)


def test_classes_without_some_kernels_far_rows_and_given_origins(seen: list[Any]) -> None:
    rows, kernels = problem(n_classes=4, weighted=True)
    log_weights = kernels.log_weights.copy()
    log_weights[0, :20, 1] = log_weights[0, 10:30, 2] = -np.inf
    log_weights[0, 7] = -np.inf
    kernels = replace(kernels, log_weights=log_weights)
    X = rows.X.copy()
    X[::97] *= 50.0
    X[5], X[6], X[7, 0] = 1e9, -1e30, 1e120
    rows = replace(rows, X=X)
    origins = kernels.means + 0.3
    expected = reference.expect(rows, kernels, origins)
    homes = None
    with workers(1) as pool:
        for _ in range(3):
            found, homes = nearby.expect(rows, kernels, origins, pool, homes)
            assert_same(found, expected)
            assert np.all(found.mass[0, 7] == 0.0)
            assert np.all(found.mass[0, :20, 1] == 0.0)
    assert len(seen) >= 3


@pytest.mark.parametrize("away", [1.0, 1.5])
def test_a_light_kernel_keeps_its_own_digits(away: float) -> None:
    rows, kernels = problem()
    means = kernels.means.copy()
    # Far from all rows, but not so far that it would be empty: EM moves it to them.
    means[0, 3] = means[0, 4] + away
    kernels = replace(kernels, means=means)
    expected = reference.expect(rows, kernels, kernels.means)
    assert 0.0 < expected.mass[0, 3, 0] < 1e-20
    for found in passes(rows, kernels):
        assert_same(found, expected)


def logs_of(rows: Rows, kernels: Kernels) -> tuple[np.ndarray, np.ndarray]:
    """Return log-densities and log-joints (K, N) of labelled rows."""
    densities = reference.log_densities(rows.cut(0, len(rows.X)) - kernels.means[..., None], kernels)[0][0]
    return densities, densities + kernels.log_weights[0][:, np.asarray(rows.codes)]


def skipped(rows: Rows, kernels: Kernels, tiles: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return which kernels (N, K) a pass skips, and all responsibilities times 1 + d² (N, K)."""
    absent = np.ones((len(rows.X), kernels.means.shape[1]), dtype=bool)
    for t, (first, count) in enumerate(zip(tiles.first, tiles.count, strict=True)):
        own = tiles.order[tiles.start[t] : tiles.start[t + 1]]
        absent[np.ix_(own, tiles.kernels[first : first + count])] = False
    densities, joint = logs_of(rows, kernels)
    shares = np.exp(joint - joint.max(axis=0))
    squares = -2.0 * (densities - kernels.constants[0][:, None])
    return absent, (shares / shares.sum(axis=0) * (1.0 + squares)).T


@pytest.mark.parametrize(("spread", "ratio"), [(12.0, 5.0), (5.0, 2.0), (30.0, 300.0), (4.0, 100.0)])
def test_every_skipped_kernel_is_irrelevant(spread: float, ratio: float, seen: list[Any]) -> None:
    rows, kernels = problem(n_classes=2, spread=spread, ratio=ratio)
    rows.X[::97] *= 50.0
    expected = reference.expect(rows, kernels, kernels.means)
    for found in passes(rows, kernels):
        assert_same(found, expected)
    # With homes that are the nearest means, and with those that are the most likely kernels.
    for tiles in (seen[0], seen[-1]):
        assert_array_equal(np.sort(tiles.order), np.arange(len(rows.X)))
        for first, count in zip(tiles.first, tiles.count, strict=True):
            assert len(np.unique(tiles.kernels[first : first + count])) == count
        absent, shares = skipped(rows, kernels, tiles)
        assert absent.mean() > 0.3
        assert shares[absent].max() < 1e-12 / kernels.means.shape[1]


def test_bits_do_not_depend_on_the_number_of_threads(seen: list[Any]) -> None:
    rows, kernels = problem(n_classes=2, weighted=True, spread=6.0, n_rows=20_000)
    results = [passes(rows, kernels, n_jobs=n_jobs) for n_jobs in (1, 3)]
    assert len(seen) == 6
    assert len(seen[0].block) > 5
    for one, other in zip(*results, strict=True):
        for name, value in vars(one).items():
            assert_array_equal(getattr(other, name), value)


def test_skipping_rests_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch, seen: list[Any]) -> None:
    tries, estimate = [], nearby._pays

    def watched(*given: Any) -> bool:
        tries.append(given)
        return estimate(*given)

    monkeypatch.setattr(nearby, "_pays", watched)
    rows, kernels = problem(spread=0.2)
    expected = reference.expect(rows, kernels, kernels.means)
    assert_same(passes(rows, kernels, 8)[-1], expected)
    # It waits for 1, 2, 4, … passes.
    assert len(tries) == 3
    assert not seen


def test_the_most_likely_kernels_are_those_of_the_reference() -> None:
    rows, kernels = problem(n_classes=3, spread=2.0)
    _, joint = logs_of(rows, kernels)
    found = compiled.Likeliest.empty(len(rows.X))
    with workers(2) as pool:
        compiled.expect(rows, kernels, kernels.means, pool, likeliest=found)
    assert_array_equal(found.kernel, joint.argmax(axis=0))
    assert_allclose(found.log_joint, joint.max(axis=0), rtol=1e-10)


def test_lists_that_fail_by_the_nearest_means_are_made_by_the_most_likely_kernels(
    monkeypatch: pytest.MonkeyPatch, seen: list[Any]
) -> None:
    rows, kernels = problem(n_classes=2)
    tries, make = [], nearby._list

    def fails_first(*given: Any) -> Any:
        tries.append(given)
        return make(*given) if len(tries) > 1 else None

    monkeypatch.setattr(nearby, "_list", fails_first)
    expected = reference.expect(rows, kernels, kernels.means)
    for found in passes(rows, kernels, 2):
        assert_same(found, expected)
    assert len(seen) == 1
