"""Tables of the pages are what was measured, and what the command line has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script
from typer.testing import CliRunner

from skmix.cli import app

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    return load_script("docs/write_tables.py")


def cells(table: str) -> list[list[str]]:
    """Return the cells of the first table in a text, its headings first."""
    lines = [line for line in table.splitlines() if line.startswith("|")]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in rows if not set("".join(row)) <= set("-: ")]


def test_pages_have_the_tables_of_the_results(tables: ModuleType) -> None:
    pages = {page: page.read_text(encoding="utf-8") for page in tables.pages()}
    assert {page.name for page in pages} >= {
        f"{name}.md" for name in ("benchmarks", "command-line", "comparison", "mnist", "sharing")
    }
    shown = [found[1] for text in pages.values() for found in tables.PLACE.finditer(text)]
    assert sorted(shown) == sorted(tables.PARTS)
    old = [page.name for page, text in pages.items() if tables.fill(text) != text]
    assert old == [], "make tables writes them"


def test_only_what_is_between_the_comments_is_replaced(
    tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(tables.PARTS, "study", lambda: "| 1 ± 2 |\n")
    text = "one\n\n<!-- study:begin -->{}<!-- study:end -->\n\ntwo\n"
    for old in ("\n", "\n\nold\n\nolder\n\n"):
        assert tables.fill(text.format(old)) == text.format("\n\n| 1 ±\u00a02 |\n\n")
    with pytest.raises(ValueError, match="no part is named sped; there are accuracy"):
        tables.fill("<!-- sped:begin -->\n<!-- sped:end -->\n")


def test_errors_are_means_of_the_outcomes(tables: ModuleType) -> None:
    lines = [json.loads(line) for line in (RESULTS / "accuracy.jsonl").read_text().splitlines()]
    errors = [r["error"] for r in lines if (r["data"], r["classifier"]) == ("iris", "LDA")]
    shown = cells(tables.accuracy())
    row = next(row for row in shown if row[0] == "iris")
    assert float(row[shown[0].index("LDA")].split(" ± ")[0]) == pytest.approx(
        100 * sum(errors) / len(errors), abs=0.05
    )


def test_every_command_and_option_is_on_the_page(tables: ModuleType) -> None:
    text = tables.commands()
    # Follow --help, which is what users see, instead of the objects that the page is made from.
    pending, seen = [[]], []
    while pending:
        words = pending.pop()
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).stdout
        assert not words or f"`skmix {' '.join(words)}`" in text, words
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown):
            assert f"{option}" in text, (words, option)
        _, _, listed = shown.partition("Commands")
        names = re.findall(r"^[│ ]+([a-z][a-z-]+)  ", listed, re.MULTILINE)
        pending += [[*words, name] for name in names]
        seen.append(words)
    assert len(seen) > 4
    assert "**Commands**" not in text
