"""Run the paper's study: files of runs from which a stopped study continues, and the results.

A batch of runs is a file in the folder ``runs`` of the results. Its name ends in a hash of everything that
affects the runs, so that runs of other settings, data or code are never used by mistake. A process that is
killed at any moment leaves the finished batches.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

import skmix
from skmix import SharedKernelClassifier

from .data import Settings, StudyData, fingerprint, make_data
from .images import DIGIT_FEATURES
from .methods import BestRun, confusion_of, fit_again, run_batch, scores_of
from .variants import DATA_SET_RUNS, ENOUGH_RUNS, MAIN_KERNELS, METHODS, OURS, VARIANTS, Cell, Method

# Runs in a batch, which takes some seconds. Large batches are faster, since their runs share work, but every
# process needs some. The published method shares little.
_BATCH: dict[Method, int] = {"published": 100, "robust": 500, "class-wise": 500}
# Packages of skmix whose code affects no run, and the modules of this package whose code does.
_WITHOUT_EFFECT = {"cli", "examples", "plots", "report", "samples"}
_WITH_EFFECT = {"data", "digits", "images", "methods", "published", "rows", "variants"}
# Principal components of the pixels, for the classifiers that are not in the paper.
_N_COMPONENTS = 20
# The features that the study uses; the four quadrant masses sum to one, so one is left out.
_PAPER_COLUMNS = [column for column, name in enumerate(DIGIT_FEATURES) if name != "q1"]
# Columns of runs that are not integers.
_FLOATS = ("accuracy", "mean_iou", "failing_pass", "log_likelihood")


class StudyError(RuntimeError):
    """The study could not continue; finished runs are stored."""


# ---------------------------------------------------------------- files of runs


@dataclass(frozen=True)
class Batch:
    """Some runs of a cell, which share a file."""

    cell: Cell
    settings: Settings  # with the seed of the data set
    numbers: range  # of the runs
    path: Path

    def stored(self) -> pd.DataFrame:
        """Return the runs in the file; none if there is no file, or one that cannot be read."""
        try:
            return pd.read_csv(self.path, keep_default_na=False, converters=dict.fromkeys(_FLOATS, _exactly))
        except (FileNotFoundError, ValueError):
            return pd.DataFrame({"run": []})

    def missing(self) -> list[int]:
        """Return the numbers of the runs that the file lacks."""
        stored = set(self.stored()["run"])
        return [number for number in self.numbers if number not in stored]

    def write(self, runs: pd.DataFrame) -> None:
        """Replace the file."""
        text = runs.sort_values("run").to_csv(index=False, lineterminator="\n")
        replace_file(self.path, text.encode())


def _exactly(text: str) -> float:
    """Return a float with all its digits, which not every version of pandas reads."""
    return float(text or "nan")


def replace_file(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file, whole or not at all."""
    part = Path(f"{os.fspath(path)}.{os.getpid()}.part")
    part.write_bytes(content)
    os.replace(part, path)


@cache
def library() -> str:
    """Return the version of skmix and a hash of its code, which tell apart results of edited code."""
    root = Path(skmix.__file__).parent
    digest = hashlib.sha256()
    for file in sorted(file for suffix in ("py", "cpp", "h") for file in root.rglob(f"*.{suffix}")):
        package = file.relative_to(root).parts[0]
        if package not in _WITHOUT_EFFECT and (package != "paper" or file.stem in _WITH_EFFECT):
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return f"{skmix.__version__}+{digest.hexdigest()[:16]}"


def data_sets(cells: Iterable[Cell], settings: Settings) -> list[StudyData]:
    """Simulate the data sets that cells need; each has the seed of the study plus its number."""
    n_sets = 1 + max((cell.data_set for cell in cells), default=0)
    return [make_data(replace(settings, seed=settings.seed + number)) for number in range(n_sets)]


def batches(
    cells: Iterable[Cell], settings: Settings, data: Sequence[StudyData], folder: Path
) -> list[Batch]:
    """Divide the runs of cells into batches, whose files are in a folder."""
    prints = [fingerprint(each) for each in data]
    found = []
    for cell in cells:
        own = replace(settings, seed=settings.seed + cell.data_set)
        affecting = {
            **{"library": library(), "data": prints[cell.data_set]},
            **{"variant": asdict(VARIANTS[cell.variant]), "n_kernels": cell.n_kernels, "method": cell.method},
            **asdict(own),
        }
        key = hashlib.sha256(json.dumps(affecting, sort_keys=True).encode()).hexdigest()[:16]
        for first in range(0, cell.n_runs, _BATCH[cell.method]):
            numbers = range(first, min(first + _BATCH[cell.method], cell.n_runs))
            name = f"{cell.variant}_K{cell.n_kernels}_{cell.method}_{first}_{key}.csv"
            found.append(Batch(cell, own, numbers, folder / name))
    return found


# ---------------------------------------------------------------- runs


def run_study(
    batches: Sequence[Batch],
    data: Sequence[StudyData],
    n_jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Run what the files of batches lack, and return all runs.

    After an interrupt (Ctrl-C), an error or a kill, the files have all finished batches, and the same call
    continues from there. `progress` is called with the number of runs of each batch after they are stored.

    Returns
    -------
    DataFrame
        The columns of `run_batch` and ``data_set``, the number of the simulated data set.
    """
    lacking = [batch for batch in batches if batch.missing()]
    # Batches of different cells alternate, so that all cells progress together.
    lacking.sort(key=lambda batch: batch.numbers[0])
    tasks = [joblib.delayed(_run)(batch, data[batch.cell.data_set]) for batch in lacking]
    for n_runs in in_parallel(tasks, n_jobs):
        if progress is not None:
            progress(n_runs)
    # A file may have more runs than are wanted.
    tables = [
        runs[runs["run"].isin(batch.numbers)].assign(data_set=batch.cell.data_set)
        for batch in batches
        for runs in [batch.stored()]
    ]
    return pd.concat(tables, ignore_index=True)


def in_parallel(tasks: Iterable[Any], n_jobs: int) -> Iterator[Any]:
    """Yield the results of joblib's delayed calls in several processes, in the order in which they finish."""
    calls = (joblib.delayed(_in_worker)(os.getpid(), *task) for task in tasks)
    try:
        yield from joblib.Parallel(n_jobs, return_as="generator_unordered", batch_size=1)(calls)
    except joblib.externals.loky.process_executor.TerminatedWorkerError as error:
        raise StudyError(
            "A worker process ended unexpectedly, perhaps because memory ran out. Finished runs are stored: "
            "run the same command again to continue, with fewer jobs if this happens again."
        ) from error


def _in_worker(main: int, function: Callable[..., Any], args: Any, settings: Any) -> Any:
    """Call a function in a process that leaves Ctrl-C to the main process and does not outlive it."""
    if os.getpid() != main:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end_with(main)
    return function(*args, **settings)


@cache
def _end_with(main: int) -> None:
    def wait() -> None:
        while os.getppid() == main:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _run(batch: Batch, data: StudyData) -> int:
    """Make the runs that the file of a batch lacks, store them, and return how many there were."""
    cell, numbers = batch.cell, batch.missing()
    made = run_batch(data, cell.variant, cell.n_kernels, cell.method, numbers, batch.settings)
    stored = batch.stored()
    batch.write(pd.concat([stored, made]) if len(stored) else made)
    return len(made)


# ---------------------------------------------------------------- results


@dataclass(frozen=True)
class StudyResults:
    """Everything that tables, figures and report need, without fitting a model again."""

    settings: Settings
    data: StudyData  # the first data set
    # Main study (K = 10), sweep over K and further data sets; see `run_study`. The runs of the sweep at
    # K = 10 are the first of the main study.
    runs: pd.DataFrame
    best: dict[tuple[str, Method], BestRun]  # by variant and method, at K = 10
    # Classifiers on the same images that are not in the paper: name, description, ours (whether it is a
    # shared-kernel model), accuracy, mean_iou, errors.
    beyond: pd.DataFrame


def study_results(settings: Settings, data: StudyData, runs: pd.DataFrame, n_jobs: int = 1) -> StudyResults:
    """Gather the results of a study.

    The best runs are fitted again, each from its own seed, to get their models, and classifiers that are not
    in the paper are fitted.
    """
    finite = at_main(main_runs(runs))
    finite = finite[finite["reason"] == ""]
    rows = finite.loc[finite.groupby(["variant", "method"])["accuracy"].idxmax()]
    tasks = [
        joblib.delayed(fit_again)(data, row.variant, MAIN_KERNELS, row.method, row.run, settings)
        for row in rows.itertuples()
    ]
    beyond = [joblib.delayed(fit_beyond)(data, name, settings.seed) for name in _BEYOND]
    found = list(in_parallel([*beyond, *tasks], n_jobs))
    fitted = {(each.variant, each.method): each for each in found if isinstance(each, BestRun)}
    best = {key: fitted[key] for key in itertools.product(VARIANTS, METHODS) if key in fitted}
    others = pd.DataFrame([each for each in found if isinstance(each, dict)])
    return StudyResults(settings, data, runs, best, others.set_index("name").loc[list(_BEYOND)].reset_index())


def main_runs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the runs on the first data set."""
    return runs[runs["data_set"] == 0]


def at_main(runs: pd.DataFrame, method: str | None = None) -> pd.DataFrame:
    """Return the runs at K = 10, of one method if it is given."""
    chosen = runs[runs["n_kernels"] == MAIN_KERNELS]
    return chosen if method is None else chosen[chosen["method"] == method]


def variants_of(runs: pd.DataFrame) -> list[str]:
    """Return the variants that have runs at K = 10 on the first data set, in the paper's order."""
    made = set(at_main(main_runs(runs))["variant"])
    return [name for name in VARIANTS if name in made]


def margins(runs: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Compare the best robust run with the mean class-wise run, by data set and variant, at K = 10.

    Only the first 100 runs count, as many on every data set, and only cells with at least 20 runs.

    Returns
    -------
    DataFrame
        ``seed`` of the data set, ``variant``, ``n_runs`` of each method, ``best_robust``,
        ``mean_class_wise``, ``standard_error`` of this mean, and ``shortfall``, how far it is below the best.
    """
    counted = at_main(runs[runs["run"] < DATA_SET_RUNS]).assign(seed=seed + runs["data_set"])
    keys = ["seed", "variant", "method"]
    cells = counted.groupby(keys, sort=False)["accuracy"].agg(["size", "max", "mean", "sem"]).unstack()
    cells = cells.reindex(columns=pd.MultiIndex.from_product([["size", "max", "mean", "sem"], OURS]))
    found = pd.DataFrame(
        {
            "n_runs": cells["size"].min(axis="columns", skipna=False),
            "best_robust": cells["max", "robust"],
            "mean_class_wise": cells["mean", "class-wise"],
            "standard_error": cells["sem", "class-wise"],
        }
    )
    found = found[found["n_runs"] >= ENOUGH_RUNS].astype({"n_runs": int})
    return found.assign(shortfall=found["best_robust"] - found["mean_class_wise"]).reset_index()


# ---------------------------------------------------------------- beyond the paper

_SHARED = f"SharedKernelClassifier with {MAIN_KERNELS} kernels"
_MACHINE = "RBF support vector machine"
_ON_PIXELS = f"on {_N_COMPONENTS} principal components of the pixels"
_ON_FEATURES = f"on the paper's {len(_PAPER_COLUMNS)} features"
# Names and descriptions. The paper's thirteen features do not always distinguish 0 from 8 or 2 from 5, with
# any classifier; principal components of the pixels do.
_BEYOND = {
    "shared kernels, principal components": f"{_SHARED} {_ON_PIXELS}",
    "support vector machine, principal components": f"{_MACHINE} {_ON_PIXELS}",
    "shared kernels, paper's features": f"{_SHARED} {_ON_FEATURES}",
    "support vector machine, paper's features": f"{_MACHINE} {_ON_FEATURES}, standardised",
}


def fit_beyond(data: StudyData, name: str, seed: int = 0) -> dict[str, object]:
    """Fit a classifier that is not in the paper: on principal components of the pixels, or on its features.

    `seed` is used for components and starts; `StudyResults.beyond` names the entries of the result.
    """
    ours = name.startswith("shared kernels")
    classifier = SVC(C=10.0)
    if ours:
        classifier = SharedKernelClassifier(
            MAIN_KERNELS, covariance_prior=None, priors="uniform", random_state=seed
        )
    if name.endswith("principal components"):
        first = PCA(_N_COMPONENTS, svd_solver="randomized", random_state=seed)
        rows = [images.reshape(len(images), -1) / 255.0 for images in (data.train_images, data.test_images)]
    else:
        first = "passthrough" if ours else StandardScaler()
        rows = [features[:, _PAPER_COLUMNS] for features in (data.train_dithered, data.test_dithered)]
    with threadpool_limits(limits=1):
        predicted = make_pipeline(first, classifier).fit(rows[0], data.train_labels).predict(rows[1])
    confusion = confusion_of(data.test_labels, predicted)
    accuracy, mean_iou = scores_of(confusion)
    errors = int(confusion.sum() - confusion.trace())
    scores = {"accuracy": accuracy, "mean_iou": mean_iou, "errors": errors}
    return {"name": name, "description": _BEYOND[name], "ours": ours, **scores}
