"""False alarms of `Study.unusual`, counted per study, and the share of unusual samples that it finds.

The proportions of the samples of a study are drawn from one Dirichlet distribution, with populations that are
equally large on average. An alarm is any sample that is called unusual at the level 0.05.

- Verdicts: `judging.judge` gets the cells of each population, and normal residuals with errors of known size.
  One sample may have a population that the others lack (10 % of its cells), or three times the usual
  proportion of a population of 4 %.
- Whole: cells are drawn from Gaussian kernels 6 standard deviations apart, a mixture is fitted from a start
  at the true kernels, and `Study.unusual` is called.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture
from skmix.data.write import replacing
from skmix.engine.records import FloatArray
from skmix.samples import Study, judging

# Level of the tests.
LEVEL = 0.05
# Proportion of a population that only one sample has.
NEW = 0.1
# Usual proportion of the population that one sample has three times as much of.
RARE = 0.04
# Samples of a study.
GROUPS = (5, 6, 8, 20, 50, 100)
# Cells of a sample.
ROWS = (50, 200, 1000, 10_000, 100_000)
# Concentrations of the Dirichlet distribution: the larger, the more alike the samples.
CONCENTRATIONS = (5, 20, 100, 500)
# Numbers of populations.
PARTS = (1, 2, 8, 30)
# Samples, cells, concentration, populations and weight_prior of the whole calls.
WHOLE: tuple[tuple[int, int, int, int, str | None], ...] = (
    (5, 200, 20, 3, None),
    (6, 200, 20, 1, None),
    (6, 200, 20, 3, None),
    (8, 1000, 100, 3, None),
    (20, 1000, 20, 3, None),
    (20, 50, 100, 3, None),
    (20, 200, 100, 3, "hierarchical"),
)


def draw_shares(
    n_groups: int, concentration: float, n_parts: int, kind: str, random: np.random.Generator
) -> FloatArray:
    """Return proportions (L, G) of samples; the first may have a 'new' or a 'tripled' population."""
    if kind == "tripled":
        mean = np.append(np.full(n_parts - 1, (1.0 - RARE) / (n_parts - 1)), RARE)
    else:
        mean = np.full(n_parts, 1.0 / n_parts)
    found = random.dirichlet(concentration * mean, n_groups)
    if kind == "new":
        found = np.column_stack([found, np.zeros(n_groups)])
        found[0] = np.append((1.0 - NEW) * found[0, :-1], NEW)
    elif kind == "tripled":
        more = min(3.0 * max(found[0, -1], RARE), 0.9)
        found[0, :-1] *= (1.0 - more) / found[0, :-1].sum()
        found[0, -1] = more
    return found


def verdicts(
    n_groups: int, n_rows: int, concentration: float, n_parts: int, kind: str, n_studies: int
) -> FloatArray:
    """Return which samples (S, L) of S studies `judging.judge` calls unusual."""
    kinds = ("none", "new", "tripled")
    random = np.random.default_rng([n_groups, n_rows, int(concentration), n_parts, kinds.index(kind)])
    of_fit, found = np.ones(n_groups, dtype=bool), []
    for _ in range(n_studies):
        own = draw_shares(n_groups, concentration, n_parts, kind, random)
        counts = random.multinomial(n_rows, own).astype(float)
        errors = np.full(n_groups, n_rows**-0.5)
        away = errors * random.normal(size=n_groups) + 0.05 * random.normal(size=n_groups)
        values = judging.Residuals(away, errors, np.zeros(n_groups))
        found.append(judging.judge(counts, values, of_fit, LEVEL).p_adjusted <= LEVEL)
    return np.array(found)


def whole(
    n_groups: int, n_rows: int, concentration: float, n_parts: int, weight_prior: str | None, n_studies: int
) -> FloatArray:
    """Return which samples (S, L) of S studies `Study.unusual` calls unusual."""
    random, found = np.random.default_rng([n_groups, n_rows, int(concentration), n_parts]), []
    means = np.column_stack([6.0 * np.arange(n_parts), np.zeros(n_parts)])
    start = {"means": means, "covariances": np.tile(np.eye(2), (n_parts, 1, 1))}
    for _ in range(n_studies):
        own = draw_shares(n_groups, concentration, n_parts, "none", random)
        kernels = np.concatenate([random.choice(n_parts, n_rows, p=p) for p in own])
        X = means[kernels] + random.normal(size=(len(kernels), 2))
        model = SharedKernelMixture(n_parts, init=start, tol=1e-6, max_iter=1000, weight_prior=weight_prior)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, np.repeat(np.arange(n_groups), n_rows))
        found.append(Study(model).unusual(alpha=LEVEL)["unusual"].to_numpy())
    return np.array(found)


def with_error(hits: FloatArray) -> dict[str, float]:
    """Return the share of hits among studies (S,), its standard error, and the number of studies."""
    share = float(np.mean(hits))
    error = float(np.sqrt(max(share * (1.0 - share), 0.25 / len(hits)) / len(hits)))
    return {"share": share, "error": error, "studies": len(hits)}


def cells(most_work: float, n_studies: int, *, small: bool) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield samples, cells, concentration and populations, and the number of studies: fewer of slow ones."""
    if small:
        yield from (((n, 200, 20, g), n_studies) for n, g in ((6, 3), (8, 8), (6, 1)))
        return
    for cell in product(GROUPS, ROWS, CONCENTRATIONS, PARTS):
        yield cell, max(10, min(n_studies, int(most_work / (cell[0] * cell[3]))))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=400, help="studies of each kind")
    parser.add_argument("--work", type=float, default=4e4, help="most groups times populations of each kind")
    parser.add_argument("--whole", type=int, default=100, help="studies of each kind that are fitted")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    n_studies, n_whole = (10, 1) if arguments.small else (arguments.studies, arguments.whole)
    results: dict[str, list[Any]] = {"alarms": [], "found": [], "whole": []}
    names = ("groups", "rows", "concentration", "populations")
    for cell, some in cells(arguments.work, n_studies, small=arguments.small):
        hits = verdicts(*cell, "none", some).any(axis=1)
        results["alarms"].append(dict(zip(names, cell, strict=True)) | with_error(hits))
    powers = (
        [(8, 1000, 500, 8)]
        if arguments.small
        else product((5, 8, 20, 50), (200, 1000, 10_000), CONCENTRATIONS, (3, 8))
    )
    for cell in powers:
        line = dict(zip(names, cell, strict=True))
        for kind in ("new", "tripled"):
            called = verdicts(*cell, kind, max(10, n_studies // 8))
            line[kind] = with_error(called[:, 0])
        results["found"].append(line)
    for case in WHOLE[2:3] if arguments.small else WHOLE:
        line = dict(zip((*names, "weight_prior"), case, strict=True))
        results["whole"].append(line | with_error(whole(*case, n_whole).any(axis=1)))
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())
    console = Console(width=150)
    for kind in ("alarms", "whole"):
        table = Table(title=f"studies with an alarm, in % ({kind})")
        for title in (*names, "alarms", "studies"):
            table.add_column(title, justify="right")
        for one in results[kind]:
            share = f"{100 * one['share']:.1f} ± {100 * one['error']:.1f}"
            table.add_row(*(str(one[name]) for name in names), share, str(one["studies"]))
        console.print(table)
    for one in results["found"]:
        console.print("found", one)
    total = sum(one["share"] * one["studies"] for one in results["alarms"])
    console.print(
        f"all cells: {100 * total / sum(one['studies'] for one in results['alarms']):.2f} % of studies"
    )


if __name__ == "__main__":
    main()
