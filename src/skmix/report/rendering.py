"""Rendering of plain values to a page: one HTML file that includes styles, scripts and data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from skmix.plots import kernels


def render_page(
    template: str,
    data: Mapping[str, Any],
    *,
    embedded: Sequence[str],
    styles: Sequence[str],
    scripts: Sequence[str],
) -> str:
    """Return a page that fetches nothing; text from data is escaped.

    `data` fills in the template, which extends ``frame.html.j2`` and therefore needs ``title`` and
    ``contents``; `embedded` names the values that scripts read; `styles` and `scripts` are files to include.
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
    """Return JSON that is safe inside a script element: it cannot close the element or open another."""
    plain = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain


def line_styles() -> dict[str, Any]:
    """Return the steps of weight and the line of a kernel in each, as in the plots."""
    return {
        "steps": list(kernels.STEPS),
        "step_names": list(kernels.STEP_NAMES),
        "styles": {
            style: {"widths": list(kernels.WIDTHS[style]), "colours": list(kernels.COLOURS[style])}
            for style in ("paper", "accessible")
        },
    }


def decimals(values: Any, digits: int) -> Any:
    """Return floats as nested lists, rounded to `digits` decimals; None where not finite."""
    # Adding zero turns -0.0 into 0.0.
    return _plain((np.round(np.asarray(values, dtype=np.float64), digits) + 0.0).tolist())


def significant(values: Any, digits: int) -> Any:
    """Return floats as nested lists, rounded to `digits` significant digits; None where not finite."""
    array = np.asarray(values, dtype=np.float64)
    rounded = [float(f"{value:.{digits}g}") for value in array.ravel()]
    return _plain(np.reshape(rounded, array.shape).tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value if math.isfinite(value) else None


def text(value: float | None, digits: int = 3) -> str:
    """Return a number as text, a dash if it is missing."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def mean(values: Iterable[float]) -> float:
    """Return the mean, NaN for an empty sequence."""
    array = np.fromiter(values, dtype=np.float64)
    return float(array.mean()) if array.size else math.nan


def joined(words: Iterable[str]) -> str:
    """Return words as a list in a sentence: "a, b and c"."""
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last
