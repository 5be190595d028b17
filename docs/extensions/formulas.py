"""Formulas of docstrings, and what docutils lacks for MathML: it misreads shorthand, and sets no spaces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

_FRACTION = re.compile(r"\\[dt]?frac(?![a-zA-Z])")
_FUNCTION = re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<(?!mo\b))")
_FACTOR = re.compile(
    r"(</(?:mi|mn|msub|msup|msubsup|mfrac|mover)>)(?=\s*<mi>\w+</mi>\s*<mo>&ApplyFunction;)"
)
_SPACE = '<mspace width="0.1667em"></mspace>'
_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_BAR = re.compile(r'<mo( class="mathopen")?>([|‖])</mo>')
FORMULAS = tomllib.loads(
    (Path(__file__).parents[1] / "api" / "formulas.toml").read_text(encoding="utf-8")
)
"""How the reference sets the formulas of docstrings."""
# Code comes first, so that nothing within it is a formula; long formulas before those that they hold.
_PLAIN = re.compile(
    r"`+[^`]+`+|(?<!\w)("
    + "|".join(
        re.escape(plain).replace(r"\ ", r"\s+")
        for plain in sorted(FORMULAS, key=len, reverse=True)
    )
    + r")(?!\w)"
)


def set_formulas(text: str) -> str:
    """Return a docstring with its formulas as mathematics."""

    def mathematics(found: re.Match[str]) -> str:
        plain = " ".join((found[1] or "").split())
        return f":math:`{FORMULAS[plain]}`" if plain else found[0]

    return _PLAIN.sub(mathematics, text)


def refuse_shorthand(text: str) -> None:
    r"""Refuse fractions without braces around both parts; docutils reads \frac12 X as 12 / X."""
    for found in _FRACTION.finditer(text):
        rest = text[found.end() :]
        for _ in range(2):
            rest = rest.lstrip()
            if not rest.startswith("{"):
                shown = text[found.start() : found.start() + 12]
                raise ValueError(
                    f"write fractions as \\frac{{1}}{{2}}, with both parts in braces, not {shown}"
                )
            depth = 0
            for place, letter in enumerate(rest):
                depth += (letter == "{") - (letter == "}")
                if depth == 0:
                    rest = rest[place + 1 :]
                    break


def set_spaces(markup: str) -> str:
    """Return MathML with spaces around the names of functions, and with even bars close to their content.

    Browsers set no spaces for an applied function, as in w log p, and take a bar within a line for an
    operator that stands between two others.
    """

    def even(bar: re.Match[str]) -> str:
        form = "prefix" if bar[1] else "postfix"
        return f'<mo form="{form}" stretchy="false" lspace="0" rspace="0">{bar[2]}</mo>'

    spaced = _FACTOR.sub(r"\1" + _SPACE, markup)
    spaced = _FUNCTION.sub("<mo>&ApplyFunction;</mo>" + _SPACE, spaced)
    return _BAR.sub(even, spaced)


def lower_subscripts(markup: str) -> str:
    """Return MathML in which the subscript of an accented letter is beside it; docutils sets it below."""
    if "<munderover>" not in markup:
        return markup
    ElementTree.register_namespace("", _NAMESPACE)
    tree = ElementTree.fromstring(markup.replace("&ApplyFunction;", "&#x2061;"))
    for found in list(tree.iter(f"{{{_NAMESPACE}}}munderover")):
        base, subscript, accent = found
        # Limits of a sum have an operator for their base.
        if base.tag != f"{{{_NAMESPACE}}}mo":
            letter = ElementTree.Element(f"{{{_NAMESPACE}}}mover")
            letter.extend([base, accent])
            found.tag = f"{{{_NAMESPACE}}}msub"
            found[:] = [letter, subscript]
    return ElementTree.tostring(tree, encoding="unicode")
