"""Three methods of fitting a variant, a batch of runs at a time, and the predictions of their models.

published
    The paper's algorithm, rerun: its start and arithmetic, without safeguards.
robust
    The paper's start and stopping rule in `skmix.SharedKernelMixture`.
class-wise
    The start within each class, until a pass changes the mean log-likelihood of a row by less than 1e-4.

A batch only saves time: a run gives the same bits alone and in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from skmix import SharedKernelMixture
from skmix.model import fit_each
from skmix.theory import Parameters

from .data import Settings, StudyData, features_of, generator
from .digits import FloatArray, IntArray
from .published import TOLERANCE, Fit, published_likelihoods, published_runs
from .rows import Rows, exponentials
from .variants import VARIANTS, Method

N_CLASSES = 10
# Settings of the mixtures of the methods on our engine.
_BARE: dict[str, Any] = {"covariance_type": "full", "covariance_prior": None}
_MIXTURES: dict[Method, dict[str, Any]] = {
    "robust": _BARE | {"init": "uniform", "tol": TOLERANCE, "stopping": "per-class"},
    "class-wise": _BARE | {"init": "class", "tol": 1e-4},
}
# Variances of the kernels at the paper's start.
_START_VARIANCE = 0.3
# A class likelihood below this, relative to the row's most likely kernel, may have underflowed. The cube, for
# three feature sets, is still a normal number.
_UNDERFLOW = 1e-100
# Class likelihoods whose relative difference is below this tie: it is their rounding.
_TIED = 1e-14


@dataclass(frozen=True)
class FittedMixture:
    """The fitted mixture of one feature set, with the attributes that plots need."""

    feature_names_in_: NDArray[np.object_]  # (M,)
    classes_: IntArray  # (L,)
    class_prior_: FloatArray  # (L,)
    weights_: FloatArray  # (K, L)
    means_: FloatArray  # (K, M)
    covariances_: FloatArray  # (K, M, M)
    covariance_type: str = "full"


@dataclass(frozen=True)
class BestRun:
    """The run with the highest accuracy of a variant and method at K = 10, fitted again."""

    variant: str
    method: Method
    run: int  # its number
    accuracy: float
    confusion: IntArray  # (10, 10) counts on the test set; rows are true digits, columns predicted ones
    mixtures: tuple[FittedMixture, ...]  # one for each feature set


def run_batch(
    data: StudyData, variant: str, n_kernels: int, method: Method, runs: Sequence[int], settings: Settings
) -> pd.DataFrame:
    """Fit and test a variant with K kernels by one method, for the given run numbers.

    Returns
    -------
    DataFrame
        A row for each run: ``variant``, ``n_kernels``, ``method`` and ``run``; ``accuracy`` and ``mean_iou``
        (the mean over the digits of the Jaccard index) on the test set; ``reason``, why a covariance became
        singular, or empty; ``failing_pass``, the pass in which it did, or NaN; ``n_iter``, passes, the most
        over the feature sets; ``converged``; ``log_likelihood`` of the training rows, summed over the feature
        sets, NaN if not finite. A run that ends singular is tested with the parameters from before that pass.
    """
    rows = _test_rows(data, variant, settings)
    records = []
    # More threads would be slower on matrices this small, and would round differently.
    with threadpool_limits(limits=1, user_api="blas"):
        fits = fit_batch(data, variant, n_kernels, method, runs, settings)
        for run, fit in zip(runs, fits, strict=True):
            confusion = confusion_of(data.test_labels, _predict_by(method, rows, fit.mixtures))
            accuracy, mean_iou = scores_of(confusion)
            records.append(
                {
                    **{"variant": variant, "n_kernels": n_kernels, "method": method, "run": run},
                    **{"accuracy": accuracy, "mean_iou": mean_iou, "reason": fit.reason},
                    "failing_pass": math.nan if fit.failing_pass is None else float(fit.failing_pass),
                    **{"n_iter": fit.n_iter, "converged": fit.converged},
                    "log_likelihood": fit.log_likelihood,
                }
            )
    return pd.DataFrame(records)


def run_one(
    data: StudyData, variant: str, n_kernels: int, method: Method, run: int, settings: Settings
) -> pd.Series:
    """Repeat one run alone, bitwise as in the study; parameters and result are those of `run_batch`."""
    return run_batch(data, variant, n_kernels, method, [run], settings).iloc[0]


def fit_again(
    data: StudyData, variant: str, n_kernels: int, method: Method, run: int, settings: Settings
) -> BestRun:
    """Repeat a run, and return its mixtures and its confusion matrix."""
    with threadpool_limits(limits=1, user_api="blas"):
        (fit,) = fit_batch(data, variant, n_kernels, method, [run], settings)
        predicted = _predict_by(method, _test_rows(data, variant, settings), fit.mixtures)
    confusion = confusion_of(data.test_labels, predicted)
    mixtures = tuple(
        FittedMixture(
            feature_names_in_=np.array(names, dtype=object),
            classes_=np.arange(N_CLASSES),
            class_prior_=np.full(N_CLASSES, 1.0 / N_CLASSES),
            weights_=mixture.weights,
            means_=mixture.means,
            covariances_=mixture.covariances,
        )
        for names, mixture in zip(VARIANTS[variant].feature_sets, fit.mixtures, strict=True)
    )
    return BestRun(variant, method, run, scores_of(confusion)[0], confusion, mixtures)


def fit_batch(
    data: StudyData, variant: str, n_kernels: int, method: Method, runs: Sequence[int], settings: Settings
) -> list[Fit]:
    """Fit some runs of one cell; see `run_batch`."""
    train, _ = features_of(data, variant, settings)
    labels, max_iter = data.train_labels, settings.max_iter
    generators = [generator(settings.seed, "run", variant, n_kernels, method, run) for run in runs]
    by_feature_set = []
    for columns in VARIANTS[variant].columns:
        X = np.ascontiguousarray(train[:, columns])
        # A run draws the starts of its feature sets one after the other, so that they differ.
        if method == "published":
            shape, weights = (n_kernels, len(columns)), np.full((n_kernels, N_CLASSES), 1.0 / n_kernels)
            covariances = np.tile(_START_VARIANCE * np.eye(len(columns)), (n_kernels, 1, 1))
            starts = [Parameters(weights, random.uniform(size=shape), covariances) for random in generators]
            fits = published_runs(X, labels, starts, max_iter=max_iter)
        else:
            model = SharedKernelMixture(n_kernels, max_iter=max_iter, n_jobs=1, **_MIXTURES[method])
            fits = [_fit_of(fitted) for fitted in fit_each(model, X, labels, generators)]
        by_feature_set.append(fits)
    return [_combined(fits) for fits in zip(*by_feature_set, strict=True)]


def _fit_of(model: SharedKernelMixture) -> Fit:
    failed = model.start_status_[0] == "failed"
    return Fit(
        mixtures=(Parameters(model.weights_, model.means_, model.covariances_),),
        n_iter=model.n_iter_,
        converged=model.converged_,
        failing_pass=model.n_iter_ if failed else None,
        reason="overflow" if failed else "",
        log_likelihood=model.log_likelihood_,
    )


def _combined(fits: Sequence[Fit]) -> Fit:
    """Combine the fits of a run's feature sets; the first that failed gives the reason."""
    failed = next((fit for fit in fits if fit.reason), None)
    return Fit(
        mixtures=tuple(mixture for fit in fits for mixture in fit.mixtures),
        n_iter=max(fit.n_iter for fit in fits),
        converged=all(fit.converged for fit in fits),
        failing_pass=failed.failing_pass if failed else None,
        reason=failed.reason if failed else "",
        log_likelihood=math.nan if failed else math.fsum(fit.log_likelihood for fit in fits),
    )


# ---------------------------------------------------------------- predictions and scores


def _test_rows(data: StudyData, variant: str, settings: Settings) -> list[Rows]:
    _, test = features_of(data, variant, settings)
    return [Rows(test[:, columns].T) for columns in VARIANTS[variant].columns]


def _predict_by(method: Method, rows: Sequence[Rows], mixtures: Sequence[Parameters]) -> IntArray:
    return (predict_published if method == "published" else predict)(rows, mixtures)


def confusion_of(truth: IntArray, predicted: IntArray) -> IntArray:
    """Count the pairs of true (rows) and predicted classes, shape (L, L), of two arrays (n,)."""
    counts = np.bincount(truth * N_CLASSES + predicted, minlength=N_CLASSES**2)
    return counts.reshape(N_CLASSES, N_CLASSES).astype(np.int64)


def scores_of(confusion: IntArray) -> tuple[float, float]:
    """Return accuracy and mean Jaccard index of a confusion matrix (L, L).

    The conventions are scikit-learn's, whose checks would take longer than the predictions. A class that
    neither occurs nor is predicted counts as zero.
    """
    correct = np.diagonal(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - correct
    return float(correct.sum() / confusion.sum()), float(np.mean(correct / np.maximum(union, 1)))


def predict(rows: Sequence[Rows], mixtures: Sequence[Parameters]) -> IntArray:
    """Return the most likely class (n,) of each row, for equal class priors.

    Likelihoods are relative to the density of the row's most likely kernel. One that may have underflowed is
    replaced by an upper bound, and a row is scored exactly only if that bound wins. For thousands of small
    models this is several times as fast as exact likelihoods. Likelihoods of feature sets are multiplied; if
    those of classes nearly tie, as they may if the classes share a kernel, the first class wins.
    """
    by_set = []
    for x, mixture in zip(rows, mixtures, strict=True):
        logs = _log_densities(x, mixture)
        logs -= logs.max(axis=0)
        likelihoods = mixture.weights.T @ exponentials(logs)
        by_set.append(np.maximum(likelihoods, _UNDERFLOW, out=likelihoods))
    products = math.prod(by_set[1:], start=by_set[0])
    winners = np.argmax(products >= (1.0 - _TIED) * products.max(axis=0), axis=0)
    # If the winner's likelihoods are exact, the bounds of other classes do not matter.
    winning = np.array([likelihoods[winners, np.arange(len(winners))] for likelihoods in by_set])
    doubtful = np.flatnonzero((winning == _UNDERFLOW).any(axis=0))
    if len(doubtful):
        exact = 0.0
        for x, mixture in zip(rows, mixtures, strict=True):
            logs = _log_densities(Rows(x.values[:, doubtful]), mixture)
            exact = exact + logsumexp(logs[:, None], axis=0, b=mixture.weights[:, :, None])
        winners[doubtful] = np.argmax(exact, axis=0)
    return np.asarray(winners)


def _log_densities(rows: Rows, mixture: Parameters) -> FloatArray:
    """Return log N(x_n; μ_k, P_k), shape (K, n)."""
    logs = rows.distances(mixture.means, np.asarray(np.linalg.inv(mixture.covariances), dtype=np.float64))
    volumes = np.linalg.slogdet(mixture.covariances)[1] + len(rows.values) * math.log(2.0 * math.pi)
    logs += volumes[:, None]
    logs *= -0.5
    return logs


def predict_published(rows: Sequence[Rows], mixtures: Sequence[Parameters]) -> IntArray:
    """Return the most likely class (n,) of each row in the published arithmetic, which may give NaN.

    Failed runs are treated as in Matlab: the root of a negative determinant is imaginary, complex numbers are
    compared by magnitude, and the maximum skips NaN; if all classes are NaN, the first wins. Parameters as in
    `predict`, but mixtures need not be finite.
    """
    magnitudes: FloatArray = np.ones(1)
    with np.errstate(all="ignore"):
        for x, mixture in zip(rows, mixtures, strict=True):
            magnitudes = magnitudes * np.abs(published_likelihoods(x, mixture))
    magnitudes[np.isnan(magnitudes)] = -np.inf
    return np.argmax(magnitudes, axis=0)
