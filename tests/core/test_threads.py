"""Any number of threads may do a job, and several jobs may run at a time: results have the same bits."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from definitions import STRUCTURES, Problem, done, problem
from numpy.testing import assert_array_equal

from skmix._core import compiled

pytestmark = pytest.mark.usefixtures("instruction_set")


def jobs(given: Problem, rows: Any) -> list[Any]:
    """Return a job of each kind over the same rows."""
    origins = np.zeros_like(given.means) if given.is_product else given.means
    found = [compiled.e_step(rows, given.kernels(), origins), compiled.e_step(rows, given.kernels(), None)]
    if given.log_weights.shape[::2] == (1, 1):
        found.append(compiled.log_densities(rows, given.kernels(), None))
        found.append(compiled.log_densities(rows, given.kernels(), np.ones((given.means.shape[1], 2))))
        found.append(compiled.lloyd(rows, given.means[0]))
    return found


def assert_same(found: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for own, other in zip(found, expected, strict=True):
        assert_array_equal(own, other)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n_features", [3, 17])
@pytest.mark.parametrize(("n_starts", "n_classes"), [(1, 1), (6, 3)])
def test_bits_do_not_depend_on_the_number_of_threads(
    structure: str, n_features: int, n_starts: int, n_classes: int
) -> None:
    given = problem(
        structure, n_features, n_rows=20_000, n_starts=n_starts, n_classes=n_classes, weighted=True
    )
    rows = given.rows()
    expected = [done(job) for job in jobs(given, rows)]
    for n_threads in (2, 3, 8):
        for job, other in zip(jobs(given, rows), expected, strict=True):
            assert job.n_tasks >= 4
            assert_same(done(job, n_threads), other)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n_features", [3, 17])
def test_a_start_does_not_depend_on_the_others(structure: str, n_features: int) -> None:
    given = problem(structure, n_features, n_rows=5000, n_starts=6, n_classes=2)
    origins = np.zeros_like(given.means) if given.is_product else given.means
    together = done(compiled.e_step(given.rows(), given.kernels(), origins))
    for r in range(6):
        names = "means", "whiteners", "constants", "log_weights"
        own = Problem(**vars(given) | {name: getattr(given, name)[r : r + 1].copy() for name in names})
        alone = done(compiled.e_step(given.rows(), own.kernels(), origins[r : r + 1].copy()))
        assert_same(alone, tuple(array[r : r + 1] for array in together))


def test_jobs_at_the_same_time_share_rows_and_threads() -> None:
    """Threads keep memory from job to job: jobs of other sizes must not see what others left there."""
    problems = [
        problem(structure, n_features, n_rows=3000, n_kernels=n_kernels)
        for structure in STRUCTURES
        for n_features, n_kernels in [(3, 4), (4, 4), (16, 9), (17, 9), (17, 3)]
    ]
    prepared = [(given, given.rows()) for given in problems]
    expected = [[done(job) for job in jobs(*each)] for each in prepared]

    def run(seed: int) -> None:
        for i in np.random.default_rng(seed).permutation(len(prepared)):
            for job, other in zip(jobs(*prepared[i]), expected[i], strict=True):
                assert_same(done(job, 1 + seed % 2), other)

    with ThreadPoolExecutor(3) as callers:
        for each in [callers.submit(run, seed) for seed in range(4)]:
            each.result()


def test_other_threads_run_while_the_core_works() -> None:
    """With a switch interval this long, another thread runs only if the core lets the interpreter go."""
    given = problem("full", 8, n_rows=20_000, n_kernels=8)
    rows, kernels, begin, has_run = given.rows(), given.kernels(), threading.Lock(), []

    def wait() -> None:
        with begin:
            has_run.append(True)

    begin.acquire()
    other = threading.Thread(target=wait)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(3600.0)
    try:
        begin.release()
        for _ in range(200):  # the system may be slow to wake the other thread
            compiled.e_step(rows, kernels, given.means).work()
            if has_run:
                break
    finally:
        sys.setswitchinterval(interval)
    assert has_run
    other.join()


def test_results_outlive_all_else() -> None:
    given = problem("full", 3)
    expected = [array.copy() for array in done(compiled.e_step(given.rows(), given.kernels(), given.means))]
    job = compiled.e_step(given.rows(), given.kernels(), given.means.copy())
    results = done(job)
    del job, given
    for own, other in zip(results, expected, strict=True):
        assert_array_equal(own, other)
