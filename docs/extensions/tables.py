"""Tables and numbers of benchmarks/results on the pages.

A page shows a file of results by ``csv-table``. Columns of numbers are aligned at the right; in a table of
the class ``least-3-8`` or ``most-3-8`` the best number of each row in the third to eighth column is bold.
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
# A number, perhaps with an error, a mark or the sign of a unit.
NUMBER = re.compile(r"([-+]?\d[\d.]*(?:e[-+]?\d+)?)( ± [\d.]+)?[*†‡]*( ?[%×])?")
BEST = re.compile(r"(least|most)-(\d+)-(\d+)")
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
            align_numbers(heads, rows)
            for best in filter(None, map(BEST.fullmatch, table["classes"])):
                for row in rows:
                    mark_best(row[int(best[2]) - 1 : int(best[3])], best[1])
            box = nodes.container(classes=["table-box"])
            table.replace_self(box)
            box += table


def align_numbers(
    heads: list[list[nodes.Element]], rows: list[list[nodes.Element]]
) -> None:
    """Align columns of numbers at the right, and set spaces into large ones."""
    for place, cells in enumerate(zip(*rows, strict=False)):
        texts = [cell.astext().strip("–") for cell in cells]
        n_numbers = sum(bool(NUMBER.fullmatch(text)) for text in texts)
        if 2 * n_numbers > sum(map(bool, texts)):
            for cell in (*cells, *(row[place] for row in heads)):
                cell["classes"].append("text-right")
    for text in (
        text for row in rows for cell in row for text in cell.findall(nodes.Text)
    ):
        if LARGE.fullmatch(text):
            text.parent.replace(text, nodes.Text(with_spaces(text)))


def mark_best(cells: list[nodes.Element], name: str) -> None:
    """Make the least or the largest number bold, and all that are equal to it."""
    found = [(NUMBER.fullmatch(cell.astext()), cell) for cell in cells]
    values = [(float(number[1]), cell) for number, cell in found if number]
    if values:
        best = (min if name == "least" else max)(value for value, _ in values)
        for value, cell in values:
            cell["classes"] += ["best"] if value == best else []


def with_spaces(number: str) -> str:
    """Set narrow spaces between the thousands of a whole number."""
    return f"{int(number):,}".replace(",", "\u202f")


def value(
    name: str, rawtext: str, text: str, lineno: int, inliner: Any, *_: Any
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """Put a cell of a file of results into a sentence."""
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
