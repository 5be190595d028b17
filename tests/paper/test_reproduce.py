"""The command line does what it says, prints it plainly, and fails with a sentence."""

from __future__ import annotations

import io
import json
import re
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from skmix.cli import app
from skmix.cli.reproduce import progress
from skmix.paper import Settings, command, study_cells
from skmix.paper.harness import ExperimentError
from skmix.paper.study import Study

FILES = [
    "figures",
    "illustration.json",
    "illustration.png",
    "report.html",
    "study.sqlite",
    "tables",
]
KEYS = ("true", "estimated")
SMALL = ["--runs", "1", "--only", "3x1D", "--jobs", "1"]


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def study_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_a_small_study_from_end_to_end(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then again where only ASCII can be printed, with nothing left to do."""
    # The other figures, and the classifiers beyond the paper, have tests of their own.
    last, figures = "confusion_3x1D", command.paper_figures
    monkeypatch.setattr(command, "paper_figures", lambda results: {last: figures(results)[last]})
    monkeypatch.setattr("skmix.paper.study.run_beyond", lambda *_, **__: ())
    monkeypatch.setattr(command, "_FORMATS", (("png", 50),))
    # Few images of each digit.
    monkeypatch.setattr(Settings.__init__, "__defaults__", (0, "all", 20, 10, 40))
    folder = tmp_path / "deep" / "results"
    arguments = ["reproduce", "--out", str(folder), "--seed", "3", *SMALL]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert study_files(folder) == FILES
    assert "…" not in done.stdout
    assert "\x1b" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(folder) not in line) <= 80
    check_illustration(done.stdout, json.loads((folder / "illustration.json").read_text()))
    assert "Making 3 runs on 1 process." in done.stdout
    assert "Made 3 runs in " in done.stdout
    for number in range(1, 7):
        assert f"Table {number}: " in done.stdout
        assert (folder / "tables" / f"table{number}.md").read_text().startswith(f"# Table {number}: ")
        lines = (folder / "tables" / f"table{number}.csv").read_text().splitlines()
        assert lines[0].endswith(',"paper, printed","paper\'s algorithm, rerun",robust,class-wise')
    assert "Claims, checked" in done.stdout
    assert "Paper's algorithm, rerun: singular and failed runs" in done.stdout
    assert study_files(folder / "figures") == [f"{last}.png"]
    assert (folder / "report.html").read_text().startswith("<!doctype html>")

    # Other settings are other runs, and replace none of those that are stored.
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    monkeypatch.setattr(command, "_save", lambda folder, figure: None)
    other = runner.invoke(app, ["reproduce", *arguments[1:5], "--dither", "paper", *SMALL])
    assert other.exit_code == 0, other.output
    assert "Making 3 runs on 1 process." in other.stdout
    assert (folder / "tables" / "table1.csv").read_bytes() != written[folder / "tables" / "table1.csv"]
    assert n_kept(folder / "study.sqlite") == 6
    del written[folder / "study.sqlite"]

    again = CliRunner(charset="ascii").invoke(app, [*arguments, "--json"])
    assert again.exit_code == 0, again.stderr
    assert again.stdout.isascii()
    assert "3 runs are already stored." in again.stderr
    assert "Making" not in again.stderr
    printed = json.loads(again.stdout)
    assert [table["name"] for table in printed["tables"]][:2] == ["table1", "table2"]
    assert {"claim", "target", "measured", "holds", "note"} == set(printed["verdicts"][0])
    assert {path for path, content in written.items() if path.read_bytes() != content} == set()


def check_illustration(output: str, content: dict[str, Any]) -> None:
    """Two means, three entries of a covariance or three weights, true and then estimated, and two errors."""
    assert content["seed"] == 3
    lines = re.findall(r"^(?:mean|covariance|class) (\d)((?: +-?\d+\.\d{3})+) *$", output, re.MULTILINE)
    numbers = [[float(number) for number in line.split()] for _, line in lines]
    assert [len(line) for line in numbers] == [6, 6, 6, 8, 8, 8, 8, 8, 8]
    true, estimated = ({name: np.array(values) for name, values in content[key].items()} for key in KEYS)
    for owner in range(3):
        mean, weights = numbers[owner], numbers[6 + owner]
        np.testing.assert_allclose(mean[:2], true["means"][owner])
        np.testing.assert_allclose(mean[2:4], estimated["means"][owner], atol=5.1e-4)
        assert mean[4] == pytest.approx(np.abs(np.subtract(mean[:2], mean[2:4])).max(), abs=0.0011)
        np.testing.assert_allclose(weights[:3], true["weights"][:, owner])
        np.testing.assert_allclose(weights[3:6], estimated["weights"][:, owner], atol=5.1e-4)
    for name, error in content["largest_error"].items():
        assert f"{name} {error:.3f}" in output
    assert f"Converged in {content['passes']} passes" in output


def n_kept(path: Path) -> int:
    """Return how many runs a store holds, as another program sees it."""
    if not path.exists():
        return 0
    connection = sqlite3.connect(path)
    try:
        return int(connection.execute("SELECT COUNT(*) FROM results").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        connection.close()


def test_progress_is_a_bar_with_the_time_left_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    monkeypatch.setattr("skmix.cli._printing.console", lambda: console)
    with progress(100, 0, 2) as show:
        show([None] * 40)
    assert "40/100" in stream.getvalue()
    assert re.search(r"left.*\d:\d\d:\d\d|left.*-:--:--", stream.getvalue())


def test_progress_is_a_few_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(100, 20, 1) as show:
        for _ in range(10):
            show([None] * 10)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["20 runs are already stored.", "Making 100 runs on 1 process."]
    assert lines[2:5] == ["30 of 100 runs done.", "50 of 100 runs done.", "80 of 100 runs done."]
    assert len(lines) == 6


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_that_cannot_be_written_is_an_error_in_words(
    runner: CliRunner, tmp_path: Path, below: str
) -> None:
    (tmp_path / "file").write_text("in the way")
    done = runner.invoke(app, ["reproduce", "--out", str(tmp_path / "file" / below)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: cannot write the results into {tmp_path / 'file' / below}: ")
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
def test_wrong_options_are_refused(
    runner: CliRunner, tmp_path: Path, option: str, value: str, message: str
) -> None:
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path), option, value])
    assert result.exit_code == 2
    assert re.search(message, result.output)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Have studies end where their runs would begin; what these would be like."""
    seen: dict[str, Any] = {}

    def run_study(study: Any, store: Any, **options: Any) -> None:
        seen.update(study=study, **options)
        raise seen.get("error", ExperimentError("two runs are lost."))

    def illustration(seed: int) -> Any:
        seen["seed"] = seed
        return SimpleNamespace(to_dict=lambda: {"seed": seed})

    for name, own in {
        "study.run_study": run_study,
        "run_illustration": illustration,
        "study.make_study": lambda cells, settings: Study(settings, tuple(cells), ()),
        "harness.missing": lambda planned, store: 5,
        "plot_illustration": lambda record: [SimpleNamespace(figure=None)],
        "_print_illustration": lambda console, record: None,
        "_save": lambda folder, figure: None,
        "joblib.cpu_count": lambda: 6,
    }.items():
        monkeypatch.setattr(f"skmix.paper.command.{name}", own)
    monkeypatch.setattr(Study, "planned", lambda study: [])
    return seen


@pytest.mark.parametrize(
    ("options", "settings", "cells", "n_jobs"),
    [
        ([], {}, {}, 6),
        (["--seed", "5"], {"seed": 5}, {}, 6),
        (["--dither", "paper"], {"dither": "paper"}, {}, 6),
        (["--runs", "30"], {}, {"n_runs": 30}, 6),
        (["--only", "6D", "--only", "3D"], {}, {"variants": ["3D", "6D"]}, 6),
        (["--method", "robust"], {}, {"methods": ["robust"]}, 6),
        (["--method", "robust", "--method", "published"], {}, {"methods": ["robust", "published"]}, 6),
        (["--jobs", "2"], {}, {}, 2),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_a_study_has_the_settings_that_are_given(
    runner: CliRunner,
    tmp_path: Path,
    begun: dict[str, Any],
    options: list[str],
    settings: dict[str, Any],
    cells: dict[str, Any],
    n_jobs: int,
) -> None:
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path / "out"), *options])
    # A study that ended early can be continued.
    assert result.exit_code == 3
    assert result.stderr == "Error: two runs are lost.\n"
    expected = study_cells(**{"n_runs": 500} | cells)
    assert list(begun["study"].cells) == expected
    assert begun["study"].settings == Settings(**settings)
    assert begun["seed"] == settings.get("seed", 0)
    assert json.loads((tmp_path / "out" / "illustration.json").read_text()) == {"seed": begun["seed"]}
    assert begun["n_jobs"] == n_jobs
    n_runs = sum(cell.n_runs for cell in expected)
    processes = f"{n_jobs} processes"
    lines = [f"{n_runs - 5} runs are already stored.", f"Making 5 runs on {processes}."]
    assert result.stdout.splitlines()[:2] == lines


def test_an_interrupt_says_how_to_continue(runner: CliRunner, tmp_path: Path, begun: dict[str, Any]) -> None:
    begun["error"] = KeyboardInterrupt()
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path / "out")])
    assert result.exit_code == 130
    message = "Error: interrupted. Finished runs are stored; run the same command again to continue.\n"
    assert result.stderr == message


@pytest.mark.parametrize(
    ("library", "advice"),
    [("matplotlib", 'pip install ".[plot]"'), ("jinja2", 'pip install ".[report]"')],
)
def test_without_a_library_it_says_what_to_install(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, advice: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert advice in result.output
    assert list(tmp_path.iterdir()) == []
