"""False alarms of `Study.compare` where populations shift between samples or replace each other.

    python benchmarks/switches.py --studies 600 --out benchmarks/results/switches.csv

`compose` finds populations without knowing the condition, so that a study whose condition is permuted at
random has no association to find: any population with q ≤ 0.05 is a false alarm. Cells have three markers, in
populations six standard deviations apart whose proportions differ between samples (Dirichlet). In a half of
the samples that has nothing to do with the condition

- ``alike``: nothing else differs;
- ``shifted``: a population lies 5.5 standard deviations higher in one marker;
- ``replaced``: another population is in its place, next to 10 % of the first.

``found`` is the share of studies with any q ≤ 0.05 where this half is one side of the condition.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from recording import parser_of, show
from scipy import stats

from skmix import compose

KINDS = ("alike", "shifted", "replaced")
SIDES = (3, 4, 5, 8)  # samples of each side
LEVEL, CONCENTRATION = 0.05, 40.0
# Levels of the markers of four populations; the third shifts, or the fourth replaces it.
CENTRES = 6.0 * np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 1.0]])
SHIFT, SHARES = np.array([0.0, 0.0, 5.5]), np.array([0.5, 0.3, 0.2])


def draw(kind: str, n_side: int, n_cells: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Cells (N, 3) of twice as many samples as a side has, and which samples (L,) are switched."""
    switched, cells = np.repeat([True, False], n_side), []
    for is_switched in switched:
        counts = np.append(random.multinomial(n_cells, random.dirichlet(CONCENTRATION * SHARES)), 0)
        if kind == "replaced":
            most = random.binomial(counts[2], 0.9)
            counts[2:] = [counts[2] - most, most] if is_switched else [most, counts[2] - most]
        X = np.repeat(CENTRES, counts, axis=0)
        if kind == "shifted" and is_switched:
            X[X[:, 1] > 0.0] += SHIFT
        cells.append(X + random.normal(size=X.shape))
    return np.concatenate(cells), switched


def least_q(kind: str, n_side: int, n_cells: int, seed: int) -> list[float]:
    """The least q-value with a permuted condition, and that with the switch as the condition."""
    random = np.random.default_rng([KINDS.index(kind), n_side, n_cells, seed])
    X, switched = draw(kind, n_side, n_cells, random)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        study = compose(
            X,
            sample=np.repeat(np.arange(2 * n_side), n_cells),
            n_kernels=len(CENTRES),
            metadata={"arm": random.permutation(switched), "switch": switched},
            condition="arm",
            n_jobs=1,
        )
    return [float(study.compare(name).table["q_value"].min()) for name in ("arm", "switch")]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--studies", type=int, default=120, help="studies of each kind and number of samples")
    parser.add_argument("--cells", type=int, default=150, help="cells of a sample")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for kind in KINDS:
        for n_side in (4,) if arguments.small else SIDES:
            seeds = range(2 if arguments.small else arguments.studies)
            called = np.array([least_q(kind, n_side, arguments.cells, seed) for seed in seeds]) <= LEVEL
            alarms, found = 100.0 * called.mean(axis=0)
            interval = stats.binomtest(int(called[:, 0].sum()), len(called)).proportion_ci(0.95, "wilson")
            rows.append(
                {
                    "in a half of the samples": kind,
                    "samples of each side": n_side,
                    "studies": len(called),
                    "false alarms, %": f"{alarms:.1f}",
                    "95 % interval": f"{100 * interval.low:.1f}–{100 * interval.high:.1f}",
                    "found, %": "–" if kind == "alike" else f"{found:.0f}",
                }
            )
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
