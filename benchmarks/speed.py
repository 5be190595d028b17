"""Time and memory beside scikit-learn, both measured in this run.

Run by ``make bench``. Prints tables, writes a JSON file, and (with ``--readme``) the table of the README.
Nothing here is a test: timings belong to the machine they were taken on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
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
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Peer
from threadpoolctl import threadpool_info, threadpool_limits

import skmix
from skmix.engine import starts
from skmix.engine.compute.threads import workers
from skmix.engine.covariances import structure_of
from skmix.engine.em import fit, one_pass, rule_of
from skmix.engine.model import Options, Parameters
from skmix.engine.sources import Setting, open_source
from skmix.engine.sources.memory import Rows
from skmix.engine.sources.summary import measure

# N, M, K and the ratio to scikit-learn that we hold ourselves to, one thread each.
PASSES = [
    (200_000, 3, 10, 15),
    (200_000, 6, 10, 15),
    (200_000, 13, 10, 10),
    (100_000, 32, 32, 10),
    (50_000, 64, 32, 4),
]
# Spread of the cluster centres in units of the clusters' own: overlapping, and well apart.
SPREADS = {"overlapping": 0.7, "apart": 2.0}
FULL = structure_of("full")


def best_of(work: Callable[[], Any], repeats: int, budget: float) -> float:
    """Return the shortest of some runs in seconds; other programs only ever add to a time."""
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


def time_pass(n_rows: int, n_features: int, n_kernels: int, spread: float, repeats: int) -> dict[str, Any]:
    """Time one EM pass from the same start: scikit-learn, ours on one thread and on all, the products."""
    X, centres = clusters(n_rows, n_features, n_kernels, spread)
    weights = np.full(n_kernels, 1.0 / n_kernels)
    covariances = np.tile(1.5 * np.eye(n_features), (n_kernels, 1, 1))

    peer = Peer(
        n_kernels, weights_init=weights, means_init=centres, precisions_init=np.linalg.inv(covariances)
    )
    peer._initialize_parameters(X, np.random.RandomState(0), xp=np)
    given = peer.weights_, peer.means_, peer.precisions_cholesky_

    def peer_pass() -> float:
        peer.weights_, peer.means_, peer.precisions_cholesky_ = given
        log_likelihood, log_responsibilities = peer._e_step(X)
        peer._m_step(X, log_responsibilities)
        return float(log_likelihood)

    frame = measure(X, FULL)
    source = open_source(X)
    start = frame.enter(Parameters(weights[:, None], centres, covariances).batch(), FULL)
    factor = FULL.factor(start.covariances, n_features)
    with threadpool_limits(1):
        peer_one = best_of(peer_pass, repeats, budget=20)
        peer_value = peer_pass()
    peer_all = best_of(peer_pass, repeats, budget=20)
    ours: dict[int, float] = {}
    for n_jobs in sorted({1, os.cpu_count() or 1}):
        with workers(n_jobs) as pool:
            setting = Setting(frame, FULL, pool)
            rule = rule_of(Options(), setting, n_kernels, source)

            def our_pass() -> float:
                _, _, log_likelihood = one_pass(source, setting, rule, start, factor)  # noqa: B023
                return float(log_likelihood.sum())

            our_pass()
            ours[n_jobs] = best_of(our_pass, 3 * repeats, budget=20)
            our_value = (our_pass() - n_rows * frame.log_volume()) / n_rows
    difference = abs(our_value - peer_value) / abs(peer_value)
    if not difference < 1e-8:
        raise AssertionError(f"log-likelihoods differ by {difference:.1e}: {our_value} and {peer_value}")
    return {
        "rows": n_rows,
        "features": n_features,
        "kernels": n_kernels,
        "sklearn_1_ms": 1e3 * peer_one,
        "sklearn_all_ms": 1e3 * peer_all,
        "skmix_1_ms": 1e3 * ours[1],
        "skmix_all_ms": 1e3 * ours[max(ours)],
        "products_1_ms": 1e3 * time_products(n_rows, n_features, n_kernels),
        "ratio_1": peer_one / ours[1],
        "ratio_all": peer_all / ours[max(ours)],
        "scaling": ours[1] / ours[max(ours)],
        "log_likelihood_difference": difference,
    }


def time_products(n_rows: int, n_features: int, n_kernels: int) -> float:
    """Return the seconds that a pass's two matrix products alone take on one thread."""
    terms = n_features + FULL.n_second(n_features) + 1
    part = (
        Rows(np.zeros((n_rows, n_features)), None, 1, _unit_frame(n_features), FULL).plan(1, n_kernels).tile
    )
    left, right = np.ones((n_kernels, terms)), np.ones((terms, part))
    values, product = np.empty((n_kernels, part)), np.empty((n_kernels, terms))
    n_parts = max(1, n_rows // part)

    def work() -> None:
        for _ in range(n_parts):
            np.dot(left, right, out=values)
            np.dot(values, right.T, out=product)
            values[:] = 0.0

    with threadpool_limits(1):
        return best_of(work, 5, budget=5) * n_rows / (n_parts * part)


def _unit_frame(n_features: int) -> Any:
    return measure(np.vstack([np.zeros(n_features), np.ones(n_features)]), FULL)


def time_starts(n_features: int, repeats: int) -> dict[str, Any]:
    """Time 200 starts on 1000 rows of 10 classes, per start and pass."""
    n_rows, n_kernels, n_classes, n_starts, n_passes = 1000, 10, 10, 200, 10
    X, _ = clusters(n_rows, n_features, n_kernels, SPREADS["overlapping"])
    classes = np.arange(n_rows) % n_classes
    frame = measure(X, FULL)
    given = starts.k_means_plus_plus(X, n_classes, n_starts, n_kernels, frame, FULL, np.random.RandomState(0))
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
    # A pass of ours in `fit` includes the last evaluation and the stopping rule.
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
    peer = best_of(lambda: Peer(3, random_state=0).fit(X), 20 * repeats, budget=10)
    drop_in = best_of(lambda: skmix.GaussianMixture(3, random_state=0).fit(X), 20 * repeats, budget=10)
    own = best_of(lambda: skmix.SharedKernelMixture(3, random_state=0).fit(X), 20 * repeats, budget=10)
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
        return found  # the peak can be asked for on Linux alone
    for which in ("sklearn", "drop-in", "mixture", "labelled"):
        command = [sys.executable, "-c", MEMORY, which, str(n_rows)]
        found[which] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def show(results: dict[str, Any], console: Console) -> None:
    """Print the tables."""
    for spread in SPREADS:
        table = Table(title=f"one EM pass, full covariance, clusters {spread} (ms)")
        for name in (
            "N",
            "M",
            "K",
            "scikit-learn",
            "skmix",
            "ratio",
            "goal",
            "products alone",
            "all cores",
            "scaling",
        ):
            table.add_column(name, justify="right")
        for row, (*_, goal) in zip(results["passes"][spread], PASSES, strict=True):
            table.add_row(
                str(row["rows"]), str(row["features"]), str(row["kernels"]), f"{row['sklearn_1_ms']:.0f}",
                f"{row['skmix_1_ms']:.1f}", f"{row['ratio_1']:.1f}", f"{goal}", f"{row['products_1_ms']:.1f}",
                f"{row['skmix_all_ms']:.1f}", f"{row['scaling']:.2f}",
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
    console.print("peak memory beyond the data (MB):", results["memory_mb"])


def readme_table(results: dict[str, Any]) -> str:
    """Return the README's table in Markdown."""
    machine = results["machine"]
    lines = [
        "| one EM pass, full covariance | scikit-learn | skmix | ratio | products alone | all cores |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for spread in SPREADS:
        for row in results["passes"][spread]:
            lines.append(
                f"| N={row['rows'] // 1000}k, M={row['features']}, K={row['kernels']}, clusters {spread} "
                f"| {row['sklearn_1_ms']:.0f} ms | {row['skmix_1_ms']:.1f} ms | **{row['ratio_1']:.1f}×** "
                f"| {row['products_1_ms']:.1f} ms | {row['skmix_all_ms']:.1f} ms |"
            )
    for row in results["starts"]:
        lines.append(
            f"| one of 200 starts in a batch: N=1000, M={row['features']}, K=10, 10 classes "
            f"| {row['sklearn_us']:.0f} µs | {row['skmix_1_us']:.0f} µs | **{row['ratio_1']:.1f}×** "
            f"| | {row['skmix_all_us']:.0f} µs |"
        )
    iris, memory = results["iris"], results["memory_mb"]
    lines += [
        "",
        f"A whole fit of iris takes {iris['drop_in_ms']:.1f} ms as a drop-in and "
        f"{iris['shared_kernel_mixture_ms']:.1f} ms as `SharedKernelMixture` (scikit-learn "
        f"{iris['sklearn_ms']:.1f} ms). "
        + (
            f"A fit of 1M × 16 with 16 kernels needs {memory['mixture']:.0f} MB beyond its data, "
            f"{memory['labelled']:.0f} MB with labels (scikit-learn {memory['sklearn']:.0f} MB)."
            if memory
            else ""
        ),
        "",
        f"Measured by `make bench` on {machine['cores']} cores of {machine['processor']}, Python "
        f"{machine['python']}, NumPy {machine['numpy']}, scikit-learn {machine['sklearn']}; both in "
        "the same run, on one thread unless the column says otherwise, from the same start to the same "
        "log-likelihood. All numbers are in `benchmarks/results/speed.json`.",
    ]
    return "\n".join(lines)


def processor() -> str:
    """Return the processor's name."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found.group(1) if found else platform.processor() or platform.machine()


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--readme", type=Path, help="file whose table between the speed markers to replace")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    scale = 100 if arguments.small else 1
    console = Console()
    passes: dict[str, list[dict[str, Any]]] = {}
    for name, spread in SPREADS.items():
        passes[name] = []
        for n_rows, n_features, n_kernels, _ in PASSES:
            console.print(
                f"pass: N={n_rows // scale} M={n_features} K={n_kernels}, clusters {name}", style="dim"
            )
            passes[name].append(time_pass(n_rows // scale, n_features, n_kernels, spread, arguments.repeats))
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
        "passes": passes,
        "starts": [time_starts(n_features, arguments.repeats) for n_features in (3, 6, 13)],
        "iris": time_iris(arguments.repeats),
        "memory_mb": measure_memory(1_000_000 // scale),
    }
    show(results, console)
    if arguments.out:
        partial = arguments.out.with_suffix(".partial")
        partial.write_text(json.dumps(results, indent=2) + "\n")
        partial.replace(arguments.out)
    if arguments.readme:
        text = arguments.readme.read_text()
        begin, end = "<!-- speed:begin -->", "<!-- speed:end -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        arguments.readme.write_text(f"{before}{begin}\n{readme_table(results)}\n{end}{after}")


if __name__ == "__main__":
    main()
