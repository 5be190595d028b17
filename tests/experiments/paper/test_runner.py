"""A study makes what is missing and nothing else, and survives being killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import multivariate_normal
from study_runs import same_runs

from skmix.experiments.paper import (
    METHODS,
    Cell,
    GroupModel,
    Run,
    Settings,
    Store,
    StudyData,
    missing_batches,
    run_one,
    run_study,
    study_cells,
    study_results,
)
from skmix.experiments.paper.runner import _results
from skmix.experiments.paper.variants import FEATURES

CELLS = [Cell("3D", 10, "robust", 7), Cell("3x1D", 10, "class-wise", 7), Cell("3D", 12, "published", 7)]

# Prints a line after each stored batch, so that the test knows when to kill it. A batch takes long enough
# for the kill to come in the middle of one.
STUDY = """
import sys
from pathlib import Path
from skmix.experiments.paper import Cell, Settings, Store, make_data, run_study

def main():
    settings = Settings(seed=5, train_per_digit=30, test_per_digit=10, max_iter=40)
    cells = [Cell("4D", 10, "robust", 5000), Cell("4D", 10, "published", 5000)]
    with Store(Path(sys.argv[1]), settings) as store:
        run_study(cells, settings, make_data(settings), store, n_jobs=int(sys.argv[2]),
                  progress=lambda runs: print(len(runs), flush=True))

if __name__ == "__main__":
    main()
"""


def test_the_study_has_the_papers_cells() -> None:
    cells = study_cells()
    main = [cell for cell in cells if cell.n_kernels == 10]
    assert len(main) == 10 * 3
    assert {cell.n_runs for cell in main} == {500}
    sweep = [cell for cell in cells if cell.n_kernels != 10]
    assert len(sweep) == 4 * 6 * 3
    assert {cell.n_runs for cell in sweep} == {100}
    assert {cell.variant for cell in sweep} == {"3D", "6D", "9D", "10D"}
    few = study_cells(7, ["9D", "4D"], ["robust"])
    assert {(cell.variant, cell.method) for cell in few} == {("4D", "robust"), ("9D", "robust")}
    assert {cell.n_runs for cell in few} == {7}
    with pytest.raises(ValueError, match="there is no variant '7D'"):
        study_cells(7, ["7D"])


def test_only_missing_runs_are_made(
    tmp_path: Path, data: StudyData, settings: Settings, make_run: Callable[..., Run]
) -> None:
    with Store(tmp_path / "study.sqlite", settings) as store:
        # Runs that cannot be mistaken for the study's own.
        store.add([make_run(run=number, accuracy=-1.0) for number in (0, 3, 4)])
        assert [batch.runs for batch in missing_batches(CELLS[:1], store)] == [(1, 2, 5, 6)]
        seen: list[Run] = []
        run_study(CELLS, settings, data, store, progress=seen.extend)
        assert len(seen) == 7 * 3 - 3
        kept = store.runs("3D", 10, "robust", 7)
        assert [run.accuracy == -1.0 for run in kept] == [True, False, False, True, True, False, False]
        assert missing_batches(CELLS, store) == []
        run_study(CELLS, settings, data, store, progress=lambda runs: pytest.fail("made again"))


def test_cells_grow_together(tmp_path: Path, settings: Settings) -> None:
    with Store(tmp_path / "study.sqlite", settings) as store:
        batches = missing_batches(CELLS, store, batch_size=3)
    assert [batch.runs for batch in batches[:3]] == [(0, 1, 2)] * 3
    assert [batch.runs for batch in batches[-3:]] == [(6,)] * 3


def test_processes_and_batches_do_not_change_a_bit(
    tmp_path: Path, data: StudyData, settings: Settings
) -> None:
    with Store(tmp_path / "study.sqlite", settings) as store:
        run_study(CELLS, settings, data, store, n_jobs=2)
        for cell in CELLS:
            runs = store.runs(cell.variant, cell.n_kernels, cell.method, 7)
            assert [run.run for run in runs] == list(range(7))
            for number in (0, 5):
                alone = run_one(data, cell.variant, cell.n_kernels, cell.method, number, settings)
                assert same_runs(runs[number], alone)


def test_an_interrupt_leaves_whole_batches(tmp_path: Path, data: StudyData, settings: Settings) -> None:
    def interrupt(runs: object) -> None:
        raise KeyboardInterrupt

    with Store(tmp_path / "study.sqlite", settings) as store:
        with pytest.raises(KeyboardInterrupt):
            run_study(CELLS, settings, data, store, progress=interrupt)
        assert len(store) == 7
        run_study(CELLS, settings, data, store)
        assert len(store) == 21


def test_a_dead_worker_is_an_error_in_words(data: StudyData, settings: Settings, tmp_path: Path) -> None:
    cells = [Cell("4D", 10, "published", 5000)]
    with Store(tmp_path / "study.sqlite", settings) as store:
        results = _results(missing_batches(cells, store), settings, data, 2)
        next(results)
        for child in children_of(os.getpid()):
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                os.kill(child, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="Finished runs are kept"):
            list(results)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_study_killed_at_any_moment_goes_on(
    tmp_path: Path, data: StudyData, settings: Settings, n_jobs: int
) -> None:
    """A real process, really killed; what it had finished is there each time."""
    path = tmp_path / "study.sqlite"
    file = tmp_path / "study_of_test.py"  # a file, so that worker processes can import it
    file.write_text(STUDY)
    finished = 0
    for attempt in range(3 - n_jobs):
        command = [sys.executable, str(file), str(path), str(n_jobs)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as study:
            assert study.stdout is not None
            for _ in range(2):
                finished += int(study.stdout.readline())
            workers = children_of(study.pid)
            time.sleep(0.05 * attempt)
            study.send_signal(signal.SIGKILL)
            finished += sum(int(line) for line in study.stdout)
        with Store(path, settings) as store:
            # A batch may have been stored and not yet announced.
            assert len(store) >= finished
            assert len(store) % 10 == 0  # whole batches: 100 robust runs, 10 published ones
            finished = len(store)
    assert finished >= (3 - n_jobs) * 2 * 10
    wait_until_gone(workers)
    with Store(path, settings) as store:
        runs = store.runs("4D", 10, "robust", 5000)
        assert [run.run for run in runs] == list(range(len(runs)))
        assert same_runs(runs[7], run_one(data, "4D", 10, "robust", 7, settings))


def test_two_processes_share_one_store(tmp_path: Path, data: StudyData, settings: Settings) -> None:
    path = tmp_path / "study.sqlite"
    code = STUDY.replace("5000", "120")
    command = [sys.executable, "-c", code, str(path), "1"]
    both = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()
    with Store(path, settings) as store:
        assert len(store) == 240
        assert same_runs(
            store.runs("4D", 10, "published", 120)[110], run_one(data, "4D", 10, "published", 110, settings)
        )


def test_results_hold_the_best_run_and_its_model(tmp_path: Path, data: StudyData, settings: Settings) -> None:
    cells = study_cells(5, ["2Dx3D"], METHODS)
    with Store(tmp_path / "study.sqlite", settings) as store:
        run_study(cells, settings, data, store)
        results = study_results(cells, settings, data, store, beyond=())
    assert len(results.runs) == 15
    for method in METHODS:
        own = [run for run in results.runs if run.method == method and not run.reason]
        best = results.best["2Dx3D", method]
        assert best.run.accuracy == max(run.accuracy for run in own)
        # The model fitted again is the one that made the run's predictions.
        scores = np.zeros((len(data.test_labels), 10))
        for model in best.groups:
            columns = [list(FEATURES).index(name) for name in model.feature_names_in_]
            scores += log_likelihoods(data.test_dithered[:, columns], model)
        confusion = np.zeros((10, 10), dtype=np.int64)
        np.add.at(confusion, (data.test_labels, scores.argmax(axis=1)), 1)
        np.testing.assert_array_equal(confusion, best.run.confusion)


def log_likelihoods(rows: NDArray[np.float64], model: GroupModel) -> NDArray[np.float64]:
    """Return log p(x | class) by the textbook, shape (n, 10)."""
    densities = np.stack(
        [
            multivariate_normal(mean, covariance).pdf(rows)
            for mean, covariance in zip(model.means_, model.covariances_, strict=True)
        ],
        axis=1,
    )
    with np.errstate(divide="ignore"):
        return np.log(densities @ model.weights_)


def children_of(process: int) -> list[int]:
    """Return the processes that a process has started."""
    file = Path(f"/proc/{process}/task/{process}/children")
    if not file.exists():
        pytest.skip("needs /proc")
    return [int(child) for child in file.read_text().split()]


def wait_until_gone(processes: list[int]) -> None:
    """Workers end by themselves soon after the process that started them."""
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < deadline, "a worker outlived its study"
        time.sleep(0.1)
