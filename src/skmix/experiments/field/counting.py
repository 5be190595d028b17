"""How many numbers a fitted classifier stores to make its predictions."""

from __future__ import annotations

from functools import singledispatch
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
from skmix.experiments.field.classifiers import SeparateMixtures

# A split of a tree stores a feature and a threshold, a leaf its prediction.
_NUMBERS_OF_A_SPLIT = 2


@singledispatch
def count_parameters(model: Any) -> int:
    """Return how many numbers a fitted classifier of the field stores; scaling is not counted.

    These are free parameters of densities, weights of networks, splits and leaves of trees, and stored rows.
    """
    return 0


@count_parameters.register
def _(model: Pipeline) -> int:
    return sum(count_parameters(step) for _, step in model.steps)


@count_parameters.register
def _(model: GridSearchCV) -> int:
    return count_parameters(model.best_estimator_)


@count_parameters.register
def _(model: CalibratedClassifierCV) -> int:
    # Two numbers of a sigmoid for each score.
    inner = model.calibrated_classifiers_
    sigmoids = sum(2 * len(each.calibrators) for each in inner)
    return sigmoids + sum(count_parameters(each.estimator) for each in inner)


@count_parameters.register
def _(model: PCA) -> int:
    return int(model.components_.size + model.mean_.size)


@count_parameters.register
def _(model: SharedKernelClassifierCV) -> int:
    reduction = sum(np.size(part) for part in model.projection_ or ())
    # And the temperature.
    return int(reduction) + count_parameters(model.classifier_) + 1


@count_parameters.register
def _(model: SharedKernelClassifier) -> int:
    priors = len(model.classes_) - 1
    return priors + sum(each._n_parameters() for each in model.models_)


@count_parameters.register
def _(model: SeparateMixtures) -> int:
    return len(model.classes_) - 1 + sum(int(each._n_parameters()) for each in model.mixtures_)


@count_parameters.register
def _(model: LinearDiscriminantAnalysis) -> int:
    n_classes, n_features = model.means_.shape
    return int(n_classes * n_features + n_features * (n_features + 1) // 2 + n_classes - 1)


@count_parameters.register
def _(model: QuadraticDiscriminantAnalysis) -> int:
    n_classes, n_features = model.means_.shape
    return int(n_classes * (n_features + n_features * (n_features + 1) // 2) + n_classes - 1)


@count_parameters.register
def _(model: GaussianNB) -> int:
    return int(2 * model.theta_.size + len(model.classes_) - 1)


@count_parameters.register
def _(model: KNeighborsClassifier) -> int:
    return int(np.size(model._fit_X) + len(model._fit_X))


@count_parameters.register
def _(model: SVC) -> int:
    return int(model.support_vectors_.size + model.dual_coef_.size + model.intercept_.size)


@count_parameters.register
def _(model: RandomForestClassifier) -> int:
    leaves = sum(tree.get_n_leaves() for tree in model.estimators_)
    splits = leaves - len(model.estimators_)
    return int(_NUMBERS_OF_A_SPLIT * splits + len(model.classes_) * leaves)


@count_parameters.register
def _(model: HistGradientBoostingClassifier) -> int:
    leaves = [tree.get_n_leaf_nodes() for stage in model._predictors for tree in stage]
    return int(sum(_NUMBERS_OF_A_SPLIT * (n - 1) + n for n in leaves))


@count_parameters.register
def _(model: MLPClassifier) -> int:
    return int(sum(each.size for each in (*model.coefs_, *model.intercepts_)))
