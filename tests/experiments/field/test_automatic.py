"""Automatic settings: their pieces against other libraries, and data that leave little to choose from."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits, load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import log_loss

from skmix import SharedKernelClassifier
from skmix.engine.refine.temperature import least_log_loss
from skmix.experiments.field.automatic import AutomaticClassifier
from skmix.experiments.field.classifiers import own_kernels
from skmix.experiments.field.preparing import filled, pooled_covariance


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


def test_the_pooled_covariance_is_that_of_discriminant_analysis(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    model = LinearDiscriminantAnalysis(solver="lsqr", store_covariance=True).fit(X, y)
    # Theirs divides by N; ours has N − L rows and one more of all rows' variances.
    expected = (150 * model.covariance_ + np.diag(X.var(axis=0))) / (150 - 3 + 1)
    assert_allclose(pooled_covariance(X, y), expected, rtol=1e-12)
    alone = pooled_covariance(X[::50], y[::50])
    assert_allclose(alone, np.diag(X[::50].var(axis=0)))


def test_gaps_hardly_change_the_pooled_covariance(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = np.tile(iris[0], (40, 1)), np.tile(iris[1], 40)
    whole = pooled_covariance(X, y)
    gaps = X.copy()
    gaps[np.random.RandomState(0).uniform(size=len(X)) < 0.5, 0] = np.nan
    found = pooled_covariance(gaps, y)
    assert_allclose(np.diag(found), np.diag(whole), rtol=0.1)
    # A class that has no value of a feature says nothing about it.
    gaps[y == 2, 0] = np.nan
    assert np.linalg.eigvalsh(pooled_covariance(gaps, y)).min() > 0.0


def test_the_temperature_is_the_best_of_many() -> None:
    random = np.random.RandomState(0)
    codes = random.randint(3, size=400)
    logs = 4.0 * (random.normal(size=(400, 3)) + np.eye(3)[codes])
    temperature, loss = least_log_loss(logs, codes)
    grid = np.geomspace(1.0, 50.0, 2000)
    shares = [np.exp(logs / t) / np.exp(logs / t).sum(axis=1, keepdims=True) for t in grid]
    losses = [log_loss(codes, each) for each in shares]
    assert loss == pytest.approx(min(losses), abs=1e-6)
    assert temperature == pytest.approx(grid[np.argmin(losses)], rel=0.02)


def test_probabilities_are_never_sharpened() -> None:
    temperature, loss = least_log_loss(np.array([[0.0, -9.0], [-9.0, 0.0]]), np.array([0, 1]))
    assert temperature == pytest.approx(1.0, rel=0.01)
    assert loss < 1e-3


def test_the_winner_is_the_classifier_one_would_ask_for(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = AutomaticClassifier(random_state=0, n_jobs=1).fit(X, names)
    assert model.choice_ == min(model.choices_, key=lambda choice: choice.loss)
    assert model.score(X, names) > 0.96
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    chosen = model.classifier_
    asked = SharedKernelClassifier(**chosen.get_params()).fit(X, y)
    assert model.choice_.trade_off is not None
    asked.tune(X, y, trade_off=model.choice_.trade_off, validation=None, max_iter=20)
    assert_allclose(asked.means_, chosen.means_)
    assert chosen.temperature_ == model.choice_.temperature
    again = AutomaticClassifier(random_state=0, n_jobs=1).fit(X, names)
    assert again.choices_ == model.choices_


def test_pixels_are_reduced_to_components() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 3], y[y < 3]
    # Each pixel twice in both directions: 256 features.
    X = np.kron(X.reshape(-1, 8, 8), np.ones((1, 2, 2))).reshape(len(X), -1)
    model = AutomaticClassifier(random_state=0, n_jobs=1).fit(X[:100], y[:100])
    assert model.choice_.reduction.startswith(("components", "standardised components"))
    assert model.score(X[100:], y[100:]) > 0.9


def test_classes_of_one_row_and_constant_features() -> None:
    X = np.array([[0.0, 1.0], [10.0, 1.0], [20.0, 1.0]])
    model = AutomaticClassifier(random_state=0).fit(X, ["a", "b", "c"])
    assert model.predict(X).tolist() == ["a", "b", "c"]
    assert model.choice_.covariance_type == "tied"
    more = np.concatenate([X, X[:2] + 0.5, X[:2] - 0.5])
    assert AutomaticClassifier(random_state=0).fit(more, list("abcabab")).predict(X).tolist() == list("abc")


def test_without_sharing_a_kernel_belongs_to_one_class(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    model = AutomaticClassifier(shared=False, random_state=0, n_jobs=1).fit(X, y)
    assert_allclose(np.count_nonzero(model.classifier_.weights_, axis=1), 1)
    own = SharedKernelClassifier(init=own_kernels(X, y, 1, 0), random_state=0).fit(X, y)
    assert_allclose(own.means_, [X[y == c].mean(axis=0) for c in range(3)])
    with pytest.raises(ValueError, match="needs rows without missing values"):
        AutomaticClassifier(shared=False).fit([[0.0], [np.nan], [1.0], [2.0]], [0, 0, 1, 1])


def test_where_values_are_missing_tuning_sees_them_filled(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris[0].copy(), iris[1]
    X[np.random.RandomState(0).uniform(size=X.shape) < 0.15] = np.nan
    model = AutomaticClassifier(random_state=0, n_jobs=1).fit(X, y)
    chosen, trade_off = model.classifier_, model.choice_.trade_off
    assert trade_off is not None
    asked = SharedKernelClassifier(**chosen.get_params()).fit(X, y)
    asked.tune(filled(X, chosen.random_state), y, trade_off=trade_off, validation=None, max_iter=20)
    assert_allclose(asked.means_, chosen.means_)
    for where, message in (
        (np.s_[3], "Row 3 of X has no value"),
        (np.s_[:, 2], "Feature 2 of X has no value"),
    ):
        nothing = iris[0].copy()
        nothing[where] = np.nan
        with pytest.raises(ValueError, match=message):
            AutomaticClassifier(random_state=0).fit(nothing, y)


def test_two_rows_of_a_class_and_one_feature_will_do(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris[0], np.array(["setosa", "versicolor", "virginica"])[iris[1]]
    two = np.array([0, 1, 50, 51, 100, 101])
    model = AutomaticClassifier(random_state=0, n_jobs=1).fit(X[two], y[two])
    assert model.predict(X[two]).tolist() == y[two].tolist()
    one = AutomaticClassifier(random_state=0, n_jobs=1).fit(X[::3, 2:3], y[::3])
    assert one.score(X[:, 2:3], y) > 0.9


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="two classes or more, got one class"):
        AutomaticClassifier().fit([[0.0], [1.0]], [1, 1])
