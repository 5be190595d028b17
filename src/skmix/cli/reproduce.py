"""`skmix reproduce`: the paper's experiments."""

from __future__ import annotations

import enum
import importlib.util
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import joblib
import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

import skmix
from skmix import paper as study
from skmix.cli import _common as cli
from skmix.cli._progress import display
from skmix.engine.compute import how_to_install
from skmix.engine.compute.dask import ClusterError, connect
from skmix.paper import figures as figures_of
from skmix.paper import harness
from skmix.paper.harness import text_of
from skmix.paper.page import write_report
from skmix.plots._common import save_figure

# Formats of the figures, and their resolutions.
_FORMATS = (("png", 300), ("pdf", 300))


class MethodChoice(enum.StrEnum):
    """How a variant is fitted."""

    PUBLISHED = "published"
    ROBUST = "robust"
    CLASS_WISE = "class-wise"


@cli.app.command(epilog=cli.examples("skmix reproduce", "skmix reproduce --only 3D --runs 20 --out small"))
def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("results"),
    seed: Annotated[
        int, typer.Option(help="Seed of the simulated data and of every start.", min=0, max=2**32 - 1)
    ] = study.Settings.seed,
    runs: Annotated[int, typer.Option(help="Runs of each variant and method.", min=1)] = study.MAIN_RUNS,
    only: Annotated[
        list[str] | None, typer.Option(help="Only this variant, such as 3D; may be given several times.")
    ] = None,
    method: Annotated[
        list[MethodChoice] | None,
        typer.Option(
            "--method",
            "--way",
            help="Only this method: published (the paper's algorithm, rerun), robust or class-wise; may be "
            "given several times.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to use; by default one for each core.", min=1)
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            help="Make the runs on a Dask cluster: the address of its scheduler, such as "
            "tcp://10.0.0.1:8786.",
            metavar="ADDRESS",
        ),
    ] = None,
    dither: Annotated[
        Literal["all", "paper"],
        typer.Option(
            help="Replace zero features in all variants, as the paper's numbers suggest, or as its text "
            "says, in 10D and 13D."
        ),
    ] = "all",
    as_json: cli.Json = False,
) -> None:
    """Reproduce the paper: its illustration, its study of seven-segment digits, all tables and figures.

    Prints the paper's numbers next to ours and writes tables (CSV, Markdown),
    figures (PNG, PDF) and a report (HTML). Finished runs are stored: run the
    same command again to continue after an interruption.
    """
    if importlib.util.find_spec("jinja2") is None:
        cli.stop(f"The report needs jinja2: {how_to_install('report')}", cli.NOT_INSTALLED)
    settings = study.Settings(seed=seed, dither=dither)
    stored = "interrupted. Finished runs are stored; run the same command again to continue."
    with cli.guarded(cli.WRONG_USE, stored), cli.failing(f"cannot write the results into {out}"):
        cells = study.study_cells(runs, only, [choice.value for choice in method or MethodChoice])
        try:
            with cli.text_aside(as_json):
                outcome = _reproduce(out, settings, cells, jobs, dask)
        except (harness.ExperimentError, ClusterError) as error:
            cli.stop(str(error), cli.ENDED_EARLY)
    if as_json:
        cli.print_json(outcome)


def _reproduce(
    out: Path, settings: study.Settings, cells: list[study.Cell], jobs: int | None, dask: str | None
) -> dict[str, Any]:
    """Run what is missing, print and write everything; return tables and claims as plain values."""
    # Connect first, to report a wrong address immediately.
    with nullcontext() if dask is None else connect(dask, skmix.__version__) as cluster:
        folder = harness.writable_folder(out)
        record = study.run_illustration(settings.seed)
        picture = figures_of.plot_illustration(record)[0].figure
        planned = study.make_study(cells, settings)
        # Open the store before writing, so that a damaged store leaves the folder unchanged.
        with harness.Store(folder / "study.sqlite") as store:
            harness.write_json(folder / "illustration.json", record.to_dict())
            _save(folder, ("illustration", lambda: picture))
            _print_illustration(record)
            n_jobs = jobs or joblib.cpu_count() if cluster is None else sum(cluster.nthreads().values())
            missing = harness.missing(planned.planned(), store)
            stored = sum(cell.n_runs for cell in planned.cells) - missing
            with progress(cli.console(), missing, stored, n_jobs) as show:
                study.run_study(planned, store, n_jobs=n_jobs, cluster=cluster, progress=show)
            results = study.study_results(planned, store)
    tables, claims = study.make_tables(results), study.check_claims(results)
    differences = study.differences(results)
    for each in tables:
        _print_table(each)
    _print_claims(results, claims, differences)
    study.write_tables(harness.writable_folder(folder / "tables"), results, tables, claims, differences)
    figure_folder = harness.writable_folder(folder / "figures")
    figures = figures_of.paper_figures(results)
    for _ in harness.spread(_save, figure_folder, list(figures.items()), jobs or joblib.cpu_count()):
        pass
    pictures = {name: (figure_folder / f"{name}.png").read_bytes() for name in figures}
    write_report(results, folder / "report.html", figures=pictures, tables=tables, verdicts=claims)
    cli.say(
        f"Written into {folder}: report.html, tables/, figures/, illustration.json, illustration.png, "
        "illustration.pdf; finished runs in study.sqlite."
    )
    return {
        "folder": str(folder),
        "tables": [asdict(each) for each in tables],
        "verdicts": [asdict(each) for each in claims],
        "differences": [asdict(each) for each in differences],
    }


def _save(folder: Path, figure: tuple[str, Callable[[], Any]]) -> None:
    """Draw a figure and save it into a folder."""
    name, draw = figure
    drawn = draw()
    for suffix, dpi in _FORMATS:
        save_figure(drawn, folder / f"{name}.{suffix}", dpi=dpi)


@contextmanager
def progress(
    terminal: Console, n_runs: int, n_stored: int, n_jobs: int
) -> Iterator[Callable[[Sequence[Any]], None]]:
    """Show progress of the study: a bar with the time left on a terminal, otherwise a few lines.

    `n_runs` are to be made, `n_stored` exist already. Yields a function to call with the runs of each batch.
    """
    if n_stored:
        cli.say(f"{n_stored} runs are already stored.")
    if not n_runs:
        yield lambda runs: None
        return
    cli.say(f"Making {n_runs} runs on {cli.counted(n_jobs, 'process', 'processes')}.")
    begun, done = time.monotonic(), 0
    with display(terminal, 0.0) as watch, watch.steps("runs", n_runs) as report_steps:

        def show(runs: Sequence[Any]) -> None:
            nonlocal done
            before, done = done, done + len(runs)
            report_steps(f"{done}/{n_runs}", steps=len(runs))
            # Without a terminal, a line for every quarter of the runs.
            if not terminal.is_terminal and 4 * before // n_runs < 4 * done // n_runs < 4:
                cli.say(f"{done} of {n_runs} runs done.")

        yield show
    cli.say(f"Made {n_runs} runs in {time.monotonic() - begun:.0f} s.")


def _print_illustration(record: study.IllustrationRecord) -> None:
    """Print true and estimated parameters, a line for each mean, covariance and column of weights."""
    model = record.model
    shown = cli.table(["", "true", "estimated", "", ""])
    for column, heading in zip(shown.columns[3:], ("largest\nerror", "standard\nerror"), strict=True):
        column.header = heading  # in two lines, to leave room for the names
    for compared in record.comparisons():
        # A line for each kernel or class; for a symmetric matrix, its upper triangle.
        of_classes = compared.name == "weights"
        upper = np.triu_indices(compared.true.shape[-1]) if compared.true.ndim == 3 else (slice(None),)
        owners = model.classes_.tolist() if of_classes else range(len(compared.true))
        shown.add_row(compared.name, style="bold")
        for line, owner in enumerate(owners):
            true, estimated, standard_error = (
                (values.T if of_classes else values)[line][upper]
                for values in (compared.true, compared.estimated, compared.standard_error)
            )
            shown.add_row(
                f"  class {owner}" if of_classes else f"  kernel {owner}",
                _numbers(true),
                _numbers(estimated),
                f"{np.abs(estimated - true).max():.3f}",
                f"{standard_error.max():.3f}",
            )
        shown.add_section()
    cli.console().print(shown)
    ended = "Converged" if model.converged_ else "Did not converge"
    cli.say(f"{ended} in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.3f}.")
    errors = ", ".join(f"{compared.name} {compared.largest_error:.3f}" for compared in record.comparisons())
    cli.say(f"Largest absolute error: {errors}.")


def _numbers(values: NDArray[np.float64]) -> str:
    # Adding zero turns -0.000 into 0.000.
    return " ".join(f"{round(float(value), 3) + 0.0:6.3f}" for value in values)


def _print_table(printed: harness.Table) -> None:
    """Print a table: a heading for each of its rows, and a line for each source.

    Rows that share their first key, such as the K of table 5, are printed as one, with their values side by
    side. Of the table of failures, only those of the paper's algorithm at its K are printed.
    """
    if printed.name == "failures":
        found = [
            [row.keys[1], *printed.source_lines(row)[0][1]]
            for row in printed.rows
            if row.keys[0] == str(study.MAIN_KERNELS) and any(printed.source_lines(row)[0][1])
        ]
        if found:
            title = f"Paper's algorithm, rerun: singular and failed runs, K = {study.MAIN_KERNELS}"
            _show(title, cli.table(["", *printed.columns], found, wrap=True), printed.note)
        return
    shown = cli.table(["", *printed.columns])
    if cli.console().width < 100:
        shown.padding = 0  # leaves room for the names of ten variants beside those of the sources
    for key, group in itertools.groupby(printed.rows, key=lambda row: row.keys[0]):
        rows = list(group)
        shown.add_row(f"{printed.key_names[0]} = {key}" if len(rows[0].keys) > 1 else key, style="bold")
        for lines in zip(*(printed.source_lines(row) for row in rows), strict=True):
            values = zip(*(values for _, values in lines), strict=True)
            name = Padding(lines[0][0], (0, 0, 0, 2))
            shown.add_row(name, *(" ".join(filter(None, each)) for each in values))
        shown.add_section()
    _show(printed.title, shown, printed.note)


def _print_claims(
    results: study.StudyResults, claims: Sequence[harness.Claim], differences: Sequence[study.Difference]
) -> None:
    """Print classifiers that are not in the paper, the checked claims, and differences from the paper."""
    beyond = [[each.description, f"{each.accuracy:.4f}", f"{each.mean_iou:.4f}"] for each in results.beyond]
    _show("Beyond the paper's features", cli.table(["classifier", "accuracy", "mean IoU"], beyond))
    rows = [[each.claim, each.target, each.measured, "yes" if each.holds else "NO"] for each in claims]
    _show(
        "Claims, checked", cli.table(["claim", "criterion", "measured", "holds"], rows, wrap=True, lines=True)
    )
    for each in claims:
        if each.note:
            cli.console().print(f"{each.claim}: {each.note}", style="dim")
    if differences:
        headings = ["variant", "quantity", study.PRINTED, study.LABELS["published"], "likely reason"]
        rows = [
            [each.variant, each.quantity, text_of(each.printed), text_of(each.rerun), each.reason]
            for each in differences
        ]
        title = "Where the paper's algorithm, rerun, differs from the paper"
        _show(title, cli.table(headings, rows, wrap=True, lines=True))


def _show(title: str, shown: Table, note: str = "") -> None:
    cli.console().print(f"\n{title}", style="bold")
    cli.console().print(shown)
    if note:
        cli.console().print(note)
