"""Calibration: predicted probabilities compared with observed frequencies."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["ReliabilityBin", "calibration_error", "reliability_bins"]


class ReliabilityBin(NamedTuple):
    """Rows whose predicted class has a similar probability."""

    confidence: float  #: mean probability of the predicted class
    accuracy: float  #: share of correct predictions
    n_rows: int  #: number of rows


def reliability_bins(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], n_bins: int = 10
) -> list[ReliabilityBin]:
    """Sort rows into bins of equal width by the probability of their predicted class.

    Parameters
    ----------
    probabilities : ndarray of shape (n, L)
        Predicted probability of each class.
    codes : ndarray of shape (n,)
        The true classes, 0 to L - 1.
    n_bins : int, default=10
        Number of bins between 0 and 1.

    Returns
    -------
    list of ReliabilityBin
        The bins that contain rows, by increasing confidence.
    """
    confidence = probabilities.max(axis=1)
    correct = probabilities.argmax(axis=1) == codes
    bins = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    members = [bins == each for each in np.unique(bins)]
    return [
        ReliabilityBin(float(confidence[own].mean()), float(correct[own].mean()), int(own.sum()))
        for own in members
    ]


def calibration_error(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], n_bins: int = 10
) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy.

    Each row counts the absolute difference of the two in its bin.

    Parameters
    ----------
    probabilities, codes, n_bins
        As for `reliability_bins`.

    Examples
    --------
    >>> import numpy as np
    >>> from skmix.metrics import calibration_error
    >>> round(calibration_error(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])), 2)
    0.45
    """
    bins = reliability_bins(probabilities, codes, n_bins)
    return sum(each.n_rows * abs(each.confidence - each.accuracy) for each in bins) / len(codes)
