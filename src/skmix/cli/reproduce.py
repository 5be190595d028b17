"""`skmix reproduce`: options, progress and exit codes of the paper's study in `skmix.paper`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from skmix._extras import need
from skmix.cli import _common as cli
from skmix.cli import _options as options
from skmix.cli import _printing as printing
from skmix.cli._progress import watching


@cli.app.command(epilog=cli.examples("skmix reproduce", "skmix reproduce --only 3D --runs 20 --out small"))
def reproduce(
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where to put the results.")] = Path("results"),
    seed: Annotated[int, options.seed("Seed of the simulated data and of every start.")] = 0,
    runs: Annotated[int, typer.Option(metavar="N", help="Runs of each variant and method.", min=1)] = 500,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="VARIANT", help="Only this variant, such as 3D; may be given several times."),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="Only this method: published (the paper's algorithm, rerun), robust or class-wise; may be "
            "given several times.",
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(metavar="N", help="Processes to use; by default one for each core.", min=1)
    ] = None,
    dither: Annotated[
        Literal["all", "paper"],
        typer.Option(
            help="Replace zero features in all variants, as the paper's numbers suggest, or as its text "
            "says, in 10D and 13D."
        ),
    ] = "all",
) -> None:
    """Reproduce the paper: its illustration, its study of seven-segment digits, all tables and figures.

    Writes the paper's numbers next to ours as tables (CSV, Markdown), figures
    (PNG, PDF) and a report (HTML), and prints which claims hold, the paper's and
    skmix's own, and how much so many runs can show. Finished runs are stored: run
    the same command again to continue after an interruption.
    """
    with cli.guarded():
        need("matplotlib", "Figures need")
        need("jinja2", "The report needs")
        need("pandas", "Runs of the paper need")
    from skmix import paper

    stored = "interrupted. Finished runs are stored; run the same command again to continue."
    with cli.guarded(cli.WRONG_USE, stored), cli.failing(f"cannot write the results into {out}"):
        cells = paper.study_cells(runs, only, method)
        settings = paper.Settings(seed=seed, dither=dither)
        try:
            paper.reproduce(out, settings, cells, jobs, printing.say, progress)
        except paper.StudyError as error:
            cli.stop(str(error), cli.ENDED_EARLY)


@contextmanager
def progress(n_runs: int, n_stored: int, n_jobs: int) -> Iterator[Callable[[int], None]]:
    """Show progress of the study: its begin and end, and on a terminal a bar with the time left.

    `n_runs` are to be made, `n_stored` exist already. Yields a function to call with the number of runs of
    each batch.
    """
    if n_stored:
        printing.say(f"{n_stored} runs are already stored.")
    if not n_runs:
        yield lambda n_made: None
        return
    printing.say(f"Making {n_runs} runs on {printing.counted(n_jobs, 'process', 'processes')}.")
    begun = time.monotonic()
    with watching() as watch, watch.steps("runs", n_runs) as report_steps:
        yield lambda n_made: report_steps(steps=n_made)
    printing.say(f"Made {n_runs} runs in {time.monotonic() - begun:.0f} s.")
