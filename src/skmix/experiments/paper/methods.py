"""The three methods of running a variant, a batch of runs at a time.

published
    The paper's start, the paper's arithmetic, no safeguards.
robust
    The paper's start and stopping rule on our engine.
class-wise
    Our default start and stopping rule on our engine.

A batch is only a matter of speed: a run has the same bits alone as in any company.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from skmix.engine import starts
from skmix.engine.compute.arrays import Array
from skmix.engine.compute.devices import send
from skmix.engine.covariances import structure_of
from skmix.engine.em import fit
from skmix.engine.model import Options, Parameters, Status
from skmix.engine.sources import open_source
from skmix.engine.sources.summary import Frame, measure
from skmix.experiments.paper.data import features_of
from skmix.experiments.paper.metrics import accuracy, confusion_matrix, mean_iou
from skmix.experiments.paper.prediction import predict, predict_published
from skmix.experiments.paper.published import TOLERANCE, Reason, published_runs
from skmix.experiments.paper.records import GroupModel, Run, Settings, StudyData
from skmix.experiments.paper.seeds import run_generator
from skmix.experiments.paper.variants import Method, Variant, variant_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

N_CLASSES = 10
_FULL = structure_of("full")


@dataclass(frozen=True)
class Fit:
    """One fitted run, before it is tested.

    Attributes
    ----------
    groups : tuple of Parameters
        The model of each feature group: weights (K, L), means (K, M), covariances (K, M, M).
    reason : str
        Why a group failed; empty when none did.
    failing_pass : int or None
        In which pass.
    n_iter : int
        Passes, the most over the groups.
    converged : bool
        Whether all groups converged.
    log_likelihood : float
        Of the training rows, summed over the groups.
    """

    groups: tuple[Parameters, ...]
    reason: Reason
    failing_pass: int | None
    n_iter: int
    converged: bool
    log_likelihood: float


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
    """Fit and test some runs of one cell.

    Parameters
    ----------
    data : StudyData
        Images and features.
    variant : str
        Name of the variant.
    n_kernels : int
        K.
    method : {"published", "robust", "class-wise"}
        How to run it.
    runs : sequence of int
        Numbers of the runs.
    settings : Settings
        Of the study.
    device : str, optional
        PyTorch device to fit on, in the methods of our engine; the last digits are then that device's own.

    Returns
    -------
    list of Run
        In the order of `runs`.
    """
    chosen = variant_of(variant)
    decide = predict_published if method == "published" else predict
    _, test = features_of(data, chosen, settings)
    rows = [np.ascontiguousarray(test[:, columns].T) for columns in chosen.columns]
    done = []
    # More threads would be slower on matrices this small, and would round differently.
    with threadpool_limits(limits=1, user_api="blas"):
        fits = fit_batch(data, chosen, n_kernels, method, runs, settings, device=device)
        for run, fitted in zip(runs, fits, strict=True):
            confusion = confusion_matrix(data.test_labels, decide(rows, fitted.groups), N_CLASSES)
            done.append(
                Run(
                    variant=variant,
                    n_kernels=n_kernels,
                    method=method,
                    run=run,
                    accuracy=accuracy(confusion),
                    mean_iou=mean_iou(confusion),
                    reason=fitted.reason,
                    failing_pass=fitted.failing_pass,
                    n_iter=fitted.n_iter,
                    converged=fitted.converged,
                    log_likelihood=fitted.log_likelihood,
                    confusion=confusion,
                )
            )
    return done


def run_one(
    data: StudyData, variant: str, n_kernels: int, method: Method, run: int, settings: Settings
) -> Run:
    """Repeat one run alone; it has the bits it had in the study."""
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
        frame = measure(X, _FULL)
        # A run's generator goes from group to group, so that their starts differ.
        single = [_start(X, data.train_labels, n_kernels, method, frame, draws) for draws in generators]
        batch = Parameters(
            np.concatenate([start.weights for start in single]),
            np.concatenate([start.means for start in single]),
            np.concatenate([start.covariances for start in single]),
        )
        if method == "published":
            by_group.append(_fit_published(X, data.train_labels, batch, settings))
        else:
            rows = X if device is None else send(X, device)
            by_group.append(_fit_engine(rows, data.train_labels, batch, frame, method, settings))
    return [_joined(groups) for groups in zip(*by_group, strict=True)]


def group_models(fitted: Fit, variant: Variant) -> tuple[GroupModel, ...]:
    """Return a run's mixtures with the names that plots ask for."""
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


def _start(
    X: FloatArray,
    labels: IntArray,
    n_kernels: int,
    method: Method,
    frame: Frame,
    random_state: np.random.RandomState,
) -> Parameters:
    """Draw one starting point, as a batch of one."""
    if method == "class-wise":
        return starts.class_wise(X, labels, N_CLASSES, 1, n_kernels, frame, _FULL, random_state)
    return starts.uniform(1, n_kernels, N_CLASSES, X.shape[1], _FULL, random_state)


def _fit_engine(
    X: Array, labels: IntArray, batch: Parameters, frame: Frame, method: Method, settings: Settings
) -> list[Fit]:
    """Fit one group of a batch on the engine."""
    options = Options(max_iter=settings.max_iter)
    if method == "robust":
        options = Options(max_iter=settings.max_iter, stopping="per-class", tol=TOLERANCE)
    result = fit(open_source(X, labels), batch, options, frame=frame)
    return [
        Fit(
            groups=(result.parameters.take(r),),
            reason="overflow" if status == Status.FAILED else "",
            failing_pass=int(result.n_iter[r]) if status == Status.FAILED else None,
            n_iter=int(result.n_iter[r]),
            converged=bool(status == Status.CONVERGED),
            log_likelihood=float(result.log_likelihood[r].sum()),
        )
        for r, status in enumerate(result.status)
    ]


def _fit_published(X: FloatArray, labels: IntArray, batch: Parameters, settings: Settings) -> list[Fit]:
    """Fit one group of a batch in the published method."""
    return [
        Fit((run.parameters,), run.reason, run.failing_pass, run.n_iter, run.converged, run.log_likelihood)
        for run in published_runs(X, labels, batch, max_iter=settings.max_iter)
    ]


def _joined(groups: Sequence[Fit]) -> Fit:
    """Join the fits of a run's groups; the first group that failed names the reason."""
    failed = next((group for group in groups if group.reason), None)
    return Fit(
        groups=tuple(parameters for group in groups for parameters in group.groups),
        reason=failed.reason if failed else "",
        failing_pass=failed.failing_pass if failed else None,
        n_iter=max(group.n_iter for group in groups),
        converged=all(group.converged for group in groups),
        log_likelihood=math.nan if failed else math.fsum(group.log_likelihood for group in groups),
    )
