"""The data summary, from one scan of all rows before the first pass.

It holds each feature's range, mean and spread (hence the frame, the coordinates of the loop), the sizes of
the classes, and a random sample of each label for the starts. Summaries of disjoint rows merge in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from ..compute.arrays import Array, as_float64, is_numpy, namespace, to_numpy
from ..compute.threads import Workers
from ..covariances import Structure
from ..model import FloatArray, IntArray, Parameters

_CHUNK = 1 << 14
_DEVICE_CHUNK = 1 << 20
# Values beyond this many scales are clipped so that their squares stay finite.
FARTHEST = 1e100
# The scale of a constant feature comes from its magnitude, up to this limit.
_LARGEST_SCALE = 2.0**500
# Rows this wide are transposed in pieces, which is two to four times faster.
_WIDE = 24
_PIECE = 128
# Rows of each label in the sample for the starts, and numbers in the whole sample.
_MOST_ROWS = 1 << 14
_FEWEST_ROWS = 64
_SAMPLED = 1 << 22


@dataclass(frozen=True)
class Frame:
    """The coordinates of the loop, x' = x / scale − shift, and the range of the rows in them.

    Moments about the origin lose digits if rows lie far from it, and squares of huge values overflow.
    Centring prevents the first; scaling by powers of two prevents the second without rounding.
    """

    scale: FloatArray  # (M,): powers of two
    shift: FloatArray  # (M,): the data's mean divided by `scale`
    variance: FloatArray  # (M,): each feature's variance in the frame; 1 for a constant feature
    bound: FloatArray  # (M,): largest magnitude of each feature in the frame

    def rows(self, X: np.ndarray, out: FloatArray) -> FloatArray:
        """Write rows X (n, M) into `out` (M, n), feature-major and in the frame."""
        turn(X, out)
        with np.errstate(over="ignore"):
            out *= (1.0 / self.scale)[:, None]
            out -= self.shift[:, None]
        if self.bound.max() >= FARTHEST:
            np.clip(out, -FARTHEST, FARTHEST, out=out)
        return out

    def enter(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the data's coordinates in the frame."""
        return Parameters(
            np.array(parameters.weights, dtype=np.float64),
            np.clip(parameters.means / self.scale - self.shift, -FARTHEST, FARTHEST),
            structure.rescale(parameters.covariances, 1.0 / self.scale),
            parameters.class_prior,
        )

    def leave(self, parameters: Parameters, structure: Structure) -> Parameters:
        """Express parameters given in the frame in the data's coordinates."""
        return Parameters(
            parameters.weights,
            (parameters.means + self.shift) * self.scale,
            structure.rescale(parameters.covariances, self.scale),
            parameters.class_prior,
        )

    def take(self, columns: IntArray) -> Frame:
        """Return the frame of some of the features."""
        return Frame(self.scale[columns], self.shift[columns], self.variance[columns], self.bound[columns])

    def reaching(self, X: np.ndarray) -> Frame:
        """Return the same frame with the range of other rows X (n, M)."""
        with np.errstate(over="ignore"):
            bound = np.fmax.reduce(np.abs(X / self.scale - self.shift), axis=0)
        return replace(self, bound=np.minimum(np.fmax(bound, 0.0), FARTHEST))

    def log_volume(self) -> float:
        """Logarithm of the factor by which the frame's densities exceed the data's."""
        return float(np.log(self.scale).sum())


@dataclass(frozen=True, eq=False)
class Setting:
    """The settings of an E-step."""

    frame: Frame  # coordinates of the parameters
    structure: Structure  # covariance structure
    pool: Workers  # threads
    precision: str = "float64"  # of the rows' terms and the products with them, on an accelerator


def turn(matrix: np.ndarray, out: FloatArray) -> None:
    """Write a long or wide matrix transposed into `out`, in pieces that stay in the first-level cache."""
    if min(matrix.shape) < _WIDE:
        out[:] = matrix.T
        return
    if len(matrix) < matrix.shape[1]:
        matrix, out = matrix.T, out.T  # the same transposition
    for a in range(0, len(matrix), _PIECE):
        out[:, a : a + _PIECE] = matrix[a : a + _PIECE].T


def power_of_two(magnitude: FloatArray) -> FloatArray:
    """Return the next larger powers of two of positive magnitudes, 1 for zeros."""
    _, exponent = np.frexp(np.where(magnitude > 0, magnitude, 0.5))
    return np.ldexp(1.0, np.clip(exponent, -1000, 1000))


def chunks(X: Array) -> list[slice]:
    """Return the slices of rows to scan at a time."""
    chunk = _CHUNK if is_numpy(X) else _DEVICE_CHUNK
    n_rows = X.shape[0]
    return [slice(a, min(a + chunk, n_rows)) for a in range(0, n_rows, chunk)]


@dataclass(frozen=True)
class Moments:
    """Range, mean and spread of each feature, over its observed values.

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

    def take(self, columns: Sequence[int]) -> Moments:
        """Return the moments of some of the features."""
        return Moments(*(values[list(columns)] for values in vars(self).values()))

    def frame(self, structure: Structure, columns: Sequence[int] | None = None) -> Frame:
        """Return the rows' frame; refuse variances that float64 cannot represent.

        `columns` (M,) are the features' numbers for errors, when they are part of a larger matrix.
        """
        unit, mean = self.unit, self.mean
        largest = np.fmax(np.abs(self.low), np.abs(self.high))
        spread = np.sqrt(self.squares / self.count)
        # A feature that varies only in its last digits counts as constant.
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


def moments_of(X: Array, weights: FloatArray | None = None) -> Moments:
    """Return the moments of rows X (N, M) with weights (N,), chunk by chunk; NaN only in NumPy arrays."""
    parts = [_moments_of(X[cut, :], None if weights is None else weights[cut]) for cut in chunks(X)]
    return reduce(merge_moments, parts) if parts else _moments_of(X, weights)


def _moments_of(X: Array, weights: FloatArray | None) -> Moments:
    if not is_numpy(X):
        return _device_moments(X, weights)
    if not len(X):
        nothing, none = np.zeros(X.shape[1]), np.full(X.shape[1], np.nan)
        no_gaps = np.zeros(X.shape[1], dtype=np.int64)
        return Moments(none, none, np.ones(X.shape[1]), nothing, nothing, nothing, no_gaps)
    missing = np.isnan(X)
    n_missing = np.count_nonzero(missing, axis=0)
    gaps = bool(n_missing.any())
    low, high = (extreme.reduce(X, axis=0).astype(np.float64) for extreme in (np.fmin, np.fmax))
    unit = power_of_two(np.fmax(np.abs(low), np.abs(high)))
    # Sum differences from the first value, so that those of a constant feature are exactly zero.
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
    return Moments(low, high, unit, count, first + mean, shares @ ahead**2, n_missing)


def _device_moments(X: Array, weights: FloatArray | None) -> Moments:
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
    return Moments(low, high, unit, count, first + mean, squares, np.zeros(X.shape[1], dtype=np.int64))


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


def measure(
    X: Array,
    structure: Structure,
    columns: Sequence[int] | None = None,
    row_weights: FloatArray | None = None,
) -> Frame:
    """Return the frame of rows X (N, M) with weights (N,); see `Moments.frame`."""
    return moments_of(X, row_weights).frame(structure, columns)


@dataclass(frozen=True)
class Sample:
    """Random rows of each label, in the order of the data."""

    X: np.ndarray  # (s, M): the rows
    labels: IntArray  # (s,): their labels, as indices into those of the summary
    weights: FloatArray | None  # (s,): their weights
    keys: FloatArray  # (s,): random keys; the sample has the rows with the smallest keys of each label
    places: IntArray  # (s, 2): block and row of each

    def take(self, which: IntArray) -> Sample:
        """Return the rows that `which` selects."""
        weights = None if self.weights is None else self.weights[which]
        return Sample(self.X[which], self.labels[which], weights, self.keys[which], self.places[which])


@dataclass(frozen=True)
class Summary:
    """The summary of all rows, except those of weight zero or without any value."""

    n_rows: int  # number of rows
    n_empty: int  # rows of positive weight without any value
    moments: Moments  # of each feature
    # (C,): the sorted labels present, as class codes once encoded, −1 first for unlabelled rows; None if rows
    # have no labels, C is then one
    labels: np.ndarray | None
    n_labelled: IntArray  # (C,): number of rows of each label
    sizes: FloatArray  # (C,): their number, or the sum of their weights
    observed: FloatArray  # (C, M): the same for the observed values of each feature
    sample: Sample | None = None  # rows for the starts; None for rows in memory

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
        """Reindex values (C, …) of encoded labels by class, (n_classes, …), with unlabelled rows last."""
        if self.labels is None:
            return values
        sums = np.zeros((n_classes, *values.shape[1:]))
        sums[self.labels.astype(np.int64)] = values
        return sums

    def class_sizes(self, n_classes: int) -> FloatArray:
        """Return the number (L,) of labelled rows of each class, or the sum of their weights."""
        return self.by_class(self.sizes, n_classes + 1)[:n_classes]

    def take(self, columns: Sequence[int]) -> Summary:
        """Return the summary of some of the features of rows without gaps."""
        assert not self.gaps
        chosen = list(columns)
        sample = None if self.sample is None else replace(self.sample, X=self.sample.X[:, chosen])
        moments = self.moments.take(chosen)
        return replace(self, moments=moments, observed=self.observed[:, chosen], sample=sample)

    def coded(self, classes: np.ndarray) -> Summary:
        """Return the summary with labels encoded as indices into `classes`, −1 for others."""
        if self.labels is None:
            return self
        place = {label: code for code, label in enumerate(classes.tolist())}
        codes = np.array([place.get(label, -1) for label in self.labels.tolist()], dtype=np.int64)
        present, which = np.unique(codes, return_inverse=True)
        into = (which == np.arange(len(present))[:, None]).astype(np.float64)
        return replace(
            self,
            labels=present,
            n_labelled=(into @ self.n_labelled).astype(np.int64),
            sizes=into @ self.sizes,
            observed=into @ self.observed,
            sample=self.sample and replace(self.sample, labels=which[self.sample.labels]),
        )

    def start_rows(self) -> tuple[np.ndarray, IntArray, FloatArray | None]:
        """Return sampled rows (s, M), their class codes (s,), and weights (s,) that correct for the sampling.

        Small classes are sampled more densely than large ones. A sample of all rows has their order and
        weights, so that starts are the same as for rows in memory.
        """
        sample = self.sample
        assert sample is not None
        codes = np.zeros(1, dtype=np.int64) if self.labels is None else self.labels.astype(np.int64)
        weights = sample.weights
        if len(sample.X) < self.n_rows:
            drawn = np.bincount(sample.labels, minlength=len(codes))
            share = (self.n_labelled / np.maximum(drawn, 1))[sample.labels]
            weights = share if weights is None else weights * share
        X = sample.X
        unseen = np.flatnonzero(np.isnan(X).all(axis=0))
        if len(unseen):
            X = X.copy()
            X[:, unseen] = (self.moments.mean * self.moments.unit)[unseen]
        return X, codes[sample.labels], weights


def summarise(X: Array, codes: IntArray | None, weights: FloatArray | None) -> Summary:
    """Return the summary, without a sample, of rows X (N, M) in memory; NaN only in NumPy arrays.

    `codes` (N,) are the rows' classes, −1 for none; None is one class.
    """
    moments = moments_of(X, weights)
    if codes is None:
        size = float(X.shape[0] if weights is None else weights.sum())
        n_labelled, sizes = np.array([X.shape[0]]), np.array([size])
        return Summary(X.shape[0], 0, moments, None, n_labelled, sizes, moments.count[None])
    n_codes = int(codes.max(initial=-1)) + 2
    n_labelled, sizes = np.zeros(n_codes, dtype=np.int64), np.zeros(n_codes)
    gone = np.zeros((n_codes, X.shape[1]))  # sizes of the missing values
    incomplete = np.flatnonzero(moments.missing)
    for cut in chunks(X):
        own = codes[cut].astype(np.int64) + 1
        shares = None if weights is None else weights[cut]
        n_labelled += np.bincount(own, minlength=n_codes)
        sizes += np.bincount(own, weights=shares, minlength=n_codes)
        for j in incomplete:
            missing = np.isnan(X[cut, j])
            of_missing = None if shares is None else shares[missing]
            gone[:, j] += np.bincount(own[missing], weights=of_missing, minlength=n_codes)
    present = np.flatnonzero(n_labelled)
    observed = sizes[:, None] - gone
    return Summary(
        X.shape[0], 0, moments, present - 1, n_labelled[present], sizes[present], observed[present]
    )


def draw_sample(
    X: np.ndarray, index: IntArray, weights: FloatArray | None, n_labels: int, seed: int, block: int
) -> Sample:
    """Return a random sample of each label's rows in one block, chosen by random keys."""
    keys = np.random.default_rng([seed, block]).random((len(X),))
    kept = smallest(keys, index, rows_of_label(n_labels, X.shape[1]))
    places = np.column_stack([np.full(len(kept), block), kept])
    return Sample(X[kept], index[kept], None if weights is None else weights[kept], keys[kept], places)


def merge_summaries(a: Summary, b: Summary) -> Summary:
    """Return the summary of the rows of both."""
    if (a.labels is None) != (b.labels is None):
        raise ValueError(
            "Some blocks have labels and others have none. Give labels for all blocks or for none."
        )
    labels, index_a, index_b = None, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    if a.labels is not None and b.labels is not None:
        if len(a.labels) and len(b.labels) and kind_of(a.labels) != kind_of(b.labels):
            raise ValueError(
                f"Labels differ in kind between blocks: {a.labels[:3].tolist()} … are {a.labels.dtype}, "
                f"{b.labels[:3].tolist()} … are {b.labels.dtype}. Give all of them one type."
            )
        given = [part for part in (a.labels, b.labels) if len(part)] or [a.labels]
        labels = number(np.concatenate(given))[0]
        index_a, index_b = np.searchsorted(labels, a.labels), np.searchsorted(labels, b.labels)
    n_labels = 1 if labels is None else len(labels)

    def total(of_a: np.ndarray, of_b: np.ndarray) -> np.ndarray:
        sums = np.zeros((n_labels, *of_a.shape[1:]), dtype=of_a.dtype)
        sums[index_a] += of_a
        sums[index_b] += of_b
        return sums

    sample = None
    if a.sample is not None and b.sample is not None:
        sample = _merge_samples(
            replace(a.sample, labels=index_a[a.sample.labels]),
            replace(b.sample, labels=index_b[b.sample.labels]),
            n_labels,
        )
    return Summary(
        a.n_rows + b.n_rows,
        a.n_empty + b.n_empty,
        merge_moments(a.moments, b.moments),
        labels,
        total(a.n_labelled, b.n_labelled),
        total(a.sizes, b.sizes),
        total(a.observed, b.observed),
        sample,
    )


def _merge_samples(a: Sample, b: Sample, n_labels: int) -> Sample:
    """Return the rows with the smallest keys of both, in the order of the data."""
    weights = None
    if a.weights is not None or b.weights is not None:
        weights = np.concatenate(
            [np.ones(len(part.X)) if part.weights is None else part.weights for part in (a, b)]
        )
    both = Sample(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.labels, b.labels]),
        weights,
        np.concatenate([a.keys, b.keys]),
        np.concatenate([a.places, b.places]),
    )
    kept = smallest(both.keys, both.labels, rows_of_label(n_labels, a.X.shape[1]))
    return both.take(kept[np.lexsort(both.places[kept].T[::-1])])


def rows_of_label(n_labels: int, n_features: int) -> int:
    """Return how many rows of each label a sample has at most."""
    return max(_FEWEST_ROWS, min(_MOST_ROWS, _SAMPLED // (max(1, n_labels) * n_features)))


def smallest(keys: FloatArray, labels: IntArray, n_kept: int) -> IntArray:
    """Return the indices, increasing, of the `n_kept` smallest keys (n,) of each label (n,)."""
    if len(keys) <= n_kept:
        return np.arange(len(keys))
    order = np.lexsort([keys, labels])
    counts = np.bincount(labels)
    rank = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.sort(order[rank < n_kept])


def number(labels: np.ndarray, names: np.ndarray | None = None) -> tuple[np.ndarray, IntArray]:
    """Return the sorted distinct labels, and each label (n,), or index of a name, as an index into them."""
    if names is not None:
        present = np.flatnonzero(np.bincount(labels, minlength=len(names)))
        found, which = number(names[present])
        index_of = np.zeros(len(names), dtype=np.int64)
        index_of[present] = which
        return found, index_of[labels]
    if labels.dtype.kind == "f" and np.any(labels != np.floor(labels)):
        wrong = labels[labels != np.floor(labels)][0]
        raise ValueError(
            f"Unknown label type: {wrong} is not a whole number. Use integers or strings as labels."
        )
    try:
        found, index = np.unique(labels, return_inverse=True)
    except TypeError as error:
        raise ValueError(f"Labels cannot be sorted: {error}. Is one of them missing?") from None
    return found, index


def kind_of(labels: np.ndarray) -> str:
    """Return the kind of labels as one letter, the same for all numeric types."""
    kind: str = labels.dtype.kind
    return "n" if kind in "iuf" else kind


def fill_gaps(X: np.ndarray, codes: IntArray) -> np.ndarray:
    """Return rows (N, M) with missing values replaced by class means: for starts, not for EM."""
    missing = np.isnan(X)
    if not missing.any():
        return X
    filled, zeros = X.copy(), np.where(missing, 0.0, X)
    overall = zeros.sum(axis=0) / np.maximum((~missing).sum(axis=0), 1)
    for c in np.unique(codes):
        rows = np.flatnonzero(codes == c)
        counts = (~missing[rows]).sum(axis=0)
        means = np.where(counts > 0, zeros[rows].sum(axis=0) / np.maximum(counts, 1), overall)
        filled[rows] = np.where(missing[rows], means, X[rows])
    return filled
