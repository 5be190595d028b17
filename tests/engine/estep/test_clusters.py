"""Compiled passes of k-means, against distances and sums one by one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skmix.engine.compute.threads import workers
from skmix.engine.estep.compiled import cluster
from skmix.engine.estep.reference import Rows
from skmix.engine.model import FloatArray


def one_by_one(x: FloatArray, masses: FloatArray | None, centres: FloatArray) -> tuple[FloatArray, list[int]]:
    """Return what `cluster` should: of equally near centres the first has the row."""
    found, clusters = np.zeros((len(centres), centres.shape[1] + 1)), []
    for n, row in enumerate(x):
        clusters.append(int(np.square(row - centres).sum(axis=1).argmin()))
        found[clusters[-1]] += (1.0 if masses is None else masses[n]) * np.append(row, 1.0)
    return found, clusters


@pytest.mark.parametrize(("n_rows", "n_features", "n_centres"), [(7, 1, 1), (300, 3, 9), (5000, 9, 5)])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_the_nearest_rows(
    n_rows: int, n_features: int, n_centres: int, weighted: bool
) -> None:
    """Rows and centres have small integer coordinates, so that ties are exact, as are sums."""
    random = np.random.default_rng(n_rows)
    x = np.asfortranarray(random.integers(-3, 4, size=(n_rows, n_features)) * 1.0)
    masses = random.integers(1, 4, size=n_rows).astype(np.float64) if weighted else None
    # All but the last are there twice: the second of equal ones gets nothing.
    centres = np.concatenate([random.integers(-3, 4, size=(n_centres, n_features)) * 1.0] * 2)[:-1]
    expected, clusters = one_by_one(x, masses, centres)
    rows = Rows(x, None, masses, np.ones(n_features), np.zeros(n_features))
    for n_jobs in (1, 2):
        with workers(n_jobs) as pool:
            found, own = cluster(rows, pool, centres)
        assert_array_equal(found, expected)
        assert_array_equal(own, clusters)
