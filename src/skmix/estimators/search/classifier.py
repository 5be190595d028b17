"""Model selection for classification; the guide on model selection says why these candidates are tried."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import product
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
from sklearn.utils.validation import validate_data

from ...engine.refine.temperature import least_log_loss, log_losses
from .._settings import check_feature_groups
from ..callbacks import progress_bar
from ..classifier import SharedKernelClassifier
from ..io import savable
from ._groups import GroupSearch
from ._rows import Fold, Rows, filler, fit_reduction, make_folds, pooled_covariance, project, reductions
from ._trials import Params, Search, Trial, Trials, delegated

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


@savable
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
        rows, kept = self._open(X, y, sample_weight)
        n_classes = int(rows.codes.max()) + 1
        if n_classes < 2:
            label = rows.labelled.y.tolist()[0]
            raise ValueError(f"A classifier needs two classes or more, got one class: {label!r}.")
        prototype = self._prototype(SharedKernelClassifier(max_iter=_MOST_PASSES, tol=_TOLERANCE))
        seed = prototype.random_state
        trials = Trials(self.time_limit)
        choosing = progress_bar("choosing settings", None)
        with choosing as trials.report, warnings.catch_warnings():
            # A fit that stops at the largest number of passes is judged as it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            own = None if groups is None else np.asarray(groups)[kept]
            folds = []
            for training, held in make_folds(rows, self.cv, own, kept, seed):
                fill = filler(training.X, seed)
                folds.append((training.map(fill), held.map(fill)))
            best = self._choose(trials, _Evaluator(self, prototype, folds), rows, n_classes)
            complete = rows.map(filler(rows.X, seed))
            self.projection_ = fit_reduction(best.params["reduction"], complete.X, seed)
            reduced, complete = (
                each.map(lambda X: project(X, self.projection_)) for each in (rows, complete)
            )
            model = self._make(prototype, best.params, reduced)
            if self.projection_ is None:
                model.fit(X, y, sample_weight)
            else:
                model.fit(reduced.X, reduced.y, reduced.weights)
            if best.params["trade_off"] is not None:
                # The model may have the names of a data frame's columns, which filled rows lack.
                warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                _tune(model, complete, best.params["trade_off"], seed)
        model.temperature_ = best.columns.get("temperature", 1.0)
        self.classifier_ = model
        self.classes_ = model.classes_
        self._store(trials, best)
        return self

    def _choose(self, trials: Trials, evaluator: _Evaluator, rows: Rows, n_classes: int) -> Trial:
        """Try candidates, and return the winner."""
        numbers, types = self._candidates()
        given = evaluator.prototype.covariance_prior != SharedKernelClassifier().covariance_prior
        first: Params = {
            "n_kernels": numbers[0] if numbers else n_classes,
            "covariance_type": types[0] if types else "full" if evaluator.folds else "tied",
            "prior_rows": None if given else _MIDDLE_PRIOR,
            "weight_prior": None,
            "feature_groups": None,
            "reduction": "none",
            "trade_off": None,
        }
        first["feature_groups"] = groups = self._feature_groups(trials, evaluator, first)
        if not evaluator.folds:
            # Every class has a single row, so that none can be held out.
            trials.list.append(Trial("kernels", first, np.nan))
            return trials.list[0]
        if groups is None:
            names = reductions(rows)
            for name in names if len(names) > 1 else []:
                trials.add("reduction", {**first, "reduction": name}, evaluator)
            first["reduction"] = trials.best.params["reduction"] if len(names) > 1 else names[0]
        n_train = min(len(training.X) for training, _ in evaluator.folds)
        numbers = numbers or self._numbers(n_classes, n_train, groups)
        for sequence in self._sequences(numbers, types, given, evaluator.prototype, groups):
            last = -np.inf
            for settings in sequence:
                trial = trials.add("kernels", {**first, **settings}, evaluator)
                if trial is None or trial.score < last + _WORTHWHILE * abs(last):
                    break
                last = trial.score
        trials.check()
        return self._choose_tuning(trials, evaluator, len(rows.X))

    def _numbers(self, n_classes: int, n_train: int, groups: list[list[int]] | None) -> list[int]:
        """Return the numbers of kernels that 'auto' tries, given how many rows there are to train with."""
        if groups is not None:
            return sorted({min(k, n_train) for k in KERNELS_OF_GROUP})
        fewer = FEWER_THAN_CLASSES if n_classes >= _MANY_CLASSES else ()
        every = [round(per_class * n_classes) for per_class in (*fewer, *KERNELS_PER_CLASS)]
        return [k for k in every if k <= n_classes or _ROWS_PER_KERNEL * k <= n_train]

    def _sequences(
        self, numbers: list[int], types: Any, given: bool, prototype: Any, groups: Any
    ) -> Iterator[list[Params]]:
        """Yield sequences of settings, each to be tried while it helps; a prior that is given stays."""
        if groups is None:
            for name in types or ["tied", "full"]:
                for rows in (None,) if given else (_MIDDLE_PRIOR,) if name == "tied" else PRIOR_ROWS:
                    yield [{"n_kernels": k, "covariance_type": name, "prior_rows": rows} for k in numbers]
            return
        weigh = prototype.weight_prior is None and prototype.inference == "em"
        weights = WEIGHT_PRIORS_OF_GROUP if weigh else (None,)
        strengths = (None,) if given else PRIOR_ROWS_OF_GROUP
        for k, name, rows, weight in product(numbers, types or ["full"], strengths, weights):
            yield [{"n_kernels": k, "covariance_type": name, "prior_rows": rows, "weight_prior": weight}]

    def _choose_tuning(self, trials: Trials, evaluator: _Evaluator, n_rows: int) -> Trial:
        """Try to tune the best candidate, and return the winner."""
        best, models, automatic = trials.best, trials.best.models, isinstance(self.tune, str)
        n_numbers = best.params["n_kernels"] * models[0].n_features_in_
        unsuited = best.params["feature_groups"] is not None or best.params["covariance_type"] == "low_rank"
        too_many = n_numbers > _MOST_NUMBERS_A_ROW * n_rows
        if self.tune is None or self.tune is False or (automatic and (unsuited or too_many)):
            return best
        every = TRADE_OFFS if automatic or self.tune is True else (float(self.tune),)
        tried = [
            trials.add(
                "tuning", {**best.params, "trade_off": t}, lambda trial: evaluator.tuned(trial, models)
            )
            for t in every
        ]
        trials.check()
        return trials.best if automatic else max(filter(None, tried), key=lambda t: t.score, default=best)

    def _feature_groups(self, trials: Trials, evaluator: _Evaluator, first: Params) -> list[list[int]] | None:
        """Return the feature groups given or found; None for one group of all features."""
        n_features = int(self.n_features_in_)
        if self.feature_groups is None:
            return None
        if not isinstance(self.feature_groups, str):
            names = getattr(self, "feature_names_in_", None)
            return check_feature_groups(self.feature_groups, n_features, names)
        if n_features == 1 or not evaluator.folds:
            return None
        kernels = {name: first[name] for name in ("n_kernels", "covariance_type")}
        prototype = clone(evaluator.prototype).set_params(**kernels)
        found = GroupSearch(prototype, evaluator.folds, trials, prototype.random_state).find()
        return None if found == [list(range(n_features))] else found

    def _make(self, prototype: SharedKernelClassifier, params: Params, rows: Rows) -> SharedKernelClassifier:
        """Return the unfitted classifier of a candidate; its prior comes from the rows."""
        groups = params["feature_groups"]
        settings = {name: params[name] for name in ("n_kernels", "covariance_type", "feature_groups")}
        if params["prior_rows"] is not None:
            own = rows.labelled
            width = rows.X.shape[1] if groups is None else sum(map(len, groups)) / len(groups)
            pooled = pooled_covariance(own.X, own.codes, own.weights)
            settings["covariance_prior"] = (params["prior_rows"] * width, pooled)
        if params["weight_prior"] is not None:
            settings["weight_prior"] = params["weight_prior"]
        made: SharedKernelClassifier = clone(prototype).set_params(**settings)
        return made

    @property
    def best_estimator_(self) -> Any:
        """The winner, fitted to all rows: a classifier, or a pipeline that reduces the features first."""
        if self.projection_ is None:
            return self.classifier_
        reduction = FunctionTransformer(project, kw_args={"projection": self.projection_})
        return make_pipeline(reduction, self.classifier_)

    def _features(self, X: Any) -> Any:
        """Return what the classifier takes for rows X (n, M)."""
        X = super()._features(X)
        if self.projection_ is None:
            return X
        rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return project(rows, self.projection_)

    predict = delegated("predict", "Return the most probable class (n,) of each row of X (n, M).")
    predict_proba = delegated(
        "predict_proba", "Return the posteriors Pr(class j | x), shape (n, L), of rows X."
    )
    predict_log_proba = delegated("predict_log_proba", "Return the logarithms (n, L) of `predict_proba`.")
    class_log_likelihood = delegated(
        "class_log_likelihood",
        "Return log p(x | class j), shape (n, L), of rows X, or their reduced features.",
    )
    score_samples = delegated(
        "score_samples", "Return log p(x), shape (n,), of rows X, or of their reduced features."
    )

    @property
    def _model(self) -> SharedKernelClassifier:
        return self.classifier_

    def _graph_parts(self) -> dict[str, Any]:
        return {**super()._graph_parts(), "projection": self.projection_}


class _Evaluator:
    """Fits candidates to the folds, and scores them on held-out rows."""

    def __init__(self, search: SharedKernelClassifierCV, prototype: Any, folds: list[Fold]) -> None:
        self.prototype, self.folds = prototype, folds
        self._search = search
        self._scorer = check_scoring(prototype, scoring=search.scoring)
        self._reduced: dict[str, list[Fold]] = {"none": folds}

    def __call__(self, trial: Trial) -> None:
        """Fit a candidate, and score it."""
        trial.models = [
            self._search._make(self.prototype, trial.params, rows).fit(rows.X, rows.y, rows.weights)
            for rows, _ in self._folds_of(trial)
        ]
        self._score(trial)

    def tuned(self, trial: Trial, fitted: list[SharedKernelClassifier]) -> None:
        """Tune models that were fitted to the folds, and score them."""
        trial.models = [
            _tune(deepcopy(model), rows, trial.params["trade_off"], self.prototype.random_state)
            for model, (rows, _) in zip(fitted, self._folds_of(trial), strict=True)
        ]
        self._score(trial)

    def _folds_of(self, trial: Trial) -> list[Fold]:
        """Return the folds with reduced features; a reduction is fitted to the training rows of each."""
        name = trial.params["reduction"]
        if name not in self._reduced:
            self._reduced[name] = []
            for training, held in self.folds:
                own = partial(
                    project, projection=fit_reduction(name, training.X, self.prototype.random_state)
                )
                self._reduced[name].append((training.map(own), held.map(own)))
        return self._reduced[name]

    def _score(self, trial: Trial) -> None:
        """Score a candidate on all held-out rows, at the temperature of least log-loss."""
        held = [held for _, held in self._folds_of(trial)]
        logs = [model.predict_log_proba(rows.X) for model, rows in zip(trial.models, held, strict=True)]
        codes = np.concatenate([rows.codes for rows in held])
        weights = None if held[0].weights is None else np.concatenate([rows.weights for rows in held])
        temperature, loss = least_log_loss(np.concatenate(logs), codes, weights)
        trial.columns["temperature"] = temperature
        if self._search.scoring == "neg_log_loss":
            trial.score = -loss
            for log, rows in zip(logs, held, strict=True):
                losses = log_losses(log, rows.codes, temperature)
                trial.split_scores.append(-float(np.average(losses, weights=rows.weights)))
            return
        for model, rows in zip(trial.models, held, strict=True):
            model.temperature_ = temperature
            given = {} if rows.weights is None else {"sample_weight": rows.weights}
            trial.split_scores.append(float(self._scorer(model, rows.X, rows.y, **given)))
            model.temperature_ = 1.0
        trial.score = float(np.average(trial.split_scores, weights=[rows.size for rows in held]))


def _tune(model: SharedKernelClassifier, rows: Rows, trade_off: float, seed: int) -> SharedKernelClassifier:
    """Tune a fitted classifier on the labelled rows, for a fixed number of rounds."""
    own = rows.labelled
    return model.tune(
        own.X,
        own.y,
        trade_off=trade_off,
        validation=None,
        max_iter=_ROUNDS,
        sample_weight=own.weights,
        random_state=seed,
    )
