"""Files whose parts do not belong together are refused, however well they are formed."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
)
from skmix.estimators import saving
from skmix.io import Record, encode, read, write

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

Fields = dict[str, Any]
Arrays = dict[str, np.ndarray]


def data() -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(["a", "b", "c"], 12)
    means = np.repeat(np.arange(3), 12)[:, None] * 3.0
    return np.random.default_rng(0).normal(size=(36, 3)) + means, y


X, Y = data()
SEED = {"random_state": 0}
QUICK = {"time_limit": 0, **SEED}
# Models that have, between them, every attribute that a fit leaves behind.
MODELS: dict[str, Any] = {
    "mixture": lambda: SharedKernelMixture(3, n_init=2, **SEED).fit(X, Y),
    "robust": lambda: SharedKernelMixture(2, tail="t", tol=0.1, **SEED).fit(X, Y),
    "background": lambda: SharedKernelMixture(2, tail="background", tol=0.1, **SEED).fit(X, Y),
    "variational": lambda: SharedKernelMixture(3, inference="variational", **SEED).fit(X, Y),
    "hierarchical": lambda: SharedKernelMixture(3, weight_prior="hierarchical", **SEED).fit(X, Y),
    "shifted": lambda: SharedKernelMixture(2, group_shift=2.0, **SEED).fit(X, Y),
    "stream": lambda: SharedKernelMixture(2, **SEED).partial_fit(X, Y),
    "product": lambda: SharedKernelClassifier(feature_sets=[[0, 2], [1]], priors="uniform", **SEED).fit(X, Y),
    "tuned": lambda: SharedKernelClassifier(3, **SEED).fit(X, Y).tune(X, Y, max_iter=2),
    "drop-in": lambda: GaussianMixture(2, **SEED).fit(X),
    "search": lambda: SharedKernelClassifierCV(n_kernels=3, covariance_type="tied", **QUICK).fit(X, Y),
    "mixtures": lambda: SharedKernelMixtureCV(n_kernels=[1], **QUICK).fit(X, Y),
}


@cache
def fitted(name: str) -> Any:
    return MODELS[name]()


ONE = np.ones((1, 3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.skmix"


def parts(name: str, path: Path) -> tuple[Any, Arrays]:
    """Return what the file of a fitted model is made of, to be changed."""
    fitted(name).save(path)
    content, arrays = read(path)
    return content, {key: array.copy() for key, array in arrays.items()}


def group(content: Any, index: int = 0) -> Fields:
    """Return the record of a classifier's model."""
    found: Fields = content["fields"]["fitted"]["of"]["models_"][index]
    return found


def of(content: Any, part: str = "fitted") -> Fields:
    found: Fields = content["fields"][part]["of"]
    return found


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_put_together_unchanged_are_the_model(name: str, path: Path) -> None:
    write(path, *parts(name, path), "0")
    np.testing.assert_array_equal(load(path).score_samples(ONE), fitted(name).score_samples(ONE))


def put(name: str, value: Any) -> Callable[[Any, Arrays], None]:
    """Return a change that replaces an array."""

    def change(content: Any, arrays: Arrays) -> None:
        assert name in arrays
        arrays[name] = np.asarray(value(arrays[name]) if callable(value) else value)

    return change


def assign(part: str, name: str, value: Any) -> Callable[[Any, Arrays], None]:
    def change(content: Any, arrays: Arrays) -> None:
        of(content, part)[name] = value

    return change


def prepare(**own: Any) -> Callable[[Any, Arrays], None]:
    """Return a change of how files are prepared."""
    return assign("fitted", "preparation_", encode(own)[0])


def remove(name: str) -> Callable[[Any, Arrays], None]:
    def change(content: Any, arrays: Arrays) -> None:
        gone = of(content).pop(name)
        if isinstance(gone, dict):
            del arrays[gone["of"]]

    return change


def rename_class(content: Any, arrays: Arrays) -> None:
    content["of"] = "os.system"


def drop_fitted(content: Any, arrays: Arrays) -> None:
    del content["fields"]["fitted"]
    arrays.clear()


def one_group_less(content: Any, arrays: Arrays) -> None:
    of(content)["feature_sets_"].pop()


def other_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_sets_"][1] = [0]


def wide_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_sets_"] = [[0], [1, 2]]


def other_classes(content: Any, arrays: Arrays) -> None:
    own = group(content, 1)["fields"]["fitted"]["of"]
    arrays["other"] = arrays[own["classes_"]["of"]] + np.uint32(1)
    own["classes_"] = {"is": "text", "of": "other"}


def spare_array(content: Any, arrays: Arrays) -> None:
    arrays["spare"] = np.zeros(3)


def lost_array(content: Any, arrays: Arrays) -> None:
    del arrays["fitted.means_"]


def indefinite(covariances: np.ndarray) -> np.ndarray:
    covariances[0, 0, 1] = covariances[0, 1, 0] = 100.0
    return covariances


def crooked(covariances: np.ndarray) -> np.ndarray:
    covariances[0, 0, 1] += 0.1
    return covariances


def with_nan(array: np.ndarray) -> np.ndarray:
    array.flat[0] = np.nan
    return array


NUMBERS = {"is": "objects", "of": [1, 2, 3], "shape": [3]}
COLOUR = {"is": "dict", "of": {"colour": True}}
CASES: list[tuple[str, Callable[[Any, Arrays], None], str]] = [
    ("mixture", rename_class, "its class is 'os.system', known are GaussianMixture"),
    ("mixture", drop_fitted, "fitted attributes are missing"),
    ("mixture", spare_array, "arrays that no value refers to: .'spare'"),
    ("mixture", lost_array, "'fitted.means_' is missing"),
    ("mixture", remove("means_"), "means_ is missing"),
    ("mixture", remove("log_likelihood_"), "log_likelihood_ is missing"),
    (
        "mixture",
        assign("fitted", "covariance_type_", "diag"),
        "covariances must have shape",
    ),
    ("mixture", assign("parameters", "tail", "t"), "tail is 't', but None was fitted"),
    ("mixture", assign("fitted", "n_features_in_", 2), "n_features_in_ is not 3"),
    ("mixture", assign("fitted", "__class__", 3), "'__class__' is not an attribute of a fitted"),
    (
        "mixture",
        assign("fitted", "feature_names_in_", {"is": "objects", "of": [1, 2, 3], "shape": [3]}),
        "3 names",
    ),
    ("mixture", put("fitted.means_", np.zeros((4, 3))), r"means_ has shape \(4, 3\), not \(3, "),
    ("mixture", put("fitted.means_", np.zeros((3, 3), dtype=np.int64)), "means_ is of type int64"),
    ("mixture", put("fitted.weights_", lambda w: w * 1.01), "weights_ must sum to one.*1.01"),
    ("mixture", put("fitted.weights_", lambda w: 1.0 - 2.0 * w), "weights_ has -.*, which is not between 0"),
    ("mixture", put("fitted.class_prior_", lambda p: p * 2), "class_prior_ must sum to one, got a sum of 2"),
    ("mixture", put("fitted.covariances_", with_nan), "covariances must be finite"),
    ("mixture", put("fitted.covariances_", indefinite), "kernel 0 is not positive definite"),
    ("mixture", put("fitted.covariances_", crooked), "not symmetric: entries differ by 0.1"),
    ("mixture", put("fitted.classes_", lambda c: c[::-1].copy()), "classes_ are not sorted"),
    ("mixture", put("fitted.classes_", lambda c: c[:, None]), r"classes_ has shape \(3, 1\)"),
    ("mixture", assign("parameters", "n_init", 0), "n_init"),
    ("mixture", assign("parameters", "device", "cuda/half"), "not of the form 'cuda:0'"),
    ("mixture", assign("parameters", "shape", 1), "no parameter 'shape'; a later version may"),
    ("mixture", assign("output", "transform", "spreadsheet"), "its output is set to"),
    ("mixture", assign("requests", "fit", 3), "takes no metadata in 'fit'"),
    ("mixture", assign("requests", "__class__", COLOUR), "takes no metadata in '__class__'"),
    ("mixture", assign("requests", "fit", COLOUR), "colour"),
    ("mixture", prepare(transform="none", gate=1), "preparation_ is {'transform': 'none', 'gate'"),
    ("mixture", prepare(transform="arcsinh:-1"), "the cofactor '-1' is not a number above 0"),
    ("product", assign("fitted", "temperature_", -1.0), "temperature_ has -1.0, which is not between"),
    ("product", one_group_less, "2 models for 1 feature sets"),
    ("product", other_group, "column 0 is in feature set 0 and again in set 1"),
    ("product", wide_group, "has 2 features for 1 columns"),
    ("product", other_classes, "different classes"),
    ("product", put("fitted.class_prior_", np.full(2, 0.5)), "class_prior_ has 2 classes"),
    ("drop-in", put("fitted.weights_", lambda w: w * 0.9), "weights_ must sum to one"),
    ("drop-in", put("fitted.precisions_", np.eye(3)), r"precisions_ has shape \(3, 3\), not \(2, 3, 3\)"),
    ("mixtures", assign("fitted", "best_index_", 99), "best_index_ is not that of a candidate"),
    ("mixtures", put("fitted.shares_", np.full(2, 0.5)), "mixtures_ has 1 members, not 2"),
    ("search", assign("fitted", "feature_maps_", [3]), "feature_maps_ must have None or tuples"),
]


@pytest.mark.parametrize(("name", "change", "message"), CASES)
def test_files_whose_parts_do_not_belong_together(
    name: str, change: Callable[[Any, Arrays], None], message: str, path: Path
) -> None:
    content, arrays = parts(name, path)
    change(content, arrays)
    write(path, content, arrays, "0")
    with pytest.raises(ValueError, match=rf"model\.skmix holds no valid model: .*(?:{message})"):
        load(path)


def test_content_that_is_no_estimator(path: Path) -> None:
    write(path, 3, {}, "0")
    with pytest.raises(ValueError, match="it is not an estimator"):
        load(path)
    deep: Any = 1
    for _ in range(700):
        deep = [deep]
    write(path, deep, {}, "0")
    with pytest.raises(ValueError, match=r"model\.skmix"):
        load(path)


def test_parameters_newer_than_a_file_have_their_defaults(path: Path) -> None:
    content, arrays = parts("mixture", path)
    del of(content, "parameters")["n_init"]
    write(path, content, arrays, "0")
    assert load(path).n_init == 1


def test_damaged_bytes_never_make_another_model(path: Path) -> None:
    """Whatever happens to the bytes: an error that names the file, or the model that was saved."""
    model = fitted("product")
    model.save(path)
    data, probe = path.read_bytes(), np.arange(3.0)[None]
    expected = model.predict_proba(probe)
    generator = random.Random(0)
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(generator.choice([1, 1, 2, 8])):
            damaged = damaged or bytearray(1)
            place = generator.randrange(len(damaged))
            damage = generator.randrange(4)
            if damage == 0:
                damaged[place] = generator.randrange(256)
            elif damage == 1:
                del damaged[place : place + generator.randrange(1, 40)]
            elif damage == 2:
                damaged[place:place] = generator.randbytes(generator.randrange(1, 9))
            else:
                del damaged[place:]
                damaged += b"\0"
        path.write_bytes(damaged)
        try:
            back = load(path)
        except ValueError as error:
            assert str(path) in str(error)  # noqa: PT017
        else:
            np.testing.assert_array_equal(back.predict_proba(probe), expected)


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
