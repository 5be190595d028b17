"""The cells of a comparison, one after the other: a classifier on a split of a data set."""

from __future__ import annotations

import hashlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import sklearn
from sklearn.model_selection import StratifiedShuffleSplit
from threadpoolctl import threadpool_limits

import skmix
from skmix.experiments.field.automatic import AutomaticClassifier
from skmix.experiments.field.counting import count_parameters
from skmix.experiments.field.field import Contender
from skmix.experiments.field.measures import log_loss
from skmix.experiments.field.records import DataSet, IntArray, Outcome, Settings
from skmix.experiments.field.store import OutcomeStore
from skmix.experiments.harness import generator
from skmix.metrics import calibration_error

Progress = Callable[[Outcome], None]
_LARGEST_SEED = 2**31 - 1


def cell_digest(data: DataSet, settings: Settings, use: str = "") -> str:
    """Return a hash of what decides an outcome, besides classifier and repeat; `use` names other splits."""
    # Another version may be another classifier under the same name.
    versions = f"{skmix.__version__} {sklearn.__version__}"
    text = f"{data.digest()} {settings.test_share!r} {settings.seed} {versions} {use}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def split(data: DataSet, repeat: int, settings: Settings) -> tuple[IntArray, IntArray]:
    """Return training and test rows, hashed from the seed, the data set's name and the repeat.

    Classes are on either side in proportion, so that one of very few rows may be on one side only; those of a
    single row are refused. All classifiers see the same split.
    """
    random = generator(settings.seed, "split", data.name, repeat)
    n_classes = len(np.unique(data.y))
    n_test = max(round(settings.test_share * len(data.y)), n_classes)
    if len(data.y) - n_test < n_classes:
        raise ValueError(
            f"{data.name} has {len(data.y)} rows of {n_classes} classes: too few to test on {n_test}."
        )
    ways = StratifiedShuffleSplit(1, test_size=n_test, random_state=random)
    training, held = next(ways.split(data.X, data.y))
    return training, held


def run_cell(data: DataSet, contender: Contender, repeat: int, settings: Settings) -> Outcome:
    """Fit a classifier to one split and measure it.

    Parameters
    ----------
    data : DataSet
        The data set.
    contender : Contender
        The classifier.
    repeat : int
        Number of the split.
    settings : Settings
        Seed and share of test rows.

    Returns
    -------
    Outcome
        The measures. Seconds are processor time on one thread, which other programs hardly disturb.
    """
    training, held = split(data, repeat, settings)
    return measure(data, contender, repeat, cell_digest(data, settings), training, held, settings.seed)


def measure(
    data: DataSet,
    contender: Contender,
    repeat: int,
    digest: str,
    training: IntArray,
    held: IntArray,
    seed: int,
) -> Outcome:
    """Fit a classifier to the training rows of a data set and measure it on those held out."""
    classes, codes = np.unique(data.y, return_inverse=True)
    own_seed = int(generator(seed, contender.name, data.name, repeat).randint(_LARGEST_SEED))
    model = contender.pipeline(own_seed, data.has_gaps)
    shares = np.bincount(codes[training], minlength=len(classes)) / len(training)
    probabilities = np.tile(shares, (len(held), 1))
    failure, chosen, fit_seconds, predict_seconds, n_parameters = "", "", 0.0, 0.0, 0
    with warnings.catch_warnings(), threadpool_limits(1):
        # What classifiers complain about on the way shows in their numbers.
        warnings.simplefilter("ignore")
        try:
            begun = time.process_time()
            model.fit(data.X[training], codes[training])
            fit_seconds = time.process_time() - begun
            begun = time.process_time()
            found = np.zeros_like(probabilities)
            # A classifier knows the classes of its training rows only.
            found[:, model.classes_] = model.predict_proba(data.X[held])
            predict_seconds = time.process_time() - begun
            if not np.isfinite(found).all():
                raise ValueError("probabilities that are not finite")
            probabilities, n_parameters = found, count_parameters(model)
            chosen = _choice(model)
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            failure = f"{type(error).__name__}: {error}"
    return Outcome(
        data=data.name,
        classifier=contender.name,
        repeat=repeat,
        digest=digest,
        n_train=len(training),
        n_test=len(held),
        error=float(np.mean(probabilities.argmax(axis=1) != codes[held])),
        log_loss=log_loss(probabilities, codes[held]),
        calibration_error=calibration_error(probabilities, codes[held]),
        fit_seconds=fit_seconds,
        predict_seconds=predict_seconds,
        n_parameters=n_parameters,
        failure=failure,
        settings=chosen,
    )


def run_comparison(
    data: Sequence[DataSet],
    field: Sequence[Contender],
    settings: Settings,
    store: OutcomeStore,
    progress: Progress | None = None,
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
    store : OutcomeStore
        Where finished cells are kept.
    progress : callable, default=None
        Called with each outcome, found or made.

    Returns
    -------
    list of Outcome
        Of all cells, data set by data set.
    """
    outcomes = []
    for each, contender, repeat, key in cells(data, field, settings):
        if key not in store:
            store.keep(run_cell(each, contender, repeat, settings))
        outcomes.append(store.get(key))
        if progress is not None:
            progress(outcomes[-1])
    return outcomes


def cells(
    data: Sequence[DataSet], field: Sequence[Contender], settings: Settings
) -> Iterator[tuple[DataSet, Contender, int, tuple[str, str, int, str]]]:
    """Yield data set, classifier, repeat and key of every cell; whole repeats come before the next."""
    names = [each.name for each in data]
    if len(set(names)) < len(names):
        raise ValueError(f"data sets need different names, got {', '.join(names)}.")
    for each in data:
        digest = cell_digest(each, settings)
        for repeat in range(settings.n_repeats):
            for contender in field:
                yield each, contender, repeat, (each.name, contender.name, repeat, digest)


def _choice(model: object) -> str:
    """Return what an automatic classifier chose, in words."""
    last = model[-1] if hasattr(model, "__getitem__") else model
    if not isinstance(last, AutomaticClassifier):
        return ""
    chosen = last.choice_
    tuned = "EM" if chosen.trade_off is None else f"tuned with {chosen.trade_off:g}"
    return (
        f"{chosen.reduction}, {chosen.covariance_type}, prior {chosen.prior_rows:g} rows a feature, "
        f"{chosen.kernels_per_class:g} kernels a class, {tuned}, temperature {chosen.temperature:.2f}"
    )
