"""Cross-fitting: how a model treats rows that it has not seen.

A model describes its own training rows better than new ones. So a threshold, or the number of rounds to tune,
comes from rows that were held out of a fit with the same settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine.compute.arrays import on_host, pick
from ..engine.compute.blocks import Block
from ..engine.model import FloatArray
from ..engine.sources import open_source
from .densities import log_density
from .holdout import stratified_folds
from .rows import Training, sent, warn_caller

# Folds of a threshold.
_N_FOLDS = 10
# Folds where every fit is tuned, which takes many times as long.
_N_FOLDS_TO_TUNE = 4
# Stop after this many held-out rows.
_ENOUGH = 2000


def held_out_densities(
    estimator: Any,
    rows: Block,
    finish: Callable[[Any, Block], None] | None = None,
    groups: np.ndarray | None = None,
) -> tuple[FloatArray, FloatArray | None]:
    """Return log p(x), shape (n,), of rows by fits that have not seen them, and the rows' weights (n,).

    `estimator` is fitted to the rows, which have class codes; it may be a search that averages mixtures and
    keeps their shares. `finish` changes each fit, given its rows. Groups (N,) are held out whole.

    A fold is skipped if the remaining rows cannot be fitted. If that is every fold, a warning says so, and
    the densities are those of all rows by the estimator itself.
    """
    densities, seen, error = [], np.empty(0, dtype=np.int64), ""
    members, shares = getattr(estimator, "mixtures_", [estimator]), getattr(estimator, "shares_", np.ones(1))
    # Densities need no label: rows without one are held out too, as a class of their own.
    strata = np.zeros(rows.X.shape[0], dtype=np.int64) if rows.y is None else rows.y.astype(np.int64) + 1
    n_folds = _N_FOLDS if finish is None else _N_FOLDS_TO_TUNE
    for training, held in stratified_folds(strata, n_folds, seed_of(estimator), groups):
        if len(seen) >= _ENOUGH:
            break
        remaining = rows.rows(training)
        try:
            models = [refit(each, remaining) for each in members]
            if finish is not None:
                for model in models:
                    finish(model, remaining)
        except ValueError as reason:
            # Too few rows, or too few values of some feature, are left.
            error = f" The last fit failed: {reason}"
            continue
        densities.append(_log_average(models, shares, pick(rows.X, held)))
        seen = np.concatenate([seen, held])
    if not densities:
        warn_caller(
            f"No part of the {rows.X.shape[0]} rows can be held out: the threshold is a quantile of their "
            f"own densities, which is too high for new rows.{error}"
        )
        return _log_average(members, shares, rows.X), rows.weights
    return np.concatenate(densities), None if rows.weights is None else rows.weights[seen]


def _log_average(models: Sequence[Any], shares: FloatArray, X: Any) -> FloatArray:
    """Return the logarithm (n,) of the average density of rows X (n, M), with shares (S,) of models."""
    return logsumexp([on_host(log_density(each, X)) for each in models], b=shares[:, None], axis=0)


def refit(estimator: Any, rows: Block) -> Any:
    """Return another estimator with the settings of a fitted one, fitted to rows with class codes.

    Without `n_kernels`, it has the default number for these rows.
    """
    other = clone(estimator)
    other.set_callbacks()
    other.n_features_in_ = estimator.n_features_in_
    if getattr(estimator, "feature_sets", None) is not None:
        # By index: rows have no names here.
        other.set_params(feature_sets=estimator.feature_sets_)
    training = Training(open_source(sent(other, rows.X), rows.y, rows.weights), estimator.classes_)
    if not training.sizes.all():
        raise ValueError("Some class has no row.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        other._fit_parts(other._parts_to_fit(training.n_features), training)
    return other


def seed_of(estimator: Any) -> int:
    """Return a seed for splits, without changing the state of an estimator's generator."""
    return int(check_random_state(clone(estimator).random_state).randint(np.iinfo(np.int32).max))
