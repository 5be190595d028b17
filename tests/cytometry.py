"""Events of FCS files, for tests of what reads and writes them; and a writer that follows the standard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from skmix import open_rows
from skmix.data.fcs import open_fcs


class Events(NamedTuple):
    """Events X (n, M), and the names and markers (M,) of their channels."""

    X: np.ndarray
    channels: tuple[str, ...]
    markers: tuple[str, ...]


def write_fcs_file(
    path: Path,
    stored: np.ndarray,
    names: Sequence[str],
    *,
    version: str = "3.1",
    kind: str = "F",
    bits: int = 32,
    little: bool = True,
    ranges: float | Sequence[float] = 262144,
    amplified: str | Sequence[str] = "0,0",
    delimiter: str = "/",
    **keywords: object,
) -> Path:
    """Write stored values (n, p); `ranges` are $PnR and `amplified` are $PnE, of each channel or of all.

    Keywords that begin with an underscore are not of the standard, and have no $.
    """
    data_start = 4096
    dtype = {"F": "f4", "D": "f8", "I": f"u{bits // 8}"}[kind]
    data = np.ascontiguousarray(stored).astype(("<" if little else ">") + dtype).tobytes()
    width = int(dtype[1:])
    order = [*range(1, width + 1)] if little else [*range(width, 0, -1)]
    given: dict[str, object] = {"BYTEORD": ",".join(map(str, order)), "DATATYPE": kind, "MODE": "L"}
    given |= {"NEXTDATA": 0, "PAR": len(names), "TOT": len(stored)}
    if version != "2.0":
        given |= {"BEGINDATA": data_start, "ENDDATA": data_start + len(data) - 1}
    for number, name in enumerate(names, start=1):
        span = ranges if isinstance(ranges, (int, float)) else ranges[number - 1]
        decades = amplified if isinstance(amplified, str) else amplified[number - 1]
        given |= {f"P{number}N": name, f"P{number}B": 8 * width}
        given |= {f"P{number}R": int(span), f"P{number}E": decades}
    names_of = {key: key[1:] if key[0] == "_" else f"${key}" for key in given | keywords}
    escaped = {key: str(value).replace(delimiter, 2 * delimiter) for key, value in (given | keywords).items()}
    text = delimiter + "".join(f"{names_of[key]}{delimiter}{escaped[key]}{delimiter}" for key in escaped)
    offsets = (256, 256 + len(text) - 1, data_start, data_start + len(data) - 1, 0, 0)
    header = f"FCS{version}    " + "".join(f"{offset:8d}" for offset in offsets)
    assert 256 + len(text) < data_start
    path.write_bytes((header.ljust(256) + text).ljust(data_start).encode("latin-1") + data)
    return path


def read_fcs(path: Path, *, channels: Sequence[str] | None = None, compensate: bool = False) -> Events:
    """Read channels of a file, by default all of them, on the linear scale."""
    file = open_fcs(path)
    names = [channel.name for channel in file.channels] if channels is None else list(channels)
    rows = open_rows(path, columns=names, compensate=compensate, transform=None)
    chosen = [file.channels[index] for index in file.find(names)]
    X = np.concatenate([block.X for block in rows.blocks()])
    return Events(X, tuple(each.name for each in chosen), tuple(each.marker for each in chosen))
