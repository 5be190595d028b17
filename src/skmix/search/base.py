"""The base class of searches: parameters, rows, and methods that pass rows to the chosen model."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_consistent_length

from ..data import Source
from ..data.opening import source_of
from ..data.read import is_path
from ..engine.loop import ending_at
from ..engine.numbers import BoolArray
from ..engine.rows.blocks import Block
from ..engine.rows.summary import measure
from ..engine.structures import STRUCTURES, structure_of
from ..engine.threads import one_blas_thread
from ..model.callbacks import CallbackSupportMixin, Lines, progress_bar, task, watched_by
from ..model.checks import check_gaps, check_identifiers, check_labelled, updating, warn_of
from ..model.frames import TableColumns, is_frame, read_into_memory, remarks_of, take_columns
from ..model.mixture import documented
from ..model.onnx import ExportMixin
from ..model.reasons import ReasonsMixin
from ..model.rows import enter
from ..model.saving import FileMixin
from ..model.settings import Settings, refuse_low_rank
from ..model.summary import SummaryMixin
from .trials import Params, Trial, Trials, count_candidates

_PARAMETERS = """
    cv : int, splitter or iterable, default=None
        Cross-validation. None uses shuffled stratified folds: five with fewer than 100 rows, for a density or
        with groups with fewer than 500; then three; and a single split from 4000 rows on. The only row of a
        class, and rows without a label, always train. Splits in a list have row numbers of X or masks; a row
        that is repeated counts as often, and none may be in both parts.
        When to change: to a splitter such as GroupKFold if rows of one person or site must stay together.
    time_limit : float, default=None
        Seconds that `fit` may take. After 60 % of them, or all by BIC, no further candidate is tried, and the
        best so far is fitted to all rows. Fits end between two passes.
        When to change: if the search must end by a certain time.
    device : str, default=None
        Device of the fits, see `SharedKernelMixture`; None uses that of the estimator. Splitting,
        feature maps and tuning run on the CPU.
        When to change: if there is a GPU and there are many rows; a thousand rows are faster on the CPU.
    n_jobs : int, default=None
        Number of threads of each fit, see `SharedKernelMixture`; None uses that of the estimator, by default
        all cores. Results do not depend on it.
        When to change: to 1 if something else needs the cores.
    verbose : bool or int, default=False
        Whether to print how far the search is, ever less often, and what it chose; 2 also prints passes of
        its fits. scikit-learn's callbacks, see `set_callbacks`, count the candidates as subtasks.
        When to change: to True if a search takes long.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of folds and starts.
        When to change: to an integer for repeatable results.
"""
_RESULTS = """
    best_index_ : int
        Index of the best candidate in `cv_results_`.
    cv_results_ : dict of arrays
        Candidates and their scores, ready for ``pandas.DataFrame``: `stage` (scores of the screening are of
        one fold, and rank below all others), `param_…`, `params`, `split…_test_score`,
        `mean_test_score`, `std_test_score`, `rank_test_score`; for classifiers `temperature` and `member`
        (whether it is averaged); for mixtures the criterion, `n_parameters` and `log_likelihood`, of the
        training rows or of held-out rows.
    n_untried_ : int
        Number of candidates that were not tried because of `time_limit`.
    classes_ : ndarray of shape (L,)
        Sorted class labels; ``[0]`` if fitted without labels.
    n_features_in_ : int
        Number of columns of X, see `SharedKernelMixture`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if X had any.
"""
documented_search = documented(parameters=_PARAMETERS, results=_RESULTS)


def saved_part(estimator: Any) -> Any:
    """Return the estimator, or its only member if it is a search that does not map features."""
    members: list[Any] = getattr(estimator, "classifiers_", getattr(estimator, "mixtures_", []))
    maps_features = getattr(estimator, "feature_map_", None) is not None
    return members[0] if len(members) == 1 and not maps_features else estimator


def _checked_groups(groups: Any, X: Any) -> np.ndarray | None:
    """Return the groups (n,) of rows X (n, M) as an array; raise ValueError if some rows have none."""
    if groups is None:
        return None
    check_consistent_length(X, groups)
    values = check_identifiers(groups, "groups")
    if len({*values.tolist()}) == 1:
        raise ValueError("groups has one group; a search needs two or more.")
    return values


class Search(ReasonsMixin, FileMixin, ExportMixin, SummaryMixin, CallbackSupportMixin, BaseEstimator):
    """Base class of searches; `_choose` tries candidates and fits the best to all rows."""

    best_estimator_: Any

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_kernels": [str, Integral, "array-like"],
        "covariance_type": [str, "array-like"],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "cv": ["cv_object"],
        "time_limit": [Interval(Real, 0, None, closed="left"), None],
        "device": [str, None],
        "n_jobs": [Integral, None],
        "verbose": ["verbose"],
        "random_state": ["random_state"],
    }

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> Self:
        """Choose settings and fit.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows, given as for `SharedKernelMixture.fit`; NaN marks a missing value. Rows of files are read
            into memory; the search for a mixture by BIC reads them in blocks, and accepts Dask collections.
        y : array-like of shape (N,), default=None
            Class labels, with a file or data frame also the name of their column; -1 marks a row without a
            label, see `SharedKernelMixture.fit`. A classifier needs labels; a mixture without labels has one
            class.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows, in fits and in scores.
        groups : array-like of shape (N,), default=None
            Group of each row, such as its sample, batch or person, with a data frame also the name of their
            column. Folds hold out whole groups, and a `cv` must keep them together. A classifier then expects
            rows of groups that it has not seen: it widens its kernels by a multiple of the covariance of the
            shifts between groups, chosen on held-out groups. Rows without a label do not train while their
            group is held out. `groups` cannot be combined with a criterion without cross-validation.
        errors : array-like of shape (N, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, see `SharedKernelMixture.fit`; not for
            classifiers.

        Returns
        -------
        estimator
            The fitted search.
        """
        trials = Trials(self.time_limit)
        if errors is not None:
            X, y, sample_weight = self._with_errors(X, y, sample_weight, errors)
        columns, *arguments = self._arguments(X, y, sample_weight, groups)
        X, y, sample_weight, groups = arguments
        lines = Lines(type(self).__name__, trials.ends(1.0))
        bar = lines("", None) if self.verbose else progress_bar("choosing settings", None)
        with (
            updating(self),
            watched_by(lines) if self.verbose > 1 else nullcontext(),
            task(self, X, y, sample_weight, bar, subtask="candidate") as step,
            ending_at(trials.ends(1.0)),
            one_blas_thread(),
            # A candidate that did not converge is scored as it is.
            warnings.catch_warnings(action="ignore", category=ConvergenceWarning),
        ):
            trials.report = step
            best = self._choose(trials, X, y, sample_weight, groups)
            self.cv_results_ = trials.table()
            self.n_untried_ = len(trials.untried)
            self.best_index_ = trials.list.index(best)
            self.best_params_ = dict(best.params)
            self.best_score_ = float(best.score)
        self._finish()
        for model in (self, *getattr(self, "classifiers_", getattr(self, "mixtures_", ()))):
            columns.note_in(model)
        if self.verbose:
            params = self.best_params_.items()
            chosen = ", ".join(f"{name}={value!r}" for name, value in params if value not in (None, "none"))
            score = f": {trials.say(best.score)}" if np.isfinite(best.score) else ""
            # Some were tried on one fold and then on all.
            n_tried = len({repr(trial.params) for trial in trials.list})
            lines.tell(f"tried {count_candidates(n_tried)} and chose {chosen}{score}")
        return self

    def _arguments(self, X: Any, y: Any, sample_weight: Any, groups: Any) -> tuple[Any, Any, Any, Any, Any]:
        """The columns of the table, X, labels, weights and groups, read from files or a data frame."""
        columns = TableColumns.of(X, y, sample_weight)
        if is_frame(X):
            X, y, sample_weight = take_columns(X, y, sample_weight)
            X, groups, _ = take_columns(X, groups, None, name="groups")
        elif isinstance(groups, str):
            raise ValueError(
                f"groups is {groups!r}, the name of a column, which needs X to be a data frame; X is a "
                f"{type(X).__name__}. Give a data frame, or groups as an array."
            )
        source = source_of(X, y, sample_weight)
        if source is not None:
            columns = TableColumns.of(source, y, sample_weight)
            X, labels, sample_weight = self._read(source)
            warn_of(source.remarks() if isinstance(X, Source) else remarks_of(source, X.X))
            y = labels if y is None or is_path(y) else y
        check_labelled(self, y)
        return columns, X, y, sample_weight, _checked_groups(groups, X)

    def _with_errors(self, *arguments: Any) -> tuple[Any, Any, Any]:
        """Return rows with errors, labels and weights, given `X`, `y`, `sample_weight` and `errors`."""
        raise ValueError(
            f"{type(self).__name__} takes no errors: it tries maps of features, which would mix them. Fit "
            "SharedKernelClassifier to rows with errors."
        )

    def _read(self, source: Source) -> tuple[Any, Any, Any]:
        return read_into_memory(source)

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        """Try candidates, fit the best to all rows, and return its trial."""
        raise NotImplementedError

    def _finish(self) -> None:
        """Set attributes that depend on the fit to all rows."""

    def _open(
        self, X: Any, y: Any, sample_weight: ArrayLike | None
    ) -> tuple[Block, np.ndarray | None, BoolArray]:
        """Return rows of positive weight with class codes, the classes (L,), and which rows of X they are.

        Without labels, classes are None and all codes are 0.
        """
        entered = enter(self, X, y, sample_weight)
        values = entered.values(least=2, on_cpu=True)
        rows, classes, kept = entered.coded(values)
        check_gaps(rows.X, self)
        # Refuses features whose squares overflow.
        measure(rows.X, structure_of("full"), row_weights=rows.weights)
        is_kept = np.full(len(values), kept is None)
        if kept is not None:
            is_kept[kept] = True
        return rows, None if y is None else classes, is_kept

    def _prototype(self, kind: Any, defaults: Params) -> Any:
        """Return the settings that are not searched, with one seed for all candidates.

        `defaults` are those of a search, which replace the defaults of this `kind` of estimator.
        """
        usual = kind()
        prototype = usual if self.estimator is None else clone(self.estimator)
        unchanged = [name for name in defaults if getattr(prototype, name) == getattr(usual, name)]
        prototype.set_params(**{name: defaults[name] for name in unchanged})
        if not isinstance(prototype.init, str):
            raise ValueError(
                "A search needs the name of an init: a given start fixes the number of kernels and their "
                f"covariances. Fit {kind.__name__} with it directly."
            )
        source = prototype.random_state if self.random_state is None else self.random_state
        seed = int(check_random_state(source).randint(np.iinfo(np.int32).max))
        n_jobs = prototype.n_jobs if self.n_jobs is None else self.n_jobs
        device = prototype.device if self.device is None else self.device
        prototype.set_params(n_jobs=n_jobs, device=device, random_state=seed)
        self._settings_to_try()  # raises an error early
        prototype._validate_params()
        Settings.of(prototype)
        return prototype

    def _settings_to_try(self) -> tuple[list[int] | None, list[str] | None]:
        """Return the numbers of kernels, ascending, and the covariance types; None for 'auto'."""
        numbers = np.atleast_1d(self.n_kernels).tolist()
        if numbers != ["auto"] and not (numbers and all(type(k) is int and k > 0 for k in numbers)):
            raise ValueError(
                "n_kernels must be 'auto', an integer of at least 1 or a list of them, got "
                f"{self.n_kernels!r}."
            )
        refuse_low_rank(self.covariance_type)
        types = self.covariance_type
        types = [types] if isinstance(types, str) else list(types)
        for name in types:
            refuse_low_rank(name)
        if types != ["auto"] and not (types and all(name in [*STRUCTURES] for name in types)):
            raise ValueError(
                f"covariance_type must be 'auto', one of {', '.join(STRUCTURES)} or a list of them, "
                f"got {self.covariance_type!r}."
            )
        return None if numbers == ["auto"] else sorted(set(numbers)), None if types == ["auto"] else types

    @property
    def _model(self) -> Any:
        return self.best_estimator_

    @property
    def classes_(self) -> np.ndarray:
        """Class labels (L,), sorted."""
        labels: np.ndarray = self._model.classes_
        return labels

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags
