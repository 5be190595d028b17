"""What both searches have in common: rows and settings to begin with, and a table of what was tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_n_features, check_is_fitted

from ...engine.covariances import COVARIANCE_TYPES
from ..io import ExportMixin, SavingMixin
from ..rows import check_gaps, check_rows, check_weights, number_labels, read_labels, weighted_rows
from ._rows import Rows

Params = dict[str, Any]


@dataclass
class Trial:
    """A candidate and its score, larger being better; `columns` are further columns of the table."""

    stage: str
    params: Params
    score: float = -np.inf
    split_scores: list[float] = field(default_factory=list)
    columns: dict[str, float] = field(default_factory=dict)
    models: list[Any] = field(default_factory=list)
    seconds: float = 0.0


class Trials:
    """What was tried, in order; each candidate once, and none after `time_limit` seconds.

    Attributes
    ----------
    best : Trial
        The best candidate so far, with its fitted models; those of the others are dropped.
    """

    def __init__(self, time_limit: float | None) -> None:
        self.list: list[Trial] = []
        self.best = Trial("", {})
        self.report: Callable[[str], None] = lambda message: None
        self._error: ValueError | None = None
        self._deadline = time.monotonic() + (np.inf if time_limit is None else time_limit)

    @property
    def time_is_up(self) -> bool:
        """Whether no further candidate is to be tried."""
        return time.monotonic() > self._deadline

    def add(self, stage: str, params: Params, evaluate: Callable[[Trial], None]) -> Trial | None:
        """Return the trial of a candidate whose score `evaluate` finds; None when time is up."""
        for trial in self.list:
            if trial.params == params:
                return trial
        if self.best.params and self.time_is_up:
            return None
        trial, started = Trial(stage, params), time.monotonic()
        try:
            evaluate(trial)
        except ValueError as error:
            self._error = error
        trial.seconds = time.monotonic() - started
        self.list.append(trial)
        if trial.score > self.best.score or not self.best.params:
            self.best.models, self.best = [], trial
        else:
            trial.models = []
        self.report(f"{stage}: best score {self.best.score:.6g}")
        return trial

    def check(self) -> None:
        """Raise when no candidate could be fitted."""
        if self._error is not None and not np.isfinite(self.best.score):
            raise ValueError(f"No candidate could be fitted: {self._error}")

    def table(self) -> dict[str, Any]:
        """Return `cv_results_`: arrays with an entry for each trial."""
        trials = self.list
        names = dict.fromkeys(name for trial in trials for name in trial.params)
        columns = dict.fromkeys(name for trial in trials for name in trial.columns)
        n_splits = max(len(trial.split_scores) for trial in trials)
        splits = np.array([(t.split_scores + n_splits * [np.nan])[:n_splits] for t in trials])
        scores = np.array([trial.score for trial in trials])
        return {
            "stage": np.array([trial.stage for trial in trials]),
            **{f"param_{name}": _column([trial.params.get(name) for trial in trials]) for name in names},
            "params": [trial.params for trial in trials],
            **{f"split{i}_test_score": splits[:, i] for i in range(n_splits)},
            "mean_test_score": scores,
            "std_test_score": splits.std(axis=1) if n_splits else np.full(len(trials), np.nan),
            "rank_test_score": rankdata(-np.nan_to_num(scores, nan=-np.inf), method="min").astype(np.int32),
            "mean_fit_time": np.array([trial.seconds / max(n_splits, 1) for trial in trials]),
            **{name: np.array([trial.columns.get(name, np.nan) for trial in trials]) for name in columns},
        }


def _column(values: list[Any]) -> np.ndarray:
    """Return values of any kind in an array of one dimension."""
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array if any(value is None or isinstance(value, list) for value in values) else np.array(values)


def delegated(name: str, doc: str) -> Any:
    """Return a method that asks the fitted model, of rows X (n, M) and what else its method takes."""

    def method(self: Search, X: ArrayLike, *args: Any) -> Any:
        features = self._features(X)
        return getattr(self._model, name)(features, *args)

    method.__name__, method.__doc__ = name, doc
    return method


class Search(SavingMixin, ExportMixin, BaseEstimator):
    """What the searches for classifiers and for densities have in common."""

    estimator: Any
    n_kernels: Any
    covariance_type: Any
    n_jobs: int | None
    random_state: Any
    time_limit: float | None

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_kernels": [str, Integral, "array-like"],
        "covariance_type": [str, "array-like"],
        "cv": ["cv_object"],
        "time_limit": [Interval(Real, 0, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def _open(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> tuple[Rows, np.ndarray]:
        """Return the rows that have a weight, and their positions among those given."""
        if y is None and is_classifier(self):
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None.")
        values = check_rows(self, X, fitting=True)
        classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(values), dtype=np.int64)
        if y is not None:
            y = read_labels(y, len(values))
            classes, codes = number_labels(y)
        weights = check_weights(sample_weight, len(values))
        kept = np.arange(len(values)) if weights is None else np.flatnonzero(weights)
        values, classes, codes, weights = weighted_rows(values, classes, codes, weights)
        check_gaps(values)
        return Rows(values, None if y is None else y[kept], codes, weights), kept

    def _prototype(self, default: Any) -> Any:
        """Return the settings that are not searched, with one seed for all candidates."""
        prototype = default if self.estimator is None else clone(self.estimator)
        if not isinstance(prototype.init, str):
            raise ValueError(
                "A search needs init by name: a given start settles the number of kernels and their shape. "
                f"Fit {type(default).__name__} with it directly."
            )
        source = prototype.random_state if self.random_state is None else self.random_state
        seed = int(check_random_state(source).randint(np.iinfo(np.int32).max))
        n_jobs = prototype.n_jobs if self.n_jobs is None else self.n_jobs
        return prototype.set_params(n_jobs=n_jobs, random_state=seed, warm_start=False)

    def _candidates(self) -> tuple[list[int] | None, list[str] | None]:
        """Return the numbers of kernels, from few to many, and the covariance types; None for 'auto'."""
        numbers, types = (
            None if isinstance(given, str) and given == "auto" else np.atleast_1d(given).tolist()
            for given in (self.n_kernels, self.covariance_type)
        )
        if numbers is not None and (not numbers or any(type(k) is not int or k < 1 for k in numbers)):
            raise ValueError(
                "n_kernels must be 'auto', an integer of at least 1 or a list of them, got "
                f"{self.n_kernels!r}."
            )
        if types is not None and (not types or not set(types) <= set(COVARIANCE_TYPES)):
            raise ValueError(
                f"covariance_type must be 'auto', one of {', '.join(COVARIANCE_TYPES)} or a list of them, "
                f"got {self.covariance_type!r}."
            )
        return None if numbers is None else sorted(set(numbers)), types

    def _store(self, trials: Trials, best: Trial) -> None:
        """Store the table of trials and the winner."""
        self.cv_results_ = trials.table()
        self.best_index_ = next(i for i, trial in enumerate(trials.list) if trial is best)
        self.best_params_ = dict(best.params)
        self.best_score_ = float(best.score)

    @property
    def _model(self) -> Any:
        """The fitted model."""
        raise NotImplementedError

    def _graph_parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self._model._graph_parts()
        return parts

    def _features(self, X: Any) -> Any:
        """Return what the fitted model takes for rows X (n, M), after a check of the number of features."""
        check_is_fitted(self)
        shape = np.shape(X) if isinstance(X, (list, tuple)) else getattr(X, "shape", ())
        if len(shape) == 2:
            _check_n_features(self, X, reset=False)
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
