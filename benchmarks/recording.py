"""What benchmarks write beside their measurements: the processor, and files of records."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from skmix.io.writing import replacing


@cache
def processor() -> str:
    """Return the processor's name; times of different processors cannot be compared."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def write_lines(path: str | os.PathLike[str], records: Iterable[dict[str, Any]]) -> None:
    """Write records as JSON, one on each line."""
    lines = [json.dumps(record, allow_nan=False).encode() + b"\n" for record in records]
    with replacing(path) as file:
        file.writelines(lines)


def read_lines(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of a file written by `write_lines`; raise ValueError if a line is not a record."""
    records = []
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
        try:
            records.append(dict(json.loads(line)))
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} of {path} is not a record in JSON: {error}") from error
    return records
