"""Rows of another array library: the E-step in large chunks, on the device of the rows.

A Gaussian log-density is linear in x, in the products of its features and in 1; the log-weight of a class is
linear in the indicator of that class. Rows expanded into these terms need one product with the coefficients
of all kernels of all starts to give their log-joint densities, and one with the responsibilities to give all
statistics: equation (E) of ``docs/notation.md``. Terms cancel where a kernel is narrow and far from the
origin: such kernels are delicate and computed from differences. The control flow of a pass does not depend on
the values of the rows, so the host need not wait for the device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from operator import add
from typing import Any, TypeVar

import numpy as np

from ..compute.arrays import (
    Array,
    as_float64,
    clip,
    constant,
    device_of,
    like,
    namespace,
    occurs,
    operations_of,
    pick,
    replaced,
    sent_once,
    take,
    to_numpy,
    where,
)
from ..frame import FARTHEST, Frame
from ..model import BoolArray, Factor, FloatArray, IntArray, Parameters, Statistics
from ..structures import Structure

Result = TypeVar("Result")
# (start, kernel) of the kernels that are computed from differences, and of those with moments about their own
# origin; how often terms that a captured pass may read were dropped.
Assumed = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], int]
NOTHING: Assumed = ((), (), 0)

# Smallest chunk, in rows: if it does not fit in the device's memory, give up.
_FEWEST_ROWS = 64
# Chunks are a multiple of this many rows, for well-shaped matrix products.
_ROUND = 256
# Rows of one product of second moments.
_PIECE = 1024
# Terms are padded to a multiple of this, so that matrix products can load whole vectors.
_PADDING = 8
# The logarithm of zero in matrix products, where −inf would turn into NaN.
_LOG_ZERO = -1e30
# A kernel whose mean is so many times its standard deviation from the origin, squared, has its moments taken
# about the mean: a quarter of what would make its covariance lose digits.
_FAR = 2.0**22


@dataclass(frozen=True)
class Prepared:
    """Parameters of R starts, expanded into coefficients of the rows' terms."""

    coefficients: FloatArray  # (R, K, M + S): of x and of the second-order terms in log N(x; μ_k, P_k)
    # (R, K, L): log π_kj N(x; μ_k, P_k) at the origin and at the mean, less the level
    at_origin: FloatArray
    at_mean: FloatArray
    # (R,): log-density of the start's highest peak, subtracted from all so that no exponential overflows
    levels: FloatArray
    means: FloatArray  # (R, K, M): kernel means
    factor: Factor  # whiteners of the covariances
    # (R, K): kernels whose expanded log-density would cancel too many digits: computed from differences
    delicate: BoolArray
    recentred: BoolArray  # (R, K): kernels whose moments are taken about `origins` rather than about zero
    origins: FloatArray  # (R, K, M): the origins of the moments, zero where not recentred

    def recentre(self, kernels: BoolArray, origins: FloatArray) -> Prepared:
        """Return a copy that takes the moments of the chosen kernels (R, K) about `origins` (R, K, M)."""
        return replace(
            self,
            recentred=self.recentred | kernels,
            origins=namespace(origins).where(kernels[..., None], origins, self.origins),
        )

    @cached_property
    def _of_classes(self) -> dict[tuple[int, int], Array]:
        """Coefficients by first and last class, as `coefficients_for` returns them."""
        return {}

    def coefficients_for(self, first: int, last: int, dtype: Any) -> Array:
        """Return the coefficients (R · K, M + S + C, padded) of terms with the indicators of C classes.

        There are no indicators of one class.
        """
        if first == last:
            first = last = 0
        if (first, last) not in self._of_classes:
            xp, parts = namespace(self.coefficients), [self.coefficients]
            if last > first:
                parts.append(self.at_origin[..., first : last + 1])
            padding = -sum(part.shape[-1] for part in parts) % _PADDING
            if padding:
                shape = (*self.at_origin.shape[:2], padding)
                parts.append(xp.zeros(shape, dtype=xp.float64, device=device_of(self.means)))
            flat = xp.concat(parts, axis=-1) if len(parts) > 1 else self.coefficients
            flat = xp.reshape(flat, (flat.shape[0] * flat.shape[1], flat.shape[2]))
            self._of_classes[first, last] = xp.astype(flat, dtype, copy=False)
        return self._of_classes[first, last]


def prepare(
    parameters: Parameters, structure: Structure, bounds: FloatArray, factor: Factor | None = None
) -> Prepared:
    """Expand the parameters of R starts in the frame, for terms of magnitudes up to `bounds` (M + S,)."""
    weights, means = parameters.weights, parameters.means
    xp, n_features = namespace(means), means.shape[-1]
    if factor is None:
        factor = structure.factor(parameters.covariances, n_features)
    quadratic = structure.quadratic(factor)
    linear = structure.precision_times(factor, means)
    at_zero = -0.5 * xp.sum(linear * means, axis=-1)
    constants = -0.5 * (factor.log_determinant + n_features * math.log(2 * math.pi))
    constants = xp.broadcast_to(constants, at_zero.shape)
    levels = xp.max(constants, axis=1)

    quadratic = xp.broadcast_to(quadratic, (*at_zero.shape, quadratic.shape[-1]))
    coefficients = xp.concat([linear, quadratic], axis=-1)
    magnitude = xp.abs(coefficients) @ bounds + xp.abs(at_zero)
    delicate = ~(magnitude <= structure.largest_cancellation)
    far = xp.any(means**2 > _FAR * structure.variances(parameters.covariances), axis=-1)
    at_mean = finite_log(weights) + (constants - levels[:, None])[..., None]
    return Prepared(
        coefficients,
        at_mean + at_zero[..., None],
        at_mean,
        levels,
        means,
        factor,
        delicate,
        far,
        where(far[..., None], means, 0.0),
    )


def finite_log(weights: Array) -> Array:
    """Return logarithms of weights; that of zero is finite, since −inf becomes NaN in matrix products."""
    with np.errstate(divide="ignore"):
        return clip(namespace(weights).log(weights), _LOG_ZERO, np.inf)


def term_features(structure: Structure, n_features: int, which: int) -> np.ndarray:
    """Return the first or second feature (S,) of each second-order term."""
    return structure.pairs(n_features)[which]


@dataclass(frozen=True)
class ClassOrder:
    """Rows in the order of their classes: what does not depend on their values."""

    bounds: IntArray  # (L + 1,): where each class begins and ends among ordered rows
    total: float  # weight of all rows
    sizes: Any  # (L,): weight of each class, on the device; a number for one class
    # On the device, of ordered rows; None as long as they are not sent.
    codes: Array | None = None  # (N,): classes; None for one
    index: Array | None = None  # (N,): numbers of the rows; None for rows that are in order as they are
    weights: Array | None = None  # (N,): None when all are one
    is_sent: bool = False

    @property
    def n_bytes(self) -> int:
        """Memory of codes, numbers and weights."""
        given = self.codes, self.index, self.weights
        return sum(int(array.nbytes) for array in given if array is not None)

    def sent(self, X: Array, classes: IntArray | None, weights: FloatArray | None) -> ClassOrder:
        """Return the order with codes, numbers and weights of rows X (N, M), on their device.

        They are sorted there: the host would take longer than to copy the rows.
        """
        xp, own = namespace(X), None if weights is None else as_float64(weights, X)
        if classes is None:
            return replace(self, weights=own, is_sent=True)
        codes, index = like(classes, X), None
        if np.any(classes[1:] < classes[:-1]):
            index = xp.argsort(codes, stable=True)
            codes = take(codes, index, axis=0)
            own = None if own is None else take(own, index, axis=0)
            index = xp.astype(index, xp.int32 if X.shape[0] < 1 << 31 else xp.int64, copy=False)
        return replace(self, codes=codes, index=index, weights=own, is_sent=True)

    def counted(self) -> ClassOrder:
        """Return the order without what takes memory for each row."""
        return ClassOrder(self.bounds, self.total, self.sizes)


def count_classes(
    X: Array, classes: IntArray | None, n_classes: int, weights: FloatArray | None
) -> ClassOrder:
    """Return the order of rows X (N, M) by their classes (N,), not sent yet; classes of None mean one."""
    n_rows = X.shape[0]
    if classes is None:
        total = float(n_rows if weights is None else weights.sum())
        return ClassOrder(np.array([0, n_rows]), total, total)
    n_each = np.bincount(classes, minlength=n_classes)
    sizes = n_each if weights is None else np.bincount(classes, weights, minlength=n_classes)
    return ClassOrder(np.concatenate([[0], np.cumsum(n_each)]), float(sizes.sum()), as_float64(sizes, X))


class FramedRows:
    """Rows X (N, M) on a device, ordered by class, in a frame; see `DeviceRows`.

    `precision` is that of the terms and of the products with them. Sums over chunks are always float64.
    """

    def __init__(
        self,
        X: Array,
        order: ClassOrder,
        frame: Frame,
        structure: Structure,
        precision: str = "float64",
        keeps: bool = True,
    ) -> None:
        self.frame, self.structure, self.n_classes = frame, structure, len(order.bounds) - 1
        self.n_rows, self.n_features = X.shape
        self.n_coefficients = self.n_features + structure.n_second(self.n_features)
        self._X, self._xp, self._operations = X, namespace(X), operations_of(X)
        self._bounds, self._total, self._sizes = order.bounds, order.total, order.sizes
        self._index, self._row_weights = order.index, order.weights
        self._codes: Array = order.codes
        if order.codes is not None:
            self._codes = self._xp.astype(order.codes, self._xp.int64, copy=False)
        self._precision = precision
        self._type = self._xp.float64 if precision == "float64" else self._xp.float32
        first, second = structure.pairs(self.n_features)
        # The largest magnitudes of terms (M + S,).
        bounds = np.concatenate([frame.bound, frame.bound[first] * frame.bound[second]])
        self._scale, self._shift, self.bounds = (
            sent_once(array, X) for array in (frame.scale, frame.shift, bounds)
        )
        self._farthest = FARTHEST if frame.bound.max() >= FARTHEST else np.inf
        self._most_rows: int | None = None
        self._pairs = tuple(
            constant(term_features, structure, self.n_features, which, example=X) for which in (0, 1)
        )
        # (start, kernel) of the kernels computed from differences, and of those with moments about their own
        # origin: at least those of the last pass.
        self.delicate: list[tuple[int, int]] = []
        self.recentred: list[tuple[int, int]] = []
        # Terms of all chunks, by their first and last row, if there is memory to keep them between passes.
        self._kept: dict[tuple[int, int], tuple[Array, Array | None]] = {}
        self._kept_rows = 0  # rows of a chunk of them
        self._n_dropped = 0  # how often they were
        n_numbers = self.n_rows * (self.n_coefficients + _PADDING)
        n_bytes = n_numbers * (8 if precision == "float64" else 4)
        self._keeps = keeps and n_bytes <= self._operations.spare_memory()

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes."""
        return tuple(self.delicate), tuple(self.recentred), self._n_dropped

    def collect(
        self, prepared: Prepared, *, moments: bool = True, others: FramedRows | None = None
    ) -> Statistics:
        """Return the statistics of all rows under R starts.

        Other rows for which the same was done before save the host from waiting for the device.
        """

        def work(cuts: list[tuple[int, int]]) -> Statistics:
            with self._operations.precision(self._precision):
                return reduce(Statistics.plus, (self._collect(a, b, prepared, moments) for a, b in cuts))

        total = self._in_chunks(prepared, work, others)
        return replace(total, log_likelihood=total.log_likelihood + self._sizes * prepared.levels[:, None])

    def map_joints(self, prepared: Prepared, function: Callable[[Array, int, int], Array]) -> list[Array]:
        """Apply a function to each chunk's log-joints (R, K, n) and its bounds start, stop."""

        def joints(start: int, stop: int) -> Array:
            values, offsets, _, _ = self._log_joint(start, stop, prepared)
            return values + offsets[..., None]

        return self._in_chunks(prepared, lambda cuts: [function(joints(a, b), a, b) for a, b in cuts])

    def _in_chunks(
        self,
        prepared: Prepared,
        work: Callable[[list[tuple[int, int]]], Result],
        others: FramedRows | None = None,
    ) -> Result:
        """Do work on chunks of rows, in smaller chunks if the device runs out of memory."""
        if others is None:
            self.delicate = self._found(prepared.delicate, self.delicate)
            self.recentred = self._found(prepared.recentred, self.recentred)
        else:
            self.delicate, self.recentred = others.delicate, others.recentred
        n_joint = prepared.coefficients.shape[0] * prepared.coefficients.shape[1]
        while True:
            n_rows = self._chunk(n_joint)
            if n_rows != self._kept_rows:
                self._drop_terms()
                self._kept_rows = n_rows
            try:
                return work([(a, min(a + n_rows, self.n_rows)) for a in range(0, self.n_rows, n_rows)])
            except Exception as error:
                if not self._operations.is_out_of_memory(error) or n_rows <= _FEWEST_ROWS:
                    raise
            if self._keeps:
                self._keeps = False
            else:
                self._most_rows = max(_FEWEST_ROWS, n_rows // 2)
            self._drop_terms()
            self._operations.release()

    def _drop_terms(self) -> None:
        """Free the terms of all chunks; graphs that read them must not be replayed."""
        self._kept.clear()
        self._n_dropped += 1

    def _chunk(self, n_joint: int) -> int:
        """Return the size of a chunk, in rows of `n_joint` joint densities each."""
        # Terms that are kept take no memory of a chunk.
        width = n_joint if self._keeps else self.n_coefficients + _PADDING + n_joint
        most = max(_FEWEST_ROWS, self._operations.chunk // width)
        if self._most_rows is not None:
            most = min(most, self._most_rows)
        if most <= _ROUND:
            return most
        n_chunks = -(-self.n_rows // (most - most % _ROUND))
        return _ROUND * -(-self.n_rows // (n_chunks * _ROUND))

    def _found(self, kernels: BoolArray, known: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return (start, kernel) of kernels (R, K); `known` ones if they are all among these.

        An optimistic pass assumes that they are.
        """
        if any(r >= kernels.shape[0] or k >= kernels.shape[1] for r, k in known):
            known = []
        others: Array = np.ones(kernels.shape, dtype=bool)
        for r, k in known:
            others[r, k] = False
        if not occurs(kernels & sent_once(others, self._X) if known else kernels):
            return known
        return [(int(r), int(k)) for r, k in np.argwhere(to_numpy(kernels))]

    def _terms(self, start: int, stop: int) -> tuple[Array, Array | None]:
        """Return the terms of rows start … stop − 1, and the indicators; see `_log_joint`."""
        if (start, stop) in self._kept:
            return self._kept[start, stop]
        xp = self._xp
        rows = (
            self._X[start:stop, :] if self._index is None else take(self._X, self._index[start:stop], axis=0)
        )
        segments = self.segments(start, stop)
        indicators = None
        if len(segments) > 1:
            numbers = constant(np.arange, segments[0][0], segments[-1][0] + 1, example=self._X)
            indicators = xp.astype(self._codes[None, start:stop] == numbers[:, None], self._type)
        n_terms = self.n_coefficients + (0 if indicators is None else indicators.shape[0])
        terms = self._operations.expand(
            rows, self._scale, self._shift, self._farthest, self._pairs, indicators, self._type,
            -n_terms % _PADDING,
        )  # fmt: skip
        if self._keeps:
            self._kept[start, stop] = terms, indicators
        return terms, indicators

    def _log_joint(
        self, start: int, stop: int, prepared: Prepared
    ) -> tuple[Array, Array, Array, Array | None]:
        """Return the log-joints and expanded terms of rows start … stop − 1.

        Returns
        -------
        values : array of shape (R, K, n)
        offsets : array of shape (R, K)
            Their sum is log π_kj N(x_n; μ_k, P_k), less the start's level.
        terms : array of shape (M + S + C, padded, n)
            The expanded rows: x, second-order terms, indicators of the C classes present, zeros.
        indicators : array of shape (C, n) or None
            The last of these; None when there is one class.
        """
        xp, (n_starts, n_kernels, _) = self._xp, prepared.coefficients.shape
        segments = self.segments(start, stop)
        terms, indicators = self._terms(start, stop)
        values = prepared.coefficients_for(segments[0][0], segments[-1][0], self._type) @ terms
        if indicators is None:
            offsets = prepared.at_origin[..., segments[0][0]]
        else:
            offsets = xp.zeros_like(prepared.at_origin[..., 0])
        if self.delicate:
            index = [r * n_kernels + k for r, k in self.delicate]
            at_mean = self._of(prepared.at_mean, index)
            better = self._from_differences(terms[: self.n_features, :], prepared)
            if indicators is None:
                flat = xp.reshape(offsets, (n_starts * n_kernels,))
                own = xp.astype(at_mean[:, segments[0][0]], flat.dtype, copy=False)
                flat = replaced(flat, sent_once(np.array(index), self._X), own)
                offsets = xp.reshape(flat, offsets.shape)
            else:
                better = better + take(at_mean, self._codes[start:stop], axis=1)
            values = self._operations.put(values, sent_once(np.array(index), self._X), better)
        offsets = xp.astype(offsets, self._type, copy=False)
        return xp.reshape(values, (n_starts, n_kernels, stop - start)), offsets, terms, indicators

    def _from_differences(self, x: Array, prepared: Prepared) -> Array:
        """Return log-densities (q, n), less those at the means, of delicate kernels and rows x (M, n)."""
        n_kernels = prepared.means.shape[1]
        means = self._of(prepared.means, [r * n_kernels + k for r, k in self.delicate])
        whiteners = self.structure.whiteners_of(prepared.factor, self.delicate)
        whiteners = self._xp.astype(whiteners, self._type, copy=False)
        distances = self._operations.distances(x, means, whiteners)
        return -0.5 * clip(distances, 0.0, self._xp.finfo(self._type).max / 1e8)

    def _of(self, array: Array, index: list[int]) -> Array:
        """Return the entries (q, …) of an array (R, K, …) for some kernels, in the rows' precision."""
        flat = self._xp.reshape(array, (array.shape[0] * array.shape[1], *array.shape[2:]))
        return self._xp.astype(pick(flat, index), self._type, copy=False)

    def _collect(self, start: int, stop: int, prepared: Prepared, moments: bool) -> Statistics:
        """Return the statistics of rows start … stop − 1, log-likelihoods less the levels."""
        xp, (n_starts, n_kernels, _) = self._xp, prepared.coefficients.shape
        n_shared, n_features = self.n_coefficients, self.n_features
        values, offsets, terms, indicators = self._log_joint(start, stop, prepared)
        weights, own = None if self._row_weights is None else self._row_weights[start:stop], None
        if weights is not None:
            own = xp.astype(weights, self._type, copy=False)
        responsibilities, log_sums, mass = self._operations.normalise(values, offsets, own)  # (E)
        log_sums = xp.astype(log_sums, xp.float64, copy=False)
        if weights is not None:
            log_sums = log_sums * weights
        if indicators is None:
            log_likelihood = xp.sum(log_sums, axis=1, keepdims=True)
        else:
            log_likelihood = log_sums @ xp.astype(indicators, xp.float64, copy=False).T
        log_likelihood = self._in_all_classes(log_likelihood, start, stop)
        if not moments:
            zeros, mass = xp.zeros_like(prepared.coefficients), xp.zeros_like(prepared.at_mean)
            return Statistics(log_likelihood, mass, zeros[..., :n_features], zeros[..., n_features:n_shared])
        flat = xp.reshape(responsibilities, (n_starts * n_kernels, stop - start))
        # This order of the factors is 10 to 25 % faster on an H200.
        sums = xp.astype((terms @ flat.T).T, xp.float64, copy=False)
        first, second = sums[:, :n_features], sums[:, n_features:n_shared]
        if self.recentred:
            index = [r * n_kernels + k for r, k in self.recentred]
            own_first, own_second = self._about_origins(flat, terms[:n_features, :], prepared, self.recentred)
            places = sent_once(np.array(index), self._X)
            first, second = replaced(first, places, own_first), replaced(second, places, own_second)
        if indicators is None:
            mass = mass[..., None]
        else:
            n_terms = n_shared + indicators.shape[0]
            mass = xp.reshape(sums[:, n_shared:n_terms], (n_starts, n_kernels, n_terms - n_shared))
        mass = self._in_all_classes(mass, start, stop)
        return Statistics(
            log_likelihood,
            mass,
            xp.reshape(first, (n_starts, n_kernels, n_features)),
            xp.reshape(second, (n_starts, n_kernels, n_shared - n_features)),
        )

    def _about_origins(
        self, responsibilities: Array, x: Array, prepared: Prepared, kernels: list[tuple[int, int]]
    ) -> tuple[Array, Array]:
        """Return first (q, M) and second moments (q, S) of q kernels about their own origins."""
        xp, n_kernels = self._xp, prepared.means.shape[1]
        index = [r * n_kernels + k for r, k in kernels]
        origins, shares = self._of(prepared.origins, index), pick(responsibilities, index)
        if not self.structure.triangular:
            sums = self._operations.moments_about(x, origins, shares)
            return tuple(xp.astype(own, xp.float64, copy=False) for own in sums)
        first, second = [], []
        for q in range(len(kernels)):
            difference = x[None, ...] - origins[q : q + 1, :, None]
            weighted = difference * shares[q : q + 1, None, :]
            first.append(xp.sum(weighted, axis=-1))
            second.append(self.structure.pack(self._second_moments(difference, weighted)))
        return tuple(xp.astype(xp.concat(own), xp.float64, copy=False) for own in (first, second))

    def _second_moments(self, difference: Array, weighted: Array) -> Array:
        """Return second moments of rows (q, M, n), summed over pieces.

        One product with a small result would occupy a single multiprocessor; many products occupy all.
        """
        xp, second_moment = self._xp, self.structure.second_moment
        n_kernels, n_features, n_rows = difference.shape
        whole = n_rows - n_rows % _PIECE
        parts = []
        if whole:
            shape = (n_kernels, n_features, whole // _PIECE, _PIECE)
            pieces = [
                xp.permute_dims(xp.reshape(a[..., :whole], shape), (0, 2, 3, 1))
                for a in (difference, weighted)
            ]
            parts.append(xp.sum(second_moment(*pieces), axis=1))
        if whole < n_rows:
            parts.append(
                second_moment(*(xp.matrix_transpose(a[..., whole:]) for a in (difference, weighted)))
            )
        return reduce(add, parts)

    def _in_all_classes(self, sums: Array, start: int, stop: int) -> Array:
        """Return sums (…, C) over the classes of rows start … stop − 1 as sums (…, L) over all classes."""
        segments = self.segments(start, stop)
        before, after = segments[0][0], self.n_classes - 1 - segments[-1][0]
        if not before and not after:
            return sums
        zeros = self._xp.zeros((*sums.shape[:-1], before + after), dtype=sums.dtype, device=sums.device)
        return self._xp.concat([zeros[..., :before], sums, zeros[..., before:]], axis=-1)

    def segments(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Return (class, i, j) for the classes with rows in start … stop − 1, i and j relative to `start`."""
        if len(self._bounds) == 2:
            return [(0, 0, stop - start)]
        first = int(np.searchsorted(self._bounds, start, side="right")) - 1
        last = int(np.searchsorted(self._bounds, stop, side="left"))
        inside = np.clip(self._bounds[first : last + 1], start, stop) - start
        return [(first + c, int(i), int(j)) for c, (i, j) in enumerate(pairwise(inside)) if j > i]
