"""Calibration: predicted probabilities compared with observed frequencies."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_sample_weight

# Bins between 0 and 1.
N_BINS = 10


class ReliabilityBin(NamedTuple):
    """Rows whose predicted class has a similar probability."""

    confidence: float  #: mean probability of the predicted class
    accuracy: float  #: share of correct predictions
    n_rows: float  #: number of rows, or the sum of their weights


def reliability_bins(
    probabilities: NDArray[np.float64], codes: NDArray[np.int64], sample_weight: ArrayLike | None = None
) -> list[ReliabilityBin]:
    """Sort rows into bins of equal width by the probability of their predicted class.

    Given probabilities (n, L), true classes (n,) and weights (n,), return the bins that contain rows, by
    increasing confidence.
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


def calibration_error(bins: list[ReliabilityBin]) -> float:
    """Return the expected calibration error: the mean gap, over rows, of confidence and accuracy of a bin."""
    gaps = sum(each.n_rows * abs(each.confidence - each.accuracy) for each in bins)
    return gaps / sum(each.n_rows for each in bins)


def row_counts(sample_weight: ArrayLike | None, n_rows: int) -> NDArray[Any]:
    """Return the weights (n,) of rows, as integers if all are whole; ones without weights."""
    if sample_weight is None:
        return np.ones(n_rows, dtype=np.int64)
    weights = _check_sample_weight(
        sample_weight, np.empty((n_rows, 0)), dtype=np.float64, ensure_non_negative=True
    )
    if not weights.any():
        raise ValueError("sample_weight is zero for all rows.")
    # Doubles represent integers exactly up to 2⁵³.
    if weights.sum() >= 2.0**53 or np.any(weights % 1.0):
        return weights
    return weights.astype(np.int64)
