"""The work of `skmix reproduce`: run, print and write.

Options, progress and exit codes are in `skmix.cli`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import joblib
from rich.console import Console
from rich.markdown import Markdown

from skmix.data.write import replacing, writable_folder

from . import harness, study
from .claims import check_claims, differences
from .example import IllustrationRecord, run_illustration
from .figures import paper_figures, plot_illustration
from .harness import claims_table
from .page import write_report
from .records import Settings, StudyResults
from .tables import differences_table, make_tables, write_tables
from .variants import Cell

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


def reproduce(
    out: Path, settings: Settings, cells: list[Cell], jobs: int | None, console: Console, progress: Progress
) -> None:
    """Run what is missing, write all results, and print the verdicts on the paper's claims."""
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
        tables = make_tables(results)
        verdicts = claims_table(check_claims(results)), differences_table(differences(results))
        for each in verdicts:
            console.print(Markdown(each.markdown()))
        write_tables(writable_folder(folder / "tables"), results, tables, verdicts)
        list(itertools.chain(*drawn))
        pictures = {name: (figure_folder / f"{name}.png").read_bytes() for name in digits}
        write_report(results, folder / "report.html", pictures)
        list(later)
    left = sorted({path.stem for path in figure_folder.glob("*.*")} - {*digits, *dict(others)})
    if left:
        console.print(f"Note: figures/ also has figures of earlier runs: {', '.join(left)}.", soft_wrap=True)
    console.print(
        f"Written into {folder}: report.html, tables/, figures/, illustration.json, illustration.png, "
        "illustration.pdf; finished runs in study.jsonl.",
        soft_wrap=True,
    )


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


def _print_illustration(console: Console, record: IllustrationRecord) -> None:
    """Print how the fit ended, and how far its parameters are from the true ones."""
    model = record.model
    ended = "converged" if model.converged_ else "did not converge"
    largest = ", ".join(f"{compared.name} {compared.largest_error:.3f}" for compared in record.comparisons())
    console.print(
        f"Illustration: {ended} in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.3f}."
    )
    console.print(f"Largest absolute error: {largest}.")
