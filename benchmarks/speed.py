"""Time and memory compared with scikit-learn, both measured in the same run.

Run by ``make bench``. The script prints tables and writes a JSON file, from which ``make tables`` makes the
table of the documentation.
This is not a test: timings depend on the machine.

    python benchmarks/speed.py --beside PATH

compares this checkout with another one instead (``beside.py``): processor time of passes, k-means, scores and
whole fits, medians of nine, taken in turn; with ``--only "pass, diag"`` of the cases with these words only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import sklearn
from beside import all_cases, compare, few_cases
from recording import processor
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer
from threadpoolctl import threadpool_info, threadpool_limits

import skmix
from skmix.data.write import replacing
from skmix.engine import starts
from skmix.engine.loop import fit
from skmix.engine.problem import open_source
from skmix.engine.records import Options
from skmix.engine.rows.summary import measure
from skmix.engine.structures import structure_of

# Covariances, N, M, K and the target ratio to scikit-learn, on one thread each.
FITS = [
    ("full", 200_000, 3, 10, 30),
    ("full", 200_000, 6, 10, 28),
    ("full", 200_000, 13, 10, 15),
    ("full", 100_000, 32, 32, 9),
    ("full", 50_000, 64, 32, 4.5),
    ("diag", 100_000, 32, 32, 10),
    ("tied", 100_000, 32, 32, 10),
    ("spherical", 100_000, 32, 32, 10),
]
PASSES = 10
# Spread of the cluster centres in standard deviations of a cluster.
SPREADS = {"overlapping": 0.7, "apart": 2.0}
FULL = structure_of("full")


def best_of(work: Callable[[], Any], repeats: int, budget: float) -> float:
    """Return the shortest time of several runs in seconds: other programs only ever add to a time."""
    shortest, begun = np.inf, time.perf_counter()
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - start)
        if time.perf_counter() - begun > budget:
            break
    return shortest


def clusters(n_rows: int, n_features: int, n_kernels: int, spread: float) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of unit Gaussian clusters, and the centres."""
    random_state = np.random.RandomState(0)
    centres = spread * random_state.standard_normal((n_kernels, n_features))
    rows = random_state.standard_normal((n_rows, n_features))
    rows += centres[random_state.randint(n_kernels, size=n_rows)]
    return rows, centres


def time_fit(
    covariance_type: str, n_rows: int, n_features: int, n_kernels: int, spread: float, repeats: int
) -> dict[str, Any]:
    """Time whole fits of ten passes from the same start to the same log-likelihood, per pass."""
    X, centres = clusters(n_rows, n_features, n_kernels, spread)
    weights = np.full(n_kernels, 1.0 / n_kernels)
    shapes = {
        "full": (n_kernels, n_features, n_features),
        "tied": (n_features, n_features),
        "diag": (n_kernels, n_features),
        "spherical": (n_kernels,),
    }
    covariances = np.full(shapes[covariance_type], 1.5)
    if covariance_type in ("full", "tied"):
        covariances = covariances * np.eye(n_features)
    precisions = np.linalg.inv(covariances) if covariances.ndim > 1 and covariance_type != "diag" else None
    peer = Peer(
        n_kernels,
        covariance_type=covariance_type,
        weights_init=weights,
        means_init=centres,
        precisions_init=1.0 / covariances if precisions is None else precisions,
        max_iter=PASSES,
        tol=0.0,
        reg_covar=1e-12,
    )
    start = {"weights": weights[:, None], "means": centres, "covariances": covariances}
    n_threads = os.cpu_count() or 1
    ours = {
        n_jobs: skmix.SharedKernelMixture(
            n_kernels,
            covariance_type=covariance_type,
            init=start,
            max_iter=PASSES,
            tol=0.0,
            covariance_prior=None,
            n_jobs=n_jobs,
        )
        for n_jobs in sorted({1, n_threads})
    }
    for model in ours.values():
        model.fit(X)  # the first fit of a process takes longer
    # Alternate, equally often and at least twice: the speed of a computer varies.
    peer_one, seconds, begun = np.inf, dict.fromkeys(ours, np.inf), time.perf_counter()
    for i in range(repeats):
        with threadpool_limits(1):
            peer_one = min(peer_one, best_of(lambda: peer.fit(X), 1, budget=0))
        for n_jobs, model in ours.items():
            own = best_of(lambda model=model: model.fit(X), 1, budget=0)
            seconds[n_jobs] = min(seconds[n_jobs], own)
        if i and time.perf_counter() - begun > 20:
            break
    found, expected = ours[1].score(X), peer.score(X)
    difference = abs(found - expected) / abs(expected)
    if not difference < 1e-8:
        raise AssertionError(f"log-likelihoods differ by {difference:.1e}: {found} and {expected}")
    score = {
        name: best_of(lambda model=model: model.score_samples(X), repeats, budget=3)
        for name, model in (("sklearn", peer), ("skmix", ours[1]))
    }
    return {
        "covariances": covariance_type,
        "rows": n_rows,
        "features": n_features,
        "kernels": n_kernels,
        "sklearn_1_ms": 1e3 * peer_one / PASSES,
        "skmix_1_ms": 1e3 * seconds[1] / PASSES,
        "skmix_all_ms": 1e3 * seconds[n_threads] / PASSES,
        "ratio_1": peer_one / seconds[1],
        "scaling": seconds[1] / seconds[n_threads],
        "score_ratio": score["sklearn"] / score["skmix"],
        "log_likelihood_difference": difference,
    }


def time_prediction(repeats: int) -> dict[str, float]:
    """Time the posteriors of one row of iris, in µs, ours and those of a discriminant analysis."""
    X, y = load_iris(return_X_y=True)
    own, peer = skmix.SharedKernelClassifier(random_state=0), QuadraticDiscriminantAnalysis()
    return {
        f"{name}_us": 1e6 * best_of(lambda model=model: model.predict_proba(X[:1]), 200 * repeats, budget=5)
        for name, model in (("skmix", own.fit(X, y)), ("sklearn", peer.fit(X, y)))
    }


def time_starts(n_features: int, repeats: int, n_starts: int) -> dict[str, Any]:
    """Time many starts on 1000 rows of 10 classes, per start and pass."""
    n_rows, n_kernels, n_classes, n_passes = 1000, 10, 10, 10
    X, _ = clusters(n_rows, n_features, n_kernels, SPREADS["overlapping"])
    classes = np.arange(n_rows) % n_classes
    frame = measure(X, FULL)
    wanted = starts.Drawing(n_classes, n_starts, n_kernels, frame, FULL, np.random.RandomState(0))
    given = frame.leave(starts.k_means(X, classes, wanted), FULL)
    seconds = {}
    for n_jobs in sorted({1, os.cpu_count() or 1}):
        options = Options(max_iter=n_passes, tol=0.0, n_jobs=n_jobs)

        def run(options: Options = options) -> None:
            fit(open_source(X, classes), given, options, frame=frame)

        seconds[n_jobs] = best_of(run, repeats, budget=20)
    peer = Peer(n_kernels, max_iter=n_passes, tol=0.0, random_state=0, init_params="random_from_data")
    with threadpool_limits(1):
        peer._initialize_parameters(X, np.random.RandomState(0), xp=np)
        peer._m_step(X, peer._e_step(X)[1])
        one = best_of(lambda: peer._m_step(X, peer._e_step(X)[1]), 50, budget=5)
    # The time of a pass in `fit` includes the last evaluation and the stopping rule.
    each = {n_jobs: value / (n_starts * n_passes) for n_jobs, value in seconds.items()}
    return {
        "features": n_features,
        "sklearn_us": 1e6 * one,
        "skmix_1_us": 1e6 * each[1],
        "skmix_all_us": 1e6 * each[max(each)],
        "ratio_1": one / each[1],
    }


def time_iris(repeats: int) -> dict[str, float]:
    """Time whole fits of a small data set."""
    X, _ = load_iris(return_X_y=True)
    peer = best_of(lambda: Peer(3, random_state=0).fit(X), repeats, budget=10)
    drop_in = best_of(lambda: skmix.GaussianMixture(3, random_state=0).fit(X), repeats, budget=10)
    own = best_of(lambda: skmix.SharedKernelMixture(3, random_state=0).fit(X), repeats, budget=10)
    return {"sklearn_ms": 1e3 * peer, "drop_in_ms": 1e3 * drop_in, "shared_kernel_mixture_ms": 1e3 * own}


MEMORY = """
import sys, warnings
import numpy as np
warnings.simplefilter("ignore")
which, n_rows = sys.argv[1], int(sys.argv[2])
from sklearn.mixture import GaussianMixture as Peer
from skmix import GaussianMixture, SharedKernelMixture
def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))
X = np.random.RandomState(0).standard_normal((n_rows, 16))
y = np.arange(n_rows) % 7
small = X[:2000].copy()
common = dict(n_init=1, max_iter=3, random_state=0)
make = {
    "sklearn": lambda: Peer(16, init_params="random_from_data", **common),
    "drop-in": lambda: GaussianMixture(16, init_params="random_from_data", **common),
    "mixture": lambda: SharedKernelMixture(16, n_jobs=2, **common),
    "labelled": lambda: SharedKernelMixture(16, n_jobs=2, **common),
}[which]
labels = (lambda X: (y[: len(X)],)) if which == "labelled" else (lambda X: ())
make().fit(small, *labels(small))
with open("/proc/self/clear_refs", "w") as peak:
    peak.write("5")  # forget the peak of what came before
before = status("VmRSS")
make().fit(X, *labels(X))
print(status("VmHWM") - before)
"""


def measure_memory(n_rows: int) -> dict[str, float]:
    """Return the peak memory in MB that a fit of N × 16 needs beyond its data, each in a fresh process."""
    found: dict[str, float] = {}
    if not Path("/proc/self/clear_refs").exists():
        return found  # only Linux reports the peak
    for which in ("sklearn", "drop-in", "mixture", "labelled"):
        command = [sys.executable, "-c", MEMORY, which, str(n_rows)]
        found[which] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def show(results: dict[str, Any], console: Console) -> None:
    """Print the tables."""
    columns = ["", "N", "M", "K", "scikit-learn", "skmix", "ratio", "goal", "all cores", "scaling", "scoring"]
    for spread in SPREADS:
        table = Table(title=f"whole fits, clusters {spread}: ms per pass")
        for name in columns:
            table.add_column(name, justify="right")
        for row, (*_, goal) in zip(results["fits"][spread], FITS, strict=True):
            table.add_row(
                row["covariances"], str(row["rows"]), str(row["features"]), str(row["kernels"]),
                f"{row['sklearn_1_ms']:.0f}", f"{row['skmix_1_ms']:.1f}", f"{row['ratio_1']:.1f}", f"{goal}",
                f"{row['skmix_all_ms']:.1f}", f"{row['scaling']:.2f}", f"{row['score_ratio']:.1f}",
            )  # fmt: skip
        console.print(table)
    table = Table(title="200 starts, N=1000, K=10, 10 classes: µs per start and pass")
    for name in ("M", "scikit-learn", "skmix", "ratio", "all cores"):
        table.add_column(name, justify="right")
    for row in results["starts"]:
        table.add_row(
            str(row["features"]), f"{row['sklearn_us']:.0f}", f"{row['skmix_1_us']:.0f}",
            f"{row['ratio_1']:.1f}", f"{row['skmix_all_us']:.0f}",
        )  # fmt: skip
    console.print(table)
    console.print("a fit of iris (ms):", results["iris"])
    console.print("posteriors of one row of iris (µs):", results["prediction"])
    console.print("peak memory beyond the data (MB):", results["memory_mb"])


def show_beside(row: dict[str, Any]) -> None:
    """Print a line of the comparison with another checkout."""
    low, high = row["quartiles"]
    times = f"{row['other_ms']:10.3f}{row['this_ms']:10.3f}"
    print(f"{row['name']:58}{times}{row['ratio']:7.2f}   ({low:.2f} to {high:.2f})", flush=True)


def beside(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare with another checkout."""
    cases = [case for case in (few_cases if arguments.small else all_cases)() if arguments.only in str(case)]
    print("ms of processor time; ratios above one: this checkout is quicker (quartiles of pairs)")
    print(f"{'':58}{'other':>10}{'this':>10}{'ratio':>7}")
    return compare(arguments.beside, cases, arguments.repeats or 9, show_beside)


def beside_scikit_learn(arguments: argparse.Namespace) -> dict[str, Any]:
    """Compare with scikit-learn."""
    repeats, scale = arguments.repeats or 5, 100 if arguments.small else 1
    console = Console()
    fits: dict[str, list[dict[str, Any]]] = {}
    for name, spread in SPREADS.items():
        fits[name] = []
        for covariance_type, n_rows, n_features, n_kernels, _ in FITS:
            sizes = n_rows // scale, n_features, 2 if arguments.small else n_kernels
            console.print(f"{covariance_type}: N, M, K = {sizes}, clusters {name}", style="dim")
            fits[name].append(time_fit(covariance_type, *sizes, spread, repeats))
    results = {
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
            "sklearn": sklearn.__version__,
            "blas": [
                f"{i['internal_api']} {i['version']} {i.get('architecture', '')}" for i in threadpool_info()
            ],
        },
        "fits": fits,
        "starts": [
            time_starts(n_features, repeats, 10 if arguments.small else 200) for n_features in (3, 6, 13)
        ],
        "iris": time_iris(1 if arguments.small else 20 * repeats),
        "prediction": time_prediction(repeats),
        "memory_mb": measure_memory(1_000_000 // scale),
    }
    show(results, console)
    return results


def main() -> None:
    """Measure, print and write."""
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument(
        "--repeats", type=int, help="measurements of each case; 5, or 9 beside another checkout"
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    parser.add_argument("--beside", type=Path, metavar="PATH", help="another checkout to compare with")
    parser.add_argument("--only", default="", metavar="WORDS", help="with --beside: cases with these words")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    results = beside(arguments) if arguments.beside else beside_scikit_learn(arguments)
    if arguments.out:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
