"""Where sharing pays: tables, and the pictures of docs/evidence/sharing.md.

    python benchmarks/sharing.py --files letter.csv --processes 16

writes benchmarks/results/sharing.jsonl, tables and pictures.
Digits and classes are simulated; ``--files`` names tables (CSV, the label last) to measure as well. The whole
run takes some hours on 16 cores. Finished cells are in ``--store``, so the same command continues an
interrupted run. ``--draw`` only draws what has been measured, which takes some seconds.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from comparison import (
    ROWS_PER_CLASS,
    SHARING_DATA,
    Outcome,
    Store,
    in_study_order,
    run_sharing,
    sharing_tables,
)
from comparison.plots import draw_curves, draw_gain
from recording import read_lines, write_lines

ROOT = Path(__file__).resolve().parents[1]


def show(outcome: Outcome) -> None:
    """Print a line for a finished cell."""
    result = f"failed: {outcome.failure}" if outcome.failure else f"error {100 * outcome.error:.2f} %"
    print(f"{outcome.data}, {outcome.n_train} rows, {outcome.classifier}, {outcome.repeat + 1}: {result}")


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=SHARING_DATA, help="kinds and numbers, such as pool-100")
    parser.add_argument("--files", nargs="+", default=[], help="tables to measure as well")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS_PER_CLASS, help="rows of each class")
    parser.add_argument("--draws", type=int, default=10, help="random draws of the rows")
    parser.add_argument("--processes", type=int, default=1, help="processes, of one thread each")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "sharing.jsonl")
    parser.add_argument(
        "--store", type=Path, default=Path("sharing-cells.jsonl"), help="store of finished cells"
    )
    parser.add_argument("--images", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--draw", action="store_true", help="measure nothing; draw what --out has")
    arguments = parser.parse_args()
    if arguments.draw:
        outcomes = [Outcome.from_dict(record) for record in read_lines(arguments.out)]
    else:
        store = Store(arguments.store)
        outcomes = run_sharing(
            [*arguments.data, *arguments.files],
            store,
            rows_per_class=arguments.rows,
            n_draws=arguments.draws,
            n_processes=arguments.processes,
            progress=show,
        )
        if not outcomes:
            parser.error(f"no data set has {min(arguments.rows)} rows of each class and more.")
        by = "data", "classifier", "n_train"
        write_lines(arguments.out, [each.to_dict() for each in outcomes], by)
    points = in_study_order(outcomes)
    for table in sharing_tables(points):
        print(table)
        table.write(arguments.out.parent, "sharing")
    draw_gain(points, arguments.images / "sharing.png")
    draw_curves(points, "error", arguments.images / "sharing-error.png")
    draw_curves(points, "log_loss", arguments.images / "sharing-log-loss.png")


if __name__ == "__main__":
    main()
