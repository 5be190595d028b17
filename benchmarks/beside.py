"""This checkout of skmix beside another one, in one run: ``python benchmarks/speed.py --beside PATH``.

Each side has a process of its own, with the ``src`` of its checkout first on Python's path, and uses public
names only. The processes are asked in turn over pipes, and answer with the processor time of all their
threads. A pass is the difference of two fits from the same means; k-means that of fits with such a start and
without. Passes of both sides must end at the same log-likelihood. A compiled core must have been built.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
# N, M and K.
SHAPES = (
    (100_000, 3, 10),
    (100_000, 6, 10),
    (100_000, 13, 10),
    (40_000, 32, 32),
    (20_000, 64, 32),
    (100_000, 16, 50),
    (1_000, 4, 10),
)
STRUCTURES = ("full", "tied", "diag", "spherical")
# Passes of the shorter of two fits.
FEW = 2
# Products and sums of a measurement, and of a whole fit that is as long as many small passes.
WORK, WORK_OF_A_FIT = 400_000_000, 20_000_000
# Passes of two checkouts may round otherwise.
TOLERANCE = 1e-6
# Shares of rows without a value, and patterns of gaps; None for one of its own for each row.
GAPS = {"few patterns": (0.2, 16), "many patterns": (0.1, None)}


@dataclass(frozen=True)
class Case:
    """What is timed."""

    what: str  # a pass, k-means, scoring or a whole fit
    n_rows: int
    n_features: int
    n_kernels: int
    covariance_type: str = "full"
    n_classes: int = 1
    n_jobs: int = 1
    tail: str | None = None
    gaps: str | None = None
    small: bool = False  # only to check that it runs

    def __str__(self) -> str:
        """Return the case in words."""
        words = [self.what, self.covariance_type, self.tail and "t kernels", self.gaps]
        words += [f"{self.n_rows}×{self.n_features} K={self.n_kernels}"]
        words += [
            self.n_classes > 1 and f"{self.n_classes} classes",
            self.n_jobs > 1 and f"{self.n_jobs} threads",
        ]
        return ", ".join(word for word in words if word)

    @property
    def repeats(self) -> int:
        """How often a measurement does it, so that it takes long enough to be timed."""
        # Covariances of all features take products of them; tied ones are few.
        products = self.n_features if self.covariance_type == "full" else 2
        work = self.n_rows * self.n_kernels * self.n_features * (products + 3)
        if self.what == "fit":
            work = WORK_OF_A_FIT
        return 2 if self.small else min(100, max(3, WORK // work))


def all_cases() -> Iterator[Case]:
    """Yield what is timed."""
    for shape in SHAPES:
        for structure in STRUCTURES:
            for n_classes in (1, 10):
                yield from (Case("pass", *shape, structure, n_classes, n_jobs) for n_jobs in (1, 2))
    for shape in ((100_000, 6, 10), (40_000, 32, 32)):
        for structure in ("full", "diag"):
            yield from (Case("pass", *shape, structure, 1, n_jobs, tail="t") for n_jobs in (1, 2))
    for structure in ("full", "diag"):
        yield Case("pass", 100_000, 6, 10, structure, gaps="few patterns")
        yield Case("pass", 10_000, 6, 10, structure, gaps="many patterns")
    for shape in SHAPES:
        yield Case("k-means", *shape)
    for shape in SHAPES:
        yield from (Case("scoring", *shape, n_jobs=n_jobs) for n_jobs in (1, 2))
    for structure in STRUCTURES[1:]:
        yield Case("scoring", 100_000, 6, 10, structure)
    for n_classes in (1, 10):
        yield from (Case("fit", 1_000, 4, 10, "full", n_classes, n_jobs) for n_jobs in (1, 2))


def few_cases() -> Iterator[Case]:
    """Yield a tiny case of each kind, to check that all of them run."""
    kinds = {}
    for case in all_cases():
        kind = case.what, case.tail, case.gaps, case.n_classes, case.n_jobs
        kinds.setdefault(kind, replace(case, n_rows=300, n_features=2, n_kernels=2, small=True))
    yield from kinds.values()


# ---------------------------------------------------------------- a side: what its process does


def draw(case: Case) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return rows of overlapping clusters, their classes or None, and the centres."""
    random = np.random.default_rng(0)
    centres = 0.7 * random.standard_normal((case.n_kernels, case.n_features))
    X = random.standard_normal((case.n_rows, case.n_features))
    X += centres[random.integers(case.n_kernels, size=case.n_rows)]
    if case.gaps:
        share, n_patterns = GAPS[case.gaps]
        patterns = random.uniform(size=(n_patterns or case.n_rows, case.n_features)) < share
        patterns[patterns.all(axis=1), 0] = False
        if n_patterns:
            patterns = patterns[random.integers(n_patterns, size=case.n_rows)]
        X[patterns] = np.nan
    return X, np.arange(case.n_rows) % case.n_classes if case.n_classes > 1 else None, centres


def seconds_of(work: Callable[[], Any]) -> float:
    """Return the processor time of some work."""
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measurement(case: Case) -> Callable[[], dict[str, float]]:
    """Return a function that measures a case: seconds, and the log-likelihood that was reached."""
    from skmix import SharedKernelMixture

    X, y, centres = draw(case)
    # Every measurement of a side begins with the same means.
    settings: dict[str, Any] = {
        "n_kernels": case.n_kernels,
        "covariance_type": case.covariance_type,
        "tail": case.tail,
        "n_jobs": case.n_jobs,
        "random_state": 0,
    }

    def passes(n_passes: int, init: Any) -> Any:
        model = SharedKernelMixture(init=init, max_iter=n_passes, tol=0.0, covariance_prior=None, **settings)
        return model.fit(X, y)

    n, start, last = case.repeats, {"means": centres}, {}

    def of_passes(longer: tuple[int, Any], shorter: tuple[int, Any]) -> float:
        def fit(n_passes: int, init: Any) -> None:
            last["model"] = passes(n_passes, init)
            if last["model"].n_iter_ != n_passes:
                raise AssertionError(f"{last['model'].n_iter_} passes, not {n_passes}")

        shorter_seconds = seconds_of(lambda: fit(*shorter))
        return seconds_of(lambda: fit(*longer)) - shorter_seconds

    def of_fits() -> float:
        def fits() -> None:
            for seed in range(n):
                last["model"] = SharedKernelMixture(**settings | {"random_state": seed}).fit(X, y)

        return seconds_of(fits) / n

    scored = passes(1, start) if case.what == "scoring" else None

    def measure() -> dict[str, float]:
        if case.what == "pass":
            seconds = of_passes((FEW + n, start), (FEW, start)) / n
        elif case.what == "k-means":
            seconds = of_passes((1, "k-means"), (1, start))
        elif case.what == "fit":
            seconds = of_fits()
        else:
            seconds = seconds_of(lambda: [scored.score_samples(X) for _ in range(n)]) / n
            last["model"] = scored
        return {"seconds": seconds, "log_likelihood": float(np.sum(last["model"].log_likelihood_))}

    return measure


def answer_requests(source: str) -> None:
    """Measure the cases that come in, a line each; one that is new is first run without being timed."""
    from sklearn.exceptions import ConvergenceWarning

    import skmix

    if Path(source) not in Path(skmix.__file__).resolve().parents:
        raise ImportError(f"skmix came from {skmix.__file__}, not from {source}.")
    warnings.simplefilter("ignore", ConvergenceWarning)
    case, measure = None, None
    for line in sys.stdin:
        request = Case(**json.loads(line))
        if measure is None or request != case:
            case, measure = request, measurement(request)
            measure()
        print(json.dumps(measure()), flush=True)


# ---------------------------------------------------------------- the comparison


class Side:
    """The process of a checkout."""

    def __init__(self, checkout: Path) -> None:
        source = checkout.resolve() / "src"
        if not (source / "skmix").is_dir():
            raise FileNotFoundError(f"{checkout} is no checkout of skmix: {source / 'skmix'} is missing.")
        # Threads of BLAS that wait for work would count.
        environment = {
            **os.environ,
            "PYTHONPATH": str(source),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, str(HERE), str(source)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def measure(self, case: Case) -> dict[str, float]:
        """Ask the process to measure a case."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(asdict(case)) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer is missing, too
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"The process for {self.process.args[-1]} ended at: {case}")
        return dict(json.loads(line))

    def close(self) -> None:
        """Let the process end."""
        self.process.communicate()


def compare(
    other: Path, cases: list[Case], n_rounds: int, show: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Measure all cases on both sides, in turn; show and return the results of each case.

    A ratio above one says that this checkout is quicker.
    """
    results: list[dict[str, Any]] = []
    sides = {"other": Side(other), "this": Side(HERE.parents[1])}
    try:
        for case in cases:
            seconds: dict[str, list[float]] = {name: [] for name in sides}
            reached = {}
            for i in range(n_rounds):
                # Neither side is always the first.
                for name in sorted(sides, reverse=bool(i % 2)):
                    found = sides[name].measure(case)
                    seconds[name].append(found["seconds"])
                    reached[name] = found["log_likelihood"]
            difference = abs(reached["this"] - reached["other"]) / abs(reached["other"])
            if case.what in ("pass", "scoring") and not difference < TOLERANCE:
                raise AssertionError(f"{case}: log-likelihoods differ by {difference:.1e}: {reached}")
            ratios = np.divide(seconds["other"], seconds["this"])
            medians = {name: float(np.median(values)) for name, values in seconds.items()}
            results.append(
                {
                    "case": asdict(case),
                    "name": str(case),
                    "other_ms": 1e3 * medians["other"],
                    "this_ms": 1e3 * medians["this"],
                    "ratio": medians["other"] / medians["this"],
                    "quartiles": [float(value) for value in np.quantile(ratios, (0.25, 0.75))],
                    "log_likelihood": reached,
                    "seconds": seconds,
                }
            )
            show(results[-1])
    finally:
        for side in sides.values():
            side.close()
    return results


if __name__ == "__main__":
    answer_requests(sys.argv[1])
