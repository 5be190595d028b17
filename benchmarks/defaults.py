"""Are the defaults good? ``SharedKernelClassifier()`` against linear and quadratic discriminant analysis.

Errors are means over several stratified splits that hold out a quarter of the rows. There are two criteria:
the default is never more than two points worse than the better of the two, and it is better than both on at
least half of the sets. Defaults were chosen on the development half of the sets only.

Some minutes on one core. Tables are read from the folder that ``--files`` names.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from comparison import HALVES, DataSet, find_data
from rich.console import Console
from rich.table import Table
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skmix import SharedKernelClassifier
from skmix.io.writing import replacing

MODELS = ("LDA", "QDA", "default")
# Largest excess error over the better of both analyses.
TOLERATED = 0.02


def model_of(name: str, seed: int) -> Any:
    """Return an unfitted classifier; for those of scikit-learn, means replace missing values."""
    if name == "default":
        return SharedKernelClassifier(random_state=seed)
    # Features that are constant in a class need a little regularisation.
    analysis = (
        LinearDiscriminantAnalysis() if name == "LDA" else QuadraticDiscriminantAnalysis(reg_param=1e-3)
    )
    return make_pipeline(SimpleImputer(), StandardScaler(), analysis)


def errors_of(data: DataSet, n_splits: int, max_rows: int) -> dict[str, float]:
    """Return the mean held-out error of each model, trained on at most `max_rows` rows."""
    splits = StratifiedShuffleSplit(n_splits, test_size=0.25, random_state=0)
    errors: dict[str, list[float]] = {name: [] for name in MODELS}
    for seed, (train, test) in enumerate(splits.split(data.X, data.y)):
        rows = train[:max_rows]
        for name, found in errors.items():
            try:
                model = model_of(name, seed).fit(data.X[rows], data.y[rows])
                found.append(1.0 - model.score(data.X[test], data.y[test]))
            except np.linalg.LinAlgError:
                # Quadratic analysis fails if a class has no more rows than features.
                found.append(1.0)
    return {name: float(np.mean(found)) for name, found in errors.items()}


def judge(results: list[dict[str, Any]], half: str) -> str:
    """Return a line on both criteria for the sets of one half."""
    own = [row for row in results if row["half"] == half]
    excess = {row["data"]: row["default"] - min(row["LDA"], row["QDA"]) for row in own}
    worst = max(excess, key=excess.__getitem__)
    # Means of the same errors may differ in their last digit.
    better = sum(value < -1e-9 for value in excess.values())
    kept = excess[worst] <= TOLERATED and 2 * better >= len(own)
    return (
        f"{half}: better than both on {better} of {len(own)} sets; at worst "
        f"{100 * excess[worst]:+.1f} points ({worst}); criteria {'met' if kept else 'missed'}"
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=Path, help="folder with tables named after the sets")
    parser.add_argument("--half", choices=list(HALVES), help="only the sets of one half")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--max-rows", type=int, default=2000, help="most training rows")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results: list[dict[str, Any]] = []
    shown = Table(title="held-out error in percent")
    for title in ("half", "data", "rows", *MODELS, "points above the better"):
        shown.add_column(title, justify="left" if title in ("half", "data") else "right")
    sets = [(half, name) for half, names in HALVES.items() for name in names]
    for half, name in sets:
        if arguments.half not in (None, half) or (arguments.small and name not in ("iris", "wine")):
            continue
        data = find_data(name, arguments.files)
        found = errors_of(data, 2 if arguments.small else arguments.splits, arguments.max_rows)
        results.append({"data": data.name, "half": half, "rows": len(data.y), **found})
        shown.add_row(
            half, data.name, str(len(data.y)), *(f"{100 * found[model]:.1f}" for model in MODELS),
            f"{100 * (found['default'] - min(found['LDA'], found['QDA'])):+.1f}",
        )  # fmt: skip
    console = Console(width=120)
    console.print(shown)
    for half in dict.fromkeys(str(row["half"]) for row in results):
        console.print(judge(results, half))
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
