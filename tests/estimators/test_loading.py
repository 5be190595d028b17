"""Files whose parts do not belong together are refused, however well they are formed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    load,
    report,
)
from skmix.estimators import saving
from skmix.io import Record, decode, encode, read, write
from skmix.report._predictions import predict_columns

pytestmark = pytest.mark.filterwarnings("ignore:X does not have valid feature names")

Fields = dict[str, Any]
Arrays = dict[str, np.ndarray]


@cache
def fitted() -> dict[str, Any]:
    """Return models that have, between them, every attribute that a fit leaves behind; simple ones first."""
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 12)
    X = rng.normal(size=(36, 3)) + np.repeat(np.arange(3), 12)[:, None] * 3.0
    short = {"random_state": 0, "max_iter": 100}
    mixture = partial(SharedKernelMixture, **short)
    noted = SharedKernelClassifier(3, reject_below=0.1, outlier_label="none", **short)
    noted.fit(pd.DataFrame(X, columns=["u", "v", "w"]), y)
    noted.metadata_ = {"target": "kind", "outlier_threshold": -9.0}
    noted.preparation_ = {"compensate": False, "transform": "arcsinh:150"}
    quick = SharedKernelClassifier(max_iter=50, tol=0.1)
    search = SharedKernelClassifierCV(quick, n_kernels=3, covariance_type="tied", time_limit=0, **SEED)
    # What power, rank and projection would have learnt.
    curves = np.stack([np.tile(np.linspace(-9.0, 9.0, 4), (3, 1))] * 2)
    search.fit(X, y).feature_maps_ = [(X.mean(axis=0), np.ones(3), np.full(3, 0.5), curves, *AS_IT_IS)]
    return {
        "mixture": mixture(3).fit(X, y),
        "starts": mixture(3, n_init=2).fit(X, y),
        "low_rank": mixture(2, covariance_type=("low_rank", 1), tol=0.1).fit(X),
        "robust": mixture(2, tail="t", tol=0.1).fit(X, y),
        "variational": mixture(3, inference="variational").fit(X, y),
        "hierarchical": mixture(3, weight_prior="hierarchical").fit(X, y),
        "shifted": mixture(2, group_shift=2.0).fit(X, y),
        "stream": mixture(2).partial_fit(X, y),
        "classifier": SharedKernelClassifier(random_state=0).fit(X, y),
        "product": SharedKernelClassifier(feature_sets=[[0, 2], [1]], random_state=0).fit(X, y),
        "noted": noted,
        "tuned": SharedKernelClassifier(3, **short).fit(X, y).tune(X, y, max_iter=2),
        "drop-in": GaussianMixture(2, random_state=0).fit(X),
        "diagonal": GaussianMixture(2, covariance_type="diag", random_state=0).fit(X),
        "search": search,
        "mixtures": SharedKernelMixtureCV(n_kernels=[1], time_limit=0, **SEED).fit(X, y),
    }


SEED = {"random_state": 0}
ONE = np.ones((1, 3))
AS_IT_IS = (np.zeros(3), np.eye(3))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.skmix"


def parts(name: str, path: Path) -> tuple[Any, Arrays]:
    """Return what the file of a fitted model is made of, to be changed."""
    fitted()[name].save(path)
    content, arrays = read(path)
    return content, {key: array.copy() for key, array in arrays.items()}


def group(content: Any, index: int = 0) -> Fields:
    """Return the record of a classifier's model."""
    found: Fields = content["fields"]["fitted"]["of"]["models_"][index]
    return found


def of(content: Any, part: str = "fitted") -> Fields:
    found: Fields = content["fields"][part]["of"]
    return found


def test_the_parts_put_together_unchanged_are_the_model(path: Path) -> None:
    for name, model in fitted().items():
        write(path, *parts(name, path), "0")
        np.testing.assert_array_equal(load(path).score_samples(ONE), model.score_samples(ONE))


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


def of_the_first(factor: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return what multiplies the first of two matrices."""
    return lambda matrices: matrices * np.array([factor, 1.0])[:, None, None]


def note(**noted: Any) -> Callable[[Any, Arrays], None]:
    """Return a change of what the command line has noted."""
    return assign("fitted", "metadata_", encode(noted)[0])


def prepare(**own: Any) -> Callable[[Any, Arrays], None]:
    """Return a change of how files are prepared."""
    return assign("fitted", "preparation_", encode(own)[0])


def columns(**kinds: Any) -> Callable[[Any, Arrays], None]:
    return prepare(transform="none", columns=kinds)


def remove(name: str) -> Callable[[Any, Arrays], None]:
    def change(content: Any, arrays: Arrays) -> None:
        gone = of(content).pop(name)
        if isinstance(gone, dict):
            del arrays[gone["of"]]

    return change


def rename_class(content: Any, arrays: Arrays) -> None:
    content["of"] = "os.system"


def swap_class(content: Any, arrays: Arrays) -> None:
    content["of"] = "GaussianMixture"


def drop_fitted(content: Any, arrays: Arrays) -> None:
    del content["fields"]["fitted"]
    arrays.clear()


def classifier_inside(content: Any, arrays: Arrays) -> None:
    group(content)["of"] = "GaussianMixture"


def one_group_less(content: Any, arrays: Arrays) -> None:
    of(content)["feature_sets_"].pop()


def other_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_sets_"][1] = [0]


def far_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_sets_"][1] = [3]


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


def negative(weights: np.ndarray) -> np.ndarray:
    weights[0], weights[1] = -2.0, 1.0 - weights[2:].sum(axis=0) + 2.0
    return weights


CASES: list[tuple[str, Callable[[Any, Arrays], None], str]] = [
    ("mixture", rename_class, "its class is 'os.system', known are GaussianMixture"),
    ("mixture", swap_class, "GaussianMixture has no parameter"),
    ("mixture", drop_fitted, "fitted attributes are missing"),
    ("mixture", spare_array, "arrays that no value refers to: .'spare'"),
    ("mixture", lost_array, "'fitted.means_' is missing"),
    ("mixture", remove("means_"), "means_ is missing"),
    (
        "mixture",
        assign("fitted", "covariance_type_", "diag"),
        r"covariances must have shape \(3, 3\) for covariance_type=.diag.",
    ),
    ("mixture", assign("fitted", "n_features_in_", 2), "n_features_in_ is 2 for 3 features"),
    ("mixture", assign("fitted", "n_features_in_", "3"), "n_features_in_ is a str"),
    ("mixture", assign("fitted", "log_likelihood_", {"is": "float", "of": "nan"}), "log_likelihood_ is nan"),
    (
        "mixture",
        assign("fitted", "predict", 3),
        "'predict' is not an attribute of a fitted SharedKernelMixture",
    ),
    ("mixture", assign("fitted", "__class__", 3), "'__class__' is not an attribute"),
    (
        "mixture",
        assign("fitted", "feature_names_in_", {"is": "objects", "of": [1, 2, 3], "shape": [3]}),
        "not 3 names",
    ),
    ("mixture", put("fitted.means_", np.zeros((4, 3))), r"means_ has shape \(4, 3\)"),
    ("mixture", put("fitted.means_", np.zeros((3, 3), dtype=np.int64)), "means_ is of type int64"),
    ("mixture", put("fitted.means_", with_nan), "means_ has values that are NaN"),
    ("mixture", put("fitted.weights_", lambda w: w * 1.01), "weights_ must sum to one.*1.01"),
    ("mixture", put("fitted.weights_", negative), "weights_ has -2.0, which is not between 0"),
    ("mixture", put("fitted.weights_", lambda w: w[:, :2]), r"weights_ has shape \(3, 2\), not \(3, 3\)"),
    ("mixture", put("fitted.class_prior_", lambda p: p * 2), "class_prior_ must sum to one, got a sum of 2"),
    ("mixture", put("fitted.covariances_", with_nan), "covariances must be finite"),
    ("mixture", put("fitted.covariances_", indefinite), "kernel 0 is not positive definite"),
    ("mixture", put("fitted.covariances_", crooked), "not symmetric: entries differ by 0.1"),
    (
        "mixture",
        put("fitted.covariances_", lambda c: c[0]),
        r"covariances must have shape \(3, 3, 3\) .* got \(3, 3\)",
    ),
    ("mixture", put("fitted.classes_", lambda c: c[::-1].copy()), "classes_ are not sorted"),
    ("mixture", put("fitted.classes_", lambda c: c[:, None]), r"classes_ has shape \(3, 1\)"),
    (
        "mixture",
        put("fitted.log_likelihood_path_", lambda p: p[:, :1]),
        r"log_likelihood_path_ has shape \(\d+, 1\)",
    ),
    ("mixture", put("fitted.start_log_likelihoods_", np.zeros(2)), "do not belong together"),
    ("mixture", assign("parameters", "n_init", 0), "n_init"),
    ("mixture", assign("parameters", "shape", 1), "no parameter 'shape'; a later version may"),
    ("mixture", assign("output", "transform", "spreadsheet"), "its output is set to"),
    ("mixture", assign("requests", "fit", 3), "takes no metadata in 'fit'"),
    (
        "mixture",
        assign("requests", "__class__", {"is": "dict", "of": {}}),
        "takes no metadata in '__class__'",
    ),
    ("mixture", assign("requests", "fit", {"is": "dict", "of": {"colour": True}}), "colour"),
    ("classifier", assign("parameters", "device", "cuda/half"), "not of the form 'cuda:0'"),
    ("classifier", assign("fitted", "note_", 1), "'note_' is not an attribute of a fitted"),
    ("classifier", assign("fitted", "temperature_", -1.0), "temperature_ is -1.0, which is not between"),
    ("product", classifier_inside, "GaussianMixture has no parameter"),
    ("product", one_group_less, "2 models for 1 feature sets"),
    ("product", other_group, "column 0 is in feature set 0 and again in set 1"),
    ("product", far_group, "column 3, but X has 3"),
    ("product", wide_group, "feature set 0 has 2 features for 1 columns"),
    ("product", other_classes, "feature set 1 has other classes"),
    ("product", assign("fitted", "n_features_in_", 0), "n_features_in_ is 0"),
    ("product", assign("fitted", "converged_", True), "'converged_' is not an attribute of a fitted"),
    ("noted", prepare(transform="none", missing=["NA", 5]), "preparation_ is "),
    ("noted", note(compose={"transform": "none"}), "is in preparation_ now: fit the model again"),
    ("noted", prepare(transform="arcsinh:-1"), "the cofactor '-1' is not a number above 0"),
    ("noted", prepare(transform={"kind": "log"}), "the scale of preparation_ is"),
    ("noted", prepare(transform=None), "the scale of preparation_ is None"),
    ("noted", prepare(transform="none", gate=1), "preparation_ is {'transform': 'none', 'gate'"),
    ("noted", prepare(compensate=True), "preparation_ is {'compensate': True}"),
    ("noted", columns(u=None, v=None, x=None), "do not describe the features of feature_names_in_"),
    ("drop-in", put("fitted.weights_", lambda w: w * 0.9), "weights_ must sum to one"),
    ("drop-in", put("fitted.covariances_", lambda c: c * 1.1), "does not belong to covariances_"),
    ("drop-in", put("fitted.precisions_cholesky_", of_the_first(-1.0)), "diagonal that is not positive"),
    ("drop-in", put("fitted.precisions_", of_the_first(1.1)), "not the squares"),
    ("drop-in", put("fitted.covariances_", of_the_first(1.1)), "does not belong to covariances_"),
    ("drop-in", assign("fitted", "lower_bounds_", [1.0, None]), "lower_bounds_ are not all numbers"),
    ("diagonal", put("fitted.covariances_", lambda c: c * 1.1), "does not belong to covariances_"),
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
    model = fitted()["product"]
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


# Values that are of the wrong type, or out of range, in most places.
SCALARS = [None, "x", True, -1, 0.0, np.nan, np.inf, 1e300, 1e-320, {"a": 1}]
FACTORS = (1e-320, 1e300)
GONE = object()


def changed_arrays(array: np.ndarray) -> list[Any]:
    """Return arrays that differ in type, length or values, and values that are no arrays."""
    found: list[Any] = [None, {"a": 1}, array.tolist(), array.astype(object), GONE]
    if array.dtype.kind in "fiu":
        found += [
            array.astype(str),
            array.astype(np.float32),
            -array,
            *(array * factor for factor in FACTORS),
        ]
        if array.size:
            for number in (np.nan, -1.0):
                one = array.astype(np.float64)
                one.flat[0] = number
                found.append(one)
    elif array.size:
        found += [np.arange(array.size).reshape(array.shape), array[::-1], np.repeat(array[:1], len(array))]
    if array.ndim:
        found += [array[:-1], np.concatenate([array, array]), array[..., None], array[:0]]
    return found


def changed(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray):
        return changed_arrays(value)
    if isinstance(value, dict):
        return [None, "x", 3, [], GONE]
    if isinstance(value, (list, tuple)):
        return [None, "x", 3, {"a": 1}, [], [*value, *value], list(value[:-1]), GONE]
    if isinstance(value, Record):
        return [None, "x", GONE]
    return [*SCALARS, GONE]


def places(value: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield every value inside, and the way to it."""
    if isinstance(value, Record):
        value = value.fields
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if type(value) in SEVERAL else ()
    for key, inner in pairs:
        yield (*way, key), inner
        yield from places(inner, (*way, key))


SEVERAL = (list, tuple)
USED = ("covariance_type", "group_shift", "init", "n_jobs", "outlier_label", "tail", "tol")


def replaced(value: Any, way: tuple[Any, ...], new: Any) -> Any:
    """Return a copy in which the value at the end of a way is another, or gone."""
    if not way:
        return new
    if isinstance(value, Record):
        return Record(value.kind, replaced(value.fields, way, new))
    items = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    items[way[0]] = replaced(items[way[0]], way[1:], new)
    items = {key: item for key, item in items.items() if item is not GONE}
    return items if isinstance(value, dict) else type(value)(items.values())


def use(model: Any, evaluated: set[str]) -> None:
    """Use a model in ways in which a wrong value shows: results are finite, and nothing is raised."""
    X = np.linspace(0.0, 6.0, 12).reshape(4, 3)[:, : model.n_features_in_]
    columns = predict_columns(model, X)
    for name, column in columns.items():
        assert column.dtype.kind != "f" or np.isfinite(column).all(), name
    json.dumps(report.describe(model), allow_nan=False)
    labels = np.resize(getattr(model, "classes_", [0]), len(X))
    if is_classifier(model):
        model.predict(X)
        # An evaluation depends on these alone, and most changes leave them as they were.
        key = repr(([column.tolist() for column in columns.values()], model.classes_, labels))
        if key not in evaluated:
            evaluated.add(key)
            json.dumps(report.evaluate(model, X, labels).as_dict())
    if hasattr(model, "sample"):
        assert np.isfinite(model.sample(2)[0]).all()
    if "stream_" in vars(model):
        assert np.isfinite(model.partial_fit(X, labels).score_samples(X)).all()


def kind_of(way: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    """Return what tells one value of a file from another: a part of a model is the same in any of them."""
    own = max(place for place, key in enumerate(way) if key in ("parameters", "fitted") or not place)
    return *("item" if isinstance(key, int) else key for key in way[own:]), type(value)


@pytest.mark.slow
def test_every_value_is_checked_before_there_is_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files with a right digest in which one value is another: they are refused, or do no harm."""
    seen, harm, evaluated = set(), [], set[str]()
    for name, model in fitted().items():
        record = decode(*encode(saving._record_of(model)))
        for way, value in places(record):
            kind = kind_of(way, value)
            # Other parameters matter to the next fit alone, which checks them.
            if kind in seen or (kind[0] == "parameters" and kind[1] not in USED):
                continue
            seen.add(kind)
            for new in changed(value):
                file = encode(replaced(record, way, new))
                monkeypatch.setattr(saving, "read", lambda path, file=file: file)
                try:
                    found = load("file")
                except ValueError as error:
                    assert str(error).startswith("file holds no valid model: ")  # noqa: PT017
                    continue
                if way[-2] == "fitted" and new is not GONE and not isinstance(new, type(value)):
                    harm.append((name, way, new, "loads"))
                try:
                    use(found, evaluated)
                except Exception as error:
                    harm.append((name, way, new, repr(error)))
    assert len(seen) > 100
    assert harm == []
