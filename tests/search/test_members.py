"""Searches with several members: which are averaged, and what becomes of the average."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from sklearn.datasets import load_wine

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.engine.rows.blocks import Block
from skmix.search.features import FeatureMap, fit_features
from skmix.search.stages import Selection
from skmix.search.trials import Trial, Trials

pytestmark = pytest.mark.filterwarnings("ignore:The chosen model did not converge")
X, Y = load_wine(return_X_y=True)
MAPS = (
    ("power", "none"),
    ("none", "none"),
    ("power", "standardised components"),
    ("none", "components"),
    ("power", "discriminants"),
    ("ranks", "none"),
)


@pytest.fixture(scope="module")
def members() -> SharedKernelClassifierCV:
    """Return a search with a member of each kind of features, whatever it would have chosen."""
    prototype = SharedKernelClassifier(covariance_prior=None, max_iter=50, tol=1e-2)
    search = SharedKernelClassifierCV(
        prototype, n_kernels=3, covariance_type="tied", tune=False, cv=2, time_limit=0.0, random_state=0
    ).fit(X, Y)
    search.classifiers_, search.feature_maps_ = [], []
    for number, names in enumerate(MAPS):
        change = fit_features(*names, Block(X, Y))
        model = SharedKernelClassifier(3 + number, random_state=number, covariance_prior=5.0)
        search.classifiers_.append(model.fit(X if change is None else change.transform(X), Y))
        model.temperature_ = 1.0 + number
        search.feature_maps_.append(None if change is None else tuple(change))
    return search


# ---------------------------------------------------------------- which are averaged


def selection(probabilities: np.ndarray, codes: np.ndarray, weights: Any, n_members: int) -> Selection:
    """Return a selection whose candidates gave held-out rows these probabilities (T, n, L)."""
    rows = Block(np.zeros((len(codes), 1)), codes, weights)
    trials = Trials(None)
    for number, each in enumerate(probabilities):
        losses = -np.log(each[np.arange(len(codes)), codes])
        score = -float(np.average(losses, weights=weights))
        trials.list.append(Trial("kernels", {"number": number}, score, losses=losses))
    trials.best = max(trials.list, key=lambda trial: trial.score)
    search, prototype = SharedKernelClassifierCV(n_members=n_members), SharedKernelClassifier()
    return Selection(search, prototype, rows, np.unique(codes), [(rows, rows)], trials)


def test_each_member_lowers_the_loss_most_given_those_before() -> None:
    random = np.random.default_rng(0)
    codes, weights = random.integers(0, 3, size=40), random.uniform(0.5, 2.0, size=40)
    probabilities = random.dirichlet(np.ones(3), size=(6, 40))
    probabilities[:, np.arange(40), codes] += 1.0
    probabilities /= probabilities.sum(axis=2, keepdims=True)
    right = probabilities[:, np.arange(40), codes]

    def loss(members: list[int]) -> float:
        return -float(np.sum(weights * np.log(right[members].mean(axis=0))))

    for n_members in (1, 3, 6, 9):
        chosen = selection(probabilities, codes, weights, n_members)._members()
        numbers = [trial.params["number"] for trial in chosen]
        assert len(set(numbers)) == min(n_members, 6)
        for place, number in enumerate(numbers):
            others = set(range(6)).difference(numbers[:place])
            assert number == min(others, key=lambda other: loss([*numbers[:place], other]))


def test_the_best_stays_alone_where_an_average_is_clearly_worse() -> None:
    codes = np.zeros(50, dtype=int)
    good, bad = np.tile([0.99, 0.01], (50, 1)), np.tile([0.2, 0.8], (50, 1))
    bad[::2] = [0.4, 0.6]
    chosen = selection(np.stack([bad, good, bad]), codes, None, 2)._members()
    assert [trial.params["number"] for trial in chosen] == [1]
    failed = selection(np.stack([bad, good]), codes, None, 2)
    failed.trials.list[0].losses = None
    assert failed._members() == [failed.trials.list[1]]


@pytest.mark.parametrize(("n_better", "n_members"), [(620, 2), (610, 1)])
def test_a_rise_of_the_loss_within_its_standard_error_is_not_clear(n_better: int, n_members: int) -> None:
    """The average of 1/2 and 1 raises the log-loss by log 2/3, that of 1/2 and 0 by log 2.

    Of 1000 rows, log(n) / n is 0.007 and the standard error 0.017; the mean rise is 0.012 or 0.023.
    """
    other = np.where(np.arange(1000) < n_better, 1.0 - 1e-9, 1e-9)
    probabilities = np.stack([np.full((1000, 2), 0.5), np.column_stack([other, 1.0 - other])])
    assert len(selection(probabilities, np.zeros(1000, dtype=int), None, 2)._members()) == n_members


def test_members_are_fitted_to_all_rows_and_averaged() -> None:
    y = np.repeat([0, 1], 60)
    rows = np.exp(np.random.default_rng(0).normal(size=(120, 3)) + 0.7 * y[:, None])
    settings: dict[str, Any] = {"n_kernels": [2, 4], "covariance_type": "tied", "tune": False, "cv": 2}
    search = SharedKernelClassifierCV(n_members=3, random_state=0, **settings).fit(rows, y)
    assert 1 < len(search.classifiers_) <= 3
    assert search.classifier_.temperature_ == search.cv_results_["temperature"][search.best_index_]
    alone = SharedKernelClassifierCV(n_members=1, random_state=0, **settings).fit(rows, y)
    assert alone.best_params_ == search.best_params_
    assert len(alone.classifiers_) == 1
    assert_array_equal(alone.classifier_.means_, search.classifier_.means_)


# ---------------------------------------------------------------- what becomes of the average


def test_probabilities_are_means_over_the_members(members: SharedKernelClassifierCV) -> None:
    parts = []
    for model, change in zip(members.classifiers_, members.feature_maps_, strict=True):
        features = X if change is None else FeatureMap(*change).transform(X)
        parts.append(model.predict_log_proba(features))
    assert_allclose(members.predict_proba(X), np.exp(parts).mean(axis=0), rtol=1e-12)
    expected = logsumexp(parts, axis=0) - np.log(len(parts))
    assert_allclose(members.predict_log_proba(X), expected, rtol=1e-9, atol=1e-12)
    assert_array_equal(members.predict(X), members.predict_proba(X).argmax(axis=1))
    assert members.score(X, Y) == np.mean(members.predict(X) == Y)
    weights = np.arange(178) % 3
    assert members.score(X, Y, weights) == pytest.approx(np.average(members.predict(X) == Y, weights=weights))
    best = members.feature_map_
    assert_array_equal(members.score_samples(X), members.classifier_.score_samples(best.transform(X)))


def test_rows_that_the_best_member_refuses_are_outliers(members: SharedKernelClassifierCV) -> None:
    search = deepcopy(members)
    search.classifier_.set_params(reject_below=0.1, outlier_label=9)
    search.classifier_.threshold_ = float(np.quantile(search.score_samples(X), 0.1))
    found = search.predict(X)
    refused = search.score_samples(X) < search.classifier_.threshold_
    assert_array_equal(found == 9, refused)
    assert_array_equal(found[~refused], search.predict_proba(X).argmax(axis=1)[~refused])


def test_gaps_and_the_number_of_features_concern_every_member(members: SharedKernelClassifierCV) -> None:
    gaps = X.copy()
    gaps[::3, 4] = np.nan
    assert np.isfinite(members.predict_proba(gaps)).all()
    with pytest.raises(ValueError, match="X has 2 features, but SharedKernelClassifierCV is expecting 13"):
        members.predict_proba(X[:, :2])


@pytest.mark.parametrize("n_members", [1, 4])
def test_rows_of_a_file_are_those_of_its_frame(tmp_path: Path, n_members: int) -> None:
    frame = load_wine(as_frame=True).data
    kinds = np.array(["a", "b", "c"])[Y]
    search = SharedKernelClassifierCV(
        n_kernels=3, covariance_type="tied", tune=False, n_members=4, cv=2, random_state=0
    ).fit(frame[::2], kinds[::2])
    assert len(search.classifiers_) == 4
    # A member that maps features is first, so that it is the one that is left.
    places = sorted(range(4), key=lambda i: search.feature_maps_[i] is None)[:n_members]
    search.classifiers_ = [search.classifiers_[i] for i in places]
    search.feature_maps_ = [search.feature_maps_[i] for i in places]
    path = tmp_path / "wine.csv"
    frame.iloc[:, ::-1].assign(kind=kinds).to_csv(path, index=False)
    assert_array_equal(search.predict(path), search.predict(frame))
    assert_allclose(search.predict_proba(path), search.predict_proba(frame), rtol=1e-12)
    weights = np.arange(178) % 3
    assert search.score(path, "kind") == search.score(frame, kinds)
    assert search.score(path, kinds, weights) == search.score(frame, kinds, weights)
    assert search.score(frame.assign(kind=kinds), "kind") == search.score(frame, kinds)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda own: own.feature_maps_.pop(), r"classifiers_ has \d members, not \d"),
        (lambda own: vars(own).update(classifiers_=[], feature_maps_=[]), "classifiers_ has 0 members"),
        (lambda own: own.feature_maps_.__setitem__(0, (1, 2)), "feature_maps_ must have None or tuples"),
        (lambda own: own.feature_maps_.__setitem__(2, None), r"has \d+ features for 13 columns"),
        (lambda own: own.classifiers_[1].fit(X, Y + 1), "classifiers_ have different classes"),
    ],
)
def test_members_that_do_not_belong_together_are_not_saved(
    tmp_path: Path, members: SharedKernelClassifierCV, change: Any, message: str
) -> None:
    search = deepcopy(members)
    change(search)
    with pytest.raises(ValueError, match=message):
        search.save(tmp_path / "search.skmix")
