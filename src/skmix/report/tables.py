"""The study's tables for its page: rows of strings under headings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from skmix.experiments.harness import Row, Table, Value
from skmix.experiments.paper.tables import METHOD_OF_SOURCE, TAU
from skmix.report.study_text import METHOD_LABELS

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
# The paper prints these tables with varying numbers of digits, all others with three decimals.
_AS_PRINTED = ("table5", "table6")
_SWEEP = "table5"
_DASH = "–"


def table_entries(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """Return the numbered tables as plain lists of strings; other tables have their own sections.

    A table has ``number``, ``title``, ``note``, ``columns`` and ``groups``: under a ``label``, a row for each
    source.
    """
    return [_entry(table) for table in tables if table.name.startswith("table")]


def _entry(table: Table) -> dict[str, Any]:
    number = int(table.name.removeprefix("table"))
    title = table.title.removeprefix(f"Table {number}:").strip()
    note = table.note
    if table.name == _SWEEP:
        note = f"Mean ± standard deviation of accuracy, and in brackets the runs counted. {note}"
        # Mean, standard deviation and number of runs of each K go into one cell.
        by_kernels: dict[str, dict[str, Row]] = {}
        for row in table.rows:
            by_kernels.setdefault(row.keys[0], {})[row.keys[1]] = row
        groups = [
            _group(table, f"K = {n_kernels}", lambda *place, parts=parts: _sweep_cell(table, parts, *place))
            for n_kernels, parts in by_kernels.items()
        ]
    else:
        groups = [
            _group(
                table,
                " ".join(_METRICS.get(key, key) for key in row.keys),
                lambda column, place, row=row: _text(row.entries[column][place], table, place),
            )
            for row in table.rows
        ]
    return {
        "number": number,
        "title": title[:1].upper() + title[1:],
        "note": note,
        "columns": ["τ" if column == TAU else column for column in table.columns],
        "groups": groups,
    }


def _group(table: Table, label: str, cell: Any) -> dict[str, Any]:
    """Return rows of cells for each source; `cell` takes the places of column and source."""
    rows = []
    for place, source in enumerate(table.sources):
        method = METHOD_OF_SOURCE.get(source)
        rows.append(
            {
                "source": method or "paper",
                "label": METHOD_LABELS[method] if method else "paper",
                "cells": [cell(column, place) for column in range(len(table.columns))],
            }
        )
    return {"label": label, "rows": rows}


def _sweep_cell(table: Table, parts: dict[str, Row], column: int, place: int) -> str:
    mean, spread, counted = (
        parts[part].entries[column][place] if part in parts else None for part in ("mean", "std", "counted")
    )
    if mean is None:
        return _DASH if counted is None else f"{_DASH} ({counted})"
    return f"{_text(mean, table, place)} ± {_text(spread, table, place)} ({counted})"


def _text(value: Value, table: Table, place: int) -> str:
    if value is None:
        return _DASH
    if not isinstance(value, float):
        return str(value)
    if table.name in _AS_PRINTED and table.sources[place] not in METHOD_OF_SOURCE:
        return f"{value:.2f}" if round(value, 2) == value else str(value)
    return f"{value:.3f}"
