"""What benchmarks write beside their measurements: the processor, tables and files of records."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from skmix.data.write import replacing

# A number with its unit, or nothing.
NUMBER = re.compile(r"[-+]?\d[^A-Za-z]*(?:[mµ]?s|[kM]B|GB/s|e-\d+)?|")
_LEADING = re.compile(r"[-+]?\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Table:
    """A table of text; the first column is the key."""

    title: str
    headings: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    name: str = ""  # of its files

    def markdown(self, heading: str = "###") -> str:
        """Return the table in Markdown, under a heading if one is given."""
        columns = [[line[place].strip("*") for line in self.lines] for place in range(len(self.headings))]
        rule = ["---"]
        for column in columns[1:]:
            is_number = any(column) and all(map(NUMBER.fullmatch, column))
            rule.append("--:" if is_number else "---")
        lines = [[cell.replace("|", "\\|") for cell in line] for line in self.lines]
        above = [f"{heading} {self.title}", ""] if heading else []
        return "\n".join([*above, *("| " + " | ".join(row) + " |" for row in (self.headings, rule, *lines))])


def plain_table(title: str, headings: Sequence[str], lines: Iterable[Sequence[str]], name: str = "") -> Table:
    """Return a table of text."""
    return Table(title, tuple(headings), tuple(map(tuple, lines)), name)


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


def write_lines(path: str | os.PathLike[str], records: Iterable[dict[str, Any]], by: Sequence[str]) -> None:
    """Write records as JSON, a line for all that have the same values of `by`.

    Under the name of a field is the value that all records of a line have, or, under ``each``, the list of
    their values, in which null stands for a field that a record lacks.
    """
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
    """Return the records of a file written by `write_lines`; raise ValueError if a line has none."""
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
