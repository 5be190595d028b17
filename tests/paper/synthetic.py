"""A made-up study of a few images: small, plausible, and the same every time. No run was made for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skmix.paper import Settings, make_data
from skmix.paper.records import BestRun, Beyond, FittedMixture, Run, Runs, StudyData, StudyResults
from skmix.paper.variants import (
    MAIN_KERNELS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
    Variant,
)

REASONS = ("constant feature", "too few rows", "overflow")
LEVELS = dict(
    zip([v.name for v in VARIANTS], [0.84, 0.83, 0.9, 0.9, 0.95, 0.9, 0.95, 0.9, 0.7, 0.8], strict=True)
)
TEST_PER_DIGIT = 20


def make_run(**changes: Any) -> Run:
    """Return a run without a study behind it."""
    values: dict[str, Any] = {
        "variant": "3D",
        "n_kernels": 10,
        "method": "robust",
        "run": 0,
        "accuracy": 0.75,
        "mean_iou": 0.5,
        "reason": "",
        "failing_pass": None,
        "n_iter": 12,
        "converged": True,
        "log_likelihood": -1.5,
        "confusion": np.eye(10, dtype=np.int64),
    }
    return Run(**(values | changes))


def same_runs(left: Run, right: Run) -> bool:
    """Whether two runs agree in every bit."""
    mine, theirs = vars(left).copy(), vars(right).copy()
    same_counts = np.array_equal(mine.pop("confusion"), theirs.pop("confusion"))
    likelihoods = mine.pop("log_likelihood"), theirs.pop("log_likelihood")
    return same_counts and np.array_equal(*likelihoods, equal_nan=True) and mine == theirs


@cache
def synthetic_results() -> StudyResults:
    rng = np.random.default_rng(7)
    sweep = itertools.product(SWEEP_VARIANTS, (k for k in SWEEP_KERNELS if k != MAIN_KERNELS), METHODS)
    cells = [(variant.name, MAIN_KERNELS, method, 24) for variant in VARIANTS for method in METHODS]
    cells += [(*cell, 12) for cell in sweep]
    runs = [_run(rng, *cell, number) for *cell, n_runs in cells for number in range(n_runs)]
    settings = Settings(train_per_digit=30, test_per_digit=TEST_PER_DIGIT)
    data = make_data(settings)
    best = {
        (variant.name, method): BestRun(
            max(Runs(runs).of(variant.name, MAIN_KERNELS, method), key=lambda run: run.accuracy),
            tuple(_groups(rng, variant, data)),
        )
        for variant in VARIANTS
        for method in METHODS
    }
    beyond = (
        Beyond("shared pixels", "many <b>kernels</b>", True, 0.9975, 0.995, _confusion(rng, 0.995)),
        Beyond("SVM", "20 components & a radial kernel", False, 1.0, 1.0, _confusion(rng, 1.0)),
    )
    return StudyResults(settings, data, tuple(runs), best, beyond)


def _run(rng: np.random.Generator, variant: str, n_kernels: int, method: Method, number: int) -> Run:
    reason = ""
    accuracy = min(LEVELS[variant] + (0.05 if method == "class-wise" else 0.0), n_kernels / 10)
    accuracy += rng.normal(0.0, 0.002 if method == "class-wise" else 0.03)
    if method == "published" and rng.random() < 0.02 * n_kernels:
        reason = REASONS[rng.integers(3)]
        accuracy = 0.1
    confusion = _confusion(rng, float(np.clip(accuracy, 0.0, 1.0)))
    exact = float(np.trace(confusion) / confusion.sum())
    return make_run(
        variant=variant,
        n_kernels=n_kernels,
        method=method,
        run=number,
        accuracy=exact,
        mean_iou=exact**1.5,
        reason=reason,
        failing_pass=int(rng.integers(3, 40)) if reason else None,
        converged=not reason,
        log_likelihood=np.nan if reason else float(rng.normal(5000.0, 50.0)),
        confusion=confusion,
    )


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
