"""Tests run with each instruction set that the processor has, by the fixture or by `definitions.each_set`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from definitions import SETS

from skmix._core import compiled, instructions


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Use the instruction set of before after the test."""
    yield
    compiled.use(instructions if instructions in SETS else None)


@pytest.fixture(params=SETS)
def instruction_set(request: pytest.FixtureRequest) -> str:
    """Use an instruction set."""
    name: str = compiled.use(request.param)
    return name
