"""Streams, classes that come later, and what a given start keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelMixture
from skmix.model.crossfit import quantile


def sample(seed: int = 0, n_rows: int = 6000) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    centres = 1.8 * random.normal(size=(5, 3))
    weights = random.dirichlet(0.5 * np.ones(5), size=3)
    y = random.integers(3, size=n_rows)
    kernels = np.array([random.choice(5, p=weights[c]) for c in y])
    return centres[kernels] + random.normal(size=(n_rows, 3)), np.array(["a", "b", "c"])[y]


def stream(model: Any, X: np.ndarray, y: np.ndarray, size: int = 200) -> Any:
    for a in range(0, len(X), size):
        model.partial_fit(X[a : a + size], y[a : a + size], classes=["a", "b", "c"])
    return model


def test_a_stream_ends_within_one_per_cent_of_the_batch() -> None:
    X, y = sample()
    batch = SharedKernelMixture(5, max_iter=900, random_state=0).fit(X, y)
    online = stream(SharedKernelMixture(5, random_state=0), X, y)
    assert online.score(X, y) > batch.score(X, y) - 0.01 * abs(batch.score(X, y))
    assert online.n_iter_ == 30
    assert_allclose(online.class_prior_, batch.class_prior_, atol=0.05)
    assert_array_equal(online.class_count_, batch.class_count_)


def test_bad_streams() -> None:
    X, y = sample(5, 300)
    model = SharedKernelClassifier(3, random_state=0)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        model.partial_fit(X, y)
    assert not hasattr(model, "classes_")
    model.partial_fit(X, y, classes=["a", "b", "c"])
    before = model.means_.copy()
    bad: list[tuple[dict[str, Any], str]] = [
        ({"y": np.where(y == "a", "z", y)}, r"labels that no training row had: \['z'\].*add_class"),
        ({"classes": ["a", "b"]}, "differs from the labels of the first call"),
        ({"X": X[:, :2]}, "features"),
        ({"y": y[:-1]}, "X has 300 rows but y has 299 labels"),
        *(
            ({"decay": decay}, r"decay must be above 0\.5 and at most 1, got ")
            for decay in (0.5, 1.01, "fast")
        ),
    ]
    for given, message in bad:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(**{"X": X, "y": y, **given})
    assert_array_equal(model.means_, before)
    with pytest.raises(ValueError, match="has a label"):
        SharedKernelClassifier(3).partial_fit(X, np.full(300, -1), classes=[0, 1, 2])
    for classes in ([0.0, np.nan, 1.0], ["a", None]):
        with pytest.raises(ValueError, match="NaN or None, which mark rows without a label"):
            SharedKernelClassifier(3).partial_fit(X, y, classes=np.array(classes, dtype=object))


def test_classes_that_cannot_be_added() -> None:
    X, y = sample(8, 300)
    model = SharedKernelClassifier(3, random_state=0, max_iter=900).fit(X, y)
    for label, message in (
        ("b", "'b' is already a class"),
        (3, "3 is of another kind"),
        (["d"], "single value"),
    ):
        with pytest.raises(ValueError, match=message):
            model.add_class(X, label)
    model.set_params(priors=[0.2, 0.3, 0.5])
    with pytest.raises(ValueError, match="priors is an array of 3 classes"):
        model.add_class(X, "d")
    assert model.classes_.tolist() == ["a", "b", "c"]
    model.set_params(priors=None).add_class(X, "a much longer name")
    assert model.classes_.tolist() == ["a", "a much longer name", "b", "c"]


def test_gaps_in_one_set_change_no_prior() -> None:
    X, y = sample(14, 600)
    gappy = X.copy()
    gappy[np.flatnonzero(y == "a")[5:], 0] = np.nan
    for sets in ([[0], [1, 2]], [[1, 2], [0]]):
        model = SharedKernelClassifier(4, feature_sets=sets, random_state=0, max_iter=900).fit(gappy, y)
        assert_allclose(model.class_prior_, [np.mean(y == c) for c in "abc"])
        assert_array_equal(model.class_count_, [np.sum(y == c) for c in "abc"])
    online = SharedKernelClassifier(4, feature_sets=[[0], [1, 2]], random_state=0)
    online.partial_fit(gappy, y, classes=["a", "b", "c"])
    assert_allclose(online.class_prior_, [np.mean(y == c) for c in "abc"])
    # A batch without the first set counts in both, by its weights.
    weights = np.arange(600) % 3.0
    online.partial_fit(np.where([True, False, False], np.nan, X), y, sample_weight=weights)
    counts = [np.sum(y == c) + weights[y == c].sum() for c in "abc"]
    for model in (online, *online.models_):
        assert_allclose(model.class_count_, counts)
    with pytest.raises(ValueError, match="Feature 0 of X has no value"):
        SharedKernelClassifier(4, feature_sets=[[0], [1, 2]]).partial_fit(
            np.where([True, False, False], np.nan, X), y, classes=["a", "b", "c"]
        )


def test_an_added_class_leaves_the_proportions_of_the_others() -> None:
    X, letters = sample(15, 900)
    y = np.searchsorted(["a", "b", "c"], letters)
    known = y < 2
    hidden = np.where(np.arange(len(y)) % 3 == 0, y, np.nan)
    hidden[:20] = y[:20]
    model = SharedKernelClassifier(4, random_state=0, max_iter=900).fit(X[known], hidden[known])
    before, counts = model.class_prior_, model.class_count_
    weights = np.full(np.sum(~known), 2.0)
    model.temperature_ = 2.5
    model.add_class(X[~known], 2, sample_weight=weights)
    assert model.temperature_ == 2.5
    assert_allclose(model.class_prior_[:2] / model.class_prior_[:2].sum(), before)
    # Its share of the rows that have a label.
    assert_allclose(model.class_prior_[2], weights.sum() / (counts.sum() + weights.sum()))
    assert_allclose(model.class_count_, [*counts, weights.sum()])


def test_rows_of_an_added_class_are_not_refused() -> None:
    X, y = sample(16, 900)
    known = y != "b"
    model = SharedKernelClassifier(5, random_state=0, max_iter=900, reject_below=0.05, outlier_label="?")
    model.fit(X[known], y[known]).add_class(X[~known], "b")
    assert np.mean(model.predict(X[~known]) == "?") <= 0.06
    # With few rows of the new class the old ones decide: as many of them are refused as before.
    uniform = SharedKernelClassifier(5, random_state=0, max_iter=900, reject_below=0.05, priors="uniform")
    uniform.fit(X[known], np.where(y[known] == "a", 0, 1))
    before = uniform.threshold_
    uniform.add_class(X[known][uniform.score_samples(X[known]).argsort()[-5:]], 2)
    assert uniform.threshold_ == pytest.approx(before + np.log(2 / 3))
    with pytest.raises(ValueError, match="outlier_label"):
        model.add_class(X[:50], "?")


def test_the_threshold_of_a_stream_comes_from_rows_it_has_not_learnt() -> None:
    X, y = sample(18, 600)
    model = SharedKernelClassifier(4, random_state=0, reject_below=0.1, outlier_label="?")
    model.partial_fit(X[:200], y[:200], classes=np.unique(y))
    assert model.threshold_ == pytest.approx(quantile(0.1, model.score_samples(X[:200])))
    weights = np.random.default_rng(0).integers(1, 4, size=400).astype(float)
    before = model.score_samples(X[200:])
    model.partial_fit(X[200:], y[200:], sample_weight=weights)
    assert model.threshold_ == pytest.approx(quantile(0.1, before, weights))
    # Rows without any value say nothing.
    threshold = model.threshold_
    model.partial_fit(np.full((2, X.shape[1]), np.nan), y[:2])
    assert model.threshold_ == threshold


def test_a_first_batch_of_few_rows_is_fitted_with_care() -> None:
    """A kernel that collapses onto some rows would never be freed again, without any prior too."""
    X = np.random.default_rng(3).normal(size=(30, 3))
    model = SharedKernelMixture(6, covariance_prior=None, random_state=0).partial_fit(X)
    relative = model.covariances_ / np.outer(X.std(axis=0), X.std(axis=0))
    # The floor is 1e-6.
    assert np.linalg.eigvalsh(relative).min() > 1e-4


def test_rows_without_a_label_may_be_of_a_class_that_is_still_to_come() -> None:
    """It counts as one row, so that it is not impossible."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.where(np.arange(40) % 2, -1, 0)
    model = SharedKernelClassifier(3, random_state=0).partial_fit(X, y, classes=[0, 1])
    prior, after = 1.0 / 21.0, model.class_prior_[1]
    # The second class has uniform weights at first, and its prior share of the rows without a label.
    assert 0.3 * prior < after < prior


def test_the_log_likelihood_of_a_batch_is_that_of_the_model_before_it() -> None:
    X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0.0], [6.0]], 45, axis=0)
    model = SharedKernelMixture(2, random_state=0).partial_fit(X[::3])
    expected = model.score_samples(X[1::3]).sum()
    model.partial_fit(X[1::3])
    assert model.log_likelihood_ == pytest.approx(expected, rel=1e-9)
    assert model.start_log_likelihoods_ == pytest.approx([expected])
    assert not model.converged_
