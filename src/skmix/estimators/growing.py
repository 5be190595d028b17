"""Models that grow: batches of a stream, and classes that come later."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import _fit_context, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ..engine.covariances import structure_of
from ..engine.density import frame_of
from ..engine.model import FloatArray, IntArray, Options, Parameters
from ..engine.refine.online import Running, absorb, resume
from ..engine.sources.summary import measure
from ..engine.starts import uniform_weights
from ._compat import fit
from ._decisions import check_outlier_label
from ._validation import (
    all_or_nothing,
    check_gaps,
    check_rows,
    check_weights,
    class_sizes,
    observed_rows,
    refuse_blocks,
)
from ._variational import OF_THE_POSTERIOR, is_variational

_OF_STARTS = ("start_status_", "start_log_likelihoods_")


def _can_stream(estimator: Any) -> bool:
    """Whether the statistics of batches can be added up."""
    if is_variational(estimator):
        raise AttributeError("A stream has no variational fit: partial_fit needs inference='em'.")
    if estimator.covariance_type == "low_rank":
        raise AttributeError(
            "partial_fit adds up the sums of all batches: those of covariance_type='low_rank' mean something "
            "else in each batch. Use fit, with blocks of rows if there are many."
        )
    return True


class _Stream:
    """What the two estimators share: reading a batch, and remembering the labels."""

    classes_: np.ndarray

    def _read_batch(
        self, X: ArrayLike, y: ArrayLike | None, classes: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, IntArray, FloatArray | None]:
        """Return the batch's rows, all labels of the stream, the rows' labels as indices, and weights."""
        first = not hasattr(self, "classes_")
        refuse_blocks(X)
        rows: np.ndarray = validate_data(
            self, X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan", reset=first
        )
        check_gaps(rows, fitting=first)
        weights = check_weights(sample_weight, rows)
        known = self._labels_of_stream(y, classes, first)
        codes = np.zeros(len(rows), dtype=np.int64) if y is None else _codes(y, known, len(rows))
        if weights is not None and not weights.all():
            kept = np.flatnonzero(weights)
            rows, codes, weights = rows[kept], codes[kept], weights[kept]
        return rows, known, codes, weights

    def _labels_of_stream(self, y: ArrayLike | None, classes: ArrayLike | None, first: bool) -> np.ndarray:
        if not first:
            known = self.classes_
            if classes is not None and not np.array_equal(np.unique(np.asarray(classes)), known):
                raise ValueError(
                    f"classes={np.asarray(classes).tolist()} differs from the labels of the first call, "
                    f"{known.tolist()}."
                )
            return known
        if y is None:
            return np.zeros(1, dtype=np.int64)
        if classes is None and is_classifier(self):
            raise ValueError("classes must be passed on the first call to partial_fit.")
        return np.unique(np.asarray(y if classes is None else classes))


def _codes(y: ArrayLike, known: np.ndarray, n_rows: int) -> IntArray:
    """Return labels as indices into the known ones, −1 for rows without a label."""
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"X has {n_rows} rows but y has shape {labels.shape}.")
    check_classification_targets(labels)
    try:
        unknown = np.setdiff1d(labels, known)
    except TypeError as error:
        raise ValueError(f"y has labels that cannot be compared with those known: {error}.") from None
    if labels.dtype.kind in "if" and len(known) > 1 and -1 not in known:
        unknown = unknown[unknown != -1]
    if len(unknown):
        raise ValueError(
            f"y has labels that the stream does not know: {unknown[:5].tolist()}; known are "
            f"{known.tolist()}. A class can be added to a fitted model with add_class."
        )
    return np.where(np.isin(labels, known), np.searchsorted(known, labels), -1)


def _check_decay(decay: Any) -> float:
    if not isinstance(decay, Real) or not 0.5 < decay <= 1.0:
        raise ValueError(f"decay must be above 0.5 and at most 1, got {decay!r}.")
    return float(decay)


class GrowingMixture(_Stream):
    """`partial_fit` and `add_class` of `SharedKernelMixture`."""

    @available_if(_can_stream)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        decay: float = 0.6,
    ) -> Any:
        """Let one batch of a stream change the model.

        The first batch makes a model as `fit` does, with a little more care; it should have some twenty rows
        for each kernel. Every further one moves the average statistics of a row, by a share that falls with
        the number of batches (see `decay`).

        Parameters
        ----------
        X : array-like of shape (n, M)
            The batch; NaN marks a missing value.
        y : array-like of shape (n,), default=None
            Labels, -1 for rows without one. None for an ordinary mixture.
        classes : array-like of shape (L,), default=None
            All labels of the stream; needed in the first call with labels.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.
        decay : float, default=0.6
            How fast earlier batches are forgotten: the t-th batch has a share of t^-decay. Above 0.5 and at
            most 1.

        Returns
        -------
        SharedKernelMixture
            The estimator. `log_likelihood_` is that of the batch, before it changed the model.
        """
        with all_or_nothing(self):
            return self._absorb(*self._read_batch(X, y, classes, sample_weight), decay=_check_decay(decay))

    def _absorb(
        self,
        rows: np.ndarray,
        classes: np.ndarray,
        codes: IntArray,
        weights: FloatArray | None,
        *,
        decay: float,
    ) -> Any:
        """Let validated rows change the model."""
        model: Any = self
        options: Options = model._options(rows.shape[1])
        sizes = class_sizes(codes, weights, len(classes))
        past: Any
        if hasattr(self, "classes_"):
            parameters = replace(model._parameters, class_prior=model.class_prior_)
            past = self._past(rows, parameters, options)
        else:
            past, parameters = self._first_batch(rows, classes, codes, weights, options)
            model.class_count_ = np.zeros(len(classes))
        found, running, log_likelihood = absorb(
            rows, codes, parameters, past, options, decay=decay, row_weights=weights
        )
        model.stream_ = running.to_dict()
        # An earlier fit may have been shrunk; a stream never is.
        for name in ("shrinkage_", "covariance_prior_"):
            model.__dict__.pop(name, None)
        model.covariance_type_ = model.covariance_type
        model.n_kernels_ = len(found.means)
        model.classes_ = classes
        model.weights_, model.means_, model.covariances_ = found.weights, found.means, found.covariances
        model.class_prior_ = found.class_prior
        model.class_count_ = model.class_count_ + sizes
        model.n_iter_ = running.n_batches
        model.converged_ = False
        model.log_likelihood_ = log_likelihood
        model.log_likelihood_path_ = np.empty((0, len(classes)))
        model.start_status_ = np.array(["stopped"])
        model.start_log_likelihoods_ = np.array([log_likelihood])
        return self

    def _past(self, rows: np.ndarray, parameters: Parameters, options: Options) -> Running:
        """Return what the stream has left behind; a model fitted otherwise counts as some batches."""
        model: Any = self
        if hasattr(self, "stream_"):
            return Running.from_dict(model.stream_)
        frame = frame_of(parameters, structure_of(options.covariance_type))
        total = float(model.class_count_.sum())
        n_batches = max(1, round(total / len(rows)))
        return resume(parameters, frame, options.covariance_type, n_batches, total)

    def _first_batch(
        self,
        rows: np.ndarray,
        classes: np.ndarray,
        codes: IntArray,
        weights: FloatArray | None,
        options: Options,
    ) -> tuple[Any, Parameters]:
        """Return the frame of the stream and the model that its first batch makes."""
        model: Any = self
        structure = structure_of(options.covariance_type)
        frame = measure(rows, structure, row_weights=weights)
        sizes = class_sizes(codes, weights, len(classes))
        present = np.flatnonzero(sizes)
        if not len(present):
            raise ValueError(f"None of the {len(rows)} rows of the first batch has a label.")
        # Classes still to come count as one row each, and begin with uniform weights.
        prior = np.maximum(sizes, 1.0) / np.maximum(sizes, 1.0).sum()
        place = np.full(len(classes) + 1, -1)
        place[present] = np.arange(len(present))
        beginner = model
        if model.n_kernels is None and isinstance(model.init, str):
            beginner = copy(model).set_params(n_kernels=len(classes))
        starts = beginner._starts(
            rows, place[codes], classes[present], prior[present], frame, structure, options, weights
        )
        # With few rows a kernel may collapse onto some of them, and the stream would never free it again.
        careful = replace(options, covariance_prior=options.covariance_prior or rows.shape[1] + 2.0)
        result = fit(rows, place[codes], starts, careful, frame=frame, row_weights=weights)
        best = result.parameters.take(result.best)
        all_weights = uniform_weights(1, len(best.means), len(classes))[0]
        all_weights[:, present] = best.weights
        return frame, Parameters(all_weights, best.means, best.covariances, prior)

    @_fit_context(prefer_skip_nested_validation=True)
    def add_class(
        self,
        X: ArrayLike,
        label: Any,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Learn one more class without touching the kernels, or any other class.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows of the new class.
        label : int, str, …
            Its label, of the kind of the others.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        SharedKernelMixture
            The estimator with one more class. Its prior is its share of all labelled rows.
        """
        check_is_fitted(self)
        with all_or_nothing(self):
            place = place_of_label(self.classes_, label)
            rows = check_rows(self, X, fitting=False)
            return self._insert_class(rows, label, place, check_weights(sample_weight, rows))

    def _insert_class(self, rows: np.ndarray, label: Any, place: int, row_weights: FloatArray | None) -> Any:
        model: Any = self
        if row_weights is not None and not row_weights.all():
            rows, row_weights = rows[row_weights > 0], row_weights[row_weights > 0]
        options = replace(
            model._options(rows.shape[1]),
            covariance_type=model._structure,
            freeze="kernels",
            stopping="total",
            floor=0.0,
        )
        if is_variational(self):
            # Kernels that stay are no posterior; the new weights are the most likely ones.
            options = replace(options, inference="em", weight_prior=None)
        start = Parameters(uniform_weights(1, len(model.means_), 1)[0], model.means_, model.covariances_)
        structure = structure_of(options.covariance_type)
        # In a frame that reaches from the kernels to the rows, and without a floor, which would move kernels.
        frame = measure(np.concatenate([model.means_, rows]), structure)
        found = fit(rows, None, start.batch(), options, frame=frame, row_weights=row_weights)
        size = float(len(rows) if row_weights is None else row_weights.sum())
        model.weights_ = np.insert(model.weights_, place, found.parameters.weights[0, :, 0], axis=1)
        longer = np.result_type(model.classes_, np.asarray(label))
        model.classes_ = np.insert(model.classes_.astype(longer), place, label)
        model.class_prior_ = with_class(model.class_prior_, model.class_count_, place, size)
        model.class_count_ = np.insert(model.class_count_, place, size)
        # What the fit, or the stream, reported was of fewer classes.
        for name in ("stream_", "log_likelihood_", "log_likelihood_path_", *_OF_STARTS, *OF_THE_POSTERIOR):
            self.__dict__.pop(name, None)
        return self


def with_class(prior: FloatArray, sizes: FloatArray, place: int, size: float) -> FloatArray:
    """Return class priors with that of a new class of so many rows; the others keep their proportions."""
    share = size / (sizes.sum() + size)
    return np.insert(prior * (1.0 - share), place, share)


def place_of_label(classes: np.ndarray, label: Any) -> int:
    """Return where a new label belongs among the sorted ones; refuse one that is known or of another kind."""
    new = np.asarray(label)
    if new.ndim != 0:
        raise ValueError(f"label must be a single value, got an array of shape {new.shape}.")
    kinds = [{"U": "text", "S": "text", "O": "text"}.get(a.dtype.kind, "number") for a in (new, classes)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"label {label!r} is a {kinds[0]}, but the labels {classes.tolist()} are not.")
    if label in classes.tolist():
        raise ValueError(f"label {label!r} is known already: {classes.tolist()}.")
    return int(np.searchsorted(classes, label))


class GrowingClassifier(_Stream):
    """`partial_fit` and `add_class` of `SharedKernelClassifier`."""

    @available_if(_can_stream)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        decay: float = 0.6,
    ) -> Any:
        """Let one batch of a stream change the model.

        Parameters
        ----------
        X : array-like of shape (n, M)
            The batch; NaN marks a missing value.
        y : array-like of shape (n,)
            Labels, -1 for rows without one.
        classes : array-like of shape (L,), default=None
            All labels of the stream; needed in the first call.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.
        decay : float, default=0.6
            How fast earlier batches are forgotten, see `SharedKernelMixture`.

        Returns
        -------
        SharedKernelClassifier
            The estimator.
        """
        classifier: Any = self
        with all_or_nothing(classifier):
            first = not hasattr(self, "classes_")
            rows, known, codes, weights = self._read_batch(X, y, classes, sample_weight)
            groups = classifier._groups(rows.shape[1])
            if first:
                models = [classifier._model(g, groups, fresh=True) for g in range(len(groups))]
            else:
                settings = {
                    name: getattr(self, name) for name in type(classifier.models_[0])._get_param_names()
                }
                del settings["init"]
                models = [copy(model).set_params(**settings) for model in classifier.models_]
            for group, (columns, model) in enumerate(zip(groups, models, strict=True)):
                model.n_features_in_ = len(columns)
                own, own_codes, own_weights = observed_rows(rows, codes, weights, columns, None, group)
                if len(own):
                    model._absorb(own, known, own_codes, own_weights, decay=_check_decay(decay))
                elif first:
                    raise ValueError(f"The first batch has no value in feature group {group}, {columns}.")
            sizes = class_sizes(codes, weights, len(known))
            if not first:
                sizes = sizes + classifier.class_count_
            # Recent batches count more in a stream's priors; the group with the fewest gaps knows them best.
            best = max(models, key=lambda model: model.stream_["n_rows"])
            for model in models:
                model.class_prior_ = best.class_prior_
            classifier._keep(models, groups, known, sizes, False)
            classifier._set_threshold(rows, weights)
            return self

    @_fit_context(prefer_skip_nested_validation=True)
    def add_class(
        self,
        X: ArrayLike,
        label: Any,
        *,
        sample_weight: ArrayLike | None = None,
    ) -> Any:
        """Learn one more class without touching the kernels, or any other class.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows of the new class.
        label : int, str, …
            Its label, of the kind of the others.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        SharedKernelClassifier
            The estimator with one more class. Its prior is its share of all labelled rows; priors given as
            an array must be set to another value before.
        """
        classifier: Any = self
        check_is_fitted(classifier)
        if classifier.priors is not None and not isinstance(classifier.priors, str):
            raise ValueError(
                f"priors is an array of {len(self.classes_)} classes and says nothing of a new one; "
                "use set_params(priors=None) or priors='uniform' first."
            )
        with all_or_nothing(classifier):
            place = place_of_label(self.classes_, label)
            rows = check_rows(classifier, X, fitting=False)
            weights = check_weights(sample_weight, rows)
            if classifier.reject_below is not None:
                check_outlier_label(classifier.outlier_label, np.append(self.classes_, label))
            models = [copy(model) for model in classifier.models_]
            prior_before = classifier.models_[0].class_prior_
            codes = np.zeros(len(rows), dtype=np.int64)
            name = np.array([label])
            for group, (columns, model) in enumerate(zip(classifier.feature_groups_, models, strict=True)):
                own, _, own_weights = observed_rows(rows, codes, weights, columns, name, group)
                model._insert_class(own, label, place, own_weights)
            temperature, threshold = classifier.temperature_, classifier.threshold_
            size = float(len(rows) if weights is None else weights.sum())
            prior = with_class(prior_before, classifier.class_count_, place, size)
            for model in models:
                model.class_prior_ = prior
            sizes = np.insert(classifier.class_count_, place, size)
            classifier._keep(models, classifier.feature_groups_, models[0].classes_, sizes, False)
            classifier.temperature_ = temperature
            if classifier.reject_below is not None:
                # Rows of the other classes are now rarer by the new one's share; its own must not be refused.
                classifier._set_threshold(rows, weights)
                shifted = threshold + np.log1p(-classifier.class_prior_[place])
                classifier.threshold_ = float(min(classifier.threshold_, shifted))
            return self
