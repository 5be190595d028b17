"""The comparison of classifiers in the documentation: all data sets, tables and pictures.

    python benchmarks/accuracy.py --files tables

writes benchmarks/results/accuracy.jsonl and, for docs/evidence/comparison.md, tables and pictures. iris,
wine, breast_cancer and digits are scikit-learn's; the others are tables in or below the folder that
``--files`` names (CSV, compressed or not, the label last), and the gated cells of benchmarks/cells.py,
multicenter and euroflow, of which whole samples are held out. The tables do not say which of their rows
belong together. Sets of more than 4000 rows are reduced to 4000, drawn at random. The whole comparison
takes some hours on one core. CatBoost and RealMLP are other projects' packages:

    pip install -r benchmarks/comparison/requirements.txt

installs them; without one of them its classifier is left out.

Results accumulate: a cell whose key is in ``--out`` is not measured again. Keys of shared kernels depend on
the code of the library, keys of other classifiers do not. The file is written every minute, so an interrupted
run loses little, and each finished cell is in ``--store`` at once. ``--only-sets``, ``--only-classifiers``
and ``--repeats`` run some cells and leave the others in the file unchanged.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from comparison import (
    FIELD,
    SETS_BY_PART,
    Outcome,
    Settings,
    Store,
    contenders,
    find_data,
    half_of,
    installed,
    key_of,
    run_comparison,
)
from comparison import make_tables as tables_of
from comparison.plots import draw_errors, draw_ranks
from recording import read_lines, write_lines

ROOT = Path(__file__).resolve().parents[1]
SEED, REPEATS, MAX_ROWS = 1, 10, 4000
SETS = tuple(name for names in SETS_BY_PART.values() for name in names)
SECONDS_BETWEEN_WRITES = 60.0


def chosen_sets(names: Sequence[str]) -> list[str]:
    """Return the data sets of the given names or parts; without names, all."""
    unknown = [name for name in names if name not in (*SETS, *SETS_BY_PART)]
    if unknown:
        known = ", ".join((*SETS_BY_PART, *SETS))
        raise ValueError(f"there is no data set or part {unknown[0]!r}; there are {known}.")
    wanted = {each for name in names for each in SETS_BY_PART.get(name, (name,))}
    return [name for name in SETS if name in wanted or not names]


class Results:
    """The file of outcomes. It is read again before each write, since another run may have added to it."""

    def __init__(self, path: Path, keys: dict[tuple[str, str], str]) -> None:
        self.path = path
        self.keys = keys  # of this run, by data set and classifier
        self.new: list[Outcome] = []
        self.written = time.monotonic()

    def read(self) -> list[Outcome]:
        """Return the outcomes in the file, except outdated ones and those that this run replaces."""
        if not self.path.is_file():
            return []
        known = {each.name for each in FIELD}
        found = [Outcome.from_dict(record) for record in read_lines(self.path)]
        return [
            each
            for each in found
            if each.classifier in known
            and each.data.partition("[")[0] in SETS
            and each.key
            and self.keys.get((each.data, each.classifier), each.key) == each.key
        ]

    def add(self, outcome: Outcome) -> None:
        """Print a line for a finished cell, and write the file if the last write was a while ago."""
        shown = f"{outcome.data}, {outcome.classifier}, {outcome.repeat + 1}: {100 * outcome.error:.2f} %"
        print(f"{shown}, {outcome.fit_seconds:.1f} s {outcome.failure}".rstrip(), flush=True)
        self.new.append(outcome)
        if time.monotonic() - self.written > SECONDS_BETWEEN_WRITES:
            self.write(self.new)

    def write(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Write the outcomes with those in the file, and return them all."""
        merged = {(each.data, each.classifier, each.repeat): each for each in (*self.read(), *outcomes)}
        sets, names = list(SETS), [each.name for each in FIELD]

        def place(each: Outcome) -> tuple[int, int, int]:
            return sets.index(each.data.partition("[")[0]), names.index(each.classifier), each.repeat

        ordered = sorted(merged.values(), key=place)
        write_lines(self.path, [each.to_dict() for each in ordered], ("data", "classifier"))
        self.written = time.monotonic()
        return ordered


def run(arguments: argparse.Namespace) -> list[Outcome]:
    """Measure what is missing, and return all outcomes in the file."""
    small = arguments.small
    field = installed(
        contenders(arguments.only_classifiers or (["shared kernels", "LDA"] if small else None))
    )
    settings = Settings(n_repeats=1 if small else arguments.repeats, seed=SEED)
    names = ["iris"] if small else chosen_sets(arguments.only_sets)
    data = [find_data(name, arguments.files, max_rows=MAX_ROWS) for name in names]
    keys = {(each.name, own.name): key_of(each, own, settings) for each in data for own in field}
    results = Results(arguments.out, keys)
    store = Store(arguments.store)
    outcomes = run_comparison(
        data, field, settings, store, results.add, known=results.read(), n_jobs=arguments.jobs
    )
    return results.write(outcomes)


def draw(outcomes: list[Outcome], folder: Path) -> None:
    """Draw the pictures of the documentation."""
    # Ranks on the sets that took no part in choosing settings, as the README has them.
    judging = [each for each in outcomes if half_of(each.data) == "judging"]
    try:
        draw_ranks(judging, folder / "ranks.png")
    except ValueError as error:
        print(f"no picture of ranks: {error}")
    draw_errors(outcomes, folder / "comparison.png")


def main() -> None:
    """Measure what is missing, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=Path, default=Path("."), help="folder with the tables")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "accuracy.jsonl")
    parser.add_argument(
        "--store", type=Path, default=Path("accuracy-cells.jsonl"), help="store of finished cells"
    )
    parser.add_argument(
        "--only-sets", nargs="+", default=[], metavar="SET", help=f"sets, or {' or '.join(SETS_BY_PART)}"
    )
    parser.add_argument("--only-classifiers", nargs="+", metavar="NAME", help="classifiers by their names")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="splits of each data set")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--no-images", action="store_true", help="print tables only, and write none")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    try:
        outcomes = run(arguments)
    except ValueError as error:
        parser.error(str(error))
    for table in tables_of(outcomes):
        print(table)
        if not arguments.no_images:
            table.write(arguments.out.parent, "comparison")
    if not arguments.no_images:
        draw(outcomes, arguments.images)


if __name__ == "__main__":
    main()
