"""Errors and warnings that know which argument they are about, so that each front end can word it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Argument(str):
    """An argument in a message: worded as Python has it, and known by its name.

    ``Argument("n_kernels", 9)`` reads ``n_kernels=9``; another wording may be given, such as
    ``open_rows(..., columns=[...])``.
    """

    name: str
    value: Any

    def __new__(cls, name: str, value: Any = None, *, wording: str | None = None) -> Argument:
        """Return the wording as a string that keeps name and value."""
        self = super().__new__(cls, wording or (name if value is None else f"{name}={value!r}"))
        self.name, self.value = name, value
        return self


class _Message(Exception):  # noqa: N818
    """A message in parts, of which some are arguments."""

    def __init__(self, *parts: str) -> None:
        super().__init__("".join(parts))
        self.parts = parts

    @property
    def argument(self) -> str | None:
        """Name of the first argument that the message is about."""
        return next((part.name for part in self.parts if isinstance(part, Argument)), None)

    def worded(self, word: Callable[[Argument], str]) -> str:
        """Return the message with arguments in other words."""
        return "".join(word(part) if isinstance(part, Argument) else part for part in self.parts)


class ArgumentError(_Message, ValueError):
    """A value of an argument that cannot be used.

    ``raise ArgumentError(Argument("n_kernels", 9), " is more than the 5 cells there are.")``
    """


class ArgumentWarning(_Message, UserWarning):
    """A warning that names an argument."""
