"""The events of FCS files as rows, and copies of FCS files with one more channel."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._words import listed, nearest
from .encoding import Kind
from .fcs import LABELS, Channel, FcsFile, open_fcs
from .labels import as_integers
from .notation import AUTO
from .read import Column, Encoding, Reader, Rows, rows_in_block, stamp
from .recipe import Preparation, transformer_of
from .write import replacing

# Keywords, in lower case, that describe how events are stored.
_STORAGE = re.compile(r"p\d+[begrns]|datatype|timestep")


@dataclass(frozen=True, eq=False, kw_only=True)
class FcsReader(Reader):
    """Reads the events of an FCS file; channels are chosen by name or by marker."""

    file: FcsFile
    compensate: bool = False
    # What to do with damaged events: refuse, drop or keep them.
    damaged: str = "refuse"

    column_word = "channel"

    @property
    def all_names(self) -> list[str]:
        """Names of all channels."""
        return self.file.names

    @property
    def features(self) -> Sequence[Column]:
        return self.file.markers

    def channels(self, columns: Sequence[Any]) -> list[Channel]:
        """The channels of some columns."""
        return [self.file.channels[index] for index in self.file.find(columns)]

    def check(self, columns: Sequence[Any]) -> None:
        self.file.find(columns)

    def check_present(self, names: Sequence[str]) -> None:
        """Raise ValueError if the file lacks a channel of one of these names."""
        for name in names:
            if name not in self.all_names:
                known = f"{listed(self.all_names)}.{nearest(name, self.all_names)}"
                raise ValueError(f"{self.name} has no channel {name!r}; there are {known}")

    def check_alike(self, other: Any, columns: Sequence[Any]) -> None:
        if not isinstance(other, FcsReader):
            return
        if self.compensate != other.compensate:
            has_matrix, lacks = (self, other) if self.compensate else (other, self)
            raise ArgumentError(
                f"Files disagree: {has_matrix.name} has a spill-over matrix, and {lacks.name} has none: ",
                Argument("compensate", False),
                " reads both without compensation.",
            )
        pairs = zip(columns, self.channels(columns), other.channels(columns), strict=True)
        for name, channel, theirs in pairs:
            differ = (
                channel.marker and theirs.marker and channel.marker.casefold() != theirs.marker.casefold()
            )
            # Some instruments write the duration as the marker of Time.
            if differ and name.casefold() != "time":
                both = f"marker {theirs.marker!r} in {other.name} and {channel.marker!r} in {self.name}"
                raise ArgumentError(f"Files disagree: channel {name!r} has {both}.")

    def compensated(self, wanted: bool | str) -> Self:
        if wanted is True:
            assert self.file.spilling  # the property checks the matrix
        has_matrix = self.file.spillover is not None
        return replace(self, compensate=wanted is True or (wanted == AUTO and has_matrix))

    def preparation(self, kinds: Mapping[Any, Kind]) -> Preparation:
        return {"compensate": self.compensate, "transform": "none"}

    def dtype(self, kinds: Mapping[Any, Kind]) -> np.dtype[Any]:
        stored = [self.file.dtype[index] for index in self.file.find(list(kinds))]
        are_single = all(dtype.kind == "f" and dtype.itemsize == 4 for dtype in stored)
        are_plain = all(channel.is_plain for channel in self.channels(list(kinds)))
        is_single = are_single and are_plain and not self.compensate
        return np.dtype(np.float32 if is_single else np.float64)

    def remarks(self) -> list[ArgumentWarning]:
        if self.damaged != "drop" or not len(self.file.damaged):
            return []
        return [ArgumentWarning(f"{self.name}: damaged events are left out: {self.file.damage}")]

    def read(self, n_rows: int, encoding: Encoding) -> Iterator[Rows]:
        file = self.file
        if self.damaged == "refuse" and len(file.damaged):
            raise ArgumentError(
                f"{self.name} is damaged: {file.damage}. Get an intact copy of the file, or leave these "
                "events out with ",
                Argument("damaged", "drop", wording="open_rows(..., damaged='drop')"),
                ".",
            )
        columns, start = file.find(list(encoding.kinds)), 0
        for events in file.blocks(n_rows):
            stop = start + len(events)
            if self.damaged == "drop":
                first, last = np.searchsorted(file.damaged, [start, stop])
                events = np.delete(events, file.damaged[first:last] - start)
            start = stop
            if len(events):
                yield file.values(events, columns, encoding.dtype, compensate=self.compensate), None

    def column(self, name: str) -> list[Any]:
        """The values (n,) of a channel without compensation."""
        encoding = Encoding({name: None}, np.dtype(np.float64))
        blocks = [X[:, 0] for X, _ in self.compensated(False).read(self.n_rows, encoding)]
        values: list[Any] = as_integers(np.concatenate(blocks)).tolist()
        return values


def scatter_units(reader: FcsReader, columns: Sequence[Any], scale: Any) -> dict[str, float]:
    """The units in which scattered light is linear beside other channels on a scale.

    The top of the range of a channel is then as far from 0 as on the scale.
    """
    change = transformer_of(scale).transform
    return {
        name: channel.top / float(np.ptp(change([[0.0], [channel.top]])))
        for name, channel in zip(columns, reader.channels(columns), strict=True)
        if channel.is_scatter and not channel.rate
    }


def open_events(path: Path, damaged: str = "refuse") -> FcsReader:
    """Open an FCS file; channels that describe its recording are features only if they are chosen.

    `damaged` events are refused, dropped or kept, see `open_rows`.
    """
    file = open_fcs(path)
    n_left_out = len(file.damaged) if damaged == "drop" else 0
    if n_left_out == file.n_rows:
        raise ValueError(f"{path} is damaged: {file.damage}.")
    return FcsReader(
        name=str(path),
        n_rows=file.n_rows - n_left_out,
        block_rows=rows_in_block(file.dtype.itemsize + 8 * len(file.channels)),
        stamps={path: stamp(path)},
        file=file,
        damaged=damaged,
    )


def write_fcs(path: Path, original: Path, added: str, labels: NDArray[Any], names: Sequence[Any]) -> None:
    """Copy an FCS file and add a channel of labels (n,), in single precision and version 3.1.

    Values are on the linear scale; keywords are kept, except those that describe the storage of events. A
    keyword has the names of the labels, which are numbered from 0. There are fewer labels than events if
    damaged ones were left out.
    """
    from flowio import create_fcs

    file = open_fcs(original)
    if added in file.names:
        raise ValueError(f"{original} already has a channel {added!r}: give another name.")
    (events,) = file.blocks(file.n_rows)
    events = events if len(labels) == len(events) else np.delete(events, file.damaged)
    values = file.values(events, range(len(file.channels)), np.dtype(np.float64), compensate=False)
    X = np.column_stack([values, labels]).astype(np.float32)
    # Gains and time steps have been applied.
    kept = {key: text for key, text in file.keywords.items() if text.strip() and not _STORAGE.fullmatch(key)}
    kept[f"p{len(file.channels) + 1}r"] = str(max(2, len(names)))
    kept[f"{added}_names"] = ", ".join(f"{number} = {name}" for number, name in enumerate(names))
    markers = [*(channel.marker for channel in file.channels), LABELS]
    with replacing(path) as target:
        create_fcs(target, array("f", X.tobytes()), [*file.names, added], markers, kept)
