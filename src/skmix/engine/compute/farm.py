"""Independent tasks on a Dask cluster, answered in whatever order they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, TypeVar

from .cluster import ClusterError, check_workers, unique_name
from .threads import workers

Shared = TypeVar("Shared")
Task = TypeVar("Task")
Answer = TypeVar("Answer")

# Seconds to wait for a scheduler, and for a first worker.
_PATIENCE = 10.0


@contextmanager
def cluster_at(address: str, version: str) -> Iterator[Any]:
    """Lend a client of the cluster whose scheduler has that address.

    Parameters
    ----------
    address : str
        Such as ``tcp://10.0.0.1:8786``.
    version : str
        Version of skmix, which all workers must have.

    Raises
    ------
    ClusterError
        When nobody answers within seconds, there are no workers, or they lack skmix.
    ImportError
        When Dask is not installed.
    """
    try:
        import distributed
    except ImportError:
        raise ImportError("Working on a cluster needs Dask: pip install skmix[dask]") from None

    try:
        client = distributed.Client(address, timeout=_PATIENCE)
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"No Dask scheduler answers at {address} ({error}). Is the address right, and is it running?"
        ) from error
    try:
        try:
            client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise ClusterError(
                f"The cluster at {address} has no workers. Start some: dask worker {address}"
            ) from error
        check_workers(client, version)
        yield client
    finally:
        client.close()


def n_threads(client: Any) -> int:
    """Return how many tasks the cluster does at a time."""
    return sum(client.nthreads().values())


def answers(
    client: Any, work: Callable[[Shared, Task], Answer], shared: Shared, tasks: Sequence[Task]
) -> Iterator[Answer]:
    """Yield what `work` makes of each task, as they are done.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    work : callable
        A function of a module, of what all tasks share and a task. BLAS has one thread while it runs, as it
        has in a process of our own, so that the answers are the same.
    shared : object
        Sent once, and kept by the workers.
    tasks : sequence
        Small things.

    Raises
    ------
    ClusterError
        When the scheduler is lost, or workers die of the same task again and again.
    """
    import distributed

    common = client.submit(_given, shared, key=unique_name(work), pure=False)
    name = unique_name(work)
    futures = [
        client.submit(_alone, work, common, task, key=f"{name}-{i}", pure=False)
        for i, task in enumerate(tasks)
    ]
    try:
        for future in distributed.as_completed(futures):
            yield future.result()
            future.release()
    except (CancelledError, asyncio.CancelledError, distributed.comm.CommClosedError) as error:
        raise ClusterError(f"The connection to the cluster is lost ({type(error).__name__}).") from error
    except distributed.scheduler.KilledWorker as error:
        raise ClusterError(
            f"Several workers ended while they worked on the same task ({error.task}); perhaps for want of "
            "memory."
        ) from error
    finally:
        if client.status == "running":
            client.cancel(futures)


def _given(shared: Shared) -> Shared:
    return shared


def _alone(work: Callable[[Shared, Task], Answer], shared: Shared, task: Task) -> Answer:
    with workers(1):
        return work(shared, task)
