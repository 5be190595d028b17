"""The search for feature sets: the losses of partitions, which are looked at, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.engine.refine.temperature import least_log_loss
from skmix.estimators.search._base import Rows, Trials, make_folds
from skmix.estimators.search._features import GroupSearch, fewer_rows, partners_of

Golden = Callable[[str], dict[str, NDArray[Any]]]
QUADRANTS = [10, 11, 12]


def two_pairs(n_per_class: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return two classes that differ in how columns 0 and 1 go together and in column 2, not in column 3."""
    random = np.random.default_rng(seed)
    y = np.repeat([0, 1], n_per_class)
    X = random.normal(size=(2 * n_per_class, 4))
    X[:, 1] = np.where(y == 0, X[:, 0], -X[:, 0]) + 0.3 * X[:, 1]
    X[:, 2] += 2.0 * y
    return X, y


def search_of(X: np.ndarray, y: np.ndarray, n_kernels: int = 2) -> GroupSearch:
    cv = StratifiedKFold(5, shuffle=True, random_state=0)
    folds = make_folds(Rows(X, y, y, None), cv, None, np.arange(len(X)), 0)
    return GroupSearch(SharedKernelClassifier(n_kernels, random_state=0), folds, Trials(None))


def grouped(**settings: Any) -> SharedKernelClassifierCV:
    """Return a search for groups alone."""
    prototype = SharedKernelClassifier(covariance_prior=None, weight_prior=1.0)
    settings = {"covariance_type": "full", "random_state": 0, "tune": False, **settings}
    return SharedKernelClassifierCV(prototype, feature_sets="auto", **settings)


# ---------------------------------------------------------------- the loss of a partition


@pytest.mark.parametrize("partition", [((0,), (2,)), ((0, 1), (2,), (3,)), ((0, 1, 2, 3),), ((1, 3), (0, 2))])
def test_a_sum_of_groups_is_the_product_classifier(partition: tuple[tuple[int, ...], ...]) -> None:
    X, y = two_pairs()
    found = search_of(X, y, n_kernels=3)
    densities = np.empty((len(X), 2))
    order = []
    for training, held in StratifiedKFold(5, shuffle=True, random_state=0).split(X, y):
        groups = [list(group) for group in partition]
        model = SharedKernelClassifier(3, feature_sets=groups, tol=1e-3, random_state=0)
        densities[held] = model.fit(X[training], y[training]).class_log_likelihood(X[held])
        order.extend(held)
    expected = least_log_loss(densities[order], y[order], log_prior=np.log([0.5, 0.5]))[1]
    assert found.loss(partition) == pytest.approx(expected, rel=1e-6)
    assert found.losses(partition).mean() == pytest.approx(expected, rel=1e-6)


def test_weights_count_in_fits_temperatures_and_losses() -> None:
    X, y = two_pairs()
    weights = np.random.default_rng(1).uniform(0.05, 3.0, size=len(y))
    cv = StratifiedKFold(2, shuffle=True, random_state=0)
    folds = make_folds(Rows(X, y, y, weights), cv, None, np.arange(len(X)), 0)
    found = GroupSearch(SharedKernelClassifier(2, random_state=0), folds, Trials(None))
    order, densities = [], []
    for training, held in cv.split(X, y):
        model = SharedKernelClassifier(2, feature_sets=[[0, 1], [2]], tol=1e-3, random_state=0)
        model.fit(X[training], y[training], weights[training])
        densities.append(model.class_log_likelihood(X[np.sort(held)]))
        order.extend(np.sort(held))
    # The prior is that of the last training rows.
    log_prior = np.log(model.class_prior_)
    expected = least_log_loss(np.concatenate(densities), y[order], weights[order], log_prior=log_prior)[1]
    assert found.loss(((0, 1), (2,))) == pytest.approx(expected, rel=1e-6)


def test_a_group_is_fitted_once_for_each_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = two_pairs()
    fitted: list[bytes] = []
    fit = SharedKernelClassifier.fit

    def counting(self: Any, X: Any, y: Any, sample_weight: Any = None) -> Any:
        fitted.append(X.tobytes())
        return fit(self, X, y, sample_weight)

    monkeypatch.setattr(SharedKernelClassifier, "fit", counting)
    folds = make_folds(Rows(X, y, y, None), StratifiedKFold(3), None, np.arange(len(X)), 0)
    GroupSearch(SharedKernelClassifier(2, random_state=0), folds, Trials(None)).find()
    assert len(set(fitted)) == len(fitted) <= 3 * (2**4 - 1)


# ---------------------------------------------------------------- which partitions are looked at


def neighbours_by_hand(partition: set[frozenset[int]], n_features: int) -> set[frozenset[frozenset[int]]]:
    found = set()
    for one, other in combinations(partition, 2):
        found.add(frozenset(partition - {one, other} | {one | other}))
    used = frozenset().union(*partition)
    for group in partition:
        for column in group:
            left = partition - {group} | ({group - {column}} if len(group) > 1 else set())
            if left:
                found.add(frozenset(left))
    for column in set(range(n_features)) - used:
        found.add(frozenset(partition | {frozenset({column})}))
        for group in partition:
            found.add(frozenset(partition - {group} | {group | {column}}))
    return found


@pytest.mark.parametrize("partition", [((0,), (1,), (2,), (3,)), ((0, 2), (3,)), ((1,),), ((0, 1, 2, 3),)])
def test_neighbours_are_all_that_one_change_makes(partition: tuple[tuple[int, ...], ...]) -> None:
    found = list(search_of(*two_pairs())._neighbours(partition))
    as_sets = [frozenset(map(frozenset, neighbour)) for neighbour in found]
    assert len(set(as_sets)) == len(as_sets)
    assert set(as_sets) == neighbours_by_hand(set(map(frozenset, partition)), 4)
    for neighbour in found:
        assert list(neighbour) == sorted(tuple(sorted(group)) for group in neighbour)


def test_with_many_columns_only_those_that_depend_are_merged() -> None:
    random = np.random.default_rng(0)
    codes = np.repeat([0, 1], 200)
    X = random.normal(size=(400, 20)) + 5.0 * codes[:, None]
    X[:, 1] = X[:, 0] + 0.1 * random.normal(size=400)
    partners = partners_of(Rows(X, codes, codes, None))
    assert partners[0, 1]
    assert_array_equal(partners, partners.T)
    assert not partners.diagonal().any()
    within = X - np.array([X[codes == c].mean(axis=0) for c in (0, 1)])[codes]
    dependence = np.abs(np.corrcoef(within.T)) - 2.0 * np.eye(20)
    strongest = np.argsort(-dependence, axis=1)[:, :12]
    for column in range(20):
        assert partners[column, strongest[column]].all()
    assert partners.sum() <= 2 * 20 * 12
    X[:, 5] = 1.0
    assert partners_of(Rows(X, codes, codes, None))[0, 1]


def test_few_columns_are_all_partners() -> None:
    X, y = two_pairs()
    assert_array_equal(partners_of(Rows(X, y, y, None)), ~np.eye(4, dtype=bool))


def test_many_rows_are_sampled_class_by_class() -> None:
    random = np.random.default_rng(0)
    codes = random.permutation(np.repeat([0, 1, -1], [700, 30, 270]))
    X = np.arange(1000.0)[:, None]
    rows = Rows(X, codes, codes, X[:, 0] + 1.0)
    assert fewer_rows(rows, 0) is rows
    fewer = fewer_rows(rows, 0, 500)
    assert [np.sum(fewer.codes == code) for code in (0, 1, -1)] == [350, 30, 135]
    assert_array_equal(fewer.codes, codes[fewer.X[:, 0].astype(int)])
    assert fewer.weights is not None
    assert_array_equal(fewer.weights, fewer.X[:, 0] + 1.0)


# ---------------------------------------------------------------- what is taken


def test_a_difference_within_its_error_does_not_count() -> None:
    search = search_of(*two_pairs())
    random = np.random.default_rng(0)
    losses, noise = random.uniform(size=120), random.normal(size=120)
    noise = (noise - noise.mean()) / noise.std()
    best, close, far, failed = ((0,),), ((1,),), ((2,),), ((3,),)
    search._losses = {
        best: losses,
        close: losses + noise + 0.9 / np.sqrt(120),
        far: losses + noise + 1.1 / np.sqrt(120),
        failed: np.full(120, np.inf),
    }
    assert not search.clearly_better(best, close)
    assert search.clearly_better(best, far)
    assert not search.clearly_better(best, best)
    assert search.clearly_better(best, failed)
    assert not search.clearly_better(failed, failed)


def test_features_that_do_well_together_stay_together() -> None:
    """The joint model of these few columns is as good as any product: nothing is taken apart without need."""
    X, y = two_pairs(200)
    search = grouped(n_kernels=2, cv=StratifiedKFold(5, shuffle=True, random_state=0)).fit(X, y)
    assert search.best_params_["feature_sets"] is None
    assert search.classifier_.feature_sets_ == [[0, 1, 2, 3]]


@pytest.mark.slow
def test_the_pair_is_found_among_columns_of_noise() -> None:
    """Six columns of heavy-tailed noise drown the joint model."""
    random = np.random.default_rng(0)

    def with_noise(n_per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        X, y = two_pairs(n_per_class, seed)
        return np.column_stack([X[:, :3], random.standard_t(1.5, size=(len(X), 6))]), y

    X, y = with_noise(40, 0)
    search = grouped(n_kernels=2, cv=StratifiedKFold(3, shuffle=True, random_state=0))
    search.set_params(estimator__tol=1e-2).fit(X, y)
    groups = search.best_params_["feature_sets"]
    assert any({0, 1} <= set(group) for group in groups)
    assert any(2 in group for group in groups)
    joint = SharedKernelClassifier(2, random_state=0).fit(X, y)
    fresh, labels = with_noise(1000, 1)
    assert search.score(fresh, labels) > joint.score(fresh, labels) + 0.03


@pytest.mark.slow
def test_the_digits_are_grouped_at_least_as_well_as_by_the_paper(golden: Golden) -> None:
    """Ten principal-axis entries, three quadrant masses; the paper's best are two products of few of them."""
    data = golden("digits_13d")
    cv = StratifiedKFold(3, shuffle=True, random_state=0)
    search = grouped(n_kernels=10, cv=cv).set_params(estimator__tol=1e-1).fit(data["X"], data["y"])
    accuracy = search.score(data["X_test"], data["y_test"])
    plain = clone(search.classifier_).set_params(tol=SharedKernelClassifier().tol)
    for columns in ([3, 4], [1, 3, 4]):
        paper = clone(plain).set_params(feature_sets=[columns, QUADRANTS], n_init=3)
        assert accuracy >= paper.fit(data["X"], data["y"]).score(data["X_test"], data["y_test"])
    joint = clone(plain).set_params(feature_sets=None).fit(data["X"], data["y"])
    assert accuracy > joint.score(data["X_test"], data["y_test"])
    assert accuracy >= 0.9592

    table = pd.DataFrame(search.cv_results_)
    steps = table[table["stage"] == "feature_sets"]
    assert steps["param_feature_sets"][0] == [list(range(13))]
    assert steps["param_feature_sets"][1] == [[column] for column in range(13)]
    assert np.all(np.diff(steps["mean_test_score"][1:]) > 0)
    assert search.best_params_["feature_sets"] in steps["param_feature_sets"].tolist()
    assert search.classifier_.n_kernels_ == [10] * len(search.classifier_.models_)
    assert sum(map(len, search.classifier_.feature_sets_)) < 13


def test_names_gaps_missing_labels_and_weights() -> None:
    X, y = two_pairs()
    random = np.random.default_rng(0)
    X[random.uniform(size=X.shape) < 0.1] = np.nan
    X[:, 2] = np.where(np.isnan(X).all(axis=1), 0.0, X[:, 2])
    y = y + 5
    y[::7] = -1
    frame = pd.DataFrame(X, columns=list("abcd"))
    search = grouped(n_kernels=2, cv=2).fit(frame, y, sample_weight=random.uniform(0.5, 1.5, size=len(y)))
    assert search.predict(frame).shape == y.shape
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.feature_names_in_.tolist() == list("abcd")
