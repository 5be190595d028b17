"""Model selection for densities."""

from __future__ import annotations

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
from .._warnings import warn_caller
from ..callbacks import progress_bar
from ..densities import n_parameters
from ..io import savable
from ..mixture import SharedKernelMixture
from ..rows import open_training
from ._rows import Fold, Rows, make_folds
from ._trials import Search, Trial, Trials, delegated

# The numbers of kernels reach this far above the number of classes, or to this many, and go on by as much
# again while the largest is the best.
_KERNELS_PER_CLASS, _FEWEST_TO_REACH = 4, 10


@savable
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
            Rows; NaN marks a missing value. By BIC and AIC also rows in files or Dask collections, as in
            `SharedKernelMixture.fit`.
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
        prototype, trials = self._prototype(SharedKernelMixture()), Trials(self.time_limit)
        folds = []
        if self.criterion in ("bic", "aic"):
            # Their number is all that the criterion needs of the rows, wherever these are.
            training = open_training(prototype, X, y, sample_weight)
            self.__dict__.pop("feature_names_in_", None)
            self.__dict__.update(
                {name: value for name, value in vars(prototype).items() if name.endswith("_in_")}
            )
            n_classes, summary = len(training.classes), training.source.summary
            rows: Rows | None = None
            n_rows, size = summary.n_rows, float(summary.sizes.sum())
        else:
            rows, kept = self._open(X, y, sample_weight)
            n_classes, n_rows, size = int(rows.codes.max()) + 1, len(rows.X), rows.size
            if self.criterion == "log_likelihood":
                own = None if groups is None else np.asarray(groups)[kept]
                folds = make_folds(rows, self.cv, own, kept, prototype.random_state)
                if not folds:
                    raise ValueError(f"{n_rows} rows are too few to hold any out: each class has one.")

        def evaluate(trial: Trial) -> None:
            model = clone(prototype).set_params(**trial.params)
            if folds:
                self._score_by_folds(trial, model, folds)
            else:
                self._score_by_criterion(trial, self._fit(model, X, y, sample_weight), size, rows)

        numbers, types = self._candidates()
        reach = np.inf
        if numbers is None:
            numbers, reach = self._numbers(n_classes, n_rows, int(self.n_features_in_))
        choosing = progress_bar("choosing kernels", None)
        with choosing as trials.report, warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for n_kernels in numbers:
                for name in types or STRUCTURES:
                    trials.add("kernels", {"n_kernels": n_kernels, "covariance_type": name}, evaluate)
                if reach <= n_kernels != trials.best.params["n_kernels"]:
                    break
            trials.check()
            best = trials.best
            if not best.models:
                best.models = [self._fit(clone(prototype).set_params(**best.params), X, y, sample_weight)]
        self.best_estimator_ = best.models[0]
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
        """Return the numbers of kernels that 'auto' tries, and that after which the search may end early."""
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

    def _score_by_folds(self, trial: Trial, model: SharedKernelMixture, folds: list[Fold]) -> None:
        """Score a candidate by the mean log-density of held-out rows, each in its own class."""
        for training, held in folds:
            fitted = self._fit(clone(model), training.X, training.y, training.weights)
            densities = fitted.score_samples(held.X, held.y)
            trial.split_scores.append(float(np.average(densities, weights=held.weights)))
        sizes = np.array([held.size for _, held in folds])
        trial.columns["log_likelihood"] = float(sizes @ trial.split_scores)
        trial.score = trial.columns["log_likelihood"] / float(sizes.sum())

    def _score_by_criterion(
        self, trial: Trial, fitted: SharedKernelMixture, size: float, rows: Rows | None
    ) -> None:
        """Score a candidate by minus the criterion of its fit to rows of that total weight."""
        free = n_parameters(fitted)
        value = free * (2.0 if self.criterion == "aic" else np.log(size)) - 2.0 * fitted.log_likelihood_
        if rows is not None:
            value += 2.0 * _entropy(fitted, rows)
        trial.columns |= {
            self.criterion: value,
            "log_likelihood": fitted.log_likelihood_,
            "n_parameters": free,
        }
        trial.models, trial.score = [fitted], -value

    predict = delegated("predict", "Return the most probable kernel (n,) of each row of X (n, M).")
    predict_proba = delegated(
        "predict_proba", "Return the responsibilities (n, K) of the kernels for rows X."
    )
    class_log_likelihood = delegated("class_log_likelihood", "Return log p(x | class j), (n, L), of rows X.")
    score_samples = delegated(
        "score_samples", "Return log p(x), or with labels y log p(x | y), (n,), of rows X."
    )

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Return the mean of `score_samples` over rows X (n, M)."""
        return float(np.mean(self.score_samples(X, y)))

    def fit_predict(self, X: ArrayLike, y: ArrayLike | None = None) -> np.ndarray:
        """Choose, fit and return the most probable kernel (N,) of each row of X (N, M)."""
        kernels: np.ndarray = self.fit(X, y).predict(X)
        return kernels

    def sample(self, n_samples: int = 1, label: Any = None) -> tuple[FloatArray, np.ndarray]:
        """Draw n rows (n, M) and their labels (n,), see `SharedKernelMixture.sample`."""
        check_is_fitted(self)
        return self.best_estimator_.sample(n_samples, label)

    @property
    def _model(self) -> SharedKernelMixture:
        return self.best_estimator_


def _entropy(model: SharedKernelMixture, rows: Rows) -> float:
    """Return −Σ_n Σ_k w_nk log w_nk, rows with a label in their own class."""
    shares = model.responsibilities(rows.X)
    if rows.y is not None:
        labelled = np.flatnonzero(rows.codes >= 0)
        shares[labelled] = model.responsibilities(rows.X[labelled], rows.y[labelled])
    entropies = -xlogy(shares, shares).sum(axis=1)
    return float(entropies.sum() if rows.weights is None else entropies @ rows.weights)
