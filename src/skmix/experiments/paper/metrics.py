"""How good a run was on the test set, from its confusion matrix; conventions are scikit-learn's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def confusion_matrix(truth: IntArray, predicted: IntArray, n_classes: int) -> IntArray:
    """Count rows by class and prediction.

    Parameters
    ----------
    truth, predicted : ndarray of shape (n,)
        Classes, 0 … L − 1.
    n_classes : int
        L.

    Returns
    -------
    ndarray of shape (L, L)
        Rows are true classes, columns predicted ones.
    """
    counts = np.bincount(truth * n_classes + predicted, minlength=n_classes**2)
    return counts.reshape(n_classes, n_classes).astype(np.int64)


def accuracy(confusion: IntArray) -> float:
    """Return the share of rows on the diagonal of a confusion matrix (L, L)."""
    return float(np.trace(confusion) / confusion.sum())


def mean_iou(confusion: IntArray) -> float:
    """Return the Jaccard index averaged over the classes of a confusion matrix (L, L).

    A class's index is the number of its rows that were found, over the number of rows that belong to it or
    were taken for it. A class that has neither counts as zero.
    """
    found = np.diagonal(confusion)
    union = confusion.sum(axis=0) + confusion.sum(axis=1) - found
    return float(np.mean(found / np.maximum(union, 1)))
