"""Variational fits of the estimators: the posterior they leave, and what cannot be combined with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.theory import Beliefs, evidence_bound

TYPES = ("full", "tied", "diag", "spherical")
X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]


def mixture(**settings: Any) -> SharedKernelMixture:
    return SharedKernelMixture(
        **{"n_kernels": 6, "inference": "variational", "random_state": 0, "max_iter": 500, **settings}
    )


def classifier(**settings: Any) -> SharedKernelClassifier:
    return SharedKernelClassifier(
        **{"n_kernels": 6, "inference": "variational", "random_state": 0, "max_iter": 500, **settings}
    )


def test_the_bound_is_that_of_the_posterior_that_is_left() -> None:
    n_kernels = 5
    scale = np.cov(X.T) / 2
    settings = {"weight_prior": 0.3, "covariance_prior": (7.5, scale)}
    mean_rows = n_kernels ** (-2.0 / X.shape[1])
    model = mixture(n_kernels=n_kernels, tol=1e-6, **settings).fit(X, NAMES)
    kept = model.n_kernels_
    assert len(model.weight_concentration_) == len(model.mean_precision_) == kept
    # Kernels that were left out have the prior's distribution.
    prior = Beliefs(
        np.full((n_kernels, 3), 0.3),
        np.tile(X.mean(axis=0), (n_kernels, 1)),
        np.full(n_kernels, mean_rows),
        np.full(n_kernels, 7.5),
        np.tile(scale, (n_kernels, 1, 1)),
    )
    posterior = Beliefs(*(array.copy() for array in vars(prior).values()))
    posterior.concentration[:kept] = model.weight_concentration_
    posterior.means[:kept] = model.means_
    posterior.mean_precision[:kept] = model.mean_precision_
    posterior.degrees_of_freedom[:kept] = model.wishart_degrees_
    posterior.covariances[:kept] = model.covariances_
    # A left-out kernel may have had a fraction of a row.
    assert_allclose(evidence_bound(X, NAMES, posterior, prior), model.lower_bound_, rtol=1e-3)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_what_a_fit_leaves(covariance_type: str) -> None:
    model = mixture(covariance_type=covariance_type, n_init=2).fit(X, NAMES)
    n_kernels = model.n_kernels_
    assert n_kernels <= 6
    assert model.weights_.shape == model.weight_concentration_.shape == (n_kernels, 3)
    assert model.wishart_degrees_.shape == model.mean_precision_.shape == (n_kernels,)
    shares = model.weight_concentration_ / model.weight_concentration_.sum(axis=0)
    assert_allclose(model.weights_, shares)
    assert (model.weights_ > 0).all()
    # All rows are in the counts, but those of the prior and of kernels that were left out.
    assert_allclose((model.weight_concentration_ - 1 / 6).sum(), 150, atol=3)
    assert_allclose(
        model.mean_precision_ - 6 ** (-2 / 4), (model.weight_concentration_ - 1 / 6).sum(axis=1), rtol=1e-9
    )
    expected = {"full": 6.0, "tied": 6.0, "diag": 3.0, "spherical": 3.0}[covariance_type]
    rows = model.mean_precision_ - 6 ** (-2 / 4)
    rows = np.full(n_kernels, 150.0) if covariance_type == "tied" else rows
    each = 4 if covariance_type == "spherical" else 1
    assert_allclose(model.wishart_degrees_, each * (expected + rows), rtol=1e-9)
    assert len(model.lower_bound_path_) == model.n_iter_
    assert model.lower_bound_path_[-1] == model.lower_bound_
    assert (np.diff(model.lower_bound_path_) > -1e-8).all()
    assert_allclose(model.score_samples(X, NAMES).sum(), model.log_likelihood_, rtol=1e-9)


def test_a_later_fit_by_em_leaves_no_posterior() -> None:
    model = classifier().fit(X, Y)
    assert model.lower_bound_ == model.models_[0].lower_bound_
    model.set_params(inference="em").fit(X, Y)
    assert not hasattr(model, "lower_bound_")
    assert not hasattr(model, "weight_concentration_")


def test_too_many_kernels_do_no_harm() -> None:
    # 13 features and 41 rows a class: the most likely parameters of three kernels a class are worthless.
    wine, labels = load_wine(return_X_y=True)
    rows, others, known, unknown = train_test_split(
        wine, labels, test_size=0.3, stratify=labels, random_state=0
    )
    em = classifier(n_kernels=9, inference="em", covariance_prior=None).fit(rows, known)
    variational = classifier(n_kernels=9).fit(rows, known)
    assert variational.n_kernels_ < em.n_kernels_
    losses = [log_loss(unknown, model.predict_proba(others)) for model in (em, variational)]
    assert losses[1] < 0.2 * losses[0]
    assert variational.score(others, unknown) >= 0.95
