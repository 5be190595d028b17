"""Where sharing pays: error against training rows of each class, for few classes and many.

Shared kernels, the same model without sharing, a scikit-learn mixture for each class, and quadratic
discriminant analysis learn from the same few rows of each class and are tested on the same rows. Only the
second shows the gain from sharing: the others also differ from the first in priors and hyperparameters. If
features fall into parts, shared and own kernels are also fitted to each part; for simulated classes, the true
densities give the lowest possible error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from recording import Table, plain_table, with_error
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis

from skmix import SharedKernelClassifierCV
from skmix.paper import generator

from .classifiers import OURS, Contender, SeparateMixtures, in_order
from .data import (
    KINDS,
    PARTS,
    SEGMENTS,
    DataSet,
    FloatArray,
    IntArray,
    Simulation,
    TrueDensities,
    kind_and_classes,
    load_data,
    seven_segments,
    simulate,
)
from .running import Outcome, measure, run_outcomes, settings_of
from .store import Cell, Record, Store

LearningMeasure = Literal["error", "log_loss"]

ROWS_PER_CLASS = (2, 5, 10, 20, 50, 100)
"""Training rows of each class."""
SHARING_DATA = (SEGMENTS, "pool-10", "pool-26", "pool-100", "parts-100", "apart-100")
"""Data that need no file: digits, and simulated classes (see `simulate`)."""
OWN, SEPARATE, QUADRATIC = "own kernels", "separate mixtures", "QDA"
OURS_BY_PARTS, OWN_BY_PARTS = f"{OURS} by parts", f"{OWN} by parts"
TRUE = "true densities"
PAIRS = ((OURS, OWN), (OURS_BY_PARTS, OWN_BY_PARTS))
"""Classifiers that differ in sharing only: with it, and without."""
CLASSIFIERS = (OURS, OWN, QUADRATIC, SEPARATE, OURS_BY_PARTS, OWN_BY_PARTS, TRUE)
"""All classifiers, in the order of tables and pictures."""

_TITLES: dict[LearningMeasure, str] = {
    "error": "Test error in per cent against the training rows of each class",
    "log_loss": "Log-loss against the training rows of each class",
}
_MOST_TEST_ROWS = 2000
# Data from a file use at most this share of their smallest class for training.
_TRAINING_SHARE = 0.8
_LARGEST_SEED = 2**31 - 1
# A third of the choices of the comparison: their time grows with the classes.
_FEWER_CHOICES: dict[str, Any] = {"max_components": 3, "regularisations": (0.02, 0.3)}

_load = lru_cache(maxsize=4)(load_data)


def draw(name: str, repeat: int, seed: int) -> DataSet:
    """Return the rows of a draw: new ones if they are simulated, otherwise always the same.

    `name` is one of `SHARING_DATA`, or what `load_data` takes. There are enough rows for the largest training
    set and 2000 to test on, if the data have as many.
    """
    return _drawn(name, repeat, seed).data


def few_rows(data: DataSet, n_each: int, repeat: int, seed: int) -> tuple[IntArray, IntArray] | None:
    """Return `n_each` training rows of each class, and test rows; None if a class has too few rows.

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
    most = max(ROWS_PER_CLASS) if fewest > max(ROWS_PER_CLASS) else int(_TRAINING_SHARE * fewest)
    if n_each > most:
        return None
    return order[place < n_each], order[place >= most][:_MOST_TEST_ROWS]


def run_sharing(
    data: Sequence[str],
    store: Store,
    *,
    rows_per_class: Sequence[int] = ROWS_PER_CLASS,
    n_draws: int = 3,
    seed: int = 0,
    n_processes: int = 1,
    progress: Callable[[Outcome], None] | None = None,
) -> list[Outcome]:
    """Run all cells that the store lacks, and return all outcomes.
    `data` are names or files, see `draw`. Numbers of rows above what a data set has are left out for it.
    `progress` is called with each new outcome. Outcomes come by data, draws, rows and classifiers.
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
    # The longest first, so that the processes end at about the same time.
    longest = sorted(cells, key=lambda cell: -cell.settings["rows_per_class"]) if n_processes > 1 else cells
    run_outcomes(longest, _work, store, n_processes, progress)
    return [Outcome.from_dict(store.get(cell.settings)[0]) for cell in cells]


def _cells(name: str, rows_per_class: Iterable[int], repeat: int, seed: int) -> Iterator[Cell]:
    """Yield the cells of one draw."""
    drawn = _drawn(name, repeat, seed)
    for n_each in rows_per_class:
        if few_rows(drawn.data, n_each, repeat, seed) is None:
            continue
        own = {"rows_per_class": n_each, "repeat": repeat, "seed": seed}
        for classifier, contender in _contenders(name, drawn, 0).items():
            settings = settings_of("sharing", drawn.data, contender, **own)
            yield Cell(settings, (name, classifier, n_each, repeat, seed), 1)


def _work(name: str, classifier: str, n_each: int, draw: int, seed: int, repeat: int) -> Record:
    """Return the outcome of one classifier that learns from one draw; a cell is never repeated."""
    drawn = _drawn(name, draw, seed)
    rows = few_rows(drawn.data, n_each, draw, seed)
    assert rows is not None
    common_seed = int(generator(seed, "classifiers", drawn.data.name, draw).randint(_LARGEST_SEED))
    contender = _contenders(name, drawn, common_seed)[classifier]
    return measure(drawn.data, contender, draw, *rows, seed).to_dict()


@lru_cache(maxsize=16)
def _drawn(name: str, repeat: int, seed: int) -> Simulation:
    """Return a draw, with the densities it came from if they are known."""
    simulated = kind_and_classes(name)
    n_classes = simulated[1] if simulated else 10
    n_each = max(ROWS_PER_CLASS) + -(-_MOST_TEST_ROWS // max(n_classes, 1))
    if simulated:
        return simulate(name, n_each, seed, repeat)
    if name == SEGMENTS:
        return Simulation(seven_segments(n_each, generator(seed, "seven segments", repeat)), ())
    return Simulation(_load(name), ())


def _contenders(name: str, drawn: Simulation, seed: int) -> dict[str, Contender]:
    """Return the classifiers to compare on data of that name, with folds and starts from the same seed.

    Otherwise the difference between shared and own kernels would partly be that of their folds.
    """
    common: dict[str, Any] = {"n_members": 1, "random_state": seed, "n_jobs": 1}
    models: dict[str, Any] = {
        OURS: SharedKernelClassifierCV(kernels="shared", **common),
        OWN: SharedKernelClassifierCV(kernels="own", **common),
    }
    if name.startswith("parts-") and drawn.pools:
        parts = {"feature_sets": PARTS, **common}
        models[OURS_BY_PARTS] = SharedKernelClassifierCV(kernels="shared", **parts)
        models[OWN_BY_PARTS] = SharedKernelClassifierCV(kernels="own", **parts)
    if drawn.pools:
        models[TRUE] = TrueDensities(drawn.pools)
    found = {key: _contender(key, model) for key, model in models.items()}
    # Shrunken covariances: rows are too few for cross-validation.
    quadratic = QuadraticDiscriminantAnalysis(solver="eigen", shrinkage="auto")
    separate = SeparateMixtures(random_state=seed, **_FEWER_CHOICES)
    for key, model in ((QUADRATIC, quadratic), (SEPARATE, separate)):
        found[key] = _contender(key, model, scaled=True)
    return {key: found[key] for key in CLASSIFIERS if key in found}


def _contender(name: str, model: Any, scaled: bool = False) -> Contender:
    return Contender(name, True, lambda _: model, scaled=scaled, ours=True)


def in_study_order(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return outcomes by data, rows, classifiers and draws; data that are not simulated come first."""

    def place(outcome: Outcome) -> tuple[int, int, str, int, int, int]:
        kind, _ = kind_and_classes(outcome.data) or ("", 0)
        number, rank = ("", *KINDS).index(kind), (*CLASSIFIERS, outcome.classifier).index(outcome.classifier)
        return number, outcome.n_classes, outcome.data, outcome.n_train, rank, outcome.repeat

    return sorted(outcomes, key=place)


def sharing_tables(outcomes: Sequence[Outcome]) -> list[Table]:
    """Return means of error and log-loss with their standard errors, and the gain from sharing."""
    return [sharing_table(outcomes), sharing_table(outcomes, "log_loss"), gain_table(outcomes)]


def sharing_table(outcomes: Sequence[Outcome], measure: LearningMeasure = "error") -> Table:
    """Return means over the draws: a row for each data set and number of rows, a column a classifier."""
    names = in_order((each.classifier for each in outcomes), CLASSIFIERS)
    lines = [
        (data, str(rows), *(_mean(own.get(name, []), measure) for name in names))
        for (data, rows), own in _groups(outcomes).items()
    ]
    headings = ("data", "rows", *names)
    return plain_table(_TITLES[measure], headings, lines, measure)


def gain_table(outcomes: Sequence[Outcome]) -> Table:
    """Return own kernels minus shared kernels, draw by draw: above zero, sharing pays."""
    lines = []
    for (data, rows), own in _groups(outcomes).items():
        for shared, apart in PAIRS:
            errors = 100.0 * gain(own.get(shared, []), own.get(apart, []), "error")
            losses = gain(own.get(shared, []), own.get(apart, []), "log_loss")
            if len(errors):
                won = f"{np.count_nonzero(errors > 0)} : {np.count_nonzero(errors < 0)}"
                values = (with_error(errors, 1), won, with_error(losses, 3))
                lines.append((data, str(rows), shared, str(len(errors)), *values))
    headings = ("data", "rows", "of", "draws", "error, points", "draws won : lost", "log-loss")
    return plain_table("Gain from sharing: own kernels minus shared ones", headings, lines, name="gain")


def gain(
    shared: Sequence[Outcome], apart: Sequence[Outcome], measure: LearningMeasure = "error"
) -> FloatArray:
    """Return own kernels minus shared kernels in each draw in which neither failed, shape (draws,)."""
    values = {each.repeat: getattr(each, measure) for each in shared if not each.failure}
    found = [each for each in apart if each.repeat in values and not each.failure]
    return np.array([getattr(each, measure) - values[each.repeat] for each in found], float)


def _groups(outcomes: Sequence[Outcome]) -> dict[tuple[str, int], dict[str, list[Outcome]]]:
    """Return outcomes by data set and rows, then by classifier; data sets in the order of the outcomes."""
    sets = list(dict.fromkeys(each.data for each in outcomes))
    groups: dict[tuple[str, int], dict[str, list[Outcome]]] = {}
    for each in sorted(outcomes, key=lambda each: (sets.index(each.data), each.rows_per_class)):
        own = groups.setdefault((each.data, each.rows_per_class), {})
        own.setdefault(each.classifier, []).append(each)
    return groups


def _mean(outcomes: Sequence[Outcome], measure: LearningMeasure) -> str:
    """Return a mean with its standard error; a classifier that failed in some draw has none."""
    n_failed = sum(bool(outcome.failure) for outcome in outcomes)
    if n_failed or not outcomes:
        return f"{n_failed} of {len(outcomes)} failed" if outcomes else ""
    values = np.array([getattr(outcome, measure) for outcome in outcomes])
    return with_error(100.0 * values, 1) if measure == "error" else with_error(values, 3)
