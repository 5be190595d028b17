"""Variational fits as the estimators see them: what goes with one, and the posterior that it leaves."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.covariances import structure_of
from ..engine.model import Result
from ..engine.rules.variational import degrees_of_freedom, wishart_of

OF_THE_POSTERIOR = (
    "lower_bound_",
    "lower_bound_path_",
    "weight_concentration_",
    "mean_precision_",
    "degrees_of_freedom_",
)
# Settings that belong to EM, and their values that ask for nothing.
_OF_EM = {"accelerate": False, "freeze": None, "stopping": "total"}


def is_variational(estimator: Any) -> bool:
    """Return whether posteriors are fitted, rather than the most likely parameters."""
    return bool(estimator.inference == "variational")


def check_inference(estimator: Any, prune: bool = False) -> None:
    """Refuse settings that do not go with the kind of inference, or with pruning."""
    if is_variational(estimator):
        for name, nothing in _OF_EM.items():
            if getattr(estimator, name) != nothing:
                raise ValueError(
                    f"{name}={getattr(estimator, name)!r} is for EM and does not go with "
                    f"inference='variational': leave it at {nothing!r}."
                )
        return
    weight_prior = estimator.weight_prior or 1.0
    if weight_prior < 1.0:
        raise ValueError(
            f"weight_prior={estimator.weight_prior} must be at least 1 for EM, whose weights would become "
            "negative; inference='variational' takes any positive number."
        )
    if prune and weight_prior > 1.0:
        raise ValueError(
            f"Pruning takes the last weight of a kernel away, and weight_prior={estimator.weight_prior} "
            "returns it: use one of them."
        )


def store_posterior(model: Any, result: Result, start: int) -> None:
    """Give a model the posterior of one start, without its superfluous kernels; none where EM was used."""
    for name in OF_THE_POSTERIOR:
        vars(model).pop(name, None)
    if result.counts is None or result.prior is None or result.bounds is None:
        return
    prior, counts = result.prior, result.counts[start]
    alive = np.flatnonzero(result.parameters.weights[start].any(axis=1))
    rows = counts.sum(axis=1)
    wishart = wishart_of(structure_of(model.covariance_type), len(prior.covariance))
    degrees = degrees_of_freedom(counts[None], wishart, prior.covariance_rows)[0]
    model.lower_bound_ = float(result.objective[start])
    model.lower_bound_path_ = result.bounds[start]
    model.weight_concentration_ = counts[alive] + prior.concentration
    model.mean_precision_ = rows[alive] + prior.mean_rows
    model.degrees_of_freedom_ = np.broadcast_to(degrees, rows.shape)[alive].copy()
