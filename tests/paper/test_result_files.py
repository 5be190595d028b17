"""JSON files, and folders to write to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from skmix.io import writable_folder
from skmix.paper.harness import read_lines, write_json, write_lines


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_json_has_the_content_and_ends_with_a_line(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"value": 0.1, "list": [1, 2]})
    text = (tmp_path / "a.json").read_text()
    assert json.loads(text) == {"value": 0.1, "list": [1, 2]}
    assert text.endswith("}\n")


def test_nan_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"value": float("nan")})
    with pytest.raises(ValueError, match="JSON"):
        write_lines(tmp_path / "a.jsonl", [{"value": 1.0}, {"value": float("nan")}])
    assert names(tmp_path) == []


def test_records_are_written_one_on_each_line(tmp_path: Path) -> None:
    records = [{"error": 0.1 + 0.2}, {"error": 0.5}]
    write_lines(tmp_path / "a.jsonl", records)
    assert read_lines(tmp_path / "a.jsonl") == records
    (tmp_path / "notes").write_text('{"a": 1}\nbuy milk\n')
    with pytest.raises(ValueError, match=r"line 2 of .*notes is not a record"):
        read_lines(tmp_path / "notes")


def test_a_missing_folder_is_created_and_left_empty(tmp_path: Path) -> None:
    folder = writable_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert names(folder) == []
    assert writable_folder(folder) == folder


@pytest.mark.parametrize("below", ["", "below"])
def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match="file"):
        writable_folder(tmp_path / "file" / below)
