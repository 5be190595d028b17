"""`skmix digits` writes what it says, beside its place first, and refuses what it cannot write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from skmix.cli import app
from skmix.paper import DIGIT_FEATURES, digit_features, make_seven_segment_digits


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["digits", *map(str, arguments)])
    return result.exit_code, result.output


def test_images_labels_and_features_are_written(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "digits.npz"
    code, output = run("--out", out, "--per-digit", 3, "--seed", 7)
    assert code == 0, output
    assert str(out) in output
    assert [path.name for path in out.parent.iterdir()] == ["digits.npz"]
    images, labels = make_seven_segment_digits(3, random_state=7)
    with np.load(out, allow_pickle=False) as stored:
        assert sorted(stored.files) == ["feature_names", "features", "images", "labels"]
        assert_array_equal(stored["images"], images)
        assert_array_equal(stored["labels"], labels)
        assert_array_equal(stored["features"], digit_features(images))
        assert tuple(stored["feature_names"].tolist()) == DIGIT_FEATURES


def test_a_table_has_features_and_the_digit(tmp_path: Path) -> None:
    out = tmp_path / "digits.csv"
    code, output = run("--out", out, "--per-digit", 2, "--seed", 7, "--json")
    assert code == 0, output
    assert json.loads(output) == {"file": str(out), "sheet": None, "n_images": 20}
    images, labels = make_seven_segment_digits(2, random_state=7)
    table = np.genfromtxt(out, delimiter=",", names=True, deletechars="", replace_space=" ")
    assert table.dtype.names == (*DIGIT_FEATURES, "digit")
    assert_array_equal(np.array(table.tolist()), np.column_stack([digit_features(images), labels]))


def test_a_sheet_has_the_first_images_of_each_digit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    per_digit = 22
    drawn: dict[str, Any] = {}

    def plot_digits(images: Any, labels: Any, **options: Any) -> None:
        drawn.update(images=images, labels=labels, **options)

    monkeypatch.setattr("skmix.paper.command.plot_digits", plot_digits)
    sheet = tmp_path / "deep" / "sheet.PDF"
    code, output = run("--out", tmp_path / "a.npz", "--per-digit", per_digit, "--sheet", sheet, "--json")
    assert code == 0, output
    n_images = 10 * per_digit
    assert json.loads(output) == {"file": str(tmp_path / "a.npz"), "sheet": str(sheet), "n_images": n_images}
    images, labels = make_seven_segment_digits(per_digit, random_state=0)
    first = np.concatenate([np.flatnonzero(labels == digit)[:20] for digit in range(10)])
    assert_array_equal(drawn["images"], images[first])
    assert_array_equal(drawn["labels"], labels[first])
    assert drawn["n_columns"] == 20
    assert sheet.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--out", "digits.txt"], "--out digits.txt: the name must end in .npz or .csv"),
        (["--out", "digits"], "--out digits: the name must end in .npz"),
        (["--sheet", "sheet.gif"], "--sheet sheet.gif: the name must end in .pdf or .png or .svg"),
        (["--per-digit", "0"], "--per-digit"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run(*arguments)
    assert code == 2
    assert message in output
    assert "Traceback" not in output
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, output = run("--out", tmp_path / "file" / "digits.npz", "--per-digit", 1)
    assert code == 2
    assert output.startswith(f"Error: cannot write {tmp_path / 'file' / 'digits.npz'}: ")
    (tmp_path / "folder.npz").mkdir()
    code, output = run("--out", tmp_path / "folder.npz", "--per-digit", 1)
    assert code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.npz"]


def test_without_matplotlib_only_the_sheet_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, output = run("--out", tmp_path / "a.npz", "--per-digit", 1, "--sheet", tmp_path / "a.png")
    assert code == 1
    assert 'pip install ".[plot]"' in output
    assert list(tmp_path.iterdir()) == []
    code, _ = run("--out", tmp_path / "a.npz", "--per-digit", 1)
    assert code == 0
