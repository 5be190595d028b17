"""Damaged events of FCS files: bytes that cannot be what the instrument wrote."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .readers import rows_in_block, rows_of_npy

if TYPE_CHECKING:
    from .fcs import FcsFile

# Floats that no instrument writes: below, unless zero, and above this multiple of the range. Programs that
# compensate or unmix leave values as small as rounding errors, and many values are above their range.
_TINIEST, _BEYOND = 1e-30, 1024.0
# Least range that is believed, since some files have none.
_SPAN = float(1 << 18)
# Share of an event's channels, or of a channel's events, that is most of them.
_MOST = 0.5
# Least length of a run of events of zero bytes.
_ZEROS = 4
# Two damaged events with at most this many between them are one run: part of the noise looks like values.
_GAP = 4
# Least length of a run of events whose times are out of order, and its least distance from the times around
# it, as a share of the duration: instruments misplace single events, and by a little.
_OUT_OF_ORDER, _FAR = 8, 0.01
# Least share of falling times in such a run.
_FALLS = 0.2
# A file is in order if at most this share of its events are earlier than the event before.
_IN_ORDER = 0.05
_TIME = re.compile(r"time|hdr-t", re.IGNORECASE)


def damaged_events(file: FcsFile) -> NDArray[np.int64]:
    """Return the numbers of the damaged events, counted from 0, in order.

    An event is damaged if one of its floats is infinite, of absurd size or a NaN that no program writes; if
    most of its integers are above their ranges; or if it is in a run of events of zero bytes, although some
    channel is never zero elsewhere, or in a run whose times are out of order in a file in order. So are the
    few events between damaged ones, and the two beside a run.
    """
    dtype, measured, tops = file.dtype, set(file.markers), [each.stored_top for each in file.channels]
    checked = [
        c
        for c, channel in enumerate(file.channels)
        if (channel.name in measured if dtype[c].kind == "f" else tops[c] < np.inf)
    ]
    timer = next((c for c, channel in enumerate(file.channels) if _TIME.fullmatch(channel.name)), None)
    n_wrong, n_zeros = (np.zeros(len(tops), dtype=np.int64) for _ in range(2))
    n_blank, n_falls, n_negative, latest = 0, 0, 0, -np.inf
    for columns in _blocks(file):
        blank = np.logical_and.reduce([column == 0 for column in columns])
        n_blank += int(np.count_nonzero(blank))
        n_zeros += [np.count_nonzero((column == 0) & ~blank) for column in columns]
        for c in checked:
            n_wrong[c] += np.count_nonzero(_impossible(columns[c], tops[c]))
        if timer is not None:
            times = _times(columns[timer])
            n_falls += int(np.count_nonzero(np.diff(times, prepend=latest) < 0.0))
            n_negative += int(np.count_nonzero(times < 0.0))
            latest = times[-1]
    # Where most events of a channel are wrong, the header is, or a program has filled the channel.
    checked = [c for c in checked if 0 < n_wrong[c] <= _MOST * file.n_rows]
    # The first and the last event of a run of zero bytes may be zero in part.
    has_blank = n_blank >= _ZEROS and bool((n_zeros <= 2).any())
    has_order = 0 < max(n_falls, n_negative) <= _IN_ORDER * file.n_rows
    if not (checked or has_blank or has_order):
        return np.empty(0, dtype=np.int64)
    limited = [c for c, top in enumerate(tops) if dtype[c].kind == "u" and top < np.inf]
    damaged, ordered = [], []
    for columns in _blocks(file):
        blank = np.logical_and.reduce([column == 0 for column in columns]) & has_blank
        wrong = blank
        n_above = np.zeros(len(blank), dtype=np.int64)
        for c in checked:
            impossible = _impossible(columns[c], tops[c])
            if dtype[c].kind == "f":
                wrong = wrong | impossible
            else:
                n_above += impossible
        # Single bits above a range may be an instrument's remarks, which the standard says to ignore.
        damaged.append(np.stack([blank, wrong | (n_above > _MOST * len(limited))]))
        if has_order and timer is not None:
            ordered.append(_times(columns[timer]))
    blank, found = np.concatenate(damaged, axis=1)
    found &= ~blank | _long(blank, _ZEROS)
    if ordered:
        found |= _out_of_order(np.concatenate(ordered), found)
    return _in_runs(np.flatnonzero(found), file.n_rows)


def _blocks(file: FcsFile) -> Iterator[list[NDArray[Any]]]:
    """Yield the stored values (n,) of all channels, block by block."""
    n_rows = rows_in_block(file.dtype.itemsize)
    for start in range(0, file.n_rows, n_rows):
        stop = min(start + n_rows, file.n_rows)
        records = rows_of_npy(file.path, file.offset, (file.n_rows,), file.dtype, False, start, stop)
        yield [records[str(c)] for c in range(len(file.channels))]


def _times(values: NDArray[Any]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):  # a NaN may be of the kind that signals
        return values.astype(np.float64)


def _runs(marked: NDArray[np.bool_], least: int) -> list[list[int]]:
    """Return where the runs of marks (n,) of at least some length begin, and where each has ended."""
    edges = np.flatnonzero(np.diff(np.r_[False, marked, False].astype(np.int8))).reshape(-1, 2)
    return edges[np.diff(edges, axis=1)[:, 0] >= least].tolist()


def _long(marked: NDArray[np.bool_], least: int) -> NDArray[np.bool_]:
    """Return the marks (n,) that are in such runs."""
    found = np.zeros(len(marked), dtype=np.bool_)
    for first, last in _runs(marked, least):
        found[first:last] = True
    return found


def _impossible(values: NDArray[Any], top: float) -> NDArray[np.bool_]:
    """Return which stored values (n,) cannot be those of a channel with this top of the range."""
    if values.dtype.kind == "u":
        return values > top
    with np.errstate(invalid="ignore"):
        size = np.abs(values)
        wrong = (size > _BEYOND * max(top, _SPAN)) | ((size < _TINIEST) & (size > 0.0))
    if np.isnan(values).any():
        # A NaN that a program wrote has one bit of its fraction, the first.
        fraction = np.finfo(values.dtype).nmant - 1
        bits = values.astype(values.dtype.newbyteorder("=")).view(f"u{values.dtype.itemsize}")
        wrong |= np.isnan(values) & ((bits & ((1 << fraction) - 1)) != 0)
    return wrong


def _out_of_order(times: NDArray[np.float64], damaged: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which events (n,) are in a run whose times are out of order and neither restart nor overflow."""
    found = np.zeros(len(times), dtype=np.bool_)
    known = np.flatnonzero(~damaged & np.isfinite(times))
    t = times[known]
    wrong = _long(t < 0.0, _OUT_OF_ORDER)
    positive = np.flatnonzero(~wrong)
    kept = positive[_longest_ordered(t[positive])]
    if not len(kept):
        return found
    duration = t[kept[-1]] - t[kept[0]]
    before = np.interp(np.arange(len(t)), kept, t[kept])
    inside = np.zeros(len(t), dtype=np.bool_)
    inside[kept] = True
    for first, last in _runs(~inside, _OUT_OF_ORDER):
        run = slice(first, last)
        is_far = np.mean(np.abs(t[run] - before[run]) > _FAR * duration) > _MOST
        # A clock that restarts or overflows goes on in order, from zero.
        is_noise = np.mean(np.diff(t[run], append=-np.inf) < 0.0) > _FALLS
        wrong[run] |= is_far and is_noise
    found[known] = wrong
    return found


def _longest_ordered(t: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the indices of the longest subsequence of times (n,) that does not fall."""
    tails: list[float] = []
    ends: list[int] = []
    previous = np.full(len(t), -1)
    if not len(t):
        return previous
    for index, time in enumerate(t.tolist()):
        place = bisect_right(tails, time)
        previous[index] = ends[place - 1] if place else -1
        tails[place : place + 1], ends[place : place + 1] = [time], [index]
    chain = [ends[-1]]
    while previous[chain[-1]] >= 0:
        chain.append(int(previous[chain[-1]]))
    return np.array(chain[::-1])


def _in_runs(events: NDArray[np.int64], n_rows: int) -> NDArray[np.int64]:
    """Return the damaged events with those between them, and the two beside each run of several."""
    runs = np.split(events, np.flatnonzero(np.diff(events) > _GAP + 1) + 1) if len(events) else []
    filled = [
        np.arange(max(0, run[0] - 1), min(n_rows, run[-1] + 2)) if len(run) > 1 else run for run in runs
    ]
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *filled]))
