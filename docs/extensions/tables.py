"""Tables and numbers of benchmarks/results on the pages.

A page shows a file of results by ``csv-table``. Columns of numbers are aligned at the right; in a table of
the class ``least`` or ``most`` the least or the largest number of each row is bold.
``{value}`file.csv; key; heading``` is the cell below a heading in the row that begins with the key; where
several rows do, further keys are the next cells.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
# A number, perhaps with an error or a sign of its unit; an empty cell or a dash is none.
NUMBER = re.compile(r"([-+−]?\d[\d.]*(?:e[-+]?\d+)?)( ± [\d.]+)?( ?[%×])?")
LARGE = re.compile(r"\d{5,}")


class Tables(SphinxPostTransform):
    """Put each table into a box of its own, which scrolls where the page is too narrow for it."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        for table in list(self.document.findall(nodes.table)):
            heads, rows = (
                [row.children for part in table.findall(kind) for row in part]
                for kind in (nodes.thead, nodes.tbody)
            )
            align_numbers(heads, rows, table["classes"])
            box = nodes.container(classes=["table-box"])
            table.replace_self(box)
            box += table


def align_numbers(
    heads: list[list[nodes.Element]],
    rows: list[list[nodes.Element]],
    classes: list[str],
) -> None:
    """Align columns of numbers at the right, and make the best number of each row bold."""
    shown = [[cell.astext() for cell in row] for row in rows]
    columns = [
        place
        for place, texts in enumerate(zip(*shown, strict=False))
        if any(map(NUMBER.fullmatch, texts))
        and all(not text.strip("–") or NUMBER.fullmatch(text) for text in texts)
    ]
    for row in [*heads, *rows]:
        for place in columns:
            row[place]["classes"].append("text-right")
    choose = {"least": min, "most": max}
    for row, texts in zip(rows, shown, strict=True):
        values = {
            place: float(found[1].replace("−", "-"))
            for place in columns
            if (found := NUMBER.fullmatch(texts[place]))
        }
        for name in choose.keys() & set(classes):
            best = choose[name](values.values(), default=None)
            for place in (place for place in values if values[place] == best):
                row[place]["classes"].append("best")
        for text in (text for cell in row for text in cell.findall(nodes.Text)):
            if LARGE.fullmatch(text):
                text.parent.replace(text, nodes.Text(with_spaces(text)))


def with_spaces(number: str) -> str:
    """A whole number with narrow spaces between its thousands."""
    return f"{int(number):,}".replace(",", "\u202f")


def value(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, *_: Any
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """A cell of a file of results, as a number in a sentence."""
    file, *keys, heading = text.split("; ")
    with (RESULTS / file).open(encoding="utf-8", newline="") as lines:
        headings, *rows = csv.reader(lines)
    found = [row for row in rows if row[: len(keys)] == keys]
    if len(found) != 1 or heading not in headings:
        message = f"{text}: {len(found)} rows begin so; headings are {headings}"
        return [], [inliner.reporter.error(message, line=lineno)]
    number = found[0][headings.index(heading)]
    return [nodes.Text(with_spaces(number) if LARGE.fullmatch(number) else number)], []


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_post_transform(Tables)
    app.add_role("value", value)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
