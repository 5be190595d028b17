"""Shared kernels by parts: a pool of kernels for each part of the features, all settings chosen."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.engine.refine.temperature import least_log_loss
from skmix.estimators import SharedKernelClassifier
from skmix.experiments.field.classifiers import own_kernels
from skmix.experiments.field.data import FloatArray, IntArray
from skmix.experiments.field.preparing import pooled_covariance

# Tried: kernels of a part, or of a class in a part; imagined rows of the prior for each feature;
# concentrations of the prior on weights, which own kernels cannot have: it would hand them to other classes.
_SHARED_KERNELS, _OWN_KERNELS = (4, 8, 16), (1, 2, 4)
_PRIOR_ROWS = (0.5, 4.0)
_WEIGHT_PRIORS = (1.0, 1.1)
_N_FOLDS = 3
# With so many rows one of the folds tells enough.
_ROWS_OF_ONE_FOLD = 4000
_MOST_PASSES = 50
_TOLERANCE = 1e-2


@dataclass(frozen=True)
class PartsChoice:
    """Settings of all parts that were tried, with the loss and the temperature of held-out rows."""

    n_kernels: int
    prior_rows: float
    weight_prior: float
    loss: float = np.inf
    temperature: float = 1.0


class PartsClassifier(ClassifierMixin, BaseEstimator):
    """The product form with all settings chosen from the data: densities of the parts are multiplied.

    Kernels, the strength of the prior on covariances and that on weights are the same for all parts. They are
    chosen by the log-loss of held-out rows, and so is the temperature of the probabilities.

    Parameters
    ----------
    parts : sequence of sequences of int
        The features of each part.
    shared : bool, default=True
        Whether classes share the kernels of a part. False gives each class kernels of its own.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of folds and starts.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted.
    models_ : list of SharedKernelClassifier
        One for each part.
    choice_ : PartsChoice
        What was chosen.
    class_prior_ : ndarray of shape (L,)
        Shares of the classes among the training rows.
    """

    def __init__(
        self,
        parts: Sequence[Sequence[int]],
        *,
        shared: bool = True,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.parts = parts
        self.shared = shared
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose settings and fit to rows X (N, M) with labels y (N,)."""
        rows, labels = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(labels)
        if not self.parts or any(not len(part) for part in self.parts):
            raise ValueError("there must be a part, and each part must have a feature.")
        self.classes_, codes = np.unique(labels, return_inverse=True)
        counts = np.bincount(codes)
        self.class_prior_ = counts / len(codes)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        candidates = [
            PartsChoice(*values)
            for values in product(
                _SHARED_KERNELS if self.shared else _OWN_KERNELS,
                _PRIOR_ROWS,
                _WEIGHT_PRIORS if self.shared else _WEIGHT_PRIORS[:1],
            )
        ]
        with warnings.catch_warnings():
            # A fit that stops at the most passes is judged as it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            if counts.min() > 1:
                splitter = StratifiedKFold(min(_N_FOLDS, counts.min()), shuffle=True, random_state=seed)
                folds = list(splitter.split(rows, codes))
                folds = folds[:1] if len(rows) >= _ROWS_OF_ONE_FOLD else folds
                candidates = [self._judged(each, rows, codes, folds, seed) for each in candidates]
            self.choice_ = min(candidates, key=lambda choice: choice.loss)
            self.models_ = self._fitted(self.choice_, rows, codes, seed)
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return softmax(self._log_joint(self.models_, rows) / self.choice_.temperature, axis=1)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class (n,) of each row of X (n, M)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _judged(
        self,
        choice: PartsChoice,
        rows: FloatArray,
        codes: IntArray,
        folds: Sequence[tuple[IntArray, IntArray]],
        seed: int,
    ) -> PartsChoice:
        """Return the choice with its loss and temperature on held-out rows."""
        joints = [
            self._log_joint(self._fitted(choice, rows[training], codes[training], seed), rows[held])
            for training, held in folds
        ]
        held_codes = np.concatenate([codes[held] for _, held in folds])
        temperature, loss = least_log_loss(np.concatenate(joints), held_codes)
        return PartsChoice(choice.n_kernels, choice.prior_rows, choice.weight_prior, loss, temperature)

    def _fitted(
        self, choice: PartsChoice, rows: FloatArray, codes: IntArray, seed: int
    ) -> list[SharedKernelClassifier]:
        """Return a fitted classifier for each part; its classes are as frequent as each other."""
        models = []
        for part in self.parts:
            own = rows[:, list(part)]
            start: dict[str, Any] = {"n_kernels": min(choice.n_kernels, len(own))}
            if not self.shared:
                start = {"init": own_kernels(own, codes, choice.n_kernels, seed)}
            model = SharedKernelClassifier(
                **start,
                covariance_prior=(choice.prior_rows * len(part), pooled_covariance(own, codes)),
                weight_prior=choice.weight_prior,
                max_iter=_MOST_PASSES,
                tol=_TOLERANCE,
                priors="uniform",
                n_jobs=1,
                random_state=seed,
            )
            models.append(model.fit(own, codes))
        return models

    def _log_joint(self, models: Sequence[SharedKernelClassifier], rows: FloatArray) -> FloatArray:
        """Return log Pr(class j) + log p(x | class j), shape (n, L), up to a constant."""
        parts = [
            model._log_joint(rows[:, list(part)]) for model, part in zip(models, self.parts, strict=True)
        ]
        return np.log(self.class_prior_) + np.sum(parts, axis=0)
