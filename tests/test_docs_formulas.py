"""Formulas of the documentation are written so that they become what they say."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def formulas() -> ModuleType:
    return load_script("docs/extensions/formulas.py")


@pytest.mark.parametrize(
    "text", [r"\frac12 X", r"-\frac r2", r"\frac1{m}", r"\frac{1}2", r"a \dfrac{\frac{1}{2}} 3"]
)
def test_shorthand_of_fractions_is_refused(formulas: ModuleType, text: str) -> None:
    with pytest.raises(ValueError, match=r"both parts in braces, not \\d?frac"):
        formulas.refuse_shorthand(text)


def test_fractions_in_braces_are_taken(formulas: ModuleType) -> None:
    formulas.refuse_shorthand(r"\frac{1}{2} + \frac{a_{k}}{\frac {b} {c}} x + \fractional12")


def test_no_formula_has_shorthand(formulas: ModuleType) -> None:
    pages = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
    ]
    assert len(pages) > 100
    for page in pages:
        if "_build" not in page.parts:
            formulas.refuse_shorthand(page.read_text(encoding="utf-8"))


def test_functions_have_a_space_before_letters_and_none_before_brackets(formulas: ModuleType) -> None:
    log = "<mo>(</mo>\n<mi>log</mi>\n<mo>&ApplyFunction;</mo>\n{}"
    letter, bracket = log.format("<mi>p</mi>"), log.format('<mo stretchy="false">(</mo>')
    assert "<mspace" in formulas.set_spaces(letter)
    assert formulas.set_spaces(bracket) == bracket


def test_functions_have_a_space_behind_a_factor(formulas: ModuleType) -> None:
    log = "\n<mi>log</mi>\n<mo>&ApplyFunction;</mo>\n<mo>(</mo>"
    assert formulas.set_spaces("</msub>" + log).startswith("</msub><mspace")
    assert formulas.set_spaces("<mo>=</mo>" + log) == "<mo>=</mo>" + log


def test_bars_are_a_pair_and_divisions_stay(formulas: ModuleType) -> None:
    found = formulas.set_spaces('<mo class="mathopen">|</mo><mi>P</mi><mo>|</mo><mo>∣</mo>')
    even = 'stretchy="false" lspace="0" rspace="0"'
    assert found == f'<mo form="prefix" {even}>|</mo><mi>P</mi><mo form="postfix" {even}>|</mo><mo>∣</mo>'


def test_subscripts_of_accented_letters_are_beside_them_and_limits_of_sums_stay(formulas: ModuleType) -> None:
    math = '<math xmlns="http://www.w3.org/1998/Math/MathML"><munderover>{}<mi>k</mi>{}</munderover></math>'
    letter = formulas.lower_subscripts(math.format("<mi>x</mi>", "<mo>ˉ</mo>"))
    assert "<msub><mover><mi>x</mi><mo>ˉ</mo></mover><mi>k</mi></msub>" in letter
    total = math.format("<mo>∑</mo>", "<mi>K</mi>")
    assert formulas.lower_subscripts(total) == total
