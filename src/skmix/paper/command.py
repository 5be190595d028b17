"""The work of `skmix reproduce`: run the study, write the results, and return them.

Options, progress and exit codes are in `skmix.cli`.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import joblib

from .claims import Claim, check_claims, claims_table, differences
from .data import Settings
from .example import IllustrationRecord, run_illustration
from .figures import paper_figures, plot_illustration
from .page import write_report
from .study import StudyResults, batches, data_sets, in_parallel, replace_file, run_study, study_results
from .tables import confusion_matrices, make_tables, markdown, text_of
from .variants import LABELS, PRINTED, Cell

# A context manager of the numbers of missing runs, stored runs and processes; its function is called with the
# number of runs of each batch.
Progress = Callable[[int, int, int], AbstractContextManager[Callable[[int], None]]]

# Formats of the figures, without what would differ from day to day, and between versions of matplotlib.
# Pictures are compressed in half the usual time, to files that are a fifth larger.
_FORMATS: dict[str, dict[str, Any]] = {
    "png": {"metadata": {"Software": None}, "pil_kwargs": {"compress_level": 3}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}
_DPI = 300
# Width of the printed lines.
_WIDTH = 80


def reproduce(
    out: Path,
    settings: Settings,
    cells: list[Cell],
    jobs: int | None,
    say: Callable[[str], None],
    progress: Progress,
) -> StudyResults:
    """Run what is missing, write all results into a folder, say what was found, and return the results.

    Raises `StudyError` if a worker process ended unexpectedly.
    """
    runs_folder, figure_folder, table_folder = (out / name for name in ("runs", "figures", "tables"))
    runs_folder.mkdir(parents=True, exist_ok=True)
    n_jobs = jobs or joblib.cpu_count()
    record = run_illustration(settings.seed)
    replace_file(out / "illustration.json", json.dumps(record.to_dict(), indent=2).encode() + b"\n")
    for line in _illustration_in_words(record):
        say(line)

    data = data_sets(cells, settings)
    planned = batches(cells, settings, data, runs_folder)
    n_missing = sum(len(batch.missing()) for batch in planned)
    with progress(n_missing, sum(cell.n_runs for cell in cells) - n_missing, n_jobs) as show:
        runs = run_study(planned, data, n_jobs, show)
    results = study_results(settings, data[0], runs, n_jobs)

    for folder in (figure_folder, table_folder):
        folder.mkdir(exist_ok=True)
    claims, differing = check_claims(results), differences(results)
    for line in claims_in_words(claims):
        say(line)
    write_tables(table_folder, results, claims)
    figures = paper_figures(results)
    # The largest are the last, and take longest.
    drawn = [(figure_folder / name, draw) for name, draw in reversed(figures.items())]
    drawn.append((out / "illustration", partial(plot_illustration, record)))
    list(in_parallel([joblib.delayed(_save)(*each) for each in drawn], n_jobs))
    shown = [name for name in figures if not name.startswith("projections")]
    write_report(
        results, out / "report.html", {name: (figure_folder / f"{name}.png").read_bytes() for name in shown}
    )
    left = sorted({path.stem for path in figure_folder.glob("*.*")} - set(figures))
    if left:
        say(f"Note: figures/ also has figures of earlier runs: {', '.join(left)}.")
    if len(differing):
        say(f"{len(differing)} printed numbers differ from those rerun; see tables/verdicts.md.")
    else:
        say("No printed number differs from that rerun beyond its sampling error.")
    say(
        f"Written into {out}: report.html, tables/, figures/, illustration.json, illustration.png, "
        "illustration.pdf; finished runs in runs/."
    )
    return results


def write_tables(folder: Path, results: StudyResults, claims: list[Claim]) -> None:
    """Write all tables, confusion matrices, claims and differences into a folder, as CSV and Markdown."""
    contents = {
        "confusion_matrices.csv": confusion_matrices(results).to_csv(index=False, lineterminator="\n")
    }
    for name, table in make_tables(results).items():
        contents |= {f"{name}.csv": table.csv(), f"{name}.md": table.markdown()}
    parts = ["# Claims, checked", markdown(claims_table(claims))]
    parts += [f"*{claim.claim}*: {claim.note}" for claim in claims if claim.note]
    parts.append("# Where the paper's algorithm, rerun, differs from the paper")
    found = differences(results).drop(columns="p_value")
    titles = {"printed": PRINTED, "rerun": LABELS["published"], "reason": "likely reason"}
    if len(found):
        parts.append(markdown(found.map(text_of).rename(columns=titles)))
    else:
        parts.append("No difference exceeds its sampling error.")
    contents["verdicts.md"] = "\n\n".join(parts) + "\n"
    for name, content in contents.items():
        replace_file(folder / name, content.encode())


def claims_in_words(claims: list[Claim]) -> list[str]:
    """Return lines on claims: whose they are, whether they hold, and how much the runs can show."""
    lines = []
    for whose, title in (("paper", "the paper"), ("skmix", "skmix")):
        some = [claim for claim in claims if claim.whose == whose]
        if some:
            n_held = sum(claim.holds for claim in some)
            lines += ["", f"Claims of {title}: {n_held} of {len(some)} hold with these runs."]
        for claim in some:
            verdict = "holds" if claim.holds else "FAILS"
            texts = (claim.claim, f"criterion: {claim.target}; found: {claim.measured}", claim.certainty)
            for place, text in enumerate(texts):
                first = f"  {verdict}  " if not place else " " * 9
                lines += textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=" " * 9)
    return [*lines, ""]


def _illustration_in_words(record: IllustrationRecord) -> list[str]:
    """Return how the fit of the illustration ended, and how far its parameters are from the true ones."""
    model = record.model
    ended = "converged" if model.converged_ else "did not converge"
    largest = ", ".join(f"{name} {error:.3f}" for name, error in record.numbers()["largest_error"].items())
    return [
        f"Illustration: {ended} in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.3f}.",
        f"Largest absolute error: {largest}.",
    ]


def _save(path: Path, draw: Callable[[], Any]) -> None:
    """Draw a figure and save it under a path without suffix; the same figure gives the same bytes."""
    import io

    import matplotlib

    figure = draw()
    # TrueType fonts: many publishers refuse the default, and the text stays editable.
    with matplotlib.rc_context({"pdf.fonttype": 42}):
        for suffix, settings in _FORMATS.items():
            figure.savefig(file := io.BytesIO(), format=suffix, dpi=_DPI, **settings)
            replace_file(path.with_name(f"{path.name}.{suffix}"), file.getvalue())
