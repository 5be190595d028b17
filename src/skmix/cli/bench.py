"""`skmix bench`: shared kernels compared with other classifiers, and where sharing pays."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from skmix import plots
from skmix.cli import _common as cli
from skmix.engine.compute import how_to_install
from skmix.experiments import field
from skmix.io import replacing, writable_folder
from skmix.paper.harness import Store, Table, write_lines

_SMALL_SETS = ("iris", "wine", "breast_cancer", "seven_segment", "digits")

bench = typer.Typer(help="Shared kernels compared with other classifiers.", no_args_is_help=True)
cli.app.add_typer(bench, name="bench")

Data = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help=f"A data set: {', '.join(field.NAMES)}; or a CSV file whose last column is the label, or a "
        "folder with MNIST's files. May be given several times.",
    ),
]
SharingData = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        help="Data: seven_segment; pool-100, parts-100 or apart-100, or with another number, for simulated "
        "classes; or what the accuracy command takes. May be given several times. Default: "
        f"{', '.join(field.SHARING_DATA)}.",
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of splits and classifiers.", min=0, max=2**32 - 1)]


@bench.command(
    epilog=cli.examples(
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
    max_rows: Annotated[
        int | None, typer.Option(help="Use at most this many rows of each data set.", min=10)
    ] = None,
    seed: Seed = 0,
    as_json: cli.Json = False,
) -> None:
    """Compare classifiers: error, log-loss, calibration, time and size on repeated stratified splits.

    Prints tables and writes them as text and Markdown, with pictures, and
    results as outcomes.jsonl. Finished cells are stored in cells.sqlite: run
    the same command again to continue after an interruption.
    """
    with _results(out, as_json) as tables:
        classifiers = field.contenders(classifier)
        sets = [field.load_data(name, max_rows=max_rows) for name in data or _SMALL_SETS]
        folder = writable_folder(out)
        settings = field.Settings(n_repeats=repeats, seed=seed)
        with Store(folder / "cells.sqlite") as store:
            outcomes = field.run_comparison(sets, classifiers, settings, store, _print_outcome)
        tables.extend(field.make_tables(outcomes))
        ranks = plots.new_figure(5.2, 0.32 * len(classifiers) + 0.8)
        plots.plot_ranks(outcomes, axes=ranks.add_subplot())
        lines = -(-len(sets) // 4)
        errors = plots.new_figure(3.0 * min(4, len(sets)) + 1.0, (0.19 * len(classifiers) + 0.8) * lines)
        plots.plot_errors(outcomes, figure=errors)
        _write(folder, tables, outcomes, {"ranks.png": ranks, "errors.png": errors})


@bench.command(
    epilog=cli.examples("skmix bench sharing", "skmix bench sharing --data letter.csv --rows 5 --rows 20")
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
    as_json: cli.Json = False,
) -> None:
    """Study where sharing pays: error against rows of each class, for few classes and many.

    Prints tables and writes them as text and Markdown, with pictures, and
    results as outcomes.jsonl. Finished cells are stored in cells.sqlite: run
    the same command again to continue after an interruption.
    """
    with _results(out, as_json) as tables:
        folder = writable_folder(out)
        sizes = rows or field.ROWS_PER_CLASS
        with Store(folder / "cells.sqlite") as store:
            points = field.run_sharing(
                data or field.SHARING_DATA,
                store,
                rows_per_class=sizes,
                n_draws=draws,
                seed=seed,
                n_processes=processes,
                progress=_print_outcome,
            )
        if not points:
            raise ValueError(f"no data set has enough rows in each class for {', '.join(map(str, sizes))}.")
        tables.extend(field.sharing_tables(points))
        n_sets = len({point.data for point in points})
        curves = plots.new_figure(max(5.0, 3.6 * min(3, n_sets)), 2.9 * -(-n_sets // 3) + 0.5)
        plots.plot_sharing(points, figure=curves)
        gain = plots.new_figure(7.2, 3.6)
        plots.plot_gain(points, axes=gain.add_subplot())
        _write(folder, tables, points, {"sharing.png": curves, "gain.png": gain})


@contextmanager
def _results(out: Path, as_json: bool) -> Iterator[list[Table]]:
    """Yield a list for tables, which `--json` prints; stop with a one-line message on errors."""
    # Check before the work, whose results could not be drawn.
    if importlib.util.find_spec("matplotlib") is None:
        cli.stop(f"The pictures need matplotlib: {how_to_install('plot')}", cli.NOT_INSTALLED)
    tables: list[Table] = []
    stored = "interrupted. Finished cells are stored; run the same command again to continue."
    failed = f"cannot read the data or write into {out}"
    with cli.guarded(cli.WRONG_USE, stored), cli.failing(failed), cli.text_aside(as_json):
        yield tables
    if as_json:
        cli.print_json(
            [{"title": each.title, "headings": each.headings, "lines": each.lines} for each in tables]
        )


def _print_outcome(outcome: field.Outcome) -> None:
    """Print a line for a finished cell."""
    result = f"failed: {outcome.failure}" if outcome.failure else f"error {100 * outcome.error:.2f} %"
    cli.say(f"{outcome.data}, {outcome.n_train} rows, {outcome.classifier}, {outcome.repeat + 1}: {result}")


def _write(folder: Path, tables: list[Table], records: Any, figures: dict[str, Any]) -> None:
    """Print tables, and write them with records and figures."""
    write_lines(folder / "outcomes.jsonl", [record.to_dict() for record in records])
    text = "\n\n".join(table.text() for table in tables)
    for line in ("", *text.split("\n"), ""):
        cli.say(line)
    for name, content in {
        "tables.txt": text,
        "tables.md": "\n\n".join(table.markdown() for table in tables),
    }.items():
        with replacing(folder / name) as file:
            file.write(content.encode() + b"\n")
    for name, figure in figures.items():
        plots.save_figure(figure, folder / name)
    cli.say(f"Written into {folder}: tables.txt, tables.md, {', '.join(figures)}, outcomes.jsonl.")
