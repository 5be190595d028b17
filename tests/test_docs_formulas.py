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


def test_formulas_are_set_as_mathematicians_set_them(formulas: ModuleType) -> None:
    # A function has a space before a letter, none before a bracket, and one behind a factor.
    log = "<mo>(</mo>\n<mi>log</mi>\n<mo>&ApplyFunction;</mo>\n{}"
    bracket = log.format('<mo stretchy="false">(</mo>')
    assert "<mspace" in formulas.set_spaces(log.format("<mi>p</mi>"))
    assert formulas.set_spaces(bracket) == bracket
    # Bars are a pair, and divisions stay.
    found = formulas.set_spaces('<mo class="mathopen">|</mo><mi>P</mi><mo>|</mo><mo>∣</mo>')
    even = 'stretchy="false" lspace="0" rspace="0"'
    assert found == f'<mo form="prefix" {even}>|</mo><mi>P</mi><mo form="postfix" {even}>|</mo><mo>∣</mo>'
    # Subscripts of accented letters are beside them, and limits of sums stay.
    math = '<math xmlns="http://www.w3.org/1998/Math/MathML"><munderover>{}<mi>k</mi>{}</munderover></math>'
    letter = formulas.lower_subscripts(math.format("<mi>x</mi>", "<mo>ˉ</mo>"))
    assert "<msub><mover><mi>x</mi><mo>ˉ</mo></mover><mi>k</mi></msub>" in letter
    total = math.format("<mo>∑</mo>", "<mi>K</mi>")
    assert formulas.lower_subscripts(total) == total
