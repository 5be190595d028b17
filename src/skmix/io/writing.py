"""Writing files: beside their place first, then renamed into it.

A reader, or a run that continues an interrupted one, therefore finds either the whole old file or the whole
new one, never half of either.
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
    """Open a new binary file that takes the place of `path` once the body has ended without an error.

    Parameters
    ----------
    path : path-like
        The file to make or to replace. After an error it is as it was.

    Yields
    ------
    file
        A binary file in the same folder, under another name.

    Examples
    --------
    >>> from skmix.persistence import replacing
    >>> with replacing("notes.txt") as file:  # doctest: +SKIP
    ...     file.write(b"all or nothing")
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(beside, "xb") as file:
            yield file
            file.flush()
            # Without this a crash of the machine could leave the new name on an empty file.
            os.fsync(file.fileno())
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)
