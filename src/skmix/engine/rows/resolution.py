"""How finely the values of a feature are measured: floors of variances follow from it."""

from __future__ import annotations

import numpy as np

from ..records import FloatArray, Frame, power_of_two
from .summary import moments_of

# Tolerance for gaps between values being multiples of the smallest gap.
_OFF_STEP = 1e-3
# A value with a larger share of the rows than this is a mass.
_MASS = 0.1
# The resolution beside a mass, as a share of the feature's variance.
_BESIDE_MASS = 1e-2
# Largest resolution, as a share of the feature's variance.
_MOST_UNRESOLVED = 1.0 / 3.0


def resolution_of(X: np.ndarray, weights: FloatArray | None, frame: Frame) -> FloatArray:
    """Return the variance (M,) below which rows X (n, M) do not tell the values of a feature apart.

    It is the variance of `interval_variances`, but never more than a third of the feature's variance, as of a
    feature that has two values equally often. Weights (n,) and repeated rows count alike.
    """
    intervals, variances, _ = interval_variances(X, weights, frame.scale)
    return np.minimum(intervals, _MOST_UNRESOLVED * variances)


def unresolved(X: np.ndarray, weights: FloatArray | None) -> FloatArray:
    """Return the variance (M,) that keeps the seldom values of a feature possible.

    Nearly all rows X (n, M) have the same value of such a feature, so that the interval of a value has more
    than a third of the variance: a rare category, or a count that is seldom above zero. A step away from the
    common value costs 6 n' / (n' + 6) nats if n' rows have another one: 6 if they are many, and less than one
    if it is a single row, whose value is as new as one that no row has. Other features have zero.
    """
    moments = moments_of(X, weights)
    span = power_of_two(moments.high - moments.low)
    intervals, variances, n_others = interval_variances(X, weights, span)
    return np.where(intervals > _MOST_UNRESOLVED * variances, intervals * (1.0 + 6.0 / n_others), 0.0)


def interval_variances(
    X: np.ndarray, weights: FloatArray | None, scale: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the variances (M,) of the intervals that values of rows X (n, M) stand for, and of the features.

    The third array (M,) is the number of rows without the most frequent value of a feature, or one if all
    have it.

    An interval has a variance of step² / 12. The step is that of counts and codes, which are its multiples,
    otherwise the median between neighbouring distinct values. Beside a mass, a value that many rows have, it
    is a small share of the feature's variance. Squares are taken in units of `scale` (M,).
    """
    intervals, variances, n_others = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.ones(X.shape[1])
    for j, column in enumerate((X / scale).T):
        is_known = ~np.isnan(column)
        values, counts = _counted(column[is_known], None if weights is None else weights[is_known])
        if len(values) < 2:
            continue
        shares = counts / counts.sum()
        variances[j] = shares @ (values - shares @ values) ** 2
        n_others[j] = (1.0 - shares.max()) * is_known.sum()
        gaps = np.diff(values)
        step = _step_of_counts(gaps, shares)
        intervals[j] = (np.median(gaps) if step is None else step) ** 2 / 12.0
        if step is None and shares.max() > max(_MASS, 2.0 / len(values)):
            intervals[j] = max(intervals[j], _BESIDE_MASS * variances[j])
    return intervals * scale**2, variances * scale**2, n_others


def _counted(values: FloatArray, weights: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Return the distinct ones of values (n,), in order, and how many there are of each, by weight (n,)."""
    if weights is not None:
        distinct, place = np.unique(values, return_inverse=True)
        return distinct, np.bincount(place, weights=weights).astype(np.float64)
    ordered = np.sort(values)  # several times as fast
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(values)])
    return ordered[first], np.diff(np.append(first, len(values))).astype(np.float64)


def _step_of_counts(gaps: FloatArray, shares: FloatArray) -> float | None:
    """Return the step of which gaps (n − 1,) between values are multiples, if most rows are one from others.

    Rows with the most frequent value, of shares (n,), are left out: they may be a mass beside other numbers.
    """
    step = float(gaps.min())
    with np.errstate(over="ignore", invalid="ignore"):
        multiples = gaps / step
        if not np.all(np.abs(multiples - np.round(multiples)) <= _OFF_STEP):
            return None
    nearest = np.minimum(np.append(np.inf, gaps), np.append(gaps, np.inf))
    others = np.where(np.arange(len(shares)) == shares.argmax(), 0.0, shares)
    return step if others[nearest < 1.5 * step].sum() >= 0.5 * others.sum() else None
