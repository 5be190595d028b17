"""Splits of rows: the rules that hold for all of them, whatever labels, groups and weights the rows have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut

from skmix.model.holdout import (
    Split,
    check_splits,
    default_splits,
    single_split,
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


@reproducible
@given(codes=labels, n_held=st.integers(1, 30), seed=st.integers(0, 99))
def test_one_split_holds_out_rows_of_every_class_that_has_two(
    codes: np.ndarray, n_held: int, seed: int
) -> None:
    counts = np.bincount(codes[codes >= 0], minlength=4)
    classes = np.flatnonzero(counts > 1)
    n_rows, expected = counts[classes].sum(), max(n_held, len(classes))
    assume(len(classes) and n_rows - expected >= len(classes))
    training, held = single_split(codes, n_held, seed)
    check_rules([(training, held)], codes)
    assert len(held) == expected or (len(held) > expected - len(classes) and 2 * expected > n_rows)
    share = np.bincount(codes[held], minlength=4) / n_rows
    assert np.all(np.abs(share[classes] - expected / n_rows * counts[classes] / n_rows) < 1.5 / n_rows)
    assert np.all(np.bincount(codes[training][codes[training] >= 0], minlength=4)[counts > 0] > 0)


@reproducible
@given(seed=st.integers(0, 99), n_groups=st.integers(2, 12), grouped=st.sampled_from(["cv", "default"]))
def test_groups_are_held_out_whole(seed: int, n_groups: int, grouped: str) -> None:
    random = np.random.default_rng(seed)
    codes, groups = random.integers(-1, 2, size=80), random.integers(0, n_groups, size=80)
    # The rows of one more group have no label: they train in every fold.
    codes[:4], groups[:4] = -1, n_groups
    if grouped == "cv":
        splits = splits_of(LeaveOneGroupOut(), codes, groups, np.ones(80, dtype=bool))
    else:
        splits = default_splits(codes, seed, groups)
    check_rules(splits, codes, groups)
    n_known = len(np.unique(groups[codes >= 0]))
    assert len(splits) == (n_known if grouped == "cv" else min(5, n_known))
    assert all(set(range(4)) <= set(training) for training, _ in splits)
    assert_array_equal(np.sort(np.concatenate([held for _, held in splits])), np.flatnonzero(codes >= 0))


@pytest.mark.parametrize("masks", [False, True])
def test_a_list_of_splits_numbers_the_rows_as_they_were_given(masks: bool) -> None:
    codes = np.array([0, 1, 0, 1, -1, -1, 0, 1])
    kept = np.arange(10) % 5 > 0  # rows 0 and 5 have no weight
    cv: Any = [([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]), ([5, 7, 8, 9], [1, 2, 6])]
    if masks:
        cv = [tuple(np.isin(np.arange(10), part) for part in parts) for parts in cv]
    found = splits_of(cv, codes, None, kept)
    # Rows 4 and 5 have no label: they judge nothing, and train where they are not held out.
    expected = [([0, 1, 2, 3], [6, 7]), ([5, 6, 7], [0, 1])]
    assert [tuple(part.tolist() for part in parts) for parts in found] == expected


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
