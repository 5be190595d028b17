"""The grid of a search for densities: what is tried, how candidates are judged, which are averaged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import _fit_context, clone
from sklearn.metrics import adjusted_rand_score

from ...engine.compute.arrays import on_host
from ...engine.model import FloatArray, IntArray
from ..densities import n_parameters
from ..holdout import Split
from ..mixture import SharedKernelMixture
from ..rows import Sender
from ._base import CodedRows, Fold
from ._trials import Params, Trial, Trials

# The least stability of a number of kernels that is taken.
_STABLE = 0.85
# Passes of EM for the shares of an average.
_PASSES = 100
# Candidates with smaller shares are not worth a fit.
_LEAST_SHARE = 1e-3


@dataclass(frozen=True)
class Task:
    """What candidates are judged by."""

    criterion: str
    n_classes: int
    shape: tuple[int, int]  # numbers of rows and features
    size: float  # number of rows, or the sum of their weights
    rows: CodedRows | None = None  # None for BIC and AIC, which look at no rows
    folds: list[Fold] = field(default_factory=list)  # for the log-likelihood
    halvings: list[Split] = field(default_factory=list)  # for stability

    @property
    def held_weights(self) -> FloatArray:
        """Weights of the held-out rows of all folds."""
        return np.concatenate([held.row_weights for _, held in self.folds])


@dataclass(frozen=True)
class Grid:
    """Candidates: numbers of kernels from few to many, each with every kind of covariances.

    After the number `reach` the search goes on only while the largest number is the best. A kind is given up
    after more than `patience` numbers in a row that were no better than one before: cross-validation takes
    long, and more kernels seldom help then.
    """

    numbers: list[int]
    kinds: list[Params]
    reach: float
    patience: float


@dataclass
class Scorer:
    """Fits candidates and sets their scores; called with a trial.

    `given` are X, y and sample_weight as the user gave them. `tried` collects the trials that were fitted to
    folds, with the log-densities (n,) of all held-out rows.
    """

    prototype: SharedKernelMixture
    strategy: str
    task: Task
    given: tuple[Any, Any, Any]
    to_device: Sender
    tried: list[tuple[Trial, FloatArray]] = field(default_factory=list)

    def __call__(self, trial: Trial) -> None:
        """Fit a candidate and set its score."""
        if self.task.folds:
            self._by_held_out_rows(trial)
            return
        trial.models = [self.fit_to_all_rows(trial)]
        if self.task.criterion == "stability":
            self._by_stability(trial)
            return
        trial.columns = self._criterion(self.task.criterion, trial.models[0])
        trial.score = -trial.columns[self.task.criterion]

    def fit(self, trial: Trial, *given: Any) -> SharedKernelMixture:
        """Return a candidate fitted to X, y and sample_weight."""
        model: SharedKernelMixture = clone(self.prototype).set_params(**trial.params)
        return _fit_pruned(model, *given) if self.strategy == "prune" else model.fit(*given)

    def fit_to_all_rows(self, trial: Trial) -> SharedKernelMixture:
        """Return a candidate fitted to all rows."""
        return self.fit(trial, *self.given)

    def _by_held_out_rows(self, trial: Trial) -> None:
        """Set the mean log-density of held-out rows."""
        densities, weights = [], self.task.held_weights
        for training, held in self.task.folds:
            model = self.fit(trial, self.to_device(training.X), training.y, training.weights)
            densities.append(on_host(model.score_samples(self.to_device(held.X), held.y)))
            trial.split_scores.append(float(np.average(densities[-1], weights=held.weights)))
        self.tried.append((trial, np.concatenate(densities)))
        trial.columns["log_likelihood"] = float(weights @ self.tried[-1][1])
        trial.score = trial.columns["log_likelihood"] / float(weights.sum())

    def _by_stability(self, trial: Trial) -> None:
        """Fit a candidate to both halves of the rows, several times, and set its stability."""
        rows = self.task.rows
        assert rows is not None
        agreements, X = [], self.to_device(rows.X)
        for halves in self.task.halvings:
            parts = [(self.to_device(half.X), half.y, half.weights) for half in map(rows.take, halves)]
            ends = [self.fit(trial, *part) for part in parts]
            models = [
                likelier(own, other, part)
                for own, other, part in zip(ends, reversed(ends), parts, strict=True)
            ]
            a, b = (on_host(model.predict(X)) for model in models)
            n_kernels = max(model.n_kernels_ for model in models)  # variational fits may leave some out
            trial.split_scores.append(least_stable(a, b, n_kernels, rows.row_weights))
            agreements.append(adjusted_rand_score(a, b))
        trial.score = float(np.median(trial.split_scores))
        trial.columns = {"stability": trial.score, "adjusted_rand": float(np.median(agreements))}
        trial.columns |= self._criterion("bic", trial.models[0])

    def _criterion(self, criterion: str, model: SharedKernelMixture) -> dict[str, float]:
        """Return an information criterion of a model fitted to all rows, and what it is made of."""
        free = n_parameters(model)
        value = free * (2.0 if criterion == "aic" else np.log(self.task.size)) - 2.0 * model.log_likelihood_
        return {criterion: value, "log_likelihood": model.log_likelihood_, "n_parameters": free}


def try_grid(
    grid: Grid, trials: Trials, evaluate: Callable[[Trial], None], best_of: Callable[[Trials], Trial]
) -> Trial:
    """Try the candidates of a grid, from few kernels to many, and return the best one."""
    scores: list[list[float]] = [[] for _ in grid.kinds]

    def is_given_up(own: list[float]) -> bool:
        return len(own) - int(np.argmax([*own, -np.inf])) > grid.patience

    for n_kernels in grid.numbers:
        left = [(kind, own) for kind, own in zip(grid.kinds, scores, strict=True) if not is_given_up(own)]
        # The time of a pass grows with the number of kernels.
        following = [k for k in grid.numbers if n_kernels <= k <= max(n_kernels, grid.reach)]
        trials.plan("kernels", sum(following) * len(left), 1.0)
        for kind, own in left:
            params = {"n_kernels": n_kernels, **kind}
            trial = trials.add("kernels", params, evaluate, n_steps=n_kernels)
            if trial is not None:
                own.append(trial.score)
        if grid.reach <= n_kernels != best_of(trials).params["n_kernels"]:
            break
    trials.check()
    return best_of(trials)


def likeliest(trials: Trials) -> Trial:
    """Return the trial of the highest score."""
    return trials.best


def largest_stable(trials: Trials) -> Trial:
    """Return the stable trial of the most kernels, or the most stable one."""
    stable = [trial for trial in trials.list if trial.score >= _STABLE]
    return max(stable, key=lambda trial: (trial.params["n_kernels"], trial.score), default=trials.best)


@_fit_context(prefer_skip_nested_validation=True)  # which tears callbacks down
def _fit_pruned(model: SharedKernelMixture, X: Any, y: Any, sample_weight: Any) -> SharedKernelMixture:
    return model._fit(X, y, sample_weight, prune=True)


# ---------------------------------------------------------------- averages


def average(
    tried: list[tuple[Trial, FloatArray]], weights: FloatArray, most: int
) -> tuple[list[Trial], FloatArray]:
    """Return the trials to average, the best one first, and their shares.

    The average of all candidates that gives held-out rows the highest density is a mixture, whose shares EM
    finds; those of the largest shares stay, and shares are found again.
    """
    finite = [each for each in tried if np.isfinite(each[0].score)]
    trials, densities = zip(*sorted(finite, key=lambda each: -each[0].score), strict=True)
    logs = np.array(densities)
    shares = _best_shares(logs, weights)
    others = [i for i in 1 + np.argsort(-shares[1:], kind="stable") if shares[i] > _LEAST_SHARE]
    kept = [0, *others[: most - 1]]
    return [trials[i] for i in kept], _best_shares(logs[kept], weights)


def _best_shares(logs: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the shares (S,) of densities in the average of the highest likelihood, from logs (S, n)."""
    shares, densities = np.full(len(logs), 1.0 / len(logs)), np.exp(logs - logs.max(axis=0))
    for _ in range(_PASSES):
        shares = shares * (densities @ (weights / (shares @ densities))) / weights.sum()
    return shares / shares.sum()


# ---------------------------------------------------------------- stability


def likelier(own: SharedKernelMixture, other: SharedKernelMixture, part: Any) -> SharedKernelMixture:
    """Return the fit to a part of the rows, or one that starts from kernels of another, if it is likelier."""
    moved: SharedKernelMixture = clone(own).set_params(
        n_kernels=None,
        init={"means": on_host(other.means_), "covariances": on_host(other.covariances_)},
        n_init=1,
        covariance_prior=getattr(own, "covariance_prior_", own.covariance_prior),
    )
    moved.fit(*part)
    return max(own, moved, key=_reached)


def _reached(model: SharedKernelMixture) -> float:
    """Return the objective of a fit."""
    found: Any = getattr(model, "lower_bound_", model.log_likelihood_)
    return float(found)


def least_stable(a: IntArray, b: IntArray, n_kernels: int, weights: FloatArray) -> float:
    """Return the smallest Jaccard index of the kernels of two fits, assigned one to one.

    Kernels (n,) of rows with weights (n,) are numbers below `n_kernels`; a kernel without rows has index 0.
    """
    both = np.zeros((n_kernels, n_kernels))
    np.add.at(both, (a, b), weights)
    either = both.sum(axis=1)[:, None] + both.sum(axis=0) - both
    indices = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return float(indices[linear_sum_assignment(-indices)].min())
