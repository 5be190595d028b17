"""The comparison of the documentation, as a whole: all data sets, tables and pictures.

    python benchmarks/accuracy.py --files tables --mnist mnist

writes benchmarks/results/accuracy.jsonl and draws the pictures of docs/guide/comparison.md; its tables are
made when the documentation is built. Finished cells are kept in the file that ``--store`` names, under a hash
of all their settings, and are not measured again. All of it takes some hours on one core. glass, letter, pima
and vehicle are tables in the folder that ``--files`` names (CSV, compressed or not, the label last); MNIST
comes from OpenML unless ``--mnist`` names a folder with its four files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from skmix import plots
from skmix.experiments.field import Outcome, Settings, check_claims, contenders, load_data, run_comparison
from skmix.experiments.field import make_tables as tables_of
from skmix.experiments.harness import Store, claims_table, write_lines

ROOT = Path(__file__).resolve().parents[1]
SEED = 1
SHIPPED = ("iris", "wine", "breast_cancer", "seven_segment", "digits")
TABLES = ("glass", "vehicle", "pima")
LARGE_TABLE, MNIST = "letter", "mnist"
REPEATS, REPEATS_OF_LARGE, MNIST_ROWS = 10, 3, 3000


def show(outcome: Outcome) -> None:
    """Print a line for a finished cell."""
    print(
        f"{outcome.data}, {outcome.classifier}, {outcome.repeat + 1}: {100 * outcome.error:.2f} %", flush=True
    )


def find_table(folder: Path, name: str) -> str:
    """Return the path of a table, compressed or not."""
    found = [path for path in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if path.is_file()]
    if not found:
        raise ValueError(f"there is no {name}.csv or {name}.csv.gz in {folder}.")
    return str(found[0])


def run(arguments: argparse.Namespace) -> list[Outcome]:
    """Return all outcomes, new and stored."""
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
    outcomes = []
    with Store(arguments.store) as store:
        for sets, n_repeats in ((data, repeats[0]), (large, repeats[1])):
            settings = Settings(n_repeats=n_repeats, seed=SEED)
            outcomes += run_comparison(sets, field, settings, store, show, n_jobs=arguments.jobs)
    write_lines(arguments.out, [outcome.to_dict() for outcome in outcomes])
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
    parser.add_argument(
        "--store", type=Path, default=Path("accuracy.sqlite"), help="where finished cells are"
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--small", action="store_true", help="little, to see that everything runs")
    arguments = parser.parse_args()
    try:
        outcomes = run(arguments)
    except ValueError as error:
        parser.error(str(error))
    console = Console(width=200)
    for table in [*tables_of(outcomes), claims_table(check_claims(outcomes))]:
        console.print(table.text(), highlight=False)
    draw(outcomes, arguments.images)


if __name__ == "__main__":
    main()
