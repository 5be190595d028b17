"""Discriminative tuning of a fitted classifier, after EM has learnt a density of each class."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state

from ..engine.model import IntArray
from ..engine.refine.discriminative import Labelled, Tuned, TuningOptions, tune
from ..engine.sources import open_source
from ..engine.sources.gaps import has_gaps
from ._settings import check_count
from .decisions import threshold_of
from .rows import Training, check_rows, check_weights, code_labels
from .solving import OF_THE_POSTERIOR, fitted_options

# With up to this many rows L-BFGS uses all of them at once; with more, mini-batches learn faster.
_ALL_AT_ONCE = 10_000
_BATCH = 500
# From nearly the model that EM found to one that only separates classes.
_TRADE_OFFS = (1.0, 0.1, 0.01, 0.001, 0.0)
_TRADE_OFFS_OF_BATCHES = (0.001, 0.0)


def tune_classifier(
    classifier: Any,
    X: Any,
    y: Any,
    *,
    trade_off: Any,
    validation: Any,
    max_iter: Any,
    batch_size: Any,
    sample_weight: Any,
    random_state: Any,
) -> None:
    """Tune the model of a classifier; see `SharedKernelClassifier.tune`."""
    if len(classifier.models_) > 1:
        raise ValueError(
            f"tune works on one model of all features, but there are {len(classifier.models_)} feature "
            "groups."
        )
    rows, codes = _check_rows(classifier, X, y, "X")
    weights = check_weights(sample_weight, len(rows))
    weighted = Labelled(rows, codes, weights)
    if weights is not None:
        weighted = weighted.take(np.flatnonzero(weights))
    random = check_random_state(random_state)
    training, held_out = _split(classifier, weighted, validation, random)
    for name, count in (("batch_size", batch_size), ("max_iter", max_iter)):
        if count is not None:
            check_count(count, f"{name} must be")
    if batch_size is None and len(training.codes) > _ALL_AT_ONCE:
        batch_size = _BATCH
    size = None if batch_size is None or batch_size >= len(training.codes) else int(batch_size)
    model = classifier.models_[0]
    options = TuningOptions(
        fitted=replace(fitted_options(model), n_jobs=effective_n_jobs(classifier.n_jobs)),
        trade_offs=_trade_offs(trade_off, size is not None),
        max_iter=int(max_iter or (200 if size is None else 20)),
        batch_size=size,
    )
    found = tune(model._parameters, classifier.class_prior_, training, held_out, options, random)
    _store(classifier, found)
    if classifier.reject_below is not None:
        source = open_source(weighted.X, weighted.codes, weighted.weights)
        classifier.threshold_ = threshold_of(classifier, Training(source, classifier.classes_))


def _check_rows(classifier: Any, X: Any, y: Any, name: str) -> tuple[np.ndarray, IntArray]:
    """Return rows (n, M) and their classes (n,); refuse what tuning cannot use."""
    rows = check_rows(classifier, X, fitting=False)
    codes = code_labels(y, classifier.classes_, len(rows))
    if has_gaps(rows):
        raise ValueError(f"tune needs rows without missing values, but {name} has NaN: see `impute`.")
    impossible = np.flatnonzero(classifier.class_prior_[codes] == 0)
    if len(impossible):
        label = classifier.classes_.tolist()[codes[impossible[0]]]
        raise ValueError(
            f"{len(impossible)} rows of {name} have a label of class prior zero, such as {label!r}: "
            "no tuning makes them possible."
        )
    return rows, codes


def _split(
    classifier: Any, rows: Labelled, validation: Any, random: np.random.RandomState
) -> tuple[Labelled, Labelled | None]:
    """Return rows to tune to, and held-out rows."""
    if validation is None:
        return rows, None
    if isinstance(validation, (tuple, list)):
        if len(validation) != 2:
            raise ValueError(f"validation as a tuple is (X, y), got {len(validation)} entries.")
        return rows, Labelled(*_check_rows(classifier, validation[0], validation[1], "validation"))
    if not _is_number(validation) or not 0 < validation < 1:
        raise ValueError(
            f"validation must be a share between 0 and 1, a tuple (X, y) or None, got {validation!r}."
        )
    # A class with a single row has none to spare: it is tuned to.
    plentiful = np.bincount(rows.codes)[rows.codes] > 1
    some, few = np.flatnonzero(plentiful), np.flatnonzero(~plentiful)
    n_classes = len(np.unique(rows.codes[some]))
    n_held_out = max(int(np.ceil(validation * len(some))), n_classes)
    if not n_classes or len(some) - n_held_out < n_classes:
        raise ValueError(
            f"{len(rows.codes)} rows of {len(np.unique(rows.codes))} classes are too few to hold out "
            f"{validation:g} of them: give held-out rows as validation=(X, y)."
        )
    kept, held_out = train_test_split(
        some, test_size=n_held_out, stratify=rows.codes[some], random_state=random
    )
    return rows.take(np.sort(np.concatenate([kept, few]))), rows.take(np.sort(held_out))


def _store(classifier: Any, found: Tuned) -> None:
    """Store the outcome; the model is a copy, so that a failure later on leaves the old one."""
    model = copy(classifier.models_[0])
    if found.trade_off is not None:
        model._store_parameters(found.parameters)
        # The sums of a stream, or a posterior, belong to the kernels before tuning.
        for name in ("stream_", *OF_THE_POSTERIOR):
            vars(model).pop(name, None)
    classifier.models_ = [model]
    if found.after is not None:
        classifier.temperature_ = found.after.temperature
    classifier.tuned_ = {
        "trade_off": found.trade_off,
        "before": found.before and vars(found.before).copy(),
        "after": found.after and vars(found.after).copy(),
        "rounds": [{"trade_off": trade_off, **vars(scores)} for trade_off, scores in found.rounds],
    }


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _trade_offs(trade_off: Any, in_batches: bool) -> tuple[float, ...]:
    """Return the values of λ to go through."""
    if isinstance(trade_off, str):
        if trade_off != "auto":
            raise ValueError(f"trade_off must be a number, a list of them or 'auto', got {trade_off!r}.")
        return _TRADE_OFFS_OF_BATCHES if in_batches else _TRADE_OFFS
    several = trade_off if isinstance(trade_off, (Sequence, np.ndarray)) else [trade_off]
    if not len(several):
        raise ValueError("trade_off is an empty list.")
    for value in several:
        if not _is_number(value) or not 0 <= value < np.inf:
            raise ValueError(f"trade_off must be finite and not negative, got {value!r}.")
    return tuple(float(value) for value in several)
