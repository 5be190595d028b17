"""Refusals and notes that name arguments, which each front end words in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Advice:
    """A problem, and which arguments would help.

    Parameters
    ----------
    problem : str
        What is wrong.
    remedy : str, default=""
        What to do about it, with a place ``{name}`` for each argument.
    **arguments : Any
        Values by the names of the library's arguments.
    """

    def __init__(self, problem: str, remedy: str = "", **arguments: Any) -> None:
        self.problem = problem
        self.remedy = remedy
        self.arguments = arguments

    def worded(self, word: Callable[[str, Any], str]) -> str:
        """Return the whole text; `word` makes text of an argument's name and its value."""
        words = {name: word(name, value) for name, value in self.arguments.items()}
        return self.problem + self.remedy.format(**words)

    def __str__(self) -> str:
        return self.worded(_in_python)


def _in_python(name: str, value: Any) -> str:
    """Return an argument as in a call; ... and [...] stand for some value or list."""
    return f"{name}={'...' if value is ... else '[...]' if value == [...] else repr(value)}"


class ArgumentError(ValueError):
    """A refusal with an `Advice`; its text has the arguments as in Python."""

    def __init__(self, problem: str, remedy: str = "", **arguments: Any) -> None:
        super().__init__(problem)
        self.advice = Advice(problem, remedy, **arguments)

    @property
    def argument(self) -> str | None:
        """Name of the first argument that would help, if any does."""
        return next(iter(self.advice.arguments), None)

    def __str__(self) -> str:
        return str(self.advice)
