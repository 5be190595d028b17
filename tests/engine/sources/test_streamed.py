"""Rows that are sent to a device in pieces, on PyTorch's CPU device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from libraries import needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal

from skmix.engine import starts
from skmix.engine.compute.threads import Workers
from skmix.engine.em import fit
from skmix.engine.frame import Setting
from skmix.engine.model import Options
from skmix.engine.sources import device, open_source
from skmix.engine.sources.blocks import BlockRows
from skmix.engine.sources.streamed import StreamedRows
from skmix.engine.structures import structure_of
from skmix.io import open_rows

if torch is not None:
    from skmix.engine.compute import feed as feeds
    from skmix.engine.compute.feed import Feed
    from skmix.engine.compute.torch import TorchOperations

pytestmark = needs_torch
RANDOM = np.random.default_rng(0)
X, CODES = RANDOM.normal(size=(1000, 4)), RANDOM.integers(-1, 3, 1000)
WEIGHTS = RANDOM.uniform(0.5, 2.0, 1000)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """Return what is sent: how many rows, and whether from where they are; none of them stay."""
    found: list[tuple[int, bool]] = []
    send = Feed.send

    def noted(self: Any, n_rows: int, *, stays: bool, rows: np.ndarray | None = None) -> Any:
        found.append((n_rows, rows is not None))
        return send(self, n_rows, stays=stays, rows=rows)

    monkeypatch.setattr(Feed, "send", noted)
    monkeypatch.setattr("skmix.engine.sources.streamed.PIECE_BYTES", 300 * 32)
    monkeypatch.setattr("skmix.engine.sources.streamed.room_on", lambda device: 0)
    return found


def expect_twice(rows: np.ndarray, chunk_rows: int) -> list[Any]:
    """Do two passes over rows in blocks, and one over all of them in memory; return the statistics."""
    structure, n_features = structure_of("full"), rows.shape[1]
    blocks = open_rows(rows, label=CODES, weight=WEIGHTS, chunk_rows=chunk_rows).coded(np.arange(3))
    streamed, whole = StreamedRows(blocks, "cpu:0"), open_source(rows, CODES, WEIGHTS)
    frame = whole.summary.frame(structure)
    found = starts.uniform(2, 5, 4, n_features, structure, np.random.RandomState(0))
    setting, results = Setting(frame, structure, Workers(1)), []
    for source in (streamed, streamed, whole):
        inside = frame.enter(found, structure).map(source.to_device)
        statistics, origins = source.expect(inside, structure.factor(inside.covariances, n_features), setting)
        results.append((statistics.map(np.asarray), np.asarray(origins)))
    return results


def test_small_blocks_are_gathered_into_pieces_wherever_they_are(pieces: list[tuple[int, bool]]) -> None:
    (first, _), (second, _), (expected, _) = expect_twice(X, 70)
    sizes = [300, 300, 300, 100]
    assert pieces == [(n_rows, False) for n_rows in sizes] + [(n_rows, True) for n_rows in sizes]
    for own, again in zip(vars(first).values(), vars(second).values(), strict=True):
        assert_array_equal(own, again)
    assert_allclose(first.log_likelihood, expected.log_likelihood, rtol=1e-11)
    assert_allclose(first.mass, expected.mass, rtol=1e-9)


def test_rows_that_do_not_follow_one_another_are_not_gathered_in_place() -> None:
    feed = Feed("cpu", 500, 4, X.dtype)
    feed.pin(X[:100], X.nbytes)
    assert feed.is_pinned(X[100:200], X[:100])
    assert not feed.is_pinned(X[101:200], X[:100])
    assert not feed.is_pinned(X[:100].copy())
    got, _ = feed.send(250, stays=True, rows=X[100:200])
    assert_array_equal(got, X[100:350])


def test_classes_of_a_piece_are_counted_once(
    pieces: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    count = device.count_classes
    monkeypatch.setattr(device, "count_classes", lambda *given: counted.append(1) or count(*given))
    expect_twice(X, 70)
    assert len(pieces) == 8
    assert len(counted) == 4


@pytest.mark.parametrize(("room", "n_staying", "n_ordered"), [(0, 0, 0), (20_000, 0, 1), (52_000, 2, 4)])
def test_orders_of_pieces_are_kept_where_there_is_room(
    pieces: list[tuple[int, bool]],
    monkeypatch: pytest.MonkeyPatch,
    room: int,
    n_staying: int,
    n_ordered: int,
) -> None:
    expected, again, (whole, _) = expect_twice(X, 70)
    for own, other in zip(vars(expected[0]).values(), vars(again[0]).values(), strict=True):
        assert_array_equal(own, other)
    pieces.clear()
    sent: list[str] = []
    from_numpy = TorchOperations.from_numpy

    def noted(self: Any, values: np.ndarray, dtype: Any = None) -> Any:
        if values.ndim == 1 and len(values) >= 100:
            sent.append(values.dtype.kind)
        return from_numpy(self, values, dtype)

    monkeypatch.setattr(TorchOperations, "from_numpy", noted)
    # A quarter of it is for orders, of 13 bytes for each row; rows that stay take 56 bytes each.
    monkeypatch.setattr("skmix.engine.sources.streamed.room_on", lambda device: room)
    (first, _), (second, _), _ = expect_twice(X, 70)
    assert len(pieces) == 8 - n_staying
    # Codes and weights of all pieces in the first pass, then of those without an order.
    assert sorted(sent) == ["f"] * (8 - n_ordered) + ["i"] * (8 - n_ordered)
    for name, own in vars(expected[0]).items():
        assert_array_equal(getattr(first, name), own)
        assert_array_equal(getattr(second, name), own)
    assert_allclose(second.log_likelihood, whole.log_likelihood, rtol=1e-11)
    assert_allclose(second.mass, whole.mass, rtol=1e-9)


def test_orders_are_those_of_the_number_of_classes(
    pieces: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two pieces stay, and the order of the others is kept.
    monkeypatch.setattr("skmix.engine.sources.streamed.room_on", lambda device: 40_000)
    structure = structure_of("full")
    blocks = open_rows(X, label=CODES, chunk_rows=70).coded(np.arange(3))
    streamed, whole = StreamedRows(blocks, "cpu:0"), open_source(X, CODES)
    frame = whole.summary.frame(structure)
    setting = Setting(frame, structure, Workers(1))
    for n_classes in (4, 1, 4):
        found = starts.uniform(1, 5, n_classes, 4, structure, np.random.RandomState(0))
        likelihoods = []
        for source in (streamed, whole):
            inside = frame.enter(found, structure).map(source.to_device)
            statistics, _ = source.expect(inside, structure.factor(inside.covariances, 4), setting)
            likelihoods.append(np.asarray(statistics.log_likelihood))
        assert_allclose(*likelihoods, rtol=1e-11)


def test_weights_do_not_make_passes_look_for_gaps(
    pieces: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, weights, structure = X.copy(), WEIGHTS.copy(), structure_of("full")
    weights[::7] = 0.0
    rows[14] = np.nan
    streamed = StreamedRows(open_rows(rows, weight=weights, chunk_rows=70), "cpu:0")
    some = weights > 0.0
    whole = open_source(rows[some], None, weights[some])
    frame = whole.summary.frame(structure)
    setting = Setting(frame, structure, Workers(1))
    found = starts.uniform(1, 5, 1, 4, structure, np.random.RandomState(0))
    assert not streamed.summary.gaps
    monkeypatch.delattr("skmix.engine.compute.blocks.Block.informative")
    results = []
    for source in (streamed, BlockRows(streamed.blocks, streamed.summary), whole):
        inside = frame.enter(found, structure).map(source.to_device)
        statistics, _ = source.expect(inside, structure.factor(inside.covariances, 4), setting)
        results.append(statistics.map(np.asarray))
    assert pieces == [(300, False), (300, False), (257, False)]
    for each in results[:2]:
        assert_allclose(each.log_likelihood, results[2].log_likelihood, rtol=1e-11)
        assert_allclose(each.mass, results[2].mass, rtol=1e-9)


def test_only_rows_that_can_be_sent_from_where_they_are_are_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = X.copy()
    fixed.flags.writeable = False
    for rows in (fixed[:], X[:, :3], X[::2], X[:].T, X[:].view(np.int64)):
        feed = Feed("cpu", 10, rows.shape[1], X.dtype)
        feed.pin(rows, rows.nbytes)
        assert feed._pinned is None
    for memory, is_pinned in ((1.9 * X.nbytes, False), (2.1 * X.nbytes, True)):
        monkeypatch.setattr(feeds, "physical_memory", lambda memory=memory: memory)
        feed = Feed("cpu", 10, 4, X.dtype)
        feed.pin(X[:], X.nbytes)
        assert feed.is_pinned(X) is is_pinned


@pytest.mark.parametrize("covariance_type", ["full", "spherical"])
@pytest.mark.parametrize(
    ("gaps", "room"), [(False, 0), (False, 20_000), (True, 0), (True, 40_000), (True, 1 << 30)]
)
def test_a_fit_to_streamed_rows_is_the_fit_to_the_rows(
    covariance_type: str,
    gaps: bool,
    room: int,
    pieces: list[tuple[int, bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether none, some or all of the rows stay on the device; with some of the features, too."""
    monkeypatch.setattr("skmix.engine.sources.streamed.room_on", lambda device: room)
    structure, codes, weights = structure_of(covariance_type), CODES[:500], WEIGHTS[:500]
    rows = X[:500] * [1.0, 5.0, 0.2, 1.0] + [0.0, 9.0, 0.0, 0.0]
    if gaps:
        rows[::5, 0] = rows[3::7, 1] = rows[1::9, 3] = np.nan
    whole = open_source(rows, codes, weights)
    blocks = open_rows(rows, label=codes, weight=weights, chunk_rows=70).coded(np.arange(3))
    streamed = StreamedRows(blocks, "cpu:0")
    for columns in ([0, 1, 2, 3], [2, 1]):
        ours, theirs = streamed.take(columns), whole.take(columns)
        start = starts.uniform(2, 4, 3, len(columns), structure, np.random.RandomState(0))
        start = replace(start, class_prior=np.full((2, 3), 1 / 3))
        options = Options(covariance_type=covariance_type, max_iter=2, tol=0.0)
        found, expected = fit(ours, start, options), fit(theirs, start, options)
        assert_array_equal(found.status, expected.status)
        assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-9)
        for name in ("weights", "means", "covariances", "class_prior"):
            value, other = getattr(found.parameters, name), getattr(expected.parameters, name)
            assert_allclose(value, other, rtol=1e-7, atol=1e-8)
    assert pieces


def test_a_device_that_is_not_there_is_reported() -> None:
    with pytest.raises(ValueError, match=r"device='cuda:99' cannot be used: .*PyTorch .* sees"):
        StreamedRows(open_rows(X), "cuda:99")
    with pytest.raises(ValueError, match="device='abacus' cannot be used"):
        StreamedRows(open_rows(X), "abacus")
