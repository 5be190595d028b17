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
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
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


def test_rivals_choose_from_wide_grids_in_three_folds() -> None:
    """A weaker version of another classifier would flatter ours."""
    made = {each.name: each.make(3) for each in FIELD}
    searched = {name: model for name, model in made.items() if isinstance(model, GridSearchCV)}
    assert {
        *("QDA", "logistic regression", "nearest neighbours", "random forest", "gradient boosting", "MLP"),
    } == searched.keys()
    for model in searched.values():
        assert isinstance(model.cv, StratifiedKFold)
        assert (model.cv.n_splits, model.cv.shuffle, model.cv.random_state) == (3, True, 3)
        assert model.scoring == ["accuracy", "neg_log_loss"]
    grids = {name: model.param_grid for name, model in searched.items()}
    assert grids == {
        "QDA": {"shrinkage": ["auto", 0.5, 0.1, 0.01, 0.0001]},
        "logistic regression": {"C": [0.01, 0.1, 1, 10, 100]},
        "nearest neighbours": {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]},
        "random forest": {"max_features": ["sqrt", 0.5], "min_samples_leaf": [1, 5]},
        "gradient boosting": {"max_iter": [30, 100, 300], "max_leaf_nodes": [5, 31]},
        "MLP": {"alpha": [1.0, 0.01, 0.0001], "hidden_layer_sizes": [(50,), (200,)]},
    }
    assert searched["logistic regression"].estimator.max_iter >= 1000
    assert searched["MLP"].estimator.max_iter >= 500
    machine = made["RBF SVM"]
    assert set(machine.C) >= {1.0, 10.0, 100.0, 1000.0}
    assert set(machine.gamma) >= {0.1, 1.0, 10.0}
    mixtures = made["separate mixtures"]
    assert mixtures.max_components >= 5
    assert min(mixtures.regularisations) <= 1e-3 < 0.1 <= max(mixtures.regularisations)
    assert made["LDA"].shrinkage == "auto"
    assert machine.random_state == mixtures.random_state == searched["random forest"].estimator.random_state
    assert machine.random_state == made["shared kernels"].random_state == 3
    assert [each.name for each in FIELD if each.generative] == [
        *("shared kernels", "LDA", "QDA", "naive Bayes", "separate mixtures"),
    ]
    assert [each.name for each in FIELD if each.ours] == ["shared kernels"]


def test_only_classifiers_that_cannot_take_gaps_have_them_filled() -> None:
    def steps(name: str, gaps: bool) -> list[str]:
        return [step for step, _ in contenders([name])[0].pipeline(0, gaps).steps[:-1]]

    for each in FIELD:
        takes_gaps = each.name in ("shared kernels", "gradient boosting")
        assert ("simpleimputer" in steps(each.name, True)) is not takes_gaps
        assert "simpleimputer" not in steps(each.name, False)
        if not takes_gaps:
            filled = each.pipeline(0, True)[0].fit_transform([[1.0], [np.nan], [2.0], [9.0]])
            assert filled.ravel().tolist() == [1.0, 2.0, 2.0, 9.0]
        # Distances and penalties depend on units, trees and our own search do not.
        scaled = each.name not in ("shared kernels", "random forest", "gradient boosting")
        assert ("standardscaler" in steps(each.name, False)) is scaled


def test_numbers_of_trees_and_stored_rows_are_counted(iris: tuple[np.ndarray, np.ndarray]) -> None:
    X, y = iris
    forest = RandomForestClassifier(3, random_state=0).fit(X, y)
    # A feature and a threshold for each split, a number for each class in each leaf.
    inner = [tree.tree_.children_left >= 0 for tree in forest.estimators_]
    assert count_parameters(forest) == sum(2 * own.sum() + 3 * (~own).sum() for own in inner)
    boosted = HistGradientBoostingClassifier(max_iter=2, max_leaf_nodes=5).fit(X, y)
    trees = [tree for stage in boosted._predictors for tree in stage]
    leaves = [tree.get_n_leaf_nodes() for tree in trees]
    assert len(trees) == 6
    assert count_parameters(boosted) == sum(2 * (n - 1) + n for n in leaves)
    assert count_parameters(KNeighborsClassifier().fit(X, y)) == 150 * 4 + 150
    assert count_parameters(QuadraticDiscriminantAnalysis().fit(X, y)) == 3 * 4 + 3 * 10 + 2
    assert count_parameters(LinearDiscriminantAnalysis().fit(X, y)) == 3 * 4 + 10 + 2


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
    assert count_parameters(PCA(2).fit(X)) == 2 * 4 + 4
    tuned = TunedSVC(C=(1.0,), gamma=(1.0,), random_state=0).fit(X, y)
    assert count_parameters(tuned) == count_parameters(tuned.calibrated_) > 2 * 3
    mixtures = SeparateMixtures(max_components=1, regularisations=(1e-3,), random_state=0).fit(X, y)
    sizes = [4 + (10 if each.covariance_type == "full" else 4) for each in mixtures.mixtures_]
    assert count_parameters(mixtures) == sum(sizes) + 2
    # A search: of each averaged classifier the map of its features, itself, and a temperature.
    search = SharedKernelClassifierCV()
    search.classifiers_ = [shared, shared]
    shift, powers, matrix = np.zeros(4), np.ones(4), np.ones((4, 2))
    search.feature_maps_ = [None, (shift, powers, powers, None, shift, matrix)]
    assert count_parameters(search) == 2 * (count_parameters(shared) + 1) + 4 * 4 + 8


def test_classes_of_few_rows_have_one_wide_kernel() -> None:
    """One row has the variances of standardised features; all have the largest regularisation on top."""
    X = np.array([[0.0, 1.0], [2.0, 5.0], [2.0, 9.0], [8.0, 8.0]])
    y = np.array(["few", "few", "few", "one"])
    model = SeparateMixtures(regularisations=(0.1, 0.5), random_state=0).fit(X, y)
    points = np.array([[1.0, 1.0], [7.0, 7.0], [5.0, 6.0]])
    few = multivariate_normal(X[:3].mean(axis=0), np.diag(X[:3].var(axis=0) + 0.5)).pdf(points)
    one = multivariate_normal(X[3], 1.5 * np.eye(2)).pdf(points)
    joint = np.column_stack([0.75 * few, 0.25 * one])
    assert_allclose(model.predict_proba(points), joint / joint.sum(axis=1, keepdims=True), rtol=1e-6)
    assert model.predict(points).tolist() == model.classes_[joint.argmax(axis=1)].tolist()


def test_separate_mixtures_are_the_likeliest_of_held_out_rows() -> None:
    random = np.random.RandomState(0)
    # Three narrow clusters along a diagonal; few rows of many features, which do not depend on each other.
    centres = np.repeat([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0]], 20, axis=0)
    narrow = centres + 3.0 * random.normal(size=(60, 1)) + 0.1 * random.normal(size=(60, 2))
    # Of seven rows, two components would have less than four each.
    seven = np.repeat([[0.0, 0.0], [100.0, 0.0]], [4, 3], axis=0) + random.normal(size=(7, 2))
    for rows, expected in ((narrow, ("full", 3)), (random.normal(size=(12, 6)), ("diag", 1)), (seven, None)):
        model = SeparateMixtures(max_components=3, regularisations=(0.01, 10.0), random_state=5)
        (found,) = model.fit(rows, np.zeros(len(rows))).mixtures_
        if expected is None:
            assert found.n_components == 1
        else:
            assert (found.covariance_type, found.n_components) == expected
            assert found.reg_covar == 0.01


def test_many_features_are_reduced_to_nearly_all_of_their_variance() -> None:
    random = np.random.RandomState(0)
    X, y = random.normal(size=(10, 101)), np.repeat([0, 1], 5)
    X[:, 0] += 40.0 * y
    model = SeparateMixtures(random_state=0).fit(X, y)
    assert model.score(X, y) == 1.0
    _, values, _ = np.linalg.svd(X - X.mean(axis=0))
    kept = np.cumsum(values**2) / np.sum(values**2)
    assert model.mixtures_[0].means_.shape[1] == np.searchsorted(kept, 0.95) + 1
    assert SeparateMixtures(random_state=0).fit(X[:, :100], y).mixtures_[0].means_.shape[1] == 100
