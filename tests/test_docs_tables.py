"""Tables of the pages are what was measured, and what the command line has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
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


def read(name: str) -> Any:
    """Return what a benchmark has written."""
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))


def test_outliers_cost_what_the_page_says() -> None:
    """With a background less than 1 % of accuracy and 5 % of any error; Gaussian kernels ten times."""
    measured = read("robust.json")
    for case in measured["outliers"]:
        for name in case["runs"][0]:
            clean, far = (
                {
                    key: np.mean([run[name][kind][key] for run in case["runs"]])
                    for key in case["runs"][0][name][kind]
                }
                for kind in ("clean", "outliers")
            )
            if "background" in name or (name == "t" and case["start"] == "near"):
                assert far["accuracy"] > clean["accuracy"] - 0.01
                errors = ("means", "weights", "shapes") if "background" in name else ("means",)
                assert all(far[key] < 1.05 * clean[key] for key in errors)
            elif name == "gaussian":
                assert far["means"] > 10.0 * clean["means"]
    seconds = measured["seconds_of_a_pass"]
    assert max(seconds.values()) < 1.5 * seconds["gaussian"]


def test_merging_and_the_number_of_kernels_do_what_the_page_says() -> None:
    measured = read("populations.json")
    for case in measured["merging"]:
        # Tens of per cent become at most seven, in every data set.
        assert np.mean([run["bic"] for run in case["runs"]]) > 0.2
        assert max(run["entropy"] for run in case["runs"]) <= 0.07
    for case in measured["numbers"]:
        # At least nine of ten numbers are right.
        chosen = [run["stability"] for run in case["runs"]]
        assert case["kernels"] is None or chosen.count(case["kernels"]) >= 0.9 * len(chosen)
