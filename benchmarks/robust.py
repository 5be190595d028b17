"""Gross outliers and the time of a pass: Gaussian kernels and Student's t kernels.

Rows of four classes come from Gaussian kernels that all classes share. A tenth of all rows are outliers:
uniform over a box ten times as wide as that of the others in every feature, with random labels. Each model is
fitted with and without them, once from means near the true ones, to measure the effect on the estimates, and
once from the best of five k-means starts, to measure the effect on the whole fit. ``accuracy`` is measured on
new rows without outliers. ``means``, ``weights`` and ``shapes`` are root mean square errors after kernels
have been matched to the true ones: of the whitened means, of the weights, and of the covariances, scaled to a
determinant of one in coordinates in which the true covariance is the identity. The time of a pass is the
difference of two fits of different lengths, in one thread.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.data.write import replacing
from skmix.engine.records import FloatArray, IntArray

KERNELS: dict[str, dict[str, Any]] = {"gaussian": {}, "t": {"tail": "t"}}
ERRORS = ("means", "weights", "shapes")
N_CLASSES, N_FEATURES = 4, 10
OUTLIERS, WIDER = 0.1, 10.0
# Kernels, rows and start of the fits.
CASES = ((20, 20_000, "near"), (6, 6000, "k-means"))


class Truth(NamedTuple):
    """True kernels and weights."""

    means: FloatArray  # (K, M)
    roots: FloatArray  # (K, M, M): of the covariances
    weights: FloatArray  # (K, L)


def true_model(n_kernels: int, n_features: int, random: np.random.RandomState) -> Truth:
    """Return kernels that hardly overlap, and weights of classes that differ."""
    means = random.normal(scale=5.0, size=(n_kernels, n_features))
    roots = np.eye(n_features) + 0.4 * np.tril(random.normal(size=(n_kernels, n_features, n_features)), -1)
    weights = random.dirichlet(np.full(n_kernels, 0.5), size=N_CLASSES).T + 0.2 / n_kernels
    return Truth(means, roots, weights / weights.sum(axis=0))


def simulate(truth: Truth, n_rows: int, random: np.random.RandomState) -> tuple[FloatArray, IntArray]:
    """Return rows (N, M) and their classes (N,)."""
    y = random.choice(N_CLASSES, n_rows)
    kernels = (random.uniform(size=n_rows)[:, None] > np.cumsum(truth.weights, axis=0).T[y]).sum(axis=1)
    normal = random.normal(size=(n_rows, truth.means.shape[1]))
    return truth.means[kernels] + np.einsum("nij,nj->ni", truth.roots[kernels], normal), y


def contaminated(X: FloatArray, y: IntArray, random: np.random.RandomState) -> tuple[FloatArray, IntArray]:
    """Return the rows with outliers added."""
    n_far = round(len(X) * OUTLIERS / (1.0 - OUTLIERS))
    centre, half = 0.5 * (X.max(axis=0) + X.min(axis=0)), 0.5 * np.ptp(X, axis=0)
    far = centre + WIDER * half * random.uniform(-1.0, 1.0, size=(n_far, X.shape[1]))
    return np.concatenate([X, far]), np.concatenate([y, random.choice(N_CLASSES, n_far)])


def errors_of(model: Any, truth: Truth) -> dict[str, float]:
    """Return errors of the parameters of a fitted model, for the best match of its kernels."""
    white = np.linalg.inv(truth.roots)
    # (K, K'): squared Mahalanobis distances of fitted means from true ones.
    away = np.einsum("kij,klj->kli", white, model.means_ - truth.means[:, None])
    own = linear_sum_assignment(np.log1p((away**2).sum(axis=-1)))[1]
    seen = white @ model.covariances_[own] @ white.swapaxes(1, 2)
    seen /= np.exp(np.linalg.slogdet(seen)[1] / seen.shape[-1])[:, None, None]
    return {
        "means": float(np.sqrt((away[np.arange(len(own)), own] ** 2).mean())),
        "weights": float(np.sqrt(((model.weights_[own] - truth.weights) ** 2).mean())),
        "shapes": float(np.sqrt(((seen - np.eye(seen.shape[-1])) ** 2).mean())),
    }


def compare(n_kernels: int, n_rows: int, start: str, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Return accuracy and errors of each model, fitted to rows without and with outliers."""
    random = np.random.RandomState(seed)
    truth = true_model(n_kernels, N_FEATURES, random)
    means = truth.means + 0.5 * random.normal(size=truth.means.shape)
    init: Any = {"means": means, "covariances": truth.roots @ truth.roots.swapaxes(1, 2)}
    if start == "k-means":
        init = start
    X, y = simulate(truth, n_rows, random)
    X_new, y_new = simulate(truth, n_rows, random)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for name, settings in KERNELS.items():
        found[name] = {}
        for case, rows in (("clean", (X, y)), ("outliers", contaminated(X, y, np.random.RandomState(seed)))):
            model = SharedKernelClassifier(n_kernels, init=init, n_init=5, random_state=seed, **settings)
            model.fit(*rows)
            found[name][case] = {"accuracy": model.score(X_new, y_new), **errors_of(model, truth)}
    return found


def seconds_of_passes(n_rows: int, n_kernels: int, n_repeats: int) -> dict[str, float]:
    """Return the shortest time of a pass of each model; models take turns."""
    random = np.random.RandomState(0)
    truth = true_model(n_kernels, N_FEATURES, random)
    X, y = simulate(truth, n_rows, random)
    start, found = {"means": truth.means + 0.3}, dict.fromkeys(KERNELS, np.inf)

    def seconds(max_iter: int, settings: dict[str, Any]) -> float:
        model = SharedKernelMixture(
            init=start, max_iter=max_iter, tol=0.0, covariance_prior=None, n_jobs=1, **settings
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            began = time.process_time()
            model.fit(X, y)
        return time.process_time() - began

    for settings in KERNELS.values():
        seconds(1, settings)  # the first fit of a process takes longer
    for _ in range(n_repeats):
        for name, settings in KERNELS.items():
            found[name] = min(found[name], (seconds(12, settings) - seconds(2, settings)) / 10)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="data sets, and timings of each kind")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    cases, n_repeats, size = CASES, arguments.repeats, (50_000, 20)
    if arguments.small:
        cases, n_repeats, size = ((4, 1000, "near"),), 1, (3000, 4)
    console, results = Console(width=150), []
    for n_kernels, n_rows, start in cases:
        runs = [compare(n_kernels, n_rows, start, seed) for seed in range(n_repeats)]
        results.append({"kernels": n_kernels, "rows": n_rows, "start": start, "runs": runs})
        table = Table(title=f"{n_kernels} kernels, {n_rows} rows, start {start}: without → with outliers")
        for title in ("", "accuracy (%)", *(f"error of {name}" for name in ERRORS)):
            table.add_column(title, justify="right")
        for name in KERNELS:
            clean, far = (
                {key: np.mean([run[name][case][key] for run in runs]) for key in ("accuracy", *ERRORS)}
                for case in ("clean", "outliers")
            )
            accuracy = f"{100 * clean['accuracy']:.2f} → {100 * far['accuracy']:.2f}"
            errors = (f"{clean[e]:.4f} → {far[e]:.4f} ({far[e] / clean[e]:.3f})" for e in ERRORS)
            table.add_row(name, accuracy, *errors)
        console.print(table)
    seconds = seconds_of_passes(*size, n_repeats)
    table = Table(title=f"time of a pass, {size[0]} rows, {size[1]} kernels, {N_FEATURES} features")
    for title in ("", "ms", "of Gaussian"):
        table.add_column(title, justify="right")
    for name, passed in seconds.items():
        table.add_row(name, f"{1e3 * passed:.1f}", f"{passed / seconds['gaussian']:.2f}")
    console.print(table)
    if arguments.out is not None:
        measured = {"outliers": results, "seconds_of_a_pass": seconds}
        with replacing(arguments.out) as file:
            file.write((json.dumps(measured, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
