"""The grid of the search for a mixture: score candidates, choose the best, and average some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from ...engine.compute.arrays import on_host
from ...engine.compute.blocks import Block
from ...engine.model import FloatArray, IntArray
from ..densities import n_parameters
from ..holdout import Split
from ..mixture import SharedKernelMixture
from ..rows import Sender
from ._base import Fold, labels_of
from ._trials import Params, Trial, Trials

# Smallest median Jaccard index at which kernels count as stable.
_STABLE = 0.85
# Passes of EM for the shares of an average.
_PASSES = 100
# Smallest share of a candidate that is worth a fit to all rows.
_LEAST_SHARE = 1e-3


@dataclass
class Scorer:
    """Fits candidates and sets their scores; called with a trial."""

    prototype: SharedKernelMixture
    criterion: str
    given: tuple[Any, Any, Any]  # X, y and sample_weight of the user
    to_device: Sender
    n_classes: int
    shape: tuple[int, int]  # numbers of rows and features
    size: float  # number of rows, or the sum of their weights
    rows: Block | None = None  # for stability
    classes: np.ndarray | None = None  # (L,); None without labels
    folds: list[Fold] = field(default_factory=list)  # for the log-likelihood
    halvings: list[Split] = field(default_factory=list)  # for stability
    # Trials fitted to folds, with the log-densities (n,) of all held-out rows.
    tried: list[tuple[Trial, FloatArray]] = field(default_factory=list)

    @property
    def held_weights(self) -> FloatArray:
        """Weights of the held-out rows of all folds."""
        return np.concatenate([held.row_weights for _, held in self.folds])

    def __call__(self, trial: Trial) -> None:
        """Fit a candidate and set its score."""
        if self.folds:
            self._by_held_out_rows(trial)
            return
        trial.models = [self.fit(trial, *self.given)]
        if self.criterion == "stability":
            self._by_stability(trial)
            return
        trial.columns = self._bic(trial.models[0])
        trial.score = -trial.columns["bic"]

    def fit(self, trial: Trial, *given: Any) -> SharedKernelMixture:
        """Return a candidate fitted to X, y and sample_weight."""
        model: SharedKernelMixture = clone(self.prototype).set_params(**trial.params)
        return model.fit(*given)

    def _fit_arguments(self, rows: Block) -> tuple[Any, Any, Any]:
        """Return X, y and sample_weight of some rows."""
        return self.to_device(rows.X), labels_of(rows, self.classes), rows.weights

    def _by_held_out_rows(self, trial: Trial) -> None:
        """Score a candidate by the mean log-density of held-out rows."""
        densities, weights = [], self.held_weights
        for training, held in self.folds:
            model = self.fit(trial, *self._fit_arguments(training))
            densities.append(on_host(model.score_samples(*self._fit_arguments(held)[:2])))
            trial.split_scores.append(float(np.average(densities[-1], weights=held.weights)))
        self.tried.append((trial, np.concatenate(densities)))
        trial.columns["log_likelihood"] = float(weights @ self.tried[-1][1])
        trial.score = trial.columns["log_likelihood"] / float(weights.sum())

    def _by_stability(self, trial: Trial) -> None:
        """Score a candidate by its stability: fit it to both halves of the rows, several times."""
        rows = self.rows
        assert rows is not None
        agreements, X = [], self.to_device(rows.X)
        for halves in self.halvings:
            given = [self._fit_arguments(rows.rows(half)) for half in halves]
            first, second = (self.fit(trial, *half) for half in given)
            models = likelier(first, second, given[0]), likelier(second, first, given[1])
            a, b = (on_host(model.predict(X)) for model in models)
            n_kernels = max(model.n_kernels_ for model in models)  # variational fits may drop kernels
            trial.split_scores.append(least_stable(a, b, n_kernels, rows.row_weights))
            agreements.append(adjusted_rand_score(a, b))
        trial.score = float(np.median(trial.split_scores))
        trial.columns = {"stability": trial.score, "adjusted_rand": float(np.median(agreements))}
        trial.columns |= self._bic(trial.models[0])

    def _bic(self, model: SharedKernelMixture) -> dict[str, float]:
        """Return the BIC of a model fitted to all rows, its log-likelihood and number of parameters."""
        n_free, log_likelihood = n_parameters(model), model.log_likelihood_
        bic = n_free * np.log(self.size) - 2.0 * log_likelihood
        return {"bic": bic, "log_likelihood": log_likelihood, "n_parameters": n_free}


def try_grid(
    trials: Trials,
    evaluate: Callable[[Trial], None],
    best_of: Callable[[Trials], Trial],
    *,
    numbers: list[int],
    covariances: list[Params],
    reach: float,
    patience: float,
) -> Trial:
    """Try each covariance type and prior with ascending numbers of kernels; return the best candidate.

    Beyond the number `reach`, the search continues only while the largest number is the best. A covariance
    type is given up after `patience` numbers of kernels without improvement: more kernels seldom help then.
    """
    scores: list[list[float]] = [[] for _ in covariances]

    def is_given_up(path: list[float]) -> bool:
        return len(path) - int(np.argmax([*path, -np.inf])) > patience

    for n_kernels in numbers:
        left = [each for each in zip(covariances, scores, strict=True) if not is_given_up(each[1])]
        # The time of a pass grows with the number of kernels.
        following = [k for k in numbers if n_kernels <= k <= max(n_kernels, reach)]
        trials.plan("kernels", sum(following) * len(left), 1.0)
        for settings, path in left:
            params = {"n_kernels": n_kernels, **settings}
            trial = trials.add("kernels", params, evaluate, n_steps=n_kernels)
            if trial is not None:
                path.append(trial.score)
        if reach <= n_kernels != best_of(trials).params["n_kernels"]:
            break
    trials.check()
    return best_of(trials)


def largest_stable(trials: Trials) -> Trial:
    """Return the stable trial with the most kernels, or else the most stable one."""
    stable = [trial for trial in trials.list if trial.score >= _STABLE]
    return max(stable, key=lambda trial: (trial.params["n_kernels"], trial.score), default=trials.best)


# ---------------------------------------------------------------- averages


def average(
    tried: list[tuple[Trial, FloatArray]], weights: FloatArray, most: int
) -> tuple[list[Trial], FloatArray]:
    """Return at most `most` trials to average, the best first, and their shares.

    EM finds the shares of all candidates that maximise the likelihood of held-out rows. The candidates with
    the largest shares are kept, and their shares are estimated again.
    """
    finite = [each for each in tried if np.isfinite(each[0].score)]
    trials, densities = zip(*sorted(finite, key=lambda each: -each[0].score), strict=True)
    logs = np.array(densities)
    shares = _best_shares(logs, weights)
    others = [i for i in 1 + np.argsort(-shares[1:], kind="stable") if shares[i] > _LEAST_SHARE]
    kept = [0, *others[: most - 1]]
    return [trials[i] for i in kept], _best_shares(logs[kept], weights)


def _best_shares(logs: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the shares (S,) of highest likelihood, given log-densities (S, n) and weights (n,)."""
    shares, densities = np.full(len(logs), 1.0 / len(logs)), np.exp(logs - logs.max(axis=0))
    for _ in range(_PASSES):
        shares = shares * (densities @ (weights / (shares @ densities))) / weights.sum()
    return shares / shares.sum()


# ---------------------------------------------------------------- stability


def likelier(fitted: SharedKernelMixture, other: SharedKernelMixture, given: Any) -> SharedKernelMixture:
    """Fit again from the kernels of another fit; return the likelier of the two fits to the given rows.

    Variational fits are compared by their lower bound.
    """
    moved: SharedKernelMixture = clone(fitted).set_params(
        n_kernels=None,
        init={"means": on_host(other.means_), "covariances": on_host(other.covariances_)},
        n_init=1,
        covariance_prior=getattr(fitted, "covariance_prior_", fitted.covariance_prior),
    )
    moved.fit(*given)
    reached: list[Any] = [getattr(each, "lower_bound_", each.log_likelihood_) for each in (fitted, moved)]
    return moved if reached[1] > reached[0] else fitted


def least_stable(a: IntArray, b: IntArray, n_kernels: int, weights: FloatArray) -> float:
    """Match the kernels of two fits one to one, and return their smallest Jaccard index.

    `a` and `b` (n,) are the kernels that both fits assign to rows with weights (n,), numbered below
    `n_kernels`. A kernel without rows has index 0.
    """
    both = np.zeros((n_kernels, n_kernels))
    np.add.at(both, (a, b), weights)
    either = both.sum(axis=1)[:, None] + both.sum(axis=0) - both
    indices = np.divide(both, either, out=np.zeros_like(both), where=either > 0)
    return float(indices[linear_sum_assignment(-indices)].min())
