"""Where sharing pays: error against rows for each class, for few classes and many.

Shared kernels, the same model without sharing, a scikit-learn mixture for each class, and quadratic
discriminant analysis learn from the same few rows of each class and are tested on the same rows. Only the
second tells the gain from sharing: the others differ from the first in priors and choices too. Where features
fall into parts, shared and own kernels learn part by part as well; where classes are simulated, the true
densities say what nobody can better.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from joblib import Parallel, delayed, parallel_config

from skmix.datasets import make_seven_segment_digits
from skmix.experiments.field.automatic import AutomaticClassifier
from skmix.experiments.field.data import load_data
from skmix.experiments.field.field import OURS, Contender, contenders
from skmix.experiments.field.parts import PartsClassifier
from skmix.experiments.field.records import DataSet, IntArray, Outcome, Settings
from skmix.experiments.field.runner import cell_digest, measure
from skmix.experiments.field.separate import SeparateMixtures
from skmix.experiments.field.simulated import (
    Simulation,
    TrueDensities,
    kind_and_classes,
    part_features,
    simulate,
)
from skmix.experiments.field.store import OutcomeStore
from skmix.experiments.harness import generator
from skmix.features import digit_features

ROWS_PER_CLASS = (2, 5, 10, 20, 50, 100)
"""Training rows of each class."""
SHARING_DATA = (
    "seven_segment",
    *(f"{kind}-{n_classes}" for kind in ("pool", "parts", "apart") for n_classes in (10, 26, 100)),
)
"""Data of the study that need no file: digits, and simulated classes (see `simulate`)."""
OWN, SEPARATE, QUADRATIC = "own kernels", "separate mixtures", "QDA"
OURS_BY_PARTS, OWN_BY_PARTS = f"{OURS} by parts", f"{OWN} by parts"
TRUE = "true densities"
PAIRS = ((OURS, OWN), (OURS_BY_PARTS, OWN_BY_PARTS))
"""Classifiers that differ in sharing alone: with it, and without."""
CLASSIFIERS = (OURS, OWN, QUADRATIC, SEPARATE, OURS_BY_PARTS, OWN_BY_PARTS, TRUE)
"""All classifiers of the study, in the order of its tables and pictures."""

_SEGMENTS = "seven_segment"
_MOST_TEST_ROWS = 2000
# Data from a file keep this share of their smallest class for training, at most.
_TRAINING_SHARE = 0.8
_LARGEST_SEED = 2**31 - 1

_Key = tuple[str, str, int, str]


@dataclass(frozen=True)
class Learning:
    """A point of a learning curve: an outcome, and the training rows of each class it came from."""

    data: str
    classifier: str
    rows_per_class: int
    outcome: Outcome


@dataclass(frozen=True)
class SharingCell:
    """One classifier, learning from one draw of some rows of each class: all that a process must know.

    Attributes
    ----------
    data : str
        Name or file of the data.
    classifier : str
        Name of the classifier.
    rows_per_class : int
        Training rows of each class.
    n_train : int
        Training rows of all classes.
    repeat, seed : int
        Number of the draw, and what it is hashed from.
    key : tuple
        What the outcome is kept under.
    """

    data: str
    classifier: str
    rows_per_class: int
    n_train: int
    repeat: int
    seed: int
    key: _Key


def classifiers_for(name: str) -> list[str]:
    """Return the names of the classifiers that are compared on data of that name."""
    names = [OURS, OWN, QUADRATIC, SEPARATE]
    simulated = kind_and_classes(name)
    if simulated is None:
        return names
    return [*names, *((OURS_BY_PARTS, OWN_BY_PARTS) if simulated[0] == "parts" else ()), TRUE]


def draw(name: str, repeat: int, seed: int) -> DataSet:
    """Return the rows of a draw: new ones where they are simulated, always the same where they are not.

    Parameters
    ----------
    name : str
        One of `SHARING_DATA`, or what `load_data` takes.
    repeat, seed : int
        Number of the draw, and what it is hashed from.

    Returns
    -------
    DataSet
        Enough rows for the largest training set and 2000 to test on, if there are as many.
    """
    return _drawn(name, repeat, seed)[0]


def few_rows(data: DataSet, n_each: int, repeat: int, seed: int) -> tuple[IntArray, IntArray] | None:
    """Return training rows, that many of each class, and test rows; None where a class has too few.

    Smaller training sets are parts of larger ones, and test rows are the same for all.
    """
    random = generator(seed, "few rows", data.name, repeat)
    order = random.permutation(len(data.y))
    codes = np.unique(data.y, return_inverse=True)[1][order]
    # The place of each row among those of its class, in random order.
    place = np.empty(len(order), dtype=np.int64)
    for c in range(int(codes.max()) + 1):
        own = np.flatnonzero(codes == c)
        place[own] = np.arange(len(own))
    fewest = int(np.bincount(codes).min())
    largest = max(ROWS_PER_CLASS)
    most = largest if fewest > largest else int(_TRAINING_SHARE * fewest)
    if n_each > most:
        return None
    return order[place < n_each], order[place >= most][:_MOST_TEST_ROWS]


def run_sharing(
    data: Sequence[str],
    store: OutcomeStore,
    *,
    rows_per_class: Sequence[int] = ROWS_PER_CLASS,
    n_draws: int = 3,
    seed: int = 0,
    n_processes: int = 1,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Learning]:
    """Run the study, or what the store lacks of it.

    Parameters
    ----------
    data : sequence of str
        Data sets by name or file, see `draw`.
    store : OutcomeStore
        Where finished cells are kept.
    rows_per_class : sequence of int, default=(2, 5, 10, 20, 50, 100)
        Training rows of each class; numbers that a data set cannot give are left out for it.
    n_draws : int, default=3
        Random draws of the rows.
    seed : int, default=0
        From which all draws are hashed.
    n_processes : int, default=1
        Processes, of one thread each.
    progress : callable, default=None
        Called with each outcome that is made.

    Returns
    -------
    list of Learning
        All points, in the order of data, draws and rows.
    """
    wrong = [n for n in (*rows_per_class, n_draws, n_processes) if n < 1]
    if wrong:
        raise ValueError(f"rows of a class, draws and processes must be at least 1, got {wrong[0]}.")
    cells = [
        cell
        for name in dict.fromkeys(data)
        for repeat in range(n_draws)
        for cell in _cells(name, rows_per_class, repeat, seed)
    ]
    for outcome in _made([cell for cell in cells if cell.key not in store], n_processes):
        store.keep(outcome)
        if progress is not None:
            progress(outcome)
    return [
        Learning(cell.key[0], cell.classifier, cell.rows_per_class, store.get(cell.key)) for cell in cells
    ]


def run_sharing_cell(cell: SharingCell) -> Outcome:
    """Make a cell, the same wherever and whenever it is made."""
    data, simulated = _drawn(cell.data, cell.repeat, cell.seed)
    rows = few_rows(data, cell.rows_per_class, cell.repeat, cell.seed)
    if rows is None:
        raise ValueError(f"{data.name} has too few rows for {cell.rows_per_class} of each class.")
    seed = int(generator(cell.seed, "classifiers", data.name, cell.repeat).randint(_LARGEST_SEED))
    contender = _contender(cell.classifier, simulated, seed)
    return measure(data, contender, cell.repeat, cell.key[3], *rows, cell.seed)


def _cells(name: str, rows_per_class: Iterable[int], repeat: int, seed: int) -> Iterator[SharingCell]:
    """Yield the cells of one draw."""
    data = draw(name, repeat, seed)
    for n_each in rows_per_class:
        rows = few_rows(data, n_each, repeat, seed)
        if rows is None:
            continue
        digest = cell_digest(data, Settings(seed=seed), f"sharing {n_each}")
        for classifier in classifiers_for(name):
            key = (data.name, classifier, repeat, digest)
            yield SharingCell(name, classifier, n_each, len(rows[0]), repeat, seed, key)


def _made(cells: Sequence[SharingCell], n_processes: int) -> Iterator[Outcome]:
    """Yield the outcomes of cells as they are done."""
    if n_processes == 1:
        yield from map(run_sharing_cell, cells)
        return
    # Those that take longest come first, so that no process is left alone with one of them at the end.
    ordered = sorted(cells, key=lambda cell: -cell.n_train)
    with parallel_config(backend="loky", inner_max_num_threads=1):
        yield from Parallel(n_processes, batch_size=1, pre_dispatch="all", return_as="generator_unordered")(
            delayed(run_sharing_cell)(cell) for cell in ordered
        )


@lru_cache(maxsize=16)
def _drawn(name: str, repeat: int, seed: int) -> tuple[DataSet, Simulation | None]:
    """Return a draw, and the densities it came from if they are known."""
    found = kind_and_classes(name)
    if found is not None:
        simulated = simulate(name, _rows_of_a_class(found[1]), seed, repeat)
        return simulated.data, simulated
    if name != _SEGMENTS:
        return _loaded(name), None
    random = generator(seed, "seven segments", repeat)
    images, labels = make_seven_segment_digits(_rows_of_a_class(10), random_state=random)
    # The first quadrant's mass follows from the others'.
    return DataSet(name, np.delete(digit_features(images), 10, axis=1), labels), None


def _rows_of_a_class(n_classes: int) -> int:
    return max(ROWS_PER_CLASS) + -(-_MOST_TEST_ROWS // max(n_classes, 1))


@lru_cache(maxsize=4)
def _loaded(name: str) -> DataSet:
    return load_data(name)


def _contender(name: str, simulated: Simulation | None, seed: int) -> Contender:
    """Return a classifier by name, whose folds and starts come from a seed that all have in common.

    Otherwise part of the difference between shared and own kernels would be that of their folds.
    """
    makers: dict[str, Callable[[], object]] = {
        OURS: lambda: AutomaticClassifier(random_state=seed, n_jobs=1),
        OWN: lambda: AutomaticClassifier(shared=False, random_state=seed, n_jobs=1),
        OURS_BY_PARTS: lambda: PartsClassifier(part_features("parts"), random_state=seed),
        OWN_BY_PARTS: lambda: PartsClassifier(part_features("parts"), shared=False, random_state=seed),
    }
    if simulated is not None:
        makers[TRUE] = lambda: TrueDensities(simulated.pools)
    if name in makers:
        return Contender(name, True, lambda _: makers[name](), scaled=False)
    if name == SEPARATE:
        return Contender(name, True, lambda _: _separate(seed))
    return contenders([name])[0]


def _separate(seed: int) -> SeparateMixtures:
    """Return a mixture for each class, with a third of the field's choices: time grows with the classes."""
    return SeparateMixtures(max_components=3, regularisations=(0.02, 0.3), random_state=seed)
