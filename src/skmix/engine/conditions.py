"""Rare conditions, such as a covariance below its floor.

Reading a condition makes the host wait for the device, often for longer than the work takes. An optimistic
pass assumes conditions to be as in an earlier pass and records them, to be checked at its end: see
``device/rows.py``. Careful passes, and passes on the host, read them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .numbers import Array, is_numpy, namespace, to_numpy


@dataclass
class Conditions:
    """The conditions that were met in the body of `recorded`."""

    expected: list[int] | None  # counts of an earlier pass, if this pass is optimistic
    # Whether each condition given to `occurs` held; in an optimistic pass the conditions (B,) themselves.
    held: list[Any] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)  # number of places of each condition given to `rare`


_conditions: ContextVar[Conditions | None] = ContextVar("conditions", default=None)


@contextmanager
def recorded(expected: list[int] | None = None) -> Iterator[Conditions]:
    """Record the conditions in the body, which is optimistic if counts are `expected`."""
    conditions = Conditions(expected)
    before = _conditions.set(conditions)
    try:
        yield conditions
    finally:
        _conditions.reset(before)


def occurs(condition: Array) -> bool:
    """Whether a rare condition holds anywhere; an optimistic pass assumes that it does not."""
    if is_numpy(condition):
        return bool(condition.any())
    xp, conditions = namespace(condition), _conditions.get()
    if conditions is not None and conditions.expected is not None:
        conditions.held.append(xp.reshape(condition, (-1,)))
        return False
    anywhere = bool(xp.any(condition))
    if conditions is not None:
        conditions.held.append(anywhere)
    return anywhere


def rare(condition: Array, fewest: int = 8) -> Array | None:
    """Find the places (q,) where a rare condition (B,) holds; None if there are none.

    An optimistic pass takes as many places as expected, rounded up to a power of two and to the `fewest`,
    with those where the condition holds first; it assumes that there are no more.
    """
    conditions = _conditions.get()
    if is_numpy(condition) or conditions is None or conditions.expected is None:
        index = np.flatnonzero(to_numpy(condition))
        if conditions is not None:
            conditions.counts.append(len(index))
        return index if len(index) else None
    xp, n_places = namespace(condition), conditions.expected[len(conditions.counts)]
    conditions.counts.append(n_places)
    if not n_places:
        occurs(condition)
        return None
    n_places = min(max(fewest, 1 << (n_places - 1).bit_length()), condition.shape[0])
    occurs(xp.count_nonzero(condition) > n_places)
    order = xp.argsort(xp.astype(~condition, xp.int8), stable=True)
    return order[:n_places]
