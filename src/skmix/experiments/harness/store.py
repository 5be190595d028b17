"""Finished results in one SQLite file, written a batch at a time.

A batch is one transaction: a process killed at any moment leaves all finished batches and no part of an
unfinished one. Several processes may write to one file. Results are found by a hash of all settings of their
cell, so that results of other settings are never used by mistake and one file can hold several experiments.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from skmix.experiments.harness.keys import cell_key

# "SKMX" in the file header, which distinguishes stores from other SQLite files.
_APPLICATION = 0x534B4D58
# Increase when the tables change.
_VERSION = 3
# Longest wait for the transaction of another process, which takes milliseconds.
_PATIENCE_SECONDS = 60.0
_TABLES = (
    "CREATE TABLE cells (key TEXT PRIMARY KEY, settings TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE results (key TEXT NOT NULL, replicate INTEGER NOT NULL, record TEXT NOT NULL, "
    "PRIMARY KEY (key, replicate)) WITHOUT ROWID",
)


class StoreError(ValueError):
    """The file is not a store of this version."""


class Store:
    """Results of cells on disk.

    Parameters
    ----------
    path : path-like
        The file; created if missing, in an existing folder.

    Raises
    ------
    StoreError
        If the file is not a store, or one of another version.
    OSError
        If the file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        with ExitStack() as undo:
            try:
                self._connection = sqlite3.connect(self.path, timeout=_PATIENCE_SECONDS, isolation_level=None)
                undo.callback(self.close)
                self._open()
            except sqlite3.OperationalError as error:
                raise OSError(f"cannot use the store {self.path}: {error}") from error
            except sqlite3.DatabaseError as error:
                raise StoreError(
                    f"{self.path} is not a store of results ({error}). Move it, or choose another folder."
                ) from error
            undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        (count,) = self._connection.execute("SELECT COUNT(*) FROM results").fetchone()
        return int(count)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def add(self, settings: Mapping[str, Any], records: Mapping[int, Mapping[str, Any]]) -> None:
        """Store results of one cell by replicate, all or, if interrupted, none.

        Records are values for JSON. Replicates that are already stored are not replaced.
        """
        key = cell_key(settings)
        rows = [(key, replicate, json.dumps(record)) for replicate, record in records.items()]
        try:
            with self._transaction() as execute:
                execute("INSERT OR IGNORE INTO cells VALUES (?, ?)", (key, json.dumps(settings)))
                for row in rows:
                    execute("INSERT OR IGNORE INTO results VALUES (?, ?, ?)", row)
        except sqlite3.OperationalError as error:
            # A full disk, or another process that locks the file for a minute.
            raise OSError(f"cannot write to the store {self.path}: {error}") from error

    def get(self, settings: Mapping[str, Any]) -> dict[int, dict[str, Any]]:
        """Return the stored results of one cell by replicate, in order."""
        found = self._connection.execute(
            "SELECT replicate, record FROM results WHERE key = ? ORDER BY replicate", (cell_key(settings),)
        )
        return {replicate: json.loads(record) for replicate, record in found}

    def replicates(self, settings: Mapping[str, Any]) -> set[int]:
        """Return the stored replicates of one cell."""
        found = self._connection.execute("SELECT replicate FROM results WHERE key = ?", (cell_key(settings),))
        return {replicate for (replicate,) in found}

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield self._connection.execute
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def _open(self) -> None:
        """Create the tables in an empty file, or check that an existing file is a store."""
        with self._transaction() as execute:
            if self._is_empty():
                # PRAGMAs and CREATEs are part of the transaction, so another process sees all or nothing.
                for statement in _TABLES:
                    execute(statement)
                execute(f"PRAGMA application_id = {_APPLICATION}")
                execute(f"PRAGMA user_version = {_VERSION}")
            else:
                self._check()

    def _is_empty(self) -> bool:
        (tables,) = self._connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        return int(tables) == 0

    def _check(self) -> None:
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if application != _APPLICATION:
            raise StoreError(
                f"{self.path} is an SQLite file of another program. Move it away, or choose another folder."
            )
        if version != _VERSION:
            raise StoreError(
                f"{self.path} was written by another version of skmix (store version {version}, expected "
                f"{_VERSION}). Move it away, or choose another folder."
            )
