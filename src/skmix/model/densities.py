"""Functions of a fitted model: densities, responsibilities, imputation, marginal and conditional models.

A model has parts: mixtures of disjoint columns, which are independent given the class. A classifier has one
part per feature set; a mixture is its only part. Functions of rows take the model, validated rows (n, M) and,
if labels are given, class codes (n,).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce, wraps
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp
from sklearn.base import clone

from ..data.recipe import Recipe
from ..engine import scoring as density
from ..engine.after.prior import are_separate
from ..engine.exponentials import log_normalise, log_sum_exp
from ..engine.numbers import Array, like, namespace, pick, safe_log, to_numpy
from ..engine.records import FloatArray, IntArray, Parameters
from ..engine.structures import structure_of
from .arguments import check_given, indices_of
from .checks import columns_of, note_rows, warn_caller
from .fitted import Fitted, FittedClassifier, fields_of, parameters_of
from .settings import prior_of_columns, threads_of

# Smallest share of a category, so that some category can always be drawn.
_TINY = 1e-12
# Smallest mean weight of rows without a warning: weights of mean one may have a smaller mean in some rows.
_LEAST_WEIGHT = 0.9


class DerivedPart(NamedTuple):
    """Some features of a part of a model."""

    mixture: Any  # the part
    features: list[int]  # kept features, numbered as in the model
    kept: list[int]  # the same features, numbered as in the part
    parameters: Parameters


# ---------------------------------------------------------------- group shifts


def has_shifts(model: Any) -> bool:
    """Return whether the means of a model differ between classes."""
    shifts = getattr(model, "group_shifts_", None)
    return shifts is not None and bool(shifts.any())


def shifted(model: Any, j: int) -> Any:
    """Return a copy of a mixture in which all classes have the means of class j."""
    moved = copy(model)
    moved.means_ = model.means_ + model.group_shifts_[j]
    del moved.group_shifts_
    return moved


def with_own_means(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function of a model, rows (n, M) and class codes (n,) use the means of each row's class.

    Without codes, `function` averages over groups itself.
    """

    @wraps(function)
    def call(model: Any, rows: Array, codes: IntArray | None = None) -> Any:
        if codes is None or not has_shifts(model):
            return function(model, rows, codes)
        of_class = {j: np.flatnonzero(codes == j) for j in np.unique(codes).tolist()}
        found = [function(shifted(model, j), pick(rows, i), codes[i]) for j, i in of_class.items()]
        return pick(namespace(found[0]).concat(found), np.argsort(np.concatenate([*of_class.values()])))

    return call


# ---------------------------------------------------------------- functions of rows


def class_log_likelihood(model: Any, rows: Array) -> FloatArray:
    """Return log p(x | class j), shape (n, L)."""
    if not has_shifts(model):
        return reduce(add, _of_parts(model, rows, density.class_log_likelihood))
    columns = []
    for j in range(len(model.classes_)):
        group = shifted(model, j)
        group.weights_ = model.weights_[:, j : j + 1]
        columns.append(class_log_likelihood(group, rows))
    return _side_by_side(columns)


def log_joint(model: Any, rows: Array) -> FloatArray:
    """Return log Pr(class j) + log p(x | class j), shape (n, L)."""
    likelihood = class_log_likelihood(model, rows)
    return likelihood + like(safe_log(model.class_prior_), likelihood)


@with_own_means
def log_density(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return log p(x | class), or log p(x) without class codes, shape (n,)."""
    if codes is None:
        return log_sum_exp(log_joint(model, rows), axis=1)
    per_class = class_log_likelihood(model, rows)
    indices = like(codes, per_class)[:, None]
    return namespace(per_class).take_along_axis(per_class, indices, axis=1)[:, 0]


def novelty(model: Any, rows: Array) -> FloatArray:
    """Return the log-density (n,) of rows (n, M) that a model's `threshold_` is for, see `log_novelty`."""
    return log_novelty(model, rows, getattr(model, "outlier_blur_", None))


def log_novelty(model: Any, rows: Array, blur: FloatArray | None) -> FloatArray:
    """Return log p(x) under kernels that are wider by ``blur.T @ blur``, blur (R, M), shape (n,).

    Where nearly all rows have the same value of a feature, kernels are so narrow that one other value costs
    thousands of nats, and no other feature counts beside it. The blur is such that it costs six or fewer; see
    `unresolved`. Densities of these features are relative to the highest one possible, so that a missing
    value costs nothing.
    """
    if blur is None:
        return log_density(model, rows)
    scores = log_density(_blurred(model, blur), rows)
    if not _is_diagonal(blur):
        return scores  # feature maps that mix features fill missing values
    wide = np.flatnonzero(blur.any(axis=0))
    known = ~np.isnan(to_numpy(rows[:, wide]))
    return scores + like(known @ (0.5 * np.log(2.0 * np.pi * (blur**2).sum(axis=0)[wide])), scores)


def _is_diagonal(blur: FloatArray) -> bool:
    return bool(np.all(np.count_nonzero(blur, axis=1) <= 1))


def _blurred(model: Any, blur: FloatArray) -> Any:
    """Return a copy of a model with covariances that are larger by ``blur.T @ blur``, for blur (R, M)."""
    wider = copy(model)
    if hasattr(model, "models_"):
        wider.models_ = [_blurred(part, blur[:, features]) for features, part in model._parts()]
        return wider
    kind, covariances = model.covariance_type_, model.covariances_
    added = blur.T @ blur
    structure = structure_of(kind)
    if structure.triangular:
        wider.covariances_ = covariances + added
    elif not _is_diagonal(blur):
        full = structure.to_full(covariances[None], *model.means_.shape)[0]
        wider.covariances_, wider.covariance_type_ = full + added, "full"
    else:
        variances = structure.variances(covariances[None])[0]
        wider.covariances_ = variances + np.diagonal(added)
        wider.covariance_type_ = "diag"
    return wider


@with_own_means
def log_responsibilities(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return the log-responsibilities (n, K) of the kernels, those of all parts side by side."""
    return _side_by_side(_log_responsibilities(model, rows, codes))


def responsibilities(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return the responsibilities (n, K) of the kernels, those of all parts side by side."""
    logs = log_responsibilities(model, rows, codes)
    return namespace(logs).exp(logs)


def most_likely_kernel(model: Any, rows: Array, codes: IntArray | None = None) -> IntArray:
    """Return the kernel (n,) with the largest responsibility for each row."""
    logs = log_responsibilities(model, rows, codes)
    return namespace(logs).argmax(logs, axis=1)


def _of_parts(model: Any, rows: Array, function: Any, *given: Any) -> list[FloatArray]:
    """Apply a function of the engine to rows (n, M), further arguments and each part."""
    n_jobs, results = threads_of(model.n_jobs), []
    for columns, part in model._parts():
        of_part = columns_of(rows, columns)
        results.append(function(of_part, *given, parameters_of(part), part.covariance_type_, n_jobs))
    return results


def _side_by_side(arrays: list[FloatArray]) -> FloatArray:
    """Return arrays (n, …) joined along their second axis."""
    return arrays[0] if len(arrays) == 1 else namespace(arrays[0]).concat(arrays, axis=1)


def _log_responsibilities(model: Any, rows: Array, codes: IntArray | None) -> list[FloatArray]:
    """Return the log-responsibilities (n, K) of each part, averaged over classes without class codes."""
    if codes is not None:
        return _of_parts(model, rows, density.log_responsibilities, codes)
    if has_shifts(model):
        return [log_normalise(_log_joint_of_kernels(model, rows), axis=1)]
    posterior = log_normalise(log_joint(model, rows), axis=1)
    return _of_parts(model, rows, density.averaged_log_responsibilities, posterior)


def _log_joint_of_kernels(model: Any, rows: Array) -> FloatArray:
    """Return log Σ_j Pr(group j) Pr(kernel k | j) p(x | k, j), shape (n, K), of a mixture with shifts."""
    log_weights = safe_log(model.weights_) + safe_log(model.class_prior_)
    joints = []
    for j in range(len(model.classes_)):
        (logs,) = _of_parts(shifted(model, j), rows, density.kernel_log_densities)
        joints.append(logs + like(log_weights[:, j], logs))
    return reduce(namespace(joints[0]).logaddexp, joints)


def impute_columns(
    columns: Recipe, model: Any, rows: np.ndarray, codes: IntArray | None = None
) -> FloatArray:
    """Replace missing values of encoded rows (n, M), with numbers in the units of the user."""
    rows = rows.astype(np.float64, copy=False)
    filled = impute(model, columns.to_scale(rows), codes)
    return np.where(np.isnan(rows), columns.from_scale(filled), rows)


@with_own_means
def impute(model: Any, rows: np.ndarray, codes: IntArray | None = None) -> FloatArray:
    """Replace missing values of rows (n, M) by their conditional means."""
    filled = rows.astype(np.float64)
    if codes is None and has_shifts(model):
        posterior = np.exp(log_normalise(log_joint(model, rows), axis=1))
        means = np.zeros_like(filled)
        for j, share in enumerate(posterior.T):
            means += share[:, None] * impute(model, rows, np.full(len(rows), j))
        return np.where(np.isnan(filled), means, filled)
    logs = _log_responsibilities(model, rows, codes)
    for (columns, part), of_part in zip(model._parts(), logs, strict=True):
        filled[:, columns] = density.fill_means(
            columns_of(rows, columns), np.exp(of_part), parameters_of(part), part.covariance_type_
        )
    return filled


def draw_rows(model: Any, codes: IntArray, random_state: np.random.RandomState) -> FloatArray:
    """Draw a row for each class code (n,), shape (n, M); features in no part are NaN, categories 0 or 1."""
    columns = Recipe.of(model)
    X = np.full((len(codes), columns.n_features), np.nan)
    encoded = [
        own
        for own, kind in zip(columns.features, columns.kinds.values(), strict=True)
        if isinstance(kind, list)
    ]
    for features, part in model._parts():
        drawn, kernels = density.draw(parameters_of(part), part.covariance_type_, codes, random_state)
        categories = [[features.index(each) for each in own] for own in encoded if own[0] in features]
        shifts = part.group_shifts_[codes, kernels] if has_shifts(part) else np.zeros((1, len(features)))
        if categories:
            _draw_categories(part, drawn, kernels, shifts, categories, random_state)
        X[:, features] = drawn + shifts
    return X


def _draw_categories(
    part: Any,
    drawn: FloatArray,
    kernels: IntArray,
    shifts: FloatArray,
    categories: list[list[int]],
    random_state: np.random.RandomState,
) -> None:
    """Replace the features of categories in drawn rows (n, M), before their shifts, by 0 and 1.

    A normal distribution of a 0/1 feature has the right mean, but would be cut at the wrong place: a category
    is drawn with its expected share, given the kernel, the numbers of the row and the categories before it.
    """
    own_kernel = (kernels[:, None] == np.arange(len(part.means_))).astype(np.float64)
    for number, own in enumerate(categories):
        rows = drawn.copy()
        rows[:, [feature for later in categories[number:] for feature in later]] = np.nan
        filled = density.fill_means(rows, own_kernel, parameters_of(part), part.covariance_type_)
        shares = np.clip((filled + shifts)[:, own], _TINY, 1.0)
        if len(own) == 1:
            shares = np.hstack([np.maximum(1.0 - shares, _TINY), shares])
        category = density.choose(shares, random_state)
        hot = category[:, None] == np.arange(shares.shape[1])
        drawn[:, own] = hot[:, -len(own) :] - shifts[:, own]


def n_parameters(model: Any) -> int:
    """Return the number of free parameters of a fitted model.

    A class has one free weight fewer than it has kernels. The shift of a group with m expected rows in a
    kernel counts as m / (m + r) of a mean, where r is the strength of the prior in rows.
    """
    total = 0
    for part in getattr(model, "models_", [model]):
        n_kernels, n_features = part.means_.shape
        covariance_type = getattr(part, "covariance_type_", part.covariance_type)
        structure = structure_of(covariance_type)
        total += structure.n_parameters(n_kernels, n_features)
        weights = part.weights_.reshape(n_kernels, -1)
        # With `n_kernels` given, all weights start positive, so zeros among them were estimated.
        shared = getattr(part, "n_kernels", None) is not None and isinstance(part.init, str)
        n_weights = n_kernels if not shared and are_separate(weights) else weights.size
        total += n_kernels * n_features + n_weights - weights.shape[1]
        if hasattr(part, "group_shifts_"):
            rows = weights * part.class_count_
            total += round(n_features * float((rows / (rows + part.group_shift_)).sum()))
        if hasattr(part, "kernel_degrees_") and part.tail == "t":
            total += n_kernels  # learnt degrees of freedom
    return total


def total_score(scores: FloatArray, weights: FloatArray | None) -> tuple[float, float, int]:
    """Return the sum of log-densities (n,) with weights (n,), that of the weights, and the number of rows."""
    if weights is None:
        return len(scores) * float(scores.mean()), len(scores), len(scores)
    return float(weights @ scores), float(weights.sum()), int(np.count_nonzero(weights))


def criterion(
    model: Any, log_likelihood: float, size: float, n_rows: int, *, penalty: float | None = None
) -> float:
    """Return BIC, or the criterion with another penalty of a parameter, for what `total_score` returns."""
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

    _total_score: Callable[..., tuple[float, float, int]]  # of rows, labels and weights; see `total_score`

    def score(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Return the mean log-density of rows with weights (n,), or of rows opened with weights.

        See `score_samples`.
        """
        total, size, _ = self._total_score(X, y, sample_weight)
        return total / size

    def bic(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the Bayesian information criterion on rows X (n, M) with weights (n,).

        Lower is better. Labels y (n,) count for mixtures that have labels, and so do labels and weights that
        rows were opened with. The sum of the weights counts as the number of rows, so weights of which only
        the proportions matter should sum to n.
        """
        return criterion(self, *self._total_score(X, y, sample_weight))

    def aic(self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the Akaike information criterion; see `bic`."""
        return criterion(self, *self._total_score(X, y, sample_weight), penalty=2.0)


# ---------------------------------------------------------------- models of some features


def marginal(model: Any, chosen: Sequence[int | str]) -> Any:
    """Return the marginal model of some columns."""
    columns = Recipe.of(model)
    left = indices_of(chosen, columns, "features")
    _refuse_unmodelled(model, columns, left)
    parts: list[DerivedPart] = []
    for features, part in model._parts():
        kept = [features.index(feature) for feature in columns.features_of(left) if feature in features]
        if kept:
            structure = structure_of(part.covariance_type_)
            parameters = density.marginal(parameters_of(part), np.array(kept), structure)
            parts.append(DerivedPart(part, [features[d] for d in kept], kept, parameters))
    return _derive(model, columns, left, parts, model.class_prior_)


def condition(model: Any, given: Mapping[int | str, Any]) -> Any:
    """Return the conditional model of the other columns, given the values of some."""
    if has_shifts(model):
        raise ValueError(
            "condition cannot be combined with group_shift: groups of this mixture differ in their means, "
            "but the conditional model has common means. Fit without group_shift."
        )
    columns = Recipe.of(model)
    known, row = check_given(given, columns)
    _refuse_unmodelled(model, columns, known)
    joint = log_joint(model, row)
    parts: list[DerivedPart] = []
    for features, part in model._parts():
        of_part = row[0, features]
        observed = np.flatnonzero(~np.isnan(of_part))
        kept = np.flatnonzero(np.isnan(of_part)).tolist()
        parameters = parameters_of(part)
        if kept and len(observed):
            parameters = density.condition(parameters, part.covariance_type_, observed, of_part[observed])
        if kept:
            parts.append(DerivedPart(part, [features[d] for d in kept], kept, parameters))
    if not parts:
        raise ValueError(f"given has values of all columns that the model describes: {sorted(known)}.")
    left = [column for column in range(len(columns.kinds)) if column not in known]
    posterior = np.exp(log_normalise(joint, axis=1))[0]
    scored = novelty(model, row) if hasattr(model, "models_") else logsumexp(joint, axis=1)
    return _derive(model, columns, left, parts, posterior, float(scored[0]))


def _refuse_unmodelled(model: Any, columns: Recipe, chosen: list[int]) -> None:
    described = {feature for features, _ in model._parts() for feature in features}
    for column, name in enumerate(columns.kinds):
        if column in chosen and not described.issuperset(columns.features[column]):
            raise ValueError(f"column {name!r} is in no feature set: the model has no density of it.")


def _derive(
    model: Any,
    columns: Recipe,
    chosen: list[int],
    parts: list[DerivedPart],
    class_prior: FloatArray,
    log_density: float | None = None,
) -> Any:
    """Return a fitted estimator of the same class for chosen columns, which keep their preparation.

    A conditional model needs the `log_density` of the given values; a marginal model has None.
    """
    features = columns.features_of(chosen)
    derived = clone(model)
    # `clone` copies a RandomState, whose copies would all draw the same numbers.
    derived.random_state = model.random_state
    if not isinstance(model.init, str):
        derived.set_params(init="auto")
    if isinstance(model.covariance_prior, tuple):
        derived.set_params(
            covariance_prior=prior_of_columns(model.covariance_prior, features, columns.n_features)
        )
    derived.n_features_in_ = len(chosen)
    if hasattr(model, "feature_names_in_"):
        derived.feature_names_in_ = model.feature_names_in_[chosen]
    note_rows(derived, preparation_=columns.of_columns(chosen))
    if not hasattr(model, "models_"):
        _derived_fit(derived, parts[0], class_prior).store(derived)
        return derived
    models = [
        _derive(part.mixture, Recipe.of(part.mixture), part.kept, [part], class_prior) for part in parts
    ]
    for name in ("tail", "covariance_type"):
        for mixture in models:
            if getattr(mixture, name) != getattr(model, name):
                derived.set_params(**{name: getattr(mixture, name)})
    index = {feature: i for i, feature in enumerate(features)}
    sets = [[index[feature] for feature in part.features] for part in parts]
    if model.feature_sets is not None:
        column_of = {own[0]: column for column, own in enumerate(Recipe.of(derived).features)}
        derived.set_params(feature_sets=[[column_of[f] for f in own if f in column_of] for own in sets])
    threshold, blur = -np.inf, getattr(model, "outlier_blur_", None)
    if blur is not None:
        blur = blur[:, features]
        blur = blur[blur.any(axis=1)]
    if log_density is None:
        derived.set_params(reject_below=None, outlier_label=None)
    else:
        # log p(rest | given) = log p(all) − log p(given), so the same rows are rejected.
        threshold = model.threshold_ - log_density
    FittedClassifier(
        models=models,
        feature_sets=sets,
        class_prior=class_prior.copy(),
        temperature=model.temperature_,
        threshold=threshold,
        outlier_blur=None if log_density is None or blur is None or not len(blur) else blur,
    ).store(derived)
    return derived


def _derived_fit(derived: Any, part: DerivedPart, class_prior: FloatArray) -> Fitted:
    """Return the fit of a mixture of some features, and adapt the settings of `derived` to it."""
    model, _, kept, parameters = part
    fitted = Fitted.of(model)
    assert fitted is not None
    degrees, covariance_type = parameters.tail.degrees, fitted.covariance_type
    if isinstance(model.tail, tuple) and not np.all(degrees == model.tail[1]):
        derived.set_params(tail="t")
    if parameters.covariances.shape != structure_of(covariance_type).shape(*parameters.means.shape):
        # Scale matrices of t kernels are no longer the same, given values of some features.
        derived.set_params(covariance_type="full")
        covariance_type = "full"
    shifts = fitted.shifts
    if shifts is not None:
        shifts = replace(shifts, group_shifts=shifts.group_shifts[..., kept])
    # Leave out attributes that do not hold for fewer features.
    return Fitted(
        classes=fitted.classes,
        class_prior=class_prior.copy(),
        class_count=fitted.class_count,
        expected_count=fitted.expected_count,
        covariance_type=covariance_type,
        converged=fitted.converged,
        n_iter=fitted.n_iter,
        shifts=shifts,
        **fields_of(parameters.map(np.array)),
    )
