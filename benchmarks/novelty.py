"""Novelty detection: does a classifier refuse the nominal share of new rows?

`SharedKernelClassifier`, or with ``--search`` `SharedKernelClassifierCV`, is fitted with
``reject_below=share`` to three quarters of the rows of each set, and predicts the others. Sets of fewer than
200 rows are left out. The criterion is that, on each set, the mean share over several splits is within a
factor of 1.5 of the nominal one.

It takes some minutes on one core. Tables are read from the folder that ``--files`` names.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from comparison import HALVES, DataSet, find_data
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.io.writing import replacing

NOMINAL = (0.01, 0.05, 0.1)
TOLERATED = 1.5
FEWEST_ROWS = 200


def refused(data: DataSet, seed: int, n_splits: int, max_rows: int, *, search: bool) -> list[float]:
    """Return the share of new rows refused in the split `seed`, for each nominal share."""
    splits = StratifiedShuffleSplit(n_splits, test_size=0.25, random_state=0)
    shares, codes = [], np.unique(data.y, return_inverse=True)[1]
    train, test = list(splits.split(data.X, codes))[seed]
    for nominal in NOMINAL:
        model: Any = SharedKernelClassifier(reject_below=nominal, outlier_label=-1, random_state=seed)
        if search:
            model = SharedKernelClassifierCV(model, random_state=seed)
        model.fit(data.X[train[:max_rows]], codes[train[:max_rows]])
        shares.append(float(np.mean(model.predict(data.X[test]) == -1)))  # the label of outliers
    return shares


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--max-rows", type=int, default=1000, help="most training rows")
    parser.add_argument("--search", action="store_true", help="SharedKernelClassifierCV")
    parser.add_argument("--jobs", type=int, default=1, help="splits at a time")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: list[dict[str, Any]] = []
    shown = Table(title="new rows refused, in percent")
    for title in ("half", "data", "rows", *(f"nominal {100 * share:g}" for share in NOMINAL)):
        shown.add_column(title, justify="left" if title in ("half", "data") else "right")
    half_of = {name: half for half, names in HALVES.items() for name in names}
    names = ["breast_cancer"] if arguments.small else list(half_of)
    sets = {name: find_data(name, arguments.files) for name in names}
    sets = {name: data for name, data in sets.items() if len(data.y) >= FEWEST_ROWS}
    n_splits = 2 if arguments.small else arguments.splits
    work = Parallel(n_jobs=arguments.jobs)
    found = work(
        delayed(refused)(data, seed, n_splits, arguments.max_rows, search=arguments.search)
        for data in sets.values()
        for seed in range(n_splits)
    )
    by_set = np.reshape(found, (len(sets), n_splits, len(NOMINAL)))
    for (name, data), shares in zip(sets.items(), by_set, strict=True):
        means, errors = shares.mean(axis=0), shares.std(axis=0, ddof=1) / np.sqrt(n_splits)
        results += [
            {
                "data": data.name,
                "half": half_of[name],
                "rows": len(data.y),
                "nominal": nominal,
                "refused": float(mean),
                "error": float(error),
            }
            for nominal, mean, error in zip(NOMINAL, means, errors, strict=True)
        ]
        cells = [f"{100 * mean:.1f} ± {100 * error:.1f}" for mean, error in zip(means, errors, strict=True)]
        shown.add_row(half_of[name], data.name, str(len(data.y)), *cells)
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
