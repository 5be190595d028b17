"""Stages of the search for a classifier: screen candidates, compare the best, tune them, average some."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context

from ..data.recipe import Recipe
from ..engine.after.temperature import least_log_loss, log_losses
from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from ..model.arguments import check_feature_sets
from ..model.classifier import SharedKernelClassifier
from ..model.crossfit import blur_of, set_threshold
from ..model.frames import PreparedRows
from ..model.settings import Settings
from .features import FeatureMap, filler, fit_features, with_map
from .fits import FitRows, Fold, Folds, labels_of
from .groups import FACTORS, groups_of, widened
from .space import MOST_NUMBERS_A_ROW, Space
from .trials import FITTING, SCREENING, Params, Trial, Trials

# Number of candidates to compare on all folds.
_KEPT = 8
# Number of feature maps to keep.
_KEPT_FEATURES = 3
# Candidates that compare feature maps: ownership of kernels, kernels per class, and covariance type.
_PROBES = (("own", 1, "tied"), ("own", 1, "full"), ("own", 4, "full"))
# Number of candidates to tune, and the same with few rows.
_TUNED, _TUNED_WITH_FEW, _FEW_ROWS = 3, 2, 500
# From this many rows on, tuning overfits little even without the likelihood.
_MANY_ROWS = 1000
# Weight of the likelihood in tuning and number of steps, with few rows and with many. Nothing ends tuning
# early, so that folds and the final fit are tuned alike.
_TUNING, _TUNING_WITH_MANY = (0.1, 10), (0.0, 30)
# Shares of a search that are done after the screening, the comparison on all folds, and tuning.
_SCREENED, _COMPARED, _TUNED_ALL = 0.3, 0.5, 0.8
# Replaces a probability of zero in log-losses.
_SMALLEST = np.finfo(np.float64).tiny


class Member(NamedTuple):
    """A classifier fitted to all rows."""

    classifier: SharedKernelClassifier
    feature_map: FeatureMap | None
    rows: FitRows  # mapped
    filled: FitRows  # mapped, with missing values filled


@dataclass
class HeldOut:
    """Rows that were held out of the fits of a candidate, fold by fold, and how they are predicted.

    Kernels are widened for rows of new groups. All folds have one factor of that, and one temperature.
    """

    factors: Sequence[float]
    folds: list[Block] = field(default_factory=list)
    logs: list[list[FloatArray]] = field(default_factory=list)  # (n, L) for each fold and factor

    def add(self, model: Any, rows: FitRows, held: Block) -> None:
        """Predict the rows held out of a fit."""
        self.folds.append(held)
        self.logs.append([widened(model, rows.shifts, f).predict_log_proba(held.X) for f in self.factors])

    def best(self) -> tuple[FloatArray, dict[str, float]]:
        """Return the least log-losses (n,), and the factor and temperature that they have."""
        (codes, weights), tried = codes_and_weights(self.folds), []
        for factor, *logs in zip(self.factors, *self.logs, strict=True):
            joined = np.concatenate(logs)
            temperature, _ = least_log_loss(joined, codes, weights)
            losses = log_losses(joined, codes, temperature)
            columns = {"temperature": temperature, "widening": factor}
            tried.append((np.average(losses, weights=weights), columns, losses))
        _, columns, losses = min(tried, key=lambda one: one[0])
        return losses, columns


def codes_and_weights(folds: list[Block]) -> tuple[np.ndarray, FloatArray]:
    """Return the class codes and weights (n,) of the rows held out of some folds."""
    codes, weights = zip(*((rows.codes, rows.row_weights) for rows in folds), strict=True)
    return np.concatenate(codes), np.concatenate(weights)


def is_clearly_worse(rise: FloatArray, weights: FloatArray) -> bool:
    """Return whether losses rise by more than their standard error, given rows (n,) with weights (n,)."""
    mean, size = np.average(rise, weights=weights), weights.sum()
    error = np.sqrt(np.average((rise - mean) ** 2, weights=weights) / size)
    # Allow for one error that these rows do not show by chance.
    return bool(mean > max(error, np.log(size) / size))


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
        self._folds = Folds(self.folds, self.classes, self.prototype)
        # Models of the screening, by candidate and training rows.
        self._models: dict[tuple[str, int], Any] = {}
        self._factors = FACTORS[:1] if groups_of([self.rows]) is None else FACTORS
        self._n_tuned = _TUNED_WITH_FEW if len(self.rows.X) < _FEW_ROWS else _TUNED
        self._all_rows = cache(self._map_all_rows)

    def choose(self) -> list[Trial]:
        """Try candidates, and return the trials to average, the best first."""
        trials, candidates = self.trials, self.candidates()
        trials.n_kept = self._n_tuned
        if not self.folds:
            # Every class has a single row: none can be held out.
            trials.list.append(Trial("kernels", candidates[0], np.nan))
            return trials.list
        if len(candidates) > _KEPT:
            candidates = self._screened(self._with_best_features(candidates))
        kept = set(map(repr, candidates))
        self._models = {key: model for key, model in self._models.items() if key[0] in kept}
        trials.begin(len(candidates), _COMPARED)
        for params in candidates:
            trials.add("kernels", params, self._score)
        self._models.clear()
        trials.check()
        if self.search.tune == "auto":
            self._tune_best()
        return self._members()

    def candidates(self) -> list[Params]:
        """Return the settings of all candidates, simple ones first."""
        search, prototype = self.search, self.prototype
        numbers, types = search._settings_to_try()
        sets = search.feature_sets
        if sets is not None:
            sets = check_feature_sets(sets, Recipe.of(search, self.rows.X.shape[1]))

        def width(transform: str, reduction: str) -> int:
            try:
                return int(self._folds.mapped(0, transform, reduction, True)[1].X.shape[1])
            except ValueError:  # the map cannot be fitted, nor will candidates with it
                return int(self.rows.X.shape[1])

        return Space(
            numbers,
            types,
            search.kernels,
            sets,
            n_classes=len(self.classes),
            n_train=min((len(training.X) for training, _ in self.folds), default=0),
            has_prior=prototype.covariance_prior != "auto",
            spreads_weights=prototype.inference != "em" or prototype.weight_prior is not None,
        ).candidates(self.rows.X, width)

    # ------------------------------------------------------------ screening

    def _with_best_features(self, candidates: list[Params]) -> list[Params]:
        """Return the candidates with the best feature maps, which a few of them determine."""
        probes: dict[tuple[Any, ...], Params] = {}
        for params in candidates:
            features = params["transform"], params["reduction"]
            kind = params["kernels"], params["n_kernels"] // len(self.classes), params["covariance_type"]
            if kind in _PROBES or not any(features == other for other, _ in probes):
                probes.setdefault((features, kind), params)
        self.trials.begin(len(probes), _SCREENED / 2)
        best: dict[tuple[str, str], float] = {}
        for (features, _), params in probes.items():
            best[features] = max(self._screening_score(params), best.get(features, -np.inf))
        kept = sorted(best, key=lambda features: -best[features])[:_KEPT_FEATURES]
        return [params for params in candidates if (params["transform"], params["reduction"]) in kept]

    def _screened(self, candidates: list[Params]) -> list[Params]:
        """Return the best candidates of the screening, the best first.

        Unless numbers of kernels are given, stop after a number that was worse.
        """
        self.trials.begin(len(candidates), _SCREENED)
        paths: dict[tuple[Any, ...], dict[int, float]] = {}
        scored: list[tuple[float, Params]] = []
        for params in sorted(candidates, key=lambda params: params["n_kernels"]):
            kind = tuple(params[name] for name in ("transform", "reduction", "kernels", "covariance_type"))
            path = paths.setdefault(kind, {})
            if isinstance(self.search.n_kernels, str) and params["n_kernels"] not in path:
                scores = list(path.values())
                if scores and scores[-1] < max(scores):
                    continue
            score = self._screening_score(params)
            path[params["n_kernels"]] = max(score, path.get(params["n_kernels"], -np.inf))
            if np.isfinite(score):
                scored.append((score, params))
        scored.sort(key=lambda pair: -pair[0])
        return [params for _, params in scored[:_KEPT]] or candidates[:1]

    def _screening_score(self, params: Params) -> float:
        trial = self.trials.add(SCREENING, params, partial(self._score, some=True))
        return -np.inf if trial is None else trial.score

    # ------------------------------------------------------------ scores

    def _score(self, trial: Trial, fitted: Sequence[Any] = (), *, some: bool = False) -> None:
        """Fit a candidate, or tune fitted models, and score it by the least log-loss over temperatures.

        With `some`, only some rows of the first fold are used. Otherwise, a candidate that is clearly worse
        than the best on the first fold is dropped: it keeps that score, as one of the screening does.
        """
        params, scores = trial.params, HeldOut(self._factors)
        # Rows and settings have already been checked.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for number in range(1 if some else len(self.folds)):
                if number == 1 and self._is_hopeless(scores):
                    trial.stage = SCREENING
                    break
                rows, held = self._folds.mapped(number, params["transform"], params["reduction"], some)
                if fitted:
                    model = self.tune(deepcopy(fitted[number]), rows.block)
                else:
                    model = self._fitted(params, rows)
                trial.models.append(model)
                scores.add(model, rows, held)
        trial.losses, columns = scores.best()
        trial.columns |= columns
        _, weights = codes_and_weights(scores.folds)
        fold_of = np.repeat(np.arange(len(scores.folds)), [len(rows.X) for rows in scores.folds])
        sums = np.bincount(fold_of, weights * trial.losses)
        trial.split_scores = (-sums / np.bincount(fold_of, weights)).tolist()
        trial.score = -float(sums.sum() / weights.sum())

    def _fitted(self, params: Params, rows: FitRows) -> Any:
        """Return the classifier of a candidate, fitted to rows; candidates of the screening are kept."""
        key = repr(params), id(rows)
        if key not in self._models:
            self._models[key] = rows.fit(rows.classifier(self.prototype, params, self.prototype.random_state))
        return self._models[key]

    def _is_hopeless(self, scores: HeldOut) -> bool:
        """Return whether a candidate is clearly worse than the best on the first folds."""
        best, losses = self.trials.best.losses, scores.best()[0]
        _, weights = codes_and_weights(scores.folds)
        return best is not None and is_clearly_worse(losses - best[: len(losses)], weights)

    # ------------------------------------------------------------ tuning

    def _tune_best(self) -> None:
        """Tune the best candidates, except those with too many parameters or without tuning."""
        self.trials.begin(self._n_tuned, _TUNED_ALL)
        # Keep references: trials drop their models once others are better.
        for params, models in [(t.params, t.models) for t in self.trials.fitted()[: self._n_tuned]]:
            unsuited = params["feature_sets"] is not None or Settings.of(self.prototype).is_robust
            n_numbers = params["n_kernels"] * models[0].n_features_in_
            if not unsuited and n_numbers <= MOST_NUMBERS_A_ROW * len(self.rows.X):
                tuned = {**params, "trade_off": self._tuning[0]}
                self.trials.add("tuning", tuned, partial(self._score, fitted=models))

    @property
    def _tuning(self) -> tuple[float, int]:
        """Weight of the likelihood in tuning, and number of steps."""
        return _TUNING_WITH_MANY if len(self.rows.X) >= _MANY_ROWS else _TUNING

    def tune(self, model: SharedKernelClassifier, rows: Block) -> SharedKernelClassifier:
        """Tune a fitted classifier on the labelled rows, and return it."""
        labelled, (trade_off, n_steps) = rows.labelled(), self._tuning
        complete: Any = PreparedRows(labelled.X, None, None)
        return model.tune(
            complete,
            labels_of(labelled, self.classes),
            trade_off=trade_off,
            sample_weight=labelled.weights,
            validation=None,
            max_iter=n_steps,
            random_state=model.random_state,
        )

    # ------------------------------------------------------------ members

    def _members(self) -> list[Trial]:
        """Return the trials to average: the best, and others in greedy order.

        Each step adds the trial that lowers the log-loss of held-out rows the most. If the average is clearly
        worse than the best trial, return that alone.
        """
        best, (_, weights) = self.trials.best, codes_and_weights([held for _, held in self.folds])
        right = {trial: np.exp(-trial.losses) for trial in self.trials.list if trial.losses is not None}
        if best not in right:
            return [best]
        chosen, total = [best], right[best]

        def losses_with(trial: Trial) -> FloatArray:
            return losses_of((total + right[trial]) / (len(chosen) + 1))

        while len(chosen) < min(self.search.n_members, len(right)):
            others = [trial for trial in right if trial not in chosen]
            chosen.append(min(others, key=lambda trial: weights @ losses_with(trial)))
            total = total + right[chosen[-1]]
        rise = losses_of(total / len(chosen)) - losses_of(right[best])
        return [best] if is_clearly_worse(rise, weights) else chosen

    def fit_members(self, chosen: list[Trial], given: tuple[Any, Any, Any]) -> list[Member]:
        """Fit the chosen candidates to all rows.

        `given` are X, y and sample_weight of the user, for members without a feature map.
        """
        self.trials.begin(len(chosen), 1.0)
        members: list[Member] = []
        for number, trial in enumerate(chosen):
            if members and self.trials.time_is_up(FITTING):
                break
            members.append(self._member(trial, given, self.prototype.random_state + number))
            self.trials.step("fitting to all rows")
        for trial in self.trials.list:
            trial.columns["member"] = trial in chosen[: len(members)]
        return members

    def _member(self, trial: Trial, given: tuple[Any, Any, Any], seed: int) -> Member:
        """Fit a candidate to all rows."""
        params = trial.params
        feature_map, rows, filled = self._all_rows(params["transform"], params["reduction"])
        classifier = filled.classifier(self.prototype, params, seed)
        if params["feature_sets"] is not None:
            # The sets of candidates are of features; those of the search are of the given columns.
            classifier.set_params(feature_sets=self.search.feature_sets)
        if feature_map is None:
            classifier.fit(*given)
        else:
            rows.fit(classifier)
        if params["trade_off"] is not None:
            self.tune(classifier, filled.block)
        classifier = widened(classifier, filled.shifts, trial.columns.get("widening", 0.0))
        classifier.temperature_ = trial.columns.get("temperature", 1.0)
        return Member(classifier, feature_map, rows, filled)

    @cached_property
    def _complete(self) -> Block:
        """All rows, with missing values filled."""
        return with_map(self.rows, filler(self.rows.X, self.prototype.random_state))

    def _map_all_rows(self, transform: str, reduction: str) -> tuple[FeatureMap | None, FitRows, FitRows]:
        """Return a feature map, all rows mapped, and the same with missing values filled."""
        feature_map = fit_features(transform, reduction, self._complete)

        def mapped(rows: Block) -> FitRows:
            values = rows if feature_map is None else with_map(rows, feature_map.transform)
            return FitRows.of(values, self.classes, self.prototype)

        rows = mapped(self.rows)
        return feature_map, rows, rows if self._complete.X is self.rows.X else mapped(self._complete)

    def set_threshold(self, member: Member, trial: Trial, share: float) -> None:
        """Set the score below which a share of new rows lies; whole groups are held out."""
        self.trials.step("finding the threshold of outliers", 0)
        feature_map, blur = member.feature_map, None
        if feature_map is not None and feature_map.matrix is not None:
            # Mixtures of features do not show the few values of each.
            blur = blur_of(with_map(self.rows, feature_map._replace(matrix=None).transform))
            blur = None if blur is None else blur @ feature_map.matrix
        is_tuned, factor = trial.params["trade_off"] is not None, trial.columns.get("widening", 0.0)
        rows = member.filled.block.labelled() if is_tuned else member.rows.block

        def finish(other: SharedKernelClassifier, remaining: Block) -> None:
            if is_tuned:
                self.tune(other, remaining)
            other.models_ = widened(other, member.filled.shifts, factor).models_

        groups = groups_of([rows])
        set_threshold(member.classifier, share, rows, finish if is_tuned or factor else None, groups, blur)


def losses_of(probabilities: FloatArray) -> FloatArray:
    """Return the log-losses (n,) of rows, given the probabilities (n,) of their classes."""
    return -np.log(np.maximum(probabilities, _SMALLEST))
