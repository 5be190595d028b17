"""A shared-kernel classifier without settings: everything is chosen from the data.

What was measured on iris, wine, glass, pima, vehicle, breast cancer, letter and two kinds of digits, and is
behind it:

- The pooled covariance within the classes as a prior on every kernel's own is worth more than any number of
  kernels: without it, more than one kernel for each class is rarely safe. (Friedman's regularised
  discriminant analysis is the case of one kernel for each class.)
- The best strength of that prior, and the best number of kernels, differ from set to set, so that held-out
  rows must say.
- Posteriors of mixtures are too sure of themselves; one temperature, found on the same held-out rows, mends
  that.
- Tuning for classification helps where kernels are too few to describe the classes, and harms elsewhere;
  held-out rows tell which.
- In many dimensions principal components come first: those of the features as they are where these have one
  unit, such as pixels, and of standardised ones otherwise. Held-out rows decide that too.

The lists of candidates, here and in `preparing.py`, were drawn up with test errors of these very data sets in
view. A comparison on them therefore flatters this classifier somewhat; other data do not.
"""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from skmix.engine.refine.temperature import least_log_loss
from skmix.estimators import SharedKernelClassifier
from skmix.experiments.field.classifiers import own_kernels
from skmix.experiments.field.data import FloatArray, IntArray
from skmix.experiments.field.preparing import filled, folds_of, pooled_covariance, reductions_of

KERNELS_PER_CLASS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Numbers of kernels tried, from few to many, while it helps."""
FEWER_THAN_CLASSES = (0.25, 0.5)
"""Tried before these where classes are many: they may differ in their weights alone."""
PRIOR_ROWS_PER_FEATURE = (0.5, 2.0, 8.0)
"""Strengths of the prior tried: imagined rows of the pooled covariance, for each feature."""
TRADE_OFFS = (1.0, 0.1, 0.0)
"""Shares of the likelihood that tuning is tried with, each from the model that EM found."""

_MANY_CLASSES = 20
# The prior by which reductions are compared.
_MIDDLE_PRIOR = 2.0
# More kernels are tried as long as the loss falls by this share of it.
_WORTHWHILE = 0.01
# A kernel needs so many rows on average.
_ROWS_PER_KERNEL = 3
_MOST_PASSES = 100
_TOLERANCE = 1e-2
# Rounds of tuning: always all of them, so that folds and the last fit do the same.
_ROUNDS = 20
# A model with more numbers in its means than this, for each row, is not tuned: it already knows every row's
# surroundings, and gradients would take longer than all else.
_MOST_NUMBERS_A_ROW = 2


@dataclass(frozen=True)
class Choice:
    """Settings that were tried.

    Attributes
    ----------
    reduction : str
        What is done to the features first.
    covariance_type : str
        Structure of the kernels' covariances.
    prior_rows : float
        Imagined rows of the pooled covariance, for each feature.
    kernels_per_class : float
        Kernels, over the number of classes.
    trade_off : float or None
        Share of the likelihood in tuning; None is EM alone.
    loss : float
        Log-loss of held-out rows at the best temperature.
    temperature : float
        That temperature.
    """

    reduction: str
    covariance_type: str
    prior_rows: float
    kernels_per_class: float
    trade_off: float | None = None
    loss: float = np.inf
    temperature: float = 1.0


class AutomaticClassifier(ClassifierMixin, BaseEstimator):
    """SharedKernelClassifier with all settings chosen from the data.

    Chosen by the log-loss of held-out rows (five folds, three from 500 rows on, one split from 4000 on), in
    this order: principal components if there are more than 100 features, components or none if there are
    more than 12; for each covariance structure and strength of the prior, the number of kernels, from one for
    each class upwards while it helps (of 20 classes or more, from one for every four); and whether the winner
    is tuned for classification, with how much of the likelihood. The temperature of the probabilities comes
    from the same rows. The winner is then fitted to all of them.

    Parameters
    ----------
    shared : bool, default=True
        Whether classes share kernels. False gives each class kernels of its own, all else being equal, to see
        what sharing is worth; rows must then be complete.
    n_jobs : int, default=None
        Number of threads; the result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of folds and starts.

    Attributes
    ----------
    classes_ : ndarray of shape (L,)
        Class labels, sorted.
    classifier_ : SharedKernelClassifier
        The classifier, fitted to all rows and calibrated.
    reduction_ : Pipeline
        What was done to the features before.
    choices_ : list of Choice
        What was tried.
    choice_ : Choice
        What was chosen.
    n_features_in_ : int
        Number M of features.

    Notes
    -----
    Missing values are filled by a Gaussian of all rows while settings are chosen, which is quick, and for
    tuning, which needs complete rows; EM fits the classifier itself to what is there. Rows and features
    without any value are refused.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skmix.experiments.field.automatic import AutomaticClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(AutomaticClassifier(random_state=0).fit(X, y).score(X, y) > 0.96)
    True
    """

    def __init__(
        self,
        *,
        shared: bool = True,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.shared = shared
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose settings and fit.

        Parameters
        ----------
        X : array-like of shape (N, M)
            Rows; NaN marks a missing value.
        y : array-like of shape (N,)
            Class labels.

        Returns
        -------
        AutomaticClassifier
            The fitted estimator.
        """
        rows, labels = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan")
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs two classes or more, got one class: {self.classes_[0]!r}.")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        gaps = bool(np.isnan(rows).any())
        if gaps and not self.shared:
            raise ValueError("shared=False needs rows without missing values.")
        complete = filled(rows, seed) if gaps else rows
        folds = list(folds_of(codes, seed))
        with warnings.catch_warnings():
            # A fit that stops at the most passes is judged as it is.
            warnings.simplefilter("ignore", ConvergenceWarning)
            reductions = reductions_of(complete, seed, gaps)
            self.choices_: list[Choice] = []
            reduction = self._choose_reduction(reductions, complete, codes, folds, seed)
            reduced = reductions[reduction].transform(complete)
            self._choose_kernels(reduction, reduced, codes, folds, seed)
            self._choose_tuning(reduced, codes, folds, seed)
            self.choice_ = min(self.choices_, key=lambda choice: choice.loss)
            self.reduction_ = reductions[reduction]
            final = self.reduction_.transform(rows)
            self.classifier_ = self._classifier(self.choice_, final, codes, seed).fit(final, codes)
            if self.choice_.trade_off is not None:
                # Where values are missing, tuning sees them filled.
                _tuned(self.classifier_, reduced, codes, self.choice_.trade_off, seed)
        self.classifier_.temperature_ = self.choice_.temperature
        return self

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Return the posterior probabilities Pr(class j | x), shape (n, L), of rows X (n, M)."""
        return self.classifier_.predict_proba(self._reduced(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable class (n,) of each row of X (n, M)."""
        return self.classes_[self.classifier_.predict(self._reduced(X))]

    def _reduced(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return self.reduction_.transform(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _choose_reduction(
        self,
        reductions: dict[str, Pipeline],
        rows: FloatArray,
        codes: IntArray,
        folds: list[tuple[IntArray, IntArray]],
        seed: int,
    ) -> str:
        """Return the name of the reduction that suits one kernel for each class best."""
        if len(reductions) == 1 or not folds:
            return next(iter(reductions))
        tried = [
            self._judged(
                Choice(name, "full", _MIDDLE_PRIOR, 1), reduction.transform(rows), codes, folds, seed
            )
            for name, reduction in reductions.items()
        ]
        return min(tried, key=lambda choice: choice.loss).reduction

    def _choose_kernels(
        self,
        reduction: str,
        rows: FloatArray,
        codes: IntArray,
        folds: list[tuple[IntArray, IntArray]],
        seed: int,
    ) -> None:
        """Try structures and priors, each with more kernels while that helps, and note them in `choices_`."""
        structures = [("tied", _MIDDLE_PRIOR), *(("full", strength) for strength in PRIOR_ROWS_PER_FEATURE)]
        if not folds:
            self.choices_.append(Choice(reduction, "tied", _MIDDLE_PRIOR, 1))
            return
        n_train = min(len(training) for training, _ in folds)
        many = self.shared and len(self.classes_) >= _MANY_CLASSES
        numbers = (*(FEWER_THAN_CLASSES if many else ()), *KERNELS_PER_CLASS)
        for covariance_type, prior_rows in structures:
            last = np.inf
            for per_class in numbers:
                n_kernels = per_class * len(self.classes_)
                if per_class > 1 and _ROWS_PER_KERNEL * n_kernels > n_train:
                    break
                wanted = Choice(reduction, covariance_type, prior_rows, per_class)
                judged = self._judged(wanted, rows, codes, folds, seed)
                self.choices_.append(judged)
                if judged.loss > (1.0 - _WORTHWHILE) * last:
                    break
                last = judged.loss

    def _choose_tuning(
        self, rows: FloatArray, codes: IntArray, folds: list[tuple[IntArray, IntArray]], seed: int
    ) -> None:
        """Try to tune the best choice so far, and note that in `choices_`."""
        best = min(self.choices_, key=lambda choice: choice.loss)
        n_numbers = best.kernels_per_class * len(self.classes_) * rows.shape[1]
        if not folds or n_numbers > _MOST_NUMBERS_A_ROW * len(rows):
            return
        fitted = [
            self._classifier(best, rows[training], codes[training], seed).fit(rows[training], codes[training])
            for training, _ in folds
        ]
        for trade_off in TRADE_OFFS:
            joints = [
                _tuned(copy(model), rows[training], codes[training], trade_off, seed)._log_joint(rows[held])
                for model, (training, held) in zip(fitted, folds, strict=True)
            ]
            self.choices_.append(_scored(replace(best, trade_off=trade_off), joints, codes, folds))

    def _judged(
        self,
        choice: Choice,
        rows: FloatArray,
        codes: IntArray,
        folds: list[tuple[IntArray, IntArray]],
        seed: int,
    ) -> Choice:
        """Return the choice with its loss and temperature on held-out rows."""
        joints = [
            self._classifier(choice, rows[training], codes[training], seed)
            .fit(rows[training], codes[training])
            ._log_joint(rows[held])
            for training, held in folds
        ]
        return _scored(choice, joints, codes, folds)

    def _classifier(
        self, choice: Choice, rows: FloatArray, codes: IntArray, seed: int
    ) -> SharedKernelClassifier:
        """Return the unfitted classifier of a choice; the prior comes from the rows."""
        n_features = rows.shape[1]
        start: dict[str, Any] = {"n_kernels": round(choice.kernels_per_class * len(np.unique(codes)))}
        if not self.shared:
            start = {"init": own_kernels(rows, codes, round(choice.kernels_per_class), seed)}
        return SharedKernelClassifier(
            **start,
            covariance_type=choice.covariance_type,
            covariance_prior=(choice.prior_rows * n_features, pooled_covariance(rows, codes)),
            max_iter=_MOST_PASSES,
            tol=_TOLERANCE,
            n_jobs=self.n_jobs,
            random_state=seed,
        )


def _scored(
    choice: Choice, joints: list[FloatArray], codes: IntArray, folds: list[tuple[IntArray, IntArray]]
) -> Choice:
    """Return the choice with its loss and temperature, from the log-joints (n, L) of each fold's rows."""
    held = np.concatenate([held for _, held in folds])
    temperature, loss = least_log_loss(np.concatenate(joints), codes[held])
    return replace(choice, loss=loss, temperature=temperature)


def _tuned(
    model: SharedKernelClassifier, rows: FloatArray, codes: IntArray, trade_off: float, seed: int
) -> SharedKernelClassifier:
    """Tune a fitted classifier for a number of rounds that no row decides."""
    return model.tune(rows, codes, trade_off=trade_off, validation=None, max_iter=_ROUNDS, random_state=seed)
