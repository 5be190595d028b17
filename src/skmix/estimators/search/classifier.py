"""Model selection for classification.

What was measured on iris, wine, glass, pima, vehicle, breast cancer, letter and two kinds of digits, and led
to these candidates:

- A prior of the covariance within the classes on every kernel's covariance is worth more than any number of
  kernels: without it, more than one kernel for each class is rarely safe. (Friedman's regularised
  discriminant analysis is the case of one kernel for each class.)
- The best strength of that prior and the best number of kernels differ between data sets, so they are chosen
  by held-out rows.
- Posteriors of mixtures are overconfident; one temperature, fitted to the same held-out rows, corrects that.
- Discriminative tuning helps where kernels are too few to describe the classes, and harms elsewhere.
- With many features principal components come first: of the features as they are where these have one unit,
  such as pixels, and of standardised ones otherwise.

The candidates were drawn up with the test errors of these data sets in view, so that a comparison on them
flatters this classifier somewhat.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin, _fit_context, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import check_scoring
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data

from ...engine.model import FloatArray
from ...engine.refine.temperature import least_log_loss, log_losses
from .._settings import check_feature_groups
from .._validation import check_labelled_rows, check_weights, weighted_rows
from ..classifier import SharedKernelClassifier
from ._groups import GroupSearch
from ._rows import REDUCTIONS, Fold, Rows, filler, fit_reduction, make_folds, pooled_covariance, project
from ._trials import Search, Trial, covariance_types, kernel_numbers

KERNELS_PER_CLASS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Numbers of kernels tried, over the number of classes, while more of them help."""
FEWER_THAN_CLASSES = (0.25, 0.5)
"""Tried before these where classes are many: they may differ in their weights alone."""
PRIOR_ROWS = (0.5, 2.0, 8.0)
"""Strengths of the prior tried: rows of the covariance within the classes, for each feature."""
KERNELS_OF_GROUP, PRIOR_ROWS_OF_GROUP, WEIGHT_PRIORS_OF_GROUP = (4, 8, 16), (0.5, 4.0), (1.0, 1.1)
"""Tried for feature groups: kernels of each group, strengths of the prior, concentrations of weights."""
TRADE_OFFS = (1.0, 0.1, 0.0)
"""Shares of the likelihood that discriminative tuning is tried with, each from the model that EM found."""

_MANY_CLASSES = 20
# The strength by which reductions are compared, and that of one covariance for all kernels.
_MIDDLE_PRIOR = 2.0
# More kernels are tried as long as the loss falls by this share of it.
_WORTHWHILE = 0.01
_ROWS_PER_KERNEL = 3
_MOST_PASSES, _TOLERANCE = 100, 1e-2
# Rounds of tuning: all of them are taken, so that folds and the final fit do the same.
_ROUNDS = 20
# A model with more numbers in its means than this, for each row, is not tuned: gradients would take longer
# than everything else.
_MOST_NUMBERS_A_ROW = 2
# Up to the first number of features none are reduced; above the second all are.
_FEW_FEATURES, _TOO_MANY_FEATURES = 12, 100


@dataclass(frozen=True)
class Candidate:
    """Settings to try.

    Attributes
    ----------
    n_kernels : int
        Number of kernels, of each feature group.
    covariance_type : str
        Structure of the covariances.
    prior_rows : float or None
        Strength of the prior on covariances in rows for each feature; None leaves it to the estimator.
    weight_prior : float or None
        Concentration of the prior on weights.
    feature_groups : tuple of tuples of int, or None
        The groups; None is one group of all features.
    reduction : str
        What is done to the features first.
    trade_off : float or None
        Share of the likelihood in discriminative tuning; None is EM alone.
    """

    n_kernels: int
    covariance_type: str
    prior_rows: float | None
    weight_prior: float | None = None
    feature_groups: tuple[tuple[int, ...], ...] | None = None
    reduction: str = "none"
    trade_off: float | None = None

    def params(self) -> dict[str, Any]:
        """Return the settings for people to read."""
        groups = None if self.feature_groups is None else [list(group) for group in self.feature_groups]
        return {**asdict(self), "feature_groups": groups}


class SharedKernelClassifierCV(ClassifierMixin, Search):
    """SharedKernelClassifier with its settings chosen by cross-validation.

    In this order are chosen, by the score of held-out rows: principal components, if there are more than 12
    features; for each covariance type and strength of the prior on covariances, the number of kernels, from
    one for each class upwards while it helps (with 20 classes or more, from one for every four classes); and
    whether the winner is tuned for classification, and with how much of the likelihood. The temperature of
    the probabilities is fitted to the same rows. The winner is then fitted to all rows.

    Parameters
    ----------
    estimator : SharedKernelClassifier, default=None
        Settings that are not searched: `init`, `n_init`, `max_iter`, `priors`, `reject_below` and so on. Its
        `covariance_prior` and `weight_prior` are searched unless they differ from the default. None stops
        fits after 100 passes, or when the mean log-likelihood changes by less than 0.01.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try.
    covariance_type : str, list of str or 'auto', default='auto'
        Covariance types to try; 'auto' is tied and full, with feature groups full.
    feature_groups : list of lists of int or str, or 'auto', default=None
        Feature groups of the product form, see `SharedKernelClassifier`. 'auto' searches for groups, and for
        features to leave out, with the first number of kernels. With groups features are not reduced, and 4,
        8 and 16 kernels are tried for each group.
    tune : {'auto', False} or float, default='auto'
        Whether to tune the winner for classification, see `SharedKernelClassifier.tune`. 'auto' does so where
        held-out rows are predicted better; a number is the share of the likelihood, and always used.
    scoring : str or callable, default='neg_log_loss'
        What is maximised: the name of a scorer of scikit-learn, or a callable ``scorer(estimator, X, y)``.
        The log-loss is that at the best temperature, of all held-out rows together.
    cv : int, splitter or iterable, default=None
        Cross-validation. None is five shuffled stratified folds, three from 500 rows on, and one split from
        4000 on; rows that are alone in their class always train. Rows without a label always train.
    time_limit : float, default=None
        After so many seconds no further candidate is tried: the best so far is fitted to all rows.
    n_jobs : int, default=None
        Number of threads of each fit; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of folds and starts.

    Attributes
    ----------
    best_estimator_ : SharedKernelClassifier or Pipeline
        The winner, fitted to all rows and calibrated; where features are reduced, a pipeline.
    classifier_ : SharedKernelClassifier
        The classifier in it.
    projection_ : tuple or None
        Offset b (M,) and matrix A (M, q) of the features (x − b) A that the classifier takes; None where
        features are not reduced.
    best_params_ : dict
        Settings of the winner: `n_kernels`, `covariance_type`, `prior_rows` (strength of the prior in rows
        for each feature), `weight_prior`, `feature_groups`, `reduction` and `trade_off`.
    best_score_ : float
        Its score on held-out rows; NaN where no row could be held out.
    best_index_ : int
        Its place in `cv_results_`.
    cv_results_ : dict of arrays
        What was tried, ready for ``pandas.DataFrame``: `stage` (what was being chosen), `param_…`, `params`,
        `mean_test_score`, `std_test_score`, `split…_test_score`, `rank_test_score`, `mean_fit_time`,
        `temperature`.
    classes_ : ndarray of shape (L,)
        Class labels, sorted.
    n_features_in_ : int
        Number M of features.
    feature_names_in_ : ndarray of shape (M,)
        Feature names, when X had them.

    Notes
    -----
    The winner's score is optimistic, since it won. Cross-validate the whole search to estimate it, as in
    ``cross_val_score(SharedKernelClassifierCV(), X, y)``.

    Missing values are filled by a Gaussian fitted to the training rows of a fold while settings are chosen,
    and for tuning; the final EM fit uses what is observed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = SharedKernelClassifierCV(random_state=0).fit(X, y)
    >>> bool(search.score(X, y) > 0.96)
    True
    """

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **Search._parameter_constraints,
        "estimator": [SharedKernelClassifier, None],
        "feature_groups": [list, tuple, StrOptions({"auto"}), None],
        "tune": [StrOptions({"auto"}), "boolean", Interval(Real, 0, None, closed="left"), None],
        "scoring": [str, callable],
    }

    def __init__(
        self,
        estimator: SharedKernelClassifier | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        feature_groups: Sequence[Sequence[int | str]] | str | None = None,
        tune: str | bool | float | None = "auto",
        scoring: Any = "neg_log_loss",
        cv: Any = None,
        time_limit: float | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.feature_groups = feature_groups
        self.tune = tune
        self.scoring = scoring
        self.cv = cv
        self.time_limit = time_limit
        self.n_jobs = n_jobs
        self.random_state = random_state

    @_fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Choose settings and fit.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN marks a missing value.
        y : array-like of shape (N,)
            Class labels; -1 marks a row without a label, see `SharedKernelClassifier.fit`.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows, in fits and in scores.
        groups : array-like of shape (N,), default=None
            Groups of the rows for a `cv` that keeps them together.

        Returns
        -------
        SharedKernelClassifierCV
            The fitted search.
        """
        everything, classes, codes = check_labelled_rows(self, X, y)
        if len(classes) < 2:
            raise ValueError(
                f"A classifier needs two classes or more, got one class: {classes.tolist()[0]!r}."
            )
        weights = check_weights(sample_weight, everything)
        kept = np.arange(len(everything)) if weights is None else np.flatnonzero(weights)
        values, classes, codes, weights = weighted_rows(everything, classes, codes, weights)
        rows = Rows(values, np.asarray(y)[kept], codes, weights)
        default = SharedKernelClassifier(max_iter=_MOST_PASSES, tol=_TOLERANCE)
        prototype, seed, deadline = self._begin(default)
        with warnings.catch_warnings():
            # A fit that stops at the largest number of passes is judged as it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            own_groups = None if groups is None else np.asarray(groups)[kept]
            folds = make_folds(rows, self.cv, own_groups, kept, seed)
            run = _Run(self, prototype, folds, deadline, seed)
            best = self._choose(run, rows, len(classes))
            complete = filler(rows.X, seed)(rows.X) if np.isnan(rows.X).any() else rows.X
            self.projection_ = fit_reduction(best.candidate.reduction, complete, seed)
            if self.projection_ is None:
                model = self._make(prototype, best.candidate, rows).fit(X, y, sample_weight)
            else:
                reduced = replace(rows, X=project(rows.X, self.projection_))
                model = self._make(prototype, best.candidate, reduced)
                model.fit(reduced.X, reduced.y, reduced.weights)
            if best.candidate.trade_off is not None:
                _tune(
                    model,
                    replace(rows, X=project(complete, self.projection_)),
                    best.candidate.trade_off,
                    seed,
                )
        model.temperature_ = best.temperature
        self.classifier_ = model
        self.classes_ = model.classes_
        self._store(run.trials, best)
        return self

    def _choose(self, run: _Run, rows: Rows, n_classes: int) -> Trial:
        """Try candidates, and return the winner."""
        prototype, n_features = run.prototype, rows.X.shape[1]
        numbers, types = kernel_numbers(self.n_kernels), covariance_types(self.covariance_type)
        groups = self._feature_groups(run, numbers, types, n_classes)
        strong = prototype.covariance_prior != SharedKernelClassifier().covariance_prior
        middle = None if strong else _MIDDLE_PRIOR
        first = Candidate(numbers[0] if numbers else n_classes, types[0] if types else "full", middle)
        if not run.folds:
            return run.add(
                replace(first, covariance_type=types[0] if types else "tied", feature_groups=groups)
            )
        n_train = min(len(fold.training.X) for fold in run.folds)
        if groups is not None:
            ladders = _group_candidates(numbers, types, groups, prototype, strong, n_train)
        else:
            names = _reductions(n_features, len(rows.X), bool(np.isnan(rows.X).any()))
            if len(names) > 1:
                tried = [run.evaluate(replace(first, reduction=name), "reduction") for name in names]
                names = [max(filter(None, tried), key=lambda trial: trial.score).candidate.reduction]
            ladders = _candidates(numbers, types, strong, n_classes, n_train, names[0])
        for ladder in ladders:
            last = -np.inf
            for candidate in ladder:
                trial = run.evaluate(candidate, "kernels")
                if trial is None or trial.score < last + _WORTHWHILE * abs(last):
                    break
                last = trial.score
        if not np.isfinite(run.best.score):
            raise ValueError(f"No candidate could be fitted: {run.error}")
        return self._choose_tuning(run, len(rows.X))

    def _choose_tuning(self, run: _Run, n_rows: int) -> Trial:
        """Try to tune the best candidate, and return the winner."""
        best = run.best
        candidate, n_features = best.candidate, run.folds_of(best.candidate.reduction)[0].held.X.shape[1]
        automatic = isinstance(self.tune, str)
        if self.tune is None or self.tune is False:
            return best
        if automatic and (
            candidate.feature_groups is not None
            or candidate.covariance_type == "low_rank"
            or candidate.n_kernels * n_features > _MOST_NUMBERS_A_ROW * n_rows
        ):
            return best
        trade_offs = TRADE_OFFS if automatic or self.tune is True else (float(self.tune),)
        models = best.models
        tried = [run.evaluate(replace(candidate, trade_off=t), "tuning", models) for t in trade_offs]
        return max(([best] if automatic else []) + list(filter(None, tried)), key=lambda trial: trial.score)

    def _feature_groups(
        self, run: _Run, numbers: list[int] | None, types: list[str] | None, n_classes: int
    ) -> tuple[tuple[int, ...], ...] | None:
        """Return the feature groups given or found; None for one group of all features."""
        n_features = int(self.n_features_in_)
        if self.feature_groups is None:
            return None
        if not isinstance(self.feature_groups, str):
            names = getattr(self, "feature_names_in_", None)
            found = check_feature_groups(self.feature_groups, n_features, names)
        elif n_features == 1 or not run.folds:
            return None
        else:
            settings = clone(run.prototype).set_params(
                n_kernels=numbers[0] if numbers else n_classes, covariance_type=types[0] if types else "full"
            )
            found, steps = GroupSearch(settings, run.folds, run.deadline, run.seed).find()
            run.trials.extend(steps)
        return None if found == [list(range(n_features))] else tuple(map(tuple, found))

    def _make(
        self, prototype: SharedKernelClassifier, candidate: Candidate, rows: Rows
    ) -> SharedKernelClassifier:
        """Return the unfitted classifier of a candidate; its prior comes from the rows."""
        groups = candidate.feature_groups
        settings: dict[str, Any] = {
            "n_kernels": candidate.n_kernels,
            "covariance_type": candidate.covariance_type,
            "feature_groups": None if groups is None else [list(group) for group in groups],
        }
        if candidate.prior_rows is not None:
            own = rows.labelled
            width = rows.X.shape[1] if groups is None else sum(map(len, groups)) / len(groups)
            pooled = pooled_covariance(own.X, own.codes, own.weights)
            settings["covariance_prior"] = (candidate.prior_rows * width, pooled)
        if candidate.weight_prior is not None:
            settings["weight_prior"] = candidate.weight_prior
        made: SharedKernelClassifier = clone(prototype).set_params(**settings)
        return made

    @property
    def best_estimator_(self) -> Any:
        """The winner, fitted to all rows: a classifier, or a pipeline that reduces the features first."""
        if self.projection_ is None:
            return self.classifier_
        reduction = FunctionTransformer(project, kw_args={"projection": self.projection_})
        return make_pipeline(reduction.fit(np.zeros((1, self.n_features_in_))), self.classifier_)

    def _features(self, X: Any) -> Any:
        """Return what the classifier takes for rows X (n, M)."""
        self._check_features(X)
        if self.projection_ is None:
            return X
        return project(validate_data(self, X, reset=False, dtype=np.float64), self.projection_)

    def _check(self) -> SharedKernelClassifier:
        """Return the fitted classifier."""
        check_is_fitted(self)
        return self.classifier_

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable class (n,) of each row of X (n, M)."""
        return self._check().predict(self._features(X))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        return self._check().predict_proba(self._features(X))

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Return the logarithms of the posterior probabilities (n, L) of rows X (n, M)."""
        return self._check().predict_log_proba(self._features(X))

    def class_log_likelihood(self, X: ArrayLike) -> FloatArray:
        """Return log p(x | class j), shape (n, L), of rows X (n, M), or of their reduced features."""
        return self._check().class_log_likelihood(self._features(X))

    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return log p(x), shape (n,), of rows X (n, M), or of their reduced features."""
        return self._check().score_samples(self._features(X))

    def _graph_parts(self) -> dict[str, Any]:
        return {**self.classifier_._graph_parts(), "projection": self.projection_}


class _Run:
    """Candidates fitted to the folds; each is tried once."""

    def __init__(
        self,
        search: SharedKernelClassifierCV,
        prototype: SharedKernelClassifier,
        folds: list[Fold],
        deadline: float,
        seed: int,
    ) -> None:
        self.prototype, self.folds, self.deadline, self.seed = prototype, folds, deadline, seed
        self.trials: list[Trial] = []
        self.error: ValueError | None = None
        self.best: Trial = Trial("", {}, -np.inf)
        self._search = search
        self._scorer = check_scoring(prototype, scoring=search.scoring)
        self._tried: dict[Candidate, Trial] = {}
        self._reduced: dict[str, list[Fold]] = {}

    def folds_of(self, reduction: str) -> list[Fold]:
        """Return the folds with reduced features; each reduction is fitted to the training rows."""
        if reduction == "none":
            return self.folds
        if reduction not in self._reduced:
            self._reduced[reduction] = []
            for fold in self.folds:
                projection = fit_reduction(reduction, fold.training.X, self.seed)
                self._reduced[reduction].append(fold.map(lambda X, p=projection: project(X, p)))
        return self._reduced[reduction]

    def add(self, candidate: Candidate) -> Trial:
        """Return a candidate that no row can be held out for."""
        self.trials.append(Trial("kernels", candidate.params(), np.nan, candidate=candidate))
        return self.trials[-1]

    def evaluate(
        self, candidate: Candidate, stage: str, fitted: list[SharedKernelClassifier] | None = None
    ) -> Trial | None:
        """Return a candidate with its score; None when time is up.

        `fitted` are models of the folds to tune, so that they need not be fitted again.
        """
        if candidate in self._tried:
            return self._tried[candidate]
        started = time.monotonic()
        if self._tried and started > self.deadline:
            return None
        folds = self.folds_of(candidate.reduction)
        try:
            if fitted is None:
                models = [
                    self._search._make(self.prototype, candidate, fold.training).fit(
                        fold.training.X, fold.training.y, fold.training.weights
                    )
                    for fold in folds
                ]
            else:
                models = [
                    _tune(deepcopy(model), fold.training, candidate.trade_off, self.seed)
                    for model, fold in zip(fitted, folds, strict=True)
                ]
            trial = self._score(candidate, stage, models, folds)
        except ValueError as error:
            self.error = error
            trial = Trial(stage, candidate.params(), -np.inf, candidate=candidate)
        trial.seconds = time.monotonic() - started
        self._tried[candidate] = trial
        self.trials.append(trial)
        if trial.score > self.best.score:
            self.best.models, self.best = [], trial
        else:
            trial.models = []
        return trial

    def _score(
        self, candidate: Candidate, stage: str, models: list[SharedKernelClassifier], folds: list[Fold]
    ) -> Trial:
        """Return the score of a candidate on all held-out rows, at the temperature of least log-loss."""
        held = [fold.held for fold in folds]
        logs = [model.predict_log_proba(rows.X) for model, rows in zip(models, held, strict=True)]
        codes = np.concatenate([rows.codes for rows in held])
        weights = None if held[0].weights is None else np.concatenate([rows.weights for rows in held])
        temperature, loss = least_log_loss(np.concatenate(logs), codes, weights)
        if self._search.scoring == "neg_log_loss":
            scores = [-_log_loss(log, rows, temperature) for log, rows in zip(logs, held, strict=True)]
            score = -loss
        else:
            scores = [
                self._scored(model, rows, temperature) for model, rows in zip(models, held, strict=True)
            ]
            score = np.average(scores, weights=[rows.size for rows in held])
        return Trial(
            stage,
            candidate.params(),
            float(score),
            scores,
            temperature=temperature,
            models=models,
            candidate=candidate,
            columns={"temperature": temperature},
        )

    def _scored(self, model: SharedKernelClassifier, rows: Rows, temperature: float) -> float:
        """Return the user's score of a model on held-out rows."""
        model.temperature_ = temperature
        given = {} if rows.weights is None else {"sample_weight": rows.weights}
        score = float(self._scorer(model, rows.X, rows.y, **given))
        model.temperature_ = 1.0
        return score


def _log_loss(logs: FloatArray, rows: Rows, temperature: float) -> float:
    """Return the mean log-loss of rows, from log-joints (n, L)."""
    losses = log_losses(logs, rows.codes, temperature)
    return float(np.average(losses, weights=rows.weights))


def _tune(model: SharedKernelClassifier, rows: Rows, trade_off: Any, seed: int) -> SharedKernelClassifier:
    """Tune a fitted classifier on the labelled rows, for a fixed number of rounds."""
    own: Any = rows.labelled
    return model.tune(
        own.X,
        own.y,
        trade_off=trade_off,
        validation=None,
        max_iter=_ROUNDS,
        sample_weight=own.weights,
        random_state=seed,
    )


def _reductions(n_features: int, n_rows: int, gaps: bool) -> list[str]:
    """Return the names of the reductions to try."""
    if n_features <= _FEW_FEATURES or gaps or n_rows <= 2:
        return ["none"]
    return [name for name in REDUCTIONS if name != "none" or n_features <= _TOO_MANY_FEATURES]


def _candidates(
    numbers: list[int] | None,
    types: list[str] | None,
    strong: bool,
    n_classes: int,
    n_train: int,
    reduction: str,
) -> Iterator[list[Candidate]]:
    """Yield candidates in sequences of more and more kernels."""
    if numbers is None:
        fewer = FEWER_THAN_CLASSES if n_classes >= _MANY_CLASSES else ()
        every = [round(per_class * n_classes) for per_class in (*fewer, *KERNELS_PER_CLASS)]
        numbers = [k for k in every if k <= n_classes or _ROWS_PER_KERNEL * k <= n_train]
    for covariance_type in types or ["tied", "full"]:
        strengths = (_MIDDLE_PRIOR,) if covariance_type == "tied" else PRIOR_ROWS
        for strength in (None,) if strong else strengths:
            yield [Candidate(k, covariance_type, strength, reduction=reduction) for k in numbers]


def _group_candidates(
    numbers: list[int] | None,
    types: list[str] | None,
    groups: tuple[tuple[int, ...], ...],
    prototype: SharedKernelClassifier,
    strong: bool,
    n_train: int,
) -> Iterator[list[Candidate]]:
    """Yield candidates for feature groups, each in a sequence of its own."""
    own = prototype.weight_prior is not None or prototype.inference != "em"
    for n_kernels in numbers or sorted({min(k, n_train) for k in KERNELS_OF_GROUP}):
        for covariance_type in types or ["full"]:
            for strength in (None,) if strong else PRIOR_ROWS_OF_GROUP:
                for weight_prior in (None,) if own else WEIGHT_PRIORS_OF_GROUP:
                    yield [Candidate(n_kernels, covariance_type, strength, weight_prior, groups)]
