"""Covariances of low rank through the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.estimators.densities import n_parameters


def rows() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 40)
    X = 2.0 * random.normal(size=(3, 6))[np.repeat(np.arange(3), 40)]
    return X + random.normal(size=(120, 2)) @ random.normal(size=(2, 6)) + 0.5 * random.normal(
        size=(120, 6)
    ), y


def fitted(**settings: Any) -> SharedKernelClassifier:
    given = {"covariance_type": ("low_rank", 2), "random_state": 0, "tol": 1e-3}
    return SharedKernelClassifier(4, **(given | settings)).fit(*rows())


def test_attributes_and_the_number_of_parameters() -> None:
    X, y = rows()
    model = SharedKernelMixture(
        4, covariance_type=("low_rank", 2), random_state=0, tol=1e-3, max_iter=500
    ).fit(X, y)
    assert model.covariances_.shape == (4, 6, 3)
    assert n_parameters(model) == 4 * (6 * 3 - 1) + 4 * 6 + 3 * 3
    assert (np.diff(model.log_likelihood_path_.sum(axis=1)) > -1e-8).all()
    assert SharedKernelMixture(2, covariance_type=("low_rank", 99)).fit(X).covariances_.shape[2] == 6


def test_marginal_and_conditional_models_have_factors() -> None:
    X, y = rows()
    classifier = fitted()
    assert classifier.score(X, y) > 0.95
    part, gaps = classifier.marginal([0, 3, 5]), X.copy()
    gaps[:, [1, 2, 4]] = np.nan
    found, expected = part.predict_proba(X[:, [0, 3, 5]]), classifier.predict_proba(gaps)
    assert_allclose(found, expected, rtol=1e-7, atol=1e-12)
    given = classifier.condition({0: float(X[0, 0]), 1: float(X[0, 1])})
    assert_allclose(given.predict_proba(X[:1, 2:]), classifier.predict_proba(X[:1]), rtol=1e-7, atol=1e-12)


def test_a_given_start_has_factors_too() -> None:
    first = fitted()
    start = {"means": first.means_, "covariances": first.covariances_, "weights": first.weights_}
    assert fitted(init=start).n_iter_ <= 5
    bad = {**start, "covariances": first.covariances_ * np.array([1.0, 1.0, -1.0])}
    with pytest.raises(ValueError, match="variances, which must be positive"):
        fitted(init=bad)
    with pytest.raises(ValueError, match=r"must have shape \(4, 6, 4\)"):
        fitted(init=start, covariance_type=("low_rank", 3))
    assert fitted(init={"means": first.means_}).covariances_.shape == (4, 6, 3)
