"""The study's page: its results as one dictionary of plain values, then as HTML."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from skmix.experiments.harness import Table
from skmix.experiments.paper.claims import check_claims, headline
from skmix.experiments.paper.published_values import published_values
from skmix.experiments.paper.records import Run, Settings, StudyResults
from skmix.experiments.paper.tables import make_tables
from skmix.experiments.paper.variants import MAIN_KERNELS, METHODS
from skmix.io import replacing
from skmix.report import study_charts as charts
from skmix.report import study_text as words
from skmix.report.figures import figure_entries
from skmix.report.rendering import render_page, text
from skmix.report.tables import table_entries

_TITLE = "Shared kernel models: the whole paper, run again"
_LIBRARIES = ("skmix", "numpy", "scipy", "scikit-learn")
# Values that the scripts draw; everything else is in the HTML.
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
        The file to create or replace.
    figures : mapping of str to bytes, optional
        PNG or SVG pictures by the names that `skmix.plots.paper_figures` gives them, in the order they are
        shown. Those that the page draws itself are left out.
    tables : iterable of Table, optional
        By default those of `skmix.experiments.paper.make_tables`.
    verdicts : iterable of Claim, optional
        Checked claims; by default those of `skmix.experiments.paper.check_claims`.

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
    """Render the output of `report_data`."""
    scripts = ("kit.js", "kernels.js", "charts.js", "explorer.js")
    return render_page("report.html.j2", data, embedded=_EMBEDDED, styles=("report.css",), scripts=scripts)


def report_data(
    results: StudyResults,
    *,
    figures: Mapping[str, bytes] | None = None,
    tables: Iterable[Table] | None = None,
    verdicts: Iterable[Any] | None = None,
) -> dict[str, Any]:
    """Return what the report shows as strings, numbers, lists and dictionaries, ready for JSON.

    Parameters are those of `write_report`. The result depends only on them and the versions of the libraries.
    """
    paper = published_values()
    main = charts.main_runs(results)
    variants = charts.variants_of(main)
    sources = words.sources(main, variants, paper)
    claims: list[dict[str, Any]] = [
        {
            **{name: str(getattr(each, name)) for name in ("claim", "target", "measured", "note")},
            "holds": bool(each.holds),
        }
        for each in (check_claims(results) if verdicts is None else verdicts)
    ]
    pictures = figure_entries(figures or {})
    lost = charts.failures(main, paper)
    data = {
        "title": _TITLE,
        "ways": [
            {
                "key": method,
                "label": words.METHOD_LABELS[method],
                "description": words.METHOD_DESCRIPTIONS[method],
            }
            for method in METHODS
        ],
        "digits": list(range(10)),
        "main_kernels": MAIN_KERNELS,
        "summary": {
            "paragraphs": [*words.paragraphs(sources, variants), *filter(None, [headline(results)])],
            "sources": sources,
            "note": "A run fails when its accuracy is not above one half. Accuracies are averages over the "
            "variants, of all runs and of each variant’s best run; the test set has "
            f"{10 * results.settings.test_per_digit} images.",
        },
        "claims": claims,
        "claims_held": sum(claim["holds"] for claim in claims),
        "bin": charts.BIN,
        "distributions": charts.distributions(main, paper),
        "sweep": {**charts.sweep(results, paper), "text": words.SWEEP},
        "explorer": charts.explorer(results, variants),
        "tables": table_entries(make_tables(results) if tables is None else tables),
        "confusions": charts.confusions(results, variants, paper),
        "figures": [entry for entry in pictures if not entry["chosen_by"]],
        "projections": [entry for entry in pictures if entry["chosen_by"]],
        "failures": {**lost, "text": words.failures(lost)},
        "differences": words.differences(results, main, paper),
        "beyond": [
            {
                "name": row.name,
                "description": row.description,
                "ours": row.ours,
                "accuracy": text(row.accuracy, 4),
                "mean_iou": text(row.mean_iou, 4),
                "errors": int(row.confusion.sum() - row.confusion.trace()),
            }
            for row in results.beyond
        ],
        "made": _made(results),
    }
    return {**data, "contents": _contents(data)}


def _made(results: StudyResults) -> dict[str, Any]:
    """Return settings, versions, and the commands that repeat the study."""
    settings = results.settings
    dithered = {"paper": "in 10D and 13D, as the paper says", "all": "in every variant"}
    return {
        "text": words.MADE,
        "settings": [
            ["seed", str(settings.seed)],
            ["zero features dithered", dithered[settings.dither]],
            ["training images of each digit", str(settings.train_per_digit)],
            ["test images of each digit", str(settings.test_per_digit)],
            ["most passes of a run", str(settings.max_iter)],
        ],
        "versions": {
            **{name: version(name) for name in _LIBRARIES},
            "Python": platform.python_version(),
        },
        "commands": [
            f"skmix reproduce --seed {settings.seed} --dither {settings.dither}",
            *(_repeat(best.run, settings) for best in list(results.best.values())[-1:]),
        ],
    }


def _repeat(run: Run, settings: Settings) -> str:
    """Return the command that repeats one run."""
    which = f"{run.variant!r}, {run.n_kernels}, {run.method!r}, {run.run}"
    return (
        f'python -c "from skmix.experiments import paper as s; t = s.{settings!r}; '
        f'print(s.run_one(s.make_data(t), {which}, t))"'
    )


def _contents(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the table of contents: the sections that have something to show."""
    entries = {
        "summary": ("Summary", True),
        "claims": ("Claims", data["claims"]),
        "distributions": ("Accuracy over the runs", True),
        "sweep": ("Accuracy against K", data["sweep"]["variants"]),
        "explorer": ("Explore the kernels", True),
        "tables": ("Tables", data["tables"]),
        "confusion": ("Confusion matrices", True),
        "figures": ("Figures", data["figures"] or data["projections"]),
        "failures": ("Why runs fail", True),
        "differences": ("Differences", data["differences"]),
        "beyond": ("Beyond the paper", data["beyond"]),
        "made": ("How this was made", True),
    }
    return [{"id": key, "title": title} for key, (title, shown) in entries.items() if shown]
