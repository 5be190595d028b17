"""Model selection for classification; the guide on model selection says why these candidates are tried."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial, reduce
from inspect import signature
from itertools import product
from numbers import Integral, Real
from operator import add
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag
from scipy.special import softmax
from sklearn import config_context
from sklearn.base import ClassifierMixin, clone
from sklearn.metrics import check_scoring
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ...engine.compute.arrays import namespace, on_host, operations_of
from ...engine.model import FloatArray, IntArray
from ...engine.refine.temperature import least_log_loss, log_losses
from .._settings import check_feature_sets, is_robust
from ..classifier import SharedKernelClassifier, share_predicted
from ..decisions import check_outlier_label, with_outliers
from ..io import savable
from ..rows import Sender, enter, sender
from ._base import SCREENING, Fold, Params, Rows, Search, Trial, Trials, delegated, documented, make_folds
from ._features import (
    FeatureMap,
    fewer_rows,
    filler,
    fit_features,
    pooled_covariance,
    transforms,
)

# Kernels for each class and strengths of the prior that are tried: rows of the covariance within the classes,
# for each feature. Kernels belong to one class each, or are shared by all.
_OWN_FULL = (
    *((1, 1.0), (1, 0.1), (1, 8.0), (2, 0.5), (2, 2.0), (4, 2.0), (4, 0.5), (8, 0.5), (8, 2.0)),
    *((16, 0.5), (16, 2.0), (32, 0.5), (64, 0.5), (128, 0.5)),
)
_SHARED_FULL = (
    *((1, 2.0), (2, 0.5), (4, 0.5), (8, 0.5), (8, 2.0), (16, 0.5), (16, 2.0), (32, 0.5), (32, 2.0)),
    *((64, 0.5), (128, 0.5)),
)
_OWN_SIMPLE, _SHARED_SIMPLE, _PRIOR_OF_SIMPLE = (1, 16), (64,), 0.5
# With many classes there may be fewer kernels than classes, which then differ in their weights alone.
_FEWER_THAN_CLASSES, _MANY_CLASSES = (0.25, 0.5), 20
# There are at least so many rows for each kernel, unless there is one a class, and at most so many kernels.
_ROWS_PER_KERNEL, _MOST_KERNELS = 3, 512
# Candidates are first compared on one fold, or two of five, with about so many of its rows; so many go on.
# Before that, features are compared by a few candidates, and so many ways to make them go on.
_ROWS_TO_SCREEN, _KEPT, _KEPT_FEATURES = 2000, 12, 3
# More kernels of a kind are tried until so many numbers in a row were worse.
_WORSE_NUMBERS = 2
_PROBES = (("own", 1, "tied"), ("own", 1, "full"), ("own", 4, "full"))
# Tried for feature sets: kernels of each group, or of each class and group, strengths of the prior, and
# concentrations of weights.
_KERNELS_OF_GROUP, _OWN_OF_GROUP = (4, 8, 16), (1, 2, 4)
_PRIOR_ROWS_OF_GROUP, _WEIGHT_PRIORS_OF_GROUP = (0.5, 4.0), (1.0, 1.1)
# How many of the best candidates are tuned for classification, one less with small folds, and shares of the
# likelihood, each from the model that EM found. All rounds are taken, so that folds and the final fit do the
# same; with many rows the likelihood is not needed to hold them back, and more rounds pay.
_TUNED, _TRADE_OFFS, _ROUNDS = 3, (0.1, 0.0), 20
_MANY_ROWS, _ROUNDS_WITH_MANY = 1000, 60
# There are at most so many numbers in the means of full kernels, for each row, and in those of a model that
# is tuned: gradients would take longer than everything else.
_MOST_NUMBERS_A_ROW = 2
# Settings of fits unless an estimator is given: candidates can be judged before the last digits are there.
QUICK_FITS: Params = {"max_iter": 100, "tol": 1e-2}
# Tuning takes about as many times as long as the fit, which matters for the time left that is shown.
_WORK_OF_TUNING = 2
# A probability of zero counts as this.
_SMALLEST = np.finfo(np.float64).tiny
# Strength of the prior where no row can be held out to choose one.
_BLIND_PRIOR = 2.0
# From so many folds on, two of them screen candidates.
_MANY_FOLDS = 5


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
        trials, candidates = self.trials, []
        for params in self.candidates():
            # Where a prior is given, candidates that differ in their prior are the same.
            if params not in candidates:
                candidates.append(params)
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
        n_classes = int(self.rows.codes.max()) + 1
        best: dict[tuple[str, str], float] = {}
        seen = set()
        for params in candidates:
            features = params["transform"], params["reduction"]
            kind = params["kernels"], params["n_kernels"] // n_classes, params["covariance_type"]
            if (features, kind) in seen or (kind not in _PROBES and features in best):
                continue
            seen.add((features, kind))
            trial = self.trials.add(SCREENING, params, self._screen)
            score = -np.inf if trial is None else trial.score
            best[features] = max(score, best.get(features, -np.inf))
        kept = sorted(best, key=lambda features: -best[features])[:_KEPT_FEATURES]
        return [params for params in candidates if (params["transform"], params["reduction"]) in kept]

    # ------------------------------------------------------------ candidates

    def candidates(self) -> Iterator[Params]:
        """Yield the settings of all candidates, simple ones first."""
        numbers, types = self.search._candidates()
        n_classes = int(self.rows.codes.max()) + 1
        own = self.search.kernels == "own"
        if own and self._spreads_weights:
            raise ValueError(
                "kernels='own' needs weights without a prior, which would give every class a share of every "
                "kernel: leave out weight_prior and inference='variational'."
            )
        if own and numbers is not None:
            if numbers[0] < n_classes:
                raise ValueError(
                    f"kernels='own' needs a kernel for each of {n_classes} classes, got "
                    f"n_kernels={self.search.n_kernels!r}."
                )
            # Every class has as many.
            numbers = sorted({k // n_classes * n_classes for k in numbers})
        given = self.prototype.covariance_prior != "auto"
        params: Params = {
            "transform": "none",
            "reduction": "none",
            "kernels": "own" if own else "shared",
            "n_kernels": numbers[0] if numbers else n_classes,
            "covariance_type": types[0] if types else "full" if self.folds else "tied",
            "prior_rows": None if given else _BLIND_PRIOR,
            "weight_prior": None,
            "feature_sets": self._feature_sets(),
            "trade_off": None,
        }
        if not self.folds:
            yield params
        elif params["feature_sets"] is not None:
            yield from self._of_groups(params, numbers, types)
        else:
            n_train = min(len(training.X) for training, _ in self.folds)
            for transform, reduction in transforms(self.rows.X, n_classes):
                width = self._width(transform, reduction)
                for kernels, k, name, rows in self.kernels(
                    n_classes, n_train, width, numbers, types, reduction
                ):
                    yield {
                        **params, "transform": transform, "reduction": reduction, "kernels": kernels,
                        "n_kernels": k, "covariance_type": name, "prior_rows": None if given else rows,
                    }  # fmt: skip

    @property
    def _spreads_weights(self) -> bool:
        """Whether weights have a prior, which leaves none of them at zero."""
        return self.prototype.inference != "em" or self.prototype.weight_prior is not None

    def kernels(
        self,
        n_classes: int,
        n_train: int,
        width: int,
        numbers: list[int] | None,
        types: list[str] | None,
        reduction: str,
    ) -> list[tuple[str, int, str, float]]:
        """Return what is tried of kernels: whose they are, how many, their covariances and their prior."""
        allowed = ("own", "shared") if self.search.kernels == "auto" else (self.search.kernels,)
        if self._spreads_weights:
            allowed = ("shared",)
        if numbers is not None:
            strengths = sorted({rows for _, rows in (*_OWN_FULL, *_SHARED_FULL)})
            return [
                (allowed[-1], k, name, rows)
                for name in types or ["tied", "full"]
                for k in numbers
                for rows in (strengths if name in ("full", "low_rank") else [_PRIOR_OF_SIMPLE])
            ]
        found: list[tuple[str, float, str, float]] = []
        for name in types or ["tied", "full"]:
            if name in ("full", "low_rank"):
                found += [("own", m, name, rows) for m, rows in _OWN_FULL]
                shared: Sequence[tuple[float, float]] = (
                    _SHARED_FULL if reduction == "none" else _SHARED_FULL[:1]
                )
            else:
                found += [("own", m, name, _PRIOR_OF_SIMPLE) for m in _OWN_SIMPLE]
                shared = [(m, _PRIOR_OF_SIMPLE) for m in _SHARED_SIMPLE]
            if n_classes >= _MANY_CLASSES:
                shared = [*((m, 2.0) for m in _FEWER_THAN_CLASSES), *shared]
            found += [("shared", m, name, rows) for m, rows in shared]
        most = min(_MOST_KERNELS, n_train // _ROWS_PER_KERNEL)
        # Means have at most so many numbers for each row: a kernel needs rows to find its directions.
        most_full = min(most, _MOST_NUMBERS_A_ROW * n_train // width)
        tried = [
            (kernels, round(m * n_classes), name, rows)
            for kernels, m, name, rows in found
            if kernels in allowed and (m <= 1 or m * n_classes <= (most_full if name == "full" else most))
        ]
        # Shared kernels of a simple type are many, and there may be too few rows for any of these numbers.
        fewer = sorted({n_classes, max(n_classes, most)})
        return tried or [("shared", k, name, _PRIOR_OF_SIMPLE) for name in types or [] for k in fewer]

    def _feature_sets(self) -> list[list[int]] | None:
        """Return the columns of each feature set; None for one set of all features."""
        if self.search.feature_sets is None:
            return None
        names = getattr(self.search, "feature_names_in_", None)
        return check_feature_sets(self.search.feature_sets, self.rows.X.shape[1], names)

    def _of_groups(
        self, params: Params, numbers: list[int] | None, types: list[str] | None
    ) -> Iterator[Params]:
        """Yield the candidates of the product form."""
        n_train = min(len(training.X) for training, _ in self.folds)
        own, n_classes = params["kernels"] == "own", int(self.rows.codes.max()) + 1
        default = [m * n_classes for m in _OWN_OF_GROUP] if own else _KERNELS_OF_GROUP
        numbers = numbers or sorted({min(k, n_train) for k in default})
        weights = (None,) if own or self._spreads_weights else _WEIGHT_PRIORS_OF_GROUP
        strengths = (None,) if params["prior_rows"] is None else _PRIOR_ROWS_OF_GROUP
        for k, name, rows, weight in product(numbers, types or ["full"], strengths, weights):
            yield {
                **params, "n_kernels": k, "covariance_type": name, "prior_rows": rows, "weight_prior": weight
            }  # fmt: skip

    # ------------------------------------------------------------ scores

    def make(self, params: Params, rows: Rows, seed: int | None = None) -> SharedKernelClassifier:
        """Return the unfitted classifier of a candidate; prior and start come from complete rows."""
        groups, own = params["feature_sets"], rows.labelled
        settings = {name: params[name] for name in ("n_kernels", "covariance_type", "feature_sets")}
        n_classes = int(own.codes.max()) + 1
        seed = self.prototype.random_state if seed is None else seed
        if params["prior_rows"] is not None:
            n_features = rows.X.shape[1]
            width = n_features if groups is None else sum(map(len, groups)) / len(groups)
            pooled = pooled_covariance(own.X, own.codes, own.weights)
            if groups is None:
                # Each of m kernels of a class covers a part of its rows.
                pooled = pooled * max(1.0, params["n_kernels"] / n_classes) ** (-2.0 / n_features)
            settings["covariance_prior"] = (params["prior_rows"] * width, pooled)
        if params["weight_prior"] is not None:
            settings["weight_prior"] = params["weight_prior"]
        if params["kernels"] == "own":
            per_class = params["n_kernels"] // n_classes
            parts = [own.X] if groups is None else [own.X[:, columns] for columns in groups]
            projected = params["reduction"] != "none"
            starts = [own_kernels(part, own.codes, per_class, seed, projected=projected) for part in parts]
            settings |= {"n_kernels": None, "init": starts[0] if groups is None else starts}
        made: SharedKernelClassifier = clone(self.prototype).set_params(**settings, random_state=seed)
        return made

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
                trial.models = known + [
                    self.make(params, rows).fit(self.to_device(rows.X), rows.y, rows.weights)
                    for rows, _ in folds[len(known) :]
                ]
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
            if automatic and (unsuited or n_numbers > _MOST_NUMBERS_A_ROW * len(self.rows.X)):
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


def own_kernels(
    rows: FloatArray, codes: IntArray, per_class: int, seed: Any, *, projected: bool = False
) -> dict[str, FloatArray]:
    """Return a start in which each class has its own kernels; EM keeps weights of zero at zero.

    Means are rows of the class, drawn as by k-means++; distances are in units of the features' deviations
    unless features are projections, whose deviations mean something.
    """
    own = [rows[codes == c] for c in range(int(codes.max()) + 1)]
    if per_class == 1:
        return {"means": np.stack([each.mean(axis=0) for each in own]), "weights": np.eye(len(own))}
    deviations, random_state = rows.std(axis=0), check_random_state(seed)
    scale = np.where((deviations > 0.0) & (not projected), deviations, 1.0)
    draw_seeds, means = operations_of(rows).draw_seeds, []
    for each in own:
        chances = random_state.uniform(size=min(per_class, len(each)) - 1)
        means.append(draw_seeds(each / scale, random_state.randint(len(each)), chances) * scale)
    weights = block_diag(*(np.full((len(each), 1), 1.0 / len(each)) for each in means))
    return {"means": np.concatenate(means), "weights": weights}


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
        if rows.codes.max() < 1:
            label = rows.labelled.y.tolist()[0]
            raise ValueError(f"A classifier needs two classes or more, got one class: {label!r}.")
        if rows.weights is not None:
            # Priors are in rows, and weights that sum to one do not mean that there is one row.
            factor = max(1.0, len(rows.weights) / rows.weights.sum())
            rows = replace(rows, weights=factor * rows.weights)
            sample_weight = factor * np.asarray(on_host(sample_weight), dtype=np.float64)
        prototype = self._prototype(SharedKernelClassifier(**QUICK_FITS))
        prototype._validate_params()
        seed = prototype.random_state
        rejecting = {"reject_below": prototype.reject_below, "outlier_label": prototype.outlier_label}
        check_outlier_label(
            prototype.outlier_label,
            np.unique(rows.labelled.y.tolist()),
            rejects=prototype.reject_below is not None,
        )
        # Candidates need no threshold.
        prototype.set_params(reject_below=None, outlier_label=None)
        folds = []
        for training, held in make_folds(rows, self.cv, groups, kept, seed):
            fill = filler(training.X, seed)
            folds.append((training.map(fill), held.map(fill)))
        # In the kind that was given, which folds may have had to change. Without rows of no weight,
        # -1 may mean something else.
        labels = column_or_1d(on_host(y))
        labels = labels if len(labels) == len(kept) else rows.y
        to_device = sender(prototype, X)
        selection = Selection(self, prototype, rows, folds, trials, to_device)
        chosen = selection.choose()
        trials.plan("members", len(chosen), len(rows.X))
        complete = rows.map(filler(rows.X, seed))
        classifiers, maps = [], []
        for number, trial in enumerate(chosen):
            params, given = trial.params, (X, y, sample_weight)
            change = fit_features(params["transform"], params["reduction"], complete)
            filled = complete
            if change is not None:
                filled, mapped = complete.map(change.transform), rows.map(change.transform)
                given = to_device(mapped.X), labels, mapped.weights
            classifier = selection.make(params, filled, seed + number)
            if number == 0:
                classifier.set_params(**rejecting)
            classifier.fit(*given)
            if params["trade_off"] is not None:
                # The model may have the names of a data frame's columns, which filled rows lack.
                warnings.filterwarnings("ignore", "X does not have valid feature names", UserWarning)
                selection.tune(classifier, filled, params["trade_off"])
            classifier.temperature_ = trial.columns.get("temperature", 1.0)
            trials.step("members", "fitting to all rows")
            classifiers.append(classifier)
            maps.append(None if change is None else tuple(change))
        for trial in trials.list:
            trial.columns["member"] = any(trial is each for each in chosen)
        self.classifiers_, self.feature_maps_ = classifiers, maps
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
