"""The classifiers to compare, each with the preparation that a careful user would give it, and their sizes.

Hyperparameters are chosen from the grids that are usual for each classifier, by accuracy in cross-validation
within the training rows and, of equally accurate ones, by log-loss; scaling and medians are learnt from
training rows too. Test rows take no part in any choice, and the time of the choice counts as part of the fit.
Where rows come in groups, choices hold out whole groups too. CatBoost, RealMLP and one of ours have their
default settings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, StratifiedGroupKFold, StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix import SharedKernelClassifier, SharedKernelClassifierCV
from skmix.report import describe

from .data import FloatArray

OURS, OURS_BY_DEFAULT = "shared kernels", "shared kernels, default"
SUPPORT_VECTORS = "RBF SVM"
FOREST, BOOSTING, CATBOOST = "random forest", "gradient boosting", "CatBoost"

_N_FOLDS = 3
# Folds of groups of which one validates: a fifth of the rows, the share that RealMLP holds out by default.
_N_PARTS = 5
_FEWEST_TO_VALIDATE = 6
_MANY_FEATURES, _VARIANCE_KEPT = 100, 0.95


@dataclass(frozen=True)
class Contender:
    """A classifier of the comparison."""

    name: str  # in tables
    generative: bool  # whether it models class densities
    make: Callable[[int], Any]  # from a seed to an unfitted classifier
    takes_gaps: bool = False  # whether it takes missing values; for others, medians replace them
    scaled: bool = True  # whether features are standardised first
    ours: bool = False  # whether it runs code of this library, which its results then depend on
    package: str = ""  # of another project that it needs, see benchmarks/comparison/requirements.txt

    @property
    def version(self) -> str:
        """The version of the package that it needs; empty if that is not installed, or there is none."""
        try:
            return version(self.package) if self.package else ""
        except PackageNotFoundError:
            return ""

    def pipeline(self, seed: int, gaps: bool, grouped: bool = False) -> Any:
        """Return the unfitted classifier with its preparation, for rows with gaps or in groups."""
        steps: list[Any] = [SimpleImputer(strategy="median")] if gaps and not self.takes_gaps else []
        if self.scaled:
            steps.append(StandardScaler())
        model = self.make(seed)
        if grouped and isinstance(model, GridSearchCV):
            model.set_params(cv=_folds(seed, grouped))
        return make_pipeline(*steps, model)


class SeparateMixtures(ClassifierMixin, BaseEstimator):
    """Bayes' rule on a scikit-learn GaussianMixture for each class.

    Components, covariance type and regularisation (added to the variances of standardised features) of each
    class have the largest log-density of held-out rows. A class of fewer than 6 rows has one diagonal
    component with the largest regularisation. More than 100 features are first reduced to the principal
    components with 95 % of their variance.
    """

    def __init__(
        self,
        *,
        max_components: int = 5,
        regularisations: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 0.5),
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.max_components = max_components
        self.regularisations = regularisations
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Fit a mixture to the rows X (N, M) of each class of y (N,); hold out whole groups (N,)."""
        if self.max_components < 1:
            raise ValueError(f"max_components must be at least 1, got {self.max_components}.")
        if not self.regularisations or min(self.regularisations) < 0.0:
            raise ValueError(f"regularisations must be numbers of at least 0, got {self.regularisations}.")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.class_prior_ = np.bincount(codes) / len(codes)
        self.reduction_ = None
        if rows.shape[1] > _MANY_FEATURES and len(rows) > 1:
            self.reduction_ = PCA(_VARIANCE_KEPT, svd_solver="full").fit(rows)
            rows = self.reduction_.transform(rows)
        groups = None if groups is None else np.asarray(groups)
        self.mixtures_ = []
        for c in range(len(self.classes_)):
            own = codes == c
            self.mixtures_.append(self._best(rows[own], seed, None if groups is None else groups[own]))
        return self

    def _best(self, rows: FloatArray, seed: int, groups: NDArray[Any] | None) -> GaussianMixture:
        """Return the best mixture by held-out rows or groups (n,), fitted to all rows (n, M) of one class."""
        if len(rows) == 1:
            # One row has no variance: use that of standardised features.
            rows = np.concatenate([rows - 1.0, rows + 1.0])
        if len(rows) < _FEWEST_TO_VALIDATE:
            largest = max(self.regularisations)
            return GaussianMixture(1, covariance_type="diag", reg_covar=largest, random_state=seed).fit(rows)
        most = max(1, min(self.max_components, len(rows) // 4))
        candidates = {
            "covariance_type": ["full", "diag"],
            "reg_covar": list(self.regularisations),
            "n_components": list(range(1, most + 1)),
        }
        kind, n_groups = (KFold, _N_FOLDS) if groups is None else (GroupKFold, len(np.unique(groups)))
        if n_groups == 1:
            kind, n_groups = KFold, _N_FOLDS
        folds = kind(min(_N_FOLDS, n_groups), shuffle=True, random_state=seed)
        search = GridSearchCV(GaussianMixture(random_state=seed), candidates, cv=folds)
        return search.fit(rows, groups=groups).best_estimator_

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


class TunedSVC(ClassifierMixin, BaseEstimator):
    """Support vector machine with a Gaussian kernel, tuned and then calibrated.

    `C` and `gamma`, in multiples of scikit-learn's ``"scale"``, have the highest accuracy in 3-fold
    cross-validation. Probabilities are sigmoids of held-out distances from the border of that choice; classes
    are those of the machine itself.
    """

    def __init__(
        self,
        *,
        C: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0),
        gamma: tuple[float, ...] = (0.1, 1.0, 10.0),
        random_state: int | None = None,
    ) -> None:
        self.C = C
        self.gamma = gamma
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Choose C and gamma, and fit to rows X (N, M) of classes y (N,); hold out whole groups (N,)."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        scale = 1.0 / (rows.shape[1] * (rows.var() or 1.0))
        grid = {"C": list(self.C), "gamma": [scale * each for each in self.gamma]}
        folds = list(_folds(self.random_state, groups is not None).split(rows, labels, groups))
        # The calibration fits the chosen machine to all rows.
        self.best_params_ = GridSearchCV(SVC(), grid, cv=folds, refit=False).fit(rows, labels).best_params_
        self.calibrated_ = CalibratedClassifierCV(SVC(**self.best_params_), cv=folds, ensemble=False)
        self.classes_ = self.calibrated_.fit(rows, labels).classes_
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the calibrated probabilities, shape (n, L), of rows X (n, M)."""
        check_is_fitted(self)
        return self.calibrated_.predict_proba(validate_data(self, X, reset=False, dtype=np.float64))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class (n,) on whose side of the borders each row of X (n, M) lies."""
        check_is_fitted(self)
        (machine,) = self.calibrated_.calibrated_classifiers_
        return machine.estimator.predict(validate_data(self, X, reset=False, dtype=np.float64))


class OfPackage(ClassifierMixin, BaseEstimator):
    """A classifier of another package, which is imported when it is fitted.

    `name` is that of the class in `module`. A package that holds out rows of its own choice, by
    `val_idxs`, holds out whole groups where there are groups.
    """

    def __init__(
        self, module: str, name: str, settings: dict[str, Any], random_state: int | None = None
    ) -> None:
        self.module = module
        self.name = name
        self.settings = settings
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> Self:
        """Fit to rows X (N, M) of classes y (N,), in groups (N,) if given."""
        kind = getattr(import_module(self.module), self.name)
        # RealMLP trains by Lightning, which announces every fit.
        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        more: dict[str, Any] = {}
        if groups is not None and "val_idxs" in signature(kind.fit).parameters:
            parts = StratifiedGroupKFold(_N_PARTS, shuffle=True, random_state=self.random_state)
            more["val_idxs"] = next(parts.split(X, y, groups))[1]
        try:
            self.model_ = kind(**self.settings, random_state=self.random_state).fit(X, y, **more)
        except Exception as error:  # of any kind: packages have their own
            raise ValueError(f"{type(error).__name__}: {error}") from error
        self.classes_ = np.asarray(self.model_.classes_)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the probabilities, shape (n, L), of rows X (n, M)."""
        return np.asarray(self.model_.predict_proba(X), dtype=np.float64)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the class (n,) of each row of X (n, M)."""
        return np.ravel(self.model_.predict(X))


def _make(kind: type, seed: int, **settings: Any) -> Any:
    """Return an unfitted classifier, with the seed if it takes one."""
    seeded = "random_state" in signature(kind).parameters
    return kind(**settings, **({"random_state": seed} if seeded else {}))


def _folds(seed: int | None, grouped: bool = False) -> StratifiedKFold | StratifiedGroupKFold:
    kind = StratifiedGroupKFold if grouped else StratifiedKFold
    return kind(_N_FOLDS, shuffle=True, random_state=seed)


@dataclass(frozen=True)
class MostAccurate:
    """The choice of a search: the highest accuracy, and the lowest log-loss of choices as accurate.

    On small sets many choices are as accurate, and any of them would do for the error but not for the
    probabilities. (A class, because a function's text is another one in every process.)
    """

    def __call__(self, results: dict[str, Any]) -> int:
        """Return the place of the choice in the `cv_results_` of a search."""
        accuracies = np.round(results["mean_test_accuracy"], 9)
        return int(np.lexsort((-results["mean_test_neg_log_loss"], -accuracies))[0])


def _chosen(kind: type, grid: dict[str, Any], seed: int, **settings: Any) -> Any:
    """Return an unfitted search over a grid."""
    measures = ["accuracy", "neg_log_loss"]
    model = _make(kind, seed, **settings)
    return GridSearchCV(model, grid, scoring=measures, refit=MostAccurate(), cv=_folds(seed))


_LDA, _QDA = LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
_FOREST, _BOOSTING = RandomForestClassifier, HistGradientBoostingClassifier
# The solver that takes classes with fewer rows than features.
_RIDGES = {"shrinkage": ["auto", 0.5, 0.1, 1e-2, 1e-4]}
_PENALTIES = {"C": [0.01, 0.1, 1.0, 10.0, 100.0]}
_NEIGHBOURS = {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]}
_TREES = {"max_features": ["sqrt", 0.5], "min_samples_leaf": [1, 5]}
# Cross-validation chooses the iterations: early stopping would take training rows away.
_STAGES = {"max_iter": [30, 100, 300], "max_leaf_nodes": [5, 31]}
_LAYERS = {"alpha": [1.0, 1e-2, 1e-4], "hidden_layer_sizes": [(50,), (200,)]}
# Without output, on one thread, and without files in the working folder.
_CATBOOST: dict[str, Any] = {
    **{"module": "catboost", "name": "CatBoostClassifier"},
    "settings": {"verbose": False, "thread_count": 1, "allow_writing_files": False},
}
_REALMLP: dict[str, Any] = {
    **{"module": "pytabkit", "name": "RealMLP_TD_Classifier"},
    "settings": {"verbosity": 0, "n_threads": 1, "device": "cpu"},
}
# Classifiers that take values on any scale, also missing ones.
_AS_GIVEN: dict[str, Any] = {"takes_gaps": True, "scaled": False}
_OURS: dict[str, Any] = {**_AS_GIVEN, "ours": True}
FIELD: tuple[Contender, ...] = (
    Contender(OURS, True, partial(_make, SharedKernelClassifierCV, n_jobs=1), **_OURS),
    Contender(OURS_BY_DEFAULT, True, partial(_make, SharedKernelClassifier, n_jobs=1), **_OURS),
    Contender("LDA", True, partial(_make, _LDA, solver="lsqr", shrinkage="auto")),
    Contender("QDA", True, partial(_chosen, _QDA, _RIDGES, solver="eigen")),
    Contender("naive Bayes", True, partial(_make, GaussianNB)),
    Contender("separate mixtures", True, partial(_make, SeparateMixtures)),
    Contender("logistic regression", False, partial(_chosen, LogisticRegression, _PENALTIES, max_iter=1000)),
    Contender("nearest neighbours", False, partial(_chosen, KNeighborsClassifier, _NEIGHBOURS)),
    Contender(SUPPORT_VECTORS, False, partial(_make, TunedSVC)),
    Contender(FOREST, False, partial(_chosen, _FOREST, _TREES, n_estimators=300, n_jobs=1), scaled=False),
    Contender(BOOSTING, False, partial(_chosen, _BOOSTING, _STAGES), **_AS_GIVEN),
    Contender(CATBOOST, False, partial(_make, OfPackage, **_CATBOOST), **_AS_GIVEN, package="catboost"),
    Contender("MLP", False, partial(_chosen, MLPClassifier, _LAYERS, max_iter=500)),
    # It scales features itself.
    Contender("RealMLP", False, partial(_make, OfPackage, **_REALMLP), scaled=False, package="pytabkit"),
)
"""All classifiers, in the order of tables."""


def contenders(names: Sequence[str] | None = None) -> tuple[Contender, ...]:
    """Return classifiers by their names in tables, in the order of `FIELD`; None returns all."""
    known = [each.name for each in FIELD]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"there is no classifier {unknown[0]!r}; there are {', '.join(known)}.")
    return tuple(each for each in FIELD if names is None or each.name in names)


def installed(field: Sequence[Contender]) -> tuple[Contender, ...]:
    """Return the classifiers whose packages are installed, and print which are left out."""
    for each in field:
        if each.package and not each.version:
            print(f"{each.name} is left out: {each.package} is not installed.")
    return tuple(each for each in field if each.version or not each.package)


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


def _of_package(model: Any) -> int:
    if hasattr(model, "get_leaf_values"):
        # All splits at a depth of one of CatBoost's trees are the same: two numbers for each depth.
        return model.get_leaf_values().size + 2 * int(np.log2(model.get_tree_leaf_counts()).sum())
    return sum(each.numel() for each in model.alg_interface_.model.parameters())


_COUNTS: dict[type, Callable[[Any], int]] = {
    Pipeline: lambda m: sum(count_parameters(step) for _, step in m.steps),
    GridSearchCV: lambda m: count_parameters(m.best_estimator_),
    # Two numbers of a sigmoid for each score.
    CalibratedClassifierCV: lambda m: sum(
        2 * len(each.calibrators) + count_parameters(each.estimator) for each in m.calibrated_classifiers_
    ),
    TunedSVC: lambda m: count_parameters(m.calibrated_),
    PCA: lambda m: m.components_.size + m.mean_.size,
    # The reduction of the features, the classifier, and the temperature.
    SharedKernelClassifierCV: lambda m: sum(
        sum(np.size(part) for part in change or () if part is not None) + count_parameters(classifier) + 1
        for classifier, change in zip(m.classifiers_, m.feature_maps_, strict=True)
    ),
    SharedKernelClassifier: lambda m: len(m.classes_) - 1 + describe(m)["n_parameters"],
    SeparateMixtures: lambda m: len(m.classes_) - 1 + sum(each._n_parameters() for each in m.mixtures_),
    LinearDiscriminantAnalysis: lambda m: _of_discriminant(m, 1),
    QuadraticDiscriminantAnalysis: lambda m: _of_discriminant(m, len(m.classes_)),
    GaussianNB: lambda m: 2 * m.theta_.size + len(m.classes_) - 1,
    LogisticRegression: lambda m: m.coef_.size + m.intercept_.size,
    KNeighborsClassifier: lambda m: np.size(m._fit_X) + len(m._fit_X),
    SVC: lambda m: m.support_vectors_.size + m.dual_coef_.size + m.intercept_.size,
    RandomForestClassifier: lambda m: _of_trees([t.get_n_leaves() for t in m.estimators_], len(m.classes_)),
    HistGradientBoostingClassifier: lambda m: _of_trees(
        [tree.get_n_leaf_nodes() for stage in m._predictors for tree in stage], 1
    ),
    OfPackage: lambda m: _of_package(m.model_),
    MLPClassifier: lambda m: sum(each.size for each in (*m.coefs_, *m.intercepts_)),
}
