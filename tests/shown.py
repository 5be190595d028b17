"""What code prints, beside what a page shows of it."""

from __future__ import annotations

import re
from typing import Any

import pytest

NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")
WHOLE = re.compile(r"-?\d+")
FEWEST = 20
"""Whole numbers below are labels, shapes and small counts, which are the same on all machines."""


def compare(printed: str, shown: str) -> None:
    """Compare words and small whole numbers exactly, other numbers nearly, spaces not at all.

    A line of three dots stands for any lines.
    """
    lines = printed.splitlines(keepends=True)
    head, *tail = re.split(r"^\.\.\.\n", shown, maxsplit=1, flags=re.MULTILINE)
    if tail:
        lines = [*lines[: head.count("\n")], *lines[len(lines) - tail[0].count("\n") :]]
    found, expected = "".join(lines), head + "".join(tail)
    assert words(found) == words(expected), f"this was printed:\n{printed}"
    for now, then in zip(NUMBER.findall(found), NUMBER.finditer(expected), strict=True):
        percentage = re.match(r"\s*%", expected[then.end() :]) is not None
        assert float(now) == near(then[0], percentage), f"{now}, not {then[0]}; this was printed:\n{printed}"


def near(number: str, percentage: bool) -> Any:
    """Return what a number may be on other machines, which round otherwise."""
    value = float(number)
    whole = WHOLE.fullmatch(number) is not None
    if whole and abs(value) < FEWEST and not percentage:
        return value
    return pytest.approx(value, rel=0.05, abs=2 if whole else 0.02)


def words(text: str) -> str:
    """Return a text without spaces, its numbers replaced."""
    return re.sub(r"\s", "", NUMBER.sub("#", text))
