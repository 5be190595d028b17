"""Maximum likelihood and shrunk covariances on few rows: below how many rows should the default shrink?

The number of training rows of a class is a multiple of the number of features. Both fits are judged by
held-out rows: their mean log-density in their own class, and their classification error. The last column
says whether shrinking raised the density. `ROWS_PER_FEATURE` of the engine was chosen by this benchmark.

It takes some minutes on one core; glass, vehicle and letter are tables that ``--files`` names.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from comparison import DataSet, load_data
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedShuffleSplit

from skmix import SharedKernelClassifier
from skmix.data.write import replacing

NAMES = ("wine", "breast_cancer", "digits", "seven_segment")
ROWS_PER_FEATURE = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 12.0)
MOST_HELD_OUT = 1500


def compare(data: DataSet, ratio: float, n_repeats: int) -> dict[str, float] | None:
    """Fit one kernel for each class with and without shrinkage; None if there are too few rows."""
    n_classes, n_features = len(np.unique(data.y)), data.X.shape[1]
    n_rows = round(ratio * n_features * n_classes)
    if n_rows > 0.8 * len(data.y) or n_rows < 2 * n_classes:
        return None
    held_out = min(len(data.y) - n_rows, MOST_HELD_OUT)
    splits = StratifiedShuffleSplit(n_repeats, train_size=n_rows, test_size=held_out, random_state=0)
    found = []
    for repeat, (train, test) in enumerate(splits.split(data.X, data.y)):
        if len(np.unique(data.y[train])) < n_classes:
            continue
        row = []
        for prior in (None, "auto"):
            model = SharedKernelClassifier(covariance_prior=prior, tol=1e-3, random_state=repeat)
            model.fit(data.X[train], data.y[train])
            row += [
                model.models_[0].score(data.X[test], data.y[test]),
                1.0 - model.score(data.X[test], data.y[test]),
            ]
        found.append([*row, getattr(model, "shrinkage_", 0.0)])
    if not found:
        return None
    names = ("density", "error", "density_shrunk", "error_shrunk", "share")
    return {"rows": n_rows, **dict(zip(names, np.mean(found, axis=0).tolist(), strict=True))}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", nargs="*", default=[], help="tables to use besides the named sets")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    names = NAMES[:1] if arguments.small else (*NAMES, *arguments.files)
    n_repeats = 1 if arguments.small else arguments.repeats
    results = []
    table = Table(title="full covariances, one kernel for each class, held-out rows")
    for title in ("data", "rows for each feature", "rows", "log-density", "shrunk", "error", "shrunk"):
        table.add_column(title, justify="left" if title == "data" else "right")
    table.add_column("share", justify="right")
    table.add_column("denser")
    for name in names:
        data = load_data(name)
        for ratio in ROWS_PER_FEATURE[:: 3 if arguments.small else 1]:
            found = compare(data, ratio, n_repeats)
            if found is None:
                continue
            results.append({"data": data.name, "ratio": ratio, **found})
            table.add_row(
                data.name, f"{ratio:g}", f"{found['rows']:.0f}",
                f"{found['density']:.1f}", f"{found['density_shrunk']:.1f}",
                f"{found['error']:.3f}", f"{found['error_shrunk']:.3f}", f"{found['share']:.2f}",
                "yes" if found["density_shrunk"] > found["density"] else "no",
            )  # fmt: skip
    Console(width=120).print(table)
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
