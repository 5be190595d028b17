"""Three methods of fitting a variant, a batch of runs at a time.

published
    The paper's start and arithmetic, without safeguards.
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
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skmix.engine import starts
from skmix.engine.compute.arrays import send
from skmix.engine.covariances import structure_of
from skmix.engine.em import fit
from skmix.engine.model import Options, Parameters, Status, join
from skmix.engine.sources import open_source
from skmix.engine.sources.summary import measure
from skmix.experiments.harness import generator
from skmix.experiments.paper.data import features_of
from skmix.experiments.paper.prediction import predict, predict_published
from skmix.experiments.paper.published import TOLERANCE, Fit, published_run
from skmix.experiments.paper.records import GroupModel, Run, Settings, StudyData
from skmix.experiments.paper.variants import Method, Variant, variant_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

N_CLASSES = 10
_FULL = structure_of("full")


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
    # More threads would be slower on matrices this small, and would round differently.
    with threadpool_limits(limits=1, user_api="blas"):
        fits = fit_batch(data, chosen, n_kernels, method, runs, settings, device=device)
        return [
            Run(
                variant=variant,
                n_kernels=n_kernels,
                method=method,
                run=run,
                **scores_of(data.test_labels, decide(rows, fitted.groups)),
                reason=fitted.reason,
                failing_pass=fitted.failing_pass,
                n_iter=fitted.n_iter,
                converged=fitted.converged,
                log_likelihood=fitted.log_likelihood,
            )
            for run, fitted in zip(runs, fits, strict=True)
        ]


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
    generators = [run_generator(settings.seed, variant.name, n_kernels, method, run) for run in runs]
    by_group = []
    for columns in variant.columns:
        X = np.ascontiguousarray(train[:, columns])
        # The generator of a run is used for one group after the other, so that their starts differ.
        if method == "class-wise":
            frame = measure(X, _FULL)
            single = [
                starts.class_wise(X, data.train_labels, N_CLASSES, 1, n_kernels, frame, _FULL, random)
                for random in generators
            ]
        else:
            single = [
                starts.uniform(1, n_kernels, N_CLASSES, X.shape[1], _FULL, random) for random in generators
            ]
        labels, most = data.train_labels, settings.max_iter
        if method == "published":
            by_group.append([published_run(X, labels, start.take(0), max_iter=most) for start in single])
        else:
            by_group.append(_fit_engine(X, labels, single, method, most, device))
    return [_joined(groups) for groups in zip(*by_group, strict=True)]


def run_generator(seed: int, variant: str, n_kernels: int, method: Method, run: int) -> np.random.RandomState:
    """Return the generator of the start of one run."""
    return generator(seed, "run", variant, n_kernels, method, run)


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


def group_models(fitted: Fit, variant: Variant) -> tuple[GroupModel, ...]:
    """Return the mixtures of a run with the attributes that plots need."""
    return tuple(
        GroupModel(
            feature_names_in_=np.array(names, dtype=object),
            classes_=np.arange(N_CLASSES),
            class_prior_=np.full(N_CLASSES, 1.0 / N_CLASSES),
            weights_=model.weights,
            means_=model.means,
            covariances_=model.covariances,
        )
        for names, model in zip(variant.groups, fitted.groups, strict=True)
    )


def _fit_engine(
    X: FloatArray,
    labels: IntArray,
    single: Sequence[Parameters],
    method: Method,
    max_iter: int,
    device: str | None,
) -> list[Fit]:
    """Fit one feature group from several starts on the engine."""
    options = Options(max_iter=max_iter)
    if method == "robust":
        options = Options(max_iter=max_iter, stopping="per-class", tol=TOLERANCE)
    rows = X if device is None else send(X, device)
    result = fit(open_source(rows, labels), join(single), options)
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
