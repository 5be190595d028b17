"""Populations of a mixture: merged, named, predicted, matched and checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from skmix import SharedKernelMixture, Study
from skmix.samples import Populations, merge_kernels

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


@pytest.fixture(scope="module")
def merged(fitted: SharedKernelMixture) -> Populations:
    return merge_kernels(fitted, n_populations=3)


# ---------------------------------------------------------------- merges


def test_names_of_features_make_no_difference() -> None:
    """Nor a warning, which is an error here: what is drawn from a model has no names."""
    X, _ = shapes(n_rows=300)
    model, named = (
        SharedKernelMixture(4, **SETTINGS).fit(rows, np.arange(len(X)) % 5)
        for rows in (X, pd.DataFrame(X, columns=["a", "b"]))
    )
    one, two = merge_kernels(model), merge_kernels(named)
    assert_array_equal(one.of_kernels, two.of_kernels)
    pd.testing.assert_frame_equal(Study(named, two).proportions, Study(model, one).proportions)
    pd.testing.assert_frame_equal(Study(named, two).unusual(), Study(model, one).unusual())


def test_kernels_become_the_true_populations(fitted: SharedKernelMixture) -> None:
    X, y = shapes(seed=1)
    assert misclassified(fitted.predict(X), y) > 0.3
    found = merge_kernels(fitted)
    assert misclassified(found.predict(fitted, X), y) < 0.07
    # Numbered by their share of the rows.
    shares = (fitted.weights_ @ fitted.class_prior_) @ found.members
    assert shares.tolist() == sorted(shares, reverse=True)


@pytest.mark.parametrize("settings", [{}, {"covariance_type": "tied"}, {"group_shift": 10.0}])
def test_probabilities_are_sums_over_kernels(settings: dict[str, Any]) -> None:
    X, _ = shapes()
    y = np.arange(len(X)) % 2
    model = SharedKernelMixture(6, **SETTINGS, **settings).fit(X, y)
    merged = merge_kernels(model, n_populations=3)
    for given in ({}, {"y": y}):
        kernels, found = model.predict_proba(X, **given), merged.predict_proba(model, X, **given)
        for g in range(3):
            assert_allclose(found[:, g], kernels[:, merged.of_kernels == g].sum(axis=1), atol=1e-14)
        assert_array_equal(merged.predict(model, X, **given), found.argmax(axis=1))


def test_populations_are_numbered_by_weight() -> None:
    X = np.array([[0.0], [30.0]] * 30) + np.random.default_rng(0).normal(size=(60, 1))
    model = SharedKernelMixture(2, init={"means": [[0.0], [30.0]]})
    model.fit(X, np.arange(60) // 30)
    # Kernel 0 has most of the weight of a small class.
    model.weights_, model.class_prior_ = np.array([[0.9, 0.2], [0.1, 0.8]]), np.array([0.1, 0.9])
    assert merge_kernels(model, n_populations=2).of_kernels.tolist() == [1, 0]
    # Of equal ones, the one with the lower mean comes first.
    model.weights_ = np.full((2, 2), 0.5)
    assert merge_kernels(model, n_populations=2).of_kernels.tolist() == [0, 1]


def test_a_tree_is_cut_at_the_default_height_or_between_two_merges(fitted: SharedKernelMixture) -> None:
    assert merge_kernels(fitted).cut_height == 0.5
    merged = merge_kernels(fitted, n_populations=2)
    assert merged.cut_height == pytest.approx(merged.tree[-2:, 2].mean())
    for wrong in (10, 2.5):
        with pytest.raises(ValueError, match=f"n_populations={wrong} must be a whole number from 1 to 9"):
            merge_kernels(fitted, n_populations=wrong)


# ---------------------------------------------------------------- names and checks


def test_populations_have_names(merged: Populations) -> None:
    named = merged.renamed({0: "T", 2: "B"})
    assert named.display_names == ["T", 1, "B"]
    assert merged.display_names == [0, 1, 2]
    assert named.renamed({"T": "CD4 T", 1: "NK"}).display_names == ["CD4 T", "NK", "B"]
    for names, message in (
        ({3: "x"}, "no population 3 among"),
        ({"Z": "x"}, "no population 'Z'"),
        ({1: "B"}, "the same name"),
        ({0: "1"}, "the same name"),
        ({0: "x", "T": "y"}, "a population twice"),
        ({1: ""}, "cannot be called ''"),
    ):
        with pytest.raises(ValueError, match=message):
            named.renamed(names)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("of_kernels", lambda a: a[:-1], "are not 9 whole numbers"),
        ("of_kernels", lambda a: a + 1, "are not numbered 0 to 2"),
        ("of_kernels", lambda a: np.roll(a, 1), "not those of the tree"),
        ("tree", lambda a: a[:-1], "no valid tree"),
        ("tree", lambda a: np.where(a == a.max(), 99.0, a), "no valid tree"),
        ("tree", lambda a: a * np.nan, "no valid tree"),
        ("tree", lambda a: a[::-1], "no valid tree"),
        ("tree", lambda a: -a, "no valid tree"),
        ("names", lambda _: {7: "T"}, "no population 7"),
    ],
)
def test_populations_that_are_no_cut_of_their_tree_are_refused(
    merged: Populations, name: str, change: Any, message: str
) -> None:
    merged.check(9)
    with pytest.raises(ValueError, match=message):
        replace(merged, **{name: change(getattr(merged, name))}).check(9)


def test_populations_belong_to_the_kernels_they_were_made_of(merged: Populations) -> None:
    X, _ = shapes()
    other = SharedKernelMixture(4, **SETTINGS).fit(X)
    for call in (lambda: merged.predict(other, X), lambda: Study(other, merged)):
        with pytest.raises(ValueError, match="populations of 9 kernels, but the mixture has 4"):
            call()
