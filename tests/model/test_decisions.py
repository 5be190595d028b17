"""Refusing novel rows and calibrating probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import classifier_of, mixture_of, random_classifier, random_product, rows_for
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import log_softmax
from sklearn.metrics import log_loss

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.engine.records import FloatArray, Parameters
from skmix.model import crossfit
from skmix.model.crossfit import quantile, seed_of
from skmix.model.holdout import stratified_folds


def blobs(labels: Any = (0, 1, 2), n: int = 100) -> tuple[FloatArray, np.ndarray]:
    random = np.random.RandomState(0)
    y = np.repeat(np.array(labels), n)
    return random.normal(size=(len(y), 3)) + 4.0 * np.repeat(np.arange(len(labels)), n)[:, None], y


# ---------------------------------------------------------------- novelty


def by_rank(share: float, values: np.ndarray) -> float:
    """Return the log-density of a rank among n rows and one more, between the densities of two rows."""
    values, rank = np.sort(values), share * (len(values) + 1)
    below, above = values[max(int(rank), 1) - 1], values[int(rank)]
    return float(np.log((1.0 - rank % 1.0) * np.exp(below) + rank % 1.0 * np.exp(above)))


def with_gaps(X: FloatArray) -> FloatArray:
    X = X.copy()
    X[np.random.RandomState(3).uniform(size=X.shape) < 0.1] = np.nan
    X[np.isnan(X).all(axis=1), 0] = 1.0
    return X


@pytest.mark.parametrize(
    ("share", "sets", "kind", "n_kernels"),
    [
        (0.5, None, "plain", None),
        (0.1, [[0, 1], [2]], "plain", None),
        (0.1, None, "gaps", 4),
        (0.2, None, "unlabelled", 4),
        (0.05, None, "weighted", 4),
    ],
)
def test_the_threshold_is_a_quantile_of_held_out_densities(
    share: float, sets: Any, kind: str, n_kernels: int | None
) -> None:
    X, y = blobs(n=24)
    weights = np.random.RandomState(1).randint(1, 4, size=len(X)) if kind == "weighted" else None
    if kind == "gaps":
        X = with_gaps(X)
    if kind == "unlabelled":
        y = np.where(np.arange(len(y)) % 3 == 0, np.nan, y)
    settings: Any = {
        "n_kernels": n_kernels, "feature_sets": sets, "random_state": 0, "tol": 1e-2,
    }  # fmt: skip
    model = SharedKernelClassifier(reject_below=share, outlier_label=-1, **settings).fit(X, y, weights)
    codes = np.where(np.isnan(y), -1, y).astype(np.int64)
    densities, seen = [], []
    for training, held in stratified_folds(codes + 1, 10, seed_of(model)):
        other = SharedKernelClassifier(**settings)
        other.fit(X[training], y[training], None if weights is None else weights[training])
        densities.append(other.score_samples(X[held]))
        seen.append(held)
    values, rows = np.concatenate(densities), np.concatenate(seen)
    assert_array_equal(np.sort(rows), np.arange(len(X)))
    assert_allclose(
        model.threshold_, by_rank(share, np.repeat(values, 1 if weights is None else weights[rows]))
    )
    plain = SharedKernelClassifier(**settings).fit(X, y, weights)
    refused = plain.score_samples(X) < model.threshold_
    assert_array_equal(model.predict(X), np.where(refused, -1, plain.predict(X)))
    assert plain.threshold_ == -np.inf
    far = model.predict([[1e3, -1e3, 0.0]])
    assert_array_equal(far, [-1])
    assert far.dtype == model.classes_.dtype
    # Only the label says that a row was refused, and only if there is one.
    assert_array_equal(model.predict_proba(X), plain.predict_proba(X))
    assert_array_equal(model.set_params(outlier_label=None).predict(X), plain.predict(X))


def test_tuned_models_refuse_the_share_that_was_asked_for() -> None:
    # Tuning moves the level of densities, here of far classes by different amounts in each fit.
    refused = []
    for seed in (0, 3, 5):
        random = np.random.default_rng(seed)
        X, Z = (np.repeat([[0.0], [6.0]], n, axis=0) + random.normal(size=(2 * n, 2)) for n in (150, 3000))
        model = SharedKernelClassifier(2, reject_below=0.05, outlier_label=9, random_state=0)
        search = SharedKernelClassifierCV(model, n_kernels=[2], cv=2, random_state=0)
        refused.append(np.mean(search.fit(X, np.repeat([0, 1], 150)).predict(Z) == 9))
    assert min(refused) > 0.02
    assert max(refused) < 0.1


def test_the_share_of_new_rows_that_is_refused() -> None:
    # Covariances of 6 features from 25 rows of each class: their own densities say nothing about new rows.
    refused, beyond = [], []
    for seed in range(5):
        random = np.random.RandomState(seed)
        mix = random.normal(size=(6, 6))
        y = np.repeat([0, 1, 2, 3], 25)
        X = random.normal(size=(100, 6)) @ mix + 4.0 * y[:, None]
        new = random.normal(size=(4000, 6)) @ mix + 4.0 * np.repeat([0, 1, 2, 3], 1000)[:, None]
        model = SharedKernelClassifier(
            covariance_prior=None, reject_below=0.1, outlier_label=-1, random_state=seed
        ).fit(X, y)
        refused.append(np.mean(model.predict(new) == -1))
        beyond.append(np.mean(model.score_samples(new) < np.quantile(model.score_samples(X), 0.1)))
    assert 0.1 / 1.5 < np.mean(refused) < 0.1 * 1.5
    assert np.mean(beyond) > 0.2


@pytest.mark.parametrize(("n", "share"), [(30, 0.1), (99, 0.01), (150, 0.01), (40, 0.37)])
def test_a_new_row_is_below_a_quantile_with_its_probability(n: int, share: float) -> None:
    # A row of log-density v has a smaller one with the probability exp(v).
    random = np.random.default_rng(0)
    found = [np.exp(quantile(share, -random.exponential(size=n))) for _ in range(4000)]
    assert abs(np.mean(found) - share) < 4.0 * np.std(found) / np.sqrt(4000)


def test_a_row_of_weight_three_is_three_rows() -> None:
    random = np.random.default_rng(0)
    for n in (3, 20, 100):
        values, counts = random.normal(size=n), random.integers(1, 5, size=n)
        for share in (0.001, 0.07, 0.5, 0.999):
            repeated = np.repeat(values, counts)
            assert_allclose(quantile(share, values, counts.astype(float)), quantile(share, repeated))
            # Weights may have any unit: then there are as many rows as there are.
            assert_allclose(quantile(share, values, np.full(n, 1.0 / n)), quantile(share, values))
    assert quantile(0.2, values, np.arange(100.0) + 1) != quantile(0.2, values)


def test_without_held_out_rows_the_threshold_is_that_of_the_training_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X = np.array([[0.0, 0.0], [3.0, 1.0], [1.0, 5.0]])
    model = SharedKernelClassifier(covariance_type="spherical", covariance_prior=3.0, reject_below=0.3)
    with pytest.warns(UserWarning, match="No part of the 3 rows can be held out"):
        model.fit(X, [1, 2, 3])
    assert model.threshold_ >= model.score_samples(X).min() - 1e-9

    def fail(*given: Any) -> None:
        raise ValueError("these rows are odd")

    monkeypatch.setattr(crossfit, "refit", fail)
    with pytest.warns(UserWarning, match="can be held out.*these rows are odd"):
        SharedKernelClassifier(reject_below=0.1, random_state=0).fit(*blobs())


@pytest.mark.parametrize(
    ("labels", "outlier", "kind"),
    [
        (("a", "bb"), "none of these", "U"),
        ((0, 1), 7, "i"),
        ((0.0, 1.0), np.nan, "f"),
        ((0.0, 1.0), -1, "f"),
        (np.array([1, 2], dtype=np.uint8), -1, "i"),
        (np.array(["a", "b"], dtype=object), "?", "O"),
        ((0, 1), np.int64(5), "i"),
    ],
)
def test_outlier_labels_of_every_type(labels: Any, outlier: Any, kind: str) -> None:
    X, y = blobs(labels)
    settings: Any = {"tol": 0.1, "random_state": 0}
    model = SharedKernelClassifier(reject_below=0.05, outlier_label=outlier, **settings).fit(X, y)
    predicted = model.predict([[0.0, 0.0, 0.0], [1e3, 0.0, 0.0], [4.0, 4.0, 4.0]])
    assert predicted.dtype.kind == kind
    assert predicted[0] == labels[0]
    assert predicted[2] == labels[1]
    if isinstance(outlier, float):
        assert np.isnan(predicted[1])
    else:
        assert predicted[1] == outlier


@pytest.mark.parametrize(
    ("labels", "outlier", "message"),
    [
        (("a", "b"), -1, "outlier_label must be a string, as the labels are <U1"),
        (np.array(["a", "b"], dtype=object), -1, "must be a string, as the labels are object"),
        ((0, 1), "none", "must be an integer, as the labels are int64"),
        ((0, 1), 0.5, "must be an integer"),
        ((0, 1), True, "is one of the classes"),
        ((2, 3), True, "must be an integer"),
        ((0.0, 1.0), "none", "must be a number"),
        ((-1, 1), -1, r"outlier_label=-1 is one of the classes: \[-1, 1\]"),
        ((False, True), -1, "booleans have no third value"),
        ((0, 1), -1, "outlier_label=-1 needs a fit with reject_below: without a threshold, nothing would be"),
    ],
)
def test_outlier_labels_that_do_not_fit(labels: Any, outlier: Any, message: str) -> None:
    X, y = blobs(labels)
    share = None if "needs a fit" in message else 0.05
    model = SharedKernelClassifier(reject_below=share, outlier_label=outlier)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    with pytest.raises(ValueError, match=message):
        model.partial_fit(X, y, np.unique(y))
    assert not hasattr(model, "classes_")
    fitted = SharedKernelClassifier(reject_below=share, random_state=0, tol=0.1).fit(X, y)
    # It is about the fit that was made, and not about the next one.
    fitted.set_params(reject_below=0.05, outlier_label=outlier)
    with pytest.raises(ValueError, match=message):
        fitted.predict([[1e3, 0.0, 0.0]])


@pytest.mark.parametrize("make", [random_classifier, random_product])
def test_a_conditional_model_refuses_the_same_rows(make: Any) -> None:
    model = make(12)
    model.set_params(reject_below=0.3, outlier_label="?")
    X = rows_for(12, model.n_features_in_, 200)
    X[:, 0] = 0.25
    model.threshold_ = float(np.quantile(model.score_samples(X), 0.3))
    rest = model.condition({0: 0.25})
    assert_array_equal(rest.predict(X[:, 1:]), model.predict(X))
    assert np.mean(model.predict(X) == "?") > 0.25
    # The density of fewer features has another scale: a marginal refuses nothing.
    part = model.marginal([1, 0])
    assert part.reject_below is part.outlier_label is None
    assert not np.any(part.predict(X[:, [1, 0]]) == "?")


# ---------------------------------------------------------------- calibration


def test_calibration_lowers_the_log_loss_and_changes_no_prediction() -> None:
    # A classifier that counts one feature six times.
    random = np.random.default_rng(2)
    y = random.integers(0, 2, size=1200)
    x = random.normal(size=1200) + 1.5 * y
    X = x[:, None] + 0.3 * random.normal(size=(1200, 6))
    model = SharedKernelClassifier(feature_sets=[[d] for d in range(6)], random_state=0)
    model.fit(X[:600], y[:600])
    X, y = X[600:], y[600:]
    labels, scores = model.predict(X), model.score_samples(X)
    X[0, :3] = np.nan
    filled = model.impute(X)
    tune, test = slice(0, 300), slice(300, 600)
    before = log_loss(y[test], model.predict_proba(X[test]))
    plain = model.predict_log_proba(X)
    assert model.temperature_ == 1.0
    assert model.calibrate(X[tune], y[tune]) is model
    assert model.temperature_ > 3.0
    assert log_loss(y[test], model.predict_proba(X[test])) < 0.6 * before
    expected = log_softmax(plain / model.temperature_, axis=1)
    assert_allclose(model.predict_log_proba(X), expected, rtol=1e-9, atol=1e-12)
    assert_array_equal(model.predict(X[1:]), labels[1:])
    # Only the reported probabilities are tempered: densities and kernels are the model's.
    assert_array_equal(model.score_samples(X[1:]), scores[1:])
    assert_allclose(model.impute(X), filled, rtol=1e-12)
    assert_allclose(model.condition({0: 1.0}).temperature_, model.temperature_)
    assert_allclose(model.marginal([2, 1]).temperature_, model.temperature_)
    counts = np.random.RandomState(0).randint(0, 3, size=300)
    weighted = model.calibrate(X[tune], y[tune], sample_weight=counts).temperature_
    repeated = model.calibrate(np.repeat(X[tune], counts, axis=0), np.repeat(y[tune], counts)).temperature_
    assert_allclose(weighted, repeated, rtol=1e-9)
    # A second calibration starts afresh, and so does a fit.
    model.calibrate(X[tune], y[tune])
    first = model.temperature_
    assert_allclose(model.calibrate(X[tune], y[tune]).temperature_, first, rtol=1e-9)
    assert model.fit(X[tune], y[tune]).temperature_ == 1.0


def test_rows_that_say_nothing_about_the_temperature() -> None:
    X, y = blobs((0, 2))
    model = SharedKernelClassifier(random_state=0).fit(X, y)
    with pytest.warns(UserWarning, match="All 4 rows are classified correctly"):
        model.calibrate([[0.0] * 3, [0.5] * 3, [4.0] * 3, [3.5] * 3], [0, 0, 2, 2])
    assert model.temperature_ == 1.0
    # An error of weight zero is none.
    with pytest.warns(UserWarning, match="classified correctly"):
        model.calibrate([[0.0] * 3, [4.0] * 3, [4.0] * 3], [0, 2, 0], sample_weight=[1.0, 1.0, 0.0])
    for labels, message in (
        (2 - y, "On these 200 rows the classifier is worse than guessing"),
        (y + 1, "labels that no training row had"),
        (y[:3], "X has 200 rows but y has 3 labels"),
    ):
        with pytest.raises(ValueError, match=message):
            model.calibrate(X, labels)
    assert model.temperature_ == 1.0


def test_classes_without_prior() -> None:
    means = np.array([[0.0], [3.0], [6.0]])
    part = mixture_of(Parameters(np.eye(3), means, np.ones(3)), "spherical", [0.5, 0.5, 0.0])
    model = classifier_of([part], [[0]], 1)
    X, y = np.array([[0.0], [1.4], [1.4], [3.0]]), np.array([0, 0, 1, 1])
    model.calibrate(X, y)
    assert 0.0 < model.temperature_ < 10.0
    assert_array_equal(model.predict_proba(X)[:, 2], 0.0)
    with pytest.raises(ValueError, match="1 of 4 rows have a label whose class prior is zero"):
        model.calibrate(X, [0, 0, 1, 2])
