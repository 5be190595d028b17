"""Records of a fit, whose fields are the fitted attributes of an estimator.

The field `means` is the attribute ``means_``. Fits, streams and files create and read these records; only
`of` and `store` access the attributes. Axes are K kernels, L classes and M features; lower-case axes may have
any size.
"""

# Each call of a function below makes a new dataclass field.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from ..engine.kernels import GAUSSIAN, StudentT
from ..engine.records import FloatArray, Parameters

HUGE = float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)
# The squares of larger numbers overflow.
SQUARABLE = 1e154


def _value(
    kind: Any = np.ndarray,
    axes: str | None = None,
    low: float | None = None,
    high: float = HUGE,
    *,
    sums: bool = False,
    **default: Any,
) -> Any:
    """Return a field for a value of type `kind`, with numbers from `low` to `high` if `low` is given.

    An array with `axes` has floating-point numbers, finite by default; capital axes have the same size in all
    arrays of a record. With `sums`, its columns must sum to one.
    """
    low = -HUGE if low is None and axes is not None else low
    bounds = None if low is None else (low, high)
    return field(metadata={"kind": kind, "axes": axes, "bounds": bounds, "sums": sums}, **default)


def _part(record: type) -> Any:
    """Return a field for a record whose values are either all present or all missing."""
    return field(metadata={"record": record}, default=None)


class FitRecord:
    """Base class of records, whose fields are attributes of an estimator, or records of them."""

    @classmethod
    def of(cls, estimator: Any) -> Self | None:
        """Return the record of a fitted estimator; None if a required attribute is missing."""
        found = {}
        for each in fields(cls):  # type: ignore[arg-type]
            record = each.metadata.get("record")
            value = record.of(estimator) if record else getattr(estimator, f"{each.name}_", None)
            if value is not None:
                found[each.name] = value
            elif each.default is MISSING:
                return None
        return cls(**found)

    def store(self, estimator: Any) -> None:
        """Set the attributes of an estimator, and delete those that are None in the record."""
        for name in self.names():
            estimator.__dict__.pop(name, None)
        estimator.__dict__.update(self.attributes())

    def attributes(self) -> dict[str, Any]:
        """Return the values that are not None, by attribute name."""
        found: dict[str, Any] = {}
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, FitRecord):
                found |= value.attributes()
            elif value is not None:
                found[f"{each.name}_"] = value
        return found

    @classmethod
    @cache
    def names(cls) -> dict[str, Any]:
        """Return the fields of all attributes, by attribute name."""
        found: dict[str, Any] = {}
        for each in fields(cls):  # type: ignore[arg-type]
            record = each.metadata.get("record")
            found |= record.names() if record else {f"{each.name}_": each}
        return found

    @classmethod
    def missing(cls, present: set[str]) -> Iterator[str]:
        """Yield the names of required attributes that are not present."""
        for each in fields(cls):  # type: ignore[arg-type]
            record = each.metadata.get("record")
            if record and not present.isdisjoint(record.names()):
                yield from record.missing(present)
            elif each.default is MISSING and f"{each.name}_" not in present:
                yield f"{each.name}_"


@dataclass(frozen=True, kw_only=True)
class History(FitRecord):
    """Course of a fit to rows; marginal and conditional models have none."""

    log_likelihood: float = _value(float, low=-HUGE)  # of all rows, under the best start
    # (p, c): of the rows of each class, and of unlabelled rows, before each pass
    log_likelihood_path: FloatArray = _value(axes="pc")
    start_status: np.ndarray = _value()  # (s,): 'converged', 'stopped' or 'failed'
    # (s,): minus infinity for a start that failed
    start_log_likelihoods: FloatArray = _value(axes="s", low=-np.inf)
    # Whether rows had missing values, and whether they had weights; None in a stream.
    has_gaps: bool | None = _value(bool, default=None)
    has_weights: bool | None = _value(bool, default=None)


@dataclass(frozen=True, kw_only=True)
class WeightPosterior(FitRecord):
    """Posterior of the weights, in a variational fit or with a learnt prior on weights."""

    lower_bound: float = _value(float, low=-HUGE)  # of the log-evidence
    lower_bound_path: FloatArray = _value(axes="s", low=-np.inf)  # (s,): after each pass
    # (K, L): parameters of the Dirichlet distribution of each class
    weight_concentration: FloatArray = _value(axes="KL", low=TINY)


@dataclass(frozen=True, kw_only=True)
class KernelPosterior(FitRecord):
    """Posterior of means and covariances, in a variational fit."""

    mean_precision: FloatArray = _value(axes="K", low=TINY)  # (K,): in rows
    # (K,): degrees of freedom of the Wishart distribution of inverse covariances
    wishart_degrees: FloatArray = _value(axes="K", low=TINY)


@dataclass(frozen=True, kw_only=True)
class LearntPrior(FitRecord):
    """The prior on covariances that ``covariance_prior='auto'`` or ``'weak'`` has learnt."""

    covariance_prior: tuple[float, FloatArray] = _value(tuple)  # rows, and covariance (M, M) or (M,)
    shrinkage: float = _value(float, low=0.0, high=1.0)  # share of the prior in a kernel of average size


@dataclass(frozen=True, kw_only=True)
class Floor(FitRecord):
    """Smallest variance of each feature, with a prior on covariances."""

    resolution: FloatArray = _value(axes="M", low=0.0)  # (M,): zero if unknown
    variance_floor: FloatArray = _value(axes="M", low=0.0)  # (M,)


@dataclass(frozen=True, kw_only=True)
class Shifts(FitRecord):
    """Shifts of the means in each group, with `group_shift`."""

    group_shift: float = _value(float, low=TINY, high=np.inf)  # strength of the prior, in rows
    # (L, K, M): added to the means
    group_shifts: FloatArray = _value(axes="LKM", low=-SQUARABLE, high=SQUARABLE)


@dataclass(frozen=True, kw_only=True)
class Fitted(FitRecord):
    """A fitted mixture."""

    classes: np.ndarray = _value()  # (L,): labels, sorted
    class_prior: FloatArray = _value(axes="L", low=0.0, sums=True)  # (L,)
    class_count: FloatArray = _value(axes="L", low=0.0)  # (L,): labelled rows, or the sum of their weights
    # (L,): the same with the expected shares of rows without a label, of the rows that have a value in the
    # features of this mixture; None in files of versions that did not keep it.
    expected_count: FloatArray | None = _value(axes="L", low=0.0, default=None)
    covariance_type: str = _value(str)
    n_kernels: int = _value(Integral, low=1)
    weights: FloatArray = _value(axes="KL", low=0.0, sums=True)  # (K, L): Pr(kernel | class)
    means: FloatArray = _value(axes="KM", low=-SQUARABLE, high=SQUARABLE)  # (K, M)
    covariances: FloatArray = _value()  # shape by structure, see `Parameters`
    # (K,): degrees of freedom of t kernels
    kernel_degrees: FloatArray | None = _value(axes="K", low=1.0, default=None)
    converged: bool = _value(bool)
    n_iter: int = _value(Integral, low=0)
    weight_prior: FloatArray | None = _value(axes="K", low=TINY, default=None)  # (K,): learnt concentration
    history: History | None = _part(History)
    weight_posterior: WeightPosterior | None = _part(WeightPosterior)
    kernel_posterior: KernelPosterior | None = _part(KernelPosterior)
    prior: LearntPrior | None = _part(LearntPrior)
    floor: Floor | None = _part(Floor)
    shifts: Shifts | None = _part(Shifts)
    stream: dict[str, Any] | None = _value(dict, default=None)  # running statistics, see `Running`
    # Rows of a lower log-density are outliers.
    threshold: float | None = _value(float, low=-np.inf, default=None)
    outlier_blur: FloatArray | None = _value(axes="rM", default=None)  # (R, M): see `log_novelty`

    @property
    def parameters(self) -> Parameters:
        """The parameters of the density."""
        return parameters_of(self, "")

    @property
    def rows_behind(self) -> FloatArray:
        """Expected rows (L,) of each class that the model has seen, or the sum of their weights."""
        return self.class_count if self.expected_count is None else self.expected_count

    @property
    def counted_weights(self) -> FloatArray:
        """Weights (K, L) from the counts of rows alone, without a learnt prior."""
        if self.weight_prior is None:
            return self.weights
        if self.weight_posterior is not None:
            concentration = self.weight_posterior.weight_concentration
        else:
            # After `add_class`, only the posterior means are left.
            concentration = self.weights * (self.rows_behind + self.weight_prior.sum())
        return shares_of(np.maximum(concentration - self.weight_prior[:, None], 0.0), self.weights)

    def with_parameters(self, parameters: Parameters) -> Fitted:
        """Return the record with other parameters."""
        return replace(self, **fields_of(parameters))

    def moved(self, parameters: Parameters) -> Fitted:
        """Return the record with other kernels, without the posteriors and statistics of the old ones."""
        moved = self.with_parameters(parameters)
        moved = replace(moved, weight_posterior=None, kernel_posterior=None, stream=None)
        return replace(moved, threshold=None, outlier_blur=None)


def shares_of(counts: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Normalise counts (K, L) by class; classes without counts get the shares `otherwise` (K, L)."""
    total = counts.sum(axis=0)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), otherwise)


def fields_of(parameters: Parameters) -> dict[str, Any]:
    """Return the fields of a `Fitted` that hold parameters."""
    return {
        "weights": parameters.weights,
        "means": parameters.means,
        "covariances": parameters.covariances,
        "n_kernels": len(parameters.means),
        "kernel_degrees": parameters.tail.degrees,
    }


def parameters_of(fitted: Any, ending: str = "_") -> Parameters:
    """Return the parameters of a fitted mixture, or of a record with an empty `ending` of names."""
    degrees = getattr(fitted, f"kernel_degrees{ending}", None)
    weights, means, covariances = (
        getattr(fitted, f"{name}{ending}") for name in ("weights", "means", "covariances")
    )
    return Parameters(weights, means, covariances, tail=GAUSSIAN if degrees is None else StudentT(degrees))


@dataclass(frozen=True, kw_only=True)
class FittedClassifier(FitRecord):
    """A fitted classifier: one mixture per feature set."""

    models: list[Any] = _value(list)
    feature_sets: list[list[int]] = _value(list)  # columns of each model
    class_prior: FloatArray = _value(axes="L", low=0.0, sums=True)  # (L,)
    # Beyond these bounds, the log-joints of distant rows would overflow.
    temperature: float = _value(float, low=1e-100, high=1e100)
    threshold: float = _value(float, low=-np.inf)  # rows of a lower log-density are outliers
    outlier_blur: FloatArray | None = _value(axes="rM", default=None)  # (R, M): see `log_novelty`
    tuned: dict[str, Any] | None = _value(dict, default=None)  # report of `tune`


@dataclass(frozen=True, kw_only=True)
class FittedGaussian(FitRecord):
    """A fitted Gaussian mixture, with scikit-learn's attributes."""

    weights: FloatArray = _value(axes="K", low=0.0, sums=True)  # (K,)
    means: FloatArray = _value(axes="KM", low=-SQUARABLE, high=SQUARABLE)  # (K, M)
    covariances: FloatArray = _value()
    precisions: FloatArray = _value()
    precisions_cholesky: FloatArray = _value()
    converged: bool = _value(bool)
    n_iter: int = _value(Integral, low=0)
    lower_bound: float = _value(float, low=-np.inf)
    lower_bounds: list[float] = _value(list)


@dataclass(frozen=True, kw_only=True)
class FittedBayesian(FittedGaussian):
    """A fitted variational Gaussian mixture, with scikit-learn's attributes."""

    # (K,), or two of them for a Dirichlet process
    weight_concentration: Any = _value((tuple, np.ndarray), low=TINY)
    weight_concentration_prior: float = _value(Real, low=TINY)
    mean_precision: FloatArray = _value(axes="K", low=TINY)  # (K,)
    mean_precision_prior: float = _value(Real, low=TINY)
    mean_prior: FloatArray = _value(axes="M")  # (M,)
    degrees_of_freedom: Any = _value((np.ndarray, Real), low=TINY)  # (K,), or one for tied covariances
    degrees_of_freedom_prior: float = _value(Real, low=TINY)
    covariance_prior: Any = _value((np.ndarray, Real), low=-HUGE)  # (M, M), (M,) or one variance


@dataclass(frozen=True, kw_only=True)
class FittedSearch(FitRecord):
    """A fitted search; subclasses add its members."""

    best_index: int = _value(Integral, low=0)
    best_params: dict[str, Any] = _value(dict)
    best_score: float = _value(float)
    cv_results: dict[str, Any] = _value(dict)
    n_untried: int = _value(Integral, low=0)


@dataclass(frozen=True, kw_only=True)
class FittedClassifierSearch(FittedSearch):
    """A fitted search for a classifier."""

    classifiers: list[Any] = _value(list)
    feature_maps: list[Any] = _value(list)  # of each member: a tuple or None


@dataclass(frozen=True, kw_only=True)
class FittedMixtureSearch(FittedSearch):
    """A fitted search for a mixture."""

    mixtures: list[Any] = _value(list)
    shares: FloatArray = _value(axes="S", low=0.0, sums=True)  # (S,): of the members in the average
    # Rows of a lower log-density are outliers.
    threshold: float | None = _value(float, low=-np.inf, default=None)
    outlier_blur: FloatArray | None = _value(axes="rM", default=None)  # (R, M): see `log_novelty`


@dataclass(frozen=True, kw_only=True)
class RowsOfFit(FitRecord):
    """Features and preparation of the training rows, which all estimators keep."""

    n_features_in: int = _value(Integral, low=1)
    feature_names_in: np.ndarray | None = _value(default=None)  # (M,)
    # Encoding of columns, scale and compensation of files; None if numbers were used unchanged.
    preparation: dict[str, Any] | None = _value(dict, default=None)
    metadata: dict[str, Any] | None = _value(dict, default=None)  # set by the user or the command line
