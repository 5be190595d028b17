"""The search for a mixture: what it tries, scores of candidates, and their average."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone

from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from ..engine.structures import STRUCTURES
from ..model.checks import warn_caller
from ..model.densities import criterion, n_parameters
from ..model.mixture import SharedKernelMixture
from ..model.rows import enter
from ..model.settings import is_wide
from .fits import FitRows, labels_of
from .trials import Params, Trial, Trials

# Try up to this many kernels per class, and up to four times as many while the largest number is the best.
_KERNELS_PER_CLASS = 4
# Try at least up to this number. More classes than this are samples or sites, which share kernels.
_FEWEST_TO_REACH = 10
# Strengths of the prior on covariances. Only a weak prior allows kernels that are narrow in some features.
_PRIORS = {"full": ("auto", "weak"), "diag": ("auto", "weak")}
# Give up a covariance type after this many numbers of kernels without improvement.
PATIENCE = 3
# Share of a search that is done once candidates have been compared.
_CHOSEN = 0.9
# Passes of EM for the shares of an average.
_PASSES = 100
# Smallest share of a candidate that is worth a fit to all rows.
_LEAST_SHARE = 1e-3


@dataclass
class Scorer:
    """Fits candidates and sets their scores: by held-out rows of folds, or without folds by minus BIC."""

    prototype: SharedKernelMixture
    given: tuple[Any, Any, Any]  # X, y and sample_weight of the user
    n_classes: int
    shape: tuple[int, int]  # numbers of rows and features
    folds: list[tuple[FitRows, Block]] = field(default_factory=list)
    size: float = 0.0  # number of rows, or the sum of their weights, for BIC

    @classmethod
    def by_bic(cls, prototype: SharedKernelMixture, given: tuple[Any, Any, Any]) -> Scorer:
        """Return a scorer that needs only the number of rows, wherever they are."""
        training = enter(clone(prototype), *given).training()
        summary = training.source.summary
        shape, size = (summary.n_rows, training.n_features), float(summary.sizes.sum())
        return cls(prototype, given, len(training.classes), shape, size=size)

    @property
    def held_weights(self) -> FloatArray:
        """Weights of the held-out rows of all folds."""
        return np.concatenate([held.row_weights for _, held in self.folds])

    def candidate(self, trial: Trial) -> SharedKernelMixture:
        """Return the unfitted mixture of a candidate."""
        mixture: SharedKernelMixture = clone(self.prototype).set_params(**trial.params)
        return mixture

    def __call__(self, trial: Trial) -> None:
        """Fit a candidate and set its score."""
        if not self.folds:
            model = self.candidate(trial).fit(*self.given)
            bic = criterion(model, model.log_likelihood_, self.size, self.shape[0])
            trial.models, trial.score = [model], -bic
            likelihood = {"log_likelihood": model.log_likelihood_}
            trial.columns = {"bic": bic, **likelihood, "n_parameters": n_parameters(model)}
            return
        densities, weights = [], self.held_weights
        for rows, held in self.folds:
            model = rows.fit(self.candidate(trial))
            densities.append(model.score_samples(held.X, labels_of(held, rows.classes)))
            trial.split_scores.append(float(np.average(densities[-1], weights=held.weights)))
        trial.losses = -np.concatenate(densities)
        trial.columns["log_likelihood"] = -float(weights @ trial.losses)
        trial.score = trial.columns["log_likelihood"] / float(weights.sum())


def numbers_to_try(scorer: Scorer) -> tuple[list[int], float]:
    """Return numbers of kernels, and the number beyond which only the best goes on."""
    (n_rows, n_features), first, usual = scorer.shape, 1, min(scorer.n_classes, _FEWEST_TO_REACH)
    if scorer.prototype.init == "class":
        first = usual = scorer.n_classes
    reach, numbers = max(_FEWEST_TO_REACH, _KERNELS_PER_CLASS * usual), [first]
    most = min(_KERNELS_PER_CLASS * reach, n_rows // (n_features + 1))
    while (following := numbers[-1] + max(1, numbers[-1] // 4)) <= most:
        numbers.append(following)
    return numbers, reach


def covariances_to_try(scorer: Scorer, types: list[str] | None) -> list[Params]:
    """Return the covariance types and the strengths of the prior, given types or None for the default."""
    if types is None and is_wide(*scorer.shape):
        types = ["diag", "spherical"]
        warn_caller(
            f"{scorer.shape[0]} rows have {scorer.shape[1]} features: covariance_type='auto' tries only "
            "'diag' and 'spherical', without correlations inside kernels. Set covariance_type to choose."
        )
    names = types or list(STRUCTURES)
    prototype = scorer.prototype
    if not (scorer.folds and prototype.covariance_prior == "auto" and prototype.inference == "em"):
        return [{"covariance_type": name} for name in names]
    return [
        {"covariance_type": name, "covariance_prior": prior}
        for name in names
        for prior in _PRIORS.get(name, ("auto",))
    ]


def try_grid(
    trials: Trials,
    evaluate: Callable[[Trial], None],
    *,
    numbers: list[int],
    covariances: list[Params],
    reach: float = np.inf,
    patience: float = np.inf,
) -> Trial:
    """Try each covariance type and prior with ascending numbers of kernels; return the best candidate.

    Beyond the number `reach`, the search continues only while the largest number is the best. A covariance
    type is given up after `patience` numbers of kernels without improvement: more kernels seldom help then.
    """
    scores: list[list[float]] = [[] for _ in covariances]

    def is_given_up(path: list[float]) -> bool:
        return len(path) - int(np.argmax([*path, -np.inf])) > patience

    # The time of a pass grows with the number of kernels.
    trials.begin(len(covariances) * sum(k for k in numbers if k <= reach), _CHOSEN)
    for n_kernels in numbers:
        remaining = [pair for pair in zip(covariances, scores, strict=True) if not is_given_up(pair[1])]
        for settings, path in remaining:
            trial = trials.add("kernels", {"n_kernels": n_kernels, **settings}, evaluate, n_kernels)
            if trial is not None:
                path.append(trial.score)
        if reach <= n_kernels != trials.best.params["n_kernels"]:
            break
    trials.check()
    return trials.best


# ---------------------------------------------------------------- averages


def average(trials: list[Trial], weights: FloatArray, most: int) -> tuple[list[Trial], FloatArray]:
    """Return at most `most` trials to average, the best first, and their shares.

    EM finds the shares of all candidates that maximise the likelihood of held-out rows. The candidates with
    the largest shares are kept, and their shares are estimated again.
    """
    trials = sorted((t for t in trials if np.isfinite(t.score)), key=lambda trial: -trial.score)
    logs = -np.array([trial.losses for trial in trials])
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
