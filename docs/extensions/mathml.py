"""Formulas as MathML, written by docutils: the pages need neither a script nor the network for them."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

_FUNCTION = re.compile(r"<mo>&ApplyFunction;</mo>(?=\s*<(?!mo\b))")
_FACTOR = re.compile(
    r"(</(?:mi|mn|msub|msup|msubsup|mfrac|mover)>)(?=\s*<mi>\w+</mi>\s*<mo>&ApplyFunction;)"
)
_SPACE = '<mspace width="0.1667em"></mspace>'
_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_BAR = re.compile(r'<mo( class="mathopen")?>([|‖])</mo>')
# Docutils reads \frac12 X as 12 / X.
_SHORTHAND = re.compile(r"\\[dt]?frac(?![a-zA-Z])(?!\s*\{)")


def set_spaces(markup: str) -> str:
    """Set spaces around names of functions, as in w log p, and even bars close to their content."""

    def even(bar: re.Match[str]) -> str:
        form = "prefix" if bar[1] else "postfix"
        return f'<mo form="{form}" stretchy="false" lspace="0" rspace="0">{bar[2]}</mo>'

    spaced = _FACTOR.sub(r"\1" + _SPACE, markup)
    spaced = _FUNCTION.sub("<mo>&ApplyFunction;</mo>" + _SPACE, spaced)
    return _BAR.sub(even, spaced)


def lower_subscripts(markup: str) -> str:
    """Set the subscript of an accented letter beside it; docutils sets it below."""
    if "<munderover>" not in markup:
        return markup
    ElementTree.register_namespace("", _NAMESPACE)
    tree = ElementTree.fromstring(markup.replace("&ApplyFunction;", "&#x2061;"))
    for element in list(tree.iter(f"{{{_NAMESPACE}}}munderover")):
        base, subscript, accent = element
        # Limits of a sum have an operator for their base.
        if base.tag != f"{{{_NAMESPACE}}}mo":
            letter = ElementTree.Element(f"{{{_NAMESPACE}}}mover")
            letter.extend([base, accent])
            element.tag = f"{{{_NAMESPACE}}}msub"
            element[:] = [letter, subscript]
    return ElementTree.tostring(tree, encoding="unicode")


def translate(node: nodes.Element, *, block: bool) -> str:
    """Write the MathML of a formula, or stop the build with its text."""
    text = node.astext().strip()
    try:
        if _SHORTHAND.search(text):
            raise ValueError("write fractions with both parts in braces")
        return lower_subscripts(set_spaces(tex2mathml(text, as_block=block)))
    except (MathError, ValueError) as error:
        raise SphinxError(f"{node.source}:{node.line}: {text}: {error}") from error


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(translate(node, block=False))
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math-block"))
    self.body.append(f'<div class="formula">{translate(node, block=True)}</div>')
    if node.get("number"):
        number = get_node_equation_number(self, node)
        self.body.append(f'<span class="eqno">({number})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
