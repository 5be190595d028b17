"""Rows to choose a model by: training and held-out rows of each fold, and what is done to them first."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold, check_cv, train_test_split
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from ...engine.model import FloatArray, IntArray
from ..mixture import SharedKernelMixture

# Small samples need more folds; from many rows on, one split is as good.
_N_FOLDS, _FEWER_FOLDS = 5, 3
_ROWS_OF_FEWER_FOLDS, _ROWS_OF_ONE_SPLIT = 500, 4000
_HELD_OUT = 0.2
# Missing values are filled roughly: only settings are chosen with the result.
_PASSES_TO_FILL, _TOLERANCE_TO_FILL = 20, 1e-2

Projection = tuple[FloatArray, FloatArray]
"""Offset b (M,) and matrix A (M, q) of the features (x − b) A."""


@dataclass(frozen=True)
class Rows:
    """Rows X (n, M), labels y (n,) as given or None, class codes (n,), −1 for none, and weights (n,)."""

    X: np.ndarray
    y: np.ndarray | None
    codes: IntArray
    weights: FloatArray | None

    def take(self, index: IntArray) -> Rows:
        """Return some of the rows."""
        y, weights = (None if each is None else each[index] for each in (self.y, self.weights))
        return Rows(self.X[index], y, self.codes[index], weights)

    @property
    def labelled(self) -> Rows:
        """The rows that have a label."""
        return self if np.all(self.codes >= 0) else self.take(np.flatnonzero(self.codes >= 0))

    @property
    def size(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(len(self.X) if self.weights is None else self.weights.sum())

    def fewer(self, most: int, least_of_class: int, seed: int) -> Rows:
        """Return a sample of about `most` rows: of each class its share, but not too few."""
        if len(self.X) <= most:
            return self
        random_state = check_random_state(seed)
        kept = []
        for code in np.unique(self.codes):
            own = np.flatnonzero(self.codes == code)
            size = max(round(most * len(own) / len(self.X)), min(len(own), least_of_class))
            kept.append(random_state.choice(own, size, replace=False))
        return self.take(np.sort(np.concatenate(kept)))


@dataclass(frozen=True)
class Fold:
    """Rows to fit a candidate to, and rows to judge it by."""

    training: Rows
    held: Rows

    def map(self, function: Any) -> Fold:
        """Return the fold with its features X (n, M) replaced by `function(X)`."""
        return Fold(*(replace(rows, X=function(rows.X)) for rows in (self.training, self.held)))


def make_folds(
    rows: Rows, cv: Any, groups: np.ndarray | None, kept: IntArray, seed: int, *, fill: bool = True
) -> list[Fold]:
    """Return the folds; rows without a label are in every training set and are never held out.

    `kept` are the positions of the rows among those the user gave: an iterable `cv` refers to these. With
    `fill`, missing values are filled from the training rows.
    """
    fill = fill and bool(np.isnan(rows.X).any())
    folds = []
    for number, (training, held) in enumerate(_splits(rows, cv, groups, kept, seed)):
        held = held[rows.codes[held] >= 0]
        training = np.union1d(training, np.setdiff1d(np.flatnonzero(rows.codes < 0), held))
        missing = np.setdiff1d(rows.codes, rows.codes[training])
        if len(missing):
            label = "" if rows.y is None else repr(rows.y[rows.codes == missing[0]].tolist()[0])
            raise ValueError(
                f"Fold {number} of cv has no training row of class {label}: every class needs rows in each "
                "training set. Use a stratified splitter, fewer folds, or cv=None."
            )
        if not len(held):
            raise ValueError(f"Fold {number} of cv holds out no row that has a label.")
        fold = Fold(rows.take(training), rows.take(held))
        folds.append(fold.map(filler(fold.training.X, seed)) if fill else fold)
    return folds


def _splits(
    rows: Rows, cv: Any, groups: np.ndarray | None, kept: IntArray, seed: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield (training, held-out) row numbers."""
    labelled = np.flatnonzero(rows.codes >= 0)
    codes = rows.codes[labelled]
    if cv is None:
        for training, held in _default_splits(codes, seed):
            yield labelled[training], labelled[held]
    elif isinstance(cv, Iterable) and not hasattr(cv, "split"):
        for pair in cv:
            training, held = (np.asarray(part) for part in pair)
            training, held = (
                np.flatnonzero(part) if part.dtype == bool else part for part in (training, held)
            )
            yield np.flatnonzero(np.isin(kept, training)), np.flatnonzero(np.isin(kept, held))
    else:
        splitter = check_cv(cv, codes, classifier=True)
        own = None if groups is None else groups[labelled]
        for training, held in splitter.split(rows.X[labelled], codes, own):
            yield labelled[training], labelled[held]


def _default_splits(codes: IntArray, seed: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield stratified splits of labelled rows; rows that are alone in their class always train."""
    counts = np.bincount(codes)
    several, alone = np.flatnonzero(counts[codes] > 1), np.flatnonzero(counts[codes] == 1)
    if not len(several):
        return
    own = codes[several]
    if len(several) >= _ROWS_OF_ONE_SPLIT:
        n_held = max(int(_HELD_OUT * len(several)), len(np.unique(own)))
        training, held = train_test_split(several, test_size=n_held, stratify=own, random_state=seed)
        yield np.sort(np.concatenate([training, alone])), np.sort(held)
        return
    n_folds = _N_FOLDS if len(several) < _ROWS_OF_FEWER_FOLDS else _FEWER_FOLDS
    folds = StratifiedKFold(min(n_folds, counts[counts > 1].min()), shuffle=True, random_state=seed)
    for training, held in folds.split(several, own):
        yield np.sort(np.concatenate([several[training], alone])), several[held]


def filler(X: np.ndarray, seed: int) -> Any:
    """Return a function that fills missing values by the conditional mean of a Gaussian fitted to X (n, M).

    Features without any value in X become constant.
    """
    known = ~np.isnan(X).all(axis=0)
    gaussian = SharedKernelMixture(1, max_iter=_PASSES_TO_FILL, tol=_TOLERANCE_TO_FILL, random_state=seed)
    own = X[:, known]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gaussian.fit(own[~np.isnan(own).all(axis=1)])

    def fill(rows: np.ndarray) -> np.ndarray:
        found = np.zeros(rows.shape)
        part = rows[:, known].astype(np.float64)
        empty = np.isnan(part).all(axis=1)
        part[empty] = gaussian.means_[0]
        found[:, known] = gaussian.impute(part)
        return found

    return fill


REDUCTIONS = {
    "none": None,
    "components 0.9": (0.9, False),
    "standardised components 0.9": (0.9, True),
    "components 0.97": (0.97, False),
    "standardised components 0.97": (0.97, True),
}
"""Principal components by name: the share of the variance that they keep, and whether features are scaled."""


def fit_reduction(name: str, X: np.ndarray, seed: int) -> Projection | None:
    """Return the projection of a reduction fitted to rows X (n, M); None for 'none'."""
    setting = REDUCTIONS[name]
    if setting is None:
        return None
    share, standardised = setting
    scaler = StandardScaler().fit(X) if standardised else None
    components = PCA(share, svd_solver="full", random_state=seed).fit(
        X if scaler is None else scaler.transform(X)
    )
    if scaler is None:
        return components.mean_, components.components_.T
    return scaler.mean_ + scaler.scale_ * components.mean_, (components.components_ / scaler.scale_).T


def project(X: np.ndarray, projection: Projection | None) -> np.ndarray:
    """Return the features (n, q) of rows X (n, M)."""
    return X if projection is None else (X - projection[0]) @ projection[1]


def pooled_covariance(X: np.ndarray, codes: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the covariance (M, M) within the classes, of rows X (n, M) with classes (n,).

    One more row with the variances of all rows makes it positive definite. A missing value counts as the mean
    of its class; the variances, which that makes too small, are scaled up by the share of missing values.
    """
    weights = np.ones(len(X)) if weights is None else weights
    observed = ~np.isnan(X)
    values = np.where(observed, X, 0.0)

    def mean(own: Any) -> FloatArray:
        seen = weights[own] @ observed[own]
        return (weights[own] @ values[own]) / np.where(seen > 0, seen, 1.0)

    present, codes = np.unique(codes, return_inverse=True)
    within = np.where(
        observed, values - np.stack([mean(codes == c) for c in range(len(present))])[codes], 0.0
    )
    total, seen = weights.sum(), weights @ observed
    variances = (
        weights @ np.where(observed, values - mean(slice(None)), 0.0) ** 2 / np.where(seen > 0, seen, 1.0)
    )
    share = np.maximum(seen / total, 1.0 / len(X))
    scatter = (weights * within.T) @ within / np.sqrt(share[:, None] * share)
    prior = np.diag(np.where(variances > 0.0, variances, 1.0))
    return (scatter + prior) / (max(total - len(present), 0.0) + 1.0)
