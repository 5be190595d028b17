"""What benchmarks write beside their measurements: the processor, tables and files of records."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from skmix.io.writing import replacing
from skmix.paper.harness import NUMBER, Table, plain_table

_LEADING = re.compile(r"[-+]?\d+(?:\.\d+)?")


@cache
def processor() -> str:
    """Return the processor's name; times of different processors cannot be compared."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def bold_best(
    cells: Sequence[str], places: Iterable[int], choose: Callable[[Iterable[float]], float] = min
) -> list[str]:
    """Return the cells of a line in Markdown, with the best of those at `places` in bold.

    Numbers are compared as shown, without their units; ties are all bold. Cells with words are ignored.
    """
    shown = {place: cells[place] for place in places if NUMBER.fullmatch(cells[place])}
    values = {place: float(found[0]) for place, cell in shown.items() if (found := _LEADING.match(cell))}
    best = choose(values.values()) if values else None
    return [
        f"**{cell}**" if best is not None and values.get(place) == best else cell
        for place, cell in enumerate(cells)
    ]


def compared_table(
    title: str,
    headings: Sequence[str],
    lines: Iterable[Sequence[str]],
    name: str = "",
    compared: Iterable[str] = (),
) -> Table:
    """Return a table of text in which the least value of the compared columns of a line is bold."""
    places = [headings.index(each) for each in compared]
    return plain_table(title, headings, [bold_best(line, places) for line in lines], name)


def write_lines(path: str | os.PathLike[str], records: Iterable[dict[str, Any]]) -> None:
    """Write records as JSON, one on each line."""
    lines = [json.dumps(record, allow_nan=False).encode() + b"\n" for record in records]
    with replacing(path) as file:
        file.writelines(lines)


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a file written by `write_lines`; raise ValueError if a line is not a record."""
    records = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} of {path} is not a record in JSON: {error}") from error
    return records
