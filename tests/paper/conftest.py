"""A study small enough to be run many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
from synthetic import synthetic_results

from skmix import SharedKernelMixture
from skmix.paper import Run, Settings, StudyData, digit_features, dither, make_data, make_seven_segment_digits
from skmix.paper.page import write_report
from skmix.paper.records import BestRun, FittedMixture, StudyResults
from skmix.paper.variants import (
    MAIN_KERNELS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
    Variant,
)

N_RUNS = 20
SMALL = Settings(seed=5, train_per_digit=30, test_per_digit=10, max_iter=40)


@pytest.fixture(scope="session")
def settings() -> Settings:
    return SMALL


@pytest.fixture(scope="session")
def data(settings: Settings) -> StudyData:
    return make_data(settings)


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Return a maker of runs without a study behind them."""

    def make(**changes: Any) -> Run:
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

    return make


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(synthetic_results(), tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def study_data() -> StudyData:
    parts = []
    for seed in (0, 1):
        images, labels = make_seven_segment_digits(20, random_state=seed)
        features = digit_features(images)
        parts.append((images, labels, features, dither(features, random_state=seed)))
    return StudyData(*parts[0], *parts[1])


@pytest.fixture(scope="session")
def results(study_data: StudyData) -> StudyResults:
    random = np.random.RandomState(0)
    runs = [
        simulated_run(variant.name, n_kernels, method, run, random)
        for variant in VARIANTS
        for n_kernels in (SWEEP_KERNELS if variant.name in SWEEP_VARIANTS else (MAIN_KERNELS,))
        for method in METHODS
        for run in range(N_RUNS)
    ]
    best = {}
    for variant in VARIANTS:
        groups = tuple(fitted_groups(variant, study_data))
        for method in METHODS:
            own = [
                run for run in runs if (run.variant, run.method, run.n_kernels) == (variant.name, method, 10)
            ]
            best[variant.name, method] = BestRun(max(own, key=lambda run: run.accuracy), groups)
    return StudyResults(Settings(), study_data, tuple(runs), best, ())


def simulated_run(
    variant: str, n_kernels: int, method: Method, run: int, random: np.random.RandomState
) -> Run:
    """Return a run that fails in a fifth of the cases when it is published, and else is about right."""
    fails = method == "published" and random.uniform() < 0.2
    accuracy = 0.1 if fails else min(n_kernels / 10, 0.95) - abs(random.normal(0, 0.02))
    right = round(250 * accuracy)
    confusion = right * np.eye(10, dtype=np.int64) + (250 - right) * np.roll(
        np.eye(10, dtype=np.int64), 8, axis=1
    )
    return Run(
        variant=variant,
        n_kernels=n_kernels,
        method=method,
        run=run,
        accuracy=accuracy,
        mean_iou=accuracy,
        reason="constant feature" if fails else "",
        failing_pass=5 if fails else None,
        n_iter=20,
        converged=not fails,
        log_likelihood=float("nan") if fails else 1000.0,
        confusion=confusion,
    )


def fitted_groups(variant: Variant, data: StudyData) -> Iterator[FittedMixture]:
    for names, columns in zip(variant.feature_sets, variant.columns, strict=True):
        X = data.train_dithered[:, columns]
        model = SharedKernelMixture(10, random_state=0, max_iter=500, tol=1e-3).fit(X, data.train_labels)
        yield FittedMixture(
            np.array(names, dtype=object),
            model.classes_,
            model.class_prior_,
            model.weights_,
            model.means_,
            model.covariances_,
        )
