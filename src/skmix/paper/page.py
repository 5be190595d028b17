"""The report of the study: its results as a dictionary of plain values, rendered as HTML."""

from __future__ import annotations

import base64
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from skmix.data.write import replacing
from skmix.report.rendering import decimals, in_words, kernel_values, line_styles, number_text, render_page

from . import claims
from .harness import Entry, Table, Value, text_of
from .images import DIGIT_FEATURES
from .printed import OK_RUNS, PublishedValues, published_values
from .published import REASONS
from .records import (
    BestRun,
    FittedMixture,
    Run,
    Runs,
    Settings,
    StudyData,
    StudyResults,
    counted_in_sweep,
    statistics,
)
from .tables import METHOD_OF_SOURCE, TAU, make_tables
from .variants import (
    LABELS,
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    variant_of,
)

__all__ = ["render", "report_data", "write_report"]

# Width of a bin of the histograms.
_BIN = 0.01
# Training rows of each digit in the explorer: more make the page larger, but not clearer.
_ROWS_PER_DIGIT = 150
# Fewest failed runs of which the mean is inferred: printed means have only three decimals.
_MIN_FAILED = 10


def write_report(
    results: StudyResults, path: str | os.PathLike[str], figures: Mapping[str, bytes] | None = None
) -> Path:
    """Write the study's report, one HTML file that fetches nothing, and return its path.

    `figures` are PNG pictures of 300 dots per inch by their names in `skmix.paper.figures.paper_figures`. The
    page shows figures 1 to 5; the others it draws itself. The same arguments give the same bytes.
    """
    with replacing(path) as file:
        file.write(render(report_data(results, figures)).encode())
    return Path(path)


def render(data: Mapping[str, Any]) -> str:
    """Render the output of `report_data`."""
    return render_page("report.html.j2", data, "skmix.paper")


def report_data(results: StudyResults, figures: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """Return the contents of the report as strings, numbers, lists and dictionaries, ready for JSON.

    Parameters are those of `write_report`. The result depends only on them and the versions of the libraries.
    """
    paper, runs = published_values(), Runs(results.runs)
    *tables, failures = make_tables(results)
    return {
        "title": f"Shared kernel models: {_part(runs)}, run again",
        "methods": [{"key": method, "label": LABELS[method]} for method in METHODS],
        "digits": list(range(10)),
        "main_kernels": MAIN_KERNELS,
        "sources": _sources(runs, paper),
        "n_variants": len(VARIANTS),
        "headline": claims.headline(results.margins) if results.margins else "",
        "claims": [asdict(each) for each in claims.check_claims(results)],
        "bin": _BIN,
        "variants": [_variant(name, results, runs, paper) for name in runs.variants],
        "sweep": {
            "kernels": list(SWEEP_KERNELS),
            "variants": [
                _sweep(name, runs, paper)
                for name in SWEEP_VARIANTS
                if any(runs.of(name, K, m) for K in SWEEP_KERNELS if K != MAIN_KERNELS for m in METHODS)
            ],
        },
        "explorer": _rows(results.data),
        **line_styles(),
        # A single variant has no rank.
        "tables": [
            _table(each, runs) for each in tables if TAU not in each.columns or len(runs.variants) > 1
        ],
        "figures": [
            _picture(name, content) for name, content in (figures or {}).items() if name.startswith("fig")
        ],
        "failures": _failures(failures, runs, paper),
        "differences": _differences(results),
        "level": claims.LEVEL,
        "beyond": [
            {name: getattr(row, name) for name in ("name", "description", "ours", "accuracy", "mean_iou")}
            | {"errors": int(row.confusion.sum() - row.confusion.trace())}
            for row in results.beyond
        ],
        "made": {
            "settings": asdict(results.settings),
            "versions": {name: version(name) for name in ("skmix", "numpy", "scipy", "scikit-learn")}
            | {"Python": platform.python_version()},
            "commands": [
                f"skmix reproduce --seed {results.settings.seed} --dither {results.settings.dither}",
                *(_repeat(best.run, results.settings) for best in list(results.best.values())[-1:]),
            ],
        },
    }


def _repeat(run: Run, settings: Settings) -> str:
    which = f"{run.variant!r}, {run.n_kernels}, {run.method!r}, {run.run}"
    return (
        f'python -c "from skmix import paper as s; t = s.{settings!r}; '
        f'print(s.run_one(s.make_data(t), {which}, t))"'
    )


def _part(runs: Runs) -> str:
    """Return which part of the paper was run, in words."""
    methods = [
        method for method in METHODS if any(runs.of(name, MAIN_KERNELS, method) for name in runs.variants)
    ]
    if len(runs.variants) == len(VARIANTS) and len(methods) == len(METHODS):
        return "the whole paper"
    return f"part of the paper ({in_words(runs.variants)}; {in_words(LABELS[each] for each in methods)})"


def _failed_in_paper(paper: PublishedValues, variant: str) -> int:
    return MAIN_RUNS - int(paper.ok_runs[OK_RUNS, variant])


def _sources(runs: Runs, paper: PublishedValues) -> dict[str, dict[str, Any]]:
    """Return the headline numbers of the paper and of each method: failures, mean and best accuracy."""

    def source(failures: int, n_runs: int, means: list[float], bests: list[float]) -> dict[str, Any]:
        mean, best = (number_text(float(np.mean(values)) if values else None) for values in (means, bests))
        return {"failures": failures, "runs": n_runs, "mean": mean, "best": best}

    variants = runs.variants
    sources = {
        "paper": source(
            sum(_failed_in_paper(paper, variant) for variant in variants),
            MAIN_RUNS * len(variants),
            [paper.all_runs["Mean Acc", variant] for variant in variants],
            [paper.max_accuracy[variant] for variant in variants],
        )
    }
    for method in METHODS:
        cells = list(filter(None, (runs.of(variant, MAIN_KERNELS, method) for variant in variants)))
        accuracies = [[run.accuracy for run in own] for own in cells]
        if cells:
            sources[method] = source(
                sum(run.failed for own in cells for run in own),
                sum(map(len, cells)),
                [float(np.mean(own)) for own in accuracies],
                list(map(max, accuracies)),
            )
    return sources


# ---------------------------------------------------------------- variants: histograms, matrices, kernels


def _variant(name: str, results: StudyResults, runs: Runs, paper: PublishedValues) -> dict[str, Any]:
    """Return accuracies and best run of a variant at K = 10, in the paper and by each method."""
    design = variant_of(name)
    return {
        "name": name,
        "feature_sets": [list(each) for each in design.feature_sets],
        "dithered": design.dithered or results.settings.dither == "all",
        "paper": {
            "n": MAIN_RUNS,
            "failed": _failed_in_paper(paper, name),
            "median": paper.ok_runs["Med Acc", name],
            "max": paper.max_accuracy[name],
            "best": _confusion(paper.confusion[name]),
        },
        "methods": {
            method: _histogram(own) | {"best": _best(results.best.get((name, method)))}
            for method in METHODS
            if (own := runs.of(name, MAIN_KERNELS, method))
        },
    }


def _histogram(runs: Sequence[Run]) -> dict[str, Any]:
    # Many accuracies lie exactly between two bins; count them in the upper one.
    bins = np.floor(np.array([run.accuracy for run in runs]) / _BIN + 1e-6).astype(int)
    numbers, counts = np.unique(np.minimum(bins, round(1 / _BIN) - 1), return_counts=True)
    return {
        "n": len(runs),
        "failed": sum(run.failed for run in runs),
        "counts": np.column_stack([numbers, counts]).tolist(),
    }


def _best(best: BestRun | None) -> dict[str, Any] | None:
    if best is None:
        return None
    return {
        **_confusion(best.run.confusion),
        "run": best.run.run,
        "mixtures": [_mixture(each) for each in best.mixtures],
    }


def _confusion(counts: Any) -> dict[str, Any]:
    return {"matrix": counts.tolist(), "accuracy": decimals(np.trace(counts) / counts.sum(), 4)}


def _mixture(fitted: FittedMixture) -> dict[str, Any]:
    prior = decimals(fitted.class_prior_, 5)
    return {"prior": prior, **kernel_values(fitted.weights_, fitted.means_, fitted.covariances_)}


def _rows(data: StudyData) -> dict[str, Any]:
    labels = data.train_labels
    first = [np.flatnonzero(labels == digit)[:_ROWS_PER_DIGIT] for digit in np.unique(labels)]
    kept = np.sort(np.concatenate(first))
    return {
        "features": list(DIGIT_FEATURES),
        "n_rows": len(labels),
        "labels": labels[kept].tolist(),
        "plain": decimals(data.train_features[kept], 4),
        "dithered": decimals(data.train_dithered[kept], 4),
    }


def _sweep(name: str, runs: Runs, paper: PublishedValues) -> dict[str, Any]:
    """Return mean accuracy and lost runs of a variant for each K, in the paper and by each method."""

    def point(n_kernels: int, mean: float, std: float, lost: int, n_runs: int) -> dict[str, Any]:
        mean, std = decimals([mean, std], 4)
        return {"K": n_kernels, "mean": mean, "std": std, "lost": lost, "n": n_runs}

    def rerun(n_kernels: int, own: Sequence[Run]) -> dict[str, Any]:
        counted = counted_in_sweep(own)
        mean, std = (statistics(counted).get(each, np.nan) for each in ("Mean Acc", "Std Acc"))
        return point(n_kernels, mean, std, len(own) - len(counted), len(own))

    return {
        "name": name,
        "paper": [
            point(K, printed.mean, printed.std, SWEEP_RUNS - printed.counted, SWEEP_RUNS)
            for K in SWEEP_KERNELS
            if (printed := paper.sweep.get((K, name))) is not None
        ],
        "methods": {
            method: [rerun(K, own) for K in SWEEP_KERNELS if (own := runs.of(name, K, method, SWEEP_RUNS))]
            for method in METHODS
        },
    }


# ---------------------------------------------------------------- failures and differences


def _failures(table: Table, runs: Runs, paper: PublishedValues) -> dict[str, Any]:
    """Return the table of failures of the paper's algorithm at K = 10 by column, and the paper's numbers."""
    made = {variant: own for variant in runs.variants if (own := runs.of(variant, MAIN_KERNELS, "published"))}
    cells = [(str(MAIN_KERNELS), variant) for variant in made]
    rows = [row for row in table.rows if row.keys in cells]
    counts = [[row.entries[place][0] for row in rows] for place in range(len(table.columns))]
    others = zip(("singular", "above", "finite", "totals"), counts[len(REASONS) :], strict=False)
    return {
        "variants": list(made),
        "reasons": [{"name": each, "counts": own} for each, own in zip(REASONS, counts, strict=False)],
        **dict(others),
        "runs": sum(map(len, made.values())),
        "paper": [_failed_in_paper(paper, variant) for variant in made],
        "paper_runs": MAIN_RUNS,
        "means": _failed_means(made, paper),
    }


def _failed_means(made: Mapping[str, Sequence[Run]], paper: PublishedValues) -> dict[str, str] | None:
    """Return the range of mean accuracies of failed runs, ours and those that tables 1 and 3 imply."""
    implied, ours = [], []
    for variant, own in made.items():
        lost = _failed_in_paper(paper, variant)
        if lost >= _MIN_FAILED:
            succeeded = (MAIN_RUNS - lost) * paper.ok_runs["Mean Acc", variant]
            implied.append((MAIN_RUNS * paper.all_runs["Mean Acc", variant] - succeeded) / lost)
        failed = [run.accuracy for run in own if run.failed]
        if len(failed) >= _MIN_FAILED:
            ours.append(float(np.mean(failed)))
    if not implied or not ours:
        return None
    pairs = {"paper": implied, "ours": ours}
    return {source: f"{min(means):.2f} to {max(means):.2f}" for source, means in pairs.items()}


def _differences(results: StudyResults) -> list[dict[str, str]]:
    """Return the differences of the paper's algorithm, rerun, from the paper, with likely reasons."""
    rows = []
    for found in claims.differences(results):
        share = found.quantity.startswith("share")
        paper, ours = (
            f"{100 * value:.1f} %" if share else number_text(value) for value in (found.printed, found.rerun)
        )
        what = f"{found.variant}: {found.quantity}"
        gap = found.rerun - found.printed
        difference = f"{100 * gap:+.1f} points" if share else f"{gap:+.3f}"
        if found.p_value is not None:
            difference += f", p = {found.p_value:.1g}" if found.p_value >= 1e-6 else ", p < 10⁻⁶"
        rows.append(
            {"what": what, "paper": paper, "ours": ours, "difference": difference, "reason": found.reason}
        )
    return rows


# ---------------------------------------------------------------- the paper's tables

_SWEEP = "table5"


def _table(table: Table, runs: Runs) -> dict[str, Any]:
    """Return a numbered table as lists of strings: labelled sections with a row for each source.

    Rows with the same first key, the K of table 5, go into one section, with their values in one cell. OK
    runs are shown with the number of all runs.
    """
    number = int(table.name.removeprefix("table"))
    title = table.title.removeprefix(f"Table {number}:").strip()
    sections = []
    for key, by_source in table.sections():
        rows = []
        for source, cells in by_source.items():
            method = METHOD_OF_SOURCE.get(source)
            # The paper prints these tables with varying numbers of digits, all others with three decimals.
            printed = method is None and table.name in (_SWEEP, "table6")
            shown = [_cell(cell, printed) for cell in cells]
            if key == OK_RUNS:
                made = [
                    len(runs.of(name, MAIN_KERNELS, method)) if method else MAIN_RUNS
                    for name in table.columns
                ]
                shown = [f"{own}/{n}" if n else own for own, n in zip(shown, made, strict=True)]
            rows.append({"source": method or "paper", "label": source, "cells": shown})
        rows[2:2] = _gaps(by_source, table)
        sections.append({"label": f"K = {key}" if table.name == _SWEEP else key, "rows": rows})
    brackets = "Mean ± standard deviation of accuracy, and in brackets the runs counted. "
    return {
        "number": number,
        "title": title[:1].upper() + title[1:],
        "note": (brackets if table.name == _SWEEP else "") + table.note,
        "columns": ["τ" if column == TAU else column for column in table.columns],
        "sections": sections,
    }


def _gaps(by_source: Mapping[str, Sequence[Entry]], table: Table) -> list[dict[str, Any]]:
    """Return a row of differences, the paper's algorithm rerun minus the printed value, or no row.

    For table 5, these are differences of means. Counts are left out, since the numbers of runs may differ.
    """
    printed, rerun, *_ = by_source.values()
    pairs = [(a[0], b[0]) for a, b in zip(printed, rerun, strict=True)]
    gaps = [b - a if isinstance(a, float) and isinstance(b, float) else None for a, b in pairs]
    # Rankings have Kendall's tau instead.
    if all(gap is None for gap in gaps) or TAU in table.columns:
        return []
    # Adding zero turns -0.000 into +0.000.
    cells = ["–" if gap is None else f"{round(gap, 3) + 0.0:+.3f}" for gap in gaps]
    return [{"source": "difference", "label": "rerun − printed", "cells": cells}]


def _cell(values: Sequence[Value], printed: bool) -> str:
    """Return a value, or the mean, standard deviation and number of runs of table 5, as text."""
    first, *rest = (_number(value, printed) for value in values)
    if not rest or values[-1] is None:
        return first
    return f"{first} ({rest[1]})" if values[0] is None else f"{first} ± {rest[0]} ({rest[1]})"


def _number(value: Value, printed: bool) -> str:
    if printed and isinstance(value, float):
        return f"{value:.2f}" if round(value, 2) == value else str(value)
    return text_of(value) or "–"


# ---------------------------------------------------------------- pictures


def _picture(name: str, content: bytes) -> dict[str, Any]:
    """Return a PNG file of 300 dots per inch as a data URI, with its size on the page in pixels."""
    width, height = (n_dots // 3 for n_dots in struct.unpack(">II", content[16:24]))
    uri = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {"name": name, "uri": uri, "width": width, "height": height}
