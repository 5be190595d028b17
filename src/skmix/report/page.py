"""From the dictionary to the page: one HTML file with styles, scripts, data and pictures inside it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from skmix.report.data import report_data
from skmix.study.files import replacing
from skmix.study.records import StudyResults
from skmix.study.tables import Table

_SCRIPTS = ("kit.js", "charts.js", "explorer.js")
# What the scripts draw; everything else is in the page already.
_EMBEDDED = ("ways", "digits", "bin", "distributions", "sweep", "confusions", "explorer")


def write_report(
    results: StudyResults,
    path: str | os.PathLike[str],
    *,
    figures: Mapping[str, bytes] | None = None,
    tables: Iterable[Table] | None = None,
    verdicts: Iterable[Any] | None = None,
) -> Path:
    """Write the study's report: one HTML file that opens offline and fetches nothing.

    Parameters
    ----------
    results : StudyResults
        The study.
    path : path-like
        The file to make or to replace.
    figures : mapping of str to bytes, optional
        PNG or SVG pictures under the names that `skmix.plots.paper_figures` gives them, in the order they
        are shown. Those that the page draws itself are left out.
    tables : iterable of Table, optional
        By default those of `skmix.study.tables.make_tables`.
    verdicts : iterable of objects, optional
        Claims, with the attributes ``claim``, ``target``, ``measured``, ``holds`` and ``note``; by default
        those of `skmix.study.verdict.verdicts`.

    Returns
    -------
    Path
        Where it was written. The same arguments give the same bytes.
    """
    page = render(report_data(results, figures=figures, tables=tables, verdicts=verdicts))
    with replacing(path) as file:
        file.write(page.encode())
    return Path(path)


def render(data: Mapping[str, Any]) -> str:
    """Return the page that shows what `report_data` returned."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise ImportError("The report needs jinja2: pip install skmix[report]") from error
    folder = files("skmix.report") / "template"
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (folder / "report.html.j2").read_text(encoding="utf-8")
    )
    return template.render(
        data,
        style=Markup((folder / "report.css").read_text(encoding="utf-8")),
        scripts=[Markup((folder / name).read_text(encoding="utf-8")) for name in _SCRIPTS],
        embedded=Markup(embedded_json({key: data[key] for key in _EMBEDDED})),
    )


def embedded_json(content: Any) -> str:
    """Return JSON that is safe inside a script element: nothing in it can end the element or open another."""
    plain = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        plain = plain.replace(character, f"\\u{ord(character):04x}")
    return plain
