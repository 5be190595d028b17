"""A study small enough to be run many times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from skmix.experiments.paper import Run, Settings, StudyData, make_data

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
