"""How many numbers a fitted classifier stores to make its predictions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.svm import SVC

from skmix.estimators import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.estimators.densities import n_parameters
from skmix.experiments.field.classifiers import SeparateMixtures


def count_parameters(model: Any) -> int:
    """Return how many numbers a fitted classifier of the comparison stores; scaling is not counted.

    These are free parameters of densities, weights of networks, splits and leaves of trees, and stored rows.
    """
    return next((int(count(model)) for kind, count in _COUNTS.items() if isinstance(model, kind)), 0)


def _of_calibrated(model: CalibratedClassifierCV) -> int:
    # Two numbers of a sigmoid for each score.
    inner = model.calibrated_classifiers_
    return sum(2 * len(each.calibrators) + count_parameters(each.estimator) for each in inner)


def _of_search(model: SharedKernelClassifierCV) -> int:
    # The reduction of the features, the classifier, and the temperature.
    return sum(np.size(part) for part in model.projection_ or ()) + count_parameters(model.classifier_) + 1


def _of_discriminant(model: Any, n_covariances: int) -> int:
    n_classes, n_features = model.means_.shape
    return n_classes * n_features + n_covariances * n_features * (n_features + 1) // 2 + n_classes - 1


def _of_trees(n_leaves: list[int], n_outputs: int) -> int:
    # A split stores a feature and a threshold, a leaf its outputs.
    return sum(2 * (n - 1) + n_outputs * n for n in n_leaves)


_COUNTS: dict[type, Callable[[Any], int]] = {
    Pipeline: lambda m: sum(count_parameters(step) for _, step in m.steps),
    GridSearchCV: lambda m: count_parameters(m.best_estimator_),
    CalibratedClassifierCV: _of_calibrated,
    PCA: lambda m: m.components_.size + m.mean_.size,
    SharedKernelClassifierCV: _of_search,
    SharedKernelClassifier: lambda m: len(m.classes_) - 1 + n_parameters(m),
    SeparateMixtures: lambda m: len(m.classes_) - 1 + sum(each._n_parameters() for each in m.mixtures_),
    LinearDiscriminantAnalysis: lambda m: _of_discriminant(m, 1),
    QuadraticDiscriminantAnalysis: lambda m: _of_discriminant(m, len(m.classes_)),
    GaussianNB: lambda m: 2 * m.theta_.size + len(m.classes_) - 1,
    KNeighborsClassifier: lambda m: np.size(m._fit_X) + len(m._fit_X),
    SVC: lambda m: m.support_vectors_.size + m.dual_coef_.size + m.intercept_.size,
    RandomForestClassifier: lambda m: _of_trees([t.get_n_leaves() for t in m.estimators_], len(m.classes_)),
    HistGradientBoostingClassifier: lambda m: _of_trees(
        [tree.get_n_leaf_nodes() for stage in m._predictors for tree in stage], 1
    ),
    MLPClassifier: lambda m: sum(each.size for each in (*m.coefs_, *m.intercepts_)),
}
