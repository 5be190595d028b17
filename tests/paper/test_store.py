"""The harness: keys of settings, generators, the store of results, and files of records."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from skmix.io.writing import writable_folder
from skmix.paper.harness import (
    Store,
    StoreError,
    cell_key,
    generator,
    library,
    read_lines,
    write_json,
    write_lines,
)

NESTED = {"seed": 0, "data": "d1", "model": {"n_kernels": 3, "tol": 1e-3}}


def test_a_key_depends_on_every_setting_and_not_on_their_order() -> None:
    reordered = {"model": {"tol": 1e-3, "n_kernels": 3}, "data": "d1", "seed": 0}
    assert cell_key(reordered) == cell_key(NESTED)
    changed = [
        {**NESTED, "seed": 1},
        {**NESTED, "data": "d2"},
        {**NESTED, "model": {"n_kernels": 3, "tol": 2e-3}},
        {**NESTED, "more": None},
    ]
    assert len({cell_key(each) for each in [NESTED, *changed]}) == 5
    with pytest.raises(ValueError, match="JSON"):
        cell_key({"tol": float("nan")})


@pytest.fixture
def uncached() -> Iterator[None]:
    """Clear the cached name of the library before and after a test."""
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.mark.usefixtures("uncached")
def test_the_library_is_its_version_and_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert library().startswith("0.1.0+")
    code = tmp_path / "code.py"
    code.write_text("a = 1\n")
    before = library(str(code))
    library.cache_clear()
    assert library(str(code)) == before != library()
    library.cache_clear()
    code.write_text("a = 2\n")
    assert library(str(code)) != before
    # All that may change results: generators of data and features too.
    monkeypatch.setattr("skmix.__file__", str(tmp_path / "__init__.py"))
    names = ("engine/em.py", "engine/rules/weights.py", "estimators/io.py", "features.py", "datasets.py")
    for name in (*names, "io/labels.py", "metrics.py", "theory.py", "paper/digits.py", "paper/harness.py"):
        library.cache_clear()
        before = library()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
        library.cache_clear()
        assert library() != before, name


def test_every_part_of_the_name_matters() -> None:
    cases = list(itertools.product((0, 1), ("3D", "3x1D"), (10, 1), ("robust", "published"), (0, 10)))
    assert len({generator(*case).randint(2**31) for case in cases}) == 2**5
    assert generator(0, "ab", "c").randint(2**31) != generator(0, "a", "bc").randint(2**31)


def test_numbers_are_the_same_on_any_machine() -> None:
    """MT19937 seeded with the SHA-256 digest."""
    digest = hashlib.sha256(b"skmix study\n7\nrun\n3D\n10\nrobust\n2").digest()
    bits = np.random.MT19937(np.random.SeedSequence(int(digest.hex(), 16)))
    expected = np.random.RandomState(bits).uniform(size=3)
    assert generator(7, "run", "3D", 10, "robust", 2).uniform(size=3).tolist() == expected.tolist()


# ---------------------------------------------------------------- the store

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


def test_a_result_is_stored_once_and_a_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        with pytest.raises(TypeError, match="not JSON serializable"):
            store.add(SETTINGS, {0: {"value": 1}, 1: {"value": object()}})
        assert len(store) == 0
        store.add(SETTINGS, {0: {"value": 1}})
        store.add(SETTINGS, {0: {"value": 2}, 1: {"value": 3}})
        assert [record["value"] for record in store.get(SETTINGS).values()] == [1, 3]


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
    with pytest.raises(StoreError, match="version 2, expected 3"):
        Store(path)
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


# ---------------------------------------------------------------- files


def test_nan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_json(tmp_path / "whole.json", {"value": 0.1, "list": [1, 2]})
    assert json.loads((tmp_path / "whole.json").read_text()) == {"value": 0.1, "list": [1, 2]}
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"value": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        write_lines(tmp_path / "a.jsonl", [{"value": 1.0}, {"value": float("nan")}])
    assert [path.name for path in tmp_path.iterdir()] == ["whole.json"]


def test_records_are_written_one_on_each_line(tmp_path: Path) -> None:
    records = [{"error": 0.1 + 0.2}, {"error": 0.5}]
    write_lines(tmp_path / "a.jsonl", records)
    assert read_lines(tmp_path / "a.jsonl") == records
    (tmp_path / "notes").write_text('{"a": 1}\nbuy milk\n')
    with pytest.raises(ValueError, match=r"line 2 of .*notes is not a record"):
        read_lines(tmp_path / "notes")


def test_a_missing_folder_is_created_and_left_empty(tmp_path: Path) -> None:
    folder = writable_folder(tmp_path / "a" / "b")
    assert list(folder.iterdir()) == []
    assert writable_folder(folder) == folder


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        writable_folder(tmp_path / "file" / below)
