"""What the replacements of scikit-learn's mixtures share: rows come in, and scores go out."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy
from functools import wraps
from os import PathLike
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.utils.validation import check_is_fitted

from ..data.dask import is_collection
from ..data.opening import is_elsewhere
from ..data.recipe import Recipe
from ..engine.exponentials import log_normalise, log_sum_exp
from ..engine.numbers import on_host, safe_log
from ..engine.problem import open_source
from ..engine.records import FloatArray, IntArray, Parameters
from ..engine.rows.source import RowSource
from ..engine.scoring import kernel_log_densities, most_likely_kernel
from ..engine.structures import structure_of
from .checks import check_values
from .frames import is_frame, names_of
from .onnx import ExportMixin
from .reasons import ReasonsMixin
from .saving import FileMixin

SINGULAR = (
    "Fitting the mixture model failed because some components have ill-defined empirical covariance (for "
    "instance caused by singleton or collapsed samples). Try to decrease the number of components, increase "
    "reg_covar, or scale the input data."
)
# Methods of scikit-learn that its fits call, and ours do not.
_STEPS = (
    *("_initialize_parameters", "_initialize", "_e_step", "_m_step", "_compute_lower_bound"),
    *("_estimate_log_prob", "_estimate_log_weights", "_get_parameters", "_set_parameters"),
)
_DISPATCH = "array_api_dispatch, under which scikit-learn's own mixture does the work"


def or_scikit_learn(method: Callable[..., Any]) -> Any:
    """Make a method refuse what is not in arrays, and pass arrays of other libraries to scikit-learn."""

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = dict(zip(("y", "sample_weight"), args, strict=False)) | kwargs
        y, weights = arguments.get("y"), arguments.get("sample_weight")
        problem = None
        if is_collection(X):
            problem = f"needs rows in memory, but X is a Dask {type(X).__name__}. Give X.compute()"
        elif is_elsewhere(X):
            problem = f"needs rows in memory, but X is {X!r}. Give an array"
        elif isinstance(y, str | PathLike):
            problem = f"has no labels, but y is {str(y)!r}. Drop that column from X and omit y"
        elif isinstance(weights, str | PathLike):
            problem = f"takes weights as an array, but sample_weight is {str(weights)!r}. Give the numbers"
        elif weights is not None and not self._takes_weights:
            problem = "takes no sample_weight. Use GaussianMixture"
        if problem is not None:
            raise ValueError(f"{type(self).__name__} {problem}, or use {self._instead}.")
        if not get_config()["array_api_dispatch"]:
            return method(self, X, *args, **kwargs)
        if weights is not None:
            raise ValueError(f"sample_weight cannot be combined with {_DISPATCH}, which has no weights.")
        try:
            return getattr(self._theirs, method.__name__, method)(self, X)
        except ValueError as error:
            if "contains NaN" not in str(error):
                raise
            raise ValueError(
                f"Input X contains NaN, which cannot be combined with {_DISPATCH}: it needs all values."
            ) from None

    return call


class DropInMixin(ReasonsMixin, FileMixin, ExportMixin):
    """The methods that score rows, for a subclass of one of scikit-learn's mixtures."""

    _theirs: ClassVar[type]  # the class of scikit-learn that is replaced
    _instead: ClassVar[str] = "SharedKernelMixture"  # what takes files, labels and text
    _takes_weights: ClassVar[bool] = False
    covariance_type: str
    n_components: int
    reg_covar: float
    warm_start: bool
    means_: FloatArray
    covariances_: FloatArray
    precisions_cholesky_: FloatArray
    weights_: FloatArray

    def _scoring(self) -> tuple[Parameters, float]:
        """Kernels with weights (K, 1), and what is added to the logarithm of their mixture."""
        raise NotImplementedError

    # ------------------------------------------------------------ rows

    def _rows(self, X: ArrayLike, *, least: int | None = None) -> np.ndarray:
        """Rows (n, M) of floats; a fit needs `least` of them and notes their features."""
        if least is None:
            check_is_fitted(self)
        for name in _STEPS:
            if getattr(type(self), name, None) is not getattr(self._theirs, name, None):
                raise TypeError(
                    f"{type(self).__name__} overrides {name}, which skmix does not call: derive it from "
                    f"sklearn.mixture.{self._theirs.__name__}."
                )
        if not is_frame(X):
            return check_values(self, on_host(X), least)
        kinds: Any = getattr(getattr(X, "schema", None), "types", None) or getattr(X, "dtypes", ())
        for name, kind in zip(names_of(X), kinds, strict=False):
            # Some data frames would convert dates to numbers.
            if getattr(kind, "kind", None) in ("m", "M") or re.match("date|duration|time", str(kind).lower()):
                raise ValueError(f"Column {str(name)!r} of X holds dates. Give numbers, such as days.")
        try:
            return check_values(self, X, least, names_of(X))
        except (TypeError, ValueError):
            _refuse_text(X)
            raise

    def _open(self, rows: np.ndarray, weights: FloatArray | None = None) -> RowSource:
        """The source of training rows (N, M); refuse those with which a variance must become zero.

        Sums over rows would leave a rounding error in its place.
        """
        source = open_source(rows, None, weights)
        moments, isotropic = source.summary.moments, structure_of(self.covariance_type).isotropic
        constant = np.flatnonzero(moments.low == moments.high)
        has_prior = getattr(self, "covariance_prior", None) is not None
        if self.reg_covar == 0.0 and not has_prior and len(constant) >= (rows.shape[1] if isotropic else 1):
            name, value = [*Recipe.of(self).kinds][constant[0]], moments.low[constant[0]]
            raise ValueError(f"{SINGULAR} Feature {name!r} has no value other than {value:.6g}.")
        return source

    def _continues(self, n_features: int) -> bool:
        """Whether a fit to rows with these features goes on from the last one.

        Raise ValueError if the last fit has another shape: scikit-learn would keep its number of components,
        or fail with an error of NumPy.
        """
        if not (self.warm_start and hasattr(self, "converged_")):
            return False
        kind, shape = self.covariance_type, (self.n_components, n_features)
        structure = structure_of(kind)
        last = self.means_.shape, self.covariances_.shape
        # Tied and diagonal covariances may have the same shape, but only the factor of a matrix has zeros.
        triangular = n_features > 1 and structure.triangular
        same_shapes = last == (shape, structure.shape(*shape))
        if same_shapes and triangular != np.all(self.precisions_cholesky_):
            return True
        raise ValueError(
            f"warm_start=True continues the last fit, which has means of shape {last[0]} and covariances of "
            f"shape {last[1]}, but n_components={shape[0]} and covariance_type={kind!r} with {n_features} "
            "features need others. Set warm_start=False to start anew."
        )

    # ------------------------------------------------------------ scores

    @or_scikit_learn
    def predict(self, X: ArrayLike) -> IntArray:
        """Return the most probable component (n,) of each row of X (n, M)."""
        return most_likely_kernel(self._rows(X), self._scoring()[0], self.covariance_type)

    @or_scikit_learn
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the probability (n, K) of each component for each row of X (n, M)."""
        rows = self._rows(X)
        return self._as_fitted(np.exp(log_normalise(self._log_joint(rows), axis=1)), rows)

    @or_scikit_learn
    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Return the log-density (n,) of each row of X (n, M)."""
        rows = self._rows(X)
        return self._as_fitted(self._log_density(rows), rows)

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, IntArray]:
        """Draw rows (n, M), sorted by component, and return them with their components (n,)."""
        check_is_fitted(self)
        drawing = self
        if not get_config()["array_api_dispatch"]:
            # Weights rounded to single precision may sum to more than one.
            weights = np.asarray(self.weights_, dtype=np.float64)
            drawing = copy(self)
            drawing.weights_ = weights / weights.sum()
        drawn: tuple[FloatArray, IntArray] = self._theirs.sample(drawing, n_samples)  # type: ignore[attr-defined]
        return drawn

    def _log_joint(self, rows: np.ndarray) -> FloatArray:
        """The logarithms (n, K) of weight times density."""
        model = self._scoring()[0]
        return kernel_log_densities(rows, model, self.covariance_type) + safe_log(model.weights[:, 0])

    def _log_density(self, rows: np.ndarray) -> FloatArray:
        return log_sum_exp(self._log_joint(rows), axis=1) + self._scoring()[1]

    def _as_fitted(self, values: FloatArray, rows: np.ndarray) -> FloatArray:
        """Values in the precision of the rows and the fit; log-densities are clipped to finite values."""
        dtype = np.result_type(rows, self.means_)
        return np.maximum(values, np.finfo(dtype).min).astype(dtype, copy=False)

    def _graph_parts(self) -> dict[str, Any]:
        columns, (model, shift) = list(range(self.n_features_in_)), self._scoring()
        return {
            "feature_sets": [(columns, model, self.covariance_type)],
            "log_prior": safe_log(model.weights[:, 0]) + shift,
            "labels": np.arange(len(self.weights_)),
        }


def _refuse_text(frame: Any) -> None:
    """Raise ValueError for the first column of a data frame that has text."""
    for name in names_of(frame):
        try:
            np.asarray(frame[name], dtype=np.float64)
        except (TypeError, ValueError) as error:
            advice = "SharedKernelMixture encodes such columns; or leave it out."
            raise ValueError(f"Column {str(name)!r} of X holds text: {error}. {advice}") from None
