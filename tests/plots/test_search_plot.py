"""The plot of a search."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine

from skmix import SharedKernelClassifierCV, SharedKernelMixtureCV
from skmix.plots import plot_search
from skmix.plots._models import feature_names, groups_of


@pytest.fixture(scope="module")
def search() -> SharedKernelClassifierCV:
    search = SharedKernelClassifierCV(covariance_type="tied", tune=False, n_members=3, cv=2, random_state=0)
    return search.fit(*load_iris(return_X_y=True))


def points(axes: Any) -> np.ndarray:
    return np.concatenate([np.asarray(each.get_offsets()) for each in axes.collections[:-1]])


def test_every_candidate_is_drawn_and_members_have_a_ring(search: SharedKernelClassifierCV) -> None:
    results = dict(search.cv_results_)
    # Two that were only screened, one of them far below the others.
    screened = np.isin(np.arange(len(results["params"])), np.flatnonzero(~results["member"])[:2])
    results["stage"] = np.where(screened, "screening", results["stage"])
    results["mean_test_score"] = np.array(results["mean_test_score"])
    results["mean_test_score"][screened.argmax()] = -1e3
    search = copy(search)
    search.cv_results_ = results
    axes = plot_search(search)
    drawn = points(axes)
    assert len(drawn) == len(results["params"])
    bottom = drawn[:, 1].min()
    assert_allclose(np.sort(drawn[:, 1]), np.sort(np.maximum(results["mean_test_score"], bottom)))
    rings = np.asarray(axes.collections[-1].get_offsets())
    assert_allclose(np.sort(rings[:, 1]), np.sort(results["mean_test_score"][results["member"]]))
    assert results["member"].sum() == len(search.classifiers_)
    # Each family of features has a place, own kernels on its left and shared ones on its right.
    families = {(params["transform"], params["reduction"]) for params in results["params"]}
    assert len(axes.get_xticklabels()) == len(families)
    assert "held-out score (neg_log_loss)" in axes.get_ylabel()
    order = list(dict.fromkeys((params["transform"], params["reduction"]) for params in results["params"]))
    scores = results["mean_test_score"]
    places, sizes = np.empty((len(scores), 2)), np.empty(len(scores))
    for dots, own in zip(axes.collections[:2], (True, False), strict=True):
        chosen = [i for i, params in enumerate(results["params"]) if (params["kernels"] == "own") is own]
        family = [order.index((p["transform"], p["reduction"])) for p in np.take(results["params"], chosen)]
        places[chosen] = dots.get_offsets()
        beside = places[chosen, 0] - family
        assert np.all((beside > -0.5) & (beside < 0.0) if own else (beside > 0.0) & (beside < 0.5))
        sizes[chosen] = dots.get_sizes()
    assert sizes[screened].max() < sizes[~screened].min()
    assert to_hex(axes.collections[0].get_facecolor()[0]) != to_hex(axes.collections[1].get_facecolor()[0])
    # All that were compared are where their score is, which is above the bottom.
    assert_allclose(places[~screened, 1], scores[~screened])
    assert_allclose(rings, places[results["member"]])
    assert -1.0 < bottom < scores[~screened].min()
    for limits, own_places in zip((axes.get_xlim(), axes.get_ylim()), places.T, strict=True):
        assert limits[0] < own_places.min() < own_places.max() < limits[1]
    names = [text.get_text() for text in axes.get_xticklabels()]
    assert names[order.index(("none", "none"))] == "features\nas they are"
    assert [text.get_text() for text in axes.get_legend().get_texts()][-1] == "averaged"


def test_product_forms_and_other_scores_are_drawn() -> None:
    X, y = load_iris(return_X_y=True)
    groups = SharedKernelClassifierCV(
        feature_sets=[[0, 1], [2, 3]],
        n_kernels=3,
        scoring=lambda model, X, y: model.score(X, y),
        cv=2,
        random_state=0,
    ).fit(X, y)
    assert len(points(plot_search(groups))) == len(groups.cv_results_["stage"])


def test_what_cannot_be_drawn_is_refused() -> None:
    X = np.array([[0.0], [10.0]])
    with pytest.raises(ValueError, match="no candidate has a score"):
        plot_search(SharedKernelClassifierCV(random_state=0).fit(X, [0, 1]))
    with pytest.raises(ValueError, match="needs a SharedKernelClassifierCV, got SharedKernelMixtureCV"):
        plot_search(SharedKernelMixtureCV(n_kernels=1, covariance_type="full").fit(np.arange(9.0)[:, None]))


def test_features_of_a_search_are_named_after_its_map() -> None:
    wine = load_wine(as_frame=True)
    search = SharedKernelClassifierCV(n_kernels=3, time_limit=0.0, tune=False, random_state=0)
    search.fit(wine.data, wine.target)
    names = list(wine.data.columns)
    M = len(names)
    search.feature_maps_ = [None]
    assert feature_names(search) == names
    search.feature_maps_ = [(np.zeros(M), np.ones(M), np.full(M, 0.5), None, None, None)]
    assert feature_names(search) == [f"{name}, transformed" for name in names]
    assert groups_of(search)[0].names[0] == "alcohol, transformed"
    search.feature_maps_ = [(np.zeros(M), np.ones(M), np.ones(M), None, np.zeros(M), np.ones((M, 2)))]
    assert feature_names(search) == ["component 1", "component 2"]
    del search.feature_names_in_
    assert feature_names(search) == ["component 1", "component 2"]
