"""Render plain values as a page: one HTML file that includes styles, scripts and data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import numpy as np

from .._extras import need
from ..plots import kernels

__all__ = [
    "HeatCell",
    "decimals",
    "in_words",
    "kernel_values",
    "line_styles",
    "number_text",
    "render_page",
    "significant",
]


def render_page(template: str, data: Mapping[str, Any], package: str = "skmix.report") -> str:
    """Return a page that fetches nothing; text from data is escaped.

    The template and the files it includes are in the folder ``template`` of the package or of `skmix.report`.
    It extends ``frame.html.j2``, and names its sections, the styles and scripts to include, and the values of
    `data` that scripts read.
    """
    need("jinja2", "The report needs")
    from jinja2 import Environment, FunctionLoader, StrictUndefined
    from markupsafe import Markup

    folders = [files(each) / "template" for each in dict.fromkeys((package, "skmix.report"))]

    def read(name: str) -> str:
        return next(each / name for each in folders if (each / name).is_file()).read_text(encoding="utf-8")

    environment = Environment(autoescape=True, undefined=StrictUndefined, loader=FunctionLoader(read))
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    page = environment.get_template(template)
    return page.render(data, content=lambda name: Markup(read(name)), version=version("skmix"))


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map: a table whose cells have a shade; see ``heat.html.j2``."""

    text: str
    shade: float  # from 0 to 1
    title: str  # what the page says where the cell is pointed at
    is_wrong: bool

    @classmethod
    def of(cls, text: str, share: float, title: str, *, is_wrong: bool = False) -> HeatCell:
        """The cell of a share; its shade grows with the square root, so that small shares are visible."""
        shade = 0.06 + 0.9 * math.sqrt(share) if share > 0 else 0.0
        return cls(text if share > 0 else "", round(shade, 2), title, is_wrong and share > 0)


def line_styles() -> dict[str, Any]:
    """Return the steps of weight and the line style of each step, as in the plots."""
    return {
        "steps": list(kernels.STEPS),
        "step_names": list(kernels.STEP_NAMES),
        "styles": {"widths": list(kernels.WIDTHS), "colours": list(kernels.COLOURS)},
    }


def kernel_values(weights: Any, means: Any, covariances: Any) -> dict[str, Any]:
    """Return weights (K, L), means (K, M) and the upper triangles of covariances (K, M, M), rounded."""
    rows, columns = np.triu_indices(means.shape[1])
    return {
        "weights": decimals(weights, 5),
        "means": significant(means),
        "covariances": significant(covariances[:, rows, columns]),
    }


def decimals(values: Any, digits: int) -> Any:
    """Return floats as nested lists, rounded to `digits` decimals; None where not finite."""
    # Adding zero turns -0.0 into 0.0.
    rounded = np.round(np.asarray(values, dtype=np.float64), digits) + 0.0
    return np.where(np.isfinite(rounded), rounded, np.array(None)).tolist()


def significant(values: Any) -> Any:
    """Return floats as nested lists, rounded to five significant digits; None where not finite."""
    array = np.asarray(values, dtype=np.float64)
    rounded = [float(f"{value:.5g}") if math.isfinite(value) else None for value in array.ravel()]
    return np.reshape(np.array(rounded, dtype=object), array.shape).tolist()


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number as text, a dash if it is missing."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def in_words(words: Iterable[str]) -> str:
    """Return words as a list in a sentence: "a, b and c"."""
    *most, last = list(words) or [""]
    return f"{', '.join(most)} and {last}" if most else last
