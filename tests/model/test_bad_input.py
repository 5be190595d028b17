"""Bad input raises the right error, with the numbers in it, and leaves nothing half-fitted behind."""

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
from sklearn.exceptions import NotFittedError

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelMixture,
    SharedKernelMixtureCV,
    open_rows,
)

OURS: dict[str, Any] = {
    "classifier": SharedKernelClassifier(3, random_state=0, tol=1e-2),
    "sets": SharedKernelClassifier(3, feature_sets=[[0], [1, 2]], random_state=0, tol=1e-2),
    "mixture": SharedKernelMixture(3, random_state=0, tol=1e-2),
}
ESTIMATORS = {**OURS, "gaussian": GaussianMixture(3, random_state=0, max_iter=900)}
_RANDOM = np.random.default_rng(0)
Y = np.arange(60) % 3
X = _RANDOM.normal(size=(60, 3)) + 2.0 * np.eye(3)[Y]


def with_entry(value: float, column: int | None = 1, row: Any = 7) -> np.ndarray:
    """Return the rows with one entry, or a whole column, replaced."""
    rows = X.copy()
    rows[row, slice(None) if column is None else column] = value
    return rows


def scaled(column: int, factor: float) -> np.ndarray:
    rows = X.copy()
    rows[:, column] *= factor
    return rows


@cache
def _fitted(name: str) -> Any:
    return copy.deepcopy(ESTIMATORS[name]).fit(X, Y)


def fitted_model(name: str) -> Any:
    """Return a copy of that estimator, fitted to good rows."""
    return copy.deepcopy(_fitted(name))


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


def assert_refused(name: str, settings: dict[str, Any], given: tuple[Any, ...], message: str) -> None:
    """Check that fitting raises and changes nothing, of an unfitted estimator and of a fitted one."""
    new = copy.deepcopy(ESTIMATORS[name]).set_params(**settings)
    for estimator in (new, fitted_model(name).set_params(**settings)):
        before = copy.deepcopy(vars(estimator))
        with pytest.raises((ValueError, TypeError), match=message):
            estimator.fit(*given)
        assert_same_state(estimator, before)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        new.score_samples(X)


# ---------------------------------------------------------------- rows, labels and weights

BAD_ROWS: dict[str, tuple[Any, str]] = {
    "infinity": (with_entry(-np.inf), "contains infinity"),
    "three-dimensional": (X[None], "dim 3"),
    "words": (np.full((60, 3), "word", dtype=object), "could not convert string to float: 'word'"),
    "dict": ({"a": 1}, r"float\(\) argument must be|got scalar array"),
}


@pytest.mark.parametrize("name", ["sets", "mixture", "gaussian"])
@pytest.mark.parametrize("kind", [*BAD_ROWS, "other features"])
def test_bad_rows(name: str, kind: str) -> None:
    if kind == "other features":
        rows, message = X[:, :2], r"X has 2 features, but .* is expecting 3 features"
    else:
        rows, message = BAD_ROWS[kind]
        assert_refused(name, {}, (rows, Y), message)
    fitted = fitted_model(name)
    before = copy.deepcopy(vars(fitted))
    for method in ("score_samples", "predict", "predict_proba", "class_log_likelihood"):
        if hasattr(fitted, method):
            with pytest.raises((ValueError, TypeError), match=message):
                getattr(fitted, method)(rows)
    assert_same_state(fitted, before)


BAD_DATA: dict[str, tuple[tuple[Any, ...], str]] = {
    "empty feature": (
        (with_entry(np.nan, 1, slice(None)), Y),
        "Feature 1 of X has no value: it is NaN in all 60 rows",
    ),
    "huge feature": ((scaled(2, 1e170), Y), r"Feature 2 has a standard deviation of .*e\+170, .*Rescale"),
    "tiny feature": ((scaled(1, 1e-200), Y), "Feature 1 has a standard deviation of .*e-200, .*Rescale"),
    "fewer labels": ((X, Y[:50]), "X has 60 rows but y has 50"),
    "no label": ((X, np.full(60, -1)), r"All 60 rows are unlabelled \(y is -1 everywhere\)"),
    "no label, NaN": ((X, np.full(60, np.nan)), "All 60 rows are unlabelled"),
    "continuous labels": ((X, np.linspace(0.0, 1.0, 60)), "Unknown label type: continuous"),
    "infinite label": ((X, np.where(Y == 1, np.inf, 1.0)), "Input y contains infinity"),
    "columns of labels": ((X, np.stack([Y, Y], axis=1)), r"shape \(60, 2\)"),
    "name of labels": (
        (X, "label"),
        "y is 'label', but X is a ndarray: .* the name of a column a file or a data frame",
    ),
    "weights of zero": ((X, Y, np.zeros(60)), "at least one non-zero"),
    "negative weight": ((X, Y, np.where(Y == 1, -1.0, 1.0)), "Negative values"),
    "NaN weight": ((X, Y, np.where(Y == 1, np.nan, 1.0)), "NaN"),
    "fewer weights": ((X, Y, np.ones(59)), r"sample_weight.shape == \(59,\), expected \(60,\)"),
    "columns of weights": ((X, Y, np.ones((60, 2))), "must be 1D"),
    "labels without weight": (
        (X, np.where(np.arange(60) < 3, Y, -1), np.where(np.arange(60) < 3, 0.0, 1.0)),
        "zero for every row that has a label",
    ),
}


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize("kind", BAD_DATA)
def test_bad_data(name: str, kind: str) -> None:
    assert_refused(name, {}, *BAD_DATA[kind])


IN_BLOCKS: dict[str, tuple[tuple[Any, ...], str]] = {
    **{kind: BAD_DATA[kind] for kind in ("empty feature", "huge feature", "no label")},
    "no labels": ((X,), r"requires y.*label="),
    "weights of zero": ((X, Y, np.zeros(60)), r"Found 0 row\(s\) with a weight, but at least 2"),
    "one row": ((X, Y, np.arange(60) == 3), r"Found 1 row\(s\) with a weight, but at least 2"),
    "empty rows": ((np.full_like(X, np.nan), Y), "All 60 rows of X have no value: their 3 features are NaN"),
}


@pytest.mark.parametrize("kind", IN_BLOCKS)
def test_bad_data_in_blocks(kind: str) -> None:
    (rows, *rest), message = IN_BLOCKS[kind]
    given = dict(zip(("label", "weight"), rest, strict=False))
    assert_refused("classifier", {}, (open_rows(rows, chunk_rows=25, **given),), message)


def test_a_class_without_any_value_in_a_feature_set() -> None:
    rows = with_entry(np.nan, 0, Y == 2)
    message = r"No row of class .*2.* has a value in feature set 0, columns \[0\]"
    assert_refused("sets", {}, (rows, Y), message)
    assert_refused("sets", {}, (open_rows(rows, label=Y, chunk_rows=25),), message)


def test_a_column_without_values_is_named(tmp_path: Path) -> None:
    frame = pd.DataFrame({"kind": np.array(["u", "v", "w"])[Y], "a": X[:, 0], "empty": np.nan, "b": X[:, 1]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    for rows in (frame, open_rows(frame)):
        assert_refused("mixture", {}, (rows,), "Feature 'empty' of X has no value: it is NaN in all 60 rows")
    # In a text file, such a column has no type either.
    with pytest.warns(UserWarning, match="column 'empty' is missing in all rows and is left out"):
        model = SharedKernelMixture(2).fit(tmp_path / "t.csv")
    assert model.feature_names_in_.tolist() == ["kind", "a", "b"]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(
    ("known", "unknown", "message"),
    [
        ([0, 1, 2], 7, r"no training row had: \[7\]; the classes are \[0, 1, 2\]"),
        (["ant", "bee", "cat"], "dog", r"had: \['dog'\]; the classes are \['ant', 'bee', 'cat'\]"),
        ([0, 1, 2], "dog", r"text, such as 'dog', and others, such as 0\.|no training row had: \['dog'\]"),
    ],
)
def test_labels_seen_in_no_training_row(name: str, known: list[Any], unknown: Any, message: str) -> None:
    fitted = copy.deepcopy(OURS[name]).fit(X, np.array(known)[Y])
    labels = np.array(known, dtype=object)[Y]
    labels[3] = unknown
    judge = fitted.bic if hasattr(fitted, "bic") else fitted.calibrate
    for ask in (lambda: judge(X, labels.tolist()), lambda: fitted.sample(3, label=unknown)):
        with pytest.raises(ValueError, match=message):
            ask()
    with pytest.raises(ValueError, match=r"X has 60 rows but y has 50 labels"):
        judge(X, labels[:50])


@pytest.mark.parametrize("n_samples", [0, -2, 2.5, "3"])
def test_samples_of_no_number(n_samples: Any) -> None:
    message = f"n_samples must be an integer of at least 1, got {re.escape(repr(n_samples))}"
    with pytest.raises(ValueError, match=message):
        fitted_model("mixture").sample(n_samples)


def test_more_kernels_than_rows_are_refused(tmp_path: Path) -> None:
    few = X[:6, :2]
    np.save(tmp_path / "rows.npy", few)
    for rows in (few, tmp_path / "rows.npy"):
        with pytest.raises(ValueError, match="n_kernels=7 is more than the 6 rows: "):
            SharedKernelMixture(7).fit(rows)
        assert SharedKernelMixture(6).fit(rows).n_kernels_ == 6
    weights = np.array([0.0, 1, 1, 1, 1, 1])
    with pytest.raises(ValueError, match="n_kernels=6 is more than the 5 rows: "):
        SharedKernelClassifier(6).fit(few, np.arange(6) % 2, sample_weight=weights)
    # Kernels that stay need no rows of their own, and searches do not ask for more than there are.
    start = {"means": np.tile(few, (2, 1)), "covariances": np.tile(np.eye(2), (12, 1, 1))}
    assert SharedKernelMixture(12, init=start, freeze="kernels").fit(few).n_kernels_ == 12
    assert SharedKernelMixtureCV(criterion="bic", random_state=0).fit(few).best_params_["n_kernels"] <= 6


# ---------------------------------------------------------------- settings


def start(**changed: Any) -> dict[str, Any]:
    """Return settings of a given start; None leaves a part out."""
    given: dict[str, Any] = {
        "means": X[:3],
        "covariances": np.stack([np.eye(3)] * 3),
        "weights": np.full((3, 3), 1 / 3),
    }
    return {"init": {key: value for key, value in {**given, **changed}.items() if value is not None}}


def nearly(value: float) -> np.ndarray:
    """Return covariances of which the second is not positive definite, by an eigenvalue of `value`."""
    covariances = np.stack([np.eye(3)] * 3)
    covariances[1, 2, 2] = value
    return covariances


def of_type(covariance_type: Any, covariances: Any) -> dict[str, Any]:
    return {"covariance_type": covariance_type, **start(covariances=np.asarray(covariances))}


ASYMMETRIC = np.stack([np.eye(3) + np.diag([0.25, 0.0], k=1)] * 3)
TOO_WIDE = np.array([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
BELOW_ZERO = np.array([[1.5, 0.5, 1.0], [-0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
FLAT = np.array([[1.0, 1.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
OUT_OF_RANGE = {
    "n_kernels": [0, 2.5], "covariance_type": ["banded"], "init": ["hopeful", None], "n_init": [0],
    "max_iter": [0], "tol": [-1e-3], "n_jobs": [0], "variance_floor": [-1.0], "covariance_prior": [0.0],
    "inference": ["bayes"], "weight_prior": ["other"], "group_shift": [0.0], "tail": ["cauchy"],
    "random_state": ["lucky"],
}  # fmt: skip
SETTINGS: list[tuple[dict[str, Any], str]] = [
    *(
        ({name: value}, f"'{name}' .*Got {value!r} instead")
        for name, values in OUT_OF_RANGE.items()
        for value in values
    ),
    ({"covariance_type": "low_rank"}, r"'low_rank' is not supported any more: .*make_pipeline\(PCA"),
    ({"covariance_type": ("low_rank", 8)}, r"\('low_rank', 8\) is not supported any more"),
    ({"covariance_type": ("full", 8)}, "'covariance_type' .*Got \\('full', 8\\) instead"),
    ({"stopping": "never"}, "'stopping' .*Got 'never' instead"),
    ({"stopping": "per-class", "tol": "auto"}, "give tol as a number"),
    ({"covariance_prior": (1.0,)}, "covariance_prior as a tuple is .*got 1 entries"),
    ({"covariance_prior": (np.nan, np.eye(3))}, "positive number of rows, got nan"),
    ({"covariance_prior": (1.0, np.eye(2))}, r"must have shape \(3, 3\) .*got \(2, 2\)"),
    ({"covariance_prior": (1.0, -np.eye(3))}, "not positive definite: its smallest eigenvalue is -1"),
    ({"weight_prior": 0.5}, "weight_prior=0.5 must be at least 1 for EM"),
    ({"inference": "variational", "covariance_prior": 0.5}, "needs covariance_prior > "),
    ({"tail": "t", "degrees": 0.5}, r"'degrees' .*\[1.0, inf\).*Got 0.5 instead"),
    ({"degrees": 4.0}, "degrees=4 is for t kernels"),
    ({"tail": ("t", 4.0)}, "'tail' .*Got \\('t', 4.0\\) instead"),
    ({"freeze": "kernels"}, "init must be a dict or a fitted mixture, got "),
    (start(means=None), r"needs 'means' .*got the keys \['covariances', 'weights'\]"),
    (start(precisions=1.0), "got the keys .*'precisions'"),
    (start(means="text"), "must be an array of numbers"),
    (start(means=X[:2]), r"means must have shape \(3, 3\), got \(2, 3\)"),
    (start(means=np.full((3, 3), np.nan)), "means must be finite"),
    (start(weights=np.full((3, 3), 0.4)), "each column of weights must sum to one, got a sum of 1.2"),
    (start(weights=TOO_WIDE), "each column of weights must sum to one, got a sum of [02]"),
    (start(weights=BELOW_ZERO), "not negative, got .*-0.5"),
    (start(weights=np.full((3, 3), np.nan)), "weights must be finite"),
    ({"init": "kmeans"}, r"Got 'kmeans' instead\. Did you mean 'k-means'\?"),
    (start(weights=np.full(3, 1 / 3)), r"shape \(3, 3\), got \(3,\)"),
    (start(weights=np.full((3, 2), 1 / 3)), r"shape \(3, 3\), got \(3, 2\)"),
    ({**start(covariances=None), "freeze": "kernels"}, "freeze='kernels' keeps the given values"),
    ({**start(), "freeze": "means"}, "'freeze' .*Got 'means' instead"),
    (start(freeze="kernels"), r"got the keys .*'freeze'"),
    (start(covariances=nearly(-2.0)), "kernel 1 is not positive definite: .* is -2"),
    (start(covariances=ASYMMETRIC), "kernel 0 is not symmetric: entries differ by 0.25"),
    (start(covariances=nearly(np.inf)), "covariances must be finite"),
    (of_type("full", np.eye(3)), r"shape \(3, 3, 3\) for covariance_type='full' with 3 kernels and 3 feat"),
    (of_type("tied", -np.eye(3)), "not positive definite: its smallest eigenvalue is -1"),
    (of_type("diag", np.ones((2, 3))), r"shape \(3, 3\) for covariance_type='diag'.*got \(2, 3\)"),
    (of_type("diag", FLAT), "kernel 1 is not positive definite"),
    (of_type("spherical", [1.0, 1.0, -0.5]), "kernel 2 is not positive definite: .* is -0.5"),
]
# Of classifiers alone.
OF_CLASSIFIERS: list[tuple[dict[str, Any], str]] = [
    ({"priors": [0.5, 0.6, 0.1]}, "priors must sum to one, got a sum of 1.2"),
    ({"priors": [0.5, 0.5]}, r"priors must have shape \(3,\), got \(2,\)"),
    ({"priors": [1.5, -0.5, 0.0]}, "priors must be .*not negative, got .*-0.5"),
    ({"priors": "training"}, "'priors' .*Got 'training' instead"),
    ({"init": ["class"]}, "init as a list must hold dicts"),
    ({"feature_sets": [[0, 1], [1, 2]]}, "column 1 is in feature set 0 and again in set 1"),
    ({"feature_sets": [[0, 0], [1, 2]]}, "column 0 is in feature set 0 and again in set 0"),
    ({"feature_sets": [[0, 1], []]}, "feature set 1 is empty"),
    ({"feature_sets": []}, "non-empty list of lists"),
    ({"feature_sets": [[0, 1], [3]]}, r"feature set 1 has column 3, but X has 3 feature\(s\)"),
    ({"feature_sets": [[0], {1: "b"}]}, "feature set 1 must be a list of columns"),
    ({"feature_sets": "abc"}, "'feature_sets' .*Got 'abc' instead"),
    ({"feature_sets": [[0], [1, 2]], "init": {"means": X[:3]}}, "init must be a list of 2 dicts"),
    ({"feature_sets": [[0], [1]], "init": [{"means": X[:3]}] * 3}, "3 starts, but there are 2 feature sets"),
    (
        {"feature_sets": [[0], [1, 2]], "init": [{"means": X[:3, :1]}] * 2},
        r"means must have shape \(3, 2\), got \(3, 1\)",
    ),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=lambda value: str(value)[:60])
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    assert_refused("mixture", settings, (X, Y), message)


@pytest.mark.parametrize(("settings", "message"), OF_CLASSIFIERS, ids=lambda value: str(value)[:60])
def test_bad_settings_of_classifiers(settings: dict[str, Any], message: str) -> None:
    assert_refused("classifier", settings, (X, Y), message)


# ---------------------------------------------------------------- nothing half-fitted


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])
def test_degenerate_data_without_a_floor(covariance_type: str) -> None:
    rows, labels = np.repeat([[0.0, 1.0, 2.0], [4.0, 5.0, 9.0]], 10, axis=0), np.repeat([0, 1], 10)
    plain = {"covariance_type": covariance_type, "covariance_prior": None, "variance_floor": 0.0}
    message = "All 3 starts ended in a singular covariance.* variance_floor.*0.0"
    assert_refused("classifier", {"n_kernels": 2, "n_init": 3, **plain}, (rows, labels), message)


def test_an_interrupted_fit_leaves_the_last_one_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = fitted_model("mixture")
    before = copy.deepcopy(vars(model))

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt("in the middle")

    monkeypatch.setattr("skmix.model.solving.run", interrupt)
    with pytest.raises(KeyboardInterrupt, match="in the middle"):
        model.fit(X[:, :2], Y)
    assert_same_state(model, before)
