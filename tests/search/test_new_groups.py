"""Groups whose classes are shifted: the covariance of the shifts, and kernels that are widened by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.engine.rows.blocks import Block
from skmix.search.groups import GroupedBlock, shift_covariance, widened

Data = tuple[np.ndarray, np.ndarray, np.ndarray]


def shifted(n_groups: int, n_each: int, seed: int, spread: float = 1.5) -> Data:
    """Return rows (n, 3) of two classes, their labels and groups; every class is shifted in every group.

    The second class is wide, so that rows of the first one that are far from its training rows look like it.
    """
    random = np.random.default_rng(seed)
    groups, y = np.repeat(np.arange(n_groups), n_each), np.tile([0, 1], n_groups * n_each // 2)
    shifts = spread * random.normal(size=(n_groups, 2, 3)) * [1.0, 0.5, 0.0]
    X = random.normal(size=(len(y), 3)) * np.where(y == 0, 0.3, 2.0)[:, None] + shifts[groups, y]
    X[:, 2] += 3.0 * y
    return X, y, groups


def by_definition(X: np.ndarray, codes: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """Return the covariance of shifts from numpy's covariances of classes in groups."""
    total, degrees = np.zeros((X.shape[1], X.shape[1])), 0
    for code in np.unique(codes[codes >= 0]):
        cells = [X[(codes == code) & (groups == group)] for group in np.unique(groups)]
        cells = [cell for cell in cells if len(cell) > 1]
        if len(cells) > 1:
            by_chance = np.mean([np.cov(cell.T) / len(cell) for cell in cells], axis=0)
            means = np.cov(np.transpose([cell.mean(axis=0) for cell in cells]))
            total += (len(cells) - 1) * (means - by_chance)
            degrees += len(cells) - 1
    values, vectors = np.linalg.eigh(total / degrees)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def test_the_covariance_of_shifts_is_that_of_means_less_what_they_differ_by_chance() -> None:
    random = np.random.default_rng(0)
    codes, groups = random.integers(-1, 3, size=200), random.integers(0, 6, size=200)
    # A class in one group, and one row of a class in a group, tell nothing.
    groups[codes == 2] = 1
    codes[(codes == 1) & (groups == 4)] = -1
    codes[0], groups[0] = 1, 4
    X = random.normal(size=(200, 3)) + random.normal(size=(6, 3))[groups]
    expected = by_definition(X, codes, groups)
    assert_allclose(shift_covariance(GroupedBlock(X, codes, groups=groups)), expected, atol=1e-12)
    some = np.flatnonzero(groups != 3)
    part = GroupedBlock(X, codes, groups=groups).rows(some)
    assert_allclose(shift_covariance(part), by_definition(X[some], codes[some], groups[some]), atol=1e-12)
    assert shift_covariance(Block(X, codes)) is None
    assert shift_covariance(GroupedBlock(X, codes, groups=np.zeros(200, dtype=int))) is None


def test_the_covariance_of_shifts_is_estimated_without_bias() -> None:
    """With 4 rows of unit variance in a group, its mean alone has a variance of 1/4."""
    random = np.random.default_rng(1)
    groups, codes = np.repeat(np.arange(4000), 4), np.zeros(16000, dtype=int)
    X = random.normal(size=(16000, 2)) + 0.5 * random.normal(size=(4000, 2))[groups]
    found = shift_covariance(GroupedBlock(X, codes, groups=groups))
    # The standard error of a variance of 1/2 from 4000 means is 0.011.
    assert_allclose(found, 0.25 * np.eye(2), atol=0.06)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_kernels_are_widened_by_the_covariance_in_their_structure(covariance_type: str) -> None:
    X, y, groups = shifted(6, 20, 0)
    sets = [[0, 2], [1]]
    model = SharedKernelClassifier(3, covariance_type=covariance_type, feature_sets=sets, random_state=0).fit(
        X, y
    )
    covariance = by_definition(X, y, groups)
    wide = widened(model, covariance, 2.0)
    for features, before, after in zip(sets, model.models_, wide.models_, strict=True):
        added = 2.0 * covariance[np.ix_(features, features)]
        variances = np.diag(added)
        expected: Any = {"diag": variances, "spherical": variances.mean()}.get(covariance_type, added)
        assert_allclose(after.covariances_, before.covariances_ + expected)
        assert_array_equal(after.means_, before.means_)
        assert_array_equal(after.weights_, before.weights_)
    assert widened(model, covariance, 0.0) is widened(model, None, 1.0) is model


def test_groups_help_to_predict_a_group_whose_classes_are_shifted() -> None:
    rows, new = shifted(10, 30, 1), shifted(60, 40, 2)
    settings: Any = {"n_kernels": 8, "covariance_type": "full", "tune": False, "random_state": 0}
    without = SharedKernelClassifierCV(**settings).fit(*rows[:2])
    search = SharedKernelClassifierCV(**settings).fit(*rows[:2], groups=rows[2])
    assert "widening" in search.cv_results_
    assert search.cv_results_["widening"][search.best_index_] > 0.0
    assert not np.any(without.cv_results_["widening"])

    def loss(model: Any) -> float:
        return -float(np.mean(model.predict_log_proba(new[0])[np.arange(len(new[1])), new[1]]))

    assert loss(search) < 0.8 * loss(without)
    # Labels of groups do not matter.
    named = SharedKernelClassifierCV(**settings).fit(*rows[:2], groups=np.array(list("abcdefghij"))[rows[2]])
    assert_array_equal(named.predict_proba(new[0]), search.predict_proba(new[0]))


@pytest.mark.parametrize("tune", [False, "auto"])
def test_the_threshold_of_outliers_is_that_of_rows_of_new_groups(tune: Any) -> None:
    rows, new = shifted(12, 40, 3), shifted(60, 40, 4)
    estimator = SharedKernelClassifier(reject_below=0.1)
    settings: Any = {"n_kernels": 8, "covariance_type": "full", "n_members": 1, "random_state": 0}
    search = SharedKernelClassifierCV(estimator, tune=tune, **settings).fit(*rows[:2], groups=rows[2])
    without = SharedKernelClassifierCV(estimator, tune=tune, **settings).fit(*rows[:2])
    shares = [
        np.mean(model.score_samples(new[0]) < model.classifier_.threshold_) for model in (search, without)
    ]
    # Twelve groups tell a share of new groups roughly; random rows of known groups tell nothing about it.
    assert 0.02 < shares[0] < 0.25
    assert shares[0] < shares[1]
