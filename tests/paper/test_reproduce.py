"""The command line does what it says, prints it plainly, and fails with a sentence."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

import skmix
from skmix.cli import app
from skmix.cli.reproduce import _print_claims, _print_table, progress
from skmix.engine.compute.dask import ClusterError
from skmix.paper import LABELS, PRINTED, VARIANTS, Settings, study_cells
from skmix.paper import figures as figures_of
from skmix.paper.claims import Difference
from skmix.paper.harness import Claim, ExperimentError, Row, Table
from skmix.paper.records import Beyond
from skmix.paper.study import Study

FILES = [
    "figures",
    "illustration.json",
    "illustration.pdf",
    "illustration.png",
    "report.html",
    "study.sqlite",
    "tables",
]
SMALL = ["--runs", "1", "--only", "3D", "--only", "3x1D", "--jobs", "1"]


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def test_version(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"skmix {skmix.__version__}\n"


def study_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_a_small_study_from_end_to_end(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then again where only ASCII can be printed, with nothing left to do."""
    # All figures are drawn in tests/plots; here it is one that shows the runs.
    last, figures = "confusion_3x1D", figures_of.paper_figures
    monkeypatch.setattr(figures_of, "paper_figures", lambda results: {last: figures(results)[last]})
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

    # Two variants at K = 10, and one of them at six more values of K, with three methods.
    assert "Making 24 runs on 1 process." in done.stdout
    assert "Made 24 runs in " in done.stdout
    for number in range(1, 7):
        assert f"Table {number}: " in done.stdout
        assert (folder / "tables" / f"table{number}.md").read_text().startswith(f"# Table {number}: ")
        lines = (folder / "tables" / f"table{number}.csv").read_text().splitlines()
        assert lines[0].endswith(',"paper, printed","paper\'s algorithm, rerun",robust,class-wise')
    assert "Claims, checked" in done.stdout
    assert "Paper's algorithm, rerun: singular and failed runs" in done.stdout
    assert study_files(folder / "figures") == [f"{last}.pdf", f"{last}.png"]
    assert (folder / "report.html").read_text().startswith("<!doctype html>")

    # Other settings are other runs, and replace none of those that are stored.
    written = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    few = ["--runs", "1", "--only", "3x1D", "--jobs", "1"]
    # Figures are the same when they are drawn again; see tests/plots.
    monkeypatch.setattr(figures_of, "plot_illustration", lambda record: [SimpleNamespace(figure=None)])
    monkeypatch.setattr("skmix.cli.reproduce._save", lambda folder, figure: None)
    with monkeypatch.context() as patch:
        patch.setattr(figures_of, "paper_figures", lambda results: {})
        patch.setattr("skmix.paper.study.run_beyond", lambda *_, **__: ())
        other = runner.invoke(app, ["reproduce", *arguments[1:5], "--dither", "paper", *few])
    assert other.exit_code == 0, other.output
    assert "Making 3 runs on 1 process." in other.stdout
    assert (folder / "tables" / "table1.csv").read_bytes() != written[folder / "tables" / "table1.csv"]
    assert n_kept(folder / "study.sqlite") == 27
    del written[folder / "study.sqlite"]

    again = CliRunner(charset="ascii").invoke(app, [*arguments, "--json"])
    assert again.exit_code == 0, again.stderr
    assert again.stdout.isascii()
    assert "24 runs are already stored." in again.stderr
    assert "Making" not in again.stderr
    printed = json.loads(again.stdout)
    assert [table["name"] for table in printed["tables"]][:2] == ["table1", "table2"]
    assert {"claim", "target", "measured", "holds", "note"} == set(printed["verdicts"][0])
    assert {path for path, content in written.items() if path.read_bytes() != content} == set()


def test_tables_of_ten_variants_fit_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    sources = (PRINTED, *LABELS.values())
    columns = tuple(each.name for each in VARIANTS)
    row = Row(("Med Acc",), ((0.5,) * len(sources),) * len(columns))
    _print_table(Table("table1", "Table 1", ("measure",), "variant", columns, sources, (row,)))
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    names = [line[2:20].strip() for line in printed.splitlines() if line.startswith("  ")]
    assert names[1:] == ["paper, printed", "paper's algorithm,", "rerun", "robust", "class-wise"]


def check_illustration(output: str, content: dict[str, Any]) -> None:
    """Two means, three entries of a covariance or three weights, true and then estimated, and two errors."""
    assert content["seed"] == 3
    lines = re.findall(r"^ +(?:kernel|class) (\d)((?: +-?\d+\.\d{3})+) *$", output, re.MULTILINE)
    numbers = [[float(number) for number in line.split()] for _, line in lines]
    assert [len(line) for line in numbers] == [6, 6, 6, 8, 8, 8, 8, 8, 8]
    for line in numbers:
        true, estimated = np.split(np.array(line[:-2]), 2)
        assert line[-2] == pytest.approx(np.abs(estimated - true).max(), abs=0.0011)
    for k, line in enumerate(numbers[:3]):
        assert line[:2] == content["true"]["means"][k]
        assert line[2:4] == np.round(content["estimated"]["means"][k], 3).tolist()
    for c, line in enumerate(numbers[6:]):
        assert line[:3] == np.array(content["true"]["weights"])[:, c].tolist()
        assert line[3:6] == np.round(content["estimated"]["weights"], 3)[:, c].tolist()
    for name, error in content["largest_error"].items():
        assert f"{name} {error:.3f}" in output
    assert f"Converged in {content['passes']} passes" in output


# `skmix reproduce` without its pictures, and with runs for which workers need not import the study: while one
# worker waits for the interrupt, the other has nothing to do.
PROGRAM = """
import time
from pathlib import Path
from skmix.paper import harness

def work(shared, task, replicates):
    while 0 not in replicates and not Path(__file__).with_name("interrupted").exists():
        time.sleep(0.05)
    return [{}] * len(replicates)

def run_study(study, store, **settings):
    harness.run_cells([harness.Cell({}, None, 20, batch=10)], work, None, store, **settings)

if __name__ == "__main__":
    from skmix import __main__, cli, paper
    paper.run_study = run_study
    cli.reproduce._save = lambda folder, figure: None
    __main__.main()
"""


@pytest.mark.skipif(os.name != "posix", reason="sends a signal as a terminal does")
@pytest.mark.slow
def test_an_interrupt_keeps_what_is_finished(tmp_path: Path) -> None:
    """Ctrl-C reaches the program and its workers alike; only the program answers, in one line."""
    script, out = tmp_path / "program.py", tmp_path / "out"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), "reproduce", "--out", str(out), "--jobs", "2"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **streams) as program:
        while n_kept(out / "study.sqlite") < 10:
            assert program.poll() is None
            time.sleep(0.05)
        os.killpg(program.pid, signal.SIGINT)
        (tmp_path / "interrupted").touch()
        _, errors = program.communicate()
    assert program.returncode == 130
    assert errors == "Error: interrupted. Finished runs are stored; run the same command again to continue.\n"
    assert n_kept(out / "study.sqlite") == 10


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


def test_progress_is_a_bar_with_the_time_left_on_a_terminal() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    with progress(console, 100, 0, 2) as show:
        show([None] * 40)  # type: ignore[list-item]
    assert "40/100" in stream.getvalue()
    assert re.search(r"left.*\d:\d\d:\d\d|left.*-:--:--", stream.getvalue())


def test_progress_is_a_few_lines_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    with progress(Console(file=io.StringIO()), 100, 20, 1) as show:
        for _ in range(10):
            show([None] * 10)  # type: ignore[list-item]
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
        ("--seed", "-1", "greater than or equal to 0|not in the range"),
        ("--seed", "4294967296", "less than or equal to 4294967295|not in the range"),
        ("--seed", "one", "integer"),
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
        raise ExperimentError("two runs are lost.")

    @contextmanager
    def connect(address: str, version: str) -> Iterator[Any]:
        seen.update(address=address, version=version)
        yield SimpleNamespace(nthreads=lambda: {"one": 2, "other": 3})

    def illustration(seed: int) -> Any:
        seen["seed"] = seed
        return SimpleNamespace(to_dict=lambda: {"seed": seed})

    for name, own in {
        "study.run_study": run_study,
        "study.run_illustration": illustration,
        "study.make_study": lambda cells, settings: Study(settings, tuple(cells), ()),
        "connect": connect,
        "harness.missing": lambda planned, store: 5,
        "figures_of.plot_illustration": lambda record: [SimpleNamespace(figure=None)],
        "_print_illustration": lambda record: None,
        "_save": lambda folder, figure: None,
        "joblib.cpu_count": lambda: 6,
    }.items():
        monkeypatch.setattr(f"skmix.cli.reproduce.{name}", own)
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
        (["--way", "robust", "--method", "published"], {}, {"methods": ["robust", "published"]}, 6),
        (["--jobs", "2"], {}, {}, 2),
        (["--dask", "tcp://there:1"], {}, {}, 5),
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
    assert (begun["cluster"] is None) == ("--dask" not in options)
    assert begun.get("address") == ("tcp://there:1" if "--dask" in options else None)
    assert begun.get("version") == (skmix.__version__ if "--dask" in options else None)
    n_runs = sum(cell.n_runs for cell in expected)
    processes = f"{n_jobs} processes"
    lines = [f"{n_runs - 5} runs are already stored.", f"Making 5 runs on {processes}."]
    assert result.stdout.splitlines()[:2] == lines


def test_a_cluster_that_does_not_answer_ends_a_study_early(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect(address: str, version: str) -> Any:
        raise ClusterError(f"No Dask scheduler responds at {address}.")

    monkeypatch.setattr("skmix.cli.reproduce.connect", connect)
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path / "out"), "--dask", "there:1"])
    assert (result.exit_code, result.stderr) == (3, "Error: No Dask scheduler responds at there:1.\n")
    assert list(tmp_path.iterdir()) == []


def test_claims_and_differences_are_printed_as_they_are(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    beyond = [Beyond("SVM", "a radial kernel", False, 0.98765, 0.97654, np.eye(10))]
    claims = [
        Claim("robust runs do not fail", "0 failed", "0 of 9", True),
        Claim("3D is best", "above 0.9", "0.81", False, "few runs"),
    ]
    differences = [Difference("6D", "share of failed runs", 0.25, 0.5, "other data")]
    _print_claims(SimpleNamespace(beyond=beyond), claims, differences)  # type: ignore[arg-type]
    lines = [re.split(r" {2,}", line.strip()) for line in capsys.readouterr().out.splitlines()]
    shown = [line for line in lines if line != [""] and not set("".join(line)) <= set("─ ")]
    assert shown == [
        ["Beyond the paper's features"],
        ["classifier", "accuracy", "mean IoU"],
        ["a radial kernel", "0.9877", "0.9765"],
        ["Claims, checked"],
        ["claim", "criterion", "measured", "holds"],
        ["robust runs do not fail", "0 failed", "0 of 9", "yes"],
        ["3D is best", "above 0.9", "0.81", "NO"],
        ["3D is best: few runs"],
        ["Where the paper's algorithm, rerun, differs from the paper"],
        ["variant", "quantity", "paper, printed", "paper's algorithm, rerun", "likely reason"],
        ["6D", "share of failed runs", "0.250", "0.500", "other data"],
    ]


def test_of_failures_those_of_the_paper_s_algorithm_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    def row(n_kernels: int, reason: str, *counts: tuple[int | None, ...]) -> Row:
        return Row((str(n_kernels), reason), counts)

    rows = (
        row(10, "singular", (3, 9), (4, 9)),
        row(10, "never", (None, 9), (None, 9)),
        row(4, "other K", (7, 9), (8, 9)),
    )
    sources = tuple(LABELS.values())[:2]
    table = Table("failures", "Failures", ("K", "reason"), "variant", ("3D", "6D"), sources, rows, "A note.")
    _print_table(table)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    assert lines[0] == [
        "Paper's",
        "algorithm,",
        "rerun:",
        "singular",
        "and",
        "failed",
        "runs,",
        "K",
        "=",
        "10",
    ]
    assert lines[1:] == [["3D", "6D"], ["singular", "3", "4"], ["A", "note."]]


def test_rows_of_one_key_are_printed_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    rows = tuple(
        Row((key, measure), (entry,))
        for key, measure, entry in (
            ("5", "mean", (0.5, 0.25)),
            ("5", "runs", (7, None)),
            ("6", "mean", (0.75, 1.0)),
            ("6", "runs", (8, 9)),
        )
    )
    table = Table("table5", "Table 5: a sweep", ("K", "measure"), "variant", ("3D",), ("one", "other"), rows)
    _print_table(table)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip(" ─")]
    assert lines == [
        ["Table", "5:", "a", "sweep"],
        ["3D"],
        ["K", "=", "5"],
        ["one", "0.500", "7"],
        ["other", "0.250"],
        ["K", "=", "6"],
        ["one", "0.750", "8"],
        ["other", "1.000", "9"],
    ]


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
