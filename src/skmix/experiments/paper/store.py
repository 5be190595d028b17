"""Where finished runs are kept: one SQLite file, written a batch at a time.

A batch is one transaction, so a process killed at any moment leaves every finished batch and nothing of an
unfinished one. SQLite's own locks let several processes write to one file; a run that two of them made is
kept once, and since a run has the same bits wherever it is made, it does not matter whose.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from skmix.experiments.paper.records import Run, Settings
from skmix.experiments.paper.variants import Method

# "SKMX", in the file's header: tells our stores from other SQLite files.
_APPLICATION = 0x534B4D58
# To be raised when the tables change, or when the same settings lead to other numbers than before.
_VERSION = 2
# How long to wait for another process to finish its transaction, which takes milliseconds.
_PATIENCE_SECONDS = 60.0

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (
    variant TEXT NOT NULL,
    n_kernels INTEGER NOT NULL,
    method TEXT NOT NULL,
    run INTEGER NOT NULL,
    accuracy REAL NOT NULL,
    mean_iou REAL NOT NULL,
    reason TEXT NOT NULL,
    failing_pass INTEGER,
    n_iter INTEGER NOT NULL,
    converged INTEGER NOT NULL,
    log_likelihood REAL,
    confusion BLOB NOT NULL,
    PRIMARY KEY (variant, n_kernels, method, run)
) WITHOUT ROWID;
"""


class StoreError(ValueError):
    """The file is not a store that this study can go on with; the message says why."""


class Store:
    """The finished runs of one study, on disk.

    Parameters
    ----------
    path : path-like
        The file; made when missing, in a folder that exists.
    settings : Settings
        Settings of the study. A file made with others is refused.
    fingerprint : str, default=""
        Digest of the study's data. A file made with others is refused.

    Raises
    ------
    StoreError
        When the file is no store, is one of another version, or holds runs of another study.
    """

    def __init__(self, path: Path, settings: Settings, fingerprint: str = "") -> None:
        self.path = Path(path)
        try:
            self._connection = sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise OSError(f"cannot use the store {self.path}: {error}") from error
        try:
            self._open(_described(settings, fingerprint))
        except sqlite3.OperationalError as error:
            self.close()
            raise OSError(f"cannot use the store {self.path}: {error}") from error
        except sqlite3.DatabaseError as error:
            self.close()
            raise StoreError(
                f"{self.path} is not a store of a study ({error}). Move it away, or choose another folder."
            ) from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, runs: Iterable[Run]) -> None:
        """Keep finished runs, all of them or, when interrupted, none; those already kept stay as they are."""
        rows = [_to_row(run) for run in runs]
        try:
            with self._transaction():
                self._connection.executemany(
                    # Not INSERT OR IGNORE, which would also pass over rows that are no runs.
                    "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (variant, n_kernels, method, run) DO NOTHING",
                    rows,
                )
        except sqlite3.OperationalError as error:
            # A full disk, or another process that holds the file for a minute.
            raise OSError(f"cannot write to the store {self.path}: {error}") from error

    def numbers(self, variant: str, n_kernels: int, method: Method) -> set[int]:
        """Return the numbers of the runs that are kept of one cell."""
        found = self._connection.execute(
            "SELECT run FROM runs WHERE variant = ? AND n_kernels = ? AND method = ?",
            (variant, n_kernels, method),
        )
        return {number for (number,) in found}

    def runs(self, variant: str, n_kernels: int, method: Method, n_runs: int) -> list[Run]:
        """Return the runs 0 … n_runs − 1 of one cell, as far as they are kept, in order."""
        found = self._connection.execute(
            "SELECT * FROM runs WHERE variant = ? AND n_kernels = ? AND method = ? AND run < ? ORDER BY run",
            (variant, n_kernels, method, n_runs),
        )
        return [_from_row(row) for row in found]

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT COUNT(*) FROM runs").fetchone()
        return int(count)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _open(self, wanted: dict[str, Any]) -> None:
        """Make the tables in an empty file, or check that what is there belongs to this study."""
        if not self._is_empty():
            # Before anything is changed: the file may be another program's.
            self._check(wanted)
        self._write_ahead()
        with self._transaction():
            if self._is_empty():
                # PRAGMAs and CREATEs are part of the transaction: a second process finds all or nothing.
                for statement in _TABLES.split(";\n"):
                    if statement.strip():
                        self._connection.execute(statement)
                self._connection.executemany(
                    "INSERT INTO settings VALUES (?, ?)",
                    [(name, json.dumps(value)) for name, value in wanted.items()],
                )
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {_VERSION}")
            else:
                self._check(wanted)

    def _write_ahead(self) -> None:
        """Let readers and a writer work side by side, where the file system allows it."""
        patience = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                # Two processes that switch the mode at the same moment do not wait for each other.
                if "locked" not in str(error) or time.monotonic() > patience:
                    raise
                time.sleep(0.05)

    def _is_empty(self) -> bool:
        (tables,) = self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        return int(tables) == 0

    def _check(self, wanted: dict[str, Any]) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise StoreError(
                f"{self.path} is an SQLite file of another program. Move it away, or choose another folder."
            )
        if version != _VERSION:
            raise StoreError(
                f"{self.path} was written by another version of skmix (store version {version}, here "
                f"{_VERSION}). Move it away, or choose another folder."
            )
        found = {
            name: json.loads(value) for name, value in self._connection.execute("SELECT * FROM settings")
        }
        differing = [name for name in wanted if found.get(name) != wanted[name]]
        if differing:
            differences = ", ".join(
                f"{name} {found.get(name, 'unknown')} there and {wanted[name]} here" for name in differing
            )
            raise StoreError(
                f"{self.path} holds runs of another study: {differences}. "
                "Use the same settings, or choose another folder."
            )


def _described(settings: Settings, fingerprint: str) -> dict[str, Any]:
    """Return what a store and a study must agree in."""
    return {**asdict(settings), "data": fingerprint}


def _to_row(run: Run) -> tuple[Any, ...]:
    confusion = np.ascontiguousarray(run.confusion, dtype="<i8").tobytes()
    return (
        run.variant,
        run.n_kernels,
        run.method,
        run.run,
        run.accuracy,
        run.mean_iou,
        run.reason,
        run.failing_pass,
        run.n_iter,
        int(run.converged),
        run.log_likelihood,
        confusion,
    )


def _from_row(row: tuple[Any, ...]) -> Run:
    variant, n_kernels, method, run, accuracy, mean_iou, reason, failing_pass, n_iter = row[:9]
    converged, log_likelihood, blob = row[9:]
    confusion = np.frombuffer(blob, dtype="<i8").astype(np.int64)
    side = math.isqrt(len(confusion))
    return Run(
        variant=variant,
        n_kernels=n_kernels,
        method=method,
        run=run,
        accuracy=accuracy,
        mean_iou=mean_iou,
        reason=reason,
        failing_pass=failing_pass,
        n_iter=n_iter,
        converged=bool(converged),
        # SQLite has no NaN and keeps it as nothing.
        log_likelihood=math.nan if log_likelihood is None else log_likelihood,
        confusion=confusion.reshape(side, side),
    )
