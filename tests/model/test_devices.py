"""Estimators on devices and on arrays of other libraries: the same numbers as NumPy's, as NumPy arrays."""

from __future__ import annotations

import warnings
from itertools import product
from pathlib import Path
from typing import Any

import array_api_strict
import dask.array as dask_array
import numpy as np
import pandas as pd
import pytest
from libraries import LIBRARIES, each_library, needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from skmix import (
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    load,
    open_rows,
)
from skmix.model import devices

X, y = load_iris(return_X_y=True)


def named(library: str) -> str:
    """Return the name of the device that a library's tensors stay on: 'cpu' would mean NumPy."""
    return "cpu:0" if library == "torch" else "cuda"


def with_gaps(share: float) -> np.ndarray:
    """Return rows with missing values, without ties, and of very different features."""
    rng = np.random.default_rng(3)
    rows = (X + 1e-3 * rng.normal(size=X.shape)) * [100.0, 1.0, 1e-3, 1.0] + [1e4, 0.0, 0.0, -5.0]
    rows[rng.random(X.shape) < share] = np.nan
    rows[np.isnan(rows).all(axis=1), 1] = 3.0
    return rows


@each_library
def test_a_classifier_takes_tensors_and_returns_arrays(library: str) -> None:
    make = LIBRARIES[library]
    rows, labels = make(X), make(y)
    settings: dict[str, Any] = {"random_state": 0, "tol": 1e-3, "reject_below": 0.05, "outlier_label": -1}
    ours = SharedKernelClassifier(4, **settings).fit(X, y)
    theirs = SharedKernelClassifier(4, device=named(library), **settings).fit(rows, labels)
    assert_allclose(theirs.threshold_, ours.threshold_, rtol=1e-9)
    for name in ("classes_", "class_prior_", "weights_", "means_", "covariances_", "log_likelihood_path_"):
        assert isinstance(getattr(theirs, name), np.ndarray)
        assert_allclose(getattr(theirs, name), getattr(ours, name), rtol=1e-9)
    for name in ("predict", "predict_proba", "predict_log_proba", "class_log_likelihood", "score_samples"):
        got, expected = getattr(theirs, name)(rows), getattr(ours, name)(X)
        assert isinstance(got, np.ndarray)
        assert got.dtype == expected.dtype
        assert_allclose(got, expected, rtol=1e-8, atol=1e-12)
    assert theirs.score(rows, labels) == theirs.score(X, y) == ours.score(X, y)
    assert_allclose(theirs.models_[0].bic(rows, labels), ours.models_[0].bic(X, y), rtol=1e-10)
    with pytest.raises(ValueError, match=r"2 features.* 4 features"):
        theirs.score_samples(rows[:, :2])
    whole = SharedKernelMixture(2, device=named(library), random_state=0)
    whole.fit(make((10 * X).astype(np.int64)))
    assert_allclose(whole.means_, SharedKernelMixture(2, random_state=0).fit(10 * X // 1).means_)


@each_library
def test_rows_near_the_kernels_and_far_from_them_keep_their_places(library: str) -> None:
    """Both kinds in turn; far ones are computed with the others of their kind."""
    make, rows = LIBRARIES[library], X * np.where(np.arange(len(X)) % 3 == 1, 1e4, 1.0)[:, None]
    settings: dict[str, Any] = {"n_kernels": 3, "random_state": 0}
    ours = SharedKernelMixture(**settings).fit(X, y)
    theirs = SharedKernelMixture(device=named(library), **settings).fit(make(X), make(y))
    for call in ("score_samples", "predict_proba", "class_log_likelihood"):
        assert_allclose(getattr(theirs, call)(make(rows)), getattr(ours, call)(rows), rtol=1e-6)


@each_library
def test_every_start_of_narrow_kernels_far_apart_has_its_own_tied_covariance(library: str) -> None:
    """Starts differ in which of three clusters, each of two halves, gets two kernels."""
    random = np.random.default_rng(1)
    members, halves = random.integers(0, 3, 300), random.integers(0, 2, 300)
    rows = np.array([[0.0, 0.0, 0.0], [1e6, 0.0, 3.0], [0.0, -2e6, 1.0]])[members]
    rows += random.normal(size=(300, 3)) * [0.3, 0.03, 0.1]
    rows[np.arange(300), members] += 5.0 * halves
    settings: dict[str, Any] = {"n_kernels": 4, "covariance_type": "tied", "init": "class", "n_init": 4}
    settings |= {"variance_floor": 1e-18, "max_iter": 12, "random_state": 0}
    make = LIBRARIES[library]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        ours = SharedKernelMixture(**settings).fit(rows, members)
        theirs = SharedKernelMixture(device=named(library), **settings).fit(make(rows), make(members))
    expected = ours.start_log_likelihoods_
    assert np.ptp(expected) > 100.0
    assert_allclose(theirs.start_log_likelihoods_, expected, rtol=1e-5)


@pytest.mark.parametrize("wide", [False, True])
@each_library
def test_the_choice_of_a_classifier(library: str, wide: bool) -> None:
    make, rows = LIBRARIES[library], with_gaps(0.0)
    if wide:  # so many features are always reduced
        rng = np.random.default_rng(0)
        rows = X @ rng.normal(size=(4, 101)) + 0.1 * rng.normal(size=(len(X), 101))
    settings: dict[str, Any] = {"n_kernels": 3, "covariance_type": "full", "cv": 2, "random_state": 0}
    settings |= {"n_members": 2, "kernels": "own" if wide else "shared"}
    # One strength of the prior for all candidates.
    estimator = SharedKernelClassifier(covariance_prior="weak", tol=0.1)
    ours = SharedKernelClassifierCV(estimator, **settings).fit(rows, y)
    theirs = SharedKernelClassifierCV(estimator, device=named(library), **settings).fit(make(rows), make(y))
    assert theirs.best_params_ == ours.best_params_
    if wide:
        assert theirs.feature_map_.matrix is not None
    assert_allclose(theirs.cv_results_["mean_test_score"], ours.cv_results_["mean_test_score"], rtol=1e-6)
    assert_allclose(theirs.predict_proba(make(rows)), ours.predict_proba(rows), atol=1e-6)
    assert_array_equal(theirs.predict(make(rows)), ours.predict(rows))
    assert theirs.score(make(rows), make(y)) == ours.score(rows, y)


@each_library
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: np.where(np.arange(4) == 1, np.nan, rows), "Feature 1 of X has no value"),
        (lambda rows: np.where(rows == rows.max(), np.inf, rows), "infinity"),
        (lambda rows: rows[:, 0], "2D"),
        (lambda rows: rows[:149], "149 rows but y has 150"),
        (lambda rows: rows[:1], "at least 2"),
    ],
)
def test_bad_rows_are_refused(library: str, change: Any, words: str) -> None:
    make = LIBRARIES[library]
    with pytest.raises(ValueError, match=words):
        SharedKernelClassifier(device=named(library)).fit(make(change(X)), make(y))


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("cpu/float32", "float32 is for accelerators only"),
        ("cpu/tf32", "tf32 is for accelerators only"),
        ("cuda/half", "is not of the form"),
        ("/float32", "is not of the form"),
        pytest.param("nonsense", "device='nonsense' cannot be used", marks=needs_torch),
        pytest.param("meta", "device='meta' cannot be used", marks=needs_torch),
        pytest.param("cuda", "sees 0 CUDA device", marks=needs_torch),
    ],
)
def test_devices_that_cannot_be_used(device: str, message: str) -> None:
    if device == "cuda" and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    model, gaps = SharedKernelClassifier(3, device=device), with_gaps(0.1)
    # Also where a fit would run on the host.
    for fit in (
        lambda: model.fit(X, y),
        lambda: model.fit(gaps, y),
        lambda: model.fit(open_rows(gaps, label=y)),
        lambda: model.partial_fit(gaps, y, classes=np.unique(y)),
    ):
        with pytest.raises(ValueError, match=message):
            fit()


def test_a_model_from_another_machine_is_scored_on_the_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without PyTorch, and warned of once; a fit would still be refused."""

    def room_on(device: str) -> float:
        raise ImportError(f"device={device!r} needs PyTorch.")

    monkeypatch.setattr(devices, "room_on", room_on)
    monkeypatch.setattr(devices, "send", None)
    devices._is_here.cache_clear()
    model = SharedKernelMixture(2, random_state=0).fit(X)
    expected = model.score_samples(X)
    model.set_params(device="cuda").save(tmp_path / "m")
    back = load(tmp_path / "m")
    with pytest.warns(UserWarning, match="device='cuda' needs PyTorch. Rows are scored on the CPU."):
        assert_array_equal(back.score_samples(X), expected)
    assert_array_equal(back.score_samples(open_rows(X)), expected)
    devices._is_here.cache_clear()


@needs_torch
@pytest.mark.parametrize(("kind", "room"), [("array", 0), ("parquet", 3000)])
def test_rows_that_a_device_has_no_room_for(
    kind: str, room: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pieces of 40 rows, of which some or none stay on the device.
    monkeypatch.setattr("skmix.engine.device.streamed.PIECE_BYTES", 40 * 32)
    monkeypatch.setattr("skmix.engine.device.streamed.room_on", lambda device: room)
    monkeypatch.setattr("skmix.model.devices.room_on", lambda device: 0)
    rows, labels = with_gaps(0.0), np.where(np.arange(len(y)) % 7 == 0, -1, y)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(X))
    weights[5] = 0.0
    given: Any = rows
    if kind == "parquet":
        pd.DataFrame(rows, columns=list("abcd")).to_parquet(tmp_path / "rows.parquet")
        given = open_rows(tmp_path / "rows.parquet", chunk_rows=64)
    settings: dict[str, Any] = {"random_state": 0, "tol": 0.1, "reject_below": 0.1}
    ours = SharedKernelClassifier(4, **settings).fit(rows, labels, weights)
    theirs = SharedKernelClassifier(4, device="cpu:0", **settings).fit(given, labels, weights)
    assert_allclose(theirs.log_likelihood_path_, ours.log_likelihood_path_, rtol=1e-9)
    assert_allclose(theirs.models_[0].means_, ours.models_[0].means_, rtol=1e-9)
    assert_allclose(theirs.threshold_, ours.threshold_, rtol=1e-9)
    assert_allclose(theirs.predict_proba(given), ours.predict_proba(rows), atol=1e-9)
    # Labels go with the pieces.
    assert theirs.score(given, y) == ours.score(rows, y)


@needs_torch
def test_rows_that_a_device_cannot_have_are_refused() -> None:
    model = SharedKernelClassifier(3, device="cpu:0", random_state=0)
    with pytest.raises(ValueError, match="cannot be combined with Dask collections"):
        model.fit(dask_array.from_array(X, chunks=50), dask_array.from_array(y, chunks=50))


def test_arrays_of_other_libraries_are_taken_in_through_dlpack() -> None:
    """On the CPU they become NumPy arrays, as a tensor does unless a PyTorch device is named."""
    settings: dict[str, Any] = {"init": {"means": X[[0, 60, 110]]}, "tol": 1e-3}
    ours = SharedKernelClassifier(3, **settings).fit(X, y)
    libraries = [array_api_strict.asarray] + ([] if torch is None else [torch.as_tensor])
    for device, make in product((None, "cpu"), libraries):
        rows = make(X)
        theirs = SharedKernelClassifier(3, device=device, **settings).fit(rows, make(y))
        assert_array_equal(theirs.means_, ours.means_)
        assert_array_equal(theirs.predict_proba(rows), ours.predict_proba(X))
        assert theirs.score(rows, make(y)) == ours.score(X, y)
        assert isinstance(theirs.predict(rows), np.ndarray)


# ---------------------------------------------------------------- rounding

one_pass = pytest.mark.filterwarnings("ignore:The best of 1 starts did not converge")


def of_type(covariances: np.ndarray, covariance_type: str) -> np.ndarray:
    """Return full covariances (K, M, M), multiples of the identity, as those of a type."""
    diagonals = np.einsum("kii->ki", covariances)
    kinds = {"full": covariances, "tied": covariances[0], "diag": diagonals, "spherical": diagonals[:, 0]}
    return kinds[covariance_type]


def start_at(means: np.ndarray, covariances: np.ndarray, device: str, **settings: Any) -> SharedKernelMixture:
    """Return an estimator for one pass of EM on a device, from a start with equal weights."""
    start = {"means": means, "covariances": covariances, "weights": np.full(len(means), 1.0 / len(means))}
    settings = {"max_iter": 1, "tol": 0.0, "variance_floor": 0.0, "covariance_prior": None} | settings
    return SharedKernelMixture(len(means), init=start, device=device, **settings)


def relative_error(covariance: np.ndarray, rows: np.ndarray) -> float:
    """Return how far a covariance is from that of rows, relative to it in every direction."""
    rows = rows.astype(np.longdouble)
    differences = rows - rows.mean(axis=0)
    expected = (differences.T @ differences / len(rows)).astype(float)
    whitener = np.linalg.inv(np.linalg.cholesky(expected))
    return float(np.abs(whitener @ (covariance - expected) @ whitener.T).max())


@needs_torch
@one_pass
@pytest.mark.parametrize("opened", [False, True], ids=["array", "blocks"])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_single_precision_finds_narrow_kernels_that_overlap(covariance_type: str, opened: bool) -> None:
    """Terms of their log-densities are about a million: rounded to float32, they are wrong by about 0.1."""
    rng = np.random.default_rng(0)
    deviations = np.array([0.004, 0.004, 1.0 if covariance_type != "tied" else 0.004])
    means = np.array([[4.0, -3.0], [4.006, -3.0], [-4.0, 3.0]])
    component = rng.integers(3, size=1500)
    X = means[component] + rng.normal(size=(1500, 2)) * deviations[component, None]
    covariances = np.eye(2) * deviations[:, None, None] ** 2
    joint = np.stack([multivariate_normal(m, P).logpdf(X) for m, P in zip(means, covariances, strict=True)])
    joint -= np.log(3.0)
    shares = np.exp(joint - logsumexp(joint, axis=0))
    expected = shares @ X / shares.sum(axis=1)[:, None]

    rows = open_rows(X, chunk_rows=400) if opened else X
    model = start_at(
        means, of_type(covariances, covariance_type), "cpu:0/float32", covariance_type=covariance_type
    ).fit(rows)
    found = np.asarray(model.log_likelihood_path_).sum()
    assert_allclose(found / len(X), logsumexp(joint, axis=0).mean(), atol=1e-4)
    assert_allclose(model.weights_.ravel(), shares.mean(axis=1), atol=1e-3)
    assert np.abs((model.means_ - expected) / deviations[:, None]).max() < 2e-3


@needs_torch
@one_pass
@pytest.mark.parametrize(
    ("device", "inflation", "distance", "most"),
    [
        ("cpu:0", 1e6, 1000.0, 1e-6),
        ("cpu:0", 1e4, 300.0, 1e-8),
        ("cpu:0/float32", 1e2, 300.0, 1e-4),
        ("cpu:0/float32", 1e4, 30.0, 1e-4),
        ("cpu:0/float32", 1e6, 3000.0, 1e-4),
    ],
)
def test_correlated_kernels_far_from_the_mean_of_the_rows_keep_their_digits(
    device: str, inflation: float, distance: float, most: float
) -> None:
    """Moments about the origin lose digits in the direction of the smallest eigenvalue first."""
    rng = np.random.default_rng(0)
    correlation = np.sqrt(1.0 - 1.0 / inflation)
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    means = distance * np.array([[1.0, 1.0], [-1.0, -1.0]])
    component = rng.integers(2, size=2000)
    X = means[component] + rng.normal(size=(2000, 2)) @ np.linalg.cholesky(covariance).T
    model = start_at(means, np.stack([covariance, covariance]), device).fit(X)
    assert max(relative_error(model.covariances_[k], X[component == k]) for k in range(2)) < most


@needs_torch
@one_pass
def test_single_precision_finds_a_narrow_kernel_from_a_wide_start() -> None:
    """The kernel that enters the pass loses no digits; the one that leaves it does."""
    rng = np.random.default_rng(0)
    means, deviations = np.array([[6.0, -5.0], [-6.0, 5.0]]), np.array([0.003, 0.3])
    component = rng.integers(2, size=1000)
    X = means[component] + rng.normal(size=(1000, 2)) * deviations[component, None]
    model = start_at(means, np.stack([np.eye(2), np.eye(2)]), "cpu:0/float32").fit(X)
    assert max(relative_error(model.covariances_[k], X[component == k]) for k in range(2)) < 1e-4
