"""Threads: an ordered map over blocks, and the same work in every thread, with BLAS limited to one thread.

Elementwise operations do not use BLAS threads, so blocks run on our own. BLAS threads on top of them would
compete for the same cores, and their number would change the rounding.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from .arrays import FloatArray
from .process import ProcessSetting

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Workspace(threading.local):
    """Memory of one thread, kept between passes: allocating it anew would cost more than the work in it."""

    def __init__(self) -> None:
        self._kept: tuple[Hashable, Any] = (None, None)

    def kept(self, key: Hashable, make: Callable[[], Answer]) -> Answer:
        """Return what `make` returned when this thread last called, if that was with the same key."""
        if self._kept[0] != key:
            self._kept = key, make()
        answer: Answer = self._kept[1]
        return answer


def aligned(size: int) -> FloatArray:
    """Return an array that begins at a cache line, where vector instructions are twice as fast."""
    raw = np.empty(size + 8)
    skip = -raw.ctypes.data % 64 // 8
    return raw[skip : skip + size]


class Workers:
    """A pool of threads, each with its own workspace.

    Parameters
    ----------
    n_jobs : int
        Number of threads; with 1 the work is done in the caller's.
    """

    def __init__(self, n_jobs: int) -> None:
        self.workspace = Workspace()
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
        """Run `work` in every thread, or in as many as there are tasks, and wait for all."""
        n_threads = min(self._n_jobs, n_tasks)
        if n_threads == 1:
            work()
            return
        others = [self._threads.submit(work) for _ in range(n_threads - 1)]
        work()
        for other in others:
            other.result()

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
    """Yield a pool of `n_jobs` threads while BLAS is limited to one thread."""
    pool = Workers(n_jobs)
    try:
        with one_blas_thread():
            yield pool
    finally:
        pool.close()


# ---------------------------------------------------------------- compiled code


@lru_cache
def can_compile() -> bool:
    """Return whether there is compiled code: not where Numba is missing, does not work or is switched off."""
    try:
        import numba

        from . import simd  # noqa: F401
    except ImportError:
        return False
    return not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


def is_loaded() -> bool:
    """Return whether this process uses compiled code already: what is on disk is then loaded quickly."""
    return can_compile.cache_info().currsize > 0 and can_compile()
