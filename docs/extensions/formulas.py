"""What docutils lacks to write formulas as MathML: it misreads shorthand, and sets no spaces."""

from __future__ import annotations

import re

_FRACTION = re.compile(r"\\[dt]?frac(?![a-zA-Z])")
_FUNCTION = re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<(?!mo\b))")
_BAR = re.compile(r'<mo( class="mathopen")?>([|‖])</mo>')


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
    """Return MathML with a space behind the names of functions, and with even bars close to their content.

    Browsers set no space for an applied function, as in log p, and take a bar within a line for an operator
    that stands between two others.
    """

    def even(bar: re.Match[str]) -> str:
        form = "prefix" if bar[1] else "postfix"
        return f'<mo form="{form}" stretchy="false" lspace="0" rspace="0">{bar[2]}</mo>'

    spaced = _FUNCTION.sub(
        '<mo>&ApplyFunction;</mo><mspace width="0.1667em"></mspace>', markup
    )
    return _BAR.sub(even, spaced)
