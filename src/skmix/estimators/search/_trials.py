"""What was tried and with what result, and the part that both searches have in common."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from os import PathLike
from typing import Any

import numpy as np
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_n_features, check_is_fitted

from ...engine.covariances import COVARIANCE_TYPES
from ...engine.model import FloatArray
from ..exporting import ExportMixin
from ..saving import SavingMixin


@dataclass
class Trial:
    """A candidate with its score on held-out rows, or by a criterion; larger is better.

    Attributes
    ----------
    stage : str
        What was being chosen.
    params : dict
        The candidate's settings.
    score : float
        Mean over held-out rows.
    split_scores : list of float
        Score of each fold.
    seconds : float
        Time it took.
    temperature : float
        Of a classifier, the temperature of least log-loss.
    losses : ndarray of shape (n,)
        Log-losses of held-out rows.
    models : list
        The models fitted to the folds, or to all rows.
    candidate : object
        The candidate as the search knows it.
    columns : dict
        Further columns of the table.
    """

    stage: str
    params: dict[str, Any]
    score: float
    split_scores: list[float] = field(default_factory=list)
    seconds: float = 0.0
    temperature: float = 1.0
    losses: FloatArray = field(default_factory=lambda: np.empty(0))
    models: list[Any] = field(default_factory=list)
    candidate: Any = None
    columns: dict[str, float] = field(default_factory=dict)


def table_of(trials: Sequence[Trial]) -> dict[str, Any]:
    """Return `cv_results_`: a dict of arrays with one entry for each trial."""
    names = dict.fromkeys(name for trial in trials for name in trial.params)
    table: dict[str, Any] = {"stage": np.array([trial.stage for trial in trials])}
    for name in names:
        table[f"param_{name}"] = _objects(trial.params.get(name) for trial in trials)
    table["params"] = [trial.params for trial in trials]
    for split in range(max(len(trial.split_scores) for trial in trials)):
        scores = [t.split_scores[split] if split < len(t.split_scores) else np.nan for t in trials]
        table[f"split{split}_test_score"] = np.array(scores)
    means = np.array([trial.score for trial in trials], dtype=np.float64)
    table["mean_test_score"] = means
    table["std_test_score"] = np.array([np.std(t.split_scores) if t.split_scores else np.nan for t in trials])
    ranked = np.where(np.isnan(means), -np.inf, means)
    table["rank_test_score"] = rankdata(-ranked, method="min").astype(np.int32)
    table["mean_fit_time"] = np.array([t.seconds / max(len(t.split_scores), 1) for t in trials])
    for name in dict.fromkeys(name for trial in trials for name in trial.columns):
        table[name] = np.array([trial.columns.get(name, np.nan) for trial in trials])
    return table


def _objects(values: Iterable[Any]) -> np.ndarray:
    """Return values in a 1-d array, whatever they are."""
    found = list(values)
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array if any(isinstance(v, (list, tuple, type(None))) for v in found) else np.array(found)


def kernel_numbers(given: Any) -> list[int] | None:
    """Return the numbers of kernels to try, in increasing order; None for 'auto'."""
    if isinstance(given, str):
        return None
    several = given if isinstance(given, Iterable) else [given]
    numbers = list(several)
    wrong = [k for k in numbers if not isinstance(k, Integral) or isinstance(k, bool) or k < 1]
    if wrong or not numbers:
        what = f"got {wrong[0]!r}" if wrong else "got an empty list"
        raise ValueError(f"n_kernels must be 'auto', an integer of at least 1 or a list of them, {what}.")
    return sorted({int(k) for k in numbers})


def covariance_types(given: Any) -> list[str] | None:
    """Return the covariance types to try; None for 'auto'."""
    several = [given] if isinstance(given, str) else list(given)
    wrong = [name for name in several if name not in COVARIANCE_TYPES]
    if several == ["auto"]:
        return None
    if wrong or not several:
        what = f"got {wrong[0]!r}" if wrong else "got an empty list"
        raise ValueError(f"covariance_type must be 'auto', or among {', '.join(COVARIANCE_TYPES)}; {what}.")
    return several


class Search(SavingMixin, ExportMixin, BaseEstimator):
    """Settings and results that both searches have in common."""

    estimator: Any
    n_jobs: int | None
    random_state: Any
    time_limit: float | None

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_kernels": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), "array-like"],
        "covariance_type": [str, "array-like"],
        "cv": ["cv_object"],
        "time_limit": [Interval(Real, 0, None, closed="left"), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def _begin(self, default: Any) -> tuple[Any, int, float]:
        """Return the settings that are not searched, a seed for all candidates, and when time is up."""
        prototype = default if self.estimator is None else clone(self.estimator)
        if not isinstance(prototype, type(default)):
            raise TypeError(
                f"estimator must be a {type(default).__name__}, got a {type(prototype).__name__}."
            )
        if not isinstance(prototype.init, str):
            raise ValueError(
                "A search needs init by name: a given start settles the number of kernels and their shape. "
                f"Fit {type(default).__name__} with it directly."
            )
        source = prototype.random_state if self.random_state is None else self.random_state
        # One seed for all candidates, so that they differ only in what is to be chosen.
        seed = check_random_state(source).randint(np.iinfo(np.int32).max)
        n_jobs = prototype.n_jobs if self.n_jobs is None else self.n_jobs
        prototype.set_params(n_jobs=n_jobs, random_state=int(seed), warm_start=False)
        limit = np.inf if self.time_limit is None else self.time_limit
        return prototype, int(seed), time.monotonic() + limit

    def _store(self, trials: Sequence[Trial], best: Trial) -> None:
        """Store the table of trials and the winner."""
        self.cv_results_ = table_of(trials)
        self.best_index_ = next(i for i, trial in enumerate(trials) if trial is best)
        self.best_params_ = dict(best.params)
        self.best_score_ = float(best.score)

    def _check_features(self, X: Any) -> None:
        """Refuse rows with another number of features than the fit had, where X tells it."""
        check_is_fitted(self)
        shape = np.shape(X) if isinstance(X, (list, tuple)) else getattr(X, "shape", ())
        if len(shape) == 2 and not isinstance(X, (str, PathLike)):
            _check_n_features(self, X, reset=False)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
