"""The classifier: Bayes' rule on the class densities, labels of any type, and the product form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from oracles import class_log_likelihood
from scipy.special import logsumexp

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, load
from skmix.engine.records import Parameters

Golden = Callable[[str], dict[str, NDArray[Any]]]


def unequal_classes(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of three overlapping classes with 90, 50 and 10 rows, in four features, in no order."""
    random = np.random.default_rng(seed)
    y = random.permutation(np.repeat([0, 1, 2], [90, 50, 10]))
    X = random.normal(size=(150, 4)) + 2.0 * np.eye(3, 4)[y]
    return X, y


# ---------------------------------------------------------------- Bayes' rule


@pytest.mark.parametrize(
    ("priors", "expected"),
    [(None, [0.6, 1 / 3, 1 / 15]), ("uniform", [1 / 3] * 3), ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5])],
    ids=str,
)
def test_bayes_rule(priors: Any, expected: list[float]) -> None:
    X, y = unequal_classes()
    model = SharedKernelClassifier(4, priors=priors, random_state=0, max_iter=900).fit(X, y)
    assert_allclose(model.class_prior_, expected, rtol=1e-14)
    joint = class_log_likelihood(X, Parameters(model.weights_, model.means_, model.covariances_))
    joint += np.log(expected)
    posterior = joint - logsumexp(joint, axis=1, keepdims=True)
    assert_allclose(model.predict_proba(X), np.exp(posterior), rtol=1e-7, atol=1e-12)
    assert_allclose(model.predict_log_proba(X), posterior, rtol=1e-7, atol=1e-9)
    right = joint.argmax(axis=1) == y
    assert_array_equal(model.predict(X), joint.argmax(axis=1))
    assert model.score(X, y) == pytest.approx(right.mean())
    weights = np.arange(float(len(y)))
    assert model.score(X, y, weights) == pytest.approx(np.average(right, weights=weights))


def test_a_class_of_prior_zero_is_never_predicted() -> None:
    X, y = unequal_classes()
    # A sum of one but for rounding is made one.
    model = SharedKernelClassifier(3, priors=[0.5, 0.0, 0.5 + 5e-7], random_state=0).fit(X, y)
    assert model.class_prior_.sum() == pytest.approx(1.0, abs=1e-12)
    assert (model.predict_proba(X)[:, 1] == 0.0).all()
    assert (model.predict_log_proba(X)[:, 1] == -np.inf).all()
    assert 1 not in model.predict(X)
    assert np.isfinite(model.score_samples(X)).all()


# ---------------------------------------------------------------- labels


LABELS: dict[str, Any] = {
    "str": np.array(["ant", "bee", "cat"]),
    "bool": np.array([False, True, True]),
    "negative int": np.array([-4, -3, -2]),
    "int8": np.array([5, 7, 120], dtype=np.int8),
    "float of integers": np.array([-1.5e3, 0.0, 12.0]),
    "object": np.array(["ant", "bee", "cat"], dtype=object),
    "empty string": np.array(["", " ", "três 𝄞"], dtype="U20"),
    "uint16": np.array([1, 2, 60_000], dtype=np.uint16),
}


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("container", ["array", "list", "series"])
def test_labels_of_any_type(kind: str, container: str, tmp_path: Path) -> None:
    X, y = unequal_classes()
    names = LABELS[kind]
    labels: Any = names[y]
    codes = np.unique(names, return_inverse=True)[1][y]
    expected = SharedKernelClassifier(random_state=0).fit(X, codes)
    if container == "list":
        labels = labels.tolist()
    elif container == "series":
        labels = pd.Series(labels, index=np.arange(len(y))[::-1])
    model = SharedKernelClassifier(random_state=0).fit(X, labels)
    assert_array_equal(model.classes_, np.unique(names))
    assert_array_equal(model.means_, expected.means_)
    predicted = model.predict(X)
    assert_array_equal(predicted, np.unique(names)[expected.predict(X)])
    assert predicted.dtype == model.classes_.dtype
    if container == "array":
        assert predicted.dtype == names.dtype
    assert model.score(X, labels) == expected.score(X, codes)
    assert model.models_[0].bic(X, labels) == expected.models_[0].bic(X, codes)
    rows, drawn = model.sample(5, label=np.unique(names)[1])
    assert rows.shape == (5, 4)
    assert_array_equal(drawn, [np.unique(names)[1]] * 5)
    model.save(tmp_path / "model.skmix")
    back = load(tmp_path / "model.skmix")
    assert back.classes_.dtype == model.classes_.dtype
    assert back.predict(X).tolist() == predicted.tolist()


# ---------------------------------------------------------------- the product form


@pytest.mark.parametrize("given", [None, [[0, 1, 2, 3]], [[2, 0], [3]]])
def test_feature_sets_multiply_class_likelihoods(given: Any) -> None:
    X, y = unequal_classes()
    settings: Any = {"n_kernels": 3, "n_init": 2, "random_state": 0, "max_iter": 900, "tol": 1e-3}
    model = SharedKernelClassifier(feature_sets=given, **settings).fit(X, y)
    sets = model.feature_sets_
    assert sets == (given or [[0, 1, 2, 3]])
    parts = [SharedKernelMixture(init="class", **settings).fit(X[:, columns], y) for columns in sets]
    own = list(zip(parts, sets, strict=True))
    expected = sum(part.class_log_likelihood(X[:, columns]) for part, columns in own)
    assert_allclose(model.class_log_likelihood(X), expected, rtol=1e-10)
    assert model.n_iter_ == max(part.n_iter_ for part in parts)
    if len(sets) == 1:
        for name in ("weights_", "means_", "covariances_", "log_likelihood_path_", "start_log_likelihoods_"):
            assert_array_equal(getattr(model, name), getattr(parts[0], name))
        return
    # Columns in no set do not matter, and are not drawn.
    changed = X.copy()
    changed[:, 1] = 1e6
    assert_array_equal(model.predict_proba(changed), model.predict_proba(X))
    assert_array_equal(np.isnan(model.sample(6)[0]), np.tile([False, True, False, False], (6, 1)))


def test_feature_sets_by_name_are_those_by_index() -> None:
    X, y = unequal_classes()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    settings: Any = {"reject_below": 0.1, "random_state": 0, "priors": [0.2, 0.3, 0.5], "tol": 1e-2}
    by_name = SharedKernelClassifier(feature_sets=[["c", "a"], ["d"]], **settings).fit(frame, y)
    by_index = SharedKernelClassifier(feature_sets=[[2, 0], [3]], **settings).fit(X, y)
    assert by_name.feature_sets_ == by_index.feature_sets_
    assert by_name.threshold_ == pytest.approx(by_index.threshold_, rel=1e-9)
    assert_allclose(by_name.predict_proba(frame), by_index.predict_proba(X), rtol=1e-9)
    assert_array_equal(by_name.feature_names_in_, ["a", "b", "c", "d"])
    mixed = SharedKernelClassifier(feature_sets=(("c", 0), np.array([3])), random_state=0).fit(frame, y)
    assert mixed.feature_sets_ == [[2, 0], [3]]


@pytest.mark.parametrize("sets", [[["d", "text"], ["a"]], [[2, 1], [0]]])
def test_feature_sets_are_of_columns_where_a_column_has_several_features(sets: Any) -> None:
    X, y = unequal_classes()
    text = np.array(["p", "q", "r"])[np.digitize(X[:, 1], np.quantile(X[:, 1], [0.3, 0.6]))]
    frame = pd.DataFrame({"a": X[:, 0], "text": text, "d": X[:, 3]})
    encoded = np.column_stack([X[:, 0], *(text == each for each in "pqr"), X[:, 3]])
    by_features = SharedKernelClassifier(feature_sets=[[4, 1, 2, 3], [0]], random_state=0).fit(encoded, y)
    of_columns = SharedKernelClassifier(feature_sets=sets, random_state=0).fit(frame, y)
    assert of_columns.feature_sets_ == [[4, 1, 2, 3], [0]]
    assert_allclose(of_columns.predict_proba(frame), by_features.predict_proba(encoded), rtol=1e-9)
    search = SharedKernelClassifierCV(feature_sets=sets, n_kernels=3, cv=2, random_state=0).fit(frame, y)
    assert search.best_estimator_.feature_sets_ == [[4, 1, 2, 3], [0]]


EARLIER: dict[str, Any] = {
    "feature sets": lambda X, y: SharedKernelClassifier(feature_sets=[[0, 1], [2, 3]]).fit(X, y),
    "posterior": lambda X, y: SharedKernelClassifier(6, inference="variational", random_state=0).fit(X, y),
    "stream": lambda X, y: SharedKernelClassifier(5, random_state=0).partial_fit(X, y, classes=[0, 1, 2]),
    "columns": lambda X, y: SharedKernelClassifier().fit(
        pd.DataFrame(X).assign(text=np.array([*"abc"])[y]), y
    ),
    "tuned": lambda X, y: SharedKernelClassifier(3, reject_below=0.1).fit(X, y).tune(X, y, max_iter=2),
    "shifts": lambda X, y: SharedKernelMixture(3, group_shift=2.0, random_state=0).fit(X, y),
    "hierarchical": lambda X, y: SharedKernelMixture(3, weight_prior="hierarchical").fit(X, y),
    "unlabelled stream": lambda X, y: SharedKernelMixture(2, random_state=0).partial_fit(X),
}


@pytest.mark.parametrize("kind", EARLIER)
def test_nothing_of_an_earlier_fit_is_left(kind: str) -> None:
    X, y = unequal_classes()
    model = EARLIER[kind](X, y)
    fresh = type(model)(4, random_state=0).fit(X, y)
    model.set_params(**fresh.get_params()).fit(X, y)
    assert vars(model).keys() == vars(fresh).keys()
    for part, other in zip(
        getattr(model, "models_", [model]), getattr(fresh, "models_", [fresh]), strict=True
    ):
        assert vars(part).keys() == vars(other).keys()
        assert_array_equal(part.means_, other.means_)


# ---------------------------------------------------------------- what it learns


def test_the_papers_run_through_the_public_face(golden: Golden) -> None:
    """Published numbers of the digits, by the estimator with the paper's rule."""
    reference = golden("digits_3d")
    start = {name: reference[name][0] for name in ("weights", "means", "covariances")}
    model = SharedKernelClassifier(
        init=start, tol=0.1, stopping="per-class", max_iter=100, variance_floor=0.0, priors="uniform"
    ).fit(reference["X"], reference["y"])
    assert model.n_iter_ == 18
    assert_allclose(model.log_likelihood_path_, reference["class_log_likelihood"], rtol=1e-9)
    assert_allclose(model.means_, reference["means"][-1], rtol=1e-9, atol=1e-12)
    assert_allclose(model.weights_, reference["weights"][-1], rtol=1e-9, atol=1e-12)
