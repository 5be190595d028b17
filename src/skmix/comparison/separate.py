"""The usual alternative to shared kernels: a mixture of its own for every class."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.cluster import kmeans_plusplus
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import KFold
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.comparison.records import FloatArray, IntArray

_N_FOLDS = 3
_FEWEST_TO_VALIDATE = 6


class SeparateMixtures(ClassifierMixin, BaseEstimator):
    """Bayes' rule on a scikit-learn GaussianMixture for each class.

    Components, covariance type and regularisation of each class are those of the largest log-density of
    held-out rows (three folds).

    Parameters
    ----------
    max_components : int, default=5
        Largest number of components of a class.
    regularisations : tuple of float, default=(1e-3, 1e-2, 1e-1, 0.5)
        Numbers to choose from, one of which is added to the variances; features are taken to be
        standardised. With fewer than 6 rows a class has one component, diagonal, and the largest.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the starts.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted.
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
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.max_components = max_components
        self.regularisations = regularisations
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit a mixture to the rows X (N, M) of each class of y (N,)."""
        if self.max_components < 1:
            raise ValueError(f"max_components must be at least 1, got {self.max_components}.")
        if not self.regularisations or min(self.regularisations) < 0.0:
            raise ValueError(f"regularisations must be numbers of at least 0, got {self.regularisations}.")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.class_prior_ = np.bincount(codes) / len(codes)
        self.mixtures_ = [self._best(rows[codes == c], seed) for c in range(len(self.classes_))]
        return self

    def _best(self, rows: FloatArray, seed: int) -> GaussianMixture:
        """Return the mixture that suits held-out rows best, fitted to all of one class's rows (n, M).

        BIC would not do: of few rows in many dimensions it takes the nearly singular covariance.
        """
        if len(rows) == 1:
            # One row has no variance: the unit of standardised features stands in.
            rows = np.concatenate([rows - 1.0, rows + 1.0])
        if len(rows) < _FEWEST_TO_VALIDATE:
            largest = max(self.regularisations)
            return GaussianMixture(1, covariance_type="diag", reg_covar=largest, random_state=seed).fit(rows)
        most = max(1, min(self.max_components, len(rows) // 4))
        candidates = [
            GaussianMixture(n, covariance_type=kind, reg_covar=added, random_state=seed)
            for kind in ("full", "diag")
            for added in self.regularisations
            for n in range(1, most + 1)
        ]
        folds = list(KFold(_N_FOLDS, shuffle=True, random_state=seed).split(rows))

        def held_out(mixture: GaussianMixture) -> float:
            return float(sum(mixture.fit(rows[a]).score_samples(rows[b]).sum() for a, b in folds))

        return max(candidates, key=held_out).fit(rows)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
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
