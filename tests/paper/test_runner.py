"""The runner makes what is missing and nothing else, and continues after a kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest

from skmix.paper import harness
from skmix.paper.harness import Cell, ExperimentError, Store, missing, run_cells

CELLS = [Cell({"name": name}, name, 7, batch=3) for name in ("a", "b")]

# Prints a line after each stored batch, so that the test knows when to kill it.
PROGRAM = """
import sys, time
from skmix.paper.harness import Cell, Store, run_cells

def work(shared, task, replicates):
    time.sleep(0.05)
    return [{"value": shared * number} for number in replicates]

if __name__ == "__main__":
    cells = [Cell({"name": name}, name, 5000, batch=10) for name in "ab"]
    with Store(sys.argv[1]) as store:
        try:
            run_cells(cells, work, 2, store, n_jobs=2,
                      progress=lambda records: print(len(records), flush=True))
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
    with Store(tmp_path / "store") as store:
        store.add({"name": "a"}, {number: {"value": -1} for number in (0, 3, 4)})
        assert missing(CELLS, store) == 11
        seen: list[dict[str, Any]] = []
        run_cells(CELLS, multiply, 10, store, progress=seen.extend)
        assert len(seen) == 11
        assert [each["value"] for each in store.get({"name": "a"}).values()] == [-1, 10, 20, -1, -1, 50, 60]
        assert [each["value"] for each in store.get({"name": "b"}).values()] == list(range(0, 70, 10))
        # Four of the first cell in batches of three and one, and seven of the second in turn.
        assert [each["task"] for each in seen] == [*"aaabbb", *"abbb", "b"]
        assert missing(CELLS, store) == 0
        run_cells(CELLS, multiply, 10, store, progress=lambda records: pytest.fail("made again"))


def test_an_interrupt_leaves_whole_batches(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt("after a batch")

    with Store(tmp_path / "store") as store:
        with pytest.raises(KeyboardInterrupt, match="after a batch"):
            run_cells(CELLS, multiply, 1, store, progress=interrupt)
        assert len(store) == 3
        run_cells(CELLS, multiply, 1, store)
        assert len(store) == 14


class Threads(ThreadPoolExecutor):
    """Threads in place of processes, which finish no task but the first until the pool is shut down."""

    begun: ClassVar[list[int]] = []
    workers = 0
    ended = threading.Event()

    def __init__(self, max_workers: int, mp_context: Any, initializer: Any, initargs: Any) -> None:
        Threads.begun, Threads.ended, Threads.workers = [], threading.Event(), max_workers
        super().__init__(max_workers, initializer=initializer, initargs=initargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        Threads.ended.set()
        super().shutdown(wait=True)


def wait_unless_first(shared: int, task: int) -> int:
    Threads.begun.append(task)
    if task > 0:
        Threads.ended.wait()
    return shared * task


def test_tasks_that_were_not_begun_are_dropped_at_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise Ctrl-C would wait for hours of work that nobody stores."""
    monkeypatch.setattr(harness, "ProcessPoolExecutor", Threads)
    answers = harness.spread(wait_unless_first, 3, list(range(50)), n_jobs=2)
    assert next(answers) == 0
    answers.close()
    assert len(Threads.begun) <= 4
    # No more processes than tasks, and no more than asked for.
    assert Threads.workers == 2
    assert list(harness.spread(wait_unless_first, 3, [0, 0, 0], n_jobs=9)) == [0, 0, 0]
    assert Threads.workers == 3
    # Ctrl-C works again; and only the main thread, which this need not be, may set its handler.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with ThreadPoolExecutor(1) as thread:
        others = thread.submit(lambda: list(harness.spread(wait_unless_first, 3, [0, 0], n_jobs=2)))
        assert others.result() == [0, 0]


@pytest.mark.slow
def test_a_dead_worker_is_reported_in_words(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        with pytest.raises(ExperimentError, match="Finished runs are stored"):
            run_cells(CELLS, die_later, 1, store, n_jobs=2)
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
        with Store(path) as store:
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
