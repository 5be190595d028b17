"""Thresholds of outliers, from the densities of rows that a model has not seen.

A model fits its training rows better than new ones. Thresholds therefore come from rows that were held out of
a fit with the same settings.
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

from ..engine.measured import values_of
from ..engine.numbers import on_host, pick, to_numpy
from ..engine.problem import open_source
from ..engine.records import FloatArray
from ..engine.rows.blocks import Block
from ..engine.rows.resolution import unresolved
from .checks import note_rows, warn_caller
from .densities import log_novelty, novelty
from .devices import device_of, sent
from .holdout import stratified_folds
from .training import Training

# Number of folds for a threshold, and if every fit is tuned, which takes many times as long.
_N_FOLDS, _N_FOLDS_TO_TUNE = 10, 4
# Number of held-out rows that is enough for a threshold.
_ENOUGH = 2000

Finish = Callable[[Any, Block], None]
"""Changes a fit, given its training rows, as the estimator was changed after its fit."""


def set_threshold(
    estimator: Any,
    share: float,
    rows: Block,
    finish: Finish | None = None,
    groups: np.ndarray | None = None,
    blur: FloatArray | None = None,
) -> None:
    """Set `threshold_` and `outlier_blur_`, by default the blur of the rows; see `novelty_threshold`."""
    note_rows(estimator, outlier_blur_=blur_of(rows) if blur is None else blur)
    estimator.threshold_ = novelty_threshold(estimator, share, rows, finish, groups)


def set_threshold_of_fit(classifier: Any, training: Training) -> None:
    """Set the score below which a share `reject_below` of new rows, or of their weight, lies.

    If only a sample of the rows is in memory, it is the quantile of the training densities of that sample:
    with this many rows, overfitting hardly raises it.
    """
    rows, codes, weights = training.source.start_rows()
    if training.blocks is None or rows.shape[0] == training.source.summary.n_rows:
        return set_threshold(classifier, classifier.reject_below, Block(rows, codes, weights))
    block = Block(sent(rows, device_of(classifier)), codes, weights)
    note_rows(classifier, outlier_blur_=blur_of(block))
    classifier.threshold_ = threshold_of_rows(classifier, block)


def set_threshold_of_batch(classifier: Any, batch: Block) -> None:
    """Set the threshold of a stream to that of a batch.

    The blur is the smallest of each feature in the batch and in those before.
    """
    blur, last = blur_of(batch), getattr(classifier, "outlier_blur_", None)
    if blur is not None and last is not None:
        variances = np.array([(values**2).sum(axis=0) for values in (last, blur)])
        # A feature that is constant in a batch needs no blur there.
        least = np.where((variances > 0).all(axis=0), variances.min(axis=0), variances.max(axis=0))
        blur = np.diag(np.sqrt(least))[least > 0]
    note_rows(classifier, outlier_blur_=last if blur is None else blur)
    classifier.threshold_ = threshold_of_rows(classifier, batch)


def threshold_of_rows(classifier: Any, rows: Block) -> float:
    """The score below which a share `reject_below` of these rows, or of their weight, lies."""
    return quantile(classifier.reject_below, on_host(novelty(classifier, rows.X)), rows.weights)


def blur_of(rows: Block) -> FloatArray | None:
    """The blur (R, M) of rows with R features that `unresolved` finds, None if there is none."""
    variances = unresolved(to_numpy(values_of(rows.X)).astype(np.float64), rows.weights)
    return np.diag(np.sqrt(variances))[variances > 0] if variances.any() else None


def novelty_threshold(
    estimator: Any, share: float, rows: Block, finish: Finish | None = None, groups: np.ndarray | None = None
) -> float:
    """The log-density below which a share of new rows lies, given the training rows with class codes.

    It is a quantile of the densities of rows under fits that have not seen them. The estimator, fitted to the
    rows, may be a search that averages mixtures. Densities of finished fits have different levels, so each is
    shifted to the estimator's: the quantile `share` of its training rows is then that of the same rows under
    the estimator. Whole groups (N,) are held out.

    A fold is skipped if the remaining rows cannot be fitted. If all folds are skipped, warn and take the
    densities of all rows under the estimator itself.
    """
    densities, seen, error = [], np.empty(0, dtype=np.int64), ""
    blur = getattr(estimator, "outlier_blur_", None)
    members, shares = getattr(estimator, "mixtures_", [estimator]), getattr(estimator, "shares_", np.ones(1))
    # Densities need no labels: hold out unlabelled rows too, as another class.
    strata = np.zeros(rows.X.shape[0], dtype=np.int64) if rows.y is None else rows.y.astype(np.int64) + 1
    n_folds = _N_FOLDS if finish is None else _N_FOLDS_TO_TUNE
    for training, held in stratified_folds(strata, n_folds, seed_of(estimator), groups):
        if len(seen) >= _ENOUGH:
            break
        remaining = rows.rows(training)
        try:
            models = [refit(member, remaining) for member in members]
            for model in models if finish is not None else ():
                finish(model, remaining)  # type: ignore[misc]
        except ValueError as reason:
            # Too few rows are left, or too few values of some feature.
            error = f" The last fit failed: {reason}"
            continue
        log_densities = _log_average(models, shares, pick(rows.X, held), blur)
        if finish is not None:
            level, other = (
                quantile(share, _log_average(fits, shares, remaining.X, blur), remaining.weights)
                for fits in (members, models)
            )
            log_densities += level - other
        densities.append(log_densities)
        seen = np.concatenate([seen, held])
    if not densities:
        warn_caller(
            f"No part of the {rows.X.shape[0]} rows can be held out: the threshold is a quantile of training "
            f"densities, which is too high for new rows.{error}"
        )
        return quantile(share, _log_average(members, shares, rows.X, blur), rows.weights)
    weights = None if rows.weights is None else rows.weights[seen]
    return quantile(share, np.concatenate(densities), weights)


def _log_average(models: Sequence[Any], shares: FloatArray, X: Any, blur: FloatArray | None) -> FloatArray:
    """Logarithm of the average density (n,) of rows X (n, M) under models with shares (S,)."""
    return logsumexp([on_host(log_novelty(model, X, blur)) for model in models], b=shares[:, None], axis=0)


def refit(estimator: Any, rows: Block) -> Any:
    """Fit a clone of an estimator to rows with class codes.

    Without `n_kernels`, it has the default number for these rows.
    """
    other = clone(estimator)
    other.set_callbacks()
    other.n_features_in_ = rows.X.shape[1]
    if getattr(estimator, "feature_sets", None) is not None:
        # Feature sets by index: these rows have no feature names.
        other.set_params(feature_sets=estimator.feature_sets_)
    training = Training(open_source(sent(rows.X, device_of(other)), rows.y, rows.weights), estimator.classes_)
    if not training.sizes.all():
        raise ValueError("Some class has no row.")
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        other._fit_parts(other._parts_to_fit(training.n_features), training)
    return other


def seed_of(estimator: Any) -> int:
    """A seed for splits, without advancing the estimator's generator."""
    return int(check_random_state(clone(estimator).random_state).randint(np.iinfo(np.int32).max))


def quantile(share: float, log_densities: FloatArray, weights: FloatArray | None = None) -> float:
    """The value that the log-density of a new row falls below with probability `share`.

    All ranks of a new row among n + 1 rows are equally probable, so it is below the i-th of n rows with
    probability i / (n + 1). Densities are interpolated between rows; with fewer than 1 / share rows, the
    smallest density is returned. A row of weight two, in weights (n,), counts as two.
    """
    order = np.argsort(log_densities)
    weights = np.ones(len(order)) if weights is None else weights[order]
    reached = np.cumsum(weights)
    # If weights are shares of all rows, a new row has the mean weight.
    one = min(1.0, reached[-1] / len(order))
    rank = share * (reached[-1] / one + 1.0)
    whole, part = np.floor(rank), rank % 1.0
    # First rows whose cumulative weight reaches each rank, up to rounding.
    positions = np.searchsorted(reached / one * (1.0 + 1e-12), [whole, whole + 1.0])
    low, high = log_densities[order[np.minimum(positions, len(order) - 1)]]
    with np.errstate(divide="ignore"):
        return float(np.logaddexp(np.log1p(-part) + low, np.log(part) + high))
