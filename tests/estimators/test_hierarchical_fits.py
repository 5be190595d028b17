"""``weight_prior='hierarchical'`` from fit to file: every kind of rows, new classes, streams, errors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skmix import SharedKernelMixture
from skmix.theory import Beliefs, evidence_bound

CENTRES = 100.0 * np.array([[0.0, 0.0], [1.0, -1.0], [-1.0, 2.0]])
PRIOR = np.array([6.0, 3.0, 1.0])
START = {"means": CENTRES, "covariances": np.tile(np.eye(2), (3, 1, 1))}


def groups(
    n_groups: int = 30, centres: np.ndarray = CENTRES, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows (N, 2), their groups (N,), and the counts (K, L) that they were drawn with."""
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 60, size=n_groups)
    counts = random.multinomial(sizes, random.dirichlet(PRIOR, size=n_groups)).T
    kernels = np.concatenate([np.repeat(np.arange(3), own) for own in counts.T])
    X = centres[kernels] + random.normal(size=(sizes.sum(), 2))
    order = random.permutation(len(X))
    return X[order], np.repeat(np.arange(n_groups), sizes)[order], counts


@pytest.mark.parametrize("inference", ["em", "variational"])
def test_weights_are_posterior_means_under_the_learnt_prior(inference: str) -> None:
    X, y, counts = groups()
    model = SharedKernelMixture(3, init=START, weight_prior="hierarchical", inference=inference).fit(X, y)
    prior = model.weight_prior_
    assert prior.shape == (3,)
    assert_allclose(model.weight_concentration_, counts + prior[:, None], atol=1e-6)
    assert_allclose(model.weights_, (counts + prior[:, None]) / (counts.sum(axis=0) + prior.sum()), atol=1e-8)
    # Ten rows' worth, from thirty groups.
    assert 4.0 < prior.sum() < 25.0
    assert_allclose(prior / prior.sum(), PRIOR / 10.0, atol=0.1)
    assert model.lower_bound_ == model.lower_bound_path_[-1]
    assert (np.diff(model.lower_bound_path_) > -1e-7).all()
    assert len(model.lower_bound_path_) == model.n_iter_ == len(model.log_likelihood_path_)


def test_the_bound_of_a_variational_fit_is_that_of_the_theory() -> None:
    X, y, _ = groups(n_groups=8, centres=0.03 * CENTRES)
    settings: dict[str, Any] = {"covariance_prior": (4.0, np.eye(2)), "max_iter": 300, "tol": 1e-7}
    model = SharedKernelMixture(3, init={"means": 0.03 * CENTRES}, inference="variational", **settings)
    model.set_params(weight_prior="hierarchical").fit(X, y)
    prior = Beliefs(
        concentration=np.tile(model.weight_prior_[:, None], (1, 8)),
        means=np.tile(X.mean(axis=0), (3, 1)),
        mean_precision=np.full(3, 3 ** (-2 / 2)),
        degrees_of_freedom=np.full(3, 4.0),
        covariances=np.tile(np.eye(2), (3, 1, 1)),
    )
    posterior = Beliefs(
        model.weight_concentration_,
        model.means_,
        model.mean_precision_,
        model.wishart_degrees_,
        model.covariances_,
    )
    assert model.lower_bound_ == pytest.approx(evidence_bound(X, y, posterior, prior), abs=1e-6)
    # No other prior on the weights has a higher bound.
    for factor in ([1.1, 1.0, 1.0], [1.0, 0.9, 1.0], [1.1, 1.1, 1.1], [0.9, 0.9, 0.9]):
        changed = prior.concentration * np.array(factor)[:, None]
        counts = model.weight_concentration_ - prior.concentration
        moved = replace(posterior, concentration=counts + changed)
        assert evidence_bound(X, y, moved, replace(prior, concentration=changed)) < model.lower_bound_


def test_streams_learn_the_prior_from_all_rows_so_far() -> None:
    X, y, counts = groups()
    model = SharedKernelMixture(3, init=START, weight_prior="hierarchical")
    # Group 30 has no rows yet.
    model.partial_fit(X, y, classes=np.arange(31))
    prior = model.weight_prior_
    rows = np.column_stack([counts, np.zeros(3)])
    assert_allclose(model.weights_, (rows + prior[:, None]) / (rows.sum(axis=0) + prior.sum()), atol=1e-6)
    whole = SharedKernelMixture(3, init=START, weight_prior="hierarchical").fit(X, y)
    assert_allclose(prior, whole.weight_prior_, rtol=0.02)
    model.partial_fit(X[:300], y[:300])
    assert_allclose(model.weights_.sum(axis=0), 1.0)
    assert not hasattr(model, "weight_concentration_")
    # What a fit learnt stays, if a batch adds little.
    prior = whole.weight_prior_
    whole.partial_fit(X[:1], y[:1], decay=1.0)
    assert_allclose(whole.weight_prior_, prior, rtol=0.02)
