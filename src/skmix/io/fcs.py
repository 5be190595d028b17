"""Read and write FCS files, versions 2.0 to 3.1; rows are events, and features are channels."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError, ArgumentWarning
from .._extras import need
from .._words import listed, nearest
from ..data.labels import as_integers
from ..data.notation import AUTO
from ..data.recipe import BY_CHANNEL, Preparation
from .amplification import (
    LENGTH,
    LINEAR,
    Recorded,
    amplifier,
    are_transformed,
    merged,
    usual_scale,
)
from .arrow import stamp
from .damage import damaged_events
from .labelled import LabelledBlock
from .readers import Reader, rows_in_block, rows_of_npy
from .writing import replacing

FloatArray = NDArray[np.float64]

MAGIC = b"FCS"
"""First bytes of an FCS file; the version and four spaces follow."""

LABELS = "population"
"""Marker of a channel of labels, which is no feature by default."""

_VERSIONS = ("2.0", "3.0", "3.1")
# Events of each file whose values help to choose the default scale.
_SOME_EVENTS = 10_000
# Magic, version, four spaces and six numbers of eight digits.
_HEADER_BYTES = 58
_BITS = (8, 16, 32, 64)
# Top of the range of a channel that does not say it: that of most digital instruments.
_SPAN = float(1 << 18)
# Channels of scattered light, such as FSC-A, SSC_1-H and FS INT.
_SCATTER = re.compile(r"(FSC|BSC|[VBYR]?-?SSC|FS|SS)(?![a-z])", re.IGNORECASE)
# Channels of a mass cytometer, such as Yb171Di and CD3(Yb171)Di, and its names.
_ISOTOPE = re.compile(r"[\d)]D[di]$")
_MASS = re.compile(r"cytof|dvs|fluidigm|helios", re.IGNORECASE)
# Channels that describe the recording of an event, not the cell; and labels of cells.
_BOOKKEEPING = re.compile(
    r"time( [lm]sw)?|hdr-t|event([ _-]?(#|number|no|id|count|length|duration))?|cell[ _-]?length|"
    r"file[ _-]?(number|no)|population",
    re.IGNORECASE,
)
# Height or width of a pulse, such as FSC-H.
_HEIGHT_OR_WIDTH = re.compile(r"(.+)[-_ ](H|W)", re.IGNORECASE)
# What a mass cytometer says about the pulse of an event.
_PULSE = ("center", "offset", "width", "residual")


def write_fcs(path: Path, original: Path, added: str, labels: NDArray[Any], names: Sequence[Any]) -> None:
    """Copy an FCS file and add a channel of labels (n,), in single precision and version 3.1.

    Values are on the linear scale; keywords are kept, except those that describe the storage of events. A
    keyword has the names of the labels, which are numbered from 0.
    """
    from flowio import create_fcs

    file = open_fcs(original)
    channels = [channel.name for channel in file.channels]
    if added in channels:
        raise ValueError(f"{original} already has a channel {added!r}: give another name.")
    records = np.fromfile(original, file.dtype, file.n_rows, offset=file.offset)
    if len(labels) < len(records):  # damaged events were left out
        records = np.delete(records, file.damaged)
    events = file.values(records, range(len(channels)), np.dtype(np.float64), compensate=False)
    X = np.column_stack([events, labels]).astype(np.float32)
    # Gains and time steps have been applied.
    stored = re.compile(r"p\d+[begrns]|datatype|timestep")
    kept = {key: value for key, value in file.keywords.items() if value.strip() and not stored.fullmatch(key)}
    kept[f"p{len(channels) + 1}r"] = str(max(2, len(names)))
    kept[f"{added}_names"] = ", ".join(f"{number} = {name}" for number, name in enumerate(names))
    markers = [*(channel.marker for channel in file.channels), LABELS]
    with replacing(path) as target:
        create_fcs(target, array("f", X.tobytes()), [*channels, added], markers, kept)


@dataclass(frozen=True)
class Channel:
    """A channel, and how its values are stored."""

    name: str
    marker: str
    # Mask of the significant bits of stored integers; None if all are significant.
    mask: int | None
    # A stored value v stands for factor · 10^(rate · v), or for factor · v if the rate is 0.
    rate: float
    factor: float
    # Top of the range, on the linear scale.
    span: float
    # Top of the range of stored values.
    stored_top: float
    # The number that values were divided by.
    gain: float
    # Decades of the logarithmic amplifier, 0 if it was linear, and its lowest value on the linear scale.
    decades: float
    bottom: float

    @property
    def is_plain(self) -> bool:
        """Whether stored values are already on the linear scale."""
        return self.mask is None and self.rate == 0.0 and self.factor == 1.0

    def scaled(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Return stored values (n,) on the linear scale."""
        if self.is_plain:
            return stored
        values = (stored if self.mask is None else stored & stored.dtype.type(self.mask)).astype(np.float64)
        return self.factor * (10.0 ** (self.rate * values) if self.rate else values)


@dataclass(frozen=True)
class FcsFile:
    """The header of an FCS file."""

    path: Path
    channels: tuple[Channel, ...]
    n_rows: int
    # Position of the first event, in bytes.
    offset: int
    # Type of an event; field names are the indices of the channels.
    dtype: np.dtype[Any]
    # The spill-over matrix as text, if the file has one.
    spillover: str | None
    # Values of all keywords, which are in lower case and without $.
    keywords: dict[str, str]

    @property
    def name(self) -> str:
        """The path, for errors."""
        return str(self.path)

    @cached_property
    def damaged(self) -> NDArray[np.int64]:
        """Numbers of the damaged events."""
        return damaged_events(self)

    @cached_property
    def recorded(self) -> dict[int, Recorded]:
        """How each channel of cells was recorded, by its index."""
        stop = min(self.n_rows, _SOME_EVENTS)
        records = rows_of_npy(self.path, self.offset, (self.n_rows,), self.dtype, False, 0, stop)
        intact = np.delete(records, self.damaged[self.damaged < stop])
        return {c: self._recorded(c, intact if len(intact) else records) for c in range(len(self.channels))}

    def recorded_of(self, names: Sequence[str]) -> dict[int, Recorded]:
        """Return how some channels were recorded."""
        return {c: self.recorded[c] for c in self.find(names)}

    def _recorded(self, c: int, records: NDArray[Any]) -> Recorded:
        channel = self.channels[c]
        values = np.asarray(channel.scaled(records[str(c)]), dtype=np.float64)
        values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
        before_gain = values * channel.gain
        return Recorded(
            is_mass=self.is_mass,
            is_scatter=is_scatter(channel.name),
            is_integer=self.dtype[c].kind == "u",
            decades=channel.decades,
            bottom=channel.bottom,
            top=channel.span,
            gain=channel.gain,
            low=float(values.min()),
            high=float(values.max()),
            whole=bool(np.allclose(before_gain, np.round(before_gain), rtol=0.0, atol=1e-6)),
        )

    @property
    def is_mass(self) -> bool:
        """Whether a mass cytometer recorded the events."""
        isotopes = any(_ISOTOPE.search(channel.name) for channel in self.channels)
        return isotopes or _MASS.search(self.keywords.get("cyt", "")) is not None

    @property
    def markers(self) -> list[str]:
        """Names of the channels that describe cells; of all channels, if none does."""
        names = [channel.name for channel in self.channels]
        found = without_bookkeeping(names)
        found = [name for name in found if not (self.is_mass and name.casefold() in _PULSE)]
        labels = {channel.name for channel in self.channels if channel.marker == LABELS}
        return [name for name in found if name not in labels] or names

    def find(self, names: Sequence[str]) -> list[int]:
        """Return the indices of channels, looked up by name and then by marker."""
        by_name = {channel.name: index for index, channel in enumerate(self.channels)}
        found: dict[int, str] = {}
        for name in names:
            markers = [index for index, channel in enumerate(self.channels) if channel.marker == name]
            if name not in by_name and len(markers) != 1:
                known = [
                    f"{each.name} ({each.marker})" if each.marker else each.name for each in self.channels
                ]
                what = f"has {len(markers)} channels of marker" if markers else "has no channel or marker"
                names = [each for channel in self.channels for each in (channel.name, channel.marker)]
                close = "" if markers else nearest(name, filter(None, names))
                raise ValueError(f"{self.name} {what} {name!r}; its channels are {', '.join(known)}.{close}")
            index = by_name.get(name, markers[0] if markers else -1)
            if index in found:
                raise ValueError(f"{found[index]!r} and {name!r} are the same channel of {self.name}.")
            found[index] = name
        return list(found)

    def values(
        self, records: NDArray[Any], columns: Sequence[int], dtype: np.dtype[Any], *, compensate: bool
    ) -> NDArray[Any]:
        """Return some channels of records (n,) as rows (n, M) of type `dtype`."""
        mixed, matrix = self.spilling if compensate else ([], np.empty((0, 0)))
        true: NDArray[Any] = np.empty(0)
        if not set(mixed).isdisjoint(columns):
            # A row of observed values is the row of true values times the matrix.
            observed = np.array([self.channels[c].scaled(records[str(c)]) for c in mixed], dtype=np.float64)
            true = np.linalg.solve(matrix.T, observed)
        X = np.empty((len(records), len(columns)), dtype=dtype)
        for feature, c in enumerate(columns):
            X[:, feature] = true[mixed.index(c)] if c in mixed else self.channels[c].scaled(records[str(c)])
        return X

    @cached_property
    def spilling(self) -> tuple[list[int], FloatArray]:
        """Indices of p channels, and their spill-over matrix (p, p): row i is the emission of channel i."""
        if self.spillover is None:
            raise self._bad_matrix(f"{self.name} has no spill-over matrix ($SPILLOVER or SPILL).")
        whose = f"The spill-over matrix of {self.name}"
        size, *parts = (part.strip() for part in self.spillover.split(","))
        n = int(size) if size.isdecimal() else 0
        if n < 1 or len(parts) != n * (n + 1):
            raise self._bad_matrix(
                f"{whose} is damaged: for {size!r} channels it has {len(parts)} names and numbers."
            )
        names = {channel.name: index for index, channel in enumerate(self.channels)}
        for name in parts[:n]:
            if name not in names:
                raise self._bad_matrix(f"{whose} has an unknown channel {name!r}.")
        try:
            matrix = np.array(parts[n:], dtype=np.float64).reshape(n, n)
        except ValueError as error:
            raise self._bad_matrix(f"{whose} is damaged: {error}.") from None
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix) < n:
            raise self._bad_matrix(f"{whose} is singular: {matrix.tolist()}.")
        return [names[name] for name in parts[:n]], matrix

    def _bad_matrix(self, problem: str) -> ArgumentError:
        # Programs that compensate events often leave the matrix in the file.
        return ArgumentError(
            f"{problem} ", Argument("compensate", False), " reads events without compensation."
        )


# ---------------------------------------------------------------- headers


def open_fcs(path: Path) -> FcsFile:
    """Read the header of a file, by flowio."""
    name = str(path)
    with open(path, "rb") as file:
        start = file.read(_HEADER_BYTES)
    if not MAGIC.startswith(start[:3]):
        raise ValueError(f"{name} is not an FCS file: it begins with {start[:6]!r}.")
    if len(start) < _HEADER_BYTES:
        raise ValueError(f"{name} is truncated: it has {len(start)} of {_HEADER_BYTES} bytes of the header.")
    version = start[3:6].decode("latin-1")
    if version not in _VERSIONS:
        raise ValueError(f"{name} is an FCS file of version {version!r}; {', '.join(_VERSIONS)} can be read.")
    need("flowio", "FCS files need")
    from flowio import FlowData
    from flowio.exceptions import FlowIOException, MultipleDataSetsError

    try:
        # flowio closes the files that it is given.
        with open(path, "rb") as file:
            header = FlowData(file, ignore_offset_discrepancy=True, only_text=True)
        with open(path, "rb") as file:
            file.seek(header.header["text_start"])
            text = _keywords(header.text, file.read(header.header["text_stop"] - file.tell() + 1))
        return _header(path, version, header, text)
    except MultipleDataSetsError:
        raise ValueError(f"{name} has several data sets; write each into a separate file.") from None
    except KeyError as error:
        raise ValueError(f"{name} is not a complete FCS file: it lacks ${error.args[0].upper()}.") from None
    except (FlowIOException, EOFError, IndexError) as error:
        raise ValueError(f"{name} is damaged or truncated: {error}.") from None
    except _HeaderError as error:
        raise ValueError(f"{name} {error}") from None
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name} has a damaged header: {error}.") from None


class _HeaderError(Exception):
    """A problem with a file; the message continues the file's name."""


def _keywords(text: dict[str, str], segment: bytes) -> dict[str, str]:
    """Return the values of keywords; parse them again if flowio took empty values for escaped delimiters.

    In that case names of keywords contain the delimiter. The standard forbids empty values, but they are
    common.
    """
    try:
        content = segment.decode()
    except UnicodeDecodeError:
        content = segment.decode("latin-1")
    if not any(content[0] in key for key in text):
        return text
    parts = content[1:].split(content[0])
    keys = (part.replace("$", "").lower() for part in parts[::2])
    return dict(zip(keys, parts[1::2], strict=False))


def _header(path: Path, version: str, header: Any, text: dict[str, str]) -> FcsFile:
    mode, kind = text.get("mode", "L").strip().upper(), text["datatype"].strip().upper()
    if mode != "L":
        raise _HeaderError(f"has histograms ($MODE {mode}) instead of a list of events.")
    if kind not in ("I", "F", "D"):
        raise _HeaderError(f"has values of type {kind!r}; I, F and D can be read.")
    order = [int(part) for part in text["byteord"].split(",")]
    if order not in (sorted(order), sorted(order, reverse=True)):
        raise _HeaderError(f"has bytes in the order {text['byteord']}, which cannot be read.")
    sign = "<" if order == sorted(order) else ">"
    channels, types = [], []
    for n in range(1, int(text["par"]) + 1):
        if not text.get(f"p{n}n", "").strip():
            raise _HeaderError(f"has no name ($P{n}N) for channel {n} of {text['par']}.")
        channels.append(_channel(n, kind, text))
        bits = int(text[f"p{n}b"]) if kind == "I" else {"F": 32, "D": 64}[kind]
        if bits not in _BITS:
            raise _HeaderError(
                f"has integers of {bits} bits in channel {channels[-1].name!r}; {_BITS} can be read."
            )
        types.append((str(n - 1), f"{sign}{'u' if kind == 'I' else 'f'}{bits // 8}"))
    names = [channel.name for channel in channels]
    for channel in names:
        if names.count(channel) > 1:
            raise _HeaderError(f"has {names.count(channel)} channels called {channel!r}.")
    dtype, n_rows = np.dtype(types), int(text["tot"])
    if n_rows < 1 or not channels:
        raise _HeaderError(f"is empty: it has {n_rows} events of {len(channels)} channels.")
    first, last = header.header["data_start"], header.header["data_stop"]
    if version != "2.0":
        # The header has zeros if an offset needs more than eight digits.
        in_header, first, last = first, int(text["begindata"]), int(text["enddata"])
        if in_header not in (0, first):
            raise _HeaderError(
                f"is damaged: events begin at byte {in_header} according to its header, and at byte "
                f"{first} according to its text."
            )
    n_stored = max(0, min(last + 1, header.file_size) - first) // dtype.itemsize
    if n_stored < n_rows:
        raise _HeaderError(f"is truncated: it has {n_stored} of {n_rows} events.")
    spillover = next((text[key] for key in ("spillover", "spill") if text.get(key, "").strip()), None)
    return FcsFile(path, tuple(channels), n_rows, first, dtype, spillover, text)


def _channel(n: int, kind: str, text: dict[str, str]) -> Channel:
    """Return channel n, counted from 1, of a file whose values are of type `kind`."""
    name = text[f"p{n}n"].strip()
    mask, rate, factor, top = None, 0.0, 1.0, _SPAN
    decades = lowest = 0.0
    # The standard allows logarithmic scales only for integers. Where the header of floats has one, they came
    # from such an amplifier, or it says what to show.
    with suppress(*(() if kind == "I" else (ValueError,))):
        decades, lowest = (float(part) for part in text.get(f"p{n}e", "0,0").split(","))
    # A lowest value of zero is invalid but common; the standard says to read it as 1.
    decades, lowest = max(decades, 0.0), lowest if lowest > 0.0 else 1.0
    stored_top = np.inf
    if kind == "I":
        span = float(text[f"p{n}r"])
        if decades > 0.0:
            rate, factor = decades / span, lowest
        # Bits above the range are ignored.
        if 1 < span < 2 ** int(text[f"p{n}b"]):
            most = (1 << (int(span) - 1).bit_length()) - 1
            mask = most if most < 2 ** int(text[f"p{n}b"]) - 1 else None
            stored_top = span
    gain = 1.0
    if name.lower() == "time":
        factor *= float(text.get("timestep", "").strip() or 1.0)
    else:
        gain = float(text.get(f"p{n}g", "").strip() or 1.0) or 1.0
        factor /= gain
    with suppress(KeyError, ValueError):
        given = float(text[f"p{n}r"])
        top = given if 1.0 < given < np.inf else top
    stored_top = stored_top if kind == "I" else top
    highest = lowest * 10.0**decades
    span = top * factor
    if rate:
        span = highest / gain
    elif decades:
        span = max(top, highest) / gain
    marker = text.get(f"p{n}s", "").strip()
    return Channel(name, marker, mask, rate, factor, span, stored_top, gain, decades, lowest / gain)


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, eq=False, kw_only=True)
class FcsReader(Reader):
    """The events of an FCS file; features are named by channel, or by marker if chosen by marker."""

    path: Path
    file: FcsFile
    # Names of the features.
    chosen: list[str]
    compensate: bool = False
    # What to do with damaged events.
    damaged: str = "refuse"

    column_word = "channel"

    @classmethod
    def usual_scale(cls, readers: Sequence[Any]) -> tuple[Preparation, str | None]:
        files = [reader for reader in readers if isinstance(reader, FcsReader)]
        cells = [
            channel for reader in files for channel in reader.file.recorded_of(reader.file.markers).values()
        ]
        if are_transformed(cells):
            return {"transform": "none"}, (
                "No value is beyond ±20, so they have been transformed before: they are used as they are."
            )
        first = files[0]
        scales: dict[str, str] = {}
        linear: dict[str, float] = {}
        names_of: dict[tuple[str, str], list[str]] = {}
        for feature, name in enumerate(first.chosen):
            parts = [reader.file.recorded[reader._columns[feature]] for reader in files]
            for reader, part in zip(files, parts, strict=True):
                if amplifier(part) != amplifier(parts[0]):
                    raise _amplified_otherwise(name, first, parts[0], reader, part)
            channel = merged(parts)
            scale, reason = usual_scale(channel)
            if scale == LINEAR:
                # The top of their range is as far from 0 as on the scale of the others.
                linear[name] = channel.top / LENGTH
            else:
                scales[name] = scale
            names_of.setdefault((scale, reason), []).append(name)
        found: Preparation = {"transform": BY_CHANNEL, "scales": scales}
        if len(set(scales.values())) <= 1:
            found = {"transform": next(iter(scales.values()), "arcsinh:150")}
        return found | {"linear": linear}, _in_sentence(names_of)

    @property
    def scatter(self) -> dict[str, float]:
        chosen = zip(self.chosen, (self.file.channels[column] for column in self._columns), strict=True)
        return {
            name: channel.span for name, channel in chosen if is_scatter(channel.name) and channel.rate == 0.0
        }

    @property
    def feature_names(self) -> list[str]:
        return self.chosen

    @property
    def preparation(self) -> Preparation | None:
        return {"compensate": self.compensate, "transform": "none"}

    def compensated(self, wanted: bool | str) -> Self:
        if wanted is True:
            assert self.file.spilling  # the property checks the matrix
        return replace(
            self, compensate=wanted is True or (wanted == AUTO and self.file.spillover is not None)
        )

    @cached_property
    def _columns(self) -> list[int]:
        return self.file.find(self.chosen)

    @property
    def all_names(self) -> list[str]:
        """Names of all channels of the file."""
        return [channel.name for channel in self.file.channels]

    @property
    def kinds(self) -> dict[str, None]:
        """Kinds of the features, see `skmix.data.encoding`: all are numbers."""
        return dict.fromkeys(self.chosen)

    def column(self, name: str) -> list[Any]:
        """Return the values (n,) of a channel without compensation."""
        blocks = self.compensated(False).select([name]).read(self.n_rows)
        return [value for block in blocks for value in as_integers(block.X[:, 0].astype(np.float64)).tolist()]

    def check_present(self, names: Sequence[str]) -> None:
        """Raise ValueError if the file lacks a channel."""
        for name in names:
            if name not in self.all_names:
                known = f"{listed(self.all_names)}.{nearest(name, self.all_names)}"
                raise ValueError(f"{self.name} has no channel {name!r}; there are {known}")

    @property
    def markers(self) -> list[str]:
        """Marker of each feature, empty if the file has none."""
        return [self.file.channels[column].marker for column in self._columns]

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Type of the rows, float64 or float32."""
        file = self.file
        single = (file.dtype[c] in ("<f4", ">f4") and file.channels[c].is_plain for c in self._columns)
        return np.dtype(np.float32 if not self.compensate and all(single) else np.float64)

    def with_features(self, columns: Sequence[int]) -> Self:
        return replace(self, chosen=[self.chosen[column] for column in columns])

    def select(self, names: Sequence[str]) -> Self:
        self.file.find(names)
        return replace(self, chosen=list(names))

    def remarks(self) -> list[ArgumentWarning]:
        if self.damaged != "drop" or not len(self.file.damaged):
            return []
        return [ArgumentWarning(f"{self.name}: damaged events are left out: {_some_events(self.file)}")]

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
        for name, mine in zip(self.feature_names, self.markers, strict=True):
            theirs = markers[name]
            # Some instruments write the duration as the marker of Time.
            if mine and theirs and mine.casefold() != theirs.casefold() and name.casefold() != "time":
                both = f"marker {theirs!r} in {other.name} and {mine!r} in {self.name}"
                raise ArgumentError(f"Files disagree: channel {name!r} has {both}.")

    def read(
        self, n_rows: int, label: str | None = None, weight: str | None = None
    ) -> Iterator[LabelledBlock]:
        file = self.file
        if self.damaged == "refuse" and len(file.damaged):
            raise ArgumentError(
                f"{self.name} is damaged: {_some_events(file)}. Get an intact copy of the file, or leave "
                "these events out with ",
                Argument("damaged", "drop", wording="open_rows(..., damaged='drop')"),
                ".",
            )
        for start in range(0, file.n_rows, n_rows):
            stop = min(start + n_rows, file.n_rows)
            records = rows_of_npy(self.path, file.offset, (file.n_rows,), file.dtype, False, start, stop)
            if self.damaged == "drop":
                first, last = np.searchsorted(file.damaged, [start, stop])
                records = np.delete(records, file.damaged[first:last] - start)
                if not len(records):
                    continue
            yield LabelledBlock(file.values(records, self._columns, self.dtype, compensate=self.compensate))


def _some_events(file: FcsFile) -> str:
    """Return how many events are damaged, and where, in words."""
    n_damaged, first = len(file.damaged), int(file.damaged[0])
    where = f"the first is event {first}, counted from 0"
    return f"{n_damaged} of {file.n_rows} events hold bytes that no instrument writes; {where}"


def check_damaged(damaged: str) -> None:
    """Raise ValueError unless this is a way to treat damaged events."""
    if damaged not in ("refuse", "drop", "keep"):
        raise ArgumentError(
            Argument("damaged", wording="damaged"), f" must be 'refuse', 'drop' or 'keep', got {damaged!r}."
        )


def _amplified_otherwise(
    name: str, first: FcsReader, one: Recorded, reader: FcsReader, other: Recorded
) -> ArgumentError:
    """Return the error that files have no scale in common."""

    def words(part: Recorded) -> str:
        stored = "integers" if part.is_integer else "floats"
        if part.is_mass:
            return f"{stored} of mass cytometry"
        return (
            f"{stored}, {part.decades:g} decades from {part.bottom:g}" if part.decades else f"linear {stored}"
        )

    return ArgumentError(
        f"Files disagree: channel {name!r} has {words(one)} in {first.name} and {words(other)} in "
        f"{reader.name} ($PnE and $DATATYPE). If their values mean the same, choose one scale for both with ",
        Argument("transform", "arcsinh:5"),
        " or another.",
    )


def _in_sentence(names_of: dict[tuple[str, str], list[str]]) -> str:
    """Return which scales were chosen, and why, given the features by scale and reason."""

    def shown(scale: str) -> str:
        return re.sub(r"arcsinh:(.+)", r"arcsinh(x / \1)", scale)

    (main, reason), *others = sorted(names_of, key=lambda found: found[0] == LINEAR)
    if main != LINEAR and all(scale == LINEAR for scale, _ in others):
        linear = [name for each in others for name in names_of[each]]
        rest = f" ({listed(linear)} linear)" if linear else ""
        return f"{reason.capitalize()} data: values are shown as {shown(main)}{rest}."
    parts = [f"{listed(names)}: {shown(each[0])} ({each[1]})" for each, names in names_of.items()]
    return f"Values are shown as their channels were recorded. {'; '.join(parts)}."


def is_scatter(name: str) -> bool:
    """Return whether a channel of this name measures scattered light."""
    return _SCATTER.match(name) is not None


def without_bookkeeping(names: Sequence[str]) -> list[str]:
    """Return the names of columns without time, event number and the like.

    Heights and widths of pulses go too if areas, nearly their products, are there for all of them: a mixture
    would spend its kernels on these curved relations.
    """
    pulses = {name: found[1].casefold() for name in names if (found := _HEIGHT_OR_WIDTH.fullmatch(name))}
    areas = {name[:-2].casefold() for name in names if name[-2:].casefold() in ("-a", "_a", " a")}
    left = set(pulses) if set(pulses.values()) <= areas else set()
    return [name for name in names if name not in left and not _BOOKKEEPING.fullmatch(name.strip())]


def open_events(path: Path, damaged: str = "refuse") -> FcsReader:
    """Open an FCS file; channels that describe its recording are features only if they are chosen."""
    file = open_fcs(path)
    n_left_out = len(file.damaged) if damaged == "drop" else 0
    if n_left_out == file.n_rows:
        raise ValueError(f"{path} is damaged: {_some_events(file)}.")
    return FcsReader(
        name=str(path),
        n_rows=file.n_rows - n_left_out,
        block_rows=rows_in_block(file.dtype.itemsize + 8 * len(file.channels)),
        stamps={path: stamp(path)},
        path=path,
        file=file,
        chosen=file.markers,
        damaged=damaged,
    )
