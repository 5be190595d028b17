"""Time of a pass of EM by number of kernels: with all kernels, and skipping provably irrelevant ones.

Fits of `SharedKernelMixture` go from the same start to the same log-likelihood, on elongated clusters that
are apart or overlap. The time of a pass is the median after the first one; the time until the end of the
first pass has its own column.

``python benchmarks/many_kernels.py --out benchmarks/results/many_kernels.json``; some minutes.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from recording import processor
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

import skmix
from skmix.engine.em import Run
from skmix.engine.sources import base
from skmix.io.writing import replacing

N_FEATURES = 16
KERNELS = (64, 256, 1024, 4096)
# Spread of the means in each feature, in units of the largest standard deviation of a cluster.
SPREADS = {"apart": 5.0, "overlapping": 1.0}
# Largest ratio of the axes of a cluster.
ELONGATION = 5.0
# Timed passes after the first.
N_PASSES = 3


def clusters(n_rows: int, n_kernels: int, spread: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return rows of elongated clusters in random directions, and a start near them."""
    random = np.random.default_rng(n_kernels)
    means = spread * random.normal(size=(n_kernels, N_FEATURES))
    rotation, _ = np.linalg.qr(random.normal(size=(n_kernels, N_FEATURES, N_FEATURES)))
    roots = rotation * ELONGATION ** -random.uniform(size=(n_kernels, 1, N_FEATURES))
    members = random.integers(n_kernels, size=n_rows)
    X = random.normal(size=(n_rows, N_FEATURES))
    for part in np.array_split(np.arange(n_rows), max(1, n_rows // 4096)):
        X[part] = means[members[part]] + (roots[members[part]] @ X[part, :, None])[..., 0]
    start = {
        "weights": np.full((n_kernels, 1), 1.0 / n_kernels),
        "means": means + 0.1 * random.normal(size=means.shape),
        "covariances": np.tile(0.5 * np.eye(N_FEATURES), (n_kernels, 1, 1)),
    }
    return X, start


def fit(
    X: np.ndarray, start: dict[str, np.ndarray], n_passes: int, n_jobs: int
) -> tuple[float, np.ndarray, float]:
    """Return the seconds until the first pass ends, those of each later one, and the log-likelihood."""
    model = skmix.SharedKernelMixture(
        len(start["means"]), init=start, max_iter=n_passes, tol=0.0, covariance_prior=None,
        n_jobs=n_jobs,
    )  # fmt: skip
    ends, step = [], Run.step

    def timed(run: Run) -> None:
        step(run)
        ends.append(time.perf_counter())

    begun = time.perf_counter()
    with patch.object(Run, "step", timed):
        model.fit(X)
    return ends[0] - begun, np.diff(ends), float(model.log_likelihood_path_[-1].sum())


def compare(n_rows: int, n_kernels: int, case: str, n_passes: int, n_jobs: int) -> dict[str, Any]:
    """Time both kinds of passes on the same rows."""
    X, start = clusters(n_rows, n_kernels, SPREADS[case])
    row: dict[str, Any] = {"kernels": n_kernels, "clusters": case, "rows": n_rows, "features": N_FEATURES}
    reached = {}
    for name, allowed in (("skipping", True), ("dense", False)):
        # Always skip kernels, or never, whatever their number.
        with patch.object(base, "_MANY_KERNELS", 1 if allowed else 1 << 60):
            first, later, reached[name] = fit(X, start, 1 + n_passes, n_jobs)
        row[f"{name}_first_ms"] = 1e3 * first
        row[f"{name}_ms"] = 1e3 * float(np.median(later))
    row["ratio"] = row["dense_ms"] / row["skipping_ms"]
    row["log_likelihood_difference"] = abs(reached["skipping"] - reached["dense"]) / n_rows
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="threads of the fits")
    parser.add_argument("--passes", type=int, default=N_PASSES, help="passes that are timed")
    parser.add_argument("--kernels", type=int, nargs="+", default=KERNELS)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    n_rows, kernels = (2000, (16, 32)) if arguments.small else (200_000, arguments.kernels)
    common = arguments.passes, arguments.jobs
    if not arguments.small:
        compare(4000, 32, "apart", *common)  # compiles, or loads what was compiled
    console = Console()
    table = Table(title=f"ms per pass, {n_rows} rows, {N_FEATURES} features")
    for title in ("kernels", "clusters", "all kernels", "skipping", "ratio", "first, all", "first, skipping"):
        table.add_column(title, justify="right")
    rows = []
    for case in SPREADS:
        for n_kernels in kernels:
            with console.status(f"{n_kernels} kernels, {case}"):
                row = compare(n_rows, n_kernels, case, *common)
            rows.append(row)
            numbers = ("dense_ms", "skipping_ms", "ratio", "dense_first_ms", "skipping_first_ms")
            table.add_row(str(n_kernels), case, *[f"{row[name]:.3g}" for name in numbers])
    console.print(table)
    if arguments.out is not None:
        results = {"processor": processor(), "jobs": arguments.jobs, "cases": rows}
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
