"""Results as files: JSON, and JSON lines."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from skmix.io import replacing


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write numbers, strings and lists as JSON; NaN and infinities, which JSON lacks, raise ValueError."""
    text = json.dumps(content, indent=2, allow_nan=False)
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def write_lines(path: str | os.PathLike[str], records: Iterable[dict[str, Any]]) -> None:
    """Write records as JSON, one on each line."""
    lines = [json.dumps(record, allow_nan=False).encode() + b"\n" for record in records]
    with replacing(path) as file:
        file.writelines(lines)


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a file written by `write_lines`; raise ValueError if a line is not one."""
    records = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} of {path} is not a record in JSON: {error}") from error
    return records


def writable_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder, created if missing; raise OSError if no file can be written into it.

    Called before long work, so that it does not fail at the end.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".{secrets.token_hex(4)}.part"
    try:
        probe.touch()
    finally:
        probe.unlink(missing_ok=True)
    return folder
