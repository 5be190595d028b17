"""Model selection for classification; the guide on model selection says why these candidates are tried."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import check_scoring
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import validate_data

from ...engine.compute.arrays import on_host
from ...engine.compute.blocks import Block
from ...engine.refine.temperature import least_log_loss, log_losses
from .._settings import check_feature_groups
from ..classifier import SharedKernelClassifier
from ..crossfit import quantile
from ..decisions import check_outlier_label, novelty_threshold
from ..io import savable
from ..rows import Sender, sender
from ._base import Fold, Params, Rows, Search, Trial, Trials, delegated, documented, make_folds
from ._features import GroupSearch, filler, fit_reduction, pooled_covariance, project, reductions

# Numbers of kernels tried, over the number of classes, while more of them help. With many classes fewer come
# first: classes may differ in their weights alone.
_KERNELS_PER_CLASS, _FEWER_THAN_CLASSES, _MANY_CLASSES = (1.0, 2.0, 4.0, 8.0, 16.0), (0.25, 0.5), 20
# More kernels are tried as long as the loss falls by this share of it, and there are so many rows for each.
_WORTHWHILE, _ROWS_PER_KERNEL = 0.01, 3
# Strengths of the prior tried: rows of the covariance within the classes, for each feature. By the middle one
# reductions are compared; it is also that of one covariance for all kernels.
_PRIOR_ROWS, _MIDDLE_PRIOR = (0.5, 2.0, 8.0), 2.0
# Tried for feature groups: kernels of each group, strengths of the prior, concentrations of weights.
_KERNELS_OF_GROUP, _PRIOR_ROWS_OF_GROUP, _WEIGHT_PRIORS_OF_GROUP = (4, 8, 16), (0.5, 4.0), (1.0, 1.1)
# Shares of the likelihood that discriminative tuning is tried with, each from the model that EM found. All
# rounds are taken, so that folds and the final fit do the same.
_TRADE_OFFS, _TUNING = (1.0, 0.1, 0.0), {"validation": None, "max_iter": 20}
# A model with more numbers in its means than this, for each row, is not tuned: gradients would take longer
# than everything else.
_MOST_NUMBERS_A_ROW = 2
_MOST_PASSES, _TOLERANCE = 100, 1e-2


@dataclass
class Selection:
    """The choice of settings: which candidates are tried, and how they are scored on held-out rows."""

    search: Any
    prototype: Any
    rows: Rows
    folds: list[Fold]
    trials: Trials
    to_device: Sender

    def __post_init__(self) -> None:
        self._scorer = check_scoring(self.prototype, scoring=self.search.scoring)
        self._reduced = cache(self._reduce)

    def choose(self) -> Trial:
        """Try candidates, and return the winner."""
        folds, trials = self.folds, self.trials
        numbers, types = self.search._candidates()
        n_classes = int(self.rows.codes.max()) + 1
        params: Params = {
            "n_kernels": numbers[0] if numbers else n_classes,
            "covariance_type": types[0] if types else "full" if folds else "tied",
            "prior_rows": _MIDDLE_PRIOR if self.prototype.covariance_prior == "auto" else None,
            "weight_prior": None,
            "feature_groups": None,
            "reduction": "none",
            "trade_off": None,
        }
        params["feature_groups"] = self._feature_groups(params)
        if not folds:
            # Every class has a single row, so that none can be held out.
            trials.list.append(Trial("kernels", params, np.nan))
            return trials.list[0]
        names = reductions(self.rows.X) if params["feature_groups"] is None else ["none"]
        for name in names if len(names) > 1 else []:
            trials.add("reduction", {**params, "reduction": name}, self._evaluate)
        params["reduction"] = trials.best.params.get("reduction", names[0])
        n_train = min(len(training.X) for training, _ in folds)
        numbers = numbers or self.numbers(n_classes, n_train, params["feature_groups"])
        for sequence in self.sequences(params, numbers, types):
            last = -np.inf
            for settings in sequence:
                trial = trials.add("kernels", {**params, **settings}, self._evaluate)
                if trial is None or trial.score < last + _WORTHWHILE * abs(last):
                    break
                last = trial.score
        trials.check()
        return self._choose_tuning(trials.best)

    def _feature_groups(self, params: Params) -> list[list[int]] | None:
        """Return the feature groups given or found; None for one group of all features."""
        groups, folds, n_features = self.search.feature_groups, self.folds, self.rows.X.shape[1]
        if groups is None or (isinstance(groups, str) and (n_features == 1 or not folds)):
            return None
        if not isinstance(groups, str):
            return check_feature_groups(groups, n_features, getattr(self.search, "feature_names_in_", None))
        kernels = {name: params[name] for name in ("n_kernels", "covariance_type")}
        found = GroupSearch(clone(self.prototype).set_params(**kernels), folds, self.trials).find()
        return None if found == [list(range(n_features))] else found

    def numbers(self, n_classes: int, n_train: int, groups: list[list[int]] | None) -> list[int]:
        """Return the numbers of kernels that 'auto' tries, given how many rows there are to train with."""
        if groups is not None:
            return sorted({min(k, n_train) for k in _KERNELS_OF_GROUP})
        fewer = _FEWER_THAN_CLASSES if n_classes >= _MANY_CLASSES else ()
        every = [round(per_class * n_classes) for per_class in (*fewer, *_KERNELS_PER_CLASS)]
        return [k for k in every if k <= n_classes or _ROWS_PER_KERNEL * k <= n_train]

    def sequences(self, params: Params, numbers: list[int], types: Any) -> Iterator[list[Params]]:
        """Yield sequences of settings, each to be tried while it helps; a prior that is given stays."""
        given = params["prior_rows"] is None
        if params["feature_groups"] is None:
            for name in types or ["tied", "full"]:
                for rows in (None,) if given else (_MIDDLE_PRIOR,) if name == "tied" else _PRIOR_ROWS:
                    yield [{"n_kernels": k, "covariance_type": name, "prior_rows": rows} for k in numbers]
            return
        weigh = self.prototype.weight_prior is None and self.prototype.inference == "em"
        weights = _WEIGHT_PRIORS_OF_GROUP if weigh else (None,)
        strengths = (None,) if given else _PRIOR_ROWS_OF_GROUP
        for k, name, rows, weight in product(numbers, types or ["full"], strengths, weights):
            yield [{"n_kernels": k, "covariance_type": name, "prior_rows": rows, "weight_prior": weight}]

    def _choose_tuning(self, best: Trial) -> Trial:
        """Try to tune the best candidate, and return the winner."""
        tune, params = self.search.tune, best.params
        automatic = isinstance(tune, str)
        unsuited = params["feature_groups"] is not None or params["covariance_type"] == "low_rank"
        n_numbers = params["n_kernels"] * best.models[0].n_features_in_
        too_many = n_numbers > _MOST_NUMBERS_A_ROW * len(self.rows.X)
        if tune is None or tune is False or (automatic and (unsuited or too_many)):
            return best
        evaluate = partial(self._evaluate, fitted=best.models)
        tried = [
            self.trials.add("tuning", {**params, "trade_off": trade_off}, evaluate)
            for trade_off in (_TRADE_OFFS if automatic or tune is True else (float(tune),))
        ]
        if automatic:
            return self.trials.best
        return max(filter(None, tried), key=lambda trial: trial.score, default=best)

    def make(self, params: Params, rows: Rows) -> SharedKernelClassifier:
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
        made: SharedKernelClassifier = clone(self.prototype).set_params(**settings)
        return made

    def _reduce(self, name: str) -> list[Fold]:
        """Return the folds with reduced features; a reduction is fitted to the training rows of each."""
        folds, seed = [], self.prototype.random_state
        for training, held in self.folds:
            reduce = partial(project, projection=fit_reduction(name, training.X, seed))
            folds.append((training.map(reduce), held.map(reduce)))
        return folds

    def _evaluate(self, trial: Trial, fitted: Sequence[SharedKernelClassifier] = ()) -> None:
        """Fit a candidate, or tune fitted models, and score it at the temperature of least log-loss."""
        folds, params = self._reduced(trial.params["reduction"]), trial.params
        if fitted:
            pairs = zip(fitted, folds, strict=True)
            trial.models = [_tune(deepcopy(model), rows, params["trade_off"]) for model, (rows, _) in pairs]
        else:
            trial.models = [
                self.make(params, rows).fit(self.to_device(rows.X), rows.y, rows.weights) for rows, _ in folds
            ]
        held = [held for _, held in folds]
        logs = [
            on_host(model.predict_log_proba(self.to_device(rows.X)))
            for model, rows in zip(trial.models, held, strict=True)
        ]
        codes = np.concatenate([rows.codes for rows in held])
        weights = np.concatenate([rows.row_weights for rows in held])
        temperature, _ = least_log_loss(np.concatenate(logs), codes, weights)
        trial.columns["temperature"] = temperature
        for model, rows, log in zip(trial.models, held, logs, strict=True):
            if self.search.scoring == "neg_log_loss":
                score = -np.average(log_losses(log, rows.codes, temperature), weights=rows.weights)
            else:
                given = {} if rows.weights is None else {"sample_weight": rows.weights}
                model.temperature_ = temperature
                score = self._scorer(model, rows.X, rows.y, **given)
                model.temperature_ = 1.0
            trial.split_scores.append(float(score))
        sizes = [rows.row_weights.sum() for rows in held]
        trial.score = float(np.average(trial.split_scores, weights=sizes))

    def threshold(self, best: Trial, share: float, held_out: list[Rows]) -> float:
        """Return the log-density below which a share of new rows lies, by the models of the folds."""
        params, folds = best.params, self._reduced(best.params["reduction"])
        models = best.models
        if not models:
            # A candidate that was asked for may not be the best, whose models alone are stored.
            models = [
                self.make(params, rows).fit(self.to_device(rows.X), rows.y, rows.weights) for rows, _ in folds
            ]
            if params["trade_off"] is not None:
                models = [
                    _tune(each, rows, params["trade_off"])
                    for each, (rows, _) in zip(models, folds, strict=True)
                ]
        if params["reduction"] != "none":
            held_out = [held for _, held in folds]
        densities = [
            on_host(model.score_samples(self.to_device(rows.X)))
            for model, rows in zip(models, held_out, strict=True)
        ]
        return quantile(
            share, np.concatenate(densities), np.concatenate([each.row_weights for each in held_out])
        )


def _tune(model: SharedKernelClassifier, rows: Rows, trade_off: float) -> SharedKernelClassifier:
    """Tune a fitted classifier on the labelled rows, for a fixed number of rounds."""
    own, seed = rows.labelled, model.random_state
    return model.tune(
        own.X, own.y, trade_off=trade_off, sample_weight=own.weights, random_state=seed, **_TUNING
    )


@savable
@documented
class SharedKernelClassifierCV(ClassifierMixin, Search):
    """SharedKernelClassifier with its settings chosen by cross-validation.

    In this order are chosen, by the score of held-out rows: principal components, if there are more than 12
    features; for each covariance type and strength of the prior on covariances, the number of kernels, from
    one for each class upwards while it helps (with 20 classes or more, from one for every four classes); and
    whether the winner is tuned for classification, and with how much of the likelihood. The temperature of
    the probabilities is fitted to the same rows, and the threshold of `reject_below` to their densities. The
    winner is then fitted to all rows.

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
    {parameters}

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
    {results}

    Notes
    -----
    The winner's score is optimistic, since it won. Cross-validate the whole search to estimate it, as in
    ``cross_val_score(SharedKernelClassifierCV(), X, y)``.

    Missing values are filled by a Gaussian fitted to the training rows of a fold while settings are chosen,
    and for tuning; the final EM fit uses what is observed.

    Where features are reduced, `class_log_likelihood` and `score_samples` are of the reduced features.

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
    _selection: type[Selection] = Selection

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
        device: str | None = None,
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
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        rows, kept = self._open(X, y, sample_weight)
        if rows.codes.max() < 1:
            label = rows.labelled.y.tolist()[0]
            raise ValueError(f"A classifier needs two classes or more, got one class: {label!r}.")
        prototype = self._prototype(SharedKernelClassifier(max_iter=_MOST_PASSES, tol=_TOLERANCE))
        seed, share = prototype.random_state, prototype.reject_below
        if share is not None:
            check_outlier_label(prototype.outlier_label, np.unique(rows.labelled.y.tolist()))
            # Candidates need no threshold.
            prototype.set_params(reject_below=None)
        folds, held_out = [], []
        for training, held in make_folds(rows, self.cv, groups, kept, seed):
            held_out.append(held)
            fill = filler(training.X, seed)
            folds.append((training.map(fill), held.map(fill)))
        to_device = sender(prototype, X)
        selection = self._selection(self, prototype, rows, folds, trials, to_device)
        best = selection.choose()
        complete = rows.map(filler(rows.X, seed))
        self.projection_ = fit_reduction(best.params["reduction"], complete.X, seed)
        reduce = partial(project, projection=self.projection_)
        reduced = rows.map(reduce)
        given = X, y, sample_weight
        if self.projection_ is not None:
            given = to_device(reduced.X), reduced.y, reduced.weights
        self.classifier_ = selection.make(best.params, reduced).fit(*given)
        if best.params["trade_off"] is not None:
            # The model may have the names of a data frame's columns, which filled rows lack.
            warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
            _tune(self.classifier_, complete.map(reduce), best.params["trade_off"])
        self.classifier_.temperature_ = best.columns.get("temperature", 1.0)
        if share is not None:
            own = Block(reduced.X, reduced.codes, reduced.weights)
            self.classifier_.threshold_ = (
                selection.threshold(best, share, held_out)
                if folds
                else novelty_threshold(self.classifier_, share, own)
            )
            self.classifier_.set_params(reject_below=share)
        return best

    @property
    def best_estimator_(self) -> Any:
        """The winner, fitted to all rows: a classifier, or a pipeline that reduces the features first."""
        if self.projection_ is None:
            return self.classifier_
        reduction = FunctionTransformer(project, kw_args={"projection": self.projection_})
        return make_pipeline(reduction, self.classifier_)

    @property
    def _model(self) -> SharedKernelClassifier:
        return self.classifier_

    def _features(self, X: Any) -> Any:
        if self.projection_ is None:
            return X
        to_device = sender(self.classifier_, X)
        rows = validate_data(self, on_host(X), reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return to_device(project(rows, self.projection_))

    def _graph_parts(self) -> dict[str, Any]:
        return {**super()._graph_parts(), "projection": self.projection_}

    predict = delegated(SharedKernelClassifier.predict)
    predict_proba = delegated(SharedKernelClassifier.predict_proba)
    predict_log_proba = delegated(SharedKernelClassifier.predict_log_proba)
    class_log_likelihood = delegated(SharedKernelClassifier.class_log_likelihood)
    score_samples = delegated(SharedKernelClassifier.score_samples)
    score = delegated(SharedKernelClassifier.score)
