"""Shifts of groups compared with common means: how well are the weights of each group estimated?

Groups share kernels whose covariances are the identity. The means of each group are shifted at random by half
a standard deviation in each feature, or not at all. Weights of groups are drawn from a flat Dirichlet
distribution. All fits start from the true common means, so they differ only in the shifts. The error of a
group's weights is the total variation distance, half the sum of the absolute differences. The error of the
proportions of kernels among the drawn rows is a lower limit that no fit can be expected to reach.

It takes two minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.data.write import replacing

# Deviation of the kernels' means.
SPREADS = {"apart": 4.0, "overlapping": 2.5}
DEVIATIONS = (0.0, 0.5)
N_GROUPS, N_KERNELS, N_FEATURES = 10, 4, 3
ROWS = (200, 2000)
# The strength 4 belongs to shifts by half a standard deviation.
FITS = {"none": None, "strength 4": 4.0, "auto": "auto"}


def judge(spread: float, deviation: float, n_rows: int, seed: int, tol: float) -> dict[str, dict[str, float]]:
    """Return the mean error of the groups' weights for each fit, by name, and for the drawn rows."""
    random = np.random.default_rng(seed)
    means = spread * random.normal(size=(N_KERNELS, N_FEATURES))
    shifts = deviation * random.normal(size=(N_GROUPS, N_KERNELS, N_FEATURES))
    weights = random.dirichlet(np.ones(N_KERNELS), size=N_GROUPS).T
    y = np.repeat(np.arange(N_GROUPS), n_rows)
    kernels = np.concatenate([random.choice(N_KERNELS, n_rows, p=own) for own in weights.T])
    X = means[kernels] + shifts[y, kernels] + random.normal(size=(len(y), N_FEATURES))
    drawn = np.stack([np.bincount(own, minlength=N_KERNELS) for own in kernels.reshape(N_GROUPS, -1)], axis=1)

    def error(found: np.ndarray) -> float:
        return float(0.5 * np.abs(found - weights).sum(axis=0).mean())

    result = {"rows": {"error": error(drawn / n_rows)}}
    for name, group_shift in FITS.items():
        model = SharedKernelMixture(
            N_KERNELS, init={"means": means}, tol=tol, max_iter=1000, group_shift=group_shift, random_state=0
        ).fit(X, y)
        result[name] = {"error": error(model.weights_), "passes": model.n_iter_}
        if name == "auto":
            result[name]["shifted"] = float(np.isfinite(model.group_shift_))
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    spreads, rows, n_repeats, tol = SPREADS, ROWS, arguments.repeats, 1e-6
    if arguments.small:
        spreads, rows, n_repeats, tol = {"apart": SPREADS["apart"]}, (2000,), 1, 1e-5
    results = []
    table = Table(title=f"{N_GROUPS} groups, {N_KERNELS} kernels: errors of the weights")
    for title in ("kernels", "shifts", "rows of a group", "drawn", *FITS, "auto shifts"):
        table.add_column(title, justify="right")
    for (kernels, spread), deviation, n_rows in product(spreads.items(), DEVIATIONS, rows):
        runs = [judge(spread, deviation, n_rows, seed, tol) for seed in range(n_repeats)]
        row = {name: float(np.mean([run[name]["error"] for run in runs])) for name in runs[0]}
        shifted = float(np.mean([run["auto"]["shifted"] for run in runs]))
        passes = {name: float(np.mean([run[name]["passes"] for run in runs])) for name in FITS}
        case = {"kernels": kernels, "deviation": deviation, "rows_of_a_group": n_rows, "repeats": n_repeats}
        results.append({**case, "error": row, "passes": passes, "auto_shifts": shifted})
        numbers = [f"{row[name]:.4f}" for name in ("rows", *FITS)]
        table.add_row(kernels, f"{deviation:g}", str(n_rows), *numbers, f"{shifted:.0%}")
        if arguments.out is not None:
            with replacing(arguments.out) as file:
                file.write((json.dumps(results, indent=1) + "\n").encode())
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
