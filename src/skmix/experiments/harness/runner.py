"""Runs the cells that a store lacks: in this process, in several, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from skmix.engine.compute.dask import ClusterError, map_tasks
from skmix.experiments.harness.store import Store

Record = dict[str, Any]
# From what all cells share, a cell's task and some replicates to a record of each replicate.
Work = Callable[[Any, Any, Sequence[int]], list[Record]]


class ExperimentError(RuntimeError):
    """The experiment could not continue; finished results are in the store."""


@dataclass(frozen=True)
class Cell:
    """One setting of an experiment, repeated a number of times."""

    settings: Mapping[str, Any]  # everything that affects the results, as values for JSON
    task: Any  # argument of the work function
    n_replicates: int  # replicates wanted, numbered from 0
    batch: int = 1  # replicates that are run and stored together


Batch = tuple[Cell, tuple[int, ...]]


def missing(cells: Iterable[Cell], store: Store) -> int:
    """Return how many replicates the store lacks."""
    return sum(len(replicates) for _, replicates in _missing_batches(cells, store))


def run_cells(
    cells: Iterable[Cell],
    work: Work,
    shared: Any,
    store: Store,
    *,
    n_jobs: int = 1,
    cluster: Any = None,
    progress: Callable[[list[Record]], None] | None = None,
) -> None:
    """Run what the store lacks, and store each batch as soon as it is finished.

    After an interrupt (Ctrl-C) or an error the store has all finished batches, and the same call continues
    from there. Cells take turns, so that all of them grow together.

    Parameters
    ----------
    cells : iterable of Cell
        Cells to run. If their run times differ, long ones should come first.
    work : callable
        A module-level function of (shared, task, replicates) that returns one record for each replicate. Its
        result must not depend on the batch or the process.
    shared : object
        Sent to each process once.
    store : Store
        Store for the results.
    n_jobs : int, default=1
        Number of processes; 1 runs everything in this process.
    cluster : distributed.Client, optional
        Client of a Dask cluster that runs the batches instead.
    progress : callable, optional
        Called with the records of each batch once they are stored.
    """
    batches = _missing_batches(cells, store)
    if cluster is not None:
        results = _on_cluster(batches, work, shared, cluster)
    elif n_jobs > 1 and len(batches) > 1:
        results = _in_processes(batches, work, shared, n_jobs)
    else:
        results = (_run((work, shared), task) for task in enumerate(batches))
    for place, records in results:
        cell, replicates = batches[place]
        store.add(cell.settings, dict(zip(replicates, records, strict=True)))
        if progress is not None:
            progress(records)


def _missing_batches(cells: Iterable[Cell], store: Store) -> list[Batch]:
    turns: list[tuple[int, Batch]] = []
    for cell in cells:
        stored = store.replicates(cell.settings)
        lacking = [replicate for replicate in range(cell.n_replicates) if replicate not in stored]
        for turn, first in enumerate(range(0, len(lacking), cell.batch)):
            turns.append((turn, (cell, tuple(lacking[first : first + cell.batch]))))
    return [batch for _, batch in sorted(turns, key=lambda pair: pair[0])]


def _run(common: tuple[Work, Any], task: tuple[int, Batch]) -> tuple[int, list[Record]]:
    """Return the place of a batch and its records."""
    (work, shared), (place, (cell, replicates)) = common, task
    return place, work(shared, cell.task, replicates)


def _in_processes(
    batches: Sequence[Batch], work: Work, shared: Any, n_jobs: int
) -> Iterator[tuple[int, list[Record]]]:
    """Yield place and records of each batch as processes finish them."""
    # Fresh interpreters: a fork would inherit the threads of BLAS in an unknown state.
    pool = ProcessPoolExecutor(
        max_workers=min(n_jobs, len(batches)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(work, shared),
    )
    try:
        with _interrupts_ignored():
            waiting: set[Future[tuple[int, list[Record]]]] = {
                pool.submit(_run_in_worker, task) for task in enumerate(batches)
            }
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool as error:
        raise ExperimentError(
            "A worker process ended unexpectedly, perhaps because memory ran out. Finished runs are stored: "
            "run the same command again to continue, with fewer jobs if this happens again."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _on_cluster(
    batches: Sequence[Batch], work: Work, shared: Any, cluster: Any
) -> Iterator[tuple[int, list[Record]]]:
    """Yield place and records of each batch as a cluster finishes them."""
    try:
        yield from map_tasks(cluster, _run, (work, shared), list(enumerate(batches)))
    except ClusterError as error:
        raise ExperimentError(
            f"{error} Finished runs are stored: run the same command again to continue."
        ) from error


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Make processes started in the body ignore Ctrl-C; this process shuts them down."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_common: tuple[Work, Any] | None = None


def _begin_worker(work: Work, shared: Any) -> None:
    global _common
    _common = (work, shared)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit this worker when its parent process has ended for any reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run_in_worker(task: tuple[int, Batch]) -> tuple[int, list[Record]]:
    assert _common is not None
    return _run(_common, task)
