"""Classifiers of the comparison: separate mixtures, own kernels, and how many numbers they store."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import multivariate_normal
from sklearn import config_context
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skmix import SharedKernelClassifier
from skmix.experiments.field import (
    FIELD,
    SeparateMixtures,
    TunedSVC,
    contenders,
    count_parameters,
)
from skmix.experiments.field.classifiers import MostAccurate


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    return load_iris(return_X_y=True)


def test_the_forest_has_its_trees_and_processes_can_have_all_classifiers() -> None:
    """A weaker version of another classifier would flatter ours."""
    assert contenders(["random forest"])[0].make(3).estimator.n_estimators == 300
    for each in FIELD:
        assert repr(pickle.loads(pickle.dumps(each)).pipeline(3, True)) == repr(each.pipeline(3, True))


def test_the_most_accurate_choice_is_the_likeliest_of_equals() -> None:
    results = {
        "mean_test_accuracy": np.array([0.8, 0.9, 0.9 + 1e-12, np.nan]),
        "mean_test_neg_log_loss": np.array([-0.1, -0.3, -0.4, -0.2]),
    }
    assert MostAccurate()(results) == 1
    # Keys of results contain the text of a classifier, which must not have an address in memory.
    for each in FIELD:
        with config_context(print_changed_only=False):
            assert "0x" not in each.pipeline(0, True).__repr__(N_CHAR_MAX=1_000_000)


def test_the_support_vector_machine_is_the_most_accurate_of_its_grid(
    iris: tuple[np.ndarray, np.ndarray],
) -> None:
    X, y = iris[0][:, :2], iris[1]
    model = TunedSVC(C=(1.0, 100.0), gamma=(0.1, 1.0, 10.0), random_state=0).fit(X, y)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    scale = 1.0 / (2 * X.var())
    means = {
        (C, gamma): cross_val_score(SVC(C=C, gamma=gamma * scale), X, y, cv=folds).mean()
        for C in (1.0, 100.0)
        for gamma in (0.1, 1.0, 10.0)
    }
    C, gamma = max(means, key=lambda each: means[each])
    assert model.best_params_ == pytest.approx({"C": C, "gamma": gamma * scale})
    # Its classes are its own, whatever the calibrated probabilities say.
    assert_array_equal(model.predict(X), SVC(C=C, gamma=gamma * scale).fit(X, y).predict(X))
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.slow
def test_few_rows_in_many_dimensions_do_not_ruin_separate_mixtures() -> None:
    """Nearly singular covariances would make them guess."""
    random = np.random.RandomState(0)
    y = np.repeat(np.arange(4), 60)
    X = random.normal(size=(240, 12)) + 3.0 * np.eye(4, 12)[y]
    few = np.arange(240) % 60 < 12
    model = SeparateMixtures(max_components=2, random_state=0).fit(X[few], y[few])
    assert model.score(X[~few], y[~few]) > 0.8
    with pytest.raises(ValueError, match="regularisations must be numbers of at least 0"):
        SeparateMixtures(regularisations=()).fit(X, y)


def test_separate_mixtures_of_one_component_are_discriminant_analysis() -> None:
    random = np.random.RandomState(0)
    X = np.concatenate(
        [
            random.normal(size=(200, 2)) @ [[1, 0.8], [0, 0.6]],
            random.normal(size=(100, 2)) @ [[1, 0], [-1, 1]] + 2,
        ]
    )
    y = np.repeat([0, 1], [200, 100])
    model = SeparateMixtures(max_components=1, regularisations=(0.0,), random_state=0).fit(X, y)
    joint = np.column_stack(
        [
            len(own) / 300 * multivariate_normal(own.mean(axis=0), np.cov(own.T, bias=True)).pdf(X)
            for own in (X[:200], X[200:])
        ]
    )
    assert_allclose(model.predict_proba(X), joint / joint.sum(axis=1, keepdims=True), atol=1e-10)
    with pytest.raises(ValueError, match="max_components must be at least 1, got 0"):
        SeparateMixtures(max_components=0).fit(X, y)


def test_parameters_are_counted(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    shared = SharedKernelClassifier(5, random_state=0, max_iter=500).fit(X, y)
    # Means, triangles of covariances, weights that sum to one in each class, and priors that do.
    assert count_parameters(shared) == 5 * 4 + 5 * 10 + 3 * 4 + 2
    assert count_parameters(make_pipeline(StandardScaler(), GaussianNB()).fit(X, y)) == 12 + 12 + 2
    network = MLPClassifier((7,), max_iter=5000, random_state=0).fit(X, y)
    assert count_parameters(network) == 4 * 7 + 7 + 7 * 3 + 3
    # Two numbers of a sigmoid for each class, and the support vectors.
    machine = CalibratedClassifierCV(SVC(), ensemble=False).fit(X, y)
    inner = machine.calibrated_classifiers_[0].estimator
    stored = inner.support_vectors_.size + inner.dual_coef_.size + 3
    assert count_parameters(machine) == stored + 2 * 3
    assert count_parameters(LogisticRegression(max_iter=1000).fit(X, y)) == 3 * 4 + 3
    assert count_parameters(DecisionTreeClassifier()) == 0
