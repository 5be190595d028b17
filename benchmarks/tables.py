"""Time to read tables: `open_rows` compared with pandas and pyarrow, which do not build a matrix.

    python benchmarks/tables.py --out benchmarks/results/tables.json

The script prints wall-clock and processor seconds, the least of several repeats in one run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from skmix import open_rows


def read(path: Path) -> Any:
    """Return the matrix of a table."""
    return np.concatenate([block.X for block in open_rows(path).blocks()])


READERS: dict[str, Callable[[Path], Any]] = {
    "skmix": read,
    "pandas": pd.read_csv,
    "pyarrow": pa.csv.read_csv,
}


def write(path: Path, n_rows: int, n_columns: int) -> None:
    """Write a table of numbers with six decimals."""
    X = np.random.RandomState(0).normal(size=(n_columns, n_rows)).round(6)
    pa.csv.write_csv(pa.table({f"x{i}": values for i, values in enumerate(X)}), path)


def measure(path: Path, repeats: int) -> dict[str, dict[str, float]]:
    """Return the seconds of each reader; readers take turns, since the speed of a machine may change."""
    found = {name: {"wall_s": np.inf, "cpu_s": np.inf} for name in READERS}
    for _ in range(repeats):
        for name, reader in READERS.items():
            wall, cpu = time.perf_counter(), time.process_time()
            reader(path)
            took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
            found[name] = {key: min(found[name][key], took[key]) for key in took}
    return found


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--small", action="store_true", help="tables of a few rows and columns")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, default=None, help="JSON file")
    arguments = parser.parse_args()
    shapes = [(200, 10), (3, 1500)] if arguments.small else [(1_000_000, 10), (12, 20_000)]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for n_rows, n_columns in shapes:
            path = Path(folder) / "table.csv"
            write(path, n_rows, n_columns)
            found = measure(path, arguments.repeats)
            ratios = {
                f"{key}_by_{name}": found["skmix"][key] / found[name][key]
                for name in ("pandas", "pyarrow")
                for key in ("wall_s", "cpu_s")
            }
            results.append({"rows": n_rows, "columns": n_columns, **found, "ratios": ratios})
            print(f"{n_rows} rows x {n_columns} columns, {path.stat().st_size / 1e6:.1f} MB")
            for name, seconds in found.items():
                print(f"  {name:8} {seconds['wall_s']:7.3f} s, processor {seconds['cpu_s']:7.3f} s")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
