"""Batches of a stream, and classes that come later."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..engine.compute.arrays import on_host, pick, to_numpy
from ..engine.compute.blocks import Block, is_missing
from ..engine.em import fit
from ..engine.frame import Frame, frame_of
from ..engine.model import FloatArray, Options, Parameters
from ..engine.refine.online import Running, absorb, resume
from ..engine.refine.shift import GroupRows, shift_groups
from ..engine.sources import RowSource, open_source
from ..engine.sources.summary import measure
from ..engine.starts import uniform_weights
from ..engine.structures import structure_of
from ..engine.tails import Background
from ..io.labels import code_labels, number_labels, read_labels
from ._settings import check_covariance_type, covariance_type_of, is_robust_fit
from .decisions import check_outlier_label, quantile
from .densities import counted_weights, log_density
from .rows import (
    Training,
    check_gaps,
    columns_of,
    enter,
    sent,
)
from .solving import (
    OF_POPULATIONS,
    OF_SHIFTS,
    OF_THE_POSTERIOR,
    best_start,
    evenly_spaced,
    options_of,
    start_groups,
    with_resolution,
)

_OF_FIT = ("has_gaps_", "log_likelihood_", "log_likelihood_path_", "start_status_", "start_log_likelihoods_")


def read_batch(estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any) -> tuple[Block, np.ndarray]:
    """Return the rows of a batch with class codes, −1 for none, and all labels (L,) of the stream."""
    first = "class_prior_" not in vars(estimator)
    given = enter(estimator, X, y, sample_weight)
    rows = given.values(fitting=first, least=1)
    n_rows = rows.shape[0]
    weights = given.weights(n_rows)
    known, codes = _read_labels(estimator, on_host(given.y), on_host(classes), n_rows, first)
    if first:
        check_gaps(rows if weights is None else pick(rows, weights > 0))
    rows = sent(estimator, rows)
    # Later on, a row without any value changes nothing.
    return Block(rows, codes, weights).informative(), known


def _read_labels(
    estimator: Any, y: Any, classes: Any, n_rows: int, first: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return all labels of the stream, and those of the batch as indices into them, −1 for none."""
    given: Any = None if classes is None else np.asarray(classes)
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
    if y is None and is_classifier(estimator):
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None.")
    if y is None:
        # Of several classes, rows without labels are unlabelled.
        return known, np.full(n_rows, 0 if len(known) == 1 else -1)
    try:
        return known, code_labels(y, known, n_rows, unlabelled=True)
    except ValueError as error:
        raise ValueError(f"{error} A class can be added to a fitted model with add_class.") from None


def absorb_batch(estimator: Any, batch: Block, classes: np.ndarray, decay: Any) -> None:
    """Update an estimator with a batch, given all labels (L,) of the stream."""
    if not isinstance(decay, Real) or not 0.5 < float(decay) <= 1.0:
        raise ValueError(f"decay must be above 0.5 and at most 1, got {decay!r}.")
    first = "class_prior_" not in vars(estimator)
    sizes = _sizes(batch, classes) + (0.0 if first else estimator.class_count_)
    refuses = estimator.reject_below is not None
    check_outlier_label(estimator.outlier_label, classes, rejects=refuses)
    threshold = vars(estimator).get("threshold_")
    if refuses and not first and batch.X.shape[0]:
        # The batch is new to the model, as rows will be that it is to refuse.
        threshold = _threshold(estimator, batch)
    parts = estimator._parts_to_fit(batch.X.shape[1], stream=True)
    if len(parts) > 1 and batch.y is not None and np.any(batch.y < 0):
        raise ValueError(
            f"{np.sum(batch.y < 0)} rows have no label, and with several feature sets partial_fit "
            "needs labelled rows: their class depends on all groups. Leave these rows out, or fit one group."
        )
    for group, (columns, model) in enumerate(parts):
        own = _columns_of(batch, columns)
        if first and not own.X.shape[0]:
            raise ValueError(f"The first batch has no value in feature set {group}, {columns}.")
        _absorb(model, own, classes, float(decay))
    # Recent batches count more in a stream's priors; the group with the fewest gaps has the best estimate.
    streaming = [model for _, model in parts if "stream_" in vars(model)]
    if not streaming:
        return  # no row has a value in any group
    best = max(streaming, key=lambda model: model.stream_["n_rows"])
    estimator._store(parts, sizes, best.class_prior_)
    if refuses:
        estimator.threshold_ = _threshold(estimator, batch) if first else threshold


def _threshold(estimator: Any, rows: Block) -> float:
    """Return the log-density below which `reject_below` of the rows lie, or of their weight."""
    return quantile(estimator.reject_below, on_host(log_density(estimator, rows.X)), rows.weights)


def _columns_of(rows: Block, columns: list[int]) -> Block:
    """Return the rows that have a value in some columns."""
    return replace(rows, X=columns_of(rows.X, columns)).informative()


def _absorb(model: Any, batch: Block, classes: np.ndarray, decay: float) -> None:
    """Update a mixture with a batch."""
    covariance_type, sizes = covariance_type_of(model, *batch.X.shape), _sizes(batch, classes)
    if model.covariance_type == "auto" and "class_prior_" in vars(model):
        covariance_type = model.covariance_type_
    options = options_of(model, batch.X.shape[1], covariance_type)
    past: Running | Frame
    if "class_prior_" not in vars(model):
        past = measure(batch.X, structure_of(options.covariance_type), row_weights=batch.weights)
        options = _with_resolution(model, options, batch, past)
        parameters = _first_batch(model, batch, classes, options, past)
    elif not batch.X.shape[0]:
        return
    else:
        _check_covariance_type(model)
        if is_robust_fit(model):
            raise ValueError(
                "partial_fit is for Gaussian kernels without a background, and this model was fitted with t "
                "kernels or a background: fit it again."
            )
        # The concentration of hierarchical weights, if there is one.
        concentration = vars(model).get("weight_prior_")
        parameters = replace(model._parameters, class_prior=model.class_prior_, concentration=concentration)
        sizes = sizes + model.class_count_
        if "stream_" in vars(model):
            past = Running.from_dict(model.stream_)
        else:
            # A model that was fitted counts as some batches.
            frame = frame_of(parameters, structure_of(options.covariance_type))
            total = float(model.class_count_.sum())
            n_batches = max(1, round(total / batch.X.shape[0]))
            counted = replace(parameters, weights=counted_weights(model))
            past = resume(counted, frame, options.covariance_type, n_batches, total)
        options = _with_resolution(model, options, batch, past.frame)
    assert batch.y is not None
    found, running, log_likelihood = absorb(
        batch.X, batch.y, parameters, past, options, decay=decay, row_weights=batch.weights
    )
    # A stream is neither shrunk nor variational, but an earlier fit may have been; kernels move.
    of_the_prior = ("shrinkage_", "covariance_prior_", "prior_setting_", "weight_prior_")
    for name in ("has_gaps_", *of_the_prior, *OF_THE_POSTERIOR, *OF_POPULATIONS, *OF_SHIFTS):
        vars(model).pop(name, None)
    if found.concentration is not None:
        model.weight_prior_ = found.concentration
    model.stream_ = running.to_dict()
    model.covariance_type_ = options.covariance_type
    model.classes_ = classes
    model._store_parameters(found)
    model.class_prior_ = found.class_prior
    model.class_count_ = sizes
    model.n_iter_ = running.n_batches
    model.converged_ = False
    model.log_likelihood_ = log_likelihood
    model.log_likelihood_path_ = np.empty((0, len(classes)))
    model.start_status_ = np.array(["stopped"])
    model.start_log_likelihoods_ = np.array([log_likelihood])


def _check_covariance_type(model: Any) -> None:
    if check_covariance_type(model.covariance_type)[0] not in ("auto", model.covariance_type_):
        raise ValueError(
            f"covariance_type is now {model.covariance_type!r}, but the model has "
            f"{model.covariance_type_!r}: use fit."
        )


def _sizes(batch: Block, classes: np.ndarray) -> FloatArray:
    """Return the number (L,) of labelled rows of each class, or the sum of their weights."""
    assert batch.y is not None
    # Rows without a label are counted first.
    sizes = np.bincount(batch.y + 1, weights=batch.weights, minlength=len(classes) + 1)
    return sizes[1:].astype(np.float64)


def _with_resolution(model: Any, options: Options, batch: Block, frame: Frame) -> Options:
    """Return options with the finest resolution of the features in the batches so far."""
    some = evenly_spaced(batch.X.shape[0])
    weights = None if batch.weights is None else batch.weights[some]
    return with_resolution(model, options, to_numpy(pick(batch.X, some)).astype(np.float64), weights, frame)


def _first_batch(model: Any, batch: Block, classes: np.ndarray, options: Options, frame: Frame) -> Parameters:
    """Return the model of the first batch of a stream."""
    sizes = _sizes(batch, classes)
    present = np.flatnonzero(sizes)
    if not len(present):
        raise ValueError(f"None of the {batch.X.shape[0]} rows of the first batch has a label.")
    # Classes still to come count as one row each, and begin with uniform weights.
    prior = np.maximum(sizes, 1.0) / np.maximum(sizes, 1.0).sum()
    place = np.full(len(classes) + 1, -1)
    place[present] = np.arange(len(present))
    own = Training(open_source(batch.X, place[batch.y], batch.weights), classes[present])
    beginner = model
    if model.n_kernels is None and isinstance(model.init, str):
        beginner = copy(model).set_params(n_kernels=len(classes))
    starts = next(start_groups(beginner, own, frame, structure_of(options.covariance_type)))
    # With few rows a kernel may collapse onto some of them, and the stream would never free it again.
    careful = replace(options, covariance_prior=options.covariance_prior or own.n_features + 2.0)
    result = fit(own.source, starts, careful, frame=frame)
    best = result.parameters.take(best_start(result, model.variance_floor, len(result.status)))
    weights = uniform_weights(1, len(best.means), len(classes))[0]
    weights[:, present] = best.weights
    return Parameters(weights, best.means, best.covariances, prior, concentration=best.concentration)


# ---------------------------------------------------------------- one more class


def rows_of_class(estimator: Any, X: Any, sample_weight: Any) -> Block:
    """Return the rows of a new class that have a weight."""
    given = enter(estimator, X, sample_weight=sample_weight)
    rows = given.values(on_cpu=True)
    weights = given.weights(len(rows))
    check_gaps(rows if weights is None else rows[weights > 0], features=False)
    return Block(rows, None, weights).informative()


def add_class(estimator: Any, new: Block, label: Any) -> None:
    """Fit the weights of a new class in all parts of a model, and insert it among the others."""
    priors = getattr(estimator, "priors", None)
    if priors is not None and not isinstance(priors, str):
        raise ValueError(
            f"priors is an array of {len(estimator.classes_)} classes, without the new one; "
            "use set_params(priors=None) or priors='uniform' first."
        )
    place = place_of_label(estimator.classes_, label)
    rejects = estimator.reject_below is not None
    check_outlier_label(estimator.outlier_label, np.append(estimator.classes_, label), rejects=rejects)
    parts = estimator._parts_to_fit(new.X.shape[1], stream=True)
    prior, sizes = _with_class(parts[0][1], new, place)
    for group, (columns, model) in enumerate(parts):
        own = _columns_of(new, columns)
        if not own.X.shape[0]:
            raise ValueError(
                f"No row of class {label!r} has a value in feature set {group}, columns {columns}."
            )
        _insert(model, own, label, place)
    before = dict(vars(estimator))
    estimator._store(parts, sizes, prior)
    if "temperature_" in before:
        estimator.temperature_ = before["temperature_"]
    if estimator.reject_below is not None:
        # Rows of the other classes are now rarer by the new one's share; its own must not be refused.
        shifted = before["threshold_"] + np.log1p(-estimator.class_prior_[place])
        estimator.threshold_ = float(min(_threshold(estimator, new), shifted))


def _insert(model: Any, new: Block, label: Any, place: int) -> None:
    """Fit the weights of a new class and insert it among the others of a mixture."""
    _check_covariance_type(model)
    options = replace(
        options_of(model, new.X.shape[1], model.covariance_type_),
        freeze="kernels",
        stopping="total",
        floor=0.0,
    )
    start = replace(model._parameters, weights=uniform_weights(1, len(model.means_), 1)[0])
    if isinstance(start.tail, Background):
        start = replace(start, tail=start.tail.of_average(model.class_prior_, 1))
    if options.inference == "variational":
        # Frozen kernels have no posterior; the new weights are the most likely ones.
        options = replace(options, inference="em", weight_prior=None)
    if model.weight_prior == "hierarchical" and "weight_prior_" in vars(model):
        # The prior is what was learnt from the other classes.
        options = replace(options, weight_prior="given")
        start = replace(start, concentration=model.weight_prior_)
    # In a frame that reaches from the kernels to the rows, and without a floor, which would move kernels.
    frame = measure(np.concatenate([model.means_, new.X]), structure_of(options.covariance_type))
    source, strength = open_source(new.X, None, new.weights), model.group_shift
    if strength == "auto":
        strength = vars(model).get("group_shift_", np.inf)
    if strength is None or np.isinf(strength):
        found = fit(source, start.batch(), options, frame=frame).parameters
        weights = found.weights[0, :, 0]
        if isinstance(found.tail, Background):
            own = found.tail.weights[0, 0]
            model.background_weights_ = np.insert(model.background_weights_, place, own)
        shift = np.zeros_like(model.means_)
    else:
        weights, shift = _adapted(model, source, start, float(strength), options, frame)
    if strength is not None or "group_shifts_" in vars(model):
        none = np.zeros((len(model.classes_), *shift.shape))
        model.group_shifts_ = np.insert(vars(model).get("group_shifts_", none), place, shift, axis=0)
        model.group_shift_ = vars(model).get("group_shift_", np.inf) if strength is None else float(strength)
    model.weights_ = np.insert(model.weights_, place, weights, axis=1)
    longer = np.result_type(model.classes_, np.asarray(label))
    model.classes_ = np.insert(model.classes_.astype(longer), place, label)
    model.class_prior_, model.class_count_ = _with_class(model, new, place)
    # What the fit, or the stream, reported was of fewer classes.
    for name in ("stream_", *_OF_FIT, *OF_THE_POSTERIOR):
        vars(model).pop(name, None)


def _adapted(
    model: Any, source: RowSource, start: Parameters, strength: float, options: Options, frame: Frame
) -> tuple[FloatArray, FloatArray]:
    """Return weights (K,) and shifts (K, M) of a new group by MAP adaptation; see `add_class`."""
    common = model.weights_ @ model.class_prior_
    anchor = common if options.weight_prior is None else None
    found = shift_groups(
        GroupRows(source, 1), replace(start, weights=common[:, None]), strength, options, frame, anchor=anchor
    )
    return found.parameters.weights[:, 0], found.shifts[0]


def _with_class(model: Any, new: Block, place: int) -> tuple[FloatArray, FloatArray]:
    """Return priors and sizes (L + 1,) of the classes with a new one; the others keep their proportions."""
    size = float(len(new.X) if new.weights is None else new.weights.sum())
    share = size / (model.class_count_.sum() + size)
    prior = np.insert(model.class_prior_ * (1.0 - share), place, share)
    return prior, np.insert(model.class_count_, place, size)


def place_of_label(classes: np.ndarray, label: Any) -> int:
    """Return where a new label belongs among the sorted ones; refuse one that is known or of another kind."""
    new = np.asarray(label)
    if new.ndim != 0:
        raise ValueError(f"label must be a single value, got an array of shape {new.shape}.")
    if is_missing(np.array([label], dtype=object)).any():
        raise ValueError(f"label is {label!r}, which marks rows without a label. Give the class a name.")
    kinds = [{"U": "text", "S": "text", "O": "text"}.get(a.dtype.kind, "number") for a in (new, classes)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"label {label!r} is a {kinds[0]}, but the labels {classes.tolist()} are not.")
    if label in classes.tolist():
        raise ValueError(f"label {label!r} is known already: {classes.tolist()}.")
    return int(np.searchsorted(classes, label))
