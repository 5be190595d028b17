"""Passes of EM beside scikit-learn, gmmx (JAX) and mlpack, or beside another checkout of skmix.

    python benchmarks/speed.py --out benchmarks/results/passes.csv
    python benchmarks/speed.py --beside ../other-checkout --only diag

Every library has processes of its own, of one thread or of all cores; they take turns case by case. Times
of one thread are processor times, those of all cores wall-clock times. scikit-learn, gmmx and skmix begin
at the same start and must have the same log-likelihood after two passes. gmmx computes in float32, the
only precision it has. mlpack starts from its own k-means; a pass costs the same. Libraries that are not
installed (``pip install gmmx mlpack``) are left out, as are structures that a library does not have.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import numpy as np
from recording import clusters, parser_of, seconds_of_a_pass, show
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

# Covariances, N, M and K.
CASES = (
    ("full", 1000, 4, 3),
    ("full", 200_000, 3, 10),
    ("full", 200_000, 6, 10),
    ("full", 200_000, 13, 10),
    ("full", 100_000, 32, 32),
    ("full", 50_000, 64, 32),
    ("tied", 100_000, 32, 32),
    ("diag", 100_000, 32, 32),
    ("spherical", 100_000, 32, 32),
    ("full", 1_000_000, 16, 16),
)
SPREADS = {"overlapping": 0.7, "apart": 2.0}
FEW = 2
Mixture = tuple[np.ndarray, np.ndarray, np.ndarray]  # weights (K,), means (K, M), covariances (K, M, M)
Fit = Callable[[int], Mixture]  # a function of the number of passes


def whole(covariances: np.ndarray, structure: str, n_kernels: int, n_features: int) -> np.ndarray:
    """Covariances of any structure as matrices (K, M, M)."""
    if structure in ("diag", "spherical"):
        return covariances.reshape(n_kernels, -1, 1) * np.eye(n_features)
    return np.broadcast_to(covariances, (n_kernels, n_features, n_features))


def fit_skmix(X: np.ndarray, means: np.ndarray, structure: str, n_threads: int) -> Fit:
    from skmix import SharedKernelMixture

    def fit(n_passes: int) -> Mixture:
        model = SharedKernelMixture(
            len(means), init={"means": means, "covariances": start_of(structure, *means.shape)},
            covariance_type=structure, max_iter=n_passes, tol=0.0, covariance_prior=None, n_jobs=n_threads,
        ).fit(X)  # fmt: skip
        return model.weights_[:, 0], model.means_, whole(model.covariances_, structure, *means.shape)

    return fit


def fit_sklearn(X: np.ndarray, means: np.ndarray, structure: str, n_threads: int) -> Fit:
    from sklearn.mixture import GaussianMixture

    precisions = start_of(structure, *means.shape)
    precisions = np.linalg.inv(precisions) if structure in ("full", "tied") else 1.0 / precisions

    def fit(n_passes: int) -> Mixture:
        model = GaussianMixture(
            len(means), covariance_type=structure, weights_init=np.full(len(means), 1.0 / len(means)),
            means_init=means, precisions_init=precisions, max_iter=n_passes, tol=0.0, reg_covar=1e-12,
        ).fit(X)  # fmt: skip
        return model.weights_, model.means_, whole(model.covariances_, structure, *means.shape)

    return fit


def fit_gmmx(X: np.ndarray, means: np.ndarray, structure: str, n_threads: int) -> Fit:
    import jax
    from gmmx import EMFitter, GaussianMixtureModelJax

    weights = np.full(len(means), 1.0 / len(means), dtype=np.float32)
    covariances = start_of(structure, *means.shape).astype(np.float32)
    start = GaussianMixtureModelJax.from_squeezed(means.astype(np.float32), covariances, weights)
    rows = jax.numpy.asarray(X, dtype=np.float32)

    def fit(n_passes: int) -> Mixture:
        model = EMFitter(max_iter=n_passes, tol=0.0, reg_covar=1e-12).fit(rows, start).gmm
        arrays = model.weights.ravel(), model.means[0, :, :, 0], model.covariances.values[0]
        weights, means, covariances = (np.asarray(array, dtype=np.float64) for array in arrays)
        return weights, means, covariances

    return fit


def fit_mlpack(X: np.ndarray, means: np.ndarray, structure: str, n_threads: int) -> Fit:
    from mlpack import gmm_train

    settings = {"gaussians": len(means), "tolerance": 0.0, "seed": 1, "kmeans_max_iterations": 1}

    def fit(n_passes: int) -> Mixture:
        # mlpack counts the start as its first iteration.
        output = gmm_train(input_=X, max_iterations=n_passes + 1, **settings)["output_model"]
        model = output.get_cpp_params()["GMM"]
        fitted = np.array([each["mean"].ravel() for each in model["dists"]])
        return model["weights"].ravel(), fitted, np.array([each["covariance"] for each in model["dists"]])

    return fit


def start_of(structure: str, n_kernels: int, n_features: int) -> np.ndarray:
    """Covariances of the start, in the shape of the structure."""
    shapes = {"full": (n_kernels, 1, 1), "tied": (1, 1), "diag": (n_kernels, n_features)}
    values = np.full(shapes.get(structure, (n_kernels,)), 1.5)
    return values * np.eye(n_features) if structure in ("full", "tied") else values


# What prepares a fit, passes of the long fit, and how far log-likelihoods may be from those of skmix.
LIBRARIES: dict[str, tuple[Callable[..., Fit], int, float]] = {
    "skmix": (fit_skmix, 42, 1e-7),
    "other checkout": (fit_skmix, 42, 1e-6),
    "scikit-learn": (fit_sklearn, 6, 1e-7),
    "gmmx": (fit_gmmx, 6, 1e-3),
    "mlpack": (fit_mlpack, 6, np.inf),
}


def prepare(n_threads: int, source: str) -> None:
    """Limit a process to some cores, and let it import skmix from a checkout."""
    sys.path.insert(0, source)
    warnings.simplefilter("ignore", ConvergenceWarning)
    threadpool_limits(n_threads)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:n_threads])


def measure(
    name: str, case: tuple[str, int, int, int], spread: float, n_threads: int, repeats: int
) -> tuple[float, float]:
    """The milliseconds of a pass, and the mean log-likelihood of a thousand rows after few passes."""
    structure, *sizes = case
    make, many, _ = LIBRARIES[name]
    X, centres = clusters(*sizes, spread)
    fit = make(X, centres, structure, n_threads)
    logs = [
        np.log(weight) + multivariate_normal(mean, covariance).logpdf(X[:1000])
        for weight, mean, covariance in zip(*fit(FEW), strict=True)
    ]
    fit(many)  # gmmx compiles for each number of passes
    clock = time.process_time if n_threads == 1 else time.perf_counter
    seconds = seconds_of_a_pass(fit, (FEW, many), repeats, clock)
    return 1e3 * seconds, float(logsumexp(logs, axis=0).mean())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout of skmix")
    parser.add_argument("--only", default="", help="covariances, such as diag")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.only in case[0]]
    if arguments.small:
        cases = [(structure, 500, 2, 2) for structure in dict.fromkeys(case[0] for case in cases)]
    if arguments.beside is None:
        packages = {"scikit-learn": "sklearn", "gmmx": "gmmx", "mlpack": "mlpack"}
        peers = [name for name, package in packages.items() if find_spec(package)]
    elif (arguments.beside / "src" / "skmix").is_dir():
        peers = ["other checkout"]
    else:
        parser.error(f"{arguments.beside} is no checkout of skmix.")
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    here = Path(__file__).resolve().parents[1]
    context = multiprocessing.get_context("spawn")
    workers = {}
    for name, n_threads in [("skmix", 1), ("skmix", n_cores), *((name, 1) for name in peers)]:
        source = arguments.beside.resolve() if name == "other checkout" else here
        given = n_threads, str(source / "src")
        workers[name, n_threads] = ProcessPoolExecutor(1, context, prepare, given)
    rows = []
    for case, (distance, spread) in product(cases, SPREADS.items()):
        row = dict(zip(("covariances", "rows", "features", "kernels"), case, strict=True))
        row |= {"clusters": distance, "cores": n_cores}
        found, ours = {}, np.nan
        for (name, n_threads), worker in workers.items():
            if case[0] == "full" or name not in ("gmmx", "mlpack"):
                job = worker.submit(measure, name, case, spread, n_threads, arguments.repeats)
                found[name, n_threads], likelihood = job.result()
                ours = likelihood if name == "skmix" and n_threads == 1 else ours
                if not abs(likelihood - ours) <= LIBRARIES[name][2] * abs(ours):
                    raise AssertionError(f"log-likelihoods differ: {name} {likelihood}, skmix {ours}")
        row |= {"skmix, ms": f"{found['skmix', 1]:.2f}", "on all cores, ms": f"{found['skmix', n_cores]:.2f}"}
        for name in peers:
            ratio = found[name, 1] / found["skmix", 1] if (name, 1) in found else None
            row[name] = "–" if ratio is None else f"{ratio:.2f}"
        rows.append(row)
        print(*row.values(), flush=True)
    for worker in workers.values():
        worker.shutdown()
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
