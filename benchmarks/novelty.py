"""Novelty detection: is the share of new rows that `SharedKernelClassifier` refuses the one asked for?

A classifier with ``reject_below=share`` is fitted to three quarters of the rows of each set, and the rest is
new to it. Sets of fewer than 200 rows are left out. The criterion: on each set the mean share over several
splits is within a factor of 1.5 of the nominal one.

Some minutes on one core. Tables are read from the folder that ``--files`` names.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier
from skmix.experiments.field import HALVES, DataSet, find_data
from skmix.io import replacing

NOMINAL = (0.01, 0.05, 0.1)
TOLERATED = 1.5
FEWEST_ROWS = 200


def refused(data: DataSet, nominal: float, n_splits: int, max_rows: int) -> tuple[float, float]:
    """Return the mean share of new rows that is refused, and its standard error over splits."""
    splits = StratifiedShuffleSplit(n_splits, test_size=0.25, random_state=0)
    shares, codes = [], np.unique(data.y, return_inverse=True)[1]
    for seed, (train, test) in enumerate(splits.split(data.X, codes)):
        rows = train[:max_rows]
        model = SharedKernelClassifier(reject_below=nominal, random_state=seed).fit(data.X[rows], codes[rows])
        shares.append(float(np.mean(model.score_samples(data.X[test]) < model.threshold_)))
    return float(np.mean(shares)), float(np.std(shares, ddof=1) / np.sqrt(n_splits))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--max-rows", type=int, default=1000, help="training rows at most")
    parser.add_argument("--out", type=Path, help="JSON file of the numbers")
    parser.add_argument("--small", action="store_true", help="little, to see that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: list[dict[str, Any]] = []
    shown = Table(title="new rows refused, in percent")
    for title in ("half", "data", "rows", *(f"nominal {100 * share:g}" for share in NOMINAL)):
        shown.add_column(title, justify="left" if title in ("half", "data") else "right")
    for half, name in [(half, name) for half, names in HALVES.items() for name in names]:
        if arguments.small and name != "breast_cancer":
            continue
        data = find_data(name, arguments.files)
        if len(data.y) < FEWEST_ROWS:
            continue
        n_splits = 2 if arguments.small else arguments.splits
        found = {share: refused(data, share, n_splits, arguments.max_rows) for share in NOMINAL}
        results += [
            {
                "data": data.name,
                "half": half,
                "rows": len(data.y),
                "nominal": share,
                "refused": mean,
                "error": error,
            }
            for share, (mean, error) in found.items()
        ]
        cells = [f"{100 * mean:.1f} ± {100 * error:.1f}" for mean, error in found.values()]
        shown.add_row(half, data.name, str(len(data.y)), *cells)
    console = Console(width=120)
    console.print(shown)
    for share in NOMINAL:
        ratios = {row["data"]: row["refused"] / share for row in results if row["nominal"] == share}
        beyond = [data for data, ratio in ratios.items() if not 1.0 / TOLERATED <= ratio <= TOLERATED]
        within = f"within a factor of {TOLERATED} on {len(ratios) - len(beyond)} of {len(ratios)} sets"
        console.print(
            f"nominal {100 * share:g} %: {within}" + (f"; not on {', '.join(beyond)}" if beyond else "")
        )
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
