"""Split rows into training rows and held-out rows.

Splits refer to rows of positive weight with class codes (n,), −1 for unlabelled rows. Four rules hold for all
splits.

- Every class is divided in proportion, and the only row of a class always trains.
- An unlabelled row is never held out, because no prediction can be compared with its label. It trains in
  every split, unless its group is held out. To hold out unlabelled rows too, give them another code.
- If groups (n,) are given, the rows of a group are held out together.
- Row numbers are sorted, so that a fit does not depend on the order in which rows were drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..engine.model import IntArray

Split = tuple[IntArray, IntArray]
"""Sorted numbers of the rows to fit to, and of the held-out rows."""

# Number of folds with few rows, whose scores are noisy.
_N_FOLDS = 5
# From this many rows on, fewer folds are enough.
_ROWS_OF_FEWER_FOLDS = 500
# Number of folds in that case.
_FEWER_FOLDS = 3
# From this many rows on, one split is enough.
_ROWS_OF_ONE_SPLIT = 4000
# Share of the rows that it holds out.
_HELD_OUT = 0.2


def default_splits(codes: IntArray, seed: int, groups: np.ndarray | None = None) -> list[Split]:
    """Return the default splits of a search: five folds, three with many rows, one split with very many.

    There are at most as many folds as the smallest class has rows, and none if every class has one row.
    """
    n_folds = _N_FOLDS if np.count_nonzero(codes >= 0) < _ROWS_OF_FEWER_FOLDS else _FEWER_FOLDS
    if groups is not None:
        return stratified_folds(codes, n_folds, seed, groups)
    divided = codes[rows_to_divide(codes)]
    if not len(divided):
        return []
    if len(divided) >= _ROWS_OF_ONE_SPLIT:
        return [single_split(codes, int(_HELD_OUT * len(divided)), seed)]
    counts = np.bincount(divided)
    return stratified_folds(codes, min(n_folds, counts[counts > 0].min()), seed)


def stratified_folds(
    codes: IntArray, n_folds: int, seed: int, groups: np.ndarray | None = None
) -> list[Split]:
    """Return at most `n_folds` shuffled folds: not more than rows of the largest class, or than groups."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold  # slow to import

    if groups is not None:
        known = np.flatnonzero(codes >= 0)
        n_folds = min(n_folds, len(np.unique(groups[known])))
        splitter = StratifiedGroupKFold(n_folds, shuffle=True, random_state=seed)
        return _divide(codes, known, splitter, groups)
    rows = rows_to_divide(codes)
    if not len(rows):
        return []
    n_folds = min(n_folds, np.bincount(codes[rows]).max())
    return _divide(codes, rows, StratifiedKFold(n_folds, shuffle=True, random_state=seed))


def single_split(codes: IntArray, n_held: int, seed: int | np.random.RandomState) -> Split:
    """Return a split that holds out `n_held` rows, but at least one per class to divide."""
    from sklearn.model_selection import StratifiedShuffleSplit  # slow to import

    rows = rows_to_divide(codes)
    n_held = max(n_held, len(np.unique(codes[rows])))
    ((training, held),) = _divide(codes, rows, StratifiedShuffleSplit(1, test_size=n_held, random_state=seed))
    # If all rows of a small class are held out, move one of them to the training rows.
    lost = [held[codes[held] == code][0] for code in np.setdiff1d(codes[held], codes[training])]
    return np.union1d(training, lost).astype(np.int64), np.setdiff1d(held, lost)


def splits_of(cv: Any, codes: IntArray, groups: np.ndarray | None, kept: IntArray) -> list[Split]:
    """Return the splits of a user's `cv`: a number of folds, a splitter, or a list of splits.

    A list has numbers or masks of the rows that the user gave; `kept` (n,) are the numbers of these rows.
    """
    from sklearn.model_selection import check_cv  # slow to import

    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        if groups is not None:
            raise ValueError(
                "groups cannot be combined with a list of splits as cv: leave out groups, or give a splitter "
                "such as GroupKFold."
            )
        splits = []
        for parts in cv:
            arrays = map(np.asarray, parts)
            numbers = (np.flatnonzero(part) if part.dtype == bool else part for part in arrays)
            training, held = (np.flatnonzero(np.isin(kept, part)) for part in numbers)
            splits.append(_complete(codes, training, held))
        if not splits:
            raise ValueError(
                "cv yields no split: an iterator is exhausted after one fit; give a list of splits."
            )
        return splits
    rows = np.flatnonzero(codes >= 0)
    return _divide(codes, rows, check_cv(cv, codes[rows], classifier=True), groups)


def check_splits(splits: list[Split], codes: IntArray, classes: np.ndarray | None) -> None:
    """Raise ValueError if a split has no held-out rows, or no training rows of a class."""
    known = codes >= 0
    for number, (training, held) in enumerate(splits):
        absent = np.setdiff1d(codes[known], codes[training])
        problem = ""
        if len(absent):
            of_class = "" if classes is None else f" of class {classes.tolist()[absent[0]]!r}"
            problem = f"has no training row{of_class}"
        elif not len(held):
            problem = "holds out no row that has a label"
        if problem:
            raise ValueError(
                f"Fold {number} of cv {problem}. Use a stratified splitter, fewer folds or cv=None."
            )


def rows_to_divide(codes: IntArray) -> IntArray:
    """Return the numbers of the labelled rows that are not the only row of their class."""
    known = np.flatnonzero(codes >= 0)
    return known[np.bincount(codes[known])[codes[known]] > 1]


def _divide(codes: IntArray, rows: IntArray, splitter: Any, groups: np.ndarray | None = None) -> list[Split]:
    """Split some rows by a splitter of scikit-learn; the other rows train."""
    groups_of_rows = None if groups is None else groups[rows]
    with warnings.catch_warnings():
        # A class may have fewer rows than there are folds.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        warnings.filterwarnings("error", "The groups parameter is ignored", UserWarning)
        try:
            parts = list(splitter.split(rows, codes[rows], groups_of_rows))
        except UserWarning:
            raise ValueError(
                f"groups cannot be combined with {type(splitter).__name__}, which ignores them: leave out "
                "groups, or set cv to None or to a splitter such as GroupKFold."
            ) from None
    is_alone = codes >= 0
    is_alone[rows] = False
    alone = np.flatnonzero(is_alone)
    return [
        _complete(codes, np.concatenate([rows[training], alone]), np.sort(rows[held]), groups)
        for training, held in parts
    ]


def _complete(codes: IntArray, training: IntArray, held: IntArray, groups: np.ndarray | None = None) -> Split:
    """Add unlabelled rows to the training rows, unless they or their group are held out."""
    # Masks: set operations on row numbers take longer than a fit of a large table.
    is_free = codes < 0
    is_free[held] = False
    if groups is not None:
        is_free[is_free] = ~np.isin(groups[is_free], groups[held])
    is_free[training] = True
    return np.flatnonzero(is_free), held[codes[held] >= 0]
