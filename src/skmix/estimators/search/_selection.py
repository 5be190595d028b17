"""Stages of the search for a classifier: screen candidates, compare the best, tune them, average some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn import config_context

from ...engine.after.temperature import least_log_loss, log_losses
from ...engine.records import FloatArray, IntArray
from ...engine.rows.blocks import Block
from ...io.preparation import Columns
from .._settings import check_feature_sets, is_robust
from ..classifier import SharedKernelClassifier
from ..crossfit import blur_of, set_threshold
from ..rows import PreparedRows
from ._base import Fold, labels_of
from ._candidates import MOST_NUMBERS_A_ROW, Choices, make_classifier
from ._features import FeatureMap, fewer_rows, filler, fit_features, fit_transform, project
from ._quick import QuickFit, QuickFits
from ._trials import FITTING, SCREENING, Params, Trial, Trials

# Approximate number of rows of a fold in the screening.
_ROWS_TO_SCREEN = 2000
# From this many folds on, folds are small: two of them screen candidates, and one candidate fewer is tuned.
_MANY_FOLDS = 5
# Number of candidates to compare on all folds.
_KEPT = 12
# Number of feature maps to keep.
_KEPT_FEATURES = 3
# Candidates that compare feature maps: ownership of kernels, kernels per class, and covariance type.
_PROBES = (("own", 1, "tied"), ("own", 1, "full"), ("own", 4, "full"))
# More kernels are tried until this many numbers in a row were worse.
_WORSE_NUMBERS = 2
# Number of candidates to tune.
_TUNED = 3
# Weights of the likelihood in tuning; each starts from the EM fit.
_TRADE_OFFS = (0.1, 0.0)
# Rounds of tuning, without early stopping, so that folds and the final fit are tuned alike.
_ROUNDS = 20
# From this many rows on, tuning overfits little even without the likelihood.
_MANY_ROWS = 1000
# More rounds pay in that case.
_ROUNDS_WITH_MANY = 60
# Duration of tuning relative to a fit, for the progress bar.
_WORK_OF_TUNING = 2
# Number of fits that find a threshold of outliers, about, for the progress bar.
_FITS_OF_THRESHOLD = 8
# Replaces a probability of zero in log-losses.
_SMALLEST = np.finfo(np.float64).tiny


class Member(NamedTuple):
    """A classifier fitted to all rows."""

    classifier: SharedKernelClassifier
    feature_map: FeatureMap | None
    rows: Block  # mapped
    filled: Block  # mapped, with missing values filled


@dataclass
class Selection:
    """Chooses candidates by the scores of held-out rows, in stages."""

    search: Any
    prototype: Any
    rows: Block
    classes: np.ndarray  # (L,)
    folds: list[Fold]
    trials: Trials

    def __post_init__(self) -> None:
        self._fold, self._rows_of = cache(self._map), cache(self._draw)
        self._transform = cache(
            lambda number, name, some: fit_transform(name, self._rows_of(number, some)[0])
        )
        self._quick = QuickFits(self.prototype, self.classes)
        # Candidates that are about to be tried, and models by candidate and training rows.
        self._planned: list[Params] = []
        self._models: dict[tuple[str, int], Any] = {}
        # One of many folds is too small to screen candidates.
        self._n_screening = 2 if len(self.folds) >= _MANY_FOLDS else 1
        self._n_tuned = _TUNED + 1 - self._n_screening

    def choose(self) -> list[Trial]:
        """Try candidates, and return the trials to average, the best first."""
        trials, candidates = self.trials, self.candidates()
        trials.n_kept = self._n_tuned
        if not self.folds:
            # Every class has a single row: none can be held out.
            trials.list.append(Trial("kernels", candidates[0], np.nan))
            return trials.list
        self._plan(candidates)
        if len(candidates) > _KEPT:
            candidates = self._screened(self._with_best_features(candidates))
        kept, self._planned = set(map(repr, candidates)), candidates
        self._models = {key: model for key, model in self._models.items() if key[0] in kept}
        for params in candidates:
            trials.add("kernels", params, self._score)
        self._models.clear()
        trials.check()
        if self.search.tune == "auto":
            self._tune_best()
        return self._members()

    def _plan(self, candidates: list[Params]) -> None:
        """Plan the work of all stages, in rows to fit, for the progress bar."""
        plan, n_fitted = self.trials.plan, sum(len(training.X) for training, _ in self.folds)
        if len(candidates) > _KEPT:
            plan(SCREENING, len(candidates), self._n_screened)
        plan("kernels", min(len(candidates), _KEPT), n_fitted)
        if self.search.tune == "auto":
            plan("tuning", self._n_tuned * len(_TRADE_OFFS), _WORK_OF_TUNING * n_fitted)
        self._plan_fits(self.search.n_members)

    def _plan_fits(self, n_members: int) -> None:
        """Plan the fits to all rows, and those that find the threshold of outliers."""
        self.trials.plan("members", n_members, len(self.rows.X))
        if getattr(self.search.estimator, "reject_below", None) is not None:
            self.trials.plan("threshold", 1, _FITS_OF_THRESHOLD * len(self.rows.X))

    @property
    def _n_screened(self) -> int:
        """Number of rows to which the screening fits a candidate."""
        return self._n_screening * min(len(self.folds[0][0].X), _ROWS_TO_SCREEN)

    def _screened(self, candidates: list[Params]) -> list[Params]:
        """Return the best candidates of the screening, the best first.

        Unless numbers of kernels are given, stop after two numbers in a row that were worse.
        """
        self.trials.plan(SCREENING, len(candidates), self._n_screened)
        paths: dict[tuple[Any, ...], dict[int, float]] = {}
        scored: list[tuple[float, Params]] = []
        self._planned = sorted(candidates, key=lambda params: params["n_kernels"])
        for params in self._planned:
            kind = tuple(params[name] for name in ("transform", "reduction", "kernels", "covariance_type"))
            path = paths.setdefault(kind, {})
            if isinstance(self.search.n_kernels, str) and params["n_kernels"] not in path:
                last = list(path.values())[-_WORSE_NUMBERS:]
                if len(path) > _WORSE_NUMBERS and max(last) < max(path.values()):
                    continue
            score = self._screening_score(params)
            path[params["n_kernels"]] = max(score, path.get(params["n_kernels"], -np.inf))
            if np.isfinite(score):
                scored.append((score, params))
        scored.sort(key=lambda each: -each[0])
        return [params for _, params in scored[:_KEPT]] or candidates[:1]

    def _with_best_features(self, candidates: list[Params]) -> list[Params]:
        """Return the candidates with the best feature maps, which a few of them determine."""
        probes: dict[tuple[Any, ...], Params] = {}
        for params in candidates:
            features = params["transform"], params["reduction"]
            kind = params["kernels"], params["n_kernels"] // len(self.classes), params["covariance_type"]
            if kind in _PROBES or not any(features == other for other, _ in probes):
                probes.setdefault((features, kind), params)
        best: dict[tuple[str, str], float] = {}
        self._planned = list(probes.values())
        for (features, _), params in probes.items():
            best[features] = max(self._screening_score(params), best.get(features, -np.inf))
        kept = sorted(best, key=lambda features: -best[features])[:_KEPT_FEATURES]
        return [params for params in candidates if (params["transform"], params["reduction"]) in kept]

    def candidates(self) -> list[Params]:
        """Return the settings of all candidates, simple ones first."""
        search, prototype = self.search, self.prototype
        numbers, types = search._settings_to_try()
        sets = search.feature_sets
        if sets is not None:
            sets = check_feature_sets(sets, Columns.of(search, self.rows.X.shape[1]))
        return Choices(
            numbers,
            types,
            search.kernels,
            sets,
            n_classes=len(self.classes),
            n_train=min((len(training.X) for training, _ in self.folds), default=0),
            has_prior=prototype.covariance_prior != "auto",
            spreads_weights=prototype.inference != "em" or prototype.weight_prior is not None,
        ).candidates(self.rows.X, self._width)

    # ------------------------------------------------------------ scores

    def _map(self, number: int, transform: str, reduction: str, some: bool) -> Fold:
        """Fit a feature map to the training rows of a fold, or to some of them; return the mapped fold."""
        (training, held), whole = self._rows_of(number, some), self.folds[number]
        if some and training is whole[0] and held is whole[1]:
            return self._fold(number, transform, reduction, False)
        transformed = None if transform == reduction == "none" else self._transform(number, transform, some)
        if transformed is None:
            return training, held
        feature_map = project(transformed, reduction, training)
        return mapped(training, feature_map.transform), mapped(held, feature_map.transform)

    def _draw(self, number: int, some: bool) -> Fold:
        """Return a fold; for the screening, some of its rows if there are many."""
        (training, held), seed = self.folds[number], self.prototype.random_state
        most = _ROWS_TO_SCREEN if some else np.inf
        return fewer_rows(training, seed, most), fewer_rows(held, seed, most)

    def _folds_of(self, params: Params, some: bool) -> list[Fold]:
        """Return the mapped folds for a candidate; for the screening, some rows of the first ones."""
        numbers = range(self._n_screening if some else len(self.folds))
        return [self._fold(number, params["transform"], params["reduction"], some) for number in numbers]

    def _width(self, transform: str, reduction: str) -> int:
        """Return the number of mapped features; that of all features if the map cannot be fitted."""
        try:
            return int(self._fold(0, transform, reduction, True)[0].X.shape[1])
        except ValueError:
            return int(self.rows.X.shape[1])

    def _screening_score(self, params: Params) -> float:
        trial = self.trials.add(SCREENING, params, self._screen)
        return -np.inf if trial is None else trial.score

    def _screen(self, trial: Trial) -> None:
        self._score(trial, some=True)

    def _score(self, trial: Trial, fitted: Sequence[Any] = (), *, some: bool = False) -> None:
        """Fit a candidate, or tune fitted models, and score it by the least log-loss over temperatures.

        One that is clearly worse than the best on the first folds is dropped: it keeps their score, as one of
        the screening does.
        """
        params, folds = trial.params, self._folds_of(trial.params, some)
        logs: list[FloatArray] = []
        # Rows and settings have already been checked.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            if not fitted:
                self._fit_planned(params, some)
            for number, (rows, held) in enumerate(folds):
                model = self._models.get((repr(params), id(rows)))
                if model is None and number == self._n_screening and self._is_hopeless(folds[:number], logs):
                    trial.stage, folds = SCREENING, folds[:number]
                    break
                if fitted:
                    model = self.tune(deepcopy(fitted[number]), rows, params["trade_off"])
                elif model is None:
                    model = self._models[repr(params), id(rows)] = self._fit(params, rows)
                trial.models.append(model)
                logs.append(model.predict_log_proba(held.X))
        codes, weights = codes_and_weights(folds)
        temperature, _ = least_log_loss(np.concatenate(logs), codes, weights)
        trial.columns["temperature"] = temperature
        for (_, held), log in zip(folds, logs, strict=True):
            loss = np.average(log_losses(log, held.codes, temperature), weights=held.weights)
            trial.split_scores.append(-float(loss))
        sizes = [held.row_weights.sum() for _, held in folds]
        trial.score = float(np.average(trial.split_scores, weights=sizes))
        trial.probabilities = softmax(np.concatenate(logs) / temperature, axis=1)

    def _is_hopeless(self, folds: list[Fold], logs: list[FloatArray]) -> bool:
        """Return whether log-joints (n, L) of held-out rows are clearly worse than those of the best."""
        best = self.trials.best.probabilities
        if best is None:
            return False
        (codes, weights), joints = codes_and_weights(folds), np.concatenate(logs)
        losses = log_losses(joints, codes, least_log_loss(joints, codes, weights)[0])
        return is_clearly_worse(losses - losses_of(best[np.arange(len(codes)), codes]), weights)

    def _fit_planned(self, params: Params, some: bool) -> None:
        """Fit a candidate, and planned ones with the same kernels, by quick fits if they are covered."""
        names = ("kernels", "n_kernels", "covariance_type")
        known = all((repr(params), id(rows)) in self._models for rows, _ in self._folds_of(params, some))
        if known:
            return
        tasks = [
            (each, rows)
            for each in self._planned
            if all(each[name] == params[name] for name in names)
            for rows, _ in self._folds_of(each, some)
            if (repr(each), id(rows)) not in self._models and self._quick.covers(each, rows)
        ]
        # What rounding makes singular is left to fits one by one, which are more careful.
        with suppress(np.linalg.LinAlgError):
            for (each, rows), model in zip(tasks, self._quick.fit(tasks), strict=True):
                self._models[repr(each), id(rows)] = model

    def _fit(self, params: Params, rows: Block) -> SharedKernelClassifier:
        """Return a candidate fitted to rows without missing values."""
        model = make_classifier(self.prototype, params, rows, self.prototype.random_state)
        return model.fit(rows.X, labels_of(rows, self.classes), rows.weights)

    def tune(self, model: Any, rows: Block, trade_off: float) -> Any:
        """Tune a fitted classifier, or return a tuned quick fit, on the labelled rows, for some rounds."""
        labelled, many = rows.labelled(), trade_off == 0.0 and len(self.rows.X) >= _MANY_ROWS
        n_rounds = _ROUNDS_WITH_MANY if many else _ROUNDS
        if isinstance(model, QuickFit):
            return model.tuned(labelled, trade_off, n_rounds)
        return model.tune(
            PreparedRows(labelled.X, None, None),
            labels_of(labelled, self.classes),
            trade_off=trade_off,
            sample_weight=labelled.weights,
            validation=None,
            max_iter=n_rounds,
            random_state=model.random_state,
        )

    def _tune_best(self) -> None:
        """Tune the best candidates, except those with too many parameters or without tuning."""
        best = sorted((t for t in self.trials.list if t.models), key=lambda t: -t.score)
        # Keep references: trials drop their models once others are better.
        for params, models in [(t.params, t.models) for t in best[: self._n_tuned]]:
            unsuited = params["feature_sets"] is not None or is_robust(self.prototype)
            n_numbers = params["n_kernels"] * models[0].n_features_in_
            if unsuited or n_numbers > MOST_NUMBERS_A_ROW * len(self.rows.X):
                continue
            evaluate = partial(self._score, fitted=models)
            for trade_off in _TRADE_OFFS:
                self.trials.add("tuning", {**params, "trade_off": trade_off}, evaluate)

    def _members(self) -> list[Trial]:
        """Return the trials to average: the best, and others in greedy order.

        Each step adds the trial that lowers the log-loss of held-out rows the most. If the average is clearly
        worse than the best trial, return that alone.
        """
        best, (codes, weights) = self.trials.best, codes_and_weights(self.folds)
        rows = np.arange(len(codes))
        right = {t: t.probabilities[rows, codes] for t in self.trials.list if t.probabilities is not None}
        if best not in right:
            return [best]
        chosen, total = [best], right[best]

        def loss_with(trial: Trial) -> float:
            return float(np.average(losses_of((total + right[trial]) / (len(chosen) + 1)), weights=weights))

        while len(chosen) < min(self.search.n_members, len(right)):
            chosen.append(min((trial for trial in right if trial not in chosen), key=loss_with))
            total = total + right[chosen[-1]]
        rise = losses_of(total / len(chosen)) - losses_of(right[best])
        return [best] if is_clearly_worse(rise, weights) else chosen

    # ------------------------------------------------------------ fits to all rows

    def fit_members(self, chosen: list[Trial], given: tuple[Any, Any, Any]) -> list[Member]:
        """Fit the chosen candidates to all rows.

        `given` are X, y and sample_weight of the user, for members without a feature map.
        """
        self._plan_fits(len(chosen))
        seed = self.prototype.random_state
        complete = mapped(self.rows, filler(self.rows.X, seed))

        @cache
        def features(transform: str, reduction: str) -> tuple[FeatureMap | None, Block, Block]:
            found = fit_features(transform, reduction, complete)
            if found is None:
                return None, self.rows, complete
            rows = mapped(self.rows, found.transform)
            return found, rows, rows if complete.X is self.rows.X else mapped(complete, found.transform)

        members: list[Member] = []
        for number, trial in enumerate(chosen):
            if members and self.trials.time_is_up(FITTING):
                break
            params, data = trial.params, given
            feature_map, rows, filled = features(params["transform"], params["reduction"])
            if feature_map is not None:
                data = rows.X, labels_of(rows, self.classes), rows.weights
            classifier = make_classifier(self.prototype, params, filled, seed + number)
            if params["feature_sets"] is not None:
                # The sets of candidates are of features; those of the search are of the given columns.
                classifier.set_params(feature_sets=self.search.feature_sets)
            classifier.fit(*data)
            if params["trade_off"] is not None:
                self.tune(classifier, filled, params["trade_off"])
            classifier.temperature_ = trial.columns.get("temperature", 1.0)
            self.trials.step("members", "fitting to all rows")
            members.append(Member(classifier, feature_map, rows, filled))
        for trial in self.trials.list:
            trial.columns["member"] = trial in chosen[: len(members)]
        return members

    def set_threshold(self, member: Member, params: Params, share: float, groups: np.ndarray | None) -> None:
        """Set the score below which a share of new rows lies; hold out whole groups (n,)."""
        feature_map, blur = member.feature_map, None
        if feature_map is not None and feature_map.matrix is not None:
            # Mixtures of features do not show the few values of each.
            blur = blur_of(mapped(self.rows, feature_map._replace(matrix=None).transform))
            blur = None if blur is None else blur @ feature_map.matrix
        if params["trade_off"] is None:
            return set_threshold(member.classifier, share, member.rows, groups=groups, blur=blur)

        def finish(other: SharedKernelClassifier, rows: Block) -> None:
            self.tune(other, rows, params["trade_off"])

        groups = None if groups is None else groups[member.filled.codes >= 0]
        return set_threshold(member.classifier, share, member.filled.labelled(), finish, groups, blur)


def codes_and_weights(folds: list[Fold]) -> tuple[IntArray, FloatArray]:
    """Return the class codes and weights (n,) of the held-out rows of some folds."""
    codes = np.concatenate([held.codes for _, held in folds])
    return codes, np.concatenate([held.row_weights for _, held in folds])


def mapped(rows: Block, function: Callable[[np.ndarray], np.ndarray]) -> Block:
    """Return the rows with their features mapped by a function."""
    return replace(rows, X=function(rows.X))


def losses_of(probabilities: FloatArray) -> FloatArray:
    """Return the log-losses (n,) of rows, given the probabilities (n,) of their classes."""
    return -np.log(np.maximum(probabilities, _SMALLEST))


def is_clearly_worse(rise: FloatArray, weights: FloatArray) -> bool:
    """Return whether losses rise by more than their standard error, given rows (n,) with weights (n,)."""
    mean, size = np.average(rise, weights=weights), weights.sum()
    error = np.sqrt(np.average((rise - mean) ** 2, weights=weights) / size)
    # Allow for one error that these rows do not show by chance.
    return bool(mean > max(error, np.log(size) / size))
