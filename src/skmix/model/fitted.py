"""Records of a fit, whose fields are the fitted attributes of an estimator.

The field `means` is the attribute ``means_``; only `of` and `store` access attributes. Axes are K kernels, L
classes and M features; lower-case axes may have any size.
"""

# Each call of a function below makes a new dataclass field.
# ruff: noqa: RUF009

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from numbers import Integral
from typing import Any, Self

import numpy as np

from ..engine.kernels import GAUSSIAN, StudentT
from ..engine.records import FloatArray, Parameters

HUGE = float(np.finfo(np.float64).max)
TINY = float(np.finfo(np.float64).tiny)
# The squares of larger numbers overflow.
SQUARABLE = 1e154


# ---------------------------------------------------------------- fields


def typed(kind: Any = np.ndarray, low: float | None = None, high: float = HUGE, **default: Any) -> Any:
    """A field for a value of type `kind`, with numbers from `low` to `high` if `low` is given."""
    bounds = None if low is None else (low, high)
    return field(metadata={"kind": kind, "axes": None, "bounds": bounds, "sums": False}, **default)


def array(
    axes: str | dict[str, str],
    low: float = -HUGE,
    high: float = HUGE,
    *,
    kind: Any = np.ndarray,
    sums: bool = False,
    **default: Any,
) -> Any:
    """A field for an array of floating-point numbers, finite by default, whose columns sum to one if `sums`.

    Axes of the same capital letter have the same size in all arrays of a record. They may depend on a setting
    of the estimator.
    """
    return field(metadata={"kind": kind, "axes": axes, "bounds": (low, high), "sums": sums}, **default)


def _part(record: type) -> Any:
    """A field for a record whose values are either all present or all missing."""
    return field(metadata={"record": record}, default=None)


def check_value(
    name: str, value: Any, expected: Mapping[str, Any], sizes: dict[str, int], settings: Sequence[Any]
) -> None:
    """Raise ValueError unless a value fits the metadata of its field, given `settings` of the estimator.

    `sizes` are of axes, by letter; note those of axes that are new.
    """
    kind, axes = expected["kind"], expected["axes"]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"{name} is a {type(value).__name__}")
    if isinstance(axes, dict):
        axes = next(axes[setting] for setting in settings if setting in axes)
    if axes is not None:
        _check_shape(name, np.asarray(value), axes, sizes)
    if expected["bounds"] is not None:
        check_range(name, value, *expected["bounds"])
    if expected["sums"]:
        sums = np.ravel(value.sum(axis=0, dtype=np.float64))
        worst = sums[np.argmax(np.abs(sums - 1.0))]
        if abs(worst - 1.0) > (1e-4 if value.dtype == np.float32 else 1e-6):
            raise ValueError(f"{name} must sum to one, got a sum of {worst:.6g}")


def _check_shape(name: str, array: np.ndarray, axes: str, sizes: dict[str, int]) -> None:
    if axes and array.dtype not in (np.float64, np.float32):
        raise ValueError(f"{name} is of type {array.dtype}")
    named = {axis: n for axis, n in zip(axes, array.shape, strict=False) if axis.isupper()}
    if array.ndim != len(axes) or any(n == 0 or sizes.setdefault(axis, n) != n for axis, n in named.items()):
        shape = ", ".join(str(sizes.get(axis, axis)) for axis in axes)
        raise ValueError(f"{name} has shape {array.shape}, not ({shape})")


def check_range(name: str, values: Any, lowest: float, highest: float) -> None:
    """Raise ValueError for NaN and for numbers outside a closed interval."""
    values = np.asarray(values, dtype=np.float64)  # float32 could not hold the bounds
    for wrong in values[~((values >= lowest) & (values <= highest))][:1]:
        why = f"between {lowest:g} and {highest:g}" if np.isfinite(wrong) else "a finite number"
        raise ValueError(f"{name} has {wrong}, which is not {why}")


class FitRecord:
    """Base class of records, whose fields are attributes of an estimator, or records of them."""

    @classmethod
    @cache
    def names(cls) -> dict[str, Field[Any]]:
        """The fields of all attributes, by attribute name."""
        by_name: dict[str, Field[Any]] = {}
        for item in fields(cls):  # type: ignore[arg-type]
            record = item.metadata.get("record")
            by_name |= record.names() if record else {f"{item.name}_": item}
        return by_name

    @classmethod
    def of(cls, estimator: Any) -> Self | None:
        """The record of a fitted estimator; None if a required attribute is missing."""
        values = {}
        for item in fields(cls):  # type: ignore[arg-type]
            record = item.metadata.get("record")
            value = record.of(estimator) if record else getattr(estimator, f"{item.name}_", None)
            if value is not None:
                values[item.name] = value
            elif item.default is MISSING:
                return None
        return cls(**values)

    def store(self, estimator: Any) -> None:
        """Set the attributes of an estimator, and delete those that are None in the record."""
        for name in self.names():
            estimator.__dict__.pop(name, None)
        estimator.__dict__.update(self.attributes())

    def attributes(self) -> dict[str, Any]:
        """The values that are not None, by attribute name."""
        values: dict[str, Any] = {}
        for item in fields(self):  # type: ignore[arg-type]
            value = getattr(self, item.name)
            if isinstance(value, FitRecord):
                values |= value.attributes()
            elif value is not None:
                values[f"{item.name}_"] = value
        return values

    @classmethod
    def needed(cls, present: set[str]) -> Iterator[str]:
        """Yield the names of attributes, without groups of which none is present."""
        for item in fields(cls):  # type: ignore[arg-type]
            record = item.metadata.get("record")
            if not record:
                yield f"{item.name}_"
            elif not present.isdisjoint(record.names()):
                yield from record.needed(present)


# ---------------------------------------------------------------- mixtures


@dataclass(frozen=True, kw_only=True)
class History(FitRecord):
    """Course of a fit to rows; marginal and conditional models have none."""

    log_likelihood: float = typed(float, low=-HUGE)  # of all rows, under the best start
    # Of the rows of each class, and of unlabelled rows, before each pass.
    log_likelihood_path: FloatArray = array("pc")
    start_status: np.ndarray = typed()  # (s,): 'converged', 'stopped' or 'failed'
    start_log_likelihoods: FloatArray = array("s", low=-np.inf)  # minus infinity for a start that failed
    # Whether rows had missing values, weights, and values with errors; None in a stream.
    has_gaps: bool | None = typed(bool, default=None)
    has_weights: bool | None = typed(bool, default=None)
    has_errors: bool | None = typed(bool, default=None)


@dataclass(frozen=True, kw_only=True)
class WeightPosterior(FitRecord):
    """Posterior of the weights, in a variational fit or with a learnt prior on weights."""

    lower_bound: float = typed(float, low=-HUGE)  # of the log-evidence
    lower_bound_path: FloatArray = array("s", low=-np.inf)  # after each pass
    weight_concentration: FloatArray = array("KL", low=TINY)  # of the Dirichlet distribution of each class


@dataclass(frozen=True, kw_only=True)
class KernelPosterior(FitRecord):
    """Posterior of means and covariances, in a variational fit."""

    mean_precision: FloatArray = array("K", low=TINY)  # in rows
    # Degrees of freedom of the Wishart distribution of inverse covariances.
    wishart_degrees: FloatArray = array("K", low=TINY)


@dataclass(frozen=True, kw_only=True)
class LearntPrior(FitRecord):
    """The prior on covariances that ``covariance_prior='auto'`` or ``'weak'`` has learnt."""

    covariance_prior: tuple[float, FloatArray] = typed(tuple)  # rows, and covariance (M, M) or (M,)
    shrinkage: float = typed(float, low=0.0, high=1.0)  # share of the prior in a kernel of average size


@dataclass(frozen=True, kw_only=True)
class Floor(FitRecord):
    """Smallest variance of each feature, with a prior on covariances."""

    resolution: FloatArray = array("M", low=0.0)  # zero if unknown
    variance_floor: FloatArray = array("M", low=0.0)


@dataclass(frozen=True, kw_only=True)
class Shifts(FitRecord):
    """Shifts of the means in each group, with `group_shift`."""

    group_shift: float = typed(float, low=TINY, high=np.inf)  # strength of the prior, in rows
    group_shifts: FloatArray = array("LKM", low=-SQUARABLE, high=SQUARABLE)  # added to the means


@dataclass(frozen=True, kw_only=True)
class Fitted(FitRecord):
    """A fitted mixture."""

    classes: np.ndarray = typed()  # (L,): labels, sorted
    class_prior: FloatArray = array("L", low=0.0, sums=True)
    class_count: FloatArray = array("L", low=0.0)  # labelled rows, or the sum of their weights
    # The same with the expected shares of rows without a label, of the rows that have a value in the features
    # of this mixture; None in files of versions that did not keep it.
    expected_count: FloatArray | None = array("L", low=0.0, default=None)
    covariance_type: str = typed(str)
    n_kernels: int = typed(Integral, low=1)
    weights: FloatArray = array("KL", low=0.0, sums=True)  # Pr(kernel | class)
    means: FloatArray = array("KM", low=-SQUARABLE, high=SQUARABLE)
    covariances: FloatArray = typed()  # shape by structure, see `Parameters`
    kernel_degrees: FloatArray | None = array("K", low=1.0, default=None)  # of t kernels
    converged: bool = typed(bool)
    n_iter: int = typed(Integral, low=0)
    weight_prior: FloatArray | None = array("K", low=TINY, default=None)  # learnt concentration
    history: History | None = _part(History)
    weight_posterior: WeightPosterior | None = _part(WeightPosterior)
    kernel_posterior: KernelPosterior | None = _part(KernelPosterior)
    prior: LearntPrior | None = _part(LearntPrior)
    floor: Floor | None = _part(Floor)
    shifts: Shifts | None = _part(Shifts)
    stream: dict[str, Any] | None = typed(dict, default=None)  # running statistics, see `Running`
    threshold: float | None = typed(float, low=-np.inf, default=None)  # lower log-densities are outliers
    outlier_blur: FloatArray | None = array("rM", default=None)  # see `log_novelty`

    @property
    def parameters(self) -> Parameters:
        """The parameters of the density."""
        tail = GAUSSIAN if self.kernel_degrees is None else StudentT(self.kernel_degrees)
        return Parameters(self.weights, self.means, self.covariances, tail=tail)

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
        """The record with other parameters."""
        return replace(self, **fields_of(parameters))

    def moved(self, parameters: Parameters) -> Fitted:
        """The record with other kernels, without the posteriors and statistics of the old ones."""
        moved = replace(self.with_parameters(parameters), weight_posterior=None, kernel_posterior=None)
        return replace(moved, stream=None, threshold=None, outlier_blur=None)


def shares_of(counts: FloatArray, otherwise: FloatArray) -> FloatArray:
    """Normalise counts (K, L) by class; classes without counts get the shares `otherwise` (K, L)."""
    total = counts.sum(axis=0)
    return np.where(total > 0, counts / np.where(total > 0, total, 1.0), otherwise)


def fields_of(parameters: Parameters) -> dict[str, Any]:
    """The fields of a `Fitted` that hold parameters."""
    return {
        "weights": parameters.weights,
        "means": parameters.means,
        "covariances": parameters.covariances,
        "n_kernels": len(parameters.means),
        "kernel_degrees": parameters.tail.degrees,
    }


def parameters_of(mixture: Any) -> Parameters:
    """The parameters of a fitted mixture."""
    degrees = getattr(mixture, "kernel_degrees_", None)
    tail = GAUSSIAN if degrees is None else StudentT(degrees)
    return Parameters(mixture.weights_, mixture.means_, mixture.covariances_, tail=tail)


# ---------------------------------------------------------------- other estimators


@dataclass(frozen=True, kw_only=True)
class FittedClassifier(FitRecord):
    """A fitted classifier: one mixture per feature set."""

    models: list[Any] = typed(list)
    feature_sets: list[list[int]] = typed(list)  # columns of each model
    class_prior: FloatArray = array("L", low=0.0, sums=True)
    # Beyond these bounds, the log-joints of distant rows would overflow.
    temperature: float = typed(float, low=1e-100, high=1e100)
    threshold: float = typed(float, low=-np.inf)  # lower log-densities are outliers
    outlier_blur: FloatArray | None = array("rM", default=None)  # see `log_novelty`
    bag_correlation: float | None = typed(float, low=0.0, high=1.0, default=None)  # of rows in a bag
    tuned: dict[str, Any] | None = typed(dict, default=None)  # report of `tune`
