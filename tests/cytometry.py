"""Events of FCS files, for tests of what reads and writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skmix import open_rows
from skmix.io.fcs import open_fcs


class Events(NamedTuple):
    """Events X (n, M), and the names and markers (M,) of their channels."""

    X: np.ndarray
    channels: tuple[str, ...]
    markers: tuple[str, ...]


def read_fcs(path: Path, *, channels: Sequence[str] | None = None, compensate: bool = False) -> Events:
    """Read channels of a file, by default all of them, on the linear scale."""
    file = open_fcs(path)
    names = [channel.name for channel in file.channels] if channels is None else list(channels)
    rows = open_rows(path, columns=names, compensate=compensate, transform=None)
    chosen = [file.channels[index] for index in file.find(names)]
    X = np.concatenate([block.X for block in rows.blocks()])
    return Events(X, tuple(each.name for each in chosen), tuple(each.marker for each in chosen))
