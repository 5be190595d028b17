"""Hundreds of features and of kernels: time and memory of low-rank and of full covariances.

A single kernel of low rank is a factor analysis, which scikit-learn has too: both fit the same rows, and the
benchmark prints the log-likelihood that each reaches, and its time. Memory is the peak of a fresh process
beyond the rows; that of full covariances is computed, not measured.

The default sizes take some minutes on two cores. Processor time includes all threads, and hardly depends on
other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from out_of_core import Clock
from rich.console import Console
from rich.table import Table
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.io.writing import replacing

MEGABYTE = 2.0**20
N_CLUSTERS, N_HIDDEN = 20, 8


def draw(n_rows: int, n_features: int) -> np.ndarray:
    """Return rows of clusters, each of which varies most along a few directions of its own."""
    random = np.random.default_rng(0)
    X = 0.5 * random.standard_normal((n_rows, n_features))
    cluster = np.arange(n_rows) % N_CLUSTERS
    for c in range(N_CLUSTERS):
        own = np.flatnonzero(cluster == c)
        directions = random.standard_normal((N_HIDDEN, n_features))
        X[own] += random.standard_normal(n_features)
        X[own] += random.standard_normal((len(own), N_HIDDEN)) @ directions
    return X


def memory(field: str) -> float:
    """Return a number of this process's status in MB, on Linux only."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    line = next(line for line in status.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure(sizes: argparse.Namespace) -> dict[str, float]:
    """Fit a mixture in this process."""
    X = draw(sizes.rows, sizes.features)
    clock = Clock()
    model = SharedKernelMixture(
        sizes.kernels,
        covariance_type=("low_rank", sizes.factors),
        init="random_from_data",
        covariance_prior=None,
        max_iter=sizes.passes,
        tol=0.0,
        n_jobs=sizes.jobs,
        random_state=0,
    ).set_callbacks(clock)
    before = memory("VmRSS")
    begun, busy = time.perf_counter(), time.process_time()
    model.fit(X)
    return {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - busy,
        "seconds_per_pass": float(np.median(np.diff(clock.ends))),
        "peak_mb": memory("VmHWM") - before,
        "first": float(model.log_likelihood_path_[0, 0] / sizes.rows),
        "last": float(model.log_likelihood_ / sizes.rows),
        "covariances_mb": model.covariances_.nbytes / MEGABYTE,
    }


def beside_peer(n_rows: int, n_features: int, n_factors: int, n_jobs: int) -> dict[str, dict[str, float]]:
    """Fit one kernel, which is a factor analysis, by both libraries."""
    X = draw(n_rows, n_features)
    makers: dict[str, Any] = {
        "scikit-learn": lambda: FactorAnalysis(n_factors, tol=1e-4 * n_rows, random_state=0),
        "skmix": lambda: SharedKernelMixture(
            1, covariance_type=("low_rank", n_factors), max_iter=1000, n_jobs=n_jobs, random_state=0
        ),
    }
    found = {}
    for name, make in makers.items():
        begun, busy = time.perf_counter(), time.process_time()
        model = make().fit(X)
        found[name] = {
            "seconds": time.perf_counter() - begun,
            "processor_seconds": time.process_time() - busy,
            "passes": model.n_iter_,
            "log_density": float(model.score(X)),
        }
    return found


def show(sizes: argparse.Namespace, fit: dict[str, float], peers: dict[str, dict[str, float]]) -> None:
    """Print what was measured."""
    console = Console(width=120)
    full = 8.0 * sizes.kernels * sizes.features**2 / MEGABYTE
    sums = 8.0 * sizes.kernels * sizes.features * (sizes.features + 1) / 2 / MEGABYTE
    table = Table(
        title=f"{sizes.rows} rows of {sizes.features} features, {sizes.kernels} kernels, "
        f"{sizes.factors} factors, {sizes.jobs} threads"
    )
    for name in ("", "low rank", "full (computed)"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("covariances, MB", f"{fit['covariances_mb']:.0f}", f"{full:.0f}")
    table.add_row(
        "peak beyond the rows, MB", f"{fit['peak_mb']:.0f}",
        f"{2 * full + sums:.0f} or more: covariances, their factors, sums",
    )  # fmt: skip
    table.add_row("one pass, s", f"{fit['seconds_per_pass']:.1f}", "")
    table.add_row(f"fit of {sizes.passes} passes with its start, s", f"{fit['seconds']:.1f}", "")
    table.add_row("the same, s of the processor", f"{fit['processor_seconds']:.1f}", "")
    table.add_row("log-likelihood per row, first and last", f"{fit['first']:.1f}, {fit['last']:.1f}", "")
    console.print(table)
    table = Table(
        title=f"one kernel: {sizes.peer_rows} rows, {sizes.features} features, {sizes.factors} factors"
    )
    for name in ("factor analysis by", "seconds", "of the processor", "passes", "log-density of a row"):
        table.add_column(name, justify="right" if name != "factor analysis by" else "left")
    for name, found in peers.items():
        table.add_row(
            name, f"{found['seconds']:.1f}", f"{found['processor_seconds']:.1f}",
            f"{found['passes']:.0f}", f"{found['log_density']:.3f}",
        )  # fmt: skip
    console.print(table)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=784)
    parser.add_argument("--kernels", type=int, default=200)
    parser.add_argument("--factors", type=int, default=10)
    parser.add_argument("--passes", type=int, default=5)
    parser.add_argument("--peer-rows", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="threads of a fit")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    sizes = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    if sizes.small:
        sizes.rows, sizes.features, sizes.kernels, sizes.factors, sizes.peer_rows = 400, 30, 4, 3, 200
    if sizes.measure:
        print(json.dumps(measure(sizes)))
        return
    # Use a fresh process: memory that the parent has used would hide the peak of the fit.
    command = [sys.executable, __file__, *sys.argv[1:], "--measure"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    fit = json.loads(done.stdout.splitlines()[-1])
    peers = beside_peer(sizes.peer_rows, sizes.features, sizes.factors, sizes.jobs)
    show(sizes, fit, peers)
    if sizes.out is not None:
        results = {"sizes": {k: v for k, v in vars(sizes).items() if k != "out"}, "fit": fit, "peers": peers}
        with replacing(sizes.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
