"""The common part of both searches: parameters, rows, folds, and the methods of the chosen model."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from numbers import Integral, Real
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_n_features, check_consistent_length, check_is_fitted

from ...engine.compute.arrays import on_host
from ...engine.compute.blocks import Block
from ...engine.model import IntArray
from ...engine.sources.summary import measure
from ...engine.structures import COVARIANCE_TYPES, structure_of
from ...io import Source, is_elsewhere, source_of
from ...io.readers import is_path
from .._settings import check_covariance_type
from ..callbacks import progress_bar
from ..exporting import ExportMixin
from ..holdout import check_splits, default_splits, splits_of
from ..rows import check_gaps, check_labelled, device_of, enter, read_into_memory, updating
from ..saving import FileMixin
from ._trials import Trial, Trials

Estimator = TypeVar("Estimator", bound=type)


_PARAMETERS = """
    cv : int, splitter or iterable, default=None
        Cross-validation. None is five shuffled stratified folds, three from 500 rows on, and one split from
        4000 on; rows that are alone in their class always train. Rows without a label always train.
        When to change: a splitter such as GroupKFold, where rows of one person or site must stay together.
    time_limit : float, default=None
        Seconds after which no further candidate is tried: the best so far is fitted to all rows.
        When to change: for a choice that must end; fits in progress are finished.
    device : str, default=None
        Where candidates are fitted, see `SharedKernelMixture`; None leaves it to the estimator. Under
        scikit-learn's ``array_api_dispatch``, or with a device, it is that of a PyTorch tensor. Folds,
        reductions of features and tuning are always on the CPU.
        When to change: where there is a GPU and rows are many; a thousand are quicker on the CPU.
    n_jobs : int, default=None
        Number of threads of each fit; the result does not depend on it.
        When to change: -1 on a machine of your own.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of folds and starts.
        When to change: an integer makes results repeatable.
"""
_RESULTS = """
    best_index_ : int
        The place of the winner in `cv_results_`.
    cv_results_ : dict of arrays
        What was tried, ready for ``pandas.DataFrame``: `stage` (what was being chosen; scores of the
        screening are of one fold or two, and rank below all others), `param_…`, `params`,
        `split…_test_score`, `mean_test_score`, `std_test_score`, `rank_test_score`, `mean_fit_time`; of
        classifiers `temperature` and `member` (whether it is averaged); of mixtures the criterion,
        `n_parameters` and `log_likelihood`, of the training rows or of held-out ones.
    n_untried_ : int
        Number of candidates that `time_limit` left no time for.
    classes_ : ndarray of shape (L,)
        Class labels, sorted; ``[0]`` when fitted without labels.
    n_features_in_ : int
        Number M of features.
    feature_names_in_ : ndarray of shape (M,)
        Feature names, when X had them.
"""


def documented(cls: Estimator) -> Estimator:
    """Insert the parameters and attributes that both searches have into the docstring of one."""
    text = (cls.__doc__ or "").replace("{parameters}", _PARAMETERS.strip())
    cls.__doc__ = text.replace("{results}", _RESULTS.strip())
    return cls


# ---------------------------------------------------------------- rows and folds


Fold = tuple[Block, Block]
"""Rows to fit candidates to, and held-out rows to judge them by; both with class codes (n,)."""


def labels_of(rows: Block, classes: np.ndarray | None) -> Any:
    """Return the labels (n,) of rows with class codes, given sorted classes (L,); None without labels.

    None marks unlabelled rows; it is never a class.
    """
    if classes is None or rows.y is None:
        return None
    labels, unknown = classes[rows.y], rows.y < 0
    if unknown.any():
        labels = labels.astype(object)
        labels[unknown] = None
    return labels


def make_folds(
    rows: Block, classes: np.ndarray | None, cv: Any, groups: Any, kept: IntArray, seed: int
) -> list[Fold]:
    """Return the folds of a search; see `holdout` for the rows without a label.

    `kept` are the positions of the rows among those the user gave, which `groups` and a list of splits for
    `cv` refer to.
    """
    groups, codes = None if groups is None else np.asarray(groups)[kept], codes_of(rows)
    splits = default_splits(codes, seed, groups) if cv is None else splits_of(cv, codes, groups, kept)
    check_splits(splits, codes, classes)
    return [(rows.rows(training), rows.rows(held)) for training, held in splits]


def codes_of(rows: Block) -> IntArray:
    """Return the class codes (n,) of rows, −1 for rows without a label."""
    assert rows.y is not None
    return rows.y


def saved_part(estimator: Any) -> Any:
    """Return the model to save: the only member of a search that maps no features, else the estimator."""
    members: list[Any] = getattr(estimator, "classifiers_", getattr(estimator, "mixtures_", []))
    maps_features = getattr(estimator, "feature_map_", None) is not None
    return members[0] if len(members) == 1 and not maps_features else estimator


def delegated(method: Callable[..., Any]) -> Any:
    """Return a method that passes rows X to that method of the chosen model."""

    @wraps(method)
    def call(self: Search, X: ArrayLike, *args: Any, **kwargs: Any) -> Any:
        rows = self._features(self._accept(X))
        return getattr(self._model, method.__name__)(rows, *args, **kwargs)

    return call


class Search(FileMixin, ExportMixin, BaseEstimator):
    """Parameters and methods of a search; `_choose` tries candidates and fits the best to all rows."""

    estimator: Any
    n_kernels: Any
    covariance_type: Any
    cv: Any
    device: str | None
    n_jobs: int | None
    random_state: Any
    time_limit: float | None
    best_estimator_: Any

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_kernels": [str, Integral, "array-like"],
        "covariance_type": [str, "array-like"],
        "cv": ["cv_object"],
        "time_limit": [Interval(Real, 0, None, closed="left"), None],
        "device": [str, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose settings and fit.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows, given as for `SharedKernelMixture.fit`; NaN marks a missing value. Rows of files are read
            into memory, except where a mixture is chosen by BIC, which also takes Dask collections.
        y : array-like of shape (N,), default=None
            Class labels, beside a file also the name of their column; -1 marks a row without a label, see
            `SharedKernelMixture.fit`. Without labels there is one class, so that a classifier needs them.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows, in fits and in scores.
        groups : array-like of shape (N,), default=None
            Groups of the rows, for a `cv` that keeps them together; by default stratified folds of whole
            groups. Rows without a label do not train where their group is held out. `groups` are refused
            where nothing would use them: by a `cv` that ignores groups, and by a criterion without
            cross-validation.

        Returns
        -------
        estimator
            The fitted search.
        """
        source = source_of(X, y, sample_weight)
        if source is not None:
            X, labels, sample_weight = self._read(source)
            y = labels if y is None or is_path(y) else y
        check_labelled(self, y)
        if groups is not None:
            check_consistent_length(X, groups)
        trials = Trials(self.time_limit)
        progress = progress_bar("choosing settings", None)
        with updating(self), progress as trials.report, warnings.catch_warnings():
            # A fit that stops at the largest number of passes is judged as it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            best = self._choose(trials, X, y, sample_weight, on_host(groups))
        self.cv_results_ = trials.table()
        self.n_untried_ = trials.n_untried
        self.best_index_ = next(i for i, trial in enumerate(trials.list) if trial is best)
        self.best_params_ = dict(best.params)
        self.best_score_ = float(best.score)
        self._finish()
        return self

    def _read(self, source: Source) -> tuple[Any, Any, Any]:
        """Return X, y and sample_weight of opened rows, in memory."""
        return read_into_memory(source)

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        """Try candidates, fit the best to all rows, and return its trial."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Note what the fit of the chosen model shows."""

    def _open(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Block, np.ndarray | None, IntArray]:
        """Return the rows that have a weight, with class codes; the classes; their positions in X.

        Without labels, classes are None and all codes are 0.
        """
        given = enter(self, X, y, sample_weight)
        values = given.values(fitting=True, on_cpu=True)
        rows, classes, kept = given.coded(values)
        check_gaps(rows.X)
        # Refuses features that cannot be squared.
        measure(rows.X, structure_of("full"), row_weights=rows.weights)
        kept = np.arange(len(values)) if kept is None else kept
        return rows, None if y is None else classes, kept

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
        device = prototype.device if self.device is None else self.device
        prototype.set_params(n_jobs=n_jobs, device=device, random_state=seed, warm_start=False)
        types = self._settings_to_try()[1] or []
        low_rank = any(check_covariance_type(each)[0] == "low_rank" for each in types)
        if low_rank and device_of(prototype) is not None:
            raise ValueError("covariance_type='low_rank' runs only on the CPU: leave it or device out.")
        return prototype

    def _settings_to_try(self) -> tuple[list[int] | None, list[Any] | None]:
        """Return the numbers of kernels, from few to many, and the covariance types; None for 'auto'."""
        numbers = np.atleast_1d(self.n_kernels).tolist()
        if numbers != ["auto"] and not (numbers and all(type(k) is int and k > 0 for k in numbers)):
            raise ValueError(
                "n_kernels must be 'auto', an integer of at least 1 or a list of them, got "
                f"{self.n_kernels!r}."
            )
        given, types = self.covariance_type, self.covariance_type
        if isinstance(given, str) or (isinstance(given, tuple) and given[:1] == ("low_rank",)):
            types = [given]
        names = [check_covariance_type(each)[0] if isinstance(each, tuple) else each for each in types]
        if names != ["auto"] and not (names and all(name in COVARIANCE_TYPES for name in names)):
            raise ValueError(
                f"covariance_type must be 'auto', one of {', '.join(COVARIANCE_TYPES)} or a list of them, "
                f"got {given!r}."
            )
        return (
            None if numbers == ["auto"] else sorted(set(numbers)),
            None if names == ["auto"] else list(types),
        )

    @property
    def _model(self) -> Any:
        """The fitted model that rows are passed to."""
        return self.best_estimator_

    @property
    def classes_(self) -> np.ndarray:
        """Class labels (L,), sorted."""
        try:
            labels: np.ndarray = self._model.classes_
        except AttributeError:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute 'classes_'") from None
        return labels

    def _accept(self, X: Any) -> Any:
        """Return rows X (n, M) for a fitted search, if they have as many features as it was fitted to."""
        check_is_fitted(self)
        if is_elsewhere(X) or (hasattr(X, "columns") and hasattr(self, "feature_names_in_")):
            return X  # the model takes columns by their names
        X = np.asarray(X) if isinstance(X, (list, tuple)) else X
        if len(getattr(X, "shape", ())) == 2:
            # Check here, so that the error names the search.
            _check_n_features(self, X, reset=False)
        return X

    def _features(self, X: Any) -> Any:
        """Return what the fitted model takes for rows X (n, M)."""
        return X

    def _graph_parts(self) -> dict[str, Any]:
        parts: dict[str, Any] = self._model._graph_parts()
        return parts

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
