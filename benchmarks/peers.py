"""Passes of EM compared with scikit-learn, gmmx (JAX) and mlpack, on the same rows in the same run.

Run by ``make bench``. Installed libraries are measured (``pip install gmmx mlpack``); others are listed as
missing. The time of a pass is the difference of whole fits with few and with many passes, so that starts,
validation and compilation do not count. Every library runs in its own process, on one core or on all, and
libraries take turns case by case.

scikit-learn, gmmx and skmix begin at the same start and must have the same log-likelihood after few passes.
gmmx computes in float32, the only precision it has, the others in float64. mlpack always starts from its own
k-means, here with one pass; a pass of EM costs the same. skmix and scikit-learn are measured on all cores
too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from recording import processor
from rich.console import Console
from rich.table import Table
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from speed import SPREADS, best_of, clusters
from threadpoolctl import threadpool_limits

from skmix.data.write import replacing

# N, M and K, full covariances; the first is small.
CASES = [
    (1000, 4, 3),
    (50_000, 3, 10),
    (50_000, 6, 10),
    (50_000, 13, 10),
    (15_000, 32, 32),
    (8_000, 64, 32),
]
FEW = 2
# A measurement is repeated a fourth time only if it took fewer seconds than this.
BUDGET = 2.0

Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights (K,), means (K, M), covariances (K, M, M)
# A function of the number of passes that returns the fitted mixture.
Fit = Callable[[int], Mixture]


def fit_skmix(X: np.ndarray, start: Mixture, n_threads: int) -> Fit:
    """Return the fit by this library."""
    from skmix import SharedKernelMixture

    weights, means, covariances = start
    init = {"weights": weights[:, None], "means": means, "covariances": covariances}

    def fit(n_passes: int) -> Mixture:
        model = SharedKernelMixture(
            len(means), init=init, max_iter=n_passes, tol=0.0, covariance_prior=None, n_jobs=n_threads
        ).fit(X)
        return model.weights_[:, 0], model.means_, model.covariances_

    return fit


def fit_sklearn(X: np.ndarray, start: Mixture, n_threads: int) -> Fit:
    """Return the fit by scikit-learn."""
    from sklearn.mixture import GaussianMixture

    weights, means, covariances = start
    given = {"weights_init": weights, "means_init": means, "precisions_init": np.linalg.inv(covariances)}

    def fit(n_passes: int) -> Mixture:
        model = GaussianMixture(len(means), max_iter=n_passes, tol=0.0, reg_covar=1e-12, **given).fit(X)
        return model.weights_, model.means_, model.covariances_

    return fit


def fit_gmmx(X: np.ndarray, start: Mixture, n_threads: int) -> Fit:
    """Return the fit by gmmx; a fit is compiled for each number of passes."""
    import jax
    from gmmx import EMFitter, GaussianMixtureModelJax

    weights, means, covariances = (each.astype(np.float32) for each in start)
    begin = GaussianMixtureModelJax.from_squeezed(means, covariances, weights)
    rows = jax.numpy.asarray(X, dtype=np.float32)

    def fit(n_passes: int) -> Mixture:
        model = EMFitter(max_iter=n_passes, tol=0.0, reg_covar=1e-12).fit(rows, begin).gmm
        found = model.weights.ravel(), model.means[0, :, :, 0], model.covariances.values[0]
        weights, means, covariances = (np.asarray(each, dtype=np.float64) for each in found)
        return weights, means, covariances

    return fit


def fit_mlpack(X: np.ndarray, start: Mixture, n_threads: int) -> Fit:
    """Return the fit by mlpack, from its own start."""
    from mlpack import gmm_train

    settings = {"gaussians": len(start[1]), "tolerance": 0.0, "seed": 1, "kmeans_max_iterations": 1}

    def fit(n_passes: int) -> Mixture:
        # mlpack counts the start as its first iteration.
        found = gmm_train(input_=X, max_iterations=n_passes + 1, **settings)["output_model"]
        model = found.get_cpp_params()["GMM"]
        means = np.array([each["mean"].ravel() for each in model["dists"]])
        return model["weights"].ravel(), means, np.array([each["covariance"] for each in model["dists"]])

    return fit


class Library(NamedTuple):
    """A library to measure."""

    package: str
    prepare: Callable[[np.ndarray, Mixture, int], Fit]
    agreement: float | None = 1e-7  # of log-likelihoods after few passes; None from another start
    many: int = 6  # passes of the longer fit
    all_cores: bool = False  # whether to measure it on all cores too


LIBRARIES = {
    "skmix": Library("skmix", fit_skmix, many=42, all_cores=True),
    "scikit-learn": Library("scikit-learn", fit_sklearn, all_cores=True),
    "gmmx": Library("gmmx", fit_gmmx, agreement=1e-3),
    "mlpack": Library("mlpack", fit_mlpack, agreement=None),
}


def installed(library: Library) -> str | None:
    """Return the version of a library, or None if it is missing."""
    try:
        return version(library.package)
    except PackageNotFoundError:
        return None


def limit_threads(n_threads: int) -> None:
    """Limit this process to some cores; libraries imported afterwards start as many threads."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    threadpool_limits(n_threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_threads])


def measure(
    name: str, case: tuple[int, int, int], spread: float, n_threads: int, repeats: int
) -> tuple[float, float]:
    """Return the seconds of a pass, and the mean log-likelihood of some rows after few passes."""
    n_rows, n_features, n_kernels = case
    library = LIBRARIES[name]
    X, centres = clusters(n_rows, n_features, n_kernels, spread)
    covariances = np.tile(1.5 * np.eye(n_features), (n_kernels, 1, 1))
    fit = library.prepare(X, (np.full(n_kernels, 1.0 / n_kernels), centres, covariances), n_threads)
    found = fit(FEW)
    if name == "gmmx":
        fit(library.many)  # compiled for each number of passes
    shortest, begun = {FEW: np.inf, library.many: np.inf}, time.perf_counter()
    for i in range(repeats):
        # Alternate, since the speed of a machine may change.
        for n_passes in shortest:
            seconds = best_of(lambda n_passes=n_passes: fit(n_passes), 1, BUDGET)
            shortest[n_passes] = min(shortest[n_passes], seconds)
        if i > 1 and time.perf_counter() - begun > BUDGET:
            break
    each = (shortest[library.many] - shortest[FEW]) / (library.many - FEW)
    return each, log_likelihood(X[:1000], found)


def log_likelihood(X: np.ndarray, mixture: Mixture) -> float:
    """Return the mean log-likelihood of rows, by SciPy."""
    logs = [
        np.log(weight) + multivariate_normal(mean, covariance).logpdf(X)
        for weight, mean, covariance in zip(*mixture, strict=True)
    ]
    return float(logsumexp(logs, axis=0).mean())


def run(cases: list[tuple[int, int, int]], repeats: int, console: Console) -> dict[str, Any]:
    """Measure all libraries that are installed, in turn, on one core and on all."""
    versions = {name: installed(library) for name, library in LIBRARIES.items()}
    present = [name for name, found in versions.items() if found is not None]
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    workers = {
        (name, on): ProcessPoolExecutor(1, context, limit_threads, (n_threads,))
        for name in present
        for on, n_threads in {"one": 1, "all": n_cores}.items()
        if on == "one" or LIBRARIES[name].all_cores
    }
    rows = []
    for clusters_are, spread in SPREADS.items():
        for case in cases:
            console.print(f"N, M, K = {case}, clusters {clusters_are}", style="dim")
            row: dict[str, Any] = dict(zip(("rows", "features", "kernels"), case, strict=True))
            row |= {"clusters": clusters_are, "ms": {}, "log_likelihood": {}}
            for (name, on), worker in workers.items():
                given = name, case, spread, 1 if on == "one" else n_cores, repeats
                seconds, found = worker.submit(measure, *given).result()
                row["ms"].setdefault(name, {})[on] = 1e3 * seconds
                row["log_likelihood"][name] = found
                own, agreement = row["log_likelihood"]["skmix"], LIBRARIES[name].agreement
                if agreement is not None and not abs(found - own) <= agreement * abs(own):
                    raise AssertionError(f"log-likelihoods differ: {name} {found}, skmix {own}")
            row["ratios"] = {
                name: {on: each / row["ms"]["skmix"][on] for on, each in times.items()}
                for name, times in row["ms"].items()
                if name != "skmix"
            }
            rows.append(row)
    for worker in workers.values():
        worker.shutdown()
    machine = {"processor": processor(), "cores": n_cores, "python": platform.python_version()}
    if versions["gmmx"] is not None:
        machine["jax"] = version("jax")
    return {"machine": machine, "versions": versions, "cases": rows}


def show(results: dict[str, Any], console: Console) -> None:
    """Print the ratios."""
    peers = list(results["cases"][0]["ratios"])
    table = Table(title="time of a pass over that of skmix, on one core and on all")
    columns = [(name, on) for name in peers for on in results["cases"][0]["ratios"][name]]
    for heading in ("clusters", "N", "M", "K", "skmix, ms", *(f"{name}, {on}" for name, on in columns)):
        table.add_column(heading, justify="right")
    for row in results["cases"]:
        sizes = (str(row[name]) for name in ("clusters", "rows", "features", "kernels"))
        ratios = (f"{row['ratios'][name][on]:.1f}" for name, on in columns)
        table.add_row(*sizes, f"{row['ms']['skmix']['one']:.1f}", *ratios)
    console.print(table)
    missing = [name for name, found in results["versions"].items() if found is None]
    if missing:
        console.print(f"not installed: {', '.join(missing)}")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    cases = [(n // 100, m, 2) for n, m, _ in CASES[1:3]] if arguments.small else CASES
    console = Console()
    results = run(cases, arguments.repeats, console)
    show(results, console)
    if arguments.out:
        with replacing(arguments.out) as file:
            file.write((json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
