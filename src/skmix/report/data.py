"""From the study's results to one dictionary of plain values: all that the page shows."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any

from skmix.experiments.harness import Table
from skmix.experiments.paper.claims import check_claims, headline
from skmix.experiments.paper.published_values import published_values
from skmix.experiments.paper.records import Run, Settings, StudyResults
from skmix.experiments.paper.tables import make_tables
from skmix.experiments.paper.variants import MAIN_KERNELS, METHODS
from skmix.report import sections, words
from skmix.report.differences import differences
from skmix.report.explorer import explorer
from skmix.report.figures import figure_entries
from skmix.report.numbers import text
from skmix.report.tables import table_entries

_TITLE = "Shared kernel models: the whole paper, run again"
_LIBRARIES = ("skmix", "numpy", "scipy", "scikit-learn")


def report_data(
    results: StudyResults,
    *,
    figures: Mapping[str, bytes] | None = None,
    tables: Iterable[Table] | None = None,
    verdicts: Iterable[Any] | None = None,
) -> dict[str, Any]:
    """Return what the report shows as strings, numbers, lists and dictionaries, ready for JSON.

    Parameters
    ----------
    results : StudyResults
        The study.
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
    dict
        The same for the same arguments, whenever and wherever it is made with the same libraries.
    """
    paper = published_values()
    main = sections.main_runs(results)
    variants = sections.variants_of(main)
    sources = words.sources(main, variants, paper)
    swept = sections.sweep(results, paper)
    claims = [_claim(each) for each in (check_claims(results) if verdicts is None else verdicts)]
    pictures = figure_entries(figures or {})
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
        "bin": sections.BIN,
        "distributions": sections.distributions(main, paper),
        "sweep": {**swept, "text": words.SWEEP},
        "explorer": explorer(results, variants),
        "tables": table_entries(make_tables(results) if tables is None else tables),
        "confusions": sections.confusions(results, variants, paper),
        "figures": [entry for entry in pictures if not entry["chosen_by"]],
        "projections": [entry for entry in pictures if entry["chosen_by"]],
        "failures": {**(lost := sections.failures(main, paper)), "text": words.failures(lost)},
        "differences": differences(results, main, paper),
        # Not how long they took: that would make every page another one.
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


def _claim(checked: Any) -> dict[str, Any]:
    return {
        "claim": str(checked.claim),
        "target": str(checked.target),
        "measured": str(checked.measured),
        "holds": bool(checked.holds),
        "note": str(checked.note),
    }


def _made(results: StudyResults) -> dict[str, Any]:
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
    """Return the command that makes one run again."""
    which = f"{run.variant!r}, {run.n_kernels}, {run.method!r}, {run.run}"
    return (
        f'python -c "from skmix.experiments import paper as s; t = s.{settings!r}; '
        f'print(s.run_one(s.make_data(t), {which}, t))"'
    )


def _contents(data: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the lines of the table of contents, for the sections that have something to show."""
    entries = {
        "summary": ("Summary", True),
        "claims": ("Claims", bool(data["claims"])),
        "distributions": ("Accuracy over the runs", True),
        "sweep": ("Accuracy against K", bool(data["sweep"]["variants"])),
        "explorer": ("Explore the kernels", True),
        "tables": ("Tables", bool(data["tables"])),
        "confusion": ("Confusion matrices", True),
        "figures": ("Figures", bool(data["figures"] or data["projections"])),
        "failures": ("Why runs fail", True),
        "differences": ("Differences", bool(data["differences"])),
        "beyond": ("Beyond the paper", bool(data["beyond"])),
        "made": ("How this was made", True),
    }
    return [{"id": key, "title": title} for key, (title, shown) in entries.items() if shown]
