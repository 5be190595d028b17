"""The thread pool: order, errors, and BLAS kept out of the way."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from sklearn.base import clone
from threadpoolctl import threadpool_info, threadpool_limits

from skmix import SharedKernelMixture
from skmix.engine import threads
from skmix.engine.threads import ProcessSetting, workers


def setting_of(now: list[str]) -> ProcessSetting:
    """Return a setting whose value is the only one of a list."""

    def change(value: str) -> Callable[[], None]:
        before, now[0] = now[0], value
        return lambda: now.__setitem__(0, before)

    return ProcessSetting(change)


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


@pytest.mark.parametrize("who", ["caller", "other", "all"])
@pytest.mark.parametrize("n_jobs", [1, 2, 4])
def test_an_error_is_raised_after_all_threads_have_ended(n_jobs: int, who: str) -> None:
    caller, lock, begun, ended = threading.get_ident(), threading.Lock(), [], []
    all_have_begun = threading.Barrier(n_jobs)

    def work() -> None:
        with lock:
            begun.append(threading.get_ident())
        all_have_begun.wait(timeout=600)
        is_caller = threading.get_ident() == caller
        if who == "all" or is_caller == (who == "caller"):
            raise ZeroDivisionError(who)
        time.sleep(0.05)
        ended.append(threading.get_ident())

    class Job:
        n_tasks = 4

        def work(self) -> None:
            work()

        def finish(self) -> None:
            raise AssertionError("a job that failed has no results")

    with workers(n_jobs) as pool:
        if who == "other" and n_jobs == 1:
            pytest.skip("there is no other thread")
        with pytest.raises(ZeroDivisionError, match=who):
            pool.finish(Job())
        n_failed = {"caller": 1, "other": n_jobs - 1, "all": n_jobs}[who]
        assert (len(begun), len(ended)) == (n_jobs, n_jobs - n_failed)
        # The pool goes on.
        pool.run(lambda: ended.clear(), n_jobs)
        assert not ended


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


def test_threads_that_share_workers_make_one_pool() -> None:
    """The interpreter switches threads so often here that a check without a lock lets two pass."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(30):
            pool, barrier = threads.Workers(2), threading.Barrier(4)

            def ask(pool: threads.Workers = pool, barrier: threading.Barrier = barrier) -> object:
                barrier.wait(timeout=600)
                return pool._threads

            with ThreadPoolExecutor(4) as callers:
                found = {id(each.result()) for each in [callers.submit(ask) for _ in range(4)]}
            pool.close()
            assert len(found) == 1
    finally:
        sys.setswitchinterval(interval)


def test_fits_in_several_threads_are_those_of_one() -> None:
    X = np.random.default_rng(0).normal(size=(4000, 3))
    model = SharedKernelMixture(8, random_state=0, max_iter=5, tol=0.0)

    def fit(n_jobs: int) -> bytes:
        return bytes(clone(model).set_params(n_jobs=n_jobs).fit(X).means_.tobytes())

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = fit(1)
        with ThreadPoolExecutor(4) as callers:
            assert set(callers.map(fit, [1, 2, 3] * 3)) == {expected}


def test_threads_that_need_another_value_of_a_setting_wait_for_each_other() -> None:
    now, seen, inside = ["before"], [], threading.Event()
    setting = setting_of(now)

    def other() -> None:
        with setting.to("other"):
            seen.append(now[0])

    with setting.to("ours"):
        thread = threading.Thread(target=other)
        thread.start()
        inside.wait(0.05)
        # A thread that needs the same value goes on at once.
        with setting.to("ours"):
            assert now == ["ours"]
        assert not seen
    thread.join(timeout=600)
    assert seen == ["other"]
    assert now == ["before"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_threads_it_lacks() -> None:
    now, inside, done = ["before"], threading.Event(), threading.Event()
    setting = setting_of(now)

    def other() -> None:
        with setting.to("other"):
            inside.set()
            done.wait(600)

    def begins_anew(now_before: str) -> int:
        # A child that waited would never end.
        signal.alarm(20)
        alone = now == [now_before]
        with setting.to("ours"), setting.to("ours"):
            own = now == ["ours"]
        return 0 if alone and own and now == [now_before] else 1

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(600)
    child = os.fork()
    if child == 0:
        os._exit(begins_anew("before"))
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join(timeout=600)
    assert status == 0
    # A process that leaves the body it was forked in needs nobody to let it in again.
    with setting.to("other"):
        child = os.fork()
    if child == 0:
        os._exit(begins_anew("before"))
    assert os.waitpid(child, 0)[1] == 0
    assert now == ["before"]
