"""Any number of threads may do a job, and several jobs may run at a time: results have the same bits."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from definitions import STRUCTURES, Problem, done, make_problem
from numpy.testing import assert_array_equal

from skmix._core import compiled

pytestmark = pytest.mark.usefixtures("instruction_set")


def jobs(problem: Problem, rows: Any) -> list[Any]:
    """Return a job of each kind over the same rows."""
    origins = np.zeros_like(problem.means) if problem.is_product else problem.means
    passes = [
        compiled.e_step(rows, problem.kernels(), origins),
        compiled.e_step(rows, problem.kernels(), None),
    ]
    if problem.log_weights.shape[::2] == (1, 1):
        passes.append(compiled.log_densities(rows, problem.kernels(), None))
        passes.append(compiled.log_densities(rows, problem.kernels(), np.ones((problem.means.shape[1], 2))))
        passes.append(compiled.lloyd(rows, problem.means[0]))
    return passes


def assert_same(results: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n_features", [3, 17])
@pytest.mark.parametrize(("n_starts", "n_classes"), [(1, 1), (6, 3)])
def test_bits_do_not_depend_on_the_number_of_threads(
    structure: str, n_features: int, n_starts: int, n_classes: int
) -> None:
    problem = make_problem(
        structure, n_features, n_rows=20_000, n_starts=n_starts, n_classes=n_classes, weighted=True
    )
    rows = problem.rows()
    expected = [done(job) for job in jobs(problem, rows)]
    for n_threads in (2, 3, 8):
        for job, other in zip(jobs(problem, rows), expected, strict=True):
            assert job.n_tasks >= 4
            assert_same(done(job, n_threads), other)


@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("n_features", [3, 17])
def test_a_start_does_not_depend_on_the_others(structure: str, n_features: int) -> None:
    problem = make_problem(structure, n_features, n_rows=5000, n_starts=6, n_classes=2)
    origins = np.zeros_like(problem.means) if problem.is_product else problem.means
    together = done(compiled.e_step(problem.rows(), problem.kernels(), origins))
    for r in range(6):
        names = "means", "whiteners", "constants", "log_weights"
        one = Problem(**vars(problem) | {name: getattr(problem, name)[r : r + 1].copy() for name in names})
        alone = done(compiled.e_step(problem.rows(), one.kernels(), origins[r : r + 1].copy()))
        assert_same(alone, tuple(array[r : r + 1] for array in together))


def test_jobs_at_the_same_time_share_rows_and_threads() -> None:
    """Threads keep memory from job to job: jobs of other sizes must not see what others left there."""
    problems = [
        make_problem(structure, n_features, n_rows=3000, n_kernels=n_kernels)
        for structure in STRUCTURES
        for n_features, n_kernels in [(3, 4), (4, 4), (16, 9), (17, 9), (17, 3)]
    ]
    prepared = [(problem, problem.rows()) for problem in problems]
    expected = [[done(job) for job in jobs(problem, rows)] for problem, rows in prepared]

    def run(seed: int) -> None:
        for i in np.random.default_rng(seed).permutation(len(prepared)):
            for job, other in zip(jobs(*prepared[i]), expected[i], strict=True):
                assert_same(done(job, 1 + seed % 2), other)

    with ThreadPoolExecutor(3) as callers:
        for future in [callers.submit(run, seed) for seed in range(4)]:
            future.result()


def test_other_threads_run_while_the_core_works() -> None:
    """With a switch interval this long, another thread runs only if the core lets the interpreter go."""
    problem = make_problem("full", 8, n_rows=20_000, n_kernels=8)
    rows, kernels, begin, has_run = problem.rows(), problem.kernels(), threading.Lock(), []

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
            compiled.e_step(rows, kernels, problem.means).work()
            if has_run:
                break
    finally:
        sys.setswitchinterval(interval)
    assert has_run
    other.join()


def test_results_outlive_all_else() -> None:
    problem = make_problem("full", 3)
    expected = [
        array.copy() for array in done(compiled.e_step(problem.rows(), problem.kernels(), problem.means))
    ]
    job = compiled.e_step(problem.rows(), problem.kernels(), problem.means.copy())
    results = done(job)
    del job, problem
    for result, other in zip(results, expected, strict=True):
        assert_array_equal(result, other)
