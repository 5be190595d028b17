"""Marginal and conditional models: fitted estimators of some columns of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone

from ..data.recipe import Recipe
from ..engine import scoring
from ..engine.exponentials import log_normalise
from ..engine.records import FloatArray, Parameters
from ..engine.structures import structure_of
from .arguments import check_given, indices_of
from .checks import note_rows
from .densities import log_joint, novelty, refuse_shifts
from .fitted import Fitted, FittedClassifier, fields_of, parameters_of
from .settings import prior_of_columns

Kept = tuple[Any, list[int], list[int], Parameters]
"""A mixture, its kept features as numbered in the model and in the mixture, and their parameters."""


def marginal(model: Any, chosen: Sequence[int | str]) -> Any:
    """The marginal model of some columns."""
    columns = Recipe.of(model)
    left = indices_of(chosen, columns, "features")
    _refuse_unmodelled(model, columns, left)
    parts: list[Kept] = []
    for features, mixture in model._parts():
        kept = [features.index(feature) for feature in columns.features_of(left) if feature in features]
        if kept:
            structure = structure_of(mixture.covariance_type_)
            parameters = scoring.marginal(parameters_of(mixture), np.array(kept), structure)
            parts.append((mixture, [features[d] for d in kept], kept, parameters))
    return _derived(model, left, parts, model.class_prior_)


def condition(model: Any, given: Mapping[int | str, Any]) -> Any:
    """The conditional model of the other columns, given the values of some."""
    refuse_shifts(model, "condition", "the conditional model")
    columns = Recipe.of(model)
    known, row = check_given(given, columns)
    _refuse_unmodelled(model, columns, known)
    joint = log_joint(model, row)
    parts: list[Kept] = []
    for features, mixture in model._parts():
        values, parameters = row[0, features], parameters_of(mixture)
        observed, kept = np.flatnonzero(~np.isnan(values)), np.flatnonzero(np.isnan(values)).tolist()
        if kept and len(observed):
            parameters = scoring.condition(parameters, mixture.covariance_type_, observed, values[observed])
        if kept:
            parts.append((mixture, [features[d] for d in kept], kept, parameters))
    if not parts:
        raise ValueError(f"given has values of all columns that the model describes: {sorted(known)}.")
    left = [column for column in range(len(columns.kinds)) if column not in known]
    posterior = np.exp(log_normalise(joint, axis=1))[0]
    scored = novelty(model, row) if hasattr(model, "models_") else logsumexp(joint, axis=1)
    return _derived(model, left, parts, posterior, float(scored[0]))


def _refuse_unmodelled(model: Any, columns: Recipe, chosen: list[int]) -> None:
    described = {feature for features, _ in model._parts() for feature in features}
    for column, name in enumerate(columns.kinds):
        if column in chosen and not described.issuperset(columns.features[column]):
            raise ValueError(f"column {name!r} is in no feature set: the model has no density of it.")


def _derived(
    model: Any,
    chosen: list[int],
    parts: list[Kept],
    class_prior: FloatArray,
    log_density: float | None = None,
) -> Any:
    """A fitted estimator of the same class for chosen columns.

    A conditional model needs the `log_density` of the given values; a marginal model has None.
    """
    if not hasattr(model, "models_"):
        return _derived_mixture(model, chosen, parts[0][-1], class_prior)
    models = [_derived_mixture(mixture, kept, values, class_prior) for mixture, _, kept, values in parts]
    derived, features = _unfitted(model, chosen), Recipe.of(model).features_of(chosen)
    for name in ("degrees", "covariance_type"):
        for mixture in models:
            if getattr(mixture, name) != getattr(model, name):
                derived.set_params(**{name: getattr(mixture, name)})
    sets = [[features.index(feature) for feature in left] for _, left, _, _ in parts]
    if model.feature_sets is not None:
        column_of = {numbers[0]: column for column, numbers in enumerate(Recipe.of(derived).features)}
        derived.set_params(feature_sets=[[column_of[f] for f in some if f in column_of] for some in sets])
    threshold, blur = -np.inf, None
    if log_density is None:
        derived.set_params(reject_below=None, outlier_label=None)
    else:
        # log p(rest | given) = log p(all) − log p(given), so the same rows are rejected.
        threshold = model.threshold_ - log_density
        if hasattr(model, "outlier_blur_"):
            blur = model.outlier_blur_[:, features]
            blur = blur[blur.any(axis=1)] if blur.any() else None
    FittedClassifier(
        models=models,
        feature_sets=sets,
        class_prior=class_prior.copy(),
        temperature=model.temperature_,
        threshold=threshold,
        outlier_blur=blur,
    ).store(derived)
    return derived


def _unfitted(model: Any, chosen: list[int]) -> Any:
    """An estimator with the settings of a model for chosen columns, which keep their preparation."""
    columns, derived = Recipe.of(model), clone(model)
    # `clone` copies a RandomState, whose copies would all draw the same numbers.
    derived.random_state = model.random_state
    if not isinstance(model.init, str):
        derived.set_params(init="auto", freeze=None)
    if isinstance(model.covariance_prior, tuple):
        features = columns.features_of(chosen)
        prior = prior_of_columns(model.covariance_prior, features, columns.n_features)
        derived.set_params(covariance_prior=prior)
    names = getattr(model, "feature_names_in_", None)
    note_rows(
        derived,
        n_features_in_=len(chosen),
        feature_names_in_=None if names is None else names[chosen],
        recipe_=columns.of_columns(chosen),
        target_name_=getattr(model, "target_name_", None),
        weight_name_=getattr(model, "weight_name_", None),
    )
    if names is not None:
        others = [*getattr(model, "ignored_columns_", ()), *np.delete(names, chosen).tolist()]
        note_rows(derived, ignored_columns_=others or None)
    return derived


def _derived_mixture(model: Any, chosen: list[int], parameters: Parameters, class_prior: FloatArray) -> Any:
    """A fitted mixture of chosen columns, without attributes that do not hold for fewer features."""
    fitted, derived = Fitted.of(model), _unfitted(model, chosen)
    assert fitted is not None
    covariance_type, shifts = fitted.covariance_type, fitted.shifts
    if model.degrees is not None and not np.all(parameters.tail.degrees == model.degrees):
        derived.set_params(degrees=None)
    if parameters.covariances.shape != structure_of(covariance_type).shape(*parameters.means.shape):
        # Scale matrices of t kernels are no longer the same, given values of some features.
        covariance_type = "full"
        derived.set_params(covariance_type="full")
    if shifts is not None:
        features = Recipe.of(model).features_of(chosen)
        shifts = replace(shifts, group_shifts=shifts.group_shifts[..., features])
    Fitted(
        classes=fitted.classes,
        class_prior=class_prior.copy(),
        class_count=fitted.class_count,
        expected_count=fitted.expected_count,
        covariance_type=covariance_type,
        converged=fitted.converged,
        n_iter=fitted.n_iter,
        shifts=shifts,
        **fields_of(parameters.map(np.array)),
    ).store(derived)
    return derived
