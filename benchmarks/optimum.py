"""How often default fits end at the optimum, ours and scikit-learn's.

Twelve problems with known clusters: the optimum is the fit that starts from the true means, covariances and
weights. A fit counts if it ends within 0.001 nats a row of that one, or above. The start was developed on the
first half of the problems; the second half was drawn up afterwards.

A minute and a half on sixteen cores; ``--only`` chooses problems by name.

With ``--tables`` the problems are real tables instead, of which no optimum is known: ours, by maximum
likelihood, is compared with the best of five starts of scikit-learn's.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from recording import parser_of, processor, show
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from skmix import SharedKernelMixture

# Nats a row by which a fit may end below the optimum.
TOLERATED = 1e-3
# Seeds of scikit-learn's fits; of ours there are more.
PEER_SEEDS = 5
# Rows times squared features times kernels up to which scikit-learn is fitted; more takes many minutes.
MOST_OF_PEER = 5e9
# Range of logarithms of the clusters' sizes, of their axes, and of their sizes where these differ much.
SIZES, AXES, SPREADS = 0.3, 0.4, 1.0


@dataclass(frozen=True)
class Problem:
    """Rows of Gaussian clusters, whose means are at least `apart` from each other."""

    half: str
    n_rows: int
    n_features: int
    n_kernels: int
    apart: float  # in standard deviations, about
    equal: bool = True  # whether clusters are equally likely; otherwise some are a third as likely, or less
    spreads: bool = False  # whether clusters differ much in size
    outliers: float = 0.0  # share of rows that are uniform in a large box

    @property
    def name(self) -> str:
        """What a reader needs to know."""
        kinds = [f"{self.n_rows:,} x {self.n_features}", f"{self.n_kernels} kernels"]
        kinds.append("overlapping" if self.apart < 5 else "apart")
        kinds += ["unequal"] * (not self.equal) + ["of unequal spread"] * self.spreads
        return ", ".join(kinds + [f"{100 * self.outliers:.0f} % outliers"] * (self.outliers > 0))

    def draw(self, seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Return rows, and the model that they are drawn from, as `init` takes it."""
        random, size = np.random.default_rng(seed), (self.n_kernels, self.n_features)
        weights = np.full(self.n_kernels, 1.0 / self.n_kernels)
        if not self.equal:
            weights = np.maximum(random.dirichlet(np.full(self.n_kernels, 2.0)), 0.3 / self.n_kernels)
            weights /= weights.sum()
        box = 1.2 * self.apart * max(1.5, self.n_kernels ** (1 / self.n_features)) / np.sqrt(self.n_features)
        means: list[np.ndarray] = []
        while len(means) < self.n_kernels:
            mean = random.uniform(-box, box, self.n_features)
            if all(np.linalg.norm(mean - other) >= self.apart for other in means):
                means.append(mean)
            else:
                box *= 1.0002
        spread = SPREADS if self.spreads else SIZES
        scales = np.exp(random.uniform(-spread, spread, self.n_kernels))[:, None, None]
        turns = np.linalg.qr(random.normal(size=(*size, self.n_features)))[0]
        roots = scales * turns * np.exp(random.uniform(-AXES, AXES, size))[:, None, :]
        cluster = random.choice(self.n_kernels, self.n_rows, p=weights)
        X = random.normal(size=(self.n_rows, self.n_features))
        for k in range(self.n_kernels):
            X[cluster == k] = X[cluster == k] @ roots[k].T + means[k]
        out = random.random(self.n_rows) < self.outliers
        X[out] = random.uniform(-3.0 * box, 3.0 * box, (out.sum(), self.n_features))
        return X, {"means": np.array(means), "covariances": roots @ roots.mT, "weights": weights}


PROBLEMS = [
    Problem("first", 20_000, 2, 30, 3.0),
    Problem("first", 20_000, 8, 20, 6.0, equal=False, outliers=0.01),
    Problem("first", 20_000, 6, 15, 6.0, equal=False, spreads=True, outliers=0.02),
    Problem("first", 30_000, 16, 30, 3.0),
    Problem("first", 20_000, 32, 32, 8.0),
    Problem("first", 100_000, 64, 128, 8.0),
    Problem("second", 10_000, 3, 10, 3.0, equal=False),
    Problem("second", 40_000, 4, 60, 6.0, equal=False),
    Problem("second", 50_000, 5, 40, 8.0, outliers=0.01),
    Problem("second", 60_000, 10, 16, 6.0, spreads=True),
    Problem("second", 40_000, 24, 40, 4.0),
    Problem("second", 200_000, 48, 100, 8.0, equal=False),
]


def fitted(problem: Problem, seed: int, n_peer: int) -> dict[str, Any]:
    """Fit both sides to the rows of one seed; return by how much they end above the optimum, and seconds."""
    X, truth = problem.draw(seed)
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        optimum = SharedKernelMixture(problem.n_kernels, init=truth, n_jobs=1).fit(X).log_likelihood_ / len(X)
        begun = time.process_time()
        ours = SharedKernelMixture(problem.n_kernels, random_state=seed, n_jobs=1).fit(X)
        result = {"skmix": [ours.log_likelihood_ / len(X) - optimum, time.process_time() - begun]}
        if seed < n_peer and problem.n_rows * problem.n_features**2 * problem.n_kernels <= MOST_OF_PEER:
            begun = time.process_time()
            peer = GaussianMixture(problem.n_kernels, random_state=seed).fit(X)
            seconds = time.process_time() - begun
            result["scikit-learn"] = [float(peer.score(X)) - optimum, seconds]
    return result


def line_of(problem: Problem, runs: list[dict[str, Any]]) -> dict[str, str]:
    """Return the line of a problem: shares of fits at the optimum, the lowest ends, and median seconds."""
    line = {"problem": problem.name, "half": problem.half}
    for side, name in (("skmix", ""), ("scikit-learn", "scikit-learn's ")):
        values = np.array([run[side] for run in runs if side in run]).reshape(-1, 2)
        share, lowest, seconds = "", "", ""
        if len(values):
            share = f"{np.mean(values[:, 0] >= -TOLERATED):.2f}"
            lowest, seconds = f"{values[:, 0].min():+.4f}", f"{np.median(values[:, 1]):.2f}"
        line |= {f"{name}share": share, f"{name}lowest end": lowest, f"{name}seconds": seconds}
    return line


# ---------------------------------------------------------------- real tables

# Starts of scikit-learn's fits of real tables, and seeds of ours.
TABLE_SEEDS = 5
# Fewest distinct values of a feature; on fewer, one more collapsed kernel is worth more than all else.
DISTINCT = 50
# Rows for each parameter of a kernel, and most kernels.
ROWS_PER_PARAMETER, MOST_KERNELS = 5, 10


def rows_of(path: Path) -> dict[str, np.ndarray]:
    """Return the rows of a table, or of the array `X` in an archive, by name."""
    if path.suffix == ".npz":
        X = np.load(path)["X"].astype(np.float64)
    else:
        X = pd.read_csv(path).iloc[:, :-1].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    return {path.name.partition(".")[0]: X}


def bundled_tables() -> dict[str, np.ndarray]:
    """Return the tables that come with scikit-learn."""
    loaders = load_iris, load_wine, load_breast_cancer, load_digits
    return {loader.__name__.removeprefix("load_"): loader(return_X_y=True)[0] for loader in loaders}


def standardised(X: np.ndarray) -> np.ndarray:
    """Return complete rows, without features of few values, in units of their deviations."""
    X = X[:, [len(np.unique(column[~np.isnan(column)])) >= DISTINCT for column in X.T]]
    X = X[~np.isnan(X).any(axis=1)]
    return (X - X.mean(axis=0)) / X.std(axis=0)


def fitted_table(name: str, X: np.ndarray) -> dict[str, Any] | None:
    """Return by how much our fits end above the best of scikit-learn's, in nats a row; None: too few rows."""
    X = standardised(X)
    n_features = X.shape[1]
    per_kernel = ROWS_PER_PARAMETER * (n_features + n_features * (n_features + 1) // 2)
    n_kernels = min(MOST_KERNELS, len(X) // max(per_kernel, 1))
    if n_kernels < 2 or not n_features:
        return None
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        peers = [GaussianMixture(n_kernels, random_state=seed).fit(X).score(X) for seed in range(TABLE_SEEDS)]
        ours = [
            SharedKernelMixture(n_kernels, covariance_prior=None, random_state=seed, n_jobs=1).fit(X)
            for seed in range(TABLE_SEEDS)
        ]
    ends = np.array([model.log_likelihood_ / len(X) for model in ours])
    return {
        "table": name,
        "rows": f"{len(X):,} x {n_features}",
        "kernels": str(n_kernels),
        "scikit-learn's best": f"{max(peers):.3f}",
        "scikit-learn's mean": f"{np.mean(peers) - max(peers):+.4f}",
        "ours, mean": f"{ends.mean() - max(peers):+.4f}",
        "ours, lowest": f"{ends.min() - max(peers):+.4f}",
        "ours, best": f"{ends.max() - max(peers):+.4f}",
    }


def compare_tables(folder: Path, n_jobs: int) -> list[dict[str, str]]:
    """Return a line for each table in a folder and in scikit-learn."""
    tables = bundled_tables()
    for path in sorted([*folder.glob("*.csv.gz"), *folder.glob("*.npz")]):
        tables |= rows_of(path)
    lines = Parallel(n_jobs=n_jobs)(delayed(fitted_table)(*item) for item in tables.items())
    return [line for line in lines if line is not None]


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="parts of the names of problems")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peer-seeds", type=int, default=PEER_SEEDS, help="seeds of scikit-learn's fits")
    parser.add_argument("--jobs", type=int, default=-1, help="fits at a time")
    parser.add_argument("--tables", type=Path, metavar="FOLDER", help="compare fits of the tables there")
    arguments = parser.parse_args()
    if arguments.tables is not None:
        lines = compare_tables(arguments.tables, arguments.jobs)
        show(lines, arguments.out)
        for column in ("ours, mean", "scikit-learn's mean"):
            print(f"{column}: {np.mean([float(line[column]) for line in lines]):+.4f} on average")
        return
    problems = [p for p in PROBLEMS if not arguments.only or any(part in p.name for part in arguments.only)]
    if arguments.small:
        problems = [Problem("first", 500, 2, 3, 8.0), Problem("second", 500, 3, 4, 8.0, outliers=0.01)]
    work = [(problem, seed) for problem in reversed(problems) for seed in range(arguments.seeds)]
    runs = Parallel(n_jobs=arguments.jobs)(delayed(fitted)(*each, arguments.peer_seeds) for each in work)
    of_problem = {p: [run for (q, _), run in zip(work, runs, strict=True) if q is p] for p in problems}
    rows = [line_of(problem, of_problem[problem]) for problem in problems]
    show(rows, arguments.out)
    for half in ("first", "second"):
        shares = [float(row["share"]) for row in rows if row["half"] == half]
        if shares:
            print(f"{np.mean(shares):.2f} of the fits of the {half} half are at the optimum")
    print(f"{processor()}, one thread for a fit, {arguments.jobs} fits at a time")


if __name__ == "__main__":
    main()
