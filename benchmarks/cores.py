"""The gain of more cores: whole fits of a million rows with 1, 2, 4, … threads.

Prints milliseconds per pass and the ratio to one thread, and writes them to a JSON file. Run it on an idle
computer: other programs distort the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import skmix
from skmix.data.write import replacing

# Covariances, M, K and N; fewer rows if a pass over a million would take seconds.
CASES = [
    ("full", 3, 10, 1_000_000),
    ("full", 6, 10, 1_000_000),
    ("full", 13, 20, 1_000_000),
    ("full", 32, 32, 400_000),
    ("full", 64, 32, 200_000),
    ("tied", 32, 32, 1_000_000),
    ("diag", 3, 10, 1_000_000),
    ("diag", 32, 32, 1_000_000),
    ("spherical", 32, 32, 1_000_000),
]
# Passes of the two fits whose difference is timed.
PASSES = (3, 13)
# The same with tiny sizes.
SMALL_PASSES = (1, 2)


def seconds_per_pass(
    X: np.ndarray, centres: np.ndarray, repeats: int, passes: tuple[int, int], **settings: Any
) -> float:
    """Return the seconds of a pass, from the shortest times of fits with few and with many passes."""
    found = {}
    for n_passes in passes:
        model = skmix.SharedKernelMixture(
            len(centres), init={"means": centres}, max_iter=n_passes, tol=0.0, **settings
        )
        model.fit(X)
        times = []
        for _ in range(repeats):
            begun = time.perf_counter()
            model.fit(X)
            times.append(time.perf_counter() - begun)
        found[n_passes] = min(times)
    few, many = passes
    return (found[many] - found[few]) / (many - few)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--small",
        action="store_true",
        help="a thousandth of the rows and one size of each, to check that it runs",
    )
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    most = os.cpu_count() or 1
    threads = sorted({min(2**i, most) for i in range(8)})
    results: dict[str, Any] = {"cores": most, "numpy": np.__version__, "cases": []}
    print("milliseconds of a pass, and the ratio to one thread, with", *threads, "threads", flush=True)
    cases, passes = CASES, PASSES
    if arguments.small:
        cases = [case for i, case in enumerate(CASES) if case[0] not in [each[0] for each in CASES[:i]]]
        passes = SMALL_PASSES
    for covariance_type, n_features, n_kernels, n_rows in cases:
        n_rows //= 1000 if arguments.small else 1
        random = np.random.default_rng(0)
        centres = 2.0 * random.normal(size=(n_kernels, n_features))
        X = random.normal(size=(n_rows, n_features)) + centres[random.integers(n_kernels, size=n_rows)]
        times = {
            n_jobs: 1e3
            * seconds_per_pass(
                X, centres, arguments.repeats, passes, covariance_type=covariance_type, n_jobs=n_jobs
            )
            for n_jobs in threads
        }
        results["cases"].append(
            {
                "covariances": covariance_type,
                "rows": n_rows,
                "features": n_features,
                "kernels": n_kernels,
                "ms": times,
            }
        )
        print(
            f"{covariance_type:10s} N={n_rows} M={n_features} K={n_kernels}:",
            *(f"{value:.1f} ({times[1] / value:.1f}x)" for value in times.values()),
            flush=True,
        )
    if arguments.out:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
