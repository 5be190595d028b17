"""Model selection for densities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import reduce, wraps
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data import Source
from ..data.dask import is_collection
from ..data.source import HELD_BYTES
from ..engine.loop import ending_at
from ..engine.numbers import safe_log
from ..engine.records import FloatArray
from ..model.arguments import check_count
from ..model.checks import computed, note_rows, warn_caller
from ..model.measured import with_errors
from ..model.mixture import SharedKernelMixture
from ..model.onnx import refuse_average
from ..model.rows import enter
from .base import Search, documented_search
from .fits import FitRows, make_folds
from .grid import PATIENCE, Scorer, average, covariances_to_try, numbers_to_try, try_grid
from .trials import CHOOSING, FITTING, Params, Trial, Trials

# Default settings of fits. A single start may find a poor optimum, which distorts the comparison.
_SEVERAL_STARTS: Params = {"n_init": 2, "tol": 1e-3, "weight_prior": None}


def _of_best(method: Callable[..., Any]) -> Any:
    """Return a method that passes its arguments to that method of the best candidate."""

    @wraps(method)
    def call(self: SharedKernelMixtureCV, *args: Any, **kwargs: Any) -> Any:
        check_is_fitted(self)
        return getattr(self.best_estimator_, method.__name__)(*args, **kwargs)

    return call


@documented_search
class SharedKernelMixtureCV(ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, Search):
    """SharedKernelMixture with the number of kernels and the covariance type chosen by a criterion.

    By the log-likelihood of held-out rows, the search also chooses the strength of the prior on covariances
    and averages several candidates: `score_samples`, `score` and `sample` use the average, while `predict`
    and `predict_proba` refer to kernels of the best candidate.

    Parameters
    ----------
    estimator : SharedKernelMixture, default=None
        Settings that are not searched, such as `init`, `n_init`, `max_iter` and priors; a `covariance_prior`
        other than 'auto' is not searched either. In a search, `n_init` is 2 and `tol` 0.001 unless they
        differ from their defaults.
        When to change: for settings that all candidates share, such as `tail='t'` or more starts.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. 'auto' goes from one kernel to four per class, at least to 10 and at most
        to 40, in steps of a quarter, and continues while the largest number is the best. With
        ``init='class'`` it begins with one per class, without that limit.
        When to change: to a list if the search takes too long or the largest number is the best.
    covariance_type : str, list of them or 'auto', default='auto'
        Covariance types to try; 'auto' tries full, tied, diag and spherical. With more than 500 features and
        fewer rows than features, it tries diag and spherical, with a warning.
        When to change: to one type if you know it: the search takes a fraction of the time.
    criterion : {'auto', 'log_likelihood', 'bic'}, default='auto'
        How candidates are compared: by the log-density of held-out rows given their class, for the best
        density; or by the Bayesian information criterion, for the number of clusters. 'auto' is the
        log-density; for Dask collections, for files with more than 512 MB of numbers, and if no class has two
        rows, it is BIC.
        When to change: to 'bic' for the number of clusters, and for speed. The sum of the weights then counts
        as the number of rows.
    n_members : int, default=8
        Largest number of candidates to average if they are compared by the log-density of held-out rows: the
        best, and those with the largest shares in the average of all candidates. BIC uses the best candidate
        alone.
        When to change: to 1 for a single mixture, if you need its kernels.
    {parameters}

    Attributes
    ----------
    best_estimator_ : SharedKernelMixture
        The best candidate, fitted to all rows.
    mixtures_ : list of SharedKernelMixture
        All members, fitted to all rows, the best candidate first.
    shares_ : ndarray of shape (S,)
        Shares of the members in the average p(x | c) = Σ_s shares_[s] p_s(x | c).
    best_params_ : dict
        `n_kernels` and `covariance_type` of the best candidate, and `covariance_prior` if it is searched.
    best_score_ : float
        Score of the best candidate, larger is better: the mean log-density of held-out rows, or minus BIC.
    {results}

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixtureCV
    >>> X = np.random.default_rng(0).normal(size=(200, 1))
    >>> X[100:] += 9.0
    >>> SharedKernelMixtureCV(random_state=0).fit(X).best_params_["n_kernels"]
    2
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Search._parameter_constraints,
        "estimator": [SharedKernelMixture, None],
        "criterion": [StrOptions({"auto", "bic", "log_likelihood"})],
    }

    def __init__(
        self,
        estimator: SharedKernelMixture | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        criterion: str = "auto",
        n_members: int = 8,
        cv: Any = None,
        time_limit: float | None = None,
        device: str | None = None,
        n_jobs: int | None = None,
        verbose: bool | int = False,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.criterion = criterion
        self.n_members = n_members
        self.cv = cv
        self.time_limit = time_limit
        self.device = device
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        prototype = self._prototype(SharedKernelMixture, _SEVERAL_STARTS)
        scorer = self._scorer(prototype, (X, y, sample_weight), groups)
        trials.measure = ("mean log-likelihood", 1.0) if scorer.folds else ("BIC", -1.0)
        # Without folds, candidates are fitted to all rows from the beginning.
        trials.choosing = CHOOSING if scorer.folds else 1.0
        (numbers, types), reach = self._settings_to_try(), np.inf
        if numbers is None:
            numbers, reach = numbers_to_try(scorer)
        patience = PATIENCE if scorer.folds and np.isfinite(reach) else np.inf
        covariances = covariances_to_try(scorer, types)
        with ending_at(trials.ends(trials.choosing)):
            best = try_grid(
                trials, scorer, numbers=numbers, covariances=covariances, reach=reach, patience=patience
            )
        members, shares = [best], np.ones(1)
        if scorer.folds and np.isfinite(best.score):
            members, shares = average(trials.list, scorer.held_weights, self.n_members)
            for trial in trials.list:
                trial.columns["share"] = dict(zip(members, shares, strict=True)).get(trial, 0.0)
        trials.begin(len(members), 1.0)
        self.mixtures_: list[SharedKernelMixture] = []
        for trial in members:
            if not (self.mixtures_ and trials.time_is_up(FITTING)):
                fitted = trial.models[0] if trial.models else scorer.candidate(trial).fit(*scorer.given)
                self.mixtures_.append(fitted)
                trials.step("fitting to all rows")
        self.shares_ = shares[: len(self.mixtures_)] / shares[: len(self.mixtures_)].sum()
        return best

    def _with_errors(self, *arguments: Any) -> tuple[Any, Any, Any]:
        return with_errors(*arguments)

    def _read(self, source: Source) -> tuple[Any, Any, Any]:
        is_large = source.n_rows * source.n_features * source.dtype.itemsize > HELD_BYTES
        if self.criterion == "bic" or (self.criterion == "auto" and is_large):
            return source, None, None
        return super()._read(source)

    def _scorer(self, prototype: Any, given: tuple[Any, Any, Any], groups: Any) -> Scorer:
        """Return the scorer of candidates, with the rows that the criterion needs."""
        by_default = self.criterion == "auto"
        is_elsewhere = is_collection(given[0]) or isinstance(given[0], Source)
        if self.criterion == "bic" or (by_default and is_elsewhere):
            if groups is not None:
                raise ValueError(
                    "groups cannot be combined with criterion='bic', which needs no cross-validation. Leave "
                    "out groups, or use criterion='log_likelihood'."
                )
            return Scorer.by_bic(prototype, given)
        rows, classes, kept = self._open(*given)
        folds = make_folds(rows, classes, self.cv, groups, kept, prototype.random_state)
        if not folds and not by_default:
            raise ValueError(f"{len(rows.X)} rows are too few to hold any out: each class has one row.")
        if not folds:
            return Scorer.by_bic(prototype, given)
        prepared = [(FitRows.of(training, classes, prototype), held) for training, held in folds]
        return Scorer(prototype, given, int(rows.codes.max()) + 1, rows.X.shape, prepared)

    @property
    def best_estimator_(self) -> SharedKernelMixture:
        """The best candidate, fitted to all rows."""
        return self.mixtures_[0]

    def _finish(self) -> None:
        model = self.best_estimator_
        self.best_params_["n_kernels"] = model.n_kernels_
        names = ("n_features_in_", "feature_names_in_", "recipe_")
        note_rows(self, **{name: getattr(model, name, None) for name in names})
        if not model.converged_:
            limited = self.time_limit is not None and model.n_iter_ < model.max_iter
            advice = f"max_iter ({model.max_iter}) or tol ({model.tol}) of the estimator"
            warn_caller(
                f"The chosen model did not converge in {model.n_iter_} passes. Increase "
                f"{f'time_limit ({self.time_limit})' if limited else advice}.",
                ConvergenceWarning,
            )

    predict = _of_best(SharedKernelMixture.predict)
    predict_proba = _of_best(SharedKernelMixture.predict_proba)
    transform = _of_best(SharedKernelMixture.transform)

    @property
    def _n_features_out(self) -> int:
        return self.best_estimator_._n_features_out

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None, *, errors: Any = None) -> FloatArray:
        """Return the log-density (n,) of rows X (n, M), given labels y (n,); see `SharedKernelMixture`."""
        check_is_fitted(self)
        pairs = zip(self.mixtures_, safe_log(self.shares_), strict=True)
        logs = [model.score_samples(X, y, errors=errors) + log_share for model, log_share in pairs]
        return reduce(np.logaddexp, logs)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> float:
        """Return the mean log-density of rows with weights (n,); see `SharedKernelMixture.score`."""
        check_is_fitted(self)
        rows = enter(self.best_estimator_, X, y, sample_weight, errors=errors)
        scores = computed(self.score_samples(rows.X, rows.y))
        return float(np.average(scores, weights=rows.weights(len(scores))))

    def _graph_parts(self) -> dict[str, Any]:
        refuse_average(self, len(self.mixtures_))
        return self.best_estimator_._graph_parts()

    fit_predict = SharedKernelMixture.fit_predict
    sample = SharedKernelMixture.sample

    def _draw(self, n_samples: int, label: Any) -> tuple[FloatArray, np.ndarray]:
        """Draw features (n, M) and labels (n,) from the average of the members."""
        check_is_fitted(self)
        check_count(n_samples, "n_samples must be")
        random_state = check_random_state(self.best_estimator_.random_state)
        drawn, counts = [], random_state.multinomial(n_samples, self.shares_ / self.shares_.sum())
        for mixture, count in zip(self.mixtures_, counts, strict=True):
            if count:
                # With the same seed, all members would draw the same numbers.
                member = copy(mixture)
                member.random_state = random_state
                drawn.append(member._draw(int(count), label))
        order = random_state.permutation(n_samples)
        X, labels = (np.concatenate(parts)[order] for parts in zip(*drawn, strict=True))
        return X, labels
