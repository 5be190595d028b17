"""The list of changes that tests must notice keeps up with the code; benchmarks/mutants.py runs all of it."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

from mutants import Change, changes  # noqa: E402

CHANGES = changes()


@cache
def text_of(file: str) -> str:
    return (ROOT / file).read_text(encoding="utf-8")


def test_every_change_applies_and_its_tests_exist() -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES) >= 150
    wrong = []
    for change in CHANGES:
        try:
            change.changed(text_of(f"src/skmix/{change.file}"))
        except (OSError, ValueError) as error:
            wrong.append(f"{change.name}: {error}")
        for test in change.tests:
            file, _, name = test.partition("::")
            if not (ROOT / "tests" / file).is_file() or f"def {name}" not in text_of(f"tests/{file}"):
                wrong.append(f"{change.name}: there is no test {test}")
    assert not wrong, "\n".join(wrong)


def test_a_change_must_be_possible_and_change_something() -> None:
    for old, new, message in (("a", "b", "occurs 2 times"), ("c", "d", "occurs 0"), ("ab", "ab", "nothing")):
        with pytest.raises(ValueError, match=message):
            Change("file", old, new, "", []).changed("aba")
