"""How good probabilities are: error, log-loss and calibration error of test rows."""

from __future__ import annotations

import numpy as np

from skmix.experiments.field.records import FloatArray, IntArray

# As scikit-learn has it: what a classifier calls impossible costs as much as one in 2^52.
_LEAST = float(np.finfo(np.float64).eps)


def log_loss(probabilities: FloatArray, codes: IntArray) -> float:
    """Return the mean negative logarithm of the probability of the true class.

    Parameters
    ----------
    probabilities : ndarray of shape (n, L)
        Of each class.
    codes : ndarray of shape (n,)
        The true classes.
    """
    own = probabilities[np.arange(len(codes)), codes]
    return float(-np.log(np.clip(own, _LEAST, 1.0)).mean())


def corrected_standard_error(values: FloatArray, test_over_train: float) -> float:
    """Return the standard error of a mean over repeated random splits of the same rows.

    Splits overlap, so that their results vary less than those of fresh data would. Nadeau and Bengio (2003)
    replace 1/r by 1/r + n_test/n_train.

    Parameters
    ----------
    values : ndarray of shape (r,)
        One for each split.
    test_over_train : float
        Test rows for each training row.

    Returns
    -------
    float
        NaN for a single split.
    """
    if len(values) < 2:
        return float("nan")
    return float(np.sqrt(np.var(values, ddof=1) * (1.0 / len(values) + test_over_train)))
