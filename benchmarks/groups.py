"""Many groups that share kernels: hierarchical weights for small ones, shifts for those that differ.

    python benchmarks/groups.py weights --out benchmarks/results/groups.csv
    python benchmarks/groups.py shifts --out benchmarks/results/shifts.csv

- ``weights``: the weights of 100 groups are drawn from Dirichlet(α β), and each group has 10 to 300 rows,
  uniform in the logarithm. The larger α, the more alike the groups. Held-out rows are scored in their
  groups.
- ``shifts``: the means of each group are shifted at random by half a standard deviation in each feature,
  or not.

All fits start from the true means. The error of a group's weights is the total variation distance, half
the sum of the absolute differences; ``drawn`` is that of the kernels that rows were in fact drawn from.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from recording import parser_of, show
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture

N_HELD_OUT = 200


def draw(
    means: np.ndarray, weights: np.ndarray, sizes: np.ndarray, random: np.random.Generator, shift: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows (N, M) of groups, their groups (N,) and the share of each kernel among them (K, L)."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    kernels = np.concatenate(
        [random.choice(len(means), n, p=p) for n, p in zip(sizes, weights.T, strict=True)]
    )
    shifts = shift * random.normal(size=(len(sizes), *means.shape))
    X = means[kernels] + shifts[y, kernels] + random.normal(size=(len(y), means.shape[1]))
    counts = np.zeros(weights.shape)
    np.add.at(counts, (kernels, y), 1.0)
    return X, y, counts / sizes


def error(estimates: np.ndarray, weights: np.ndarray) -> float:
    """The mean total variation distance of weights (K, L)."""
    return float(0.5 * np.abs(estimates - weights).sum(axis=0).mean())


def weights(repeats: int, small: bool) -> Iterator[dict[str, Any]]:
    """Errors of independent and of hierarchical weights."""
    distances = {"apart": 4.0} if small else {"apart": 4.0, "overlapping": 1.5}
    for (kernels, spread), alpha in product(distances.items(), (50,) if small else (5, 50, 500)):
        runs = []
        for seed in range(repeats):
            random = np.random.default_rng(seed)
            means, beta = spread * random.normal(size=(10, 4)), random.dirichlet(np.full(10, 5.0))
            sizes = np.exp(random.uniform(np.log(10), np.log(300), size=100)).round().astype(np.int64)
            true = random.dirichlet(alpha * beta, size=len(sizes)).T
            X, y, _ = draw(means, true, sizes, random)
            X_new, y_new, _ = draw(means, true, np.full(len(sizes), N_HELD_OUT), random)
            start = {"means": means, "covariances": np.tile(np.eye(4), (10, 1, 1))}
            settings = {"init": start, "tol": 1e-5, "max_iter": 50 if small else 500}
            plain = SharedKernelMixture(10, **settings).fit(X, y)
            prior = SharedKernelMixture(10, weight_prior="hierarchical", **settings).fit(X, y)
            errors = [error(model.weights_, true) for model in (plain, prior)]
            scores = [model.score(X_new, y_new) for model in (plain, prior)]
            runs.append([*errors, *scores, prior.weight_prior_.sum()])
        numbers = np.mean(runs, axis=0)
        yield {
            **{"kernels": kernels, "true α": alpha, "error, independent": f"{numbers[0]:.3f}"},
            **{
                "error, hierarchical": f"{numbers[1]:.3f}",
                "held-out log-likelihood, independent": f"{numbers[2]:.2f}",
            },
            **{"hierarchical": f"{numbers[3]:.2f}", "α estimated": f"{np.median(runs, axis=0)[4]:.3g}"},
        }


def shifts(repeats: int, small: bool) -> Iterator[dict[str, Any]]:
    """Errors of weights by the prior on shifts."""
    distances, sizes = (
        ({"apart": 4.0}, (500,)) if small else ({"apart": 4.0, "overlapping": 2.5}, (200, 2000))
    )
    for (kernels, spread), shift, size in product(distances.items(), (0.0, 0.5), sizes):
        runs = []
        for seed in range(repeats):
            random = np.random.default_rng(seed)
            means, true = spread * random.normal(size=(4, 3)), random.dirichlet(np.ones(4), size=10).T
            X, y, drawn = draw(means, true, np.full(10, size), random, shift)
            errors = [error(drawn, true)]
            for group_shift in (None, 4.0, "auto"):
                model = SharedKernelMixture(
                    4, init={"means": means}, tol=1e-6, max_iter=1000, group_shift=group_shift, random_state=0
                ).fit(X, y)
                errors.append(error(model.weights_, true))
            runs.append([*errors, np.isfinite(model.group_shift_)])
        names = ("drawn", "common means", "group_shift=4", 'group_shift="auto"')
        *numbers, chosen = np.mean(runs, axis=0)
        row = {"kernels": kernels, "shifts": shift, "rows of a group": size}
        row |= {name: f"{number:.3f}" for name, number in zip(names, numbers, strict=True)}
        yield row | {'shifts chosen by "auto", %': f"{100 * chosen:.0f}"}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["weights", "shifts"])
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    part = {"weights": weights, "shifts": shifts}[arguments.part]
    show(part(1 if arguments.small else arguments.repeats, arguments.small), arguments.out)


if __name__ == "__main__":
    main()
