"""Rows that are sent to a device in pieces, on PyTorch's CPU device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from libraries import needs_torch
from numpy.testing import assert_allclose, assert_array_equal

from skmix.data import open_rows
from skmix.engine import starts
from skmix.engine.device.streamed import StreamedRows
from skmix.engine.loop import fit
from skmix.engine.numbers import like
from skmix.engine.problem import open_source
from skmix.engine.records import Options, Setting
from skmix.engine.rows.blocks import BlockRows
from skmix.engine.structures import structure_of
from skmix.engine.threads import Workers

pytestmark = needs_torch
FULL = structure_of("full")
RANDOM = np.random.default_rng(0)
X, CODES = RANDOM.normal(size=(1000, 4)), RANDOM.integers(-1, 3, 1000)
WEIGHTS = RANDOM.uniform(0.5, 2.0, 1000)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the numbers of rows that are sent, of which none stay."""
    found: list[int] = []

    def noted(rows: np.ndarray, example: Any) -> Any:
        found.append(len(rows))
        return like(rows, example)

    monkeypatch.setattr("skmix.engine.device.streamed.like", noted)
    monkeypatch.setattr("skmix.engine.device.streamed.room_on", lambda device: 0)
    return found


def expect(source: Any, frame: Any, n_classes: int) -> Any:
    """Return the statistics of one pass from two starts of five kernels."""
    start = starts.uniform(2, 5, n_classes, 4, FULL, np.random.RandomState(0))
    inside = frame.enter(start, FULL).map(source.to_device)
    factor = FULL.factor(inside.covariances, 4)
    statistics, _ = source.expect(inside, factor, Setting(frame, FULL, Workers(1)))
    return statistics.map(np.asarray)


@pytest.mark.parametrize("n_staying", [0, 2, 4])
def test_first_blocks_stay_while_there_is_room(
    pieces: list[int], n_staying: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Rows that stay take 32 bytes for their values and 24 beside them. The last block, of 100 rows, would fit
    # behind the first that does not.
    room = (n_staying * 300 + 120) * 56
    monkeypatch.setattr("skmix.engine.device.streamed.room_on", lambda device: room)
    blocks = open_rows(X, label=CODES, weight=WEIGHTS, chunk_rows=300).coded(np.arange(3))
    streamed, whole = StreamedRows(blocks, "cpu:0"), open_source(X, CODES, WEIGHTS)
    frame, sizes = whole.summary.frame(FULL), [300, 300, 300, 100]
    # With another number of classes in between.
    results = [expect(streamed, frame, n_classes) for n_classes in (4, 1, 4)]
    assert pieces == sizes + 2 * sizes[n_staying:]
    for first, last in zip(vars(results[0]).values(), vars(results[2]).values(), strict=True):
        assert_array_equal(first, last)
    for n_classes, found in ((4, results[0]), (1, results[1])):
        expected = expect(whole, frame, n_classes)
        assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-11)
        assert_allclose(found.mass, expected.mass, rtol=1e-9)


def test_weights_do_not_make_passes_look_for_gaps(pieces: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    rows, weights = X.copy(), WEIGHTS.copy()
    weights[::7] = 0.0
    rows[14] = np.nan
    streamed = StreamedRows(open_rows(rows, weight=weights, chunk_rows=70), "cpu:0")
    some = weights > 0.0
    whole = open_source(rows[some], None, weights[some])
    frame = whole.summary.frame(FULL)
    assert not streamed.summary.gaps
    monkeypatch.delattr("skmix.engine.rows.blocks.Block.informative")
    expected = expect(whole, frame, 1)
    for source in (streamed, BlockRows(streamed.blocks, streamed.summary)):
        found = expect(source, frame, 1)
        assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-11)
        assert_allclose(found.mass, expected.mass, rtol=1e-9)
    assert sum(pieces) == some.sum()
    assert len(pieces) == 15


def test_missing_values_are_refused() -> None:
    rows = X.copy()
    rows[5, 1] = np.nan
    start = starts.uniform(1, 2, 1, 4, FULL, np.random.RandomState(0))
    with pytest.raises(ValueError, match="Passes on a device do not cover missing values"):
        fit(StreamedRows(open_rows(rows), "cpu:0"), start, Options())
