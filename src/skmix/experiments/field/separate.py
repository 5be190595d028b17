"""The usual alternative to shared kernels: a mixture of its own for every class."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.experiments.field.records import FloatArray, IntArray

_N_FOLDS = 3
_FEWEST_TO_VALIDATE = 6
_MANY_FEATURES, _VARIANCE_KEPT = 100, 0.95


class SeparateMixtures(ClassifierMixin, BaseEstimator):
    """Bayes' rule on a scikit-learn GaussianMixture for each class.

    Components, covariance type and regularisation of each class are those of the largest log-density of
    held-out rows (three folds), or the lowest BIC. More than 100 features are first reduced to the principal
    components that keep 95 % of their variance.

    Parameters
    ----------
    max_components : int, default=5
        Largest number of components of a class.
    regularisations : tuple of float, default=(1e-3, 1e-2, 1e-1, 0.5)
        Numbers to choose from, one of which is added to the variances; features are taken to be
        standardised. With fewer than 6 rows a class has one component, diagonal, and the largest.
    criterion : {'held-out', 'bic'}, default='held-out'
        What settings are chosen by. BIC takes the smallest of the regularisations.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the starts.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted.
    reduction_ : PCA or None
        What is done to the features first.
    mixtures_ : list of GaussianMixture
        One for each class.
    class_prior_ : ndarray of shape (L,)
        Shares of the classes among the training rows.
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
        """Return the mixture that suits the criterion best, fitted to all of one class's rows (n, M)."""
        if len(rows) == 1:
            # One row has no variance: the unit of standardised features stands in.
            rows = np.concatenate([rows - 1.0, rows + 1.0])
        if len(rows) < _FEWEST_TO_VALIDATE:
            largest = max(self.regularisations)
            return GaussianMixture(1, covariance_type="diag", reg_covar=largest, random_state=seed).fit(rows)
        most = max(1, min(self.max_components, len(rows) // 4))
        by_bic = self.criterion == "bic"
        candidates = [
            GaussianMixture(n, covariance_type=kind, reg_covar=added, random_state=seed)
            for kind in ("full", "diag")
            for added in ([min(self.regularisations)] if by_bic else self.regularisations)
            for n in range(1, most + 1)
        ]
        if by_bic:
            return min((each.fit(rows) for each in candidates), key=lambda each: each.bic(rows))
        folds = list(KFold(_N_FOLDS, shuffle=True, random_state=seed).split(rows))

        def held_out(mixture: GaussianMixture) -> float:
            return float(sum(mixture.fit(rows[a]).score_samples(rows[b]).sum() for a, b in folds))

        return max(candidates, key=held_out).fit(rows)

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


def own_kernels(rows: FloatArray, codes: IntArray, per_class: int, seed: int) -> dict[str, FloatArray]:
    """Return a start in which each class has kernels of its own; weights of zero stay zero."""
    parts = []
    for c in range(int(codes.max()) + 1):
        own = rows[codes == c]
        parts.append(kmeans_plusplus(own, min(per_class, len(own)), random_state=seed)[0])
    weights = np.zeros((sum(map(len, parts)), len(parts)))
    first = 0
    for c, part in enumerate(parts):
        weights[first : first + len(part), c] = 1.0 / len(part)
        first += len(part)
    return {"means": np.concatenate(parts), "weights": weights}
