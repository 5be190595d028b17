"""Tables that print as text, Markdown and CSV, and claims that were checked."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Value = float | int | str | None
# One value for each source of the table, or a single one.
Entry = tuple[Value, ...]

_NUMBER = re.compile(r"[-+]?\d[^A-Za-z]*|")


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

    def value(self, keys: str | tuple[str, ...], column: str, source: str = "") -> Value:
        """Return one value by the names of its row, column and source."""
        wanted = (keys,) if isinstance(keys, str) else keys
        row = next(row for row in self.rows if row.keys == wanted)
        place = self.sources.index(source) if self.sources else 0
        return row.entries[self.columns.index(column)][place]

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of `lines`."""
        return (*self.key_names, *(("source",) if self.sources else ()), *self.columns)

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """The table as text: a line for each row and source."""
        return tuple(
            (*row.keys, *((source,) if self.sources else ()), *values)
            for row in self.rows
            for source, values in self.source_lines(row)
        )

    def source_lines(self, row: Row) -> list[tuple[str, list[str]]]:
        """Return the values of a row as text, source by source."""
        return [
            (source, [text_of(entry[place]) for entry in row.entries])
            for place, source in enumerate(self.sources or ("",))
        ]

    def text(self) -> str:
        """Return the table in columns of plain text."""
        rows = [self.headings, *self.lines]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        right = self._numeric()
        shown = [
            "  ".join(
                cell.rjust(width) if is_number else cell.ljust(width)
                for cell, width, is_number in zip(row, widths, right, strict=True)
            ).rstrip()
            for row in rows
        ]
        return "\n".join([self.title, *shown, *([self.note] if self.note else [])])

    def markdown(self, heading: str = "###") -> str:
        """Return the table in Markdown, under a heading."""
        rule = ["--:" if is_number else "---" for is_number in self._numeric()]
        rows = [self.headings, rule, *([cell.replace("|", "\\|") for cell in line] for line in self.lines)]
        shown = [f"{heading} {self.title}", "", *("| " + " | ".join(row) + " |" for row in rows)]
        return "\n".join([*shown, *(["", self.note] if self.note else [])])

    def csv(self) -> str:
        """Return the table as CSV in full precision: with sources, a line for each cell."""
        if not self.sources:
            return csv_text([self.headings, *self.lines])
        lines: list[Sequence[Value]] = [[*self.key_names, self.column_name, *self.sources]]
        for row in self.rows:
            for column, entry in zip(self.columns, row.entries, strict=True):
                lines.append([*row.keys, column, *entry])
        return csv_text(lines)

    def _numeric(self) -> list[bool]:
        """Return for each heading whether its column holds numbers, which are right-aligned."""
        columns = list(zip(*self.lines, strict=True)) or [()] * len(self.headings)
        return [
            place >= len(self.key_names) and any(column) and all(map(_NUMBER.fullmatch, column))
            for place, column in enumerate(columns)
        ]


def plain_table(
    title: str, headings: Sequence[str], lines: Iterable[Sequence[str]], n_keys: int = 1, name: str = ""
) -> Table:
    """Return a table of text whose first `n_keys` columns are the keys of its rows."""
    rows = tuple(Row(tuple(line[:n_keys]), tuple((cell,) for cell in line[n_keys:])) for line in lines)
    return Table(name, title, tuple(headings[:n_keys]), "column", tuple(headings[n_keys:]), (), rows)


@dataclass(frozen=True)
class Claim:
    """Something an experiment should show, checked on its results."""

    claim: str
    target: str  # what it means in numbers
    measured: str
    holds: bool
    note: str = ""


def claims_table(claims: Iterable[Claim], title: str = "Claims") -> Table:
    """Return checked claims as a table."""
    lines = [(each.claim, each.target, each.measured, "yes" if each.holds else "**no**") for each in claims]
    return plain_table(title, ("claim", "target", "measured", "holds"), lines)


def text_of(value: Value) -> str:
    """Return a value as text: floats with three decimals, nothing for None."""
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def csv_text(lines: Iterable[Sequence[Value]]) -> str:
    """Return lines of values as CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()
