"""Simulated studies: intervals of proportions, comparisons of conditions, and false alarms of `unusual`.

    python benchmarks/composition.py intervals --out benchmarks/results/intervals.csv
    python benchmarks/composition.py conditions --out benchmarks/results/conditions.csv
    python benchmarks/composition.py alarms --out benchmarks/results/alarms.csv

- ``intervals``: the share of 95 % intervals that cover, of samples in the fit and of new ones. Kernels lie
  on a line in the plane, `gap` standard deviations apart, with proportions of 50, 30, 15, 4 and 1 % on
  average; those of samples are drawn from a Dirichlet distribution, but are at least 0.1 %. The fit starts
  at the true kernels. Samples may have shifted kernels; intervals that are NaN do not count.
- ``conditions``: samples in pairs, or with a covariate, whose cells of one population are counted.
  Proportions vary around a mean of 0.1, 1, 10 or 50 % with normal log-odds, or with a beta distribution as
  wide, and samples have about 300, 1,000 and 3,000 cells, or ten times as many. False: the share of
  studies with p ≤ 0.05 without a difference; found: the same with one. Beside both is Welch's test of the
  same samples.
- ``alarms``: studies with any sample that is called unusual, where proportions are drawn from one
  Dirichlet distribution, and studies in which one sample is found that has a population of its own (10 %
  of its cells), or three times the usual proportion of a population of 4 %.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from recording import parser_of, show
from scipy import stats
from scipy.special import expit, logit
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.samples import Study, judging
from skmix.samples.comparison import Sides, differences

# ---------------------------------------------------------------- intervals

SHARES = np.array([0.5, 0.3, 0.15, 0.04, 0.01])
# Concentration of the samples' proportions, the least proportion, and the standard deviation of shifts.
ALPHA, LEAST, SHIFT = 60.0, 0.001, 0.3
MIXED = (50,) * 8 + (500,) * 8 + (5000,) * 4
SETTINGS: dict[str, dict[str, Any]] = {
    "–": {},
    "hierarchical weights": {"weight_prior": "hierarchical"},
    "shifts": {"group_shift": SHIFT**-2},
}
# Gap between kernels, sizes of samples, settings of the mixture.
CASES = (
    *((gap, sizes, "–") for sizes in (MIXED, (500,) * 20) for gap in (6.0, 3.0, 2.5)),
    (3.0, MIXED, "hierarchical weights"),
    *((gap, (60,) * 8, "hierarchical weights") for gap in (6.0, 3.0)),
    *((gap, (500,) * 8, "shifts") for gap in (6.0, 3.5, 2.5)),
)


def draw_shares(n_samples: int, random: np.random.RandomState) -> np.ndarray:
    """Proportions (L, K) of samples."""
    shares = np.maximum(random.dirichlet(ALPHA * SHARES, n_samples), LEAST)
    return shares / shares.sum(axis=1, keepdims=True)


def draw_rows(
    shares: np.ndarray, sizes: tuple[int, ...], gap: float, shift: float, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """Cells (N, 2) of samples with proportions (L, K), perhaps with shifts, and samples (N,)."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    kernels = np.concatenate([random.choice(len(p), n, p=p) for p, n in zip(shares, sizes, strict=True)])
    X = random.normal(size=(len(y), 2))
    X[:, 0] += gap * kernels
    return X + shift * random.normal(size=(*shares.shape, 2))[y, kernels], y


def fit(X: np.ndarray, y: np.ndarray, gap: float, **settings: Any) -> tuple[Study, np.ndarray]:
    """A fit of all samples, and its kernels in the order of the true ones."""
    n_kernels = len(SHARES)
    start = {
        "means": np.stack([gap * np.arange(n_kernels), np.zeros(n_kernels)], axis=1),
        "covariances": np.tile(np.eye(2), (n_kernels, 1, 1)),
        "weights": np.tile(SHARES[:, None], (1, int(y.max()) + 1)),
    }
    model = SharedKernelMixture(n_kernels, init=start, tol=1e-8, max_iter=5000, **settings).fit(X, y)
    return Study(model), model.means_[:, 0].argsort()


def covered(table: Any, shares: np.ndarray, order: np.ndarray) -> np.ndarray:
    """1 for proportions (L, K) that their intervals cover, 0 for others, NaN without intervals."""
    lower, upper = (table[name].to_numpy().reshape(shares.shape)[:, order] for name in ("lower", "upper"))
    return np.where(np.isnan(lower), np.nan, (lower <= shares) & (shares <= upper))


def per_cent(hits: np.ndarray) -> str:
    """The share of hits, or a dash without any."""
    return "–" if np.isnan(hits).all() else f"{100 * np.nanmean(hits):.1f}"


def intervals(repeats: int, small: bool) -> Iterator[dict[str, Any]]:
    """The share of intervals that cover, in per cent."""
    cases = [(3.0, (50, 50, 50, 500, 500, 500), "–")] if small else CASES
    for seed, (gap, sizes, name) in enumerate(cases):
        old, new, settings = [], [], SETTINGS[name]
        shift = SHIFT if name == "shifts" else 0.0
        for repeat in range(repeats):
            random = np.random.RandomState([seed, repeat])
            shares, later = draw_shares(len(sizes), random), draw_shares(len(sizes), random)
            study, order = fit(*draw_rows(shares, sizes, gap, shift, random), gap, **settings)
            old.append(covered(study.proportions, shares, order))
            X, y = draw_rows(later, sizes, gap, shift, random)
            new.append(covered(study.apply_to(X, sample=y).proportions, later, order))
        hits, size, several = np.array(old), np.array(sizes), len(set(sizes)) > 1
        row = {
            "gap": f"{gap:g}",
            "samples": len(sizes),
            "cells of a sample": " or ".join(map(str, sorted(set(sizes)))),
        }
        row |= {"with": name, "covered, %": per_cent(hits)}
        for n in (50, 500, 5000):
            row[f"of samples of {n}, %"] = per_cent(hits[:, size == n]) if several and n in sizes else "–"
        given = f"{100 * np.mean(~np.isnan(hits)):.0f}"
        yield row | {"of new samples, %": per_cent(np.array(new)), "intervals that are not NaN, %": given}


# ---------------------------------------------------------------- conditions

# Mean proportions, cells, and distributions of samples.
MEANS, CELLS, KINDS = (0.001, 0.01, 0.1, 0.5), (1000, 10_000), ("normal", "beta")


@dataclass(frozen=True)
class Layout:
    """Samples of a design, and how their log-odds vary."""

    name: str
    is_first: np.ndarray  # (L,)
    pairs: np.ndarray | None  # (L,)
    columns: np.ndarray | None  # (L, C): of the covariate
    offset: np.ndarray  # (L,): what the covariate adds to the log-odds
    among_pairs: float  # standard deviation of what pairs have in common
    spread: float  # standard deviation of samples
    effect: float  # difference between the sides, if there is one

    @property
    def sides(self) -> Sides:
        return Sides((0, 1), np.arange(len(self.offset)), self.is_first, self.pairs, self.columns, ())


def in_pairs(n_pairs: int, among: float) -> Layout:
    """Pairs, whose log-odds may differ."""
    name = f"{n_pairs} pairs, {'different' if among else 'alike'}"
    is_first, pairs = np.arange(2 * n_pairs) < n_pairs, np.tile(np.arange(n_pairs), 2)
    return Layout(name, is_first, pairs, None, np.zeros(2 * n_pairs), among, 0.3, 0.7)


def in_batches(*batches: tuple[int, int]) -> Layout:
    """Batches with these numbers of samples of the sides; their odds differ by up to 5."""
    name, several = " + ".join(f"{a}:{b}" for a, b in batches), len(batches) > 1
    batch = np.repeat(np.arange(len(batches)), np.sum(batches, axis=1))
    offset = np.linspace(-0.8, 0.8, len(batches))[batch] if several else np.zeros(len(batch))
    is_first = np.concatenate([np.arange(a + b) < a for a, b in batches])
    columns = np.eye(len(batches))[batch, 1:] if several else None
    return Layout(name, is_first, None, columns, offset, 0.0, 0.5, 1.0)


def with_number(n_side: int, apart: float) -> Layout:
    """A number, such as an age, whose means on the sides may be SDs apart."""
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


def draw_studies(
    layout: Layout, mean: float, n_cells: int, kind: str, effect: float, n_studies: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Typical proportions of samples of R studies, cells of the population, and all cells, (L, R)."""
    random, shape = np.random.default_rng(seed), (len(layout.offset), n_studies)
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


def conditions(repeats: int, small: bool) -> Iterator[dict[str, Any]]:
    """False and true differences of each layout in per cent, as means over proportions, cells and kinds."""
    for layout in LAYOUTS[::7] if small else LAYOUTS:
        sides = {"": layout.sides, " by Welch's test": replace(layout.sides, pairs=None, covariate=None)}
        false, found = ({name: [] for name in sides} for _ in range(2))
        covers = []
        for mean, (seed, (n_cells, kind)) in product(MEANS, enumerate(product(CELLS, KINDS))):
            for effect, into in ((0.0, false), (layout.effect, found)):
                drawn = draw_studies(layout, mean, n_cells, kind, effect, 100 * repeats, seed)
                typical, counts, cells = drawn
                inside = (counts + 0.5) / (cells + 1.0)
                variances = inside * (1.0 - inside) / cells
                for name, compared in sides.items():
                    p_values = differences(counts / cells, variances, compared)["p_value"]
                    into[name].append(100 * np.mean(p_values <= 0.05))
            # With a difference, the intervals should cover that of the typical proportions.
            table = differences(counts / cells, variances, layout.sides)
            truth = differences(typical, variances, layout.sides)["difference"]
            covers.append(100 * np.mean((table["lower"] <= truth) & (truth <= table["upper"])))
        welch = " by Welch's test"
        yield {
            **{"samples": layout.name, "false, %": f"{np.mean(false['']):.1f}"},
            **{
                "false at worst, %": f"{max(false['']):.1f}",
                f"false{welch}, %": f"{np.mean(false[welch]):.1f}",
            },
            **{"found, %": f"{np.mean(found['']):.0f}", f"found{welch}, %": f"{np.mean(found[welch]):.0f}"},
            "intervals that cover, %": f"{np.mean(covers):.0f}",
        }


# ---------------------------------------------------------------- alarms

LEVEL, NEW, RARE = 0.05, 0.1, 0.04
# Samples of a study, their cells, concentrations of the Dirichlet distribution, and numbers of populations.
SAMPLES, ROWS, CONCENTRATIONS, PARTS = (
    (5, 6, 8, 20, 50, 100),
    (50, 200, 1000, 10_000),
    (5, 20, 100, 500),
    (2, 8, 30),
)
# The same for studies with an unusual sample.
FOUND_ROWS, FOUND_PARTS = (200, 1000, 10_000), (3, 8)


def unusual(n: int, concentration: float, n_rows: int, n_parts: int, kind: str, n_studies: int) -> np.ndarray:
    """Which samples (S, L) of S studies are unusual; the first may have a 'new' or 'tripled' population."""
    random = np.random.default_rng([n, n_rows, concentration, n_parts, len(kind)])
    mean = np.full(n_parts, 1.0 / n_parts)
    if kind == "tripled":
        mean = np.append(np.full(n_parts - 1, (1.0 - RARE) / (n_parts - 1)), RARE)
    errors, called = np.full(n, n_rows**-0.5), []
    for _ in range(n_studies):
        shares = random.dirichlet(concentration * mean, n)
        if kind == "new":
            shares = np.column_stack([shares, np.zeros(n)])
            shares[0] = np.append((1.0 - NEW) * shares[0, :-1], NEW)
        elif kind == "tripled":
            more = min(3.0 * max(shares[0, -1], RARE), 0.9)
            shares[0, :-1] *= (1.0 - more) / shares[0, :-1].sum()
            shares[0, -1] = more
        counts = random.multinomial(n_rows, shares).astype(float)
        away = errors * random.normal(size=n) + 0.05 * random.normal(size=n)
        values = judging.Residuals(away, errors, np.zeros(n))
        called.append(judging.judge(counts, values, np.ones(n, dtype=bool), LEVEL).p_adjusted <= LEVEL)
    return np.array(called)


def alarms(repeats: int, small: bool) -> Iterator[dict[str, Any]]:
    """Studies with a false alarm, and studies in which an unusual sample is found, in per cent."""
    for n, concentration in [(8, 500)] if small else product(SAMPLES, CONCENTRATIONS):
        false = np.concatenate(
            [
                unusual(n, concentration, *case, "", max(10, 20 * repeats // n)).any(axis=1)
                for case in product(ROWS, PARTS)
            ]
        )
        share, studies = false.mean(), len(false)
        error = np.sqrt(max(share, 1.0 / studies) * (1.0 - share) / studies)
        row = {"samples": n, "concentration": concentration, "studies": studies}
        row["alarms, %"] = f"{100 * share:.1f} ± {100 * error:.1f}"
        for kind in ("new", "tripled"):
            cases = product(FOUND_ROWS, FOUND_PARTS)
            hits = [unusual(n, concentration, *case, kind, 2 * repeats)[:, 0].mean() for case in cases]
            row[f"{kind} population found, %"] = f"{100 * np.mean(hits):.0f}"
        yield row


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("part", choices=["intervals", "conditions", "alarms"])
    parser.add_argument("--repeats", type=int, default=20, help="simulations of each kind")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", ".* have no intervals")
    part = {"intervals": intervals, "conditions": conditions, "alarms": alarms}[arguments.part]
    show(part(2 if arguments.small else arguments.repeats, arguments.small), arguments.out)


if __name__ == "__main__":
    main()
