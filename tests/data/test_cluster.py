"""Blocks on a real cluster of two processes: sums, and what happens when a part of it dies."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd

import skmix
from skmix.data.dask import ClusterError, check_workers, map_rows, open_collections

VERSION = skmix.__version__
RNG = np.random.default_rng(5)
ROWS = RNG.normal(size=(400, 3)) * [1.0, 1e3, 1e-3]
LABELS = np.array(["ash", "beech", "oak"])[RNG.integers(0, 3, 400)]


@pytest.fixture(params=["threads", "cluster"])
def anywhere(request):
    """Both places to work at."""
    if request.param == "cluster":
        request.getfixturevalue("client")
    return request.param


def pairs(values, labels):
    """Return values with their labels, in order: blocks may be added in any."""
    return sorted(zip(np.asarray(values).tolist(), np.asarray(labels).tolist(), strict=True))


@dataclass(frozen=True)
class Add:
    """Answers with the weighted sum of the rows, each row's first feature beside its label, and the block."""

    def __call__(self, block):
        block.check()
        labels = block.labels if block.y is None else block.y
        labels = [] if labels is None else pairs(block.X[:, 0], labels)
        weights = np.ones(len(block.X)) if block.weights is None else block.weights
        return [weights @ block.X, labels, [block.number]]


def add(left, right):
    return [a + b for a, b in zip(left, right, strict=True)]


@dataclass(frozen=True)
class DieOnce:
    """Kills its own process in the midst of the first task that comes to it."""

    marker: str

    def __call__(self, block):
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return Add()(block)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Wait:
    seconds: float

    def __call__(self, block):
        time.sleep(self.seconds)
        return Add()(block)


def collections(chunk=20):
    """20 blocks, more than one task adds up; y is cut otherwise, X by columns too."""
    return da.from_array(ROWS, chunks=(chunk, 2)), da.from_array(LABELS, chunks=64)


@pytest.mark.usefixtures("anywhere")
class TestBlocks:
    def test_answers_of_all_blocks_are_added(self):
        blocks = open_collections(*collections(), None, VERSION)
        total, labels, numbers = blocks.reduce(Add(), add)
        np.testing.assert_allclose(total, ROWS.sum(axis=0), rtol=1e-12)
        assert sorted(labels) == pairs(ROWS[:, 0], LABELS)
        assert sorted(numbers) == list(range(20))
        # Nothing was added to twice: the same question has the same answer, to the bit.
        assert blocks.reduce(Add(), add)[0].tolist() == total.tolist()

    def test_labels_become_classes_and_columns_can_be_chosen(self):
        blocks = open_collections(*collections(), None, VERSION).coded(np.array(["ash", "oak"]))
        total, codes, _ = blocks.with_features([2, 0]).with_features([1]).reduce(Add(), add)
        expected = {"ash": 0, "oak": 1, "beech": -1}
        assert sorted(codes) == pairs(ROWS[:, 0], [expected[label] for label in LABELS])
        np.testing.assert_allclose(total, ROWS[:, [0]].sum(axis=0), rtol=1e-12)

    def test_dataframes_of_unknown_sizes_with_empty_partitions_and_gaps(self):
        table = pd.DataFrame(ROWS, columns=["u", "v", "w"])
        table["count"] = pd.array([1, None, 3, 4] * 100, dtype="Int64")
        table["tree"] = LABELS
        table = table.sort_values("u", ignore_index=True)
        kept = table[table["u"] > 0]
        lazy = dd.from_pandas(table, npartitions=7)
        lazy = lazy[lazy["u"] > 0]
        blocks = open_collections(lazy[["u", "count"]], lazy["tree"], lazy["w"] ** 2, VERSION)
        assert blocks.feature_names == ["u", "count"]
        total, labels, _ = blocks.reduce(Add(), add)
        assert sorted(labels) == pairs(kept["u"], kept["tree"])
        np.testing.assert_allclose(total[0], kept["w"] ** 2 @ kept["u"], rtol=1e-12)
        assert np.isnan(total[1])


@pytest.mark.parametrize("in_memory", [False, True], ids=["of unknown number", "in memory"])
def test_labels_are_cut_like_the_rows(in_memory):
    y = LABELS if in_memory else dd.from_pandas(pd.DataFrame({"label": LABELS}), npartitions=3)
    _, labels, _ = open_collections(collections()[0], y, None, VERSION).reduce(Add(), add)
    assert sorted(labels) == pairs(ROWS[:, 0], LABELS)


TABLE = dd.from_pandas(pd.DataFrame({"a": ROWS[:, 0], "b": LABELS}), npartitions=4)
MATRIX = da.from_array(ROWS, chunks=(100, 3))


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (MATRIX, da.from_array(LABELS[:390]), "X has 400 rows but y has 390"),
        (MATRIX[:, 0], None, "two dimensions"),
        (MATRIX, MATRIX, r"y must be one column, got shape \(400, 3\)"),
        (MATRIX.astype(str), None, "must hold numbers"),
        (MATRIX[:, :0], None, "X has no features"),
        (TABLE, None, "Column 'b' of X has type string"),
        (TABLE["a"], None, "got a Dask Series"),
        (TABLE[["a"]], TABLE, "y must be one column, got a Dask dataframe of 2"),
        (
            TABLE[TABLE["a"] > 0][["a"]],
            TABLE["b"],
            r"rows, but labels of shape \(100,\).* must have the same chunks",
        ),
        (MATRIX[MATRIX[:, 0] > 0], da.from_array(LABELS, chunks=90), "rows but y has 400"),
    ],
)
def test_collections_that_do_not_belong_together_are_refused(X, y, message):
    with pytest.raises(ValueError, match=message):
        open_collections(X, y, None, VERSION).reduce(Add(), add)


@pytest.fixture
def still(client):
    """The cluster, which moves no block of its own accord."""
    stealing = client.cluster.scheduler.extensions["stealing"]
    client.sync(stealing.stop)
    client.amm.stop()
    yield client
    client.amm.start()
    client.sync(stealing.start)


@pytest.mark.slow
def test_a_worker_killed_in_the_midst_of_a_pass_costs_only_time(still, tmp_path):
    """The one that replaces it takes over its blocks."""
    blocks = open_collections(*collections(), None, VERSION)
    before, *_ = blocks.reduce(Add(), add)
    workers = set(still.nthreads())
    after, *_ = blocks.reduce(DieOnce(str(tmp_path / "died")), add)
    try:
        still.wait_for_workers(2, timeout=60)
    except TimeoutError:
        # Now and then, the nanny of a killed worker starts no other one (dask/distributed, issue 7312).
        still.cluster.scale(3)
        still.wait_for_workers(2, timeout=600)
    (replacement,) = set(still.nthreads()) - workers
    again, *_ = blocks.reduce(Add(), add)
    assert before.tolist() == after.tolist() == again.tolist()
    rows = {part.rows.key for part in blocks.parts if part.worker not in still.nthreads()}
    assert set() < rows <= set(still.has_what()[replacement])


@pytest.mark.slow
def test_blocks_that_only_a_dead_worker_had_are_named(client):
    address = sorted(client.scheduler_info()["workers"])[0]
    scattered = client.scatter([ROWS[:200], ROWS[200:]], workers=[address])
    X = da.concatenate([da.from_delayed(dask.delayed(each), (200, 3), float) for each in scattered])
    blocks = open_collections(X, None, None, VERSION)
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match="lost with their worker, and Dask cannot recompute them"):
        blocks.reduce(Wait(0.1), add)


def test_workers_without_skmix_or_with_another_are_named(client):
    address = sorted(client.scheduler_info()["workers"])[0]
    with pytest.raises(
        ClusterError, match=r"2 of 2 workers have another version of skmix than 99\.0: tcp://"
    ):
        check_workers(client, "99.0")
    client.run(exec, "import sys; sys.modules['skmix'] = None", workers=[address])
    try:
        with pytest.raises(
            ClusterError, match=f"1 of 2 workers cannot import skmix: {address}.*Install skmix"
        ):
            open_collections(*collections(), None, VERSION)
    finally:
        client.run(exec, "import sys; del sys.modules['skmix']", workers=[address])


@pytest.mark.parametrize("when", ["in a pass", "between fits"])
def test_a_scheduler_that_is_gone_is_reported(mortal_cluster, when):
    blocks = open_collections(*collections(), None, VERSION) if when == "in a pass" else None
    mortal_cluster.lose()
    with pytest.raises(ClusterError, match=r"The connection to the scheduler .* is lost"):
        (blocks or open_collections(*collections(), None, VERSION)).reduce(Add(), add)


def test_labels_go_with_the_rows_of_a_lazy_call():
    X, y = collections()
    table = dd.from_pandas(pd.DataFrame({"label": LABELS}), npartitions=3)
    for labels in (y, LABELS, table["label"], da.from_array(LABELS[:, None], chunks=50)):
        found = map_rows(X, lambda rows, own: np.where(own == "oak", rows[:, 0], 0.0), None, float, labels)
        np.testing.assert_array_equal(found.compute(), np.where(LABELS == "oak", ROWS[:, 0], 0.0))
