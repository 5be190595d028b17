"""Populations that are not Gaussian: kernels chosen by BIC as clusters, and merged into populations.

Each data set has three populations, with 50, 30 and 20 % of the rows: bent like a banana, skewed to one side,
and spread evenly over a disc. Further features are Gaussian noise. BIC chooses 1 to 15 kernels with full
covariances, so that each population gets several. Clusters and true populations are matched one to one such
that the fewest rows are misclassified, and the errors on as many new rows are counted. ``K = 3`` has three
kernels, ``merged`` has the populations that `merge_kernels` finds, ``G = 3`` merges until three
populations are left, and ``true`` assigns each kernel to the population of most of its rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from recording import parser_of, show
from scipy.optimize import linear_sum_assignment

from skmix import SharedKernelMixture
from skmix.engine.records import FloatArray, IntArray
from skmix.samples import merge_kernels

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
    for name, n_populations in (("merged", None), ("given", 3)):
        populations = merge_kernels(model, n_populations=n_populations)
        found[name] = misclassified(populations.predict(model, X_new), y_new)
        found[f"{name}_populations"] = len(populations)
    return found


def row_of(n_features: int, n_rows: int, distance: float, runs: list[dict[str, float]]) -> dict[str, Any]:
    """Means over data sets, and the largest shares of misclassified rows, in per cent."""
    names = {"bic": "BIC's kernels", "three": "three kernels", "merged": "merged", "given": "merged to 3"}
    errors = {title: [100 * run[name] for run in runs] for name, title in names.items()}
    return {
        **{"features": n_features, "rows": n_rows, "distance": distance},
        "kernels": f"{np.mean([run['kernels'] for run in runs]):.1f}",
        "populations when merged": f"{np.mean([run['merged_populations'] for run in runs]):.1f}",
        **{f"{title}, %": f"{np.mean(values):.1f}" for title, values in errors.items()},
        **{f"{title}, at worst, %": f"{max(values):.1f}" for title, values in errors.items()},
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=10, help="data sets of each kind")
    arguments = parser.parse_args()
    small, rows = arguments.small, []
    for n_features, full, distance in CASES[:1] if small else CASES:
        case = n_features, 600 if small else full, distance
        repeats = range(1 if small else arguments.repeats)
        rows.append(row_of(*case, [compare(*case, seed, small=small) for seed in repeats]))
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
