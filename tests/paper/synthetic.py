"""A made-up study of a few images: small, plausible, and the same every time. No run was made for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from skmix.paper import Settings, make_data
from skmix.paper.data import StudyData
from skmix.paper.methods import BestRun, FittedMixture
from skmix.paper.study import StudyResults
from skmix.paper.variants import MAIN_KERNELS, METHODS, SWEEP_KERNELS, SWEEP_VARIANTS, VARIANTS, Variant

REASONS = ("constant feature", "too few rows", "overflow")
LEVELS = dict(zip(VARIANTS, [0.84, 0.83, 0.9, 0.9, 0.95, 0.9, 0.95, 0.9, 0.7, 0.8], strict=True))
TEST_PER_DIGIT = 20


Row = dict[str, Any]


def make_run(**changes: Any) -> Row:
    """Return a run without a study behind it."""
    values = {
        "variant": "3D",
        "n_kernels": 10,
        "method": "robust",
        "run": 0,
        "accuracy": 0.75,
        "mean_iou": 0.5,
    }
    values |= {"reason": "", "failing_pass": np.nan, "n_iter": 12, "converged": True, "log_likelihood": -1.5}
    return values | {"data_set": 0} | changes


def results_of(runs: Iterable[Row], data: StudyData, **changes: Any) -> StudyResults:
    """Return results with these runs, and no models unless `changes` have them."""
    frame = pd.DataFrame([make_run(), *runs]).iloc[1:]
    settings = changes.pop("settings", Settings())
    return StudyResults(
        **{"settings": settings, "data": data, "runs": frame, "best": {}, "beyond": BEYOND[:0]} | changes
    )


BEYOND = pd.DataFrame(
    [
        ("shared pixels", "many <b>kernels</b>", True, 0.9975, 0.995, 6),
        ("SVM", "20 components & a radial kernel", False, 1.0, 1.0, 0),
    ],
    columns=["name", "description", "ours", "accuracy", "mean_iou", "errors"],
)


@cache
def synthetic_results() -> StudyResults:
    rng = np.random.default_rng(7)
    sweep = itertools.product(SWEEP_VARIANTS, (k for k in SWEEP_KERNELS if k != MAIN_KERNELS), METHODS)
    cells = [(variant, MAIN_KERNELS, method, 24) for variant in VARIANTS for method in METHODS]
    cells += [(*cell, 12) for cell in sweep]
    runs = [_run(rng, *cell, number) for *cell, n_runs in cells for number in range(n_runs)]
    settings = Settings(train_per_digit=30, test_per_digit=TEST_PER_DIGIT)
    data = make_data(settings)
    best = {
        (name, method): BestRun(
            name, method, 3, 0.9, _confusion(rng, 0.9), tuple(_groups(rng, variant, data))
        )
        for name, variant in VARIANTS.items()
        for method in METHODS
    }
    return results_of(runs, data, settings=settings, best=best, beyond=BEYOND)


def _run(rng: np.random.Generator, variant: str, n_kernels: int, method: str, number: int) -> Row:
    reason = ""
    accuracy = min(LEVELS[variant] + (0.05 if method == "class-wise" else 0.0), n_kernels / 10)
    accuracy += rng.normal(0.0, 0.002 if method == "class-wise" else 0.03)
    if method == "published" and rng.random() < 0.02 * n_kernels:
        reason = REASONS[rng.integers(3)]
        accuracy = 0.1
    accuracy = float(np.clip(accuracy, 0.0, 1.0))
    cell = {"variant": variant, "n_kernels": n_kernels, "method": method, "run": number}
    return make_run(**cell, accuracy=accuracy, mean_iou=accuracy**1.5, reason=reason)


def _confusion(rng: np.random.Generator, accuracy: float) -> NDArray[np.int64]:
    """Return a matrix (10, 10) whose errors lie in random places."""
    matrix = np.zeros((10, 10), dtype=np.int64)
    for digit in range(10):
        right = int(rng.binomial(TEST_PER_DIGIT, accuracy))
        matrix[digit, digit] = right
        for wrong in rng.integers(1, 10, size=TEST_PER_DIGIT - right):
            matrix[digit, (digit + wrong) % 10] += 1
    return matrix


def _groups(rng: np.random.Generator, variant: Variant, data: StudyData) -> Iterator[FittedMixture]:
    for names, columns in zip(variant.feature_sets, variant.columns, strict=True):
        rows = data.train_features[:, columns]
        means = rows[rng.choice(len(rows), MAIN_KERNELS, replace=False)]
        roots = rng.normal(0.0, 0.03, (MAIN_KERNELS, len(columns), len(columns)))
        covariances = roots @ roots.transpose(0, 2, 1) + 0.0004 * np.eye(len(columns))
        weights = rng.dirichlet(np.full(MAIN_KERNELS, 0.3), size=10).T
        yield FittedMixture(
            np.array(names, dtype=object), np.arange(10), np.full(10, 0.1), weights, means, covariances
        )
