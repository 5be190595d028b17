"""Files larger than memory: the speed of a pass compared with rows in memory, and the peak memory.

Run by ``make bench``. Passes over rows in memory, over a cached .npy file and over a Parquet file are
measured in turn, in one process, with one thread and with all, plus the reader's thread. A pass takes the
shortest time between the ends of two passes of a fit. The peak memory is that of a fresh process that
fits a larger .npy file. The script prints the results, and with ``--out`` writes a JSON file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
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
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, open_rows

# Features and kernels.
CASES = [(3, 10), (6, 10), (16, 16), (32, 32)]
N_CLASSES = 4
PASSES = 4
_CHUNK = 1 << 17
# Target: least speed from a cached .npy file, relative to rows in memory.
LEAST_SPEED = 0.7
# Target: most MB of resident memory.
MOST_MEMORY = 600


class Clock:
    """Callback that records when passes end."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Record the time."""
        if context.task_name == "pass":
            self.ends.append(time.perf_counter())


def write_rows(folder: Path, n_rows: int, n_features: int, n_kernels: int) -> None:
    """Write rows of overlapping kernels and their labels as .npy files, chunk by chunk."""
    random = np.random.default_rng(0)
    centres = 2.0 * random.normal(size=(n_kernels, n_features))
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float64, (n_rows, n_features))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int64, (n_rows,))
    for a in range(0, n_rows, _CHUNK):
        b = min(a + _CHUNK, n_rows)
        kernels = random.integers(0, n_kernels, b - a)
        X[a:b] = centres[kernels] + random.normal(size=(b - a, n_features))
        y[a:b] = kernels % N_CLASSES


def fit(given: tuple[Any, ...], means: np.ndarray, n_passes: int, n_jobs: int) -> tuple[float, float]:
    """Return the seconds of the fastest pass and the log-likelihood at the end."""
    clock = Clock()
    model = SharedKernelMixture(
        len(means), init={"means": means}, max_iter=n_passes, tol=0.0, n_jobs=n_jobs, random_state=0
    )
    model.set_callbacks(clock)
    model.fit(*given)
    return float(np.min(np.diff(clock.ends))), model.log_likelihood_


def measure_speed(
    folder: Path, n_rows: int, n_features: int, n_kernels: int, n_threads: int, repeats: int
) -> list[dict[str, Any]]:
    """Return the speed of passes over rows in memory and over files, with one thread and with all."""
    write_rows(folder, n_rows, n_features, n_kernels)
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    columns = {f"x{j}": X[:, j] for j in range(n_features)}
    pq.write_table(pa.table({**columns, "y": y}), folder / "rows.parquet")
    found = []
    for n_jobs in sorted({1, n_threads}):
        seconds: dict[str, list[float]] = {}
        values = {}
        for _ in range(repeats):
            for where, given in {
                "memory": (X, y),
                "npy": (open_rows(folder / "X.npy", label=folder / "y.npy"),),
                "parquet": (open_rows(folder / "rows.parquet", label="y"),),
            }.items():
                each, values[where] = fit(given, X[:n_kernels], PASSES, n_jobs)
                seconds.setdefault(where, []).append(each)
        best = {where: min(own) for where, own in seconds.items()}
        found.append(
            {
                "rows": n_rows,
                "features": n_features,
                "kernels": n_kernels,
                "jobs": n_jobs,
                "seconds": best,
                "speed_of_memory": {name: best["memory"] / best[name] for name in ("npy", "parquet")},
                "log_likelihood": values,
            }
        )
    return found


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not by getrusage: its peak may be the parent's, since it survives exec.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure_memory(folder: Path, n_rows: int, n_threads: int) -> dict[str, float]:
    """Return the peak memory in MB of a process that fits a file of 16 features with 16 kernels."""
    write_rows(folder, n_rows, 16, 16)
    command = [sys.executable, __file__, "--fit", str(folder), "--jobs", str(n_threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    size = sum((folder / f"{name}.npy").stat().st_size for name in "Xy")
    return {"gigabytes": size / 1e9, "peak_mb": float(done.stdout.splitlines()[-1])}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the file for the peak memory")
    parser.add_argument("--cached", type=float, default=0.15, help="gigabytes of the files that are timed")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="most threads of a fit")
    parser.add_argument("--repeats", type=int, default=2, help="how often to measure, in turn")
    parser.add_argument("--temporary", type=Path, help="where to write the files")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.fit is not None:
        rows = open_rows(arguments.fit / "X.npy", label=arguments.fit / "y.npy")
        fit((rows,), np.load(arguments.fit / "X.npy", mmap_mode="r")[:16].copy(), 2, arguments.jobs)
        print(peak_memory())
        return
    speed = []
    with tempfile.TemporaryDirectory(dir=arguments.temporary) as name:
        for n_features, n_kernels in CASES:
            n_rows = int(arguments.cached * 1e9 / (8 * n_features))
            sizes = n_rows, n_features, n_kernels
            for row in measure_speed(Path(name), *sizes, arguments.jobs, arguments.repeats):
                speed.append(row)
                print(
                    f"M={n_features}, K={n_kernels}, {row['jobs']} thread(s): {n_rows} rows in memory in "
                    f"{1e3 * row['seconds']['memory']:.0f} ms a pass; of this speed "
                    f"{row['speed_of_memory']['npy']:.0%} from .npy (at least {LEAST_SPEED:.0%} wanted), "
                    f"{row['speed_of_memory']['parquet']:.0%} from Parquet",
                    flush=True,
                )
        memory = measure_memory(Path(name), int(arguments.gigabytes * 1e9 / (8 * 16)), arguments.jobs)
    print(
        f"Peak memory of a fit of {memory['gigabytes']:.1f} GB: {memory['peak_mb']:.0f} MB "
        f"(at most {MOST_MEMORY} wanted)."
    )
    if arguments.out is not None:
        machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
        results = {"machine": machine, "speed": speed, "memory": memory}
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
