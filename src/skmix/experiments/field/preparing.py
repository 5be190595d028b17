"""What an automatic choice begins with: gaps filled, folds, reductions, and what classes have in common."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skmix.estimators import SharedKernelMixture
from skmix.experiments.field.data import FloatArray, IntArray

VARIANCE_KEPT = (0.9, 0.97)
"""Shares of the variance that principal components keep."""

# With no more features than this, all of them are used as they are; with more than that, never.
_FEW_FEATURES = 12
_TOO_MANY_FEATURES = 100
# Few rows need more folds; from many on, one split tells as much as folds.
_N_FOLDS, _FEWER_FOLDS = 5, 3
_ROWS_OF_FEWER_FOLDS = 500
_ROWS_OF_ONE_SPLIT = 4000
_HELD_OUT = 0.2
# Gaps are filled roughly: it is settings that are chosen with what comes of it.
_PASSES_TO_FILL, _TOLERANCE = 20, 1e-2


def pooled_covariance(rows: FloatArray, codes: IntArray) -> FloatArray:
    """Return the covariance (M, M) within the classes, of rows (N, M) with classes (N,).

    One more row with the variances of all rows makes it positive definite, whatever the rows are.
    """
    counts = np.bincount(codes)
    observed = ~np.isnan(rows)
    # A class may have no value of a feature at all; then no row needs its mean.
    means = np.stack(
        [
            np.nansum(rows[codes == c], axis=0) / np.maximum(observed[codes == c].sum(axis=0), 1)
            for c in range(len(counts))
        ]
    )
    centred = np.where(observed, rows - means[codes], 0.0)
    variances = np.nanvar(rows, axis=0)
    prior = np.diag(np.where(variances > 0.0, variances, 1.0))
    # A gap counts as its class's mean; what is then too small by the share of gaps is put right.
    share = np.maximum(observed.mean(axis=0), 1.0 / len(rows))
    scatter = centred.T @ centred / np.sqrt(share[:, None] * share)
    n_free = max(len(rows) - int(np.count_nonzero(counts)), 0)
    return (scatter + prior) / (n_free + 1.0)


def filled(rows: FloatArray, seed: int) -> FloatArray:
    """Return rows (N, M) with their gaps filled from a Gaussian of all rows.

    Rows and features without any value are refused.
    """
    mixture = SharedKernelMixture(1, max_iter=_PASSES_TO_FILL, tol=_TOLERANCE, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mixture.fit(rows).impute(rows)


def folds_of(codes: IntArray, seed: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (training, held-out) rows; rows of classes that have but one always train."""
    counts = np.bincount(codes)
    divisible = np.flatnonzero(counts[codes] > 1)
    if not len(divisible):
        return
    alone = np.flatnonzero(counts[codes] == 1)
    own = codes[divisible]
    smallest = int(counts[counts > 1].min())
    if len(divisible) >= _ROWS_OF_ONE_SPLIT:
        n_held = max(int(_HELD_OUT * len(divisible)), len(np.unique(own)))
        training, held = train_test_split(divisible, test_size=n_held, stratify=own, random_state=seed)
        yield np.sort(np.concatenate([training, alone])), np.sort(held)
        return
    n_folds = _N_FOLDS if len(divisible) < _ROWS_OF_FEWER_FOLDS else _FEWER_FOLDS
    folds = StratifiedKFold(min(n_folds, smallest), shuffle=True, random_state=seed)
    for training, held in folds.split(divisible, own):
        yield np.sort(np.concatenate([divisible[training], alone])), divisible[held]


def reductions_of(rows: FloatArray, seed: int, gaps: bool) -> dict[str, Pipeline]:
    """Return what may be done to the features first, by name, fitted to the rows."""
    reducible = rows.shape[1] > _FEW_FEATURES and not gaps and len(rows) > 2
    reductions = {}
    if not reducible or rows.shape[1] <= _TOO_MANY_FEATURES:
        reductions["none"] = make_pipeline(FunctionTransformer())
    if reducible:
        for share in VARIANCE_KEPT:
            kept = PCA(share, svd_solver="full", random_state=seed)
            reductions[f"components {share:g}"] = make_pipeline(kept)
            scaled = PCA(share, svd_solver="full", random_state=seed)
            reductions[f"standardised components {share:g}"] = make_pipeline(StandardScaler(), scaled)
    return {name: reduction.fit(rows) for name, reduction in reductions.items()}
