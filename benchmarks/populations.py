"""Populations that are not Gaussian: kernels chosen by BIC as clusters, and merged into populations.

Each data set has three populations, with 50, 30 and 20 % of the rows: bent like a banana, skewed to one side,
and spread evenly over a disc. Further features are Gaussian noise. BIC chooses 1 to 15 kernels with full
covariances, so that each population gets several. Clusters and true populations are matched one to one such
that the fewest rows are misclassified, and the errors on as many new rows are counted. ``K = 3`` has three
kernels, ``G = 3`` merges by entropy until three populations are left, and ``true`` assigns each kernel to the
population of most of its rows.

The second part is about the number of kernels: 20 samples share Gaussian populations that are well apart, and
the search chooses from one kernel to three more than there are, by stability, by BIC or by the highest
adjusted Rand index of the same halves. The three populations of the first part, which are not Gaussian, come
last, with up to 8 kernels.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import pdist

from skmix import SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.model import FloatArray, IntArray
from skmix.groups import merge_kernels
from skmix.io.writing import replacing

SHARES = (0.5, 0.3, 0.2)
MOST_KERNELS = 15
# Features, rows, and the distance of the populations.
CASES = ((2, 3000, 1.0), (2, 3000, 0.7), (2, 3000, 0.55), (2, 10000, 0.7), (5, 10000, 0.7))

# Kernels, features and rows of 20 samples; None stands for populations that are not Gaussian.
NUMBERS = ((3, 2, 1000), (5, 3, 2000), (8, 5, 2000), (None, 2, 2000))
N_GROUPS = 20
# Lower seeds were used to choose the least stability that the search accepts.
FIRST_SEED = 100
# Least distance between means; standard deviations are at most 1.3.
APART = 5.0


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


def simulate_groups(
    n_kernels: int, n_features: int, n_rows: int, random: np.random.RandomState
) -> tuple[FloatArray, IntArray]:
    """Return rows (N, M) of samples that share kernels well apart, and their samples (N,)."""
    means = np.zeros((n_kernels, n_features))
    while n_kernels > 1 and pdist(means).min() < APART:
        means = APART * random.normal(size=means.shape)
    turns = np.linalg.qr(random.normal(size=(n_kernels, n_features, n_features)))[0]
    roots = turns * random.uniform(0.6, 1.3, size=(n_kernels, 1, n_features))
    groups = np.arange(n_rows) % N_GROUPS
    weights = random.dirichlet(np.ones(n_kernels), N_GROUPS)
    kernels = np.array([random.choice(n_kernels, p=weights[group]) for group in groups])
    noise = random.normal(size=(n_rows, n_features, 1))
    return means[kernels] + (roots[kernels] @ noise)[..., 0], groups


def choose_number(
    n_kernels: int | None, n_features: int, n_rows: int, seed: int, n_more: int
) -> dict[str, int]:
    """Return the numbers of kernels that several criteria choose."""
    random = np.random.RandomState(seed)
    if n_kernels is None:
        X, most = simulate(n_rows, n_features, 1.0, random)[0], 8
        groups = np.arange(n_rows) % N_GROUPS
    else:
        X, groups = simulate_groups(n_kernels, n_features, n_rows, random)
        most = n_kernels + n_more
    search = SharedKernelMixtureCV(n_kernels=range(1, most + 1), criterion="stability", random_state=seed)
    table = search.fit(X, groups).cv_results_
    return {
        "stability": search.best_params_["n_kernels"],
        "bic": int(table["param_n_kernels"][np.argmin(table["bic"])]),
        # One kernel always agrees with itself.
        "adjusted_rand": int(table["param_n_kernels"][1 + np.argmax(table["adjusted_rand"][1:])]),
    }


def misclassified(found: IntArray, true: IntArray) -> float:
    """Return the share of misclassified rows under the best one-to-one match of clusters and populations."""
    table = np.zeros((found.max() + 1, true.max() + 1))
    np.add.at(table, (found, true), 1.0)
    return float(1.0 - table[linear_sum_assignment(-table)].sum() / len(true))


def by_bic(X: FloatArray, seed: int, n_init: int, most_kernels: int) -> SharedKernelMixture:
    """Return the mixture with the lowest BIC."""
    models = [
        SharedKernelMixture(n_kernels, init="k-means", n_init=n_init, max_iter=1000, random_state=seed).fit(X)
        for n_kernels in range(1, most_kernels + 1)
    ]
    return min(models, key=lambda model: model.bic(X))


def compare(n_features: int, n_rows: int, distance: float, seed: int, *, small: bool) -> dict[str, float]:
    """Return the shares of misclassified new rows, and the numbers of kernels and populations."""
    random = np.random.RandomState(seed)
    X, y = simulate(n_rows, n_features, distance, random)
    X_new, y_new = simulate(n_rows, n_features, distance, random)
    n_init = 1 if small else 3
    model = by_bic(X, seed, n_init, 8 if small else MOST_KERNELS)
    known = SharedKernelMixture(3, init="k-means", n_init=n_init, random_state=seed).fit(X)
    kernels, new = model.predict(X), model.predict(X_new)
    own = np.array([np.bincount(y[kernels == k], minlength=3).argmax() for k in range(model.n_kernels_)])
    found: dict[str, float] = {
        "kernels": model.n_kernels_,
        "bic": misclassified(new, y_new),
        "three": misclassified(known.predict(X_new), y_new),
        "true": float(np.mean(own[new] != y_new)),
    }
    for name, n_populations in (("entropy", None), ("given", 3)):
        populations = merge_kernels(model, n_populations=n_populations)
        found[name] = misclassified(populations.predict(model, X_new), y_new)
        found[f"{name}_populations"] = len(populations)
    return found


def measure_merging(small: bool, n_repeats: int) -> list[dict[str, Any]]:
    """Merge kernels into populations, and print how many rows are misclassified."""
    table = Table(title="misclassified new rows, mean (largest), in %, and mean number of populations found")
    titles = ("features", "rows", "distance", "kernels", "BIC", "K = 3", "entropy", "G = 3", "true")
    for title in titles:
        table.add_column(title, justify="right")
    results = []
    for n_features, full, distance in CASES[:1] if small else CASES:
        n_rows = 600 if small else full
        runs = [compare(n_features, n_rows, distance, seed, small=small) for seed in range(n_repeats)]
        results.append({"features": n_features, "rows": n_rows, "distance": distance, "runs": runs})
        names = ("bic", "three", "entropy", "given", "true")
        errors = {name: np.array([run[name] for run in runs]) for name in names}
        shown = {name: f"{100 * e.mean():.1f} ({100 * e.max():.1f})" for name, e in errors.items()}
        shown["entropy"] += f" {np.mean([run['entropy_populations'] for run in runs]):.1f}"
        kernels = np.mean([run["kernels"] for run in runs])
        table.add_row(f"{n_features}", f"{n_rows}", f"{distance:g}", f"{kernels:.1f}", *shown.values())
    Console(width=150).print(table)
    return results


def measure_numbers(small: bool, n_repeats: int) -> list[dict[str, Any]]:
    """Choose numbers of kernels, and print how often each was chosen."""
    table, results = Table(title="numbers of kernels chosen, and how often"), []
    for title in ("kernels", "features", "rows", "stability", "BIC", "adjusted Rand index"):
        table.add_column(title, justify="right")
    for n_kernels, n_features, full in NUMBERS[:1] if small else NUMBERS:
        n_rows = 300 if small else full
        sizes = n_kernels, n_features, n_rows
        runs = [choose_number(*sizes, FIRST_SEED + i, 1 if small else 3) for i in range(n_repeats)]
        results.append({"kernels": n_kernels, "features": n_features, "rows": n_rows, "runs": runs})
        counts = [Counter(run[name] for run in runs) for name in ("stability", "bic", "adjusted_rand")]
        shown = [", ".join(f"{number}: {each[number]}" for number in sorted(each)) for each in counts]
        table.add_row(f"{n_kernels or 'not Gaussian'}", f"{n_features}", f"{n_rows}", *shown)
    Console(width=150).print(table)
    return results


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10, help="data sets of each kind")
    parser.add_argument("--out", type=Path, help="JSON file to write; other entries in it are kept")
    parser.add_argument("--part", choices=["merging", "numbers"], help="one part; both by default")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    n_repeats = 1 if arguments.small else arguments.repeats
    results: dict[str, Any] = {}
    if arguments.out is not None and arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    for part, measure in {"merging": measure_merging, "numbers": measure_numbers}.items():
        if arguments.part in (None, part):
            results[part] = measure(arguments.small, n_repeats)
            if arguments.out is not None:
                with replacing(arguments.out) as file:
                    file.write((json.dumps(results, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
