"""Fitted estimators with known parameters, without a fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import random_model

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.engine.records import FloatArray, Parameters

SETS = [[3, 0], [1, 4]]  # of six columns: in another order, and without columns 2 and 5


def mixture_of(
    model: Parameters, covariance_type: str, class_prior: Any, labels: Any = None, **settings: Any
) -> SharedKernelMixture:
    """Return a fitted mixture with these parameters."""
    mixture = SharedKernelMixture(len(model.means), covariance_type=covariance_type, **settings)
    mixture.weights_, mixture.means_, mixture.covariances_ = model.weights, model.means, model.covariances
    mixture.class_prior_ = np.array(class_prior, dtype=float)
    mixture.classes_ = np.arange(len(mixture.class_prior_)) if labels is None else np.array(labels)
    mixture.n_features_in_ = model.means.shape[1]
    mixture.converged_, mixture.n_iter_, mixture.covariance_type_ = True, 7, covariance_type
    mixture.n_kernels_, mixture.class_count_ = len(model.means), 100.0 * mixture.class_prior_
    return mixture


def random_mixture(seed: int, covariance_type: str = "full", n_features: int = 4) -> SharedKernelMixture:
    """Return a mixture of three classes."""
    random = np.random.default_rng(seed)
    model = random_model(random, 5, 3, n_features, covariance_type)
    return mixture_of(model, covariance_type, random.dirichlet(np.ones(3)), list("abc"), random_state=0)


def classifier_of(
    models: list[SharedKernelMixture], sets: list[list[int]], n_features: int, **settings: Any
) -> SharedKernelClassifier:
    """Return a fitted classifier of these models."""
    one = len(models) == 1
    classifier = SharedKernelClassifier(
        covariance_type=models[0].covariance_type, feature_sets=None if one else sets, **settings
    )
    classifier.models_, classifier.feature_sets_ = models, sets
    classifier.class_prior_, classifier.n_features_in_ = models[0].class_prior_, n_features
    classifier.temperature_, classifier.threshold_ = 1.0, -np.inf
    return classifier


def random_classifier(seed: int, covariance_type: str = "full") -> SharedKernelClassifier:
    """Return a classifier of three classes and four features."""
    return classifier_of([random_mixture(seed, covariance_type)], [[0, 1, 2, 3]], 4, random_state=0)


def random_product(seed: int, covariance_type: str = "full") -> SharedKernelClassifier:
    """Return a classifier of three classes, with two sets of two features out of six columns."""
    models = [random_mixture(seed + g, covariance_type, 2) for g in range(2)]
    models[1].class_prior_ = models[0].class_prior_
    return classifier_of(models, [list(feature_set) for feature_set in SETS], 6, random_state=0)


def assert_same_fit(one: Any, other: Any, rtol: float = 1e-9) -> None:
    """Check that two fits of a mixture have the same parameters, classes and passes."""
    numbers = ("weights_", "means_", "covariances_", "class_prior_", "class_count_", "log_likelihood_path_")
    for name in (*numbers, "log_likelihood_", "start_log_likelihoods_"):
        assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, atol=rtol, err_msg=name)
    for name in ("classes_", "n_iter_", "converged_", "n_features_in_", "covariance_type_", "start_status_"):
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def assert_same_mixture(ours: Any, other: Any, X: FloatArray, rtol: float) -> None:
    """Compare every fitted attribute and every method's answer of a drop-in with those of another mixture."""
    for name, value in vars(other).items():
        if name.endswith("_") and name != "feature_names_in_":
            found, expected = np.asarray(getattr(ours, name)), np.asarray(value)
            assert not isinstance(value, np.ndarray) or found.dtype == expected.dtype
            assert found.size == expected.size if name.startswith("lower") else found.shape == expected.shape
            atol = rtol * np.abs(expected).max(initial=0.0)
            assert_allclose(found.ravel(), expected.ravel(), rtol=rtol, atol=atol, err_msg=name)
    assert_array_equal(ours.predict(X), other.predict(X))
    assert_allclose(ours.predict_proba(X), other.predict_proba(X), atol=rtol)
    assert_allclose(ours.score_samples(X), other.score_samples(X), rtol=rtol)
    for method in ("score", "bic", "aic"):
        if hasattr(other, method):
            assert getattr(ours, method)(X) == pytest.approx(getattr(other, method)(X), rel=rtol)
    if X.dtype == np.float64:
        assert_array_equal(ours.sample(20)[1], other.sample(20)[1])


class AfterPass:
    """Callback that calls a function with the number of each pass, or candidate of a search."""

    def __init__(self, function: Callable[[int], None]) -> None:
        pytest.importorskip("sklearn.callback", reason="scikit-learn before 1.9 has no callbacks")
        self.function = function

    def setup(self, estimator: Any, context: Any) -> None:
        pass

    def teardown(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        pass

    def on_fit_task_end(self, estimator: Any, context: Any) -> None:
        if context.task_name in ("pass", "candidate"):
            self.function(context.task_id + 1)


def rows_for(seed: int, n_features: int, n_rows: int = 25) -> FloatArray:
    return 2.0 * np.random.default_rng(seed).normal(size=(n_rows, n_features))
