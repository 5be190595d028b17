"""The drop-in beside scikit-learn's own Gaussian mixture: the same numbers, warnings and errors."""

from __future__ import annotations

import tracemalloc
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture as Theirs
from sklearn.utils.fixes import parse_version

from skmix import GaussianMixture, load
from skmix.engine.model import Parameters, Status
from skmix.estimators import gaussian

each_type = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)

# Before 1.7 scikit-learn's mixtures had no lower_bounds_, no float32 and other words for an error.
OLDER = parse_version(sklearn.__version__) < parse_version("1.7")
RELATIVE = 1e-8


def overlapping(n_rows: int = 400) -> np.ndarray:
    """Return rows of three clusters that overlap, in three features of different scales."""
    random = np.random.RandomState(0)
    centres = random.normal(scale=2.0, size=(3, 3))
    X = centres[random.randint(3, size=n_rows)] + random.normal(size=(n_rows, 3))
    return X @ np.array([[1.0, 0.3, 0.0], [0.0, 1.0, -0.2], [0.1, 0.0, 1.0]]) * [1.0, 5.0, 0.2] + [
        10.0,
        0.0,
        -3.0,
    ]


def precisions(covariance_type: str, n_components: int = 3) -> np.ndarray:
    """Return starting precisions in scikit-learn's shapes."""
    variances = np.array([1.5, 30.0, 0.05])
    matrix = np.diag(1.0 / variances)
    return {
        "full": np.stack([matrix] * n_components),
        "tied": matrix,
        "diag": np.stack([1.0 / variances] * n_components),
        "spherical": np.full(n_components, 0.2),
    }[covariance_type]


def both(X: np.ndarray, **settings: Any) -> tuple[GaussianMixture, Theirs]:
    """Return both estimators, fitted on the same rows with the same settings."""
    return GaussianMixture(**settings).fit(X), Theirs(**settings).fit(X)


def assert_same(ours: GaussianMixture, theirs: Theirs, X: np.ndarray, rtol: float = RELATIVE) -> None:
    """Compare every fitted attribute and every method's answer."""
    assert ours.n_iter_ == theirs.n_iter_
    assert ours.converged_ == theirs.converged_
    assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, rel=rtol)
    if not OLDER:
        assert_allclose(ours.lower_bounds_, theirs.lower_bounds_, rtol=rtol)
    for name in ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_"):
        expected = getattr(theirs, name)
        found = getattr(ours, name)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max(), err_msg=name)
    assert_array_equal(ours.predict(X), theirs.predict(X))
    assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-5, atol=rtol)
    assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=rtol)
    assert ours.score(X) == pytest.approx(theirs.score(X), rel=rtol)
    assert ours.bic(X) == pytest.approx(theirs.bic(X), rel=rtol)
    assert ours.aic(X) == pytest.approx(theirs.aic(X), rel=rtol)


# ---------------------------------------------------------------- the same fit


@each_type
@pytest.mark.parametrize("init_params", ["kmeans", "random"])
@pytest.mark.parametrize("n_init", [1, 3])
def test_same_fit_from_the_same_kind_of_start(covariance_type: str, init_params: str, n_init: int) -> None:
    X = load_iris().data
    settings = {
        "n_components": 3,
        "covariance_type": covariance_type,
        "init_params": init_params,
        "n_init": n_init,
        "max_iter": 400,
        "random_state": 1,
    }
    assert_same(*both(X, **settings), X)


@each_type
def test_same_fit_from_a_given_start(covariance_type: str) -> None:
    X = overlapping()
    settings = {
        "n_components": 3,
        "covariance_type": covariance_type,
        "weights_init": [0.2, 0.3, 0.5],
        "means_init": X[:3],
        "precisions_init": precisions(covariance_type),
        "tol": 1e-6,
        "max_iter": 1000,
    }
    ours, theirs = both(X, random_state=0, **settings)
    assert theirs.n_iter_ > 5
    assert_same(ours, theirs, X)
    (rows, components), (their_rows, their_components) = ours.sample(50), theirs.sample(50)
    assert_array_equal(components, their_components)
    assert_allclose(rows, their_rows, rtol=1e-6, atol=1e-6)


# ---------------------------------------------------------------- fitting again and again


@each_type
def test_warm_start_goes_on_as_theirs_does(covariance_type: str) -> None:
    X = overlapping()
    pair = [
        estimator(3, covariance_type=covariance_type, warm_start=True, max_iter=2, tol=1e-5, random_state=0)
        for estimator in (GaussianMixture, Theirs)
    ]
    for _ in range(8):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            ours, theirs = (estimator.fit(X) for estimator in pair)
        assert ours.converged_ == theirs.converged_
        assert ours.n_iter_ == theirs.n_iter_
        assert ours.lower_bound_ == pytest.approx(theirs.lower_bound_, rel=RELATIVE)
        assert_allclose(ours.means_, theirs.means_, rtol=RELATIVE)
        assert_allclose(ours.covariances_, theirs.covariances_, rtol=RELATIVE, atol=RELATIVE)


# ---------------------------------------------------------------- warnings, errors and words


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_collapsed_components_raise_what_theirs_raise(covariance_type: str) -> None:
    """Without reg_covar a start on equal rows has no covariance."""
    X = np.repeat([[0.0, 1.0], [4.0, 5.0]], 5, axis=0)
    settings = {"n_components": 2, "covariance_type": covariance_type, "reg_covar": 0.0, "random_state": 0}
    with pytest.raises(ValueError, match="ill-defined empirical covariance") as expected:
        Theirs(**settings).fit(X)
    ours = GaussianMixture(**settings)
    with pytest.raises(ValueError, match="ill-defined empirical covariance") as found:
        ours.fit(X)
    assert OLDER or str(found.value) == str(expected.value)
    assert not hasattr(ours, "means_")


@each_type
def test_components_without_rows_and_far_rows(covariance_type: str) -> None:
    """No warning, which is an error here, and probabilities that sum to one."""
    X = np.tile([[0.0, 0.0], [1.0, 1.0]], (20, 1))
    far = [[1e6, 1e6], [1e30, -1e30], [1e300, 1e300], [-1e300, 0.0]]
    for dtype in (np.float64, np.float32):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = GaussianMixture(5, covariance_type=covariance_type, random_state=0).fit(X.astype(dtype))
        assert model.weights_.min() < 1e-6
        for rows in (X, np.array(far), np.array(far[:2], dtype=np.float32)):
            assert_allclose(model.predict_proba(rows).sum(axis=1), 1.0, rtol=1e-6)
            assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.parametrize("init_params", ["k-means++", "random_from_data"])
@pytest.mark.parametrize("seed", [0, 1])
def test_starts_from_single_rows_without_regularisation_are_theirs(init_params: str, seed: int) -> None:
    """Variances of one row are rounding errors, and so is the fit from them: only the start is determined."""
    X = np.random.default_rng(seed).normal(size=(100, 3))
    settings: dict[str, Any] = {
        "n_components": 3,
        "reg_covar": 0.0,
        "init_params": init_params,
        "random_state": 0,
    }
    ours, theirs = both(X, covariance_type="tied", **settings)
    assert_same(ours, theirs, X, rtol=1e-6)
    for covariance_type in ("diag", "spherical"):
        settings["covariance_type"] = covariance_type
        ours, theirs = both(X, max_iter=0, **settings)
        assert_allclose(ours.weights_, theirs.weights_, rtol=1e-6)
        assert_allclose(ours.means_, theirs.means_, rtol=1e-6)
        assert (ours.covariances_ > 0.0).all()
        assert (ours.covariances_ < 1e-12).all()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            ours = GaussianMixture(**settings).fit(X)
        assert np.isfinite(ours.lower_bound_)
        assert_allclose(ours.weights_.sum(), 1.0)
        assert_allclose(ours.weights_ @ ours.means_, X.mean(axis=0), atol=1e-6)


def test_single_precision_that_overflows_is_refused() -> None:
    X = overlapping(50)
    with pytest.raises(ValueError, match="squares overflow float32"):
        GaussianMixture(2).fit((1e25 * X).astype(np.float32))
    with pytest.raises(ValueError, match="out of the range of float32"):
        GaussianMixture(2, reg_covar=0.0).fit((1e-22 * X).astype(np.float32))
    model = GaussianMixture(2, random_state=0).fit((1e15 * X).astype(np.float32))
    assert np.isfinite(model.covariances_).all()
    assert np.isfinite(model.precisions_).all()


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_covariances_rounded_to_single_precision_stay_positive_definite(
    covariance_type: str, tmp_path: Path
) -> None:
    X = overlapping(100)
    X[:, 1] = X[:, 0] + 1e-5 * X[:, 2]
    model = GaussianMixture(2, covariance_type=covariance_type, reg_covar=1e-12, random_state=0)
    model.fit(X.astype(np.float32))
    assert model.covariances_.dtype == np.float32
    matrices = model.covariances_.reshape(-1, 3, 3).astype(np.float64)
    assert np.linalg.eigvalsh(matrices).min() > 0.0
    assert np.isfinite(model.sample(3)[0]).all()
    model.save(tmp_path / "model.skmix")
    assert_array_equal(load(tmp_path / "model.skmix").predict(X), model.predict(X))


def test_weights_of_a_start_that_fails_at_once_sum_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of scikit-learn's starts from single rows are shares of all rows."""

    def start(self: GaussianMixture, X: np.ndarray, random_state: Any) -> Parameters:
        return Parameters(np.array([[0.1], [0.2]]), np.ones((2, 2)), np.stack([np.eye(2)] * 2))

    monkeypatch.setattr(GaussianMixture, "_start", start)
    with pytest.warns(ConvergenceWarning):
        model = GaussianMixture(2, reg_covar=0.0).fit(np.ones((10, 2)))
    assert_allclose(model.weights_, [1.0 / 3.0, 2.0 / 3.0])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fit_does_not_copy_the_rows(dtype: type) -> None:
    X = np.random.default_rng(0).normal(size=(150_000, 16)).astype(dtype)
    model = GaussianMixture(2, init_params="random_from_data", tol=1e9, random_state=0)
    model.fit(X)  # what is loaded for the first fit is not counted
    tracemalloc.start()
    try:
        model.fit(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < X.nbytes / 2


def test_a_failed_start_serves_only_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    X = overlapping(60)
    fit, seen = gaussian.fit, []

    def failing(*given: Any, **settings: Any) -> Any:
        """Have the first start fail, and look much better than the others."""
        result = fit(*given, **settings)
        status, path = result.status.copy(), list(result.path)
        status[0], path[0] = Status.FAILED, path[0] + 1e6
        seen.append(result.parameters)
        return replace(result, status=status, path=path)

    monkeypatch.setattr(gaussian, "fit", failing)
    model = GaussianMixture(2, n_init=2, init_params="random_from_data", random_state=0).fit(X)
    assert_allclose(model.means_, seen[0].means[1], rtol=1e-12)
    with pytest.warns(ConvergenceWarning):
        alone = GaussianMixture(2, random_state=0).fit(X)
    assert_allclose(alone.means_, seen[1].means[0], rtol=1e-12)
