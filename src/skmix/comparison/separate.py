"""The usual alternative to shared kernels: a mixture of its own for every class."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.mixture import GaussianMixture
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.comparison.records import FloatArray


class SeparateMixtures(ClassifierMixin, BaseEstimator):
    """Bayes' rule on a scikit-learn GaussianMixture for each class.

    The number of components and the covariance type of each class are those of the lowest BIC.

    Parameters
    ----------
    max_components : int, default=5
        Largest number of components of a class.
    reg_covar : float, default=1e-3
        Added to the variances; features are taken to be standardised.
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
        reg_covar: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.max_components = max_components
        self.reg_covar = reg_covar
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit a mixture to the rows X (N, M) of each class of y (N,)."""
        if self.max_components < 1:
            raise ValueError(f"max_components must be at least 1, got {self.max_components}.")
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.class_prior_ = np.bincount(codes) / len(codes)
        self.mixtures_ = [self._best(rows[codes == c], seed) for c in range(len(self.classes_))]
        return self

    def _best(self, rows: FloatArray, seed: int) -> GaussianMixture:
        """Return the mixture of lowest BIC, fitted to one class's rows (n, M)."""
        if len(rows) == 1:
            # One row has no variance: the unit of standardised features stands in.
            rows = np.concatenate([rows - 1.0, rows + 1.0])
        most = max(1, min(self.max_components, len(rows) // 2))
        fits = [
            GaussianMixture(n, covariance_type=kind, reg_covar=self.reg_covar, random_state=seed).fit(rows)
            for kind in ("full", "diag")
            for n in range(1, most + 1)
        ]
        return min(fits, key=lambda mixture: mixture.bic(rows))

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        logs = np.column_stack([mixture.score_samples(rows) for mixture in self.mixtures_])
        return softmax(logs + np.log(self.class_prior_), axis=1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class (n,) of each row of X (n, M)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
