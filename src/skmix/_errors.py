"""Errors and warnings that know their argument, so that Python and the command line can each name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Argument(str):
    """An argument in a message, in Python's wording.

    ``Argument("n_kernels", 9)`` reads ``n_kernels=9``; `wording` replaces it, such as by
    ``open_rows(..., columns=[...])``.
    """

    name: str
    value: Any

    def __new__(cls, name: str, value: Any = None, *, wording: str | None = None) -> Argument:
        """Return the wording as a string with a name and a value."""
        self = super().__new__(cls, wording or (name if value is None else f"{name}={value!r}"))
        self.name, self.value = name, value
        return self


class _Message(Exception):  # noqa: N818
    """A message of several pieces of text, some of them arguments."""

    def __init__(self, *pieces: str) -> None:
        super().__init__("".join(pieces))
        self.pieces = pieces

    @property
    def argument(self) -> str | None:
        """Name of the first argument in the message."""
        return next((piece.name for piece in self.pieces if isinstance(piece, Argument)), None)

    def worded(self, word: Callable[[Argument], str]) -> str:
        """Return the message with each argument replaced by its wording `word(argument)`."""
        return "".join(word(piece) if isinstance(piece, Argument) else piece for piece in self.pieces)


class ArgumentError(_Message, ValueError):
    """An invalid value of an argument.

    ``raise ArgumentError(Argument("n_kernels", 9), " is more than the 5 cells there are.")``
    """


class ArgumentWarning(_Message, UserWarning):
    """A warning about an argument."""
