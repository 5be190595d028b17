"""Atomic writes: a new file is written in the same folder and renamed over the old one.

A reader, or a run resumed after an interruption, always finds a complete file, old or new.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def is_device(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is of a device, pipe or open stream, which is written to and never replaced."""
    place = Path(path)
    special = place.exists() and not place.is_file() and not place.is_dir()
    return special or os.path.abspath(place).startswith(("/dev/std", "/dev/fd/", "/proc/"))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a new binary file that replaces `path` if the body ends without an error.

    A symbolic link stays one, and the file it points to is replaced. Anything but a regular file, such as
    ``/dev/null``, and whatever ``/dev/stdout`` is, is written to directly.
    """
    if is_device(path):
        # Not by its real path, which for a pipe is the name of no file.
        with open(path, "wb") as file:
            yield file
        return
    target = Path(os.path.realpath(path))
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


def writable_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder, created if missing; raise OSError if no file can be written into it.

    Called before long work, so that it does not fail at the end.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return folder
