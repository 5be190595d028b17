"""Formulas of the documentation are written so that they become what they say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[1]
PAGES = (("docs", "*.md"), ("src", "*.py"), ("examples", "*.py"))


@pytest.fixture(scope="module")
def formulas() -> ModuleType:
    return load_script("docs/extensions/formulas.py")


def test_fractions_have_both_parts_in_braces(formulas: ModuleType) -> None:
    """MathML would make something else of a shorthand."""
    for text in (r"\frac12 X", r"-\frac r2", r"\frac1{m}", r"\frac{1}2", r"a \dfrac{\frac{1}{2}} 3"):
        with pytest.raises(ValueError, match=r"both parts in braces, not \\d?frac"):
            formulas.refuse_shorthand(text)
    formulas.refuse_shorthand(r"\frac{1}{2} + \frac{a_{k}}{\frac {b} {c}} x + \fractional12")
    pages = [page for name, kind in PAGES for page in (ROOT / name).rglob(kind) if "_build" not in page.parts]
    assert len(pages) > 100
    for page in pages:
        formulas.refuse_shorthand(page.read_text(encoding="utf-8"))
