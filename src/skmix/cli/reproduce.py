"""`skmix reproduce`: the paper's experiments."""

from __future__ import annotations

import enum
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import joblib
import numpy as np
import typer
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

import skmix
from skmix import plots, report
from skmix.cli._common import (
    ENDED_EARLY,
    INTERRUPTED,
    NOT_INSTALLED,
    WRONG_USE,
    Json,
    app,
    examples,
    print_json,
    stop,
    text_aside,
)
from skmix.cli._study import print_tables, print_verdicts, progress
from skmix.engine.compute.dask import ClusterError, connect, n_threads
from skmix.experiments import harness
from skmix.experiments import paper as study


class MethodChoice(enum.StrEnum):
    """How a variant is fitted."""

    PUBLISHED = "published"
    ROBUST = "robust"
    CLASS_WISE = "class-wise"


class DitherChoice(enum.StrEnum):
    """Where zero features are replaced by small random numbers."""

    ALL = "all"
    PAPER = "paper"


@app.command(epilog=examples("skmix reproduce", "skmix reproduce --only 3D --runs 20 --out small"))
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
        typer.Option("--method", "--way", help="Only this method; may be given several times."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Processes to use; by default one for each core.", min=1)
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            help="Have a Dask cluster make the runs: the address of its scheduler, such as "
            "tcp://10.0.0.1:8786.",
            metavar="ADDRESS",
        ),
    ] = None,
    dither: Annotated[
        DitherChoice,
        typer.Option(
            help="Replace zero features in all variants, which the paper's numbers point to, or as its text "
            "says, in 10D and 13D."
        ),
    ] = DitherChoice.ALL,
    as_json: Json = False,
) -> None:
    """Reproduce the paper: its illustration, its study of seven-segment digits, all tables and figures.

    Prints the paper's numbers beside ours and writes tables (CSV, Markdown),
    figures (PNG, PDF) and a report (HTML). Finished runs are kept: a study
    that was interrupted goes on where it was.
    """
    settings = study.Settings(seed=seed, dither=dither.value)
    try:
        cells = study.study_cells(runs, only, [choice.value for choice in method or MethodChoice])
    except ValueError as error:
        stop(str(error), WRONG_USE)
    if importlib.util.find_spec("jinja2") is None:
        stop("The report needs jinja2: pip install skmix[report]", NOT_INSTALLED)
    console = Console()
    try:
        # First: who gave a wrong address should not wait for the illustration.
        with text_aside(as_json), _cluster(dask) as cluster:
            folder = harness.writable_folder(out)
            record = study.run_illustration(seed)
            picture = plots.plot_illustration(record)[0].figure
            planned = study.make_study(cells, settings)
            # Opened first: a folder with a damaged store should not get new pictures.
            with study.Store(folder / "study.sqlite") as store:
                harness.write_json(folder / "illustration.json", record.to_dict())
                for suffix, dpi in (("png", 120), ("pdf", 300)):
                    plots.save_figure(picture, folder / f"illustration.{suffix}", dpi=dpi)
                _print_illustration(record)
                n_jobs = jobs or joblib.cpu_count() if cluster is None else n_threads(cluster)
                _run(console, planned, store, n_jobs, cluster)
                results = study.study_results(planned, store)
            outcome = _outcome(console, folder, results)
    except study.StoreError as error:
        stop(str(error), WRONG_USE)
    except (harness.ExperimentError, ClusterError) as error:
        stop(str(error), ENDED_EARLY)
    except BrokenPipeError:
        raise
    except OSError as error:
        stop(f"cannot write the results into {out}: {error.strerror or error}", WRONG_USE)
    except ImportError as error:
        stop(str(error), NOT_INSTALLED)
    except KeyboardInterrupt:
        stop("interrupted. Finished runs are kept; the same command goes on from there.", INTERRUPTED)
    if as_json:
        print_json(outcome)


def _run(
    console: Console, planned: study.Study, store: study.Store, n_jobs: int, cluster: Any = None
) -> None:
    """Make the runs that the store lacks, and show progress."""
    missing = harness.missing(planned.planned(), store)
    stored = sum(cell.n_runs for cell in planned.cells) - missing
    with progress(console, missing, stored, n_jobs) as show:
        study.run_study(planned, store, n_jobs=n_jobs, cluster=cluster, progress=show)


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Lend a cluster's client; None without an address."""
    if address is None:
        yield None
    else:
        with connect(address, skmix.__version__) as client:
            yield client


def _outcome(console: Console, folder: Path, results: study.StudyResults) -> dict[str, Any]:
    """Print and write tables, figures and report; returns tables and verdicts in plain values."""
    tables, verdicts = study.make_tables(results), study.check_claims(results)
    differences = study.differences(results)
    print_tables(console, tables)
    print_verdicts(console, verdicts, differences, results.beyond)
    study.write_tables(harness.writable_folder(folder / "tables"), results, tables, verdicts, differences)
    figure_folder = harness.writable_folder(folder / "figures")
    pictures = {}
    for name, figure in plots.paper_figures(results):
        plots.save_figure(figure, figure_folder / f"{name}.png", dpi=120)
        plots.save_figure(figure, figure_folder / f"{name}.pdf", dpi=300)
        pictures[name] = (figure_folder / f"{name}.png").read_bytes()
    report.write_report(results, folder / "report.html", figures=pictures, tables=tables, verdicts=verdicts)
    typer.echo(
        f"Written into {folder}: report.html, tables/, figures/, illustration.json, illustration.png, "
        "illustration.pdf; finished runs in study.sqlite."
    )
    return {
        "folder": str(folder),
        "tables": [asdict(table) for table in tables],
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "differences": [asdict(difference) for difference in differences],
    }


def _print_illustration(record: study.IllustrationRecord) -> None:
    """Print true beside estimated parameters, a line for each mean, covariance and column of weights."""
    model = record.model
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in ("true", "estimated", "largest\nerror", "standard\nerror"):
        table.add_column(heading, justify="right", no_wrap=True)
    for compared in record.comparisons():
        # A line for each kernel, or for each class; of a symmetric matrix the upper triangle.
        of_classes = compared.name == "weights"
        upper = np.triu_indices(compared.true.shape[-1]) if compared.true.ndim == 3 else (slice(None),)
        owners = model.classes_.tolist() if of_classes else range(len(compared.true))
        table.add_row(compared.name, style="bold")
        for line, owner in enumerate(owners):
            true, estimated, standard_error = (
                (values.T if of_classes else values)[line][upper]
                for values in (compared.true, compared.estimated, compared.standard_error)
            )
            table.add_row(
                f"  class {owner}" if of_classes else f"  kernel {owner}",
                _numbers(true),
                _numbers(estimated),
                f"{np.abs(estimated - true).max():.3f}",
                f"{standard_error.max():.3f}",
            )
        table.add_section()
    Console().print(table)
    ended = "Converged" if model.converged_ else "Did not converge"
    typer.echo(f"{ended} in {model.n_iter_} passes, log-likelihood {model.log_likelihood_:.3f}.")
    errors = ", ".join(f"{compared.name} {compared.largest_error:.3f}" for compared in record.comparisons())
    typer.echo(f"Largest absolute error: {errors}.")


def _numbers(values: NDArray[np.float64]) -> str:
    # Adding zero turns -0.000 into 0.000.
    return " ".join(f"{round(float(value), 3) + 0.0:6.3f}" for value in values)
