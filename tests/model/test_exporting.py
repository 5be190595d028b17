"""What onnxruntime computes from an exported model is what the estimator computes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixtureCV,
    open_rows,
)
from skmix.search.features import FeatureMap

pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

TYPES = ["full", "tied", "diag", "spherical"]
SEED = {"random_state": 0}


def rows(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three overlapping classes, features of unlike scale and place."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    X = rng.normal(size=(n_rows, 4)) + 0.8 * y[:, None]
    return X * [1.0, 0.01, 100.0, 1.0] + [0.0, 5.0, 1e4, -3.0], y


pytestmark = pytest.mark.filterwarnings("ignore:The chosen model did not converge")
X, Y = rows(300, 0)
NEW = rows(200, 1)[0]


def run(model: Any, **inputs: np.ndarray) -> dict[str, np.ndarray]:
    """Return what a model computes, by the names of its outputs."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


@pytest.mark.parametrize(
    ("options", "dtype"),
    [
        *(({"covariance_type": kind}, np.float32) for kind in TYPES),
        ({"covariance_type": "tied", "feature_sets": [[3, 1, 0, 2]]}, np.float64),
        ({"tail": "t", "degrees": 3.0, "feature_sets": [[0, 2], [3]], "tol": 0.01}, np.float64),
    ],
)
def test_labels_and_probabilities_of_classifiers(options: dict[str, Any], dtype: Any) -> None:
    """tests/matrix exports classifiers and mixtures of every structure, tail and prior."""
    model = SharedKernelClassifier(5, **options, **SEED).fit(X, np.array(["one", "zwei", "três"])[Y])
    model.calibrate(X, np.array(["one", "zwei", "três"])[Y])  # sets a temperature
    new, double = NEW.astype(dtype), dtype is np.float64
    out = run(model.to_onnx(dtype=dtype), X=new)
    assert list(out) == ["label", "probabilities", "log_density"]
    expected = model.predict_proba(new)
    assert np.mean(expected.max(axis=1) < 0.99) > 0.05, "the classes should overlap"
    assert out["label"].tolist() == model.predict(new).tolist()
    assert out["probabilities"].dtype == out["log_density"].dtype == dtype
    assert_allclose(out["probabilities"], expected, rtol=0, atol=1e-12 if double else 1e-7)
    assert_allclose(out["log_density"], model.score_samples(new), rtol=1e-12 if double else 1e-6)


@pytest.mark.parametrize("kind", [GaussianMixture, BayesianGaussianMixture])
def test_components_of_the_drop_ins(kind: Any) -> None:
    model = kind(n_components=4, max_iter=300, **SEED).fit(X)
    out = run(model.to_onnx(), X=NEW)
    assert_array_equal(out["label"], model.predict(NEW))
    assert_allclose(out["probabilities"], model.predict_proba(NEW), rtol=0, atol=1e-12)
    assert_allclose(out["log_density"], model.score_samples(NEW), rtol=1e-12)


# ---------------------------------------------------------------- features of searches

POWERS = np.array([1.0, 0.0, 2.0, 0.4])
# The first has a piece without width, and none of them has slope one.
CURVES = np.array(
    [
        [[-1.0, 0.0, 0.0, 1.5], [-2.0, -1.0, 1.0, 2.0], [-0.5, 0.1, 0.2, 0.3], [-3.0, 0.0, 1.0, 3.0]],
        [[-2.0, 0.0, 0.0, 1.0], [-1.0, 0.0, 0.1, 3.0], [0.0, 0.2, 1.2, 1.3], [-1.0, 0.5, 1.0, 9.0]],
    ]
)
PROJECTION = (np.array([0.5, -1.0, 0.0, 2.0]), np.random.default_rng(1).normal(size=(4, 2)))
UNITS = (X.mean(axis=0), X.std(axis=0))
MAPS = {
    "units": FeatureMap(*UNITS, np.ones(4), None, None, None),
    "powers": FeatureMap(*UNITS, POWERS, None, None, None),
    "curves": FeatureMap(*UNITS, np.ones(4), CURVES, None, None),
    "projection": FeatureMap(*UNITS, np.ones(4), None, *PROJECTION),
    "everything": FeatureMap(*UNITS, POWERS, CURVES, *PROJECTION),
}


def seen_through(feature_map: FeatureMap) -> SharedKernelClassifierCV:
    """Return a search whose only member sees rows through this map."""
    search = SharedKernelClassifierCV(n_kernels=2, n_members=1, time_limit=0, **SEED).fit(X, Y)
    search.feature_maps_ = [tuple(feature_map)]
    search.classifiers_ = [SharedKernelClassifier(2, **SEED).fit(feature_map.transform(X), Y)]
    return search


@pytest.mark.parametrize("name", MAPS)
def test_features_are_standardised_bent_and_projected(name: str) -> None:
    search = seen_through(MAPS[name])
    out = run(search.to_onnx(), X=NEW)
    assert_allclose(out["probabilities"], search.predict_proba(NEW), rtol=0, atol=1e-9)
    assert_allclose(out["log_density"], search.score_samples(NEW), rtol=1e-9)
    assert_array_equal(out["label"], search.predict(NEW))


def test_categories_are_a_second_input() -> None:
    text = np.array([["x", "no"], ["y", "yes"], ["z", "no"], ["z", "yes"]] * 75, dtype=object)
    frame = pd.DataFrame({"c": text[:, 0], "a": X[:, 0], "s": text[:, 1], "b": X[:, 1]})
    for columns, n_coded in ((["c", "a", "s", "b"], 2), (["c"], 1), (["c", "s"], 2)):
        model = SharedKernelClassifier(2, **SEED).fit(frame[columns], Y)
        numbers = X[:, : len(columns) - n_coded]
        inputs = {"X": numbers} if numbers.shape[1] else {}
        graph = model.to_onnx()
        assert {each.domain: each.version for each in graph.opset_import} == {"": 18, "ai.onnx.ml": 3}
        out = run(graph, categories=text[:, :n_coded], **inputs)
        assert_allclose(out["probabilities"], model.predict_proba(frame[columns]), rtol=0, atol=1e-12)
        # A category that is not known is missing.
        for wrong in ("", "w"):
            unknown = text[:, :n_coded].copy()
            unknown[3, 0] = wrong
            found = run(graph, categories=unknown, **inputs)
            assert np.flatnonzero(np.isnan(found["log_density"])).tolist() == [3]
            assert np.isnan(found["probabilities"][3]).all()


def test_rare_categories_and_dates_have_a_graph() -> None:
    """Whatever is no category of its own is another one; dates are numbers of days."""
    days, site = np.arange(len(X)), np.arange(len(X)) % 60
    dates = np.datetime64("1970-01-01") + days
    frame = pd.DataFrame({"a": X[:, 0], "site": [f"s{number:02}" for number in site], "date": dates})
    with pytest.warns(UserWarning, match="60 categories|holds dates"):
        model = SharedKernelClassifier(2, **SEED).fit(frame, Y)
    frame.loc[0, "site"] = "elsewhere"
    numbers, text = np.column_stack([X[:, 0], days]), frame[["site"]].to_numpy(dtype=object, copy=True)
    out = run(model.to_onnx(), X=numbers, categories=text)
    assert_allclose(out["probabilities"], model.predict_proba(frame), rtol=0, atol=1e-9)
    text[0] = ""
    assert np.isnan(run(model.to_onnx(), X=numbers, categories=text)["log_density"][0])


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (np.array([-7, 2**40, 2**41]), np.int64),
        (np.array([1, 2, 255], dtype=np.uint8), np.int64),
        (np.array([0.0, 1.0, 2.0]), np.float64),
        (np.array([False, True, True]), np.bool_),
        (np.array(["a", "b", "ü"], dtype=object), object),
    ],
)
def test_labels_of_every_type(labels: np.ndarray, kind: Any, tmp_path: Path) -> None:
    model = SharedKernelClassifier(**SEED).fit(X, labels[Y])
    returned = model.to_onnx(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == returned.SerializeToString(deterministic=True)
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    out = run(returned, X=NEW)
    assert out["label"].dtype == kind
    assert out["label"].tolist() == model.predict(NEW).tolist()


# ---------------------------------------------------------------- far and missing values


@pytest.mark.parametrize("covariance_type", TYPES[:4])
def test_far_rows_do_not_underflow(covariance_type: str) -> None:
    """Far out every density is zero as a number; their logarithms still tell the classes apart."""
    model = SharedKernelClassifier(covariance_type=covariance_type, **SEED).fit(X, Y)
    far = X.mean(axis=0) + (NEW - X.mean(axis=0)) * 1e3
    assert np.mean(model.score_samples(far) < -1e3) > 0.9
    out = run(model.to_onnx(), X=far)
    assert out["label"].tolist() == model.predict(far).tolist()
    assert_allclose(out["probabilities"], model.predict_proba(far), rtol=0, atol=1e-6)
    farthest = np.full((2, 4), [[1e200], [-1e308]])
    for each in (model, seen_through(MAPS["powers"])):
        assert np.all(np.isfinite(run(each.to_onnx(), X=farthest)["probabilities"]))


def test_kernels_and_classes_of_weight_zero() -> None:
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
    out = run(model.to_onnx(), X=new)
    assert_allclose(out["probabilities"], model.predict_proba(new), rtol=0, atol=1e-12)
    never = SharedKernelClassifier(init=start, priors=[0.0, 1.0]).fit(x, y)
    out = run(never.to_onnx(), X=new)
    assert set(out["label"]) == {"right"}
    # The exponential of onnxruntime 1.20 is never zero, but at its least no normal number.
    tiny = np.finfo(np.float64).tiny
    assert_allclose(out["probabilities"], never.predict_proba(new), rtol=0.0, atol=tiny)


def test_a_missing_value_is_noticed_whatever_a_runtime_makes_of_it() -> None:
    """ONNX does not say what Clip does with NaN: here it is the lower bound."""
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpRun

    class Clip(OpRun):  # type: ignore[misc]
        op_domain = ""

        def _run(self, x: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray]:
            return (np.where(np.isnan(x), low, np.clip(x, low, high)),)

    gaps = NEW[:5].copy()
    gaps[np.arange(4), np.arange(4)] = np.nan
    sets = SharedKernelClassifier(feature_sets=[[1], [3, 0]], **SEED).fit(X, Y)
    for model, missing in (
        (sets, [True, True, False, True, False]),  # column 2 is in no feature set
        (seen_through(MAPS["units"]), [True, True, True, True, False]),
        (seen_through(MAPS["projection"]), [True, True, True, True, False]),
    ):
        graph = model.to_onnx()
        _, *found = ReferenceEvaluator(graph, new_ops=[Clip]).run(None, {"X": gaps})
        _, *usual = run(graph, X=gaps).values()
        for probabilities, density in (found, usual):
            assert_array_equal(np.isnan(probabilities), np.tile(np.array(missing)[:, None], 3))
            assert_array_equal(np.isnan(density), missing)


def test_a_graph_takes_values_on_the_scale_of_its_model() -> None:
    model = SharedKernelClassifier(**SEED).fit(open_rows(X, transform="arcsinh:5"), Y)
    with pytest.warns(UserWarning, match=r"does not prepare .*: give them on the scale arcsinh:5\."):
        out = run(model.to_onnx(), X=np.arcsinh(NEW / 5.0))
    expected = model.predict_proba(open_rows(NEW, transform="arcsinh:5"))
    assert_allclose(out["probabilities"], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", [SharedKernelClassifierCV, SharedKernelMixtureCV])
def test_averages_are_refused(kind: Any) -> None:
    search = kind(n_kernels=[1, 2, 3], covariance_type=["full", "diag"], cv=2, **SEED).fit(X, Y)
    with pytest.raises(ValueError, match=r"averages \d: fit with n_members=1\."):
        search.to_onnx()


def test_bad_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SharedKernelClassifier().to_onnx()
    model = SharedKernelClassifier(**SEED).fit(X, Y)
    with pytest.raises(ValueError, match="float64 or float32, got float16"):
        model.to_onnx(dtype=np.float16)
    model.models_[0].classes_ = np.array([1, "a", None], dtype=object)
    with pytest.raises(TypeError, match="no type for labels like 1"):
        model.to_onnx()
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'^Export to ONNX needs onnx: pip install "\.\[all\]"'):
        model.to_onnx()
