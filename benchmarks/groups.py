"""Hierarchical compared with independent weights: many small groups that share kernels.

The weights of 100 groups are drawn from Dirichlet(α β), and each group has 10 to 300 rows, uniform in the
logarithm. The larger α, the more alike the groups. There may also be some groups of 10,000 rows, whose
weights a prior should hardly change. All fits start from the true means, so they differ only in the prior on
the weights. The error of a group's weights is the total variation distance, half the sum of the absolute
differences; held-out rows are judged in their own groups.

It takes some minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.data.write import replacing

ALPHAS = (5.0, 50.0, 500.0)
# Deviation of the kernels' means; their covariances are the identity.
SPREADS = {"apart": 4.0, "overlapping": 1.5}
N_GROUPS, FEWEST, MOST = 100, 10, 300
N_LARGE, LARGE = 5, 10_000
N_KERNELS, N_FEATURES = 10, 4
HELD_OUT = 100
FITS = {"independent": {}, "hierarchical": {"weight_prior": "hierarchical"}}


@dataclass(frozen=True)
class Groups:
    """Groups that share kernels: true parameters, training rows and held-out rows."""

    means: np.ndarray  # (K, M)
    beta: np.ndarray  # (K,)
    weights: np.ndarray  # (K, L)
    sizes: np.ndarray  # (L,)
    X: np.ndarray
    y: np.ndarray
    held_out: tuple[np.ndarray, np.ndarray]


def draw(alpha: float, spread: float, n_groups: int, n_large: int, seed: int) -> Groups:
    """Draw groups of few rows, followed by large groups."""
    random = np.random.default_rng(seed)
    means = spread * random.normal(size=(N_KERNELS, N_FEATURES))
    beta = random.dirichlet(np.full(N_KERNELS, 5.0))
    sizes = np.exp(random.uniform(np.log(FEWEST), np.log(MOST), size=n_groups)).round().astype(np.int64)
    sizes = np.append(sizes, np.full(n_large, LARGE))
    weights = random.dirichlet(alpha * beta, size=len(sizes)).T

    def rows(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kernels = [random.choice(N_KERNELS, n, p=own) for n, own in zip(counts, weights.T, strict=True)]
        X = means[np.concatenate(kernels)] + random.normal(size=(counts.sum(), N_FEATURES))
        return X, np.repeat(np.arange(len(counts)), counts)

    X, y = rows(sizes)
    return Groups(means, beta, weights, sizes, X, y, rows(np.full(len(sizes), HELD_OUT)))


def judge(groups: Groups, max_iter: int) -> dict[str, dict[str, float]]:
    """Return errors and held-out log-likelihoods of each fit, by name."""
    small, found = groups.sizes <= MOST, {}
    X, y = groups.held_out
    judged = small[y]
    independent = groups.weights
    for name, settings in FITS.items():
        start = {"means": groups.means, "covariances": np.tile(np.eye(N_FEATURES), (N_KERNELS, 1, 1))}
        model = SharedKernelMixture(N_KERNELS, init=start, max_iter=max_iter, tol=1e-5, **settings)
        model.fit(groups.X, groups.y)
        if name == "independent":
            independent = model.weights_
        errors = 0.5 * np.abs(model.weights_ - groups.weights).sum(axis=0)
        prior = getattr(model, "weight_prior_", None)
        large = ~small
        found[name] = {
            "error": float(errors[small].mean()),
            "error_fewest": float(errors[groups.sizes < 30].mean()),
            "held_out": float(model.score(X[judged], y[judged])),
            "passes": model.n_iter_,
            **({} if prior is None else {"alpha": float(prior.sum())}),
        }
        if large.any():
            # In standard errors of a proportion among that many rows, of which the kernel has at least one.
            shares = np.clip(independent, 1.0 / groups.sizes, 1.0 - 1.0 / groups.sizes)
            deviations = np.sqrt(shares * (1.0 - shares) / groups.sizes)[:, large]
            moved = np.abs(model.weights_ - independent)[:, large] / deviations
            found[name] |= {"error_large": float(errors[large].mean()), "moved_large": float(moved.max())}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    alphas, n_repeats, max_iter = ALPHAS, arguments.repeats, 500
    if arguments.small:
        alphas, n_repeats, max_iter = (50.0,), 1, 50
    results = []
    table = Table(title=f"{N_GROUPS} groups of {FEWEST} to {MOST} rows, {N_KERNELS} kernels")
    columns = (
        "kernels",
        "alpha",
        "large groups",
        "fit",
        "error",
        "below 30 rows",
        "large",
        "moved",
        "held out",
    )
    for title in (*columns, "alpha found"):
        table.add_column(title, justify="right")
    for (kernels, spread), alpha, n_large in product(SPREADS.items(), alphas, (0, N_LARGE)):
        if arguments.small and (kernels, n_large) != ("apart", 0):
            continue
        runs = [judge(draw(alpha, spread, N_GROUPS, n_large, seed), max_iter) for seed in range(n_repeats)]
        for name in FITS:
            own = [run[name] for run in runs]
            row = {key: float(np.mean([run[key] for run in own])) for key in own[0]}
            if "alpha" in row:
                row["alpha"] = float(np.median([run["alpha"] for run in own]))
            case = {"kernels": kernels, "alpha_true": alpha, "large_groups": n_large, "fit": name}
            results.append({**case, "repeats": len(own), **row})
            table.add_row(
                kernels, f"{alpha:g}", str(n_large), name,
                f"{row['error']:.4f}", f"{row['error_fewest']:.4f}",
                f"{row.get('error_large', np.nan):.4f}", f"{row.get('moved_large', np.nan):.3f}",
                f"{row['held_out']:.4f}", f"{row.get('alpha', np.nan):.1f}",
            )  # fmt: skip
        if arguments.out is not None:
            with replacing(arguments.out) as file:
                file.write((json.dumps(results, indent=1) + "\n").encode())
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
