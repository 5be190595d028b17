"""`skmix bench`: shared kernels beside other classifiers, and where sharing pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from skmix import plots
from skmix.cli._common import (
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
from skmix.experiments import field as comparison
from skmix.experiments.harness import Store, Table, claims_table, writable_folder, write_lines
from skmix.io import replacing

_SMALL_SETS = ("iris", "wine", "breast_cancer", "seven_segment", "digits")

bench = typer.Typer(help="Shared kernels beside the field.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help=f"A data set: {', '.join(comparison.NAMES)}; or a CSV file whose last column is the label, or a "
        "folder with MNIST's files. May be given several times.",
    ),
]
SharingData = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="Data: seven_segment; pool-100, parts-100 or apart-100, or with another number, for simulated "
        "classes; or what the accuracy command takes. May be given several times. Default: "
        f"{', '.join(comparison.SHARING_DATA)}.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of splits and classifiers.", min=0, max=2**32 - 1)]
MostRows = Annotated[
    int | None, typer.Option("--max-rows", help="Use at most so many rows of each data set.", min=10)
]


@bench.command(
    epilog=examples(
        "skmix bench accuracy",
        "skmix bench accuracy --data wine --data flowers.csv --repeats 10",
    )
)
def accuracy(
    data: Data = None,
    repeats: Annotated[int, typer.Option(help="Splits of each data set.", min=1)] = 5,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("accuracy"),
    classifier: Annotated[
        list[str] | None, typer.Option(help="Only this classifier; may be given several times.")
    ] = None,
    max_rows: MostRows = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compare classifiers: error, log-loss, calibration, time and size on repeated stratified splits.

    Prints tables and writes them as text and Markdown, with pictures.
    Results are outcomes.jsonl; finished cells are kept in cells.sqlite: the
    same command continues where it was stopped.
    """

    def work() -> list[Table]:
        field = comparison.contenders(classifier)
        sets = [comparison.load_data(name, max_rows=max_rows) for name in data or _SMALL_SETS]
        folder = writable_folder(out)
        settings = comparison.Settings(n_repeats=repeats, seed=seed)
        with Store(folder / "cells.sqlite") as store:
            outcomes = comparison.run_comparison(sets, field, settings, store, _tell)
        write_lines(folder / "outcomes.jsonl", [outcome.to_dict() for outcome in outcomes])
        tables = comparison.make_tables(outcomes)
        if checked := comparison.check_claims(outcomes):
            tables.append(claims_table(checked))
        _write_tables(folder, tables)
        figure = plots.new_figure(5.2, 0.32 * len(field) + 0.8)
        plots.plot_ranks(outcomes, axes=figure.add_subplot())
        plots.save_figure(figure, folder / "ranks.png")
        lines = -(-len(sets) // 4)
        figure = plots.new_figure(3.0 * min(4, len(sets)) + 1.0, (0.19 * len(field) + 0.8) * lines)
        plots.plot_errors(outcomes, figure=figure)
        plots.save_figure(figure, folder / "errors.png")
        typer.echo(f"Written into {folder}: tables.txt, tables.md, ranks.png, errors.png, outcomes.jsonl.")
        return tables

    _finish(work, out, as_json)


@bench.command(
    epilog=examples("skmix bench sharing", "skmix bench sharing --data letter.csv --rows 5 --rows 20")
)
def sharing(
    data: SharingData = None,
    rows: Annotated[
        list[int] | None, typer.Option(help="Training rows of each class; may be given several times.", min=1)
    ] = None,
    draws: Annotated[int, typer.Option(help="Random draws of the rows.", min=1)] = 3,
    processes: Annotated[int, typer.Option(help="Processes, of one thread each.", min=1)] = 1,
    out: Annotated[Path, typer.Option(help="Folder for the results.")] = Path("sharing"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Study where sharing pays: error against rows of each class, for few classes and many.

    Prints tables and writes them as text and Markdown, with pictures.
    Results are outcomes.jsonl; finished cells are kept in cells.sqlite: the
    same command continues where it was stopped.
    """

    def work() -> list[Table]:
        folder = writable_folder(out)
        sizes = rows or comparison.ROWS_PER_CLASS
        with Store(folder / "cells.sqlite") as store:
            points = comparison.run_sharing(
                data or comparison.SHARING_DATA,
                store,
                rows_per_class=sizes,
                n_draws=draws,
                seed=seed,
                n_processes=processes,
                progress=_tell,
            )
        write_lines(folder / "outcomes.jsonl", [point.to_dict() for point in points])
        if not points:
            raise ValueError(f"no data set has so many rows in each class: {', '.join(map(str, sizes))}.")
        tables = comparison.sharing_tables(points)
        _write_tables(folder, tables)
        n_sets = len({point.data for point in points})
        figure = plots.new_figure(max(5.0, 3.6 * min(3, n_sets)), 2.9 * -(-n_sets // 3) + 0.5)
        plots.plot_sharing(points, figure=figure)
        plots.save_figure(figure, folder / "sharing.png")
        figure = plots.new_figure(7.2, 3.6)
        plots.plot_gain(points, axes=figure.add_subplot())
        plots.save_figure(figure, folder / "gain.png")
        typer.echo(f"Written into {folder}: tables.txt, tables.md, sharing.png, gain.png, outcomes.jsonl.")
        return tables

    _finish(work, out, as_json)


def _tell(outcome: comparison.Outcome) -> None:
    """Print a line for a finished cell."""
    result = f"failed: {outcome.failure}" if outcome.failure else f"error {100 * outcome.error:.2f} %"
    typer.echo(
        f"{outcome.data}, {outcome.n_train} rows, {outcome.classifier}, {outcome.repeat + 1}: {result}"
    )


def _write_tables(folder: Path, tables: list[Table]) -> None:
    text = "\n\n".join(table.text() for table in tables)
    typer.echo("\n" + text + "\n")
    for name, content in (
        ("tables.txt", text),
        ("tables.md", "\n\n".join(table.markdown() for table in tables)),
    ):
        with replacing(folder / name) as file:
            file.write(content.encode() + b"\n")


def _finish(work: Callable[[], list[Table]], out: Path, as_json: bool) -> None:
    """Do the work, and end with a sentence if it cannot be done."""
    # First: nobody should wait for the results and then learn that they cannot be drawn.
    if importlib.util.find_spec("matplotlib") is None:
        stop("The pictures need matplotlib: pip install skmix[plot]", NOT_INSTALLED)
    try:
        with text_aside(as_json):
            tables = work()
    except BrokenPipeError:
        raise
    except OSError as error:
        stop(f"cannot read the data or write into {out}: {error.strerror or error}", WRONG_USE)
    except ValueError as error:
        stop(str(error), WRONG_USE)
    except ImportError as error:
        stop(str(error), NOT_INSTALLED)
    except KeyboardInterrupt:
        stop("interrupted. Finished cells are kept; the same command goes on from there.", INTERRUPTED)
    if as_json:
        print_json([{"title": each.title, "headings": each.headings, "lines": each.lines} for each in tables])
