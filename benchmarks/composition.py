"""Statistics of simulated studies: coverage of intervals, differences found, and unusual samples found.

Kernels lie on a line in the plane, `gap` standard deviations apart, with proportions of 50, 30, 15, 4 and 1 %
on average; the proportions of samples are drawn from a Dirichlet distribution, but are at least 0.1 %. The
fit of kernels and weights starts at the true kernels, so that local optima do not matter.

- Coverage: share of the 95 % intervals that cover, by size of the sample and by proportion. Samples may have
  shifted kernels; intervals that are NaN do not count.
- New samples: the same for samples that were not in the fit.
- Compare: 8 samples against 8, without a difference, and with a difference in two of five kernels. False: the
  share of studies with any false discovery without a difference, and the share of false discoveries with one.
- Designs: samples in pairs, or with a covariate, whose cells of one population are counted. Proportions of
  samples vary around a mean of 0.1, 1, 10 or 50 % with normal log-odds, or with a beta distribution as wide,
  and samples have about 300, 1,000 and 3,000 cells, or ten times as many. False: the share of studies with
  p ≤ 0.05 without a difference; found: the same with one. Both beside Welch's test of the same samples, and
  beside linear models of the proportions and of their log-odds.
- Unusual: one of 20 samples has three times the usual proportion of the 4 % kernel, taken from the first, or
  cells of its own away from all kernels. Counted: usual samples that are called unusual, and unusual samples
  that are found.
"""

from __future__ import annotations

import argparse
import json
import warnings
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.data.write import replacing
from skmix.engine.records import BoolArray, FloatArray, IntArray
from skmix.samples import Study
from skmix.samples.comparison import Sides, differences

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
# Mean proportions, cells, and distributions of designs.
MEANS, CELLS, KINDS = (0.001, 0.01, 0.1, 0.5), (1000, 10_000), ("normal", "beta")


@dataclass(frozen=True)
class Layout:
    """Samples of a design, and how their log-odds vary."""

    name: str
    is_first: BoolArray  # (L,)
    pairs: IntArray | None  # (L,)
    columns: FloatArray | None  # (L, C): of the covariate
    offset: FloatArray  # (L,): what the covariate adds to the log-odds
    among_pairs: float  # standard deviation of what pairs have in common
    spread: float  # standard deviation of samples
    effect: float  # difference between the sides, if there is one

    @property
    def sides(self) -> Sides:
        return Sides((0, 1), np.arange(len(self.offset)), self.is_first, self.pairs, self.columns, ())


def in_pairs(n_pairs: int, among: float) -> Layout:
    """Return a layout of pairs, whose log-odds may differ."""
    name = f"{n_pairs} pairs, {'different' if among else 'alike'}"
    is_first, pairs = np.arange(2 * n_pairs) < n_pairs, np.tile(np.arange(n_pairs), 2)
    return Layout(name, is_first, pairs, None, np.zeros(2 * n_pairs), among, 0.3, 0.7)


def in_batches(*batches: tuple[int, int]) -> Layout:
    """Return a layout of batches with these numbers of samples of the sides; their odds differ by up to 5."""
    sides = np.array(batches)
    name = " + ".join(f"{a}:{b}" for a, b in batches)
    own = np.repeat(np.arange(len(batches)), sides.sum(axis=1))
    offset = np.linspace(-0.8, 0.8, len(batches))[own] if len(batches) > 1 else np.zeros(len(own))
    is_first = np.concatenate([np.arange(a + b) < a for a, b in batches])
    columns = np.eye(len(batches))[own, 1:] if len(batches) > 1 else None
    return Layout(name, is_first, None, columns, offset, 0.0, 0.5, 1.0)


def with_number(n_side: int, apart: float) -> Layout:
    """Return a layout with a number, such as an age, whose means on the sides may be SDs apart."""
    name = f"{n_side}:{n_side}, a number{f', {apart:g} SD apart' if apart else ''}"
    values = np.tile(stats.norm.ppf((np.arange(n_side) + 0.5) / n_side), 2)
    values[:n_side] += apart
    return Layout(name, np.arange(2 * n_side) < n_side, None, values[:, None], 0.5 * values, 0.0, 0.5, 1.0)


LAYOUTS = (
    *(in_pairs(n_pairs, among) for n_pairs in (3, 5, 10, 20) for among in (0.8, 0.0)),
    *(in_batches((1, 1), (1, 1), (1, 1)), in_batches((3, 1), (1, 3)), in_batches((3, 3), (3, 3))),
    *(in_batches((5, 1), (1, 5)), in_batches((4, 1), (1, 4), (1, 1)), in_batches((3, 2), (1, 10))),
    *(in_batches((8, 1), (2, 2), (2, 1)), in_batches((8, 2), (2, 8)), in_batches((10, 4), (0, 6))),
    *(in_batches((10, 10), (10, 10)), in_batches((14, 3), (3, 14), (3, 3))),
    *(in_batches((n_side, n_side)) for n_side in (3, 10)),
    *(with_number(n_side, apart) for n_side in (4, 10) for apart in (0.0, 1.0)),
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
        model.fit(X, y)
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
            new.append(covered(study.apply_to(X, sample=y).proportions, later, order))
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
            table = Study(model).compare(range(n_side), range(n_side, 2 * n_side)).table.iloc[order]
            hits.append((table["lower"] <= change) & (change <= table["upper"]))
            called = table["q_value"].to_numpy() <= 0.05
            false.append(np.sum(called & (change == 0)) / max(1, called.sum()))
            power.append(called[change != 0].mean() if change.any() else np.nan)
        found[name] = {"coverage": float(np.mean(hits)), "false_discoveries": float(np.mean(false))}
        if change.any():
            found[name]["found"] = float(np.mean(power))
    return found


def draw_studies(
    layout: Layout, mean: float, n_cells: int, kind: str, effect: float, n_repeats: int, seed: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return typical proportions of samples of R studies, cells of the population, and all cells, (L, R)."""
    random, shape = np.random.default_rng(seed), (len(layout.offset), n_repeats)
    log_odds = logit(mean) + layout.offset[:, None] + effect * layout.is_first[:, None]
    if layout.pairs is not None:
        log_odds = log_odds + layout.among_pairs * random.normal(size=shape)[layout.pairs]
    typical = np.broadcast_to(expit(log_odds), shape)
    if kind == "normal":
        shares = expit(log_odds + layout.spread * random.normal(size=shape))
    else:
        both = 1.0 / (layout.spread**2 * mean * (1.0 - mean))
        shares = random.beta(both * typical, both * (1.0 - typical))
    cells = (n_cells * random.choice([0.3, 1.0, 3.0], size=shape)).astype(int)
    return typical, random.binomial(cells, shares).astype(float), cells.astype(float)


def p_values_of(layout: Layout, counts: FloatArray, cells: FloatArray) -> dict[str, FloatArray]:
    """Return the p-values (R,) of `compare`, of Welch's test, and of linear models on other scales."""
    shares, inside = counts / cells, (counts + 0.5) / (cells + 1.0)
    variances, alone = inside * (1.0 - inside) / cells, replace(layout.sides, pairs=None, covariate=None)
    found = {
        name: differences(shares, variances, sides)["p_value"]
        for name, sides in (("compare", layout.sides), ("welch", alone))
    }
    columns = np.empty((len(counts), 0)) if layout.columns is None else layout.columns
    if layout.pairs is not None:
        columns = np.eye(layout.pairs.max() + 1)[layout.pairs, 1:]
    design = np.column_stack([layout.is_first, np.ones(len(counts)), columns])
    inverse, degrees = np.linalg.pinv(design), len(counts) - design.shape[1]
    slope = inside * (1.0 - inside)
    scales = {"raw": (shares, variances), "log-odds": (logit(inside), variances / slope**2)}
    for name, (values, least) in scales.items():
        effects = inverse @ values
        among = ((values - design @ effects) ** 2).sum(axis=0) / degrees
        error = np.sqrt(np.maximum(among, 0.5 * least.mean(axis=0)) * (inverse[0] @ inverse[0]))
        found[name] = 2.0 * stats.t(degrees).sf(np.abs(effects[0]) / error)
    return found


def covers(layout: Layout, typical: FloatArray, counts: FloatArray, cells: FloatArray) -> BoolArray:
    """Return which intervals (R,) cover the difference between the typical proportions (L, R) of a study."""
    inside = (counts + 0.5) / (cells + 1.0)
    variances = inside * (1.0 - inside) / cells
    found = differences(counts / cells, variances, layout.sides)
    truth = differences(typical, variances, layout.sides)["difference"]
    return (found["lower"] <= truth) & (truth <= found["upper"])


def designs(layout: Layout, n_repeats: int) -> list[dict[str, Any]]:
    """Return false and true differences by mean proportion, as means over cells and distributions.

    `worst` has the largest shares of false ones, `covered` the share of intervals that cover true ones.
    """
    lines = []
    for mean in MEANS:
        false, found, covered = [], [], []
        for seed, (n_cells, kind) in enumerate(product(CELLS, KINDS)):
            for effect, into in ((0.0, false), (layout.effect, found)):
                drawn = draw_studies(layout, mean, n_cells, kind, effect, n_repeats, seed)
                p_values = p_values_of(layout, *drawn[1:])
                into.append({name: float(np.mean(own <= 0.05)) for name, own in p_values.items()})
            covered.append(covers(layout, *drawn))
        averages = (
            {name: float(np.mean([one[name] for one in each])) for name in each[0]} for each in (false, found)
        )
        worst = {name: max(one[name] for one in false) for name in false[0]}
        line = {"layout": layout.name, "proportion": mean, "worst": worst, "covered": float(np.mean(covered))}
        lines.append(line | dict(zip(("false", "found"), averages, strict=True)))
    return lines


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
    layouts = LAYOUTS[::7] if arguments.small else LAYOUTS
    results: dict[str, list[Any]] = {
        "coverage": [coverage(*case, n_repeats, seed) for seed, case in enumerate(cases)],
        "compare": [comparisons(gap, n_comparisons, 100) for gap in gaps],
        "designs": [line for layout in layouts for line in designs(layout, 100 * n_repeats)],
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
    for name in ("compare", "designs", "unusual"):
        for one in results[name]:
            console.print(name, one)


if __name__ == "__main__":
    main()
