"""Edges: failing fits with callbacks, gaps in blocks, streams, scores of searches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)


def sample(n_classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), 60)
    return random.normal(size=(len(y), 2)) + 2.0 * y[:, None], y


def test_batches_without_a_value_in_a_set_change_nothing_there() -> None:
    X, y = sample()
    plain = SharedKernelClassifier(2, random_state=0).fit(X, y)
    means = plain.means_.copy()
    assert_array_equal(plain.partial_fit(np.full((3, 2), np.nan), [0, 1, 0]).means_, means)
    sets = SharedKernelClassifier(2, feature_sets=[[0], [1]], random_state=0).fit(X, y)
    before = [model.means_.copy() for model in sets.models_]
    Z = X[:20].copy()
    Z[:, 0] = np.nan
    sets.partial_fit(Z, y[:20])
    assert_array_equal(sets.models_[0].means_, before[0])
    assert np.any(sets.models_[1].means_ != before[1])


@pytest.mark.parametrize(
    ("settings", "label", "message"),
    [
        ({"feature_sets": [[1], [0]]}, None, r"feature_sets is now \[\[1\], \[0\]\].*use fit"),
        ({"covariance_type": "diag"}, None, r"covariance_type is now 'diag'.*use fit"),
        ({"covariance_type": "tied"}, 9, r"covariance_type is now 'tied'.*'full': use fit"),
        ({"weight_prior": 0.5}, None, r"weight_prior=0\.5 must be at least 1 for EM"),
        ({"weight_prior": 0.5}, 9, r"weight_prior=0\.5 must be at least 1 for EM"),
        ({}, float("nan"), "label is nan"),
    ],
)
def test_a_batch_or_a_new_class_that_does_not_suit_the_fit_is_refused(
    settings: dict[str, Any], label: Any, message: str
) -> None:
    X, y = sample()
    model = (
        SharedKernelClassifier(2, feature_sets=[[0], [1]], random_state=0).fit(X, y).set_params(**settings)
    )
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y) if label is None else model.add_class(X[:20], label)
    assert model.classes_.tolist() == [0, 1]


def test_t_kernels_stay_those_of_the_fit_if_settings_change() -> None:
    X, y = sample()
    model = SharedKernelMixture(2, tail=("t", 4.0), tol=1e-2, random_state=0).fit(X, y)
    before = model.bic(X, y)
    assert model.set_params(tail=None).bic(X, y) == before
    with pytest.raises(ValueError, match="fitted: fit again"):
        model.partial_fit(X, y)


def test_rows_of_any_layout_are_scored_alike_and_bad_ones_refused() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(60, 3)), np.arange(60) % 2
    model = SharedKernelClassifier(2, random_state=0).fit(X, y)
    expected = model.predict_proba(X)
    for same in (X.astype(">f8"), np.asfortranarray(X), X.tolist(), np.ma.masked_array(X)):
        assert_array_equal(model.predict_proba(same), expected)
    # The sum of these rows overflows, but they are finite.
    assert np.isfinite(model.predict_proba(np.full((9, 3), 1e308))).all()
    for bad in (np.full((2, 3), np.inf), np.array([[0.0, -np.inf, 0.0]]), X[:, :2], X[:0], X[0], X * 1j):
        with pytest.raises(ValueError, match=r"infinity|features|0 sample|2D array|Complex"):
            model.predict_proba(bad)


def test_a_stream_goes_on_with_the_settings_of_its_classifier() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(200, 2)), np.arange(200) % 2
    sets = [[0], [1]]
    model = SharedKernelClassifier(2, feature_sets=sets, covariance_prior=3.0, random_state=0)
    model.partial_fit(X, y, classes=[0, 1]).set_params(covariance_prior=(7.0, np.diag([2.0, 5.0])))
    model.partial_fit(X, y)
    for part, variance in zip(model.models_, (2.0, 5.0), strict=True):
        assert part.covariance_prior[0] == 7.0
        assert_array_equal(part.covariance_prior[1], [[variance]])


def test_tuning_has_a_floor_after_a_fit_that_kept_its_kernels() -> None:
    X, y = sample()
    start = {"means": X[[5, 100]], "covariances": np.tile(np.eye(2), (2, 1, 1))}
    kept = SharedKernelClassifier(2, init={**start, "freeze": "kernels"}, variance_floor=0.5).fit(X, y)
    kept.tune(X, y, trade_off=0.0, validation=None, max_iter=30)
    # The floor is P ⪰ diag(floor): in units of the features' deviations, no eigenvalue is below a half.
    units = np.outer(X.std(axis=0), X.std(axis=0))
    assert np.linalg.eigvalsh(kept.models_[0].covariances_ / units).min() > 0.5 - 1e-6


def test_single_precision_with_gaps_does_not_overflow_in_starts() -> None:
    """The sum of a column is larger than float32 can be."""
    X = np.tile(np.array([[3e37, 1.0], [2e37, 2.0], [np.nan, 3.0]], dtype=np.float32), (20, 1))
    X[:, 1] += np.arange(60) % 7
    model = SharedKernelMixture(2, random_state=0).fit(X)
    assert np.isfinite(model.means_).all()
    assert 2e37 < model.means_[:, 0].min() <= model.means_[:, 0].max() < 3e37


def test_a_prior_on_weights_may_begin_at_weights_of_zero() -> None:
    """Each class has kernels of its own: the others' weights are zero, whose logarithm is not finite."""
    X, y = sample()
    classifier = SharedKernelClassifier(weight_prior=1.5, accelerate=True, random_state=0).fit(X, y)
    assert classifier.weights_.min() > 0.0


@pytest.mark.parametrize("search", [SharedKernelClassifierCV, SharedKernelMixtureCV])
def test_searches_refuse_features_that_cannot_be_squared(search: Any) -> None:
    X, y = sample()
    with pytest.raises(ValueError, match=r"Feature 1 has .* Rescale that feature"):
        search().fit(X * [1.0, 1e200], y)


def test_fits_to_tiny_numbers_are_refused_or_can_be_saved(tmp_path: Path) -> None:
    """Kernels may be a millionth as wide as the rows: their variances must still be numbers."""
    X = np.random.default_rng(0).normal(size=(20, 2))
    for unit in (1e-150, 1e-146):
        with pytest.raises(ValueError, match="whose square is out of range"):
            SharedKernelMixture(2).fit(X * unit)
    for rows in (X * 1e-143, np.full((8, 1), 9e-312)):
        model = SharedKernelMixture(2, covariance_prior=None, random_state=0).fit(rows)
        model.save(tmp_path / "model.skmix")
        np.testing.assert_array_equal(load(tmp_path / "model.skmix").covariances_, model.covariances_)
