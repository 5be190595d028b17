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
from typing import Any

import numpy as np
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from skmix import SharedKernelMixture
from skmix.model import fit_each
from skmix.theory import Parameters

from .digits import FloatArray, IntArray
from .harness import generator
from .published import TOLERANCE, Fit, published_likelihoods, published_runs
from .records import Run, Settings, StudyData, features_of
from .rows import Rows, exponentials
from .variants import Method, Variant, variant_of

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


def run_batch(
    data: StudyData, variant: str, n_kernels: int, method: Method, runs: Sequence[int], settings: Settings
) -> list[Run]:
    """Fit and test a variant with K kernels by one method, for the given run numbers."""
    chosen = variant_of(variant)
    decide = predict_published if method == "published" else predict
    _, test = features_of(data, chosen, settings)
    rows = [Rows(test[:, columns].T) for columns in chosen.columns]
    made = []
    # More threads would be slower on matrices this small, and would round differently.
    with threadpool_limits(limits=1, user_api="blas"):
        fits = fit_batch(data, chosen, n_kernels, method, runs, settings)
        for run, fitted in zip(runs, fits, strict=True):
            outcome = vars(fitted).copy()
            scores = scores_of(data.test_labels, decide(rows, outcome.pop("mixtures")))
            made.append(Run(variant, n_kernels, method, run, **scores, **outcome))
    return made


def run_one(
    data: StudyData, variant: str, n_kernels: int, method: Method, run: int, settings: Settings
) -> Run:
    """Repeat one run alone, bitwise as in the study. Parameters as in `run_batch`."""
    return run_batch(data, variant, n_kernels, method, [run], settings)[0]


def fit_batch(
    data: StudyData, variant: Variant, n_kernels: int, method: Method, runs: Sequence[int], settings: Settings
) -> list[Fit]:
    """Fit some runs of one cell; see `run_batch`."""
    train, _ = features_of(data, variant, settings)
    labels, max_iter = data.train_labels, settings.max_iter
    generators = [generator(settings.seed, "run", variant.name, n_kernels, method, run) for run in runs]
    by_feature_set = []
    for columns in variant.columns:
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


def scores_of(truth: IntArray, predicted: IntArray) -> dict[str, Any]:
    """Return accuracy, mean Jaccard index and confusion matrix (L, L) of predicted classes (n,).

    The conventions are scikit-learn's, whose checks would take longer than the predictions. A class that
    neither occurs nor is predicted counts as zero.
    """
    counts = np.bincount(truth * N_CLASSES + predicted, minlength=N_CLASSES**2)
    confusion = counts.reshape(N_CLASSES, N_CLASSES).astype(np.int64)
    correct = np.diagonal(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - correct
    return {
        "accuracy": float(correct.sum() / len(truth)),
        "mean_iou": float(np.mean(correct / np.maximum(union, 1))),
        "confusion": confusion,
    }


def predict(rows: Sequence[Rows], mixtures: Sequence[Parameters]) -> IntArray:
    """Return the most likely class (n,) of each row, for equal class priors.

    Likelihoods are relative to the density of the row's most likely kernel. One that may have underflowed is
    replaced by an upper bound, and a row is scored exactly only if that bound wins. For thousands of small
    models this is several times as fast as exact likelihoods. Likelihoods of feature sets are multiplied; if
    those of classes nearly tie, as they may if the classes share a kernel, the first class wins.
    """
    sets = []
    for x, mixture in zip(rows, mixtures, strict=True):
        logs = _log_densities(x, mixture)
        logs -= logs.max(axis=0)
        likelihoods = mixture.weights.T @ exponentials(logs)
        sets.append(np.maximum(likelihoods, _UNDERFLOW, out=likelihoods))
    products = math.prod(sets[1:], start=sets[0])
    winners = np.argmax(products >= (1.0 - _TIED) * products.max(axis=0), axis=0)
    # If the winner's likelihoods are exact, the bounds of other classes do not matter.
    winning = np.array([likelihoods[winners, np.arange(len(winners))] for likelihoods in sets])
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
