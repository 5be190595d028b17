"""Atomic writes: a new file is written in the same folder and renamed over the old one.

A reader, or a run resumed after an interruption, always finds a complete file, old or new.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new binary file that replaces `path` if the body ends without an error.

    A symbolic link stays one, and the file it points to is replaced. Anything but a regular file, such as
    ``/dev/null``, is written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file() and not target.is_dir():
        with open(target, "wb") as file:
            yield file
        return
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            # Without this, a crash of the machine could leave an empty file.
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
