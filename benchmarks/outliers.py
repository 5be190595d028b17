"""Gross outliers: what they do to Gaussian kernels and to Student's t kernels.

    python benchmarks/outliers.py --out benchmarks/results/outliers.csv

Rows of four classes come from Gaussian kernels that all classes share. A tenth of all rows are outliers:
uniform over a box ten times as wide as that of the others in every feature, with random labels. Each model
is fitted with and without them, once from means near the true ones, and once from the best of five k-means
starts. ``accuracy`` is measured on new rows without outliers. Errors are root mean squares after kernels
have been matched to the true ones: of the whitened means, of the weights, and of the covariances, scaled
to a determinant of one in coordinates in which the true covariance is the identity.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from recording import parser_of, show
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

from skmix import SharedKernelClassifier

KERNELS: dict[str, dict[str, Any]] = {"Gaussian": {}, "t": {"tail": "t"}}
N_CLASSES, N_FEATURES, OUTLIERS, WIDER = 4, 10, 0.1, 10.0
# Kernels, rows and start of the fits.
CASES = ((20, 20_000, "near"), (6, 6000, "k-means"))


class Truth(NamedTuple):
    """True kernels and weights."""

    means: np.ndarray  # (K, M)
    roots: np.ndarray  # (K, M, M): of the covariances
    weights: np.ndarray  # (K, L)


def true_model(n_kernels: int, random: np.random.RandomState) -> Truth:
    """Kernels that hardly overlap, and weights of classes that differ."""
    means = random.normal(scale=5.0, size=(n_kernels, N_FEATURES))
    roots = np.eye(N_FEATURES) + 0.4 * np.tril(random.normal(size=(n_kernels, N_FEATURES, N_FEATURES)), -1)
    weights = random.dirichlet(np.full(n_kernels, 0.5), size=N_CLASSES).T + 0.2 / n_kernels
    return Truth(means, roots, weights / weights.sum(axis=0))


def simulate(truth: Truth, n_rows: int, random: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    """Rows (N, M) and their classes (N,)."""
    y = random.choice(N_CLASSES, n_rows)
    kernels = (random.uniform(size=n_rows)[:, None] > np.cumsum(truth.weights, axis=0).T[y]).sum(axis=1)
    normal = random.normal(size=(n_rows, N_FEATURES))
    return truth.means[kernels] + np.einsum("nij,nj->ni", truth.roots[kernels], normal), y


def contaminated(
    X: np.ndarray, y: np.ndarray, random: np.random.RandomState
) -> tuple[np.ndarray, np.ndarray]:
    """The rows with outliers added."""
    n_far = round(len(X) * OUTLIERS / (1.0 - OUTLIERS))
    centre, half = 0.5 * (X.max(axis=0) + X.min(axis=0)), 0.5 * np.ptp(X, axis=0)
    far = centre + WIDER * half * random.uniform(-1.0, 1.0, size=(n_far, N_FEATURES))
    return np.concatenate([X, far]), np.concatenate([y, random.choice(N_CLASSES, n_far)])


def errors_of(model: Any, truth: Truth) -> list[float]:
    """Errors of means, weights and shapes, for the best match of the kernels."""
    white = np.linalg.inv(truth.roots)
    # (K, K'): squared Mahalanobis distances of fitted means from true ones.
    away = np.einsum("kij,klj->kli", white, model.means_ - truth.means[:, None])
    match = linear_sum_assignment(np.log1p((away**2).sum(axis=-1)))[1]
    shapes = white @ model.covariances_[match] @ white.swapaxes(1, 2)
    shapes /= np.exp(np.linalg.slogdet(shapes)[1] / N_FEATURES)[:, None, None]
    differences = (
        away[np.arange(len(match)), match],
        model.weights_[match] - truth.weights,
        shapes - np.eye(N_FEATURES),
    )
    return [float(np.sqrt((difference**2).mean())) for difference in differences]


def compare(n_kernels: int, n_rows: int, start: str, repeats: int) -> Iterator[dict[str, Any]]:
    """Accuracy and errors of each model, without and with outliers, as means over data sets."""
    found: dict[tuple[str, str], list[list[float]]] = {}
    for seed in range(repeats):
        random = np.random.RandomState(seed)
        truth = true_model(n_kernels, random)
        means = truth.means + 0.5 * random.normal(size=truth.means.shape)
        covariances = truth.roots @ truth.roots.swapaxes(1, 2)
        init = start if start == "k-means" else {"means": means, "covariances": covariances}
        data, (X_new, y_new) = simulate(truth, n_rows, random), simulate(truth, n_rows, random)
        added = contaminated(*data, np.random.RandomState(seed))
        for name, settings in KERNELS.items():
            for kind, rows in (("without outliers", data), ("with outliers", added)):
                model = SharedKernelClassifier(n_kernels, init=init, n_init=5, random_state=seed, **settings)
                model.fit(*rows)
                numbers = [100 * model.score(X_new, y_new), *errors_of(model, truth)]
                found.setdefault((name, kind), []).append(numbers)
    for (name, kind), runs in found.items():
        accuracy, *errors = np.mean(runs, axis=0)
        row = {"start": start, "kernels": n_kernels, "density": name, "rows": kind}
        row |= {"accuracy, %": f"{accuracy:.1f}"}
        names = ("error of means", "error of weights", "error of shapes")
        yield row | {each: f"{error:.3f}" for each, error in zip(names, errors, strict=True)}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="data sets of each kind")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    cases = ((4, 1000, "near"),) if arguments.small else CASES
    repeats = 1 if arguments.small else arguments.repeats
    show([row for case in cases for row in compare(*case, repeats)], arguments.out)


if __name__ == "__main__":
    main()
