"""Populations that are not Gaussian: kernels chosen by BIC as clusters, and merged into populations.

Each data set has three populations, with 50, 30 and 20 % of the rows: bent like a banana, skewed to one side,
and spread evenly over a disc. Further features are Gaussian noise. BIC chooses from 1 to 15 kernels of full
covariances, so that each population gets several. A row is misclassified if its cluster is not the one
assigned to its population; clusters and true populations are assigned one to one, such that as few rows as
possible are misclassified. New rows, as many as in the fit, are counted. ``K = 3`` has three kernels,
``G = 3`` merges by entropy until three populations are left, and ``true`` knows which population most rows
of each kernel came from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment

from skmix import SharedKernelMixture
from skmix.engine.model import FloatArray, IntArray
from skmix.io import replacing

SHARES = (0.5, 0.3, 0.2)
MOST_KERNELS = 15
# Features, rows, and the distance of the populations.
CASES = ((2, 3000, 1.0), (2, 3000, 0.7), (2, 3000, 0.55), (2, 10000, 0.7), (5, 10000, 0.7))


def simulate(
    n_rows: int, n_features: int, distance: float, random: np.random.RandomState
) -> tuple[FloatArray, IntArray]:
    """Return rows (N, M) of three populations of different shapes, and their populations (N,)."""
    y = random.choice(3, n_rows, p=SHARES)
    bend = random.normal(size=n_rows)
    banana = np.stack([2.0 * bend, bend**2 - 2.0 + 0.35 * random.normal(size=n_rows)], axis=1)
    skewed = np.stack([random.gamma(1.5, 1.0, n_rows), 0.5 * random.normal(size=n_rows)], axis=1)
    skewed[:, 1] += 0.4 * skewed[:, 0]
    angle, radius = 2.0 * np.pi * random.uniform(size=n_rows), 1.6 * np.sqrt(random.uniform(size=n_rows))
    disc = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    centres = distance * np.array([[0.0, 0.0], [4.5, -4.0], [0.0, 5.5]])
    X = np.stack([banana, skewed, disc])[y, np.arange(n_rows)] + centres[y]
    return np.concatenate([X, random.normal(size=(n_rows, n_features - 2))], axis=1), y


def misclassified(found: IntArray, true: IntArray) -> float:
    """Return the share of rows outside the best assignment of clusters to true populations, one to one."""
    table = np.zeros((found.max() + 1, true.max() + 1))
    np.add.at(table, (found, true), 1.0)
    return float(1.0 - table[linear_sum_assignment(-table)].sum() / len(true))


def by_bic(X: FloatArray, seed: int, n_init: int) -> SharedKernelMixture:
    """Return the mixture of the lowest BIC."""
    models = [
        SharedKernelMixture(n_kernels, init="k-means", n_init=n_init, max_iter=1000, random_state=seed).fit(X)
        for n_kernels in range(1, MOST_KERNELS + 1)
    ]
    return min(models, key=lambda model: model.bic(X))


def compare(n_features: int, n_rows: int, distance: float, seed: int, n_init: int) -> dict[str, float]:
    """Return the shares of new rows that are misclassified, and numbers of kernels and populations."""
    random = np.random.RandomState(seed)
    X, y = simulate(n_rows, n_features, distance, random)
    X_new, y_new = simulate(n_rows, n_features, distance, random)
    model = by_bic(X, seed, n_init)
    known = SharedKernelMixture(3, init="k-means", n_init=n_init, random_state=seed).fit(X)
    kernels, new = model.predict(X), model.predict(X_new)
    own = np.array([np.bincount(y[kernels == k], minlength=3).argmax() for k in range(model.n_kernels_)])
    found: dict[str, float] = {
        "kernels": model.n_kernels_,
        "bic": misclassified(new, y_new),
        "three": misclassified(known.predict(X_new), y_new),
        "true": float(np.mean(own[new] != y_new)),
    }
    ways: dict[str, dict[str, Any]] = {
        "entropy": {},
        "overlap": {"criterion": "overlap"},
        "elbow": {"threshold": "elbow"},
        "given": {"n_populations": 3},
    }
    for name, settings in ways.items():
        model.merge_kernels(**settings)
        found[name] = misclassified(model.predict(X_new, populations=True), y_new)
        found[f"{name}_populations"] = int(model.populations_.max()) + 1
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10, help="data sets of each kind")
    parser.add_argument("--out", type=Path, help="JSON file of the numbers")
    parser.add_argument("--small", action="store_true", help="little, to see that everything runs")
    arguments = parser.parse_args()
    cases, n_repeats = (CASES[:1], 1) if arguments.small else (CASES, arguments.repeats)
    table = Table(title="misclassified new rows, mean (largest), in %, and mean number of populations found")
    titles = (
        "features",
        "rows",
        "distance",
        "kernels",
        "BIC",
        "K = 3",
        "entropy",
        "overlap",
        "elbow",
        "G = 3",
        "true",
    )
    for title in titles:
        table.add_column(title, justify="right")
    results = []
    for n_features, full, distance in cases:
        n_rows = 600 if arguments.small else full
        runs = [
            compare(n_features, n_rows, distance, seed, n_init=1 if arguments.small else 3)
            for seed in range(n_repeats)
        ]
        results.append({"features": n_features, "rows": n_rows, "distance": distance, "runs": runs})
        if arguments.out is not None:
            with replacing(arguments.out) as file:
                file.write((json.dumps(results, indent=1) + "\n").encode())
        names = ("bic", "three", "entropy", "overlap", "elbow", "given", "true")
        errors = {name: np.array([run[name] for run in runs]) for name in names}
        shown = {name: f"{100 * e.mean():.1f} ({100 * e.max():.1f})" for name, e in errors.items()}
        for name in ("entropy", "overlap", "elbow"):
            shown[name] += f" {np.mean([run[f'{name}_populations'] for run in runs]):.1f}"
        kernels = np.mean([run["kernels"] for run in runs])
        table.add_row(f"{n_features}", f"{n_rows}", f"{distance:g}", f"{kernels:.1f}", *shown.values())
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
