"""Batches of a stream, and classes that come later."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from ..engine.compute.arrays import on_host
from ..engine.compute.blocks import is_missing
from ..engine.covariances import structure_of
from ..engine.density import frame_of
from ..engine.em import fit
from ..engine.model import FloatArray, IntArray, Options, Parameters
from ..engine.refine.online import Running, absorb, resume
from ..engine.sources import open_source
from ..engine.sources.summary import Frame, measure
from ..engine.starts import uniform_weights
from .decisions import check_outlier_label, threshold_of
from .rows import (
    Training,
    check_gaps,
    check_rows,
    check_weights,
    class_sizes,
    code_labels,
    number_labels,
    observed_rows,
    read_labels,
)
from .solving import OF_SHRINKAGE, OF_THE_POSTERIOR, best_start, options_of, start_groups

_OF_FIT = ("log_likelihood_", "log_likelihood_path_", "start_status_", "start_log_likelihoods_")


@dataclass(frozen=True)
class Batch:
    """Rows (n, M) of a stream, their classes (n,), −1 for none, weights (n,), and all labels (L,)."""

    rows: np.ndarray
    codes: IntArray
    weights: FloatArray | None
    classes: np.ndarray

    @property
    def sizes(self) -> FloatArray:
        """Number (L,) of labelled rows of each class, or the sum of their weights."""
        return class_sizes(self.codes, self.weights, len(self.classes))

    def take(self, columns: list[int]) -> Batch:
        """Return the rows that have a value in some columns."""
        return Batch(*observed_rows(self.rows, self.codes, self.weights, columns), self.classes)

    def opened(self) -> Training:
        """Return the rows as those of a fit."""
        return Training(open_source(self.rows, self.codes, self.weights), self.classes)


def read_batch(estimator: Any, X: Any, y: Any, classes: Any, sample_weight: Any) -> Batch:
    """Return the rows of a batch; its classes are all labels of the stream."""
    first = "class_prior_" not in vars(estimator)
    X, y, classes = on_host(X), on_host(y), on_host(classes)
    rows = check_rows(estimator, X, fitting=first, least=1)
    weights = check_weights(on_host(sample_weight), len(rows))
    known, codes = _read_labels(estimator, y, classes, len(rows), first)
    if weights is not None and not weights.all():
        kept = np.flatnonzero(weights)
        rows, codes, weights = rows[kept], codes[kept], weights[kept]
    if first:
        check_gaps(rows)
    elif np.isnan(rows).any():
        # A row without any value changes nothing.
        kept = np.flatnonzero(~np.isnan(rows).all(axis=1))
        rows, codes = rows[kept], codes[kept]
        weights = None if weights is None else weights[kept]
    return Batch(rows, codes, weights, known)


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


def absorb_batch(model: Any, batch: Batch, decay: Any) -> None:
    """Update a mixture with a batch."""
    if not isinstance(decay, Real) or not 0.5 < float(decay) <= 1.0:
        raise ValueError(f"decay must be above 0.5 and at most 1, got {decay!r}.")
    options = options_of(model, batch.rows.shape[1])
    past: Any
    if "class_prior_" in vars(model):
        if not len(batch.rows):
            return
        if model.covariance_type != model.covariance_type_:
            raise ValueError(
                f"covariance_type is now {model.covariance_type!r}, but the model has "
                f"{model.covariance_type_!r}: use fit."
            )
        parameters = replace(model._parameters, class_prior=model.class_prior_)
        past, count = _past(model, batch, parameters, options), model.class_count_
    else:
        past, parameters = _first_batch(model, batch, options)
        count = np.zeros(len(batch.classes))
    found, running, log_likelihood = absorb(
        batch.rows, batch.codes, parameters, past, options, decay=float(decay), row_weights=batch.weights
    )
    # A stream is neither shrunk nor variational, but an earlier fit may have been.
    for name in (*OF_SHRINKAGE, *OF_THE_POSTERIOR):
        vars(model).pop(name, None)
    model.stream_ = running.to_dict()
    model.covariance_type_ = model.covariance_type
    model.classes_ = batch.classes
    model._store_parameters(found)
    model.class_prior_ = found.class_prior
    model.class_count_ = count + batch.sizes
    model.n_iter_ = running.n_batches
    model.converged_ = False
    model.log_likelihood_ = log_likelihood
    model.log_likelihood_path_ = np.empty((0, len(batch.classes)))
    model.start_status_ = np.array(["stopped"])
    model.start_log_likelihoods_ = np.array([log_likelihood])


def _past(model: Any, batch: Batch, parameters: Parameters, options: Options) -> Running:
    """Return the statistics of earlier batches; a model that was fitted counts as some batches."""
    if hasattr(model, "stream_"):
        return Running.from_dict(model.stream_)
    frame = frame_of(parameters, structure_of(options.covariance_type))
    total = float(model.class_count_.sum())
    n_batches = max(1, round(total / len(batch.rows)))
    return resume(parameters, frame, options.covariance_type, n_batches, total)


def _first_batch(model: Any, batch: Batch, options: Options) -> tuple[Frame, Parameters]:
    """Return the frame of the stream and the model of its first batch."""
    present = np.flatnonzero(batch.sizes)
    if not len(present):
        raise ValueError(f"None of the {len(batch.rows)} rows of the first batch has a label.")
    # Classes still to come count as one row each, and begin with uniform weights.
    prior = np.maximum(batch.sizes, 1.0) / np.maximum(batch.sizes, 1.0).sum()
    place = np.full(len(batch.classes) + 1, -1)
    place[present] = np.arange(len(present))
    own = replace(batch, codes=place[batch.codes], classes=batch.classes[present]).opened()
    beginner = model
    if model.n_kernels is None and isinstance(model.init, str):
        beginner = copy(model).set_params(n_kernels=len(batch.classes))
    structure = structure_of(options.covariance_type)
    frame = own.source.summary.frame(structure)
    starts = next(start_groups(beginner, own, frame, structure))
    # With few rows a kernel may collapse onto some of them, and the stream would never free it again.
    careful = replace(options, covariance_prior=options.covariance_prior or own.n_features + 2.0)
    result = fit(own.source, starts, careful, frame=frame)
    best = result.parameters.take(best_start(result, model.variance_floor, len(result.status)))
    weights = uniform_weights(1, len(best.means), len(batch.classes))[0]
    weights[:, present] = best.weights
    return frame, Parameters(weights, best.means, best.covariances, prior)


def absorb_batch_of_groups(classifier: Any, batch: Batch, decay: Any) -> None:
    """Update the models of all feature groups with a batch."""
    first = "models_" not in vars(classifier)
    groups = classifier._groups(batch.rows.shape[1])
    if not first and groups != classifier.feature_groups_:
        raise ValueError(
            f"feature_groups is now {groups}, but the model has {classifier.feature_groups_}: use fit."
        )
    if first:
        models = [classifier._model(g, groups, fresh=True) for g in range(len(groups))]
    else:
        names = set(type(classifier.models_[0])._get_param_names()) - {"init", "covariance_prior"}
        settings = {name: getattr(classifier, name) for name in names}
        models = [copy(model).set_params(**settings) for model in classifier.models_]
    for group, (columns, model) in enumerate(zip(groups, models, strict=True)):
        own = batch.take(columns)
        if first and not len(own.rows):
            raise ValueError(f"The first batch has no value in feature group {group}, {columns}.")
        absorb_batch(model, own, decay)
    sizes = batch.sizes if first else batch.sizes + classifier.class_count_
    # Recent batches count more in a stream's priors; the group with the fewest gaps has the best estimate.
    streaming = [model for model in models if "stream_" in vars(model)]
    if not streaming:
        return  # no row has a value in any group
    best = max(streaming, key=lambda model: model.stream_["n_rows"])
    classifier._store(models, groups, sizes, best.class_prior_)
    if classifier.reject_below is not None and len(batch.rows):
        classifier.threshold_ = threshold_of(classifier, batch.opened())


# ---------------------------------------------------------------- one more class


def rows_of_class(estimator: Any, X: Any, sample_weight: Any) -> tuple[np.ndarray, FloatArray | None]:
    """Return the rows of a new class that have a weight, and their weights."""
    rows = check_rows(estimator, X, fitting=False)
    weights = check_weights(on_host(sample_weight), len(rows))
    if weights is not None and not weights.all():
        rows, weights = rows[weights > 0], weights[weights > 0]
    empty = np.flatnonzero(np.isnan(rows).all(axis=1))
    if len(empty):
        raise ValueError(
            f"Row {empty[0]} of X has no value: all {rows.shape[1]} features are NaN "
            f"({len(empty)} such rows). Remove these rows, or give them a weight of zero."
        )
    return rows, weights


def insert_class(model: Any, rows: np.ndarray, weights: FloatArray | None, label: Any, place: int) -> None:
    """Fit the weights of a new class and insert it among the others of a mixture."""
    options = replace(
        options_of(model, rows.shape[1]),
        covariance_type=model.covariance_type_,
        freeze="kernels",
        stopping="total",
        floor=0.0,
    )
    if options.inference == "variational":
        # Frozen kernels have no posterior; the new weights are the most likely ones.
        options = replace(options, inference="em", weight_prior=None)
    start = Parameters(uniform_weights(1, len(model.means_), 1)[0], model.means_, model.covariances_)
    # In a frame that reaches from the kernels to the rows, and without a floor, which would move kernels.
    frame = measure(np.concatenate([model.means_, rows]), structure_of(options.covariance_type))
    found = fit(open_source(rows, None, weights), start.batch(), options, frame=frame)
    size = float(len(rows) if weights is None else weights.sum())
    model.weights_ = np.insert(model.weights_, place, found.parameters.weights[0, :, 0], axis=1)
    longer = np.result_type(model.classes_, np.asarray(label))
    model.classes_ = np.insert(model.classes_.astype(longer), place, label)
    model.class_prior_ = with_class(model.class_prior_, model.class_count_, place, size)
    model.class_count_ = np.insert(model.class_count_, place, size)
    # What the fit, or the stream, reported was of fewer classes.
    for name in ("stream_", *_OF_FIT, *OF_THE_POSTERIOR):
        vars(model).pop(name, None)


def add_class_to_groups(classifier: Any, X: Any, label: Any, sample_weight: Any) -> None:
    """Fit the weights of a new class in the models of all feature groups."""
    place = place_of_label(classifier.classes_, label)
    rows, weights = rows_of_class(classifier, X, sample_weight)
    if classifier.reject_below is not None:
        check_outlier_label(classifier.outlier_label, np.append(classifier.classes_, label))
    size = float(len(rows) if weights is None else weights.sum())
    counts = classifier.class_count_
    prior = with_class(classifier.models_[0].class_prior_, counts, place, size)
    codes = np.zeros(len(rows), dtype=np.int64)
    new = Training(open_source(rows, codes, weights), np.array([label]))
    models = [copy(model) for model in classifier.models_]
    for group, (columns, model) in enumerate(zip(classifier.feature_groups_, models, strict=True)):
        own, _, own_weights = new.take(columns, group).source.start_rows()
        insert_class(model, own, own_weights, label, place)
    temperature, threshold = classifier.temperature_, classifier.threshold_
    classifier._store(models, classifier.feature_groups_, np.insert(counts, place, size), prior)
    classifier.temperature_ = temperature
    if classifier.reject_below is not None:
        # Rows of the other classes are now rarer by the new one's share; its own must not be refused.
        shifted = threshold + np.log1p(-classifier.class_prior_[place])
        classifier.threshold_ = float(min(threshold_of(classifier, new), shifted))


def with_class(prior: FloatArray, sizes: FloatArray, place: int, size: float) -> FloatArray:
    """Return class priors with that of a new class of so many rows; the others keep their proportions."""
    share = size / (sizes.sum() + size)
    return np.insert(prior * (1.0 - share), place, share)


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
