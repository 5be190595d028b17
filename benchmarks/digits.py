"""Learning curves of digits, for the examples unlabelled.py and high_dimension.py.

    python benchmarks/digits.py --jobs 16 --out benchmarks/results/digits.csv

- ``accuracy`` on new seven-segment digits, in per cent, by the number of labelled rows among the 100 rows
  of each digit: fitted to the labelled rows alone, and to all rows.
- ``error`` on test images of scikit-learn's digits, in per cent, by the number of training images of each
  digit: full covariances by maximum likelihood, shrunk, and after 15 principal components.

Each repeat draws new rows; the table has quartiles over the repeats.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from recording import parser_of, show
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from skmix import SharedKernelClassifier
from skmix.paper import digit_features, make_seven_segment_digits

LABELS, IMAGES = (2, 3, 5, 10, 20, 50, 100), (6, 10, 20, 40, 70, 100)
COLUMNS = [1, 3, 4, 11, 12, 13]  # of the digits' features


def unlabelled(repeat: int, labels: tuple[int, ...]) -> Iterator[tuple[str, str, int, float]]:
    """Accuracies with few labels."""
    (X, y), (X_test, y_test) = (
        (digit_features(images)[:, COLUMNS], digits)
        for images, digits in (make_seven_segment_digits(100, random_state=2 * repeat + i) for i in (0, 1))
    )
    random = np.random.default_rng(repeat)
    order = [random.permutation(np.flatnonzero(y == digit)) for digit in range(10)]
    for count in labels:
        labelled = np.concatenate([rows[:count] for rows in order])
        known = np.full(len(y), -1)
        known[labelled] = y[labelled]
        model = SharedKernelClassifier(tol=1e-3, random_state=repeat, n_jobs=1)
        for name, rows in (("labelled rows alone", (X[labelled], y[labelled])), ("all rows", (X, known))):
            yield "accuracy", name, count, 100.0 * model.fit(*rows).score(X_test, y_test)


def high_dimension(repeat: int, images: tuple[int, ...]) -> Iterator[tuple[str, str, int, float]]:
    """Errors with few images of 64 pixels."""
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
    for count in images:
        rows = np.concatenate([np.flatnonzero(y == digit)[:count] for digit in range(10)])
        for name, model in versions.items():
            yield "error", name, count, 100.0 - 100.0 * model.fit(X[rows], y[rows]).score(X_test, y_test)


def repeat_of(seed: int, small: bool) -> list[tuple[str, str, int, float]]:
    """The numbers of one repeat."""
    warnings.simplefilter("ignore", ConvergenceWarning)
    labels, images = ((2, 5), (6,)) if small else (LABELS, IMAGES)
    return [*unlabelled(seed, labels), *high_dimension(seed, images)]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    arguments = parser.parse_args()
    repeats = 2 if arguments.small else arguments.repeats
    work = (delayed(repeat_of)(seed, arguments.small) for seed in range(repeats))
    runs = Parallel(arguments.jobs)(work)
    rows = []
    for places in zip(*runs, strict=True):
        measure, name, count, _ = places[0]
        low, middle, high = np.quantile([place[3] for place in places], [0.25, 0.5, 0.75])
        row = {"measure": measure, "fit": name, "rows of a digit": count, "repeats": repeats}
        rows.append(
            row | {"lower quartile": f"{low:.2f}", "median": f"{middle:.2f}", "upper quartile": f"{high:.2f}"}
        )
    show(rows, arguments.out)


if __name__ == "__main__":
    main()
