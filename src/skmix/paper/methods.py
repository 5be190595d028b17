"""Three methods of fitting a variant, a batch of runs at a time, and what their models predict.

published
    The paper's algorithm, rerun: its start and arithmetic, without safeguards.
robust
    The paper's start and stopping rule on our engine.
class-wise
    Our start within each class and our stopping rule on our engine.

A batch only saves time: the results of a run are bitwise the same alone and in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from skmix.engine import starts
from skmix.engine.compute.arrays import send
from skmix.engine.density import class_log_likelihood
from skmix.engine.em import fit
from skmix.engine.model import FloatArray, IntArray, Options, Parameters, Status
from skmix.engine.records import join
from skmix.engine.sources import open_source
from skmix.engine.sources.summary import measure
from skmix.engine.structures import structure_of

from .harness import generator
from .published import TOLERANCE, Fit, published_likelihoods, published_run
from .records import Run, Settings, StudyData, features_of
from .variants import Method, Variant, variant_of

N_CLASSES = 10
_FULL = structure_of("full")
# A class likelihood below this, relative to the row's most likely kernel, counts as lost to underflow. The
# product of those of three groups is still a normal number.
_UNDERFLOW = 1e-100
# Classes whose likelihoods differ by less than this share may have the same logarithm.
_CLOSE = 1e-9
# Runs are computed as parts of batches of this size, so that their bits do not depend on the batch.
_TOGETHER = 100
# Numbers that stay in a core's second-level cache.
_CACHED = 1 << 16


def run_batch(
    data: StudyData,
    variant: str,
    n_kernels: int,
    method: Method,
    runs: Sequence[int],
    settings: Settings,
    *,
    device: str | None = None,
) -> list[Run]:
    """Fit and test a variant with K kernels by one method, for the given run numbers.

    `device` is a PyTorch device to fit on, for methods on our engine; the last digits then depend on it.
    """
    chosen = variant_of(variant)
    decide = predict_published if method == "published" else predict
    _, test = features_of(data, chosen, settings)
    rows = [np.ascontiguousarray(test[:, columns].T) for columns in chosen.columns]
    made = []
    # More threads would be slower on matrices this small, and would round differently.
    with threadpool_limits(limits=1, user_api="blas"):
        fits = fit_batch(data, chosen, n_kernels, method, runs, settings, device=device)
        for run, fitted in zip(runs, fits, strict=True):
            ended = vars(fitted).copy()
            scores = scores_of(data.test_labels, decide(rows, ended.pop("groups")))
            made.append(Run(variant, n_kernels, method, run, **scores, **ended))
    return made


def run_one(
    data: StudyData, variant: str, n_kernels: int, method: Method, run: int, settings: Settings
) -> Run:
    """Repeat one run alone, bitwise as in the study. Parameters as in `run_batch`."""
    return run_batch(data, variant, n_kernels, method, [run], settings)[0]


def fit_batch(
    data: StudyData,
    variant: Variant,
    n_kernels: int,
    method: Method,
    runs: Sequence[int],
    settings: Settings,
    *,
    device: str | None = None,
) -> list[Fit]:
    """Fit some runs of one cell; see `run_batch`."""
    train, _ = features_of(data, variant, settings)
    labels, most = data.train_labels, settings.max_iter
    generators = [generator(settings.seed, "run", variant.name, n_kernels, method, run) for run in runs]
    by_group = []
    for columns in variant.columns:
        X = np.ascontiguousarray(train[:, columns])
        # The generator of a run is used for one group after the other, so that their starts differ.
        if method == "class-wise":
            frame = measure(X, _FULL)
            single = [
                starts.class_wise(X, labels, N_CLASSES, 1, n_kernels, frame, _FULL, random)
                for random in generators
            ]
        else:
            single = [
                starts.uniform(1, n_kernels, N_CLASSES, X.shape[1], _FULL, random) for random in generators
            ]
        if method == "published":
            by_group.append([published_run(X, labels, start.take(0), max_iter=most) for start in single])
        else:
            rule: dict[str, Any] = {"stopping": "per-class", "tol": TOLERANCE} if method == "robust" else {}
            rows = X if device is None else send(X, device)
            options = Options(max_iter=most, n_starts=_TOGETHER, **rule)
            by_group.append(_fit_engine(rows, labels, join(single), options))
    return [_joined(groups) for groups in zip(*by_group, strict=True)]


def _fit_engine(X: Any, labels: IntArray, start: Parameters, options: Options) -> list[Fit]:
    """Fit one feature set, rows X (N, M), from all starts on the engine."""
    result = fit(open_source(X, labels), start, options)
    return [
        Fit(
            groups=(result.parameters.take(r),),
            n_iter=int(result.n_iter[r]),
            converged=bool(status == Status.CONVERGED),
            failing_pass=int(result.n_iter[r]) if status == Status.FAILED else None,
            reason="overflow" if status == Status.FAILED else "",
            log_likelihood=float(result.log_likelihood[r].sum()),
        )
        for r, status in enumerate(result.status)
    ]


def _joined(groups: Sequence[Fit]) -> Fit:
    """Join the fits of a run's groups; the first group that failed gives the reason."""
    failed = next((group for group in groups if group.reason), None)
    return Fit(
        groups=tuple(parameters for group in groups for parameters in group.groups),
        n_iter=max(group.n_iter for group in groups),
        converged=all(group.converged for group in groups),
        failing_pass=failed.failing_pass if failed else None,
        reason=failed.reason if failed else "",
        log_likelihood=math.nan if failed else math.fsum(group.log_likelihood for group in groups),
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


def predict(rows: Sequence[FloatArray], groups: Sequence[Parameters]) -> IntArray:
    """Return the most likely class of each row, for equal class priors.

    `rows` (M_g, n) are the features of each group, `groups` their models, with positive definite covariances,
    whose likelihoods are multiplied. `skmix.engine.density` computes exact class likelihoods, however small.
    A decision needs less: likelihoods relative to the row's most likely kernels. A class whose likelihood
    underflows gets an upper bound, and only rows where that bound would win are scored exactly. Logarithms
    are only taken where classes nearly tie, as those that share a kernel do: the first of those whose
    log-likelihoods round to the same number wins. For thousands of small models this is several times as
    fast.
    """
    from . import loops as _loops

    scored = [_relative_likelihoods(x, model) for x, model in zip(rows, groups, strict=True)]
    likelihoods = np.stack([own for own, _ in scored])
    winners, close = _loops.decide(likelihoods, _UNDERFLOW, _CLOSE)
    close = np.flatnonzero(close)
    if len(close):
        some = likelihoods[:, :, close]
        lost = np.any(some < _UNDERFLOW, axis=0)
        logs = np.log(np.maximum(some, _UNDERFLOW, out=some))
        total = sum(own + highest[close] for own, (_, highest) in zip(logs, scored, strict=True))
        found = np.argmax(total, axis=0)
        winners[close] = found
        # Where the winner's likelihood is exact, bounds of other classes do not matter.
        doubtful = close[lost[found, np.arange(len(close))]]
        if len(doubtful):
            exact = sum(
                class_log_likelihood(np.ascontiguousarray(x[:, doubtful].T), model, "full")
                for x, model in zip(rows, groups, strict=True)
            )
            winners[doubtful] = np.argmax(exact, axis=1)
    return np.asarray(winners)


def predict_published(rows: Sequence[FloatArray], groups: Sequence[Parameters]) -> IntArray:
    """Return the most likely class of each row in the published arithmetic, which may give NaN.

    `rows` (M_g, n) are the features of each group, `groups` their models, finite or not. Parameters of a
    failed run are treated as in Matlab: the root of a negative determinant is imaginary, complex numbers are
    compared by magnitude, and a maximum skips NaN; if all are NaN it is the first class.
    """
    magnitudes: FloatArray = np.ones(1)
    with np.errstate(all="ignore"):
        for x, model in zip(rows, groups, strict=True):
            magnitudes = magnitudes * np.abs(published_likelihoods(x, model))
    return np.argmax(np.where(np.isnan(magnitudes), -np.inf, magnitudes), axis=0)


def _relative_likelihoods(rows: FloatArray, parameters: Parameters) -> tuple[FloatArray, FloatArray]:
    """Return p(x_n | class j), shape (L, n), relative to the density of the row's most likely kernel.

    And the logarithm (n,) of that density.
    """
    from . import loops as _loops

    n_kernels, n_features = parameters.means.shape
    whiteners = np.linalg.inv(np.linalg.cholesky(parameters.covariances))
    log_determinants = np.log(np.diagonal(whiteners, axis1=1, axis2=2)).sum(axis=1)
    constants = log_determinants - 0.5 * n_features * math.log(2.0 * math.pi)
    offsets = (whiteners @ parameters.means[:, :, None])[:, :, 0]
    # One matrix product whitens the rows for all kernels.
    stacked = whiteners.reshape(-1, n_features)
    likelihoods = np.empty((parameters.weights.shape[1], rows.shape[1]))
    highest = np.full(rows.shape[1], -np.inf)
    size = max(64, _CACHED // len(stacked))
    for start in range(0, rows.shape[1], size):
        block = slice(start, start + size)
        whitened = (stacked @ rows[:, block]).reshape(n_kernels, n_features, -1)
        densities = np.empty((n_kernels, whitened.shape[2]))
        _loops.relative_logs(whitened, offsets, constants, densities, highest[block])
        likelihoods[:, block] = parameters.weights.T @ np.exp(densities, out=densities)
    return likelihoods, highest
