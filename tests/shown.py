"""What code prints, beside what a page shows of it."""

from __future__ import annotations

import re

import pytest

NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?")


def compare(printed: str, shown: str) -> None:
    """Compare words exactly, numbers nearly, spaces not at all; a line of three dots stands for any lines."""
    lines = printed.splitlines(keepends=True)
    head, *tail = re.split(r"^\.\.\.\n", shown, maxsplit=1, flags=re.MULTILINE)
    if tail:
        lines = [*lines[: head.count("\n")], *lines[len(lines) - tail[0].count("\n") :]]
    found, expected = "".join(lines), head + "".join(tail)
    assert words(found) == words(expected), f"this was printed:\n{printed}"
    for now, then in zip(NUMBER.findall(found), NUMBER.findall(expected), strict=True):
        # Other machines round otherwise: a hundredth more or less, of whole numbers (often percentages) two.
        near = pytest.approx(float(then), rel=0.05, abs=0.02 if "." in then else 2)
        assert float(now) == near, f"this was printed:\n{printed}"


def words(text: str) -> str:
    """Return a text without spaces, its numbers replaced."""
    return re.sub(r"\s", "", NUMBER.sub("#", text))
