"""Cross-fitting: how a model treats rows that it has not seen.

A model describes its own training rows better than new ones, the more so the fewer rows it has for its
parameters. So whatever is read off rows (a threshold, a temperature, when to stop) is read off rows that were
held out of a fit with the same settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from ..engine.compute.arrays import on_host, pick
from ..engine.compute.blocks import Block
from ..engine.model import FloatArray, IntArray
from ..engine.sources import open_source
from .densities import log_density
from .rows import Training, sent, warn_caller
from .solving import fit_jointly, fit_model

# Rows are held out in this many parts, one after the other, until there are this many held-out rows; in fewer
# parts where each fit is tuned, which takes many times as long.
_N_PARTS, N_PARTS_TO_TUNE, _ENOUGH = 10, 4, 2000


def held_out_densities(
    estimator: Any, rows: Block, finish: Callable[[Any, Block], None] | None = None
) -> tuple[FloatArray, FloatArray | None]:
    """Return log p(x), shape (n,), of rows by fits that have not seen them, and the rows' weights (n,).

    The estimator may be a search that averages mixtures; their shares stay. `rows` have class codes;
    `finish` changes each fit, given the rows it was fitted to. Rows of parts without which there is no fit
    are left out. Where there is no such part at all, the densities are those of the
    estimator itself.
    """
    densities, seen, error = [], np.empty(0, dtype=np.int64), ""
    n_parts = _N_PARTS if finish is None else N_PARTS_TO_TUNE
    members, shares = getattr(estimator, "mixtures_", [estimator]), getattr(estimator, "shares_", np.ones(1))
    for training, held in parts_of(rows, seed_of(estimator), n_parts):
        if len(seen) >= _ENOUGH:
            break
        try:
            models = [refit(each, rows.rows(training)) for each in members]
            if finish is not None:
                for model in models:
                    finish(model, rows.rows(training))
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
    """Return another estimator with the settings of a fitted one, fitted to rows.

    Without `n_kernels`, it has the default number for these rows.
    """
    other = clone(estimator)
    vars(other).pop("_skl_callbacks", None)
    other.n_features_in_ = estimator.n_features_in_
    if vars(estimator).get("feature_sets") is not None:
        # By index: rows have no names here.
        other.set_params(feature_sets=estimator.feature_sets_)
    training = Training(open_source(sent(other, rows.X), rows.y, rows.weights), estimator.classes_)
    if not training.sizes.all():
        raise ValueError("Some class has no row.")
    parts = other._parts_to_fit(training.n_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if len(parts) > 1 and training.n_unlabelled:
            fit_jointly(parts, training)
        else:
            for group, (columns, model) in enumerate(parts):
                fit_model(model, training.take(columns, group), columns)
    other._store(parts, training.sizes, None if training.n_unlabelled else training.class_prior)
    return other


def seed_of(estimator: Any) -> int:
    """Return a seed for parts, which leaves the state of an estimator's generator as it is."""
    return int(check_random_state(clone(estimator).random_state).randint(np.iinfo(np.int32).max))


def parts_of(rows: Block, seed: int, n_parts: int = _N_PARTS) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield numbers of rows to train with and of held-out rows, which are disjoint and of all classes alike.

    A row that is alone in its class always trains.
    """
    codes = np.zeros(rows.X.shape[0], dtype=np.int64) if rows.y is None else rows.y.astype(np.int64)
    order = np.lexsort([np.random.RandomState(seed).permutation(len(codes)), codes])
    part = np.empty(len(codes), dtype=np.int64)
    part[order] = np.arange(len(codes)) % n_parts
    part[np.bincount(codes + 1)[codes + 1] == 1] = -1
    for number in range(n_parts):
        held = part == number
        if held.any():
            yield np.flatnonzero(~held), np.flatnonzero(held)


def quantile(share: float, log_densities: FloatArray, weights: FloatArray | None = None) -> float:
    """Return the log-density below which that of a further row lies with a probability of `share`.

    Among n rows and itself, a new row has any rank with the same probability, so it is below the i-th of the
    n with a probability of i / (n + 1). Between two rows, densities are interpolated; with fewer than
    1 / share rows, the least density is taken. A row of weight two, of weights (n,), counts as two.
    """
    order = np.argsort(log_densities)
    weights = np.ones(len(order)) if weights is None else weights[order]
    reached = np.cumsum(weights)
    # Weights may be shares of all rows, and then one more row counts as an average one.
    one = min(1.0, reached[-1] / len(order))
    rank = share * (reached[-1] / one + 1.0)
    whole, part = np.floor(rank), rank % 1.0
    # The first rows that reach the ranks, but for rounding of the sums.
    places = np.searchsorted(reached / one * (1.0 + 1e-12), [whole, whole + 1.0])
    low, high = log_densities[order[np.minimum(places, len(order) - 1)]]
    with np.errstate(divide="ignore"):
        return float(np.logaddexp(np.log1p(-part) + low, np.log(part) + high))
