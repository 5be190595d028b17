"""Records: frozen dataclasses of arrays with a common first axis, which may hold records in turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from .compute.arrays import Array, is_numpy, namespace, pick, replaced

Some = TypeVar("Some", bound="Record")
# What a function of arrays leaves as it is.
_PLAIN = (int, float, str, type(None))


class Record:
    """A dataclass of arrays, tuples of arrays, or records, with a common first axis."""

    def _combine(self, function: Callable[..., Any], *others: Record) -> Self:
        """Apply a function to the arrays of this record and of others of the same kind; the rest stays."""

        def combined(own: Any, *rest: Any) -> Any:
            if isinstance(own, _PLAIN):
                return own
            if isinstance(own, Record):
                return own._combine(function, *rest)
            if isinstance(own, tuple):
                return tuple(map(combined, own, *rest))
            return function(own, *rest)

        fields = [vars(record).values() for record in (self, *others)]
        return type(self)(*map(combined, *fields))

    def map(self, function: Callable[[Array], Array]) -> Self:
        """Return a record with the function applied to each array."""
        return self._combine(function)

    def take(self, index: Any) -> Self:
        """Return the starts that `index` selects along the leading axis."""
        return self._combine(lambda array: pick(array, index))

    def put(self, index: Any, other: Self) -> Self:
        """Return this record with the starts that `index` selects replaced; NumPy arrays change in place."""
        return self._combine(lambda own, new: replaced(own, index, new), other)

    def copy(self) -> Self:
        """Return a copy that shares no memory with this record."""
        return self._combine(lambda array: array.copy() if is_numpy(array) else array)


def join(records: Sequence[Some]) -> Some:
    """Concatenate records along the first axis."""
    return records[0]._combine(lambda *parts: namespace(parts[0]).concat(list(parts)), *records[1:])
