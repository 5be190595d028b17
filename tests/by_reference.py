"""Passes by the reference in NumPy, as the variable SKMIX_INSTRUCTIONS chooses them for a whole process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from skmix import _core


@contextmanager
def by_reference() -> Iterator[None]:
    """Let NumPy do the compiled core's work in the body."""
    with mock.patch.multiple(_core, _loaded=None, instructions=_core.REFERENCE):
        yield
