"""What a fit without settings does: number of kernels, mild prior, resolution of the features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

import skmix
from skmix import SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV


def whole_numbers(n_rows: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of five whole-number features, two of them binary, and two classes that overlap."""
    random = np.random.default_rng(seed)
    y = np.arange(n_rows) % 2
    means = np.where(y[:, None] == 0, [2.0, 3.0, 1.0, 0.2, 0.4], [3.0, 4.0, 2.0, 0.7, 0.6])
    counts = random.poisson(means[:, :3])
    return np.column_stack([counts, random.random((n_rows, 2)) < means[:, 3:]]).astype(float), y


def smallest_eigenvalues(model: Any, floor: np.ndarray) -> np.ndarray:
    """Return the smallest eigenvalue of each full covariance relative to diag(floor)."""
    return np.linalg.eigvalsh(model.covariances_ / np.sqrt(np.outer(floor, floor)))[:, 0]


def test_no_kernel_lives_on_one_whole_number() -> None:
    X, y = whole_numbers()
    model = SharedKernelMixture(8, random_state=0).fit(X, y)
    expected = np.minimum(1.0 / 12.0, X.var(axis=0) / 3.0)
    assert_allclose(model.variance_floor_, expected, rtol=1e-12)
    assert smallest_eigenvalues(model, expected).min() > 1.0 - 1e-9
    plain = SharedKernelMixture(8, covariance_prior=None, random_state=0).fit(X, y)
    assert smallest_eigenvalues(plain, expected).min() < 0.01
    assert not hasattr(plain, "variance_floor_")


@pytest.mark.parametrize("n_kernels", [None, 6])
@pytest.mark.parametrize("init", ["class", "k-means", "random_from_data"])
def test_a_fit_does_not_depend_on_units(init: str, n_kernels: int | None) -> None:
    random = np.random.default_rng(0)
    y = np.arange(300) % 2
    X = random.gamma(2.0, size=(300, 3)) + y[:, None]
    units = np.array([2.54, 1.0, 1e-3])
    models = [SharedKernelClassifier(n_kernels, init=init, tol=1e-2, random_state=0) for _ in range(2)]
    ours, theirs = (model.fit(rows, y) for model, rows in zip(models, (X, X * units), strict=True))
    assert ours.n_kernels_ == theirs.n_kernels_
    assert_allclose(theirs.means_, ours.means_ * units, rtol=1e-6)
    assert_allclose(theirs.predict_proba(X * units), ours.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize(("covariance_type", "n_parameters"), [("full", 5), ("tied", 2), ("diag", 4)])
def test_kernels_grow_with_the_root_of_the_rows(covariance_type: str, n_parameters: int) -> None:
    random = np.random.default_rng(0)
    sizes = np.array([5, 400, 800])
    y = np.repeat([0, 1, 2], sizes)
    X = random.normal(size=(len(y), 2))
    settings = {"covariance_type": covariance_type, "init": "class", "tol": 1e-2, "random_state": 0}
    model = SharedKernelMixture(**settings).fit(X, y)
    usual = round((np.prod(sizes) ** (1 / 3) / (2 * n_parameters)) ** 0.5)
    expected = np.array([1, usual, usual])
    assert usual > 1
    assert model.n_kernels_ == expected.sum()
    # Each class has its kernels to itself.
    assert_array_equal(np.count_nonzero(model.weights_, axis=0), expected)
    assert np.count_nonzero(model.weights_, axis=1).max() == 1
    for weight in (1e-3, 1e4):
        weighted = SharedKernelMixture(**settings)
        assert weighted.fit(X, y, sample_weight=np.full(len(y), weight)).n_kernels_ == model.n_kernels_


@pytest.mark.parametrize(("n_kernels", "gaps"), [(None, False), (3, False), (3, True)])
def test_few_labels_among_many_rows_are_enough(n_kernels: int | None, gaps: bool) -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(20_000, 2)), np.full(20_000, np.nan)
    y[[1, 3, 7, 11]], y[[13, 17, 19, 23]] = 0, 1
    X[[13, 17, 19, 23]] += 3.0
    if gaps:
        # Only rows without a label have values of the second feature.
        X[:24, 1] = np.nan
    with pytest.warns(ConvergenceWarning):
        model = SharedKernelMixture(n_kernels, max_iter=2, random_state=0).fit(X, y)
    assert_array_equal(model.class_count_, [4, 4])
    assert model.covariance_prior_[0] > 0.0
    assert np.isfinite(model.covariance_prior_[1]).all()


def test_a_mild_prior_has_one_row_and_the_covariance_within_kernels() -> None:
    random = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]])
    kernel = np.arange(900) % 3
    spread = np.array([[2.0, 0.0], [1.5, 0.5]])
    X = centres[kernel] + random.normal(size=(900, 2)) @ spread.T
    model = SharedKernelMixture(3, random_state=0).fit(X)
    rows, common = model.covariance_prior_
    within = np.mean([np.cov(X[kernel == k].T, bias=True) for k in range(3)], axis=0)
    assert rows == 1.0
    assert_allclose(common, within, rtol=0.02)
    assert model.shrinkage_ == pytest.approx(1.0 / 301.0)
    # With one cluster for each kernel, the M-step is (m S + ν T) / (m + ν).
    for k in range(3):
        members = X[model.predict(X) == k]
        expected = (300.0 * np.cov(members.T, bias=True) + common) / 301.0
        assert_allclose(model.covariances_[k], expected, rtol=1e-6)


def test_the_resolution_is_that_of_the_rows_with_the_weight() -> None:
    # 50 rows of whole numbers have nearly all of the weight; most of the others are not in the sample.
    random = np.random.default_rng(0)
    X, weights = random.normal(size=(20_000, 1)), np.full(20_000, 1e-9)
    X[:50, 0], weights[:50] = np.arange(50) % 5, 1.0
    for order in (np.arange(20_000), random.permutation(20_000)):
        model = SharedKernelMixture(1).fit(X[order], sample_weight=weights[order])
        assert_allclose(model.resolution_, 1.0 / 12.0, rtol=1e-9)


def test_no_kernel_of_a_stream_lives_on_one_whole_number(tmp_path: Path) -> None:
    X, y = whole_numbers(1200)
    # A feature that is constant in the first batch has no resolution yet, and one is coarse there.
    X[:300, 4], X[:300, 0] = 0.0, 2.0 * (X[:300, 0] > 2)
    model, plain = SharedKernelMixture(6, random_state=0), SharedKernelMixture(6, random_state=0)
    plain.set_params(covariance_prior=None)
    for first in range(0, 1200, 300):
        rows = slice(first, first + 300)
        for each in (model, plain):
            each.partial_fit(X[rows], y[rows])
        model.save(tmp_path / "model.skmix")
        model = skmix.load(tmp_path / "model.skmix")
    assert_allclose(model.variance_floor_[:3], 1.0 / 12.0, rtol=1e-9)
    # Neither is more than a third of the variance in a batch.
    assert np.all((model.variance_floor_[3:] > 0.04) & (model.variance_floor_[3:] <= 1.0 / 12.0))
    assert smallest_eigenvalues(model, model.variance_floor_).min() > 1.0 - 1e-9
    assert not hasattr(plain, "variance_floor_")
    # A stream that goes on from a fit begins with its floor.
    fitted = SharedKernelMixture(4, random_state=0).fit(X, y)
    assert_allclose(fitted.partial_fit(X[300:], y[300:]).variance_floor_[:3], 1.0 / 12.0, rtol=1e-9)


def test_weights_on_kernels_of_other_classes_are_not_parameters() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(600, 2)), np.repeat([0, 1, 2], [400, 195, 5])
    own = SharedKernelMixture(init="class", tol=1e-2, random_state=0).fit(X, y)
    assert np.count_nonzero(own.weights_, axis=0).tolist() == [3, 3, 1]
    # Seven kernels, each with a mean of two numbers and a covariance of three; 2 + 2 + 0 free weights.
    free = 7 * (2 + 3) + 4
    assert own.bic(X, y) == pytest.approx(-2.0 * own.log_likelihood_ + free * np.log(600), rel=1e-9)
    assert own.aic(X, y) == pytest.approx(-2.0 * own.log_likelihood_ + 2 * free, rel=1e-9)
    # Where kernels are shared, each of three classes has six free weights, though they may become zero.
    far = X + 1e4 * y[:, None]
    for tail, degrees, n_degrees in ((None, None, 0), ("t", 5.0, 0), ("t", None, 7)):
        settings = {"tail": tail, "degrees": degrees, "weight_prior": None, "tol": 1e-2}
        shared = SharedKernelMixture(7, **settings, random_state=0).fit(far, y)
        assert tail is not None or np.count_nonzero(shared.weights_) < 21
        n_free = 35 + 18 + n_degrees
        assert shared.aic(far, y) == pytest.approx(-2.0 * shared.log_likelihood_ + 2 * n_free, rel=1e-9)
    # A given start may have weights of zero, which stay.
    given = SharedKernelMixture(init={"means": own.means_, "weights": own.weights_}, tol=1e-2).fit(X, y)
    assert given.aic(X, y) == pytest.approx(-2.0 * given.log_likelihood_ + 2 * free, rel=1e-9)


def test_fits_of_many_features_say_what_they_take() -> None:
    random = np.random.default_rng(0)
    X, y = random.normal(size=(20, 510)), np.arange(20) % 2
    X[y == 1, :20] += 2.0
    with pytest.warns(UserWarning, match=r"20 rows have 510 features: covariance_type='auto' uses 'diag'"):
        model = SharedKernelClassifier(random_state=0).fit(X, y)
    assert model.covariance_type_ == "diag"
    assert model.score(X, y) == 1.0
    same = SharedKernelClassifier(covariance_type="diag", random_state=0).fit(X, y)
    assert_array_equal(same.predict_proba(X), model.predict_proba(X))
    stream = SharedKernelMixture(2, random_state=0).partial_fit(X).partial_fit(random.normal(size=(600, 510)))
    assert stream.covariance_type_ == "diag"
    with pytest.warns(UserWarning, match="tries only 'diag' and 'spherical'"):
        search = SharedKernelMixtureCV(n_kernels=1, criterion="bic", random_state=0).fit(X)
    assert set(search.cv_results_["param_covariance_type"]) == {"diag", "spherical"}


def test_the_prior_of_diagonal_covariances_is_that_of_each_feature() -> None:
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(3, covariance_type="diag", random_state=0).fit(X, y)
    within = np.mean([X[y == c].var(axis=0) for c in range(3)], axis=0)
    (mixture,) = (part for _, part in model._parts())
    rows, common = mixture.covariance_prior_
    assert common.shape == (4,)
    assert_allclose(common, within, rtol=0.3)
    # It is accepted back, as variances or as a matrix; full covariances take it as a diagonal matrix.
    for kind in ("diag", "spherical", "full"):
        one, other = (
            SharedKernelMixture(2, covariance_type=kind, covariance_prior=(rows, given), random_state=0).fit(
                X
            )
            for given in (common, np.diag(common))
        )
        assert_array_equal(one.covariances_, other.covariances_)
    given = SharedKernelMixture(2, covariance_type="diag", covariance_prior=(rows, common)).fit(X)
    assert_array_equal(given.marginal([0, 2]).covariance_prior[1], common[[0, 2]])


# ---------------------------------------------------------------- few rows


def test_a_user_with_many_features_and_few_rows_is_served() -> None:
    random = np.random.default_rng(0)
    y = np.repeat(np.arange(10), 40)
    X = (
        0.3 * random.normal(size=(10, 60))[y]
        + random.normal(size=(400, 60)) @ random.normal(size=(60, 60)) / 8
    )
    train = np.arange(400) % 2 == 0
    default, plain = (
        SharedKernelClassifier(covariance_prior=p, tol=1e-3, random_state=0).fit(X[train], y[train])
        for p in ("auto", None)
    )
    accuracy, without = (model.score(X[~train], y[~train]) for model in (default, plain))
    assert accuracy > without + 0.05
    densities = [model.models_[0].score(X[~train], y[~train]) for model in (default, plain)]
    assert densities[0] > -100.0 > -1000.0 > densities[1]


@pytest.mark.parametrize("seed", [0, 2, 8, 11])
def test_the_prior_of_weighted_rows_is_that_of_repeated_ones(seed: int) -> None:
    """Its strength is the one with which rows, left out in turn, are best assigned to their classes."""
    random = np.random.default_rng(seed)
    y = np.repeat([0, 1, 2], 20)
    X = random.normal(size=(60, 4)) @ random.normal(size=(4, 4)) + random.normal(size=(3, 4))[y]
    times = random.choice([1, 1, 1, 6], size=60)
    weighted = SharedKernelClassifier(random_state=0).fit(X, y, sample_weight=times.astype(float))
    repeated = SharedKernelClassifier(random_state=0).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    assert weighted.n_kernels_ == repeated.n_kernels_ == 3
    assert_allclose(weighted.covariance_prior_[0], repeated.covariance_prior_[0], rtol=1e-6)
