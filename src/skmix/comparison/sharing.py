"""Where sharing pays: error against rows for each class, for few classes and many.

Shared kernels, the same model without sharing, a scikit-learn mixture for each class, and quadratic
discriminant analysis learn from the same few rows of each class and are tested on the same rows. Only the
second tells what sharing is worth: the others differ from the first in priors and choices too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from skmix.comparison.automatic import AutomaticClassifier
from skmix.comparison.data import load_data
from skmix.comparison.field import OURS, Contender, contenders
from skmix.comparison.records import DataSet, IntArray, Outcome, Settings
from skmix.comparison.runner import cell_digest, measure
from skmix.comparison.store import OutcomeStore
from skmix.comparison.tables import TextTable
from skmix.datasets import make_shared_kernel_data
from skmix.study.seeds import generator

ROWS_PER_CLASS = (2, 5, 10, 20, 50, 100)
"""Training rows of each class."""
OWN_KERNELS = Contender(
    "own kernels",
    True,
    lambda seed: AutomaticClassifier(shared=False, random_state=seed, n_jobs=1),
    scaled=False,
)
"""Ours in all but sharing: the same priors, choices and calibration, but kernels of one class each."""
RIVALS = (*contenders([OURS]), OWN_KERNELS, *contenders(["separate mixtures", "QDA"]))
"""The classifiers compared."""

_MOST_TEST_ROWS = 2000
# Of the simulated classes: features, shared kernels, and kernels that a class uses.
_N_FEATURES, _N_SHARED, _N_USED = 8, 25, 3
_ROWS_OF_A_CLASS = 130
_N_MANY = 100


@dataclass(frozen=True)
class Learning:
    """A point of a learning curve: an outcome, and the training rows of each class it came from."""

    data: str
    classifier: str
    rows_per_class: int
    outcome: Outcome


def many_classes(n_classes: int = _N_MANY, *, seed: int = 0) -> DataSet:
    """Return simulated rows of many classes over shared kernels.

    Each class draws on 3 of 25 kernels in 8 dimensions, with weights of its own; classes that use the same
    kernels overlap.

    Parameters
    ----------
    n_classes : int, default=100
        Number of classes, of 130 rows each.
    seed : int, default=0
        Of kernels, weights and rows.

    Returns
    -------
    DataSet
        The rows.
    """
    if n_classes < 2:
        raise ValueError(f"n_classes must be at least 2, got {n_classes}.")
    random = generator(seed, "many classes", n_classes)
    means = 3.0 * random.standard_normal((_N_SHARED, _N_FEATURES))
    roots = random.standard_normal((_N_SHARED, _N_FEATURES, 2 * _N_FEATURES))
    covariances = roots @ roots.transpose(0, 2, 1) / (2 * _N_FEATURES)
    weights = np.zeros((_N_SHARED, n_classes))
    for c in range(n_classes):
        used = random.permutation(_N_SHARED)[:_N_USED]
        weights[used, c] = random.dirichlet(np.ones(_N_USED))
    X, y = make_shared_kernel_data(means, covariances, weights, _ROWS_OF_A_CLASS, random_state=random)
    return DataSet(f"{n_classes} simulated classes", X, y)


def default_data() -> list[DataSet]:
    """Return the data sets of the study that need no file: seven-segment digits and simulated classes."""
    return [load_data("seven_segment"), many_classes()]


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
    counts = np.bincount(codes)
    most = min(max(ROWS_PER_CLASS), int(0.8 * counts.min()))
    if n_each > most:
        return None
    return order[place < n_each], order[place >= most][:_MOST_TEST_ROWS]


def run_sharing(
    data: Sequence[DataSet],
    store: OutcomeStore,
    *,
    rows_per_class: Sequence[int] = ROWS_PER_CLASS,
    n_repeats: int = 3,
    seed: int = 0,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Learning]:
    """Run the study, or what the store lacks of it.

    Parameters
    ----------
    data : sequence of DataSet
        Data sets, see `default_data`.
    store : OutcomeStore
        Where finished cells are kept.
    rows_per_class : sequence of int, default=(2, 5, 10, 20, 50, 100)
        Training rows of each class; numbers that a data set cannot give are left out for it.
    n_repeats : int, default=3
        Random draws of the rows.
    seed : int, default=0
        From which all draws are hashed.
    progress : callable, default=None
        Called with each outcome, found or made.

    Returns
    -------
    list of Learning
        All points.
    """
    wrong = [n for n in rows_per_class if n < 1]
    if wrong or n_repeats < 1:
        raise ValueError(f"rows of a class and repeats must be at least 1, got {(wrong or [n_repeats])[0]}.")
    points = []
    for each in data:
        for repeat in range(n_repeats):
            for n_each in rows_per_class:
                rows = few_rows(each, n_each, repeat, seed)
                if rows is None:
                    continue
                digest = cell_digest(each, Settings(seed=seed), f"sharing {n_each}")
                for contender in RIVALS:
                    key = (each.name, contender.name, repeat, digest)
                    if key not in store:
                        store.keep(measure(each, contender, repeat, digest, *rows, seed))
                    outcome = store.get(key)
                    points.append(Learning(each.name, contender.name, n_each, outcome))
                    if progress is not None:
                        progress(outcome)
    return points


def sharing_table(points: Sequence[Learning]) -> TextTable:
    """Return mean errors in per cent: a line for each data set and number of rows, a column a classifier."""
    names = [each.name for each in RIVALS if any(point.classifier == each.name for point in points)]
    cells: dict[tuple[str, int], dict[str, list[Outcome]]] = {}
    for point in points:
        own = cells.setdefault((point.data, point.rows_per_class), {})
        own.setdefault(point.classifier, []).append(point.outcome)
    lines = tuple(
        (data, str(rows), *(_mean(own[name]) for name in names)) for (data, rows), own in cells.items()
    )
    title = "Test error in per cent against the training rows of each class"
    return TextTable(title, ("data", "rows", *names), lines)


def _mean(outcomes: Sequence[Outcome]) -> str:
    """Return a mean error in per cent; what failed has none."""
    if any(outcome.failure for outcome in outcomes):
        return "failed"
    return f"{np.mean([100.0 * outcome.error for outcome in outcomes]):.1f}"
