"""Splits of rows: the rules that hold for all of them, whatever labels, groups and weights the rows have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.model_selection import GroupKFold, KFold

from skmix.model.holdout import (
    Split,
    check_splits,
    default_splits,
    splits_of,
    stratified_folds,
)

reproducible = settings(max_examples=60, deadline=None, derandomize=True)
labels = st.lists(st.integers(-1, 3), min_size=4, max_size=60).map(np.array)


def check_rules(splits: list[Split], codes: np.ndarray, groups: np.ndarray | None = None) -> None:
    """Assert what holds for every split."""
    for training, held in splits:
        assert_array_equal(training, np.unique(training))
        assert_array_equal(held, np.unique(held))
        assert not set(training) & set(held)
        assert np.all(codes[held] >= 0)
        others = np.setdiff1d(np.arange(len(codes)), held)
        if groups is not None:
            assert not set(groups[training]) & set(groups[held])
            others = others[~np.isin(groups[others], groups[held])]
        assert_array_equal(training, others)


@reproducible
@given(codes=labels, n_folds=st.integers(2, 6), seed=st.integers(0, 99))
def test_folds_divide_every_class_in_proportion(codes: np.ndarray, n_folds: int, seed: int) -> None:
    splits = stratified_folds(codes, n_folds, seed)
    counts = np.bincount(codes[codes >= 0], minlength=4)
    check_rules(splits, codes)
    assert len(splits) == (min(n_folds, counts.max()) if counts.max() > 1 else 0)
    for code, count in enumerate(counts):
        sizes = [np.count_nonzero(codes[held] == code) for _, held in splits]
        # A row that is alone in its class always trains, and every other row is held out once.
        assert sum(sizes) == (count if count > 1 else 0)
        assert max(sizes, default=0) - min(sizes, default=0) <= 1
    if splits:
        check_splits(splits, codes, codes)
        assert [held.tolist() for _, held in splits] == [
            held.tolist() for _, held in stratified_folds(codes, n_folds, seed)
        ]


@pytest.mark.parametrize(("n_rows", "n_splits"), [(499, 5), (500, 3), (3999, 3), (4000, 1)])
def test_many_rows_need_fewer_splits(n_rows: int, n_splits: int) -> None:
    codes = np.concatenate([np.arange(n_rows) % 2, np.full(600, -1)])
    splits = default_splits(codes, 0)
    check_rules(splits, codes)
    assert len(splits) == n_splits
    if n_splits == 1:
        assert len(splits[0][1]) == 800
    # No more folds than rows of the smallest class.
    few = np.append(codes[2:], [2, 2])
    assert len(default_splits(few, 0)) == min(n_splits, 2)
    assert default_splits(np.array([0, 1, -1, -1]), 0) == []


@pytest.mark.parametrize(
    ("cv", "grouped", "message"),
    [
        ([(np.arange(3, 23), np.arange(3))], False, "Fold 0 of cv has no training row of class 'few'"),
        ([(np.arange(23), [])], False, "Fold 0 of cv holds out no row that has a label"),
        ([], False, "cv yields no split"),
        ([(np.arange(9), np.arange(9, 23))], True, "a list of splits as cv: leave out groups"),
        (3, True, "groups cannot be combined with StratifiedKFold"),
        (KFold(3), True, "groups cannot be combined with KFold"),
        (GroupKFold(2), True, "has no training row of class 'few'"),
    ],
)
def test_splits_that_cannot_judge_are_refused(cv: Any, grouped: bool, message: str) -> None:
    codes, groups = np.repeat([0, 1], [3, 20]), np.repeat([0, 1, 2], [3, 10, 10]) if grouped else None
    with pytest.raises(ValueError, match=message):
        check_splits(
            splits_of(cv, codes, groups, np.ones(23, dtype=bool)), codes, np.array(["few", "many"])[codes]
        )
