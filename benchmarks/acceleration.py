"""Passes and time of EM with and without extrapolation, from the same starts, measured in the same run.

A plain fit runs until it converges; the accelerated one is measured until it reaches the same log-likelihood.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from skmix.engine import starts
from skmix.engine.em import fit
from skmix.engine.model import Options
from skmix.engine.sources.summary import measure
from skmix.engine.structures import structure_of

# Features, kernels, and spread of the centres in standard deviations of a cluster.
CASES = [(1, 3, 1.5), (2, 3, 1.0), (2, 5, 1.5), (5, 4, 1.0), (3, 8, 1.2)]


def compare(n_rows: int, n_features: int, n_kernels: int, spread: float, n_starts: int) -> dict[str, float]:
    """Fit overlapping clusters from several starts, plain and accelerated."""
    random = np.random.default_rng(0)
    centres = spread * random.normal(size=(n_kernels, n_features))
    X = centres[random.integers(n_kernels, size=n_rows)] + random.normal(size=(n_rows, n_features))
    structure = structure_of("full")
    frame = measure(X, structure)
    wanted = starts.Wanted(1, n_starts, n_kernels, frame, structure, np.random.RandomState(0))
    begin = starts.k_means(X, np.zeros(n_rows, dtype=np.int64), wanted)
    options = Options(max_iter=10_000, tol=1e-7)
    found = {"plain": 0.0, "fast": 0.0, "plain_s": 0.0, "fast_s": 0.0, "lower": 0.0}
    for r in range(n_starts):
        one = begin.take(slice(r, r + 1))
        clock = time.perf_counter()
        plain = fit(X, one, options, frame=frame)
        found["plain_s"] += time.perf_counter() - clock
        clock = time.perf_counter()
        fast = fit(X, one, replace(options, accelerate=True), frame=frame)
        found["fast_s"] += time.perf_counter() - clock
        goal = plain.log_likelihood.sum() - options.tol * n_rows
        found["plain"] += plain.n_iter[0]
        found["fast"] += int(np.argmax(np.append(fast.path[0].sum(axis=1), np.inf) >= goal))
        found["lower"] += bool(fast.log_likelihood.sum() < goal)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    small = parser.parse_args().small
    table = Table(title="overlapping kernels: passes until as high as the plain fit's end")
    for name in ("M", "K", "plain", "accelerated", "ratio", "whole fits, s", "starts that end lower"):
        table.add_column(name, justify="right")
    for n_features, n_kernels, spread in CASES[: 2 if small else None]:
        found = compare(200 if small else 3000, n_features, n_kernels, spread, 2 if small else 8)
        table.add_row(
            str(n_features), str(n_kernels), f"{found['plain']:.0f}", f"{found['fast']:.0f}",
            f"{found['plain'] / max(found['fast'], 1):.1f}",
            f"{found['plain_s']:.1f} / {found['fast_s']:.1f}", f"{found['lower']:.0f}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
