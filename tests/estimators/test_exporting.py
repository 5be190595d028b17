"""What onnxruntime computes from an exported model is what the estimator computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture

TYPES = ["full", "tied", "diag", "spherical"]


def rows(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three overlapping classes, features of unlike scale and place."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    X = rng.normal(size=(n_rows, 4)) + 0.8 * y[:, None]
    return X * [1.0, 0.01, 100.0, 1.0] + [0.0, 5.0, 1e4, -3.0], y


X, Y = rows(300, 0)
NEW = rows(200, 1)[0]


@pytest.fixture(scope="module")
def runtime() -> Any:
    pytest.importorskip("onnx", reason="onnx is not installed")
    return pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def run(runtime: Any, model: Any, X: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a model computes of rows, by the names of its outputs."""
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(
        zip([output.name for output in session.get_outputs()], session.run(None, {"X": X}), strict=True)
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("groups", [None, [[0, 2], [3]], [[3, 1, 0, 2]]])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_labels_and_probabilities_of_classifiers(
    covariance_type: str, groups: Any, dtype: type, runtime: Any
) -> None:
    labels = np.array(["one", "zwei", "três"])[Y]
    model = SharedKernelClassifier(
        5, covariance_type=covariance_type, feature_sets=groups, random_state=0
    ).fit(X, labels)
    new = NEW.astype(dtype)
    out = run(runtime, model.to_onnx(dtype=dtype), new)
    assert list(out) == ["label", "probabilities", "log_density"]
    expected = model.predict_proba(new)
    assert np.mean(expected.max(axis=1) < 0.99) > 0.05, "the classes should overlap"
    assert out["label"].tolist() == model.predict(new).tolist()
    assert out["probabilities"].dtype == out["log_density"].dtype == dtype
    np.testing.assert_allclose(
        out["probabilities"], expected, rtol=0, atol=1e-12 if dtype is np.float64 else 1e-7
    )
    np.testing.assert_allclose(
        out["log_density"], model.score_samples(new), rtol=1e-12 if dtype is np.float64 else 1e-6
    )


@pytest.mark.parametrize("covariance_type", TYPES)
def test_responsibilities_of_mixtures(covariance_type: str, runtime: Any) -> None:
    model = SharedKernelMixture(4, covariance_type=covariance_type, random_state=0).fit(X, Y)
    out = run(runtime, model.to_onnx(), NEW)
    assert list(out) == ["responsibilities", "log_density"]
    np.testing.assert_allclose(out["responsibilities"], model.transform(NEW), rtol=0, atol=1e-12)
    np.testing.assert_allclose(out["log_density"], model.score_samples(NEW), rtol=1e-12)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_components_of_the_drop_in(covariance_type: str, runtime: Any) -> None:
    model = GaussianMixture(4, covariance_type=covariance_type, random_state=0).fit(X)
    out = run(runtime, model.to_onnx(), NEW)
    np.testing.assert_array_equal(out["label"], model.predict(NEW))
    np.testing.assert_allclose(out["probabilities"], model.predict_proba(NEW), rtol=0, atol=1e-12)
    np.testing.assert_allclose(out["log_density"], model.score_samples(NEW), rtol=1e-12)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array([-7, 2**40, 2**41]), np.int64),
        (np.array([1, 2, 255], dtype=np.uint8), np.int64),
        (np.array([0.0, 1.0, 2.0]), np.float64),
        (np.array([False, True, True]), np.bool_),
        (np.array(["a", "b", "ü"]), object),
        (np.array(["a", "b", "ü"], dtype=object), object),
    ],
)
def test_labels_of_every_type(labels: np.ndarray, kind: Any, runtime: Any) -> None:
    model = SharedKernelClassifier(random_state=0).fit(X, labels[Y])
    out = run(runtime, model.to_onnx(), NEW)
    assert out["label"].dtype == kind
    assert out["label"].tolist() == model.predict(NEW).tolist()


@pytest.mark.parametrize("covariance_type", TYPES)
def test_far_rows_do_not_underflow(covariance_type: str, runtime: Any) -> None:
    """Far out every density is zero as a number; their logarithms still tell the classes apart."""
    model = SharedKernelClassifier(covariance_type=covariance_type, random_state=0).fit(X, Y)
    far = X.mean(axis=0) + (NEW - X.mean(axis=0)) * 1e3
    assert np.mean(model.score_samples(far) < -1e3) > 0.9
    out = run(runtime, model.to_onnx(), far)
    assert np.all(np.isfinite(out["probabilities"]))
    assert out["label"].tolist() == model.predict(far).tolist()
    np.testing.assert_allclose(out["probabilities"], model.predict_proba(far), rtol=0, atol=1e-6)
    farthest = np.full((2, 4), [[1e200], [-1e308]])
    assert np.all(np.isfinite(run(runtime, model.to_onnx(), farthest)["probabilities"]))


def test_kernels_and_classes_of_weight_zero(runtime: Any) -> None:
    """A class far from its nearest kernels that have weight must not become −inf or NaN."""
    start = {
        "means": np.array([[0.0], [100.0]]),
        "covariances": np.ones((2, 1, 1)),
        "weights": np.array([[1.0, 0.0], [0.0, 1.0]]),
    }
    x = np.r_[np.linspace(-1, 1, 20), np.linspace(99, 101, 20)][:, None]
    y = np.repeat(["left", "right"], 20)
    model = SharedKernelClassifier(init=start).fit(x, y)
    assert np.count_nonzero(model.weights_) == 2
    new = np.linspace(-50, 150, 41)[:, None]
    out = run(runtime, model.to_onnx(), new)
    np.testing.assert_allclose(out["probabilities"], model.predict_proba(new), rtol=0, atol=1e-12)
    never = SharedKernelClassifier(init=start, priors=[0.0, 1.0]).fit(x, y)
    out = run(runtime, never.to_onnx(), new)
    assert set(out["label"]) == {"right"}
    # The exponential of onnxruntime 1.20 is never zero, but at its least no normal number.
    tiny = np.finfo(np.float64).tiny
    np.testing.assert_allclose(out["probabilities"], never.predict_proba(new), rtol=0.0, atol=tiny)


def test_rows_with_gaps_have_no_probabilities_rather_than_wrong_ones(runtime: Any) -> None:
    model = SharedKernelClassifier(feature_sets=[[0], [1, 2]], random_state=0).fit(X, Y)
    gaps = NEW[:3].copy()
    gaps[0, 1] = gaps[1, 3] = np.nan  # column 3 is in no group
    out = run(runtime, model.to_onnx(), gaps)
    assert np.isnan(out["probabilities"]).all(axis=1).tolist() == [True, False, False]
    assert np.isnan(out["log_density"]).tolist() == [True, False, False]


def test_a_file_is_the_same_model(runtime: Any, tmp_path: Path) -> None:
    model = SharedKernelClassifier(random_state=0).fit(X, Y)
    returned = model.to_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == returned.SerializeToString(deterministic=True)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["n", 4]
    assert session.run(["label"], {"X": NEW})[0].tolist() == model.predict(NEW).tolist()


def test_bad_requests(runtime: Any) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SharedKernelClassifier().to_onnx()
    model = SharedKernelClassifier(random_state=0).fit(X, Y)
    with pytest.raises(ValueError, match="float64 or float32, got float16"):
        model.to_onnx(dtype=np.float16)
    model.models_[0].classes_ = np.array([1, "a", None], dtype=object)
    with pytest.raises(TypeError, match="no type for labels like 1"):
        model.to_onnx()


def test_without_onnx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    model = SharedKernelMixture(1).fit([[0.0], [1.0], [2.0]])
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'^Export to ONNX needs onnx: pip install "\.\[onnx\]"'):
        model.to_onnx()
