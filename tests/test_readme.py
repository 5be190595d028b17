"""The README's code runs and prints what the README says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from skmix.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def block(language: str) -> str:
    """Return all blocks of a language, one after the other."""
    found = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert found, f"the README has no {language} block"
    return "".join(found)


@pytest.mark.slow
def test_the_code_runs_and_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, object] = {}
    exec(compile(block("python"), "README.md", "exec"), namespace)
    printed, shown = capsys.readouterr().out, block("text")
    assert NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    compare_numbers(printed, shown)


def compare_numbers(printed: str, shown: str) -> None:
    for now, then in zip(NUMBER.findall(printed), NUMBER.findall(shown), strict=True):
        # A hundredth more or less is another machine's rounding: percentages are whole numbers here.
        assert float(now) == pytest.approx(float(then), abs=0.02 if "." in then else 2)


@pytest.mark.slow
def test_the_commands_run_and_print_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = re.findall(r"^\$ skmix (.*)\n((?:(?!\$ ).*\n)*)", block("console"), re.MULTILINE)
    assert [arguments.split()[0] for arguments, _ in steps] == [
        "digits",
        "fit",
        "digits",
        "evaluate",
        "predict",
    ]
    for arguments, shown in steps:
        result = CliRunner().invoke(app, shlex.split(arguments))
        assert result.exit_code == 0, result.output
        # Three dots stand for the rest.
        kept = shown.split("...\n")[0]
        printed = (
            result.output if kept == shown else "".join(result.output.splitlines(True)[: kept.count("\n")])
        )
        if arguments.startswith("fit"):
            # Which of nearly equal candidates a search chooses may differ between machines.
            ends = [0, -1]
            printed, kept = ("\n".join(np.array(text.splitlines())[ends]) for text in (printed, kept))
        assert NUMBER.sub("#", printed) == NUMBER.sub("#", kept)
        compare_numbers(printed, kept)
    assert len(Path("predictions.csv").read_text().splitlines()) == 1001


def test_links_and_pictures_exist() -> None:
    root = Path(__file__).parents[1]
    links = re.findall(r"\]\(([^)#]+)\)", README)
    local = [link for link in links if not link.startswith("http")]
    assert "docs/images/illustration.png" in local
    assert [link for link in local if not (root / link).is_file()] == []
