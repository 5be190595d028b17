"""Default fits to few rows are shrunk, those to plenty hardly, and what was said otherwise goes first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelMixture

N_FEATURES = 5
ENOUGH = 3 * N_FEATURES


def draw(n_each: int, n_features: int = N_FEATURES, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two classes whose covariances have much in common."""
    random = np.random.default_rng(seed)
    root = np.random.default_rng(9).normal(size=(n_features, n_features))
    y = np.repeat([0, 1], n_each)
    return 2.0 * y[:, None] + random.normal(size=(2 * n_each, n_features)) @ root, y


def settings(**given: Any) -> dict[str, Any]:
    return {"tol": 1e-3, "random_state": 0, **given}


def assert_same(a: Any, b: Any) -> None:
    for name in ("weights_", "means_", "covariances_"):
        assert_array_equal(getattr(a, name), getattr(b, name))


def test_a_user_with_many_features_and_few_rows_is_served() -> None:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 40)
    X = (
        0.3 * random.normal(size=(10, 60))[y]
        + random.normal(size=(400, 60)) @ random.normal(size=(60, 60)) / 8
    )
    train = np.arange(400) % 2 == 0
    default, plain = (
        SharedKernelClassifier(**settings(covariance_prior=p)).fit(X[train], y[train]) for p in ("auto", None)
    )
    accuracy, without = (model.score(X[~train], y[~train]) for model in (default, plain))
    assert accuracy > without + 0.05
    densities = [model.models_[0].score(X[~train], y[~train]) for model in (default, plain)]
    assert densities[0] > -100.0 > -1000.0 > densities[1]


@pytest.mark.parametrize("covariance_type", ["full", "low_rank"])
def test_the_border_is_three_rows_for_each_number_of_a_feature(covariance_type: str) -> None:
    # Two factors and a variance: three numbers where a full covariance has five.
    enough = ENOUGH if covariance_type == "full" else 9
    chosen = settings(covariance_type="full" if covariance_type == "full" else ("low_rank", 2))
    X, y = draw(enough)
    plenty = SharedKernelClassifier(2, **chosen).fit(X, y)
    assert plenty.models_[0].covariance_prior_[0] == 1.0
    assert plenty.shrinkage_ == pytest.approx(1.0 / (1.0 + enough))
    few = SharedKernelClassifier(2, **chosen).fit(X[1:], y[1:])
    assert few.models_[0].covariance_prior_[0] > 1.0
    assert plenty.shrinkage_ < few.shrinkage_ <= 1.0


@pytest.mark.parametrize(
    "said",
    [
        {"covariance_prior": 4.0},
        {"inference": "variational"},
    ],
)
def test_what_was_said_otherwise_goes_first(said: dict[str, Any]) -> None:
    X, y = draw(8)
    found = SharedKernelMixture(2, **settings(**said)).fit(X, y)
    assert not hasattr(found, "shrinkage_")
    if "covariance_prior" not in said:
        assert_same(found, SharedKernelMixture(2, covariance_prior=None, **settings(**said)).fit(X, y))


def test_the_unit_of_weights_does_not_count() -> None:
    X, y = draw(20)
    for n_kernels in (None, 2):
        whole = SharedKernelMixture(n_kernels, **settings()).fit(X, y)
        shares = SharedKernelMixture(n_kernels, **settings()).fit(X, y, sample_weight=np.full(40, 1.0 / 40))
        assert shares.shrinkage_ == pytest.approx(whole.shrinkage_, rel=1e-6)


def test_the_share_counts_rows_without_a_label() -> None:
    X, y = draw(30)
    y = np.where(np.arange(60) % 2 == 0, np.nan, y)
    # Fifteen labelled rows for each kernel, and as many without a label.
    assert SharedKernelMixture(2, **settings()).fit(X[1:], y[1:]).covariance_prior_[0] == 1.0


def test_a_stream_that_goes_on_from_a_shrunk_model_is_not_shrunk() -> None:
    X, y = draw(8)
    model = SharedKernelClassifier(**settings()).fit(X, y)
    assert model.shrinkage_ > 0.0
    model.partial_fit(*draw(30, seed=1))
    assert not hasattr(model, "shrinkage_")
    assert not hasattr(model.models_[0], "covariance_prior_")
