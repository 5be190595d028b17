"""Commands look for files and libraries before they work, and print results before they write pages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import run, said, write_example


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table, a model of it, and files that cannot be read, to which no command must come."""
    write_example(tmp_path)
    for name, content in {"cells.fcs": b"FCS3.1    ", "t.parquet": b"PAR1", "bad.csv": b"\0\xff"}.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("command", "library"),
    [
        ("fit bad.csv -t kind --folds 2 --html p.html -o m", "jinja2"),
        ("predict model.skmix bad.csv -o p.parquet", "pyarrow"),
        ("evaluate model.skmix bad.csv --html p.html", "matplotlib"),
        ("show bad.skmix --html p.html", "jinja2"),
        ("export model.skmix --onnx p.onnx", "onnx"),
        ("compose cells.fcs bad.csv --html p.html", "jinja2"),
        ("reproduce --out p", "matplotlib"),
        ("reproduce --out p", "pandas"),
    ],
)
def test_a_library_that_is_missing_is_named_before_the_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str, library: str
) -> None:
    (folder / "bad.skmix").write_bytes(b"bad")
    before = sorted(folder.iterdir())
    monkeypatch.setitem(sys.modules, library, None)
    result = run(*command.split(), code=1)
    assert result.stdout == ""
    assert said(result).endswith(f' {library}: pip install ".[all]" in a checkout of skmix')
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "command", ["fit tabel.csv", "predict model.skmx table.csv", "compose tabel.csv bad.csv"]
)
def test_a_file_that_is_not_there(folder: Path, command: str) -> None:
    wrong = next(word for word in command.split() if not (folder / word).exists() and "." in word)
    meant = {"tabel.csv": "table.csv", "model.skmx": "model.skmix"}[wrong]
    expected = f"Error: cannot read {wrong}: No such file. Did you mean {meant!r}?"
    assert said(run(*command.split(), code=1)) == expected
    assert said(run("show", "nothing/x", code=1)) == "Error: cannot read nothing/x: No such file."
