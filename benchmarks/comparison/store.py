"""Finished cells of a comparison in one file, and the processes that run those it lacks.

Keys are hashes of settings, so cells can run in any order and process, and outcomes of other settings are
never used by mistake.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib

Record = dict[str, Any]
_HEADER = '{"file": "finished cells of a comparison", "version": 5}'


@dataclass(frozen=True)
class Cell:
    """One setting of an experiment, repeated a number of times."""

    settings: Mapping[str, Any]  # everything that affects the results, as values for JSON
    task: tuple[Any, ...]  # arguments of the function that runs it, before the number of the repeat
    n_repeats: int


def cell_key(settings: Mapping[str, Any]) -> str:
    """Return a hash, 32 hexadecimal digits, of all settings of a cell; their order does not matter."""
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """Results of cells in one file, a line of JSON for each; a line that is not complete is ignored.

    The file is created if it is missing; ValueError is raised if it is no store.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._records: dict[str, dict[int, Record]] = {}
        if not self.path.exists():
            self.path.write_text(_HEADER)
        header, *lines = self.path.read_text(encoding="utf-8").split("\n")
        if header != _HEADER:
            raise ValueError(f"{path} is not a store of results, or one of another version. Move it.")
        for line in lines:
            with suppress(ValueError):
                key, repeat, record = json.loads(line)
                self._records.setdefault(key, {})[repeat] = record

    def add(self, settings: Mapping[str, Any], repeat: int, record: Record) -> None:
        """Store the result of one repeat of a cell, as values for JSON; what is stored is not replaced."""
        key = cell_key(settings)
        records = self._records.setdefault(key, {})
        if repeat not in records:
            records[repeat] = record
            with open(self.path, "a", encoding="utf-8") as file:
                # The last line may be incomplete.
                file.write("\n" + json.dumps([key, repeat, record]))

    def get(self, settings: Mapping[str, Any], most: float = math.inf) -> dict[int, Record]:
        """Return the stored results of one cell by repeat, in order, of repeats below `most`."""
        records = sorted(self._records.get(cell_key(settings), {}).items())
        return {repeat: record for repeat, record in records if repeat < most}


def run_cells(
    cells: Iterable[Cell],
    work: Callable[..., Record],
    store: Store,
    n_jobs: int = 1,
    progress: Callable[[Record], None] = lambda record: None,
) -> None:
    """Run what the store lacks, ``work(*task, repeat)``, and store each result as soon as it is there."""
    missing = [
        (cell, repeat)
        for cell in cells
        for repeat in range(cell.n_repeats)
        if repeat not in store.get(cell.settings)
    ]
    # The first repeat of all cells comes first, then the second, and so on.
    missing.sort(key=lambda pair: pair[1])
    tasks = (
        joblib.delayed(_numbered)(place, work, *cell.task, repeat)
        for place, (cell, repeat) in enumerate(missing)
    )
    for place, record in joblib.Parallel(n_jobs, return_as="generator_unordered", batch_size=1)(tasks):
        cell, repeat = missing[place]
        store.add(cell.settings, repeat, record)
        progress(record)


def _numbered(place: int, work: Callable[..., Record], *task: Any) -> tuple[int, Record]:
    return place, work(*task)
