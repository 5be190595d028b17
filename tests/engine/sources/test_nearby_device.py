"""Passes that skip kernels on a device are those of all kernels, and skip only irrelevant ones."""

from __future__ import annotations

import sys
import warnings
import weakref
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from calls import fit
from clusters import elongated
from libraries import LIBRARIES, needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal

from skmix.engine.compute.arrays import operations_of, recorded, to_numpy
from skmix.engine.compute.threads import Workers
from skmix.engine.covariances import structure_of
from skmix.engine.em import one_pass, rule_of
from skmix.engine.model import Factor, Options, Parameters, Statistics
from skmix.engine.sources import Setting, device, nearby_device
from skmix.engine.sources.device import DeviceRows, OptimisticStep
from skmix.engine.sources.masked import moved
from skmix.engine.sources.memory import MemoryRows
from skmix.engine.sources.summary import measure

pytestmark = needs_torch
FULL = structure_of("full")


@pytest.fixture(
    autouse=True,
    params=[
        "torch",
        pytest.param("cuda", marks=pytest.mark.skipif("cuda" not in LIBRARIES, reason="no CUDA device")),
    ],
)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the rows of problems are."""
    monkeypatch.setattr(Problem, "send", staticmethod(LIBRARIES[request.param]))
    name: str = request.param
    return name


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let passes skip kernels whatever their number."""
    monkeypatch.setattr(device, "MANY", 1)
    monkeypatch.setattr(device, "WORTH_SKIPPING", 1)


@dataclass(frozen=True)
class Problem:
    """Rows around elongated kernels, and kernels near these, in the frame."""

    X: np.ndarray
    codes: np.ndarray | None
    weights: np.ndarray | None
    parameters: Parameters
    setting: Setting
    send: ClassVar[Any] = None  # returns an array as one of the library

    @property
    def rows(self) -> DeviceRows:
        """New rows on the device."""
        return DeviceRows(self.send(self.X), self.codes, self.weights)

    def entered(self, source: Any) -> tuple[Parameters, Factor]:
        """Parameters and their factor, where the passes of a source run."""
        inside = self.parameters.map(source.to_device)
        return inside, FULL.factor(inside.covariances, self.X.shape[1])

    def reference(self, centres: Any = None) -> Statistics:
        """The statistics about the means, or about centres, in NumPy."""
        rows = MemoryRows(self.X, self.codes, self.weights)
        return rows.expect(*self.entered(rows), self.setting, centres)[0]


def problem(
    n_features: int = 5,
    *,
    n_rows: int = 4000,
    n_kernels: int = 60,
    n_classes: int = 1,
    weighted: bool = False,
    spread: float = 12.0,
    ratio: float = 5.0,
    precision: str = "float64",
) -> Problem:
    """Return kernels whose axes differ by up to `ratio`; the last of several classes is unlabelled rows."""
    random = np.random.default_rng(n_features)
    X, means, roots = elongated(random, n_rows, n_kernels, n_features, spread, ratio)
    codes = None
    if n_classes > 1:
        codes = random.integers(n_classes - 1, size=n_rows)
        codes[::7] = -1
    weights = random.dirichlet(np.ones(n_kernels), size=n_classes).T[None]
    moved_means = means + 0.1 * random.normal(size=means.shape)
    parameters = Parameters(weights, moved_means[None], (roots @ roots.mT)[None])
    frame = measure(X, FULL)
    return Problem(
        X,
        codes,
        random.uniform(0.5, 2.0, size=n_rows) if weighted else None,
        frame.enter(parameters, FULL),
        Setting(frame, FULL, Workers(1), precision),
    )


def passes(given: Problem, n_passes: int = 3, centres: Any = None, **options: Any) -> list[Statistics]:
    """Return the statistics of passes with the same kernels, all of which skip some."""
    source, found = given.rows, []
    for _ in range(n_passes):
        statistics, origins = source.expect(*given.entered(source), given.setting, centres, **options)
        assert skips(source)
        expected = given.parameters.means if centres is None else centres[1]
        assert_array_equal(to_numpy(origins), expected)
        found.append(statistics.map(to_numpy))
    return found


def skips(source: DeviceRows) -> bool:
    """Return whether the last pass skipped kernels."""
    assert source._framed is not None
    return source._framed.nearby._home is not None


def assert_same(found: Statistics, expected: Statistics, tolerance: float = 1e-9) -> None:
    """Compare statistics in units of each kernel's largest number."""
    for name, value in vars(expected).items():
        if value is None:
            continue
        own = getattr(found, name)
        if name == "first":
            # First moments about the mean cancel: their unit is the spread, not their sum.
            own, value = (
                np.concatenate([a, expected.mass.sum(axis=-1)[..., None]], axis=-1) for a in (own, value)
            )
        scale = np.maximum(np.abs(value).max(axis=-1, keepdims=True), 1e-250)
        assert_allclose(own / scale, value / scale, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("n_features", [3, 5, 16, 17])
def test_statistics_are_those_of_the_reference_and_of_all_kernels(
    n_features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = problem(n_features, n_classes=4, weighted=True, spread=40.0 if n_features == 3 else 12.0)
    expected = given.reference()
    for found in passes(given):
        assert_same(found, expected)
    only = passes(given, moments=False)[-1]
    assert_allclose(only.log_likelihood, expected.log_likelihood, rtol=1e-11)
    monkeypatch.setattr(device, "MANY", 1000)
    source = given.rows
    parameters, factor = given.entered(source)
    dense, origins = source.expect(parameters, factor, given.setting)
    assert_same(found, moved(dense, origins, parameters.means, FULL).map(to_numpy))


@pytest.mark.parametrize("spread", [0.5, 3.0, 5.0])
@pytest.mark.parametrize("ratio", [1.0, 100.0])
def test_statistics_of_kernels_that_overlap(spread: float, ratio: float) -> None:
    given = problem(spread=spread, ratio=ratio)
    expected, source = given.reference(), given.rows
    parameters, factor = given.entered(source)
    for _ in range(3):
        found, origins = source.expect(parameters, factor, given.setting)
        assert_same(moved(found, origins, parameters.means, FULL).map(to_numpy), expected)


def test_chunks_do_not_change_the_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(n_classes=3, weighted=True)
    whole = passes(given)[-1]
    monkeypatch.setattr(nearby_device, "_HELD", 1 << 20)
    monkeypatch.setattr(operations_of(given.rows.X), "chunk", 1 << 12)
    assert_same(passes(given)[-1], whole, 1e-12)


def test_chunks_leave_no_sums_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    from skmix.engine.compute.torch import Segments

    given, made, alive = problem(), [], []
    add_up = Segments.sum

    def watched(self: Segments, values: Any) -> Any:
        found = add_up(self, values)
        if found.shape == (60, 5 + 25 + 1):
            alive.append(sum(each() is not None for each in made))
            made.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Segments, "sum", watched)
    monkeypatch.setattr(nearby_device, "_HELD", 1 << 20)
    monkeypatch.setattr(operations_of(given.rows.X), "chunk", 1 << 14)
    passes(given, 1)
    assert len(made) > 10
    assert max(alive) == 0


def test_classes_without_some_kernels_far_rows_and_given_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_device, "_MOST_PAIRS", 0.7)
    monkeypatch.setattr(nearby_device, "_MOST_CANDIDATES", 1.0)
    given = problem(n_classes=4, weighted=True, n_rows=8000)
    weights = given.parameters.weights.copy()
    weights[0, :20, 1] = weights[0, 10:30, 2] = weights[0, 7] = 0.0
    X = given.X.copy()
    X[::997] *= 50.0
    X[5], X[6] = 1e9, -1e30
    given = replace(given, X=X, parameters=replace(given.parameters, weights=weights))
    chosen = np.zeros((1, 60), dtype=bool)
    chosen[0, ::2] = True
    centres = chosen, np.where(chosen[..., None], given.parameters.means + 0.3, given.parameters.means)
    there = tuple(given.send(each) for each in centres)
    expected, source = given.reference(centres), given.rows
    for _ in range(3):
        found, _ = source.expect(*given.entered(source), given.setting, there)
        assert skips(source)
        assert_same(found.map(to_numpy), expected)
        assert np.all(to_numpy(found.mass)[0, 7] == 0.0)
        assert np.all(to_numpy(found.mass)[0, :20, 1] == 0.0)


def test_a_light_kernel_keeps_its_own_digits() -> None:
    given = problem()
    means = given.parameters.means.copy()
    # Far from all rows, but not so far that it would be empty: EM moves it to them.
    means[0, 3] = means[0, 4] + 0.17
    given = replace(given, parameters=replace(given.parameters, means=means))
    expected = given.reference()
    assert 0.0 < expected.mass[0, 3, 0] < 1e-20
    for found in passes(given):
        assert_same(found, expected)


def test_weights_of_which_all_rows_were_skipped_stay_positive() -> None:
    given = problem(n_classes=2, spread=30.0)
    # No row with a label is near the first kernels.
    means = given.setting.frame.leave(given.parameters, FULL).means[0]
    nearest = np.square(given.X[:, None] - means).sum(axis=-1).argmin(axis=1)
    given = replace(given, codes=np.where(nearest < 5, -1, 0))
    found = passes(given)[-1]
    assert np.all(found.mass > 0)
    assert_allclose(found.mass, given.reference().mass, atol=1e-9)


def skipped(given: Problem, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """Return which kernels (N, K) a pass skips, and all responsibilities times 1 + d² (N, K)."""
    seen = []
    evaluate = nearby_device._evaluate

    def watched(tiles: Any, pairs: Any, kernels: Any) -> Any:
        seen.append((tiles, pairs))
        return evaluate(tiles, pairs, kernels)

    monkeypatch.setattr(nearby_device, "_evaluate", watched)
    passes(given)
    tiles, pairs = seen[-1]
    n_rows, n_kernels = len(given.X), given.parameters.means.shape[1]
    lists = np.zeros((len(tiles.home), n_kernels), dtype=bool)
    lists[to_numpy(pairs.tile)[to_numpy(pairs.alive)], to_numpy(pairs.kernel)[to_numpy(pairs.alive)]] = True
    absent = np.ones((n_rows, n_kernels), dtype=bool)
    absent[to_numpy(tiles.order)] = ~lists[to_numpy(tiles.place) // nearby_device._TILE]
    codes = (
        np.zeros(n_rows, dtype=int)
        if given.codes is None
        else given.codes % given.parameters.weights.shape[-1]
    )
    order = np.argsort(codes, kind="stable")
    frame, parameters = given.setting.frame, given.parameters
    x = (given.X / frame.scale - frame.shift)[order]
    factor = FULL.factor(parameters.covariances, x.shape[1])
    white = np.einsum("kde,nke->nkd", factor.whitener[0], x[:, None] - parameters.means[0])
    squares = np.sum(white**2, axis=-1)
    joint = np.log(parameters.weights[0].T[codes[order]]) - 0.5 * (squares + factor.log_determinant[0])
    shares = np.exp(joint - joint.max(axis=1, keepdims=True))
    return absent, shares / shares.sum(axis=1, keepdims=True) * (1.0 + squares)


@pytest.mark.parametrize(("spread", "ratio"), [(12.0, 5.0), (6.0, 2.0), (30.0, 300.0)])
def test_every_skipped_kernel_is_irrelevant(
    spread: float, ratio: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearby_device, "_MOST_PAIRS", 0.7)
    monkeypatch.setattr(nearby_device, "_MOST_CANDIDATES", 1.0)
    given = problem(n_classes=3, spread=spread, ratio=ratio)
    absent, shares = skipped(given, monkeypatch)
    assert absent.mean() > 0.3
    assert shares[absent].max() < 1e-12 / given.parameters.means.shape[1]


@pytest.mark.parametrize("what", ["limit", "radius"])
def test_a_bound_that_skips_too_much_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(spread=6.0, n_kernels=100)
    monkeypatch.setattr(nearby_device, "_MOST_PAIRS", 0.7)
    monkeypatch.setattr(nearby_device, "_MOST_CANDIDATES", 1.0)
    if what == "limit":
        monkeypatch.setattr(nearby_device, "SKIPPED", 1e3)
    else:
        measured = nearby_device._measure
        monkeypatch.setattr(
            nearby_device,
            "_measure",
            lambda *given: replace(measured(*given), radius=0.0 * measured(*given).radius),
        )
    absent, shares = skipped(given, monkeypatch)
    assert shares[absent].max() > 1e-12
    with pytest.raises(AssertionError):
        assert_same(passes(given)[-1], given.reference())


def test_single_precision_keeps_five_digits() -> None:
    given = problem(n_classes=2, precision="float32")
    expected = replace(given, setting=replace(given.setting, precision="float64")).reference()
    found = passes(given)[-1]
    assert_same(found, expected, 1e-4)
    with pytest.raises(AssertionError):
        assert_same(found, expected)


def test_a_pass_gives_the_same_bits_every_time() -> None:
    given = problem(n_classes=2, weighted=True, spread=6.0)
    one, other = passes(given), passes(given)
    for name, value in vars(one[-1]).items():
        assert_array_equal(getattr(other[-1], name), value)


@pytest.mark.parametrize("piece", [1, 7, 64])
def test_segments_are_reduced(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from skmix.engine.compute import torch as module

    monkeypatch.setattr(module, "_PIECE", piece)
    random = np.random.default_rng(piece)
    lengths = np.array([0, 3, 0, 64, 128, 1, 0, 200, 7, 0])
    values = random.normal(size=(lengths.sum() + 31, 3))  # the last ones belong to no segment
    there = Problem.send(values)
    segments = operations_of(there).segments(Problem.send(lengths), len(values))
    ends = np.cumsum(lengths)
    for a, b, total, largest in zip(
        ends - lengths,
        ends,
        to_numpy(segments.sum(there)),
        to_numpy(segments.max(there)),
        strict=True,
    ):
        assert_allclose(total, values[a:b].sum(axis=0), atol=1e-12)
        assert_array_equal(largest, values[a:b].max(axis=0, initial=-np.inf))


# ---------------------------------------------------------------- from pass to pass


def step_of(given: Problem, source: DeviceRows) -> Any:
    """Return a pass of EM."""
    rule = rule_of(Options(), given.setting, given.parameters.means.shape[1], source)

    def step(parameters: Parameters, factor: Factor) -> Any:
        return one_pass(source, given.setting, rule, parameters, factor)

    return step


def test_optimistic_passes_read_nothing_and_notice_too_many_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    given, reads = problem(n_rows=8000), []
    source = given.rows
    monkeypatch.setattr(nearby_device, "to_numpy", lambda count: reads.append(1) or to_numpy(count))
    step = step_of(given, source)
    optimistic, state = OptimisticStep(step, source), given.entered(source)
    for number in range(8):
        state = optimistic(*state)[:2]
        if number == 3:
            reads.clear()
    assert skips(source)
    assert not reads
    nearby = source._framed.nearby
    before = nearby.assumed
    nearby._capacities[:] = 8, 8
    expected = step_of(given, other := given.rows)(*state)
    assert skips(other)
    found = optimistic(*state)
    assert len(reads) == 2 + 2  # of both passes
    assert skips(source)
    assert nearby.assumed == before
    for name in ("weights", "means", "covariances"):
        own, value = (to_numpy(getattr(each[0], name)) for each in (found, expected))
        assert_allclose(own, value, atol=1e-11, err_msg=name)


def test_a_repeated_pass_has_room_for_more_pairs(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_device, "_ROUND", 8)
    monkeypatch.setattr(nearby_device, "_MOST_PAIRS", 0.7)
    monkeypatch.setattr(nearby_device, "_MOST_CANDIDATES", 1.0)
    given = problem(n_rows=8000)
    source = given.rows
    optimistic, start = OptimisticStep(step_of(given, source), source), given.entered(source)
    with warnings.catch_warnings():
        # All that a capture that failed gives is a warning.
        warnings.simplefilter("error", RuntimeWarning)
        for _ in range(8):
            optimistic(*start)
        nearby = source._framed.nearby
        before, homes = nearby.assumed, to_numpy(nearby._home).copy()
        graph = optimistic._captured._graph if library == "cuda" else None
        assert library != "cuda" or graph is not None
        wide = replace(start[0], covariances=9.0 * start[0].covariances)
        entered = wide, FULL.factor(wide.covariances, given.X.shape[1])
        *_, report = optimistic._try(*entered)
        assert report[0, -1]
        assert graph is None or optimistic._captured._graph is graph  # it was replayed
        assert_array_equal(to_numpy(nearby._home), homes)
        found = optimistic(*entered)
    assert skips(source)
    assert all(new > old for new, old in zip(nearby.assumed[1:], before[1:], strict=True))
    expected = step_of(given, given.rows)(*entered)
    for name in ("weights", "means", "covariances"):
        own, value = (to_numpy(getattr(each[0], name)) for each in (found, expected))
        assert_allclose(own, value, atol=1e-11, err_msg=name)


def test_the_host_need_not_wait_for_an_optimistic_pass() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    given, called = problem(n_classes=3, weighted=True), set()

    class Watched(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            called.add(function.name().split(".")[0].removeprefix("aten::"))
            called.update("mask" for each in args if isinstance(each, list) for i in each if is_mask(i))
            return function(*args, **(kwargs or {}))

    def is_mask(value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.dtype == torch.bool and value.ndim > 0

    source = given.rows
    entered = given.entered(source)
    source.expect(*entered, given.setting)
    with recorded([]), Watched():
        source.expect(*entered, given.setting)
    assert skips(source)
    assert "bmm" in called
    assert not called & {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "bincount"}
    assert not called & {"index_add", "index_add_", "scatter_add", "scatter_add_", "cumprod"}
    assert "index" not in called or "mask" not in called


def test_skipping_rests_where_it_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    given, tried = problem(spread=0.2), []
    listed = nearby_device.NearbyKernels._list
    monkeypatch.setattr(
        nearby_device.NearbyKernels, "_list", lambda *given: tried.append(number) or listed(*given)
    )
    source = given.rows
    optimistic, state = OptimisticStep(step_of(given, source), source), given.entered(source)
    number, assumed = 0, set()
    while number < 20:
        state = optimistic(*state)[:2]
        number += 1
        assumed.add(source._framed.nearby.assumed)
    # After 1, 2, 4 and 8 passes.
    assert tried == [0, 2, 5, 10, 19]
    # A captured pass with all kernels stays valid.
    assert len(assumed) == 1


def test_only_large_passes_with_few_features_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem()
    n_joints = given.X.shape[0] * 60
    for features, joints, expected in ((5, n_joints, True), (4, n_joints, False), (5, n_joints + 1, False)):
        monkeypatch.setattr(device, "FEW_FEATURES", features)
        monkeypatch.setattr(device, "WORTH_SKIPPING", joints)
        source = given.rows
        source.expect(*given.entered(source), given.setting)
        assert skips(source) is expected


def test_a_repeat_for_one_of_several_starts_does_not_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    given, tried = problem(), []
    collect = nearby_device.NearbyKernels.collect
    monkeypatch.setattr(
        nearby_device.NearbyKernels, "collect", lambda *given: tried.append(1) or collect(*given)
    )
    for n_starts in (1, 2):
        source = given.rows
        rule = rule_of(Options(), given.setting, 60, source)
        state = given.parameters.take(np.zeros(n_starts, dtype=int)).map(source.to_device)
        factor = FULL.factor(state.covariances, given.X.shape[1])
        improve, turns = rule.improve, []

        def improved(statistics: Any, *others: Any, improve: Any = improve, turns: Any = turns) -> Any:
            *found, inaccurate = improve(statistics, *others)
            turns.append(inaccurate.shape[0])
            if len(turns) == 1:
                inaccurate[-1, 0] = True
            return *found, inaccurate

        object.__setattr__(rule, "improve", improved)
        one_pass(source, given.setting, rule, state, factor)
        assert turns == [n_starts, 1]
        assert len(tried) == 2  # with one start both passes skip, with two neither


def test_fits_are_those_with_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem(n_kernels=120, n_rows=6000, n_classes=3)
    random, n_kernels = np.random.default_rng(0), 120
    starts = given.setting.frame.leave(given.parameters, FULL)
    starts = Parameters(
        np.full((1, n_kernels, 2), 1 / n_kernels),
        starts.means + 0.1 * random.normal(size=starts.means.shape),
        np.repeat(np.eye(5)[None, None], n_kernels, axis=1),
        class_prior=np.full((1, 2), 0.5),
    )
    options, results = Options(max_iter=8, tol=0.0), []
    for many in (1, 1000):
        monkeypatch.setattr(device, "MANY", many)
        results.append(fit(given.send(given.X), given.codes, starts, options))
    for name in ("weights", "means", "covariances", "class_prior"):
        found, expected = (getattr(result.parameters, name) for result in results)
        assert_allclose(found, expected, atol=1e-9 * np.abs(expected).max(), err_msg=name)
    assert_allclose(results[0].log_likelihood, results[1].log_likelihood, rtol=1e-10)


def test_too_little_memory_means_all_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem()

    def short_of_memory(*_: Any) -> Any:
        raise MemoryError("too much")

    monkeypatch.setattr(nearby_device, "_evaluate", short_of_memory)
    source = given.rows
    parameters, factor = given.entered(source)
    found, origins = source.expect(parameters, factor, given.setting)
    assert not skips(source)
    assert_same(moved(found, origins, parameters.means, FULL).map(to_numpy), given.reference())


def test_memory_is_released_without_the_arrays_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    given, handled = problem(), []

    def short_of_memory(*_: Any) -> Any:
        raise MemoryError("too much")

    monkeypatch.setattr(nearby_device, "_evaluate", short_of_memory)
    source = given.rows
    operations = operations_of(source.X)
    monkeypatch.setattr(operations, "release", lambda: handled.append(sys.exception()))
    source.expect(*given.entered(source), given.setting)
    assert handled == [None]
    # A graph needs more memory than a pass: that it does not fit says nothing of passes.
    source = given.rows
    monkeypatch.setattr(operations, "held", [])
    with pytest.raises(MemoryError):
        source.expect(*given.entered(source), given.setting)
    assert source._framed.nearby._wait == 0
