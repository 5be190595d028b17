"""Dask: collections as blocks of rows, functions mapped lazily over rows, and independent tasks on a cluster.

The partitions of a Dask array or dataframe are the blocks. On a cluster they stay in the memory of the
workers: a pass sends the work once to each worker, and a tree of tasks sums the results, so that traffic does
not depend on the number of rows. Without a cluster Dask's threads recompute each block in every pass, so that
the data may be larger than memory.

Dask is imported inside functions: it is an optional dependency.
"""

from __future__ import annotations

import asyncio
import copy
import math
import secrets
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..engine.rows.blocks import Answer
from .blocks import LabelledBlock
from .labels import encode
from .missing import refuse_masked_weights, without_mask

# Blocks of a worker that one task works on: the scheduler takes milliseconds for each task.
_BLOCKS_PER_TASK = 8
# Answers that one task of the tree merges.
_FAN_IN = 16
# Answers that the client merges itself: sending so few takes less time than another task.
_ROOTS = 4
# Seconds between two polls of a running cluster.
_POLL = 5.0
# Seconds to wait for a worker to join after all of them have left.
_WITHOUT_WORKERS = 60.0
# Parameters of many starts often exceed the 10 MB above which Dask warns.
_CONFIG = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}
# Evaluated on workers where skmix may be missing, so it cannot be one of our functions.
_VERSION = "__import__('skmix').__version__"


class ClusterError(RuntimeError):
    """The cluster cannot finish the work."""


def is_collection(value: Any) -> bool:
    """Whether `value` is a Dask collection: an array, dataframe, series, bag or delayed object."""
    return type(value).__module__.split(".")[0] == "dask" and hasattr(value, "__dask_graph__")


def check_kind(value: Any, name: str) -> None:
    """Refuse Dask collections other than arrays, dataframes and series."""
    if is_collection(value) and not hasattr(type(value), "ndim"):
        raise ValueError(
            f"{name} must be a Dask array, dataframe or series, got a Dask {type(value).__name__}. Convert "
            "it first, for example with dask.array.from_delayed, or compute() it."
        )


# ---------------------------------------------------------------- blocks


class _Partition(NamedTuple):
    """A block, whose arrays are futures on a cluster, or delayed objects, or None."""

    rows: Any  # (n, M)
    codes: Any  # (n,): class codes
    weights: Any  # (n,)
    number: int
    labels: Any  # (n,): as long as there are no codes
    worker: str | None = None  # the one that holds the block


@dataclass(frozen=True)
class DaskBlocks:
    """The partitions of Dask collections as `LabelledBlocks`."""

    runs_elsewhere: ClassVar[bool] = True
    name: ClassVar[str] = "X"
    preparation: ClassVar[None] = None

    n_features: int
    feature_names: list[str] | None
    parts: list[_Partition]  # those of a worker are neighbours
    client: Any = None  # None without a cluster
    threads: dict[str | None, int] = field(default_factory=dict)  # number of threads of each worker
    places: dict[str | None, str] = field(default_factory=dict)  # workers in place of those that left
    columns: list[int] | None = None  # features of the rows, if not all

    def reduce(
        self, work: Callable[[LabelledBlock], Answer], merge: Callable[[Answer, Answer], Answer]
    ) -> Answer:
        """The answers of all blocks, merged by a tree of tasks, always in the same order."""
        import dask

        if self.client is None:
            shared = dask.delayed((work, self.columns), name=_unique_name(work), traverse=False)
            return reduce(merge, dask.compute(*self._merged(shared, merge)))
        with _cluster_errors(self.client), dask.config.set(_CONFIG):
            self._fill_places()
            # As a task of its own, the work is sent to each worker once and recomputed if it is lost.
            shared = self.client.submit(tuple, (work, self.columns), key=_unique_name(work))
            futures = self._merged(shared, merge)
            _wait(self.client, futures)
            return reduce(merge, self.client.gather(futures))

    def _merged(self, shared: Any, merge: Callable[..., Any]) -> list[Any]:
        """The last answers of the tree, futures or delayed: each worker merges its own answers first."""
        answers: list[Any] = []
        for worker, held in groupby(self.parts, key=attrgetter("worker")):
            parts, place = [part[:-1] for part in held], self.places.get(worker, worker)
            # Every thread gets a task. Without a cluster blocks stay apart: a task would hold all of its own.
            size = max(1, min(_BLOCKS_PER_TASK, len(parts) // self.threads.get(worker, len(parts))))
            tasks = [(shared, merge, *map(list, zip(*some, strict=True))) for some in _batches(parts, size)]
            answers += self._tree(self._map(_answer, tasks, place), merge, 1, place)
        return self._tree(answers, merge, _ROOTS)

    def _tree(
        self, answers: list[Any], merge: Callable[..., Any], most: int, worker: str | None = None
    ) -> list[Any]:
        """At most `most` answers, merged level by level."""
        while len(answers) > most:
            answers = self._map(reduce, [(merge, some) for some in _batches(answers, _FAN_IN)], worker)
        return answers

    def _map(self, function: Callable[..., Any], arguments: list[Any], worker: str | None = None) -> Any:
        """A future or delayed call for each tuple of arguments; any worker may replace a lost one."""
        import dask

        if self.client is None:
            return [dask.delayed(function, pure=False)(*values) for values in arguments]
        where = {} if worker is None else {"workers": [worker], "allow_other_workers": True}
        return self.client.map(function, *zip(*arguments, strict=True), pure=False, **where)

    def _fill_places(self) -> None:
        """Let workers that have joined take the places, and so the blocks, of those that left."""
        present = self.client.nthreads().keys()
        for left in {part.worker for part in self.parts if part.worker} - present:
            free = present - self.threads.keys() - set(self.places.values())
            if free and self.places.get(left) not in present:
                self.places[left] = min(free)

    def coded(self, classes: np.ndarray) -> DaskBlocks:
        """The blocks with class codes, indices into `classes` (L,), kept where the labels are."""
        import dask

        if self.parts[0].labels is None:
            return self
        codes = self._map(encode, [(part.labels, classes) for part in self.parts])
        codes = dask.persist(*codes) if self.client is None else codes
        pairs = zip(self.parts, codes, strict=True)
        return replace(self, parts=[part._replace(codes=of_part, labels=None) for part, of_part in pairs])

    def with_features(self, columns: list[int]) -> DaskBlocks:
        """The blocks with some of their features."""
        names = None if self.feature_names is None else [self.feature_names[column] for column in columns]
        if self.columns is not None:
            columns = [self.columns[column] for column in columns]
        return replace(self, n_features=len(columns), feature_names=names, columns=columns)


def _batches(values: list[Any], size: int) -> list[list[Any]]:
    return [values[a : a + size] for a in range(0, len(values), size)]


def _answer(shared: tuple[Any, Any], merge: Callable[..., Any], *parts: list[Any]) -> Any:
    """The work's merged results for some blocks: lists of rows, codes, weights, numbers and labels."""
    work, columns = shared
    blocks = map(LabelledBlock, *parts)
    return reduce(
        merge, (work(block if columns is None else block.with_features(columns)) for block in blocks)
    )


def open_collections(X: Any, y: Any, weights: Any, version: str) -> DaskBlocks:
    """Rows X (N, M), labels and weights (N,) or None as blocks, held by the cluster in use if any.

    All workers must have skmix in this version. Labels and weights may be in memory.
    """
    import dask

    rows, labels = _aligned(_matrix(X), y, "y")
    rows, shares = _aligned(rows, weights, "sample_weight")
    n_blocks, arrays = rows.numblocks[0], []
    for array, function in ((rows, _as_rows), (labels, _as_labels), (shares, _as_weights)):
        blocks = [] if array is None else array.to_delayed().ravel()
        arrays += [dask.delayed(function)(block) for block in blocks] or [None] * n_blocks
    holders: list[str | None] = [None] * n_blocks
    threads: dict[str | None, int] = {}
    client = _client_in_use()
    if client is not None:
        with _cluster_errors(client):
            check_workers(client, version)
            # In one call, so that a file that both rows and labels come from is read once.
            arrays = client.compute(arrays)
            _wait(client, arrays[:n_blocks])
            workers_of, threads = client.who_has(arrays[:n_blocks]), client.nthreads()
            holders = [min(workers_of[future.key], default=None) for future in arrays[:n_blocks]]
    columns = (arrays[first : first + n_blocks] for first in (0, n_blocks, 2 * n_blocks))
    parts = [
        _Partition(of_rows, None, of_weights, number, of_labels, worker)
        for number, (of_rows, of_labels, of_weights, worker) in enumerate(zip(*columns, holders, strict=True))
    ]
    parts.sort(key=lambda part: part.worker or "")
    names = list(X.columns) if _is_frame(X) else []
    strings = [isinstance(name, str) for name in names]
    if any(strings) and not all(strings):
        raise TypeError(f"Feature names must all be strings, or none of them: got {names[:5]}.")
    return DaskBlocks(rows.shape[1], names if any(strings) else None, parts, client, threads)


def map_rows(
    X: Any, function: Callable[..., np.ndarray], width: int | None, dtype: Any, y: Any = None
) -> Any:
    """A lazy Dask array of a function of the rows, in the blocks of X, (n,) or (n, width).

    X is a Dask array (n, M) or dataframe, of known or unknown length, y (n,) a collection or an array. The
    function takes rows (n, M), and labels (n,) where y is given.
    """
    import dask.array

    rows, labels = _aligned(_matrix(X), y, "y")
    # Labels as a column: map_blocks aligns arrays from the last axis on.
    parts = (rows,) if labels is None else (rows, labels[:, None])
    shape: dict[str, Any] = {"drop_axis": 1, "meta": np.empty(0, dtype=dtype)}
    if width is not None:
        shape = {"chunks": (rows.chunks[0], (width,)), "meta": np.empty((0, width), dtype=dtype)}

    def call(block: np.ndarray, *y: np.ndarray) -> np.ndarray:
        arguments = (_as_rows(block), *(_as_labels(labels[:, 0]) for labels in y))
        return np.asarray(function(*arguments)) if len(block) else shape["meta"]

    return dask.array.map_blocks(call, *parts, name=_unique_name(function), dtype=dtype, **shape)


# ---------------------------------------------------------------- collections as arrays


def _is_frame(value: Any) -> bool:
    return hasattr(value, "columns") and value.ndim == 2


def _matrix(X: Any) -> Any:
    """X as a Dask array (N, M) whose blocks have all features; N may be unknown."""
    check_kind(X, "X")
    if _is_frame(X):
        wrong = [name for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "fiub"]
        if wrong:
            raise ValueError(
                f"Column {wrong[0]!r} of X has type {X.dtypes[wrong[0]]}, which is not numeric "
                f"({len(wrong)} such columns). Drop or encode it first."
            )
        return X.map_partitions(_as_rows, meta=np.empty((0, len(X.columns))))
    if not hasattr(X, "chunks") or X.ndim != 2:
        kind = f"array of {X.ndim} dimensions" if hasattr(X, "chunks") else type(X).__name__
        raise ValueError(f"X must be a Dask array of two dimensions or a Dask dataframe, got a Dask {kind}.")
    if X.dtype.kind not in "fiub":
        raise ValueError(f"X must hold numbers, got a Dask array of type {X.dtype}.")
    if not X.shape[1] > 0:
        raise ValueError(f"X has no features, or call compute_chunk_sizes() to find them: shape {X.shape}.")
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def _aligned(rows: Any, values: Any, name: str) -> tuple[Any, Any]:
    """Rows (N, M), and labels or weights (N,) as a Dask array with the same chunks, or None."""
    import dask.array

    if values is None:
        return rows, None
    check_kind(values, name)
    in_memory = not is_collection(values)
    column: Any = np.asanyarray(values) if in_memory else values
    if hasattr(column, "to_frame") or _is_frame(column):
        if column.ndim == 2 and len(column.columns) > 1:
            raise ValueError(f"{name} must be one column, got a Dask dataframe of {len(column.columns)}.")
        column = column[column.columns[0]] if column.ndim == 2 else column
        column = column.map_partitions(np.asarray, meta=np.empty(0, dtype=object))
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise ValueError(f"{name} must be one column, got shape {column.shape}.")
    if math.isnan(rows.shape[0] + column.shape[0]):
        if not in_memory and column.numblocks[0] == rows.numblocks[0]:
            return rows, column
        # The blocks do not match one to one, so their sizes are needed. Copies, since they change in place.
        rows = rows.copy().compute_chunk_sizes()
        column = column if in_memory else column.copy().compute_chunk_sizes()
    if rows.shape[0] != column.shape[0]:
        raise ValueError(f"X has {rows.shape[0]} rows but {name} has {column.shape[0]}.")
    if in_memory:
        return rows, dask.array.from_array(column, chunks=(rows.chunks[0],))
    return rows, column.rechunk((rows.chunks[0],))


def _as_rows(values: Any) -> np.ndarray:
    """A partition as rows of floats; missing values become NaN."""
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))
    rows = np.asarray(without_mask(values, np.nan))
    return rows if rows.dtype in (np.float64, np.float32) else rows.astype(np.float64)


def _as_labels(values: Any) -> np.ndarray:
    """The labels of a partition; masked ones become None."""
    return np.asarray(without_mask(values, None))


def _as_weights(values: Any) -> np.ndarray:
    """The row weights of a partition as floats; refuse masked ones."""
    refuse_masked_weights(values)
    return np.asarray(values, dtype=float)


# ---------------------------------------------------------------- clusters


def check_workers(client: Any, version: str) -> None:
    """Refuse a cluster with workers that lack this version of skmix."""
    try:
        answers = client.run(eval, _VERSION, on_error="return")
    except OSError as error:
        raise _lost(client, error) from error
    lacking = sorted(address for address, answer in answers.items() if not isinstance(answer, str))
    wrong = lacking or sorted(address for address, answer in answers.items() if answer != version)
    if wrong:
        names = ", ".join(wrong[:3]) + (", …" if len(wrong) > 3 else "")
        problem = "cannot import skmix" if lacking else f"have another version of skmix than {version}"
        raise ClusterError(
            f"{len(wrong)} of {len(answers)} workers {problem}: {names} ({answers[wrong[0]]!r}). "
            f"Install skmix {version} where they run, and start them again."
        )


def _client_in_use() -> Any | None:
    """The client of the cluster in use; None without one."""
    distributed = sys.modules.get("distributed")
    try:
        return None if distributed is None else distributed.get_client()
    except ValueError:
        return None


def _wait(client: Any, futures: list[Any]) -> None:
    """Wait for futures and raise the error of the first that failed."""
    import distributed

    waited = 0.0
    while True:
        try:
            distributed.wait(futures, timeout=_POLL)
            break
        except TimeoutError:
            if client.status != "running":
                raise CancelledError from None
            waited = 0.0 if client.scheduler_info()["workers"] else waited + _POLL
            if waited >= _WITHOUT_WORKERS:
                raise ClusterError(
                    f"The cluster has had no workers for {waited:.0f} s. Start some and fit again."
                ) from None
    for future in futures:
        if future.status == "error":
            # A copy: the client keeps the error, and so the frames of its traceback and their variables.
            raise copy.copy(future.exception()).with_traceback(future.traceback())


@contextmanager
def _cluster_errors(client: Any) -> Iterator[None]:
    """Turn the errors of a cluster that lost its scheduler or its workers into `ClusterError`."""
    import distributed

    try:
        yield
    except distributed.scheduler.KilledWorker as error:
        raise ClusterError(
            f"Several workers died running the same task ({error.task}), perhaps out of memory. Use smaller "
            "blocks or give the workers more memory."
        ) from None
    except (CancelledError, asyncio.CancelledError, distributed.comm.CommClosedError, TimeoutError) as error:
        if client.status != "running":
            raise _lost(client, error) from None
        raise ClusterError(
            "Rows were lost with their worker, and Dask cannot recompute them, because they were scattered "
            "rather than read or computed. Make the collection from files or functions "
            "(dask.array.from_zarr, dask.dataframe.read_parquet) and fit again."
        ) from None


def _lost(client: Any, error: BaseException) -> ClusterError:
    address = getattr(client.scheduler, "address", "of the client in use")
    problem = f"The connection to the scheduler {address} is lost ({type(error).__name__})."
    return ClusterError(f"{problem} Start a cluster and try again.")


def _unique_name(what: Any) -> str:
    """A unique task name, so that results of an earlier pass are never reused."""
    what = getattr(what, "func", what)
    name = getattr(what, "__name__", type(what).__name__)
    return f"skmix-{name.strip('_').lower()}-{secrets.token_hex(8)}"
