"""The command line does what it says, prints it plainly, and fails with a sentence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import skmix
from skmix.cli import app

FILES = ["illustration.json", "illustration.pdf", "illustration.png"]


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


def run_skmix(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed console script, not on a terminal."""
    script = Path(sys.executable).parent / "skmix"
    return subprocess.run(
        [str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


def test_version(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.output == f"skmix {skmix.__version__}\n"


def test_help_lists_the_commands(runner: CliRunner) -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "reproduce" in result.output


def test_reproduce_prints_true_beside_estimated(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path / "deep" / "results"), "--seed", "3"])
    assert result.exit_code == 0, result.output
    folder = tmp_path / "deep" / "results"
    assert sorted(path.name for path in folder.iterdir()) == FILES
    content = json.loads((folder / "illustration.json").read_text())
    assert content["seed"] == 3
    # Two means, three entries of a covariance or three weights, true and then estimated, and two errors.
    lines = re.findall(r"^ +(?:kernel|class) (\d)((?: +-?\d+\.\d{3})+) *$", result.output, re.MULTILINE)
    numbers = [[float(number) for number in line.split()] for _, line in lines]
    assert [len(line) for line in numbers] == [6, 6, 6, 8, 8, 8, 8, 8, 8]
    for k, line in enumerate(numbers[:3]):
        assert line[:2] == content["true"]["means"][k]
        assert line[2:4] == np.round(content["estimated"]["means"][k], 3).tolist()
    for c, line in enumerate(numbers[6:]):
        assert line[:3] == np.array(content["true"]["weights"])[:, c].tolist()
        assert line[3:6] == np.round(content["estimated"]["weights"], 3)[:, c].tolist()
    for name, error in content["largest_error"].items():
        assert f"{name} {error:.3f}" in result.output
    assert f"Converged in {content['passes']} passes" in result.output


def test_reproduce_as_a_program_off_the_terminal(tmp_path: Path) -> None:
    done = run_skmix("reproduce", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    assert "\x1b" not in done.stdout
    assert "…" not in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if str(tmp_path) not in line) <= 80


def test_reproduce_where_only_ascii_can_be_printed(tmp_path: Path) -> None:
    done = run_skmix("reproduce", "--out", str(tmp_path), PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_that_cannot_be_written_is_an_error_in_words(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("in the way")
    done = run_skmix("reproduce", "--out", str(tmp_path / "file" / below))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"Error: cannot write the results into {tmp_path / 'file' / below}: ")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize("seed", ["-1", "4294967296", "one"])
def test_a_seed_that_is_none_is_refused(runner: CliRunner, tmp_path: Path, seed: str) -> None:
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path), "--seed", seed])
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_it_says_what_to_install(
    runner: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = runner.invoke(app, ["reproduce", "--out", str(tmp_path)])
    assert result.exit_code == 1
    assert "pip install skmix[plot]" in result.output
    assert list(tmp_path.iterdir()) == []
