"""The data summary, from one scan of all rows before the first pass.

It holds each feature's range, mean and variance (hence the frame, the coordinates of the loop), the sizes of
the classes and, for rows in blocks, a random sample of each label for the starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from ..numbers import Array, as_float64, is_numpy, namespace, to_numpy
from ..records import FARTHEST, FloatArray, Frame, IntArray, power_of_two
from ..structures import Structure
from ..threads import one_blas_thread
from .labelled import encode

# Numbers of a NumPy array that are scanned at a time.
_SCANNED = 1 << 17
# Rows on a device that are scanned at a time.
_SCANNED_ON_DEVICE = 1 << 20
# Smallest scale of a constant feature, which comes from its magnitude. Features of a smaller deviation are
# refused: variances far below theirs would be lost.
_LEAST_SCALE = 2.0**-480
# Largest scale of a constant feature, and largest value: its square is finite.
_LARGEST_SCALE = 2.0**500
# Tolerance for gaps between values being multiples of the smallest gap.
_OFF_STEP = 1e-3
# A value with a larger share of the rows than this is a mass.
_MASS = 0.1
# The resolution beside a mass, as a share of the feature's variance.
_BESIDE_MASS = 1e-2
# Largest resolution, as a share of the feature's variance.
_MOST_UNRESOLVED = 1.0 / 3.0


def chunks(X: Array) -> list[slice]:
    """Return the slices of rows to scan at a time."""
    n_rows, n_features = X.shape
    chunk = max(1, _SCANNED // n_features) if is_numpy(X) else _SCANNED_ON_DEVICE
    return [slice(a, min(a + chunk, n_rows)) for a in range(0, n_rows, chunk)]


@dataclass(frozen=True)
class Moments:
    """Range, mean and sum of squares of each feature, over its observed values.

    Means and sums of squares merge by Chan's rule, in units that are powers of two, so that squares neither
    overflow nor underflow and a change of unit is exact.
    """

    low: FloatArray  # (M,): smallest value; NaN for a feature without values
    high: FloatArray  # (M,): largest value
    unit: FloatArray  # (M,): unit of `mean` and `squares`, a power of two above all magnitudes
    count: FloatArray  # (M,): number of values, or the sum of their weights
    mean: FloatArray  # (M,)
    squares: FloatArray  # (M,): sum of squares about the mean
    missing: IntArray  # (M,): number of missing values

    def frame(self, structure: Structure, columns: Sequence[int] | None = None) -> Frame:
        """Return the rows' frame; refuse variances that float64 cannot represent.

        `columns` (M,) are the features' numbers for errors, when they are part of a larger matrix.
        """
        unit, mean = self.unit, self.mean
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        if not self.count.all():
            j = int(np.argmin(self.count))
            raise ValueError(f"Feature {j if columns is None else columns[j]} has no value.")
        deviation = np.sqrt(self.squares / self.count)
        # A feature that varies only in its last digits counts as constant.
        deviation[deviation <= 8 * np.finfo(np.float64).eps * np.abs(mean)] = 0.0
        with np.errstate(over="ignore", under="ignore"):
            actual = (deviation * unit) ** 2
        abnormal = ~np.isfinite(actual) | ((actual < _LEAST_SCALE**2) & (deviation > 0))
        for bad, values, problem in (
            (abnormal, deviation * unit, "a standard deviation of {:.3g}, whose square is out of range"),
            (largest > _LARGEST_SCALE, largest, "values of magnitude {:.3g}, too large to be squared"),
        ):
            if bad.any():
                j = int(np.argmax(bad))
                name = j if columns is None else columns[j]
                raise ValueError(f"Feature {name} has {problem.format(values[j])}. Rescale that feature.")
        if structure.isotropic:
            widest = np.max(deviation * unit, keepdims=True)
            scale = np.full_like(unit, power_of_two(widest)[0] if widest else 1.0)
        else:
            constant = np.clip(unit, _LEAST_SCALE, _LARGEST_SCALE)
            scale = np.where(deviation > 0, power_of_two(deviation) * unit, constant)
        shift = mean * (unit / scale)
        bound = np.fmax(np.abs(self.low / scale - shift), np.abs(self.high / scale - shift))
        inside = (deviation * (unit / scale)) ** 2
        return Frame(scale, shift, np.where(inside > 0, inside, 1.0), np.minimum(bound, FARTHEST))


def measure(X: Array, structure: Structure, row_weights: FloatArray | None = None) -> Frame:
    """Return the frame of rows X (N, M) with weights (N,); see `Moments.frame`."""
    return moments_of(X, row_weights).frame(structure)


def moments_of(X: Array, weights: FloatArray | None = None) -> Moments:
    """Return the moments of rows X (N, M) with weights (N,), chunk by chunk."""
    parts = [_moments_of(X[cut, :], None if weights is None else weights[cut]) for cut in chunks(X)]
    if parts:
        return reduce(merge_moments, parts)
    nothing, none = np.zeros(X.shape[1]), np.full(X.shape[1], np.nan)
    return Moments(none, none, np.ones(X.shape[1]), nothing, nothing, nothing, nothing.astype(np.int64))


def _moments_of(X: Array, weights: FloatArray | None) -> Moments:
    xp = namespace(X)
    x = X.T
    if is_numpy(X):
        # Feature by feature: operations along short rows would be several times slower.
        x = x.astype(np.float64, order="C")
    low, high = (to_numpy(extreme(x, axis=1)).astype(np.float64) for extreme in (xp.min, xp.max))
    n_missing, missing = np.zeros(len(low), dtype=np.int64), None
    if np.isnan(low).any():
        missing = xp.isnan(x)
        n_missing = to_numpy(xp.count_nonzero(missing, axis=1))
        low = to_numpy(xp.min(xp.where(missing, np.inf, x), axis=1)).astype(np.float64)
        high = to_numpy(xp.max(xp.where(missing, -np.inf, x), axis=1)).astype(np.float64)
        none = n_missing == X.shape[0]
        low[none], high[none] = np.nan, np.nan
    unit = power_of_two(np.fmax(np.abs(low), np.abs(high)))
    # Sum differences from the lowest value, so that those of a constant feature are exactly zero.
    lowest = np.where(np.isnan(low), 0.0, low) / unit
    scale = as_float64(1.0 / unit, X)[:, None]
    above = np.multiply(x, scale, out=x) if is_numpy(X) else x * scale
    above -= as_float64(lowest, X)[:, None]
    shares = as_float64(np.ones(X.shape[0]) if weights is None else weights, X)
    count = np.full(len(low), float(xp.sum(shares)))
    if missing is not None:
        above = xp.where(missing, 0.0, above)
        count = to_numpy(xp.astype(~missing, shares.dtype) @ shares)
    mean = to_numpy(above @ shares) / np.where(count > 0, count, 1.0)
    above -= as_float64(mean, X)[:, None]
    if missing is not None:
        above = xp.where(missing, 0.0, above)
    above *= above
    return Moments(low, high, unit, count, lowest + mean, to_numpy(above @ shares), n_missing)


def merge_moments(a: Moments, b: Moments) -> Moments:
    """Return the moments of the rows of both."""
    # The unit of a feature without values is arbitrary.
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
    low, high = np.fmin(a.low, b.low), np.fmax(a.high, b.high)
    return Moments(low, high, unit, count, mean, squares, a.missing + b.missing)


@dataclass(frozen=True)
class Summary:
    """The summary of all rows, except those of weight zero or without any value.

    The first entry of arrays by label is for rows without a label. Without labels, all rows are of one class.
    """

    moments: Moments  # of each feature
    counts: IntArray  # (1 + C,): number of rows of each label
    sizes: FloatArray  # (1 + C,): their number, or the sum of their weights
    observed: FloatArray  # (1 + C, M): the same for the observed values of each feature
    labels: np.ndarray | None = None  # (C,): the sorted labels; None where they are class codes 0 … C − 1
    n_empty: int = 0  # rows of positive weight without any value, for rows in blocks
    # For rows in blocks, some rows (s, M) for the starts and records (s,) of where they are from.
    sample: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def total(self) -> float:
        """Number of rows, or the sum of their weights."""
        return float(self.sizes.sum())

    @property
    def gaps(self) -> bool:
        """Whether values are missing."""
        return bool(self.moments.missing.any())

    def frame(self, structure: Structure, columns: Sequence[int] | None = None) -> Frame:
        """Return the rows' frame; `columns` are for error messages."""
        return self.moments.frame(structure, columns)

    def by_class(self, values: FloatArray, n_classes: int) -> FloatArray:
        """Return values (1 + C, …) of class codes as (n_classes, …), with unlabelled rows last."""
        sums = np.zeros((n_classes, *values.shape[1:]))
        sums[-1] = values[0]
        sums[: len(values) - 1] += values[1:]
        return sums

    def class_sizes(self, n_classes: int) -> FloatArray:
        """Return the number (L,) of labelled rows of each class, or the sum of their weights."""
        return self.by_class(self.sizes, n_classes + 1)[:n_classes]

    def with_features(self, columns: Sequence[int]) -> Summary:
        """Return the summary of some of the features of rows without gaps."""
        assert not self.gaps
        chosen = list(columns)
        moments = Moments(*(values[chosen] for values in vars(self.moments).values()))
        sample = None if self.sample is None else (self.sample[0][:, chosen], self.sample[1])
        return replace(self, moments=moments, observed=self.observed[:, chosen], sample=sample)

    def coded(self, classes: np.ndarray) -> Summary:
        """Return the summary with labels encoded as indices into `classes` (L,); others become unlabelled."""
        if self.labels is None:
            return self
        into = np.append(0, encode(self.labels, classes).astype(np.int64) + 1)

        def summed(values: np.ndarray) -> np.ndarray:
            sums = np.zeros((len(classes) + 1, *values.shape[1:]), dtype=values.dtype)
            np.add.at(sums, into, values)
            return sums

        counts, sizes, observed = summed(self.counts), summed(self.sizes), summed(self.observed)
        sample = self.sample
        if sample is not None:
            sample = sample[0], sample[1].copy()
            sample[1]["label"] = into[sample[1]["label"]]
        return Summary(self.moments, counts, sizes, observed, None, self.n_empty, sample)


def summarise(X: Array, codes: IntArray | None, weights: FloatArray | None) -> Summary:
    """Return the summary of rows X (N, M) in memory.

    `codes` (N,) are the rows' classes, −1 for none; None is one class.
    """
    # With more BLAS threads the rounding would differ between machines.
    with one_blas_thread():
        moments = moments_of(X, weights)
    if codes is None:
        size = float(X.shape[0] if weights is None else weights.sum())
        observed = np.zeros((2, X.shape[1]))
        observed[1] = moments.count
        return Summary(moments, np.array([0, X.shape[0]]), np.array([0.0, size]), observed)
    own = codes.astype(np.int64) + 1
    counts = np.bincount(own, minlength=1)
    sizes = np.bincount(own, weights=weights, minlength=1).astype(np.float64)
    observed = np.repeat(sizes[:, None], X.shape[1], axis=1)
    incomplete = np.flatnonzero(moments.missing)
    for cut in chunks(X) if len(incomplete) else ():
        for j in incomplete:
            rows = cut.start + np.flatnonzero(to_numpy(namespace(X).isnan(X[cut, int(j)])))
            of_rows = None if weights is None else weights[rows]
            observed[:, j] -= np.bincount(own[rows], weights=of_rows, minlength=len(sizes))
    return Summary(moments, counts, sizes, observed)


def resolution_of(X: np.ndarray, weights: FloatArray | None, frame: Frame) -> FloatArray:
    """Return the variance (M,) below which rows X (n, M) do not tell the values of a feature apart.

    It is that of `interval_variances`, but never more than a third of the feature's variance, as of a feature
    that has two values equally often. Weights (n,) and repeated rows count alike.
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
    intervals, variances, others = interval_variances(X, weights, span)
    return np.where(intervals > _MOST_UNRESOLVED * variances, intervals * (1.0 + 6.0 / others), 0.0)


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
    intervals, variances, others = np.zeros(X.shape[1]), np.zeros(X.shape[1]), np.ones(X.shape[1])
    for j, column in enumerate((X / scale).T):
        known = ~np.isnan(column)
        values, own = np.unique(column[known], return_inverse=True)
        counts = np.bincount(own, weights=None if weights is None else weights[known])
        if len(values) < 2:
            continue
        shares = counts / counts.sum()
        variances[j] = shares @ (values - shares @ values) ** 2
        others[j] = (1.0 - shares.max()) * known.sum()
        gaps = np.diff(values)
        step = _step_of_counts(gaps, shares)
        intervals[j] = (np.median(gaps) if step is None else step) ** 2 / 12.0
        if step is None and shares.max() > max(_MASS, 2.0 / len(values)):
            intervals[j] = max(intervals[j], _BESIDE_MASS * variances[j])
    return intervals * scale**2, variances * scale**2, others


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


def fill_gaps(X: np.ndarray, codes: IntArray) -> np.ndarray:
    """Return rows (N, M) with missing values replaced by class means: for starts, not for EM."""
    missing, (present, own) = np.isnan(X), np.unique(codes, return_inverse=True)
    each = [own == c for c in range(len(present))]
    total = np.stack([np.nansum(X[rows], axis=0, dtype=np.float64) for rows in each])
    count = np.stack([(~missing[rows]).sum(axis=0) for rows in each])
    # A class without any value of a feature gets the mean of all rows.
    means = np.where(count > 0, total, total.sum(axis=0)) / np.where(count > 0, count, count.sum(axis=0))
    return np.where(missing, means.astype(X.dtype)[own], X)
