"""The cost of missing values: passes of EM, fits and scores of rows with gaps compared with complete rows.

The same rows are fitted complete, with a few hundred patterns of gaps, and with a different pattern in nearly
every row. The time of a pass is the difference of two fits of different lengths. All times are processor
times, which hardly depend on other programs.

It takes some seconds on one core.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.data.write import replacing

STRUCTURES = ("full", "tied", "diag", "spherical")
N_KERNELS, N_PATTERNS = 10, 400


def draw(n_rows: int, n_features: int) -> dict[str, np.ndarray]:
    """Return rows of ten clusters without gaps, with few patterns of gaps, and with many."""
    random = np.random.default_rng(0)
    centres = 2.0 * random.standard_normal((N_KERNELS, n_features))
    turn = np.eye(n_features) + 0.2 * random.standard_normal((n_features, n_features))
    X = centres[random.integers(0, N_KERNELS, n_rows)] + random.standard_normal((n_rows, n_features)) @ turn
    patterns = random.uniform(size=(N_PATTERNS, n_features)) < 0.2
    few = patterns[random.integers(0, N_PATTERNS, n_rows)]
    many = random.uniform(size=X.shape) < 0.4
    for gaps in (few, many):
        gaps[gaps.all(axis=1), 0] = False
    return {"none": X, "few": np.where(few, np.nan, X), "many": np.where(many, np.nan, X)}


def fastest(work: Callable[[], Any], n_repeats: int) -> float:
    """Return the shortest of some processor times."""
    times = []
    for _ in range(n_repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def measure(X: np.ndarray, covariance_type: str, n_passes: int, n_repeats: int) -> dict[str, float]:
    """Return the times of a pass, a fit and a score, in milliseconds."""
    model = SharedKernelMixture(N_KERNELS, covariance_type=covariance_type, tol=0.0, random_state=0)
    short, long = (
        fastest(lambda n=n: model.set_params(max_iter=n).fit(X), n_repeats) for n in (2, 2 + n_passes)
    )
    score = fastest(lambda: model.score_samples(X), n_repeats)
    times = {"pass_ms": (long - short) / n_passes, "fit_ms": long, "score_ms": score}
    return {name: 1e3 * seconds for name, seconds in times.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--features", type=int, default=15)
    parser.add_argument("--passes", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=STRUCTURES)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    n_rows, n_passes, n_repeats = arguments.rows, arguments.passes, arguments.repeats
    if arguments.small:
        n_rows, n_passes, n_repeats = 100, 2, 1
    table = Table(title=f"{n_rows} rows of {arguments.features} features, {N_KERNELS} kernels")
    for title in ("covariances", "patterns", "pass, ms", "ratio", "fit, ms", "ratio", "score, ms", "ratio"):
        table.add_column(title, justify="left" if title == "covariances" else "right")
    results: list[dict[str, Any]] = []
    data = draw(n_rows, arguments.features)
    for covariance_type in arguments.structures:
        # The first fit of a process takes longer.
        SharedKernelMixture(N_KERNELS, covariance_type=covariance_type, max_iter=1).fit(data["few"])
        complete: dict[str, float] = {}
        for gaps, X in data.items():
            found = measure(X, covariance_type, n_passes, n_repeats)
            complete = complete or found
            ratios = {name.replace("_ms", "_ratio"): found[name] / complete[name] for name in found}
            n_patterns = len(np.unique(np.isnan(X), axis=0))
            results.append(
                {"covariance_type": covariance_type, "gaps": gaps, "patterns": n_patterns, **found, **ratios}
            )
            numbers = [n for pair in zip(found.values(), ratios.values(), strict=True) for n in pair]
            table.add_row(covariance_type, str(n_patterns), *(f"{number:.1f}" for number in numbers))
    Console(width=110).print(table)
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
