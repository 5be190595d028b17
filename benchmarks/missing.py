"""The cost of missing values: passes, fits and scores of rows with gaps over those of complete rows.

    python benchmarks/missing.py --out benchmarks/results/gaps.csv

The same rows are fitted complete, with a few hundred patterns of gaps, and with a different pattern in nearly
every row. Times are processor times. It takes some seconds on one core.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from recording import parser_of, seconds_of_a_pass, show
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelMixture

STRUCTURES = ("full", "tied", "diag", "spherical")
N_FEATURES, N_KERNELS, N_PATTERNS = 15, 10, 400


def draw(n_rows: int) -> list[np.ndarray]:
    """Rows of ten clusters without gaps, with few patterns of gaps, and with many."""
    random = np.random.default_rng(0)
    centres = 2.0 * random.standard_normal((N_KERNELS, N_FEATURES))
    turn = np.eye(N_FEATURES) + 0.2 * random.standard_normal((N_FEATURES, N_FEATURES))
    X = centres[random.integers(0, N_KERNELS, n_rows)] + random.standard_normal((n_rows, N_FEATURES)) @ turn
    patterns = random.uniform(size=(N_PATTERNS, N_FEATURES)) < 0.2
    masks = [patterns[random.integers(0, N_PATTERNS, n_rows)], random.uniform(size=X.shape) < 0.4]
    for gaps in masks:
        gaps[gaps.all(axis=1), 0] = False
    return [X, *(np.where(gaps, np.nan, X) for gaps in masks)]


def measure(X: np.ndarray, structure: str, n_passes: int, repeats: int) -> np.ndarray:
    """The seconds of a pass, a fit and a score."""
    model = SharedKernelMixture(N_KERNELS, covariance_type=structure, tol=0.0, random_state=0, n_jobs=1)

    def fit(n: int) -> Any:
        return model.set_params(max_iter=n).fit(X)

    each = seconds_of_a_pass(fit, (2, 2 + n_passes), repeats)
    times = []
    for work in (lambda: fit(2 + n_passes), lambda: model.score_samples(X)):
        begun = time.process_time()
        for _ in range(repeats):
            work()
        times.append((time.process_time() - begun) / repeats)
    return np.array([each, *times])


def main() -> None:
    arguments = parser_of(__doc__).parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    n_rows, n_passes, repeats = (100, 2, 1) if arguments.small else (1000, 40, 3)
    complete, *with_gaps = draw(n_rows)
    rows = []
    for structure in STRUCTURES:
        measure(with_gaps[0], structure, 2, 1)  # the first fit of a process takes longer
        least = measure(complete, structure, n_passes, repeats)
        for X in with_gaps:
            ratios = measure(X, structure, n_passes, repeats) / least
            row = {"covariances": structure, "patterns of gaps": len(np.unique(np.isnan(X), axis=0))}
            names = ("pass", "fit", "scores")
            rows.append(row | {name: f"{ratio:.1f}" for name, ratio in zip(names, ratios, strict=True)})
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
