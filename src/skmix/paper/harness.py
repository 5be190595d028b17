"""Tools of all experiments: cells keyed by their settings, a resumable store, a runner, tables and claims.

Keys and random generators are hashes of settings, so cells can run in any order, batch and process, and each
can be repeated alone.
"""

from __future__ import annotations

import csv
import gc
import hashlib
import io
import itertools
import json
import math
import multiprocessing
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import connection, forkserver
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

import skmix

__all__ = [
    "Cell",
    "Claim",
    "Crew",
    "ExperimentError",
    "Row",
    "Store",
    "Table",
    "cell_key",
    "claims_table",
    "generator",
    "library",
    "missing",
    "plain_table",
    "run_cells",
]

# Modules of skmix whose code affects the results of an experiment: data, models and scores, and no pages.
_CODE = (
    *("datasets.py", "engine/**/*.py", "data/**/*.py", "features.py", "model/**/*.py"),
    *("metrics.py", "theory.py", "paper/digits.py", "paper/harness.py", "paper/images.py"),
)


def cell_key(settings: Mapping[str, Any]) -> str:
    """Return a hash, 32 hexadecimal digits, of all settings of a cell; their order does not matter."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@cache
def library(*files: str) -> str:
    """Return the version of skmix and a hash of its source and of further files.

    As a setting of a cell, it keeps results of edited code apart from earlier results.
    """
    root = Path(skmix.__file__).parent
    digest = hashlib.sha256()
    own = [file for pattern in _CODE for file in sorted(root.glob(pattern))]
    for file in [*own, *map(Path, files)]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"{skmix.__version__}+{digest.hexdigest()[:16]}"


def generator(seed: int, *names: str | int) -> np.random.RandomState:
    """Return a new generator seeded by a hash of the seed and names, the same on every machine.

    `names` identify what is drawn; they must not contain line breaks.
    """
    text = "\n".join(["skmix study", str(seed), *map(str, names)])
    entropy = int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(entropy)))


# ---------------------------------------------------------------- store

Record = dict[str, Any]

# First line of a file of results, with the version of what follows.
_HEADER = b'{"file": "results of skmix experiments", "version": 4}'


class Store:
    """Results of cells in one file, a line of JSON for each batch, found by a hash of all settings of a cell.

    Results of other settings are never used by mistake, and one file can hold several experiments. A process
    killed at any moment leaves the finished batches: a line that is not complete is ignored. The file is
    created if it is missing; ValueError is raised if it is not a store, or a store of another version.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._records: dict[str, dict[int, Record]] = {}
        with open(self.path, "a+b") as file:
            file.seek(0)
            header, *lines = file.read().split(b"\n")
            if not header:
                file.write(_HEADER)
        if header not in (b"", _HEADER):
            raise ValueError(
                f"{self.path} is not a store of results, or one of another version. Move it, or choose "
                "another folder."
            )
        for line in lines:
            with suppress(ValueError):
                self._take(line)

    def __len__(self) -> int:
        return sum(map(len, self._records.values()))

    def _take(self, line: bytes) -> None:
        """Take in the batch of a line; replicates that are already there are not replaced."""
        key, records = json.loads(line)
        own = self._records.setdefault(key, {})
        own.update({int(number): record for number, record in records.items()} | own)

    def add(self, settings: Mapping[str, Any], records: Mapping[int, Record]) -> None:
        """Store results of one cell by replicate: all of them or, if interrupted, none.

        Records are values for JSON, returned as JSON reads them. Replicates that are already stored are not
        replaced.
        """
        key = cell_key(settings)
        own = self._records.get(key, {})
        new = {number: record for number, record in records.items() if number not in own}
        line = json.dumps([key, new]).encode()
        if new:
            # The last line may be incomplete.
            with open(self.path, "ab") as file:
                file.write(b"\n" + line)
            self._take(line)

    def get(self, settings: Mapping[str, Any], most: float = math.inf) -> dict[int, Record]:
        """Return the stored results of one cell by replicate, in order, of replicates below `most`."""
        found = sorted(self._records.get(cell_key(settings), {}).items())
        return {replicate: record for replicate, record in found if replicate < most}


# ---------------------------------------------------------------- runner

Task = TypeVar("Task")
Answer = TypeVar("Answer")
# A function of the shared data, a cell's task and some replicates that returns a record of each replicate.
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


_Batch = tuple[Cell, list[int]]  # a cell and some of its replicates


def missing(cells: Iterable[Cell], store: Store) -> int:
    """Return how many replicates the store lacks."""
    return sum(len(replicates) for _, replicates in _missing_batches(cells, store))


def run_cells(
    cells: Iterable[Cell],
    work: Work,
    crew: Crew,
    store: Store,
    progress: Callable[[list[Record]], None] | None = None,
) -> None:
    """Run what the store lacks, and store each batch as soon as it is finished.

    After an interrupt (Ctrl-C) or an error, the store has all finished batches, and the same call continues
    from there. Batches of different cells alternate, so that all cells progress together; if their run times
    differ, long ones should come first. `work` is a module-level function of (shared, task, replicates) that
    returns one record for each replicate, whatever the batch and the process. `progress` is called with the
    records of each batch after they are stored.
    """
    for cell, replicates, records in crew.each(partial(_run, work), _missing_batches(cells, store)):
        store.add(cell.settings, dict(zip(replicates, records, strict=True)))
        if progress is not None:
            progress(records)


def _missing_batches(cells: Iterable[Cell], store: Store) -> list[_Batch]:
    turns: list[tuple[int, _Batch]] = []
    for cell in cells:
        stored = store.get(cell.settings)
        lacking = [replicate for replicate in range(cell.n_replicates) if replicate not in stored]
        for turn, first in enumerate(range(0, len(lacking), cell.batch)):
            turns.append((turn, (cell, lacking[first : first + cell.batch])))
    return [batch for _, batch in sorted(turns, key=lambda pair: pair[0])]


def _run(work: Work, shared: Any, batch: _Batch) -> tuple[Cell, list[int], list[Record]]:
    """Return a batch and its records."""
    cell, replicates = batch
    return cell, replicates, work(shared, cell.task, replicates)


# Processes fork from one that only imports: a fork of this one would inherit threads in an unknown state.
_CONTEXT = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")


def import_for_processes(*modules: str) -> None:
    """Begin to import what the processes of a crew need, once for all of them, beside this process."""
    if sys.platform == "linux":
        _CONTEXT.set_forkserver_preload(list(modules))
        with _interrupts_ignored():
            forkserver.ensure_running()


class Crew:
    """Processes that have the same data and do tasks, until the context ends; one job needs no process.

    `shared` is sent to each of the `n_jobs` processes once.
    """

    def __init__(self, shared: Any, n_jobs: int = 1) -> None:
        self._shared, self._pool = shared, None
        if n_jobs > 1:
            self._pool = ProcessPoolExecutor(n_jobs, _CONTEXT, _begin_worker, (shared,))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def each(self, work: Callable[[Any, Task], Answer], tasks: Sequence[Task]) -> Iterator[Answer]:
        """Return ``work(shared, task)`` for each task, as they finish; processes begin with them now.

        `work` is a module-level function.
        """
        if self._pool is None:
            return (work(self._shared, task) for task in tasks)
        with _interrupts_ignored():
            return _answers([self._pool.submit(_run_in_worker, work, task) for task in tasks])


def _answers(futures: list[Future[Answer]]) -> Iterator[Answer]:
    try:
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool as error:
        raise ExperimentError(
            "A worker process ended unexpectedly, perhaps because memory ran out. Finished runs are stored: "
            "run the same command again to continue, with fewer jobs if this happens again."
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


_shared: Any


def _begin_worker(shared: Any) -> None:
    global _shared
    _shared = shared
    # Figures make many objects: looking for cycles among them takes a fifth of the time.
    gc.set_threshold(50_000)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit this worker when its parent process has ended for any reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run_in_worker(work: Callable[[Any, Any], Any], task: Any) -> Any:
    return work(_shared, task)


# ---------------------------------------------------------------- tables and claims

Value = float | int | str | None
# One value for each source of the table, or a single value.
Entry = tuple[Value, ...]

# A number with its unit, or nothing.
NUMBER = re.compile(r"[-+]?\d[^A-Za-z]*(?:[mµ]?s|[kM]B|GB/s|e-\d+)?|")


@dataclass(frozen=True)
class Row:
    """A row of a table."""

    keys: tuple[str, ...]  # one for each of the table's key_names
    entries: tuple[Entry, ...]  # one for each column


@dataclass(frozen=True)
class Table:
    """A table whose entries hold one value from each of several sources, or a single value."""

    name: str  # of its files
    title: str
    key_names: tuple[str, ...]
    column_name: str  # what the columns are
    columns: tuple[str, ...]
    sources: tuple[str, ...]  # where the values of an entry come from; empty for a single value
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of `lines`."""
        return (*self.key_names, *(("source",) if self.sources else ()), *self.columns)

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """The table as text: a line for each row and source."""
        return tuple(
            (*row.keys, *((source,) if self.sources else ()), *(text_of(each[place]) for each in row.entries))
            for row in self.rows
            for place, source in enumerate(self.sources or ("",))
        )

    def sections(self) -> Iterator[tuple[str, dict[str, list[Entry]]]]:
        """Yield the first key of rows and, for each source, the values of these rows in each column."""
        for key, rows in itertools.groupby(self.rows, key=lambda row: row.keys[0]):
            columns = list(zip(*(row.entries for row in rows), strict=True))
            by_source = {
                source: [tuple(entry[place] for entry in column) for column in columns]
                for place, source in enumerate(self.sources)
            }
            yield key, by_source

    def markdown(self, heading: str = "###") -> str:
        """Return the table in Markdown, under a heading if one is given."""
        rule = ["--:" if is_number else "---" for is_number in self._numeric()]
        lines = [[cell.replace("|", "\\|") for cell in line] for line in self.lines]
        above = [f"{heading} {self.title}", ""] if heading else []
        shown = [*above, *("| " + " | ".join(row) + " |" for row in (self.headings, rule, *lines))]
        return "\n".join([*shown, *(["", self.note] if self.note else [])])

    def csv(self) -> str:
        """Return a table with sources as CSV in full precision, a line for each cell."""
        cells = [
            (*row.keys, column, *entry)
            for row in self.rows
            for column, entry in zip(self.columns, row.entries, strict=True)
        ]
        return csv_text([(*self.key_names, self.column_name, *self.sources), *cells])

    def _numeric(self) -> list[bool]:
        """Return for each heading whether its column holds numbers, which are right-aligned."""
        columns = list(zip(*self.lines, strict=True)) or [()] * len(self.headings)
        return [
            place >= len(self.key_names)
            and any(column)
            and all(NUMBER.fullmatch(cell.strip("*")) for cell in column)
            for place, column in enumerate(columns)
        ]


def plain_table(
    title: str, headings: Sequence[str], lines: Iterable[Sequence[str]], name: str = "", note: str = ""
) -> Table:
    """Return a table of text whose first column is the key."""
    rows = tuple(Row((key,), tuple((cell,) for cell in cells)) for key, *cells in lines)
    return Table(name, title, (headings[0],), "column", tuple(headings[1:]), (), rows, note)


@dataclass(frozen=True)
class Claim:
    """A claim about an experiment, checked on its results."""

    claim: str
    target: str  # the criterion in numbers
    measured: str
    holds: bool
    note: str = ""


def claims_table(claims: Iterable[Claim]) -> Table:
    """Return checked claims, with their notes below, as a table."""
    claims = list(claims)
    lines = [(each.claim, each.target, each.measured, "yes" if each.holds else "**no**") for each in claims]
    note = "\n\n".join(f"*{each.claim}*: {each.note}" for each in claims if each.note)
    return plain_table("Claims, checked", ("claim", "target", "measured", "holds"), lines, note=note)


def text_of(value: Value) -> str:
    """Return a value as text: floats with three decimals, None as empty text."""
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def csv_text(lines: Iterable[Sequence[Value]]) -> str:
    """Return lines of values as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()
