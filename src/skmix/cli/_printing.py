"""How commands print lines, facts, tables and JSON."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from pandas import DataFrame

# Lines of a long table that are printed.
_MAX_LINES = 20

# Control characters, those that turn the direction of writing, and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def verbatim(text: str) -> str:
    r"""Text for a line of a terminal; control characters, which data may have, become ``\x1b``."""
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def console() -> Console:
    """A console that prints text as it is: no markup and no emoji."""
    return Console(markup=False, emoji=False, highlight=False)


def say(text: str = "", *, err: bool = False) -> None:
    """Print a line without wrapping it; new lines and tabs in it, as names may have them, are escaped."""
    typer.echo(verbatim(text), err=err)


def counted(number: int, one: str, several: str | None = None) -> str:
    """A number with its noun in the singular or plural."""
    return f"{number} {one if number == 1 else several or one + ('es' if one.endswith('s') else 's')}"


def count(number: float) -> str:
    """A number of rows as text; it need not be whole where they have weights."""
    return str(int(number)) if float(number).is_integer() else f"{number:.6g}"


def print_json(content: Any) -> None:
    """Print numbers, strings, lists and dictionaries as JSON in ASCII, with null for NaN and infinities."""
    plain = json.loads(json.dumps(content), parse_constant=lambda name: None)
    typer.echo(json.dumps(plain, indent=2))


def print_facts(facts: Mapping[str, str], *, err: bool = False) -> None:
    """Print names and texts, one pair a line."""
    width = max(map(len, facts)) + 1
    for name, text in facts.items():
        say(f"  {name:<{width}}{text}", err=err)


def texts_of(frame: DataFrame) -> list[list[str]]:
    """The lines of a frame as text, numbers with three digits."""
    lines = frame.itertuples(index=False)
    return [
        [f"{cell + 0.0:.3g}" if isinstance(cell, float) else str(cell) for cell in line] for line in lines
    ]


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    nouns: tuple[str, str] | None = None,
    rest: str = "--json",
) -> None:
    """Print a table of names and, to their right, numbers.

    Given the `nouns` of its lines and columns, print the first lines and the columns that fit on the
    terminal, and say how many more the option `rest` has.
    """
    rows = [[verbatim(cell) for cell in row] for row in rows]
    # A heading may have a word on each line.
    heads = [
        verbatim(head).replace(" ", "\n" if place and nouns else " ") for place, head in enumerate(headings)
    ]
    terminal, left = console(), ""
    if nouns is not None:
        shown = rows[:_MAX_LINES]
        words = [[*head.split("\n"), *(row[place] for row in shown)] for place, head in enumerate(heads)]
        # A column has one blank beside it.
        ends = itertools.accumulate(1 + max(map(len, column)) for column in words)
        n_columns = max(2, sum(end <= terminal.width + 1 for end in ends))
        numbers = {nouns[0]: len(rows) - len(shown), nouns[1]: len(heads) - n_columns}
        more = [counted(number, f"more {noun}") for noun, number in numbers.items() if number > 0]
        left = f"... and {' and '.join(more)}: {rest} has all." if more else ""
        rows, heads = [row[:n_columns] for row in shown], heads[:n_columns]
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    for place, heading in enumerate(heads):
        # Long names are continued on the next line, not cut.
        table.add_column(heading, justify="right" if place else "left", no_wrap=place > 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    terminal.print(table)
    if left:
        say(left)
