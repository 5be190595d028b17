"""Starting points of a fit: named ones, drawn from the rows, and given ones, dicts and fitted mixtures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from ..engine import starts
from ..engine.kernels import GAUSSIAN, START_DEGREES, StudentT
from ..engine.measured import values_of
from ..engine.numbers import Array, pick
from ..engine.problem import Problem
from ..engine.records import FloatArray, Frame, IntArray, Parameters
from ..engine.rows.summary import fill_gaps
from ..engine.structures import Structure
from .arguments import as_numbers, check_covariances, check_distribution
from .fitted import parameters_of
from .settings import NUMBERS_TOGETHER, Settings
from .training import Training

# Largest default number of kernels of a class.
_MOST_KERNELS = 50


def start_batches(
    settings: Settings,
    training: Training,
    problem: Problem,
    start: Parameters | None = None,
    *,
    together: bool = False,
) -> Iterator[Parameters]:
    """Yield batches of starts in the frame of the problem; all starts are one batch if `together`.

    `start` is the given start, if there is one. Others are drawn one after the other, so that they do
    not depend on the batches.
    """
    if start is not None:
        yield problem.enter(start)
        return
    frame, structure, init = problem.frame, problem.structure, settings.init
    n_classes, n_features, n_kernels = len(training.classes), training.n_features, problem.n_kernels
    random_state = check_random_state(settings.random_state)
    rows, codes, weights = rows_for_starts(settings, training, frame, labelled=init == "class")
    most = max(1, NUMBERS_TOGETHER // math.prod(structure.shape(n_kernels, n_features)))
    most = settings.n_init if together else most
    for first in range(0, settings.n_init, most):
        n_starts = min(most, settings.n_init - first)
        sizes = (n_classes, n_starts, n_kernels)
        drawing = starts.Drawing(
            *sizes, frame.standardised(structure), structure, random_state, settings.n_threads
        )
        if init == "uniform":
            batch = starts.uniform(n_starts, n_kernels, n_classes, n_features, structure, random_state)
            batch = problem.enter(batch)
        else:
            if init == "class":
                by_class = settings.n_kernels is None
                n_of_class = default_kernels(training, structure, shared=False) if by_class else None
                batch = starts.class_wise(rows, codes, drawing, weights, n_of_class)
            elif init == "random_from_data":
                batch = starts.random_from_data(rows, drawing, weights)
            else:
                batch = starts.k_means(rows, codes, drawing, weights)
            batch = frame.from_standardised(batch, structure)
            errors = training.source.error_variances
            if errors is not None:
                narrowed = structure.narrowed(batch.covariances, errors / frame.scale**2)
                batch = replace(batch, covariances=narrowed)
        if training.n_unlabelled:  # only unlabelled rows need class priors
            batch = replace(batch, class_prior=np.tile(training.class_prior, (n_starts, 1)))
        yield _with_tails(settings, batch)


def default_kernels(training: Training, structure: Structure, *, shared: bool) -> IntArray:
    """The default number of kernels of each class (L,), or of all classes (1,) if they are `shared`.

    It is √(n / 2p), where n is the geometric mean of the number of rows over classes, and p the number of
    parameters of a kernel; at least 1, at most 50, and at most one kernel per M + 1 rows of the class. It is
    the same for all classes up to these bounds, so that none is favoured. For shared kernels, n is the number
    of all rows. Only the proportions of row weights matter.
    """
    summary, n_features = training.source.summary, training.n_features
    rows = training.sizes * (summary.n_rows / summary.total)
    if shared:
        rows = np.array([summary.n_rows], dtype=np.float64)
    # Parameters of the mean and covariance of one more kernel.
    n_parameters = n_features + structure.n_parameters(2, n_features) - structure.n_parameters(1, n_features)
    usual = np.sqrt(np.exp(np.log(rows).mean()) / (2.0 * n_parameters)).round()
    most = np.minimum(rows // (n_features + 1), _MOST_KERNELS)
    return np.maximum(1, np.minimum(usual, most)).astype(np.int64)


def rows_for_starts(
    settings: Settings, training: Training, frame: Frame, *, labelled: bool = False
) -> tuple[Array, IntArray, FloatArray | None]:
    """Rows (n, M) for starts, with codes and weights (n,): without gaps and, for t kernels, outliers."""
    rows, codes, weights = training.source.start_rows()
    rows = values_of(rows)
    if training.source.summary.gaps:
        rows = fill_gaps(rows, codes)
    if labelled and training.n_unlabelled:
        known = np.flatnonzero(codes >= 0)
        rows, codes, weights = pick(rows, known), codes[known], None if weights is None else weights[known]
    if settings.is_robust:
        rows, codes, weights = starts.without_outliers(rows, codes, weights, frame)
    return rows, codes, weights


def _with_tails(settings: Settings, start: Parameters) -> Parameters:
    """Starts with the tails that are set."""
    if not settings.is_robust:
        return replace(start, tail=GAUSSIAN)
    if settings.degrees is None and start.tail.weighted:  # a fitted mixture has degrees of freedom
        return start
    degrees = START_DEGREES if settings.degrees is None else settings.degrees
    return replace(start, tail=StudentT(np.full(start.means.shape[:2], degrees)))


# ---------------------------------------------------------------- given starts


def given_start(
    settings: Settings, training: Training, frame: Frame, structure: Structure
) -> Parameters | None:
    """The given start, in the data's coordinates, with a leading axis of one; None for a name."""
    if settings.init is not None:
        return None
    # Only unlabelled rows need class priors.
    prior, fitted = training.class_prior if training.n_unlabelled else None, settings.fitted_start
    if fitted is not None:
        start = _start_of_fit(settings, fitted, structure, training)
        prior = None if prior is None else fitted.class_prior_
    else:
        frozen = "covariances" if settings.freeze == "kernels" else settings.freeze
        if frozen is not None and settings.start.get(frozen) is None:
            raise ValueError(
                f"freeze={settings.freeze!r} keeps the given values, so init must have {frozen!r}, "
                f"got the keys {sorted(map(str, settings.start))}."
            )
        variances = frame.variance * frame.scale**2
        start = _start_of_dict(
            settings.start, structure, settings.n_kernels, len(training.classes), variances
        )
    return _with_tails(settings, replace(start, class_prior=prior).batch())


def _start_of_dict(
    start: Mapping[str, Any],
    structure: Structure,
    n_kernels: int | None,
    n_classes: int,
    variances: FloatArray,
) -> Parameters:
    """The start in a dict of `means` (K, M), `covariances` and `weights` (K, L), or (K,) for one class.

    Covariances default to the variances (M,) of the features over K^(2/M), and weights to uniform ones.
    Without `n_kernels`, the means determine K.
    """
    unknown = set(start) - {"means", "covariances", "weights"}
    if unknown or "means" not in start:
        raise ValueError(
            "init as a dict needs 'means' and may have 'covariances' and 'weights', got the keys "
            f"{sorted(map(str, start))}."
        )
    n_features = len(variances)
    means = as_numbers(start["means"], "means")
    if means.ndim != 2 or means.shape[1] != n_features or len(means) != (n_kernels or len(means) or -1):
        expected = "n_kernels" if n_kernels is None else n_kernels
        raise ValueError(f"means must have shape ({expected}, {n_features}), got {means.shape}.")
    if not np.all(np.isfinite(means)):
        raise ValueError("means must be finite.")
    n_kernels = len(means)
    if start.get("covariances") is None:
        common = structure.common(variances / n_kernels ** (2.0 / n_features))
        covariances = structure.from_common(common[None], n_kernels)[0]
    else:
        covariances = check_covariances(start["covariances"], structure, n_kernels, n_features)
    if start.get("weights") is None:
        weights = starts.uniform_weights(1, n_kernels, n_classes)[0]
    else:
        weights = as_numbers(start["weights"], "weights")
        weights = weights[:, None] if weights.ndim == n_classes == 1 else weights
        weights = check_distribution(weights, (n_kernels, n_classes), "weights")
    return Parameters(weights, means, covariances)


def _start_of_fit(settings: Settings, fitted: Any, structure: Structure, training: Training) -> Parameters:
    """The parameters of the fitted mixture that a fit goes on from."""
    parameters, n_features, n_set = parameters_of(fitted), training.n_features, settings.n_kernels
    n_kernels, n_columns = parameters.means.shape
    if fitted.covariance_type_ != structure.name:
        raise ValueError(
            f"init was fitted with covariance_type={fitted.covariance_type_!r}, and the fit has "
            f"{structure.name!r}."
        )
    if n_columns != n_features:
        raise ValueError(f"init was fitted to {n_columns} features, and X has {n_features}.")
    # A variational fit has left out kernels without rows.
    is_reduced = settings.is_variational and n_kernels < (n_set or n_kernels)
    if n_set not in (None, n_kernels) and not is_reduced:
        raise ValueError(f"init has {n_kernels} kernels, and n_kernels is {n_set}.")
    if not np.array_equal(fitted.classes_, training.classes):
        raise ValueError(
            f"init was fitted to the classes {fitted.classes_.tolist()}, and y has "
            f"{training.classes.tolist()}. Its means_ and covariances_ in a dict are a start for other "
            "classes."
        )
    return parameters
