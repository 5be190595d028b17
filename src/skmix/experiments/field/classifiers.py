"""The classifiers to compare, each with the preparation that a careful user would give it, and their sizes.

Hyperparameters (the number of neighbours, the penalty of the support vector machine, the components of a
mixture) are chosen on the training rows, never on test rows, and the time of the choice counts as part of the
fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import block_diag
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import kmeans_plusplus
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, ParameterGrid, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.engine.model import FloatArray, IntArray
from skmix.estimators import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.estimators.densities import n_parameters
from skmix.estimators.search.classifier import Selection

OURS = "shared kernels"
SUPPORT_VECTORS = "RBF SVM"
FOREST = "random forest"

_N_FOLDS = 3
_FEWEST_TO_VALIDATE = 6
_MANY_FEATURES, _VARIANCE_KEPT = 100, 0.95
_KERNELS_PER_CLASS, _KERNELS_PER_CLASS_OF_GROUP = (1, 2, 4, 8, 16), (1, 2, 4)
_ROWS_PER_KERNEL = 3


@dataclass(frozen=True)
class Contender:
    """A classifier of the comparison."""

    name: str  # in tables
    generative: bool  # whether it models class densities
    make: Callable[[int], Any]  # from a seed to an unfitted classifier
    takes_gaps: bool = False  # whether it takes missing values; for others, medians replace them
    scaled: bool = True  # whether features are standardised first

    def pipeline(self, seed: int, gaps: bool) -> Any:
        """Return the unfitted classifier with its preparation."""
        steps: list[Any] = [SimpleImputer(strategy="median")] if gaps and not self.takes_gaps else []
        if self.scaled:
            steps.append(StandardScaler())
        return make_pipeline(*steps, self.make(seed))


class SeparateMixtures(ClassifierMixin, BaseEstimator):
    """Bayes' rule on a scikit-learn GaussianMixture for each class.

    Components, covariance type and regularisation (added to the variances of standardised features) of each
    class have the largest log-density of held-out rows, or the lowest BIC with the smallest regularisation. A
    class of fewer than 6 rows has one diagonal component with the largest regularisation. More than 100
    features are first reduced to the principal components with 95 % of their variance.
    """

    def __init__(
        self,
        *,
        max_components: int = 5,
        regularisations: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 0.5),
        criterion: str = "held-out",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.max_components = max_components
        self.regularisations = regularisations
        self.criterion = criterion
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit a mixture to the rows X (N, M) of each class of y (N,)."""
        if self.max_components < 1:
            raise ValueError(f"max_components must be at least 1, got {self.max_components}.")
        if not self.regularisations or min(self.regularisations) < 0.0:
            raise ValueError(f"regularisations must be numbers of at least 0, got {self.regularisations}.")
        if self.criterion not in ("held-out", "bic"):
            raise ValueError(f"criterion must be 'held-out' or 'bic', got {self.criterion!r}.")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.class_prior_ = np.bincount(codes) / len(codes)
        self.reduction_ = None
        if rows.shape[1] > _MANY_FEATURES and len(rows) > 1:
            self.reduction_ = PCA(_VARIANCE_KEPT, svd_solver="full").fit(rows)
            rows = self.reduction_.transform(rows)
        self.mixtures_ = [self._best(rows[codes == c], seed) for c in range(len(self.classes_))]
        return self

    def _best(self, rows: FloatArray, seed: int) -> GaussianMixture:
        """Return the best mixture by the criterion, fitted to all rows (n, M) of one class."""
        if len(rows) == 1:
            # One row has no variance: use that of standardised features.
            rows = np.concatenate([rows - 1.0, rows + 1.0])
        if len(rows) < _FEWEST_TO_VALIDATE:
            largest = max(self.regularisations)
            return GaussianMixture(1, covariance_type="diag", reg_covar=largest, random_state=seed).fit(rows)
        most = max(1, min(self.max_components, len(rows) // 4))
        by_bic = self.criterion == "bic"
        candidates = {
            "covariance_type": ["full", "diag"],
            "reg_covar": [min(self.regularisations)] if by_bic else list(self.regularisations),
            "n_components": list(range(1, most + 1)),
        }
        if by_bic:
            fitted = [
                GaussianMixture(**each, random_state=seed).fit(rows) for each in ParameterGrid(candidates)
            ]
            return min(fitted, key=lambda each: each.bic(rows))
        folds = KFold(_N_FOLDS, shuffle=True, random_state=seed)
        search = GridSearchCV(GaussianMixture(random_state=seed), candidates, cv=folds)
        return search.fit(rows).best_estimator_

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        if self.reduction_ is not None:
            rows = self.reduction_.transform(rows)
        logs = np.column_stack([mixture.score_samples(rows) for mixture in self.mixtures_])
        return softmax(logs + np.log(self.class_prior_), axis=1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class (n,) of each row of X (n, M)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


def _make(kind: type, seed: int, **settings: Any) -> Any:
    """Return an unfitted classifier, with the seed if it takes one."""
    seeded = "random_state" in signature(kind).parameters
    return kind(**settings, **({"random_state": seed} if seeded else {}))


def _folds(seed: int) -> StratifiedKFold:
    return StratifiedKFold(_N_FOLDS, shuffle=True, random_state=seed)


def _neighbours(seed: int) -> Any:
    settings = {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]}
    return GridSearchCV(KNeighborsClassifier(), settings, cv=_folds(seed))


def _support_vectors(seed: int) -> Any:
    chosen = GridSearchCV(SVC(), {"C": [1.0, 10.0, 100.0]}, cv=_folds(seed))
    # A sigmoid of held-out distances from the border gives probabilities.
    return CalibratedClassifierCV(chosen, cv=_folds(seed), ensemble=False)


_LDA, _QDA = LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
_BOOSTING = HistGradientBoostingClassifier
FIELD: tuple[Contender, ...] = (
    Contender(OURS, True, partial(_make, SharedKernelClassifierCV, n_jobs=1), takes_gaps=True, scaled=False),
    Contender("LDA", True, partial(_make, _LDA, solver="lsqr", shrinkage="auto")),
    Contender("QDA", True, partial(_make, _QDA, solver="eigen", shrinkage="auto")),
    Contender("naive Bayes", True, partial(_make, GaussianNB)),
    Contender("separate mixtures", True, partial(_make, SeparateMixtures)),
    Contender("separate by BIC", True, partial(_make, SeparateMixtures, criterion="bic")),
    Contender("nearest neighbours", False, _neighbours),
    Contender(SUPPORT_VECTORS, False, _support_vectors),
    Contender(
        FOREST, False, partial(_make, RandomForestClassifier, n_estimators=300, n_jobs=1), scaled=False
    ),
    Contender("gradient boosting", False, partial(_make, _BOOSTING), takes_gaps=True, scaled=False),
    Contender("MLP", False, partial(_make, MLPClassifier, max_iter=500)),
)
"""All classifiers, in the order of tables."""


def contenders(names: Sequence[str] | None = None) -> tuple[Contender, ...]:
    """Return classifiers by their names in tables, in the order of `FIELD`; None returns all."""
    known = [each.name for each in FIELD]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"there is no classifier {unknown[0]!r}; there are {', '.join(known)}.")
    return tuple(each for each in FIELD if names is None or each.name in names)


def in_order(names: Iterable[str], order: Sequence[str]) -> list[str]:
    """Return names once each, in the given order, unknown ones last."""
    present = dict.fromkeys(names)
    return [name for name in order if name in present] + [name for name in present if name not in order]


def count_parameters(model: Any) -> int:
    """Return how many numbers a fitted classifier of the comparison stores; scaling is not counted.

    These are free parameters of densities, weights of networks, splits and leaves of trees, and stored rows.
    """
    return next((int(count(model)) for kind, count in _COUNTS.items() if isinstance(model, kind)), 0)


def _of_discriminant(model: Any, n_covariances: int) -> int:
    n_classes, n_features = model.means_.shape
    return n_classes * n_features + n_covariances * n_features * (n_features + 1) // 2 + n_classes - 1


def _of_trees(n_leaves: list[int], n_outputs: int) -> int:
    # A split stores a feature and a threshold, a leaf its outputs.
    return sum(2 * (n - 1) + n_outputs * n for n in n_leaves)


_COUNTS: dict[type, Callable[[Any], int]] = {
    Pipeline: lambda m: sum(count_parameters(step) for _, step in m.steps),
    GridSearchCV: lambda m: count_parameters(m.best_estimator_),
    # Two numbers of a sigmoid for each score.
    CalibratedClassifierCV: lambda m: sum(
        2 * len(each.calibrators) + count_parameters(each.estimator) for each in m.calibrated_classifiers_
    ),
    PCA: lambda m: m.components_.size + m.mean_.size,
    # The reduction of the features, the classifier, and the temperature.
    SharedKernelClassifierCV: lambda m: sum(
        sum(np.size(part) for part in change or () if part is not None) + count_parameters(classifier) + 1
        for classifier, change in zip(m.classifiers_, m.feature_maps_, strict=True)
    ),
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
