"""Threads: an ordered map over blocks, and the same work in every thread, with BLAS limited to one thread.

The compiled core starts no threads, so these do its work. BLAS threads on top of them would compete for the
same cores, and their number would change the rounding.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Task = TypeVar("Task")
Answer = TypeVar("Answer")

# Operations of a thread, about 0.4 ms: to start and to wake it up takes a quarter of that.
_OPERATIONS_OF_THREAD = 1 << 23


class Workers:
    """A pool of `n_jobs` threads; one thread is the caller's."""

    def __init__(self, n_jobs: int) -> None:
        self._n_jobs = n_jobs
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()  # two threads that share these workers must not make two pools

    def __reduce__(self) -> tuple[type[Workers], tuple[int]]:
        # An unpickled pool starts its own threads.
        return Workers, (self._n_jobs,)

    def map(self, work: Callable[[Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        """Yield the results in the order of the tasks, with few of them pending at a time."""
        if self._n_jobs == 1 or len(tasks) == 1:
            yield from map(work, tasks)
            return
        waiting: deque[Future[Answer]] = deque()
        for task in tasks:
            waiting.append(self._threads.submit(work, task))
            if len(waiting) > 2 * self._n_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def run(self, work: Callable[[], object], n_tasks: int) -> None:
        """Run `work` in every thread, or in as many as there are tasks, and wait for all.

        An error of any of them is raised after all have ended.
        """
        n_threads = min(self._n_jobs, n_tasks)
        if n_threads == 1:
            work()
            return
        others = [self._threads.submit(work) for _ in range(n_threads - 1)]
        try:
            work()
        finally:
            # An error must not leave others at work on the caller's arrays.
            wait(others)
        for other in others:
            other.result()

    def finish(self, job: Any, n_operations: float = math.inf) -> Any:
        """Do a job of the compiled core, and return its results; few operations take few threads."""
        self.run(job.work, int(min(job.n_tasks, max(1.0, n_operations / _OPERATIONS_OF_THREAD))))
        return job.finish()

    @property
    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._n_jobs, initializer=_limit_this_thread)
            return self._pool

    def close(self) -> None:
        """Shut down the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


# ---------------------------------------------------------------- settings of the process


class ProcessSetting:
    """A setting of the whole process, changed while anyone needs it and restored after the last.

    Threads that need the same value share it; a thread that needs another one waits until they are done.
    `change` takes a value, sets it, and returns a function that restores the one before.
    """

    def __init__(self, change: Callable[[Any], Callable[[], object]]) -> None:
        self._change = change
        self._value: Any = None
        self._restore: Callable[[], object] = bool  # nothing to restore yet
        self._begin()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _begin(self) -> None:
        self._changed, self._users = threading.Condition(), 0

    def _after_fork(self) -> None:
        """Restore the setting in a forked process: the threads that would do so are not there."""
        if self._users:
            self._restore()
        self._begin()

    @contextmanager
    def to(self, value: Any) -> Iterator[None]:
        """Set the value in the body."""
        changed = self._changed
        with changed:
            changed.wait_for(lambda: not self._users or self._value == value)
            if not self._users:
                self._value, self._restore = value, self._change(value)
            self._users += 1
        try:
            yield
        finally:
            # A process that was forked in the body has begun anew.
            if self._changed is changed:
                with changed:
                    self._users -= 1
                    if not self._users:
                        self._restore()
                        changed.notify_all()


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    # Cached, since finding the loaded BLAS libraries takes milliseconds.
    return ThreadpoolController()


def _limit_this_thread() -> None:
    """Limit BLAS libraries whose threads are those of OpenMP: each thread has a limit of its own there."""
    _controller().select(threading_layer="openmp").limit(limits=1, user_api="blas")


def _limit_blas(n_threads: int) -> Callable[[], object]:
    limits: Any = _controller().limit(limits=n_threads, user_api="blas")
    return limits.restore_original_limits


_blas_threads = ProcessSetting(_limit_blas)


def one_blas_thread() -> AbstractContextManager[None]:
    """Limit BLAS to one thread in the body, and while any other fit runs."""
    return _blas_threads.to(1)


@contextmanager
def workers(n_jobs: int) -> Iterator[Workers]:
    """Yield a pool of `n_jobs` threads while BLAS is limited to one thread.

    Meanwhile it is the pool of the calling thread, see `pool_here`.
    """
    pool, pools = Workers(n_jobs), vars(_here).setdefault("pools", [])
    pools.append(pool)
    try:
        with one_blas_thread():
            yield pool
    finally:
        # Not always the last one: generators that are open together may end in any order.
        pools.remove(pool)
        pool.close()


_here = threading.local()


def pool_here() -> Workers:
    """Return the innermost pool of `workers` in this thread, or one without other threads."""
    pools = vars(_here).get("pools")
    return pools[-1] if pools else Workers(1)
