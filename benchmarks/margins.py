"""How far the average class-wise run is behind the best of 500 robust ones, over several data sets.

The best run is picked on the test images, so the margin moves with them; the study shows one data set only.
About 45 seconds for each seed on one core.
"""

from __future__ import annotations

import argparse

import numpy as np
from rich.console import Console
from rich.table import Table

from skmix.experiments import paper as study


def margins(seed: int, n_runs: int, n_class_wise: int) -> dict[str, float]:
    """Return for each variant the best robust accuracy less the mean class-wise one."""
    settings = study.Settings(seed=seed)
    data = study.make_data(settings)
    found = {}
    for variant in study.VARIANTS:
        robust = study.run_batch(data, variant.name, 10, "robust", range(n_runs), settings)
        own = study.run_batch(data, variant.name, 10, "class-wise", range(n_class_wise), settings)
        found[variant.name] = max(run.accuracy for run in robust) - np.mean([run.accuracy for run in own])
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--small", action="store_true", help="few runs, to see that everything runs")
    arguments = parser.parse_args()
    table = Table(title="best robust run less mean class-wise run; the study asks for at most 0.01")
    table.add_column("seed")
    for variant in study.VARIANTS:
        table.add_column(variant.name, justify="right")
    held = total = 0
    for seed in arguments.seeds[: 1 if arguments.small else None]:
        found = margins(seed, 2 if arguments.small else 500, 2 if arguments.small else 30)
        held += sum(margin <= 0.01 for margin in found.values())
        total += len(found)
        table.add_row(str(seed), *(f"{margin:.4f}" for margin in found.values()))
    console = Console(width=120)
    console.print(table)
    console.print(f"{held} of {total} hold")


if __name__ == "__main__":
    main()
