"""The classifier: Bayes' rule for class densities that share their kernels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from ..data.recipe import Recipe
from ..engine.numbers import safe_log
from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from . import crossfit, decisions, densities, streams
from .arguments import check_distribution, check_feature_sets
from .bags import BagsMixin
from .base import Part, SharedKernelBase
from .checks import computed, note_rows
from .fitted import FitRecord, Fitted, FittedClassifier
from .mixture import SharedKernelMixture, documented_model
from .prevalence import PrevalenceMixin
from .rows import enter, score_rows
from .settings import Settings, prior_of_columns
from .training import Training
from .tuning import TuningMixin

# Attributes of a fit that only the mixtures have.
_NOT_SHOWN = {"n_iter_", "n_kernels_", "outlier_blur_", "stream_", "threshold_"}
# Attributes that are the same for all feature sets.
_IN_COMMON = {"classes_", "class_count_", "covariance_type_"}


@documented_model
class SharedKernelClassifier(ClassifierMixin, BagsMixin, PrevalenceMixin, TuningMixin, SharedKernelBase):
    """Classifier whose classes are Gaussian mixtures over the same kernels.

    It learns p(x | j) = Σ_k π_kj N(x; μ_k, P_k) from labelled rows by the shared kernel EM algorithm (SKEM)
    and predicts the class with the largest posterior probability. Classes with few rows benefit from kernels
    that the other classes determine.

    To classify a new table, begin with `SharedKernelClassifierCV`: it takes longer and chooses the settings.
    The defaults here give one small model at once, which can err more than twice as often.

    Parameters
    ----------
    {parameters}
    feature_sets : list of lists of int or str, default=None
        Sets of columns of X, by index or name, that are independent given the class: each set has a separate
        shared-kernel model, and class likelihoods are multiplied. Columns in no set are ignored. None is one
        set of all columns.
        When to change: if sets of features are known to be independent within classes, and rows are few.
    priors : array-like of shape (L,) or 'uniform', default=None
        Class priors, in the order of the sorted labels. None takes the training frequencies; 'uniform' gives
        the paper's maximum-likelihood rule.
        When to change: if class frequencies will differ from those of the training rows.
    reject_below : float, default=None
        A share of rows, between 0 and 1: `threshold_` is the quantile of log p(x) at this share, estimated
        from held-out rows (up to ten further fits).
        When to change: if new rows may belong to none of the classes.
    outlier_label : default=None
        Label that `predict` returns for rows below `threshold_`; it needs `reject_below`, and must be of the
        same kind as the class labels. None returns the most probable class.
        When to change: if `predict` should mark outliers.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Sorted class labels.
    class_prior_ : ndarray of shape (L,)
        Class priors for prediction.
    threshold_ : float
        Log-density below which a row is an outlier; minus infinity unless `reject_below` was given.
    outlier_blur_ : ndarray of shape (R, M)
        With `reject_below`, if R > 0 features have the same value in nearly all rows, such as those of rare
        categories. In the density that is compared with `threshold_`, ``outlier_blur_.T @ outlier_blur_`` is
        added to all covariances; see `skmix.report.outliers`.
    temperature_ : float
        Divisor of log-probabilities before they are normalised; 1 unless `calibrate` or `tune` was called.
    bag_correlation_ : float
        After `calibrate` with bags: correlation of the rows of a bag, see `predict_bags_proba`.
    tuned_ : dict
        After `tune`: the best `trade_off`, None if the fitted model was best; the scores on held-out rows
        `before` and `after` tuning, as `log_loss`, `error`, `log_likelihood` and `temperature`; and the same
        scores of all `rounds`. Without held-out rows, the last `trade_off`, None, None and no rounds.
    models_ : list of SharedKernelMixture
        One fitted model per feature set, which then has `weights_`, `means_` and the attributes after them;
        a single one without sets.
    feature_sets_ : list of lists of int
        The features of each model; a column of text has several.
    n_kernels_ : int or list of int
        Number K of kernels; with feature sets, one number per set.
    {fitted}

    See Also
    --------
    SharedKernelClassifierCV : Chooses kernels, priors and tuning by cross-validation.
    SharedKernelMixture : The density model underneath.

    References
    ----------
    Pulford, "Learning Shared Kernel Models: the Shared Kernel EM algorithm", 2022, arXiv:2205.09041.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix import SharedKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> classifier = SharedKernelClassifier(random_state=0).fit(X, y)
    >>> round(classifier.score(X, y), 2)
    0.98
    """

    models_: list[SharedKernelMixture]
    feature_sets_: list[list[int]]
    temperature_: float
    threshold_: float

    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        **SharedKernelBase._parameter_constraints,
        "init": [*SharedKernelBase._parameter_constraints["init"], list],
        "feature_sets": [list, tuple, None],
        "priors": [StrOptions({"uniform"}), "array-like", None],
        "reject_below": [Interval(Real, 0, 1, closed="neither"), None],
        "outlier_label": [object],
    }

    def __init__(
        self,
        n_kernels: int | None = None,
        *,
        covariance_type: str = "auto",
        tail: str | None = None,
        degrees: float | None = None,
        feature_sets: Sequence[Sequence[int | str]] | None = None,
        init: Any = "auto",
        freeze: str | None = None,
        n_init: int = 1,
        max_iter: int = 200,
        tol: float = 3e-4,
        stopping: str = "total",
        variance_floor: float = 1e-6,
        covariance_prior: float | str | tuple[float, ArrayLike] | None = "auto",
        weight_prior: float | str | None = None,
        inference: str = "em",
        device: str | None = None,
        priors: ArrayLike | str | None = None,
        reject_below: float | None = None,
        outlier_label: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_kernels = n_kernels
        self.covariance_type = covariance_type
        self.tail = tail
        self.degrees = degrees
        self.init = init
        self.freeze = freeze
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.stopping = stopping
        self.variance_floor = variance_floor
        self.covariance_prior = covariance_prior
        self.weight_prior = weight_prior
        self.inference = inference
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.feature_sets = feature_sets
        self.priors = priors
        self.reject_below = reject_below
        self.outlier_label = outlier_label

    @classmethod
    def from_parameters(
        cls,
        weights: ArrayLike | SharedKernelMixture,
        means: ArrayLike | None = None,
        covariances: ArrayLike | None = None,
        *,
        covariance_type: str | None = None,
        degrees: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        class_prior: ArrayLike | None = None,
        class_count: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> Self:
        """Make a classifier of known parameters, without a fit.

        Parameters
        ----------
        weights : array-like of shape (K, L) or SharedKernelMixture
            Pr(kernel | class); columns sum to one. Or a fitted mixture, whose groups become the classes, with
            the means of each group if it has a `group_shift`.
        means, covariances, covariance_type, degrees, classes, class_prior, class_count, feature_names, \
random_state
            See `SharedKernelMixture.from_parameters`.

        Returns
        -------
        SharedKernelClassifier
            A fitted classifier with one feature set of all features.

        Examples
        --------
        >>> from skmix import SharedKernelClassifier
        >>> weights, means, covariances = [[0.9, 0.2], [0.1, 0.8]], [[0.0], [4.0]], [[[1.0]], [[1.0]]]
        >>> model = SharedKernelClassifier.from_parameters(weights, means, covariances, classes=["a", "b"])
        >>> model.predict([[0.3], [3.0]]).tolist()
        ['a', 'b']
        """
        if isinstance(weights, SharedKernelMixture):
            check_is_fitted(weights)
            mixture = copy(weights)
        else:
            mixture = SharedKernelMixture.from_parameters(
                weights,
                means,
                covariances,
                covariance_type=covariance_type,
                degrees=degrees,
                classes=classes,
                class_prior=class_prior,
                class_count=class_count,
                feature_names=feature_names,
                random_state=random_state,
            )
        if len(mixture.classes_) < 2:
            raise ValueError("A classifier needs weights of at least two classes, of shape (K, L).")
        settings = {
            name: getattr(mixture, name) for name in ("n_kernels", "covariance_type", "tail", "degrees")
        }
        model, n_features = cls(**settings, random_state=random_state), mixture.means_.shape[1]
        FittedClassifier(
            models=[mixture],
            feature_sets=[list(range(n_features))],
            class_prior=mixture.class_prior_,
            temperature=1.0,
            threshold=-np.inf,
        ).store(model)
        # The rows are those of the classifier, and features those of its mixture.
        columns = ("feature_names_in_", "recipe_", "ignored_columns_", "target_name_", "weight_name_")
        note_rows(model, n_features_in_=mixture.n_features_in_)
        note_rows(model, **{name: getattr(mixture, name, None) for name in columns})
        note_rows(mixture, n_features_in_=n_features, **dict.fromkeys((*columns, "metadata_")))
        return model

    def __getattr__(self, name: str) -> Any:
        """Attributes of the fit are those of the only mixture; with feature sets, those in common."""
        if name not in Fitted.names() or name in _NOT_SHOWN:
            # Raises the error again, with its cause: why a method is not there.
            return object.__getattribute__(self, name)
        models = self.__dict__.get("models_", ())
        if not models or (len(models) > 1 and name not in _IN_COMMON):
            why = f"it has {len(models)} feature sets, see models_" if models else "it is not fitted"
            raise AttributeError(f"{type(self).__name__} has no {name}: {why}.")
        return getattr(models[0], name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(Fitted.names().keys() - _NOT_SHOWN)]

    @property
    def n_kernels_(self) -> int | list[int]:
        """Number of kernels; with feature sets, one number per set."""
        numbers = [model.n_kernels_ for model in self.models_]
        return numbers[0] if len(numbers) == 1 else numbers

    @property
    def n_iter_(self) -> int:
        """Number of passes of the best start; with feature sets, the largest of all sets."""
        return max(model.n_iter_ for model in self.models_)

    # ------------------------------------------------------------ fits

    def _parts(self) -> list[Part]:
        return list(zip(self.feature_sets_, self.models_, strict=True))

    def _parts_to_fit(self, n_features: int, *, stream: bool = False) -> list[Part]:
        sets = [list(range(n_features))]
        if self.feature_sets is not None:
            sets = check_feature_sets(self.feature_sets, Recipe.of(self, n_features))
        last = getattr(self, "feature_sets_", None)
        if stream and last not in (None, sets):
            raise ValueError(f"feature_sets is now {sets}, but the model has {last}: use fit.")
        names = SharedKernelMixture._get_param_names()
        settings = {name: value for name, value in self.get_params(deep=False).items() if name in names}
        parts: list[Part] = []
        # A stream goes on from its models, and a file does not keep what they began with.
        starts = [model.init for model in self.models_] if stream and last == sets else self._starts(sets)
        for number, (columns, start) in enumerate(zip(sets, starts, strict=True)):
            settings["init"] = "class" if isinstance(start, str) and start == "auto" else start
            if isinstance(self.covariance_prior, tuple) and columns != list(range(n_features)):
                settings["covariance_prior"] = prior_of_columns(self.covariance_prior, columns, n_features)
            if stream and last == sets:
                # Copy the model, so that a failed fit does not change the last one.
                model: SharedKernelMixture = copy(self.models_[number]).set_params(**settings)
            else:
                model = SharedKernelMixture(**settings)
            model.n_features_in_ = len(columns)
            parts.append((columns, model))
        return parts

    def _starts(self, sets: list[list[int]]) -> list[Any]:
        """The start of each feature set."""
        settings = Settings.of(self)
        fitted = settings.fitted_start
        if isinstance(fitted, SharedKernelClassifier):
            if fitted.feature_sets_ != sets:
                raise ValueError(
                    f"init was fitted with feature_sets {fitted.feature_sets_}, and the fit has {sets}."
                )
            return list(fitted.models_)
        starts = self.init if isinstance(self.init, list) else [self.init] * len(sets)
        if len(starts) != len(sets):
            raise ValueError(f"init has {len(starts)} starts, but there are {len(sets)} feature sets.")
        if isinstance(self.init, list) and not all(isinstance(start, dict) for start in starts):
            raise ValueError(f"init as a list must hold dicts, got {self.init!r}.")
        if len(sets) > 1 and isinstance(settings.start, dict | SharedKernelMixture):
            raise ValueError(f"init must be a list of {len(sets)} dicts, one for each feature set.")
        return starts

    def _record(
        self, parts: list[Part], fits: list[Fitted], sizes: FloatArray, prior: FloatArray
    ) -> FitRecord:
        for (_, model), fitted in zip(parts, fits, strict=True):
            replace(fitted, class_count=sizes, class_prior=prior).store(model)
        if isinstance(self.priors, str):
            prior = np.full(len(sizes), 1.0 / len(sizes))
        elif self.priors is not None:
            prior = check_distribution(self.priors, (len(sizes),), "priors")
        return FittedClassifier(
            models=[model for _, model in parts],
            feature_sets=[columns for columns, _ in parts],
            class_prior=prior,
            temperature=1.0,
            threshold=-np.inf,
        )

    def _check_classes(self, classes: np.ndarray) -> None:
        if self.outlier_label is not None:
            decisions.check_outlier_label(self.outlier_label, classes, rejects=self.reject_below is not None)

    def _after_fit(self, training: Training) -> None:
        if self.reject_below is not None:
            crossfit.set_threshold_of_fit(self, training)

    def _absorb_batch(self, batch: Block, classes: np.ndarray, decay: Any) -> None:
        self._check_classes(classes)
        if self.reject_below is None:
            return super()._absorb_batch(batch, classes, decay)
        first = not hasattr(self, "models_")
        if not first and batch.X.shape[0]:
            crossfit.set_threshold_of_batch(self, batch)  # before learning it
        outliers = self._outliers()
        super()._absorb_batch(batch, classes, decay)
        note_rows(self, **outliers)
        if first:
            crossfit.set_threshold_of_batch(self, batch)

    def _insert_class(self, rows: Block, label: Any) -> None:
        if self.priors is not None and not isinstance(self.priors, str):
            raise ValueError(
                f"priors is an array of {len(self.classes_)} classes, without the new one; "
                "use set_params(priors=None) or priors='uniform' first."
            )
        position = streams.position_of_label(self.classes_, label)
        self._check_classes(np.append(self.classes_, label))
        temperature, outliers = self.temperature_, self._outliers()
        correlation = self.__dict__.get("bag_correlation_")
        super()._insert_class(rows, label)
        self.temperature_ = temperature
        note_rows(self, bag_correlation_=correlation)
        if self.reject_below is not None:
            note_rows(self, **outliers)
            # The new class lowers log p(x) of the other classes; its own rows must not be rejected either.
            lowered = self.threshold_ + np.log1p(-self.class_prior_[position])
            self.threshold_ = float(min(crossfit.threshold_of_rows(self, rows), lowered))

    def _outliers(self) -> dict[str, Any]:
        """The attributes by which outliers are recognised."""
        threshold = getattr(self, "threshold_", -np.inf)
        return {"threshold_": threshold, "outlier_blur_": self.__dict__.get("outlier_blur_")}

    # ------------------------------------------------------------ predictions

    def _graph_parts(self) -> dict[str, Any]:
        densities.refuse_shifts(self, "to_onnx", "the graph")
        return {
            "feature_sets": [
                (columns, model._parameters, model.covariance_type_) for columns, model in self._parts()
            ],
            "by_class": True,
            "log_prior": safe_log(self.class_prior_),
            "labels": self.classes_,
            "temperature": float(self.temperature_),
        }

    def predict_log_proba(self, X: ArrayLike, *, errors: Any = None) -> FloatArray:
        """Return log Pr(class j | x), shape (n, L), of rows X (n, M) of any kind that `fit` accepts.

        Log-joints are divided by `temperature_` before they are normalised. A row without any value has the
        class priors. `errors` are the standard deviations of the errors of the values, see `fit`.
        """
        return score_rows(self, X, decisions.log_posteriors, errors=errors)

    def predict_proba(self, X: ArrayLike, *, errors: Any = None) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        return score_rows(self, X, decisions.posteriors, errors=errors)

    def predict(self, X: ArrayLike, *, errors: Any = None) -> np.ndarray:
        """Return the most probable class (n,) of each row of X (n, M), or `outlier_label` for outliers."""
        return score_rows(self, X, decisions.predictions, errors=errors)

    def score_samples(self, X: ArrayLike, *, errors: Any = None) -> FloatArray:
        """Return log p(x) under the class priors, shape (n,), of rows X (n, M); it is low for outliers.

        It is the density of the features: numbers on the scale of the model, not in the units of a file, and
        categories as 0/1 features; see `recipe_`. With errors, see `fit`, it is the density of what was
        measured.
        """
        return score_rows(self, X, densities.log_density, errors=errors)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> float:
        """Return the accuracy on rows X (n, M) with labels y (n,) and weights (n,).

        Rows that `open_rows` opened with labels and weights are scored with these. Without y, a file or data
        frame is scored with its columns `target_name_` and, if it is there, `weight_name_`. `errors` are
        those of the values, see `fit`.
        """
        from sklearn.metrics import accuracy_score  # slow to import

        check_is_fitted(self)
        entered = enter(self, X, y, sample_weight).with_columns_of_fit().with_errors(errors)
        predicted = computed(self.predict(entered.X))
        labels, weights = entered.labels(len(predicted)), entered.weights(len(predicted))
        return float(accuracy_score(labels, predicted, sample_weight=weights))
