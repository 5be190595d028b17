"""What the mixture and the classifier share: fits, streams, imputation, draws and models of some columns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import replace
from functools import cache, partial
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, _fit_context
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, InvalidParameterError, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._errors import Argument, ArgumentError
from .._words import nearest
from ..data.labels import code_labels
from ..data.recipe import Recipe
from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from ..engine.structures import STRUCTURES
from ..engine.threads import one_blas_thread
from . import densities, derived, streams
from .arguments import check_count
from .callbacks import CallbackSupportMixin, Step, after_pass, fit_task
from .checks import computed, updating, warn_caller
from .fitted import FitRecord, Fitted, FittedClassifier, parameters_of
from .frames import in_columns, is_frame
from .measured import with_drawn_errors
from .onnx import ExportMixin
from .reasons import ReasonsMixin
from .rows import Rows, enter, score_rows
from .saving import FileMixin
from .settings import Settings, refuse_low_rank
from .solving import fit_mixture
from .summary import SummaryMixin
from .training import Training, refuse_unlabelled

Part = tuple[list[int], Any]
"""Columns, and the mixture of their features."""
_COUNT = Interval(Integral, 1, None, closed="left")


class SharedKernelBase(
    ReasonsMixin, FileMixin, ExportMixin, SummaryMixin, CallbackSupportMixin, BaseEstimator
):
    """Methods of the mixture and the classifier. Subclasses define the constructor."""

    n_features_in_: int
    classes_: np.ndarray
    class_prior_: FloatArray
    _parameter_constraints: dict[str, list[Any]] = {  # noqa: RUF012
        "n_kernels": [_COUNT, None],
        "covariance_type": [StrOptions({"auto", *STRUCTURES})],
        "tail": [StrOptions({"t"}), None],
        "degrees": [Interval(Real, 1.0, None, closed="left"), None],
        "init": [StrOptions({"auto", "class", "k-means", "random_from_data", "uniform"}), dict],
        "freeze": [StrOptions({"kernels", "weights"}), None],
        "n_init": [_COUNT],
        "max_iter": [_COUNT],
        "tol": [Interval(Real, 0.0, None, closed="left"), StrOptions({"auto"})],
        "stopping": [StrOptions({"total", "per-class"})],
        "variance_floor": [Interval(Real, 0.0, None, closed="left")],
        "covariance_prior": [
            StrOptions({"auto", "weak"}),
            Interval(Real, 0.0, None, closed="neither"),
            tuple,
            None,
        ],
        "weight_prior": [Interval(Real, 0.0, None, closed="neither"), StrOptions({"hierarchical"}), None],
        "inference": [StrOptions({"em", "variational"})],
        "device": [str, None],
        "n_jobs": [Interval(Integral, None, -1, closed="right"), _COUNT, None],
        "random_state": ["random_state"],
    }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def __sklearn_clone__(self) -> Any:
        """Return an unfitted estimator with the same settings; a fitted mixture as `init` stays fitted."""
        other = super().__sklearn_clone__()
        if isinstance(self.init, BaseEstimator):
            other.init = deepcopy(self.init)
        return other

    @classmethod
    @cache
    def _get_param_names(cls) -> list[str]:
        # Searches copy estimators often, and scikit-learn inspects the constructor each time.
        names: list[str] = super()._get_param_names()
        return names

    def _validate_params(self) -> None:
        refuse_low_rank(self.covariance_type)
        try:
            super()._validate_params()
        except InvalidParameterError as error:
            value, names = re.search("Got '(.+)' instead", str(error)), re.findall("'([^']+)'", str(error))
            hint = nearest(value[1], names[1:-1]) if value else ""
            raise InvalidParameterError(f"{error}{hint}") from None

    def _parts(self) -> list[Part]:
        """Return the parts of the model; a mixture is its only part."""
        return [(list(range(parameters_of(self).means.shape[1])), self)]

    def _parts_to_fit(self, n_features: int, *, stream: bool = False) -> list[Part]:
        """Return the parts to fit to rows, or to a batch of a stream."""
        return [(list(range(n_features)), self)]

    def _record(
        self, parts: list[Part], fits: list[Fitted], sizes: FloatArray, prior: FloatArray
    ) -> FitRecord:
        """Return the record of the model, given the fits of its parts; store them in their mixtures.

        `sizes` (L,) and `prior` (L,) of the classes refer to all rows: a row without a value in some part
        still counts for its class.
        """
        return replace(fits[0], class_count=sizes, class_prior=prior)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> Self:
        """Fit the model, by EM or variational inference.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN, or the mask of a masked array, marks a value that is missing at random. Or rows in
            blocks: the path of a file, an AnnData, the result of `open_rows`, or a Dask collection. Or
            several files, each of which is a class: a list, a folder or a pattern, see `open_rows`.
        y : array-like of shape (N,), default=None
            Class labels of any type. NaN, None, a mask and the number -1 mark rows without a label. But -1
            and one other label are two classes, and an ambiguous -1 is refused. For rows in a file or data
            frame, also the name of a column; for a file, also the path of another file.
        sample_weight : array-like of shape (N,), default=None
            Weights of the rows: a row of weight two counts as two rows, and a row of weight zero is ignored.
            So where rows are counted, in priors and in ``tol='auto'``, the scale of the weights matters:
            weights that only say how rows compare should average one. A class whose rows all have weight zero
            is not in `classes_`. Masked weights are refused.
        errors : array-like of shape (N, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, which are normal and independent: the model is
            then that of the values without errors. Zero marks an exact value; NaN or infinity an unknown
            error, so that the value counts as missing. For a data frame or a table, also a data frame or the
            path of a table with the same columns; or the columns of X that hold errors, which are then no
            features: a dict such as ``{"age": "age_err"}``, or their suffix, ``"_err"``. Columns that it does
            not name are exact. Files are read whole. `errors` cannot be combined with t kernels, encoded
            columns or Dask collections, and passes run on the CPU.

        Returns
        -------
        estimator
            The fitted estimator.
        """
        settings = Settings.of(self)
        # Idle BLAS threads would wait actively, at the cost of ours.
        with updating(self), one_blas_thread():
            training = enter(self, X, y, sample_weight, errors=errors).training()
            training.warn_of_ungrouped(self)
            n_rows = training.source.summary.n_rows
            if (settings.n_kernels or 0) > n_rows and settings.freeze != "kernels":
                kernels = Argument("n_kernels", settings.n_kernels)
                raise ArgumentError(kernels, f" is more than the {n_rows} rows: use fewer kernels.")
            self._check_classes(training.classes)
            # Callbacks get copies of this estimator, which must not have attributes of an earlier fit.
            for name in {*Fitted.names(), *FittedClassifier.names()}:
                self.__dict__.pop(name, None)
            parts = self._parts_to_fit(training.n_features)
            for columns, model in parts:
                covariance_type = Settings.of(model).covariance_type_for(n_rows, len(columns))
                if settings.covariance_type == "auto" and covariance_type != "full":
                    warn_caller(
                        f"{n_rows} rows have {len(columns)} features: covariance_type='auto' uses "
                        f"{covariance_type!r}, without correlations inside kernels. Set covariance_type to "
                        "choose."
                    )
            with fit_task(self, X, y, sample_weight, len(parts)) as step:
                self._fit_parts(parts, training, step)
                self._after_fit(training)
        return self

    def _fit_parts(self, parts: list[Part], training: Training, step: Step | None = None) -> None:
        """Fit the parts and set the attributes of the model; `step` is told of each pass."""
        refuse_unlabelled(training.n_unlabelled, len(parts))

        def record(parts: list[Part], fits: list[Fitted]) -> FitRecord:
            prior = fits[0].class_prior if training.n_unlabelled else training.class_prior
            return self._record(parts, fits, training.sizes, prior)

        def attributes(so_far: Fitted) -> dict[str, Any]:
            # Copies, so that a callback may keep the model.
            return record([(columns, copy(model)) for columns, model in parts], [so_far]).attributes()

        # With several feature sets there is no model before the last of them is fitted.
        so_far = attributes if len(parts) == 1 else None
        fits: list[Fitted] = []
        for number, (columns, model) in enumerate(parts):
            rows = training.with_features(columns, number)
            watch = after_pass(step, rows.source.summary.total, so_far)
            fits.append(fit_mixture(Settings.of(model), rows, columns, watch))
        record(parts, fits).store(self)

    def _check_classes(self, classes: np.ndarray) -> None:
        """Check settings that depend on the labels (L,) of the classes."""

    def _after_fit(self, training: Training) -> None:
        """Set attributes that need the fitted model."""

    def _absorb_batch(self, batch: Block, classes: np.ndarray, decay: Any) -> None:
        """Update the model with a batch, given all labels (L,) of the stream."""
        streams.absorb_batch(self, batch, classes, decay)

    def _insert_class(self, rows: Block, label: Any) -> None:
        streams.add_class(self, rows, label, streams.position_of_label(self.classes_, label))

    @available_if(streams.check_streams)
    @_fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
        decay: float = 0.6,
    ) -> Self:
        """Update the model with one batch of a stream.

        The first batch is fitted as by `fit`, with a weak prior on covariances; it should have about twenty
        rows per kernel. Every further batch updates the mean statistics of a row, with a share that decreases
        with the number of rows before it, those of an earlier `fit` included. `partial_fit` cannot be
        combined with variational inference, a `tail` or a `group_shift`.

        Parameters
        ----------
        X : array-like of shape (n, M)
            The batch; NaN marks a missing value. A file is read whole.
        y : array-like of shape (n,), default=None
            Labels; NaN and None mark rows without one, and so does -1 unless it is among `classes`. None for
            an ordinary mixture.
        classes : array-like of shape (L,), default=None
            All class labels of the stream; a classifier needs them in the first call.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows: as many rows each stands for, also beside those of earlier batches.
        errors : array-like of shape (n, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, see `fit`.
        decay : float, default=0.6
            How fast earlier batches are forgotten: a batch that is one t-th of all rows so far, such as the
            t-th of equal batches, has a share of t^-decay. It must be above 0.5 and at most 1.

        Returns
        -------
        estimator
            The estimator. Its `log_likelihood_` is that of the batch before the update.
        """
        Settings.of(self)
        with updating(self):
            batch = streams.read_batch(self, X, y, classes, sample_weight, errors)
            self._absorb_batch(*batch, decay)
        return self

    @_fit_context(prefer_skip_nested_validation=True)
    def add_class(
        self, X: ArrayLike, label: Any, *, sample_weight: ArrayLike | None = None, errors: Any = None
    ) -> Self:
        """Learn another class without changing the kernels or the other classes.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows of the new class. Files are read whole.
        label : int, str, …
            Label of the new class, of the same kind as the others.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.
        errors : array-like of shape (n, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, see `fit`.

        Returns
        -------
        estimator
            The estimator with the new class, whose prior is its share of all labelled rows. If a classifier
            has an array of `priors`, change this setting first.

        Notes
        -----
        A mixture with a `group_shift` r adapts to the new group by relevance MAP adaptation [1]_. A kernel
        with mean μ, and with m expected rows of the group whose mean is x̄, gets the mean a x̄ + (1 - a) μ in
        the group, where a = m / (m + r). Its weight is proportional to a m / n + (1 - a) π, for n rows of the
        group and its weight π in all classes together. Both steps are repeated until convergence; a single
        pass is customary for speakers. With a `weight_prior`, the prior determines the weights instead.

        References
        ----------
        .. [1] Reynolds, D. A., Quatieri, T. F. and Dunn, R. B. (2000). Speaker verification using adapted
           Gaussian mixture models. Digital Signal Processing 10, 19-41.
        """
        check_is_fitted(self)
        Settings.of(self)
        with updating(self):
            self._insert_class(streams.rows_of_class(self, X, sample_weight, errors), label)
        return self

    def class_log_likelihood(self, X: ArrayLike, *, errors: Any = None) -> FloatArray:
        """Return log p(x | class j), shape (n, L), of rows X (n, M), summed over feature sets.

        With errors, see `fit`, it is the density of what was measured, x, and not of the values behind it.
        """
        return score_rows(self, X, densities.class_log_likelihood, errors=errors)

    def impute(self, X: ArrayLike, y: ArrayLike | None = None, *, errors: Any = None) -> FloatArray:
        """Replace missing values, and values with errors, by their conditional means.

        The mean is over kernels and, without `y`, over classes. It minimises the expected squared error, but
        filled rows vary less than complete ones. It is the mean of the features: a missing number on a scale
        is the mean on that scale, in the units of its column, and a missing category is the likeliest one.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Rows, of any kind that `fit` accepts; NaN marks a missing value.
        y : array-like of shape (n,), default=None
            Labels, if they are known; those that rows were opened with count too.
        errors : array-like of shape (n, M), data frame, dict or str, default=None
            Standard deviations of the errors of the values, see `fit`.

        Returns
        -------
        ndarray of shape (n, M) or pandas.DataFrame
            Rows with unchanged observed values, but for those with errors. Columns in no feature set keep
            their missing values. If the model prepares the rows, see `recipe_`, a data frame of the columns,
            with text as categories; categories that it does not know count as missing. Columns of a pandas
            data frame that have no gap keep their type.
        """
        rows = self._labelled(X, y, errors=errors)
        if not rows.is_in_units:
            return rows.scores(densities.impute, on_cpu=True)
        impute = partial(densities.impute_columns, Recipe.of(self))
        filled = rows.scores(impute, on_cpu=True, scaled=False)
        return in_columns(self, filled, rows.X, rows.encoded if is_frame(rows.X) else None)

    def sample(
        self, n_samples: int = 1, label: Any = None, *, errors: ArrayLike | None = None
    ) -> tuple[Any, np.ndarray]:
        """Draw rows and their labels from the model.

        Parameters
        ----------
        n_samples : int, default=1
            Number n of rows.
        label : int, str, …, default=None
            Class of the rows. Without it, classes are drawn from `class_prior_`.
        errors : array-like of shape (n, M) or (M,), default=None
            Standard deviations of errors to add to the values, which have none by default.

        Returns
        -------
        X : ndarray of shape (n, M) or pandas.DataFrame
            Rows; columns in no feature set are NaN. A model with a `recipe_` returns a data frame of the
            columns that it was fitted to: numbers in their units, compensated if the model compensates, and
            categories with the shares that they have in the kernels.
        y : ndarray of shape (n,)
            Their labels.
        """
        X, y = self._draw(n_samples, label)
        if errors is not None:
            X = with_drawn_errors(self, X, errors)
        return in_columns(self, Recipe.of(self).from_scale(X)) if hasattr(self, "recipe_") else X, y

    def _draw(self, n_samples: int, label: Any) -> tuple[FloatArray, np.ndarray]:
        """Draw features (n, M) and labels (n,)."""
        check_is_fitted(self)
        check_count(n_samples, "n_samples must be")
        random_state = check_random_state(self.random_state)
        if label is None:
            codes = random_state.choice(len(self.classes_), n_samples, p=self.class_prior_)
        else:
            codes = np.repeat(code_labels([label], self.classes_, 1), n_samples)
        return densities.draw_rows(self, codes, random_state), self.classes_[codes]

    def marginal(self, features: Sequence[int | str]) -> Self:
        """Return the marginal model of some columns, given by index or name in the new order.

        Columns keep their scale and all their categories, so the new model takes the same files and data
        frames, and ignores the other columns. It has no attributes that describe training rows, such as
        `log_likelihood_`. A classifier keeps its temperature, but not its threshold.
        """
        check_is_fitted(self)
        return derived.marginal(self, features)

    def condition(self, given: Mapping[int | str, Any]) -> Self:
        """Return the conditional model of the other columns, given values by column index or name.

        Values are in the units of the columns, whatever the scale of the model; those of a column of text are
        categories of the training rows. The weights of each class become its responsibilities for the given
        values, and `class_prior_` becomes the posterior of the classes. The new model predicts the same
        classes for the other columns as this model does for complete rows. It keeps their scale and
        categories: `means_` and `covariances_` describe its features, on that scale, while `sample` and
        `impute` return columns in their units. It has no attributes that describe training rows.
        """
        check_is_fitted(self)
        return derived.condition(self, given)

    def _labelled(self, X: Any, y: Any, sample_weight: Any = None, errors: Any = None) -> Rows:
        """Return rows for this fitted model, with the labels y (n,) or those they were opened with."""
        if not hasattr(self, "class_prior_"):
            check_is_fitted(self)
        return enter(self, X, y, sample_weight, errors=errors).with_own_labels()

    def _total_score(
        self, X: Any, y: Any = None, sample_weight: Any = None, errors: Any = None
    ) -> tuple[float, float, int]:
        rows = self._labelled(X, y, sample_weight, errors)
        scores = computed(rows.scores(densities.log_density))
        return densities.total_score(scores, rows.weights(len(scores)))


SharedKernelBase._parameter_constraints["init"] += [SharedKernelBase, FrozenEstimator]
