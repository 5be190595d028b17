"""Pictures are drawn without a screen, and closed."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pytest


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    plt.close("all")
