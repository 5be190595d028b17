"""What is saved and loaded again is the same estimator; other files are refused."""

from __future__ import annotations

import builtins
import pickle
import random
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

from skmix import (
    BayesianGaussianMixture,
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from skmix.model import saving
from skmix.model.files import Record, pack, write_file

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

Y = np.repeat(["a", "b", "c"], 12)
X = (
    np.random.default_rng(0).normal(size=(36, 3)) * [1.0, 0.1, 10.0]
    + np.repeat(np.arange(3), 12)[:, None] * 3.0
)
NEW = np.random.default_rng(1).normal(size=(20, 3))
SEED = {"random_state": 0}
START = {"weights": np.full((4, 3), 0.25)}
# Models that have, between them, every attribute that a fit leaves behind, and parameters of every kind.
# tests/matrix saves models of the other structures and tails.
MODELS: dict[str, Callable[[], Any]] = {
    "mixture": lambda: SharedKernelMixture(3, n_init=2, **SEED).fit(X, Y),
    "robust": lambda: SharedKernelMixture(2, tail="t", tol=0.1, **SEED).fit(X, Y),
    "variational": lambda: SharedKernelMixture(3, inference="variational", **SEED).fit(X, Y),
    "hierarchical": lambda: SharedKernelMixture(3, weight_prior="hierarchical", **SEED).fit(X, Y),
    "shifted": lambda: SharedKernelMixture(2, group_shift=2.0, **SEED).fit(X, Y),
    "stream": lambda: SharedKernelMixture(2, **SEED).partial_fit(X, Y),
    "prior": lambda: SharedKernelMixture(
        np.int64(3), covariance_prior=(3.0, np.eye(3)), tol=np.float64(1e-3), **SEED
    ).fit(X, Y),
    "product": lambda: SharedKernelClassifier(feature_sets=[[0, 2], (1,)], priors="uniform", **SEED).fit(
        X, Y
    ),
    "named": lambda: SharedKernelClassifier(feature_sets=[["mass", "length"], ["größe"]], **SEED).fit(
        pd.DataFrame(X, columns=list(np.array(["length", "mass", "größe"]))), Y
    ),
    "started": lambda: SharedKernelClassifier(
        init=[{"means": X[:4, :2].copy(), **START}, {"means": X[:4, 2:].copy(), **START}],
        feature_sets=[[0, 1], np.array([2])],
        priors=np.array([0.0, 0.5, 0.5]),
        tol=0.1,
        stopping="per-class",
    ).fit(X, Y),
    "tuned": lambda: SharedKernelClassifier(3, **SEED).fit(X, Y).tune(X, Y, max_iter=2),
    "drop-in": lambda: GaussianMixture(2, means_init=X[:2], weights_init=[0.5, 0.5], **SEED).fit(X),
    "variational drop-in": lambda: BayesianGaussianMixture(n_components=2, max_iter=300, **SEED).fit(X),
    "tied drop-in": lambda: BayesianGaussianMixture(
        n_components=2,
        covariance_type="tied",
        weight_concentration_prior_type="dirichlet_distribution",
        weight_concentration_prior=3,
        max_iter=300,
        **SEED,
    ).fit(X),
    "search": lambda: SharedKernelClassifierCV(
        n_kernels=3, covariance_type="tied", tune=False, n_members=3, cv=2, **SEED
    ).fit(X, Y),
    "mixtures": lambda: SharedKernelMixtureCV(n_kernels=[1, 2], covariance_type="diag", cv=2, **SEED).fit(X),
}
METHODS = ("predict", "predict_proba", "predict_log_proba", "score_samples", "transform")


@cache
def fitted(name: str) -> Any:
    return MODELS[name]()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.skmix"


def through_a_file(model: Any, path: Path) -> Any:
    model.save(path)
    return load(path)


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


# ---------------------------------------------------------------- the same estimator


@pytest.mark.parametrize("name", MODELS)
def test_attributes_and_predictions_are_the_same_to_the_last_bit(name: str, path: Path) -> None:
    model = fitted(name)
    back = through_a_file(model, path)
    kept = {key: value for key, value in vars(model).items() if key != "cv_results_"}
    assert {key for key, value in kept.items() if not same(value, vars(back)[key])} == set()
    if "cv_results_" in vars(model):
        # There are several members of different kinds.
        pd.testing.assert_frame_equal(pd.DataFrame(back.cv_results_), pd.DataFrame(model.cv_results_))
        assert len(getattr(model, "classifiers_" if name == "search" else "mixtures_")) > 1
    assert same(back.get_params(), model.get_params())
    for method in METHODS:
        if hasattr(model, method):
            assert same(getattr(back, method)(NEW), getattr(model, method)(NEW)), method
    if hasattr(model, "sample") and model.random_state is not None:
        assert all(map(same, back.sample(20), model.sample(20)))


def test_what_is_not_saved(path: Path) -> None:
    """Random states with a memory; the class of a range, which becomes a list."""
    model = SharedKernelClassifier(random_state=np.random.RandomState(0), feature_sets=[range(2), [2]]).fit(
        X, Y
    )
    back = through_a_file(model, path)
    assert back.random_state is back.models_[0].random_state is None
    assert back.feature_sets == [[0, 1], [2]]
    assert isinstance(model.random_state, np.random.RandomState)
    assert same(back.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", ["search", "mixtures"])
def test_equal_models_are_equal_files(name: str, tmp_path: Path) -> None:
    for file in "ab":
        MODELS[name]().save(tmp_path / file)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_loading_runs_no_code(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = through_a_file(fitted("product"), path).predict(X)  # all modules are imported now

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("loading must not do this")

    for module, names in ((builtins, "eval exec compile"), (pickle, "load loads Unpickler"), (np, "load")):
        for name in names.split():
            monkeypatch.setattr(module, name, refuse)
    assert same(load(path).predict(X), expected)


# ---------------------------------------------------------------- what cannot be saved


def test_models_that_cannot_be_saved(tmp_path: Path) -> None:
    class Mine(SharedKernelMixture):
        pass

    for model in (SharedKernelClassifier(), SharedKernelMixture(), GaussianMixture()):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            model.save(tmp_path / "model")
    with pytest.raises(TypeError, match="Mine cannot be saved; SharedKernelMixture"):
        Mine().fit(X).save(tmp_path / "model")
    with pytest.raises(OSError, match="absent"):
        fitted("mixture").save(tmp_path / "absent" / "model")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda model: setattr(model, "note", "found in March"), TypeError, "note is neither"),
        (lambda model: model.set_params(priors=pd.Series([0.2, 0.8])), TypeError, r"priors is a pandas"),
        (lambda model: model.set_params(n_init=0), ValueError, "n_init"),
        (lambda model: model.models_[0].set_params(covariance_type="diag"), ValueError, "'full' was fit"),
        (lambda model: model.models_[0].set_params(tail="t"), ValueError, "tail is 't', but None"),
        (lambda model: model.models_[0].means_.fill(np.nan), ValueError, "means_ has nan"),
    ],
)
def test_a_failed_save_leaves_the_old_file(
    change: Callable[[Any], None], error: type[Exception], message: str, path: Path
) -> None:
    model = SharedKernelClassifier().fit(X, Y)
    model.save(path)
    before = path.read_bytes()
    change(model)
    with pytest.raises(error, match=message):
        model.save(path)
    assert path.read_bytes() == before
    assert len(list(path.parent.iterdir())) == 1


# ---------------------------------------------------------------- files that are refused

Change = Callable[[dict[str, dict[str, Any]]], object]


def put(name: str, value: Any, part: str = "fitted") -> Change:
    """Return a change that replaces a field of a record by another, or by a function of it."""
    return lambda fields: fields[part].update({name: value(fields[part][name]) if callable(value) else value})


def setting(name: str, value: Any) -> Change:
    return put(name, value, "parameters")


def prepare(**own: Any) -> Change:
    """Return a change of how files are prepared."""
    return put("recipe_", own)


def remove(name: str) -> Change:
    return lambda fields: fields["fitted"].pop(name)


def other_classes(models: list[Record]) -> list[Record]:
    own = models[1].fields
    changed = own["fitted"] | {"classes_": np.array(["b", "c", "d"])}
    return [models[0], Record(models[1].kind, own | {"fitted": changed})]


def entry(i: int, j: int, value: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that changes one entry of the first covariance."""

    def change(covariances: np.ndarray) -> np.ndarray:
        covariances[0, i, j] = value
        covariances[0, j, i] = value if value == 100.0 else covariances[0, j, i]
        return covariances

    return change


# Beside these, each attribute is given other types, shapes and NaN below.
CASES: list[tuple[str, Change, str]] = [
    ("mixture", lambda fields: fields.pop("fitted"), "fitted attributes are missing"),
    ("mixture", remove("means_"), "means_ is missing"),
    ("mixture", remove("log_likelihood_"), "log_likelihood_ is missing"),
    ("mixture", put("covariance_type_", "diag"), "covariances must have shape"),
    ("mixture", setting("tail", "t"), "tail is 't', but None was fitted"),
    ("mixture", put("n_features_in_", 2), "n_features_in_ is not 3"),
    ("mixture", put("__class__", 3), "'__class__' is not an attribute of a fitted"),
    ("mixture", put("feature_names_in_", np.array([1, 2, 3], dtype=object)), "3 names"),
    ("mixture", put("means_", np.zeros((4, 3))), r"means_ has shape \(4, 3\), not \(3, "),
    ("mixture", put("means_", np.zeros((3, 3), dtype=np.int64)), "means_ is of type int64"),
    ("mixture", put("weights_", lambda w: w * 1.01), "weights_ must sum to one.*1.01"),
    ("mixture", put("weights_", lambda w: 1.0 - 2.0 * w), "weights_ has -.*, which is not between 0"),
    ("mixture", put("covariances_", entry(0, 0, np.nan)), "covariances must be finite"),
    ("mixture", put("covariances_", entry(0, 1, 100.0)), "kernel 0 is not positive definite"),
    ("mixture", put("covariances_", entry(0, 1, 0.1)), "not symmetric: entries differ by"),
    ("mixture", put("classes_", lambda c: c[::-1].copy()), "classes_ are not sorted"),
    ("mixture", put("classes_", lambda c: c[:, None]), r"classes_ has shape \(3, 1\)"),
    ("mixture", setting("n_init", 0), "n_init"),
    (
        "mixture",
        setting("covariance_type", ("low_rank", 2)),
        "'low_rank', 2\\) is not supported any more: prin",
    ),
    ("mixture", put("covariance_type_", "low_rank"), "'low_rank' is not supported any more: principal"),
    ("mixture", setting("device", "cuda/half"), "not of the form 'cuda:0'"),
    ("mixture", setting("shape", 1), "no parameter 'shape'; another version may"),
    ("mixture", prepare(transform="none", gate=1), "recipe_ is {'transform': 'none', 'gate'"),
    ("mixture", prepare(transform="logicle", linear={"FSC": 2.0}), "the linear features of recipe_ are"),
    ("mixture", prepare(transform={"W": [0.5, 1.0]}), "W must be from 0 to M / 2"),
    ("mixture", prepare(transform={"kind": "logicle"}), "a scale is a name, or has the parameters T"),
    ("mixture", prepare(transform=None), "a scale is a name, or has the parameters T"),
    ("mixture", prepare(transform="arcsinh:-1"), "the cofactor '-1' is not a number above 0"),
    ("robust", put("kernel_degrees_", np.zeros(2)), "kernel_degrees_ has 0.0"),
    ("robust", setting("tail", None), "tail is None, but 't' was fitted"),
    ("robust", setting("tail", "background"), r"'tail' .* must be a str among {'t'}"),
    ("product", put("temperature_", -1.0), "temperature_ has -1.0, which is not between"),
    ("product", put("feature_sets_", [[0, 2]]), "2 models for 1 feature sets"),
    ("product", put("feature_sets_", [[0, 2], [0]]), "column 0 is in feature set 0 and again"),
    ("product", put("feature_sets_", [[0], [1, 2]]), "has 2 features for 1 columns"),
    ("product", put("models_", other_classes), "different classes"),
    ("product", put("class_prior_", np.full(2, 0.5)), "class_prior_ has 2 classes"),
    ("drop-in", put("weights_", lambda w: w * 0.9), "weights_ must sum to one"),
    ("drop-in", put("precisions_", np.eye(3)), r"precisions_ has shape \(3, 3\), not \(2, 3, 3\)"),
    ("mixtures", put("best_index_", 99), "best_index_ is not that of a candidate"),
    ("mixtures", put("shares_", np.full(9, 1 / 9)), "mixtures_ has . members, not 9"),
    ("search", put("feature_maps_", lambda maps: [3, *maps[1:]]), "feature_maps_ must have None or tuples"),
]


@pytest.mark.parametrize(("name", "change", "message"), CASES)
def test_files_whose_parts_do_not_belong_together(
    name: str, change: Change, message: str, path: Path
) -> None:
    record = deepcopy(saving.record_of(fitted(name)))
    write_file(path, *pack(record))
    assert load(path)
    change(record.fields)
    write_file(path, *pack(record))
    with pytest.raises(ValueError, match=rf"model\.skmix holds no valid model: .*(?:{message})"):
        load(path)


def wrong_values(value: Any) -> list[Any]:
    """Return values that differ from an array in type, shape or range, or from another value in type."""
    if not isinstance(value, np.ndarray):
        return [None, object()]
    if value.dtype.kind != "f":
        return [None, value.tolist()]
    with_nan = value.copy()
    with_nan.flat[:1] = np.nan
    others = [with_nan] if value.size else []
    return [None, value.tolist(), value.astype(str), value[..., None], *others]


@pytest.mark.parametrize("name", MODELS)
def test_every_attribute_is_checked_for_type_shape_and_range(name: str) -> None:
    """Attributes that a fit may leave out may be missing; none may be of another type or shape."""
    record = saving.record_of(fitted(name))
    attributes = record.fields["fitted"]
    for attribute, value in attributes.items():
        for wrong in wrong_values(value):
            changed = Record(record.kind, {**record.fields, "fitted": {**attributes, attribute: wrong}})
            with pytest.raises((ValueError, TypeError, AttributeError)):
                saving.estimator_of(changed)


def test_content_that_is_no_estimator(path: Path) -> None:
    deep: Any = 1
    for _ in range(700):
        deep = [deep]
    other = pack(Record("os.system", {}))[0]
    for content, message in (
        (3, "it is not an estimator"),
        (deep, r"model\.skmix"),
        (other, "its class is 'os.system', not one of"),
    ):
        write_file(path, content, {})
        with pytest.raises(ValueError, match=message):
            load(path)


def test_parameters_newer_than_a_file_have_their_defaults(path: Path) -> None:
    record = deepcopy(saving.record_of(fitted("mixture")))
    del record.fields["parameters"]["n_init"]
    write_file(path, *pack(record))
    assert load(path).n_init == 1


def test_damaged_bytes_never_make_another_model(path: Path) -> None:
    """Whatever happens to the bytes: an error that names the file, or the model that was saved."""
    model = fitted("product")
    model.save(path)
    data, expected = path.read_bytes(), model.predict_proba(NEW)
    generator = random.Random(0)
    for _ in range(150):
        damaged, place = bytearray(data), generator.randrange(len(data))
        n_gone, n_new = generator.choice([0, 1, 1, 8, 40, len(data)]), generator.choice([0, 1, 8])
        damaged[place : place + n_gone] = generator.randbytes(n_new)
        path.write_bytes(damaged)
        try:
            back = load(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(back.predict_proba(NEW), expected)
