"""Repeated measurements for two pictures of the guide, and times of passes on the CPU to compare with a GPU.

Each repeat of semi-supervised learning (examples/learning/unlabelled.py) and of high-dimensional data
(examples/learning/high_dimension.py) draws new rows; the pictures show medians and quartiles. Passes are
timed at the sizes of ``benchmarks/device.py``, with all cores.

``python benchmarks/pictures.py --out benchmarks/results/pictures.json`` takes two minutes on 16 cores.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from cores import seconds_per_pass
from recording import processor
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skmix import SharedKernelClassifier
from skmix.data.write import replacing
from skmix.paper import digit_features, make_seven_segment_digits

# Numbers of labelled rows among the 100 rows of each digit.
LABELS = (2, 3, 5, 10, 20, 50, 100)
# Numbers of training images of each digit.
IMAGES = (6, 10, 20, 40, 70, 100)
# Columns of the digits' features that are used.
COLUMNS = [1, 3, 4, 11, 12, 13]
# N, M and K of benchmarks/device.py.
SIZES = [(1_000_000, 16, 16), (1_000_000, 32, 64), (200_000, 64, 128), (200_000, 128, 256)]


def unlabelled(repeat: int, labels: tuple[int, ...]) -> dict[str, list[float]]:
    """Return the accuracy on new digits for each number of labels, from labelled rows and from all rows."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    (X, y), (X_test, y_test) = (_digits(100, 2 * repeat), _digits(100, 2 * repeat + 1))
    random = np.random.default_rng(repeat)
    order = [random.permutation(np.flatnonzero(y == digit)) for digit in range(10)]
    found: dict[str, list[float]] = {"labelled": [], "all": []}
    for count in labels:
        shown = np.concatenate([own[:count] for own in order])
        given = np.full(len(y), -1)
        given[shown] = y[shown]
        model = SharedKernelClassifier(tol=1e-3, random_state=repeat, n_jobs=1)
        found["labelled"].append(model.fit(X[shown], y[shown]).score(X_test, y_test))
        found["all"].append(model.fit(X, given).score(X_test, y_test))
    return found


def _digits(n_each: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    images, digits = make_seven_segment_digits(n_each, random_state=seed)
    return digit_features(images)[:, COLUMNS], digits


def high_dimension(repeat: int, images: tuple[int, ...]) -> dict[str, list[float]]:
    """Return the test error in percent of each version for each number of training images."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, train_size=1000, stratify=y, random_state=repeat)
    settings: dict[str, Any] = {"tol": 1e-3, "random_state": repeat, "n_jobs": 1}
    versions = {
        "full, maximum likelihood": SharedKernelClassifier(covariance_prior=None, **settings),
        "full, shrunk (default)": SharedKernelClassifier(**settings),
        "15 components, then the default": make_pipeline(
            PCA(15, random_state=0), SharedKernelClassifier(**settings)
        ),
    }
    found: dict[str, list[float]] = {name: [] for name in versions}
    for count in images:
        own = np.concatenate([np.flatnonzero(y == digit)[:count] for digit in range(10)])
        for name, model in versions.items():
            found[name].append(100.0 - 100.0 * model.fit(X[own], y[own]).score(X_test, y_test))
    return found


def passes(sizes: list[tuple[int, int, int]], n_jobs: int) -> list[dict[str, Any]]:
    """Time a pass over overlapping clusters of unit variance at each size."""
    table = []
    for n_rows, n_features, n_kernels in sizes:
        random = np.random.default_rng(0)
        centres = 0.7 * random.normal(size=(n_kernels, n_features))
        X = random.normal(size=(n_rows, n_features)) + centres[random.integers(n_kernels, size=n_rows)]
        seconds = seconds_per_pass(X, centres, 2, (1, 4), n_jobs=n_jobs)
        row = {"rows": n_rows, "features": n_features, "kernels": n_kernels, "ms": round(1e3 * seconds, 2)}
        table.append(row)
        print(json.dumps(row), flush=True)
    return table


def gather(repeats: list[dict[str, list[float]]]) -> dict[str, list[list[float]]]:
    """Return, for each name, the values of all repeats for each size: shape (sizes, repeats)."""
    return {
        name: np.array([each[name] for each in repeats]).T.round(4).tolist()
        for name in (repeats[0] if repeats else ())
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes, or threads")
    parser.add_argument("--small", action="store_true", help="tiny sizes, to check that everything runs")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    labels, images, sizes, n_repeats = LABELS, IMAGES, SIZES, arguments.repeats
    if arguments.small:
        labels, images, sizes, n_repeats = (2, 5), (6,), [(500, 3, 2)], 2
    found: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        # Time passes first, while nothing else runs.
        "passes": passes(sizes, arguments.jobs),
    }
    with joblib.Parallel(arguments.jobs) as run:
        found["unlabelled"] = {
            "labels": labels,
            "accuracy": gather(run(joblib.delayed(unlabelled)(i, labels) for i in range(n_repeats))),
        }
        print(f"{n_repeats} repeats of semi-supervised learning", flush=True)
        found["high_dimension"] = {
            "images": images,
            "error": gather(run(joblib.delayed(high_dimension)(i, images) for i in range(n_repeats))),
        }
        print(f"{n_repeats} repeats of high-dimensional data", flush=True)
    if arguments.out is not None:
        with replacing(arguments.out) as file:
            file.write((json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
