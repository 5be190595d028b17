"""The work of `skmix digits` and `skmix reproduce`: simulate, run, print and write.

Options, progress and exit codes are in `skmix.cli`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid

from skmix.io import write_columns
from skmix.io.writing import replacing, writable_folder

from . import harness, study
from .claims import Difference, check_claims, differences
from .digits import make_seven_segment_digits
from .example import IllustrationRecord, run_illustration
from .figures import paper_figures, plot_illustration
from .harness import Claim, Table, claims_table, text_of
from .images import DIGIT_FEATURES, digit_features
from .page import write_report
from .published import FloatArray
from .records import Settings, StudyResults
from .tables import differences_table, make_tables, write_tables
from .variants import MAIN_KERNELS, Cell

# A context manager of the numbers of missing runs, stored runs and processes; its function is called with the
# records of each batch.
Progress = Callable[[int, int, int], AbstractContextManager[Callable[[Sequence[Any]], None]]]

# Formats of the figures, without what would differ from day to day, and between versions of matplotlib.
# Pictures are compressed in half the usual time, to files that are a fifth larger.
_FORMATS: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}
_DPI = 300
# Least width of a terminal that has room for gaps between the columns of ten variants.
_WIDE = 100


def write_digits(out: Path, n_per_digit: int, seed: int) -> int:
    """Simulate digits and return their number.

    `out` is an .npz file for images, labels and features, or a table for features and digits.
    """
    images, labels = make_seven_segment_digits(n_per_digit, random_state=seed)
    features = digit_features(images)
    if out.suffix.lower() == ".npz":
        with replacing(out) as file:
            np.savez_compressed(
                file, images=images, labels=labels, features=features, feature_names=DIGIT_FEATURES
            )
    else:
        write_columns(out, {**dict(zip(DIGIT_FEATURES, features.T, strict=True)), "digit": labels})
    return len(labels)


def reproduce(
    out: Path, settings: Settings, cells: list[Cell], jobs: int | None, console: Console, progress: Progress
) -> dict[str, Any]:
    """Run what is missing, print and write all results, and return tables and claims as plain values."""
    folder = writable_folder(out)
    n_jobs = jobs or joblib.cpu_count()
    record = run_illustration(settings.seed)
    planned = study.make_study(cells, settings)
    # Open the store before writing, so that a damaged store leaves the folder unchanged.
    store = harness.Store(folder / "study.jsonl")
    with replacing(folder / "illustration.json") as file:
        file.write(json.dumps(record.to_dict(), indent=2).encode() + b"\n")
    _print_illustration(console, record)
    missing = harness.missing(planned.planned(), store)
    n_stored = sum(cell.n_runs for cell in planned.cells) - missing
    with harness.Crew(planned, n_jobs) as crew:
        drawn = [crew.each(_save, [(folder, "illustration", partial(plot_illustration, record))])]
        with progress(missing, n_stored, n_jobs) as show:
            study.run_study(planned, store, crew, show)
        # The figures of the digits need no run: they are drawn while this process gathers the results.
        figure_folder = writable_folder(folder / "figures")
        digits = paper_figures(StudyResults(settings, planned.data[0], (), {}, ()))
        drawn.append(crew.each(_save, [(figure_folder, *each) for each in digits.items()]))
        results = study.study_results(planned, store)
        others = [each for each in paper_figures(results).items() if each[0] not in digits]
        # The largest are the last, and take longest.
        later = crew.each(_save, [(figure_folder, *each) for each in reversed(others)])
        tables, claims, found = make_tables(results), check_claims(results), differences(results)
        for each in tables:
            _print_table(console, each)
        _print_claims(console, results, claims, found)
        write_tables(writable_folder(folder / "tables"), results, tables, claims, found)
        list(itertools.chain(*drawn))
        pictures = {name: (figure_folder / f"{name}.png").read_bytes() for name in digits}
        write_report(results, folder / "report.html", pictures)
        list(later)
    console.print(
        f"Written into {folder}: report.html, tables/, figures/, illustration.json, illustration.png, "
        "illustration.pdf; finished runs in study.jsonl.",
        soft_wrap=True,
    )
    return {
        "folder": str(folder),
        "tables": [asdict(each) for each in tables],
        "verdicts": [asdict(each) for each in claims],
        "differences": [asdict(each) for each in found],
    }


def _save(_: object, figure: tuple[Path, str, Callable[[], Any]]) -> None:
    """Draw a figure and save it into a folder; the same figure gives the same bytes."""
    import matplotlib

    folder, name, draw = figure
    drawn = draw()
    # TrueType fonts: many publishers refuse the default, and the text stays editable.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for suffix, settings in _FORMATS.items():
            with replacing(folder / f"{name}.{suffix}") as file:
                drawn.savefig(file, format=suffix, dpi=_DPI, **settings)


# ---------------------------------------------------------------- printing


def _grid(headings: Sequence[str], rows: Sequence[Sequence[str]] = (), *, text: bool = False) -> Grid:
    """Return a grid with a column of names, and columns of numbers or of wrapped text."""
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), show_lines=text)
    for place, heading in enumerate(headings):
        number = place > 0 and not text
        grid.add_column(heading, justify="right" if number else "left", no_wrap=number)
    for row in rows:
        grid.add_row(*row)
    return grid


def _show(console: Console, title: str, grid: Grid, note: str = "") -> None:
    console.print(f"\n{title}", style="bold")
    console.print(grid)
    if note:
        console.print(note)


def _print_illustration(console: Console, record: IllustrationRecord) -> None:
    """Print true and estimated means and covariances of each kernel, and weights of each class."""
    model, lines = record.model, []
    for compared in record.comparisons():
        # Print a line for each kernel or class; of a symmetric matrix, the upper triangle.
        of_classes = compared.name == "weights"
        upper = np.triu_indices(compared.true.shape[-1]) if compared.true.ndim == 3 else (slice(None),)
        values = (compared.true, compared.estimated, compared.standard_error)
        for owner, rows in enumerate(zip(*(each.T if of_classes else each for each in values), strict=True)):
            true, estimated, standard_error = (row[upper] for row in rows)
            errors = (np.abs(estimated - true).max(), standard_error.max())
            name = f"class {owner}" if of_classes else f"{compared.name.removesuffix('s')} {owner}"
            lines.append((name, _numbers(true), _numbers(estimated), *(f"{each:.3f}" for each in errors)))
    # Headings of two lines leave room for the names.
    console.print(_grid(["", "true", "estimated", "largest\nerror", "standard\nerror"], lines))
    ended = "Converged" if model.converged_ else "Did not converge"
    largest = ", ".join(f"{compared.name} {compared.largest_error:.3f}" for compared in record.comparisons())
    console.print(f"{ended} in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.3f}.")
    console.print(f"Largest absolute error: {largest}.")


def _numbers(values: FloatArray) -> str:
    # Adding zero turns -0.000 into 0.000.
    return " ".join(f"{round(float(value), 3) + 0.0:6.3f}" for value in values)


def _print_table(console: Console, table: Table) -> None:
    """Print a table: a heading for each of its rows, and a line for each source.

    Rows with the same first key, such as the K of table 5, are printed as one, with their values side by
    side. Of the table of failures, only the paper's algorithm at K = 10 is printed.
    """
    if table.name == "failures":
        source = table.sources[0]
        rows = [line for line in table.lines if line[0] == str(MAIN_KERNELS) and line[2] == source]
        found = [[variant, *counts] for _, variant, _, *counts in rows if any(counts)]
        if found:
            title = f"Paper's algorithm, rerun: singular and failed runs, K = {MAIN_KERNELS}"
            _show(console, title, _grid(["", *table.columns], found, text=True), table.note)
        return
    grid = _grid(["", *table.columns])
    if console.width < _WIDE:
        grid.padding = 0
    for key, by_source in table.sections():
        grid.add_row(f"{table.key_names[0]} = {key}" if len(table.key_names) > 1 else key, style="bold")
        for source, cells in by_source.items():
            values = (" ".join(filter(None, map(text_of, cell))) for cell in cells)
            grid.add_row(Padding(source, (0, 0, 0, 2)), *values)
        grid.add_section()
    _show(console, table.title, grid, table.note)


def _print_claims(
    console: Console, results: StudyResults, claims: Sequence[Claim], found: Sequence[Difference]
) -> None:
    """Print classifiers that are not in the paper, the checked claims, and differences from the paper."""
    beyond = [[each.description, f"{each.accuracy:.4f}", f"{each.mean_iou:.4f}"] for each in results.beyond]
    _show(console, "Beyond the paper's features", _grid(["classifier", "accuracy", "mean IoU"], beyond))
    checked, differing = claims_table(claims), differences_table(found)
    _show(console, checked.title, _grid(checked.headings, checked.lines, text=True))
    for each in claims:
        if each.note:
            console.print(f"{each.claim}: {each.note}", style="dim")
    if differing.rows:
        _show(console, differing.title, _grid(differing.headings, differing.lines, text=True))
