"""The comparison of the documentation, as a whole: all data sets, tables and pictures.

    python benchmarks/accuracy.py --files tables --mnist mnist

measures what benchmarks/results/accuracy.jsonl lacks, leaves nothing else in it, and draws the pictures of
docs/guide/comparison.md anew; its tables are made when the documentation is built. Cells are measured again
where data, seed or versions differ, and the simulated digits also on a machine that rounds otherwise. All of
it takes some hours on one core. glass, letter, pima and vehicle are tables in the folder that
``--files`` names (CSV, compressed or not, the label last); MNIST comes from OpenML unless ``--mnist`` names a
folder with its four files.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.progress import track

from skmix import plots
from skmix.experiments.field import (
    Outcome,
    OutcomeStore,
    Settings,
    claims,
    claims_table,
    contenders,
    load_data,
)
from skmix.experiments.field import make_tables as tables_of
from skmix.experiments.field.runner import cells, run_cell
from skmix.io import replacing

ROOT = Path(__file__).resolve().parents[1]
SEED = 1
SHIPPED = ("iris", "wine", "breast_cancer", "seven_segment", "digits")
TABLES = ("glass", "vehicle", "pima")
LARGE_TABLE, MNIST = "letter", "mnist"
REPEATS, REPEATS_OF_LARGE, MNIST_ROWS = 10, 3, 3000


def find_table(folder: Path, name: str) -> str:
    """Return the path of a table, compressed or not."""
    found = [path for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if path.is_file()]
    if not found:
        raise ValueError(f"there is no {name}.csv or {name}.csv.gz in {folder}.")
    return str(found[0])


def run(arguments: argparse.Namespace) -> list[Outcome]:
    """Return all outcomes, made or found."""
    store, outcomes = OutcomeStore(arguments.out), []
    field = contenders(["shared kernels", "LDA"] if arguments.small else None)
    repeats = (1, 1) if arguments.small else (REPEATS, REPEATS_OF_LARGE)
    data = [load_data(name) for name in (SHIPPED[:1] if arguments.small else SHIPPED)]
    large = []
    if not arguments.small:
        data += [load_data(find_table(arguments.files, name)) for name in TABLES]
        large = [
            load_data(find_table(arguments.files, LARGE_TABLE)),
            load_data(arguments.mnist, max_rows=MNIST_ROWS),
        ]
    wanted = [
        (cell, settings)
        for sets, n_repeats in ((data, repeats[0]), (large, repeats[1]))
        for settings in [Settings(n_repeats=n_repeats, seed=SEED)]
        for cell in cells(sets, field, settings)
    ]
    missing = sum(cell[3] not in store for cell, _ in wanted)
    print(f"{len(wanted)} cells, {missing} of them to be made")
    for (each, contender, repeat, key), settings in track(wanted, disable=not missing):
        if key not in store:
            store.keep(run_cell(each, contender, repeat, settings))
        outcomes.append(store.get(key))
    with replacing(arguments.out) as file:
        # Cells of other data or versions would be taken for more repeats.
        file.write("".join(json.dumps(outcome.to_dict()) + "\n" for outcome in outcomes).encode())
    return outcomes


def draw(outcomes: list[Outcome], folder: Path) -> None:
    """Draw the pictures of the documentation."""
    n_classifiers = len({outcome.classifier for outcome in outcomes})
    n_sets = len({outcome.data for outcome in outcomes})
    figure = plots.new_figure(5.2, 0.32 * n_classifiers + 0.8)
    plots.plot_ranks(outcomes, axes=figure.add_subplot())
    plots.save_figure(figure, folder / "ranks.png")
    figure = plots.new_figure(3.0 * min(4, n_sets) + 1.0, (0.19 * n_classifiers + 0.8) * -(-n_sets // 4))
    plots.plot_errors(outcomes, figure=figure)
    plots.save_figure(figure, folder / "comparison.png")


def main() -> None:
    """Measure what is missing, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=Path, default=Path("."), help="folder with the tables")
    parser.add_argument("--mnist", default=MNIST, help="folder with the four IDX files; default: OpenML")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "accuracy.jsonl")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--small", action="store_true", help="little, to see that everything runs")
    arguments = parser.parse_args()
    try:
        outcomes = run(arguments)
    except ValueError as error:
        parser.error(str(error))
    console = Console(width=200)
    for table in [*tables_of(outcomes), claims_table(claims(outcomes))]:
        console.print(table.text(), highlight=False)
    draw(outcomes, arguments.images)


if __name__ == "__main__":
    main()
