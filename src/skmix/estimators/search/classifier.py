"""Model selection for classification; the guide on model selection says why these candidates are tried."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from inspect import signature
from numbers import Integral, Real
from operator import add
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import ClassifierMixin
from sklearn.metrics import check_scoring
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.compute.arrays import namespace, on_host
from ...engine.compute.blocks import Block
from ...engine.model import FloatArray
from ...engine.refine.temperature import least_log_loss, log_losses
from .._settings import check_feature_sets, is_robust
from ..classifier import SharedKernelClassifier, share_predicted
from ..decisions import check_outlier_label, novelty_threshold, with_outliers
from ..rows import Sender, enter, sender
from ..saving import savable
from ._base import Fold, Rows, Search, delegated, documented, make_folds
from ._candidates import MOST_NUMBERS_A_ROW, Choices, make_classifier
from ._features import FeatureMap, fewer_rows, filler, fit_features
from ._trials import SCREENING, Params, Trial, Trials

# Settings of fits unless an estimator is given: candidates can be judged before the last digits are there.
QUICK_FITS: Params = {"max_iter": 100, "tol": 1e-2}
# Candidates are first compared on one fold with about so many of its rows.
_ROWS_TO_SCREEN = 2000
# From so many folds on, which are small, two of them screen candidates and one candidate less is tuned.
_MANY_FOLDS = 5
# So many candidates are compared on all folds.
_KEPT = 12
# So many ways to make features go on, of which the candidates of these kinds tell the best.
_KEPT_FEATURES = 3
_PROBES = (("own", 1, "tied"), ("own", 1, "full"), ("own", 4, "full"))
# More kernels of a kind are tried until so many numbers in a row were worse.
_WORSE_NUMBERS = 2
# So many of the best candidates are tuned for classification.
_TUNED = 3
# Shares of the likelihood in tuning, each from the model that EM found.
_TRADE_OFFS = (0.1, 0.0)
# Rounds of tuning. All of them are taken, so that folds and the final fit do the same.
_ROUNDS = 20
# From so many rows on the likelihood is not needed to hold them back, and more rounds pay.
_MANY_ROWS, _ROUNDS_WITH_MANY = 1000, 60
# Tuning takes about as many times as long as the fit, which matters for the time left that is shown.
_WORK_OF_TUNING = 2
# A probability of zero counts as this.
_SMALLEST = np.finfo(np.float64).tiny


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
        self._mapped = cache(self._map)
        self._screened_models: dict[str, list[SharedKernelClassifier]] = {}

    def choose(self) -> list[Trial]:
        """Try candidates, and return those to average, the best first."""
        trials, candidates = self.trials, self.candidates()
        trials.n_kept = self._n_tuned
        if not self.folds:
            # Every class has a single row, so that none can be held out.
            trials.list.append(Trial("kernels", candidates[0], np.nan))
            return trials.list
        self._plan(candidates)
        if len(candidates) > _KEPT:
            candidates = self._screened(self._with_best_features(candidates))
        for params in candidates:
            trials.add("kernels", params, self._evaluate)
        self._screened_models.clear()
        trials.check()
        tuned = self._tune_best()
        return self._average() if tuned is None else [tuned]

    def _plan(self, candidates: list[Params]) -> None:
        """Tell the progress display how much there is to do; work is in rows that are fitted."""
        plan, n_fitted = self.trials.plan, sum(len(training.X) for training, _ in self.folds)
        if len(candidates) > _KEPT:
            plan(SCREENING, len(candidates), self._n_screened)
        plan("kernels", min(len(candidates), _KEPT), n_fitted)
        if self.search.tune is not None and self.search.tune is not False:
            plan("tuning", self._n_tuned * len(_TRADE_OFFS), _WORK_OF_TUNING * n_fitted)
        plan("members", self.search.n_members, len(self.rows.X))

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return int(self.rows.codes.max()) + 1

    @property
    def _many_folds(self) -> bool:
        """Whether folds are so small that one is not enough to screen candidates."""
        return len(self.folds) >= _MANY_FOLDS

    @property
    def _n_screened(self) -> int:
        """Number of rows that a candidate is fitted to in the screening."""
        return (1 + self._many_folds) * min(len(self.folds[0][0].X), _ROWS_TO_SCREEN)

    @property
    def _n_tuned(self) -> int:
        """How many candidates are tuned."""
        return _TUNED - self._many_folds

    def _screened(self, candidates: list[Params]) -> list[Params]:
        """Return the best candidates of the screening, the best first.

        More kernels of a kind are tried until two numbers in a row were worse, unless numbers are given.
        """
        self.trials.plan(SCREENING, len(candidates), self._n_screened)
        paths: dict[tuple[Any, ...], dict[int, float]] = {}
        screened = []
        for params in candidates:
            kind = tuple(params[name] for name in ("transform", "reduction", "kernels", "covariance_type"))
            path = paths.setdefault(kind, {})
            if isinstance(self.search.n_kernels, str) and params["n_kernels"] not in path:
                last = list(path.values())[-_WORSE_NUMBERS:]
                if len(path) > _WORSE_NUMBERS and max(last) < max(path.values()):
                    continue
            trial = self.trials.add(SCREENING, params, self._screen)
            score = -np.inf if trial is None else trial.score
            path[params["n_kernels"]] = max(score, path.get(params["n_kernels"], -np.inf))
            screened.append(trial)
        known = [trial for trial in screened if trial is not None and np.isfinite(trial.score)]
        known.sort(key=lambda trial: -trial.score)
        return [trial.params for trial in known[:_KEPT]] or candidates[:1]

    def _with_best_features(self, candidates: list[Params]) -> list[Params]:
        """Return the candidates whose features are best for the first ones of a few kinds."""
        best: dict[tuple[str, str], float] = {}
        seen = set()
        for params in candidates:
            features = params["transform"], params["reduction"]
            kind = params["kernels"], params["n_kernels"] // self.n_classes, params["covariance_type"]
            if (features, kind) in seen or (kind not in _PROBES and features in best):
                continue
            seen.add((features, kind))
            trial = self.trials.add(SCREENING, params, self._screen)
            score = -np.inf if trial is None else trial.score
            best[features] = max(score, best.get(features, -np.inf))
        kept = sorted(best, key=lambda features: -best[features])[:_KEPT_FEATURES]
        return [params for params in candidates if (params["transform"], params["reduction"]) in kept]

    def candidates(self) -> list[Params]:
        """Return the settings of all candidates, simple ones first."""
        search, prototype = self.search, self.prototype
        numbers, types = search._candidates()
        sets = search.feature_sets
        if sets is not None:
            names = getattr(search, "feature_names_in_", None)
            sets = check_feature_sets(sets, self.rows.X.shape[1], names)
        return Choices(
            numbers,
            types,
            search.kernels,
            sets,
            n_classes=self.n_classes,
            n_train=min((len(training.X) for training, _ in self.folds), default=0),
            has_prior=prototype.covariance_prior != "auto",
            spreads_weights=prototype.inference != "em" or prototype.weight_prior is not None,
        ).candidates(self.rows.X, self._width)

    # ------------------------------------------------------------ scores

    def _map(self, number: int, transform: str, reduction: str) -> Fold:
        """Return a fold with other features; their map is fitted to its training rows."""
        training, held = self.folds[number]
        change = fit_features(transform, reduction, training)
        if change is None:
            return training, held
        return training.map(change.transform), held.map(change.transform)

    def _width(self, transform: str, reduction: str) -> int:
        """Return how many features there are after a map; all of them where it cannot be fitted."""
        try:
            return int(self._mapped(0, transform, reduction)[0].X.shape[1])
        except ValueError:
            return int(self.rows.X.shape[1])

    def _screen(self, trial: Trial) -> None:
        """Score a candidate on one fold or two, with some of their rows."""
        seed, names = self.prototype.random_state, (trial.params["transform"], trial.params["reduction"])
        whole = [self._mapped(number, *names) for number in range(1 + self._many_folds)]
        some = [
            (fewer_rows(training, seed, _ROWS_TO_SCREEN), fewer_rows(held, seed, _ROWS_TO_SCREEN))
            for training, held in whole
        ]
        self._score(trial, some, [])
        if all(part[0] is fold[0] for part, fold in zip(some, whole, strict=True)):
            # They need not be fitted again.
            self._screened_models[repr(trial.params)] = trial.models

    def _evaluate(self, trial: Trial, fitted: Sequence[SharedKernelClassifier] = ()) -> None:
        """Score a candidate, or tuned models, on all folds."""
        names = trial.params["transform"], trial.params["reduction"]
        self._score(trial, [self._mapped(number, *names) for number in range(len(self.folds))], fitted)

    def _score(self, trial: Trial, folds: list[Fold], fitted: Sequence[SharedKernelClassifier]) -> None:
        """Fit a candidate, or tune fitted models, and score it at the temperature of least log-loss."""
        params, held = trial.params, [held for _, held in folds]
        # Rows and settings have been checked, once for all fits.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            if fitted:
                trial.models = [
                    self.tune(deepcopy(model), rows, params["trade_off"])
                    for model, (rows, _) in zip(fitted, folds, strict=True)
                ]
            else:
                known = self._screened_models.pop(repr(params), [])
                trial.models = known + [self._fit(params, rows) for rows, _ in folds[len(known) :]]
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
                weighted = rows.weights is not None and "sample_weight" in signature(self._scorer).parameters
                given = {"sample_weight": rows.weights} if weighted else {}
                model.temperature_ = temperature
                score = self._scorer(model, rows.X, rows.y, **given)
                model.temperature_ = 1.0
            trial.split_scores.append(float(score))
        sizes = [rows.row_weights.sum() for rows in held]
        trial.score = float(np.average(trial.split_scores, weights=sizes))
        trial.probabilities = softmax(np.concatenate(logs) / temperature, axis=1)

    def _fit(self, params: Params, rows: Rows) -> SharedKernelClassifier:
        """Return a candidate fitted to rows without missing values."""
        model = make_classifier(self.prototype, params, rows, self.prototype.random_state)
        return model.fit(self.to_device(rows.X), rows.y, rows.weights)

    def tune(self, model: SharedKernelClassifier, rows: Rows, trade_off: float) -> SharedKernelClassifier:
        """Tune a fitted classifier on the labelled rows, for a fixed number of rounds."""
        own, many = rows.labelled, trade_off == 0.0 and len(self.rows.X) >= _MANY_ROWS
        return model.tune(
            own.X,
            own.y,
            trade_off=trade_off,
            sample_weight=own.weights,
            validation=None,
            max_iter=_ROUNDS_WITH_MANY if many else _ROUNDS,
            random_state=model.random_state,
        )

    def _tune_best(self) -> Trial | None:
        """Try to tune the best candidates; return the one to take alone where tuning is asked for."""
        tune = self.search.tune
        automatic = isinstance(tune, str)
        if tune is None or tune is False:
            return None
        best = sorted((t for t in self.trials.list if t.models), key=lambda t: -t.score)
        tried = []
        # Models are dropped as soon as others are better.
        for params, models in [(t.params, t.models) for t in best[: self._n_tuned if automatic else 1]]:
            unsuited = params["feature_sets"] is not None or params["covariance_type"] == "low_rank"
            unsuited = unsuited or is_robust(self.prototype)
            n_numbers = params["n_kernels"] * models[0].n_features_in_
            if automatic and (unsuited or n_numbers > MOST_NUMBERS_A_ROW * len(self.rows.X)):
                continue
            evaluate = partial(self._evaluate, fitted=models)
            for trade_off in _TRADE_OFFS if automatic or tune is True else (float(tune),):
                tried.append(self.trials.add("tuning", {**params, "trade_off": trade_off}, evaluate))
        if automatic:
            return None
        return max(filter(None, tried), key=lambda trial: trial.score, default=self.trials.best)

    def _average(self) -> list[Trial]:
        """Return the trials to average: each lowers the log-loss of held-out rows most, given those before.

        The best one stays alone where the average is clearly worse.
        """
        best, most = self.trials.best, self.search.n_members
        if most == 1 or self.search.scoring != "neg_log_loss":
            return [best]
        held = [held for _, held in self.folds]
        codes = np.concatenate([rows.codes for rows in held])
        weights = np.concatenate([rows.row_weights for rows in held])
        # Probabilities of the true classes.
        left = {
            i: trial.probabilities[np.arange(len(codes)), codes]
            for i, trial in enumerate(self.trials.list)
            if trial.probabilities is not None
        }
        first = next(i for i, trial in enumerate(self.trials.list) if trial is best)
        alone = total = left.pop(first)
        chosen = [first]

        def losses(total: FloatArray, n_members: int) -> FloatArray:
            return -np.log(np.maximum(total / n_members, _SMALLEST))

        def loss_with(i: int) -> float:
            return float(np.average(losses(total + left[i], len(chosen) + 1), weights=weights))

        while left and len(chosen) < most:
            chosen.append(min(left, key=loss_with))
            total = total + left.pop(chosen[-1])
        rise = losses(total, len(chosen)) - losses(alone, 1)
        mean, size = np.average(rise, weights=weights), weights.sum()
        error = np.sqrt(np.average((rise - mean) ** 2, weights=weights) / size)
        # One error in as many rows, which these happen not to have, would cost more.
        return [best] if mean > max(error, np.log(size) / size) else [self.trials.list[i] for i in chosen]

    # ------------------------------------------------------------ what was chosen, fitted to all rows

    def fit_members(self, chosen: list[Trial], given: tuple[Any, Any, Any]) -> list[Member]:
        """Return the chosen candidates fitted to all rows.

        `given` are X, y and sample_weight as the user gave them, for members whose features stay as they are.
        """
        self.trials.plan("members", len(chosen), len(self.rows.X))
        complete, members = self.rows.map(filler(self.rows.X, self.prototype.random_state)), []
        for number, trial in enumerate(chosen):
            params, data = trial.params, given
            change = fit_features(params["transform"], params["reduction"], complete)
            rows, filled = self.rows, complete
            if change is not None:
                rows, filled = rows.map(change.transform), complete.map(change.transform)
                data = self.to_device(rows.X), rows.y, rows.weights
            seed = self.prototype.random_state + number
            classifier = make_classifier(self.prototype, params, filled, seed).fit(*data)
            if params["trade_off"] is not None:
                # The model may have the names of a data frame's columns, which filled rows lack.
                warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                self.tune(classifier, filled, params["trade_off"])
            classifier.temperature_ = trial.columns.get("temperature", 1.0)
            self.trials.step("members", "fitting to all rows")
            members.append(Member(classifier, change, rows, filled))
        for trial in self.trials.list:
            trial.columns["member"] = any(trial is each for each in chosen)
        return members

    def threshold(self, member: Member, params: Params, share: float, groups: np.ndarray | None) -> float:
        """Return the log-density below which a share of new rows lies; groups (N,) are held out whole."""
        if params["trade_off"] is None:
            return novelty_threshold(member.classifier, share, member.rows.block(), groups=groups)
        labelled = member.filled.codes >= 0

        def finish(other: SharedKernelClassifier, own: Block) -> None:
            assert own.y is not None
            self.tune(other, Rows(own.X, self.rows.classes, own.y, own.weights), params["trade_off"])

        groups = None if groups is None else groups[labelled]
        return novelty_threshold(member.classifier, share, member.filled.labelled.block(), finish, groups)


class Member(NamedTuple):
    """A classifier fitted to all rows, its map of the features, and the rows as it sees them."""

    classifier: SharedKernelClassifier
    features: FeatureMap | None
    rows: Rows
    filled: Rows  # without missing values


@savable
@documented
class SharedKernelClassifierCV(ClassifierMixin, Search):
    """SharedKernelClassifier with its settings chosen by cross-validation.

    Candidates differ in their features (as they are, a power or the rank of each, principal components,
    discriminants), in whether kernels are shared by all classes or belong to one each, in the number of
    kernels, in their covariances and in the strength of the prior on these. All are compared on one fold or
    two, the best on all folds; the very best are tuned for classification as well, with several shares of the
    likelihood. The temperature of the probabilities is fitted to held-out rows. Candidates that predict
    held-out rows well together are fitted to all rows and averaged. Of these the best has the threshold of
    `reject_below`.

    Parameters
    ----------
    estimator : SharedKernelClassifier, default=None
        Settings that are not searched: `init`, `n_init`, `max_iter`, `priors`, `reject_below` and so on. Its
        `covariance_prior`, and with feature sets its `weight_prior`, are searched unless they differ from
        the default. None stops fits after 100 passes, or when the mean log-likelihood changes by less than
        0.01.
        When to change: for another kind of fit in all candidates, such as `tail='t'` or class `priors`.
    n_kernels : int, list of int or 'auto', default='auto'
        Numbers of kernels to try. With ``kernels='own'`` every class has as many: a number is rounded down to
        a multiple of the number of classes.
        When to change: a list, if the search takes too long or its best number is the largest tried.
    covariance_type : str, list of str or 'auto', default='auto'
        Covariance types to try; 'auto' is tied and full, with feature sets full.
        When to change: 'diag' where there are hundreds of features.
    kernels : {'auto', 'shared', 'own'}, default='auto'
        Whether all classes share the kernels, or each kernel belongs to one class. 'auto' tries both, but
        only shared ones with given `n_kernels`, feature sets, a `weight_prior` or variational inference.
        When to change: 'shared' to see what classes have in common; 'own' for kernels of one class each.
    feature_sets : list of lists of int or str, default=None
        Feature sets of the product form, see `SharedKernelClassifier`. With groups features are not
        reduced, and 4, 8 and 16 kernels are tried for each group.
        When to change: where sets of features are known to be independent within the classes.
    tune : {'auto', False} or float, default='auto'
        Whether to tune the best candidates for classification, see `SharedKernelClassifier.tune`. 'auto' does
        so where held-out rows are predicted better; a number is the share of the likelihood, and always used,
        for a single model.
        When to change: False where densities matter as well: tuning gives them up for the classes.
    n_members : int, default=8
        How many fitted models have their probabilities averaged, unless that predicts held-out rows clearly
        worse; 1 is the best candidate alone, and so is any `scoring` but the log-loss.
        When to change: 1 for a single model that can be looked at, and smaller files.
    scoring : str or callable, default='neg_log_loss'
        What is maximised: the name of a scorer of scikit-learn, or a callable ``scorer(estimator, X, y)``,
        which gets weights if it takes a `sample_weight`.
        The log-loss is that at the best temperature, of all held-out rows together.
        When to change: 'accuracy' or another, if probabilities do not matter; they are then worse.
    {parameters}

    Attributes
    ----------
    best_estimator_ : SharedKernelClassifier or Pipeline
        The best candidate, fitted to all rows and calibrated; where features are mapped, a pipeline.
    classifier_ : SharedKernelClassifier
        The classifier in it.
    feature_map_ : FeatureMap or None
        Its `transform` makes of rows (n, M) the features (n, q) that the classifier takes; None where
        features stay as they are.
    classifiers_ : list of SharedKernelClassifier
        All members, the best candidate first.
    feature_maps_ : list of tuple or None
        What each of them takes of rows: shift, scale and powers (M,), curves (2, M, k) of ranks or None, and
        offset (M,) and matrix (M, q) of a projection or None; None where features stay as they are.
    best_params_ : dict
        Settings of the best candidate: `transform` and `reduction` of the features, `kernels` (shared or
        own), `n_kernels`, `covariance_type`, `prior_rows` (strength of the prior in rows for each feature),
        `weight_prior`, `feature_sets` and `trade_off`.
    best_score_ : float
        Its score on held-out rows; NaN where no row could be held out.
    {results}

    Notes
    -----
    The winner's score is optimistic, since it won. Cross-validate the whole search to estimate it, as in
    ``cross_val_score(SharedKernelClassifierCV(), X, y)``.

    Missing values are filled by a Gaussian fitted to the training rows of a fold while settings are chosen,
    and for tuning; the final EM fit uses what is observed.

    `class_log_likelihood` and `score_samples` are those of `classifier_`, in its features.

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
        "kernels": [StrOptions({"auto", "shared", "own"})],
        "feature_sets": [list, tuple, None],
        "tune": [StrOptions({"auto"}), "boolean", Interval(Real, 0, None, closed="left"), None],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "scoring": [str, callable],
    }
    classifiers_: list[SharedKernelClassifier]
    feature_maps_: list[Any]

    def __init__(
        self,
        estimator: SharedKernelClassifier | None = None,
        *,
        n_kernels: int | Sequence[int] | str = "auto",
        covariance_type: str | Sequence[str] = "auto",
        kernels: str = "auto",
        feature_sets: Sequence[Sequence[int | str]] | None = None,
        tune: str | bool | float | None = "auto",
        n_members: int = 8,
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
        self.kernels = kernels
        self.feature_sets = feature_sets
        self.tune = tune
        self.n_members = n_members
        self.scoring = scoring
        self.cv = cv
        self.time_limit = time_limit
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _choose(self, trials: Trials, X: Any, y: Any, sample_weight: Any, groups: Any) -> Trial:
        rows, kept = self._open(X, y, sample_weight)
        classes = np.asarray(rows.classes)
        if len(classes) < 2:
            label = classes.tolist()[0]
            raise ValueError(f"A classifier needs two classes or more, got one class: {label!r}.")
        if rows.weights is not None:
            # Priors are in rows, and weights that sum to one do not mean that there is one row.
            factor = max(1.0, len(rows.weights) / rows.weights.sum())
            rows = replace(rows, weights=factor * rows.weights)
            sample_weight = factor * np.asarray(on_host(sample_weight), dtype=np.float64)
        prototype = self._prototype(SharedKernelClassifier(**QUICK_FITS))
        prototype._validate_params()
        rejecting = {name: getattr(prototype, name) for name in ("reject_below", "outlier_label")}
        rejects = prototype.reject_below is not None
        check_outlier_label(prototype.outlier_label, classes, rejects=rejects)
        # Candidates need no threshold.
        prototype.set_params(reject_below=None, outlier_label=None)
        folds = []
        for training, held in make_folds(rows, self.cv, groups, kept, prototype.random_state):
            fill = filler(training.X, prototype.random_state)
            folds.append((training.map(fill), held.map(fill)))
        selection = Selection(self, prototype, rows, folds, trials, sender(prototype, X))
        chosen = selection.choose()
        members = selection.fit_members(chosen, (X, y, sample_weight))
        if rejects:
            groups = None if groups is None else np.asarray(groups)[kept]
            best = members[0]
            threshold = selection.threshold(best, chosen[0].params, rejecting["reject_below"], groups)
            best.classifier.set_params(**rejecting).threshold_ = threshold
        self.classifiers_ = [member.classifier for member in members]
        self.feature_maps_ = [None if each.features is None else tuple(each.features) for each in members]
        return chosen[0]

    def _finish(self) -> None:
        # A class with fewer rows than kernels has one for each row.
        self.best_params_["n_kernels"] = int(self.classifier_.models_[0].means_.shape[0])

    @property
    def classifier_(self) -> SharedKernelClassifier:
        """The classifier of the best candidate."""
        return self.classifiers_[0]

    @property
    def feature_map_(self) -> FeatureMap | None:
        """What it takes of rows; None where features stay as they are."""
        first = self.feature_maps_[0]
        return None if first is None else FeatureMap(*first)

    @property
    def best_estimator_(self) -> Any:
        """The best candidate, fitted to all rows: a classifier, or a pipeline that maps features first."""
        if self.feature_map_ is None:
            return self.classifier_
        return make_pipeline(FunctionTransformer(self.feature_map_.transform), self.classifier_)

    @property
    def _model(self) -> SharedKernelClassifier:
        return self.classifier_

    def _fitted(self) -> Self:
        check_is_fitted(self)
        return self

    def _features(self, X: Any) -> Any:
        return next(self._inputs(X))

    def _inputs(self, X: Any) -> Iterator[Any]:
        """Yield what each member takes for rows X (n, M)."""
        to_device, rows = sender(self.classifier_, X), None
        for change in self.feature_maps_:
            if change is None:
                yield X
                continue
            if rows is None:
                rows = enter(self, X).gathered()
            yield to_device(FeatureMap(*change).transform(rows))

    def _graph_parts(self) -> dict[str, Any]:
        parts = [
            {**classifier._graph_parts(), "features": change}
            for classifier, change in zip(self.classifiers_, self.feature_maps_, strict=True)
        ]
        return {**parts[0], "others": parts[1:]}

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M).

        They are averages over the members.
        """
        parts = self._of_members("predict_proba", X)
        return reduce(add, parts) / len(parts)

    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Return the logarithms of the posterior probabilities, shape (n, L), of rows X (n, M)."""
        parts = self._of_members("predict_log_proba", X)
        return reduce(namespace(parts[0]).logaddexp, parts) - float(np.log(len(parts)))

    def _of_members(self, method: str, X: ArrayLike) -> list[Any]:
        """Return what a method of each member makes of rows X (n, M)."""
        inputs = self._inputs(self._accept(X))
        return [getattr(each, method)(rows) for each, rows in zip(self.classifiers_, inputs, strict=True)]

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable class (n,) of each row of X (n, M).

        If `classifier_` has an `outlier_label`, it is that for rows below `classifier_.threshold_`.
        """
        if len(self._fitted().classifiers_) == 1:
            return self.classifier_.predict(self._features(self._accept(X)))
        labels = on_host(self.classes_)[np.argmax(on_host(self.predict_proba(X)), axis=1)]
        best = self.classifier_
        if best.outlier_label is not None:
            labels = with_outliers(labels, on_host(self.score_samples(X)), best)
        return sender(self.classifier_, X)(labels) if labels.dtype.kind in "fiub" else labels

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the share of rows X (n, M) whose label y (n,) is predicted, or of their weight (n,)."""
        return share_predicted(self._fitted(), X, y, sample_weight)

    class_log_likelihood = delegated(SharedKernelClassifier.class_log_likelihood)
    score_samples = delegated(SharedKernelClassifier.score_samples)
