"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

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


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Lend a cluster of two processes, which takes seconds to start."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50, memory_limit=None
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    """Lend the cluster's client, with both workers alive."""
    distributed = pytest.importorskip("distributed", reason="needs the extra dask")
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2)
        yield client
