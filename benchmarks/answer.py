"""Whole default fits beside scikit-learn's default mixture: what a user waits for, and what comes out.

Both fit the same rows in the same process, one after the other, with their defaults, from several seeds;
times are medians over these. A fit comes before the clock starts, and threads are idle. Labelled groups and
gaps have no peer. The time at which our fit reaches the peer's log-likelihood, less 0.002 nats a row, is
interpolated: a fit of one pass, then passes of equal length.

`skmix.GaussianMixture`, which makes the same fit as scikit-learn's, is in drop_in.py.

A few seeds tell times, but not likelihoods: ``--more-seeds`` compares those of further seeds, ``--jobs`` at a
time.

Some minutes on two cores; ``--only`` chooses problems by name.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from joblib import Parallel, delayed
from recording import parser_of, processor, show
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skmix import SharedKernelMixture

# Nats a row by which a default fit may end below the peer's.
TOLERATED = 0.002
COLUMNS = (
    *("problem", "scikit-learn, s", "skmix, s", "times faster"),
    *("times faster until scikit-learn's likelihood", "likelihood, nats a row"),
)
# Seconds before each timed fit: BLAS threads of the last one wait actively for more work, about 0.04 s.
SETTLING = 0.06
# The first of further seeds, and how many of them suffice for many rows.
FIRST, FEW, MANY_ROWS = 300, 6, 200_000


@dataclass(frozen=True)
class Problem:
    """Rows of clusters with covariances of their own, and the number of kernels to fit."""

    name: str
    n_rows: int
    n_features: int
    n_kernels: int
    spread: float = 2.0  # of the centres, in standard deviations of a cluster
    n_clusters: int | None = None  # that rows are drawn from; None for one for each kernel
    n_groups: int = 1  # labelled groups, which differ in the proportions of clusters
    gaps: float = 0.0  # share of values that are missing

    @property
    def has_peer(self) -> bool:
        """Whether scikit-learn's mixture can be fitted."""
        return self.n_groups == 1 and not self.gaps

    def draw(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return rows and their groups, or None for one group."""
        random = np.random.default_rng([self.n_rows, self.n_features, self.n_kernels, int(10 * self.spread)])
        n_clusters, shape = self.n_clusters or self.n_kernels, (self.n_rows, self.n_features)
        centres = self.spread * random.normal(size=(n_clusters, self.n_features))
        turns = np.linalg.qr(random.normal(size=(n_clusters, self.n_features, self.n_features)))[0]
        turns = turns * random.uniform(0.5, 1.5, size=(n_clusters, 1, self.n_features))
        proportions = random.dirichlet(np.full(n_clusters, 3.0), size=self.n_groups)
        groups = np.arange(self.n_rows) % self.n_groups
        X, cluster = random.normal(size=shape), np.empty(self.n_rows, dtype=np.int64)
        for g, p in enumerate(proportions):
            cluster[groups == g] = random.choice(n_clusters, size=int(np.sum(groups == g)), p=p)
        for k in range(n_clusters):
            X[cluster == k] = centres[k] + X[cluster == k] @ turns[k].T
        if self.gaps:
            lost = random.random(shape) < self.gaps
            lost[:, 0] = False
            X[lost] = np.nan
        return X, groups if self.n_groups > 1 else None


PROBLEMS = [
    Problem("1000x4, 10 kernels", 1000, 4, 10, 1.0),
    Problem("10,000x8, 10 kernels", 10_000, 8, 10, 1.0),
    Problem("100,000x8, 10 kernels", 100_000, 8, 10, 1.0),
    Problem("100,000x16, 50 kernels", 100_000, 16, 50, 1.0),
    Problem("20,000x32, 32 kernels", 20_000, 32, 32, 1.0),
    Problem("500,000x6, 20 kernels", 500_000, 6, 20, 1.0),
    Problem("200 rows", 200, 2, 3),
    Problem("500 rows", 500, 6, 4),
    Problem("1000 rows, one feature", 1000, 1, 4),
    Problem("overlapping", 5000, 4, 5, 0.7),
    Problem("overlapping, 10 features", 20_000, 10, 8, 0.5),
    Problem("apart", 5000, 4, 8, 10.0),
    Problem("apart, 30 kernels", 20_000, 5, 30, 10.0),
    Problem("200 kernels", 20_000, 3, 200, 6.0),
    Problem("fewer kernels than clusters", 20_000, 6, 8, 3.0, 24),
    Problem("more kernels than clusters", 20_000, 6, 20, 3.0, 6),
    Problem("64 features", 5000, 64, 8),
    Problem("20 groups", 20_000, 6, 12, n_groups=20),
    Problem("gaps", 5000, 6, 6, gaps=0.1),
    Problem("gaps in 5 groups", 5000, 4, 6, n_groups=5, gaps=0.05),
]


def timed(fit: Callable[[], Any]) -> tuple[Any, float]:
    """Return a fitted model, and the seconds of the fit."""
    time.sleep(SETTLING)
    begun = time.perf_counter()
    return fit(), time.perf_counter() - begun


def measure(problem: Problem, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """Return the seconds of both sides from one seed, and how much higher our log-likelihood ends."""
    X, y = problem.draw()

    def fit(**more: Any) -> SharedKernelMixture:
        return SharedKernelMixture(problem.n_kernels, random_state=seed, **settings | more).fit(X, y)

    fit(max_iter=1)  # the first fit of a process takes longer
    _, first = timed(lambda: fit(max_iter=1))
    ours, whole = timed(fit)
    if not problem.has_peer:
        return {"skmix": whole}
    path = ours.log_likelihood_path_.sum(axis=1) / len(X)
    reached = ours.log_likelihood_ / len(X)
    peer, seconds = timed(lambda: GaussianMixture(problem.n_kernels, random_state=seed).fit(X))
    goal = float(peer.score(X))
    found = {"skmix": whole, "scikit-learn": seconds, "difference": reached - goal, "reached": np.nan}
    # The path has the likelihood before each pass; the last one is that of the result.
    places = np.flatnonzero(np.append(path, reached) >= goal - TOLERATED)
    if len(places):
        share = max(0.0, (places[0] - 1) / max(1, ours.n_iter_ - 1))
        found["reached"] = first + share * (whole - first)
    return found


def difference_of(problem: Problem, settings: dict[str, Any], seed: int) -> float:
    """Return how much higher our log-likelihood is than the peer's, in nats a row."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, _ = problem.draw()
    ours = SharedKernelMixture(problem.n_kernels, random_state=seed, n_jobs=1, **settings).fit(X)
    peer = GaussianMixture(problem.n_kernels, random_state=seed).fit(X)
    return float(ours.log_likelihood_ / len(X) - peer.score(X))


def text_of(seconds: float) -> str:
    """Seconds with at least two digits that count."""
    digits = next((n for n, most in ((4, 0.01), (3, 0.1), (2, 10.0)) if seconds < most), 1)
    return f"{seconds:.{digits}f}"


def times_of(ratio: float) -> str:
    """How many times faster something is."""
    return f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


def row_of(problem: Problem, runs: list[dict[str, float]], differences: list[float]) -> dict[str, str]:
    """The line of a problem: medians of seconds, and the mean difference of log-likelihoods."""
    found, none = pd.DataFrame(runs), "–"
    middle = found.median(skipna=False)
    row = dict.fromkeys(COLUMNS, none) | {"problem": problem.name, "skmix, s": text_of(middle["skmix"])}
    if not problem.has_peer:
        return row
    seconds, reached = middle["scikit-learn"], middle["reached"]
    gain = f"{found['difference'].mean():+.4f}"
    if differences:
        error = np.std(differences, ddof=1) / np.sqrt(len(differences)) if len(differences) > 1 else np.nan
        gain = f"{np.mean(differences):+.4f} ± {error:.4f}"
    until = none if np.isnan(reached) else times_of(seconds / reached)
    values = text_of(seconds), times_of(seconds / middle["skmix"]), until, gain
    return row | dict(zip(("scikit-learn, s", *COLUMNS[3:]), values, strict=True))


def main() -> None:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[each.name for each in PROBLEMS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--more-seeds", type=int, default=0, help="further seeds, for likelihoods only")
    parser.add_argument("--jobs", type=int, default=1, help="further seeds at a time")
    parser.add_argument("--settings", type=json.loads, default={}, help="other settings of ours, as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    problems = [each for each in PROBLEMS if arguments.only is None or each.name in arguments.only]
    if arguments.small:
        shrunk = {"n_rows": 400, "n_kernels": 3, "n_clusters": None}
        problems = [replace(each, **shrunk) for each in problems if each.n_features <= 8]
    rows = []
    for each in problems:
        runs, differences = [measure(each, arguments.settings, s) for s in range(arguments.seeds)], []
        if each.has_peer and arguments.more_seeds:
            # Fits of so many rows hardly differ.
            n_more = min(arguments.more_seeds, FEW if each.n_rows > MANY_ROWS else arguments.more_seeds)
            work = (delayed(difference_of)(each, arguments.settings, FIRST + seed) for seed in range(n_more))
            differences = Parallel(n_jobs=arguments.jobs)(work)
        rows.append(row_of(each, runs, differences))
    show(rows, arguments.out)
    print(f"On {processor()}, scikit-learn {sklearn.__version__}.")


if __name__ == "__main__":
    main()
