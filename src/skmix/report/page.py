"""The study's report: from its dictionary to the page."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from skmix.experiments.harness import Table
from skmix.experiments.paper.records import StudyResults
from skmix.io import replacing
from skmix.report.data import report_data
from skmix.report.rendering import render_page

_SCRIPTS = ("kit.js", "kernels.js", "charts.js", "explorer.js")
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
        By default those of `skmix.experiments.paper.tables.make_tables`.
    verdicts : iterable of objects, optional
        Claims, with the attributes ``claim``, ``target``, ``measured``, ``holds`` and ``note``; by default
        those of `skmix.experiments.paper.check_claims`.

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
    return render_page("report.html.j2", data, embedded=_EMBEDDED, styles=("report.css",), scripts=_SCRIPTS)
