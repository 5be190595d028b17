"""What is saved and loaded again is the same estimator."""

from __future__ import annotations

import builtins
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.utils.metadata_routing import get_routing_for_object

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    load,
)


def rows(n_rows: int = 120, n_features: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    X = rng.normal(size=(n_rows, n_features)) * [1.0, 0.1, 10.0, 3.0][:n_features] + y[:, None]
    return X, y


X, Y = rows()


def through_a_file(model: Any, folder: Path) -> Any:
    model.save(folder / "model.skmix")
    return load(folder / "model.skmix")


def same(one: Any, other: Any) -> bool:
    """Whether two attributes are equal, down to types, NaN and the order in memory."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        if one.dtype != other.dtype or one.strides != other.strides or one.shape != other.shape:
            return False
        return one.tolist() == other.tolist() if one.dtype == object else one.tobytes() == other.tobytes()
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if hasattr(one, "get_params"):
        return same(vars(one), vars(other))
    return bool(one == other)


ESTIMATORS = {
    "classifier": lambda **options: SharedKernelClassifier(4, random_state=0, **options),
    "product": lambda **options: SharedKernelClassifier(
        4, feature_sets=[[0, 3], (2,)], random_state=0, **options
    ),
    "mixture": lambda **options: SharedKernelMixture(4, random_state=0, n_init=3, **options),
    "drop-in": lambda **options: GaussianMixture(4, random_state=0, **options),
}
METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "class_log_likelihood",
    "score_samples",
    "transform",
)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_attributes_and_predictions_are_the_same_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """tests/matrix saves models of the other structures and tails."""
    model = ESTIMATORS[name]().fit(X, Y)
    back = through_a_file(model, tmp_path)
    assert type(back) is type(model)
    assert vars(back).keys() == vars(model).keys()
    assert {key for key in vars(model) if not same(vars(model)[key], vars(back)[key])} == set()
    assert same(back.get_params(), model.get_params())
    new = rows(seed=1)[0]
    for method in METHODS:
        if hasattr(model, method):
            assert same(getattr(back, method)(new), getattr(model, method)(new)), method
    for one, other in zip(model.sample(20), back.sample(20), strict=True):
        assert same(one, other)
    assert back.bic(X, Y) == model.bic(X, Y) if name != "drop-in" else back.bic(X) == model.bic(X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_loaded_model_goes_on_as_the_saved_one_would(name: str, tmp_path: Path) -> None:
    """warm_start needs all that the last fit left behind."""
    options = {"warm_start": True, "max_iter": 2, "tol": 0.0 if name == "drop-in" else 1e-12}
    model = ESTIMATORS[name](**options)
    with pytest.warns(UserWarning, match="converge"):
        model.fit(X, Y)
    back = through_a_file(model, tmp_path)
    for one in (model, back):
        with pytest.warns(UserWarning, match="converge"):
            one.fit(X, Y)
    assert same(vars(back), vars(model))


LABELS = {
    "text": np.array(["one", "zwei", "três 𝄞"]),
    "wide text": np.array(["a", "b", "c"], dtype="U20"),
    "int8": np.array([-5, 2, 3], dtype=np.int8),
    "uint16": np.array([1, 2, 60_000], dtype=np.uint16),
    "float": np.array([0.0, 1.0, 2.0]),
    "bool": np.array([False, True, True]),
    "object": np.array(["one", "two", "three"], dtype=object),
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_keep_their_type(kind: str, tmp_path: Path) -> None:
    model = ESTIMATORS["product"]().fit(X, LABELS[kind][Y])
    back = through_a_file(model, tmp_path)
    assert same(back.classes_, model.classes_)
    assert same(back.predict(X), model.predict(X))


def test_feature_names_and_groups_by_name(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["length", "width", "mass", "größe"])
    groups = [["mass", "length"], ["größe"]]
    model = SharedKernelClassifier(feature_sets=groups, random_state=0).fit(frame, Y)
    back = through_a_file(model, tmp_path)
    assert back.feature_names_in_.tolist() == list(frame.columns)
    assert back.feature_names_in_.dtype == object
    assert back.feature_sets == groups
    assert same(back.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(ValueError, match="feature names"):
        back.predict(frame.rename(columns={"mass": "weight"}))


def start_of(columns: list[int]) -> dict[str, Any]:
    return {"means": X[:4, columns], "weights": np.full((4, 3), 0.25)}


@pytest.mark.parametrize(
    "model",
    [
        SharedKernelClassifier(
            init=[start_of([0, 1]), start_of([2, 3])], feature_sets=[[0, 1], np.array([2, 3])]
        ),
        SharedKernelClassifier(priors=[0.2, 0.3, 0.5], covariance_prior=2.0, weight_prior=1.5),
        SharedKernelClassifier(priors=np.array([0.0, 0.5, 0.5]), tol=("per-class", 0.1)),
        SharedKernelMixture(np.int64(3), covariance_prior=(3.0, np.eye(4)), tol=np.float64(1e-3)),
        SharedKernelMixture(3, init="k-means++", random_state=2**32 - 1, n_jobs=2, variance_floor=0),
        GaussianMixture(
            2, means_init=X[:2], weights_init=[0.5, 0.5], precisions_init=np.tile(np.eye(4), (2, 1, 1))
        ),
    ],
    ids=lambda model: str(model).split("(")[0],
)
def test_parameters_of_every_kind_are_kept(model: Any, tmp_path: Path) -> None:
    model.fit(X, Y)
    back = through_a_file(model, tmp_path)
    assert same(back.get_params(), model.get_params())
    assert same(vars(back), vars(model))
    refitted = back.fit(X, Y)
    if model.random_state is not None:
        assert same(refitted.means_, model.means_)


@pytest.mark.parametrize(
    "model",
    [
        SharedKernelMixture(3, random_state=0),
        SharedKernelClassifierCV(n_kernels=3, covariance_type="full", time_limit=0, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_features_whose_scales_differ_by_1e16(model: Any, tmp_path: Path) -> None:
    units = 2.0 ** np.array([-27.0, 0.0, 27.0, 0.0])
    expected = model.fit(X, Y).predict_proba(X)
    back = through_a_file(model.fit(X * units, Y), tmp_path)
    np.testing.assert_allclose(back.predict_proba(X * units), expected, rtol=0.0, atol=1e-6)


def test_arrays_that_are_one_stay_one(tmp_path: Path) -> None:
    """A classifier of one group shows its model's arrays; the file holds them once."""
    model = SharedKernelClassifier(random_state=0).fit(X, Y)
    back = through_a_file(model, tmp_path)
    assert model.means_ is model.models_[0].means_
    assert back.means_ is back.models_[0].means_
    assert back.means_.flags.writeable


def test_random_states_with_a_memory_are_not_saved(tmp_path: Path) -> None:
    model = SharedKernelClassifier(random_state=np.random.RandomState(0)).fit(X, Y)
    back = through_a_file(model, tmp_path)
    assert back.random_state is None
    assert back.models_[0].random_state is None
    assert isinstance(model.random_state, np.random.RandomState)
    assert same(back.predict_proba(X), model.predict_proba(X))


def test_output_and_metadata_requests_are_kept(tmp_path: Path) -> None:
    model = SharedKernelMixture(2, random_state=0).set_output(transform="pandas").fit(X, Y)
    back = through_a_file(model, tmp_path)
    pd.testing.assert_frame_equal(back.transform(X), model.transform(X))
    with config_context(enable_metadata_routing=True):
        classifier = SharedKernelClassifier(random_state=0).set_fit_request(sample_weight="mass")
        classifier.set_score_request(sample_weight=True).fit(X, Y)
    back = through_a_file(classifier, tmp_path)
    assert str(get_routing_for_object(back)) == str(get_routing_for_object(classifier))
    assert get_routing_for_object(back).fit.requests == {"sample_weight": "mass"}


def test_equal_models_are_equal_files(tmp_path: Path) -> None:
    for name in "ab":
        SharedKernelClassifier(4, random_state=0).fit(X, Y).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_loading_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SharedKernelClassifier(random_state=0).fit(X, Y)
    expected = through_a_file(model, tmp_path).predict(X)  # all modules are imported now

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("loading must not do this")

    for module, name in [
        (builtins, "eval"),
        (builtins, "exec"),
        (builtins, "compile"),
        (pickle, "load"),
        (pickle, "loads"),
        (pickle, "Unpickler"),
        (np, "load"),
    ]:
        monkeypatch.setattr(module, name, refuse)
    assert same(load(tmp_path / "model.skmix").predict(X), expected)


class TestRefusals:
    def test_before_a_fit(self, tmp_path: Path) -> None:
        for model in (SharedKernelClassifier(), SharedKernelMixture(), GaussianMixture()):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                model.save(tmp_path / "model")
        assert list(tmp_path.iterdir()) == []

    def test_classes_of_ones_own(self, tmp_path: Path) -> None:
        class Mine(SharedKernelMixture):
            pass

        with pytest.raises(TypeError, match="Mine cannot be saved; GaussianMixture"):
            Mine().fit(X).save(tmp_path / "model")

    @pytest.mark.parametrize(
        ("change", "error", "message"),
        [
            (lambda model: setattr(model, "note", "found in March"), TypeError, "note is neither"),
            (lambda model: model.set_params(priors=pd.Series([0.2, 0.8])), TypeError, r"priors is a pandas"),
            (lambda model: model.set_params(n_init=0), ValueError, "n_init"),
            (lambda model: model.models_[0].set_params(covariance_type="diag"), ValueError, "'full' was fit"),
            (lambda model: model.models_[0].set_params(tail="t"), ValueError, "tail is 't', but None"),
        ],
    )
    def test_values_without_a_place_and_settings_of_another_fit(
        self, change: Any, error: type[Exception], message: str, tmp_path: Path
    ) -> None:
        model = SharedKernelClassifier().fit(X, Y)
        change(model)
        with pytest.raises(error, match=message):
            model.save(tmp_path / "model")

    def test_a_failed_save_leaves_the_old_file(self, tmp_path: Path) -> None:
        model = SharedKernelMixture().fit(X)
        model.save(tmp_path / "model")
        before = (tmp_path / "model").read_bytes()
        model.means_ = np.full_like(model.means_, np.nan)
        with pytest.raises(ValueError, match="means_ has nan"):
            model.save(tmp_path / "model")
        assert (tmp_path / "model").read_bytes() == before
        assert len(list(tmp_path.iterdir())) == 1

    def test_a_folder_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="absent"):
            SharedKernelMixture().fit(X).save(tmp_path / "absent" / "model")
