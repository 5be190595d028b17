"""Files larger than memory: the speed of passes, and the peak memory of fits.

    python benchmarks/out_of_core.py speed --out benchmarks/results/files.csv
    python benchmarks/out_of_core.py memory --out benchmarks/results/memory.csv

- ``speed``: passes over labelled rows in memory, over a cached .npy file and over a Parquet file, in turn,
  in one process, with one thread and with all, plus the reader's thread.
- ``memory``: the peak memory of fresh processes that fit a million rows in memory, beyond what they have
  before the fit, and of one that fits a .npy file, libraries included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from recording import clusters, parser_of, seconds_of_a_pass, show
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skmix import GaussianMixture, SharedKernelMixture, open_rows

# Features and kernels.
SHAPES = ((3, 10), (6, 10), (16, 16), (32, 32))
N_CLASSES, FEATURES, KERNELS, SPREAD = 4, 16, 16, 2.0
FILE = "SharedKernelMixture of a .npy file, rows and libraries included"
MODELS = (
    "SharedKernelMixture",
    "SharedKernelMixture, labels",
    "GaussianMixture",
    "scikit-learn's GaussianMixture",
)


def speed(folder: Path, gigabytes: float, repeats: int) -> list[dict[str, Any]]:
    """Times of passes over rows in memory, and the speed of others in per cent of that."""
    table = []
    for n_features, n_kernels in SHAPES:
        X, centres = clusters(int(gigabytes * 1e9 / (8 * n_features)), n_features, n_kernels, SPREAD)
        y = np.arange(len(X)) % N_CLASSES
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y)
        columns = {f"x{j}": X[:, j] for j in range(n_features)}
        pq.write_table(pa.table({**columns, "y": y}), folder / "rows.parquet")
        sources: dict[str, tuple[Any, ...]] = {
            "memory": (X, y),
            ".npy": (open_rows(folder / "X.npy", label=folder / "y.npy"),),
            "Parquet": (open_rows(folder / "rows.parquet", label="y"),),
        }
        for n_jobs in sorted({1, os.cpu_count() or 1}):
            seconds, likelihoods = {}, []
            model = SharedKernelMixture(n_kernels, init={"means": centres}, tol=0.0, n_jobs=n_jobs)
            for name, rows in sources.items():

                def fit(n_passes: int, rows: tuple[Any, ...] = rows, model: Any = model) -> Any:
                    return clone(model).set_params(max_iter=n_passes).fit(*rows)

                seconds[name] = seconds_of_a_pass(fit, (2, 6), repeats, time.perf_counter)
                likelihoods.append(fit(2).log_likelihood_)
            if not np.allclose(likelihoods, likelihoods[0], rtol=1e-9):
                raise AssertionError(f"log-likelihoods differ: {likelihoods}")
            row = {"rows": len(X), "features": n_features, "kernels": n_kernels, "threads": n_jobs}
            row |= {"a pass in memory, ms": f"{1e3 * seconds['memory']:.0f}"}
            for name in (".npy", "Parquet"):
                row[f"speed from {name}, %"] = f"{100 * seconds['memory'] / seconds[name]:.0f}"
            table.append(row)
    return table


def peak_memory() -> float:
    """The largest resident memory of this process so far, in MiB; Linux."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) / 1024


def fill(X: np.ndarray) -> None:
    """Put rows of clusters into an array, piece by piece, which needs hardly any memory."""
    for first in range(0, len(X), 1 << 16):
        piece = X[first : first + (1 << 16)]
        piece[:] = clusters(len(piece), FEATURES, KERNELS, SPREAD)[0]


def fit_here(name: str, rows: str) -> float:
    """Fit a model to rows in this process, and measure the memory that it needs."""
    if name == FILE:
        SharedKernelMixture(KERNELS, max_iter=2, tol=0.0).fit(open_rows(rows))
        return peak_memory()
    from sklearn.mixture import GaussianMixture as Peer

    X, centres = np.empty((int(rows), FEATURES)), clusters(KERNELS, FEATURES, KERNELS, SPREAD)[1]
    fill(X)
    before = peak_memory()
    if name == MODELS[3]:
        precisions = np.tile(np.eye(FEATURES), (KERNELS, 1, 1))
        Peer(
            KERNELS,
            means_init=centres,
            precisions_init=precisions,
            max_iter=2,
            init_params="random_from_data",
        ).fit(X)
    elif name == MODELS[2]:
        GaussianMixture(KERNELS, means_init=centres, max_iter=2, init_params="random_from_data").fit(X)
    else:
        y = np.arange(len(X)) % N_CLASSES if name == MODELS[1] else None
        SharedKernelMixture(KERNELS, init={"means": centres}, max_iter=2, n_jobs=2).fit(X, y)
    return peak_memory() - before


def memory(folder: Path, gigabytes: float, n_rows: int) -> list[dict[str, Any]]:
    """The peak memory of fits, each in a process of its own."""
    in_file = int(gigabytes * 1e9 / (8 * FEATURES))
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float64, (in_file, FEATURES))
    fill(X)
    table = []
    for name, rows in [*((name, str(n_rows)) for name in MODELS), (FILE, str(folder / "X.npy"))]:
        command = [sys.executable, "-W", "ignore", __file__, "memory", "--fit", name, "--rows", rows]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        counted = in_file if name == FILE else n_rows
        row = {"fit": name, "rows": counted, "features": FEATURES, "kernels": KERNELS}
        table.append(row | {"memory, MiB": f"{float(done.stdout):.0f}"})
    return table


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["speed", "memory"])
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--fit", help="measure one fit in this process")
    parser.add_argument("--rows", default="1000000", help="of fits in memory, or a file")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.fit:
        print(fit_here(arguments.fit, arguments.rows))
        return
    with tempfile.TemporaryDirectory() as name:
        if arguments.part == "speed":
            table = speed(Path(name), 0.001 if arguments.small else 0.15, arguments.repeats)
        else:
            table = memory(Path(name), *((0.001, 5000) if arguments.small else (2.0, 1_000_000)))
    show(table, arguments.out)


if __name__ == "__main__":
    main()
