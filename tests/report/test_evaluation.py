"""Measures agree with scikit-learn's, and tables of predictions with what the model says itself."""

from __future__ import annotations

import json
from copy import copy
from types import SimpleNamespace

import numpy as np
import pytest
from documented import assert_defaults
from numpy.testing import assert_allclose, assert_array_equal
from sklearn import metrics
from sklearn.datasets import load_iris

from skmix import (
    GaussianMixture,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelMixture,
    report,
)
from skmix.datasets import make_shared_kernel_data
from skmix.paper import illustration
from skmix.report import Evaluation, describe, evaluate, predict_columns
from skmix.report.description import metadata_of, outlier_threshold, serving, settings_of, traits
from skmix.report.evaluation import evaluation_data

X, CODES = load_iris(return_X_y=True)
SPECIES = np.array(["setosa", "versicolor", "virginica"])[CODES]


@pytest.fixture(scope="module")
def model() -> SharedKernelClassifier:
    # Two features, so that there are mistakes to count.
    return SharedKernelClassifier(
        3, reject_below=0.05, outlier_label="none", random_state=0, priors=[0.2, 0.3, 0.5]
    ).fit(X[:, :2], SPECIES)


def test_measures_are_those_of_scikit_learn(model: SharedKernelClassifier) -> None:
    rows, truth = X[30:120, :2], SPECIES[30:120]
    found = evaluate(model, rows, truth)
    probabilities = model.predict_proba(rows)
    predicted = model.classes_[probabilities.argmax(axis=1)]
    assert found.n_rows == 90
    assert found.classes == ("setosa", "versicolor", "virginica")
    # A refused row has no class.
    assert found.accuracy == pytest.approx(model.score(rows, truth))
    assert found.accuracy < metrics.accuracy_score(truth, predicted)
    # It is an error of all measures of classes, and counted once.
    named, known = model.predict(rows), model.classes_
    assert found.refused.sum() == np.sum(named == "none") > 0
    assert found.confusion.sum() + found.refused.sum() == 90
    assert np.trace(found.confusion) == round(found.accuracy * 90)
    assert_array_equal(
        np.column_stack([found.confusion, found.refused]),
        metrics.confusion_matrix(truth, named, labels=[*known, "none"])[:3],
    )
    expected = metrics.precision_recall_fscore_support(truth, named, labels=known)
    assert_allclose(found.precision, expected[0])
    assert_allclose(found.recall, expected[1])
    ious = metrics.jaccard_score(truth, named, labels=known, average=None)
    assert_allclose(found.iou, ious)
    assert found.mean_iou == pytest.approx(ious.mean())
    assert [each["n_rows"] for each in found.as_dict()["classes"]] == [20, 50, 20]
    assert [each["refused"] for each in found.as_dict()["classes"]] == found.refused.tolist()
    # Without a label of outliers, each row has a class.
    found = evaluate(copy(model).set_params(outlier_label=None), rows, truth)
    assert found.refused is None
    assert "refused" not in found.as_dict()["classes"][0]
    assert found.accuracy == pytest.approx(metrics.accuracy_score(truth, predicted))
    assert found.mean_iou == pytest.approx(metrics.jaccard_score(truth, predicted, average="macro"))
    assert found.log_loss == pytest.approx(metrics.log_loss(truth, probabilities))
    assert_array_equal(found.confusion, metrics.confusion_matrix(truth, predicted))
    expected = metrics.precision_recall_fscore_support(truth, predicted)
    assert_allclose(found.precision, expected[0])
    assert_allclose(found.recall, expected[1])
    assert_allclose(found.iou, metrics.jaccard_score(truth, predicted, average=None))
    # The model refuses the rows that it calls outliers.
    assert found.outliers == pytest.approx(np.mean(model.predict(rows) == "none"))


def test_reliability_bins_make_the_calibration_error(model: SharedKernelClassifier) -> None:
    found = evaluate(model, X[:, :2], SPECIES)
    assert sum(count for _, _, count in found.reliability) == 150
    error = sum(count * abs(sure - right) for sure, right, count in found.reliability) / 150
    assert found.calibration_error == pytest.approx(error)
    right = model.classes_[model.predict_proba(X[:, :2]).argmax(axis=1)] == SPECIES
    sure = model.predict_proba(X[:, :2]).max(axis=1)
    edges = [(low / 10 <= sure) & (sure < low / 10 + 0.1) for low in range(10)]
    assert [each.accuracy for each in found.reliability] == pytest.approx(
        [right[inside].mean() for inside in edges if inside.any()]
    )


def test_classes_that_do_not_occur_are_left_out_of_the_mean(model: SharedKernelClassifier) -> None:
    few = np.flatnonzero(SPECIES == "setosa")[:20]
    found = evaluate(model, X[few, :2], SPECIES[few])
    named = model.predict(X[few, :2])
    occurring = sorted({*named, "setosa"} - {"none"})
    ious = metrics.jaccard_score(SPECIES[few], named, labels=occurring, average=None)
    assert found.mean_iou == pytest.approx(ious.mean())
    assert np.isnan(found.recall[2])
    content = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert content["classes"][2] == {
        "label": "virginica",
        "n_rows": 0,
        "refused": 0,
        "precision": None,
        "recall": None,
        "iou": None,
    }
    assert content["n_rows"] == 20


def test_a_row_of_weight_two_counts_twice_and_one_of_weight_zero_not_at_all(
    model: SharedKernelClassifier,
) -> None:
    often = np.arange(150) % 3
    found = evaluate(model, X[:, :2], SPECIES, often).as_dict()
    repeated = np.repeat(np.arange(150), often)
    expected = evaluate(model, X[repeated, :2], SPECIES[repeated]).as_dict()
    for name in ("classes", "confusion", "n_rows"):
        assert found[name] == expected[name]
    for name in ("accuracy", "mean_iou", "log_loss", "calibration_error", "outliers"):
        assert found[name] == pytest.approx(expected[name], rel=1e-12), name
    for own, other in zip(found["reliability"], expected["reliability"], strict=True):
        assert own == pytest.approx(other)
    # Weights that are not whole have sums without rounding errors in what is shown.
    tenth = evaluate(model, X[:, :2], SPECIES, 0.1 * often)
    shown = evaluation_data(tenth, title="")
    assert shown["n_rows"] == 15.0
    assert shown["accuracy"] == pytest.approx(expected["accuracy"])
    assert [each["n_rows"] for each in shown["classes"]] == [n / 10 for n in often.reshape(3, 50).sum(axis=1)]
    with pytest.raises(ValueError, match="zero"):
        evaluate(model, X[:, :2], SPECIES, 0 * often)


def test_unknown_labels_are_named(model: SharedKernelClassifier) -> None:
    with pytest.raises(ValueError, match="1 labels are not among the model's 3 classes: rose"):
        evaluate(model, X[:2, :2], ["setosa", "rose"])
    with pytest.raises(ValueError, match="X has 2 rows but y has 1 labels"):
        evaluate(model, X[:2, :2], ["setosa"])


def test_predictions_are_the_model_s(model: SharedKernelClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skmix.report.description._ROWS_AT_A_TIME", 40)
    shares: list[float] = []
    columns = predict_columns(model, X[:, :2], shares.append)
    assert list(columns) == ["label", "p_setosa", "p_versicolor", "p_virginica", "log_density", "outlier"]
    refused = model.predict(X[:, :2]) == "none"
    assert 0 < refused.sum() < 20
    assert_array_equal(columns["outlier"], refused)
    assert_array_equal(columns["label"], model.predict(X[:, :2]))
    assert_allclose(columns["p_virginica"], model.predict_proba(X[:, :2])[:, 2])
    assert_allclose(columns["log_density"], model.score_samples(X[:, :2]))
    assert shares == pytest.approx([40 / 150, 80 / 150, 120 / 150, 1.0])
    # A row is an outlier below the threshold, not at it.
    monkeypatch.setattr(model, "threshold_", columns["log_density"][0])
    assert not predict_columns(model, X[:40, :2])["outlier"][0]


def test_mixtures_name_kernels() -> None:
    mixture = SharedKernelMixture(2, random_state=0).fit(X)
    columns = predict_columns(mixture, X)
    assert list(columns) == ["kernel", "p_0", "p_1", "log_density", "outlier"]
    assert_array_equal(columns["kernel"], mixture.responsibilities(X).argmax(axis=1))
    assert not columns["outlier"].any()
    drop_in = GaussianMixture(2, random_state=0).fit(X)
    assert_array_equal(predict_columns(drop_in, X)["kernel"], drop_in.predict(X))


def test_descriptions_are_plain_values(model: SharedKernelClassifier) -> None:
    groups = SharedKernelClassifier(2, feature_sets=[[0, 1], [3]], random_state=0).fit(X, CODES)
    # By the book: the numbers of a mean and of a covariance for each kernel, K - 1 weights for each class.
    for each, n_parameters in [
        (model, 3 * (2 + 3) + 3 * 2),
        (groups, 2 * (2 + 3) + 3 + 2 * (1 + 1) + 3),
        (SharedKernelMixture(2).fit(X), 2 * (4 + 10) + 1),
        (GaussianMixture(2).fit(X), 2 * (4 + 10) + 1),
    ]:
        described = describe(each)
        assert json.loads(json.dumps(described, allow_nan=False)) == described
        assert described["n_parameters"] == n_parameters
    described = describe(groups)
    assert [group["features"] for group in described["groups"]] == [["feature 0", "feature 1"], ["feature 3"]]
    assert described["settings"] == {"n_kernels": 2, "feature_sets": "[[0, 1], [3]]", "random_state": 0}
    search = SharedKernelClassifierCV(SharedKernelClassifier(max_iter=7), time_limit=3)
    assert settings_of(search) == {"estimator__max_iter": 7, "time_limit": 3}
    assert describe(model)["classes"][1] == {"label": "versicolor", "n_rows": 50.0, "prior": 0.3}
    assert describe(model)["outlier_threshold"] == model.threshold_


def test_kernels_that_serve_several_classes_are_counted() -> None:
    truth = illustration()
    rows, groups = make_shared_kernel_data(truth.means, truth.covariances, truth.weights, 100, random_state=0)
    shared = describe(SharedKernelMixture(3, random_state=0).fit(rows, groups))["groups"]
    # Each of the three kernels has a tenth of every group or more.
    assert [group["n_shared"] for group in shared] == [3]
    # Two classes far from each other have nothing of the other one's kernels.
    two = np.repeat([0, 1], 50)
    apart = SharedKernelClassifier(2, random_state=0).fit(X[:100] + 100.0 * two[:, None], two)
    assert [group["n_shared"] for group in describe(apart)["groups"]] == [0]


@pytest.mark.parametrize(
    ("numbers", "shared", "words"),
    [
        ([3], [0], "each of one class"),
        ([1], [1], "which serves more than one class"),
        ([3], [3], "all of which serve more than one class"),
        ([3, 2], [0, 1], "1 of which serves more than one class"),
        ([3, 2], [2, 1], "3 of which serve more than one class"),
    ],
)
def test_it_is_said_how_many_serve_several_classes(numbers: list[int], shared: list[int], words: str) -> None:
    assert serving(numbers, shared) == words


def test_shares_of_kernels_follow_the_priors_of_the_model() -> None:
    """Those of all feature sets, as on the page: the models of the groups do not know the priors."""
    priors = [0.5, 0.3, 0.2]
    groups = SharedKernelClassifier(2, feature_sets=[[0, 1], [3]], priors=priors, random_state=0)
    groups.fit(X, CODES)
    described = describe(groups)
    for own, part in zip(described["groups"], groups.models_, strict=True):
        assert_allclose(own["shares"], part.weights_ @ priors)
    assert described["log_likelihood"] == pytest.approx(sum(part.log_likelihood_ for part in groups.models_))
    # Half of a class is background: of the rows of kernels it has a third, and not a half.
    two = SharedKernelMixture(2, random_state=0).fit(X, CODES > 0)
    two.class_prior_, two.background_weights_ = np.array([0.5, 0.5]), np.array([0.5, 0.0])
    assert_allclose(describe(two)["groups"][0]["shares"], two.weights_ @ [1 / 3, 2 / 3])


def robust() -> tuple[SharedKernelMixture, np.ndarray]:
    """Return a mixture with a background, and rows of which the last is background alone."""
    random = np.random.default_rng(0)
    X = np.concatenate([random.normal(size=(80, 2)), random.normal(size=(40, 2)) + 12.0, [[1e3, 1e3]]])
    model = SharedKernelMixture(2, tail=("t", 30.0), random_state=0).fit(X)
    # With Gaussian kernels, their probabilities underflow.
    del model.kernel_degrees_
    return model, X


def test_rows_that_are_background_alone_have_the_kernel_of_predict() -> None:
    model, X = robust()
    model.populations_ = np.array([1, 0])
    for far in (X[-1:], -X[-1:]):
        columns = predict_columns(model, far)
        assert columns["p_0"] == columns["p_1"] == 0.0
        assert columns["p_background"] == 1.0
        assert columns["kernel"] == model.predict(far)
        assert columns["population"] == model.predict(far, populations=True)


def test_kernels_and_the_background_share_a_row() -> None:
    X = np.concatenate([np.linspace(-2.0, 2.0, 60), np.linspace(1.0, 5.0, 60), [-9.0, 15.0]])[:, None]
    model = SharedKernelMixture(2, tail="background", random_state=0).fit(X)
    columns = predict_columns(model, X)
    assert_allclose(columns["p_0"] + columns["p_1"] + columns["p_background"], 1.0, rtol=1e-12)
    assert columns["p_background"][40:80].max() < 0.2 < np.minimum(columns["p_0"], columns["p_1"]).max()


def test_what_is_beside_shared_gaussians_is_described() -> None:
    model, X = robust()
    model.kernel_degrees_, model.background_weights_ = np.array([3.0, 8.5]), np.array([0.02])
    assert traits(describe(model)) == [
        ("kernels", "Student’s t, 3 to 8.5 degrees of freedom"),
        ("background", "2 % of the rows of each class"),
    ]
    groups = np.arange(len(X)) % 2
    shifted = SharedKernelMixture(2, group_shift=7.0, random_state=0).fit(X, groups)
    assert traits(describe(shifted)) == [
        ("shifts", "means of each group, drawn to the common ones by 7 rows")
    ]
    assert traits(describe(SharedKernelMixture(2, random_state=0).fit(X))) == []


def test_defaults_are_as_documented() -> None:
    assert_defaults(report, 8)


def test_the_ten_most_frequent_mistakes_come_first() -> None:
    """Of four classes there are twelve pairs: 1 to 12 rows each, but for two that never occur."""
    counts = np.array([[50, 3, 12, 0], [7, 50, 1, 9], [11, 5, 50, 8], [2, 10, 0, 50]])
    pairs = sorted(
        ((true, taken) for true in range(4) for taken in range(4) if true != taken and counts[true, taken]),
        key=lambda pair: -counts[pair],
    )
    blank = np.zeros(4)
    evaluation = Evaluation(0, tuple("abcd"), 0, 0, 0, 0, counts, blank, blank, blank, [])
    assert evaluation.mistakes() == [(*pair, counts[pair]) for pair in pairs]
    assert len(pairs) == 10
    counts[0, 3] = 4
    assert [count for _, _, count in evaluation.mistakes()] == [12, 11, 10, 9, 8, 7, 5, 4, 3, 2]
    # Of equally frequent ones, the first in the matrix.
    even = Evaluation(0, tuple("abcd"), 0, 0, 0, 0, np.ones((4, 4), dtype=int), blank, blank, blank, [])
    assert [pair[:2] for pair in even.mistakes()] == [(a, b) for a in range(4) for b in range(4) if a != b][
        :10
    ]


def test_thresholds_are_those_of_the_model_or_of_its_metadata(model: SharedKernelClassifier) -> None:
    mixture = SharedKernelMixture(2, random_state=0).fit(X)
    assert outlier_threshold(model) == model.threshold_
    assert outlier_threshold(mixture) == -np.inf
    assert describe(mixture)["outlier_threshold"] is None
    assert metadata_of(mixture) == {"target": None, "outlier_threshold": None}
    densities = mixture.score_samples(X)
    mixture.metadata_ = {"target": "species", "outlier_threshold": float(np.sort(densities)[3])}
    assert metadata_of(mixture) == mixture.metadata_
    assert describe(mixture)["target"] == "species"
    assert describe(mixture)["outlier_threshold"] == np.sort(densities)[3]
    assert predict_columns(mixture, X)["outlier"].sum() == 3
    for wrong in ({"target": 3}, {"outlier_threshold": "low"}):
        mixture.metadata_ = wrong
        with pytest.raises(ValueError, match="metadata_ has target="):
            metadata_of(mixture)


def test_tables_without_rows_have_their_columns() -> None:
    mixture = SharedKernelMixture(2, random_state=0).fit(X)
    columns = predict_columns(mixture, X[:0])
    assert {name: len(values) for name, values in columns.items()} == dict.fromkeys(
        ("kernel", "p_0", "p_1", "log_density", "outlier"), 0
    )


def test_descriptions_have_the_numbers_of_the_model(model: SharedKernelClassifier) -> None:
    described = describe(model)
    (group,) = described["groups"]
    assert_allclose(group["weights"], model.weights_)
    assert_allclose(group["means"], model.means_)
    assert_allclose(group["shares"], model.weights_ @ [0.2, 0.3, 0.5])
    assert (group["n_kernels"], group["degrees"], group["background"]) == (3, None, None)
    assert described["kind"] == "SharedKernelClassifier"
    assert described["features"] == ["feature 0", "feature 1"]
    assert [each["label"] for each in described["classes"]] == ["setosa", "versicolor", "virginica"]
    assert [each["prior"] for each in described["classes"]] == [0.2, 0.3, 0.5]
    assert (described["converged"], described["n_iter"]) == (model.converged_, model.n_iter_)
    assert described["log_likelihood"] == model.log_likelihood_
    assert (described["temperature"], described["group_shift"], described["n_members"]) == (1.0, None, None)
    assert (described["n_transformed"], described["by_rank"], described["n_components"]) == (0, False, None)
    assert described["covariance_type"] == model.covariance_type_
    # One class is not listed, and a fit that has not converged says so.
    mixture = SharedKernelMixture(2, random_state=0).fit(X)
    assert describe(mixture)["classes"] == []
    mixture.converged_ = False
    assert describe(mixture)["converged"] is False
    groups = SharedKernelClassifier(2, feature_sets=[[0], [1]], random_state=0).fit(X, CODES)
    assert describe(groups)["converged"] is True
    groups.models_[0].converged_ = False
    assert describe(groups)["converged"] is False


def test_transformed_features_are_counted_and_named(model: SharedKernelClassifier) -> None:
    """As a search leaves them: by a power other than one, by rank, or projected."""
    changed = copy(model)
    for curves, matrix, expected, names in (
        (None, None, (1, False, None), ["feature 0, transformed", "feature 1, transformed"]),
        ([], None, (2, True, None), ["feature 0, transformed", "feature 1, transformed"]),
        (None, np.eye(2), (1, False, 2), ["component 1", "component 2"]),
    ):
        changed.feature_map_ = SimpleNamespace(powers=np.array([1.0, 0.5]), curves=curves, matrix=matrix)
        described = describe(changed)
        assert tuple(described[name] for name in ("n_transformed", "by_rank", "n_components")) == expected
        assert described["groups"][0]["features"] == names
        assert described["features"] == ["feature 0", "feature 1"]


def test_settings_that_are_not_plain_are_written_in_short() -> None:
    settings = settings_of(SharedKernelMixture(init={"means": np.zeros((20, 9))}, tol=np.inf, max_iter=7))
    assert settings.keys() == {"init", "tol", "max_iter"}
    assert (settings["tol"], settings["max_iter"]) == ("inf", 7)
    assert len(settings["init"]) == 80
    assert settings["init"].startswith("{'means': array([[0., 0.")
    assert settings["init"].endswith("...")
