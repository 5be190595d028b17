"""The thread pool: order, errors, memory of its own, and BLAS kept out of the way."""

from __future__ import annotations

import pickle
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skmix.engine.compute import threads
from skmix.engine.compute.threads import Workspace, aligned, workers


def blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.mark.parametrize("n_jobs", [1, 2, 3, 8])
@pytest.mark.parametrize("n_tasks", [0, 1, 2, 50])
def test_answers_come_in_the_order_of_the_tasks(n_jobs: int, n_tasks: int) -> None:
    def work(task: int) -> int:
        # Later tasks finish sooner.
        time.sleep(0.0005 * ((n_tasks - task) % 3))
        return task * task

    with workers(n_jobs) as pool:
        assert list(pool.map(work, range(n_tasks))) == [task * task for task in range(n_tasks)]


def test_one_job_works_in_the_callers_thread_and_more_do_not() -> None:
    caller = threading.get_ident()
    with workers(1) as pool:
        assert set(pool.map(lambda _: threading.get_ident(), range(5))) == {caller}
    with workers(2) as pool:
        seen = set(pool.map(lambda _: threading.get_ident(), range(50)))
    assert caller not in seen
    assert 1 <= len(seen) <= 2


@pytest.mark.parametrize("n_jobs", [1, 2, 3])
def test_few_answers_wait_at_a_time(n_jobs: int) -> None:
    """Statistics of blocks must not pile up: memory is bounded by the threads, not by the rows."""
    begun = 0
    lock = threading.Lock()

    def work(task: int) -> int:
        nonlocal begun
        with lock:
            begun += 1
        return task

    with workers(n_jobs) as pool:
        for taken, _ in enumerate(pool.map(work, range(100))):
            with lock:
                assert begun - taken <= 2 * n_jobs + 2


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_errors_reach_the_caller(n_jobs: int) -> None:
    def work(task: int) -> int:
        if task == 3:
            raise ZeroDivisionError(f"task {task}")
        return task

    before = set(threading.enumerate())
    with pytest.raises(ZeroDivisionError, match="task 3"), workers(n_jobs) as pool:
        list(pool.map(work, range(10)))
    # The pool's end must not leave threads behind.
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_is_held_to_one_thread_and_let_go_again(n_jobs: int) -> None:
    threads._controller.cache_clear()  # other tests may have loaded more libraries since
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        assert before, "no BLAS found: this test cannot say anything"
        with workers(n_jobs) as pool:
            assert set(blas_threads()) == {1}
            inside = list(pool.map(lambda _: blas_threads(), range(4)))
            assert {n for found in inside for n in found} == {1}
        assert blas_threads() == before
        with pytest.raises(ValueError, match="stop"), workers(n_jobs):
            raise ValueError("stop")
        assert blas_threads() == before


def test_every_thread_has_memory_of_its_own() -> None:
    with workers(3) as pool:
        barrier = threading.Barrier(3, timeout=600)

        def work(task: int) -> tuple[int, bool]:
            memory = pool.workspace.array("values", (1000,))
            memory[:] = task
            barrier.wait()
            return memory.ctypes.data, bool((memory == task).all())

        answers = list(pool.map(work, range(3)))
    assert len({address for address, _ in answers}) == 3
    assert all(unspoilt for _, unspoilt in answers)


def test_memory_is_used_again() -> None:
    workspace = Workspace()
    large = workspace.array("values", (10, 20))
    small = workspace.array("values", (5, 3))
    assert small.shape == (5, 3)
    assert np.shares_memory(large, small)
    assert not np.shares_memory(large, workspace.array("total", (10, 20)))
    larger = workspace.array("values", (100, 20))
    assert larger.shape == (100, 20)
    assert larger.flags.c_contiguous


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_memory_begins_at_a_cache_line(size: int) -> None:
    for _ in range(5):
        memory = aligned(size)
        assert memory.shape == (size,)
        assert memory.dtype == np.float64
        assert memory.ctypes.data % 64 == 0 or size == 0


@pytest.mark.parametrize(("n_jobs", "n_tasks", "expected"), [(1, 5, 1), (3, 5, 3), (3, 2, 2), (2, 1, 1)])
def test_work_runs_in_as_many_threads_as_there_are_tasks(n_jobs: int, n_tasks: int, expected: int) -> None:
    done: list[int] = []
    barrier = threading.Barrier(expected)

    def work() -> None:
        barrier.wait(timeout=30)  # all of them at the same time
        done.append(threading.get_ident())

    with workers(n_jobs) as pool:
        pool.run(work, n_tasks)
    assert len(done) == len(set(done)) == expected
    assert threading.get_ident() in done


def test_errors_of_any_thread_reach_the_caller_of_a_run() -> None:
    caller = threading.get_ident()

    def work() -> None:
        if threading.get_ident() != caller:
            raise ValueError("elsewhere")

    with workers(2) as pool, pytest.raises(ValueError, match="elsewhere"):
        pool.run(work, 2)


def test_what_was_made_last_is_kept_by_its_key() -> None:
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    workspace = Workspace()
    for name in ("a", "a", "b", "b", "a"):
        assert workspace.kept(name, lambda name=name: make(name)) == name  # type: ignore[misc]
    assert made == ["a", "b", "a"]


def test_a_pool_that_travels_has_as_many_threads() -> None:
    with workers(3) as pool:
        pool.workspace.array("x", (5,))
        other = pickle.loads(pickle.dumps(pool))
    barrier = threading.Barrier(3)
    other.run(lambda: barrier.wait(timeout=30), 3)
    other.close()
