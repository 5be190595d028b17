"""Model selection for densities."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import xlogy
from sklearn.base import DensityMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.covariances import STRUCTURES
from ...engine.model import FloatArray
from .._validation import check_labelled_rows, check_rows, check_weights, weighted_rows
from .._warnings import warn_caller
from ..mixture import SharedKernelMixture
from ._rows import Rows, make_folds
from ._trials import Search, Trial, covariance_types, kernel_numbers

# The numbers of kernels reach this far above the number of classes, or to this many, and go on by as much
# again while the largest is the best.
_KERNELS_PER_CLASS, _FEWEST_TO_REACH = 4, 10


class SharedKernelMixtureCV(DensityMixin, Search):
    """SharedKernelMixture with the number of kernels and the covariance type chosen by a criterion.

    Parameters
    ----------
    estimator : SharedKernelMixture, default=None
        Settings that are not searched, such as `init`, `n_init`, `max_iter` and priors.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. 'auto' goes from one for each class to four, at least to 10, in steps of a
        quarter, and on while the largest is the best.
    covariance_type : str, list of str or 'auto', default='auto'
        Covariance types to try; 'auto' is full, tied, diag and spherical.
    criterion : {'bic', 'icl', 'aic', 'log_likelihood'}, default='bic'
        What the choice is made by: the Bayesian information criterion; the same plus twice the entropy of the
        responsibilities, which prefers kernels that do not overlap; Akaike's criterion; or the log-density of
        held-out rows, each in its own class.
    strategy : {'grid', 'prune'}, default='grid'
        'grid' fits every candidate. 'prune' starts with `n_kernels` and removes those that do not explain
        enough rows for their parameters (Figueiredo & Jain, 2002), then the lightest one by one, and takes
        the number of the lowest BIC; of a variational fit, that of the highest bound. At least one kernel for
        each class stays.
    cv : int, splitter or iterable, default=None
        Cross-validation of ``criterion='log_likelihood'``. None is five shuffled stratified folds, three from
        500 rows on, and one split from 4000 on. Rows without a label always train.
    time_limit : float, default=None
        After so many seconds no further candidate is tried.
    n_jobs : int, default=None
        Number of threads of each fit; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of folds and starts.

    Attributes
    ----------
    best_estimator_ : SharedKernelMixture
        The winner, fitted to all rows.
    best_params_ : dict
        Its `n_kernels` and `covariance_type`.
    best_score_ : float
        Its score: the mean log-density of held-out rows, or minus the criterion; larger is better.
    best_index_ : int
        Its place in `cv_results_`.
    cv_results_ : dict of arrays
        What was tried, ready for ``pandas.DataFrame``: `param_n_kernels`, `param_covariance_type`, `params`,
        `mean_test_score`, `rank_test_score`, `mean_fit_time`, and the columns `log_likelihood` (of the
        training rows, or of held-out ones), `n_parameters` and that of the criterion.
    classes_ : ndarray of shape (L,)
        Class labels, sorted; ``[0]`` when fitted without labels.
    n_features_in_ : int
        Number M of features.
    feature_names_in_ : ndarray of shape (M,)
        Feature names, when X had them.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix import SharedKernelMixtureCV
    >>> X = np.random.default_rng(0).normal(size=(200, 1)) + np.repeat([[0.0], [9.0]], 100, axis=0)
    >>> SharedKernelMixtureCV(random_state=0).fit(X).best_params_["n_kernels"]
    2
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Search._parameter_constraints,
        "estimator": [SharedKernelMixture, None],
        "criterion": [StrOptions({"bic", "icl", "aic", "log_likelihood"})],
        "strategy": [StrOptions({"grid", "prune"})],
    }

    def __init__(
        self,
        estimator: SharedKernelMixture | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        criterion: str = "bic",
        strategy: str = "grid",
        cv: Any = None,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.criterion = criterion
        self.strategy = strategy
        self.cv = cv
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose the kernels and fit.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN marks a missing value.
        y : array-like of shape (N,), default=None
            Class labels, see `SharedKernelMixture.fit`. None chooses an ordinary mixture.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows.
        groups : array-like of shape (N,), default=None
            Groups of the rows for a `cv` that keeps them together.

        Returns
        -------
        SharedKernelMixtureCV
            The fitted search.
        """
        if y is None:
            values = check_rows(self, X, fitting=True)
            classes, codes = np.zeros(1, dtype=np.int64), np.zeros(len(values), dtype=np.int64)
        else:
            values, classes, codes = check_labelled_rows(self, X, y)
        weights = check_weights(sample_weight, values)
        kept = np.arange(len(values)) if weights is None else np.flatnonzero(weights)
        values, classes, codes, weights = weighted_rows(values, classes, codes, weights)
        rows = Rows(values, None if y is None else np.asarray(y)[kept], codes, weights)
        prototype, seed, deadline = self._begin(SharedKernelMixture())
        by_folds = self.criterion == "log_likelihood"
        own_groups = None if groups is None else np.asarray(groups)[kept]
        folds = make_folds(rows, self.cv, own_groups, kept, seed, fill=False) if by_folds else []
        if by_folds and not folds:
            raise ValueError(f"{len(rows.X)} rows of {len(classes)} classes are too few to hold any out.")
        numbers, reach = self._numbers(len(classes), *rows.X.shape)
        types = covariance_types(self.covariance_type) or list(STRUCTURES)
        trials: list[Trial] = []
        best = error = None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for n_kernels in numbers:
                if best is not None and best.params["n_kernels"] < trials[-1].params["n_kernels"] >= reach:
                    break
                for covariance_type in types:
                    if trials and time.monotonic() > deadline:
                        break
                    settings = {"n_kernels": n_kernels, "covariance_type": covariance_type}
                    started = time.monotonic()
                    try:
                        model = clone(prototype).set_params(**settings)
                        trial = self._by_folds(model, folds) if by_folds else self._by_criterion(model, rows)
                    except ValueError as failure:
                        error, trial = failure, Trial("kernels", {}, -np.inf)
                    trial.params, trial.seconds = settings, time.monotonic() - started
                    trials.append(trial)
                    if best is None or trial.score > best.score:
                        best = trial
                    else:
                        trial.models = []
            assert best is not None
            if not np.isfinite(best.score):
                raise ValueError(f"No candidate could be fitted: {error}")
            if best.models and not hasattr(self, "feature_names_in_"):
                self.best_estimator_ = best.models[0]
            else:
                chosen = clone(prototype).set_params(**best.params)
                self.best_estimator_ = self._fit(chosen, X, y, sample_weight)
        if not self.best_estimator_.converged_:
            warn_caller(
                f"The chosen model did not converge in {self.best_estimator_.n_iter_} passes. Increase "
                f"max_iter ({prototype.max_iter}) or tol ({prototype.tol}) of the estimator.",
                ConvergenceWarning,
            )
        self._store(trials, best)
        self.best_params_["n_kernels"] = self.best_estimator_.n_kernels_
        self.classes_ = self.best_estimator_.classes_
        return self

    def _numbers(self, n_classes: int, n_rows: int, n_features: int) -> tuple[list[int], float]:
        """Return the numbers of kernels to try, and that after which the search may end early."""
        given = kernel_numbers(self.n_kernels)
        if given is not None:
            return given, np.inf
        reach = max(_FEWEST_TO_REACH, _KERNELS_PER_CLASS * n_classes)
        most = max(1, n_rows // (n_features + 1))
        numbers = [n_classes]
        while (following := numbers[-1] + max(1, numbers[-1] // 4)) <= min(_KERNELS_PER_CLASS * reach, most):
            numbers.append(following)
        if self.strategy == "prune":
            return [max(k for k in numbers if k <= max(reach, n_classes))], np.inf
        return numbers, reach

    def _fit(self, model: SharedKernelMixture, X: Any, y: Any, sample_weight: Any) -> SharedKernelMixture:
        """Fit a model, from too many kernels down if asked."""
        return model._fit(X, y, sample_weight, prune=self.strategy == "prune")

    def _by_folds(self, model: SharedKernelMixture, folds: list[Any]) -> Trial:
        """Return the mean log-density of held-out rows, each in its own class."""
        scores = []
        for fold in folds:
            training, held = fold.training, fold.held
            fitted = self._fit(clone(model), training.X, training.y, training.weights)
            scores.append(float(np.average(fitted.score_samples(held.X, held.y), weights=held.weights)))
        sizes = np.array([fold.held.size for fold in folds])
        score = float(np.average(scores, weights=sizes))
        return Trial("kernels", {}, score, scores, columns={"log_likelihood": float(sizes @ scores)})

    def _by_criterion(self, model: SharedKernelMixture, rows: Rows) -> Trial:
        """Return minus the criterion of a fit to all rows."""
        fitted = self._fit(model, rows.X, rows.y, rows.weights)
        free = fitted._n_parameters()
        price = 2.0 if self.criterion == "aic" else np.log(rows.size)
        value = free * price - 2.0 * fitted.log_likelihood_
        if self.criterion == "icl":
            value += 2.0 * _entropy(fitted, rows)
        columns = {self.criterion: value, "log_likelihood": fitted.log_likelihood_, "n_parameters": free}
        return Trial("kernels", {}, -value, columns=columns, models=[fitted])

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable kernel (n,) of each row of X (n, M)."""
        self._check_features(X)
        return self.best_estimator_.predict(X)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the responsibilities (n, K) of the kernels for rows X (n, M)."""
        self._check_features(X)
        return self.best_estimator_.predict_proba(X)

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
        """Choose, fit and return the most probable kernel (N,) of each row of X (N, M)."""
        return self.fit(X, y).predict(X)

    def class_log_likelihood(self, X: ArrayLike) -> FloatArray:
        """Return log p(x | class j), shape (n, L), of rows X (n, M)."""
        self._check_features(X)
        return self.best_estimator_.class_log_likelihood(X)

    def score_samples(self, X: ArrayLike, y: ArrayLike | None = None) -> FloatArray:
        """Return log p(x), or with labels y (n,) log p(x | y), shape (n,), of rows X (n, M)."""
        self._check_features(X)
        return self.best_estimator_.score_samples(X, y)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean log-density of rows X (n, M); see `score_samples`."""
        self._check_features(X)
        return self.best_estimator_.score(X, y)

    def sample(self, n_samples: int = 1, label: Any = None) -> tuple[FloatArray, np.ndarray]:
        """Draw n rows (n, M) and their labels (n,), see `SharedKernelMixture.sample`."""
        check_is_fitted(self)
        return self.best_estimator_.sample(n_samples, label)

    def _graph_parts(self) -> dict[str, Any]:
        return self.best_estimator_._graph_parts()


def _entropy(model: SharedKernelMixture, rows: Rows) -> float:
    """Return −Σ_n Σ_k w_nk log w_nk, rows with a label in their own class."""
    shares = model.responsibilities(rows.X)
    if rows.y is not None:
        labelled = np.flatnonzero(rows.codes >= 0)
        shares[labelled] = model.responsibilities(rows.X[labelled], rows.y[labelled])
    entropies = -xlogy(shares, shares).sum(axis=1)
    return float(entropies.sum() if rows.weights is None else entropies @ rows.weights)
