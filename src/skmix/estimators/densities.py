"""Functions of a fitted model and rows: densities, responsibilities, imputation; derived models.

A model is a list of parts, mixtures of disjoint columns that are independent given the class: a classifier
has one for each feature group, a mixture is its own only part. Functions of rows take the model, validated
rows (n, M) and, where labels are given, their classes (n,).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.utils import check_random_state

from ..engine import density
from ..engine.compute.arrays import Array, like, namespace
from ..engine.covariances import structure_of
from ..engine.model import FloatArray, IntArray, Parameters
from ..engine.sources import gaps
from ._settings import check_features, check_given
from .rows import columns_of

# A part of a derived model: its columns in the old model, its columns in the old part, its parameters.
Part = tuple[list[int], list[int], Parameters]


# ---------------------------------------------------------------- of each row


def class_log_likelihood(model: Any, rows: Array) -> FloatArray:
    """Return log p(x | class j), shape (n, L)."""
    n_jobs = effective_n_jobs(model.n_jobs)
    return reduce(
        add,
        (
            density.class_log_likelihood(
                columns_of(rows, columns), part._parameters, part.covariance_type_, n_jobs
            )
            for columns, part in model._parts()
        ),
    )


def log_joint(model: Any, rows: Array) -> FloatArray:
    """Return log Pr(class j) + log p(x | class j), shape (n, L)."""
    likelihood = class_log_likelihood(model, rows)
    with np.errstate(divide="ignore"):
        joint: FloatArray = likelihood + like(np.log(model.class_prior_), likelihood)
    return joint


def log_density(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return log p(x | class), or log p(x) without classes, shape (n,)."""
    if codes is None:
        return density.log_sum(log_joint(model, rows))
    per_class = class_log_likelihood(model, rows)
    own = like(codes, per_class)[:, None]
    values: FloatArray = namespace(per_class).take_along_axis(per_class, own, axis=1)[:, 0]
    return values


def kernel_log_densities(model: Any, rows: Array) -> FloatArray:
    """Return log N(x; μ_k, P_k), shape (n, K), the parts' side by side."""
    n_jobs = effective_n_jobs(model.n_jobs)
    return _side_by_side(
        [
            density.kernel_log_densities(
                columns_of(rows, columns), part._parameters, part.covariance_type_, n_jobs
            )
            for columns, part in model._parts()
        ]
    )


def log_responsibilities(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return the logarithms of the kernels' responsibilities, shape (n, K), the parts' side by side."""
    return _side_by_side([logs for _, _, logs in _kernel_posteriors(model, rows, codes)])


def responsibilities(model: Any, rows: Array, codes: IntArray | None = None) -> FloatArray:
    """Return the kernels' responsibilities, shape (n, K), the parts' side by side."""
    logs = log_responsibilities(model, rows, codes)
    shares: FloatArray = namespace(logs).exp(logs)
    return shares


def most_likely_kernel(model: Any, rows: Array) -> IntArray:
    """Return the kernel of largest responsibility, shape (n,)."""
    logs = log_responsibilities(model, rows)
    kernels: IntArray = namespace(logs).argmax(logs, axis=1)
    return kernels


def _side_by_side(arrays: list[FloatArray]) -> FloatArray:
    """Return arrays (n, …) joined along their second axis."""
    return arrays[0] if len(arrays) == 1 else namespace(arrays[0]).concat(arrays, axis=1)


def _kernel_posteriors(
    model: Any, rows: Array, codes: IntArray | None
) -> Iterator[tuple[list[int], Any, FloatArray]]:
    """Yield each part's columns, the part and its log-responsibilities (n, K)."""
    n_jobs = effective_n_jobs(model.n_jobs)
    posterior = density.log_normalise(log_joint(model, rows)) if codes is None else None
    for columns, part in model._parts():
        given = columns_of(rows, columns), part._parameters, part.covariance_type_, n_jobs
        if codes is not None:
            yield columns, part, density.log_responsibilities(given[0], codes, *given[1:])
        else:
            assert posterior is not None
            yield columns, part, density.averaged_log_responsibilities(given[0], posterior, *given[1:])


def impute(model: Any, rows: np.ndarray, codes: IntArray | None = None) -> FloatArray:
    """Return the rows (n, M) with conditional means in place of missing values."""
    filled = rows.astype(np.float64)
    for columns, part, logs in _kernel_posteriors(model, rows, codes):
        filled[:, columns] = density.fill_means(
            columns_of(rows, columns), np.exp(logs), part._parameters, part.covariance_type_
        )
    return filled


def draw_missing(
    model: Any, rows: np.ndarray, codes: IntArray | None, n_copies: int, random_state: np.random.RandomState
) -> FloatArray:
    """Return copies of the rows, shape (C, n, M), with missing values drawn from their distribution."""
    if codes is None:
        posterior = np.exp(density.log_normalise(log_joint(model, rows)))
        classes = np.stack([density.choose(posterior, random_state) for _ in range(n_copies)])
    else:
        classes = np.tile(codes, (n_copies, 1))
    filled = np.tile(rows.astype(np.float64), (n_copies, 1, 1))
    n_jobs = effective_n_jobs(model.n_jobs)
    for columns, part in model._parts():
        own = columns_of(rows, columns)
        densities = density.kernel_log_densities(own, part._parameters, part.covariance_type_, n_jobs)
        with np.errstate(divide="ignore"):
            log_weights = np.log(part.weights_.T)
        kernels = np.stack(
            [
                density.choose(np.exp(density.log_normalise(densities + log_weights[each])), random_state)
                for each in classes
            ]
        )
        filled[:, :, columns] = density.draw_missing(
            own, kernels, part._parameters, part.covariance_type_, random_state
        )
    return filled


def draw_rows(model: Any, codes: IntArray, random_state: np.random.RandomState) -> FloatArray:
    """Draw one row of each given class, shape (n, M); columns in no part are NaN."""
    X = np.full((len(codes), model.n_features_in_), np.nan)
    for columns, part in model._parts():
        X[:, columns] = density.draw(part._parameters, part.covariance_type_, codes, random_state)[0]
    return X


def draw_codes(model: Any, n_samples: int, code: int | None) -> tuple[IntArray, np.random.RandomState]:
    """Return the classes (n,) of rows to draw, and the source of randomness to go on with."""
    random_state = check_random_state(model.random_state)
    if code is not None:
        return np.full(n_samples, code), random_state
    return random_state.choice(len(model.classes_), n_samples, p=model.class_prior_), random_state


def n_parameters(model: Any) -> int:
    """Return the number of free parameters of a model of ours: means, covariances, K − 1 weights a class."""
    total = 0
    for part in getattr(model, "models_", [model]):
        n_kernels, n_features = part.means_.shape
        covariance_type = getattr(part, "covariance_type_", part.covariance_type)
        structure = structure_of(covariance_type).of(part.covariances_)
        total += structure.n_parameters(n_kernels, n_features)
        total += n_kernels * n_features + (n_kernels - 1) * (math.prod(part.weights_.shape) // n_kernels)
    return total


# ---------------------------------------------------------------- models of some features


def marginal(model: Any, features: Sequence[int | str]) -> Any:
    """Return the model of some features, whatever the values of the others."""
    chosen = check_features(
        features, model.n_features_in_, getattr(model, "feature_names_in_", None), "features"
    )
    _refuse_unmodelled(model, chosen)
    place = {column: i for i, column in enumerate(chosen)}
    parts: list[Part] = []
    for columns, part in model._parts():
        kept = [d for d in range(len(columns)) if columns[d] in place]
        kept.sort(key=lambda d: place[columns[d]])
        if kept:
            structure = structure_of(part.covariance_type_)
            parameters = gaps.marginal(part._parameters, np.array(kept), structure)
            parts.append(([columns[d] for d in kept], kept, parameters))
    return _derive(model, chosen, parts, model.class_prior_)


def condition(model: Any, given: Mapping[int | str, float]) -> Any:
    """Return the model of the other features, given values of some."""
    values = check_given(given, model.n_features_in_, getattr(model, "feature_names_in_", None))
    _refuse_unmodelled(model, values)
    row = np.full((1, model.n_features_in_), np.nan)
    row[0, list(values)] = list(values.values())
    joint = log_joint(model, row)
    parts: list[Part] = []
    for columns, part in model._parts():
        kept = [d for d in range(len(columns)) if columns[d] not in values]
        if not kept:
            continue
        known = np.setdiff1d(np.arange(len(columns)), kept)
        parameters = part._parameters
        if len(known):
            own = row[0, np.array(columns)[known]]
            parameters = density.condition(parameters, part.covariance_type_, known, own)
        parts.append(([columns[d] for d in kept], kept, parameters))
    if not parts:
        raise ValueError(f"given has values of all features that the model describes: {sorted(values)}.")
    left = [column for column in range(model.n_features_in_) if column not in values]
    posterior = np.exp(density.log_normalise(joint))[0]
    return _derive(model, left, parts, posterior, float(logsumexp(joint)))


def _refuse_unmodelled(model: Any, columns: Any) -> None:
    ignored = set(columns).difference(*(own for own, _ in model._parts()))
    if ignored:
        raise ValueError(f"feature {min(ignored)} is in no feature group: the model has no density of it.")


def _derive(
    model: Any,
    columns: list[int],
    parts: list[Part],
    class_prior: FloatArray,
    log_density: float | None = None,
) -> Any:
    """Return a fitted estimator of the same kind for some of the features.

    `log_density` is that of the values that the new model is conditional on; None for a marginal model.
    """
    derived = clone(model)
    if not isinstance(model.init, str):
        derived.set_params(init="class")
    if isinstance(model.covariance_prior, tuple):
        rows, covariance = model.covariance_prior
        derived.set_params(covariance_prior=(rows, np.asarray(covariance)[np.ix_(columns, columns)]))
    derived.n_features_in_ = len(columns)
    if hasattr(model, "feature_names_in_"):
        derived.feature_names_in_ = model.feature_names_in_[columns]
    derived.class_prior_ = class_prior.copy()
    if "models_" not in vars(model):
        derived.classes_, derived.class_count_ = model.classes_, model.class_count_
        derived.covariance_type_ = model.covariance_type_
        derived._store_parameters(parts[0][2].map(np.array))
        # What a fit says of itself that is still true of fewer features.
        derived.converged_, derived.n_iter_ = model.converged_, model.n_iter_
        return derived
    place = {column: i for i, column in enumerate(columns)}
    group_of = {column: g for g, group in enumerate(model.feature_groups_) for column in group}
    derived.feature_groups_, derived.models_ = [], []
    for own, kept, parameters in parts:
        part = model.models_[group_of[own[0]]]
        derived.feature_groups_.append([place[column] for column in own])
        derived.models_.append(_derive(part, kept, [(kept, kept, parameters)], class_prior))
    if model.feature_groups is not None:
        derived.set_params(feature_groups=[list(group) for group in derived.feature_groups_])
    derived.temperature_ = model.temperature_
    if log_density is None:
        derived.set_params(reject_below=None)
        derived.threshold_ = -np.inf
    else:
        # log p(rest | given) = log p(all) − log p(given): the same rows stay below.
        derived.threshold_ = model.threshold_ - log_density
    return derived
