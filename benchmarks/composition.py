"""Statistics of simulated studies: coverage of intervals, differences found, and unusual samples found.

Kernels lie on a line in the plane, `gap` standard deviations apart, with proportions of 50, 30, 15, 4 and 1 %
on average; the proportions of samples are drawn from a Dirichlet distribution, but are at least 0.1 %. The
fit of kernels and weights starts at the true kernels, so that local optima do not matter.

- Coverage: share of the 95 % intervals that cover, by size of the sample and by proportion. Samples may have
  shifted kernels; intervals that are NaN do not count.
- New samples: the same for samples that were not in the fit.
- Compare: 8 samples against 8, without a difference, and with a difference in two of five kernels. False: the
  share of studies with any false discovery without a difference, and the share of false discoveries with one.
- Unusual: one of 20 samples has three times the usual proportion of the 4 % kernel, taken from the first, or
  cells of its own away from all kernels. Counted: usual samples that are called unusual, and unusual samples
  that are found.
"""

from __future__ import annotations

import argparse
import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.engine.model import FloatArray, IntArray
from skmix.groups import Study
from skmix.io.writing import replacing

# Mean proportions of the kernels.
SHARES = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
# Concentration of the samples' proportions.
ALPHA = 60.0
# The same with an unusual sample: the others are more alike.
ALIKE = 400.0
# Least proportion.
LEAST = 0.001
# Cells of samples of different sizes.
MIXED = (50,) * 8 + (500,) * 8 + (5000,) * 4
# Standard deviation of shifts.
SHIFT = 0.3
HIERARCHICAL: dict[str, Any] = {"weight_prior": "hierarchical"}
SHIFTED: dict[str, Any] = {"group_shift": SHIFT**-2}
# Gap between kernels, sizes of samples, settings of the mixture.
CASES: tuple[tuple[float, tuple[int, ...], dict[str, Any]], ...] = (
    (6.0, MIXED, {}),
    (3.0, MIXED, {}),
    (2.5, MIXED, {}),
    (6.0, (500,) * 20, {}),
    (3.0, (500,) * 20, {}),
    (2.5, (500,) * 20, {}),
    (3.0, MIXED, HIERARCHICAL),
    (6.0, (60,) * 8, HIERARCHICAL),
    (3.0, (60,) * 8, HIERARCHICAL),
    (6.0, (500,) * 8, SHIFTED),
    (3.5, (500,) * 8, SHIFTED),
    (2.5, (500,) * 8, SHIFTED),
)


def draw_shares(n_groups: int, random: np.random.RandomState, alpha: float = ALPHA) -> FloatArray:
    """Return proportions (L, K) of samples."""
    shares = np.maximum(random.dirichlet(alpha * SHARES, n_groups), LEAST)
    return shares / shares.sum(axis=1, keepdims=True)


def draw_rows(
    shares: FloatArray, sizes: Any, gap: float, random: np.random.RandomState, shift: float = 0.0
) -> tuple[FloatArray, IntArray]:
    """Return cells (N, 2) of samples with proportions (L, K), perhaps with shifts, and samples (N,)."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    kernels = np.concatenate([random.choice(len(p), n, p=p) for p, n in zip(shares, sizes, strict=True)])
    X = random.normal(size=(len(y), 2))
    X[:, 0] += gap * kernels
    if shift:
        X += shift * random.normal(size=(*shares.shape, 2))[y, kernels]
    return X, y


def fit(X: FloatArray, y: IntArray, gap: float, **settings: Any) -> tuple[SharedKernelMixture, IntArray]:
    """Return a fit of all samples, and its kernels in the order of the true ones."""
    n_kernels = len(SHARES)
    start = {
        "means": np.stack([gap * np.arange(n_kernels), np.zeros(n_kernels)], axis=1),
        "covariances": np.tile(np.eye(2), (n_kernels, 1, 1)),
        "weights": np.tile(SHARES[:, None], (1, int(y.max()) + 1)),
    }
    model = SharedKernelMixture(n_kernels, init=start, tol=1e-8, max_iter=5000, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(accelerate=not settings).fit(X, y)
    return model, model.means_[:, 0].argsort()


def covered(table: Any, shares: FloatArray, order: IntArray) -> FloatArray:
    """Return 1 for proportions (L, K) that their intervals cover, 0 for others, NaN without intervals."""
    lower, upper = (table[name].to_numpy().reshape(shares.shape)[:, order] for name in ("lower", "upper"))
    return np.where(np.isnan(lower), np.nan, (lower <= shares) & (shares <= upper))


def coverage(
    gap: float, sizes: tuple[int, ...], settings: dict[str, Any], n_repeats: int, seed: int
) -> dict[str, Any]:
    """Return the share of intervals that cover."""
    old, new, true = [], [], []
    for repeat in range(n_repeats):
        random = np.random.RandomState([seed, repeat])
        shares, later = draw_shares(len(sizes), random), draw_shares(len(sizes), random)
        shift = SHIFT if "group_shift" in settings else 0.0
        model, order = fit(*draw_rows(shares, sizes, gap, random, shift), gap, **settings)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* have no intervals")
            study = Study(model)
            old.append(covered(study.proportions, shares, order))
            X, y = draw_rows(later, sizes, gap, random, shift)
            new.append(covered(study.proportions_of(X, sample=y), later, order))
        true.append(shares)
    hits, share, size = np.array(old), np.array(true), np.array(sizes)
    bounds = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    by_share = {
        f"{low:g}-{high:g}": _mean(hits[(share > low) & (share <= high)])
        for low, high in pairwise(bounds)
        if np.any((share > low) & (share <= high))
    }
    return {
        "gap": gap,
        "sizes": sorted(set(sizes)),
        "groups": len(sizes),
        "settings": settings,
        "coverage": _mean(hits),
        "new": _mean(np.array(new)),
        "given": float(np.mean(~np.isnan(hits))),
        "by_size": {int(n): _mean(hits[:, size == n]) for n in np.unique(size)},
        "by_share": by_share,
        "intervals": int(hits.size),
    }


def _mean(hits: FloatArray) -> float | None:
    """Return the share of hits, or None without any."""
    return None if np.isnan(hits).all() else float(np.nanmean(hits))


def comparisons(gap: float, n_repeats: int, seed: int) -> dict[str, Any]:
    """Return how often `Study.compare` finds true and false differences, and how often it covers them."""
    n_side, size = 8, 500
    shift = np.array([-0.1, 0.0, 0.1, 0.0, 0.0])
    found: dict[str, Any] = {"gap": gap, "groups": n_side, "rows": size}
    for name, change in (("same", np.zeros(5)), ("different", shift)):
        hits, false, power = [], [], []
        for repeat in range(n_repeats):
            random = np.random.RandomState([seed, repeat])
            shares = draw_shares(2 * n_side, random)
            shares[:n_side] = np.maximum(shares[:n_side] + change, LEAST)
            shares /= shares.sum(axis=1, keepdims=True)
            model, order = fit(*draw_rows(shares, (size,) * (2 * n_side), gap, random), gap)
            table = Study(model).compare(range(n_side), range(n_side, 2 * n_side)).iloc[order]
            hits.append((table["lower"] <= change) & (change <= table["upper"]))
            called = table["q_value"].to_numpy() <= 0.05
            false.append(np.sum(called & (change == 0)) / max(1, called.sum()))
            power.append(called[change != 0].mean() if change.any() else np.nan)
        found[name] = {"coverage": float(np.mean(hits)), "false_discoveries": float(np.mean(false))}
        if change.any():
            found[name]["found"] = float(np.mean(power))
    return found


def unusual(gap: float, n_repeats: int, seed: int) -> dict[str, Any]:
    """Return the shares of usual and of unusual samples that `Study.unusual` calls unusual."""
    sizes = (1000,) * 20
    found: dict[str, Any] = {"gap": gap, "groups": len(sizes), "rows": sizes[0]}
    for name in ("none", "tripled", "foreign"):
        usual, odd = [], []
        for repeat in range(n_repeats):
            random = np.random.RandomState([seed, repeat])
            shares = draw_shares(len(sizes), random, ALIKE)
            if name == "tripled":
                shares[0] = SHARES + np.array([-0.08, 0.0, 0.0, 0.08, 0.0])
            X, y = draw_rows(shares, sizes, gap, random)
            if name == "foreign":
                X[:50, 1] += 8.0
            model, _ = fit(X, y, gap)
            called = Study(model).unusual()["unusual"].to_numpy()
            usual.append(called[1:].mean())
            odd.append(called[0])
        found[name] = {"usual": float(np.mean(usual)), "first": float(np.mean(odd))}
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="simulations of each kind")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    n_repeats = 2 if arguments.small else arguments.repeats
    n_comparisons = 1 if arguments.small else 3 * n_repeats
    cases = [(3.0, (50, 50, 50, 500, 500, 500), {})] if arguments.small else CASES
    gaps = (6.0,) if arguments.small else (6.0, 3.0)
    results: dict[str, list[Any]] = {
        "coverage": [coverage(*case, n_repeats, seed) for seed, case in enumerate(cases)],
        "compare": [comparisons(gap, n_comparisons, 100) for gap in gaps],
        "unusual": [unusual(gap, n_repeats, 200) for gap in gaps],
    }
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())
    console = Console(width=150)
    table = Table(title="coverage of 95 % intervals, in %")
    for title in ("gap", "rows", "settings", "all", "new", "given", "by rows of a group", "by share"):
        table.add_column(title)

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{100 * value:.1f}"

    for one in results["coverage"]:
        parts = (
            ", ".join(f"{key}: {percent(value)}" for key, value in one[name].items())
            for name in ("by_size", "by_share")
        )
        sizes = f"{one['groups']} × {', '.join(map(str, one['sizes']))}"
        numbers = (percent(one[name]) for name in ("coverage", "new", "given"))
        table.add_row(f"{one['gap']:g}", sizes, ", ".join(one["settings"]) or "–", *numbers, *parts)
    console.print(table)
    for name in ("compare", "unusual"):
        for one in results[name]:
            console.print(name, one)


if __name__ == "__main__":
    main()
