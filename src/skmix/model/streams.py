"""Update models with batches of a stream, and add classes to them."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import is_classifier

from ..data.labels import code_labels, number_labels, read_labels
from ..data.missing import is_missing, without_mask
from ..engine.after.shifts import shift_groups
from ..engine.after.streams import Running, resume, update_from_batch
from ..engine.loop import fit, run
from ..engine.numbers import has_gaps, is_numpy, on_host, pick
from ..engine.problem import Problem, open_source
from ..engine.records import FloatArray, Frame, Options, Parameters, frame_of
from ..engine.rows.blocks import Block
from ..engine.rows.summary import measure
from ..engine.starts import uniform_weights
from ..engine.structures import structure_of
from ._settings import covariance_type_of, is_robust
from .checks import check_gaps, check_labelled, columns_of
from .decisions import kind_of_labels
from .devices import device_of, sent, warn_of_host
from .fitted import Fitted, History, Shifts, fields_of
from .rows import enter
from .solving import best_start, options_of, refuse_unlabelled, start_batches, with_resolution
from .training import Training

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture as Mixture


def check_streams(estimator: Any) -> bool:
    """Return True if an estimator supports `partial_fit`; raise AttributeError otherwise."""
    needs_all_rows = {
        "inference='variational'": estimator.inference == "variational",
        "group_shift": getattr(estimator, "group_shift", None) is not None,
        "t kernels": is_robust(estimator),
    }
    for setting, is_set in needs_all_rows.items():
        if is_set:
            raise AttributeError(
                f"partial_fit cannot be combined with {setting}, which needs all rows at once: use fit, with "
                "blocks of rows if there are many."
            )
    return True


def read_batch(estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any) -> tuple[Block, np.ndarray]:
    """Return a batch with class codes, −1 for unlabelled rows, and all class labels (L,) of the stream."""
    first = not hasattr(estimator, "class_prior_")
    given = enter(estimator, X, y, sample_weight).in_memory()
    rows = given.values(least=1 if first else None)
    n_rows = rows.shape[0]
    weights = given.weights(n_rows)
    known, codes = _read_labels(estimator, on_host(given.y), on_host(classes), n_rows, first)
    if first:
        check_gaps(rows if weights is None else pick(rows, weights > 0), estimator)
    device = device_of(estimator)
    if (device is not None or not is_numpy(rows)) and has_gaps(rows):
        warn_of_host("Missing values", device)
    rows = sent(rows, device)
    # In later batches, rows without any value are dropped.
    return Block(rows, codes, weights).informative(), known


def _read_labels(
    estimator: Any, y: Any, classes: Any, n_rows: int, first: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return all class labels (L,) of the stream, and the codes (n,) of the batch, −1 for unlabelled rows."""
    given: Any = None if classes is None else np.asarray(without_mask(classes, None))
    if first and y is None and not is_classifier(estimator):
        return np.zeros(1, dtype=np.int64), np.zeros(n_rows, dtype=np.int64)
    if first and given is None:
        if is_classifier(estimator):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return number_labels(read_labels(y, n_rows))
    if given is not None and is_missing(given).any():
        raise ValueError(f"classes={given.tolist()} has NaN or None, which mark rows without a label.")
    known = np.unique(given) if first else estimator.classes_
    if not first and given is not None and not np.array_equal(np.unique(given), known):
        raise ValueError(
            f"classes={given.tolist()} differs from the labels of the first call, {known.tolist()}."
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
    first = not hasattr(estimator, "class_prior_")
    sizes = _sizes(batch, classes) + (0.0 if first else estimator.class_count_)
    parts = estimator._parts_to_fit(batch.X.shape[1], stream=True)
    assert batch.y is not None
    refuse_unlabelled(int(np.sum(batch.y < 0)), len(parts))
    fits: list[Fitted] = []
    for number, (columns, model) in enumerate(parts):
        rows, last = _columns_of(batch, columns), Fitted.of(model)
        if last is None and not rows.X.shape[0]:
            raise ValueError(f"The first batch has no value in feature set {number}, {columns}.")
        if last is None or rows.X.shape[0]:
            last = _absorb(model, last, rows, classes, sizes, float(decay))
        fits.append(last)
    # Class priors of a stream favour recent batches; the feature set with the most rows estimates them best.
    streaming = [each for each in fits if each.stream is not None]
    if streaming:  # otherwise, no row has a value in any feature set
        best = max(streaming, key=lambda each: (each.stream or {})["n_rows"])
        estimator._record(parts, fits, sizes, best.class_prior).store(estimator)


def _columns_of(rows: Block, columns: list[int]) -> Block:
    return replace(rows, X=columns_of(rows.X, columns)).informative()


def _absorb(
    model: Mixture,
    last: Fitted | None,
    batch: Block,
    classes: np.ndarray,
    class_count: FloatArray,
    decay: float,
) -> Fitted:
    """Return the fit of a mixture after a batch; `last` is None for the first batch."""
    covariance_type = covariance_type_of(model, *batch.X.shape)
    if model.covariance_type == "auto" and last is not None:
        covariance_type = last.covariance_type
    options, structure = options_of(model, batch.X.shape[1], covariance_type), structure_of(covariance_type)
    past: Running | None = None
    if last is None:
        frame = measure(batch.X, structure, row_weights=batch.weights)
        options, floor = with_resolution(model, options, batch.X, batch.weights, frame)
        parameters = _first_batch(model, batch, classes, options, frame)
    else:
        _check_covariance_type(model, last)
        parameters = replace(last.parameters, class_prior=last.class_prior, concentration=last.weight_prior)
        if last.kernel_degrees is not None:
            raise ValueError(
                "partial_fit cannot be combined with t kernels, with which this model was fitted: fit again."
            )
        if last.stream is not None:
            past = Running.from_dict(last.stream)
        else:
            _check_rows_behind(last)
            counted = replace(parameters, weights=last.counted_weights)
            n_rows = float(last.rows_behind.sum())
            past = resume(counted, frame_of(parameters, structure), covariance_type, n_rows)
        frame = past.frame
        finest = None if last.floor is None else last.floor.resolution
        options, floor = with_resolution(model, options, batch.X, batch.weights, frame, finest)
    source = open_source(batch.X, batch.y, batch.weights)
    problem = Problem.of(source, options, len(parameters.means), frame)
    found, running, log_likelihood = update_from_batch(problem, parameters, past, decay=decay)
    assert found.class_prior is not None
    # A stream has no learnt prior, posterior or shifts, even if an earlier fit had.
    return Fitted(
        classes=classes,
        class_prior=found.class_prior,
        class_count=class_count,
        expected_count=running.n_rows * found.class_prior,
        covariance_type=covariance_type,
        converged=False,
        n_iter=1 if last is None else last.n_iter + 1,
        weight_prior=found.concentration,
        floor=floor,
        stream=running.to_dict(),
        history=History(
            log_likelihood=log_likelihood,
            log_likelihood_path=np.empty((0, len(classes))),
            start_status=np.array(["stopped"]),
            start_log_likelihoods=np.array([log_likelihood]),
        ),
        **fields_of(found),
    )


def _check_rows_behind(fitted: Fitted) -> None:
    """Refuse a model of an old file if the number of its rows without a label is unknown."""
    if fitted.expected_count is not None or fitted.history is None:
        return
    if fitted.history.log_likelihood_path.shape[1] > len(fitted.classes):
        raise ValueError(
            "This model has no expected_count_, and some of its training rows had no label: it was saved by "
            "a version of skmix that did not keep their number, which partial_fit needs. Use fit."
        )


def _check_covariance_type(model: Mixture, fitted: Fitted) -> None:
    if model.covariance_type not in ("auto", fitted.covariance_type):
        raise ValueError(
            f"covariance_type is now {model.covariance_type!r}, but the model has "
            f"{fitted.covariance_type!r}: use fit."
        )


def _sizes(batch: Block, classes: np.ndarray) -> FloatArray:
    """Return the number (L,) of labelled rows in each class, or the sum of their weights."""
    assert batch.y is not None
    # The first count is that of unlabelled rows.
    sizes = np.bincount(batch.y + 1, weights=batch.weights, minlength=len(classes) + 1)
    return sizes[1:].astype(np.float64)


def _first_batch(model: Any, batch: Block, classes: np.ndarray, options: Options, frame: Frame) -> Parameters:
    sizes = _sizes(batch, classes)
    present = np.flatnonzero(sizes)
    if not len(present):
        raise ValueError(f"None of the {batch.X.shape[0]} rows of the first batch has a label.")
    # A class without rows so far counts as one row of average weight, and starts with uniform weights.
    average = float(batch.row_weights.mean())
    prior = np.where(sizes > 0, sizes, average)
    prior /= prior.sum()
    new_codes = np.full(len(classes) + 1, -1)
    new_codes[present] = np.arange(len(present))
    training = Training(open_source(batch.X, new_codes[batch.y], batch.weights), classes[present])
    beginner = model
    if model.n_kernels is None and isinstance(model.init, str):
        beginner = copy(model).set_params(n_kernels=len(classes))
    n_kernels = beginner.n_kernels or len(beginner.init["means"])
    # With few rows, a kernel may collapse onto some of them, and later batches would not undo that.
    weak = (training.n_features + 2.0) * average
    careful = replace(options, covariance_prior=options.covariance_prior or weak)
    problem = Problem.of(training.source, careful, n_kernels, frame)
    result = problem.leave_with(run(problem, next(start_batches(beginner, training, problem))))
    best = result.parameters.take(best_start(result, model.variance_floor, len(result.status)))
    weights = uniform_weights(1, len(best.means), len(classes))[0]
    weights[:, present] = best.weights
    return Parameters(weights, best.means, best.covariances, prior, concentration=best.concentration)


# ---------------------------------------------------------------- new classes


def rows_of_class(estimator: Any, X: Any, sample_weight: Any) -> Block:
    """Return the rows of a new class that have a positive weight."""
    given = enter(estimator, X, sample_weight=sample_weight).in_memory()
    rows = given.values(on_cpu=True)
    weights = given.weights(len(rows))
    check_gaps(rows if weights is None else rows[weights > 0])
    return Block(rows, None, weights).informative()


def add_class(estimator: Any, new: Block, label: Any, position: int) -> None:
    """Fit the weights of a new class in all parts of a model, and insert it at its position."""
    parts = estimator._parts_to_fit(new.X.shape[1], stream=True)
    fits: list[Fitted] = []
    for number, (columns, model) in enumerate(parts):
        rows, last = _columns_of(new, columns), Fitted.of(model)
        assert last is not None
        if not rows.X.shape[0]:
            raise ValueError(
                f"No row of class {label!r} has a value in feature set {number}, columns {columns}."
            )
        fits.append(_insert(model, last, rows, label, position))
    assert last is not None
    # The other classes keep their proportions.
    size = float(new.row_weights.sum())
    share = size / (last.class_count.sum() + size)
    prior = np.insert(last.class_prior * (1.0 - share), position, share)
    estimator._record(parts, fits, np.insert(last.class_count, position, size), prior).store(estimator)


def _insert(model: Mixture, last: Fitted, new: Block, label: Any, position: int) -> Fitted:
    """Fit the weights of a new class and insert it into a mixture; its prior and size are set later."""
    _check_covariance_type(model, last)
    options = replace(
        options_of(model, new.X.shape[1], last.covariance_type), freeze="kernels", stopping="total", floor=0.0
    )
    before = last.parameters
    start = replace(before, weights=uniform_weights(1, len(before.means), 1)[0])
    if options.inference == "variational":
        # Frozen kernels have no posterior: fit the weights by EM.
        options = replace(options, inference="em", weight_prior=None)
    if model.weight_prior == "hierarchical" and last.weight_prior is not None:
        # Use the prior that was learnt from the other classes.
        options = replace(options, weight_prior="given")
        start = replace(start, concentration=last.weight_prior)
    # The frame covers kernels and rows.
    frame = measure(np.concatenate([before.means, new.X]), structure_of(options.covariance_type))
    source, strength = open_source(new.X, None, new.weights), model.group_shift
    if strength == "auto":
        strength = np.inf if last.shifts is None else last.shifts.group_shift
    shift = np.zeros_like(before.means)
    if strength is None or np.isinf(strength):
        found = fit(source, start.batch(), options, frame=frame).parameters
        weights = found.weights[0, :, 0]
    else:
        # Relevance MAP adaptation.
        common = last.weights @ last.class_prior
        adapted = shift_groups(
            Problem.of(source, options, len(before.means), frame),
            replace(start, weights=common[:, None]),
            float(strength),
            anchor=common if options.weight_prior is None else None,
        )
        weights, shift = adapted.parameters.weights[:, 0], adapted.shifts[0]
    shifts = last.shifts
    if strength is not None or shifts is not None:
        none = np.zeros((len(last.classes), *shift.shape))
        others, earlier = (none, np.inf) if shifts is None else (shifts.group_shifts, shifts.group_shift)
        shifts = Shifts(
            group_shift=earlier if strength is None else float(strength),
            group_shifts=np.insert(others, position, shift, axis=0),
        )
    dtype, counts = np.result_type(last.classes, np.asarray(label)), last.expected_count
    if counts is not None:
        counts = np.insert(counts, position, new.row_weights.sum())
    # Drop attributes that describe the fit or stream without the new class.
    return replace(
        last,
        classes=np.insert(last.classes.astype(dtype), position, label),
        expected_count=counts,
        weights=np.insert(last.weights, position, weights, axis=1),
        shifts=shifts,
        history=None,
        weight_posterior=None,
        kernel_posterior=None,
        stream=None,
    )


def position_of_label(classes: np.ndarray, label: Any) -> int:
    """Return the position of a new label among sorted classes; refuse known labels and other kinds."""
    new = np.asarray(label)
    if new.ndim != 0:
        raise ValueError(f"label must be a single value, got an array of shape {new.shape}.")
    if is_missing(np.array([label], dtype=object)).any():
        raise ValueError(f"label is {label!r}, which marks rows without a label. Give the class a name.")
    is_text = [kind_of_labels(each) == "a string" for each in (new, classes)]
    if is_text[0] != is_text[1]:
        raise ValueError(f"label {label!r} is of another kind than the labels {classes.tolist()}.")
    if label in classes.tolist():
        raise ValueError(f"label {label!r} is already a class: {classes.tolist()}.")
    return int(np.searchsorted(classes, label))
