"""`skmix bench` compares, continues where it stopped, and fails with a sentence."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skmix.cli import app
from skmix.experiments.field import ROWS_PER_CLASS, SHARING_DATA, Settings


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["bench", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "points.csv"
    rows = [f"{i % 7},{(3 * i) % 5 + 4 * (i % 2)},{'even' if i % 2 else 'odd'}" for i in range(60)]
    path.write_text("\n".join(["a,b,label", *rows]) + "\n")
    return path


def test_accuracy_from_end_to_end(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "deep" / "out"
    arguments = ["accuracy", "--data", "iris", "--data", table, "--repeats", 2, "--out", out]
    arguments += ["--classifier", "LDA", "--classifier", "naive Bayes"]
    code, output = run(*arguments)
    assert code == 0, output
    assert "iris, 112 rows, LDA, 2: error " in output
    assert "Test error in per cent" in output
    assert "points" in output
    names = ["cells.sqlite", "errors.png", "outcomes.jsonl", "ranks.png", "tables.md", "tables.txt"]
    assert sorted(path.name for path in out.iterdir()) == names
    assert (out / "tables.md").read_text().startswith("### Test error in per cent")
    # What is written is what is printed.
    text = (out / "tables.txt").read_text()
    assert text in output
    outcomes = [json.loads(line) for line in (out / "outcomes.jsonl").read_text().splitlines()]
    assert sorted(output.splitlines()[:8]) == sorted(
        f"{each['data']}, {each['n_train']} rows, {each['classifier']}, {each['repeat'] + 1}: "
        f"error {100 * each['error']:.2f} %"
        for each in outcomes
    )
    files = "tables.txt, tables.md, ranks.png, errors.png, outcomes.jsonl"
    assert output.splitlines()[-1] == f"Written into {out}: {files}."
    written = {path.name: path.read_bytes() for path in out.iterdir()}
    result = CliRunner().invoke(app, ["bench", *map(str, arguments), "--json"])
    assert result.exit_code == 0
    printed = json.loads(result.stdout)
    assert [each["title"] for each in printed] == [
        block.splitlines()[0] for block in text.split("\n\n") if block.strip()
    ]
    assert printed[0]["title"].startswith("Test error in per cent")
    assert len(printed[0]["lines"][0]) == len(printed[0]["headings"])
    assert all(isinstance(heading, str) for heading in printed[0]["headings"])
    assert "Written into" in result.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == written


@pytest.mark.slow
def test_sharing_from_end_to_end(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "out"
    code, output = run("sharing", "--data", table, "--rows", 2, "--rows", 3, "--draws", 1, "--out", out)
    assert code == 0, output
    assert "points, 6 rows, QDA, 1: error " in output
    assert sorted(path.name for path in out.iterdir()) == [
        *("cells.sqlite", "gain.png", "outcomes.jsonl", "sharing.png", "tables.md", "tables.txt")
    ]


def test_settings_reach_the_comparisons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def end(*arguments: Any, **options: Any) -> None:
        asked.extend([*arguments[:-2], options])
        raise ValueError("enough")

    monkeypatch.setattr("skmix.cli.bench.field.run_comparison", end)
    monkeypatch.setattr("skmix.cli.bench.field.run_sharing", end)
    common = ("--data", "iris", "--seed", 7, "--out", tmp_path / "out")
    assert run("accuracy", *common, "--classifier", "LDA", "--max-rows", 60, "--repeats", 3)[0] == 2
    assert asked[0][0].name == "iris[60]"
    assert [each.name for each in asked[1]] == ["LDA"]
    assert asked[2] == Settings(n_repeats=3, seed=7)
    assert run("sharing", *common, "--rows", 4, "--draws", 2, "--processes", 5)[0] == 2
    assert {**asked[-1], "progress": None} == {
        **{"rows_per_class": [4], "n_draws": 2, "seed": 7, "n_processes": 5, "progress": None}
    }


def test_the_data_of_a_comparison_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def load_data(name: str, max_rows: int | None = None) -> Any:
        asked.append((name, max_rows))
        return name

    def end(sets: Any, store: Any, *others: Any, **options: Any) -> None:
        asked.append((list(sets), options))
        raise ValueError("enough")

    monkeypatch.setattr("skmix.cli.bench.field.load_data", load_data)
    monkeypatch.setattr("skmix.cli.bench.field.run_comparison", end)
    monkeypatch.setattr("skmix.cli.bench.field.run_sharing", end)
    assert run("accuracy", "--out", tmp_path / "a")[0] == 2
    names = ["iris", "wine", "breast_cancer", "seven_segment", "digits"]
    assert asked == [*((name, None) for name in names), (names, {})]
    assert run("sharing", "--out", tmp_path / "s")[0] == 2
    sets, options = asked[-1]
    assert sets == list(SHARING_DATA)
    assert list(options["rows_per_class"]) == list(ROWS_PER_CLASS)
    assert (options["n_draws"], options["seed"], options["n_processes"]) == (3, 0, 1)
    assert run("sharing", "--data", "iris", "--out", tmp_path / "s")[0] == 2
    assert asked[-1][0] == ["iris"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["accuracy", "--data", "moon"], "there is no data set or file 'moon'"),
        (["accuracy", "--classifier", "oracle"], "there is no classifier 'oracle'"),
        (["accuracy", "--repeats", "0"], r"greater than or equal to 1|not in the range x>=1"),
        (
            ["sharing", "--data", "iris", "--rows", "1000"],
            "no data set has enough rows in each class for 1000",
        ),
    ],
)
def test_wrong_use_is_said(tmp_path: Path, arguments: list[str], message: str) -> None:
    code, output = run(*arguments, "--out", tmp_path / "out")
    assert code == 2
    assert re.search(message, output.replace("\n", " "))
    assert "Traceback" not in output


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, output = run("accuracy", "--data", "iris", "--out", tmp_path / "file")
    assert code == 2
    assert "cannot read the data or write into" in output


@pytest.mark.parametrize("command", ["accuracy", "sharing"])
def test_an_interrupt_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    def interrupt(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    for name in ("load_data", "run_sharing"):
        monkeypatch.setattr(f"skmix.cli.bench.field.{name}", interrupt)
    code, output = run(command, "--out", tmp_path / "out")
    stored = "interrupted. Finished cells are stored; run the same command again to continue."
    assert (code, output) == (130, f"Error: {stored}\n")


def test_without_matplotlib_nothing_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, output = run("accuracy", "--out", tmp_path / "out")
    assert code == 1
    assert 'pip install ".[plot]"' in output
    assert list(tmp_path.iterdir()) == []
