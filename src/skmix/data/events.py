"""The events of FCS files as rows, and copies of FCS files with one more channel."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._words import listed, nearest
from .amplification import default_scale
from .blocks import LabelledBlock
from .fcs import LABELS, FcsFile, is_scatter, open_fcs
from .labels import as_integers
from .notation import AUTO
from .read import Reader, rows_in_block, stamp
from .recipe import Preparation
from .write import replacing

# Keywords, in lower case, that describe how events are stored.
_STORAGE = re.compile(r"p\d+[begrns]|datatype|timestep")


@dataclass(frozen=True, eq=False, kw_only=True)
class FcsReader(Reader):
    """The events of an FCS file; features are named by channel, or by marker if chosen by marker."""

    file: FcsFile
    # Names of the features.
    chosen: list[str]
    compensate: bool = False
    # What to do with damaged events.
    damaged: str = "refuse"

    column_word = "channel"

    @property
    def feature_names(self) -> list[str]:
        return self.chosen

    @cached_property
    def _columns(self) -> list[int]:
        return self.file.find(self.chosen)

    @property
    def all_names(self) -> list[str]:
        """Names of all channels of the file."""
        return self.file.names

    @property
    def markers(self) -> list[str]:
        """Marker of each feature, empty if the file has none."""
        return [self.file.channels[column].marker for column in self._columns]

    @property
    def kinds(self) -> dict[str, None]:
        """Kinds of the features, see `skmix.data.encoding`: all are numbers."""
        return dict.fromkeys(self.chosen)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        file = self.file
        are_single = all(
            file.dtype[c].kind == "f" and file.dtype[c].itemsize == 4 and file.channels[c].is_plain
            for c in self._columns
        )
        return np.dtype(np.float32 if are_single and not self.compensate else np.float64)

    @property
    def preparation(self) -> Preparation:
        return {"compensate": self.compensate, "transform": "none"}

    @property
    def scatter(self) -> dict[str, float]:
        chosen = zip(self.chosen, (self.file.channels[column] for column in self._columns), strict=True)
        return {
            name: channel.top for name, channel in chosen if is_scatter(channel.name) and not channel.rate
        }

    @classmethod
    def usual_scale(cls, readers: Sequence[Any]) -> tuple[Preparation, str | None]:
        files = [reader for reader in readers if isinstance(reader, FcsReader)]
        cells = [reader.file.recorded[c] for reader in files for c in reader.file.find(reader.file.markers)]
        channels = {
            name: [reader.file.recorded[reader._columns[feature]] for reader in files]
            for feature, name in enumerate(files[0].chosen)
        }
        return default_scale([reader.name for reader in files], cells, channels)

    def with_features(self, columns: Sequence[int]) -> Self:
        return replace(self, chosen=[self.chosen[column] for column in columns])

    def select(self, names: Sequence[str]) -> Self:
        self.file.find(names)
        return replace(self, chosen=list(names))

    def compensated(self, wanted: bool | str) -> Self:
        if wanted is True:
            assert self.file.spilling  # the property checks the matrix
        has_matrix = self.file.spillover is not None
        return replace(self, compensate=wanted is True or (wanted == AUTO and has_matrix))

    def check_present(self, names: Sequence[str]) -> None:
        """Raise ValueError if the file lacks a channel."""
        for name in names:
            if name not in self.all_names:
                known = f"{listed(self.all_names)}.{nearest(name, self.all_names)}"
                raise ValueError(f"{self.name} has no channel {name!r}; there are {known}")

    def check_alike(self, other: Any) -> None:
        super().check_alike(other)
        if not isinstance(other, FcsReader):
            return
        if self.compensate != other.compensate:
            has_matrix, lacks = (self, other) if self.compensate else (other, self)
            raise ArgumentError(
                f"Files disagree: {has_matrix.name} has a spill-over matrix, and {lacks.name} has none: ",
                Argument("compensate", False),
                " reads both without compensation.",
            )
        markers = dict(zip(other.feature_names, other.markers, strict=True))
        for name, marker in zip(self.feature_names, self.markers, strict=True):
            differ = marker and markers[name] and marker.casefold() != markers[name].casefold()
            # Some instruments write the duration as the marker of Time.
            if differ and name.casefold() != "time":
                both = f"marker {markers[name]!r} in {other.name} and {marker!r} in {self.name}"
                raise ArgumentError(f"Files disagree: channel {name!r} has {both}.")

    def remarks(self) -> list[ArgumentWarning]:
        if self.damaged != "drop" or not len(self.file.damaged):
            return []
        return [ArgumentWarning(f"{self.name}: damaged events are left out: {self.file.damage}")]

    def column(self, name: str) -> list[Any]:
        """The values (n,) of a channel without compensation."""
        blocks = self.compensated(False).select([name]).read(self.n_rows)
        return [value for block in blocks for value in as_integers(block.X[:, 0].astype(np.float64)).tolist()]

    def read(
        self, n_rows: int, label: str | None = None, weight: str | None = None
    ) -> Iterator[LabelledBlock]:
        file = self.file
        if self.damaged == "refuse" and len(file.damaged):
            raise ArgumentError(
                f"{self.name} is damaged: {file.damage}. Get an intact copy of the file, or leave these "
                "events out with ",
                Argument("damaged", "drop", wording="open_rows(..., damaged='drop')"),
                ".",
            )
        start = 0
        for events in file.blocks(n_rows):
            stop = start + len(events)
            if self.damaged == "drop":
                first, last = np.searchsorted(file.damaged, [start, stop])
                events = np.delete(events, file.damaged[first:last] - start)
            start = stop
            if len(events):
                X = file.values(events, self._columns, self.dtype, compensate=self.compensate)
                yield LabelledBlock(X)


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
        chosen=file.markers,
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
