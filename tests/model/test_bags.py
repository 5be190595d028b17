"""Bags of rows: probabilities against brute force, calibration, claims and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from skmix import SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelMixture, load

CLASSES = ["a", "b", "c"]


def make_bags(n_bags: int, seed: int, spread: float = 1.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of bags whose means differ, so that rows of a bag are dependent; labels, and identifiers."""
    random = np.random.default_rng(seed)
    sizes, labels = random.integers(2, 12, n_bags), random.integers(0, 3, n_bags)
    bags = np.repeat(np.arange(n_bags), sizes)
    means = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])[labels] + spread * random.normal(size=(n_bags, 2))
    X = means[bags] + random.normal(size=(len(bags), 2))
    return X, np.array(CLASSES)[labels][bags], bags


@pytest.fixture(scope="module")
def model() -> SharedKernelClassifier:
    X, y, _ = make_bags(60, 0)
    return SharedKernelClassifier(4, random_state=0).fit(X, y)


def posteriors(model: Any, X: np.ndarray, bags: np.ndarray, w: np.ndarray, rho: float) -> np.ndarray:
    """Bayes' rule, a bag at a time."""
    lines = []
    for bag in np.unique(bags):
        rows = bags == bag
        known = rows & ~np.isnan(X).all(axis=1)
        divisor = 1.0 + max(w[known].sum() - 1.0, 0.0) * rho
        product = model.class_prior_.copy()
        for weight, logs in zip(w[rows], model.class_log_likelihood(X[rows]), strict=True):
            product = product * np.exp(logs - logs.max()) ** (weight / divisor)
        lines.append(product / product.sum())
    return np.array(lines)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_probabilities_of_bags_follow_bayes_rule(model: SharedKernelClassifier, rho: float) -> None:
    X, _, bags = make_bags(20, 1)
    random = np.random.default_rng(0)
    X[random.random(X.shape) < 0.2] = np.nan
    X[3] = np.nan
    weights, order = random.integers(0, 3, len(X)).astype(float), random.permutation(len(X))
    model.bag_correlation_ = rho
    try:
        found = model.predict_bags_proba(X, bags, weights)
        shuffled = model.predict_bags_proba(X[order], bags[order], weights[order])
        repeated = np.repeat(np.arange(len(X)), weights.astype(int))
        by_counts = model.predict_bags_proba(X[repeated], bags[repeated])
    finally:
        del model.bag_correlation_
    expected = posteriors(model, X, bags, weights, rho)
    assert_allclose(found, expected, rtol=1e-8, atol=1e-12)
    assert_allclose(shuffled, expected, rtol=1e-8, atol=1e-12)
    present = np.isin(np.unique(bags), bags[repeated])
    assert_allclose(by_counts, expected[present], rtol=1e-8, atol=1e-12)


def test_a_bag_of_one_row_is_the_row_and_a_bag_without_values_is_the_prior(
    model: SharedKernelClassifier,
) -> None:
    X, y, bags = make_bags(40, 2)
    held = load_copy(model).calibrate(X, y, bags=bags)
    assert held.temperature_ != 1.0
    assert 0.0 < held.bag_correlation_ < 1.0
    assert_allclose(held.predict_bags_proba(X, np.arange(len(X))), held.predict_proba(X), rtol=1e-9)
    nothing = np.full((3, 2), np.nan)
    alone = held.predict_proba(nothing[:1])[0]
    assert_allclose(held.predict_bags_proba(nothing, ["p", "p", "q"]), [alone] * 2, rtol=1e-9)


def load_copy(model: Any) -> Any:
    """A copy of a fitted model, through its file."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder, "model.skmix"))
        return load(Path(folder, "model.skmix"))


def test_lines_are_in_the_order_of_sorted_identifiers(model: SharedKernelClassifier) -> None:
    X = np.array([[1.5, 0.0], [0.0, 1.5], [1.5, 0.2], [0.2, 1.6]])
    bags = np.array(["later", "first", "later", "first"])
    assert_array_equal(model.predict_bags(X, bags), ["c", "b"])
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(bag=bags)
    named = SharedKernelClassifier(4, random_state=0).fit(frame[["u", "v"]], ["b", "c", "b", "c"])
    by_name, by_column = named.predict_bags(frame, "bag"), named.predict_bags(frame[["u", "v"]], frame["bag"])
    assert_array_equal(by_name, ["c", "b"])
    assert_array_equal(by_column, by_name)


def test_bags_of_a_file(model: SharedKernelClassifier, tmp_path: Path) -> None:
    X, y, bags = make_bags(20, 3)
    table = pd.DataFrame(X, columns=["u", "v"]).assign(label=y, bag=[f"b{bag:02}" for bag in bags])
    table.to_csv(tmp_path / "rows.csv", index=False)
    fitted = SharedKernelClassifier(4, random_state=0).fit(table[["u", "v"]], y)
    file = str(tmp_path / "rows.csv")
    expected = fitted.predict_bags_proba(X_of(table), bags)
    assert_allclose(fitted.predict_bags_proba(file, "bag"), expected, rtol=1e-9)
    by_file = load_copy(fitted).calibrate(file, "label", bags="bag")
    by_array = load_copy(fitted).calibrate(table[["u", "v"]], y, bags=bags)
    assert_allclose(by_file.bag_correlation_, by_array.bag_correlation_, rtol=1e-6)


def X_of(table: pd.DataFrame) -> pd.DataFrame:  # noqa: N802
    return table[["u", "v"]]


def test_the_correlation_has_the_least_smoothed_log_loss(model: SharedKernelClassifier) -> None:
    X, y, bags = make_bags(200, 4)
    held = load_copy(model).calibrate(X, y, bags=bags)
    labels = np.array([y[bags == bag][0] for bag in np.unique(bags)])
    right = labels[:, None] == np.array(CLASSES)
    targets = np.where(right, 201 / 202, 1 / 404)
    evidence, sizes = np.zeros((200, 3)), np.bincount(bags)
    np.add.at(evidence, bags, held.predict_log_proba(X) - held.predict_log_proba([[np.nan, np.nan]]))

    def loss(rho: float) -> float:
        logs = held.predict_log_proba([[np.nan, np.nan]]) + evidence / (1 + (sizes - 1) * rho)[:, None]
        return -float((targets * log_softmax(logs, axis=1)).sum())

    best = minimize_scalar(loss, bounds=(0, 1), method="bounded", options={"xatol": 1e-9}).x
    assert_allclose(held.bag_correlation_, best, atol=1e-5)


def test_calibrated_probabilities_of_bags_are_honest_and_sums_are_not(model: SharedKernelClassifier) -> None:
    held = load_copy(model).calibrate(*make_bags(300, 5)[:2], bags=make_bags(300, 5)[2])
    X, y, bags = make_bags(1000, 6)
    labels = np.array([y[bags == bag][0] for bag in np.unique(bags)])
    gaps = []
    for each in (model, held):
        probabilities = each.predict_bags_proba(X, bags)
        accuracy = (each.classes_[probabilities.argmax(axis=1)] == labels).mean()
        gaps.append(probabilities.max(axis=1).mean() - accuracy)
    assert gaps[0] > 0.1
    assert abs(gaps[1]) < 0.04


def test_independent_rows_need_no_correlation() -> None:
    X, y, bags = make_bags(400, 7, spread=0.0)
    model = SharedKernelClassifier(3, random_state=0).fit(X, y)
    X, y, bags = make_bags(400, 8, spread=0.0)
    assert model.calibrate(X, y, bags=bags).bag_correlation_ < 0.05


def test_claims_against_the_pool(model: SharedKernelClassifier) -> None:
    X, y, bags = make_bags(30, 9)
    labels = np.array([y[bags == bag][0] for bag in np.unique(bags)])
    likelihood = model.class_log_likelihood(X)
    pool = model.score_samples(X)
    for rho in (0.0, 0.4):
        model.bag_correlation_ = rho
        found = model.verify(X, labels, bags)
        del model.bag_correlation_
        for place, (bag, label) in enumerate(zip(np.unique(bags), labels, strict=True)):
            rows = bags == bag
            ratio = (likelihood[rows, CLASSES.index(label)] - pool[rows]).sum()
            assert_allclose(found[place], ratio / (1 + (rows.sum() - 1) * rho), rtol=1e-8)
    one = model.verify(X, "b")
    assert_allclose(one, [(likelihood[:, 1] - pool).sum()], rtol=1e-8)


def test_a_search_predicts_bags_and_keeps_its_correlation() -> None:
    X, y, bags = make_bags(60, 10)
    search = SharedKernelClassifierCV(n_kernels=[3, 6], random_state=0).fit(X, y, groups=bags)
    Z, z, of_row = make_bags(60, 11)
    search.calibrate(Z, z, bags=of_row)
    alone = search.predict_bags_proba(Z, np.arange(len(Z)))
    assert_allclose(alone, search.predict_proba(Z), rtol=1e-8)
    again = load_copy(search)
    assert again.bag_correlation_ == search.bag_correlation_
    assert_array_equal(again.predict_bags_proba(Z, of_row), search.predict_bags_proba(Z, of_row))
    assert not hasattr(search.fit(X, y), "bag_correlation_")


def test_a_mixture_of_groups_becomes_a_classifier_with_their_shifts(tmp_path: Path) -> None:
    X, y, bags = make_bags(60, 12)
    frame = pd.DataFrame(X, columns=["u", "v"])
    mixture = SharedKernelMixture(3, group_shift=5.0, random_state=0).fit(frame, y)
    model = SharedKernelClassifier.from_parameters(mixture)
    assert_allclose(model.class_log_likelihood(frame), mixture.class_log_likelihood(frame), rtol=1e-12)
    joint = np.log(mixture.class_prior_) + mixture.class_log_likelihood(frame)
    assert_allclose(model.predict_log_proba(frame), log_softmax(joint, axis=1), rtol=1e-9, atol=1e-9)
    model.calibrate(frame, y, bags=bags)
    again = load_copy(model)
    assert_array_equal(again.predict_bags_proba(frame, bags), model.predict_bags_proba(frame, bags))
    assert mixture.feature_names_in_.tolist() == ["u", "v"]
    for method, call in {
        "tune": lambda: model.tune(frame, y),
        "to_onnx": model.to_onnx,
        "condition": lambda: model.condition({"u": 0.0}),
        "partial_fit": lambda: model.partial_fit(frame, y),
    }.items():
        with pytest.raises((ValueError, AttributeError)) as caught:
            call()
        words = f"{caught.value} {caught.value.__cause__}"
        assert "group_shift" in words
        assert method in words


def test_what_cannot_be_a_bag_is_refused(model: SharedKernelClassifier) -> None:
    X, y, bags = make_bags(20, 13)
    with pytest.raises(ValueError, match=r"X has \d+ rows, but bags has the shape \(3,\)"):
        model.predict_bags(X, [1, 2, 3])
    with pytest.raises(ValueError, match=r"bags has no value in 1 of \d+ rows"):
        model.predict_bags(X, np.where(np.arange(len(X)) == 5, np.nan, bags))
    with pytest.raises(ValueError, match="bags is 'speaker', the name of a column, but X is a ndarray"):
        model.predict_bags(X, "speaker")
    with pytest.raises(ValueError, match=r"1 of 20 bags have rows of several classes, such as bag 0"):
        model.calibrate(X, np.where(np.arange(len(X)) == 0, np.where(y[0] == "a", "b", "a"), y), bags=bags)
    with pytest.raises(ValueError, match="All bags have one row"):
        model.calibrate(X, y, bags=np.arange(len(X)))
    with pytest.raises(ValueError, match="claimed has labels that no training row had"):
        model.verify(X, "x", bags)
    with pytest.raises(ValueError, match="cannot be compared with each other"):
        model.predict_bags(X, np.array([1, *["x"] * (len(X) - 1)], dtype=object))
    without = SharedKernelClassifier(3, priors=[0.0, 0.5, 0.5], random_state=0).fit(X, y)
    assert_array_equal(without.predict_bags_proba(X, bags)[:, 0], 0.0)
    with pytest.raises(ValueError, match="class prior of a claimed class is zero"):
        without.verify(X, "a", bags)
