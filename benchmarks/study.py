"""Runs per second of the paper's study, for each method and variant.

Run by ``make bench``. The script prints a table, and with ``--out`` writes a JSON file. With ``--whole``, the
whole study is also run on several processes, as by `skmix reproduce`; the time includes starting them and
storing the runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import joblib
from rich.console import Console
from rich.table import Table

from skmix.paper import Settings, make_data, run_batch, run_study, study_cells
from skmix.paper.data import StudyData
from skmix.paper.study import batches
from skmix.paper.variants import MAIN_KERNELS, MAIN_RUNS, METHODS, VARIANTS, Cell, Method


def one_process(data: StudyData, settings: Settings, n_runs: int) -> list[dict[str, Any]]:
    """Time each variant and method, a batch at a time, in this process."""
    rows = []
    for variant in VARIANTS:
        row: dict[str, Any] = {"variant": variant}
        for method in METHODS:
            run_batch(data, variant, MAIN_KERNELS, method, [0], settings)
            begun = time.perf_counter()
            runs = run_batch(data, variant, MAIN_KERNELS, method, range(n_runs), settings)
            row[method] = len(runs) / (time.perf_counter() - begun)
        rows.append(row)
    return rows


def whole(
    data: StudyData, settings: Settings, method: Method, n_runs: int, n_jobs: int
) -> dict[str, float | int | str]:
    """Time all cells of one method, main study and sweep, on several processes, including their files."""
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        planned = batches(study_cells(n_runs, methods=[method]), settings, [data], Path(folder))
        made = len(run_study(planned, [data], n_jobs))
        seconds = time.perf_counter() - begun
    return {"method": method, "runs": made, "seconds": seconds, "runs_per_second": made / seconds}


def estimated_seconds(rows: list[dict[str, Any]], cells: list[Cell], method: Method, n_jobs: int) -> float:
    """Estimate the time of a method's main study on several processes, from the speed of one."""
    speed = {row["variant"]: row[method] for row in rows}
    return sum(cell.n_runs / speed[cell.variant] for cell in cells if cell.n_kernels == MAIN_KERNELS) / n_jobs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="runs of each variant and method to time")
    parser.add_argument("--jobs", type=int, default=joblib.cpu_count(), help="processes of the estimate")
    parser.add_argument("--whole", action="store_true", help="also run the whole study, method by method")
    parser.add_argument("--small", action="store_true", help="few images and runs, to check that it works")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    settings, n_runs, whole_runs = Settings(), arguments.runs, MAIN_RUNS
    if arguments.small:
        settings, n_runs, whole_runs = Settings(train_per_digit=20, test_per_digit=5, max_iter=10), 2, 1
    data = make_data(settings)
    rows = one_process(data, settings, n_runs)

    console = Console()
    table = Table(title="Runs per second, one process, K = 10", title_justify="left")
    table.add_column("variant")
    for method in METHODS:
        table.add_column(method, justify="right")
    for row in rows:
        table.add_row(row["variant"], *(f"{row[method]:.0f}" for method in METHODS))
    console.print(table)
    estimates = {}
    for method in METHODS:
        cells = study_cells(MAIN_RUNS, methods=[method])
        estimates[method] = estimated_seconds(rows, cells, method, arguments.jobs)
        console.print(
            f"{method}: {MAIN_RUNS * len(VARIANTS)} runs at K = 10 take about {estimates[method]:.0f} s on "
            f"{arguments.jobs} processes"
        )
    results: dict[str, Any] = {"one_process": rows, "main_study_seconds": estimates}
    if arguments.whole:
        results["whole"] = [whole(data, settings, method, whole_runs, arguments.jobs) for method in METHODS]
        for row in results["whole"]:
            console.print(
                f"{row['method']}: {row['runs']} runs with the sweep in {row['seconds']:.1f} s, "
                f"{row['runs_per_second']:.0f} a second"
            )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
