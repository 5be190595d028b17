"""Dask: work on blocks where they live, and the answers summed on the way back.

A block is known by a handle. On a cluster (`OnCluster`) that is a future: the block stays on the worker that
made it, and what travels is the work, once to every worker, and answers, summed in a tree. Where there is no
cluster (`OnThreads`) a handle is a recipe, and Dask's threads make each block anew in every pass, so that
data larger than memory pass through it.

Dask is imported when it is used: nothing here asks for it before a Dask collection comes along.
"""

from __future__ import annotations

import asyncio
import copy
import secrets
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

Answer = TypeVar("Answer")

# Answers added by one task. More make the tree flatter, fewer make it wait less.
_FAN_IN = 16
# A pass is tried again when what it sent was lost with a worker, though all of its blocks are there.
_ATTEMPTS = 4
# Seconds between two looks at whether anybody still works on what is waited for, and without any worker.
_LOOK = 5.0
_WITHOUT_WORKERS = 60.0
# Parameters of many starts may be large; Dask warns of graphs above 10 MB, and here is no smaller one.
_LARGE = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
# Runs on workers that may lack skmix, so it must not be a function of ours.
_VERSION = "__import__('skmix').__version__"


class ClusterError(RuntimeError):
    """The cluster cannot go on; the message says why, and what to do."""


def active_client() -> Any | None:
    """Return the client of the cluster in use, None where there is none."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


def place(version: str) -> OnCluster | OnThreads:
    """Return where to work: on the cluster in use, else on Dask's own threads.

    Parameters
    ----------
    version : str
        Version of skmix, which all workers must have.

    Raises
    ------
    ClusterError
        When the scheduler does not answer, or workers lack skmix.
    """
    client = active_client()
    if client is None:
        return OnThreads()
    # A client that has lost its scheduler forgets the address, sooner or later.
    address = getattr(client.scheduler, "address", "of the client in use")
    try:
        check_workers(client, version)
        return OnCluster(client)
    except OSError as error:  # closed connections and timeouts are such errors too
        raise ClusterError(_lost(address, error)) from error


def check_workers(client: Any, version: str) -> None:
    """Refuse a cluster whose workers lack skmix, or have another version of it.

    Raises
    ------
    ClusterError
        With the workers' addresses and what to install there.
    """
    found = client.run(eval, _VERSION, on_error="return")
    lacking = sorted(address for address, answer in found.items() if not isinstance(answer, str))
    if lacking:
        raise ClusterError(
            f"{len(lacking)} of {len(found)} workers cannot import skmix: {_some(lacking)} "
            f"({found[lacking[0]]!r}). Install skmix {version} where they run, and start them again."
        )
    others = sorted(address for address, answer in found.items() if answer != version)
    if others:
        raise ClusterError(
            f"{len(others)} of {len(found)} workers have another skmix than {version}: {_some(others)} "
            f"(with {found[others[0]]}). Install skmix {version} where they run, and start them again."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


class OnThreads:
    """Blocks as recipes, worked on by the scheduler that Dask uses without a cluster: threads, by default."""

    def keep(self, recipes: Sequence[Any]) -> list[Any]:
        """Return the handles of blocks given as Dask's delayed objects: themselves, nothing is computed."""
        return list(recipes)

    def each(self, function: Callable[..., Any], rows: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
        """Return what `function` makes of each block, in order.

        Parameters
        ----------
        function : callable
            Of a block's parts.
        rows : sequence
            Handles of the blocks' largest part.
        *others : sequences of the same length
            Handles of the other parts, or plain values.
        """
        import dask

        lazily = dask.delayed(function, pure=False)
        return list(dask.compute(*(lazily(*parts) for parts in zip(rows, *others, strict=True))))

    def derive(self, function: Callable[..., Any], rows: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
        """Return handles of what `function` makes of each block, kept in memory: for small things."""
        import dask

        name = unique_name(function)
        made = self.each(function, rows, *others)
        return [dask.delayed(part, name=f"{name}-{i}", traverse=False) for i, part in enumerate(made)]

    def reduce(
        self,
        work: Callable[..., Answer],
        merge: Callable[[Answer, Answer], Answer],
        rows: Sequence[Any],
        *others: Sequence[Any],
    ) -> Answer:
        """Return the sum, by `merge` and always in the same order, of `work` on all blocks."""
        import dask

        shared = dask.delayed(work, name=unique_name(work), traverse=False)
        apply, fold = dask.delayed(_apply, pure=False), dask.delayed(_fold, pure=False)
        level = [apply(shared, *parts) for parts in zip(rows, *others, strict=True)]
        while len(level) > 1:
            level = [fold(merge, group) for group in _groups(level)]
        answer: Answer = level[0].compute()
        return answer


class OnCluster:
    """Blocks on the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        Of the cluster.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._address = client.scheduler.address
        # Which worker made which block.
        self._holders: dict[str, str] = {}

    def keep(self, recipes: Sequence[Any]) -> list[Any]:
        """Have blocks, given as Dask's delayed objects, made and kept by workers; return their futures."""
        futures: list[Any] = self._client.compute(list(recipes))
        held = self._attempt(lambda: self._client.who_has(self._waited(futures)), futures)
        for key, workers in held.items():
            if workers:
                self._holders[key] = min(workers)
        return futures

    def each(self, function: Callable[..., Any], rows: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
        """Return what `function` makes of each block, in order; see `OnThreads.each`."""

        def ask() -> list[Any]:
            answers: list[Any] = self._client.gather(self._waited(self._map(function, (), rows, others)))
            return answers

        return self._attempt(ask, rows)

    def derive(self, function: Callable[..., Any], rows: Sequence[Any], *others: Sequence[Any]) -> list[Any]:
        """Return futures of what `function` makes of each block, which stay where they are made."""
        return self._attempt(lambda: self._waited(self._map(function, (), rows, others)), rows)

    def reduce(
        self,
        work: Callable[..., Answer],
        merge: Callable[[Answer, Answer], Answer],
        rows: Sequence[Any],
        *others: Sequence[Any],
    ) -> Answer:
        """Return the sum, by `merge`, of `work` on all blocks.

        One message with the work goes to every worker. The answers of blocks that one worker made are added
        there, then those of the workers, and one comes back: however many blocks there are, each worker sends
        one answer. The order of the sum is that of the blocks' making, and stays the same when workers die.
        """
        return self._attempt(lambda: self._reduce(work, merge, rows, others), rows)

    def _reduce(
        self,
        work: Callable[..., Answer],
        merge: Callable[[Answer, Answer], Answer],
        rows: Sequence[Any],
        others: Sequence[Sequence[Any]],
    ) -> Answer:
        import dask

        # A task and not data that are scattered: workers fetch it from each other as they do those, but it is
        # made again when it is lost, and a worker that dies meanwhile cannot keep it from arriving.
        with dask.config.set(_LARGE):
            shared = self._client.submit(_given, work, key=unique_name(work), pure=False)
        level = self._map(_apply, (shared,), rows, others)
        sums = [
            self._summed(merge, [level[i] for i in numbers], holder)
            for holder, numbers in self._by_holder(rows).items()
        ]
        # Answers are let go of here, as soon as their sums have been asked for.
        del level
        answer: Answer = self._waited([self._summed(merge, sums, None)])[0].result()
        return answer

    def _summed(self, merge: Callable[[Answer, Answer], Answer], level: list[Any], holder: str | None) -> Any:
        """Return the future of the sum of some answers, added in a tree by the worker that has them."""
        name, depth = unique_name(merge), 0
        while len(level) > 1:
            depth += 1
            groups = _groups(level)
            keys = [f"{name}-{depth}-{i}" for i in range(len(groups))]
            level = self._client.map(
                _fold, [merge] * len(groups), groups, key=keys, pure=False, **_preferring(holder)
            )
        return level[0]

    def _by_holder(self, rows: Sequence[Any]) -> dict[str | None, list[int]]:
        """Return the numbers of the blocks that each worker made, under None those of nobody knows whom."""
        by_holder: dict[str | None, list[int]] = {}
        for number, future in enumerate(rows):
            by_holder.setdefault(self._holders.get(future.key), []).append(number)
        return by_holder

    def _map(
        self,
        function: Callable[..., Any],
        shared: tuple[Any, ...],
        rows: Sequence[Any],
        others: Sequence[Sequence[Any]],
    ) -> list[Any]:
        """Have `function` run on what is shared and each block's parts, by preference where its rows are."""
        name = unique_name(function)
        futures: list[Any] = [None] * len(rows)
        for holder, numbers in self._by_holder(rows).items():
            parts = [[part[i] for i in numbers] for part in (rows, *others)]
            repeated = [[each] * len(numbers) for each in shared]
            keys = [f"{name}-{i}" for i in numbers]
            own = self._client.map(function, *repeated, *parts, key=keys, pure=False, **_preferring(holder))
            for i, future in zip(numbers, own, strict=True):
                futures[i] = future
        return futures

    def _waited(self, futures: list[Any]) -> list[Any]:
        """Return futures when they are done; raise what went wrong with the first that failed."""
        import distributed

        idle_since = None
        while True:
            try:
                distributed.wait(futures, timeout=_LOOK)
                break
            except TimeoutError:
                if self._client.status != "running":
                    break
                if self._client.scheduler_info()["workers"]:
                    idle_since = None
                    continue
                idle_since = time.monotonic() if idle_since is None else idle_since
                if time.monotonic() - idle_since > _WITHOUT_WORKERS:
                    raise ClusterError(
                        f"The cluster has no worker since {_WITHOUT_WORKERS:.0f} s. Start some and fit again."
                    ) from None
        for future in futures:
            if future.status != "finished":
                future.result(timeout=_LOOK)
        return futures

    def _attempt(self, ask: Callable[[], Answer], blocks: Sequence[Any]) -> Answer:
        """Return the answer of the cluster, asked again while that may help.

        Workers come and go: Dask makes blocks that were lost again, from their recipes, and so what failed
        for want of something else that was lost succeeds when it is sent again.
        """
        import distributed

        losses = (CancelledError, asyncio.CancelledError, distributed.comm.CommClosedError, TimeoutError)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return ask()
            except distributed.scheduler.KilledWorker as error:
                raise ClusterError(
                    f"Several workers ended while they worked on the same block ({error.task}); perhaps for "
                    "want of memory. Rechunk the data into smaller blocks or give workers more memory."
                ) from _apart(error)
            except losses as error:
                reason = self._reason(error, blocks)
                if reason is None and attempt == _ATTEMPTS:
                    reason = (
                        f"The cluster lost what it was sent {_ATTEMPTS} times in a row ({error!r}). Are its "
                        "workers stable, and have they memory enough?"
                    )
                cause = _apart(error)
                if reason is not None:
                    raise ClusterError(reason) from cause
            except Exception as error:
                raise _apart(error) from error.__cause__
        raise AssertionError("the last attempt returns or raises")

    def _reason(self, error: BaseException, blocks: Sequence[Any]) -> str | None:
        """Return why it is no use to ask again; None when it may be."""
        if self._client.status != "running":
            return _lost(self._address, error)
        lost = [number for number, block in enumerate(blocks) if block.status in ("lost", "cancelled")]
        if lost:
            return (
                f"Block {lost[0]} of the rows was lost with its worker ({len(lost)} of {len(blocks)} are), "
                "and there is no recipe to make it again: it was scattered, not read or computed. Make the "
                "collection from files or functions (dask.array.from_zarr, dask.dataframe.read_parquet) and "
                "fit again."
            )
        return None


def _lost(address: str, error: BaseException) -> str:
    return (
        f"The connection to the scheduler {address} is lost ({type(error).__name__}). "
        "Start a cluster and fit again."
    )


def _apart(error: BaseException) -> BaseException:
    """Return an error like this one, with what it knows of the worker, and free this one of its frames.

    A client keeps the error of a task while there are futures, and our frames, which an error collects on its
    way, have futures: they would keep each other, and the blocks, until the client is closed.
    """
    there = trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("distributed."):
            there = trace.tb_next
        trace = trace.tb_next
    error.__traceback__ = None
    try:
        return copy.copy(error).with_traceback(there)
    except Exception:  # its class may want more than it keeps
        return error


def _preferring(holder: str | None) -> dict[str, Any]:
    """Return options by which tasks run where their blocks are.

    It is a preference, not a rule: should that worker be gone, another one makes the blocks again.
    """
    return {} if holder is None else {"workers": [holder], "allow_other_workers": True}


def _given(work: Answer) -> Answer:
    return work


def _apply(work: Callable[..., Answer], *parts: Any) -> Answer:
    return work(*parts)


def _fold(merge: Callable[[Answer, Answer], Answer], answers: Sequence[Answer]) -> Answer:
    """Return the sum of answers, in order, leaving them as they are.

    `merge` may add to its first argument; a task's result must not change, because it may be read again.
    """
    total = copy.deepcopy(answers[0])
    for answer in answers[1:]:
        total = merge(total, answer)
    return total


def _groups(level: Sequence[Any]) -> list[list[Any]]:
    """Cut a level of the tree into neighbours that are added together."""
    return [list(level[a : a + _FAN_IN]) for a in range(0, len(level), _FAN_IN)]


def unique_name(what: Any) -> str:
    """Return a name that no other task has: answers of an earlier pass must not be taken for this one's."""
    known = getattr(what, "__name__", type(what).__name__)
    return f"skmix-{known.strip('_').lower()}-{secrets.token_hex(8)}"
