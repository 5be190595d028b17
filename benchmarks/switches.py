"""False alarms of `Study.compare` where populations shift between samples or replace each other.

    python benchmarks/switches.py --studies 600 --out benchmarks/results/switches.json

`compose` finds populations without knowing the condition, so that a study whose condition is permuted at
random has no association to find: any population with q ≤ 0.05 is a false alarm. Cells have three markers, in
populations six standard deviations apart whose proportions differ between samples (Dirichlet). In a half of
the samples that has nothing to do with the condition

- ``alike``: nothing else differs;
- ``shifted``: a population lies 5.5 standard deviations higher in one marker;
- ``replaced``: another population is in its place, next to 10 % of the first.

In studies ``with the condition`` this half is one side of the condition: there, shares that are found are
those of studies in which a population that shifts or is replaced has q ≤ 0.05.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from skmix import compose
from skmix.data.write import replacing
from skmix.engine.records import FloatArray

KINDS = ("alike", "shifted", "replaced")
# Samples of each side.
SIDES = (3, 4, 5, 8)
LEVEL = 0.05
# Levels of the markers of four populations; the third shifts, or the fourth replaces it.
CENTRES = 6.0 * np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
SHIFT = np.array([0.0, 0.0, 5.5])
SHARES = (0.5, 0.3, 0.2)
# Concentration of the distribution of the proportions.
CONCENTRATION = 40.0


def draw(kind: str, n_side: int, n_cells: int, random: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    """Return cells (N, 3) of twice as many samples as a side has, and which samples (L,) are switched."""
    switched, cells = np.repeat([True, False], n_side), []
    for is_switched in switched:
        shares = random.dirichlet(CONCENTRATION * np.array(SHARES))
        counts = np.append(random.multinomial(n_cells, shares), 0)
        if kind == "replaced":
            most = random.binomial(counts[2], 0.9)
            counts[2:] = [counts[2] - most, most] if is_switched else [most, counts[2] - most]
        X = np.repeat(CENTRES, counts, axis=0)
        if kind == "shifted" and is_switched:
            X[X[:, 1] > 0.0] += SHIFT
        cells.append(X + random.normal(size=X.shape))
    return np.concatenate(cells), switched


def least_q(kind: str, n_side: int, n_cells: int, seed: int) -> tuple[float, float]:
    """Return the least q-value with a permuted condition, and that with the switch as the condition."""
    random = np.random.default_rng([KINDS.index(kind), n_side, n_cells, seed])
    X, switched = draw(kind, n_side, n_cells, random)
    permuted = random.permutation(switched)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = compose(
            X,
            sample=np.repeat(np.arange(2 * n_side), n_cells),
            n_kernels=len(CENTRES),
            metadata={"arm": permuted, "switch": switched},
            condition="arm",
            n_jobs=1,
        )
    return float(study.compare().table["q_value"].min()), float(
        study.compare("switch").table["q_value"].min()
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--studies", type=int, default=300, help="studies of each kind and number of samples")
    parser.add_argument("--cells", type=int, default=150, help="cells of a sample")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    for kind in KINDS:
        for n_side in (4,) if arguments.small else SIDES:
            seeds = range(2 if arguments.small else arguments.studies)
            least = np.array([least_q(kind, n_side, arguments.cells, seed) for seed in seeds])
            alarms = int((least[:, 0] <= LEVEL).sum())
            interval = stats.binomtest(alarms, len(least)).proportion_ci(0.95, "wilson")
            results.append(
                {
                    "kind": kind,
                    "samples": n_side,
                    "studies": len(least),
                    "alarms": alarms,
                    "interval": [interval.low, interval.high],
                    "found": float((least[:, 1] <= LEVEL).mean()),
                }
            )
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=1) + "\n").encode())
    table = Table(title="studies with q ≤ 0.05, in %")
    for title in ("kind", "samples", "condition permuted", "95 % interval", "switch found", "studies"):
        table.add_column(title, justify="right")
    for one in results:
        share, (low, high) = one["alarms"] / one["studies"], one["interval"]
        found = "–" if one["kind"] == "alike" else f"{100 * one['found']:.1f}"
        sides = f"{one['samples']} : {one['samples']}"
        table.add_row(
            one["kind"],
            sides,
            f"{100 * share:.1f}",
            f"{100 * low:.1f}–{100 * high:.1f}",
            found,
            str(one["studies"]),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
