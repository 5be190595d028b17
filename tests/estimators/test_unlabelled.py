"""Rows without a label: what they teach, and how the product form shares them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp, softmax

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.estimators.rows import open_training
from skmix.estimators.solving import fit_jointly


def sample(n_rows: int = 900) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of three classes, their labels, and the labels with all but four of each class hidden."""
    random = np.random.default_rng(0)
    y = random.choice(3, size=n_rows, p=[0.5, 0.3, 0.2])
    centres = np.array([[0.0, 0, 0, 0], [2.5, 0, 2.5, 0], [0, 2.5, 0, 2.5]])
    X = centres[y] + random.normal(size=(n_rows, 4))
    hidden = np.full(n_rows, -1)
    for c in range(3):
        shown = np.flatnonzero(y == c)[:4]
        hidden[shown] = c
    return X, y, hidden


@pytest.mark.parametrize("groups", [None, [[0, 1], [2, 3]]])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_unlabelled_rows_help(groups: list[list[int]] | None, covariance_type: str) -> None:
    X, y, hidden = sample()
    settings = {"feature_sets": groups, "covariance_type": covariance_type, "random_state": 0}
    shown = hidden >= 0
    few = SharedKernelClassifier(3, max_iter=900, **settings).fit(X[shown], y[shown])
    with_rest = SharedKernelClassifier(3, max_iter=900, **settings).fit(X, hidden)
    every = SharedKernelClassifier(3, max_iter=900, **settings).fit(X, y)
    assert with_rest.score(X, y) > few.score(X, y) + 0.02
    assert with_rest.score(X, y) > every.score(X, y) - 0.03
    assert_array_equal(with_rest.classes_, [0, 1, 2])
    assert_allclose(with_rest.class_prior_, np.bincount(y) / len(y), atol=0.06)


def test_the_product_form_of_one_group_is_at_the_same_optimum() -> None:
    X, _, hidden = sample(400)
    model = SharedKernelMixture(3, init="class", max_iter=3000, tol=1e-9, random_state=0)
    (found,) = fit_jointly([([0, 1, 2, 3], model)], open_training(model, X, hidden, None))
    found.store(model)
    path = model.log_likelihood_path_.sum(axis=1)
    assert np.all(np.diff(path) > -1e-9 * np.abs(path[1:]))
    start = {"means": model.means_, "covariances": model.covariances_, "weights": model.weights_}
    again = SharedKernelMixture(init=start, max_iter=3000, tol=1e-9, random_state=0).fit(X, hidden)
    assert_allclose(again.log_likelihood_, model.log_likelihood_, rtol=1e-5)
    assert_allclose(again.class_prior_, model.class_prior_, atol=5e-3)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([-1, 0, 1, 2], [0, 1, 2]),
        ([-1, 1, 1, -1], [-1, 1]),
        ([-2, -4, -3, -2], [-4, -3, -2]),
        ([-1, 0, 1, None], [-1, 0, 1]),
        ([-1.0, 0.0, 1.0, np.nan], [-1.0, 0.0, 1.0]),
        (["b", "a", None, "b"], ["a", "b"]),
        (["b", "a", float("nan"), "b"], ["a", "b"]),
        (["-1", "a", "b", "a"], ["-1", "a", "b"]),
        ([-1.0, 0.0, 2.0, 2.0], [0.0, 2.0]),
    ],
)
def test_when_minus_one_is_a_label(labels: list[object], classes: list[object]) -> None:
    X = np.random.default_rng(1).normal(size=(40, 2))
    model = SharedKernelMixture(2, random_state=0, max_iter=900).fit(X, labels * 10)
    assert model.classes_.tolist() == classes


def test_a_feature_seen_in_unlabelled_rows_alone() -> None:
    X, _, hidden = sample(300)
    gappy = X.copy()
    gappy[hidden >= 0, 0] = np.nan
    for groups in (None, [[0, 1], [2, 3]]):
        model = SharedKernelClassifier(3, feature_sets=groups, random_state=0, max_iter=900)
        assert np.isfinite(model.fit(gappy, hidden).predict_proba(X)).all()


def test_the_log_likelihood_of_groups_is_that_of_rows_and_labels_together() -> None:
    X, _, hidden = sample(200)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=200)
    groups = [[0, 1], [2, 3]]
    model = SharedKernelClassifier(3, feature_sets=groups, random_state=0, max_iter=900)
    model.fit(X, hidden, sample_weight=weights)
    joint = model.class_log_likelihood(X) + np.log(model.class_prior_)
    own = np.where(hidden < 0, logsumexp(joint, axis=1), joint[np.arange(200), hidden])
    for part in model.models_:
        assert part.log_likelihood_ == pytest.approx(weights @ own, rel=1e-9)
    # Each class has the weight of its rows, and its share of those without a label.
    shares = np.where(hidden[:, None] < 0, softmax(joint, axis=1), np.eye(3)[hidden])
    assert_allclose(model.class_prior_, weights @ shares / weights.sum(), atol=1e-3)
