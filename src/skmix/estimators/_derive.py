"""Fitted estimators made of the parameters of others."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone

from ..engine.model import FloatArray, Parameters

# What a fit says of itself that is still true when only some features are left.
_INHERITED = ("converged_", "n_iter_")

# A part of the new estimator: its columns in the old one, its columns in the old part, its parameters.
Part = tuple[list[int], list[int], Parameters]


def derive(
    estimator: Any,
    columns: list[int],
    parts: list[Part],
    class_prior: FloatArray,
    log_density: float | None = None,
) -> Any:
    """Return a fitted estimator of the same kind for some of the features.

    Parameters
    ----------
    estimator : SharedKernelMixture or SharedKernelClassifier
        The fitted estimator the parameters come from.
    columns : list of int
        The features of the new estimator, as columns of the old one.
    parts : list of Part
        What is left of its parts, in their order.
    class_prior : ndarray of shape (L,)
        Class priors of the new estimator.
    log_density : float, optional
        Log-density of the values that the new estimator is conditional on; None where it is a marginal.
    """
    derived = _emptied(estimator, columns)
    derived.classes_ = estimator.classes_
    derived.class_prior_ = class_prior.copy()
    derived.class_count_ = estimator.class_count_
    if not hasattr(estimator, "models_"):
        derived.covariance_type_ = estimator._structure
        _store(derived, parts[0][2])
        _inherit(estimator, derived)
        return derived

    place = {column: i for i, column in enumerate(columns)}
    group_of = {column: g for g, group in enumerate(estimator.feature_groups_) for column in group}
    derived.feature_groups_, derived.models_ = [], []
    for own, kept, parameters in parts:
        model = estimator.models_[group_of[own[0]]]
        derived.feature_groups_.append([place[column] for column in own])
        derived.models_.append(derive(model, kept, [(kept, kept, parameters)], class_prior))
    derived.covariance_type_ = estimator.covariance_type_
    derived.n_kernels_ = [len(parameters.means) for _, _, parameters in parts]
    if estimator.feature_groups is not None:
        derived.set_params(feature_groups=[list(group) for group in derived.feature_groups_])
    if len(parts) == 1:
        _store(derived, parts[0][2])
        _inherit(derived.models_[0], derived)
    derived.n_iter_ = max(model.n_iter_ for model in derived.models_)
    derived.temperature_ = estimator.temperature_
    if log_density is None:
        derived.set_params(reject_below=None)
        derived.threshold_ = -np.inf
    else:
        # log p(rest | given) = log p(all) − log p(given): the same rows stay below.
        derived.threshold_ = estimator.threshold_ - log_density
    return derived


def _emptied(estimator: Any, columns: list[int]) -> Any:
    """Return an unfitted copy whose settings suit the chosen columns, and that knows their names."""
    derived = clone(estimator)
    if not isinstance(estimator.init, str):
        derived.set_params(init="class")
    if isinstance(estimator.covariance_prior, tuple):
        rows, covariance = estimator.covariance_prior
        derived.set_params(covariance_prior=(rows, np.asarray(covariance)[np.ix_(columns, columns)]))
    derived.n_features_in_ = len(columns)
    if hasattr(estimator, "feature_names_in_"):
        derived.feature_names_in_ = estimator.feature_names_in_[columns]
    return derived


def _store(derived: Any, parameters: Parameters) -> None:
    derived.weights_ = np.array(parameters.weights)
    derived.means_ = np.array(parameters.means)
    derived.n_kernels_ = len(derived.means_)
    derived.covariances_ = np.array(parameters.covariances)


def _inherit(estimator: Any, derived: Any) -> None:
    for name in _INHERITED:
        if hasattr(estimator, name):
            setattr(derived, name, getattr(estimator, name))
