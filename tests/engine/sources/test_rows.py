"""Rows on their way into the engine: order, cuts, and memory that does not grow with their number."""

from __future__ import annotations

import tracemalloc
from itertools import product

import numpy as np
import pytest
from calls import fit
from numpy.testing import assert_array_equal
from oracles import random_model, random_rows

from skmix.engine.compute.threads import Workspace
from skmix.engine.covariances import structure_of
from skmix.engine.density import class_log_likelihood
from skmix.engine.model import Options
from skmix.engine.sources.memory import Rows, plan
from skmix.engine.sources.summary import measure

FULL = structure_of("full")


@pytest.mark.parametrize("n_rows", [1, 2, 319, 320, 321, 8191, 8192, 8193, 100_001])
def test_plans_are_usable(n_rows: int) -> None:
    for n_kernels, n_starts, n_classes, n_coefficients in product(
        [1, 10, 500], [1, 3, 500], [1, 10, 1000], [2, 90, 5000]
    ):
        cut = plan(n_rows, min(n_classes, n_rows), n_starts, n_kernels, n_coefficients)
        assert 1 <= cut.group <= n_starts
        assert 1 <= cut.tile <= cut.part
        assert cut.part < n_rows + 3 * 64
        assert cut.part % cut.tile == 0
        assert cut.block >= 1
        assert cut.block % cut.part == 0 or cut.part >= n_rows


@pytest.mark.parametrize("block", [1, 3, 7, 20, 100])
def test_every_row_is_met_once_with_its_class(block: int) -> None:
    random = np.random.default_rng(0)
    classes = random.permutation(np.repeat([0, 1, 2, 3, 4], [1, 9, 1, 8, 1]))
    X = np.stack([np.arange(20.0), classes.astype(float)], axis=1)
    frame = measure(X, FULL)
    rows = Rows(X, classes, 5, frame, FULL)
    assert_array_equal(rows.class_sizes, [1, 9, 1, 8, 1])
    met = []
    for start, stop in rows.cuts(block):
        x = rows.block(start, stop, Workspace())
        back = (x.T + frame.shift) * frame.scale
        for c, i, j in rows.segments(start, stop):
            assert_array_equal(back[i:j, 1].round(9), c)
            met += back[i:j, 0].round(9).tolist()
    assert sorted(met) == list(range(20))


def extra_memory(n_rows: int, n_jobs: int) -> int:
    """Return the peak, in bytes, of what two passes and a scoring allocate beside the rows themselves."""
    random = np.random.default_rng(1)
    X, _ = random_rows(random, n_rows, 1, 6)
    model = random_model(random, 8, 1, 6)
    options = Options(max_iter=2, tol=0.0, n_jobs=n_jobs)
    tracemalloc.start()
    fit(X, None, model.batch(), options)
    _, fitting = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    class_log_likelihood(X, model, "full", n_jobs)
    _, scoring = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The scores themselves are the caller's.
    return max(fitting, scoring - before - 8 * n_rows)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_memory_beside_the_data_does_not_grow_with_the_rows(n_jobs: int) -> None:
    few, many = extra_memory(200_000, n_jobs), extra_memory(600_000, n_jobs)
    # One number a row would be 3.2 MB more, one a row and kernel 25.6 MB.
    assert many - few < 1_000_000
    assert many < 10_000_000
