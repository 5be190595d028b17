"""The harness: keys of settings, generators, the store of results, files of records, and processes."""

from __future__ import annotations

import hashlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skmix.paper import harness
from skmix.paper.harness import (
    _HEADER,
    Cell,
    Crew,
    ExperimentError,
    Store,
    cell_key,
    generator,
    missing,
    run_cells,
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


def test_the_library_is_its_version_and_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = harness.library.__wrapped__
    assert library().startswith("0.1.0+")
    code = tmp_path / "code.py"
    code.write_text("a = 1\n")
    before = library(str(code))
    assert library(str(code)) == before != library()
    code.write_text("a = 2\n")
    assert library(str(code)) != before
    # All that may change results: generators of data and features too.
    monkeypatch.setattr("skmix.__file__", str(tmp_path / "__init__.py"))
    names = ("engine/loop.py", "engine/rules/weights.py", "model/files.py", "features.py", "datasets.py")
    for name in (*names, "data/labels.py", "metrics.py", "theory.py", "paper/digits.py", "paper/harness.py"):
        before = library()
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
        assert library() != before, name


def test_numbers_are_the_same_on_any_machine() -> None:
    """MT19937 seeded with the SHA-256 digest."""
    digest = hashlib.sha256(b"skmix study\n7\nrun\n3D\n10\nrobust\n2").digest()
    bits = np.random.MT19937(np.random.SeedSequence(int(digest.hex(), 16)))
    expected = np.random.RandomState(bits).uniform(size=3)
    assert generator(7, "run", "3D", 10, "robust", 2).uniform(size=3).tolist() == expected.tolist()


# ---------------------------------------------------------------- the store

SETTINGS = {"model": "a", "seed": 0}


def test_results_come_back_as_they_were(tmp_path: Path) -> None:
    Store(tmp_path / "store").add(SETTINGS, {1: {"accuracy": 0.1 + 0.2, "counts": [[1, 2]]}})
    Store(tmp_path / "store").add(SETTINGS, {0: {"accuracy": math.nan}})
    store = Store(tmp_path / "store")
    found = store.get({"seed": 0, "model": "a"})
    assert list(found) == [0, 1]
    assert math.isnan(found[0]["accuracy"])
    assert found[1] == {"accuracy": 0.1 + 0.2, "counts": [[1, 2]]}
    assert list(store.get(SETTINGS, 1)) == [0]
    assert len(store) == 2
    # At once as after a reload: JSON has neither tuples nor keys that are numbers.
    store.add(SETTINGS, {2: {"pair": (1, 2), "by_number": {3: 4}}})
    for each in (store, Store(store.path)):
        assert each.get(SETTINGS)[2] == {"pair": [1, 2], "by_number": {"3": 4}}


def test_a_result_is_stored_once_and_a_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.add(SETTINGS, {0: {"value": 1}, 1: {"value": object()}})
    assert len(store) == 0
    store.add(SETTINGS, {0: {"value": 1}})
    written = store.path.read_bytes()
    store.add(SETTINGS, {0: {"value": 2}, 1: {"value": 3}})
    assert [record["value"] for record in store.get(SETTINGS).values()] == [1, 3]
    before = store.path.read_bytes()
    store.add(SETTINGS, {0: {"value": 2}})
    assert store.path.read_bytes() == before
    # Of a batch that a killed process was writing, nothing is taken, and later ones are.
    store.path.write_bytes(written + store.path.read_bytes()[len(written) : -9])
    Store(store.path).add(SETTINGS, {5: {"value": 6}})
    assert Store(store.path).get(SETTINGS) == {0: {"value": 1}, 5: {"value": 6}}


@pytest.mark.parametrize("content", ['{"error": 0.1}\n', "buy milk", _HEADER.decode().replace("4", "3")])
def test_files_of_other_programs_and_versions_are_refused_and_left_alone(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "store"
    path.write_text(content)
    with pytest.raises(ValueError, match="is not a store of results, or one of another version"):
        Store(path)
    assert path.read_text() == content


# ---------------------------------------------------------------- processes

CELLS = [Cell({"name": name}, name, 7, batch=3) for name in ("a", "b")]

# Prints a line after each stored batch, so that the test knows when to kill it.
PROGRAM = """
import sys, time
from skmix.paper.harness import Cell, Crew, Store, run_cells

def work(shared, task, replicates):
    time.sleep(0.05)
    return [{"value": shared * number} for number in replicates]

if __name__ == "__main__":
    cells = [Cell({"name": name}, name, 5000, batch=10) for name in "ab"]
    store = Store(sys.argv[1])
    try:
        with Crew(2, n_jobs=2) as crew:
            run_cells(cells, work, crew, store, lambda records: print(len(records), flush=True))
    except KeyboardInterrupt:
        sys.exit("interrupted")
"""


def multiply(shared: int, task: str, replicates: Sequence[int]) -> list[dict[str, Any]]:
    return [{"task": task, "value": shared * number, "process": os.getpid()} for number in replicates]


def die_later(shared: int, task: str, replicates: Sequence[int]) -> list[dict[str, Any]]:
    if max(replicates) > 3:
        os._exit(1)
    return multiply(shared, task, replicates)


def test_only_missing_replicates_are_made(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store.add({"name": "a"}, {number: {"value": -1} for number in (0, 3, 4)})
    assert missing(CELLS, store) == 11
    seen: list[dict[str, Any]] = []
    run_cells(CELLS, multiply, Crew(10), store, seen.extend)
    assert len(seen) == 11
    assert [each["value"] for each in store.get({"name": "a"}).values()] == [-1, 10, 20, -1, -1, 50, 60]
    assert [each["value"] for each in store.get({"name": "b"}).values()] == list(range(0, 70, 10))
    # Four of the first cell in batches of three and one, and seven of the second in turn.
    assert [each["task"] for each in seen] == [*"aaabbb", *"abbb", "b"]
    assert missing(CELLS, store) == 0
    run_cells(CELLS, multiply, Crew(10), store, lambda records: pytest.fail("made again"))


def note(folder: Path, task: int) -> int:
    (folder / str(task)).write_text(str(os.getpid()))
    time.sleep(0.01)
    return task


@pytest.mark.slow
def test_tasks_that_were_not_begun_are_dropped_at_an_interrupt(tmp_path: Path) -> None:
    """Otherwise Ctrl-C would wait for hours of work that nobody stores."""
    with Crew(tmp_path, 2) as crew:
        next(crew.each(note, range(2000)))
    begun = [path.read_text() for path in tmp_path.iterdir()]
    assert 0 < len(begun) < 2000
    assert len(set(begun)) <= 2
    # Ctrl-C works again; and only the main thread, which this need not be, may set its handler.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with ThreadPoolExecutor(1) as thread, Crew(tmp_path, 2) as crew:
        assert sorted(thread.submit(lambda: list(crew.each(note, [0, 1]))).result()) == [0, 1]


@pytest.mark.slow
def test_a_dead_worker_is_reported_in_words(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(ExperimentError, match="Finished runs are stored"), Crew(1, 2) as crew:
        run_cells(CELLS, die_later, crew, store)
    assert len(store) <= 6


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_an_experiment_that_is_interrupted_or_killed_continues(tmp_path: Path) -> None:
    """Finished batches are there each time, whole and correct.

    Ctrl-C reaches the program and its workers alike, and only the program answers.
    """
    path = tmp_path / "store"
    program = tmp_path / "program.py"  # a file, so that worker processes can import it
    program.write_text(PROGRAM)
    finished = 0
    for kind in (signal.SIGINT, signal.SIGKILL):
        command = [sys.executable, str(program), str(path)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, start_new_session=True, **streams) as running:
            for _ in range(2):
                finished += int(running.stdout.readline())
            workers = children_of(running.pid)
            if kind == signal.SIGINT:
                os.killpg(running.pid, kind)
            else:
                running.send_signal(kind)
            output, errors = running.communicate()
            finished += sum(int(line) for line in output.splitlines())
        assert errors == "interrupted\n" or kind == signal.SIGKILL
        store = Store(path)
        # A batch may have been stored and not yet announced.
        assert len(store) >= finished
        assert len(store) % 10 == 0
        finished = len(store)
        for name in "ab":
            found = store.get({"name": name})
            assert {number: record["value"] for number, record in found.items()} == {
                number: 2 * number for number in found
            }
        wait_until_gone(workers)
    assert finished >= 40


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started."""
    file = Path(f"/proc/{process}/task/{process}/children")
    if not file.exists():
        pytest.skip("needs /proc")
    return [int(child) for child in file.read_text().split()]


def wait_until_gone(processes: list[int]) -> None:
    """Workers end by themselves soon after the process that started them."""
    while any(Path(f"/proc/{process}").exists() for process in processes):
        time.sleep(0.1)
