"""From values to a page: one HTML file with styles, scripts and data inside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any


def render_page(
    template: str,
    data: Mapping[str, Any],
    *,
    embedded: Sequence[str],
    styles: Sequence[str],
    scripts: Sequence[str],
) -> str:
    """Return a page that fetches nothing; what comes from data is escaped.

    Parameters
    ----------
    template : str
        Name of the template, which fills in ``frame.html.j2``.
    data : mapping of str to values
        What the template says. The frame itself needs ``title`` and ``contents``.
    embedded : sequence of str
        Names of the values that the scripts draw.
    styles, scripts : sequences of str
        Names of the style sheets and scripts to put inside.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("The report needs jinja2: pip install skmix[report]") from error
    folder = files("skmix.report") / "template"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(read))
    return environment.get_template(template).render(
        data,
        style=Markup("".join(map(read, styles))),
        scripts=[Markup(read(name)) for name in scripts],
        embedded=Markup(embedded_json({key: data[key] for key in embedded})),
        version=version("skmix"),
    )


def embedded_json(content: Any) -> str:
    """Return JSON that is safe inside a script element: nothing in it can end the element or open another."""
    plain = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain
