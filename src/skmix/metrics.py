"""Calibration: predicted probabilities compared with observed frequencies."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

from .data.missing import refuse_masked_weights

__all__ = ["ReliabilityBin", "calibration_error", "reliability_bins"]

N_BINS = 10
# Quantile of the standard normal distribution for 95 %.
_Z = 1.959963984540054


class ReliabilityBin(NamedTuple):
    """Rows whose predicted class has a similar probability."""

    confidence: float  #: mean probability of the predicted class
    accuracy: float  #: share of correct predictions
    n_rows: float  #: number of rows, or the sum of their weights


def reliability_bins(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], *, sample_weight: ArrayLike | None = None
) -> list[ReliabilityBin]:
    """Sort rows into ten bins of equal width by the probability of their predicted class.

    Parameters
    ----------
    probabilities : ndarray of shape (n, L)
        Predicted probability of each class.
    codes : ndarray of shape (n,)
        The true classes, 0 to L - 1.
    sample_weight : array-like of shape (n,), default=None
        How often each row counts; None counts each once.

    Returns
    -------
    list of ReliabilityBin
        The bins that contain rows, by increasing confidence.
    """
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == codes
    bins = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
    counts = row_counts(sample_weight, len(codes))
    members = [bins == each for each in np.unique(bins[counts > 0])]
    return [
        ReliabilityBin(
            float(np.average(confidence[own], weights=counts[own])),
            float(np.average(correct[own], weights=counts[own])),
            counts[own].sum().item(),
        )
        for own in members
    ]


def calibration_error(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], *, sample_weight: ArrayLike | None = None
) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy.

    It is the mean over rows of the absolute difference between the two in their bin. Parameters are those of
    `reliability_bins`.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix.metrics import calibration_error
    >>> round(calibration_error(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])), 2)
    0.45
    """
    bins = reliability_bins(probabilities, codes, sample_weight=sample_weight)
    gaps = sum(each.n_rows * abs(each.confidence - each.accuracy) for each in bins)
    return gaps / sum(each.n_rows for each in bins)


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share of n rows."""
    centre, half = share + _Z**2 / (2 * n), _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    low, high = (float((centre + side) / (1 + _Z**2 / n)) for side in (-half, half))
    return max(low, 0.0), min(high, 1.0)


def effective_rows(weights: NDArray[Any]) -> float:
    """Return the number (Σ w)² / Σ w² of rows that rows of weights (n,) count as.

    Repeating each row k times adds no certainty.
    """
    own = weights.astype(np.float64)
    return float(own.sum() ** 2 / (own**2).sum())


def row_counts(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[Any]:
    """Return the weights (n,) of rows, as integers if all are whole; ones without weights."""
    if sample_weight is None:
        return np.ones(n_rows, dtype=np.int64)
    refuse_masked_weights(sample_weight)
    weights = _check_sample_weight(
        sample_weight, np.empty((n_rows, 0)), dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():
        raise ValueError("sample_weight is zero for all rows.")
    # Doubles represent integers exactly up to 2⁵³.
    if weights.sum() >= 2.0**53 or np.any(weights % 1.0):
        return weights
    return weights.astype(np.int64)
