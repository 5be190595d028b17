"""Tuning a fitted classifier: better where the model is too small, never worse on held-out rows."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from oracles import COVARIANCE_TYPES
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss

import skmix
from skmix import SharedKernelClassifier
from skmix.engine.records import FloatArray
from skmix.model.crossfit import quantile, seed_of
from skmix.model.holdout import stratified_folds
from skmix.model.tuning import labelled_rows, split_rows


def bars(n: int, seed: int) -> tuple[FloatArray, np.ndarray]:
    """Return two classes side by side: long clusters that a round kernel describes badly."""
    random = np.random.RandomState(seed)
    y = random.randint(0, 2, size=n)
    X = np.stack([random.uniform(-6.0, 6.0, size=n), y + random.uniform(-0.45, 0.45, size=n)], axis=1)
    X[:, 1] += 0.25 * X[:, 0]
    return X, np.where(y, "upper", "lower")


def fitted(covariance_type: str = "spherical", n_kernels: int = 4, **settings: Any) -> SharedKernelClassifier:
    return deepcopy(_fitted(covariance_type, n_kernels, tuple(settings.items())))


@cache
def _fitted(covariance_type: str, n_kernels: int, settings: tuple[tuple[str, Any], ...]) -> Any:
    model = SharedKernelClassifier(
        n_kernels, covariance_type=covariance_type, random_state=0, **dict(settings)
    )
    return model.fit(*bars(300, seed=0))


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_it_is_never_worse_on_held_out_rows(covariance_type: str) -> None:
    X, y = bars(200, seed=2)
    held_out = bars(60, seed=3)
    model = fitted(covariance_type)
    error = 1.0 - model.score(*held_out)
    loss = log_loss(held_out[1], model.predict_proba(held_out[0]))
    model.tune(X, y, validation=held_out, max_iter=8, random_state=0)
    assert 1.0 - model.score(*held_out) <= error + 1e-12
    assert log_loss(held_out[1], model.predict_proba(held_out[0])) <= loss + 1e-12
    # What it says of itself is what others see.
    after = model.tuned_["after"]
    assert_allclose(after["error"], 1.0 - model.score(*held_out), atol=1e-12)
    assert_allclose(after["log_loss"], log_loss(held_out[1], model.predict_proba(held_out[0])), rtol=1e-9)
    assert_allclose(model.tuned_["before"]["error"], error, atol=1e-12)
    joint = model.class_log_likelihood(held_out[0]) + np.log(model.class_prior_)
    own = joint[np.arange(60), np.searchsorted(model.classes_, held_out[1])]
    assert_allclose(after["log_likelihood"], own.mean(), rtol=1e-9)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_kernels_stay_above_the_floor(covariance_type: str) -> None:
    # The second feature is constant in each class: its likelihood has no bound but the floor.
    random = np.random.RandomState(0)
    y = np.repeat([0, 1], 60)
    X = np.stack([random.normal(size=120) + y, y.astype(float), random.normal(size=120)], axis=1)
    model = SharedKernelClassifier(
        2, covariance_type=covariance_type, variance_floor=1e-3, random_state=0
    ).fit(X, y)
    rows, labels = X[::2] + np.array([0.5, 0.0, 0.0]), y[::2]
    model.tune(rows, labels, trade_off=1.0, validation=(X[1::2], y[1::2]), max_iter=30)
    units = rows.std(axis=0)
    full = model.models_[0]._parameters.covariances
    if covariance_type in ("diag", "spherical"):
        variances = np.broadcast_to(full[:, None] if full.ndim == 1 else full, (2, 3))
        scaled = variances / (units**2 if covariance_type == "diag" else np.mean(units**2))
        smallest = scaled.min()
    else:
        smallest = np.linalg.eigvalsh(full / units[:, None] / units).min()
    assert smallest >= 1e-3 * (1.0 - 1e-6)


def test_rows_that_the_fit_has_not_seen_decide() -> None:
    X, y = bars(200, seed=2)
    settings: Any = {"max_iter": 12}
    plain = SharedKernelClassifier(6, covariance_type="diag", random_state=0)
    model = clone(plain).fit(X, y)
    given = clone(plain).fit(X, y)
    model.tune(X, y, random_state=0, **settings)
    # The same by hand: a fit without the held-out rows, tuned by them; then all rows for as many rounds.
    rows = labelled_rows(given, X, y)
    random = np.random.RandomState(0)
    training, held_out = split_rows(given, rows, 0.1, random)
    assert held_out is not None
    labels, validation = given.classes_[training.y], (held_out.X, given.classes_[held_out.y])
    other = clone(plain).fit(training.X, labels)
    other.tune(training.X, labels, validation=validation, random_state=random, **settings)
    assert model.tuned_ == other.tuned_
    assert model.temperature_ == other.temperature_
    assert model.tuned_["trade_off"] is not None
    assert np.abs(model.means_ - other.means_).max() > 1e-6
    best, last = np.inf, {}
    for number, each in enumerate(other.tuned_["rounds"]):
        if each["log_loss"] < min(best, other.tuned_["before"]["log_loss"]) and (
            each["error"] <= other.tuned_["before"]["error"]
        ):
            best, last[each["trade_off"]] = each["log_loss"], number
    first = {each["trade_off"]: n for n, each in reversed(list(enumerate(other.tuned_["rounds"])))}
    for trade_off, number in last.items():
        n_rounds = number - first[trade_off] + 1
        given.tune(X, y, trade_off=trade_off, validation=None, max_iter=n_rounds)
    assert_allclose(model.means_, given.means_, rtol=1e-6)


def test_rows_without_some_class_need_held_out_rows() -> None:
    X, y = bars(60, seed=2)
    own = y == "upper"
    with pytest.raises(ValueError, match="has the label 'lower'"):
        fitted().tune(X[own], y[own], max_iter=2, random_state=0)
    model = fitted().tune(X[own], y[own], max_iter=2, validation=(X, y))
    assert model.tuned_["before"] is not None


@pytest.mark.parametrize("weighted", [False, True])
def test_the_threshold_of_a_tuned_model(weighted: bool) -> None:
    X, y = bars(120, seed=2)
    weights = np.random.default_rng(0).choice([0.2, 5.0], size=120) if weighted else np.ones(120)
    settings: Any = {"trade_off": 0.1, "validation": None, "max_iter": 4}
    plain = SharedKernelClassifier(4, random_state=0)

    def tuned(model: SharedKernelClassifier, own: Any) -> SharedKernelClassifier:
        given = {"sample_weight": weights[own]} if weighted else {}
        return model.fit(X[own], y[own], **given).tune(X[own], y[own], **given, **settings)

    model = tuned(clone(plain).set_params(reject_below=0.2), slice(None))
    densities, order = [], []
    for training, held in stratified_folds(np.searchsorted(model.classes_, y) + 1, 4, seed_of(model)):
        other = tuned(clone(plain), training)
        # On the level of the model, by the quantile of the rows of this fit.
        level, of_fold = (
            quantile(0.2, each.score_samples(X[training]), weights[training]) for each in (model, other)
        )
        densities.append(other.score_samples(X[held]) + level - of_fold)
        order.append(held)
    expected = quantile(0.2, np.concatenate(densities), weights[np.concatenate(order)])
    assert_allclose(model.threshold_, expected, rtol=1e-9)
    assert model.means_ is model.models_[0].means_
    model.temperature_ = 2.0
    assert not hasattr(model.fit(X, y), "tuned_")
    assert model.temperature_ == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"trade_off": -0.1}, "trade_off must be finite and not negative, got -0.1"),
        ({"trade_off": "best"}, "or 'auto', got 'best'"),
        ({"trade_off": []}, "trade_off is an empty list"),
        ({"trade_off": [0.1, np.inf]}, "got inf"),
        ({"validation": 0.0}, "a share between 0 and 1, a tuple"),
        ({"validation": True}, "got True"),
        ({"validation": 0.999}, "too few to hold out 0.999"),
        ({"validation": (np.ones((3, 2)),)}, "got 1 entries"),
        ({"validation": (np.ones((3, 2)), ["lower", "other", "upper"])}, "labels that no training row had"),
        ({"validation": (np.full((2, 2), [1.0, np.nan]), ["lower", "upper"])}, "validation has NaN"),
        (
            {"validation": (np.ones((3, 2)), ["lower", None, None])},
            "no label in y of validation",
        ),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
        ({"X": np.full((2, 2), np.nan), "y": ["lower", "upper"]}, "without missing values, but X has NaN"),
        ({"X": np.ones((3, 2)), "y": ["lower", None, "upper"]}, "1 of 3 rows have no label in y"),
        ({"X": np.eye(2), "y": ["lower", "upper"]}, "2 rows of 2 classes are too few"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    X, y = bars(100, seed=2)
    model = fitted()
    before = dict(vars(model))
    with pytest.raises(ValueError, match=message):
        model.tune(**{"X": X, "y": y, **arguments})
    assert vars(model) == before


def test_rows_of_weight_zero_are_left_out() -> None:
    X, y = bars(60, seed=2)
    weights, settings = np.arange(60) % 3.0, {"trade_off": 0.1, "validation": None, "max_iter": 3}
    kept = weights > 0
    all_rows = fitted().tune(X, y, sample_weight=weights, **settings)
    some = fitted().tune(X[kept], y[kept], sample_weight=weights[kept], **settings)
    assert_array_equal(all_rows.means_, some.means_)


def test_models_that_cannot_be_tuned_are_refused() -> None:
    X, y = bars(100, seed=2)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SharedKernelClassifier().tune(X, y)
    for model, message in (
        (SharedKernelClassifier(feature_sets=[[0], [1]], random_state=0).fit(X, y), "2 feature sets"),
        (fitted(priors=(1.0, 0.0)), "label whose class prior is zero, such as 'upper'"),
    ):
        with pytest.raises(ValueError, match=message):
            model.tune(X, y)


def test_without_held_out_rows_the_last_model_stays(tmp_path: Path) -> None:
    X, y = bars(200, seed=2)
    wrong, held_out = np.where(y == "upper", "lower", "upper"), bars(100, seed=3)
    settings: Any = {"trade_off": 0.1, "max_iter": 4, "random_state": 0}
    judged = fitted("full").tune(X, wrong, validation=held_out, **settings)
    # Held-out rows want none of the models that wrong labels make; without them, the last one it is.
    assert judged.tuned_["trade_off"] is None
    assert judged.tuned_["after"] == judged.tuned_["before"]
    for name in ("weights_", "means_", "covariances_"):
        for own in (judged, judged.models_[0]):
            assert_array_equal(getattr(own, name), getattr(fitted("full"), name))
    model = fitted("full", reject_below=0.05, outlier_label="none")
    model.temperature_ = 2.5
    model.tune(X, wrong, validation=None, **settings)
    joint = model.class_log_likelihood(held_out[0]) + np.log(model.class_prior_)
    own = joint[np.arange(100), np.searchsorted(model.classes_, held_out[1])]
    assert_allclose(own.mean(), judged.tuned_["rounds"][-1]["log_likelihood"], rtol=1e-9)
    assert model.temperature_ == 2.5
    assert model.tuned_ == {"trade_off": 0.1, "before": None, "after": None, "rounds": []}
    model.save(tmp_path / "model.skmix")
    loaded = skmix.load(tmp_path / "model.skmix")
    assert loaded.tuned_ == model.tuned_
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))


def test_priors_of_the_fit_stay_in_force_in_files_too(tmp_path: Path) -> None:
    X, y = bars(300, seed=0)
    settings: Any = {"trade_off": 0.1, "validation": None, "max_iter": 20}
    variational: Any = {"inference": "variational", "weight_prior": 0.05, "max_iter": 500}
    model, other = fitted("full", 6, **variational), fitted("full", 6, **variational)
    model.save(tmp_path / "model.skmix")
    loaded = skmix.load(tmp_path / "model.skmix").tune(X, y, **settings)
    assert_array_equal(loaded.means_, model.tune(X, y, **settings).means_)
    # A concentration below 1, which would drive weights to zero, counts as none.
    other.models_[0].set_params(covariance_prior=4.0, weight_prior=None)
    assert_array_equal(model.weights_, other.tune(X, y, **settings).weights_)
    # What is left is no posterior any more.
    assert not hasattr(model, "weight_concentration_")
    assert not hasattr(model.models_[0], "lower_bound_")
    model.save(tmp_path / "model.skmix")
    assert_array_equal(skmix.load(tmp_path / "model.skmix").weights_, model.weights_)
