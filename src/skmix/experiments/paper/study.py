"""Running the paper's study, and gathering its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from skmix.estimators import SharedKernelClassifier
from skmix.experiments import harness
from skmix.experiments.paper.data import fingerprint, make_data
from skmix.experiments.paper.methods import fit_batch, group_models, run_batch, scores_of
from skmix.experiments.paper.records import BestRun, Beyond, Margin, Run, Settings, StudyData, StudyResults
from skmix.experiments.paper.variants import (
    DATA_SET_RUNS,
    DATA_SETS,
    ENOUGH_RUNS,
    FEATURES,
    MAIN_KERNELS,
    MAIN_RUNS,
    METHODS,
    SWEEP_KERNELS,
    SWEEP_RUNS,
    SWEEP_VARIANTS,
    VARIANTS,
    Method,
    variant_of,
)

# Runs of a batch, which take a second or two. The engine shares work between the runs of a batch: 100 cost
# 10 % less than twice 50. The published method shares nothing.
_BATCH: dict[Method, int] = {"published": 10, "robust": 100, "class-wise": 100}
# Files that affect the results, besides the library.
_CODE = [str(Path(__file__).with_name(f"{name}.py")) for name in ("methods", "prediction", "published")]
_COMPARED: tuple[Method, Method] = ("robust", "class-wise")

N_COMPONENTS = 20
# The features that the study uses; the four quadrant masses sum to one, so one is left out.
_PAPER_COLUMNS = [column for column, name in enumerate(FEATURES) if name != "q1"]


@dataclass(frozen=True)
class Cell:
    """A variant with K kernels, fitted a number of times by one method."""

    variant: str
    n_kernels: int
    method: Method
    n_runs: int  # runs differ in their starts only
    data_set: int = 0  # number of the simulated data set; its seed is that of the study plus this number


@dataclass(frozen=True)
class Study:
    """A study that is ready to run; see `make_study`."""

    settings: Settings
    cells: tuple[Cell, ...]
    data: tuple[StudyData, ...]  # the data sets

    def planned(self) -> list[harness.Cell]:
        """Return the cells for the harness, with all their settings."""
        digests = [fingerprint(data) for data in self.data]
        common = {"experiment": "paper", "library": harness.library(*_CODE)}
        return [
            harness.Cell(
                common
                | asdict(self._settings(cell.data_set))
                | {"data": digests[cell.data_set], "variant": asdict(variant_of(cell.variant))}
                | {"n_kernels": cell.n_kernels, "method": cell.method},
                cell,
                cell.n_runs,
                _BATCH[cell.method],
            )
            for cell in self.cells
        ]

    def run(self, cell: Cell, runs: Sequence[int]) -> list[Run]:
        """Fit and test some runs of a cell."""
        data, settings = self.data[cell.data_set], self._settings(cell.data_set)
        return run_batch(data, cell.variant, cell.n_kernels, cell.method, runs, settings)

    def _settings(self, data_set: int) -> Settings:
        return replace(self.settings, seed=self.settings.seed + data_set)


def study_cells(
    n_runs: int = MAIN_RUNS, variants: Iterable[str] | None = None, methods: Iterable[Method] = METHODS
) -> list[Cell]:
    """List the cells of the study: all variants at K = 10, the sweep over K, and further data sets.

    Parameters
    ----------
    n_runs : int, default=500
        Runs of each cell at K = 10; sweep and further data sets have at most 100.
    variants, methods : iterable of str, optional
        Only these variants and methods.

    Returns
    -------
    list of Cell
        The runs of the sweep at K = 10 are the first of the main study. On further data sets robust and
        class-wise runs are compared, if there are enough runs.
    """
    chosen = None if variants is None else {variant_of(name).name for name in variants}
    names = [variant.name for variant in VARIANTS if chosen is None or variant.name in chosen]
    methods = list(methods)
    cells = [Cell(name, MAIN_KERNELS, method, n_runs) for name in names for method in methods]
    cells += [
        Cell(name, n_kernels, method, min(n_runs, SWEEP_RUNS))
        for name in names
        if name in SWEEP_VARIANTS
        for n_kernels in SWEEP_KERNELS
        if n_kernels != MAIN_KERNELS
        for method in methods
    ]
    if n_runs >= ENOUGH_RUNS and set(_COMPARED) <= set(methods):
        cells += [
            Cell(name, MAIN_KERNELS, method, min(n_runs, DATA_SET_RUNS), data_set)
            for data_set in range(1, DATA_SETS)
            for name in names
            for method in _COMPARED
        ]
    return cells


def make_study(
    cells: Iterable[Cell], settings: Settings | None = None, data: StudyData | None = None
) -> Study:
    """Return a study of some cells with all data sets that they need; `data` may be the first of them."""
    cells, settings = tuple(cells), settings or Settings()
    n_sets = 1 + max((cell.data_set for cell in cells), default=0)
    further = [make_data(replace(settings, seed=settings.seed + number)) for number in range(1, n_sets)]
    return Study(settings, cells, (data or make_data(settings), *further))


def run_study(
    study: Study,
    store: harness.Store,
    *,
    n_jobs: int = 1,
    cluster: Any = None,
    progress: Callable[[Sequence[Any]], None] | None = None,
) -> None:
    """Make the runs that the store lacks; arguments as for `skmix.experiments.harness.run_cells`."""
    harness.run_cells(study.planned(), _work, study, store, n_jobs=n_jobs, cluster=cluster, progress=progress)


def _work(study: Study, cell: Cell, runs: Sequence[int]) -> list[dict[str, Any]]:
    return [run.to_dict() for run in study.run(cell, runs)]


def stored_runs(study: Study, store: harness.Store) -> dict[Cell, list[Run]]:
    """Return the runs of a study that are in a store, by cell and in order."""
    return {
        planned.task: [
            Run.from_dict(record)
            for number, record in store.get(planned.settings).items()
            if number < planned.n_replicates
        ]
        for planned in study.planned()
    }


def study_results(study: Study, store: harness.Store, beyond: Sequence[Beyond] | None = None) -> StudyResults:
    """Gather the results for tables, figures and report.

    The best runs are fitted once more, each from its own seed, to have their models. So are the classifiers
    that are not in the paper, unless `beyond` has them.
    """
    stored = stored_runs(study, store)
    data, settings = study.data[0], study.settings
    best: dict[tuple[str, Method], BestRun] = {}
    for cell, runs in stored.items():
        finite = [run for run in runs if not run.reason]
        if cell.n_kernels == MAIN_KERNELS and cell.data_set == 0 and finite:
            run, variant = max(finite, key=lambda run: run.accuracy), variant_of(cell.variant)
            with threadpool_limits(limits=1, user_api="blas"):
                (fitted,) = fit_batch(data, variant, MAIN_KERNELS, cell.method, [run.run], settings)
            best[cell.variant, cell.method] = BestRun(run, group_models(fitted, variant))
    return StudyResults(
        settings,
        data,
        tuple(run for cell, runs in stored.items() if cell.data_set == 0 for run in runs),
        best,
        run_beyond(data, seed=settings.seed) if beyond is None else tuple(beyond),
        tuple(_margins(stored, settings.seed)),
    )


def _margins(stored: Mapping[Cell, list[Run]], seed: int) -> Iterator[Margin]:
    """Yield the comparisons of robust and class-wise runs, data set by data set."""
    accuracies = {
        (cell.data_set, cell.variant, cell.method): [run.accuracy for run in runs[:DATA_SET_RUNS]]
        for cell, runs in stored.items()
        if cell.n_kernels == MAIN_KERNELS
    }
    for data_set in range(DATA_SETS):
        for variant in VARIANTS:
            robust, class_wise = (
                accuracies.get((data_set, variant.name, method), []) for method in _COMPARED
            )
            n_runs = min(len(robust), len(class_wise))
            if n_runs >= ENOUGH_RUNS:
                mean = float(np.mean(class_wise))
                yield Margin(seed + data_set, variant.name, n_runs, max(robust), mean)


def run_beyond(data: StudyData, seed: int = 0) -> tuple[Beyond, ...]:
    """Fit classifiers that are not in the paper: on principal components of the pixels, and on its features.

    The paper's thirteen features do not always distinguish 0 from 8 or 2 from 5, with any classifier.
    Principal components of the pixels do. `seed` is that of components and starts.
    """
    ours = SharedKernelClassifier(n_kernels=MAIN_KERNELS, priors="uniform", random_state=seed)
    components = PCA(N_COMPONENTS, svd_solver="randomized", random_state=seed)
    images = (data.train_images, data.test_images)
    pixels = [each.reshape(len(each), -1).astype(np.float64) / 255.0 for each in images]
    features = [each[:, _PAPER_COLUMNS] for each in (data.train_dithered, data.test_dithered)]
    on_pixels = f"{N_COMPONENTS} principal components of the pixels"
    on_features = f"the paper's {len(_PAPER_COLUMNS)} features"
    shared, machine = f"SharedKernelClassifier with {MAIN_KERNELS} kernels", "RBF support vector machine"
    classifiers = {
        ("shared kernels, principal components", f"{shared} on {on_pixels}"): (
            make_pipeline(components, ours),
            pixels,
        ),
        ("support vector machine, principal components", f"{machine} on {on_pixels}"): (
            make_pipeline(components, SVC(C=10.0)),
            pixels,
        ),
        ("shared kernels, paper's features", f"{shared} on {on_features}"): (ours, features),
        ("support vector machine, paper's features", f"{machine} on {on_features}, standardised"): (
            make_pipeline(StandardScaler(), SVC(C=10.0)),
            features,
        ),
    }
    found = []
    for (name, description), (classifier, (train, test)) in classifiers.items():
        begun = time.perf_counter()
        predicted = classifier.fit(train, data.train_labels).predict(test)
        seconds = time.perf_counter() - begun
        scores = scores_of(data.test_labels, predicted)
        found.append(Beyond(name, description, description.startswith(shared), seconds=seconds, **scores))
    return tuple(found)
