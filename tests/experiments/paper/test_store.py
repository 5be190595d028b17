"""A store keeps finished runs, whoever writes and whoever is killed, and refuses what is not its own."""

from __future__ import annotations

import dataclasses
import math
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from study_runs import same_runs

from skmix.experiments.paper import Run, Settings, Store, StoreError

MakeRun = Callable[..., Run]

WRITER = """
import sys
from pathlib import Path
import numpy as np
from skmix.experiments.paper import Run, Settings, Store
path, first, last = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
with Store(path, Settings()) as store:
    for number in range(first, last):
        confusion = np.full((10, 10), number, dtype=np.int64)
        store.add([Run("3D", 10, "robust", number, 0.5, 0.5, "", None, 1, True, -1.0, confusion)])
"""


def test_runs_come_back_as_they_were(tmp_path: Path, make_run: MakeRun) -> None:
    runs = [
        make_run(run=1, accuracy=0.1 + 0.2, confusion=np.arange(100).reshape(10, 10)),
        make_run(run=0, reason="too few rows", failing_pass=9, converged=False, log_likelihood=math.nan),
    ]
    with Store(tmp_path / "study.sqlite", Settings()) as store:
        store.add(runs)
        store.add([make_run(variant="4D"), make_run(n_kernels=12), make_run(method="published")])
    with Store(tmp_path / "study.sqlite", Settings()) as store:
        back = store.runs("3D", 10, "robust", 10)
        assert [run.run for run in back] == [0, 1]
        assert same_runs(back[0], runs[1])
        assert same_runs(back[1], runs[0])
        assert store.numbers("3D", 10, "robust") == {0, 1}
        assert [run.run for run in store.runs("3D", 10, "robust", 1)] == [0]
        assert len(store) == 5


def test_a_run_is_kept_once(tmp_path: Path, make_run: MakeRun) -> None:
    with Store(tmp_path / "study.sqlite", Settings()) as store:
        store.add([make_run(accuracy=0.25)])
        store.add([make_run(accuracy=0.75), make_run(run=1)])
        assert [run.accuracy for run in store.runs("3D", 10, "robust", 9)] == [0.25, 0.75]


def test_a_batch_is_kept_whole_or_not_at_all(tmp_path: Path, make_run: MakeRun) -> None:
    with Store(tmp_path / "study.sqlite", Settings()) as store:
        with pytest.raises(sqlite3.IntegrityError):
            store.add([make_run(), make_run(run=1, accuracy=None)])
        assert len(store) == 0
        store.add([make_run()])
        assert len(store) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 4}, f"seed {Settings().seed} there and 4 here"),
        ({"dither": "paper"}, "dither all there and paper here"),
        ({"max_iter": 7, "train_per_digit": 3}, "train_per_digit 100 there and 3 here, max_iter 100 there"),
    ],
)
def test_a_store_of_other_settings_is_refused(tmp_path: Path, change: dict[str, int], said: str) -> None:
    path = tmp_path / "study.sqlite"
    Store(path, Settings(), "images").close()
    with pytest.raises(StoreError, match=said):
        Store(path, dataclasses.replace(Settings(), **change), "images")
    Store(path, Settings(), "images").close()


def test_a_store_of_other_images_is_refused(tmp_path: Path) -> None:
    Store(tmp_path / "study.sqlite", Settings(), "these").close()
    with pytest.raises(StoreError, match="data these there and those here"):
        Store(tmp_path / "study.sqlite", Settings(), "those")


def test_another_programs_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be read as the header of one" * 20)
    database = tmp_path / "other.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE runs (whose TEXT)")
    connection.close()
    before = text.read_bytes(), database.read_bytes()
    with pytest.raises(StoreError, match="is not a store of a study"):
        Store(text, Settings())
    with pytest.raises(StoreError, match="an SQLite file of another program"):
        Store(database, Settings())
    assert (text.read_bytes(), database.read_bytes()) == before


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "study.sqlite"
    Store(path, Settings()).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoreError, match="store version 99, here 2"):
        Store(path, Settings())


def test_a_folder_that_is_missing_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot use the store"):
        Store(tmp_path / "missing" / "study.sqlite", Settings())


def test_processes_write_side_by_side(tmp_path: Path) -> None:
    """Four processes open one new store at the same time; their runs overlap."""
    path = tmp_path / "study.sqlite"
    spans = [(0, 60), (30, 90), (60, 120), (0, 120)]
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), str(first), str(last)], stderr=subprocess.PIPE
        )
        for first, last in spans
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=120)
        assert writer.returncode == 0, errors.decode()
    with Store(path, Settings()) as store:
        runs = store.runs("3D", 10, "robust", 1000)
    assert [run.run for run in runs] == list(range(120))
    assert all((run.confusion == run.run).all() for run in runs)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
