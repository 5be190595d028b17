"""Rows without a label: which they are, and what they teach."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelMixture


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


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_unlabelled_rows_help(covariance_type: str) -> None:
    X, y, hidden = sample()
    settings = {"covariance_type": covariance_type, "random_state": 0}
    shown = hidden >= 0
    few = SharedKernelClassifier(3, max_iter=900, **settings).fit(X[shown], y[shown])
    with_rest = SharedKernelClassifier(3, max_iter=900, **settings).fit(X, hidden)
    every = SharedKernelClassifier(3, max_iter=900, **settings).fit(X, y)
    assert with_rest.score(X, y) > few.score(X, y) + 0.02
    assert with_rest.score(X, y) > every.score(X, y) - 0.03
    assert_array_equal(with_rest.classes_, [0, 1, 2])
    assert_allclose(with_rest.class_prior_, np.bincount(y) / len(y), atol=0.06)


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
    model = SharedKernelClassifier(3, random_state=0, max_iter=900).fit(gappy, hidden)
    assert np.isfinite(model.predict_proba(X)).all()
