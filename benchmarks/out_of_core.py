"""A file larger than memory would be: speed of a pass beside the same rows in memory, and peak memory.

Run by ``make bench`` at a small size; ``--gigabytes 4`` is the size that the limits are stated for. Every
measurement is made in a process of its own: one that fits the file, and one that fits part of it in memory,
in turn. Times are those between passes of one fit, after the file has been read once; processor time is given
beside them, for machines that have other work to do. Prints a summary, and with ``--out`` writes a JSON file.
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
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture, open_rows

N_FEATURES = 16
N_KERNELS = 16
N_CLASSES = 4
_CHUNK = 1 << 17
# Limits that a 4 GB file must keep: MB of resident memory, and share of the speed in memory.
MOST_MEMORY = 600
LEAST_SPEED = 0.7


class Clock:
    """Callback that notes when passes end."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing."""

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Note the time."""
        if context.task_name == "pass":
            self.ends.append((time.perf_counter(), time.process_time()))


def write_rows(folder: Path, n_rows: int) -> None:
    """Write rows of overlapping kernels and their labels, without holding them."""
    random = np.random.default_rng(0)
    centres = 2.0 * random.normal(size=(N_KERNELS, N_FEATURES))
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float64, (n_rows, N_FEATURES))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", np.int64, (n_rows,))
    for a in range(0, n_rows, _CHUNK):
        b = min(a + _CHUNK, n_rows)
        kernels = random.integers(0, N_KERNELS, b - a)
        X[a:b] = centres[kernels] + random.normal(size=(b - a, N_FEATURES))
        y[a:b] = kernels % N_CLASSES


def peak_memory() -> float:
    """Return the largest resident memory of this process so far, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # What getrusage says may be the parent's: it survives the start of another program.
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20


def measure(folder: Path, where: str, n_passes: int, n_jobs: int, share: float) -> dict[str, Any]:
    """Fit the file, part of it in memory, or nothing, in this process."""
    before = peak_memory()
    if where == "file":
        rows = open_rows(folder / "X.npy", label=folder / "y.npy")
        n_rows, given = rows.n_rows, (rows,)
    else:
        n_rows = int(share * len(np.load(folder / "y.npy", mmap_mode="r")))
        given = tuple(np.array(np.load(folder / f"{name}.npy", mmap_mode="r")[:n_rows]) for name in "Xy")
    clock = Clock()
    model = SharedKernelMixture(N_KERNELS, max_iter=n_passes + 1, tol=0.0, n_jobs=n_jobs, random_state=0)
    model.set_callbacks(clock)
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(*given)
    seconds, processor_seconds = np.median(np.diff(clock.ends, axis=0), axis=0).tolist()
    return {
        "where": where,
        "rows": n_rows,
        "seconds_per_pass": seconds,
        "rows_per_second": n_rows / seconds,
        "rows_per_processor_second": n_rows / processor_seconds,
        "seconds": time.perf_counter() - begun,
        "peak_mb": peak_memory(),
        "peak_mb_before": before,
        "log_likelihood_per_row": model.log_likelihood_ / n_rows,
    }


def in_a_process(arguments: argparse.Namespace, folder: Path, where: str) -> dict[str, Any]:
    """Measure in a fresh process."""
    command = [sys.executable, __file__, "--measure", where, "--folder", str(folder)]
    command += ["--passes", str(arguments.passes), "--jobs", str(arguments.jobs)]
    command += ["--share", str(arguments.share)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0, help="size of the file")
    parser.add_argument("--passes", type=int, default=3, help="passes to time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads of a fit")
    parser.add_argument("--repeats", type=int, default=2, help="how often to measure, in turn")
    parser.add_argument("--share", type=float, default=0.125, help="part of the rows that is held in memory")
    parser.add_argument("--temporary", type=Path, help="where to write the file")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--measure", choices=["file", "memory"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        print(
            json.dumps(
                measure(
                    arguments.folder, arguments.measure, arguments.passes, arguments.jobs, arguments.share
                )
            )
        )
        return
    n_rows = int(arguments.gigabytes * 1e9 / (8 * N_FEATURES))
    with tempfile.TemporaryDirectory(dir=arguments.temporary) as name:
        folder = Path(name)
        write_rows(folder, n_rows)
        size = sum((folder / f"{file}.npy").stat().st_size for file in "Xy")
        runs = [
            in_a_process(arguments, folder, where)
            for _ in range(arguments.repeats)
            for where in ("memory", "file")
        ]
    best, busy = (
        {where: max(run[name] for run in runs if run["where"] == where) for where in ("memory", "file")}
        for name in ("rows_per_second", "rows_per_processor_second")
    )
    peak = max(run["peak_mb"] for run in runs if run["where"] == "file")
    results = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "gigabytes": size / 1e9,
        "rows": n_rows,
        "features": N_FEATURES,
        "kernels": N_KERNELS,
        "classes": N_CLASSES,
        "jobs": arguments.jobs,
        "rows_per_second": best,
        "speed_of_memory": best["file"] / best["memory"],
        "rows_per_processor_second": busy,
        "processor_speed_of_memory": busy["file"] / busy["memory"],
        "peak_mb": peak,
        "runs": runs,
    }
    print(
        f"{n_rows} rows of {N_FEATURES} features ({size / 1e9:.1f} GB), {N_KERNELS} kernels, "
        f"{arguments.jobs} threads: {best['file'] / 1e6:.2f} million rows a second from the file, "
        f"{best['memory'] / 1e6:.2f} in memory: {results['speed_of_memory']:.0%}, by processor time "
        f"{results['processor_speed_of_memory']:.0%} (at least {LEAST_SPEED:.0%} wanted). "
        f"Peak memory {peak:.0f} MB (at most {MOST_MEMORY} wanted)."
    )
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
