"""What a fit counts for when a stream goes on from it: all its rows, by weight, with and without a label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skmix import SharedKernelClassifier, SharedKernelMixture, load

Array = Any
# One kernel, no prior, and shares that do not favour new batches: a stream has the moments of all its rows.
ONE: dict[str, Any] = {"n_kernels": 1, "covariance_prior": None, "random_state": 0}
LABELS = ("classes", "none", "half", "few")
WEIGHTS = ("ones", "small", "large", "zeros")
# Batches of very different sizes, after a fit of 300 rows.
BATCHES = [slice(300, 310), slice(310, 560), slice(560, 561), slice(561, 600)]


def make_rows(labels: str = "classes", weights: str = "ones") -> tuple[Array, Array, Array]:
    """Return 600 rows of two classes (600, 2), labels (600,) or None, and weights (600,)."""
    random = np.random.default_rng(0)
    y = random.choice(2, 600, p=[0.7, 0.3]).astype(np.float64)
    X = random.normal(size=(600, 2)) + 3.0 * y[:, None] + np.linspace(0.0, 2.0, 600)[:, None]
    share = {"classes": 1.0, "half": 0.5, "few": 0.02}.get(labels, 0.0)
    kept = random.uniform(size=600) < share
    kept[:2] = True
    y[:2] = 0.0, 1.0
    w = {
        "ones": np.ones(600),
        "small": random.uniform(0.0005, 0.002, 600),
        "large": random.uniform(50.0, 150.0, 600),
        "zeros": random.integers(0, 3, 600).astype(np.float64),
    }[weights]
    w[:2] = w.max()
    return X, None if labels == "none" else np.where(kept, y, np.nan), w


def take(rows: tuple[Array, Array, Array], cut: slice) -> dict[str, Array]:
    """Return some of the rows as arguments."""
    X, y, w = rows
    return {"X": X[cut], "y": None if y is None else y[cut], "sample_weight": w[cut]}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("labels", LABELS)
def test_a_stream_after_a_fit_has_the_moments_of_all_rows(labels: str, weights: str) -> None:
    rows = make_rows(labels, weights)
    X, y, w = rows
    fitted = SharedKernelMixture(**ONE).fit(**take(rows, slice(300)))
    begun = SharedKernelMixture(**ONE).partial_fit(
        **take(rows, slice(300)), classes=None if y is None else [0.0, 1.0]
    )
    for model in (fitted, begun):
        for cut in BATCHES:
            model.partial_fit(**take(rows, cut), decay=1.0)
        assert_allclose(model.means_[0], np.average(X, axis=0, weights=w), rtol=1e-9)
        assert_allclose(model.covariances_[0], np.cov(X.T, aweights=w, ddof=0), rtol=1e-9)
        assert_allclose(model.expected_count_.sum(), w.sum(), rtol=1e-12)
        labelled = np.zeros(600) if y is None else y
        sizes = [w[labelled == code].sum() for code in range(len(model.classes_))]
        assert_allclose(model.class_count_, sizes, rtol=1e-12)
        if labels in ("classes", "none"):
            assert_allclose(model.class_prior_, np.array(sizes) / np.sum(sizes), rtol=1e-9)
            assert_allclose(model.expected_count_, sizes, rtol=1e-9)


def test_a_row_of_weight_three_is_three_rows() -> None:
    X, y, _ = make_rows("half")
    whole = np.random.default_rng(1).integers(0, 4, 600)
    whole[:2] = 3
    start = {"means": X[:3], "covariances": np.tile(np.eye(2), (3, 1, 1))}
    models = []
    for times in (np.ones(600, dtype=np.int64), whole):
        w = whole / times.clip(1)
        copies = [np.repeat(np.arange(600)[cut], times[cut]) for cut in (slice(300), slice(300, 600))]
        model = SharedKernelMixture(init=start, covariance_prior=4.0, max_iter=5, tol=0.0)
        with pytest.warns(match="did not converge"):
            model.fit(X[copies[0]], y[copies[0]], w[copies[0]])
        models.append(model.partial_fit(X[copies[1]], y[copies[1]], sample_weight=w[copies[1]]))
    for name in ("weights_", "means_", "covariances_", "class_prior_", "expected_count_"):
        assert_allclose(*(getattr(model, name) for model in models), rtol=1e-8, err_msg=name)


def test_a_feature_set_counts_the_rows_that_have_a_value_in_it() -> None:
    X, y, w = make_rows("classes", "small")
    X = X.copy()
    X[np.arange(600) % 3 > 0, 0] = np.nan
    model = SharedKernelClassifier(**ONE, feature_sets=[[0], [1]]).fit(X[:300], y[:300], w[:300])
    for cut in BATCHES:
        model.partial_fit(X[cut], y[cut], sample_weight=w[cut], decay=1.0)
    for column, part in enumerate(model.models_):
        seen = ~np.isnan(X[:, column])
        assert_allclose(part.means_[0], np.average(X[seen, column], weights=w[seen]), rtol=1e-9)
        assert_allclose(part.expected_count_.sum(), w[seen].sum(), rtol=1e-9)
        assert_allclose(part.class_count_, [w[y == code].sum() for code in (0, 1)], rtol=1e-9)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_stream_after_a_new_class_keeps_the_proportions_of_all_rows(weights: str) -> None:
    X, y, w = make_rows("classes", weights)
    model = SharedKernelMixture(**ONE).fit(X[:300], y[:300], w[:300])
    model.add_class(X[300:310], 2.0, sample_weight=w[300:310])
    model.partial_fit(X[310:], y[310:], sample_weight=w[310:], decay=1.0)
    label = np.where((np.arange(600) >= 300) & (np.arange(600) < 310), 2.0, y)
    counts = np.array([w[label == code].sum() for code in (0, 1, 2)])
    assert_allclose(model.class_prior_, counts / counts.sum(), rtol=1e-9)
    for found in (model.class_count_, model.expected_count_):
        assert_allclose(found, counts, rtol=1e-9)


def test_a_stream_recovers_the_counts_of_hierarchical_weights() -> None:
    """After `add_class` only posterior means are left: the counts need the rows without a label too."""
    random = np.random.default_rng(2)
    kernels = random.choice(2, 4000, p=[0.8, 0.2])
    X, y = random.normal(size=(4000, 1)) + 50.0 * kernels[:, None], np.full(4000, np.nan)
    y[:20] = 0.0
    y[20:40] = 1.0
    start = {"means": [[0.0], [50.0]], "covariances": np.ones((2, 1, 1))}
    model = SharedKernelMixture(init=start, weight_prior="hierarchical", covariance_prior=None).fit(X, y)
    # Rows of the new class show one kernel, and the prior is that of the others.
    model.add_class(X[kernels == 0][:100], 2.0)
    prior, before = model.weight_prior_, model.weights_
    counts = before * (model.expected_count_ + prior.sum()) - prior[:, None]
    assert_allclose(counts[:, 2], [100.0, 0.0], atol=1e-6)
    assert_allclose(model.expected_count_.sum(), 4100.0)
    assert_allclose(counts[:, :2].sum(axis=1), np.bincount(kernels), rtol=1e-6)


def test_models_of_files_without_the_counts_of_all_rows(tmp_path: Path) -> None:
    path = tmp_path / "model.skmix"
    for labels in ("classes", "none", "half"):
        rows = make_rows(labels)
        model = SharedKernelMixture(**ONE).fit(**take(rows, slice(300)))
        model.save(path)
        batch = take(rows, slice(300, 600))
        same = load(path).partial_fit(**batch)
        # As files of earlier versions are.
        del model.expected_count_
        model.save(path)
        old = load(path)
        assert_array_equal(old.score_samples(rows[0]), model.score_samples(rows[0]))
        if labels == "half":
            with pytest.raises(ValueError, match=r"expected_count_.*had no label.*Use fit"):
                old.partial_fit(**batch)
            continue
        old.partial_fit(**batch)
        assert_allclose(old.means_, same.means_, rtol=1e-12)
        assert_allclose(old.expected_count_, same.expected_count_, rtol=1e-12)
