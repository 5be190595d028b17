"""Comparison of classifiers on repeated splits of data sets: outcomes, summaries, tables and claims."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
import sklearn
from scipy.stats import rankdata
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

from skmix.engine.model import FloatArray, IntArray
from skmix.estimators import SharedKernelClassifierCV
from skmix.experiments import harness
from skmix.experiments.field.classifiers import (
    FIELD,
    FOREST,
    OURS,
    SUPPORT_VECTORS,
    Contender,
    count_parameters,
    in_order,
)
from skmix.experiments.field.data import DataSet
from skmix.experiments.harness import Claim, Table, plain_table
from skmix.metrics import calibration_error

Measure = Literal["error", "log_loss", "calibration_error", "fit_seconds", "predict_seconds", "n_parameters"]

TITLES: dict[Measure, str] = {
    "error": "Test error in per cent, with its standard error",
    "log_loss": "Log-loss",
    "calibration_error": "Expected calibration error",
    "fit_seconds": "Seconds to fit, choices included (processor time, one thread)",
    "predict_seconds": "Seconds to predict the test rows",
    "n_parameters": "Numbers that the fitted classifier stores",
}
_LARGEST_SEED = 2**31 - 1
_MOST_TIMES_THE_SVM = 10.0


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

    @property
    def rows_per_class(self) -> int:
        """Training rows of each class, where all classes have the same number."""
        return self.n_train // self.n_classes

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the outcome of `to_dict`."""
        return cls(**values)


def run_outcomes(
    cells: Sequence[harness.Cell],
    work: harness.Work,
    shared: Any,
    store: harness.Store,
    n_jobs: int,
    progress: Callable[[Outcome], None] | None,
) -> list[Outcome]:
    """Run the cells that the store lacks, one outcome at a time, and return the outcomes of all cells."""

    def report(records: list[dict[str, Any]]) -> None:
        if progress is not None:
            progress(Outcome.from_dict(records[0]))

    harness.run_cells(cells, work, shared, store, n_jobs=n_jobs, progress=report)
    return [
        Outcome.from_dict(record)
        for cell in cells
        for number, record in store.get(cell.settings).items()
        if number < cell.n_replicates
    ]


def settings_of(experiment: str, data: DataSet, contender: Contender, **others: Any) -> dict[str, Any]:
    """Return all settings of a cell, for its key: the data and the classifier's parameters in full."""
    with sklearn.config_context(print_changed_only=False):
        model = contender.pipeline(0, data.has_gaps).__repr__(N_CHAR_MAX=1_000_000)
    return {
        "experiment": experiment,
        "library": harness.library(__file__),
        "scikit-learn": sklearn.__version__,
        "data": {"name": data.name, "digest": data.digest()},
        "classifier": {"name": contender.name, "model": model},
        **others,
    }


def split(data: DataSet, repeat: int, settings: Settings) -> tuple[IntArray, IntArray]:
    """Return training and test rows, hashed from the seed, the name of the data set and the repeat.

    Splits are stratified and the same for all classifiers. A class of very few rows may be on one side only.
    """
    random = harness.generator(settings.seed, "split", data.name, repeat)
    n_classes = len(np.unique(data.y))
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
    own_seed = int(harness.generator(seed, contender.name, data.name, repeat).randint(_LARGEST_SEED))
    model = contender.pipeline(own_seed, data.has_gaps)
    shares = np.bincount(codes[training], minlength=len(classes)) / len(training)
    probabilities = np.tile(shares, (len(held), 1))
    seconds, n_parameters, failure, chosen = [0.0, 0.0], 0, "", ""
    with warnings.catch_warnings(), threadpool_limits(1):
        # Ignore the classifiers' warnings: any problem shows in the results.
        warnings.simplefilter("ignore")
        try:
            begun = time.process_time()
            model.fit(data.X[training], codes[training])
            seconds[0] = time.process_time() - begun
            found = np.zeros_like(probabilities)
            # A classifier only has the classes of its training rows.
            found[:, model.classes_] = model.predict_proba(data.X[held])
            seconds[1] = time.process_time() - begun - seconds[0]
            if not np.isfinite(found).all():
                raise ValueError("probabilities that are not finite")
            probabilities, n_parameters, chosen = found, count_parameters(model), _choice(model[-1])
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            failure = f"{type(error).__name__}: {error}"
        loss = float(log_loss(codes[held], probabilities, labels=np.arange(len(classes))))
    return Outcome(
        data=data.name,
        classifier=contender.name,
        repeat=repeat,
        n_classes=len(classes),
        n_train=len(training),
        n_test=len(held),
        error=float(np.mean(probabilities.argmax(axis=1) != codes[held])),
        log_loss=loss,
        calibration_error=calibration_error(probabilities, codes[held]),
        fit_seconds=seconds[0],
        predict_seconds=seconds[1],
        n_parameters=n_parameters,
        failure=failure,
        settings=chosen,
    )


def run_comparison(
    data: Sequence[DataSet],
    field: Sequence[Contender],
    settings: Settings,
    store: harness.Store,
    progress: Callable[[Outcome], None] | None = None,
    *,
    n_jobs: int = 1,
) -> list[Outcome]:
    """Run all cells that the store lacks, and return all outcomes.

    Parameters
    ----------
    data : sequence of DataSet
        The data sets.
    field : sequence of Contender
        The classifiers.
    settings : Settings
        Repeats, share of test rows and seed.
    store : Store
        Where results are stored.
    progress : callable, default=None
        Called with each new outcome.
    n_jobs : int, default=1
        Number of processes.

    Returns
    -------
    list of Outcome
        Of all cells, by data set, repeat and classifier.
    """
    names = [each.name for each in data]
    if len(set(names)) < len(names):
        raise ValueError(f"data sets need different names, got {', '.join(names)}.")
    cells = [
        harness.Cell(
            settings_of("comparison", each, contender, test_share=settings.test_share, seed=settings.seed),
            (place, contender),
            settings.n_repeats,
        )
        for place, each in enumerate(data)
        for contender in field
    ]
    outcomes = run_outcomes(cells, _work, (data, settings), store, n_jobs, progress)
    return sorted(outcomes, key=lambda each: (names.index(each.data), each.repeat))


def _work(
    shared: tuple[Sequence[DataSet], Settings], task: tuple[int, Contender], repeats: Sequence[int]
) -> list[dict[str, Any]]:
    (data, settings), (place, contender) = shared, task
    return [run_cell(data[place], contender, repeat, settings).to_dict() for repeat in repeats]


def _choice(model: Any) -> str:
    """Return what a search chose, in words."""
    if not isinstance(model, SharedKernelClassifierCV):
        return ""
    chosen = model.best_params_
    tuned = "EM" if chosen["trade_off"] is None else f"tuned with {chosen['trade_off']:g}"
    return (
        f"{chosen['reduction']}, {chosen['covariance_type']}, prior {chosen['prior_rows']:g} rows per "
        f"feature, {chosen['n_kernels']} kernels, {tuned}, temperature {model.classifier_.temperature_:.2f}"
    )


@dataclass(frozen=True)
class Summary:
    """A classifier on a data set, over all splits."""

    data: str
    classifier: str
    n_repeats: int
    values: dict[Measure, float]  # mean of each measure
    standard_errors: dict[Measure, float]  # of the means, for splits that overlap; NaN for one split
    n_failed: int  # splits on which it failed


def summarise(outcomes: Iterable[Outcome]) -> list[Summary]:
    """Return a summary of each classifier on each data set, in the order of the outcomes."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.data, outcome.classifier), []).append(outcome)
    summaries = []
    for (data, classifier), own in groups.items():
        ratio = own[0].n_test / own[0].n_train
        columns = {measure: np.array([getattr(each, measure) for each in own], float) for measure in TITLES}
        means = {measure: float(column.mean()) for measure, column in columns.items()}
        errors = {measure: corrected_standard_error(column, ratio) for measure, column in columns.items()}
        n_failed = sum(bool(each.failure) for each in own)
        summaries.append(Summary(data, classifier, len(own), means, errors, n_failed))
    return summaries


def mean_ranks(summaries: Sequence[Summary], measure: Measure = "error") -> dict[str, float]:
    """Return the mean rank of each classifier, 1 for the smallest value, over the data sets that all have.

    Equal values share the mean of their ranks.
    """
    cells = {(each.data, each.classifier): each.values[measure] for each in summaries}
    names = _names(summaries)
    sets = [data for data in _sets(summaries) if all((data, name) in cells for name in names)]
    if not sets:
        raise ValueError("no data set has outcomes of all classifiers, so there are no ranks.")
    # To six digits: means of the same outcomes in another order may differ in the last bits.
    values = np.array([[float(f"{cells[data, name]:.6g}") for name in names] for data in sets])
    return dict(zip(names, rankdata(values, axis=1).mean(axis=0).tolist(), strict=True))


def make_tables(outcomes: Iterable[Outcome]) -> list[Table]:
    """Return a table for each measure, with mean ranks where small is good, and one of failures if any."""
    summaries = summarise(outcomes)
    cells = {(each.data, each.classifier): each for each in summaries}
    names, sets = _names(summaries), _sets(summaries)
    tables = []
    for measure, title in TITLES.items():
        lines = [(data, *(_cell(cells.get((data, name)), measure) for name in names)) for data in sets]
        if measure in ("error", "log_loss", "calibration_error"):
            ranks = mean_ranks(summaries, measure)
            lines.append(("mean rank", *(f"{ranks[name]:.2f}" for name in names)))
        tables.append(plain_table(title, ("data", *names), lines, name=measure))
    failures = [
        (each.data, each.classifier, f"{each.n_failed} of {each.n_repeats}")
        for each in summaries
        if each.n_failed
    ]
    if failures:
        tables.append(plain_table("Failures", ("data", "classifier", "splits"), failures, name="failures"))
    return tables


def check_claims(outcomes: Iterable[Outcome]) -> list[Claim]:
    """Check the claims about shared kernels compared with other classifiers, where there are outcomes."""
    summaries = summarise(outcomes)
    names, sets = _names(summaries), _sets(summaries)
    if OURS not in names:
        return []
    cells = {(each.data, each.classifier): each.values for each in summaries}
    checked = []
    generative = [each.name for each in FIELD if each.generative and each.name in names]
    if len(generative) > 1:
        ranks = mean_ranks(summaries)
        ahead = all(ranks[OURS] < ranks[name] for name in generative if name != OURS)
        shown = ", ".join(f"{name} {ranks[name]:.2f}" for name in generative)
        claim = "mean rank by error better than every other generative classifier"
        checked.append(Claim(claim, "lowest", shown, ahead))
    for other in (SUPPORT_VECTORS, FOREST):
        both = [data for data in sets if (data, other) in cells and (data, OURS) in cells]
        if both:
            won = sum(cells[data, OURS]["log_loss"] < cells[data, other]["log_loss"] for data in both)
            claim = f"log-loss better than that of {other}"
            target = "on at least half of the data sets"
            checked.append(Claim(claim, target, f"{won} of {len(both)}", 2 * won >= len(both)))
    times = {
        data: cells[data, OURS]["fit_seconds"] / max(cells[data, SUPPORT_VECTORS]["fit_seconds"], 1e-9)
        for data in sets
        if (data, SUPPORT_VECTORS) in cells and (data, OURS) in cells
    }
    if times:
        data, worst = max(times.items(), key=lambda pair: pair[1])
        claim, target = f"time to fit, over that of {SUPPORT_VECTORS}", f"at most {_MOST_TIMES_THE_SVM:g}"
        checked.append(Claim(claim, target, f"{worst:.1f} on {data}", worst <= _MOST_TIMES_THE_SVM))
    n_failed = sum(each.n_failed for each in summaries if each.classifier == OURS)
    checked.append(Claim("no failures", "0 failed", f"{n_failed} failed", n_failed == 0))
    return checked


def corrected_standard_error(values: FloatArray, test_over_train: float) -> float:
    """Return the standard error of a mean over repeated random splits of the same rows.

    Splits overlap, so their results, `values` (r,), vary less than those of new data would. Nadeau and Bengio
    (2003) replace 1/r by 1/r + n_test/n_train. NaN for a single split.
    """
    if len(values) < 2:
        return float("nan")
    return float(np.sqrt(np.var(values, ddof=1) * (1.0 / len(values) + test_over_train)))


def _cell(summary: Summary | None, measure: Measure) -> str:
    if summary is None:
        return ""
    value, error = summary.values[measure], summary.standard_errors[measure]
    if measure == "error":
        return f"{100 * value:.1f}" if np.isnan(error) else f"{100 * value:.1f} ± {100 * error:.1f}"
    return f"{value:.0f}" if measure == "n_parameters" else f"{value:.3f}"


def _names(summaries: Sequence[Summary]) -> list[str]:
    return in_order([each.classifier for each in summaries], [each.name for each in FIELD])


def _sets(summaries: Sequence[Summary]) -> list[str]:
    return list(dict.fromkeys(each.data for each in summaries))
