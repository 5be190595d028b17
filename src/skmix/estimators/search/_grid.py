"""The grid of the search for a mixture: score candidates, choose the best, and average some."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from ...engine.records import FloatArray
from ...engine.rows.blocks import Block
from ..densities import criterion, n_parameters
from ..mixture import SharedKernelMixture
from ._base import Fold, labels_of
from ._trials import Params, Trial, Trials

# Passes of EM for the shares of an average.
_PASSES = 100
# Smallest share of a candidate that is worth a fit to all rows.
_LEAST_SHARE = 1e-3


@dataclass
class Scorer:
    """Fits candidates and sets their scores; called with a trial."""

    prototype: SharedKernelMixture
    given: tuple[Any, Any, Any]  # X, y and sample_weight of the user
    n_classes: int
    shape: tuple[int, int]  # numbers of rows and features
    size: float  # number of rows, or the sum of their weights
    classes: np.ndarray | None = None  # (L,); None without labels
    folds: list[Fold] = field(default_factory=list)  # none for BIC
    # Trials fitted to folds, with the log-densities (n,) of all held-out rows.
    tried: list[tuple[Trial, FloatArray]] = field(default_factory=list)

    @property
    def held_weights(self) -> FloatArray:
        """Weights of the held-out rows of all folds."""
        return np.concatenate([held.row_weights for _, held in self.folds])

    def __call__(self, trial: Trial) -> None:
        """Fit a candidate and set its score."""
        if self.folds:
            densities, weights = [], self.held_weights
            for training, held in self.folds:
                model = self.fit(trial, *self._fit_arguments(training))
                densities.append(model.score_samples(*self._fit_arguments(held)[:2]))
                trial.split_scores.append(float(np.average(densities[-1], weights=held.weights)))
            self.tried.append((trial, np.concatenate(densities)))
            trial.columns["log_likelihood"] = float(weights @ self.tried[-1][1])
            trial.score = trial.columns["log_likelihood"] / float(weights.sum())
            return
        model = self.fit(trial, *self.given)
        n_free, log_likelihood = n_parameters(model), model.log_likelihood_
        bic = criterion(model, log_likelihood, self.size, self.shape[0])
        trial.models, trial.score = [model], -bic
        trial.columns = {"bic": bic, "log_likelihood": log_likelihood, "n_parameters": n_free}

    def fit(self, trial: Trial, *given: Any) -> SharedKernelMixture:
        """Return a candidate fitted to X, y and sample_weight."""
        model: SharedKernelMixture = clone(self.prototype).set_params(**trial.params)
        return model.fit(*given)

    def _fit_arguments(self, rows: Block) -> tuple[Any, Any, Any]:
        return rows.X, labels_of(rows, self.classes), rows.weights


def try_grid(
    trials: Trials,
    evaluate: Callable[[Trial], None],
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
        if reach <= n_kernels != trials.best.params["n_kernels"]:
            break
    trials.check()
    return trials.best


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
