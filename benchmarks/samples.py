"""Many samples that share kernels: time and memory of a pass, cost of more samples, and the default start.

Each sample is a file (.npy, float32), simulated with a seed. Three questions, answered by public fits:

- ``files``: seconds of a pass over all files, per row and kernel, with one thread and with all, and the peak
  memory of a fresh process that makes the fit. They are compared with scikit-learn's `GaussianMixture` on
  similar rows in memory, on one thread in the same run, and with the 0.8 microseconds that the row loop of
  MSGMM (R; Rutten et al., BMC Bioinformatics 26:262, 2025) took with ten features on one core, in a run of
  20 samples of 20,000 rows with 20 kernels from the same start.
- ``groups``: a pass over the same rows in memory, divided into 1, 20, 200 and 2000 samples.
- ``starts``: the gap between fits from the default start and from the truth, in nats per row, for 100 samples
  of 300 rows and kernels that are apart.

``python benchmarks/samples.py --out benchmarks/results/samples.json`` has 100 files of 100,000 rows, 4 GB in
all; ``--files`` and ``--rows`` make them fewer and smaller, ``--device cuda`` computes there. The time of a
pass is the shortest time between the ends of two passes of a fit. Its processor time, over all threads, is
more reliable on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from out_of_core import Clock, peak_memory
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from skmix import SharedKernelMixture
from skmix.data.write import replacing

N_FEATURES, N_KERNELS = 10, 50
# Deviation of the kernels' means; their covariances are the identity.
SPREADS = {"overlapping": 0.7, "apart": 4.0}
GROUPS = (1, 20, 200, 2000)
PASSES = 4
# Microseconds per row and kernel of MSGMM.
MSGMM = 0.8
# Target: least ratio of its time to ours.
LEAST_RATIO = 20.0
# Target: most megabytes of resident memory.
MOST_MEMORY = 1000.0
# Target: largest ratio of the times of 2000 samples and of one.
MOST_COST = 2.0
# Samples of the fits from the default start.
START_GROUPS = 100
# Rows of each of them.
START_ROWS = 300
# Kernels of these fits.
START_KERNELS = 20
# Features, and deviation of the means.
START_CASES = ((5, 5.0), (10, 4.0), (2, 10.0))
MOST_SHORT = 0.02


def means_of(spread: float) -> np.ndarray:
    """Return the kernels' means (K, M)."""
    return spread * np.random.default_rng(0).normal(size=(N_KERNELS, N_FEATURES))


def draw(n_rows: int, means: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return rows (n, M) of one sample, whose weights are drawn too."""
    weights = random.dirichlet(np.ones(len(means)))
    rows = random.normal(size=(n_rows, means.shape[1]))
    return (rows + means[random.choice(len(means), n_rows, p=weights)]).astype(np.float32)


def write_samples(folder: Path, n_files: int, n_rows: int, spread: float) -> None:
    """Write one file for each sample."""
    means = means_of(spread)
    for number in range(n_files):
        rows = draw(n_rows, means, np.random.default_rng((1, number)))
        np.save(folder / f"sample_{number:04d}.npy", rows)


def start_at(means: np.ndarray) -> dict[str, np.ndarray]:
    """Return a start at given means (K, M), all covariances the identity."""
    return {"means": means, "covariances": np.tile(np.eye(means.shape[1]), (len(means), 1, 1))}


class BothClocks(Clock):
    """Callback that records when passes end, and the processor time until then."""

    def __init__(self) -> None:
        super().__init__()
        self.used: list[float] = []

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        """Record both times."""
        super().on_fit_task_end(estimator, context)
        if context.task_name == "pass":
            self.used.append(time.process_time())


def time_pass(means: np.ndarray, given: tuple[Any, ...], **settings: Any) -> tuple[float, float]:
    """Return the seconds of the fastest pass of a fit from given means (K, M), and processor seconds."""
    clock = BothClocks()
    model = SharedKernelMixture(len(means), init=start_at(means), max_iter=PASSES, tol=0.0, **settings)
    model.set_callbacks(clock)
    model.fit(*given)
    return float(np.min(np.diff(clock.ends))), float(np.min(np.diff(clock.used)))


def microseconds(seconds: float, n_rows: int) -> float:
    """Return microseconds per row and kernel."""
    return 1e6 * seconds / (n_rows * N_KERNELS)


def measure_files(folder: Path, kernels: str, n_rows: int, n_jobs: int, device: str | None) -> dict[str, Any]:
    """Return the time of a pass over files of n rows in all, and the peak memory of the process."""
    command = [sys.executable, __file__, "--fit", str(folder), "--kernels", kernels, "--jobs", str(n_jobs)]
    command += [] if device is None else ["--device", device]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, used, peak = map(float, done.stdout.splitlines()[-1].split())
    return {
        "kernels": kernels,
        "jobs": n_jobs,
        "device": device,
        "rows": n_rows,
        "seconds": seconds,
        "microseconds": microseconds(seconds, n_rows),
        "processor_microseconds": microseconds(used, n_rows),
        "peak_mb": peak,
    }


def measure_peer(n_rows: int, spread: float) -> float:
    """Return processor microseconds per row and kernel of a pass of scikit-learn's mixture on one thread."""
    means = means_of(spread)
    X = draw(n_rows, means, np.random.default_rng(2)).astype(np.float64)
    start = start_at(means)
    seconds = {}
    with threadpool_limits(1):
        for n_passes in (1, 1, 3):  # the first warms up
            model = GaussianMixture(
                N_KERNELS,
                means_init=means,
                weights_init=np.full(N_KERNELS, 1.0 / N_KERNELS),
                precisions_init=start["covariances"],
                max_iter=n_passes,
                tol=0.0,
            )
            begin = time.process_time()
            model.fit(X)
            seconds[n_passes] = time.process_time() - begin
    return microseconds((seconds[3] - seconds[1]) / 2, n_rows)


def measure_groups(n_rows: int, n_jobs: int, device: str | None, repeats: int) -> list[dict[str, Any]]:
    """Return the time of a pass over the same rows in more and more samples."""
    means = means_of(SPREADS["overlapping"])
    X = draw(n_rows, means, np.random.default_rng(3))
    found = []
    for prior in (None, "hierarchical"):
        # Give each sample a few rows: to scikit-learn, unique labels look like regression targets.
        cases = [n for n in GROUPS if n <= n_rows // 4 and (prior is None or n > 1)]
        times: dict[int, list[tuple[float, float]]] = {n: [] for n in cases}
        for _ in range(repeats):
            for n_groups in cases:
                y = np.arange(n_rows) * n_groups // n_rows
                settings = {"weight_prior": prior, "n_jobs": n_jobs, "device": device}
                times[n_groups].append(time_pass(means, (X, y), **settings))
        for n_groups, own in times.items():
            seconds, used = np.min(own, axis=0)
            row = {"groups": n_groups, "weight_prior": prior, "rows": n_rows}
            row |= {"seconds": float(seconds), "processor_seconds": float(used)}
            one = found[0] if found else row
            row |= {"cost": seconds / one["seconds"]}
            found.append(row | {"processor_cost": used / one["processor_seconds"]})
    return found


def measure_starts(repeats: int, start_groups: int) -> list[dict[str, float]]:
    """Return the gap between fits from the default start and from the truth, in nats per row."""
    found = []
    for n_features, spread in START_CASES:
        short: list[float] = []
        for seed in range(repeats):
            random = np.random.default_rng((4, seed))
            means = spread * random.normal(size=(START_KERNELS, n_features))
            X = np.concatenate([draw(START_ROWS, means, random) for _ in range(start_groups)])
            y = np.repeat(np.arange(start_groups), START_ROWS)
            truth = SharedKernelMixture(START_KERNELS, init=start_at(means)).fit(X, y).log_likelihood_
            model = SharedKernelMixture(START_KERNELS, random_state=seed).fit(X, y)
            short.append((truth - model.log_likelihood_) / len(X))
        found.append(
            {"features": n_features, "spread": spread, "mean": float(np.mean(short)), "most": max(short)}
        )
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100, help="number of samples")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of each sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="most threads of a fit")
    parser.add_argument("--device", help="where to compute, such as cuda")
    parser.add_argument("--repeats", type=int, default=3, help="how often to measure")
    parser.add_argument("--temporary", type=Path, help="where to write the files")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    parser.add_argument("--fit", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--kernels", choices=SPREADS, default="overlapping", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if arguments.fit is not None:
        settings = {"n_jobs": arguments.jobs, "device": arguments.device}
        print(*time_pass(means_of(SPREADS[arguments.kernels]), (arguments.fit,), **settings), peak_memory())
        return
    n_files, n_rows, repeats = arguments.files, arguments.rows, arguments.repeats
    start_groups = START_GROUPS
    if arguments.small:
        n_files, n_rows, repeats, start_groups = 4, 500, 1, 4
    results: dict[str, Any] = {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "sizes": {"files": n_files, "rows": n_rows, "features": N_FEATURES, "kernels": N_KERNELS},
        "msgmm_microseconds": MSGMM,
        "files": [],
        "scikit_learn_microseconds": {},
    }
    for kernels, spread in SPREADS.items():
        peer = measure_peer(2_000 if arguments.small else 20_000, spread)
        results["scikit_learn_microseconds"][kernels] = peer
        print(f"{kernels}: scikit-learn {peer:.3f} µs per row and kernel", flush=True)
        with tempfile.TemporaryDirectory(dir=arguments.temporary) as name:
            write_samples(Path(name), n_files, n_rows, spread)
            for n_jobs in [1] if arguments.device else sorted({1, arguments.jobs}):
                row = measure_files(Path(name), kernels, n_files * n_rows, n_jobs, arguments.device)
                results["files"].append(row)
                where = arguments.device or f"{n_jobs} thread(s)"
                print(
                    f"{kernels}, {where}: {n_files} files of {n_rows} rows in "
                    f"{row['seconds']:.2f} s a pass, {row['microseconds']:.4f} µs per row and kernel "
                    f"({row['processor_microseconds']:.4f} of processors), MSGMM "
                    f"{MSGMM / row['microseconds']:.1f} times as much (at least {LEAST_RATIO:.0f} wanted); "
                    f"{row['peak_mb']:.0f} MB at most (less than {MOST_MEMORY:.0f} wanted)",
                    flush=True,
                )
    n_same = min(n_files * n_rows, 200_000)
    results["groups"] = measure_groups(n_same, arguments.jobs, arguments.device, repeats)
    for row in results["groups"]:
        print(
            f"{row['groups']} group(s), weight_prior={row['weight_prior']}: {1e3 * row['seconds']:.1f} ms a "
            f"pass, {row['cost']:.2f} of one group's (at most {MOST_COST:g} wanted; "
            f"{row['processor_cost']:.2f} of its processor time)"
        )
    results["starts"] = measure_starts(repeats, start_groups)
    for row in results["starts"]:
        print(
            f"default start, M={row['features']}: {row['mean']:.4f} nats per row short of the truth ("
            f"less than {MOST_SHORT} wanted), at most {row['most']:.4f}"
        )
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
