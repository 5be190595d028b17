"""Update models with batches of a stream, and add classes to them."""

from __future__ import annotations

from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..data.labels import code_labels, number_labels, read_labels
from ..data.missing import is_missing, without_mask
from ..engine.after.shifts import shift_groups
from ..engine.after.streams import Running, resume, update_from_batch
from ..engine.loop import fit, run
from ..engine.measured import values_of
from ..engine.numbers import has_gaps, is_numpy, on_host, pick
from ..engine.problem import Problem, open_source
from ..engine.records import FloatArray, Frame, IntArray, Options, Parameters, frame_of
from ..engine.rows.blocks import Block
from ..engine.rows.summary import measure
from ..engine.starts import uniform_weights
from ..engine.structures import structure_of
from .checks import check_gaps, check_labelled, columns_of
from .decisions import kind_of_labels
from .devices import sent, warn_of_host
from .fitted import Fitted, History, Shifts, fields_of
from .rows import enter
from .settings import Settings
from .solving import floor_of, refuse_failures, unit_of
from .starting import given_start, start_batches
from .training import Training, refuse_unlabelled, resolution_of_rows


def check_streams(estimator: Any) -> bool:
    """Whether an estimator supports `partial_fit`; raise AttributeError if not."""
    needs_all_rows = {
        "inference='variational'": estimator.inference == "variational",
        "group_shift": getattr(estimator, "group_shift", None) is not None
        or hasattr(estimator, "group_shifts_"),
        "t kernels": estimator.tail is not None,
    }
    for setting, is_set in needs_all_rows.items():
        if is_set:
            raise AttributeError(
                f"partial_fit cannot be combined with {setting}, which needs all rows at once: use fit, with "
                "blocks of rows if there are many."
            )
    return True


# ---------------------------------------------------------------- batches


def read_batch(
    estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any, errors: Any
) -> tuple[Block, np.ndarray]:
    """A batch with class codes, −1 for unlabelled rows, and all class labels (L,) of the stream."""
    is_first = not hasattr(estimator, "class_prior_")
    batch = enter(estimator, X, y, sample_weight, errors=errors).in_memory()
    rows = batch.values(least=1 if is_first else None)
    n_rows = rows.shape[0]
    weights = batch.weights(n_rows)
    known, codes = _read_labels(estimator, on_host(batch.y), on_host(classes), n_rows, is_first)
    if is_first:
        check_gaps(rows if weights is None else pick(rows, weights > 0), estimator)
    device = Settings.of(estimator).device
    if (device is not None or not is_numpy(rows)) and has_gaps(rows):
        warn_of_host("Missing values", device)
    # In later batches, rows without any value are left out.
    return Block(sent(rows, device), codes, weights).informative(), known


def _read_labels(
    estimator: Any, y: Any, classes: Any, n_rows: int, is_first: bool
) -> tuple[np.ndarray, IntArray]:
    """All class labels (L,) of the stream, and the codes (n,) of the batch, −1 for unlabelled rows."""
    labels: Any = None if classes is None else np.asarray(without_mask(classes, None))
    if is_first and y is None and not is_classifier(estimator):
        return np.zeros(1, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    if is_first and labels is None:
        if is_classifier(estimator):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return number_labels(read_labels(y, n_rows))
    if labels is not None and is_missing(labels).any():
        raise ValueError(f"classes={labels.tolist()} has NaN or None, which mark rows without a label.")
    known = np.unique(labels) if is_first else estimator.classes_
    if not is_first and labels is not None and not np.array_equal(np.unique(labels), known):
        raise ValueError(
            f"classes={labels.tolist()} differs from the labels of the first call, {known.tolist()}."
        )
    check_labelled(estimator, y)
    if y is None:
        # With several classes, rows without y are unlabelled; with one class, they belong to it.
        return known, np.full(n_rows, 0 if len(known) == 1 else -1)
    try:
        return known, code_labels(y, known, n_rows, unlabelled=True)
    except ValueError as error:
        raise ValueError(f"{error} A class can be added to a fitted model with add_class.") from None


def absorb_batch(estimator: Any, batch: Block, classes: np.ndarray, decay: Any) -> None:
    """Update an estimator with a batch, given all class labels (L,) of the stream."""
    if not isinstance(decay, Real) or not 0.5 < float(decay) <= 1.0:
        raise ValueError(f"decay must be above 0.5 and at most 1, got {decay!r}.")
    sizes = _class_sizes(batch, classes)
    sizes = sizes + estimator.class_count_ if hasattr(estimator, "class_prior_") else sizes
    parts = estimator._parts_to_fit(batch.X.shape[1], stream=True)
    refuse_unlabelled(int(np.sum(batch.codes < 0)), len(parts))
    fits: list[Fitted] = []
    for number, (columns, model) in enumerate(parts):
        rows, fitted = _columns_of(batch, columns), Fitted.of(model)
        if fitted is None and not rows.X.shape[0]:
            raise ValueError(f"The first batch has no value in feature set {number}, {columns}.")
        if fitted is None or rows.X.shape[0]:
            fitted = _update(Settings.of(model), fitted, rows, classes, sizes, float(decay))
        fits.append(fitted)
    # Class priors of a stream favour recent batches; the feature set with the most rows estimates them best.
    streams = [fitted for fitted in fits if fitted.stream is not None]
    if streams:  # otherwise, no row has a value in any feature set
        best = max(streams, key=lambda fitted: (fitted.stream or {})["n_rows"])
        estimator._record(parts, fits, sizes, best.class_prior).store(estimator)


def _columns_of(rows: Block, columns: list[int]) -> Block:
    return replace(rows, X=columns_of(rows.X, columns)).informative()


def _class_sizes(batch: Block, classes: np.ndarray) -> FloatArray:
    """The number (L,) of labelled rows in each class, or the sum of their weights."""
    # The first count is that of unlabelled rows.
    sizes = np.bincount(batch.codes + 1, weights=batch.weights, minlength=len(classes) + 1)
    return sizes[1:].astype(np.float64)


def _update(
    settings: Settings,
    fitted: Fitted | None,
    batch: Block,
    classes: np.ndarray,
    class_count: FloatArray,
    decay: float,
) -> Fitted:
    """The fit of a mixture after a batch; `fitted` is None for the first batch.

    A fit to all rows counts as earlier batches. A stream has no learnt prior, posterior or shifts.
    """
    if fitted is None:
        past, covariance_type = None, settings.covariance_type_for(*batch.X.shape)
        frame = measure(batch.X, structure_of(covariance_type), row_weights=batch.weights)
    else:
        past, covariance_type = _past_of(settings, fitted), fitted.covariance_type
        frame = past.frame
    options, floor = settings.options(covariance_type, batch.X.shape[1]), None
    if settings.has_floor:
        resolution = resolution_of_rows(values_of(batch.X), batch.weights, frame)
        if fitted is not None and fitted.floor is not None:
            # A feature that is constant in a batch has no resolution there, zero.
            before = np.where(fitted.floor.resolution > 0, fitted.floor.resolution, resolution)
            resolution = np.where(resolution > 0, np.minimum(resolution, before), before)
        floor = floor_of(options, frame, resolution)
        options = replace(options, resolution=floor.variance_floor)
    if fitted is None:
        parameters = _fit_first_batch(settings, batch, classes, options, frame)
    else:
        parameters = _with_priors(fitted)
    problem = Problem.of(open_source(batch.X, batch.y, batch.weights), options, len(parameters.means), frame)
    model, running, log_likelihood = update_from_batch(problem, parameters, past, decay=decay)
    assert model.class_prior is not None
    return Fitted(
        classes=classes,
        class_prior=model.class_prior,
        class_count=class_count,
        expected_count=running.n_rows * model.class_prior,
        covariance_type=covariance_type,
        converged=False,
        n_iter=1 if fitted is None else fitted.n_iter + 1,
        weight_prior=model.concentration,
        floor=floor,
        stream=running.to_dict(),
        history=History(
            log_likelihood=log_likelihood,
            log_likelihood_path=np.empty((0, len(classes))),
            start_status=np.array(["stopped"]),
            start_log_likelihoods=np.array([log_likelihood]),
        ),
        **fields_of(model),
    )


def _with_priors(fitted: Fitted) -> Parameters:
    return replace(fitted.parameters, class_prior=fitted.class_prior, concentration=fitted.weight_prior)


def _refuse_without_rows(fitted: Fitted, method: str) -> None:
    if not fitted.rows_behind.sum():
        raise ValueError(
            f"{method} weighs a model by its rows, and this one was made of parameters without any: give "
            "from_parameters a class_count."
        )


def _past_of(settings: Settings, fitted: Fitted) -> Running:
    """The state of a stream after earlier batches, or after a fit to all rows."""
    _check_covariance_type(settings, fitted)
    if fitted.kernel_degrees is not None:
        raise ValueError(
            "partial_fit cannot be combined with t kernels, with which this model was fitted: fit again."
        )
    if fitted.stream is not None:
        return Running.from_dict(fitted.stream)
    _refuse_without_rows(fitted, "partial_fit")
    n_columns = 0 if fitted.history is None else fitted.history.log_likelihood_path.shape[1]
    if fitted.expected_count is None and n_columns > len(fitted.classes):
        raise ValueError(
            "This model has no expected_count_, and some of its training rows had no label: it was saved by "
            "a version of skmix that did not keep their number, which partial_fit needs. Use fit."
        )
    parameters = _with_priors(fitted)
    frame = frame_of(parameters, structure_of(fitted.covariance_type))
    counted = replace(parameters, weights=fitted.counted_weights)
    return resume(counted, frame, fitted.covariance_type, float(fitted.rows_behind.sum()))


def _check_covariance_type(settings: Settings, fitted: Fitted) -> None:
    if settings.covariance_type not in ("auto", fitted.covariance_type):
        raise ValueError(
            f"covariance_type is now {settings.covariance_type!r}, but the model has "
            f"{fitted.covariance_type!r}: use fit."
        )


def _fit_first_batch(
    settings: Settings, batch: Block, classes: np.ndarray, options: Options, frame: Frame
) -> Parameters:
    """Fit a mixture to the first batch, with a weak prior on covariances."""
    sizes = _class_sizes(batch, classes)
    present = np.flatnonzero(sizes)
    if not len(present):
        raise ValueError(f"None of the {batch.X.shape[0]} rows of the first batch has a label.")
    # A class without rows so far counts as one row of average weight, and starts with uniform weights.
    average = float(batch.row_weights.mean())
    prior = np.where(sizes > 0, sizes, average)
    prior /= prior.sum()
    new_codes = np.full(len(classes) + 1, -1)
    new_codes[present] = np.arange(len(present))
    training = Training(open_source(batch.X, new_codes[batch.codes], batch.weights), classes[present])
    settings = replace(settings, n_kernels=settings.n_kernels or len(classes)) if settings.init else settings
    # A given start has the weights of all classes, and those without rows so far keep them.
    whole = replace(training, classes=classes)
    start = given_start(settings, whole, frame, structure_of(options.covariance_type))
    if start is None:
        n_kernels = settings.n_kernels
        assert n_kernels is not None
        weights = uniform_weights(1, n_kernels, len(classes))[0]
    else:
        n_kernels, weights = start.means.shape[1], start.weights[0].copy()
        shares = None if start.class_prior is None else training.class_prior[None]
        start = replace(start, weights=start.weights[..., present], class_prior=shares)
    # With few rows, a kernel may collapse onto some of them, and later batches would not undo that.
    weak = (training.n_features + 2.0) * average
    careful = replace(options, covariance_prior=options.covariance_prior or weak)
    problem = Problem.of(training.source, careful, n_kernels, frame)
    starts = next(start_batches(settings, training, problem, start, together=True))
    result = problem.leave_with(run(problem, starts))
    refuse_failures([result], settings.variance_floor)
    best = result.parameters.take(result.best)
    weights[:, present] = best.weights
    return Parameters(weights, best.means, best.covariances, prior, concentration=best.concentration)


# ---------------------------------------------------------------- new classes


def rows_of_class(estimator: Any, X: Any, sample_weight: Any, errors: Any) -> Block:
    """The rows of a new class that have a positive weight."""
    entered = enter(estimator, X, sample_weight=sample_weight, errors=errors).in_memory()
    rows = entered.values(on_cpu=True)
    weights = entered.weights(len(rows))
    check_gaps(rows if weights is None else rows[weights > 0])
    return Block(rows, None, weights).informative()


def add_class(estimator: Any, new: Block, label: Any, position: int) -> None:
    """Fit the weights of a new class in all parts of a model, and insert it at its position."""
    parts = estimator._parts_to_fit(new.X.shape[1], stream=True)
    fits: list[Fitted] = []
    for number, (columns, model) in enumerate(parts):
        rows, fitted = _columns_of(new, columns), Fitted.of(model)
        assert fitted is not None
        if not rows.X.shape[0]:
            raise ValueError(
                f"No row of class {label!r} has a value in feature set {number}, columns {columns}."
            )
        _refuse_without_rows(fitted, "add_class")
        fits.append(_with_class(Settings.of(model), fitted, rows, label, position))
    # The other classes keep their proportions.
    counts, prior, size = fits[0].class_count, fits[0].class_prior, float(new.row_weights.sum())
    share = size / (counts.sum() + size)
    prior = np.insert(prior * (1.0 - share), position, share)
    estimator._record(parts, fits, np.insert(counts, position, size), prior).store(estimator)


def _with_class(settings: Settings, fitted: Fitted, new: Block, label: Any, position: int) -> Fitted:
    """Insert a class with these rows into a mixture; its prior and its size are set later."""
    _check_covariance_type(settings, fitted)
    shifts, strength = fitted.shifts, settings.group_shift
    if strength == "auto":
        strength = np.inf if shifts is None else shifts.group_shift
    weights, shift = _weights_of_class(settings, fitted, new, np.inf if strength is None else strength)
    if strength is not None or shifts is not None:
        zeros = np.zeros((len(fitted.classes), *shift.shape))
        others, earlier = (zeros, np.inf) if shifts is None else (shifts.group_shifts, shifts.group_shift)
        shifts = Shifts(
            group_shift=earlier if strength is None else float(strength),
            group_shifts=np.insert(others, position, shift, axis=0),
        )
    dtype, counts = np.result_type(fitted.classes, np.asarray(label)), fitted.expected_count
    if counts is not None:
        counts = np.insert(counts, position, new.row_weights.sum())
    # Leave out attributes that describe the fit or stream without the new class.
    return replace(
        fitted,
        classes=np.insert(fitted.classes.astype(dtype), position, label),
        expected_count=counts,
        weights=np.insert(fitted.weights, position, weights, axis=1),
        shifts=shifts,
        history=None,
        weight_posterior=None,
        kernel_posterior=None,
        stream=None,
    )


def _weights_of_class(
    settings: Settings, fitted: Fitted, new: Block, strength: float
) -> tuple[FloatArray, FloatArray]:
    """The weights (K,) of a class under the kernels of a fit, and its shifts (K, M), of a prior strength."""
    structure, before = structure_of(fitted.covariance_type), fitted.parameters
    options = settings.options(fitted.covariance_type, new.X.shape[1])
    options = replace(options, freeze="kernels", stopping="total", floor=0.0)
    start = replace(before, weights=uniform_weights(1, len(before.means), 1)[0])
    if settings.is_variational:
        # Frozen kernels have no posterior: fit the weights by EM.
        options = replace(options, inference="em", weight_prior=None)
    if (
        settings.for_groups(len(fitted.classes)).weight_prior == "hierarchical"
        and fitted.weight_prior is not None
    ):
        # Use the prior that was learnt from the other classes.
        options = replace(options, weight_prior="given")
        start = replace(start, concentration=fitted.weight_prior)
    # The frame covers kernels and rows.
    frame = measure(np.concatenate([before.means, values_of(new.X)]), structure)
    source = open_source(new.X, None, new.weights)
    if settings.pulls_groups:
        options = replace(options, unit=unit_of(source.summary))
    if np.isinf(strength):
        weights = fit(source, start.batch(), options, frame=frame).parameters.weights[0, :, 0]
        return weights, np.zeros_like(before.means)
    # Relevance MAP adaptation.
    common = fitted.weights @ fitted.class_prior
    adapted = shift_groups(
        Problem.of(source, options, len(before.means), frame),
        replace(start, weights=common[:, None]),
        float(strength),
        anchor=common if options.weight_prior is None else None,
    )
    return adapted.parameters.weights[:, 0], adapted.shifts[0]


def position_of_label(classes: np.ndarray, label: Any) -> int:
    """The position of a new label among sorted classes; refuse known labels and other kinds."""
    new = np.asarray(label)
    if new.ndim != 0:
        raise ValueError(f"label must be a single value, got an array of shape {new.shape}.")
    if is_missing(np.array([label], dtype=object)).any():
        raise ValueError(f"label is {label!r}, which marks rows without a label. Give the class a name.")
    is_text = [kind_of_labels(labels) == "a string" for labels in (new, classes)]
    if is_text[0] != is_text[1]:
        raise ValueError(f"label {label!r} is of another kind than the labels {classes.tolist()}.")
    if label in classes.tolist():
        raise ValueError(f"label {label!r} is already a class: {classes.tolist()}.")
    return int(np.searchsorted(classes, label))
