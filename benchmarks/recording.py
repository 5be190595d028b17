"""What benchmarks share: options, times of passes, the processor, tables in CSV files, lines of records."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, help="file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    return parser


def show(rows: Iterable[dict[str, Any]], out: Path | None) -> None:
    """Print a table, and write it if `out` names a file."""
    frame = pd.DataFrame(list(rows))
    print(frame.to_string(index=False))
    if out is not None:
        frame.to_csv(out, index=False, lineterminator="\n")


def with_error(values: np.ndarray | pd.Series, digits: int = 3) -> str:
    """The mean of independent values with its standard error, if there are two or more."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    mean = f"{np.mean(values):.{digits}f}"
    return mean if np.isnan(error) else f"{mean} ± {error:.{digits}f}"


def seconds_of_a_pass(
    fit: Callable[[int], Any],
    passes: tuple[int, int],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """The time of a pass: the difference of a long and a short fit, the shortest of each.

    Starts, validation and compilation do not count, and other programs only ever add to a time.
    """
    shortest = dict.fromkeys(passes, np.inf)
    for _ in range(repeats):
        for n_passes in passes:  # alternately, since the speed of a machine may change
            begun = clock()
            fit(n_passes)
            shortest[n_passes] = min(shortest[n_passes], clock() - begun)
    few, many = passes
    return (shortest[many] - shortest[few]) / (many - few)


def clusters(n_rows: int, n_features: int, n_kernels: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows (N, M) of clusters of unit variance, and their centres (K, M), `spread` deviations apart."""
    random = np.random.default_rng(0)
    centres = spread * random.standard_normal((n_kernels, n_features))
    X = random.standard_normal((n_rows, n_features))
    return X + centres[random.integers(n_kernels, size=n_rows)], centres


@cache
def processor() -> str:
    """The processor's name; times of different processors cannot be compared."""
    try:
        line = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        line = None
    return line.group(1) if line else platform.processor() or platform.machine()


@dataclass(frozen=True)
class Table:
    """A table of text; the first column is the key."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    name: str  # of its file

    def __str__(self) -> str:
        frame = pd.DataFrame(self.lines, columns=list(self.headings))
        return f"{self.title}\n{frame.to_string(index=False)}\n"

    def write(self, folder: Path, prefix: str) -> None:
        """Write the table as a CSV file."""
        frame = pd.DataFrame(self.lines, columns=list(self.headings))
        frame.to_csv(folder / f"{prefix}_{self.name}.csv", index=False, lineterminator="\n")


def plain_table(title: str, headings: Sequence[str], lines: Iterable[Sequence[str]], name: str) -> Table:
    """A table of text."""
    return Table(title, tuple(headings), tuple(map(tuple, lines)), name)


def write_lines(path: str | os.PathLike[str], records: Iterable[dict[str, Any]], by: Sequence[str]) -> None:
    """Write records as JSON, a line for all that have the same values of `by`.

    Under the name of a field is the value that all records of a line have, or, under ``each``, the list of
    their values, in which null stands for a field that a record lacks.
    """
    from skmix.data.write import replacing

    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(tuple(record[name] for name in by), []).append(record)
    with replacing(path) as file:
        for own in groups.values():
            fields = {name: [record.get(name) for record in own] for record in own for name in record}
            common = {name: values[0] for name, values in fields.items() if set(values) == {values[0]}}
            each = {name: values for name, values in fields.items() if name not in common}
            line = common | ({"each": each} if each else {})
            file.write(json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n")


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the records of a file written by `write_lines`; raise ValueError if a line has none."""
    records = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            common = dict(json.loads(line))
            each = common.pop("each", {})
            rows = [dict(zip(each, values, strict=True)) for values in zip(*each.values(), strict=True)]
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} of {path} is not a record in JSON: {error}") from error
        for row in rows or [{}]:
            records.append(common | {name: value for name, value in row.items() if value is not None})
    return records
