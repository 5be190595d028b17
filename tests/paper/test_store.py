"""A store returns results for the same settings only, and survives other writers."""

from __future__ import annotations

import math
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from skmix.paper.harness import Store, StoreError

SETTINGS = {"model": "a", "seed": 0}


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        store.add(SETTINGS, {1: {"accuracy": 0.1 + 0.2, "counts": [[1, 2]]}, 0: {"accuracy": math.nan}})
    with Store(tmp_path / "store") as store:
        found = store.get({"seed": 0, "model": "a"})
        assert list(found) == [0, 1]
        assert math.isnan(found[0]["accuracy"])
        assert found[1] == {"accuracy": 0.1 + 0.2, "counts": [[1, 2]]}
        assert list(store.get(SETTINGS, 1)) == [0]
        assert store.replicates(SETTINGS) == {0, 1}
        assert len(store) == 2


def test_a_result_is_stored_once(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        store.add(SETTINGS, {0: {"value": 1}})
        store.add(SETTINGS, {0: {"value": 2}, 1: {"value": 3}})
        assert [record["value"] for record in store.get(SETTINGS).values()] == [1, 3]


def test_a_batch_is_stored_whole_or_not_at_all(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        with pytest.raises(TypeError, match="not JSON serializable"):
            store.add(SETTINGS, {0: {"value": 1}, 1: {"value": object()}})
        assert len(store) == 0


def test_files_of_other_programs_are_refused_and_left_alone(tmp_path: Path) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("not a database, but long enough to be read as the header of one" * 20)
    database = tmp_path / "other.sqlite"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE results (whose TEXT)")
    connection.close()
    before = text.read_bytes(), database.read_bytes()
    with pytest.raises(StoreError, match="is not a store of results"):
        Store(text)
    with pytest.raises(StoreError, match="an SQLite file of another program"):
        Store(database)
    assert (text.read_bytes(), database.read_bytes()) == before


def test_a_store_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store"
    Store(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(StoreError, match="store version 2, expected 3"):
        Store(path)


def test_a_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="cannot use the store"):
        Store(tmp_path / "missing" / "store")


def test_a_store_that_is_locked_for_long_is_an_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skmix.paper.harness._PATIENCE_SECONDS", 0.01)
    with Store(tmp_path / "store") as store:
        other = sqlite3.connect(tmp_path / "store", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(OSError, match="cannot write to the store"):
            store.add(SETTINGS, {0: {"value": 1}})
        with pytest.raises(OSError, match="cannot use the store"):
            Store(tmp_path / "store")
        other.execute("ROLLBACK")
        other.close()
        store.add(SETTINGS, {0: {"value": 1}})
        assert len(store) == 1


def test_several_writers_make_one_store(tmp_path: Path) -> None:
    """They create it at the same time, and their results overlap."""

    def write(first: int) -> None:
        with Store(tmp_path / "store") as store:
            for number in range(first, first + 30):
                store.add(SETTINGS, {number: {"value": number}})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, (0, 10, 20, 30)))
    with Store(tmp_path / "store") as store:
        assert store.get(SETTINGS) == {number: {"value": number} for number in range(60)}
