"""The search for classifiers: its scores against fits by hand, what it chooses, and what becomes of rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GroupKFold, StratifiedKFold
from sklearn.pipeline import Pipeline

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, SharedKernelMixtureCV
from skmix.engine.rows.blocks import Block
from skmix.engine.structures import STRUCTURES
from skmix.model.callbacks import watched_by
from skmix.search import classifier as search_of_classifiers
from skmix.search import space, stages
from skmix.search.features import filler, fit_features
from skmix.search.fits import own_kernels
from skmix.search.trials import Trial

Data = tuple[np.ndarray, np.ndarray]


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
    change = fit_features(params["transform"], params["reduction"], Block(training, y, weights))
    return (lambda rows: rows) if change is None else change.transform


def halves_of_a_cube(n_features: int = 4) -> Data:
    """Return rows of two classes on both sides of a plane, which kernels describe badly: tuning helps."""
    X = np.random.default_rng(0).uniform(size=(150, n_features))
    return X, (X[:, 0] + X[:, 1] > 1.0).astype(int)


# ---------------------------------------------------------------- scores


def test_the_log_loss_of_a_candidate_is_that_of_folds_by_hand(iris: Data) -> None:
    X, y = iris
    # Folds of different sizes and weights count by their weight, at one temperature for all.
    parts = np.random.default_rng(1).choice(3, p=[0.6, 0.3, 0.1], size=150)
    cv = [(np.flatnonzero(parts != part), np.flatnonzero(parts == part)) for part in range(3)]
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=len(y))
    search = quick(n_kernels=5, cv=cv).fit(X, y, sample_weight=weights)
    for i, params in enumerate(search.cv_results_["params"]):
        logs = np.empty((len(X), 3))
        for training, held in cv:
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


def test_no_filler_has_seen_a_held_out_row(monkeypatch: pytest.MonkeyPatch, iris: Data) -> None:
    X, y = iris
    folds, filled = list(StratifiedKFold(3).split(X, y)), []
    monkeypatch.setattr(
        search_of_classifiers, "filler", lambda rows, seed: filled.append(rows) or filler(rows, seed)
    )
    quick(cv=folds).fit(X, y)
    for rows, (training, _) in zip(filled, folds, strict=True):
        assert_array_equal(rows, X[training])


def test_weights_are_relative(iris: Data) -> None:
    X, y = iris
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 150)
    weights *= 150 / weights.sum()
    # With a prior, whose rows weights are counted against.
    search = quick(covariance_type="tied").set_params(estimator=SharedKernelClassifier())
    one, other = (clone(search).fit(X, y, w).predict_proba(X) for w in (weights, weights / 150))
    assert_allclose(one, other, rtol=1e-6, atol=1e-12)


def test_rows_without_a_label_stay_so_when_a_class_has_no_weight(iris: Data) -> None:
    X, y = iris
    labels = np.where(np.arange(150) % 4 == 0, -1, y)
    # Beside 0 and 1 alone, -1 might be a class.
    weights, kept = np.where(y == 2, 0.0, 1.0), y != 2
    nan = np.where(labels < 0, np.nan, labels)
    search = quick(cv=3).fit(X, labels, sample_weight=weights)
    expected = quick(cv=3).fit(X[kept], nan[kept], sample_weight=weights[kept])
    assert_allclose(search.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"])


# ---------------------------------------------------------------- choices


def test_what_is_given_is_not_searched(iris: Data) -> None:
    X, y = iris
    prototype = SharedKernelClassifier(
        covariance_prior=5.0, priors="uniform", reject_below=0.01, outlier_label=9, max_iter=300
    )
    search = SharedKernelClassifierCV(
        prototype,
        n_kernels=[4],
        covariance_type=["diag"],
        tune=False,
        n_members=1,
        cv=2,
        random_state=0,
    ).fit(X, y)
    assert set(search.cv_results_["param_covariance_type"]) == {"diag"}
    assert set(search.cv_results_["param_prior_rows"]) == {None}
    assert set(search.cv_results_["param_n_kernels"]) == {4}
    # Each candidate once, though no strength of the prior is searched.
    assert len({repr(params) for params in search.cv_results_["params"]}) == len(search.cv_results_["params"])
    assert search.classifier_.covariance_prior == 5.0
    assert search.classifier_.n_kernels_ == 4
    assert_allclose(search.classifier_.class_prior_, 1 / 3)
    assert search.predict([[100.0, 0.0, 0.0, 0.0]]).tolist() == [9]


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
    X, y = iris[0][::2], iris[1][::2]
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    search = SharedKernelClassifierCV(cv=3, random_state=0, n_jobs=1)
    shares = shares_of(search, X, names)
    return search, shares


@pytest.mark.slow
def test_the_best_of_each_stage_go_on_to_the_next(iris: Data, whole: Any) -> None:
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
    names = np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    assert search.score(iris[0], names) > 0.96


def test_more_kernels_are_tried_until_a_number_is_worse(iris: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel a class is best where scores fall with the number of kernels, and is followed by two."""
    X, y = iris
    screened: list[dict[str, Any]] = []

    def score(self: Any, trial: Trial, some: bool = False) -> None:
        screened.extend([trial.params] if some else [])
        trial.score = -float(trial.params["n_kernels"])

    monkeypatch.setattr(stages.Selection, "_score", score)
    settings: dict[str, Any] = {"covariance_type": "full", "kernels": "own", "tune": False, "cv": 2}
    SharedKernelClassifierCV(random_state=0, **settings).fit(X, y)
    of_ranks = [params for params in screened if params["transform"] == "ranks"]
    # Twelve kernels with one prior, as all features are compared by.
    assert {(params["n_kernels"], params["prior_rows"]) for params in of_ranks} == {
        *((3, rows) for rows in (0.1, 1.0, 8.0)),
        *((6, rows) for rows in (0.5, 2.0)),
        (12, 2.0),
    }
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


@pytest.mark.filterwarnings("ignore:The chosen model did not converge")
def test_shared_kernels_are_tried_alone_where_weights_have_a_prior(iris: Data) -> None:
    settings: dict[str, Any] = {"covariance_type": "tied", "time_limit": 0.0, "random_state": 0}
    for prior in ({"weight_prior": 1.2}, {"inference": "variational"}):
        prototype = SharedKernelClassifier(**prior, covariance_prior=5.0, max_iter=100, tol=1e-2)
        search = SharedKernelClassifierCV(prototype, **settings).fit(*iris)
        assert set(search.cv_results_["param_kernels"]) == {"shared"}
        with pytest.raises(ValueError, match="kernels='own' needs weights without a prior"):
            SharedKernelClassifierCV(prototype, kernels="own").fit(*iris)


@pytest.mark.parametrize("tune", [False, "auto"])
def test_the_best_candidate_has_the_threshold_of_its_own_fit(iris: Data, tune: Any) -> None:
    X, y = halves_of_a_cube() if tune else iris
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    prototype = SharedKernelClassifier(3, covariance_prior=5.0, reject_below=0.2, outlier_label=9)
    search = SharedKernelClassifierCV(
        prototype, n_kernels=3, covariance_type="full", random_state=0, cv=3, tune=tune, n_members=2
    ).fit(X, y, weights)
    features = by_hand(search.best_params_, X, y, weights)
    asked = clone(search.classifier_).fit(features(X), y, weights)
    trade_off = search.best_params_["trade_off"]
    assert (trade_off is not None) == bool(tune)
    if tune:
        asked.tune(features(X), y, trade_off=trade_off, validation=None, max_iter=10, sample_weight=weights)
    assert asked.reject_below == 0.2
    assert_allclose(search.classifier_.threshold_, asked.threshold_)
    assert [each.reject_below for each in search.classifiers_[1:]] == [None] * (len(search.classifiers_) - 1)
    for settings, message in (
        ({"outlier_label": 1}, "outlier_label=1 is one of the classes"),
        ({"reject_below": None}, "outlier_label=9 needs a fit with reject_below"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(search).set_params(estimator=clone(prototype).set_params(**settings)).fit(X, y)
    # What is set after the fit is checked where it is used.
    for label, message in ((1, "is one of the classes"), ("zz", "must be an integer")):
        search.classifier_.set_params(outlier_label=label)
        with pytest.raises(ValueError, match=message):
            search.predict(X)


@pytest.mark.parametrize(
    "search",
    [
        None,
        SharedKernelMixtureCV(n_kernels=[2, 3], covariance_type=["full", "tied"], cv=2, random_state=0),
        SharedKernelMixtureCV(covariance_type="tied", criterion="bic", random_state=0),
    ],
)
def test_a_search_reports_the_share_of_its_work(iris: Data, whole: Any, search: Any) -> None:
    shares = whole[1] if search is None else shares_of(clone(search), iris[0])
    assert None not in shares
    # It goes on to larger numbers of kernels, or chooses fewer features than expected. The share is below one
    # until the search has ended.
    assert sum(later < earlier for earlier, later in pairwise(shares)) <= 1
    assert 0.0 < shares[0] < 0.3
    assert shares[-1] == 0.99


def test_time_is_up_after_the_first_candidate(iris: Data, whole: Any) -> None:
    assert whole[0].n_untried_ == 0
    searches = SharedKernelClassifierCV(random_state=0), quick(), quick(feature_sets=[[0, 1], [2, 3]])
    # Small fits may converge before they look at the clock.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search, few, apart = (each.set_params(time_limit=0.0).fit(*iris) for each in searches)
        mixture = SharedKernelMixtureCV(time_limit=0.0, random_state=0).fit(iris[0])
    with pytest.warns(ConvergenceWarning, match="Increase time_limit"):
        SharedKernelMixtureCV(covariance_type="tied", time_limit=0.0, random_state=0).fit(iris[0])
    assert search.n_untried_ > 20
    # One candidate on one fold.
    assert search.cv_results_["stage"].tolist() == ["screening"]
    assert search.best_index_ == 0
    assert search.cv_results_["rank_test_score"].tolist() == [1]
    assert search.cv_results_["params"][0] == search.best_params_
    assert few.cv_results_["stage"].tolist() == ["kernels"]
    assert few.n_untried_ == len(quick().fit(*iris).cv_results_["params"]) - 1
    assert len(apart.classifier_.models_) == 2
    assert len(mixture.cv_results_["params"]) == 1
    # One kernel, then 2 to 8 and 10, of each type, full and diagonal ones with two priors.
    assert mixture.n_untried_ == 9 * (len(STRUCTURES) + 2) - 1


# ---------------------------------------------------------------- rows that leave little to choose from


def test_pixels_are_projected() -> None:
    """Of three digits, whose pixels are repeated to 256."""
    X, y = load_digits(n_class=3, return_X_y=True)
    X = np.kron(X.reshape(-1, 8, 8), np.ones((1, 2, 2))).reshape(len(X), -1)
    search = SharedKernelClassifierCV(n_kernels=3, tune=False, n_members=1, cv=2, random_state=0)
    search.fit(X[:100], y[:100])
    X, y = X[100:], y[100:]
    assert search.best_params_["reduction"] != "none"
    assert search.classifier_.n_features_in_ < 256
    assert search.score(X, y) > 0.9
    assert isinstance(search.best_estimator_, Pipeline)
    assert_array_equal(search.best_estimator_.predict_proba(X), search.predict_proba(X))
    gaps = X.copy()
    gaps[:, 100:110] = np.nan
    assert np.mean(search.predict(gaps) == search.predict(X)) > 0.9


def test_classes_of_one_row_and_constant_features() -> None:
    X = np.array([[0.0, 1.0], [10.0, 1.0], [20.0, 1.0]])
    search = SharedKernelClassifierCV(random_state=0).fit(X, ["a", "b", "c"])
    assert search.predict(X).tolist() == ["a", "b", "c"]
    assert search.best_params_["covariance_type"] == "tied"
    assert np.isnan(search.best_score_)
    more = np.concatenate([X, X[:2] + 0.5, X[:2] - 0.5])
    search.fit(more, list("abcabab"))
    assert search.predict(X).tolist() == list("abc")


def test_a_class_of_few_rows_has_fewer_kernels(iris: Data) -> None:
    kept = np.r_[:52, 100:150]  # two rows of the second class
    search = SharedKernelClassifierCV(kernels="own", n_kernels=12, tune=False, n_members=1, random_state=0)
    search.fit(iris[0][kept], iris[1][kept])
    assert search.best_params_["n_kernels"] == len(search.classifier_.means_) == 4 + 2 + 4


def test_missing_values_are_filled_to_choose_and_to_tune() -> None:
    X, y = halves_of_a_cube()
    X[np.random.RandomState(0).uniform(size=X.shape) < 0.05] = np.nan
    search = quick(tune="auto").fit(X, y)
    chosen, trade_off = search.classifier_, search.best_params_["trade_off"]
    assert chosen.tuned_["trade_off"] == trade_off
    complete = filler(X, chosen.random_state)(X)
    features = by_hand(search.best_params_, complete, y)
    asked = clone(chosen).fit(features(X), y)
    asked.tune(features(complete), y, trade_off=trade_off, validation=None, max_iter=10)
    assert_allclose(asked.means_, chosen.means_)


def test_a_feature_that_a_fold_has_never_seen_does_not_matter() -> None:
    y = np.repeat([0, 1], 60)
    X = np.random.default_rng(0).normal(size=(120, 3)) + 8.0 * y[:, None]
    X[:, 2] = np.nan
    X[0, 2] = 1.0
    search = quick(n_kernels=2, cv=StratifiedKFold(3)).fit(X, y)
    assert search.best_score_ > -0.01


def test_unknown_values_are_filled_by_a_gaussian(iris: Data) -> None:
    X = iris[0].copy()
    X[::3, 1] = np.nan
    fill = filler(X[50:], 0)
    gaussian = SharedKernelMixture(1, max_iter=20, tol=1e-2, random_state=0).fit(X[50:])
    assert_allclose(fill(X[:50]), gaussian.impute(X[:50]), rtol=1e-6)


# ---------------------------------------------------------------- results and errors


def test_a_tuned_winner_keeps_the_names_of_a_data_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = halves_of_a_cube()
    monkeypatch.setattr(space, "feature_maps", lambda X, n_classes: [("none", "none")])
    frame = pd.DataFrame(X, columns=list("abcd"))
    # Warnings are errors: tuning is given arrays, and must not warn that they have no names.
    search = quick(tune="auto").fit(frame, y)
    assert search.best_params_["trade_off"] is not None
    assert search.feature_map_ is None
    for named in (search, search.classifier_):
        assert list(named.feature_names_in_) == list("abcd")
    assert_array_equal(search.predict_proba(frame), quick(tune="auto").fit(X, y).predict_proba(X))


@pytest.mark.parametrize("kind", [SharedKernelClassifierCV, SharedKernelMixtureCV])
def test_groups_may_be_a_column_of_a_data_frame(kind: Any, iris: Data) -> None:
    sites = np.array(list("uvwxyz"))[np.arange(150) % 6]
    rows = pd.DataFrame(iris[0], columns=list("abcd")).assign(text=np.where(iris[0][:, 0] > 5.5, "+", "-"))
    frame, names = rows.assign(label=iris[1], site=sites), [*"abcd", "text"]
    search = kind(n_kernels=3, covariance_type="diag", random_state=0)
    plain = clone(search).fit(rows, iris[1], groups=sites)
    named = clone(search).fit(frame, "label", groups="site")
    assert_array_equal(named.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    assert named.feature_names_in_.tolist() == names
    for given, groups, message in (
        (frame, "sites", "groups names 'sites', but X has the columns .*Did you mean 'site'"),
        (frame, "label", "groups names 'label', but X has the columns a, b, c, d, text, site"),
        (frame.assign(site=[None, *sites[1:]]), "site", "groups has no value in 1 of 150 rows"),
        (iris[0], "site", "groups is 'site', the name .* needs X to be a data frame; X is a ndarray"),
        ("rows.csv", "site", "groups is 'site', the name .* needs X to be a data frame; X is a str"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(search).fit(given, "label", groups=groups)
    # Six features encode the five columns.
    for width in (5, 6):
        with pytest.raises(
            ValueError, match="encodes columns of text or dates: give a data frame with a, b, c, d, t"
        ):
            named.predict(np.zeros((2, width)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_kernels": []}, "n_kernels must be 'auto'.*got \\[\\]"),
        ({"n_kernels": [3, 0]}, "n_kernels must be 'auto'.*got \\[3, 0\\]"),
        ({"n_kernels": [2.5]}, "n_kernels must be 'auto'.*got \\[2.5\\]"),
        ({"n_kernels": [True]}, "n_kernels must be 'auto'.*got \\[True\\]"),
        ({"n_kernels": "best"}, "n_kernels must be 'auto'.*got 'best'"),
        ({"covariance_type": "round"}, "covariance_type must be 'auto', one of full.*got 'round'"),
        ({"estimator": GroupKFold()}, "'estimator' parameter"),
        ({"init": {"means": np.zeros((3, 2))}}, "needs the name of an init"),
    ],
)
@pytest.mark.parametrize("search", [SharedKernelClassifierCV, SharedKernelMixtureCV])
def test_settings_that_leave_nothing_to_try_are_refused(
    search: Any, settings: dict[str, Any], message: str, iris: Data
) -> None:
    if "init" in settings:
        model = SharedKernelClassifier if search is SharedKernelClassifierCV else SharedKernelMixture
        settings = {"estimator": model(**settings)}
    with pytest.raises(ValueError, match=message):
        search(**settings).fit(*iris)


@pytest.mark.parametrize(
    ("settings", "given", "message"),
    [
        ({}, {"y": [1] * 150}, "two classes or more, got one class: 1"),
        ({"kernels": "own", "n_kernels": 2}, {}, "a kernel for each of 3 classes, got n_kernels=2"),
        ({"cv": 3}, {"groups": np.arange(150)}, "groups cannot be combined with StratifiedKFold"),
        ({}, {"groups": np.arange(149)}, "inconsistent numbers of samples"),
    ],
)
def test_rows_that_cannot_be_searched_are_refused(
    settings: dict[str, Any], given: dict[str, Any], message: str, iris: Data
) -> None:
    X, y = iris
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifierCV(**settings).fit(**{"X": X, "y": y, **given})


def test_candidates_that_all_fail_raise_the_last_error() -> None:
    X, y = np.repeat([[0.0, 1.0], [1.0, 3.0], [2.0, 9.0]], 10, axis=0), np.repeat([0, 1, 2], 10)
    message = "No candidate could be fitted: All . starts ended in a singular covariance"
    mixture = SharedKernelMixture(variance_floor=0.0, covariance_prior=None)
    for criterion in ("bic", "log_likelihood"):
        with pytest.raises(ValueError, match=message):
            SharedKernelMixtureCV(mixture, n_kernels=3, criterion=criterion).fit(X, y)
    prototype = SharedKernelClassifier(variance_floor=0.0, covariance_prior=None)
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifierCV(prototype, cv=2).fit(X, y)
