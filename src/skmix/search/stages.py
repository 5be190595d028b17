"""Stages of the search for a classifier: screen candidates, compare the best, tune them, average some."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn import config_context

from ..data.recipe import Recipe
from ..engine.after.temperature import least_log_loss, log_losses
from ..engine.records import FloatArray, IntArray
from ..engine.rows.blocks import Block
from ..model.arguments import check_feature_sets
from ..model.classifier import SharedKernelClassifier
from ..model.crossfit import blur_of, set_threshold
from ..model.frames import PreparedRows
from ..model.settings import Settings
from .features import FeatureMap, filler, fit_features, with_map
from .fits import FitRows, Fold, Folds, labels_of
from .space import MOST_NUMBERS_A_ROW, Space
from .trials import FITTING, SCREENING, Params, Trial, Trials

# Number of candidates to compare on all folds.
_KEPT = 8
# Number of feature maps to keep.
_KEPT_FEATURES = 3
# Candidates that compare feature maps: ownership of kernels, kernels per class, and covariance type.
_PROBES = (("own", 1, "tied"), ("own", 1, "full"), ("own", 4, "full"))
# Number of candidates to tune, and with as many folds as few rows have.
_TUNED, _TUNED_WITH_FEW, _MANY_FOLDS = 3, 2, 5
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
        self._folds = Folds(self.folds, self.classes, self.prototype)
        # Models of the screening, by candidate and training rows.
        self._models: dict[tuple[str, int], Any] = {}
        self._n_tuned = _TUNED_WITH_FEW if len(self.folds) >= _MANY_FOLDS else _TUNED

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
        params = trial.params
        logs: list[FloatArray] = []
        all_held: list[Block] = []
        # Rows and settings have already been checked.
        with config_context(assume_finite=True, skip_parameter_validation=True):
            for number in range(1 if some else len(self.folds)):
                if number == 1 and self._is_hopeless(all_held[0], logs[0]):
                    trial.stage = SCREENING
                    break
                rows, held = self._folds.mapped(number, params["transform"], params["reduction"], some)
                key = repr(params), id(rows)
                if fitted:
                    model = self.tune(deepcopy(fitted[number]), rows.block)
                else:
                    if key not in self._models:
                        classifier = rows.classifier(self.prototype, params, self.prototype.random_state)
                        self._models[key] = rows.fit(classifier)
                    model = self._models[key]
                trial.models.append(model)
                logs.append(model.predict_log_proba(held.X))
                all_held.append(held)
        joined, (codes, weights) = np.concatenate(logs), codes_and_weights(all_held)
        temperature, _ = least_log_loss(joined, codes, weights)
        trial.columns["temperature"] = temperature
        for held, log in zip(all_held, logs, strict=True):
            loss = np.average(log_losses(log, held.codes, temperature), weights=held.weights)
            trial.split_scores.append(-float(loss))
        sizes = [held.row_weights.sum() for held in all_held]
        trial.score = float(np.average(trial.split_scores, weights=sizes))
        trial.probabilities = softmax(joined / temperature, axis=1)

    def _is_hopeless(self, held: Block, logs: FloatArray) -> bool:
        """Return whether log-joints (n, L) of the first held-out rows are clearly worse than the best's."""
        best, codes, weights = self.trials.best.probabilities, held.codes, held.row_weights
        if best is None:
            return False
        losses = log_losses(logs, codes, least_log_loss(logs, codes, weights)[0])
        return is_clearly_worse(losses - losses_of(best[np.arange(len(codes)), codes]), weights)

    # ------------------------------------------------------------ tuning

    @property
    def _tuning(self) -> tuple[float, int]:
        """Weight of the likelihood in tuning, and number of steps."""
        return _TUNING_WITH_MANY if len(self.rows.X) >= _MANY_ROWS else _TUNING

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
        best, (codes, weights) = self.trials.best, codes_and_weights([held for _, held in self.folds])
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

    def fit_members(self, chosen: list[Trial], given: tuple[Any, Any, Any]) -> list[Member]:
        """Fit the chosen candidates to all rows.

        `given` are X, y and sample_weight of the user, for members without a feature map.
        """
        self.trials.begin(len(chosen), 1.0)
        complete = with_map(self.rows, filler(self.rows.X, self.prototype.random_state))

        @cache
        def features(transform: str, reduction: str) -> tuple[FeatureMap | None, FitRows, FitRows]:
            """Return a feature map, the mapped rows, and the same with missing values filled."""
            feature_map = fit_features(transform, reduction, complete)
            blocks = [self.rows, complete]
            if feature_map is not None:
                blocks = [with_map(rows, feature_map.transform) for rows in blocks]
            rows = FitRows.of(blocks[0], self.classes, self.prototype)
            has_gaps = complete.X is not self.rows.X
            return (
                feature_map,
                rows,
                FitRows.of(blocks[1], self.classes, self.prototype) if has_gaps else rows,
            )

        members: list[Member] = []
        for number, trial in enumerate(chosen):
            if members and self.trials.time_is_up(FITTING):
                break
            params = trial.params
            feature_map, rows, filled = features(params["transform"], params["reduction"])
            classifier = filled.classifier(self.prototype, params, self.prototype.random_state + number)
            if params["feature_sets"] is not None:
                # The sets of candidates are of features; those of the search are of the given columns.
                classifier.set_params(feature_sets=self.search.feature_sets)
            if feature_map is None:
                classifier.fit(*given)
            else:
                rows.fit(classifier)
            if params["trade_off"] is not None:
                self.tune(classifier, filled.block)
            classifier.temperature_ = trial.columns.get("temperature", 1.0)
            self.trials.step("fitting to all rows")
            members.append(Member(classifier, feature_map, rows.block, filled.block))
        for trial in self.trials.list:
            trial.columns["member"] = trial in chosen[: len(members)]
        return members

    def set_threshold(self, member: Member, params: Params, share: float, groups: np.ndarray | None) -> None:
        """Set the score below which a share of new rows lies; hold out whole groups (n,)."""
        self.trials.step("finding the threshold of outliers", 0)
        feature_map, blur = member.feature_map, None
        if feature_map is not None and feature_map.matrix is not None:
            # Mixtures of features do not show the few values of each.
            blur = blur_of(with_map(self.rows, feature_map._replace(matrix=None).transform))
            blur = None if blur is None else blur @ feature_map.matrix
        if params["trade_off"] is None:
            return set_threshold(member.classifier, share, member.rows, groups=groups, blur=blur)

        def finish(other: SharedKernelClassifier, rows: Block) -> None:
            self.tune(other, rows)

        groups = None if groups is None else groups[member.filled.codes >= 0]
        return set_threshold(member.classifier, share, member.filled.labelled(), finish, groups, blur)


# ---------------------------------------------------------------- log-losses of held-out rows


def codes_and_weights(held: list[Block]) -> tuple[IntArray, FloatArray]:
    """Return the class codes and weights (n,) of the held-out rows of some folds."""
    return np.concatenate([rows.codes for rows in held]), np.concatenate([rows.row_weights for rows in held])


def losses_of(probabilities: FloatArray) -> FloatArray:
    """Return the log-losses (n,) of rows, given the probabilities (n,) of their classes."""
    return -np.log(np.maximum(probabilities, _SMALLEST))


def is_clearly_worse(rise: FloatArray, weights: FloatArray) -> bool:
    """Return whether losses rise by more than their standard error, given rows (n,) with weights (n,)."""
    mean, size = np.average(rise, weights=weights), weights.sum()
    error = np.sqrt(np.average((rise - mean) ** 2, weights=weights) / size)
    # Allow for one error that these rows do not show by chance.
    return bool(mean > max(error, np.log(size) / size))
