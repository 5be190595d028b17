"""The searches: their scores against fits by hand, what they choose, and what becomes of rows and results."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GroupKFold, KFold, LeaveOneGroupOut, StratifiedKFold
from sklearn.pipeline import Pipeline

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from skmix.datasets import make_shared_kernel_data
from skmix.engine.structures import STRUCTURES
from skmix.estimators import watched_by
from skmix.estimators.search import _base
from skmix.estimators.search import classifier as search_of_classifiers
from skmix.estimators.search._base import Rows, Trial, Trials
from skmix.estimators.search._features import FeatureMap, filler, fit_features, pooled_covariance
from skmix.estimators.search.classifier import QUICK_FITS, own_kernels
from skmix.estimators.search.mixture import average, largest_stable, least_stable, likelier
from skmix.paper import illustration

Data = tuple[np.ndarray, np.ndarray]


def shared_kernels(n_per_class: int = 100) -> Data:
    """Return rows of three classes over the three kernels of the paper's illustration."""
    example = illustration()
    return make_shared_kernel_data(
        example.means, example.covariances, example.weights, n_per_class, random_state=0
    )


def clusters(n_clusters: int, n_per_cluster: int = 60) -> np.ndarray:
    """Return rows of well separated round clusters in the plane."""
    random = np.random.default_rng(0)
    centres = 8.0 * np.array([[i % 4, i // 4] for i in range(n_clusters)])
    return np.repeat(centres, n_per_cluster, axis=0) + random.normal(size=(n_clusters * n_per_cluster, 2))


@pytest.fixture(scope="module")
def iris() -> Data:
    return load_iris(return_X_y=True)


def quick(**settings: Any) -> SharedKernelClassifierCV:
    """Return a search for features alone."""
    prototype = SharedKernelClassifier(covariance_prior=None, max_iter=100, tol=1e-2)
    given = {"n_kernels": 3, "covariance_type": "full", "tune": False, "n_members": 1, "cv": 2}
    return SharedKernelClassifierCV(prototype, **{**given, "random_state": 0, **settings})


def by_hand(params: dict[str, Any], training: np.ndarray, y: np.ndarray, weights: Any = None) -> Any:
    """Return the function that makes a candidate's features of rows."""
    change = fit_features(params["transform"], params["reduction"], Rows(training, y, y, weights))
    return (lambda rows: rows) if change is None else change.transform


# ---------------------------------------------------------------- densities: criteria


def test_information_criteria_of_every_candidate_are_those_of_plain_fits() -> None:
    X, y = shared_kernels(40)
    prototype = SharedKernelMixture(n_init=2, max_iter=1000)
    fitted: dict[str, Any] = {}
    for criterion in ("bic", "aic"):
        search = SharedKernelMixtureCV(prototype, n_kernels=[2, 4], criterion=criterion, random_state=0).fit(
            X, y
        )
        assert len(search.cv_results_["params"]) == 2 * len(STRUCTURES)
        for params, value in zip(
            search.cv_results_["params"], -search.cv_results_["mean_test_score"], strict=True
        ):
            if repr(params) not in fitted:
                fitted[repr(params)] = clone(search.best_estimator_).set_params(**params).fit(X, y)
            tried = fitted[repr(params)]
            expected = tried.aic(X, y) if criterion == "aic" else tried.bic(X, y)
            assert_allclose(value, expected, rtol=1e-9)
        assert search.best_score_ == search.cv_results_["mean_test_score"].max()
        assert search.cv_results_["rank_test_score"][search.best_index_] == 1


def test_held_out_log_likelihood_is_that_of_folds_by_hand() -> None:
    X, y = shared_kernels(40)
    cv = StratifiedKFold(2, shuffle=True, random_state=3)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(X))
    search = SharedKernelMixtureCV(n_kernels=3, criterion="log_likelihood", cv=cv, random_state=0)
    search.fit(X, y, weights)
    table = search.cv_results_
    splits = np.stack([table["split0_test_score"], table["split1_test_score"]])
    assert_allclose(table["std_test_score"], splits.std(axis=0), rtol=1e-9)
    for i, params in enumerate(search.cv_results_["params"]):
        total = 0.0
        for fold, (training, held) in enumerate(cv.split(X, y)):
            settings = {"covariance_prior": "auto", **params}
            fitted = clone(search.best_estimator_).set_params(**settings)
            fitted.fit(X[training], y[training], weights[training])
            scores = weights[held] * fitted.score_samples(X[held], y[held])
            mean = scores.sum() / weights[held].sum()
            assert_allclose(search.cv_results_[f"split{fold}_test_score"][i], mean, rtol=1e-9)
            total += scores.sum()
        assert_allclose(search.cv_results_["mean_test_score"][i], total / weights.sum(), rtol=1e-9)


def test_the_winner_is_the_plain_model_to_the_bit() -> None:
    X, y = shared_kernels(40)
    for criterion in ("bic", "log_likelihood"):
        search = SharedKernelMixtureCV(
            n_kernels=[2, 3], criterion=criterion, n_members=1, cv=2, random_state=5
        )
        search.fit(X, y)
        again = clone(search.best_estimator_).fit(X, y)
        assert again.n_kernels == search.best_params_["n_kernels"]
        assert_array_equal(search.best_estimator_.means_, again.means_)
        assert_array_equal(search.score_samples(X), again.score_samples(X))
        assert search.score(X, y) == again.score(X, y)


def test_the_least_stable_kernel_counts() -> None:
    a, b = np.array([0, 0, 1, 1, 2, 2]), np.array([2, 2, 0, 0, 0, 1])
    # {4, 5} and {5} share one row of two; {2, 3} and {2, 3, 4} two of three.
    assert least_stable(a, b, 3, np.ones(6)) == pytest.approx(1 / 2)
    assert least_stable(a, b, 3, np.array([1, 1, 1, 1, 1, 5])) == pytest.approx(2 / 3)
    # One kernel has no rows in either fit.
    assert least_stable(a, b, 4, np.ones(6)) == 0.0


def test_the_limit_of_stability_itself_is_stable() -> None:
    trials = Trials(None)
    trials.list = [
        Trial("kernels", {"n_kernels": k}, score) for k, score in ((2, 0.99), (3, 0.85), (4, 0.8499))
    ]
    trials.best = trials.list[0]
    assert largest_stable(trials) is trials.list[1]
    # Where none is stable, the most stable one.
    trials.list = [Trial("kernels", {"n_kernels": k}, score) for k, score in ((2, 0.5), (3, 0.84))]
    trials.best = trials.list[1]
    assert largest_stable(trials) is trials.list[1]


def test_the_largest_stable_number_of_kernels_is_chosen() -> None:
    X = clusters(5)
    search = SharedKernelMixtureCV(n_kernels=[3, 5, 6], criterion="stability", cv=3, random_state=0).fit(X)
    table = search.cv_results_
    splits = [table[f"split{i}_test_score"] for i in range(3)]
    assert_array_equal(table["stability"], np.median(splits, axis=0))
    assert_array_equal(table["mean_test_score"], table["stability"])
    # Coarse clusters are the most stable, and are stable: these are all that can be told apart.
    assert table["stability"][0] >= table["stability"][1] > 0.85 > table["stability"][2]
    assert (search.best_index_, search.best_score_) == (1, table["stability"][1])
    assert search.best_params_ == {"n_kernels": 5, "covariance_type": "full"}
    assert table["adjusted_rand"][1] > 0.95
    again = clone(search.best_estimator_).fit(X)
    assert_array_equal(again.means_, search.best_estimator_.means_)
    assert_allclose(table["bic"][1], again.bic(X), rtol=1e-9)


def test_without_stable_clusters_there_is_one_kernel_or_the_most_stable_number() -> None:
    X = np.random.default_rng(0).normal(size=(120, 2))
    prototype = SharedKernelMixture(init="k-means", n_init=3, tol=1e-2)
    search = SharedKernelMixtureCV(
        prototype, n_kernels=[1, 3, 6], criterion="stability", cv=3, random_state=0
    )
    assert search.fit(X).best_params_["n_kernels"] == 1
    search.set_params(n_kernels=[3, 6]).fit(X)
    assert search.best_index_ == np.argmax(search.cv_results_["stability"])
    assert search.best_score_ < 0.85


def test_a_half_takes_over_a_likelier_fit_of_the_other() -> None:
    X = clusters(3)
    settings: Any = {"covariance_prior": None, "max_iter": 500}
    poor = SharedKernelMixture(3, init={"means": X[[0, 60, 61]]}, **settings).fit(X[::2])
    good = SharedKernelMixture(3, init={"means": X[[0, 1, 60]]}, **settings).fit(X[1::2])
    assert poor.score(X) < good.score(X) - 0.1
    moved = likelier(poor, good, (X[::2], None, None))
    assert moved.log_likelihood_ > poor.log_likelihood_ + 10.0
    assert_array_equal(moved.predict(X), good.predict(X))
    assert likelier(moved, poor, (X[::2], None, None)) is moved


def test_groups_share_fewer_kernels_than_there_are_groups() -> None:
    random, X = np.random.default_rng(0), clusters(4, 60)
    # Each group has rows of two clusters, and the last one a single row.
    groups = np.arange(len(X)) // 60 * 5 + random.integers(0, 10, len(X))
    groups[-1] = 99
    prototype = SharedKernelMixture(init="k-means", n_init=2, tol=1e-2)
    search = SharedKernelMixtureCV(prototype, criterion="stability", cv=2, random_state=0).fit(X, groups)
    assert len(search.classes_) == 26
    assert search.best_params_ == {"n_kernels": 4, "covariance_type": "full"}
    assert search.cv_results_["param_n_kernels"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10]


def test_stability_takes_halves_of_the_rows() -> None:
    X, y = clusters(2, 20), np.repeat([0, 1], 20)
    search = SharedKernelMixtureCV(n_kernels=2, criterion="stability")
    refused("use strategy='grid'", clone(search).set_params(strategy="prune"), X, y)
    refused("takes the number of halvings", clone(search).set_params(cv=StratifiedKFold(3)), X, y)
    with pytest.raises(ValueError, match="leave out groups"):
        search.fit(X, groups=np.arange(len(X)))


# ---------------------------------------------------------------- densities: choices


@pytest.mark.parametrize("criterion", ["bic"])
def test_the_number_of_clusters_is_found(criterion: str) -> None:
    prototype = SharedKernelMixture(n_init=4)
    search = SharedKernelMixtureCV(prototype, covariance_type="full", criterion=criterion, random_state=0)
    assert search.fit(clusters(5)).best_params_ == {"n_kernels": 5, "covariance_type": "full"}
    assert search.cv_results_["param_n_kernels"].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 10]


@pytest.mark.slow
def test_more_kernels_are_tried_while_the_largest_is_best() -> None:
    prototype = SharedKernelMixture(n_init=8)
    search = SharedKernelMixtureCV(
        prototype, covariance_type="spherical", criterion="bic", random_state=0
    ).fit(clusters(12))
    assert search.cv_results_["param_n_kernels"].tolist()[-2:] == [12, 15]
    assert search.best_params_["n_kernels"] == 12


def test_kernels_that_classes_share_are_counted_once() -> None:
    X, y = shared_kernels(150)
    search = SharedKernelMixtureCV(
        SharedKernelMixture(n_init=3), covariance_type="full", cv=2, random_state=0
    )
    assert search.fit(X, y).best_estimator_.weights_.shape == (3, 3)


def test_default_numbers_grow_by_a_quarter_and_end_with_the_rows() -> None:
    search = SharedKernelMixtureCV()
    assert search._numbers(1, 1, 2500)[0][:10] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12]
    assert search._numbers(10, 10, 2500)[0][:4] == [10, 12, 15, 18]
    assert max(search._numbers(3, 3, 10)[0]) <= 10
    assert search._numbers(5, 5, 1)[0] == [5]


@pytest.mark.parametrize("strategy", ["grid", "prune"])
def test_many_groups_may_have_few_kernels(strategy: str) -> None:
    random = np.random.default_rng(0)
    groups, centres = np.repeat(np.arange(30), 20), 6.0 * random.normal(size=(4, 3))
    X = centres[random.integers(0, 4, len(groups))] + random.normal(size=(len(groups), 3))
    search = SharedKernelMixtureCV(
        covariance_type="spherical", criterion="bic", strategy=strategy, random_state=0
    )
    # The weights of a kernel in 30 groups are worth a cluster that is close to another.
    assert 3 <= search.fit(X, groups).best_params_["n_kernels"] <= 8


@pytest.mark.parametrize("truth", ["full", "tied", "diag", "spherical"])
def test_the_covariance_type_is_found(truth: str) -> None:
    random = np.random.default_rng(0)
    roots = {
        "full": np.array([[[2.0, 0.0], [1.8, 0.5]], [[0.5, 0.0], [-0.8, 1.0]]]),
        "tied": np.array([[[1.5, 0.0], [1.2, 0.5]]] * 2),
        "diag": np.array([np.diag([2.0, 0.4]), np.diag([0.5, 1.5])]),
        "spherical": np.array([np.eye(2), 0.3 * np.eye(2)]),
    }[truth]
    X = np.concatenate(
        [
            centre + random.normal(size=(300, 2)) @ root.T
            for centre, root in zip((0.0, 6.0), roots, strict=True)
        ]
    )
    prototype = SharedKernelMixture(n_init=2, max_iter=1000)
    search = SharedKernelMixtureCV(prototype, n_kernels=2, criterion="bic", random_state=0)
    assert search.fit(X).best_params_ == {"n_kernels": 2, "covariance_type": truth}


def test_held_out_rows_choose_by_default_where_there_are_any() -> None:
    X = clusters(2, 20)
    settings: Any = {"n_kernels": [1, 2], "covariance_type": "spherical", "random_state": 0}
    search = SharedKernelMixtureCV(**settings).fit(X)
    by_density = SharedKernelMixtureCV(**settings, criterion="log_likelihood").fit(X)
    assert search.best_params_["n_kernels"] == 2
    assert_array_equal(search.cv_results_["mean_test_score"], by_density.cv_results_["mean_test_score"])
    # Each class has one row: none can be held out.
    few = SharedKernelMixtureCV(**{**settings, "n_kernels": 1}).fit(X[:3], [0, 1, 2])
    assert few.best_score_ == -few.cv_results_["bic"][0]


def test_held_out_rows_reward_no_collapse_on_whole_numbers() -> None:
    X = np.random.default_rng(0).poisson([2.0, 5.0], size=(120, 2)).astype(float)
    search = SharedKernelMixtureCV(n_kernels=[1, 3, 12], covariance_type="diag", cv=2, random_state=0).fit(X)
    assert {mixture.covariance_prior for mixture in search.mixtures_} == {"auto", "weak"}
    for mixture in search.mixtures_:
        # The variance of a whole number within its step.
        assert mixture.covariances_.min() > 1.0 / 12.0 - 1e-9


# ---------------------------------------------------------------- densities: averages


def test_an_average_is_a_mixture_of_its_members(tmp_path: Path) -> None:
    X, y = shared_kernels(60)
    search = SharedKernelMixtureCV(n_kernels=[2, 3], n_members=3, cv=2, random_state=0).fit(X, y)
    assert len(search.mixtures_) == 3
    assert search.best_estimator_ is search.mixtures_[0]
    assert_allclose(search.shares_.sum(), 1.0, rtol=1e-12)
    shown = search.cv_results_["share"]
    assert_allclose(np.sort(shown[shown > 0]), np.sort(search.shares_), rtol=1e-12)
    assert shown[search.best_index_] == search.shares_[0]
    new = X[:40] + 0.1
    for labels in (None, y[:40]):
        expected = sum(
            share * np.exp(each.score_samples(new, labels))
            for share, each in zip(search.shares_, search.mixtures_, strict=True)
        )
        assert_allclose(np.exp(search.score_samples(new, labels)), expected, rtol=1e-9)
        assert_allclose(search.score(new, labels), np.log(expected).mean(), rtol=1e-9)
    own = np.exp(search.class_log_likelihood(new))[np.arange(40), np.searchsorted(search.classes_, y[:40])]
    assert_allclose(own, expected, rtol=1e-9)
    # Kernels are those of the best candidate.
    assert_array_equal(search.predict_proba(new), search.best_estimator_.predict_proba(new))
    search.save(tmp_path / "average.skmix")
    assert_array_equal(load(tmp_path / "average.skmix").score_samples(new), search.score_samples(new))
    search.shares_ = search.shares_[:-1]
    with pytest.raises(ValueError, match="mixtures_ and shares_ differ in length"):
        search.save(tmp_path / "average.skmix")


def test_shares_are_those_of_the_highest_held_out_density() -> None:
    X = clusters(3, 40)
    cv = [(np.flatnonzero(np.arange(len(X)) % 3 != 0), np.arange(0, len(X), 3))]
    search = SharedKernelMixtureCV(n_kernels=[1, 3, 5], covariance_type="diag", cv=cv, random_state=0)
    search.fit(X)
    (training, held), densities = cv[0], []
    for each in search.mixtures_:
        densities.append(np.exp(clone(each).fit(X[training]).score_samples(X[held])))
    best = np.log(search.shares_ @ densities).mean()
    assert best > search.best_score_
    # No other shares are better.
    for i in range(len(densities)):
        for step in (0.01, 0.1, 0.5):
            other = (1.0 - step) * search.shares_ + step * np.eye(len(densities))[i]
            assert np.log(other @ densities).mean() < best + 1e-2 * step


def test_samples_of_an_average_have_its_moments() -> None:
    X = clusters(2, 60)
    settings = {"n_kernels": [1, 2, 3], "covariance_type": "diag", "n_members": 4, "cv": 2}
    search = SharedKernelMixtureCV(**settings, random_state=0).fit(X)
    drawn, labels = search.sample(20_000)
    assert drawn.shape == (20_000, 2)
    assert set(labels) == {0}
    means = [each.weights_[:, 0] @ each.means_ for each in search.mixtures_]
    assert_allclose(drawn.mean(axis=0), search.shares_ @ means, atol=4 * drawn.std() / np.sqrt(20_000))
    # Rows of all members in no order: halves are alike.
    assert abs(drawn[:10_000].mean() - drawn[10_000:].mean()) < 0.1
    assert len(np.unique(drawn, axis=0)) == 20_000


def test_rows_are_drawn_from_members_by_their_shares() -> None:
    X = clusters(2, 30)
    search = SharedKernelMixtureCV(
        n_kernels=1, covariance_type="diag", n_members=1, cv=2, random_state=0
    ).fit(X)
    far = SharedKernelMixture(1, random_state=0).fit(X + 1e6)
    search.mixtures_, search.shares_ = [search.mixtures_[0], far], np.array([0.9, 0.1])
    assert np.mean(search.sample(4000)[0][:, 0] > 5e5) == pytest.approx(0.1, abs=0.03)


def test_members_of_the_largest_shares_stay() -> None:
    random = np.random.default_rng(0)
    # Candidates describe 40, 10 and 30 of 80 rows well; the first is the best of all rows.
    well = np.repeat([0, 1, 2], [40, 10, 30])
    logs = np.where(well == np.arange(3)[:, None], 0.0, -6.0) + 0.1 * random.normal(size=(3, 80))
    tried = [(Trial("kernels", {"number": n}, float(own.mean())), own) for n, own in enumerate(logs)]
    chosen, shares = average(tried, np.ones(80), 2)
    assert [trial.params["number"] for trial in chosen] == [0, 2]
    assert_allclose(shares, [4 / 7, 3 / 7], atol=0.1)


def test_a_feature_of_mostly_one_value_has_narrow_kernels() -> None:
    random = np.random.default_rng(0)

    def rows(n: int) -> np.ndarray:
        spike = np.where(random.random(n) < 0.7, random.uniform(-0.01, 0.01, n), random.normal(1.0, 1.0, n))
        return np.stack([spike, random.normal(size=n)], axis=1)

    X, new = rows(150), rows(2000)
    sizes = {"n_kernels": [2, 4], "covariance_type": "diag", "cv": 3, "random_state": 0}
    search = SharedKernelMixtureCV(**sizes).fit(X)
    # With a row of the common covariance, no kernel is as narrow as the spike.
    mild = SharedKernelMixtureCV(SharedKernelMixture(n_init=4, covariance_prior=1.0), **sizes).fit(X)
    assert search.best_params_["covariance_prior"] == "weak"
    assert "covariance_prior" not in mild.best_params_
    assert search.score(new) > mild.score(new) + 0.5


def test_pruning_leaves_what_is_needed() -> None:
    X = clusters(4)
    search = SharedKernelMixtureCV(
        n_kernels=15, covariance_type="full", strategy="prune", random_state=0
    ).fit(X)
    assert search.best_params_["n_kernels"] == 4
    assert search.best_estimator_.means_.shape == (4, 2)
    # Kernels that are gone have no parameters to pay for: 4 means, 4 covariances, 3 free weights.
    assert search.cv_results_["n_parameters"].tolist() == [4 * 2 + 4 * 3 + 3]
    assert_allclose(search.best_score_, -search.best_estimator_.bic(X), rtol=1e-9)
    by_default = SharedKernelMixtureCV(covariance_type="full", strategy="prune", random_state=0).fit(X)
    assert by_default.cv_results_["param_n_kernels"].tolist() == [10]
    variational = SharedKernelMixture(inference="variational")
    bayes = SharedKernelMixtureCV(
        variational, n_kernels=8, covariance_type="full", strategy="prune", random_state=0
    )
    assert bayes.fit(X).best_params_["n_kernels"] == 4


@pytest.mark.parametrize("criterion", ["bic", "aic"])
def test_whole_weights_are_repeated_rows(criterion: str) -> None:
    X = clusters(3)
    counts = np.random.default_rng(0).integers(0, 4, size=len(X))
    # Starts are drawn from the rows; one kernel has no other.
    search = SharedKernelMixtureCV(n_kernels=1, criterion=criterion)
    weighted = clone(search).fit(X, sample_weight=counts)
    repeated = clone(search).fit(np.repeat(X, counts, axis=0))
    assert_allclose(
        weighted.cv_results_["mean_test_score"], repeated.cv_results_["mean_test_score"], rtol=1e-9
    )


def test_a_winner_that_stopped_early_warns_once() -> None:
    X, y = shared_kernels(40)
    search = SharedKernelMixtureCV(SharedKernelMixture(max_iter=2, tol=0.0), n_kernels=[3, 4], random_state=0)
    with pytest.warns(ConvergenceWarning, match="did not converge in 2 passes") as caught:
        search.fit(X, y)
    assert len(caught) == 1
    assert caught[0].filename == __file__


# ---------------------------------------------------------------- classifiers: scores


def test_the_log_loss_of_a_candidate_is_that_of_folds_by_hand(iris: Data) -> None:
    X, y = iris
    cv = StratifiedKFold(3, shuffle=True, random_state=1)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    search = quick(n_kernels=[3, 5], cv=cv).fit(X, y, sample_weight=weights)
    for i, params in enumerate(search.cv_results_["params"]):
        logs = np.empty((len(X), 3))
        for training, held in cv.split(X, y):
            model = clone(search.classifier_).set_params(n_kernels=params["n_kernels"])
            features = by_hand(params, X[training], y[training], weights[training])
            model.fit(features(X[training]), y[training], weights[training])
            logs[held] = model.predict_log_proba(features(X[held]))

        def loss(temperature: float, logs: np.ndarray = logs) -> float:
            right = log_softmax(logs / temperature, axis=1)[np.arange(len(y)), y]
            return float(-np.average(right, weights=weights))

        found = search.cv_results_["temperature"][i]
        assert_allclose(-search.cv_results_["mean_test_score"][i], loss(found), rtol=1e-9)
        assert loss(found) <= min(map(loss, np.geomspace(1.0, 20.0, 500))) + 1e-6
    assert search.classifier_.temperature_ == search.cv_results_["temperature"][search.best_index_]


def test_any_scorer_can_be_maximised(iris: Data) -> None:
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    search = quick(scoring="accuracy").fit(X, names)
    right = []
    for training, held in StratifiedKFold(2).split(X, names):
        features = by_hand(search.best_params_, X[training], y[training])
        model = clone(search.classifier_).fit(features(X[training]), names[training])
        right.append(model.score(features(X[held]), names[held]))
    assert search.best_score_ == pytest.approx(np.mean(right), rel=1e-12)
    labels: list[Any] = []
    quick(scoring=lambda model, X, y: labels.append(set(y)) or 0.0).fit(X, names)
    assert len(labels) % 2 == 0
    assert all(each == set(names) for each in labels)


def test_no_map_has_seen_a_held_out_row(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = load_wine(return_X_y=True)
    folds = list(StratifiedKFold(3).split(X, y))
    seen, filled = [], []

    def spy(transform: str, reduction: str, rows: Rows) -> FeatureMap | None:
        seen.append(rows.X)
        return fit_features(transform, reduction, rows)

    def spy_of_gaps(rows: np.ndarray, seed: int) -> Any:
        filled.append(rows)
        return filler(rows, seed)

    monkeypatch.setattr(search_of_classifiers, "fit_features", spy)
    monkeypatch.setattr(search_of_classifiers, "filler", spy_of_gaps)
    quick(cv=folds).fit(X, y)
    for rows, own in zip(filled, [*(training for training, _ in folds), slice(None)], strict=True):
        assert_array_equal(rows, X[own])
    for rows in seen[:-1]:
        assert any(np.array_equal(rows, X[training]) for training, _ in folds)
    assert_array_equal(seen[-1], X)


def test_rows_without_a_label_train_in_every_fold(monkeypatch: pytest.MonkeyPatch, iris: Data) -> None:
    X, y = iris
    y = np.where(np.arange(150) % 5 == 0, -1, y)
    seen = []
    fit = SharedKernelClassifier.fit

    def spy(self: Any, X: np.ndarray, y: np.ndarray, sample_weight: Any = None) -> Any:
        seen.append((np.sum((y == -1) | np.isnan(y)), len(y)))
        return fit(self, X, y, sample_weight)

    monkeypatch.setattr(SharedKernelClassifier, "fit", spy)
    search = quick(cv=4).fit(X, y)
    assert set(seen[:-1]) == {(30, 30 + 90)}
    assert seen[-1] == (30, 150)
    assert search.classes_.tolist() == [0, 1, 2]
    SharedKernelMixtureCV(
        n_kernels=3, covariance_type="diag", criterion="log_likelihood", cv=2, random_state=0
    ).fit(X, y)


def test_groups_stay_together_by_default(monkeypatch: pytest.MonkeyPatch, iris: Data) -> None:
    X, y = iris
    groups, seen = np.arange(150) // 5, []
    make = search_of_classifiers.make_folds

    def spy(*given: Any) -> Any:
        seen.extend(make(*given))
        return seen

    monkeypatch.setattr(search_of_classifiers, "make_folds", spy)
    numbered = np.column_stack([X, np.arange(150.0)])
    quick(cv=None).fit(numbered, y, groups=groups)
    assert len(seen) == 5
    for training, held in seen:
        assert not set(groups[training.X[:, -1].astype(int)]) & set(groups[held.X[:, -1].astype(int)])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick().fit(X, y, groups=groups[:-1])


def test_splits_may_be_masks_and_must_be_there(iris: Data) -> None:
    X, y = iris
    folds = list(StratifiedKFold(3).split(X, y))
    masks = [(np.isin(np.arange(150), a), np.isin(np.arange(150), b)) for a, b in folds]
    assert quick(cv=masks).fit(X, y).best_score_ == quick(cv=folds).fit(X, y).best_score_
    with pytest.raises(ValueError, match="cv yields no split"):
        quick(cv=[]).fit(X, y)


def test_folds_are_the_given_parts_less_rows_that_cannot_judge() -> None:
    codes = np.array([0, 1, 0, 1, -1, -1, 0, 1])
    kept = np.array([1, 2, 3, 4, 6, 7, 8, 9])  # of ten rows as given, of which 0 and 5 have no weight
    X, weights = np.arange(8.0)[:, None], np.arange(1.0, 9.0)
    parts = [([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]), ([5, 7, 8, 9], [1, 2, 6])]
    folds = _base.make_folds(Rows(X, codes, codes, weights), parts, None, kept, 0)
    for (training, held), wanted in zip(folds, [([0, 1, 2, 3], [6, 7]), ([5, 6, 7], [0, 1])], strict=True):
        for found, rows in zip((training, held), wanted, strict=True):
            assert_array_equal(found.X[:, 0], rows)
            assert_array_equal(found.y, codes[rows])
            assert_array_equal(found.codes, codes[rows])
            assert_array_equal(found.weights, weights[rows])


def test_a_search_with_a_seed_is_the_same_again(iris: Data) -> None:
    X, y = iris
    search = quick(n_kernels=[2], cv=2, n_members=2).fit(X, y)
    once, probabilities = search.cv_results_, search.predict_proba(X)
    again = search.fit(X, y).cv_results_
    for name in ("mean_test_score", "split0_test_score", "split1_test_score", "temperature"):
        assert_array_equal(once[name], again[name])
    assert_array_equal(probabilities, search.predict_proba(X))


def test_scores_are_weighted_accuracies(iris: Data) -> None:
    X, y = iris
    weights = np.random.default_rng(0).uniform(0.0, 1.0, 150)
    for model in (
        SharedKernelClassifier(3, covariance_type="spherical", random_state=0).fit(X, y),
        quick(covariance_type="spherical", cv=2).fit(X, y),
    ):
        right = model.predict(X) == y
        assert 0.5 < right.mean() < 1.0
        assert model.score(X, y) == pytest.approx(right.mean())
        assert model.score(X, y, sample_weight=weights) == pytest.approx(np.average(right, weights=weights))


def test_weights_are_relative_and_reach_scorers_that_take_them(iris: Data) -> None:
    X, y = iris
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 150)
    weights *= 150 / weights.sum()
    # With a prior, whose rows weights are counted against.
    search = quick(covariance_type="tied").set_params(estimator=SharedKernelClassifier(**QUICK_FITS))
    one, other = (clone(search).fit(X, y, w).predict_proba(X) for w in (weights, weights / 150))
    assert_allclose(one, other, rtol=1e-6, atol=1e-12)
    assert quick(scoring=lambda model, X, y: model.score(X, y)).fit(X, y, weights).best_score_ > 0.9


def test_labels_keep_their_kind_beside_rows_without_one(iris: Data) -> None:
    X, y = iris
    some = np.where(np.arange(150) % 4 == 0, -1, y + 2)
    search = SharedKernelClassifierCV(
        n_kernels=3, covariance_type="tied", tune=False, cv=2, n_members=4, random_state=0
    ).fit(X, some)
    assert {each.classes_.dtype.kind for each in search.classifiers_} == {"i"}


def test_a_fit_that_fails_leaves_the_last_one_whole(iris: Data) -> None:
    X, y = iris
    search = quick().fit(X, y)
    before = search.predict(X)
    with pytest.raises(ValueError, match="weight"):
        search.fit(np.column_stack([X, X]), y, sample_weight=-np.ones(150))
    assert_array_equal(search.predict(X), before)


def test_shared_kernels_of_many_features_and_few_rows() -> None:
    random = np.random.default_rng(0)
    y = np.arange(40) % 2
    X = random.normal(size=(40, 150)) + y[:, None]
    search = SharedKernelClassifierCV(kernels="shared", tune=False, cv=2, random_state=0).fit(X, y)
    assert set(search.cv_results_["param_kernels"]) == {"shared"}
    assert search.score(X, y) > 0.9


def test_groups_reach_the_splitter(iris: Data) -> None:
    X, y = iris
    groups = np.arange(150) % 10
    given = []

    class Splitter(GroupKFold):
        def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
            given.append(np.array(groups))
            return super().split(X, y, groups)

    y = np.where(np.arange(150) % 7 == 0, -1, y)
    quick(cv=Splitter(2)).fit(X, y, groups=groups)
    assert_array_equal(given[0], groups[y >= 0])
    weights = np.where(np.arange(150) % 11 == 0, 0.0, 1.0)
    search = SharedKernelMixtureCV(
        n_kernels=3, covariance_type="diag", criterion="log_likelihood", cv=Splitter(2)
    )
    search.fit(X, sample_weight=weights, groups=groups)
    assert_array_equal(given[1], groups[weights > 0])


@pytest.mark.parametrize("cv", [None, GroupKFold(5), LeaveOneGroupOut()], ids=str)
def test_rows_of_held_out_groups_do_not_train(cv: Any) -> None:
    codes = np.tile([0, 1, -1, -1], 30)
    # Group 9 has no label at all, and its rows train in every fold.
    groups = np.where(np.arange(120) < 10 * 4, np.arange(120) // 4 % 3, 3 + np.arange(120) // 4 % 6)
    groups[[2, 3, 50, 51]] = 9
    kept = np.arange(1, 121)  # the first row as given has no weight
    rows = Rows(np.arange(120.0)[:, None], codes, codes, None)
    folds = _base.make_folds(rows, cv, np.concatenate([[7], groups]), kept, 0)
    assert len(folds) >= 5
    for training, held in folds:
        own, others = (each.X[:, 0].astype(int) for each in (training, held))
        assert not set(groups[own]) & set(groups[others])
        assert set(groups[own]) | set(groups[others]) == set(groups)
        assert np.all(codes[others] >= 0)
        free = ~np.isin(groups, groups[others])
        assert_array_equal(own, np.flatnonzero(free))


def test_every_unlabelled_row_may_be_held_out_with_its_group() -> None:
    codes = np.array([0, 1, -1, 0, 1, 0, 1])
    rows, groups = Rows(np.arange(7.0)[:, None], codes, codes, None), np.array([0, 0, 0, 1, 1, 2, 2])
    folds = _base.make_folds(rows, LeaveOneGroupOut(), groups, np.arange(7), 0)
    assert [2.0 in training.X for training, _ in folds] == [False, True, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"criterion": name}, f"cross-validation only; criterion='{name}'") for name in ("bic", "aic")),
        ({"strategy": "prune", "n_kernels": 4}, "cross-validation only; criterion='bic'"),
        ({"criterion": "stability"}, "leave out groups"),
        ({"cv": 3}, "groups are ignored by StratifiedKFold"),
        ({"cv": KFold(3)}, "groups are ignored by KFold"),
        ({"cv": [(np.arange(75), np.arange(75, 150))]}, "cv is a list of splits"),
    ],
)
def test_groups_that_nothing_would_use_are_refused(
    settings: dict[str, Any], message: str, iris: Data
) -> None:
    X, y = iris
    groups = np.arange(150) % 10
    search = SharedKernelMixtureCV(random_state=0, **settings)
    with pytest.raises(ValueError, match=message):
        search.fit(X, y, groups=groups)
    if "cv" in settings:
        with pytest.raises(ValueError, match=message):
            quick(**settings).fit(X, y, groups=groups)


def test_rows_without_a_label_stay_so_when_a_class_has_no_weight(iris: Data) -> None:
    X, y = iris
    labels = np.where(np.arange(150) % 4 == 0, -1, y)
    # Beside 0 and 1 alone, -1 might be a class.
    weights, kept = np.where(y == 2, 0.0, 1.0), y != 2
    nan = np.where(labels < 0, np.nan, labels)
    search = quick(cv=3).fit(X, labels, sample_weight=weights)
    expected = quick(cv=3).fit(X[kept], nan[kept], sample_weight=weights[kept])
    assert_allclose(search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])
    # And beside one label, it would be another one.
    weights, kept = np.where(labels == 2, 1.0, 1.0 * (labels == -1)), (labels == 2) | (labels == -1)
    settings: Any = {"n_kernels": 2, "covariance_type": "diag", "criterion": "log_likelihood", "cv": 2}
    found, other = (
        SharedKernelMixtureCV(**settings, random_state=0).fit(*given)
        for given in ((X, labels, weights), (X[kept], nan[kept], weights[kept]))
    )
    assert found.best_score_ == pytest.approx(other.best_score_)
    assert found.classes_.tolist() == [2]


def test_an_iterable_of_splits_counts_the_rows_as_given(iris: Data) -> None:
    X, y = iris
    weights = np.where(np.arange(150) % 11 == 0, 0.0, 1.0)
    folds = list(StratifiedKFold(3).split(X, y))
    masks = [(np.isin(np.arange(150), training), np.isin(np.arange(150), held)) for training, held in folds]
    kept = weights > 0
    inside = [(np.flatnonzero(training[kept]), np.flatnonzero(held[kept])) for training, held in masks]
    ones = np.ones(kept.sum())
    expected = quick(cv=inside).fit(X[kept], y[kept], sample_weight=ones).cv_results_["mean_test_score"]
    found = quick(cv=folds).fit(X, y, sample_weight=weights).cv_results_["mean_test_score"]
    assert_allclose(found, expected, rtol=1e-9)


# ---------------------------------------------------------------- classifiers: choices


def test_what_is_given_is_not_searched(iris: Data) -> None:
    X, y = iris
    prototype = SharedKernelClassifier(
        covariance_prior=5.0, priors="uniform", reject_below=0.01, outlier_label=9, max_iter=300
    )
    search = SharedKernelClassifierCV(
        prototype, n_kernels=[4], covariance_type=["diag", "tied"], tune=False, cv=2, random_state=0
    ).fit(X, y)
    assert set(search.cv_results_["param_covariance_type"]) == {"diag", "tied"}
    assert set(search.cv_results_["param_prior_rows"]) == {None}
    assert set(search.cv_results_["param_n_kernels"]) == {4}
    # Each candidate once, though no strength of the prior is searched.
    assert len({repr(params) for params in search.cv_results_["params"]}) == len(search.cv_results_["params"])
    assert search.classifier_.covariance_prior == 5.0
    assert search.classifier_.n_kernels_ == 4
    assert_allclose(search.classifier_.class_prior_, 1 / 3)
    assert search.predict([[100.0, 0.0, 0.0, 0.0]]).tolist() == [9]
    tuned = quick(tune=0.5).fit(X, y)
    assert tuned.best_params_["trade_off"] == 0.5
    assert tuned.classifier_.tuned_["trade_off"] == 0.5


def shares_of(search: Any, *given: Any) -> list[float | None]:
    """Return the shares of the work that a search reports as done."""
    shares: list[float | None] = []

    @contextmanager
    def watcher(title: str, total: int | None) -> Iterator[Any]:
        def report(message: str, *, share: float | None = None) -> None:
            if title == "choosing settings":
                shares.append(share)

        yield report

    with watched_by(watcher):
        search.fit(*given)
    return shares


@pytest.fixture(scope="module")
def whole(iris: Data) -> tuple[SharedKernelClassifierCV, list[float | None]]:
    """Return a search over all that there is to choose, and the shares of the work that it reported."""
    names = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    search = SharedKernelClassifierCV(cv=3, random_state=0, n_jobs=1)
    shares = shares_of(search, iris[0], names)
    return search, shares


@pytest.mark.slow
def test_the_winner_is_the_classifier_one_would_ask_for(iris: Data, whole: Any) -> None:
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    search = whole[0]
    table = pd.DataFrame(search.cv_results_)
    screened = table["stage"] == "screening"
    stages = ["screening", "kernels", "tuning"]
    assert table["stage"].tolist() == sorted(table["stage"], key=stages.index)
    # What was compared on all folds did best on one, and its scores alone are ranked first.
    assert search.best_score_ == table["mean_test_score"][~screened].max()
    assert table["rank_test_score"][search.best_index_] == 1
    assert table["rank_test_score"][screened].min() == (~screened).sum() + 1
    # Of candidates with the same features, those that did best.
    table["known"] = table["params"].map(repr)
    for _, own in table.groupby(["param_transform", "param_reduction"]):
        further = set(own["known"][own["stage"] == "kernels"])
        scores = own[own["stage"] == "screening"].set_index("known")["mean_test_score"]
        assert further == set(scores.nlargest(len(further)).index)
    assert search.score(X, names) > 0.96
    features = by_hand(search.best_params_, X, y)
    asked = clone(search.classifier_).fit(features(X), names)
    if search.best_params_["trade_off"] is not None:
        asked.tune(
            features(X), names, trade_off=search.best_params_["trade_off"], validation=None, max_iter=20
        )
    assert_allclose(asked.means_, search.classifier_.means_)
    rows, _ = search.classifier_.covariance_prior
    assert rows == pytest.approx(features(X).shape[1] * search.best_params_["prior_rows"])


def test_an_interrupted_search_of_densities_leaves_the_last_one(
    iris: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = iris
    search = SharedKernelMixtureCV(
        n_kernels=[2, 3], covariance_type="diag", n_members=3, cv=2, random_state=0
    )
    before = search.fit(X).score_samples(X)
    fit = SharedKernelMixture.fit

    def interrupted(self: Any, rows: Any, *others: Any, **settings: Any) -> Any:
        if len(rows) == len(X):
            raise KeyboardInterrupt
        return fit(self, rows, *others, **settings)

    monkeypatch.setattr(SharedKernelMixture, "fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search.set_params(n_members=1).fit(X)
    monkeypatch.undo()
    assert_array_equal(search.score_samples(X), before)


def test_more_kernels_are_tried_until_two_numbers_in_a_row_are_worse(
    iris: Data, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One kernel a class is best where scores fall with the number of kernels, and is followed by two."""
    X, y = iris
    screened: list[dict[str, Any]] = []

    def score(self: Any, trial: Trial) -> None:
        screened.append(trial.params)
        trial.score = -float(trial.params["n_kernels"])

    monkeypatch.setattr(search_of_classifiers.Selection, "_screen", score)
    settings: dict[str, Any] = {"covariance_type": "full", "kernels": "own", "tune": False, "cv": 2}
    SharedKernelClassifierCV(random_state=0, **settings).fit(X, y)
    assert {params["n_kernels"] for params in screened if params["transform"] == "ranks"} == {3, 6, 12}
    screened.clear()
    # Given numbers are all tried.
    SharedKernelClassifierCV(n_kernels=[3, 6, 9, 12], random_state=0, **settings).fit(X, y)
    assert {params["n_kernels"] for params in screened} == {3, 6, 9, 12}


def test_own_kernels_belong_to_one_class(iris: Data) -> None:
    X, y = iris
    search = SharedKernelClassifierCV(
        kernels="own", n_kernels=[3, 7], covariance_type="tied", tune=False, cv=2, random_state=0
    ).fit(X, y)
    # Every class has as many.
    assert set(search.cv_results_["param_n_kernels"]) == {3, 6}
    assert set(search.cv_results_["param_kernels"]) == {"own"}
    groups = SharedKernelClassifierCV(kernels="own", feature_sets=[[0, 1], [2, 3]], cv=2, random_state=0)
    parts = [*search.classifiers_, *(part for each in groups.fit(X, y).classifiers_ for part in each.models_)]
    for part in parts:
        assert_array_equal(np.count_nonzero(part.weights_, axis=1), 1)
    # With one for each class it is the class's Gaussian.
    one = SharedKernelClassifier(init=own_kernels(X, y, 1, 0), covariance_prior=None, random_state=0).fit(
        X, y
    )
    assert_allclose(one.means_, [X[y == c].mean(axis=0) for c in range(3)])
    few = own_kernels(X[:, :2], y, 4, 0)
    assert_array_equal(few["weights"], np.kron(np.eye(3), np.full((4, 1), 0.25)))
    for c in range(3):
        rows = X[y == c, :2]
        assert all(np.isclose(rows, mean).all(axis=1).any() for mean in few["means"][4 * c : 4 * c + 4])


def test_shared_kernels_are_tried_alone_where_weights_have_a_prior(iris: Data) -> None:
    prototype = SharedKernelClassifier(weight_prior=1.2, max_iter=100, tol=1e-2)
    settings: dict[str, Any] = {"covariance_type": "tied", "time_limit": 0.0, "random_state": 0}
    search = SharedKernelClassifierCV(prototype, **settings).fit(*iris)
    assert set(search.cv_results_["param_kernels"]) == {"shared"}
    assert search.classifier_.weight_prior == 1.2
    # Tied kernels that are shared are many, but not where there are few rows.
    few = SharedKernelClassifierCV(kernels="shared", **settings).fit(iris[0][::10], iris[1][::10])
    assert set(few.cv_results_["param_kernels"]) == {"shared"}
    variational = SharedKernelClassifier(inference="variational")
    for estimator in (prototype, variational):
        refused(
            "kernels='own' needs weights without a prior", SharedKernelClassifierCV(estimator, kernels="own")
        )
    refused(
        "a kernel for each of 3 classes, got n_kernels=2",
        SharedKernelClassifierCV(n_kernels=2, kernels="own"),
    )


def test_the_best_candidate_has_the_threshold_of_its_own_fit(iris: Data) -> None:
    X, y = iris
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    prototype = SharedKernelClassifier(3, covariance_prior=5.0, reject_below=0.2, outlier_label=9)
    search = SharedKernelClassifierCV(
        prototype, n_kernels=3, covariance_type="full", random_state=0, cv=3, tune=False, n_members=2
    ).fit(X, y, weights)
    features = by_hand(search.best_params_, X, y, weights)
    asked = clone(search.classifier_).fit(features(X), y, weights)
    assert asked.reject_below == 0.2
    assert_allclose(search.classifier_.threshold_, asked.threshold_)
    assert [each.reject_below for each in search.classifiers_[1:]] == [None] * (len(search.classifiers_) - 1)
    prototype.set_params(outlier_label=1)
    with pytest.raises(ValueError, match="outlier_label=1 is one of the classes"):
        clone(search).set_params(estimator=prototype).fit(X, y)
    prototype.set_params(outlier_label=9, reject_below=None)
    with pytest.raises(ValueError, match="outlier_label=9 needs a fit with reject_below"):
        clone(search).set_params(estimator=prototype).fit(X, y)
    # What is set after the fit is checked where it is used.
    for label, message in ((1, "is one of the classes"), ("zz", "must be an integer")):
        search.classifier_.set_params(outlier_label=label)
        with pytest.raises(ValueError, match=message):
            search.predict(X)


def test_candidates_are_fitted_on_the_device_of_the_estimator(iris: Data) -> None:
    pytest.importorskip("torch")
    on_device = quick(cv=2).set_params(estimator__device="cpu").fit(*iris)
    assert on_device.classifier_.device == "cpu"
    assert on_device.best_score_ == pytest.approx(quick(cv=2).fit(*iris).best_score_, rel=1e-9)


@pytest.mark.parametrize(
    "search",
    [
        None,
        quick(cv=2, tune="auto", n_members=8),
        quick(cv=2),
        SharedKernelMixtureCV(n_kernels=[2, 3], covariance_type=["full", "tied"], cv=2, random_state=0),
        SharedKernelMixtureCV(covariance_type="tied", criterion="bic", random_state=0),
    ],
)
def test_a_search_reports_the_share_of_its_work(iris: Data, whole: Any, search: Any) -> None:
    if search is None:
        shares = whole[1]
    else:
        shares = shares_of(clone(search), *(iris if is_classifier(search) else iris[:1]))
    assert None not in shares
    # It goes on to larger numbers of kernels, or chooses fewer features than expected, but ends with all.
    assert sum(later < earlier for earlier, later in pairwise(shares)) <= 1
    assert 0.0 < shares[0] < 0.3
    assert shares[-1] == 1.0


def test_the_work_of_stages_is_weighted() -> None:
    trials, shares = Trials(None), []
    trials.report = lambda message, *, share=None: shares.append(share)
    trials.step("opening", "")
    trials.plan("screening", 4, 1.0)
    trials.plan("kernels", 2, 8.0)
    trials.step("screening", "")
    trials.plan("screening", 1, 1.0)
    trials.step("screening", "")
    trials.step("kernels", "")
    trials.plan("tuning", 1, 6.0)
    trials.step("tuning", "")
    assert shares == [None, 1 / 20, 2 / 18, 10 / 18, 1.0]


def test_with_little_time_the_share_is_that_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, shares = [100.0], []
    monkeypatch.setattr(_base.time, "monotonic", lambda: clock[0])
    trials = Trials(10.0)
    trials.report = lambda message, *, share=None: shares.append(share)
    for clock[0] in (101.0, 104.0):
        trials.step("kernels", "")
        trials.plan("kernels", 5, 1.0)
    clock[0] = 112.0
    trials.step("kernels", "")
    assert shares == [0.1, 0.4, 1.0]


def test_time_is_up_after_the_first_candidate(iris: Data, whole: Any) -> None:
    assert whole[0].n_untried_ == 0
    search = SharedKernelClassifierCV(time_limit=0.0, random_state=0).fit(*iris)
    assert search.n_untried_ > 20
    # One candidate on one fold, and then on all.
    assert search.cv_results_["stage"].tolist() == ["screening", "kernels"]
    assert search.best_index_ == 1
    assert search.cv_results_["rank_test_score"].tolist() == [2, 1]
    assert search.cv_results_["params"][0] == search.best_params_
    tuned = SharedKernelClassifierCV(tune=0.5, time_limit=0.0, random_state=0).fit(*iris)
    assert len(tuned.classifiers_) == 1
    few = quick(time_limit=0.0).fit(*iris)
    assert few.cv_results_["stage"].tolist() == ["kernels"]
    assert few.n_untried_ == len(quick().fit(*iris).cv_results_["params"]) - 1
    mixture = SharedKernelMixtureCV(time_limit=0.0, random_state=0).fit(iris[0])
    assert len(mixture.cv_results_["params"]) == 1
    # One kernel, then 2 to 8 and 10, of each type, full and diagonal ones with two priors.
    assert mixture.n_untried_ == 9 * (len(STRUCTURES) + 2) - 1


@pytest.fixture(scope="module")
def pixels() -> tuple[SharedKernelClassifierCV, np.ndarray, np.ndarray]:
    """Return a search that has reduced 256 pixels of three digits, and other rows with their labels."""
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 3], y[y < 3]
    X = np.kron(X.reshape(-1, 8, 8), np.ones((1, 2, 2))).reshape(len(X), -1)
    search = SharedKernelClassifierCV(n_kernels=3, tune=False, n_members=1, cv=2, random_state=0)
    return search.fit(X[:100], y[:100]), X[100:], y[100:]


def test_pixels_are_projected(pixels: Any) -> None:
    search, X, y = pixels
    assert search.best_params_["reduction"] != "none"
    assert search.classifier_.n_features_in_ < 256
    assert search.score(X, y) > 0.9
    assert isinstance(search.best_estimator_, Pipeline)
    assert_array_equal(search.best_estimator_.predict_proba(X), search.predict_proba(X))
    gaps = X.copy()
    gaps[:, 100:110] = np.nan
    assert np.mean(search.predict(gaps) == search.predict(X)) > 0.9


def test_the_product_form_has_its_own_candidates() -> None:
    X, y = load_wine(return_X_y=True)
    groups = [[0, 1, 2], [5, 6]]
    search = SharedKernelClassifierCV(feature_sets=groups, cv=2, random_state=0).fit(X, y)
    assert set(search.cv_results_["param_n_kernels"]) == {4, 8, 16}
    assert set(search.cv_results_["param_weight_prior"]) == {1.0, 1.1}
    assert set(search.cv_results_["param_reduction"]) == {"none"}
    assert search.classifier_.feature_sets_ == groups
    pooled = pooled_covariance(X, y)
    for columns, model in zip(groups, search.classifier_.models_, strict=True):
        rows, covariance = model.covariance_prior
        assert rows == 2.5 * search.best_params_["prior_rows"]
        assert_allclose(covariance, pooled[np.ix_(columns, columns)])


# ---------------------------------------------------------------- rows that leave little to choose from


def test_classes_of_one_row_and_constant_features() -> None:
    X = np.array([[0.0, 1.0], [10.0, 1.0], [20.0, 1.0]])
    search = SharedKernelClassifierCV(random_state=0).fit(X, ["a", "b", "c"])
    assert search.predict(X).tolist() == ["a", "b", "c"]
    assert search.best_params_["covariance_type"] == "tied"
    assert np.isnan(search.best_score_)
    more = np.concatenate([X, X[:2] + 0.5, X[:2] - 0.5])
    search.fit(more, list("abcabab"))
    assert search.predict(X).tolist() == list("abc")


def test_two_rows_of_a_class_and_one_feature_will_do(iris: Data) -> None:
    X, y = iris[0], np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    two = np.array([0, 1, 50, 51, 100, 101])
    assert SharedKernelClassifierCV(random_state=0).fit(X[two], y[two]).score(X[two], y[two]) == 1.0
    one = SharedKernelClassifierCV(random_state=0, cv=2).fit(X[::3, 2:3], y[::3])
    assert one.score(X[:, 2:3], y) > 0.9


@pytest.mark.slow
def test_more_features_than_rows_will_do() -> None:
    random = np.random.default_rng(0)
    y, fresh = np.repeat(np.arange(4), 10), np.repeat(np.arange(4), 50)
    X, rows = (random.normal(size=(len(each), 120)) + 4.0 * np.eye(4, 120)[each] for each in (y, fresh))
    assert SharedKernelClassifierCV(random_state=0, cv=2).fit(X, y).score(rows, fresh) > 0.8
    same = SharedKernelClassifierCV(random_state=0, cv=2).fit(np.ones((20, 20)), np.repeat([0, 1], 10))
    assert_allclose(same.predict_proba(np.ones((1, 20))), 0.5)


def test_missing_values_are_filled_to_choose_and_to_tune(iris: Data) -> None:
    X, y = iris[0].copy(), iris[1]
    X[np.random.RandomState(0).uniform(size=X.shape) < 0.15] = np.nan
    search = quick(tune=0.5).fit(X, y)
    chosen = search.classifier_
    complete = filler(X, chosen.random_state)(X)
    features = by_hand(search.best_params_, complete, y)
    asked = clone(chosen).fit(features(X), y)
    asked.tune(features(complete), y, trade_off=0.5, validation=None, max_iter=20)
    assert_allclose(asked.means_, chosen.means_)
    assert search.score(X, y) > 0.9


def test_a_feature_that_a_fold_has_never_seen_does_not_matter() -> None:
    X, y = clusters(2), np.repeat([0, 1], 60)
    X = np.column_stack([X, np.full(120, np.nan)])
    X[0, 2] = 1.0
    search = quick(n_kernels=2, cv=StratifiedKFold(3)).fit(X, y)
    assert search.best_score_ > -0.01


def test_unknown_values_are_filled_by_a_gaussian(iris: Data) -> None:
    X = iris[0].copy()
    X[::3, 1] = np.nan
    fill = filler(X[50:], 0)
    gaussian = SharedKernelMixture(1, max_iter=20, tol=1e-2, random_state=0).fit(X[50:])
    assert_allclose(fill(X[:50]), gaussian.impute(X[:50]), rtol=1e-6)


# ---------------------------------------------------------------- the prior


def test_the_pooled_covariance_is_that_of_discriminant_analysis(iris: Data) -> None:
    X, y = iris
    model = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X, y)
    # Theirs divides by N; ours has N − L rows and one more of all rows' variances.
    expected = (150 * model.covariance_ + np.diag(X.var(axis=0))) / (150 - 3 + 1)
    assert_allclose(pooled_covariance(X, y), expected, rtol=1e-12)
    assert_allclose(pooled_covariance(X[::50], y[::50]), np.diag(X[::50].var(axis=0)))
    counts = np.random.default_rng(0).integers(1, 4, size=150)
    repeated = pooled_covariance(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert_allclose(pooled_covariance(X, y, counts.astype(float)), repeated, rtol=1e-12)


def test_gaps_hardly_change_the_pooled_covariance(iris: Data) -> None:
    X, y = np.tile(iris[0], (40, 1)), np.tile(iris[1], 40)
    whole = pooled_covariance(X, y)
    gaps = X.copy()
    gaps[np.random.RandomState(0).uniform(size=len(X)) < 0.5, 0] = np.nan
    assert_allclose(np.diag(pooled_covariance(gaps, y)), np.diag(whole), rtol=0.1)
    # A class without any value of a feature contributes nothing to its variance.
    gaps[y == 2, 0] = np.nan
    assert np.linalg.eigvalsh(pooled_covariance(gaps, y)).min() > 0.0


# ---------------------------------------------------------------- results


def test_results_are_saved(tmp_path: Path, iris: Data, pixels: Any) -> None:
    X, y = iris
    product = quick(feature_sets=[[0, 1], [2, 3]], cv=StratifiedKFold(2)).fit(X, y)
    mixture = SharedKernelMixtureCV(
        n_kernels=[2, 3], covariance_type=["full", "tied"], cv=2, random_state=0
    ).fit(pd.DataFrame(X, columns=list("abcd")))
    for search, rows in (
        (product, X),
        (pixels[0], pixels[1]),
        (mixture, pd.DataFrame(X, columns=list("abcd"))),
    ):
        search.save(tmp_path / "search.skmix")
        again = load(tmp_path / "search.skmix")
        assert type(again) is type(search)
        assert_array_equal(again.score_samples(rows), search.score_samples(rows))
        assert again.best_params_ == search.best_params_
        table = pd.DataFrame(search.cv_results_).drop(columns="mean_fit_time")
        pd.testing.assert_frame_equal(pd.DataFrame(again.cv_results_), table)
        assert repr(again.estimator) == repr(search.estimator)
        assert_array_equal(pickle.loads(pickle.dumps(search)).score_samples(rows), search.score_samples(rows))


def test_a_class_of_few_rows_has_fewer_kernels(iris: Data) -> None:
    kept = np.r_[:52, 100:150]  # two rows of the second class
    search = SharedKernelClassifierCV(kernels="own", n_kernels=12, tune=False, n_members=1, random_state=0)
    search.fit(iris[0][kept], iris[1][kept])
    assert search.best_params_["n_kernels"] == len(search.classifier_.means_) == 4 + 2 + 4


def test_the_same_search_makes_the_same_file(tmp_path: Path, iris: Data) -> None:
    for search, given in (
        (SharedKernelClassifierCV(n_kernels=3, n_members=2, cv=2, random_state=0), iris),
        (SharedKernelMixtureCV(n_kernels=[2, 3], covariance_type="diag", cv=2, random_state=0), iris[:1]),
    ):
        files = [tmp_path / "first.skmix", tmp_path / "second.skmix"]
        for file in files:
            clone(search).fit(*given).save(file)
        assert files[0].read_bytes() == files[1].read_bytes()


def test_a_reduction_is_part_of_the_graph(iris: Data, pixels: Any) -> None:
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    product = quick(feature_sets=[[0, 1], [2, 3]], cv=2).fit(*iris)
    for search, X in ((product, iris[0]), (pixels[0], pixels[1])):
        session = runtime.InferenceSession(search.to_onnx().SerializeToString())
        labels, probabilities, densities = session.run(None, {"X": np.asarray(X, dtype=np.float64)})
        assert_array_equal(labels, search.predict(X))
        assert_allclose(probabilities, search.predict_proba(X), atol=1e-9)
        assert_allclose(densities, search.score_samples(X), rtol=1e-9)
    mixture = SharedKernelMixtureCV(n_kernels=2, cv=2, random_state=0).fit(iris[0])
    assert len(mixture.mixtures_) > 1
    session = runtime.InferenceSession(mixture.to_onnx().SerializeToString())
    shares, densities = session.run(["responsibilities", "log_density"], {"X": iris[0]})
    assert_allclose(shares, mixture.best_estimator_.transform(iris[0]), atol=1e-9)
    assert_allclose(densities, mixture.score_samples(iris[0]), rtol=1e-9)


def test_unfitted_searches_say_so() -> None:
    for search in (SharedKernelClassifierCV(), SharedKernelMixtureCV()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            search.score_samples([[0.0]])
    for method in ("predict", "predict_proba", "predict_log_proba"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(SharedKernelClassifierCV(), method)([[0.0]])
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SharedKernelMixtureCV().sample()


# ---------------------------------------------------------------- errors


def refused(
    message: str, search: Any, X: Any = None, y: Any = None, error: type[Exception] = ValueError
) -> None:
    rows, labels = shared_kernels(10)
    with pytest.raises(error, match=message):
        search.fit(rows if X is None else X, labels if y is None else y)


@pytest.mark.parametrize("search", [SharedKernelClassifierCV, SharedKernelMixtureCV])
def test_settings_that_leave_nothing_to_try_are_refused(search: Any) -> None:
    refused("n_kernels must be 'auto'.*got \\[\\]", search(n_kernels=[]))
    refused("n_kernels must be 'auto'.*got \\[3, 0\\]", search(n_kernels=[3, 0]))
    refused("n_kernels must be 'auto'.*got \\[2.5\\]", search(n_kernels=[2.5]))
    refused("n_kernels must be 'auto'.*got \\[True\\]", search(n_kernels=[True]))
    refused("n_kernels must be 'auto'.*got 'best'", search(n_kernels="best"))
    refused("covariance_type must be 'auto', one of full.*got 'round'", search(covariance_type="round"))
    refused("'estimator' parameter", search(GroupKFold()))
    model = SharedKernelClassifier if search is SharedKernelClassifierCV else SharedKernelMixture
    refused("needs init by name", search(model(init={"means": np.zeros((3, 2))})))


def test_folds_need_rows_of_every_class() -> None:
    X = np.random.default_rng(0).normal(size=(23, 2))
    y = np.array(["few"] * 3 + ["many"] * 20)
    by_row = [(np.arange(3, 23), np.arange(3)), (np.arange(20), np.arange(20, 23))]
    refused("Fold 0 of cv has no training row of class 'few'", quick(cv=by_row), X, y)
    nobody = [(np.arange(23), np.arange(0))]
    refused("Fold 0 of cv holds out no row", quick(cv=nobody), X, y)
    search = SharedKernelMixtureCV(criterion="log_likelihood")
    refused("3 rows are too few to hold any out", search, X[:3], [0, 1, 2])


def test_one_class_is_refused() -> None:
    refused("two classes or more, got one class: 1", SharedKernelClassifierCV(), [[0.0], [1.0]], [1, 1])


def test_candidates_that_all_fail_raise_the_last_error() -> None:
    X, y = np.repeat([[0.0, 1.0], [1.0, 3.0], [2.0, 9.0]], 10, axis=0), np.repeat([0, 1, 2], 10)
    message = "No candidate could be fitted: All 1 starts ended in a singular covariance"
    mixture = SharedKernelMixture(variance_floor=0.0, covariance_prior=None)
    for criterion in ("bic", "log_likelihood"):
        refused(message, SharedKernelMixtureCV(mixture, n_kernels=3, criterion=criterion), X, y)
    prototype = SharedKernelClassifier(variance_floor=0.0, covariance_prior=None)
    refused(message, SharedKernelClassifierCV(prototype, cv=2), X, y)


def test_a_tuned_winner_keeps_the_names_of_a_data_frame() -> None:
    iris = load_iris(as_frame=True)
    search = SharedKernelClassifierCV(
        n_kernels=4, covariance_type="tied", tune=0.1, n_members=2, cv=2, random_state=0
    )
    # Warnings are errors: tuning is given arrays, and must not warn that they have no names.
    search.fit(iris.data, iris.target)
    plain = clone(search).fit(iris.data.to_numpy(), iris.target)
    if search.feature_map_ is None:
        assert list(search.classifier_.feature_names_in_) == list(iris.data.columns)
    assert list(search.feature_names_in_) == list(iris.data.columns)
    assert search.best_params_["trade_off"] == 0.1
    assert_array_equal(search.predict_proba(iris.data), plain.predict_proba(iris.data.to_numpy()))
