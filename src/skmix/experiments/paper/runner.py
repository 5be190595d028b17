"""Running a study: what is missing in the store, in batches, on several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from threadpoolctl import threadpool_limits

from skmix.engine.compute.dask import ClusterError, map_tasks
from skmix.experiments.paper.beyond import run_beyond
from skmix.experiments.paper.methods import fit_batch, group_models, run_batch
from skmix.experiments.paper.records import BestRun, Beyond, Run, Settings, StudyData, StudyResults
from skmix.experiments.paper.store import Store
from skmix.experiments.paper.variants import (
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Cell,
    Method,
    variant_of,
)

# Called with the runs of each batch once they are stored.
Progress = Callable[[Sequence[Run]], None]

# Runs of a batch, done within a second or two. The engine shares work between the runs of a batch, and 100 of
# them cost a tenth less than twice 50; the published method shares nothing.
_BATCH: dict[Method, int] = {"published": 10, "robust": 100, "class-wise": 100}


class StudyError(RuntimeError):
    """The study could not go on; the message says why, and what was kept."""


@dataclass(frozen=True)
class Batch:
    """Some runs of one cell that are fitted together.

    Attributes
    ----------
    variant : str
        Name of the variant.
    n_kernels : int
        K.
    method : {"published", "robust", "class-wise"}
        How they are run.
    runs : tuple of int
        Their numbers.
    """

    variant: str
    n_kernels: int
    method: Method
    runs: tuple[int, ...]


def study_cells(
    n_runs: int = MAIN_RUNS, variants: Iterable[str] | None = None, methods: Iterable[Method] = METHODS
) -> list[Cell]:
    """List the cells of the study: all variants at K = 10, and the sweep over K.

    Parameters
    ----------
    n_runs : int, default=500
        Runs of each cell at K = 10; the sweep has at most 100.
    variants : iterable of str, optional
        Only these variants.
    methods : iterable of str, optional
        Only these methods.

    Returns
    -------
    list of Cell
        The sweep's cells at K = 10 are not listed again: its runs are the first of the main study's.
    """
    names = [variant.name for variant in VARIANTS]
    if variants is not None:
        chosen = {variant_of(name).name for name in variants}
        names = [name for name in names if name in chosen]
    methods = list(methods)
    cells = [Cell(name, MAIN_KERNELS, method, n_runs) for name in names for method in methods]
    cells += [
        Cell(name, n_kernels, method, min(n_runs, SWEEP_RUNS))
        for name in names
        if name in SWEEP_VARIANTS
        for n_kernels in SWEEP_KERNELS
        if n_kernels != MAIN_KERNELS
        for method in methods
    ]
    return cells


def missing_batches(cells: Iterable[Cell], store: Store, batch_size: int | None = None) -> list[Batch]:
    """List what the store lacks, in batches; cells take turns, so that all of them grow together."""
    turns: list[tuple[int, Batch]] = []
    for cell in cells:
        kept = store.numbers(cell.variant, cell.n_kernels, cell.method)
        missing = [run for run in range(cell.n_runs) if run not in kept]
        size = _BATCH[cell.method] if batch_size is None else batch_size
        for turn, first in enumerate(range(0, len(missing), size)):
            runs = tuple(missing[first : first + size])
            turns.append((turn, Batch(cell.variant, cell.n_kernels, cell.method, runs)))
    return [batch for _, batch in sorted(turns, key=lambda pair: pair[0])]


def run_study(
    cells: Iterable[Cell],
    settings: Settings,
    data: StudyData,
    store: Store,
    *,
    n_jobs: int = 1,
    cluster: Any = None,
    progress: Progress | None = None,
) -> None:
    """Make the runs that the store lacks, and keep each batch as soon as it is done.

    An interrupt (Ctrl-C) or an error leaves every finished batch in the store.

    Parameters
    ----------
    cells : iterable of Cell
        What to run.
    settings : Settings
        Of the study.
    data : StudyData
        Its data.
    store : Store
        Where runs go.
    n_jobs : int, default=1
        Number of processes; with 1 the work is done in this one.
    cluster : distributed.Client, optional
        Of a Dask cluster, which then does the work; see `skmix.engine.compute.dask.connect`.
    progress : callable, optional
        Called with the runs of each batch once they are stored.
    """
    batches = missing_batches(cells, store)
    if cluster is None:
        results = _results(batches, settings, data, n_jobs)
    else:
        results = _results_of_cluster(batches, settings, data, cluster)
    for runs in results:
        store.add(runs)
        if progress is not None:
            progress(runs)


def study_results(
    cells: Iterable[Cell],
    settings: Settings,
    data: StudyData,
    store: Store,
    beyond: Sequence[Beyond] | None = None,
) -> StudyResults:
    """Gather what tables, figures and report are made of.

    The best runs are fitted once more, each from its own seed, to have their models.

    Parameters
    ----------
    cells : iterable of Cell
        The cells to read from the store.
    settings : Settings
        Of the study.
    data : StudyData
        Its data.
    store : Store
        Where the runs are.
    beyond : sequence of Beyond, optional
        Classifiers beyond the paper's; by default they are fitted here.

    Returns
    -------
    StudyResults
        Records of all runs, and models of the best.
    """
    runs: list[Run] = []
    best: dict[tuple[str, Method], BestRun] = {}
    for cell in cells:
        own = store.runs(cell.variant, cell.n_kernels, cell.method, cell.n_runs)
        runs += own
        finite = [run for run in own if not run.reason]
        if cell.n_kernels == MAIN_KERNELS and finite:
            best[cell.variant, cell.method] = _refitted(
                max(finite, key=lambda run: run.accuracy), data, settings
            )
    if beyond is None:
        beyond = run_beyond(data, seed=settings.seed)
    return StudyResults(settings, data, tuple(runs), best, tuple(beyond))


def _refitted(run: Run, data: StudyData, settings: Settings) -> BestRun:
    """Return a run with its models, fitted again."""
    variant = variant_of(run.variant)
    with threadpool_limits(limits=1, user_api="blas"):
        (fitted,) = fit_batch(data, variant, run.n_kernels, run.method, [run.run], settings)
    return BestRun(run, group_models(fitted, variant))


def _results(
    batches: Sequence[Batch], settings: Settings, data: StudyData, n_jobs: int
) -> Iterator[list[Run]]:
    """Yield the runs of each batch as they are done."""
    if n_jobs == 1 or len(batches) <= 1:
        for batch in batches:
            yield run_batch(data, batch.variant, batch.n_kernels, batch.method, batch.runs, settings)
        return
    # Fresh interpreters: a fork would inherit the threads of BLAS in an unknown state.
    pool = ProcessPoolExecutor(
        max_workers=min(n_jobs, len(batches)),
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin_worker,
        initargs=(data, settings),
    )
    try:
        with _interrupts_ignored():
            waiting: set[Future[list[Run]]] = {pool.submit(_work, batch) for batch in batches}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()
    except BrokenProcessPool as error:
        raise StudyError(
            "A worker process of the study ended unexpectedly, perhaps for want of memory. Finished runs are "
            "kept: run the same command again to go on, with fewer jobs if it happens again."
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _results_of_cluster(
    batches: Sequence[Batch], settings: Settings, data: StudyData, cluster: Any
) -> Iterator[list[Run]]:
    """Yield the runs of each batch as a cluster has done them."""
    try:
        yield from map_tasks(cluster, _work_on_cluster, (data, settings), batches)
    except ClusterError as error:
        raise StudyError(f"{error} Finished runs are kept: run the same command again to go on.") from error


def _work_on_cluster(shared: tuple[StudyData, Settings], batch: Batch) -> list[Run]:
    data, settings = shared
    return run_batch(data, batch.variant, batch.n_kernels, batch.method, batch.runs, settings)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Have the processes that are started meanwhile ignore Ctrl-C, which is for this one alone.

    This process ends them in good order.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_worker: tuple[StudyData, Settings] | None = None


def _begin_worker(data: StudyData, settings: Settings) -> None:
    global _worker
    _worker = (data, settings)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this worker when the process that started it is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _work(batch: Batch) -> list[Run]:
    assert _worker is not None
    data, settings = _worker
    return run_batch(data, batch.variant, batch.n_kernels, batch.method, batch.runs, settings)
