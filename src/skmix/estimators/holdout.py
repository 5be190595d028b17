"""Which rows are held out of a fit. Every split of rows is made here.

Splits are made of rows that have a weight, given their classes (n,): codes from 0 up, and −1 for a row
without a label. Four rules hold for all of them.

- Every class is divided in proportion, and the only row of a class always trains.
- A row without a label is never held out, as it cannot judge a prediction. It trains in every split, unless
  its group is held out. To hold out unlabelled rows too, give them a code of their own.
- Rows of one group are held out together, where groups (n,) are given.
- Row numbers are sorted, so that a fit does not depend on the order in which rows were drawn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, StratifiedShuffleSplit, check_cv

from ..engine.model import IntArray

Split = tuple[IntArray, IntArray]
"""Sorted numbers of the rows to fit to, and of the held-out rows."""

# Folds of a search with few rows, whose scores are noisy.
_N_FOLDS = 5
# Folds from `_ROWS_OF_FEWER_FOLDS` rows on.
_FEWER_FOLDS, _ROWS_OF_FEWER_FOLDS = 3, 500
# From this many rows on, one split is enough, and holds out this share of them.
_ROWS_OF_ONE_SPLIT, _HELD_OUT = 4000, 0.2


def default_splits(codes: IntArray, seed: int, groups: np.ndarray | None = None) -> list[Split]:
    """Return the splits of a search: five folds, fewer of many rows, and one split of very many.

    There are at most as many folds as rows of the smallest class, and none where every class has one row.
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
    """Return shuffled folds; at most as many as the largest class has rows, or as there are groups."""
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
    """Return a split that holds out `n_held` rows, or as many as there are classes to divide if more."""
    rows = rows_to_divide(codes)
    n_held = max(n_held, len(np.unique(codes[rows])))
    ((training, held),) = _divide(codes, rows, StratifiedShuffleSplit(1, test_size=n_held, random_state=seed))
    # A large share may take all rows of a small class, of which one must train.
    lost = [held[codes[held] == code][0] for code in np.setdiff1d(codes[held], codes[training])]
    return np.union1d(training, lost).astype(np.int64), np.setdiff1d(held, lost)


def splits_of(cv: Any, codes: IntArray, groups: np.ndarray | None, kept: IntArray) -> list[Split]:
    """Return the splits by a user's `cv`: a number of folds, a splitter, or a list of splits.

    A list has numbers or masks of the rows as the user gave them, among which `kept` (n,) are these.
    """
    if isinstance(cv, Iterable) and not hasattr(cv, "split"):
        if groups is not None:
            raise ValueError(
                "groups are used to split the rows, but cv is a list of splits: leave out groups, or give a "
                "splitter such as GroupKFold."
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
    """Refuse a split that cannot judge a fit: without held-out rows, or without training rows of a class."""
    known = codes >= 0
    for number, (training, held) in enumerate(splits):
        absent = np.setdiff1d(codes[known], codes[training])
        what = ""
        if len(absent):
            of_class = "" if classes is None else f" of class {classes.tolist()[absent[0]]!r}"
            what = f"has no training row{of_class}"
        elif not len(held):
            what = "holds out no row that has a label"
        if what:
            raise ValueError(
                f"Fold {number} of cv {what}. Use a stratified splitter, fewer folds or cv=None."
            )


def random_halves(codes: IntArray, n_times: int, seed: int) -> list[Split]:
    """Return both halves of the rows, divided at random several times; every class is halved."""
    random, found = np.random.RandomState(seed), []
    for _ in range(n_times):
        order = random.permutation(len(codes))
        order = order[np.argsort(codes[order], kind="stable")]
        found.append((order[::2], order[1::2]))
    return found


def rows_to_divide(codes: IntArray) -> IntArray:
    """Return the numbers of the rows that have a label and are not alone in their class."""
    known = np.flatnonzero(codes >= 0)
    return known[np.bincount(codes[known])[codes[known]] > 1]


def _divide(codes: IntArray, rows: IntArray, splitter: Any, groups: np.ndarray | None = None) -> list[Split]:
    """Return the splits that a splitter of scikit-learn makes of some rows; the other rows train."""
    groups_of_rows = None if groups is None else groups[rows]
    with warnings.catch_warnings():
        # A class may have fewer rows than there are folds.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        warnings.filterwarnings("error", "The groups parameter is ignored", UserWarning)
        try:
            parts = list(splitter.split(rows, codes[rows], groups_of_rows))
        except UserWarning:
            raise ValueError(
                f"groups are ignored by {type(splitter).__name__}: leave out groups, or give a splitter such "
                "as GroupKFold for cv, or None."
            ) from None
    alone = np.setdiff1d(np.flatnonzero(codes >= 0), rows)
    return [
        _complete(codes, np.union1d(rows[training], alone), np.sort(rows[held]), groups)
        for training, held in parts
    ]


def _complete(codes: IntArray, training: IntArray, held: IntArray, groups: np.ndarray | None = None) -> Split:
    """Return a split in which rows without a label train, unless they or their group are held out."""
    free = np.setdiff1d(np.flatnonzero(codes < 0), held)
    if groups is not None:
        free = free[~np.isin(groups[free], groups[held])]
    return np.union1d(training, free), held[codes[held] >= 0]
