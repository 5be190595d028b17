"""Functions of a fitted model: densities, responsibilities, imputation, samples and information criteria.

A density has parts: mixtures of disjoint features, which are independent given the class. A classifier has
one part per feature set; a mixture is its only part. Functions of rows take a fitted estimator or its
`Density`, validated rows (n, M) and, if labels are given, class codes (n,).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce, wraps
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..data.recipe import Recipe
from ..engine import scoring
from ..engine.after.prior import are_separate
from ..engine.exponentials import log_normalise, log_sum_exp
from ..engine.measured import Measured, values_of
from ..engine.numbers import Array, like, namespace, pick, safe_log, to_numpy
from ..engine.records import FloatArray, IntArray, Parameters
from ..engine.structures import structure_of
from .checks import columns_of, warn_caller
from .fitted import parameters_of
from .settings import threads_of

# Smallest share of a category, so that some category can always be drawn.
_TINY = 1e-12
# Smallest mean weight of rows without a warning: weights of mean one may have a smaller mean in some rows.
_LEAST_WEIGHT = 0.9


class Part(NamedTuple):
    """A mixture of m features."""

    features: list[int]
    parameters: Parameters
    covariance_type: str
    shifts: FloatArray | None  # (L, K, m): of the means in each class, None if they are the same


class Density(NamedTuple):
    """The parameters of all parts of a model, and the class prior (L,)."""

    parts: list[Part]
    class_prior: FloatArray
    n_jobs: int | None
    has_shifts: bool  # whether the means differ between classes

    @classmethod
    def of(cls, model: Any) -> Density:
        """The density of a fitted estimator; of a density, itself."""
        if isinstance(model, Density):
            return model
        parts = []
        for features, mixture in model._parts():
            shifts = mixture.group_shifts_ if has_shifts(mixture) else None
            parts.append(Part(features, parameters_of(mixture), mixture.covariance_type_, shifts))
        differ = any(part.shifts is not None for part in parts)
        return cls(parts, model.class_prior_, model.n_jobs, differ)

    def of_class(self, j: int) -> Density:
        """The density of class j alone, with its means."""
        parts = []
        for part in self.parts:
            means, weights = part.parameters.means, part.parameters.weights[:, j : j + 1]
            means = means if part.shifts is None else means + part.shifts[j]
            parameters = replace(part.parameters, means=means, weights=weights)
            parts.append(part._replace(parameters=parameters, shifts=None))
        return Density(parts, np.ones(1), self.n_jobs, has_shifts=False)

    def of_rows(self, rows: Array, function: Any, *more: Any) -> list[Array]:
        """Apply a function of the engine to the rows (n, M) of each part, `more` and its parameters."""
        n_jobs, values = threads_of(self.n_jobs), []
        for features, parameters, covariance_type, _ in self.parts:
            values.append(function(columns_of(rows, features), *more, parameters, covariance_type, n_jobs))
        return values


def has_shifts(model: Any) -> bool:
    """Whether the means of a model differ between classes."""
    shifts = getattr(model, "group_shifts_", None)
    return shifts is not None and bool(shifts.any())


def refuse_shifts(model: Any, method: str, result: str) -> None:
    """Raise ValueError if the means of a model differ between classes, which a method cannot keep."""
    if has_shifts(model):
        raise ValueError(
            f"{method} cannot be combined with group_shift: groups of this mixture differ in their means, "
            f"but {result} has common means. Fit without group_shift."
        )


def _with_means_of_classes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of a density, rows (n, M) and class codes (n,) use the means of each row's class.

    Without codes, `function` averages over classes itself.
    """

    @wraps(function)
    def call(model: Any, rows: Array, codes: IntArray | None = None) -> Any:
        density = Density.of(model)
        if codes is None or not density.has_shifts:
            return function(density, rows, codes)
        of_class = {j: np.flatnonzero(codes == j) for j in np.unique(codes).tolist()}
        values = [
            function(density.of_class(j), pick(rows, some), np.zeros(len(some), dtype=np.int64))
            for j, some in of_class.items()
        ]
        order = np.argsort(np.concatenate([*of_class.values()]))
        return pick(namespace(values[0]).concat(values), order)

    return call


# ---------------------------------------------------------------- densities of rows


def class_log_likelihood(model: Any, rows: Array) -> FloatArray:
    """Logarithms of p(x | class j), shape (n, L)."""
    density = Density.of(model)
    if not density.has_shifts:
        return reduce(add, density.of_rows(rows, scoring.class_log_likelihood))
    n_classes = len(density.class_prior)
    return _side_by_side([class_log_likelihood(density.of_class(j), rows) for j in range(n_classes)])


def log_joint(model: Any, rows: Array) -> FloatArray:
    """Sums log Pr(class j) + log p(x | class j), shape (n, L)."""
    density = Density.of(model)
    likelihood = class_log_likelihood(density, rows)
    return likelihood + like(safe_log(density.class_prior), likelihood)


@_with_means_of_classes
def log_density(density: Density, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Logarithms of p(x | class), or of p(x) without class codes, shape (n,)."""
    if codes is None:
        return log_sum_exp(log_joint(density, rows), axis=1)
    per_class = class_log_likelihood(density, rows)
    indices = like(codes, per_class)[:, None]
    return namespace(per_class).take_along_axis(per_class, indices, axis=1)[:, 0]


def novelty(model: Any, rows: Array) -> FloatArray:
    """The log-density (n,) of rows (n, M) that a model's `threshold_` is for, see `log_novelty`."""
    return log_novelty(model, rows, getattr(model, "outlier_blur_", None))


def log_novelty(model: Any, rows: Array, blur: FloatArray | None) -> FloatArray:
    """Logarithms of p(x) under kernels that are wider by ``blur.T @ blur``, blur (R, M), shape (n,).

    Where nearly all rows have the same value of a feature, kernels are so narrow that one other value costs
    thousands of nats, and no other feature counts beside it. The blur is such that it costs six or fewer; see
    `unresolved`. Densities of these features are relative to the highest one possible, so that a missing
    value costs nothing.
    """
    if blur is None:
        return log_density(model, rows)
    scores = log_density(_blurred(Density.of(model), blur), rows)
    if not _is_diagonal(blur):
        return scores  # feature maps that mix features fill missing values
    wide = np.flatnonzero(blur.any(axis=0))
    known = ~np.isnan(to_numpy(values_of(rows)[:, wide]))
    return scores + like(known @ (0.5 * np.log(2.0 * np.pi * (blur**2).sum(axis=0)[wide])), scores)


def _is_diagonal(blur: FloatArray) -> bool:
    return bool(np.all(np.count_nonzero(blur, axis=1) <= 1))


def _blurred(density: Density, blur: FloatArray) -> Density:
    """A density with covariances that are larger by ``blur.T @ blur``, for blur (R, M)."""
    parts = []
    for part in density.parts:
        kind, parameters, some = part.covariance_type, part.parameters, blur[:, part.features]
        structure, covariances, added = structure_of(kind), parameters.covariances, some.T @ some
        if structure.triangular:
            covariances = covariances + added
        elif _is_diagonal(some):
            kind = "diag"
            covariances = structure.variances(covariances[None])[0] + np.diagonal(added)
        else:
            kind = "full"
            covariances = structure.to_full(covariances[None], *parameters.means.shape)[0] + added
        parameters = replace(parameters, covariances=covariances)
        parts.append(part._replace(parameters=parameters, covariance_type=kind))
    return density._replace(parts=parts)


# ---------------------------------------------------------------- responsibilities


@_with_means_of_classes
def log_responsibilities(density: Density, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """The log-responsibilities (n, K) of the kernels, of all parts side by side."""
    return _side_by_side(_log_responsibilities(density, rows, codes))


def responsibilities(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """The responsibilities (n, K) of the kernels, of all parts side by side."""
    logs = log_responsibilities(model, rows, codes)
    return namespace(logs).exp(logs)


def most_likely_kernel(model: Any, rows: Array, codes: IntArray | None = None) -> IntArray:
    """The kernel (n,) with the largest responsibility for each row."""
    logs = log_responsibilities(model, rows, codes)
    return namespace(logs).argmax(logs, axis=1)


def _side_by_side(arrays: list[FloatArray]) -> FloatArray:
    """Arrays (n, …) joined along their second axis."""
    return arrays[0] if len(arrays) == 1 else namespace(arrays[0]).concat(arrays, axis=1)


def _log_responsibilities(density: Density, rows: Array, codes: IntArray | None) -> list[FloatArray]:
    """The log-responsibilities (n, K) of each part, averaged over classes without class codes."""
    if codes is not None:
        return density.of_rows(rows, scoring.log_responsibilities, codes)
    if not density.has_shifts:
        posterior = log_normalise(log_joint(density, rows), axis=1)
        return density.of_rows(rows, scoring.averaged_log_responsibilities, posterior)
    # log Σ_j Pr(class j) Pr(kernel k | j) p(x | k, j)
    joints, log_prior = [], safe_log(density.class_prior)
    for j in range(len(log_prior)):
        of_class = density.of_class(j)
        (logs,) = of_class.of_rows(rows, scoring.kernel_log_densities)
        weights = safe_log(of_class.parts[0].parameters.weights[:, 0]) + log_prior[j]
        joints.append(logs + like(weights, logs))
    return [log_normalise(reduce(namespace(joints[0]).logaddexp, joints), axis=1)]


# ---------------------------------------------------------------- imputation and samples


def impute_columns(
    columns: Recipe, model: Any, rows: np.ndarray, codes: IntArray | None = None
) -> FloatArray:
    """Replace missing values of encoded rows (n, M), with numbers in the units of the user."""
    rows = rows.astype(np.float64, copy=False)
    filled = impute(model, columns.to_scale(rows), codes)
    return np.where(np.isnan(rows), columns.from_scale(filled), rows)


@_with_means_of_classes
def impute(density: Density, rows: np.ndarray, codes: IntArray | None = None) -> FloatArray:
    """Replace missing values of rows (n, M), and values with errors, by their conditional means."""
    filled = values_of(rows).astype(np.float64)
    if codes is None and density.has_shifts:
        posterior = np.exp(log_normalise(log_joint(density, rows), axis=1))
        means = np.zeros_like(filled)
        for j, share in enumerate(posterior.T):
            means += share[:, None] * impute(density, rows, np.full(len(rows), j))
        return means if isinstance(rows, Measured) else np.where(np.isnan(filled), means, filled)
    logs = _log_responsibilities(density, rows, codes)
    for part, of_part in zip(density.parts, logs, strict=True):
        filled[:, part.features] = scoring.fill_means(
            columns_of(rows, part.features), np.exp(of_part), part.parameters, part.covariance_type
        )
    return filled


def draw_rows(model: Any, codes: IntArray, random_state: np.random.RandomState) -> FloatArray:
    """Draw a row for each class code (n,), shape (n, M); features in no part are NaN, categories 0 or 1."""
    columns = Recipe.of(model)
    X = np.full((len(codes), columns.n_features), np.nan)
    kinds = zip(columns.features, columns.kinds.values(), strict=True)
    categories = [features for features, kind in kinds if isinstance(kind, list)]
    for part in Density.of(model).parts:
        drawn, kernels = scoring.draw(part.parameters, part.covariance_type, codes, random_state)
        shifts = np.zeros_like(drawn) if part.shifts is None else part.shifts[codes, kernels]
        of_part = [
            [part.features.index(feature) for feature in features]
            for features in categories
            if features[0] in part.features
        ]
        if of_part:
            _draw_categories(part, drawn, kernels, shifts, of_part, random_state)
        X[:, part.features] = drawn + shifts
    return X


def _draw_categories(
    part: Part,
    drawn: FloatArray,
    kernels: IntArray,
    shifts: FloatArray,
    categories: list[list[int]],
    random_state: np.random.RandomState,
) -> None:
    """Replace the features of categories in drawn rows (n, m), before their shifts (n, m), by 0 and 1.

    A normal distribution of a 0/1 feature has the right mean, but would be cut at the wrong place: a category
    is drawn with its expected share, given the kernel, the numbers of the row and the categories before it.
    """
    is_kernel = (kernels[:, None] == np.arange(len(part.parameters.means))).astype(np.float64)
    for number, features in enumerate(categories):
        rows = drawn.copy()
        rows[:, [feature for later in categories[number:] for feature in later]] = np.nan
        filled = scoring.fill_means(rows, is_kernel, part.parameters, part.covariance_type)
        shares = np.clip((filled + shifts)[:, features], _TINY, 1.0)
        if len(features) == 1:
            shares = np.hstack([np.maximum(1.0 - shares, _TINY), shares])
        category = scoring.choose(shares, random_state)
        hot = category[:, None] == np.arange(shares.shape[1])
        drawn[:, features] = hot[:, -len(features) :] - shifts[:, features]


# ---------------------------------------------------------------- information criteria


def n_parameters(model: Any) -> int:
    """The number of free parameters of a fitted model.

    A class has one free weight fewer than it has kernels. The shift of a group with m expected rows in a
    kernel counts as m / (m + r) of a mean, where r is the strength of the prior in rows.
    """
    total = 0
    for part in getattr(model, "models_", [model]):
        n_kernels, n_features = part.means_.shape
        covariance_type = getattr(part, "covariance_type_", part.covariance_type)
        total += structure_of(covariance_type).n_parameters(n_kernels, n_features)
        weights = part.weights_.reshape(n_kernels, -1)
        # With `n_kernels` given, all weights start positive, so zeros among them were estimated.
        shared = getattr(part, "n_kernels", None) is not None and isinstance(part.init, str)
        n_weights = n_kernels if not shared and are_separate(weights) else weights.size
        total += n_kernels * n_features + n_weights - weights.shape[1]
        if hasattr(part, "group_shifts_"):
            rows = weights * part.class_count_
            total += round(n_features * float((rows / (rows + part.group_shift_)).sum()))
        if hasattr(part, "kernel_degrees_") and part.degrees is None:
            total += n_kernels  # learnt degrees of freedom
    return total


def total_score(scores: FloatArray, weights: FloatArray | None) -> tuple[float, float, int]:
    """The sum of log-densities (n,) with weights (n,), the sum of the weights, and the number of rows."""
    if weights is None:
        return len(scores) * float(scores.mean()), len(scores), len(scores)
    return float(weights @ scores), float(weights.sum()), int(np.count_nonzero(weights))


def criterion(
    model: Any, log_likelihood: float, size: float, n_rows: int, *, penalty: float | None = None
) -> float:
    """BIC, or the criterion with another penalty of a parameter, for what `total_score` returns."""
    if size < _LEAST_WEIGHT * n_rows:
        warn_caller(
            f"The weights of {n_rows} rows sum to {size:.4g}, which AIC and BIC take as the number of rows: "
            "they choose too many or too few kernels. If only the proportions of the weights matter, rescale "
            f"them to a sum of {n_rows}."
        )
    penalty = float(np.log(size)) if penalty is None else penalty
    return -2.0 * log_likelihood + penalty * n_parameters(model)


class CriteriaMixin:
    """Adds the mean log-density and the information criteria."""

    # Of rows, labels, weights and errors; see `total_score`.
    _total_score: Callable[..., tuple[float, float, int]]

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> float:
        """Return the mean log-density of rows with weights (n,), or of rows opened with weights.

        See `score_samples`, also for `errors`.
        """
        total, size, _ = self._total_score(X, y, sample_weight, errors)
        return total / size

    def bic(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> float:
        """Return the Bayesian information criterion on rows X (n, M) with weights (n,).

        Lower is better. Labels y (n,) count for mixtures that have labels, and so do labels and weights that
        rows were opened with. The sum of the weights counts as the number of rows, so weights of which only
        the proportions matter should sum to n. With `errors`, see `fit`, the likelihood is that of what was
        measured.
        """
        return criterion(self, *self._total_score(X, y, sample_weight, errors))

    def aic(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        *,
        errors: Any = None,
    ) -> float:
        """Return the Akaike information criterion; see `bic`."""
        return criterion(self, *self._total_score(X, y, sample_weight, errors), penalty=2.0)
