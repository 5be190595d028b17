"""Tables as files: CSV for programs, Markdown for readers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from skmix.experiments.paper.files import replacing
from skmix.experiments.paper.published_values import published_values
from skmix.experiments.paper.records import StudyResults
from skmix.experiments.paper.tables import METHOD_OF_SOURCE, SOURCES, Row, Table, Value
from skmix.experiments.paper.verdict import Difference, Verdict


def text(value: Value) -> str:
    """Return a value as readers want it: three digits of a fraction, nothing for what is not known."""
    if value is None:
        return ""
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def to_csv(table: Table) -> str:
    """Return a table as CSV, a line for each cell and a column for each source, in full precision."""
    lines: list[list[Value]] = [[*table.key_names, table.column_name, *table.sources]]
    for row in table.rows:
        for column, entry in zip(table.columns, row.entries, strict=True):
            lines.append([*row.keys, column, *entry])
    return _csv(lines)


def to_markdown(table: Table) -> str:
    """Return a table as Markdown: a block of lines for each row, one line for each source."""
    lines = [f"# {table.title}", ""]
    lines += _markdown([*table.key_names, "source", *table.columns], _spread(table))
    if table.note:
        lines += ["", table.note]
    return "\n".join(lines) + "\n"


def source_lines(table: Table, row: Row) -> list[tuple[str, list[str]]]:
    """Return a row's values as text, source by source."""
    return [
        (source, [text(entry[place]) for entry in row.entries]) for place, source in enumerate(table.sources)
    ]


def confusion_csv(results: StudyResults) -> str:
    """Return the confusion matrices of the best runs as CSV, the published ones too, digits in order 0..9."""
    header: list[Value] = ["variant", "source", "run", "true digit", *range(10)]
    lines = [header]
    printed = published_values().confusion
    variants = list(dict.fromkeys(variant for variant, _ in results.best))
    for variant in variants:
        for source in SOURCES:
            run: Value = None
            if source == "published":
                matrix = printed[variant]
            elif (variant, METHOD_OF_SOURCE[source]) in results.best:
                best = results.best[variant, METHOD_OF_SOURCE[source]].run
                matrix, run = best.confusion, best.run
            else:
                continue
            for digit, counts in enumerate(matrix.tolist()):
                lines.append([variant, source, run, digit, *counts])
    return _csv(lines)


def verdicts_markdown(verdicts: Iterable[Verdict], differences: Iterable[Difference]) -> str:
    """Return the checked claims, and the differences from the paper with likely reasons, as Markdown."""
    verdicts = list(verdicts)
    lines = ["# What the study must show", ""]
    lines += _markdown(
        ["claim", "target", "measured", "holds"],
        [[v.claim, v.target, v.measured, "yes" if v.holds else "**no**"] for v in verdicts],
    )
    lines += ["", *(f"- *{v.claim}*: {v.note}" for v in verdicts if v.note)]
    rows = [[d.variant, d.quantity, text(d.published), text(d.rerun), d.reason] for d in differences]
    lines += ["", "# Where the published method, run again, differs from the paper", ""]
    if rows:
        lines += _markdown(["variant", "quantity", "published", "rerun", "likely reason"], rows)
    else:
        lines += ["Nowhere by more than chance explains."]
    return "\n".join(lines) + "\n"


def write_tables(
    folder: Path,
    results: StudyResults,
    tables: Iterable[Table],
    verdicts: Iterable[Verdict],
    differences: Iterable[Difference],
) -> None:
    """Write all tables into a folder, CSV and Markdown, with confusion matrices and verdicts.

    Parameters
    ----------
    folder : Path
        An existing folder.
    results : StudyResults
        For the confusion matrices.
    tables : iterable of Table
        What to write as ``<name>.csv`` and ``<name>.md``.
    verdicts : iterable of Verdict
        Go to ``verdicts.md``,
    differences : iterable of Difference
        like these.
    """
    for table in tables:
        _write(folder / f"{table.name}.csv", to_csv(table))
        _write(folder / f"{table.name}.md", to_markdown(table))
    _write(folder / "confusion_matrices.csv", confusion_csv(results))
    _write(folder / "verdicts.md", verdicts_markdown(verdicts, differences))


def _write(path: Path, content: str) -> None:
    with replacing(path) as file:
        file.write(content.encode())


def _csv(lines: Iterable[Sequence[Value]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> list[str]:
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return [
        "| " + " | ".join(header) + " |",
        "|" + " --- |" * len(header),
        *("| " + " | ".join(line) + " |" for line in escaped),
    ]


def _spread(table: Table) -> list[list[str]]:
    lines = []
    for row in table.rows:
        for source, values in source_lines(table, row):
            lines.append([*row.keys, source, *values])
    return lines
