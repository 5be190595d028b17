"""Split rows into training rows and held-out rows.

Splits refer to rows of positive weight with class codes (n,), −1 for unlabelled rows. Four rules hold for all
splits.

- Every class is divided in proportion, and the only row of a class always trains.
- An unlabelled row is never held out, because no prediction can be compared with its label. It trains in
  every split, unless its group is held out. To hold out unlabelled rows too, give them another code.
- If groups (n,) are given, the rows of a group are held out together.
- Row numbers are sorted, so that a fit does not depend on the order in which rows were drawn. Only a
  user's `cv` repeats some.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from ..engine.numbers import BoolArray
from ..engine.records import IntArray

Split = tuple[IntArray, IntArray]
"""Sorted numbers of the rows to fit to, and of the held-out rows."""

# Number of folds with few rows, whose scores are noisy, and with more rows.
_N_FOLDS, _FEWER_FOLDS, _ROWS_OF_FEWER_FOLDS = 5, 3, 500
# From this many rows on, one split is enough, which holds out this share.
_ROWS_OF_ONE_SPLIT, _HELD_OUT = 4000, 0.2


def default_splits(
    codes: IntArray, seed: int, groups: np.ndarray | None = None, most: int = _N_FOLDS
) -> list[Split]:
    """The default splits of a search: five folds or `most`, three with many rows, one split with very many.

    There are at most as many folds as the smallest class has rows, and none if every class has one row.
    """
    n_folds = most if np.count_nonzero(codes >= 0) < _ROWS_OF_FEWER_FOLDS else _FEWER_FOLDS
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
    """At most `n_folds` shuffled folds: not more than rows of the largest class, or than groups."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold  # slow to import

    rows = rows_to_divide(codes) if groups is None else np.flatnonzero(codes >= 0)
    if not len(rows):
        return []
    most = np.bincount(codes[rows]).max() if groups is None else len(np.unique(groups[rows]))
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    return _divide(codes, rows, kind(min(n_folds, most), shuffle=True, random_state=seed), groups)


def single_split(codes: IntArray, n_held: int, seed: int | np.random.RandomState) -> Split:
    """A split that holds out `n_held` rows, but at least one per class to divide."""
    from sklearn.model_selection import StratifiedShuffleSplit  # slow to import

    rows = rows_to_divide(codes)
    n_held = max(n_held, len(np.unique(codes[rows])))
    ((training, held),) = _divide(codes, rows, StratifiedShuffleSplit(1, test_size=n_held, random_state=seed))
    # If all rows of a small class are held out, move one of them to the training rows.
    lost = [held[codes[held] == code][0] for code in np.setdiff1d(codes[held], codes[training])]
    return np.union1d(training, lost).astype(np.int64), np.setdiff1d(held, lost)


def rows_to_divide(codes: IntArray) -> IntArray:
    """Numbers of the labelled rows that are not the only row of their class."""
    known = np.flatnonzero(codes >= 0)
    return known[np.bincount(codes[known])[codes[known]] > 1]


def _divide(codes: IntArray, rows: IntArray, splitter: Any, groups: np.ndarray | None = None) -> list[Split]:
    """Split some rows by a splitter of scikit-learn; the other rows train."""
    with warnings.catch_warnings():
        # A class may have fewer rows than there are folds.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        warnings.filterwarnings("error", "The groups parameter is ignored", UserWarning)
        try:
            parts = list(splitter.split(rows, codes[rows], None if groups is None else groups[rows]))
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
    # Counts: set operations on row numbers take longer than a fit of a large table.
    is_free = codes < 0
    is_free[held] = False
    if groups is not None:
        is_free[is_free] = ~np.isin(groups[is_free], groups[held])
    counts = np.bincount(training, minlength=len(codes))
    return np.repeat(np.arange(len(codes)), np.maximum(counts, is_free)), held[codes[held] >= 0]


# ---------------------------------------------------------------- splits of the user


def splits_of(cv: Any, codes: IntArray, groups: np.ndarray | None, kept: BoolArray) -> list[Split]:
    """The splits of a user's `cv`: a number of folds, a splitter, or a list of splits.

    A list has numbers or masks of the rows that the user gave; `kept` (N,) says which of these have the codes
    (n,). A row that a list repeats counts as often.
    """
    from sklearn.model_selection import PredefinedSplit, check_cv  # slow to import

    if isinstance(cv, PredefinedSplit):
        # It divides the rows that the user gave, whatever rows it is asked to divide.
        cv = [(cv.test_fold != fold, cv.test_fold == fold) for fold in cv.unique_folds]
    if not isinstance(cv, Iterable) or hasattr(cv, "split"):
        rows = np.flatnonzero(codes >= 0)
        return _divide(codes, rows, check_cv(cv, codes[rows], classifier=True), groups)
    if groups is not None:
        raise ValueError(
            "groups cannot be combined with a list of splits as cv: leave out groups, or give a splitter "
            "such as GroupKFold."
        )
    splits, position = [], np.cumsum(kept) - 1
    for number, parts in enumerate(cv):
        if not hasattr(parts, "__len__") or len(parts) != 2:
            raise ValueError(
                f"Fold {number} of cv must be a pair of training rows and held-out rows, got "
                f"{repr(parts)[:60]}."
            )
        numbers = []
        for role, part in zip(("training", "held-out"), parts, strict=True):
            chosen = _row_numbers(part, len(kept), f"Fold {number} of cv: {role} rows")
            numbers.append(np.sort(position[chosen[kept[chosen]]]))
        splits.append(_complete(codes, *numbers))
    if not splits:
        raise ValueError("cv yields no split: an iterator is exhausted after one fit; give a list of splits.")
    return splits


def _row_numbers(part: Any, n_rows: int, name: str) -> IntArray:
    """Numbers of some rows, given as numbers, from the end if negative, or as a mask (n_rows,)."""
    chosen = np.asarray(part)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "biu"):
        raise ValueError(
            f"{name} must be an array of row numbers or a mask of booleans, got an array of type "
            f"{chosen.dtype} and shape {chosen.shape}."
        )
    if chosen.dtype.kind == "b":
        if len(chosen) != n_rows:
            raise ValueError(f"{name} are a mask of {len(chosen)} rows, but X has {n_rows} rows.")
        return np.flatnonzero(chosen)
    numbers = chosen.astype(np.int64)
    outside = numbers[(numbers < -n_rows) | (numbers >= n_rows)]
    if len(outside):
        raise ValueError(
            f"{name} have {len(outside)} numbers outside X, such as {outside[0]}: it has {n_rows} rows, "
            "numbered from 0."
        )
    return np.where(numbers < 0, numbers + n_rows, numbers)


def check_splits(splits: list[Split], codes: IntArray, classes: np.ndarray | None) -> None:
    """Raise ValueError if a split lacks held-out rows or training rows of a class, or if the two overlap."""
    for number, (training, held) in enumerate(splits):
        absent = np.setdiff1d(codes[codes >= 0], codes[training])
        problem = "" if len(held) else "holds out no row that has a label"
        if len(absent):
            of_class = "" if classes is None else f" of class {classes.tolist()[absent[0]]!r}"
            problem = f"has no training row{of_class}"
        if problem:
            raise ValueError(
                f"Fold {number} of cv {problem}. Use a stratified splitter, fewer folds or cv=None."
            )
        n_both = np.count_nonzero(np.bincount(training, minlength=len(codes))[held])
        if n_both:
            raise ValueError(
                f"Fold {number} of cv trains on {n_both} of its {len(held)} held-out rows: such scores say "
                "nothing about new rows. Remove these rows from the training rows or from the held-out ones."
            )
