"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

# How long an example takes is the machine's business.
settings.register_profile("skmix", deadline=None)
settings.load_profile("skmix")

GOLDEN_FOLDER = Path(__file__).parent / "golden"


@pytest.fixture(scope="session")
def golden() -> Callable[[str], dict[str, NDArray[Any]]]:
    """Return a loader: ``golden("illustration")`` gives the arrays of that file, read-only, by name."""
    loaded: dict[str, dict[str, NDArray[Any]]] = {}

    def load(name: str) -> dict[str, NDArray[Any]]:
        if name not in loaded:
            with np.load(GOLDEN_FOLDER / f"{name}.npz", allow_pickle=False) as file:
                loaded[name] = {key: file[key] for key in file.files}
            for array in loaded[name].values():
                array.flags.writeable = False
        return dict(loaded[name])

    return load
