"""Every kind of bad input: the right error with the numbers in it, and nothing half-fitted left behind."""

from __future__ import annotations

import copy
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError

from skmix import GaussianMixture, SharedKernelClassifier, SharedKernelMixture, SharedKernelMixtureCV

ESTIMATORS = {
    "classifier": SharedKernelClassifier(3, random_state=0, max_iter=900),
    "grouped": SharedKernelClassifier(3, feature_sets=[[0], [1, 2]], random_state=0, max_iter=900),
    "mixture": SharedKernelMixture(3, random_state=0, max_iter=900),
    "gaussian": GaussianMixture(3, random_state=0, max_iter=900),
}
each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


def rows(n_rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = np.arange(n_rows) % 3
    return random.normal(size=(n_rows, 3)) + 2.0 * np.eye(3)[y], y


def with_entry(value: float) -> np.ndarray:
    X, _ = rows()
    X[7, 1] = value
    return X


Errors = type[Exception] | tuple[type[Exception], ...]

BAD_ROWS: dict[str, tuple[Any, Errors, str]] = {
    "infinity": (with_entry(np.inf), ValueError, "contains infinity"),
    "minus infinity": (with_entry(-np.inf), ValueError, "contains infinity"),
    "one-dimensional": (rows()[0][:, 0], ValueError, "Expected 2D array, got 1D array"),
    "three-dimensional": (rows()[0][None], ValueError, "dim 3"),
    "no features": (
        np.empty((60, 0)),
        ValueError,
        r"0 feature\(s\) \(shape=\(60, 0\)\) while a minimum of 1",
    ),
    "words": (
        np.full((60, 3), "word", dtype=object),
        ValueError,
        "could not convert string to float: 'word'",
    ),
    "complex": (rows()[0] + 1j, ValueError, "Complex data not supported"),
    "sparse matrix": (sparse.csr_matrix(rows()[0]), TypeError, "Sparse data was passed"),
    "sparse array": (sparse.coo_array(rows()[0]), TypeError, "Sparse data was passed"),
    "dict": ({"a": 1}, (TypeError, ValueError), r"float\(\) argument must be|got scalar array"),
}


@cache
def _fitted(name: str) -> Any:
    return copy.deepcopy(ESTIMATORS[name]).fit(*rows())


def fitted_model(name: str) -> Any:
    """Return a copy of that estimator, fitted to good rows."""
    return copy.deepcopy(_fitted(name))


def state_of(estimator: Any) -> dict[str, Any]:
    """Return a deep copy of everything an estimator knows."""
    return copy.deepcopy(vars(estimator))


def assert_same_state(estimator: Any, before: dict[str, Any]) -> None:
    after = vars(estimator)
    assert set(after) == set(before)
    for key, value in before.items():
        if key == "models_":
            assert len(after[key]) == len(value)
            for one, other in zip(after[key], value, strict=True):
                assert_same_state(one, vars(other))
        elif isinstance(value, np.ndarray):
            assert_array_equal(after[key], value)
        else:
            assert repr(after[key]) == repr(value)


def assert_refused(
    estimator: Any, X: Any, y: Any, error: Errors, message: str, *, good: str | None = None
) -> None:
    """Check that fitting raises and changes nothing, of an unfitted estimator and of a fitted one."""
    estimator = copy.deepcopy(estimator)
    before = state_of(estimator)
    with pytest.raises(error, match=message):
        estimator.fit(X, y)
    assert_same_state(estimator, before)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        estimator.score_samples(rows()[0])
    if good is not None:
        fitted = fitted_model(good)
        fitted.set_params(**estimator.get_params())
        before = state_of(fitted)
        with pytest.raises(error, match=message):
            fitted.fit(X, y)
        assert_same_state(fitted, before)


# ---------------------------------------------------------------- rows


@pytest.mark.parametrize("name", ["grouped", "mixture", "gaussian"])
@pytest.mark.parametrize("kind", BAD_ROWS)
def test_bad_rows(name: str, kind: str) -> None:
    X, error, message = BAD_ROWS[kind]
    assert_refused(ESTIMATORS[name], X, rows()[1], error, message, good=name)
    fitted = fitted_model(name)
    before = state_of(fitted)
    for method in ("score_samples", "predict", "predict_proba", "class_log_likelihood", "responsibilities"):
        if hasattr(fitted, method):
            with pytest.raises(error, match=message):
                getattr(fitted, method)(X)
    assert_same_state(fitted, before)


@each_estimator
def test_a_single_row(name: str) -> None:
    X, y = rows()
    message = r"1 sample\(s\) \(shape=\(1, 3\)\) while a minimum of 2 is required"
    assert_refused(ESTIMATORS[name], X[:1], y[:1], ValueError, message, good=name)
    assert_refused(ESTIMATORS[name], X[:0], y[:0], ValueError, r"0 sample\(s\)", good=name)


def test_the_drop_in_refuses_missing_values_as_scikit_learn_does() -> None:
    frame = pd.DataFrame(rows()[0], columns=list("abc")).mask(rows()[0] > 2.0)
    assert_refused(ESTIMATORS["gaussian"], frame, rows()[1], ValueError, "does not accept missing values")


@pytest.mark.parametrize("name", ["classifier", "grouped", "mixture"])
def test_a_feature_without_any_value(name: str) -> None:
    X, y = rows()
    X[:, 1] = np.nan
    message = "Feature 1 of X has no value: it is NaN in all 60 rows"
    assert_refused(ESTIMATORS[name], X, y, ValueError, message, good=name)


def test_a_class_without_any_value_in_a_feature_set() -> None:
    X, y = rows()
    X[y == 2, 0] = np.nan
    message = r"No row of class .*2.* has a value in feature set 0, columns \[0\]"
    assert_refused(ESTIMATORS["grouped"], X, y, ValueError, message, good="grouped")


@pytest.mark.parametrize("name", ["classifier", "grouped", "mixture"])
@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.zeros(60), "at least one non-zero"),
        (np.where(np.arange(60) == 4, -1.0, 1.0), "Negative values"),
        (np.where(np.arange(60) == 4, np.nan, 1.0), "NaN"),
        (np.ones(59), r"sample_weight.shape == \(59,\), expected \(60,\)"),
        (np.ones((60, 2)), "must be 1D"),
    ],
    ids=["all zero", "negative", "nan", "too few", "two columns"],
)
def test_bad_weights(name: str, weights: np.ndarray, message: str) -> None:
    estimator = copy.deepcopy(ESTIMATORS[name])
    before = state_of(estimator)
    with pytest.raises(ValueError, match=message):
        estimator.fit(*rows(), sample_weight=weights)
    assert_same_state(estimator, before)


@pytest.mark.parametrize("name", ["classifier", "grouped", "mixture"])
def test_no_label_at_all(name: str) -> None:
    X, _ = rows()
    message = r"All 60 rows are unlabelled \(y is -1 everywhere\)"
    assert_refused(ESTIMATORS[name], X, np.full(60, -1), ValueError, message, good=name)
    weights = np.where(np.arange(60) < 3, 0.0, 1.0)
    y = np.where(np.arange(60) < 3, np.arange(60), -1)
    with pytest.raises(ValueError, match="zero for every row that has a label"):
        copy.deepcopy(ESTIMATORS[name]).fit(X, y, sample_weight=weights)


def test_numbers_in_an_object_array_are_numbers() -> None:
    X, y = rows()
    found = SharedKernelMixture(3, random_state=0).fit(X.astype(object), y)
    assert_array_equal(found.means_, SharedKernelMixture(3, random_state=0).fit(X, y).means_)


@pytest.mark.parametrize(("column", "factor"), [(0, 1e200), (2, 1e170), (1, 1e-200)])
def test_features_whose_variance_is_no_number(column: int, factor: float) -> None:
    X, y = rows()
    X[:, column] *= factor
    message = f"Feature {column} has a standard deviation of .*e[+-]{abs(np.log10(factor)):.0f}, .*Rescale"
    for name in ("classifier", "grouped", "mixture"):
        assert_refused(ESTIMATORS[name], X, y, ValueError, message, good=name)


# ---------------------------------------------------------------- labels


@pytest.mark.parametrize("name", ["classifier", "grouped", "mixture"])
def test_rows_and_labels_of_different_length(name: str) -> None:
    X, y = rows()
    assert_refused(ESTIMATORS[name], X, y[:50], ValueError, "X has 60 rows but y has 50", good=name)
    fitted = fitted_model(name)
    for method in ("responsibilities", "bic", "aic"):
        with pytest.raises(ValueError, match=r"X has 60 rows but y has 50 labels"):
            getattr(fitted, method)(X, y[:50])


@pytest.mark.parametrize("name", ["classifier", "mixture"])
@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.linspace(0.0, 1.0, 60), "Unknown label type: continuous"),
        (np.full(60, np.nan), "All 60 rows are unlabelled"),
        (np.where(np.arange(60) == 3, np.inf, 1.0), "Input y contains infinity"),
        (np.stack([np.arange(60), np.arange(60)], axis=1), r"shape \(60, 2\)"),
    ],
    ids=["continuous", "nan", "infinity", "two columns"],
)
def test_labels_that_are_none(name: str, y: np.ndarray, message: str) -> None:
    assert_refused(ESTIMATORS[name], rows()[0], y, ValueError, message, good=name)


def test_a_classifier_needs_labels() -> None:
    assert_refused(ESTIMATORS["classifier"], rows()[0], None, ValueError, "requires y", good="classifier")


@pytest.mark.parametrize("name", ["classifier", "grouped", "mixture"])
@pytest.mark.parametrize(
    ("known", "unknown", "message"),
    [
        ([0, 1, 2], 7, r"\[7\]; known are \[0, 1, 2\]"),
        (["ant", "bee", "cat"], "dog", r"\['dog'\]; known are \['ant', 'bee', 'cat'\]"),
        ([0, 1, 2], "dog", "dog"),
    ],
)
def test_labels_seen_in_no_training_row(name: str, known: list[Any], unknown: Any, message: str) -> None:
    X, y = rows()
    fitted = copy.deepcopy(ESTIMATORS[name]).fit(X, np.array(known)[y])
    labels = np.array(known, dtype=object)[y]
    labels[3] = unknown
    asked = labels.tolist()
    for method in ("responsibilities", "bic", "aic"):
        with pytest.raises(ValueError, match="no training row had: .*" + message):
            getattr(fitted, method)(X, asked)
    with pytest.raises(ValueError, match="no training row had: .*" + message):
        fitted.sample(3, label=unknown)
    if name == "mixture":
        with pytest.raises(ValueError, match=message):
            fitted.score_samples(X, asked)


# ---------------------------------------------------------------- prediction


@each_estimator
def test_another_number_of_features(name: str) -> None:
    X, _ = rows()
    fitted = fitted_model(name)
    for method in ("score_samples", "predict", "predict_proba", "class_log_likelihood", "responsibilities"):
        if hasattr(fitted, method):
            with pytest.raises(ValueError, match=r"X has 2 features, but .* is expecting 3 features"):
                getattr(fitted, method)(X[:, :2])


@each_estimator
def test_nothing_works_before_fit(name: str) -> None:
    X, y = rows()
    fresh = copy.deepcopy(ESTIMATORS[name])
    for method in ("score_samples", "predict", "predict_proba", "class_log_likelihood", "responsibilities"):
        if hasattr(fresh, method):
            with pytest.raises(NotFittedError, match="not fitted yet"):
                getattr(fresh, method)(X)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        fresh.sample()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        fresh.bic(X, y) if name != "gaussian" else fresh.bic(X)


@pytest.mark.parametrize("n_samples", [0, -2, 2.5, "3"])
@pytest.mark.parametrize("name", ["classifier", "grouped", "mixture"])
def test_samples_of_no_number(name: str, n_samples: Any) -> None:
    fitted = fitted_model(name)
    with pytest.raises(
        ValueError, match=f"n_samples must be an integer of at least 1, got {re.escape(repr(n_samples))}"
    ):
        fitted.sample(n_samples)


# ---------------------------------------------------------------- settings

SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"n_kernels": 0}, r"'n_kernels' .* in the range \[1, inf\).*Got 0 instead"),
    ({"n_kernels": -4}, "Got -4 instead"),
    ({"n_kernels": 2.5}, "'n_kernels' .* must be an int .*Got 2.5 instead"),
    ({"n_kernels": "3"}, "'n_kernels' .* must be an int .*Got '3' instead"),
    ({"covariance_type": "banded"}, "'covariance_type' .*Got 'banded' instead"),
    ({"init": "hopeful"}, "'init' .*Got 'hopeful' instead"),
    ({"init": None}, "'init' .*Got None instead"),
    ({"n_init": 0}, "'n_init' .*Got 0 instead"),
    ({"max_iter": 0}, "'max_iter' .*Got 0 instead"),
    ({"tol": -1e-3}, "'tol' .*Got -0.001 instead"),
    ({"n_jobs": 0}, "'n_jobs' .*Got 0 instead"),
    ({"tol": ("never", 0.1)}, "tol as a tuple is"),
    ({"variance_floor": -1.0}, "'variance_floor' .*Got -1.0 instead"),
    ({"covariance_prior": 0.0}, "'covariance_prior' .*Got 0.0 instead"),
    ({"covariance_prior": -2}, "'covariance_prior' .*Got -2 instead"),
    ({"covariance_prior": (1.0,)}, "covariance_prior as a tuple is .*got 1 entries"),
    ({"covariance_prior": (-1.0, np.eye(3))}, "positive number of rows, got -1.0"),
    ({"covariance_prior": (np.nan, np.eye(3))}, "positive number of rows, got nan"),
    ({"covariance_prior": (1.0, np.eye(2))}, r"must have shape \(3, 3\) .*got \(2, 2\)"),
    ({"covariance_prior": (1.0, -np.eye(3))}, "not positive definite: its smallest eigenvalue is -1"),
    ({"weight_prior": 0.5}, "weight_prior=0.5 must be at least 1 for EM"),
    ({"random_state": "lucky"}, "'random_state'"),
]


@pytest.mark.parametrize("name", ["classifier", "mixture"])
@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=lambda value: str(value)[:40])
def test_bad_settings(name: str, settings: dict[str, Any], message: str) -> None:
    estimator = copy.deepcopy(ESTIMATORS[name]).set_params(**settings)
    assert_refused(estimator, *rows(), ValueError, message, good=name)


def start(**changed: Any) -> dict[str, Any]:
    X, _ = rows()
    given: dict[str, Any] = {
        "means": X[:3],
        "covariances": np.stack([np.eye(3)] * 3),
        "weights": np.full((3, 3), 1 / 3),
    }
    return {key: value for key, value in {**given, **changed}.items() if value is not None}


def nearly(value: float) -> np.ndarray:
    """Return covariances of which the second is not positive definite, by an eigenvalue of `value`."""
    covariances = np.stack([np.eye(3)] * 3)
    covariances[1, 2, 2] = value
    return covariances


ASYMMETRIC = np.stack([np.eye(3) + np.diag([0.25, 0.0], k=1)] * 3)

STARTS: dict[str, tuple[dict[str, Any], str]] = {
    "no means": (start(means=None), r"needs 'means' .*got the keys \['covariances', 'weights'\]"),
    "unknown key": (start(precisions=1.0), "got the keys .*'precisions'"),
    "too few means": (start(means=rows()[0][:2]), r"means must have shape \(3, 3\), got \(2, 3\)"),
    "means of other features": (
        start(means=np.ones((3, 2))),
        r"means must have shape \(3, 3\), got \(3, 2\)",
    ),
    "means not finite": (start(means=np.full((3, 3), np.nan)), "means must be finite"),
    "weights above one": (
        start(weights=np.full((3, 3), 0.4)),
        "each column of weights must sum to one, got a sum of 1.2",
    ),
    "weights below one": (
        start(weights=np.array([[0.5, 0.5, 0.5], [0.5, 0.5, 0.2], [0.0, 0.0, 0.1]])),
        "got a sum of 0.8",
    ),
    "rows of weights sum to one": (
        start(weights=np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])),
        "each column of weights must sum to one, got a sum of [02]",
    ),
    "weights negative": (
        start(weights=np.array([[1.5, 0.5, 1.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])),
        "not negative, got .*-0.5",
    ),
    "weights not finite": (start(weights=np.full((3, 3), np.nan)), "weights must be finite"),
    "weights of two classes": (start(weights=np.full((3, 2), 1 / 3)), r"shape \(3, 3\), got \(3, 2\)"),
    "covariances singular": (start(covariances=nearly(0.0)), "kernel 1 is not positive definite: .* is 0"),
    "covariances indefinite": (
        start(covariances=nearly(-2.0)),
        "kernel 1 is not positive definite: .* is -2",
    ),
    "covariances asymmetric": (
        start(covariances=ASYMMETRIC),
        "kernel 0 is not symmetric: entries differ by 0.25",
    ),
    "covariances not finite": (start(covariances=nearly(np.inf)), "covariances must be finite"),
    "covariances of another shape": (
        start(covariances=np.eye(3)),
        r"shape \(3, 3, 3\) for covariance_type='full' with 3 kernels and 3 features, got \(3, 3\)",
    ),
}


@pytest.mark.parametrize("kind", STARTS)
def test_bad_starts(kind: str) -> None:
    init, message = STARTS[kind]
    estimator = copy.deepcopy(ESTIMATORS["classifier"]).set_params(init=init)
    assert_refused(estimator, *rows(), ValueError, message, good="classifier")


@pytest.mark.parametrize(
    ("covariance_type", "covariances", "message"),
    [
        ("tied", np.stack([np.eye(3)] * 3), r"shape \(3, 3\) for covariance_type='tied'.*got \(3, 3, 3\)"),
        ("tied", -np.eye(3), "not positive definite: its smallest eigenvalue is -1"),
        ("diag", np.ones((2, 3)), r"shape \(3, 3\) for covariance_type='diag'.*got \(2, 3\)"),
        (
            "diag",
            np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]]),
            "kernel 1 is not positive definite",
        ),
        ("spherical", np.ones((3, 3)), r"shape \(3,\) for covariance_type='spherical'.*got \(3, 3\)"),
        ("spherical", np.array([1.0, 1.0, -0.5]), "kernel 2 is not positive definite: .* is -0.5"),
    ],
)
def test_bad_covariances_of_every_structure(
    covariance_type: str, covariances: np.ndarray, message: str
) -> None:
    estimator = SharedKernelMixture(3, covariance_type=covariance_type, init=start(covariances=covariances))
    assert_refused(estimator, *rows(), ValueError, message)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ([0.5, 0.6, 0.1], "priors must sum to one, got a sum of 1.2"),
        ([0.5, 0.5], r"priors must have shape \(3,\), got \(2,\)"),
        ([1.5, -0.5, 0.0], "priors must be .*not negative, got .*-0.5"),
        ([0.5, 0.5, np.nan], "priors must be finite"),
        ("training", "'priors' .*Got 'training' instead"),
    ],
)
def test_bad_priors(priors: Any, message: str) -> None:
    estimator = SharedKernelClassifier(3, priors=priors, random_state=0)
    assert_refused(estimator, *rows(), ValueError, message, good="classifier")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([[0, 1], [1, 2]], "column 1 is in feature set 0 and again in group 1"),
        ([[0, 0], [1, 2]], "column 0 is in feature set 0 and again in group 0"),
        ([[0, 1], []], "feature set 1 is empty"),
        ([], "non-empty list of lists"),
        ([[0, 1], [3]], r"feature set 1 has column 3, but X has 3 feature\(s\)"),
        ([[-1], [0]], "feature set 0 has column -1, but X has 3"),
        ([["a"], [1]], "feature set 0 names 'a', but X has no feature names"),
        ([[0.5], [1]], "feature set 0 has 0.5, which is no column index or name"),
        ([[True], [1]], "feature set 0 has True, which is no column"),
        ([0, 1], "feature set 0 must be a list of columns, got 0"),
        (["ab", "c"], "feature set 0 must be a list of columns, got 'ab'"),
        ("abc", "'feature_sets' .*Got 'abc' instead"),
    ],
    ids=str,
)
def test_bad_feature_sets(groups: Any, message: str) -> None:
    estimator = SharedKernelClassifier(3, feature_sets=groups, random_state=0)
    assert_refused(estimator, *rows(), ValueError, message, good="classifier")


def test_bad_feature_sets_by_name() -> None:
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    unknown = SharedKernelClassifier(3, feature_sets=[["a"], ["z"]])
    with pytest.raises(ValueError, match=r"feature set 1 names 'z', but features are \['a', 'b', 'c'\]"):
        unknown.fit(frame, y)
    twice = SharedKernelClassifier(3, feature_sets=[["a"], [0, "b"]])
    with pytest.raises(ValueError, match="column 0 is in feature set 0 and again in group 1"):
        twice.fit(frame, y)
    for estimator in (unknown, twice):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            estimator.predict(frame)


def test_bad_starts_with_groups() -> None:
    X, y = rows()
    groups = [[0], [1, 2]]
    one = SharedKernelClassifier(3, feature_sets=groups, init={"means": X[:3]})
    assert_refused(one, X, y, ValueError, "init must be a list of 2 dicts", good="classifier")
    three = SharedKernelClassifier(3, feature_sets=groups, init=[{"means": X[:3]}] * 3)
    assert_refused(three, X, y, ValueError, "init has 3 starts, but there are 2 feature sets")
    second = SharedKernelClassifier(3, feature_sets=groups, init=[{"means": X[:3, :1]}, {"means": X[:3, :1]}])
    assert_refused(second, X, y, ValueError, r"means must have shape \(3, 2\), got \(3, 1\)", good="grouped")


# ---------------------------------------------------------------- nothing half-fitted


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_degenerate_data_without_a_floor(covariance_type: str) -> None:
    X = np.repeat([[0.0, 1.0, 2.0], [4.0, 5.0, 9.0]], 10, axis=0)
    y = np.repeat([0, 1], 10)
    plain = {"covariance_type": covariance_type, "covariance_prior": None, "variance_floor": 0.0}
    for estimator in (SharedKernelMixture, SharedKernelClassifier):
        model = estimator(2, n_init=3, random_state=0, **plain)
        message = "All 3 starts ended in a singular covariance.* variance_floor.*0.0"
        assert_refused(model, X, y, ValueError, message)


@pytest.mark.parametrize("changed", [{}, {"covariance_type": "diag"}, {"n_kernels": 5}])
@pytest.mark.parametrize("feature_sets", [None, [[0], [1, 2]]])
def test_a_failed_warm_start_leaves_the_last_fit_alone(changed: dict[str, Any], feature_sets: Any) -> None:
    """The last group's rows are refused when the first group's model has been fitted already."""
    X, y = rows()
    model = SharedKernelClassifier(
        3, feature_sets=feature_sets, warm_start=True, random_state=0, max_iter=900
    ).fit(X, y)
    expected = model.predict_proba(X)
    before = [state_of(part) for part in model.models_]
    bad = X + 5.0
    bad[:, 2] *= 1e200
    with pytest.raises(ValueError, match="standard deviation"):
        model.set_params(**changed).fit(bad, y)
    for part, state in zip(model.models_, before, strict=True):
        assert_same_state(part, state)
    assert_array_equal(model.predict_proba(X), expected)


def test_an_interrupted_fit_leaves_the_last_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = rows()
    model = SharedKernelMixture(3, random_state=0).fit(X, y)
    before = state_of(model)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt("in the middle")

    monkeypatch.setattr("skmix.estimators.solving.fit", interrupt)
    with pytest.raises(KeyboardInterrupt, match="in the middle"):
        model.fit(X[:, :2], y)
    assert_same_state(model, before)


def test_masked_values_are_missing() -> None:
    X, y = rows()
    masked = np.ma.masked_array(X, mask=np.zeros(X.shape, dtype=bool))
    masked.mask[3, 1] = True
    masked.data[3, 1] = 1e9
    gaps = np.where(masked.mask, np.nan, X)
    model = SharedKernelMixture(3, random_state=0).fit(masked, y)
    np.testing.assert_array_equal(model.means_, SharedKernelMixture(3, random_state=0).fit(gaps, y).means_)
    np.testing.assert_array_equal(model.score_samples(masked), model.score_samples(gaps))


def test_more_kernels_than_rows_are_refused(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(6, 2))
    np.save(tmp_path / "rows.npy", X)
    for rows in (X, tmp_path / "rows.npy"):
        with pytest.raises(ValueError, match="n_kernels=7 is more than the 6 rows there are"):
            SharedKernelMixture(7).fit(rows)
        assert SharedKernelMixture(6).fit(rows).n_kernels_ == 6
    weights = np.array([0.0, 1, 1, 1, 1, 1])
    with pytest.raises(ValueError, match="n_kernels=6 is more than the 5 rows there are"):
        SharedKernelClassifier(6).fit(X, np.arange(6) % 2, sample_weight=weights)
    # Kernels that stay need no rows of their own, and searches do not ask for more than there are.
    start = {"means": np.tile(X, (2, 1)), "covariances": np.tile(np.eye(2), (12, 1, 1))}
    assert SharedKernelMixture(12, init={**start, "freeze": "kernels"}).fit(X).n_kernels_ == 12
    assert SharedKernelMixtureCV(criterion="bic", random_state=0).fit(X).best_params_["n_kernels"] <= 6


def test_the_file_of_a_row_without_any_value_is_named(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(2, 5, 2))
    rows[1, 3] = np.nan
    for name, own in zip("ab", rows, strict=True):
        np.save(tmp_path / f"{name}.npy", own)
    message = r"Row 3 of .*b\.npy, counted from 0, has no value: all 2 features are NaN \(1 such rows\)"
    for source in (str(tmp_path), tmp_path / "b.npy"):
        with pytest.raises(ValueError, match=message):
            SharedKernelMixture(1).fit(source)
    weights = np.where(np.arange(10) == 8, 0.0, 1.0)
    SharedKernelMixture(1).fit(str(tmp_path), sample_weight=weights)
    # A row of weight zero need not have any value, nor is it the one that is named.
    rows[0, 2] = np.nan
    np.save(tmp_path / "a.npy", rows[0])
    with pytest.raises(ValueError, match=message):
        SharedKernelMixture(1).fit(str(tmp_path), sample_weight=np.where(np.arange(10) == 2, 0.0, 1.0))


def test_one_row_is_too_few_wherever_it_is(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"Found 1 row\(s\) with a weight, but at least 2 are required"):
        SharedKernelMixture(1).fit(tmp_path / "rows.npy")
    with pytest.raises(ValueError, match="minimum of 2 is required"):
        SharedKernelMixture(1).fit(np.ones((1, 2)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"covariance_type": "low_rank", "inference": "variational"}, "they have no conjugate prior"),
        ({"init": {"means": "text", "covariances": np.ones((1, 2, 2))}}, "must be an array of numbers"),
        ({"init": {"means": np.ones((1, 2)), "freeze": "kernels"}}, "keeps what a start gives"),
        ({"init": {"means": np.ones((1, 2)), "freeze": "means"}}, "must be 'kernels' or 'weights'"),
        (
            {"init": {"means": np.ones((1, 2)), "freeze": "weights"}, "tail": "background"},
            "cannot be combined with freeze='weights'",
        ),
        ({"weight_prior": 0.5}, "weight_prior=0.5 must be at least 1 for EM"),
        ({"weight_prior": "hierarchical", "accelerate": True}, "whose weights have a posterior"),
        (
            {"tail": "t", "inference": "variational"},
            "tail='t' cannot be combined with inference='variational'",
        ),
        ({"inference": "variational", "tol": ("per-class", 0.1)}, "is for EM and cannot be combined with"),
    ],
)
def test_settings_that_a_fit_cannot_have(settings: dict[str, Any], message: str) -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    with pytest.raises(ValueError, match=message):
        SharedKernelMixture(1, **settings).fit(X)


def test_arguments_that_a_mixture_cannot_have() -> None:
    X = np.random.default_rng(0).normal(size=(20, 2))
    model, tails = (
        SharedKernelMixture(2, tail=tail, tol=1e-2, random_state=0).fit(X) for tail in (None, "t")
    )
    with pytest.raises(TypeError, match="other must be a SharedKernelMixture, got a GaussianMixture"):
        model.kernel_distances(GaussianMixture())
    with pytest.raises(ValueError, match="metric='bhattacharyya' alone, not 'jeffreys'"):
        tails.kernel_distances(metric="jeffreys")
    with pytest.raises(
        ValueError, match="y is 'label', a path or the name of a column, which goes with a file"
    ):
        model.fit(X, "label")
    with pytest.raises(AttributeError, match="partial_fit has no group shifts"):
        _ = SharedKernelMixture(group_shift=2.0).partial_fit
    with pytest.raises(ValueError, match="init as a list must hold dicts"):
        SharedKernelClassifier(init=["class"]).fit(X, np.arange(20) % 2)
    with pytest.raises(
        ValueError, match=r"covariance_type must be 'auto', one of .* or a list of them, got 'round'"
    ):
        SharedKernelMixtureCV(covariance_type="round").fit(X)
