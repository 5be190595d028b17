"""Headers and stored events of FCS files, versions 2.0 to 3.1.

flowio parses the header and the keywords. NumPy reads the events in blocks: flowio reads whole files, and
drops the bits above the range of a channel, which tell damaged events from others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._errors import Argument, ArgumentError
from .._extras import need
from .._words import nearest
from .damage import damaged_events
from .read import rows_in_block

FloatArray = NDArray[np.float64]

MAGIC = b"FCS"
"""First bytes of an FCS file; the version and four spaces follow."""
LABELS = "population"
"""Marker of a channel of labels, which is no feature by default."""
_VERSIONS = ("2.0", "3.0", "3.1")
# Magic, version, four spaces and six numbers of eight digits.
_HEADER_BYTES = 58
# Sizes of integers, in bits.
_BITS = (8, 16, 32, 64)
# Top of the range of a channel that does not say it: that of most digital instruments.
_USUAL_TOP = float(1 << 18)
# Events of each file whose values help to choose the default scale.
_SOME_EVENTS = 10_000
# Channels of scattered light, such as FSC-A, SSC_1-H and FS INT.
_SCATTER = re.compile(r"(FSC|BSC|[VBYR]?-?SSC|FS|SS)(?![a-z])", re.IGNORECASE)
# Channels of a mass cytometer, such as Yb171Di and CD3(Yb171)Di, and its names (CytoFLEX is none).
_ISOTOPE = re.compile(r"[\d)]D[di]$")
_MASS = re.compile(r"cytof(?!lex)|dvs|fluidigm|helios", re.IGNORECASE)
# What a mass cytometer says about the pulse of an event.
_PULSE = ("center", "offset", "width", "residual")
# Channels that describe the recording of an event, not the cell; and labels of cells.
_BOOKKEEPING = re.compile(
    r"time( [lm]sw)?|hdr-t|event([ _-]?(#|number|no|id|count|length|duration))?|cell[ _-]?length|"
    r"file[ _-]?(number|no)|population",
    re.IGNORECASE,
)
# Area, height or width of a pulse, such as FSC-H; R writes FSC.H.
_OF_PULSE = re.compile(r"(.+)[-_. ](A|H|W)", re.IGNORECASE)


def is_scatter(name: str) -> bool:
    """Whether a channel of this name measures scattered light."""
    return _SCATTER.match(name) is not None


def without_bookkeeping(names: Sequence[str]) -> list[str]:
    """The names of columns without time, event number and the like.

    Of a detector, one of area, height and width stays, because a mixture would spend its kernels on their
    relations: the area if there are areas of all detectors, and else rather the height.
    """
    pulses = {
        name: (match[1].casefold(), match[2].upper())
        for name in names
        if (match := _OF_PULSE.fullmatch(name))
    }
    areas, heights, widths = ({one for one, kind in pulses.values() if kind == of} for of in "AHW")
    beside = {"W": areas | heights, "A": heights, "H": set[str]()}
    if heights | widths <= areas:
        beside = {"W": areas, "H": areas, "A": set[str]()}
    left_out = {name for name, (detector, kind) in pulses.items() if detector in beside[kind]}
    return [name for name in names if name not in left_out and not _BOOKKEEPING.fullmatch(name.strip())]


# ---------------------------------------------------------------- headers


@dataclass(frozen=True)
class Channel:
    """A channel, and how its values are stored."""

    name: str
    marker: str
    # The significant bits of stored integers; None if all are significant.
    mask: int | None
    # A stored value v stands for factor · 10^(rate · v), or for factor · v if the rate is 0.
    rate: float
    factor: float
    # Top of the range of stored values, inf if unknown, and on the linear scale.
    stored_top: float
    top: float
    # The number that values were divided by.
    gain: float
    # Decades of the logarithmic amplifier, 0 if it was linear, and its lowest value on the linear scale.
    decades: float
    bottom: float
    # Whether values are stored as integers.
    is_integer: bool

    @property
    def is_scatter(self) -> bool:
        """Whether the channel measures scattered light."""
        return is_scatter(self.name)

    @property
    def is_plain(self) -> bool:
        """Whether stored values are already on the linear scale."""
        return self.mask is None and self.rate == 0.0 and self.factor == 1.0

    def scaled(self, stored: NDArray[Any]) -> NDArray[Any]:
        """Stored values (n,) on the linear scale."""
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
    # Values of all keywords, which are in lower case and without $.
    keywords: dict[str, str]

    @property
    def names(self) -> list[str]:
        """Names of the channels."""
        return [channel.name for channel in self.channels]

    @cached_property
    def is_mass(self) -> bool:
        """Whether a mass cytometer recorded the events."""
        return any(map(_ISOTOPE.search, self.names)) or bool(_MASS.search(self.keywords.get("cyt", "")))

    @cached_property
    def markers(self) -> list[str]:
        """Names of the channels that describe cells; of all channels, if none does."""
        labels = {channel.name for channel in self.channels if channel.marker == LABELS}
        labels |= {name for name in self.names if self.is_mass and name.casefold() in _PULSE}
        return [name for name in without_bookkeeping(self.names) if name not in labels] or self.names

    def find(self, names: Sequence[str]) -> list[int]:
        """The indices of channels, looked up by name and then by marker."""
        name_of: dict[int, str] = {}
        for name in names:
            indices = [index for index, channel in enumerate(self.channels) if channel.name == name]
            indices = indices or [i for i, channel in enumerate(self.channels) if channel.marker == name]
            if len(indices) != 1:
                raise ValueError(self._not_found(name, len(indices)))
            if indices[0] in name_of:
                raise ValueError(f"{name_of[indices[0]]!r} and {name!r} are the same channel of {self.path}.")
            name_of[indices[0]] = name
        return list(name_of)

    def _not_found(self, name: str, n_markers: int) -> str:
        pairs = [(channel.name, channel.marker) for channel in self.channels]
        known = ", ".join(f"{channel} ({marker})" if marker else channel for channel, marker in pairs)
        if n_markers:
            return f"{self.path} has {n_markers} channels of marker {name!r}; its channels are {known}."
        close = nearest(name, [text for pair in pairs for text in pair if text])
        return f"{self.path} has no channel or marker {name!r}; its channels are {known}.{close}"

    def blocks(self, n_rows: int) -> Iterator[NDArray[Any]]:
        """Yield stored events in blocks of at most `n_rows`."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            for start in range(0, self.n_rows, n_rows):
                events = np.fromfile(file, self.dtype, min(n_rows, self.n_rows - start))
                if len(events) < min(n_rows, self.n_rows - start):
                    raise ValueError(f"{self.path} became shorter while it was being read.")
                yield events

    @cached_property
    def damaged(self) -> NDArray[np.int64]:
        """Numbers of the damaged events."""
        tops = [channel.stored_top for channel in self.channels]
        blocks = self.blocks(rows_in_block(self.dtype.itemsize))
        return damaged_events(blocks, self.names, tops, self.markers)

    @property
    def damage(self) -> str:
        """How many events are damaged, and where, in words."""
        n_damaged, first = len(self.damaged), int(self.damaged[0])
        where = f"the first is event {first}, counted from 0"
        return f"{n_damaged} of {self.n_rows} events hold bytes that no instrument writes; {where}"

    @cached_property
    def extremes(self) -> list[tuple[float, float, bool]]:
        """The smallest and the largest value of each channel, and whether all are whole before the gain.

        They are those of the first intact events, on the linear scale; 0 if none is finite.
        """
        events = next(self.blocks(min(self.n_rows, _SOME_EVENTS)))
        intact = np.delete(events, self.damaged[self.damaged < len(events)])
        events, extremes = intact if len(intact) else events, []
        for c, channel in enumerate(self.channels):
            values = channel.scaled(events[str(c)]).astype(np.float64)
            values = values[np.isfinite(values)] if np.isfinite(values).any() else np.zeros(1)
            before_gain = values * channel.gain
            whole = np.allclose(before_gain, np.round(before_gain), rtol=0.0, atol=1e-6)
            extremes.append((float(values.min()), float(values.max()), whole))
        return extremes

    @cached_property
    def spillover(self) -> str | None:
        """The spill-over matrix as text, if the file has one."""
        texts = (self.keywords.get(key, "") for key in ("spillover", "spill"))
        return next((text for text in texts if text.strip()), None)

    @cached_property
    def spilling(self) -> tuple[list[int], FloatArray]:
        """Indices of p channels, and their spill-over matrix (p, p): row i is the emission of channel i."""
        if self.spillover is None:
            raise _bad_matrix(f"{self.path} has no spill-over matrix ($SPILLOVER or SPILL).")
        whose = f"The spill-over matrix of {self.path}"
        size, *parts = (part.strip() for part in self.spillover.split(","))
        n = int(size) if size.isdecimal() else 0
        if n < 1 or len(parts) != n * (n + 1):
            raise _bad_matrix(
                f"{whose} is damaged: for {size!r} channels it has {len(parts)} names and numbers."
            )
        for name in parts[:n]:
            if name not in self.names:
                raise _bad_matrix(f"{whose} has an unknown channel {name!r}.")
        try:
            matrix = np.array(parts[n:], dtype=np.float64).reshape(n, n)
        except ValueError as error:
            raise _bad_matrix(f"{whose} is damaged: {error}.") from None
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix) < n:
            raise _bad_matrix(f"{whose} is singular: {matrix.tolist()}.")
        return [self.names.index(name) for name in parts[:n]], matrix

    def values(
        self, events: NDArray[Any], columns: Sequence[int], dtype: np.dtype[Any], *, compensate: bool
    ) -> NDArray[Any]:
        """Some channels of stored events (n,) as rows (n, M) of type `dtype`."""
        mixed, matrix = self.spilling if compensate else ([], np.empty((0, 0)))
        compensated: dict[int, NDArray[Any]] = {}
        if not set(mixed).isdisjoint(columns):
            # A row of observed values is the row of true values times the matrix.
            observed = np.array([self.channels[c].scaled(events[str(c)]) for c in mixed], dtype=np.float64)
            compensated = dict(zip(mixed, np.linalg.solve(matrix.T, observed), strict=True))
        X = np.empty((len(events), len(columns)), dtype=dtype)
        for feature, c in enumerate(columns):
            X[:, feature] = compensated[c] if c in compensated else self.channels[c].scaled(events[str(c)])
        return X


def _bad_matrix(problem: str) -> ArgumentError:
    # Programs that compensate events often leave the matrix in the file.
    return ArgumentError(f"{problem} ", Argument("compensate", False), " reads events without compensation.")


class _HeaderError(Exception):
    """A problem with a file; the message continues the file's name."""


def open_fcs(path: Path) -> FcsFile:
    """Read the header of a file."""
    with open(path, "rb") as file:
        start = file.read(_HEADER_BYTES)
        if not MAGIC.startswith(start[:3]):
            raise ValueError(f"{path} is not an FCS file: it begins with {start[:6]!r}.")
        if len(start) < _HEADER_BYTES:
            sizes = f"{len(start)} of {_HEADER_BYTES} bytes of the header"
            raise ValueError(f"{path} is truncated: it has {sizes}.")
        version = start[3:6].decode("latin-1")
        if version not in _VERSIONS:
            known = ", ".join(_VERSIONS)
            raise ValueError(f"{path} is an FCS file of version {version!r}; {known} can be read.")
        need("flowio", "FCS files need")
        from flowio import FlowData
        from flowio.exceptions import FlowIOException, MultipleDataSetsError

        try:
            # flowio closes the file.
            return _parsed(path, FlowData(file, ignore_offset_discrepancy=True, only_text=True))
        except MultipleDataSetsError:
            problem = "has several data sets; write each into a separate file."
        except KeyError as error:
            problem = f"is not a complete FCS file: it lacks ${error.args[0].upper()}."
        except (FlowIOException, EOFError, IndexError) as error:
            problem = f"is damaged or truncated: {error}."
        except _HeaderError as error:
            problem = str(error)
        except (ValueError, OverflowError) as error:
            problem = f"has a damaged header: {error}."
        raise ValueError(f"{path} {problem}") from None


def _parsed(path: Path, header: Any) -> FcsFile:
    text = _keywords(path, header)
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
        name = text.get(f"p{n}n", "").strip()
        if not name:
            raise _HeaderError(f"has no name ($P{n}N) for channel {n} of {text['par']}.")
        bits = int(text[f"p{n}b"]) if kind == "I" else {"F": 32, "D": 64}[kind]
        if bits not in _BITS:
            raise _HeaderError(f"has integers of {bits} bits in channel {name!r}; {_BITS} can be read.")
        channels.append(_channel(n, name, bits if kind == "I" else None, text))
        types.append((str(n - 1), f"{sign}{'u' if kind == 'I' else 'f'}{bits // 8}"))
    names = [channel.name for channel in channels]
    for name in names:
        if names.count(name) > 1:
            raise _HeaderError(f"has {names.count(name)} channels called {name!r}.")
    dtype, n_rows = np.dtype(types), int(text["tot"])
    if n_rows < 1 or not channels:
        raise _HeaderError(f"is empty: it has {n_rows} events of {len(channels)} channels.")
    first, last = header.header["data_start"], header.header["data_stop"]
    if header.version != "2.0":
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
    return FcsFile(path, tuple(channels), n_rows, first, dtype, text)


def _keywords(path: Path, header: Any) -> dict[str, str]:
    """The values of keywords, which the file has again if flowio took empty ones for escaped delimiters.

    In that case names of keywords contain the delimiter. The standard forbids empty values, but they are
    common.
    """
    text: dict[str, str] = header.text
    first, last = header.header["text_start"], header.header["text_stop"]
    with open(path, "rb") as file:
        file.seek(first)
        segment = file.read(last - first + 1)
    try:
        content = segment.decode()
    except UnicodeDecodeError:
        content = segment.decode("latin-1")
    delimiter = content[0]
    if not any(delimiter in key for key in text):
        return text
    parts = content[1:].split(delimiter)
    keys = (part.replace("$", "").lower() for part in parts[::2])
    return dict(zip(keys, parts[1::2], strict=False))


def _channel(n: int, name: str, bits: int | None, text: dict[str, str]) -> Channel:
    """Channel n, counted from 1; its values are integers of some `bits`, or floats."""

    def number(key: str) -> float:
        return float(text.get(key, "").strip() or 1.0)

    # The standard allows logarithmic scales only for integers. Where the header of floats has one, they came
    # from such an amplifier, or it says what to show.
    decades, bottom = 0.0, 0.0
    with suppress(*(ValueError,) if bits is None else ()):
        decades, bottom = (float(part) for part in text.get(f"p{n}e", "0,0").split(","))
    # A lowest value of zero is invalid but common; the standard says to read it as 1.
    decades, bottom = max(decades, 0.0), bottom if bottom > 0.0 else 1.0
    highest = bottom * 10.0**decades
    is_time = name.lower() == "time"
    gain = 1.0 if is_time else number(f"p{n}g") or 1.0
    factor = number("timestep") if is_time else 1.0 / gain
    top = _USUAL_TOP
    with suppress(KeyError, ValueError):
        span = float(text[f"p{n}r"])
        top = span if 1.0 < span < np.inf else top
    mask, rate, stored_top = None, 0.0, top
    if bits is not None:
        span = float(text[f"p{n}r"])
        is_limited = 1 < span < 2**bits
        stored_top = span if is_limited else np.inf
        largest = (1 << (int(span) - 1).bit_length()) - 1 if is_limited else 0
        mask = largest if 0 < largest < 2**bits - 1 else None
        rate = decades / span if decades else 0.0
    return Channel(
        name=name,
        marker=text.get(f"p{n}s", "").strip(),
        mask=mask,
        rate=rate,
        factor=factor * bottom if rate else factor,
        stored_top=stored_top,
        top=highest / gain if rate else max(top, highest) / gain if decades else top * factor,
        gain=gain,
        decades=decades,
        bottom=bottom / gain,
        is_integer=bits is not None,
    )
