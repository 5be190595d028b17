"""A study small enough to be run many times."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import synthetic_results

from skmix.paper import Settings, make_data
from skmix.paper.data import StudyData
from skmix.paper.page import write_report


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings(seed=5, train_per_digit=30, test_per_digit=10, max_iter=40)


@pytest.fixture(scope="session")
def data(settings: Settings) -> StudyData:
    return make_data(settings)


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(synthetic_results(), tmp_path_factory.mktemp("report") / "report.html")
