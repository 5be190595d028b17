"""Comparison of classifiers on repeated splits of data sets."""

from __future__ import annotations

import hashlib
import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Self

import numpy as np
import sklearn
from recording import processor
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, GroupShuffleSplit, StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from skmix.metrics import calibration_error
from skmix.paper import generator
from skmix.paper.study import library

from .classifiers import Contender, count_parameters
from .data import DataSet, IntArray
from .store import Cell, Record, Store, cell_key, run_cells

_LARGEST_SEED = 2**31 - 1
# Increase when `split`, `measure` or a constant of the other classifiers changes what they measure: their
# outcomes are kept when code changes.
_VERSION = 1
_LONGEST_CHOICE = 160
_MOST_DRAWS = 1000


@dataclass(frozen=True)
class Settings:
    """Splits of each data set, the share of the rows to test on, and the seed of splits and classifiers."""

    n_repeats: int = 5
    test_share: float = 0.25
    seed: int = 0

    def __post_init__(self) -> None:
        if self.n_repeats < 1:
            raise ValueError(f"repeats must be at least 1, got {self.n_repeats}.")
        if not 0.0 < self.test_share < 1.0:
            raise ValueError(f"test_share must lie between 0 and 1, got {self.test_share}.")


@dataclass(frozen=True)
class Outcome:
    """One classifier on one split or draw of one data set."""

    data: str
    classifier: str
    repeat: int  # number of the split or draw
    n_classes: int
    n_train: int
    n_test: int
    error: float  # share of test rows with a wrong label
    log_loss: float
    calibration_error: float
    fit_seconds: float  # processor time, choices included
    predict_seconds: float  # of the probabilities of the test rows
    n_parameters: int  # numbers that the fitted classifier stores
    failure: str = ""  # error message; after a failure the measures are those of a guess by class frequency
    settings: str = ""  # what a search chose, for people to read
    processor: str = ""  # that the times are of
    key: str = ""  # hash of everything that affects the outcome but the repeat

    @property
    def rows_per_class(self) -> int:
        """Training rows of each class, where all classes have the same number."""
        return self.n_train // self.n_classes

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as values for JSON: six digits of numbers, and no empty texts."""
        return {
            name: float(f"{value:.6g}") if isinstance(value, float) else value
            for name, value in asdict(self).items()
            if value != ""
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the outcome of `to_dict`."""
        return cls(**values)


def run_outcomes(
    cells: Sequence[Cell],
    work: Callable[..., Record],
    store: Store,
    n_jobs: int,
    progress: Callable[[Outcome], None] | None,
) -> list[Outcome]:
    """Run the cells that the store lacks, one outcome at a time, and return the outcomes of all cells."""

    def report(record: Record) -> None:
        if progress is not None:
            progress(Outcome.from_dict(record))

    run_cells(cells, work, store, n_jobs, report)
    return [
        Outcome.from_dict(record)
        for cell in cells
        for record in store.get(cell.settings, cell.n_repeats).values()
    ]


def settings_of(experiment: str, data: DataSet, contender: Contender, **others: Any) -> dict[str, Any]:
    """Return all settings of a cell, for its key: the data and the classifier's parameters in full.

    The library's code is among them for classifiers that run it; for others that are defined here, the code
    of their class, and the version of the package that they need.
    """
    model = contender.pipeline(0, data.has_gaps, data.groups is not None)
    with sklearn.config_context(print_changed_only=False):
        text = model.__repr__(N_CHAR_MAX=1_000_000)
    code = ""
    if contender.ours:
        code = library() + hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    elif type(model[-1]).__module__ == Contender.__module__:
        code = hashlib.sha256(inspect.getsource(type(model[-1])).encode()).hexdigest()
    return {
        "experiment": experiment,
        "version": _VERSION,
        "scikit-learn": sklearn.__version__,
        "data": {"name": data.name, "digest": data.digest()},
        "classifier": {"name": contender.name, "model": text, "code": code}
        | ({"package": f"{contender.package} {contender.version}"} if contender.package else {}),
        **others,
    }


def key_of(data: DataSet, contender: Contender, settings: Settings) -> str:
    """Return the key of the outcomes of a classifier on a data set: the same key, the same outcomes."""
    return cell_key(_settings_of_cell(data, contender, settings))


def _settings_of_cell(data: DataSet, contender: Contender, settings: Settings) -> dict[str, Any]:
    return settings_of("comparison", data, contender, test_share=settings.test_share, seed=settings.seed)


def split(data: DataSet, repeat: int, settings: Settings) -> tuple[IntArray, IntArray]:
    """Return training and test rows, hashed from the seed, the name of the data set and the repeat.

    Splits are the same for all classifiers. They are stratified, and a class of very few rows may be on one
    side only. If rows come in groups, whole groups are held out, and every class has training rows.
    """
    random = generator(settings.seed, "split", data.name, repeat)
    n_classes = len(np.unique(data.y))
    if data.groups is not None:
        draws = GroupShuffleSplit(_MOST_DRAWS, test_size=settings.test_share, random_state=random)
        for training, held in draws.split(data.X, data.y, data.groups):
            if len(np.unique(data.y[training])) == n_classes:
                return training, held
        raise ValueError(f"{data.name}: no groups can be held out without losing a class.")
    n_test = max(round(settings.test_share * len(data.y)), n_classes)
    if len(data.y) - n_test < n_classes:
        raise ValueError(
            f"{data.name} has {len(data.y)} rows of {n_classes} classes: too few to test on {n_test}."
        )
    splits = StratifiedShuffleSplit(1, test_size=n_test, random_state=random)
    return next(splits.split(data.X, data.y))


def run_cell(data: DataSet, contender: Contender, repeat: int, settings: Settings) -> Outcome:
    """Fit a classifier to one split of a data set and measure it."""
    return measure(data, contender, repeat, *split(data, repeat, settings), settings.seed)


def measure(
    data: DataSet, contender: Contender, repeat: int, training: IntArray, held: IntArray, seed: int
) -> Outcome:
    """Fit a classifier to the training rows of a data set and measure it on the rows held out.

    Seconds are processor time on one thread, which other programs hardly affect.
    """
    classes, codes = np.unique(data.y, return_inverse=True)
    own_seed = int(generator(seed, contender.name, data.name, repeat).randint(_LARGEST_SEED))
    model = contender.pipeline(own_seed, data.has_gaps, data.groups is not None)
    groups: dict[str, Any] = {}
    if data.groups is not None and _takes_groups(model[-1]):
        groups[f"{model.steps[-1][0]}__groups"] = data.groups[training]
    shares = np.bincount(codes[training], minlength=len(classes)) / len(training)
    probabilities = np.tile(shares, (len(held), 1))
    predicted = probabilities.argmax(axis=1)
    seconds, n_parameters, failure, chosen = [0.0, 0.0], 0, "", ""
    with warnings.catch_warnings(), threadpool_limits(1):
        # Ignore the classifiers' warnings: any problem shows in the results.
        warnings.simplefilter("ignore")
        if contender.package:
            # The time of imports does not count.
            import_module(contender.package)
        try:
            begun = time.process_time()
            model.fit(data.X[training], codes[training], **groups)
            seconds[0] = time.process_time() - begun
            found = np.zeros_like(probabilities)
            # A classifier only has the classes of its training rows.
            found[:, model.classes_] = model.predict_proba(data.X[held])
            seconds[1] = time.process_time() - begun - seconds[0]
            if not np.isfinite(found).all():
                raise ValueError("probabilities that are not finite")
            # The class that it names itself: for the support vector machine not always the most probable.
            predicted, probabilities = model.predict(data.X[held]), found
            n_parameters, chosen = count_parameters(model), _choice(model[-1])
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            # A search that fails in every fold tells of files of this machine before it comes to the reason.
            lines = [line for line in str(error).splitlines() if line.strip()] or [""]
            failure = f"{type(error).__name__}: {lines[-1].strip()}"
        loss = float(log_loss(codes[held], probabilities, labels=np.arange(len(classes))))
    return Outcome(
        data=data.name,
        classifier=contender.name,
        repeat=repeat,
        n_classes=len(classes),
        n_train=len(training),
        n_test=len(held),
        error=float(np.mean(predicted != codes[held])),
        log_loss=loss,
        calibration_error=calibration_error(probabilities, codes[held]),
        fit_seconds=seconds[0],
        predict_seconds=seconds[1],
        n_parameters=n_parameters,
        failure=failure,
        settings=chosen,
        processor=processor(),
    )


def run_comparison(
    data: Sequence[DataSet],
    field: Sequence[Contender],
    settings: Settings,
    store: Store,
    progress: Callable[[Outcome], None] | None = None,
    *,
    known: Iterable[Outcome] = (),
    n_jobs: int = 1,
) -> list[Outcome]:
    """Run all cells that the store lacks, and return all outcomes.

    The first split of all data sets and classifiers comes first, then the second, and so on.
    Outcomes of earlier runs that are `known` are used where their key is that of a cell; `progress` is called
    with each new one. There are `n_jobs` processes. Outcomes come by data set, repeat and classifier.
    """
    names = [each.name for each in data]
    if len(set(names)) < len(names):
        raise ValueError(f"data sets need different names, got {', '.join(names)}.")
    records: dict[str, dict[int, dict[str, Any]]] = {}
    for outcome in known:
        records.setdefault(outcome.key, {})[outcome.repeat] = outcome.to_dict()
    cells = []
    for each in data:
        for contender in field:
            own = _settings_of_cell(each, contender, settings)
            key = cell_key(own)
            for repeat, record in records.get(key, {}).items():
                store.add(own, repeat, record)
            cells.append(Cell(own, (each, contender, settings, key), settings.n_repeats))
    if n_jobs > 1:
        # The longest first, so that the processes end at about the same time.
        cells.sort(key=lambda cell: -cell.task[0].X.size * len(np.unique(cell.task[0].y)))
    outcomes = run_outcomes(cells, _work, store, n_jobs, progress)
    return sorted(outcomes, key=lambda each: (names.index(each.data), each.repeat))


def _work(data: DataSet, contender: Contender, settings: Settings, key: str, repeat: int) -> Record:
    return replace(run_cell(data, contender, repeat, settings), key=key).to_dict()


def _takes_groups(model: Any) -> bool:
    """Return whether a classifier chooses by held-out rows, so that it needs to know the groups of rows."""
    return isinstance(model, GridSearchCV) or "groups" in inspect.signature(model.fit).parameters


def _choice(model: Any) -> str:
    """Return what a search chose, in words."""
    chosen = getattr(model, "best_params_", {}).items()
    words = [
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in chosen
    ]
    return ", ".join(words)[:_LONGEST_CHOICE]
