"""Run the paper's study, and gather its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from skmix import SharedKernelClassifier

from . import harness
from .images import DIGIT_FEATURES
from .methods import N_CLASSES, fit_batch, run_batch, scores_of
from .records import (
    BestRun,
    Beyond,
    FittedMixture,
    Margin,
    Run,
    Settings,
    StudyData,
    StudyResults,
    fingerprint,
    make_data,
)
from .variants import (
    DATA_SET_RUNS,
    DATA_SETS,
    ENOUGH_RUNS,
    MAIN_KERNELS,
    OURS,
    VARIANTS,
    Cell,
    Method,
    variant_of,
)

# Runs in a batch, which takes some seconds. Large batches are faster, since their runs share work, but every
# process needs some. The published method shares little.
_BATCH: dict[Method, int] = {"published": 100, "robust": 500, "class-wise": 500}
# Files of this room that affect the results, besides those that `harness.library` hashes.
_PARTS = ("methods", "published", "records", "rows", "variants")
_CODE = [str(Path(__file__).with_name(f"{name}.py")) for name in _PARTS]

# Principal components of the pixels, for the classifiers that are not in the paper.
_N_COMPONENTS = 20
# The features that the study uses; the four quadrant masses sum to one, so one is left out.
_PAPER_COLUMNS = [column for column, name in enumerate(DIGIT_FEATURES) if name != "q1"]


@dataclass(frozen=True)
class Study:
    """A study that is ready to run; see `make_study`."""

    settings: Settings
    cells: tuple[Cell, ...]
    data: tuple[StudyData, ...]  # the data sets

    def settings_of(self, data_set: int) -> Settings:
        """Return the settings of a data set, with its own seed."""
        return replace(self.settings, seed=self.settings.seed + data_set)

    def planned(self) -> list[harness.Cell]:
        """Return the cells for the harness, with all their settings."""
        digests = [fingerprint(data) for data in self.data]
        common = {"experiment": "paper", "library": harness.library(*_CODE)}
        return [
            harness.Cell(
                common
                | asdict(self.settings_of(cell.data_set))
                | {"data": digests[cell.data_set], "variant": asdict(variant_of(cell.variant))}
                | {"n_kernels": cell.n_kernels, "method": cell.method},
                cell,
                cell.n_runs,
                _BATCH[cell.method],
            )
            for cell in self.cells
        ]


def make_study(
    cells: Iterable[Cell], settings: Settings | None = None, data: StudyData | None = None
) -> Study:
    """Return a study of cells with the data sets they need; `data` replaces the first of them."""
    study = Study(settings or Settings(), tuple(cells), ())
    n_sets = 1 + max((cell.data_set for cell in study.cells), default=0)
    wanted = [study.settings_of(number) for number in range(0 if data is None else 1, n_sets)]
    with ThreadPoolExecutor() as threads:
        made = tuple(threads.map(make_data, wanted))
    return replace(study, data=made if data is None else (data, *made))


def run_study(
    study: Study,
    store: harness.Store,
    crew: harness.Crew | None = None,
    progress: Callable[[Sequence[Any]], None] | None = None,
) -> None:
    """Run what the store lacks, by a crew that shares the study, or in this process."""
    harness.run_cells(study.planned(), _work, crew or harness.Crew(study), store, progress)


def _work(study: Study, cell: Cell, runs: Sequence[int]) -> list[dict[str, Any]]:
    data, settings = study.data[cell.data_set], study.settings_of(cell.data_set)
    made = run_batch(data, cell.variant, cell.n_kernels, cell.method, runs, settings)
    return [run.to_dict() for run in made]


def stored_runs(study: Study, store: harness.Store) -> dict[Cell, list[Run]]:
    """Return the runs of a study that are in a store, by cell and in order."""
    return {
        cell.task: [Run.from_dict(each) for each in store.get(cell.settings, cell.n_replicates).values()]
        for cell in study.planned()
    }


def study_results(study: Study, store: harness.Store, beyond: Sequence[Beyond] | None = None) -> StudyResults:
    """Gather the results for tables, figures and report.

    The best runs are fitted again, each from its own seed, to get their models. Classifiers that are not in
    the paper are fitted too, unless `beyond` has their results.
    """
    stored = stored_runs(study, store)
    own = {cell: runs for cell, runs in stored.items() if cell.data_set == 0}
    data, settings = study.data[0], study.settings
    best: dict[tuple[str, Method], BestRun] = {}
    for cell, runs in own.items():
        finite = [run for run in runs if not run.reason]
        if cell.n_kernels == MAIN_KERNELS and finite:
            run = max(finite, key=lambda run: run.accuracy)
            best[cell.variant, cell.method] = BestRun(run, fitted_mixtures(run, data, settings))
    return StudyResults(
        settings,
        data,
        tuple(run for runs in own.values() for run in runs),
        best,
        run_beyond(data, seed=settings.seed) if beyond is None else tuple(beyond),
        tuple(_margins(stored, settings.seed)),
    )


def fitted_mixtures(run: Run, data: StudyData, settings: Settings) -> tuple[FittedMixture, ...]:
    """Fit a run again and return the mixtures of its feature sets."""
    variant = variant_of(run.variant)
    with threadpool_limits(limits=1, user_api="blas"):
        (fitted,) = fit_batch(data, variant, run.n_kernels, run.method, [run.run], settings)
    return tuple(
        FittedMixture(
            feature_names_in_=np.array(names, dtype=object),
            classes_=np.arange(N_CLASSES),
            class_prior_=np.full(N_CLASSES, 1.0 / N_CLASSES),
            weights_=model.weights,
            means_=model.means,
            covariances_=model.covariances,
        )
        for names, model in zip(variant.feature_sets, fitted.mixtures, strict=True)
    )


def _margins(stored: Mapping[Cell, list[Run]], seed: int) -> Iterator[Margin]:
    """Yield comparisons of robust and class-wise runs for each data set and variant."""
    accuracies = {
        (cell.data_set, cell.variant, cell.method): [run.accuracy for run in runs[:DATA_SET_RUNS]]
        for cell, runs in stored.items()
        if cell.n_kernels == MAIN_KERNELS
    }
    for data_set in range(DATA_SETS):
        for variant in VARIANTS:
            robust, class_wise = (accuracies.get((data_set, variant.name, method), []) for method in OURS)
            n_runs = min(len(robust), len(class_wise))
            if n_runs >= ENOUGH_RUNS:
                mean = float(np.mean(class_wise))
                yield Margin(seed + data_set, variant.name, n_runs, max(robust), mean)


def run_beyond(data: StudyData, seed: int = 0) -> tuple[Beyond, ...]:
    """Fit classifiers that are not in the paper: on principal components of the pixels, and on its features.

    The paper's thirteen features do not always distinguish 0 from 8 or 2 from 5, with any classifier.
    Principal components of the pixels do. `seed` is used for components and starts.
    """
    ours = SharedKernelClassifier(MAIN_KERNELS, covariance_prior=None, priors="uniform", random_state=seed)
    components = PCA(_N_COMPONENTS, svd_solver="randomized", random_state=seed)
    images = (data.train_images, data.test_images)
    pixels = [each.reshape(len(each), -1).astype(np.float64) / 255.0 for each in images]
    features = [each[:, _PAPER_COLUMNS] for each in (data.train_dithered, data.test_dithered)]
    on_pixels = f"{_N_COMPONENTS} principal components of the pixels"
    on_features = f"the paper's {len(_PAPER_COLUMNS)} features"
    standardised = f"{on_features}, standardised"
    classifiers = (
        ("shared kernels, principal components", [components, ours], pixels, on_pixels),
        ("support vector machine, principal components", [components, SVC(C=10.0)], pixels, on_pixels),
        ("shared kernels, paper's features", [ours], features, on_features),
        ("support vector machine, paper's features", [StandardScaler(), SVC(C=10.0)], features, standardised),
    )
    shared, machine = f"SharedKernelClassifier with {MAIN_KERNELS} kernels", "RBF support vector machine"
    found = []
    for name, steps, (train, test), on in classifiers:
        with threadpool_limits(limits=1):
            predicted = make_pipeline(*steps).fit(train, data.train_labels).predict(test)
        is_ours = ours in steps
        what = f"{shared if is_ours else machine} on {on}"
        found.append(Beyond(name, what, is_ours, **scores_of(data.test_labels, predicted)))
    return tuple(found)
