"""Extent, mean and spread of features, merged from those of parts of the rows.

Means and sums of squares merge by Chan's rule, in units that are powers of two, so that squares neither over-
nor underflow and a change of unit rounds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ..compute.arrays import Array, as_float64, is_numpy, namespace, to_numpy
from ..covariances import Structure
from ..model import FloatArray
from .frame import FARTHEST, Frame, chunks, power_of_two

# A constant feature has no spread to take its scale from: its magnitude serves, where its square is a number.
_LARGEST_SCALE = 2.0**500


@dataclass(frozen=True)
class Moments:
    """Extent, mean and spread of each feature; missing values are left out.

    Attributes
    ----------
    low, high : ndarray of shape (M,)
        Smallest and largest value; NaN of a feature without any.
    unit : ndarray of shape (M,)
        A power of two above all magnitudes: the unit of the next two.
    count, mean, squares : ndarray of shape (M,)
        Number of values, or the sum of their weights; their mean; the sum of squares about it.
    """

    low: FloatArray
    high: FloatArray
    unit: FloatArray
    count: FloatArray
    mean: FloatArray
    squares: FloatArray

    def take(self, columns: Sequence[int]) -> Moments:
        """Return the moments of some of the features."""
        return Moments(*(getattr(self, name)[list(columns)] for name in self.__dataclass_fields__))

    def frame(self, structure: Structure, columns: Sequence[int] | None = None) -> Frame:
        """Return the rows' frame; see `measure`."""
        unit, mean = self.unit, self.mean
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        spread = np.sqrt(self.squares / self.count)
        # A feature that varies in its last digits alone is as good as constant.
        spread[spread <= 8 * np.finfo(np.float64).eps * np.abs(mean)] = 0.0
        with np.errstate(over="ignore", under="ignore"):
            actual = (spread * unit) ** 2
        bad = ~np.isfinite(actual) | ((actual < np.finfo(np.float64).tiny) & (spread > 0))
        if bad.any():
            j = int(np.flatnonzero(bad)[0])
            raise ValueError(
                f"Feature {j if columns is None else columns[j]} has a standard deviation of "
                f"{spread[j] * unit[j]:.3g}, whose square is not a normal float64 number. "
                "Rescale that feature."
            )
        huge = largest > _LARGEST_SCALE
        if huge.any():
            j = int(np.flatnonzero(huge)[0])
            raise ValueError(
                f"Feature {j if columns is None else columns[j]} has values of magnitude {largest[j]:.3g}, "
                "too large to be squared. Rescale that feature."
            )
        if structure.isotropic:
            widest = np.max(spread * unit, keepdims=True)
            scale = np.full_like(unit, power_of_two(widest)[0] if widest else 1.0)
        else:
            constant = np.clip(unit, 1.0 / _LARGEST_SCALE, _LARGEST_SCALE)
            scale = np.where(spread > 0, power_of_two(spread) * unit, constant)
        shift = mean * (unit / scale)
        bound = np.fmax(np.abs(self.low / scale - shift), np.abs(self.high / scale - shift))
        inside = (spread * (unit / scale)) ** 2
        return Frame(scale, shift, np.where(inside > 0, inside, 1.0), np.minimum(bound, FARTHEST))


def measure(
    X: Array,
    structure: Structure,
    columns: Sequence[int] | None = None,
    row_weights: FloatArray | None = None,
) -> Frame:
    """Return the frame of the rows X (N, M): one look at them, chunk by chunk.

    Parameters
    ----------
    X : array of shape (N, M)
        Rows; NaN where a value is missing, but each feature with at least one value, and none outside NumPy.
    structure : Structure
        Covariance structure.
    columns : sequence of M ints, optional
        What to call the features in errors, when X is part of a larger matrix.
    row_weights : ndarray of shape (N,), optional
        Positive weights of the rows.

    Raises
    ------
    ValueError
        When a feature's variance cannot be represented, with the feature's number.
    """
    parts = (moments_of(X[cut, :], None if row_weights is None else row_weights[cut]) for cut in chunks(X))
    return reduce(merge_moments, parts).frame(structure, columns)


def moments_of(X: Array, weights: FloatArray | None) -> Moments:
    """Return the moments of rows X (n, M) with weights (n,)."""
    if not is_numpy(X):
        return _moments_there(X, weights)
    if not len(X):
        nothing, none = np.zeros(X.shape[1]), np.full(X.shape[1], np.nan)
        return Moments(none, none, np.ones(X.shape[1]), nothing, nothing, nothing)
    missing = np.isnan(X)
    gaps = bool(missing.any())
    low, high = (extreme.reduce(X, axis=0).astype(np.float64) for extreme in (np.fmin, np.fmax))
    unit = power_of_two(np.fmax(np.abs(low), np.abs(high)))
    # Sums are of differences from the first value, so that those of a constant feature are exactly zero.
    first = X[np.argmin(missing, axis=0), np.arange(X.shape[1])] / unit if gaps else X[0] / unit
    ahead = X / unit - first
    if gaps:
        ahead[missing] = 0.0
        first = np.where(np.isnan(first), 0.0, first)
    shares = np.ones(len(X)) if weights is None else weights
    count = shares @ ~missing if gaps else np.full(X.shape[1], shares.sum())
    mean = shares @ ahead / np.where(count > 0, count, 1.0)
    ahead -= mean
    if gaps:
        ahead[missing] = 0.0
    return Moments(low, high, unit, count, first + mean, shares @ ahead**2)


def _moments_there(X: Array, weights: FloatArray | None) -> Moments:
    """Return the moments of rows X (n, M) of another library, without gaps, on the host."""
    xp = namespace(X)
    low, high = (to_numpy(extreme(X, axis=0)).astype(np.float64) for extreme in (xp.min, xp.max))
    unit = power_of_two(np.fmax(np.abs(low), np.abs(high)))
    first = to_numpy(X[0, :]) / unit
    ahead = X / as_float64(unit, X) - as_float64(first, X)
    shares = as_float64(np.ones(X.shape[0]) if weights is None else weights, X)
    count = np.full(X.shape[1], float(xp.sum(shares)))
    mean = to_numpy(shares @ ahead) / count
    squares = to_numpy(shares @ (ahead - as_float64(mean, X)) ** 2)
    return Moments(low, high, unit, count, first + mean, squares)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of both."""
    # A feature without a value has no unit to speak of.
    unit = np.maximum(np.where(a.count > 0, a.unit, 0.0), np.where(b.count > 0, b.unit, 0.0))
    unit = np.where(unit > 0, unit, 1.0)
    with np.errstate(under="ignore"):
        shrink_a, shrink_b = a.unit / unit, b.unit / unit
        mean_a, mean_b = a.mean * shrink_a, b.mean * shrink_b
        squares = a.squares * shrink_a**2 + b.squares * shrink_b**2
        count = a.count + b.count
        share = b.count / np.where(count > 0, count, 1.0)
        between = mean_b - mean_a
        mean = np.where(a.count > 0, mean_a + between * share, mean_b)
        squares += np.where(a.count > 0, between**2 * a.count * share, 0.0)
    return Moments(np.fmin(a.low, b.low), np.fmax(a.high, b.high), unit, count, mean, squares)
