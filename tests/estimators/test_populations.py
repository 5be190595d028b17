"""Populations of a mixture: merged, sorted, matched, saved and predicted."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from models import mixture_of, random_mixture
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import dendrogram
from scipy.optimize import linear_sum_assignment
from scipy.stats import norm
from sklearn.exceptions import NotFittedError
from sklearn.mixture import GaussianMixture

from skmix import SharedKernelClassifier, SharedKernelMixture, load
from skmix.engine.model import Parameters
from skmix.estimators import populations

TYPES = ("full", "tied", "diag", "spherical", "low_rank")
SETTINGS: dict[str, Any] = {"init": "k-means", "random_state": 0}


def shapes(seed: int = 0, n_rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three populations, bent, skewed and even, and which is which."""
    random = np.random.default_rng(seed)
    y = np.sort(random.choice(3, n_rows, p=[0.5, 0.3, 0.2]))
    bend = random.normal(size=n_rows)
    bent = np.stack([2.0 * bend, bend**2 + 0.4 * random.normal(size=n_rows)], axis=1)
    skewed = np.stack([random.gamma(1.5, size=n_rows) + 4.0, random.normal(size=n_rows) - 5.0], axis=1)
    even = random.uniform(-1.5, 1.5, size=(n_rows, 2)) + np.array([0.0, 7.0])
    return np.stack([bent, skewed, even])[y, np.arange(n_rows)], y


def misclassified(found: np.ndarray, true: np.ndarray) -> float:
    table = pd.crosstab(found, true).to_numpy()
    return float(1.0 - table[linear_sum_assignment(-table)].sum() / len(true))


@pytest.fixture(scope="module")
def fitted() -> SharedKernelMixture:
    X, _ = shapes()
    return SharedKernelMixture(9, **SETTINGS).fit(X, np.arange(len(X)) % 2)


@pytest.fixture
def model(fitted: SharedKernelMixture) -> SharedKernelMixture:
    return copy.deepcopy(fitted)


@pytest.fixture(scope="module")
def merged(fitted: SharedKernelMixture) -> SharedKernelMixture:
    return copy.deepcopy(fitted).merge_kernels(n_populations=3)


# ---------------------------------------------------------------- merges


def test_names_of_features_make_no_difference() -> None:
    """Nor a warning, which is an error here: what is drawn from a model has no names."""
    X, _ = shapes()
    model, named = (
        SharedKernelMixture(9, **SETTINGS).fit(rows, np.arange(len(X)) % 5).merge_kernels()
        for rows in (X, pd.DataFrame(X, columns=["a", "b"]))
    )
    assert_array_equal(named.populations_, model.populations_)
    assert_array_equal(named.match(model, populations=True), np.arange(named.populations_.max() + 1))
    for ours, theirs in (
        (named.composition(), model.composition()),
        (named.unusual_groups(), model.unusual_groups()),
    ):
        pd.testing.assert_frame_equal(ours, theirs)


@pytest.mark.parametrize("criterion", ["entropy", "overlap"])
@pytest.mark.parametrize("rows", [False, True])
def test_kernels_become_the_true_populations(model: SharedKernelMixture, criterion: str, rows: bool) -> None:
    X, _ = shapes()
    X_new, y_new = shapes(seed=1)
    assert misclassified(model.predict(X_new), y_new) > 0.3
    assert model.merge_kernels(X if rows else None, criterion=criterion) is model
    assert misclassified(model.predict(X_new, populations=True), y_new) < 0.07
    # Numbered by their share of the rows.
    shares = [(model.weights_ @ model.class_prior_)[model.populations_ == g].sum() for g in range(3)]
    assert shares == sorted(shares, reverse=True)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_probabilities_are_sums_over_kernels(covariance_type: str) -> None:
    X, _ = shapes()
    model = SharedKernelMixture(6, covariance_type=covariance_type, **SETTINGS).fit(X)
    model.merge_kernels(n_populations=3)
    kernels, found = model.predict_proba(X), model.predict_proba(X, populations=True)
    assert found.shape == (len(X), 3)
    for g in range(3):
        assert_allclose(found[:, g], kernels[:, model.populations_ == g].sum(axis=1), atol=1e-14)
    assert_array_equal(model.predict(X, populations=True), found.argmax(axis=1))
    assert_allclose(kernels, model.responsibilities(X), rtol=0)


def test_labels_of_rows_are_used(model: SharedKernelMixture) -> None:
    """By rows and labels, the entropy is that of the responsibilities given each row's own class."""
    X, _ = shapes()
    y = np.arange(len(X)) % 2
    model.merge_kernels(X, y)
    shares = model.responsibilities(X, y)
    expected = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1).mean()
    assert_allclose(model.merge_entropies_[0], expected, rtol=1e-10)
    assert_allclose(model.merge_entropies_[-1], 0.0, atol=1e-12)


def test_draws_of_the_model_stand_for_many_rows(model: SharedKernelMixture) -> None:
    shares = np.geomspace(1.0, 0.001, 9)
    model.weights_ = np.tile(shares[:, None] / shares.sum(), 2)
    X, _ = model.set_params(random_state=1).sample(40_000)
    by_rows = copy.deepcopy(model).merge_kernels(X)
    by_draws = model.merge_kernels()
    assert_allclose(by_draws.merge_entropies_[0], by_rows.merge_entropies_[0], rtol=0.03)
    again = copy.deepcopy(model).set_params(random_state=5).merge_kernels()
    assert_array_equal(again.merge_tree_, by_draws.merge_tree_)


def test_names_of_features_do_not_matter_for_draws(model: SharedKernelMixture) -> None:
    X, _ = shapes()
    named = SharedKernelMixture(9, **SETTINGS).fit(pd.DataFrame(X, columns=["u", "v"]), np.arange(len(X)) % 2)
    # Warnings are errors here.
    assert_array_equal(named.merge_kernels().populations_, model.merge_kernels().populations_)
    assert_array_equal(named.match(named, populations=True), np.unique(named.populations_))
    assert named.feature_names_in_.tolist() == ["u", "v"]


def test_the_tree_is_one_that_scipy_draws(model: SharedKernelMixture) -> None:
    model.merge_kernels(criterion="overlap", threshold=0.6)
    drawn = dendrogram(model.merge_tree_, no_plot=True)
    assert sorted(drawn["leaves"]) == list(range(9))
    n_left = int(np.sum(model.merge_tree_[:, 2] > 0.6)) + 1
    assert len(set(model.populations_)) == n_left


def test_the_number_of_populations_may_be_given(model: SharedKernelMixture) -> None:
    for n_populations in (1, 4, 9):
        model.merge_kernels(n_populations=n_populations)
        assert_array_equal(np.unique(model.populations_), np.arange(n_populations))
    assert len(set(model.merge_kernels(threshold="elbow").populations_)) in range(2, 9)


def test_separate_kernels_stay_apart_and_one_that_was_split_does_not() -> None:
    random = np.random.default_rng(0)
    apart = random.normal(size=(300, 1)) + 20.0 * (np.arange(300) % 3)[:, None]
    model = SharedKernelMixture(3, **SETTINGS).fit(apart).merge_kernels()
    assert len(set(model.populations_)) == 3
    one = SharedKernelMixture(4, **SETTINGS).fit(random.normal(size=(500, 2))).merge_kernels()
    assert_array_equal(one.populations_, 0)
    alone = SharedKernelMixture(1).fit(apart).merge_kernels()
    assert alone.merge_tree_.shape == (0, 4)
    assert_array_equal(alone.predict(apart, populations=True), 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"criterion": "distance"}, "criterion='distance' is not one of 'entropy', 'overlap'"),
        ({"n_populations": 10}, "n_populations must be a number from 1 to 9, got 10"),
        ({"n_populations": 2.5}, "n_populations must be a number from 1 to 9, got 2.5"),
        ({"n_populations": 2, "threshold": 0.5}, "give one of them"),
        ({"threshold": 1.5}, "threshold must be a number from 0 to 1 or 'elbow', got 1.5"),
        ({"threshold": "knee"}, "got 'knee'"),
        ({"y": [0, 1]}, "give X too"),
    ],
)
def test_wrong_settings_are_refused_and_change_nothing(
    model: SharedKernelMixture, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        model.merge_kernels(**settings)
    assert not hasattr(model, "populations_")


def test_populations_belong_to_the_kernels_they_were_made_of(model: SharedKernelMixture) -> None:
    X, _ = shapes()
    with pytest.raises(NotFittedError, match=r"call merge_kernels\(\) after fit"):
        model.predict(X, populations=True)
    with pytest.raises(NotFittedError, match="merge_kernels"):
        model.predict_proba(X, populations=True)
    model.merge_kernels()
    part = model.marginal([1])
    assert_array_equal(part.populations_, model.populations_)
    model.add_class(X[:50], 2)
    assert hasattr(model, "populations_")
    for refitted in (copy.deepcopy(model).partial_fit(X, np.arange(len(X)) % 2), model.fit(X)):
        assert not {"populations_", "merge_tree_", "merge_entropies_"} & set(vars(refitted))


def test_rows_may_be_in_files(model: SharedKernelMixture, tmp_path: Path) -> None:
    X, _ = shapes()
    np.save(tmp_path / "rows.npy", X)
    by_file = copy.deepcopy(model).merge_kernels(tmp_path / "rows.npy")
    assert_allclose(by_file.merge_tree_, model.merge_kernels(X).merge_tree_, rtol=1e-9)
    assert_array_equal(
        model.predict(tmp_path / "rows.npy", populations=True), model.predict(X, populations=True)
    )


# ---------------------------------------------------------------- distances


def test_distances_within_a_model_and_between_models(model: SharedKernelMixture) -> None:
    X, _ = shapes()
    other = SharedKernelMixture(4, covariance_type="diag", **SETTINGS).fit(X)
    for metric in ("jeffreys", "bhattacharyya"):
        own = model.kernel_distances(metric=metric)
        assert own.shape == (9, 9)
        assert_array_equal(own, own.T)
        assert_array_equal(np.diagonal(own), 0.0)
        assert_allclose(
            own, model.kernel_distances(copy.deepcopy(model), metric=metric), rtol=1e-6, atol=1e-9
        )
        between = model.kernel_distances(other, metric=metric)
        assert between.shape == (9, 4)
        assert_allclose(between, other.kernel_distances(model, metric=metric).T, rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("merge_kernels", ()),
        ("sort_kernels", ()),
        ("kernel_distances", ()),
        ("match", (random_mixture(0),)),
        ("composition", ()),
        ("compare", ("a", "b")),
        ("unusual_groups", ()),
        ("write_labels", ([[0.0]], "labels.csv")),
        ("add_class", ([[0.0]], "a")),
        ("sample", ()),
        ("marginal", ([0],)),
        ("condition", ({0: 1.0},)),
    ],
)
def test_methods_need_a_fit(method: str, given: tuple[Any, ...]) -> None:
    with pytest.raises(NotFittedError, match="This SharedKernelMixture instance is not fitted yet"):
        getattr(SharedKernelMixture(), method)(*given)


def test_kernels_have_no_distance_from_themselves() -> None:
    X, _ = shapes()
    found = SharedKernelMixture(3, tail="t", random_state=0, tol=1e-2).fit(X).kernel_distances()
    assert_array_equal(np.diagonal(found), np.zeros(3))
    assert_array_equal(found, found.T)
    start = {"means": [[0.0], [1.0]], "covariances": [1.0, 1.0]}
    one = SharedKernelMixture(2, init={**start, "freeze": "kernels"}, covariance_type="spherical").fit(
        X[:, :1]
    )
    # A distance that is just the largest is near enough.
    assert one.match(one, max_distance=0.0).tolist() == [0, 1]


def test_populations_are_numbered_by_weight_and_draws_have_that_of_their_kernel() -> None:
    means = np.array([[0.0, 0.0], [1.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    weights = np.array([[0.3, 0.1], [0.1, 0.1], [0.1, 0.1], [0.5, 0.7]])
    model = mixture_of(Parameters(weights, means, np.tile(np.eye(2), (4, 1, 1))), "full", [0.25, 0.75])
    # Their weights are 0.25, 0.1 and 0.65.
    assert populations._by_weight(model, np.array([0, 0, 1, 2])).tolist() == [1, 1, 2, 0]
    assert populations._by_weight(model, np.array([2, 2, 0, 1])).tolist() == [1, 1, 2, 0]
    shares, own = populations._expected(model)
    # What responsibilities are on average in rows of the model.
    assert_allclose(own @ shares, [0.15, 0.1, 0.1, 0.65], atol=0.01)
    assert_allclose(own.sum(), 1.0)


def test_the_rule_of_the_elbow_is_used_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = shapes()
    found = SharedKernelMixture(5, random_state=0, tol=1e-2).fit(X)
    for number in (2, 4):
        monkeypatch.setattr(populations, "elbow", lambda merges, number=number: number)
        found.merge_kernels(X[:100], threshold="elbow")
        assert len(np.unique(found.populations_)) == number


def test_models_that_cannot_be_compared_are_refused(model: SharedKernelMixture) -> None:
    X, _ = shapes()
    with pytest.raises(ValueError, match="metric='euclidean' is not one of"):
        model.kernel_distances(metric="euclidean")
    with pytest.raises(ValueError, match="other has 1 features, but the fit had 2"):
        model.match(SharedKernelMixture(1).fit(X[:, :1]))
    with pytest.raises(TypeError, match="must be a SharedKernelMixture, got a GaussianMixture"):
        model.match(GaussianMixture().fit(X))
    with pytest.raises(NotFittedError):
        model.match(SharedKernelMixture())
    with pytest.raises(ValueError, match="max_distance must be a number from 0 to 1, got 3"):
        model.match(model, max_distance=3)
    named = [
        SharedKernelMixture(1).fit(pd.DataFrame(X, columns=columns)) for columns in (["a", "b"], ["a", "c"])
    ]
    with pytest.raises(
        ValueError, match=r"other has different features: \['a', 'c'\], and the fit had \['a', 'b'\]"
    ):
        named[0].kernel_distances(named[1])
    with pytest.raises(ValueError, match=r"\['b', 'a'\], and the fit had \['a', 'b'\]"):
        named[0].kernel_distances(SharedKernelMixture(1).fit(pd.DataFrame(X, columns=["b", "a"])))


# ---------------------------------------------------------------- order


@pytest.mark.parametrize("covariance_type", TYPES)
def test_order_does_not_depend_on_the_start(covariance_type: str) -> None:
    X, y = shapes()
    first = SharedKernelMixture(3, covariance_type=covariance_type, **SETTINGS).fit(X, y).sort_kernels()
    start = {"means": first.means_[[2, 0, 1]], "weights": first.weights_[[2, 0, 1]]}
    start["covariances"] = first.covariances_ if covariance_type == "tied" else first.covariances_[[2, 0, 1]]
    other = SharedKernelMixture(
        3, covariance_type=covariance_type, init=start, covariance_prior=None, max_iter=1
    )
    with pytest.warns(match="did not converge"):
        other.fit(X, y)
    before = other.score_samples(X, y)
    other.sort_kernels()
    assert_allclose(other.score_samples(X, y), before, rtol=1e-12)
    assert np.all(np.diff(other.weights_ @ other.class_prior_) <= 0.0)
    assert_array_equal(other.match(first), [0, 1, 2])


def test_everything_that_belongs_to_a_kernel_is_sorted(model: SharedKernelMixture) -> None:
    X, _ = shapes()
    y = np.arange(len(X)) % 2
    model.merge_kernels()
    before = copy.deepcopy(model)
    order = np.argsort(-(model.weights_ @ model.class_prior_), kind="stable")
    model.sort_kernels()
    assert_array_equal(model.means_, before.means_[order])
    assert_array_equal(model.predict(X, populations=True), before.predict(X, populations=True))
    again = copy.deepcopy(model).merge_kernels()
    assert_array_equal(again.populations_, model.populations_)
    assert_allclose(again.merge_tree_[:, :2], model.merge_tree_[:, :2])

    posterior = SharedKernelMixture(6, inference="variational", **SETTINGS).fit(X)
    degrees, means = posterior.degrees_of_freedom_.copy(), posterior.means_.copy()
    posterior.sort_kernels()
    places = [np.flatnonzero((means == mean).all(axis=1))[0] for mean in posterior.means_]
    assert places != sorted(places)
    assert_array_equal(posterior.degrees_of_freedom_, degrees[places])

    streams = [SharedKernelMixture(5, **SETTINGS).partial_fit(X[::3], y[::3]) for _ in range(2)]
    first = streams[1].means_.copy()
    assert not np.array_equal(streams[1].sort_kernels().means_, first)
    streams = [each.partial_fit(X[1::3], y[1::3]).sort_kernels() for each in streams]
    assert_allclose(streams[0].means_, streams[1].means_, rtol=1e-9)
    assert_allclose(streams[0].weights_, streams[1].weights_, rtol=1e-9)
    assert_allclose(streams[0].covariances_, streams[1].covariances_, rtol=1e-9)


# ---------------------------------------------------------------- two models


def test_kernels_of_two_fits_are_matched(model: SharedKernelMixture) -> None:
    other = copy.deepcopy(model)
    order = np.random.default_rng(0).permutation(9)
    other._store_parameters(other._parameters.map(lambda array: array[order]))
    assert_array_equal(order[model.match(other)], np.arange(9))
    # One kernel fewer: it has no counterpart, whoever asks.
    fewer = copy.deepcopy(model)
    fewer._store_parameters(fewer._parameters.map(lambda array: array[1:]))
    assert_array_equal(model.match(fewer, max_distance=0.1), [-1, *range(8)])
    assert_array_equal(fewer.match(model), np.arange(1, 9))
    # All moved far away.
    fewer.means_ = fewer.means_ + 1000.0
    assert_array_equal(fewer.match(model), -1)


def test_populations_of_two_fits_are_matched() -> None:
    models = []
    for seed, n_kernels in ((0, 9), (1, 7)):
        X, y = shapes(seed)
        keep = y != seed  # the first has no bent population, the second no skewed one
        model = SharedKernelMixture(n_kernels, **SETTINGS).fit(X[keep]).merge_kernels(n_populations=2)
        models.append((model, X[keep], y[keep]))
    names = [
        [int(np.median(y[model.predict(X, populations=True) == g])) for g in range(2)]
        for model, X, y in models
    ]
    assert names == [[1, 2], [0, 2]]
    assert_array_equal(models[0][0].match(models[1][0], populations=True), [-1, 1])
    with pytest.raises(NotFittedError, match="merge_kernels"):
        SharedKernelMixture(1).fit(X).match(models[0][0], populations=True)


def test_distance_of_populations_is_one_less_the_coefficient() -> None:
    """Of two mixtures in one feature, by integration; a match is made from there on."""
    X = np.linspace(0.0, 1.0, 20)[:, None]
    parts = [([0.6, 0.1, 0.3], [0.0, 2.0, 50.0]), ([0.2, 0.5, 0.3], [1.0, 4.0, 90.0])]
    models, x = [], np.linspace(-10.0, 15.0, 5001)
    densities = []
    for weights, means in parts:
        model = SharedKernelMixture(3, **SETTINGS).fit(X)
        share = np.array(weights)
        model._store_parameters(Parameters(share[:, None], np.array(means)[:, None], np.ones((3, 1, 1))))
        models.append(model.merge_kernels(n_populations=2, criterion="overlap"))
        assert_array_equal(model.populations_, [0, 0, 1])
        densities.append(norm.pdf(x[:, None], means[:2]) @ (share[:2] / share[:2].sum()))
    distance = 1.0 - np.sqrt(densities[0] * densities[1]).sum() * (x[1] - x[0])
    assert 0.3 < distance < 0.7
    for gap, expected in ((0.01, [0, -1]), (-0.01, [-1, -1])):
        found = models[0].match(models[1], populations=True, max_distance=distance + gap)
        assert_array_equal(found, expected)


# ---------------------------------------------------------------- files


def test_populations_are_saved(model: SharedKernelMixture, tmp_path: Path) -> None:
    X, _ = shapes()
    model.merge_kernels().save(tmp_path / "model.skmix")
    again = load(tmp_path / "model.skmix")
    for name in ("populations_", "merge_tree_", "merge_entropies_"):
        assert_array_equal(getattr(again, name), getattr(model, name))
    assert_array_equal(again.predict(X, populations=True), model.predict(X, populations=True))
    SharedKernelMixture(1).fit(X).merge_kernels().save(tmp_path / "one.skmix")
    assert_array_equal(load(tmp_path / "one.skmix").populations_, [0])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("populations_", lambda a: a[:-1], "populations_ are not 9 whole numbers"),
        ("populations_", lambda a: a + 0.0, "populations_ are not 9 whole numbers"),
        ("populations_", lambda a: a + 1, "not 0 to 2"),
        ("populations_", lambda a: np.roll(a, 1), "populations_ are not those of merge_tree_"),
        ("populations_", lambda a: None, "populations_ is a NoneType"),
        ("merge_tree_", lambda a: a[:-1], "merge_tree_ has shape"),
        ("merge_tree_", lambda a: np.where(a == a.max(), 99.0, a), "is not a tree of merges"),
        ("merge_tree_", lambda a: a * np.nan, "is not a tree of merges"),
        ("merge_entropies_", lambda a: a[:-1], "merge_entropies_ has shape"),
    ],
)
def test_files_whose_populations_do_not_belong_to_the_tree_are_refused(
    merged: SharedKernelMixture, tmp_path: Path, name: str, change: Any, message: str
) -> None:
    model = copy.deepcopy(merged)
    setattr(model, name, change(getattr(model, name)))
    with pytest.raises(ValueError, match=message):
        model.save(tmp_path / "model.skmix")
    del model.merge_tree_
    with pytest.raises(ValueError, match="merge_tree_ is missing"):
        model.save(tmp_path / "model.skmix")


def test_tuning_a_classifier_drops_the_populations_of_its_model() -> None:
    X, _ = shapes(n_rows=300)
    y = (X.sum(axis=1) > 2.0).astype(int)
    classifier = SharedKernelClassifier(4, init="k-means", random_state=0).fit(X, y)
    classifier.models_[0].merge_kernels()
    classifier.tune(X, y, random_state=0)
    assert classifier.tuned_["trade_off"] is not None
    assert not hasattr(classifier.models_[0], "populations_")


def test_rows_of_the_background_do_not_count_for_the_order() -> None:
    # Kernel 0 has most of the weight of a class that is nearly all background.
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 1)) + np.repeat([0.0, 30.0], 30)[:, None], np.repeat([0, 1], 30)
    model = SharedKernelMixture(2, init={"means": [[0.0], [30.0]]}, tail="background").fit(X, y)
    model.weights_, model.class_prior_ = np.array([[0.9, 0.2], [0.1, 0.8]]), np.array([0.6, 0.4])
    model.background_weights_ = np.array([0.9, 0.0])
    model.sort_kernels()
    assert_allclose(model.means_[:, 0], [30.0, 0.0], atol=1.0)
