"""The command line does what it says, prints it plainly, and fails with a sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from skmix.cli import app
from skmix.paper import Settings, StudyError, command, study_cells

FILES = {"figures", "illustration.json", "illustration.png", "report.html", "runs", "tables"}
SMALL = ["--runs", "1", "--only", "3x1D", "--jobs", "1"]


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then again where only ASCII can be printed, with nothing left to do."""
    # The other figures, and the classifiers beyond the paper, have tests of their own.
    last, figures = "accuracy_distribution", command.paper_figures
    monkeypatch.setattr(command, "paper_figures", lambda results: {last: figures(results)[last]})
    monkeypatch.setattr(command, "_FORMATS", {"png": {}})
    monkeypatch.setattr(command, "_DPI", 50)
    # Few images of each digit.
    monkeypatch.setattr(Settings.__init__, "__defaults__", (0, "all", 20, 10, 40))
    folder = tmp_path / "deep" / "results"
    arguments = ["reproduce", "--out", str(folder), "--seed", "3", *SMALL]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert {path.name for path in folder.iterdir()} == FILES
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(folder) not in line) <= 80
    record = json.loads((folder / "illustration.json").read_text())
    assert record["seed"] == 3
    for name, error in record["largest_error"].items():
        assert f"{name} {error:.3f}" in done.stdout
    assert re.search(r"Claims of skmix: [23] of 3 hold with these runs\.", done.stdout)
    for title in ("Claims, checked", "Where the paper's algorithm, rerun, differs from the paper"):
        assert f"# {title}" in (folder / "tables" / "verdicts.md").read_text()
    for number in (1, 2, 3, 4, 6):
        assert (folder / "tables" / f"table{number}.md").read_text().startswith(f"# Table {number}: ")
    assert [path.name for path in (folder / "figures").iterdir()] == [f"{last}.png"]
    assert (folder / "report.html").read_text().startswith("<!doctype html>")

    # Other settings are other runs, and replace none of those that are stored.
    (folder / "figures" / "projections_4D.png").touch()
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    # Without --jobs, as many processes as cores.
    monkeypatch.setattr("joblib.cpu_count", lambda: 1)
    other = CliRunner().invoke(app, ["reproduce", *arguments[1:5], "--dither", "paper", *SMALL[:-2]])
    assert other.exit_code == 0, other.output
    assert "Making 3 runs on 1 process." in other.stdout
    assert "Note: figures/ also has figures of earlier runs: projections_4D." in other.stdout
    assert (folder / "tables" / "table1.csv").read_bytes() != written[folder / "tables" / "table1.csv"]
    assert len(list((folder / "runs").iterdir())) == 6

    again = CliRunner(charset="ascii").invoke(app, arguments)
    assert again.exit_code == 0, again.stderr
    assert again.stdout.isascii()
    assert "3 runs are already stored." in again.stdout
    assert "Making" not in again.stdout
    assert {path for path, content in written.items() if path.read_bytes() != content} == set()


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("in the way")
    done = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path / "file" / below)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert str(tmp_path / "file" / below) in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--seed", "4294967296", "less than or equal to 4294967295|not in the range"),
        ("--runs", "0", "greater than or equal to 1|not in the range"),
        ("--jobs", "0", "greater than or equal to 1|not in the range"),
        ("--only", "7D", "there is no variant '7D'"),
        ("--method", "best", "'best'"),
        ("--dither", "some", "'some'"),
    ],
)
def test_wrong_options_are_refused(tmp_path: Path, option: str, value: str, message: str) -> None:
    result = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path), option, value])
    assert result.exit_code == 2
    assert re.search(message, result.output)
    assert list(tmp_path.iterdir()) == []


LOST = StudyError("two runs are lost.")


@pytest.mark.parametrize(
    ("options", "settings", "cells", "jobs", "error"),
    [
        ([], {}, {}, None, LOST),
        (["--seed", "5", "--dither", "paper"], {"seed": 5, "dither": "paper"}, {}, None, KeyboardInterrupt()),
        (["--runs", "30", "--jobs", "2"], {}, {"n_runs": 30}, 2, LOST),
        (["--only", "6D", "--only", "3D"], {}, {"variants": ["3D", "6D"]}, None, LOST),
        (
            ["--method", "robust", "--method", "published"],
            {},
            {"methods": ["robust", "published"]},
            None,
            LOST,
        ),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_study_has_the_settings_that_are_given_and_can_be_continued(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    settings: dict[str, Any],
    cells: dict[str, Any],
    jobs: int | None,
    error: BaseException,
) -> None:
    made = Mock(side_effect=error)
    monkeypatch.setattr("skmix.paper.reproduce", made, raising=False)
    result = CliRunner().invoke(app, ["reproduce", "--out", str(tmp_path), *options])
    code, said = (3, "two runs are lost") if error is LOST else (130, "run the same command again")
    assert (result.exit_code, said in result.stderr) == (code, True)
    expected = study_cells(**{"n_runs": 500} | cells)
    assert made.call_args.args[:4] == (tmp_path, Settings(**settings), expected, jobs)
