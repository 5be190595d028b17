"""Formulas as MathML, written by docutils: the pages need neither a script nor the network for them."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from formulas import lower_subscripts, refuse_shorthand, set_spaces
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator


class FormulaError(SphinxError):
    """A formula that cannot be written as MathML."""

    category = "Formula"


def translate(node: nodes.Element, *, block: bool) -> str:
    """Return the MathML of a formula, or stop the build with its text."""
    text = node.astext().strip()
    try:
        refuse_shorthand(text)
        return lower_subscripts(set_spaces(tex2mathml(text, as_block=block)))
    except (MathError, ValueError) as error:
        raise FormulaError(f"{node.source}:{node.line}: {text}: {error}") from error


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
