"""The study's tables in the shape that the page asks for: lines of strings under headings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from skmix.experiments.harness import Row, Table
from skmix.experiments.harness.tables import Value
from skmix.experiments.paper.tables import METHOD_OF_SOURCE, TAU
from skmix.report.words import METHOD_LABELS

_METRICS = {
    "Med Acc": "Median accuracy",
    "Mean Acc": "Mean accuracy",
    "Std Acc": "Standard deviation of accuracy",
    "Med MIoU": "Median of mean IoU",
    "Mean MIoU": "Mean of mean IoU",
    "Std MIoU": "Standard deviation of mean IoU",
    "OK runs": "Successful runs",
    "mean": "Mean accuracy",
    "maximum": "Highest accuracy",
}
# The paper prints these tables with as many digits as it likes; the others all with three decimals.
_AS_PRINTED = ("table5", "table6")
_SWEEP = "table5"
_DASH = "–"


def table_entries(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return the numbered tables as plain lists of strings.

    Parameters
    ----------
    tables : iterable of Table
        Those of `skmix.experiments.paper.tables.make_tables`; tables without a number are shown elsewhere.

    Returns
    -------
    list of dict
        ``number``, ``title``, ``note``, ``columns`` and ``groups``: under a ``label`` a line for each source.
    """
    return [_entry(table) for table in tables if table.name.startswith("table")]


def _entry(table: Table) -> dict[str, Any]:
    number = int(table.name.removeprefix("table"))
    groups = _sweep_groups(table) if table.name == _SWEEP else _groups(table)
    note = table.note
    if table.name == _SWEEP:
        note = f"Mean ± standard deviation of accuracy, and in brackets the runs counted. {note}"
    title = table.title.removeprefix(f"Table {number}:").strip()
    return {
        "number": number,
        "title": title[:1].upper() + title[1:],
        "note": note,
        "columns": ["τ" if column == TAU else column for column in table.columns],
        "groups": groups,
    }


def _groups(table: Table) -> list[dict[str, Any]]:
    return [
        {
            "label": " ".join(_METRICS.get(key, key) for key in row.keys),
            "rows": [
                _line(source, [_text(entry[place], table, source) for entry in row.entries])
                for place, source in enumerate(table.sources)
            ],
        }
        for row in table.rows
    ]


def _sweep_groups(table: Table) -> list[dict[str, Any]]:
    """Put mean, standard deviation and number of runs of each K into one cell."""
    by_kernels: dict[str, dict[str, Row]] = {}
    for row in table.rows:
        n_kernels, part = row.keys
        by_kernels.setdefault(n_kernels, {})[part] = row
    return [
        {
            "label": f"K = {n_kernels}",
            "rows": [
                _line(source, [_cell(parts, column, place, table) for column in range(len(table.columns))])
                for place, source in enumerate(table.sources)
            ],
        }
        for n_kernels, parts in by_kernels.items()
    ]


def _cell(parts: dict[str, Row], column: int, place: int, table: Table) -> str:
    mean, spread, counted = (
        parts[part].entries[column][place] if part in parts else None for part in ("mean", "std", "counted")
    )
    source = table.sources[place]
    if mean is None:
        return _DASH if counted is None else f"{_DASH} ({counted})"
    return f"{_text(mean, table, source)} ± {_text(spread, table, source)} ({counted})"


def _line(source: str, cells: Sequence[str]) -> dict[str, Any]:
    method = METHOD_OF_SOURCE.get(source)
    return {
        "source": method or "paper",
        "label": METHOD_LABELS[method] if method else "paper",
        "cells": list(cells),
    }


def _text(value: Value, table: Table, source: str) -> str:
    if value is None:
        return _DASH
    if isinstance(value, float) and not (table.name in _AS_PRINTED and source not in METHOD_OF_SOURCE):
        return f"{value:.3f}"
    if isinstance(value, float):
        return f"{value:.2f}" if round(value, 2) == value else str(value)
    return str(value)
