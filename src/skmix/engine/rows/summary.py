"""What one pass over all rows finds out before a fit.

The summary holds each feature's range, mean and variance, hence the frame (the coordinates of the loop), the
sizes of the classes and, for rows in blocks, a random sample for the starts. Summaries of disjoint rows add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from ..measured import values_of
from ..numbers import Array, Record, as_float64, is_numpy, join, namespace, to_numpy
from ..records import FARTHEST, FloatArray, Frame, IntArray, power_of_two
from ..structures import Structure
from ..threads import one_blas_thread

# Numbers of a NumPy array that are scanned at a time.
_SCANNED = 1 << 17
# Rows on a device that are scanned at a time.
_SCANNED_ON_DEVICE = 1 << 20
# Smallest scale of a constant feature, which comes from its magnitude. Features of a smaller deviation are
# refused: variances far below theirs would be lost.
_LEAST_SCALE = 2.0**-480
# Largest scale of a constant feature, and largest value: its square is finite.
_LARGEST_SCALE = 2.0**500
# Most rows of a class in the sample for the starts.
_MOST_SAMPLED = 1 << 14
# Fewest rows of a class in it.
_FEWEST_SAMPLED = 64
# Numbers in the whole sample, if that leaves enough rows of each class.
_SAMPLE = 1 << 22


# ---------------------------------------------------------------- moments of the features


@dataclass(frozen=True)
class Moments(Record):
    """Number, range, mean and spread of each feature, over its observed values."""

    low: FloatArray  # (M,): smallest value; NaN for a feature without values
    high: FloatArray  # (M,): largest value
    count: FloatArray  # (M,): number of values, or the sum of their weights
    mean: FloatArray  # (M,); zero for a feature without values
    deviation: FloatArray  # (M,): standard deviation; the variance may overflow
    missing: IntArray  # (M,): number of missing values

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the rows of both, by Chan's rule."""
        count = self.count + other.count
        share = other.count / np.where(count > 0, count, 1.0)
        with np.errstate(over="ignore"):  # the frame refuses such values
            between = other.mean - self.mean
            within = np.hypot(np.sqrt(1.0 - share) * self.deviation, np.sqrt(share) * other.deviation)
            deviation = np.hypot(within, np.sqrt(share * (1.0 - share)) * between)
        low, high = np.fmin(self.low, other.low), np.fmax(self.high, other.high)
        return Moments(low, high, count, self.mean + between * share, deviation, self.missing + other.missing)

    def frame(self, structure: Structure, columns: Sequence[int] | None = None) -> Frame:
        """Return the rows' frame; refuse variances that float64 cannot represent.

        `columns` (M,) are the features' numbers for errors, when they are part of a larger matrix.
        """
        names = range(len(self.mean)) if columns is None else columns
        if not self.count.all():
            raise ValueError(f"Feature {names[int(np.argmin(self.count))]} has no value.")
        deviation = self.deviation.copy()
        # A feature that varies only in its last digits counts as constant.
        deviation[deviation <= 8 * np.finfo(np.float64).eps * np.abs(self.mean)] = 0.0
        with np.errstate(over="ignore", under="ignore"):
            variance = deviation**2
        is_abnormal = ~np.isfinite(variance) | ((variance < _LEAST_SCALE**2) & (deviation > 0))
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        for is_bad, values, problem in (
            (is_abnormal, deviation, "a standard deviation of {:.3g}, whose square is out of range"),
            (largest > _LARGEST_SCALE, largest, "values of magnitude {:.3g}, too large to be squared"),
        ):
            if is_bad.any():
                j = int(np.argmax(is_bad))
                raise ValueError(f"Feature {names[j]} has {problem.format(values[j])}. Rescale that feature.")
        if structure.isotropic:
            scale = np.full_like(deviation, power_of_two(deviation.max()))
        else:
            of_constant = np.clip(power_of_two(largest), _LEAST_SCALE, _LARGEST_SCALE)
            scale = np.where(deviation > 0, power_of_two(deviation), of_constant)
        shift = self.mean / scale
        bound = np.fmax(np.abs(self.low / scale - shift), np.abs(self.high / scale - shift))
        with np.errstate(under="ignore"):
            inside = (deviation / scale) ** 2
        return Frame(scale, shift, np.where(inside > 0, inside, 1.0), np.minimum(bound, FARTHEST))


def measure(X: Array, structure: Structure, row_weights: FloatArray | None = None) -> Frame:
    """Return the frame of rows X (N, M) with weights (N,); see `Moments.frame`."""
    return moments_of(X, row_weights).frame(structure)


def moments_of(X: Array, weights: FloatArray | None = None) -> Moments:
    """Return the moments of rows X (N, M) with weights (N,), chunk by chunk."""
    X = values_of(X)
    parts = [_moments_of(X[cut, :], None if weights is None else weights[cut]) for cut in _chunks(X)]
    if parts:
        return reduce(add, parts)
    zero, none = np.zeros(X.shape[1]), np.full(X.shape[1], np.nan)
    return Moments(none, none, zero, zero, zero, zero.astype(np.int64))


def _chunks(X: Array) -> list[slice]:
    """Return the slices of rows to scan at a time."""
    n_rows, n_features = X.shape
    chunk = max(1, _SCANNED // n_features) if is_numpy(X) else _SCANNED_ON_DEVICE
    return [slice(a, min(a + chunk, n_rows)) for a in range(0, n_rows, chunk)]


def _moments_of(X: Array, weights: FloatArray | None) -> Moments:
    """Return the moments of a chunk of rows (n, M)."""
    xp, x = namespace(X), X.T
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
        no_value = n_missing == X.shape[0]
        low[no_value], high[no_value] = np.nan, np.nan
    # In a unit that is a power of two, so that it rounds nothing, squares neither overflow nor underflow.
    unit = power_of_two(np.fmax(np.abs(low), np.abs(high)))
    # Sum differences from the lowest value, so that those of a constant feature are exactly zero.
    lowest = np.where(np.isnan(low), 0.0, low) / unit
    scale = as_float64(1.0 / unit, X)[:, None]
    above = np.multiply(x, scale, out=x) if is_numpy(X) else x * scale
    above -= as_float64(lowest, X)[:, None]
    row_weights = as_float64(np.ones(X.shape[0]) if weights is None else weights, X)
    count = np.full(len(low), float(xp.sum(row_weights)))
    if missing is not None:
        above = xp.where(missing, 0.0, above)
        count = to_numpy(xp.astype(~missing, row_weights.dtype) @ row_weights)
    mean = to_numpy(above @ row_weights) / np.where(count > 0, count, 1.0)
    above -= as_float64(mean, X)[:, None]
    if missing is not None:
        above = xp.where(missing, 0.0, above)
    above *= above
    deviation = np.sqrt(to_numpy(above @ row_weights) / np.where(count > 0, count, 1.0))
    return Moments(low, high, count, (lowest + mean) * unit, deviation * unit, n_missing)


# ---------------------------------------------------------------- the summary


@dataclass(frozen=True)
class Sample(Record):
    """A random sample of rows in blocks: of each class, the rows with the smallest random keys."""

    X: np.ndarray  # (s, M)
    codes: IntArray  # (s,): class of each row, −1 for none
    weights: FloatArray  # (s,): NaN where rows have no weights
    keys: FloatArray  # (s,): random, between 0 and 1
    places: IntArray  # (s, 2): number of the row's block, and of the row in it

    def smallest(self, n_kept: int) -> Sample:
        """Return the `n_kept` rows of each class with the smallest keys, in the order of the data."""
        label = self.codes + 1
        counts = np.bincount(label, minlength=1)
        kept = np.arange(len(label))
        if counts.max() > n_kept:
            order = np.lexsort([self.keys, label])
            rank = kept - np.repeat(np.cumsum(counts) - counts, counts)
            kept = order[rank < n_kept]
        return self.take(kept[np.lexsort([self.places[kept, 1], self.places[kept, 0]])])


def sampled_of_class(counts: IntArray, n_features: int) -> int:
    """Return how many rows of each class a sample has at most, for that many rows (1 + C,) of each class."""
    n_classes = max(1, int(np.count_nonzero(counts)))
    return max(_FEWEST_SAMPLED, min(_MOST_SAMPLED, _SAMPLE // (n_classes * n_features)))


@dataclass(frozen=True)
class Summary:
    """The summary of all rows, except those of weight zero or without any value.

    Classes have codes 0 … C − 1. The first entry of arrays by class is for rows without one. Where rows have
    no codes, all are of one class.
    """

    moments: Moments  # of each feature
    counts: IntArray  # (1 + C,): number of rows of each class
    sizes: FloatArray  # (1 + C,): their number, or the sum of their weights
    observed: FloatArray  # (1 + C, M): the same for the observed values of each feature
    n_empty: int = 0  # rows of positive weight without any value, for rows in blocks
    sample: Sample | None = None  # some rows for the starts, for rows in blocks

    def __add__(self, other: Summary) -> Summary:
        """Return the summary of the rows of both, whose sample may be larger than needed; see `trimmed`."""
        assert self.sample is not None
        assert other.sample is not None
        total = Summary(
            self.moments + other.moments,
            _sum_by_class(self.counts, other.counts),
            _sum_by_class(self.sizes, other.sizes),
            _sum_by_class(self.observed, other.observed),
            self.n_empty + other.n_empty,
            join([self.sample, other.sample]),
        )
        # Sorting takes longer than anything else here: do it when half of the sample goes.
        assert total.sample is not None
        n_sampled, n_classes = len(total.sample.X), np.count_nonzero(total.counts)
        is_large = n_sampled > 2 * n_classes * sampled_of_class(total.counts, total.observed.shape[1])
        return total.trimmed() if is_large else total

    def trimmed(self) -> Summary:
        """Return the summary with no more rows in its sample than it needs, in the order of the data.

        Rows that are left out early would be left out later: more classes leave fewer rows of each.
        """
        assert self.sample is not None
        n_kept = sampled_of_class(self.counts, self.observed.shape[1])
        return replace(self, sample=self.sample.smallest(n_kept))

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.counts.sum())

    @property
    def n_unlabelled(self) -> int:
        """Number of rows without a class."""
        return int(self.counts[0])

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
        sample = None if self.sample is None else replace(self.sample, X=self.sample.X[:, chosen])
        moments, observed = self.moments.take(chosen), self.observed[:, chosen]
        return replace(self, moments=moments, observed=observed, sample=sample)

    def recoded(self, new_codes: IntArray, n_classes: int) -> Summary:
        """Return the summary with other class codes: `new_codes` (C,) below `n_classes`, or −1 for none."""
        target = np.append(0, new_codes.astype(np.int64) + 1)

        def summed(values: np.ndarray) -> np.ndarray:
            sums = np.zeros((n_classes + 1, *values.shape[1:]), dtype=values.dtype)
            np.add.at(sums, target, values)
            return sums

        sample = self.sample
        if sample is not None:
            sample = replace(sample, codes=target[sample.codes + 1] - 1)
        counts, sizes, observed = map(summed, (self.counts, self.sizes, self.observed))
        return replace(self, counts=counts, sizes=sizes, observed=observed, sample=sample)


def _sum_by_class(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the sum of arrays (1 + C, …) of different numbers of classes."""
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total = longer.copy()
    total[: len(shorter)] += shorter
    return total


def summarise(X: Array, codes: IntArray | None, weights: FloatArray | None) -> Summary:
    """Return the summary of rows X (N, M) in memory.

    `codes` (N,) are the rows' classes, −1 for none; None is one class.
    """
    X = values_of(X)
    # With more BLAS threads the rounding would differ between machines.
    with one_blas_thread():
        moments = moments_of(X, weights)
    if codes is None:  # without an array of labels, which many rows have no room for
        size = float(X.shape[0] if weights is None else weights.sum())
        observed = np.stack([np.zeros(X.shape[1]), moments.count])
        return Summary(moments, np.array([0, X.shape[0]]), np.array([0.0, size]), observed)
    label = codes.astype(np.int64) + 1
    counts = np.bincount(label, minlength=1)
    sizes = np.bincount(label, weights=weights, minlength=len(counts)).astype(np.float64)
    observed = np.repeat(sizes[:, None], X.shape[1], axis=1)
    incomplete = np.flatnonzero(moments.missing)
    for cut in _chunks(X) if len(incomplete) else ():
        for j in incomplete:
            rows = cut.start + np.flatnonzero(to_numpy(namespace(X).isnan(X[cut, int(j)])))
            of_rows = None if weights is None else weights[rows]
            observed[:, j] -= np.bincount(label[rows], weights=of_rows, minlength=len(sizes))
    return Summary(moments, counts, sizes, observed)


def fill_gaps(X: np.ndarray, codes: IntArray) -> np.ndarray:
    """Return rows (N, M) with missing values replaced by class means: for starts, not for EM."""
    is_missing, (present, place) = np.isnan(X), np.unique(codes, return_inverse=True)
    members = [place == c for c in range(len(present))]
    total = np.stack([np.nansum(X[rows], axis=0, dtype=np.float64) for rows in members])
    count = np.stack([(~is_missing[rows]).sum(axis=0) for rows in members])
    # A class without any value of a feature gets the mean of all rows.
    means = np.where(count > 0, total, total.sum(axis=0)) / np.where(count > 0, count, count.sum(axis=0))
    return np.where(is_missing, means.astype(X.dtype)[place], X)
