"""Rows to choose a model by: training and held-out rows of each fold, and what is done to them first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit, check_cv

from ...engine.model import FloatArray, IntArray
from ..mixture import SharedKernelMixture

# Small samples need more folds; from many rows on, one split is as good.
_N_FOLDS, _FEWER_FOLDS, _HELD_OUT = 5, 3, 0.2
_ROWS_OF_FEWER_FOLDS, _ROWS_OF_ONE_SPLIT = 500, 4000
# Singular values below this share of the largest do not determine a direction.
_LEAST_SINGULAR = 0.05
# Missing values are filled roughly: only settings are chosen with the result.
_PASSES_TO_FILL, _TOLERANCE_TO_FILL = 20, 1e-2
# Principal components: the share of the variance that they keep, and whether features are standardised first.
_REDUCTIONS = {
    "components 0.9": (0.9, False),
    "standardised components 0.9": (0.9, True),
    "components 0.97": (0.97, False),
    "standardised components 0.97": (0.97, True),
}
# Up to the first number of features they are not reduced; above the second they always are.
_FEW_FEATURES, _TOO_MANY_FEATURES = 12, 100
_TINY = np.finfo(np.float64).tiny

Projection = tuple[FloatArray, FloatArray]
"""Offset b (M,) and matrix A (M, q) of the features (x − b) A."""


@dataclass(frozen=True)
class Rows:
    """Rows X (n, M), labels y (n,) as given or None, class codes (n,), −1 for none, and weights (n,)."""

    X: np.ndarray
    y: Any
    codes: IntArray
    weights: FloatArray | None

    def take(self, index: IntArray) -> Rows:
        """Return some of the rows."""
        y, weights = (None if each is None else each[index] for each in (self.y, self.weights))
        return Rows(self.X[index], y, self.codes[index], weights)

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> Rows:
        """Return the rows with other features."""
        return replace(self, X=function(self.X))

    @property
    def labelled(self) -> Rows:
        """The rows that have a label."""
        return self if np.all(self.codes >= 0) else self.take(np.flatnonzero(self.codes >= 0))

    @property
    def row_weights(self) -> FloatArray:
        """Weights (n,), one where none were given."""
        return np.ones(len(self.X)) if self.weights is None else self.weights


Fold = tuple[Rows, Rows]
"""Rows to fit candidates to, and held-out rows to judge them by."""


def make_folds(rows: Rows, cv: Any, groups: Any, kept: IntArray, seed: int) -> list[Fold]:
    """Return the folds; rows without a label are in every training set and are never held out.

    `kept` are the positions of the rows among those the user gave, which `groups` and iterable `cv` refer to.
    """
    folds = []
    for number, (training, held) in enumerate(_splits(rows.codes, cv, groups, kept, seed)):
        held = held[rows.codes[held] >= 0]
        training = np.union1d(training, np.setdiff1d(np.flatnonzero(rows.codes < 0), held))
        missing = np.setdiff1d(rows.codes, rows.codes[training])
        if len(missing) or not len(held):
            what = "holds out no row that has a label"
            if len(missing):
                what = f"has no training row of class {rows.y[rows.codes == missing[0]].tolist()[0]!r}"
            raise ValueError(
                f"Fold {number} of cv {what}. Use a stratified splitter, fewer folds or cv=None."
            )
        folds.append((rows.take(training), rows.take(held)))
    return folds


def _splits(
    codes: IntArray, cv: Any, groups: Any, kept: IntArray, seed: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield training and held-out row numbers; by default, rows alone in their class always train."""
    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        for training, held in cv:
            yield np.flatnonzero(np.isin(kept, training)), np.flatnonzero(np.isin(kept, held))
        return
    split, always = np.flatnonzero(codes >= 0), np.empty(0, dtype=np.int64)
    if cv is None:
        counts = np.bincount(codes[split])[codes[split]]
        split, always, counts = split[counts > 1], split[counts == 1], counts[counts > 1]
        if not len(split):
            return
        if len(split) >= _ROWS_OF_ONE_SPLIT:
            n_held = max(int(_HELD_OUT * len(split)), len(np.unique(codes[split])))
            cv = StratifiedShuffleSplit(1, test_size=n_held, random_state=seed)
        else:
            n_folds = _N_FOLDS if len(split) < _ROWS_OF_FEWER_FOLDS else _FEWER_FOLDS
            cv = StratifiedKFold(min(n_folds, counts.min()), shuffle=True, random_state=seed)
    own, groups = codes[split], None if groups is None else np.asarray(groups)[kept][split]
    for training, held in check_cv(cv, own, classifier=True).split(own, own, groups):
        yield np.union1d(split[training], always), np.sort(split[held])


def filler(X: np.ndarray, seed: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return what fills missing values by their mean under a Gaussian fitted to X (n, M), given the others.

    Features without any value in X become constant.
    """
    if not np.isnan(X).any():
        return lambda rows: rows
    known = np.flatnonzero(~np.isnan(X).all(axis=0))
    gaussian = SharedKernelMixture(1, max_iter=_PASSES_TO_FILL, tol=_TOLERANCE_TO_FILL, random_state=seed)
    gaussian.fit(X[:, known])

    def fill(rows: np.ndarray) -> np.ndarray:
        found = np.zeros(rows.shape)
        found[:, known] = gaussian.impute(rows[:, known])
        return found

    return fill


def reductions(X: np.ndarray) -> list[str]:
    """Return the names of the reductions to try for rows X (n, M): only complete rows are reduced."""
    n_rows, n_features = X.shape
    if n_features <= _FEW_FEATURES or n_rows <= 2 or np.isnan(X).any():
        return ["none"]
    return [*(["none"] if n_features <= _TOO_MANY_FEATURES else []), *_REDUCTIONS]


def fit_reduction(name: str, X: np.ndarray, seed: int) -> Projection | None:
    """Return the projection of a reduction fitted to rows X (n, M); None for 'none'."""
    if name == "none":
        return None
    share, standardised = _REDUCTIONS[name]
    deviations = X.std(axis=0)
    scale = np.where((deviations > 0.0) & standardised, deviations, 1.0)
    components = PCA(share, svd_solver="full", random_state=seed).fit(X / scale)
    return scale * components.mean_, (components.components_ / scale).T


def project(X: np.ndarray, projection: Projection | None) -> np.ndarray:
    """Return the features (n, q) of rows X (n, M).

    A row with missing values has the features that fit its other values best, by least squares; a row without
    any value has none.
    """
    if projection is None:
        return X
    offset, matrix = projection
    centred = X - offset
    reduced: np.ndarray = centred @ matrix
    with_gaps = np.flatnonzero(np.isnan(reduced).any(axis=1))
    back = np.linalg.pinv(matrix).T if len(with_gaps) else matrix
    for row in with_gaps:
        seen = ~np.isnan(centred[row])
        if seen.any():
            # Directions that the other values hardly determine stay at the mean.
            reduced[row] = np.linalg.lstsq(back[seen], centred[row, seen], rcond=_LEAST_SINGULAR)[0]
    return reduced


def pooled_covariance(X: np.ndarray, codes: IntArray, weights: FloatArray | None = None) -> FloatArray:
    """Return the covariance (M, M) within the classes, of rows X (n, M) with classes (n,).

    One more row with the variances of all rows makes it positive definite. A missing value counts as the mean
    of its class; what that makes too small is scaled up by the share of values that are missing.
    """
    weights = np.ones(len(X)) if weights is None else weights
    observed = ~np.isnan(X)
    values = np.where(observed, X, 0.0)

    def deviations(codes: IntArray) -> FloatArray:
        members = weights * (codes == np.arange(codes.max() + 1)[:, None])
        means = (members @ values) / np.maximum(members @ observed, _TINY)
        return np.where(observed, values - means[codes], 0.0)

    present, codes = np.unique(codes, return_inverse=True)
    total, seen = weights.sum(), weights @ observed
    within, overall = deviations(codes), deviations(np.zeros_like(codes))
    variances = weights @ overall**2 / np.maximum(seen, _TINY)
    share = np.maximum(seen / total, 1.0 / len(X))
    scatter = (weights * within.T) @ within / np.sqrt(share[:, None] * share)
    prior = np.diag(np.where(variances > 0.0, variances, 1.0))
    return (scatter + prior) / (max(total - len(present), 0.0) + 1.0)
