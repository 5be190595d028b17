"""The memory of passes and scores does not grow with the number of rows."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from calls import fit
from oracles import random_model, random_rows

from skmix.engine.density import class_log_likelihood
from skmix.engine.model import Options


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
