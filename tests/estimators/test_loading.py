"""Files whose parts do not belong together are refused, however well they are formed."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, load
from skmix.io import read, write

Fields = dict[str, Any]
Arrays = dict[str, np.ndarray]


def fitted() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c"], 20)
    X = rng.normal(size=(60, 3)) + np.repeat(np.arange(3), 20)[:, None] * 3.0
    return {
        "classifier": SharedKernelClassifier(random_state=0).fit(X, y),
        "product": SharedKernelClassifier(feature_groups=[[0, 2], [1]], random_state=0).fit(X, y),
        "mixture": SharedKernelMixture(3, random_state=0).fit(X, y),
        "drop-in": GaussianMixture(2, random_state=0).fit(X),
        "diagonal": GaussianMixture(2, covariance_type="diag", random_state=0).fit(X),
    }


FITTED = fitted()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.skmix"


def parts(name: str, path: Path) -> tuple[Any, Arrays]:
    """Return what the file of a fitted model is made of, to be changed."""
    FITTED[name].save(path)
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
    for name, model in FITTED.items():
        write(path, *parts(name, path), "0")
        np.testing.assert_array_equal(
            load(path).score_samples(np.ones((1, 3))), model.score_samples([[1] * 3])
        )


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
    of(content)["feature_groups_"].pop()


def other_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_groups_"][1] = [0]


def far_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_groups_"][1] = [3]


def wide_group(content: Any, arrays: Arrays) -> None:
    of(content)["feature_groups_"] = [[0], [1, 2]]


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
    ("mixture", remove("covariance_type_"), "covariance_type_ is missing"),
    ("mixture", remove("n_iter_"), "n_iter_ is missing"),
    (
        "mixture",
        assign("fitted", "covariance_type_", "diag"),
        r"covariances_ has shape \(3, 3, 3\), not \(3, 3\)",
    ),
    (
        "mixture",
        assign("fitted", "covariance_type_", "round"),
        "covariance_type='round' is not one of",
    ),
    ("mixture", assign("fitted", "n_features_in_", 2), "n_features_in_ is 2 for 3 features"),
    ("mixture", assign("fitted", "n_features_in_", "3"), "n_features_in_ is a str"),
    ("mixture", assign("fitted", "n_features_in_", True), "n_features_in_ is a bool"),
    ("mixture", assign("fitted", "converged_", 1), "converged_ is a int"),
    ("mixture", assign("fitted", "log_likelihood_", {"is": "float", "of": "nan"}), "log_likelihood_ is NaN"),
    ("mixture", assign("fitted", "log_likelihood_", 10**400), "log_likelihood_ is a int"),
    ("mixture", assign("fitted", "means_", [[1.0]]), "no value refers to: .'fitted.means_'"),
    ("mixture", assign("fitted", "n_iter_", [1]), "n_iter_ is a list"),
    (
        "mixture",
        assign("fitted", "predict", 3),
        "'predict' is not an attribute of a fitted SharedKernelMixture",
    ),
    ("mixture", assign("fitted", "__class__", 3), "'__class__' is not an attribute"),
    ("mixture", assign("fitted", "_parameters", 3), "'_parameters' is not an attribute"),
    ("mixture", assign("fitted", "n_kernels", 3), "'n_kernels' is not an attribute"),
    (
        "mixture",
        assign("fitted", "feature_names_in_", {"is": "objects", "of": ["a"], "shape": [1]}),
        "not 3 names",
    ),
    (
        "mixture",
        assign("fitted", "feature_names_in_", {"is": "objects", "of": [1, 2, 3], "shape": [3]}),
        "not 3 names",
    ),
    ("mixture", put("fitted.means_", np.zeros((3, 0))), r"means_ has shape \(3, 0\)"),
    ("mixture", put("fitted.means_", np.zeros(3)), r"means_ has shape \(3,\)"),
    ("mixture", put("fitted.means_", np.zeros((4, 3))), "n_kernels_ is 3 for 4 kernels"),
    ("mixture", put("fitted.means_", np.zeros((3, 3), dtype=np.int64)), "means_ is of type int64"),
    ("mixture", put("fitted.means_", with_nan), "means_ has values that are NaN"),
    ("mixture", put("fitted.weights_", with_nan), "weights_ has values that are NaN"),
    ("mixture", put("fitted.weights_", lambda w: w * 1.01), "weights_ must sum to one.*1.01"),
    ("mixture", put("fitted.weights_", negative), "weights_ has negative values, such as -2"),
    ("mixture", put("fitted.weights_", lambda w: w[:, :2]), r"weights_ has shape \(3, 2\), not \(3, 3\)"),
    ("mixture", put("fitted.class_prior_", lambda p: p * 2), "class_prior_ must sum to one, got a sum of 2"),
    ("mixture", put("fitted.covariances_", with_nan), "covariances_ has values that are NaN"),
    ("mixture", put("fitted.covariances_", lambda c: -c), "covariances_ are not positive definite"),
    ("mixture", put("fitted.covariances_", indefinite), "covariances_ are not positive definite"),
    ("mixture", put("fitted.covariances_", crooked), "not symmetric: entries differ by 0.1"),
    ("mixture", put("fitted.covariances_", lambda c: c[0]), r"shape \(3, 3\), not \(3, 3, 3\)"),
    ("mixture", put("fitted.classes_", lambda c: c[::-1].copy()), "classes_ are not sorted"),
    ("mixture", put("fitted.classes_", lambda c: c[[0, 0, 1]]), "classes_ are not sorted and distinct"),
    ("mixture", put("fitted.classes_", lambda c: c[:, None]), r"classes_ has shape \(3, 1\)"),
    (
        "mixture",
        put("fitted.log_likelihood_path_", lambda p: p[:, :1]),
        r"log_likelihood_path_ has shape \(\d+, 1\)",
    ),
    ("mixture", put("fitted.start_log_likelihoods_", np.zeros(2)), "do not belong together"),
    ("mixture", assign("parameters", "n_init", 0), "n_init"),
    ("mixture", assign("parameters", "n_init", "many"), "n_init"),
    ("mixture", assign("parameters", "shape", 1), "no parameter 'shape'; a later version may"),
    ("mixture", assign("output", "transform", "spreadsheet"), "its output is set to"),
    ("mixture", assign("output", "predict", "pandas"), "its output is set to"),
    ("mixture", assign("requests", "fit", 3), "takes no metadata in 'fit'"),
    (
        "mixture",
        assign("requests", "__class__", {"is": "dict", "of": {}}),
        "takes no metadata in '__class__'",
    ),
    ("mixture", assign("requests", "fit", {"is": "dict", "of": {"colour": True}}), "colour"),
    ("classifier", assign("fitted", "temperature_", -1.0), "temperature_ is not positive"),
    ("product", classifier_inside, "GaussianMixture has no parameter"),
    ("product", one_group_less, "2 models for 1 feature groups"),
    ("product", other_group, "column 0 is in feature group 0 and again in group 1"),
    ("product", far_group, "column 3, but X has 3"),
    ("product", wide_group, "feature group 0 has 2 features for 1 columns"),
    ("product", other_classes, "feature group 1 has other classes"),
    ("product", assign("fitted", "n_features_in_", 2), "column 2, but X has 2"),
    ("product", assign("fitted", "n_features_in_", 0), "n_features_in_ is 0"),
    ("product", assign("fitted", "converged_", True), "'converged_' is not an attribute of a fitted"),
    ("drop-in", put("fitted.weights_", lambda w: w * 0.9), "weights_ must sum to one"),
    ("drop-in", put("fitted.weights_", lambda w: (w * 0.9).astype(np.float32)), "weights_ must sum to one"),
    ("drop-in", put("fitted.precisions_", lambda p: p * 1.1), "not the squares"),
    ("drop-in", put("fitted.covariances_", lambda c: c * 1.1), "does not belong to covariances_"),
    ("drop-in", put("fitted.precisions_cholesky_", lambda p: -p), "diagonal that is not positive"),
    (
        "drop-in",
        put("fitted.precisions_cholesky_", lambda p: p[0]),
        r"precisions_cholesky_ has shape \(3, 3\), not \(2, 3, 3\)",
    ),
    ("drop-in", assign("fitted", "lower_bounds_", [1.0, None]), "lower_bounds_ are not all numbers"),
    ("drop-in", assign("fitted", "lower_bound_", {"is": "float", "of": "nan"}), "lower_bound_ is NaN"),
    ("diagonal", put("fitted.covariances_", lambda c: c * 1.1), "does not belong to covariances_"),
    ("diagonal", put("fitted.covariances_", lambda c: -c), "not positive definite"),
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
    model = FITTED["product"]
    model.save(path)
    data, probe = path.read_bytes(), np.arange(3.0)[None]
    expected = model.predict_proba(probe)
    generator = random.Random(0)
    for _ in range(1500):
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


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just([]),
    st.just({}),
    st.just([[1, 2], "x"]),
    st.just({"is": "dict", "of": {"a": 1}}),
    st.just({"is": "record", "of": "SharedKernelMixture", "fields": {}}),
    st.sampled_from(["fitted.means_", "fitted.classes_"]).map(lambda name: {"is": "array", "of": name}),
)


def places(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value inside."""
    inside = content.items() if isinstance(content, dict) else enumerate(content)
    found = []
    for key, value in inside:
        found.append((*at, key))
        if isinstance(value, (dict, list)):
            found += places(value, (*at, key))
    return found


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_change_of_the_content_ends_in_a_model_or_a_clear_error(path: Path, data: st.DataObject) -> None:
    """These files have the digest of a good one. What loads has a shape that works."""
    content, arrays = parts(data.draw(st.sampled_from(sorted(FITTED))), path)
    content = copy.deepcopy(content)
    way = data.draw(st.sampled_from(places(content)))
    inner = content
    for key in way[:-1]:
        inner = inner[key]
    if data.draw(st.booleans()) and isinstance(inner, dict):
        del inner[way[-1]]
    else:
        inner[way[-1]] = data.draw(JUNK)
    write(path, json.loads(json.dumps(content)), arrays, "0")
    try:
        model = load(path)
    except ValueError as error:
        assert re.match(rf"{re.escape(str(path))} \w+", str(error))  # noqa: PT017
        return
    try:
        assert np.isfinite(model.score_samples(np.ones((2, 3)))).all()
    except ValueError as error:
        # Whether there is such a device only the machine knows that is to use it.
        assert (way[-1], str(error)[:7]) == ("device", "device=")  # noqa: PT017
