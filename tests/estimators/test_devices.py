"""Estimators on arrays of other libraries: the same numbers as NumPy's, in the kind that was given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pandas as pd
import pytest
from libraries import LIBRARIES, each_library, needs_torch, torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_iris

from skmix import SharedKernelClassifier, SharedKernelMixture, load
from skmix.engine.compute.arrays import is_device_array, to_numpy

X, y = load_iris(return_X_y=True)
METHODS = [
    "predict_proba",
    "predict_log_proba",
    "class_log_likelihood",
    "score_samples",
    "kernel_log_densities",
    "responsibilities",
    "log_responsibilities",
]


def same_kind(array: Any, home: Any) -> None:
    assert type(array) is type(home)
    assert array.device == home.device


@each_library
def test_a_classifier_gives_back_what_it_is_given(library: str) -> None:
    make = LIBRARIES[library]
    rows, labels = make(X), make(y)
    ours = SharedKernelClassifier(4, random_state=0).fit(X, y)
    # A device that is named, even the CPU, asks for arrays to be left where they are.
    theirs = SharedKernelClassifier(4, random_state=0, device="cpu").fit(rows, labels)
    for name in ("classes_", "class_prior_", "weights_", "means_", "covariances_", "log_likelihood_path_"):
        same_kind(getattr(theirs, name), rows)
        assert_allclose(to_numpy(getattr(theirs, name)), getattr(ours, name), rtol=1e-9)
    same_kind(theirs.models_[0].means_, rows)
    for name in METHODS:
        got = getattr(theirs, name)(rows)
        same_kind(got, rows)
        assert got.dtype == rows.dtype
        assert_allclose(to_numpy(got), getattr(ours, name)(X), rtol=1e-8, atol=1e-12)
    predicted = theirs.predict(rows)
    same_kind(predicted, rows)
    assert_array_equal(to_numpy(predicted), ours.predict(X))
    assert theirs.score(rows, labels) == theirs.score(X, y) == ours.score(X, y)
    assert_allclose(theirs.bic(rows, labels), ours.bic(X, y), rtol=1e-10)


@each_library
def test_a_mixture_with_weights(library: str) -> None:
    weights = np.random.default_rng(0).uniform(0.0, 2.0, len(X))
    weights[:5] = 0.0
    rows = LIBRARIES[library](X)
    settings: dict[str, Any] = {"init": "k-means++", "random_state": 0, "n_init": 3}
    ours = SharedKernelMixture(3, **settings).fit(X, sample_weight=weights)
    theirs = SharedKernelMixture(3, device="cpu", **settings).fit(
        rows, sample_weight=LIBRARIES[library](weights)
    )
    assert_allclose(to_numpy(theirs.means_), ours.means_, rtol=1e-9)
    assert_allclose(theirs.score(rows), ours.score(X), rtol=1e-10)
    assert_allclose(to_numpy(theirs.score_samples(rows)), ours.score_samples(X), rtol=1e-9)
    same_kind(theirs.transform(rows), rows)
    same_kind(theirs.fit_transform(rows), rows)


@each_library
def test_groups_refused_rows_and_rows_without_a_label(library: str) -> None:
    make = LIBRARIES[library]
    settings: dict[str, Any] = {
        "feature_groups": [[0, 1], [3, 2]],
        "reject_below": 0.05,
        "random_state": 0,
    }
    ours = SharedKernelClassifier(3, **settings).fit(X, y)
    theirs = SharedKernelClassifier(3, device="cpu", **settings).fit(make(X), make(y))
    assert_allclose(theirs.threshold_, ours.threshold_, rtol=1e-9)
    assert_array_equal(to_numpy(theirs.predict(make(X))), ours.predict(X))
    for groups in (None, [[0, 1], [2, 3]]):  # the second is fitted on the host
        unlabelled = np.where(np.arange(len(y)) % 3 == 0, -1, y)
        settings = {"feature_groups": groups, "random_state": 0, "max_iter": 300}
        ours = SharedKernelClassifier(3, **settings).fit(X, unlabelled)
        theirs = SharedKernelClassifier(3, device="cpu", **settings).fit(make(X), make(unlabelled))
        same_kind(theirs.class_prior_, make(X))
        assert_allclose(to_numpy(theirs.class_prior_), ours.class_prior_, rtol=1e-9)


@each_library
def test_what_only_the_host_can_do_still_works(library: str, tmp_path: Path) -> None:
    make = LIBRARIES[library]
    rows, labels = make(X), make(y)
    model = SharedKernelClassifier(3, random_state=0, device="cpu").fit(rows, labels)
    drawn, _ = model.sample(5)
    assert isinstance(drawn, np.ndarray)
    filled = model.impute(make(np.where(np.arange(4) == 2, np.nan, X)))
    same_kind(filled, rows)
    model.save(tmp_path / "model.skmix")
    loaded = load(tmp_path / "model.skmix")
    assert isinstance(loaded.means_, np.ndarray)
    assert_array_equal(loaded.predict(X), to_numpy(model.predict(rows)))
    assert model.calibrate(rows, labels) is model
    assert model.temperature_ != 1.0
    same_kind(model.means_, rows)
    assert model.partial_fit(rows, labels) is model
    same_kind(model.means_, rows)
    # Fitted on the host, handed out as what was given.
    settings = {"inference": "variational", "random_state": 0, "device": "cpu"}
    same_kind(SharedKernelClassifier(4, max_iter=900, **settings).fit(rows, labels).means_, rows)
    again = SharedKernelClassifier(3, random_state=0).fit(X, y)
    assert isinstance(again.means_, np.ndarray)
    assert not is_device_array(again.means_)


@each_library
def test_bad_rows_are_told(library: str) -> None:
    make = LIBRARIES[library]
    model = SharedKernelMixture(2, device="cpu")
    gaps, infinite = X.copy(), X.copy()
    gaps[3, 1] = np.nan
    infinite[3, 1] = np.inf
    with pytest.raises(ValueError, match=r"missing values .* only supported on the CPU"):
        model.fit(make(gaps))
    with pytest.raises(ValueError, match="infinity"):
        model.fit(make(infinite))
    with pytest.raises(ValueError, match="2D"):
        model.fit(make(X[:, 0]))
    with pytest.raises(ValueError, match="150 rows but y has 149"):
        SharedKernelClassifier(device="cpu").fit(make(X), make(y[1:]))
    with pytest.raises(ValueError, match="at least 2"):
        model.fit(make(X[:1]))
    model.fit(make((10 * X).astype(np.int64)))
    with pytest.raises(ValueError, match="features"):
        model.score_samples(make(X[:, :2]))


def test_a_device_that_is_not_there() -> None:
    if torch is None:
        with pytest.raises(ImportError, match=r"skmix\[torch\]"):
            SharedKernelMixture(2, device="cuda").fit(X)
        return
    with pytest.raises(ValueError, match="device='nonsense' cannot be used"):
        SharedKernelMixture(2, device="nonsense").fit(X)
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="sees 0 CUDA device"):
            SharedKernelMixture(2, device="cuda").fit(X)


@needs_torch
def test_numpy_rows_are_sent_and_results_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    # The CPU of PyTorch stands in for a device.
    sent = []

    def send(rows: np.ndarray, device: str) -> Any:
        sent.append(device)
        return torch.tensor(rows)

    monkeypatch.setattr("skmix.estimators.rows.send", send)
    ours = SharedKernelClassifier(4, random_state=0).fit(X, y)
    theirs = SharedKernelClassifier(4, random_state=0, device="somewhere").fit(X, y)
    assert sent == ["somewhere"]
    assert isinstance(theirs.means_, np.ndarray)
    assert_allclose(theirs.means_, ours.means_, rtol=1e-9)
    probabilities = theirs.predict_proba(X)
    assert len(sent) == 2
    assert isinstance(probabilities, np.ndarray)
    assert_allclose(probabilities, ours.predict_proba(X), atol=1e-12)
    # Anything that NumPy can make an array of is sent as well, and keeps its names.
    table = pd.DataFrame(X, columns=list("abcd"))
    theirs.fit(table, y)
    assert theirs.feature_names_in_.tolist() == list("abcd")
    assert_array_equal(theirs.predict(table), ours.predict(X))
    assert len(sent) == 4
    theirs.fit(X[::-1].tolist(), y[::-1])
    assert len(sent) == 5
    # Rows with gaps stay.
    gaps = X.copy()
    gaps[3, 1] = np.nan
    theirs.fit(gaps, y)
    assert len(sent) == 5
    with pytest.raises(ValueError, match="Complex data"):
        theirs.fit(X + 1j, y)


@needs_torch
def test_a_device_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X)
    model = SharedKernelClassifier(3, device="cpu:0", random_state=0)
    with pytest.raises(ValueError, match="needs rows in memory"):
        model.fit(tmp_path / "rows.npy", y)
    model.set_params(inference="variational", max_iter=900)
    with pytest.warns(UserWarning, match="is not used"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="tf32 is for accelerators"):
        SharedKernelClassifier(3, device="cpu/tf32").fit(X, y)
    for device in ("cuda/half", "/float32"):
        with pytest.raises(ValueError, match="is not of the form"):
            SharedKernelClassifier(3, device=device).fit(X, y)
    with pytest.raises(ValueError, match="device='meta' cannot be used"):
        SharedKernelClassifier(3, device="meta").fit(X, y)


@pytest.mark.slow
def test_a_classifier_gives_back_jax_arrays() -> None:
    jax = pytest.importorskip("jax", reason="JAX, an optional library, is not installed")
    jax.config.update("jax_enable_x64", True)
    settings: dict[str, Any] = {"init": {"means": X[[0, 60, 110]]}, "tol": 1e-3}
    ours = SharedKernelClassifier(3, **settings).fit(X, y)
    rows = jax.numpy.asarray(X)
    theirs = SharedKernelClassifier(3, device="cpu", **settings).fit(rows, jax.numpy.asarray(y))
    for name in ("weights_", "means_"):
        same_kind(getattr(theirs, name), rows)
        assert_allclose(to_numpy(getattr(theirs, name)), getattr(ours, name), rtol=1e-9)
    same_kind(theirs.predict_proba(rows), rows)
    assert_allclose(to_numpy(theirs.predict_proba(rows)), ours.predict_proba(X), atol=1e-9)


@needs_torch
def test_tensors_that_record_derivatives() -> None:
    rows = torch.tensor(X, requires_grad=True)
    model = SharedKernelClassifier(3, device="cpu", random_state=0).fit(rows, y)
    expected = SharedKernelClassifier(3, random_state=0).fit(X, y)
    assert not model.means_.requires_grad
    assert_allclose(to_numpy(model.means_), expected.means_, rtol=1e-9)
    half = SharedKernelClassifier(3, device="cpu", random_state=0).fit(rows.detach().to(torch.bfloat16), y)
    assert half.means_.dtype == torch.float64


def test_tensors_are_numpy_without_dispatch() -> None:
    values = array_api_strict.asarray(X) if torch is None else torch.as_tensor(X)
    model = SharedKernelMixture(2, random_state=0)
    if torch is None:
        pytest.skip("PyTorch, an optional extra, is not installed: strict arrays do not turn into NumPy's")
    assert isinstance(model.fit(values).means_, np.ndarray)


DISPATCH = """
import numpy as np, sklearn
from sklearn.base import clone
from skmix import SharedKernelClassifier, SharedKernelMixture
import array_api_strict as xp
X = np.random.default_rng(0).normal(size=(60, 3))
y = np.arange(60) % 2
with sklearn.config_context(array_api_dispatch=True):
    model = SharedKernelClassifier(random_state=0).fit(xp.asarray(X), xp.asarray(y))
    assert isinstance(model.means_, type(xp.asarray(X))), type(model.means_)
    assert isinstance(model.predict(xp.asarray(X)), type(xp.asarray(X)))
    assert isinstance(clone(model).fit(X, y).means_, np.ndarray)
    model = SharedKernelMixture(2, random_state=0).fit(xp.asarray(X))
    assert isinstance(model.covariances_, type(xp.asarray(X)))
    # Words are no business of array libraries.
    assert isinstance(model.start_status_, np.ndarray)
print("done")
"""


def test_scikit_learns_dispatch() -> None:
    # scikit-learn wants this variable before it is imported, so this needs a process of its own.
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-c", DISPATCH], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip().endswith("done"), done.stderr
