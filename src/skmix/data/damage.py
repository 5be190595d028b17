"""Damaged events of FCS files: bytes that cannot be what the instrument wrote."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Floats that no instrument writes: below, unless zero, and above this multiple of the range. Programs that
# compensate or unmix leave values as small as rounding errors, and many values are above their range.
_TINIEST, _BEYOND = 1e-30, 1024.0
# Least range that is believed, since some files have none.
_LEAST_RANGE = float(1 << 18)
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
# Most events beside a run of zero bytes whose value in a channel is zero only in part.
_EDGES = 2
_TIME = re.compile(r"time|hdr-t", re.IGNORECASE)


def damaged_events(
    blocks: Iterable[NDArray[Any]], names: Sequence[str], tops: Sequence[float], measured: Sequence[str]
) -> IntArray:
    """The numbers of the damaged events, counted from 0, in order.

    `blocks` are structured arrays (n,) of stored events with a field for each of p channels. Channels have
    `names` (p,) and `tops` (p,) of their ranges, inf if unknown; the `measured` ones describe cells.

    An event is damaged if one of its measured floats is infinite, of absurd size or a NaN that no program
    writes; if most of its integers are above their ranges; if it is in a run of events of zero bytes,
    although some channel is never zero elsewhere; or if it is in a run whose times are out of order in a file
    in order. So are the few events between damaged ones, and the two beside a run.
    """
    timer = next((c for c, name in enumerate(names) if _TIME.fullmatch(name)), None)
    n_zeros = np.zeros(len(names), dtype=np.int64)
    impossible: list[list[IntArray]] = [[] for _ in names]
    blank, times, kinds, n_events = [], [np.empty(0)], [""] * len(names), 0
    for events in blocks:
        columns = [events[field] for field in events.dtype.names or ()]
        kinds = [column.dtype.kind for column in columns]
        is_zero = [column == 0 for column in columns]
        n_zeros += [np.count_nonzero(zeros) for zeros in is_zero]
        blank.append(np.logical_and.reduce(is_zero))
        for c, column in enumerate(columns):
            if names[c] in measured if kinds[c] == "f" else tops[c] < np.inf:
                impossible[c].append(n_events + np.flatnonzero(_is_impossible(column, tops[c])))
        if timer is not None:
            with np.errstate(invalid="ignore"):  # a NaN may be of the kind that signals
                times.append(columns[timer].astype(np.float64))
        n_events += len(events)
    is_blank = np.concatenate(blank)
    wrong = [np.concatenate([np.empty(0, dtype=np.int64), *parts]) for parts in impossible]
    # Where most events of a channel are wrong, the header is, or a program has filled the channel.
    wrong = [events if len(events) <= _MOST * n_events else events[:0] for events in wrong]

    is_damaged = np.zeros(n_events, dtype=np.bool_)
    if np.any(n_zeros - np.count_nonzero(is_blank) <= _EDGES):
        is_damaged |= _in_long_runs(is_blank, _ZEROS)
    n_above = np.zeros(n_events, dtype=np.int64)
    for kind, events in zip(kinds, wrong, strict=True):
        if kind == "f":
            is_damaged[events] = True
        else:
            n_above[events] += 1
    # Single bits above a range may be an instrument's remarks, which the standard says to ignore.
    n_limited = sum(kind == "u" and top < np.inf for kind, top in zip(kinds, tops, strict=True))
    is_damaged |= n_above > _MOST * n_limited
    if timer is not None:
        is_damaged |= _is_out_of_order(np.concatenate(times), is_damaged)
    return _with_neighbours(np.flatnonzero(is_damaged), n_events)


def _is_impossible(values: NDArray[Any], top: float) -> BoolArray:
    """Whether each stored value (n,) cannot be that of a channel with this top of the range."""
    if values.dtype.kind == "u":
        return values > top
    with np.errstate(invalid="ignore"):
        size = np.abs(values)
        wrong = (size > _BEYOND * max(top, _LEAST_RANGE)) | ((size < _TINIEST) & (size > 0.0))
    is_nan = np.isnan(values)
    if is_nan.any():
        # A NaN that a program wrote has one bit of its fraction, the first.
        first_bit = 1 << (np.finfo(values.dtype).nmant - 1)
        bits = values.astype(values.dtype.newbyteorder("=")).view(f"u{values.dtype.itemsize}")
        wrong |= is_nan & ((bits & (first_bit - 1)) != 0)
    return wrong


def _runs(marked: BoolArray, least: int) -> list[list[int]]:
    """Where the runs of marks (n,) of at least some length begin, and where each has ended."""
    edges = np.flatnonzero(np.diff(np.r_[False, marked, False].astype(np.int8))).reshape(-1, 2)
    return edges[np.diff(edges, axis=1)[:, 0] >= least].tolist()


def _in_long_runs(marked: BoolArray, least: int) -> BoolArray:
    """The marks (n,) in runs of at least some length."""
    is_inside = np.zeros(len(marked), dtype=np.bool_)
    for first, last in _runs(marked, least):
        is_inside[first:last] = True
    return is_inside


def _is_out_of_order(times: NDArray[np.float64], is_damaged: BoolArray) -> BoolArray:
    """Whether each event (n,) is in a run whose times are out of order and neither restart nor overflow."""
    with np.errstate(invalid="ignore"):
        n_falls = int(np.count_nonzero(np.diff(times, prepend=-np.inf) < 0.0))
    n_negative = int(np.count_nonzero(times < 0.0))
    is_wrong = np.zeros(len(times), dtype=np.bool_)
    if not 0 < max(n_falls, n_negative) <= _IN_ORDER * len(times):
        return is_wrong
    known = np.flatnonzero(~is_damaged & np.isfinite(times))
    t = times[known]
    wrong = _in_long_runs(t < 0.0, _OUT_OF_ORDER)
    positive = np.flatnonzero(~wrong)
    ordered = positive[_longest_ordered(t[positive])]
    if not len(ordered):
        return is_wrong
    duration = t[ordered[-1]] - t[ordered[0]]
    expected = np.interp(np.arange(len(t)), ordered, t[ordered])
    is_ordered = np.zeros(len(t), dtype=np.bool_)
    is_ordered[ordered] = True
    for first, last in _runs(~is_ordered, _OUT_OF_ORDER):
        run = slice(first, last)
        is_far = np.mean(np.abs(t[run] - expected[run]) > _FAR * duration) > _MOST
        # A clock that restarts or overflows goes on in order, from zero.
        is_noise = np.mean(np.diff(t[run], append=-np.inf) < 0.0) > _FALLS
        wrong[run] |= is_far and is_noise
    is_wrong[known] = wrong
    return is_wrong


def _longest_ordered(t: NDArray[np.float64]) -> IntArray:
    """The indices of the longest subsequence of times (n,) that does not fall."""
    # The least time at which a subsequence of each length ends, the event there, and the event before each.
    least: list[float] = []
    ends: list[int] = []
    previous = np.full(len(t), -1)
    for index, time in enumerate(t.tolist()):
        length = bisect_right(least, time)
        previous[index] = ends[length - 1] if length else -1
        least[length : length + 1], ends[length : length + 1] = [time], [index]
    chain = ends[-1:]
    while chain and previous[chain[-1]] >= 0:
        chain.append(int(previous[chain[-1]]))
    return np.array(chain[::-1], dtype=np.int64)


def _with_neighbours(events: IntArray, n_events: int) -> IntArray:
    """The damaged events with those between them, and the two beside each run of several."""
    runs = np.split(events, np.flatnonzero(np.diff(events) > _GAP + 1) + 1) if len(events) else []
    filled = [
        np.arange(max(0, run[0] - 1), min(n_events, run[-1] + 2)) if len(run) > 1 else run for run in runs
    ]
    return np.unique(np.concatenate([np.empty(0, dtype=np.int64), *filled]))
