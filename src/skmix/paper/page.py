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
import pandas as pd

from skmix.report.rendering import decimals, in_words, kernel_values, line_styles, number_text, render_page

from . import claims
from .data import StudyData
from .images import DIGIT_FEATURES
from .methods import BestRun, FittedMixture
from .printed import OK_RUNS, failed_in_paper, published_values
from .study import StudyResults, at_main, main_runs, replace_file, variants_of
from .tables import METHOD_OF_SOURCE, SOURCES, TAU, Table, make_tables, succeeded, text_of
from .variants import LABELS, MAIN_KERNELS, MAIN_RUNS, METHODS, PRINTED, VARIANTS

__all__ = ["render", "report_data", "write_report"]

# Training rows of each digit in the explorer: more make the page larger, but not clearer.
_ROWS_PER_DIGIT = 150
# Fewest failed runs of which the mean is inferred: printed means have only three decimals.
_MIN_FAILED = 10


def write_report(
    results: StudyResults, path: str | os.PathLike[str], figures: Mapping[str, bytes] | None = None
) -> Path:
    """Write the study's report, one HTML file that fetches nothing, and return its path.

    `figures` are PNG pictures of 300 dots per inch by their names in `skmix.paper.figures.paper_figures`. The
    page shows those of the digits and of all runs; the explorer draws the kernels. The same arguments give
    the same bytes.
    """
    replace_file(path, render(report_data(results, figures)).encode())
    return Path(path)


def render(data: Mapping[str, Any]) -> str:
    """Render the output of `report_data`."""
    return render_page("report.html.j2", data, "skmix.paper")


def report_data(results: StudyResults, figures: Mapping[str, bytes] | None = None) -> dict[str, Any]:
    """Return the contents of the report as strings, numbers, lists and dictionaries, ready for JSON.

    Parameters are those of `write_report`. The result depends only on them and the versions of the libraries.
    """
    runs, variants = main_runs(results.runs), variants_of(results.runs)
    tables = make_tables(results)
    failures = tables.pop("failures")
    numbers = at_main(runs).groupby("method")["variant"].value_counts()
    checked = claims.check_claims(results)
    settings, best = results.settings, list(results.best.values())
    commands = [f"skmix reproduce --seed {settings.seed} --dither {settings.dither}"]
    if best:
        commands.append(_repeat(best[-1], results))
    return {
        "title": f"Shared kernel models: {_part(runs, variants)}, run again",
        "methods": [{"key": method, "label": LABELS[method]} for method in METHODS],
        "digits": list(range(10)),
        "main_kernels": MAIN_KERNELS,
        "sources": _sources(runs, variants),
        "n_variants": len(VARIANTS),
        "headline": claims.headline(results),
        "claims": {
            whose: [asdict(claim) for claim in checked if claim.whose == whose]
            for whose in ("paper", "skmix")
        },
        "variants": [_variant(name, results) for name in variants],
        "explorer": _rows(results.data),
        **line_styles(),
        # A single variant has no rank.
        "tables": [
            _table(table, numbers)
            for table in tables.values()
            if TAU not in table.cells.index.get_level_values(-1) or len(variants) > 1
        ],
        "figures": {name: _picture(content) for name, content in (figures or {}).items()},
        "failures": _failures(failures, runs),
        "differences": [_difference(row) for row in claims.differences(results).itertuples()],
        "level": claims.LEVEL,
        "beyond": results.beyond.to_dict("records"),
        "made": {
            "settings": asdict(settings),
            "versions": {name: version(name) for name in ("skmix", "numpy", "scipy", "scikit-learn")}
            | {"Python": platform.python_version()},
            "commands": commands,
        },
    }


def _repeat(best: BestRun, results: StudyResults) -> str:
    which = f"{best.variant!r}, {MAIN_KERNELS}, {best.method!r}, {best.run}"
    return (
        f'python -c "from skmix import paper as s; t = s.{results.settings!r}; '
        f'print(s.run_one(s.make_data(t), {which}, t))"'
    )


def _part(runs: pd.DataFrame, variants: list[str]) -> str:
    """Return which part of the paper was run, in words."""
    methods = [method for method in METHODS if (runs["method"] == method).any()]
    if len(variants) == len(VARIANTS) and len(methods) == len(METHODS):
        return "the whole paper"
    return f"part of the paper ({in_words(variants)}; {in_words(LABELS[method] for method in methods)})"


def _sources(runs: pd.DataFrame, variants: list[str]) -> dict[str, dict[str, Any]]:
    """Return the headline numbers of the paper and of each method: failures, mean and best accuracy."""
    paper, found = published_values(), {}
    failures = sum(failed_in_paper(name, MAIN_RUNS) for name in variants)
    means = paper.all_runs.loc["Mean Acc", variants], paper.extremes.loc[variants, "maximum"]
    found["paper"] = (failures, MAIN_RUNS * len(variants), *means)
    for method in METHODS:
        cells = at_main(runs, method)
        if len(cells):
            by_variant = cells.groupby("variant")["accuracy"]
            found[method] = int((~succeeded(cells)).sum()), len(cells), by_variant.mean(), by_variant.max()
    return {
        name: {
            "failures": failures,
            "runs": n,
            "mean": number_text(mean.mean()),
            "best": number_text(best.mean()),
        }
        for name, (failures, n, mean, best) in found.items()
    }


# ---------------------------------------------------------------- variants, explorer and pictures


def _variant(name: str, results: StudyResults) -> dict[str, Any]:
    """Return the design of a variant, and the best run at K = 10 in the paper and of each method."""
    design = VARIANTS[name]
    best = {method: results.best[name, method] for method in METHODS if (name, method) in results.best}
    return {
        "name": name,
        "feature_sets": [list(names) for names in design.feature_sets],
        "dithered": design.dithered or results.settings.dither == "all",
        "paper": _confusion(published_values().confusion[name]),
        "methods": {
            method: {
                **_confusion(run.confusion),
                "run": run.run,
                "mixtures": [_mixture(mixture) for mixture in run.mixtures],
            }
            for method, run in best.items()
        },
    }


def _confusion(counts: Any) -> dict[str, Any]:
    return {"matrix": counts.tolist(), "accuracy": decimals(np.trace(counts) / counts.sum(), 4)}


def _mixture(fitted: FittedMixture) -> dict[str, Any]:
    prior = decimals(fitted.class_prior_, 5)
    return {"prior": prior, **kernel_values(fitted.weights_, fitted.means_, fitted.covariances_)}


def _rows(data: StudyData) -> dict[str, Any]:
    """Return the first training rows of each digit, for the explorer."""
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


def _picture(content: bytes) -> dict[str, Any]:
    """Return a PNG file of 300 dots per inch as a data URI, with its size on the page in pixels."""
    width, height = (n_dots // 3 for n_dots in struct.unpack(">II", content[16:24]))
    uri = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    return {"uri": uri, "width": width, "height": height}


# ---------------------------------------------------------------- failures and differences


def _failures(table: Table, runs: pd.DataFrame) -> dict[str, Any]:
    """Return the failures of the paper's algorithm at K = 10, a list for each outcome, and the paper's."""
    counts = table.cells[LABELS["published"]].unstack(sort=False).dropna()
    counts = counts[counts.index.get_level_values("K") == MAIN_KERNELS].droplevel("K")
    return {
        "variants": counts.index.tolist(),
        "outcomes": counts.to_dict("list"),
        "paper": [failed_in_paper(name, MAIN_RUNS) for name in counts.index],
        "paper_runs": MAIN_RUNS,
        "means": _failed_means(at_main(runs, "published")),
    }


def _failed_means(runs: pd.DataFrame) -> list[str]:
    """Return the ranges of mean accuracies of failed runs, as tables 1 and 3 imply and ours, or nothing."""
    paper = published_values()
    n_ok, n_made = paper.ok_runs.loc[OK_RUNS], MAIN_RUNS
    in_failed = n_made * paper.all_runs.loc["Mean Acc"] - n_ok * paper.ok_runs.loc["Mean Acc"]
    implied = (in_failed / (n_made - n_ok))[n_made - n_ok >= _MIN_FAILED]
    failed = runs[~succeeded(runs)].groupby("variant")["accuracy"].agg(["mean", "size"])
    means = implied[implied.index.isin(runs["variant"])], failed.loc[failed["size"] >= _MIN_FAILED, "mean"]
    return [f"{each.min():.2f} to {each.max():.2f}" for each in means] if all(map(len, means)) else []


def _difference(row: Any) -> dict[str, str]:
    """Return a difference of the paper's algorithm, rerun, from the paper, in words."""
    gap = row.rerun - row.printed
    paper, ours, difference = number_text(row.printed), number_text(row.rerun), f"{gap:+.3f}"
    if row.quantity.startswith("share"):
        paper, ours = (f"{100 * value:.1f} %" for value in (row.printed, row.rerun))
        difference = f"{100 * gap:+.1f} points"
    if not np.isnan(row.p_value):
        difference += f", p = {row.p_value:.1g}" if row.p_value >= 1e-6 else ", p < 10⁻⁶"
    what = f"{row.variant}: {row.quantity}"
    return {"what": what, "paper": paper, "ours": ours, "difference": difference, "reason": row.reason}


# ---------------------------------------------------------------- the paper's tables


def _table(table: Table, n_runs: pd.Series) -> dict[str, Any]:
    """Return a numbered table as lists of strings: labelled sections with a row for each source.

    Rows with the same first key, the K of table 5, go into one section, with their values in one cell. OK
    runs are shown with the number of all runs, `n_runs` by method and variant.
    """
    number = int(table.name.removeprefix("table"))
    is_sweep = table.cells.index.names[0] == "K"
    columns = list(dict.fromkeys(table.cells.index.get_level_values(-1)))
    sections = []
    for key, section in table.cells.groupby(level=0, sort=False):
        entries = [section.xs(column, level=-1) for column in columns]
        rows = []
        for source in table.cells:
            # The paper prints these tables with varying numbers of digits, all others with three decimals.
            as_printed = source == PRINTED and table.name in ("table5", "table6")
            cells = [_cell(entry[source].tolist(), as_printed) for entry in entries]
            method = METHOD_OF_SOURCE.get(source)
            if key == OK_RUNS:
                made = [n_runs.get((method, name), 0) if method else MAIN_RUNS for name in columns]
                cells = [f"{cell}/{n}" if n else cell for cell, n in zip(cells, made, strict=True)]
            rows.append({"source": method or "paper", "label": source, "cells": cells})
        # Rankings have Kendall's tau instead.
        if TAU not in columns:
            rows[2:2] = _gaps(entries)
        sections.append({"label": f"K = {key}" if is_sweep else key, "rows": rows})
    title = table.title.removeprefix(f"Table {number}:").strip()
    brackets = "Mean ± standard deviation of accuracy, and in brackets the runs counted. " if is_sweep else ""
    return {
        "number": number,
        "title": title[:1].upper() + title[1:],
        "note": brackets + table.note,
        "columns": ["τ" if column == TAU else column for column in columns],
        "sections": sections,
    }


def _gaps(entries: Sequence[pd.DataFrame]) -> list[dict[str, Any]]:
    """Return a row of differences, the paper's algorithm rerun minus the printed value, or no row.

    For table 5, these are differences of means. Counts are left out, since the numbers of runs may differ.
    """
    pairs = [entry[list(SOURCES[:2])].iloc[0].tolist() for entry in entries]
    known = [all(isinstance(value, float) for value in pair) for pair in pairs]
    # Adding zero turns -0.000 into +0.000.
    cells = [f"{round(b - a, 3) + 0.0:+.3f}" if ok else "–" for (a, b), ok in zip(pairs, known, strict=True)]
    return [{"source": "difference", "label": "rerun − printed", "cells": cells}] if any(known) else []


def _cell(values: Sequence[Any], as_printed: bool) -> str:
    """Return a value, or the mean, standard deviation and number of runs of table 5, as text."""
    first, *rest = (_number(value, as_printed) for value in values)
    if not rest or values[-1] is None:
        return first
    return f"{first} ({rest[1]})" if values[0] is None else f"{first} ± {rest[0]} ({rest[1]})"


def _number(value: Any, as_printed: bool) -> str:
    if as_printed and isinstance(value, float):
        return f"{value:.2f}" if round(value, 2) == value else str(value)
    return text_of(value) or "–"
