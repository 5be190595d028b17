"""What a classifier adds to Bayes' rule: refusing rows unlike those of training, and calibration."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from ..engine.model import FloatArray, IntArray
from ..engine.refine.temperature import least_log_loss
from ._validation import check_weights
from ._warnings import warn_caller

if TYPE_CHECKING:
    from .mixture import SharedKernelMixture


class Calibration:
    """A temperature for the classifier's probabilities."""

    if TYPE_CHECKING:
        models_: list[SharedKernelMixture]
        temperature_: float

        def _rows(self, X: ArrayLike) -> np.ndarray: ...
        def _joint_of_rows(self, rows: np.ndarray) -> FloatArray: ...

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit a temperature to rows that were not used for training.

        Log-probabilities are divided by `temperature_` and normalised again, which minimises the log-loss on
        the given rows: above one where the model was too sure of itself, below one where it was too timid.
        The order of the classes never changes, so `predict` does not either.

        Parameters
        ----------
        X : array-like of shape (n, M)
            Held-out rows.
        y : array-like of shape (n,)
            Their labels.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows.

        Returns
        -------
        estimator
            The estimator itself, with a new `temperature_`.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        codes = self.models_[0]._codes(y, len(rows))
        self.temperature_ = best_temperature(
            self._joint_of_rows(rows), codes, check_weights(sample_weight, rows)
        )
        return self


def best_temperature(log_joint: FloatArray, codes: IntArray, weights: FloatArray | None = None) -> float:
    """Return the temperature of least log-loss, or say why there is none.

    Parameters
    ----------
    log_joint : ndarray of shape (n, L)
        Log-joints of rows and classes, up to a constant for each row.
    codes : ndarray of shape (n,)
        The true classes.
    weights : ndarray of shape (n,), optional
        Weights of the rows.
    """
    n_rows = len(codes)
    own = log_joint[np.arange(n_rows), codes, None]
    if np.any(own == -np.inf):
        raise ValueError(
            f"{np.sum(own == -np.inf)} of {n_rows} rows have a label whose class prior is zero: "
            "no temperature makes them possible."
        )
    possible = log_joint > -np.inf
    gaps = np.where(possible, log_joint - own, 0.0)
    if np.average(gaps.max(axis=1), weights=weights) <= 0.0:
        warn_caller(
            f"All {n_rows} rows are classified correctly, so they set no lower bound on the temperature: it "
            "stays 1. Calibrate on more rows, some of them hard.",
        )
        return 1.0
    guess = np.average(gaps.sum(axis=1) / possible.sum(axis=1), weights=weights)
    if guess >= 0.0:
        raise ValueError(
            f"On these {n_rows} rows the classifier is worse than guessing: the mean log-likelihood of the "
            f"true class is {guess:.3g} below the average over classes. Are the labels in the right order?"
        )
    return least_log_loss(log_joint, codes, weights, lowest=0.0)[0]


def check_outlier_label(label: Any, classes: np.ndarray) -> None:
    """Refuse a label for outliers that is one of the classes or does not fit beside them."""
    kind = classes.dtype.kind
    if label in classes.tolist():
        raise ValueError(f"outlier_label={label!r} is one of the classes: {classes.tolist()[:10]}.")
    if kind in "iu":
        fits, wanted = isinstance(label, Integral) and not isinstance(label, bool), "an integer"
    elif kind == "f":
        fits, wanted = isinstance(label, Real) and not isinstance(label, bool), "a number"
    elif kind in "US":
        fits, wanted = label is None or isinstance(label, str), "a string or None"
    else:
        fits, wanted = kind == "O", "possible only with labels that have a third value"
    if not fits:
        raise ValueError(
            f"outlier_label must be {wanted}, as the labels are {classes.dtype} ({classes.tolist()[:3]} …), "
            f"got {label!r}."
        )


def with_outliers(labels: np.ndarray, outlying: np.ndarray, outlier_label: Any) -> np.ndarray:
    """Return labels (n,) with those of outlying rows replaced, in a type that holds both."""
    if labels.dtype.kind == "O" or outlier_label is None:
        mixed = labels.astype(object)
    else:
        mixed = labels.astype(np.result_type(labels.dtype, np.array(outlier_label).dtype))
    mixed[outlying] = outlier_label
    return mixed


def density_threshold(log_densities: FloatArray, quantile: float, weights: FloatArray | None) -> float:
    """Return the smallest log-density up to which that share of the rows, or of their weight, lies."""
    return float(np.quantile(log_densities, quantile, weights=weights, method="inverted_cdf"))
