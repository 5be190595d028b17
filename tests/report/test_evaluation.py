"""Measures agree with scikit-learn's, and descriptions and predictions with what the model says itself."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binomtest
from sklearn import metrics
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    open_rows,
)
from skmix.metrics import effective_rows, wilson
from skmix.report import cross_validate, describe, evaluate
from skmix.report.intervals import bootstrap
from skmix.report.prediction import predictions

X, CODES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"])[CODES]


@pytest.fixture(scope="module")
def model() -> SharedKernelClassifier:
    # Two features, so that there are mistakes to count.
    return SharedKernelClassifier(
        3, reject_below=0.05, outlier_label="none", random_state=0, priors=[0.2, 0.3, 0.5]
    ).fit(X[:, :2], SPECIES)


# ---------------------------------------------------------------- evaluations


@pytest.mark.parametrize("outlier_label", ["none", None])
def test_measures_are_those_of_scikit_learn(model: SharedKernelClassifier, outlier_label: str | None) -> None:
    """Rows that the model refuses are errors of all measures of classes."""
    model = copy(model).set_params(outlier_label=outlier_label)
    rows, truth, known = X[30:120, :2], SPECIES[30:120], model.classes_
    found = evaluate(model, rows, truth)
    named, probabilities = model.predict(rows), model.predict_proba(rows)
    assert found.n_rows == 90
    assert found.classes == ("setosa", "versicolor", "virginica")
    assert found.accuracy == pytest.approx(model.score(rows, truth))
    matrix = metrics.confusion_matrix(truth, named, labels=[*known, "none"])[:3]
    assert_array_equal(found.confusion, matrix[:, :3])
    expected = metrics.precision_recall_fscore_support(truth, named, labels=known)
    assert_allclose([found.precision, found.recall, found.f1], expected[:3])
    assert found.macro_f1 == pytest.approx(expected[2].mean())
    assert found.log_loss == pytest.approx(metrics.log_loss(truth, probabilities))
    assert found.outliers == pytest.approx(np.mean(model.score_samples(rows) < model.threshold_))
    error = sum(count * abs(sure - right) for sure, right, count in found.reliability) / 90
    assert found.calibration_error == pytest.approx(error)
    classes = found.as_dict()["classes"]
    assert [each["n_rows"] for each in classes] == [20, 50, 20]
    if outlier_label is None:
        assert found.refused is None
        assert "refused" not in classes[0]
    else:
        assert matrix[:, 3].sum() > 0
        assert_array_equal(found.refused, matrix[:, 3])
        assert [each["refused"] for each in classes] == matrix[:, 3].tolist()


def test_classes_that_do_not_occur_are_left_out_of_the_mean(model: SharedKernelClassifier) -> None:
    few = np.flatnonzero(SPECIES == "setosa")[:20]
    found = evaluate(model, X[few, :2], SPECIES[few])
    named = model.predict(X[few, :2])
    occurring = sorted({*named, "setosa"} - {"none"})
    f1 = metrics.f1_score(SPECIES[few], named, labels=occurring, average="macro")
    assert found.macro_f1 == pytest.approx(f1)
    assert found.roc_auc is None
    content = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert content["classes"][2] == {
        "label": "virginica",
        "n_rows": 0,
        "refused": 0,
        **dict.fromkeys(("precision", "recall", "f1")),
    }


def test_a_row_of_weight_two_counts_twice_and_one_of_weight_zero_not_at_all(
    model: SharedKernelClassifier,
) -> None:
    often = np.arange(150) % 3
    found = evaluate(model, X[:, :2], SPECIES, often).as_dict()
    repeated = np.repeat(np.arange(150), often)
    expected = evaluate(model, X[repeated, :2], SPECIES[repeated]).as_dict()
    for name in ("classes", "confusion", "n_rows"):
        assert found[name] == expected[name]
    for name in ("accuracy", "macro_f1", "roc_auc", "log_loss", "calibration_error", "outliers", "baseline"):
        assert found[name] == pytest.approx(expected[name], rel=1e-12), name
    for own, other in zip(found["reliability"], expected["reliability"], strict=True):
        assert own == pytest.approx(other)
    # Sums of weights are shown without rounding errors.
    shown = evaluate(model, X[:, :2], SPECIES, 0.1 * often).as_dict()
    assert shown["n_rows"] == 15.0
    assert [each["n_rows"] for each in shown["classes"]] == [n / 10 for n in often.reshape(3, 50).sum(axis=1)]


@pytest.mark.parametrize("n_classes", [2, 4])
def test_measures_of_weighted_rows_and_their_baseline(n_classes: int) -> None:
    """Scores have ties, and a class may be absent."""
    random, every = np.random.default_rng(n_classes), np.arange(n_classes)
    probabilities = np.round(random.dirichlet(np.ones(n_classes), 200), 1) + 0.01
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    codes, weights = random.integers(n_classes, size=200), random.exponential(size=200)
    model = SimpleNamespace(classes_=every, predict_proba=lambda rows: probabilities)
    found = evaluate(model, np.zeros((200, 1)), codes, weights)
    scores = probabilities[:, 1] if n_classes == 2 else probabilities
    area = metrics.roc_auc_score(codes, scores, multi_class="ovr", sample_weight=weights)
    assert found.roc_auc == pytest.approx(area, rel=1e-12)
    f1 = metrics.f1_score(codes, probabilities.argmax(axis=1), average=None, sample_weight=weights)
    assert_allclose(found.f1, f1, rtol=1e-12)
    loss = metrics.log_loss(codes, probabilities, sample_weight=weights)
    assert found.log_loss == pytest.approx(loss, rel=1e-12)
    simple = DummyClassifier(strategy="prior").fit(codes[:, None], codes, sample_weight=weights)
    expected = metrics.log_loss(codes, simple.predict_proba(codes[:, None]), sample_weight=weights)
    assert found.baseline["log_loss"] == pytest.approx(expected)
    assert found.baseline["accuracy"] == pytest.approx(simple.score(codes[:, None], codes, weights))
    intervals = found.as_dict()["intervals"]
    assert list(intervals) == ["accuracy", "log_loss", "macro_f1", "roc_auc"]
    assert all(low < getattr(found, name) < high for name, (low, high) in intervals.items())
    spread = weights * (-np.log(probabilities[np.arange(200), codes]) - loss)
    low, high = intervals["log_loss"]
    assert (high - low) / 2 == pytest.approx(1.96 * np.sqrt((spread**2).sum()) / weights.sum(), rel=0.15)
    # Repeated rows add no certainty, and the same rows give the same intervals.
    again = evaluate(model, np.zeros((200, 1)), codes, 3.0 * weights).as_dict()["intervals"]
    assert_allclose([*again.values()], [*intervals.values()], rtol=1e-9)


def test_intervals_of_shares_are_wilson_s() -> None:
    for n_right, n in ((0, 7), (3, 10), (90, 90)):
        expected = binomtest(n_right, n).proportion_ci(method="wilson")
        assert_allclose(
            wilson(n_right / n, effective_rows(np.full(n, 2))), [expected.low, expected.high], atol=1e-12
        )


def test_intervals_cover_the_truth() -> None:
    """Of 100 sets of rows; the truth is the measure of 200,000."""
    random = np.random.default_rng(0)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        codes = random.integers(3, size=n)
        scores = np.exp(random.normal(size=(n, 3)) + 1.5 * (codes[:, None] == np.arange(3)))
        return codes, scores.argmax(axis=1), scores / scores.sum(axis=1, keepdims=True), np.ones(n)

    truth, covered = bootstrap(*drawn(200_000))[0], dict.fromkeys(("log_loss", "macro_f1", "roc_auc"), 0)
    for _ in range(100):
        intervals = bootstrap(*drawn(120))[1]
        for name, interval in intervals.items():
            assert interval is not None
            covered[name] += interval[0] <= truth[name] <= interval[1]
    # 95 are expected; fewer than 87 have a probability of about 0.1 % each.
    assert min(covered.values()) >= 87, covered


def test_intervals_keep_rare_classes() -> None:
    """A mean over fewer classes is another measure: a class that is always missed does not vary."""
    codes = np.repeat([0, 1, 2], [60, 37, 3])
    taken = np.where(codes == 2, 0, codes)
    taken[:8] = 1
    values, intervals = bootstrap(codes, taken, np.full((100, 3), 1 / 3), np.ones(100))
    assert values["macro_f1"] == pytest.approx(metrics.f1_score(codes, taken, average="macro"))
    rows = np.random.default_rng(1).integers(100, size=(3000, 100))
    true, told = (np.stack([each[rows] == c for c in range(3)]) for each in (codes, taken))
    true, told = (each[:, true.any(axis=2).all(axis=0)] for each in (true, told))
    found = (2 * (true & told).sum(axis=2) / (true.sum(axis=2) + told.sum(axis=2))).mean(axis=0)
    assert intervals["macro_f1"] == pytest.approx(np.quantile(found, (0.025, 0.975)), abs=0.01)
    every = np.arange(12)
    assert bootstrap(every, every, np.eye(12), np.ones(12))[1]["macro_f1"] is None


def test_the_ten_most_frequent_mistakes_come_first(model: SharedKernelClassifier) -> None:
    counts = np.array([[50, 3, 12, 4], [7, 50, 1, 9], [11, 5, 50, 8], [2, 10, 0, 50]])
    found = replace(evaluate(model, X[:, :2], SPECIES), confusion=counts).mistakes()
    assert [count for _, _, count in found] == [12, 11, 10, 9, 8, 7, 5, 4, 3, 2]
    assert all(counts[true, taken] == count for true, taken, count in found)


def test_all_kinds_of_rows_are_cross_validated_alike(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    wide, weights = np.where(X[:, 3] > 1.0, "yes", "no"), 1.0 + np.arange(150) % 2
    frame = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "wide": wide}, index=np.arange(150) + 7)
    path = tmp_path / "iris.csv"
    frame.assign(species=SPECIES, w=weights).to_csv(path, index=False)
    opened = open_rows(path, label="species", weight="w")
    found = []
    for rows in (
        (np.c_[X[:, :2], wide == "yes"], SPECIES, weights),
        (frame, frame.assign(species=SPECIES).species, weights),
        (path, "species", "w"),
        (opened,),
    ):
        together, by_fold = cross_validate(SharedKernelClassifier(3, random_state=0), *rows, folds=2)
        found.append(({**together.as_dict(), "reliability": None}, by_fold))
    assert found[0][0]["n_rows"] == 225
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("kind", ["classifier", "search", "pipeline"])
@pytest.mark.parametrize("outlier_label", ["none", None])
def test_each_fit_of_a_cross_validation_refuses_its_own_outliers(
    kind: str, outlier_label: str | None
) -> None:
    """The evaluation of all held-out rows is that of what each fit predicts for the rows it has not seen."""
    estimator = SharedKernelClassifier(3, reject_below=0.2, outlier_label=outlier_label, random_state=0)
    if kind == "search":
        settings = {"n_kernels": 3, "covariance_type": "full", "kernels": "shared", "tune": False, "cv": 2}
        estimator = SharedKernelClassifierCV(estimator, **settings, random_state=0)
    elif kind == "pipeline":
        estimator = make_pipeline(StandardScaler(), estimator)
    together, by_fold = cross_validate(estimator, X[:, :2], SPECIES, folds=3)
    named, is_outlier, scores = np.empty(150, dtype=object), np.empty(150, dtype=bool), []
    for training, held in StratifiedKFold(3, shuffle=True, random_state=0).split(X, CODES):
        fitted = clone(estimator).fit(X[training, :2], SPECIES[training])
        last = fitted[-1] if kind == "pipeline" else getattr(fitted, "classifier_", fitted)
        named[held] = fitted.predict(X[held, :2])
        is_outlier[held] = fitted.score_samples(X[held, :2]) < last.threshold_
        scores.append(fitted.score(X[held, :2], SPECIES[held]))
        assert evaluate(fitted, X[held, :2], SPECIES[held]).accuracy == pytest.approx(scores[-1])
    assert_allclose(by_fold, scores)
    assert together.accuracy == pytest.approx(np.mean(named == SPECIES)) == pytest.approx(np.mean(by_fold))
    assert together.outliers == pytest.approx(is_outlier.mean())
    assert is_outlier.sum() > 10
    if outlier_label is None:
        assert together.refused is None
    else:
        assert_array_equal(together.refused, np.bincount(CODES[named == "none"], minlength=3))
        assert_array_equal(together.refused, np.bincount(CODES[is_outlier], minlength=3))


@pytest.mark.parametrize("folds", [5, 0.3])
def test_rows_of_weight_zero_count_nowhere_in_a_cross_validation(folds: float) -> None:
    """Even if all rows of a class but one, which then always trains, have that weight."""
    weights = np.ones(150)
    weights[[*range(1, 50), 60, 70, *range(120, 150)]] = 0.0
    model = SharedKernelClassifier(2, random_state=0)
    kept = weights > 0.0
    expected = cross_validate(model, X[kept], SPECIES[kept], weights[kept], folds=folds)
    together, by_fold = cross_validate(model, X, SPECIES, weights, folds=folds)
    assert by_fold == expected[1]
    assert {**together.as_dict(), "reliability": None} == {**expected[0].as_dict(), "reliability": None}
    assert together.n_labelled[0] == 0
    weights[[*range(51, 100), *range(101, 150)]] = 0.0
    with pytest.raises(ValueError, match="no row can be held out: each of the 3 classes has one row of pos"):
        cross_validate(model, X, SPECIES, weights, folds=folds)


def test_impossible_numbers_of_folds_are_refused(model: SharedKernelClassifier) -> None:
    for folds in (0, 1, 2.5, -0.2, np.nan):
        with pytest.raises(ValueError, match=f"share between 0 and 1; got {folds!r}"):
            cross_validate(model, X[:, :2], SPECIES, folds=folds)


def test_labels_that_do_not_fit_are_refused(model: SharedKernelClassifier) -> None:
    for labels, weights, message in (
        (["setosa", "rose"], None, r"y has labels that no training row had: \['rose'\]"),
        (["setosa"], None, "X has 2 rows but y has 1 labels"),
        (["setosa", "setosa"], [0.0, 0.0], "zero"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(model, X[:2, :2], labels, weights)


# ---------------------------------------------------------------- predictions


def test_predictions_of_mixtures_name_kernels() -> None:
    for mixture in (
        SharedKernelMixture(2, random_state=0).fit(X),
        GaussianMixture(2, random_state=0).fit(X),
    ):
        columns = predictions(mixture, X)
        assert list(columns) == ["kernel", "p_0", "p_1", "log_density", "outlier"]
        assert_array_equal(columns["kernel"], mixture.predict(X))
        assert not columns["outlier"].any()
    # `skmix fit` stores a threshold for a mixture.
    densities = mixture.score_samples(X)
    mixture.target_name_, mixture.threshold_ = "species", float(np.sort(densities)[3])
    assert predictions(mixture, X)["outlier"].sum() == 3
    assert describe(mixture)["outlier_threshold"] == np.sort(densities)[3]
    assert describe(mixture)["target"] == "species"


# ---------------------------------------------------------------- descriptions


def test_descriptions_are_plain_values_of_the_model(model: SharedKernelClassifier) -> None:
    sets = SharedKernelClassifier(2, feature_sets=[[0, 1], [3]], priors=[0.5, 0.3, 0.2], random_state=0)
    sets.fit(X, CODES)
    # By the book: the numbers of a mean and of a covariance for each kernel, K - 1 weights for each class.
    for each, n_parameters in [
        (model, 3 * (2 + 3) + 3 * 2),
        (sets, 2 * (2 + 3) + 3 + 2 * (1 + 1) + 3),
        (SharedKernelMixture(2).fit(X), 2 * (4 + 10) + 1),
        (GaussianMixture(2).fit(X), 2 * (4 + 10) + 1),
    ]:
        described = describe(each)
        assert json.loads(json.dumps(described, allow_nan=False)) == described
        assert described["n_parameters"] == n_parameters
    described = describe(model)
    (group,) = described["feature_sets"]
    assert_allclose(group["weights"], model.weights_)
    assert_allclose(group["shares"], model.weights_ @ [0.2, 0.3, 0.5])
    assert described["classes"][1] == {"label": "versicolor", "n_rows": 50.0, "prior": 0.3}
    described = describe(sets)
    assert [group["features"] for group in described["feature_sets"]] == [
        ["feature 0", "feature 1"],
        ["feature 3"],
    ]
    assert described["log_likelihood"] == pytest.approx(sum(part.log_likelihood_ for part in sets.models_))
    assert describe(GaussianMixture(2).fit(X))["classes"] == []
