"""Finished cells on disk: one JSON line each, so that a comparison goes on where it was stopped."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from skmix.experiments.field.records import Outcome


class StoreError(ValueError):
    """A file that holds something else than outcomes."""


class OutcomeStore:
    """Outcomes in a file of lines.

    A line is written in one piece and is on the disk before the next cell begins. A program that was killed
    while writing leaves at most half a line at the end, which is passed over and then overwritten.

    Parameters
    ----------
    path : path-like
        The file; made when the first outcome is kept.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._outcomes: dict[tuple[str, str, int, str], Outcome] = {}
        self._length = 0
        if self._path.exists():
            self._read()

    def __contains__(self, key: tuple[str, str, int, str]) -> bool:
        return key in self._outcomes

    def __len__(self) -> int:
        return len(self._outcomes)

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self._outcomes.values())

    def get(self, key: tuple[str, str, int, str]) -> Outcome:
        """Return the outcome of a finished cell."""
        return self._outcomes[key]

    def keep(self, outcome: Outcome) -> None:
        """Write an outcome."""
        line = json.dumps(outcome.to_dict(), allow_nan=False).encode() + b"\n"
        with open(self._path, "ab") as file:
            if file.tell() != self._length:
                file.truncate(self._length)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._length += len(line)
        self._outcomes[outcome.key] = outcome

    def _read(self) -> None:
        content = self._path.read_bytes()
        whole, newline, _ = content.rpartition(b"\n")
        self._length = len(whole) + len(newline)
        for number, line in enumerate(whole.splitlines(), 1):
            try:
                outcome = Outcome.from_dict(json.loads(line))
            except (ValueError, TypeError, AttributeError) as error:
                raise StoreError(f"line {number} of {self._path} is not an outcome: {error}") from error
            self._outcomes[outcome.key] = outcome
