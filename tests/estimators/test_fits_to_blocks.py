"""Estimators on rows in blocks: the same model as from rows in memory, or a clear refusal."""

from __future__ import annotations

import numpy as np
import pytest
from calls import Listed
from sklearn.base import clone

from skmix import SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV, open_rows
from skmix.engine.compute.blocks import Block
from skmix.engine.sources import blocks
from skmix.engine.sources.blocks import BlockRows
from skmix.io import Source

N_ROWS = 400


def make_rows(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    names = np.array(["oak", "elm", "ash"])[random.integers(0, 3, N_ROWS)]
    place = {"oak": [0.0, 0.0, 1.0, 5.0], "elm": [2.0, 3.0, 0.0, 5.0], "ash": [5.0, 0.0, 0.0, 4.0]}
    X = np.array([place[name] for name in names]) + random.normal(size=(N_ROWS, 4))
    return X, names, random.uniform(0.5, 2.0, size=N_ROWS)


def cut(X, y=None, weights=None) -> Source:
    return open_rows(X, label=y, weight=weights, chunk_rows=90)


def assert_same(one, other) -> None:
    """The sample of so few rows is all of them, in order: even the starts are the same."""
    assert np.array_equal(one.classes_, other.classes_)
    assert one.classes_.dtype == other.classes_.dtype
    for name in ("weights_", "means_", "covariances_", "class_prior_", "class_count_", "log_likelihood_"):
        assert np.allclose(getattr(one, name), getattr(other, name), rtol=1e-9, atol=1e-9), name
    for name in ("n_iter_", "converged_", "n_features_in_", "n_kernels_", "covariance_type_"):
        assert getattr(one, name) == getattr(other, name), name
    assert sorted(vars(one)) == sorted(vars(other))


@pytest.mark.parametrize("init", ["class", "k-means", "k-means++", "random_from_data", "uniform"])
def test_a_mixture_of_blocks_is_that_of_the_rows(init: str) -> None:
    X, y, weights = make_rows()
    model = SharedKernelMixture(4, init=init, n_init=2, random_state=0, tol=1e-3)
    here = model.fit(X, y, sample_weight=weights)
    assert_same(SharedKernelMixture(**model.get_params()).fit(cut(X, y, weights)), here)


def test_a_search_of_blocks_is_that_of_the_rows() -> None:
    X, y, _ = make_rows()
    prototype = SharedKernelMixture(tol=1e-3)
    search = SharedKernelMixtureCV(
        prototype, n_kernels=4, covariance_type="full", criterion="bic", random_state=0
    )
    here, there = clone(search).fit(X, y), clone(search).fit(cut(X, y))
    assert_same(there.best_estimator_, here.best_estimator_)
    assert there.best_score_ == pytest.approx(here.best_score_, rel=1e-9)
    assert there.n_features_in_ == X.shape[1]
    # Rows in blocks are not held out by default.
    assert clone(search).set_params(criterion="auto").fit(cut(X, y)).best_score_ == there.best_score_


def test_a_label_that_only_weightless_rows_have_is_no_class() -> None:
    X, y, weights = make_rows()
    weights[y == "elm"] = 0.0
    model = SharedKernelMixture(random_state=0, tol=1e-3)
    here = model.fit(X, y, sample_weight=weights)
    assert here.classes_.tolist() == ["ash", "oak"]
    assert_same(SharedKernelMixture(**model.get_params()).fit(cut(X, y, weights)), here)


def test_more_rows_than_a_sample_are_not_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, weights = make_rows()
    monkeypatch.setattr(blocks, "_FEWEST_SAMPLED", 60)
    monkeypatch.setattr(blocks, "_MOST_SAMPLED", 60)
    monkeypatch.setattr("skmix.estimators.decisions.held_out_densities", None)
    model = SharedKernelClassifier(reject_below=0.3, outlier_label="?", random_state=0, tol=1e-3)
    model.fit(cut(X, y, weights))
    share = np.average(model.score_samples(X) < model.threshold_, weights=weights)
    assert share == pytest.approx(0.3, abs=0.1)


def test_a_sample_stands_for_rows_that_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows than a sample keeps, starts come from it, and EM goes over all of them."""
    monkeypatch.setattr(blocks, "_FEWEST_SAMPLED", 60)
    monkeypatch.setattr(blocks, "_MOST_SAMPLED", 60)
    random = np.random.default_rng(3)
    y = np.repeat([0, 1], [4500, 300])
    X = np.where(y[:, None] == 0, -3.0, 3.0) + random.normal(size=(len(y), 2))
    source = open_rows(X, label=y, chunk_rows=900)
    for init in ("class", "k-means++"):
        model = SharedKernelMixture(2, init=init, random_state=0).fit(source)
        assert model.class_count_.tolist() == [4500, 300]
        order = np.argsort(model.means_[:, 0])
        expected = [X[y == 0].mean(axis=0), X[y == 1].mean(axis=0)]
        assert np.allclose(model.means_[order], expected, atol=0.05)


def test_weights_of_a_sample_undo_the_sampling() -> None:
    """A class of many rows is sampled thinly, and each of its rows stands for more."""
    y = np.repeat([0, 1], [40_000, 100])
    X = np.random.default_rng(0).normal(size=(len(y), 1))
    weights = np.where(y == 0, 0.5, 2.0)
    _, codes, of_sample = BlockRows(Listed([Block(X, y.astype(np.int8), weights)])).start_rows()
    assert of_sample is not None
    assert np.sum(codes == 1) == 100
    assert np.sum(codes == 0) < 20_000
    assert np.bincount(codes, of_sample) == pytest.approx([20_000, 200])
    # Where all rows are in it, nothing is undone.
    few = BlockRows(Listed([Block(X[-150:], y[-150:].astype(np.int8))]))
    assert few.start_rows()[2] is None


def test_a_feature_that_the_sample_misses_has_its_mean_there() -> None:
    X = np.full((40_000, 2), np.nan)
    X[:, 0] = np.random.default_rng(0).normal(size=len(X))
    seen = np.setdiff1d(np.arange(len(X)), BlockRows(Listed([Block(X)])).summary.sample[1]["row"])[:4]
    X[seen, 1] = [1.0, 2.0, 3.0, 6.0]
    rows, _, _ = BlockRows(Listed([Block(X)])).start_rows()
    assert np.array_equal(np.unique(rows[:, 1]), [3.0])
    model = SharedKernelMixture(2, max_iter=1000, random_state=0).fit(open_rows(X))
    assert np.isfinite(model.means_).all()


def test_bad_rows_are_told_and_leave_the_estimator_as_it_was() -> None:
    X, y, weights = make_rows()
    model = SharedKernelClassifier(random_state=0)
    empty, lacking, without = X.copy(), X.copy(), X.copy()
    empty[[3, 200]] = np.nan
    lacking[:, 2] = np.nan
    without[y == "elm", 2] = np.nan
    for given, words in (
        ((X,), "requires y to be passed"),
        ((X, np.full(400, -1)), "All 400 rows are unlabelled"),
        ((X, X[:, 0]), "Unknown label type"),
        ((X, y, 0.0 * weights), r"Found 0 row\(s\) with a weight"),
        ((empty, y), r"2 row\(s\) of .* have no value: all 4 features are NaN"),
        ((lacking, y), "Feature 2 of X has no value"),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit(cut(*given))
    model.set_params(feature_sets=[[0, 1], [2]])
    with pytest.raises(ValueError, match=r"No row of class .*elm.* has a value in feature set 1"):
        model.fit(cut(without, y))
    assert not hasattr(model, "n_features_in_")
