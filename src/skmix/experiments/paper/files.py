"""Writing results: beside their place first, then renamed into it.

A reader, or a run that continues an interrupted one, therefore finds either the whole old file or the whole
new one, never half of either.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from skmix.io.writing import replacing

__all__ = ["replacing", "writable_folder", "write_json"]


def write_json(path: str | os.PathLike[str], content: dict[str, Any]) -> None:
    """Write a record of numbers, strings and lists as JSON; refuse NaN and infinities, which JSON lacks."""
    text = json.dumps(content, indent=2, allow_nan=False)
    with replacing(path) as file:
        file.write(text.encode() + b"\n")


def writable_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder, made if it was missing; raise OSError when files cannot be written into it.

    Asking before the work begins is kinder than failing after it.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".{secrets.token_hex(4)}.part"
    try:
        probe.touch()
    finally:
        probe.unlink(missing_ok=True)
    return folder
