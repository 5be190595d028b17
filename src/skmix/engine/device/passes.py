"""The E-step of complete rows on a device, in large chunks of PyTorch tensors.

A Gaussian log-density is linear in x, in the products of its features and in 1; the log-weight of a class is
linear in the indicator of that class. Rows expanded into these terms need one product with the coefficients
of all kernels of all starts to give their log-joint densities, and one with the responsibilities to give all
statistics: equation (E) of ``docs/notation.md``. Terms cancel where a kernel is narrow and far from the
origin: such kernels are delicate and computed from differences, in float64. The control flow of a pass does
not depend on the values of the rows, so the host need not wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..estep.terms import expand_densities
from ..kernels import GAUSSIAN
from ..numbers import (
    LARGEST_CANCELLATION,
    LOG_ZERO,
    Array,
    as_float64,
    clip,
    constant,
    like,
    log_mix,
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
from ..records import (
    FARTHEST,
    MODEL_RANGE,
    BoolArray,
    Factor,
    FloatArray,
    Frame,
    IntArray,
    Parameters,
    Statistics,
    frame_of,
)
from ..structures import Structure

Done = TypeVar("Done")
# What an optimistic pass assumes: (start, kernel) of the kernels computed from differences, and of those with
# moments about their own origin; how often terms that a captured pass may read were dropped.
Assumed = tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...], int]

# Smallest chunk, in rows: if it does not fit in the device's memory, give up.
_SMALLEST_CHUNK = 64
# Chunks are a multiple of this many rows, for well-shaped matrix products.
_ROUND = 256
# Rows of one product of second moments.
_PIECE = 1024
# Rows whose distances from a model are computed at a time.
_SCANNED = 1 << 20
# Terms are padded to a multiple of this, so that matrix products can load whole vectors.
_PADDING = 8
# Share of the cancellation that would lose digits above which moments are about the mean.
_NEARLY_LOST = 0.25


def refuse(what: str) -> NoReturn:
    """Raise the error of a model or of rows for which devices have no passes."""
    raise ValueError(f"Passes on a device do not cover {what}: give X as a NumPy array and leave device out.")


@dataclass(frozen=True)
class Expanded:
    """Parameters of R starts, expanded into coefficients of the rows' terms."""

    coefficients: Array  # (R, K, M + S): of x and of the second-order terms in log N(x; μ_k, P_k)
    at_origin: Array  # (R, K, L): log π_kj N(x; μ_k, P_k) at the origin, less the level
    at_mean: Array  # (R, K, L): the same at the mean
    # (R,): log-density of the start's highest peak, subtracted from all so that no exponential overflows
    levels: Array
    means: Array  # (R, K, M)
    factor: Factor  # whiteners of the covariances
    # (R, K): kernels whose expanded log-density would cancel too many digits: computed from differences
    delicate: Array
    recentred: Array  # (R, K): kernels whose moments are taken about `origins` rather than about zero
    origins: Array  # (R, K, M): the origins of the moments, zero where not recentred

    def coefficients_for(self, first: int, last: int, dtype: Any) -> Array:
        """Return the coefficients (R · K, M + S + C, padded) of terms with the indicators of C classes.

        With one class there are no indicators.
        """
        parts = [self.coefficients]
        if last > first:
            parts.append(self.at_origin[..., first : last + 1])
        padding = -sum(part.shape[-1] for part in parts) % _PADDING
        parts.append(self.means.new_zeros((*self.means.shape[:2], padding)))
        joined = namespace(self.means).concat(parts, axis=-1)
        return joined.reshape(-1, joined.shape[-1]).to(dtype)


def expand(
    parameters: Parameters,
    structure: Structure,
    bounds: FloatArray,
    factor: Factor | None = None,
    centres: tuple[Array, Array] | None = None,
    precision: str = "float64",
) -> Expanded:
    """Expand the parameters of R starts in the frame, for terms of magnitudes up to `bounds` (M + S,).

    `centres` are the kernels (R, K) whose moments have origins (R, K, M) of their own. `precision` is
    that of the terms and of the products with them.
    """
    if parameters.tail.weighted:
        refuse("t kernels")
    means = parameters.means
    xp, n_features = namespace(means), means.shape[-1]
    if factor is None:
        factor = structure.factor(parameters.covariances, n_features)
    coefficients, at_zero, delicate = expand_densities(means, factor, structure, bounds)
    constants = xp.broadcast_to(GAUSSIAN.log_peaks(factor.log_determinant, n_features), at_zero.shape)
    levels = xp.max(constants, axis=1)
    largest = _NEARLY_LOST * LARGEST_CANCELLATION[precision]
    # Terms of a covariance cancel by μ² / P; those along its narrowest direction, by μ² P⁻¹.
    far = xp.any(means**2 / largest > 1.0 / structure.precisions(factor), axis=-1)
    if precision != "float64":
        # Rounding errors of the terms of the kernel's own rows are independent, so their squares add.
        rounded = _square_terms(parameters, coefficients, structure) > largest**2
        far, delicate = far | rounded, delicate | rounded
    at_mean = clip(xp.log(parameters.weights), LOG_ZERO, np.inf) + (constants - levels[:, None])[..., None]
    at_origin, origins = at_mean + at_zero[..., None], where(far[..., None], means, 0.0)
    if centres is not None:
        far, origins = far | centres[0], xp.where(centres[0][..., None], centres[1], origins)
    return Expanded(coefficients, at_origin, at_mean, levels, means, factor, delicate, far, origins)


def _square_terms(parameters: Parameters, coefficients: Array, structure: Structure) -> Array:
    """Return the sums of squares (R, K) of the terms in the log-density of a typical row of each kernel."""
    squares = parameters.means**2 + structure.variances(parameters.covariances)
    xp, pairs = namespace(squares), constant(_pairs, structure, squares.shape[-1], example=squares)
    products = take(squares, pairs[0], axis=-1) * take(squares, pairs[1], axis=-1)
    return xp.sum(coefficients**2 * xp.concat([squares, products], axis=-1), axis=-1)


def _pairs(structure: Structure, n_features: int) -> IntArray:
    """Return the two features of each second-order term, (2, S)."""
    return np.stack(structure.pairs(n_features))


@dataclass(frozen=True)
class ClassOrder:
    """Rows in the order of their classes."""

    bounds: IntArray  # (L + 1,): where each class begins and ends among ordered rows
    sizes: Any  # (L,): weight of each class, on the device; a number for one class
    # On the device, of ordered rows:
    codes: Array | None = None  # (N,): classes; None for one
    index: Array | None = None  # (N,): indices of the rows; None for rows that are in order as they are
    weights: Array | None = None  # (N,): None when all are one


def order_by_class(
    X: Array, classes: IntArray | None, n_classes: int, weights: FloatArray | None
) -> ClassOrder:
    """Return the order of rows X (N, M) by their classes (N,); classes of None mean one.

    Rows are sorted on the device: the host would take longer than to copy them.
    """
    own = None if weights is None else as_float64(weights, X)
    if classes is None:
        total = float(X.shape[0] if weights is None else weights.sum())
        return ClassOrder(np.array([0, X.shape[0]]), total, weights=own)
    n_each = np.bincount(classes, minlength=n_classes)
    sizes = n_each if weights is None else np.bincount(classes, weights, minlength=n_classes)
    codes, index = like(classes, X), None
    if np.any(classes[1:] < classes[:-1]):
        index = namespace(X).argsort(codes, stable=True)
        codes = take(codes, index, axis=0)
        own = None if own is None else take(own, index, axis=0)
    bounds = np.concatenate([[0], np.cumsum(n_each)])
    return ClassOrder(bounds, as_float64(sizes, X), codes.long(), index, own)


class FramedRows:
    """Rows X (N, M) on a device, ordered by class, in a frame.

    `precision` is that of the terms and of the products with them. Sums over chunks are always float64.
    `keeps` is whether terms are kept between passes if there is memory for them.
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
        self._X, self._order, self._operations, xp = X, order, operations_of(X), namespace(X)
        self._precision = precision
        self._type = xp.float64 if precision == "float64" else xp.float32
        first, second = structure.pairs(self.n_features)
        # The largest magnitudes of terms (M + S,).
        bounds = np.concatenate([frame.bound, frame.bound[first] * frame.bound[second]])
        self._scale, self._shift, self.bounds = (
            sent_once(array, X) for array in (frame.scale, frame.shift, bounds)
        )
        self._pairs = sent_once(first, X), sent_once(second, X)
        self._most_rows: int | None = None
        # (start, kernel) of the kernels computed from differences, and of those with moments about their own
        # origin: at least those of the last pass.
        self.delicate: list[tuple[int, int]] = []
        self.recentred: list[tuple[int, int]] = []
        # Terms of all chunks, by their first and last row, if there is memory to keep them between passes.
        self._kept: dict[tuple[int, int], tuple[Array, Array | None]] = {}
        self._kept_rows = 0  # rows of a chunk whose terms are kept
        self._n_dropped = 0  # how often kept terms were dropped
        n_bytes = self.n_rows * (self.n_coefficients + _PADDING) * (8 if precision == "float64" else 4)
        self._keeps = keeps and n_bytes <= self._operations.spare_memory()

    @property
    def assumed(self) -> Assumed:
        """What an optimistic pass assumes."""
        return tuple(self.delicate), tuple(self.recentred), self._n_dropped

    def collect(
        self, expanded: Expanded, *, with_moments: bool = True, others: FramedRows | None = None
    ) -> Statistics:
        """Return the statistics of all rows under R starts.

        With `others`, rows that were collected under the same starts, the host need not wait for the device.
        """

        def work(cuts: list[tuple[int, int]]) -> Statistics:
            with self._operations.precision(self._precision):
                return reduce(Statistics.plus, (self._collect(a, b, expanded, with_moments) for a, b in cuts))

        total = self._in_chunks(expanded, work, others)
        levels = self._order.sizes * expanded.levels[:, None]
        return replace(total, log_likelihood=total.log_likelihood + levels)

    def map_joints(self, expanded: Expanded, function: Callable[[Array], Array]) -> list[Array]:
        """Apply a function to the log-joints (R, K, n) of each chunk, less the starts' levels."""

        def joints(start: int, stop: int) -> Array:
            values, offsets, _, _ = self._log_joint(start, stop, expanded)
            return values + offsets[..., None]

        return self._in_chunks(expanded, lambda cuts: [function(joints(a, b)) for a, b in cuts])

    def _in_chunks(
        self,
        expanded: Expanded,
        work: Callable[[list[tuple[int, int]]], Done],
        others: FramedRows | None = None,
    ) -> Done:
        """Do work on chunks of rows, in smaller chunks if the device runs out of memory."""
        if others is None:
            self.delicate = self._found(expanded.delicate, self.delicate)
            self.recentred = self._found(expanded.recentred, self.recentred)
        else:
            self.delicate, self.recentred = others.delicate, others.recentred
        n_joint = expanded.coefficients.shape[0] * expanded.coefficients.shape[1]
        while True:
            n_rows = self._chunk(n_joint)
            if n_rows != self._kept_rows:
                self._drop_terms()
                self._kept_rows = n_rows
            try:
                return work([(a, min(a + n_rows, self.n_rows)) for a in range(0, self.n_rows, n_rows)])
            except Exception as error:
                if not self._operations.is_out_of_memory(error) or n_rows <= _SMALLEST_CHUNK:
                    raise
            if self._keeps:
                self._keeps = False
            else:
                self._most_rows = max(_SMALLEST_CHUNK, n_rows // 2)
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
        most = max(_SMALLEST_CHUNK, self._operations.chunk // width)
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
        order, n_features, n_shared = self._order, self.n_features, self.n_coefficients
        first, last = self._classes(start, stop)
        indicators, n_terms = None, n_shared
        if last > first and order.codes is not None:
            indices = constant(np.arange, first, last + 1, example=self._X)
            indicators = (order.codes[None, start:stop] == indices[:, None]).to(self._type)
            n_terms += len(indicators)
        terms = self._X.new_empty((n_terms + -n_terms % _PADDING, stop - start), dtype=self._type)
        x, products = terms[:n_features], terms[n_features:n_shared]
        x.copy_(self._enter(start, stop))
        products.copy_(take(x, self._pairs[0], axis=0)).mul_(take(x, self._pairs[1], axis=0))
        if indicators is not None:
            terms[n_shared:n_terms] = indicators
        terms[n_terms:] = 0.0
        if self._keeps:
            self._kept[start, stop] = terms, indicators
        return terms, indicators

    def _enter(self, start: int, stop: int) -> Array:
        """Return rows start … stop − 1 in the frame, feature by feature (M, n), in float64."""
        index = self._order.index
        rows = self._X[start:stop] if index is None else take(self._X, index[start:stop], axis=0)
        x = (rows.to(self._scale.dtype) * (1.0 / self._scale) - self._shift).T
        return x.clamp_(-FARTHEST, FARTHEST) if self.frame.bound.max() >= FARTHEST else x

    def _exact(self, start: int, stop: int, terms: Array) -> Array:
        """Return rows start … stop − 1 in the frame (M, n), in float64; their terms may have rounded them."""
        return terms[: self.n_features] if terms.dtype == self._scale.dtype else self._enter(start, stop)

    def _log_joint(
        self, start: int, stop: int, expanded: Expanded
    ) -> tuple[Array, Array, Array, Array | None]:
        """Return the log-joints, in two parts, and expanded terms of rows start … stop − 1.

        Values (R, K, n) and offsets (R, K) sum to log π_kj N(x_n; μ_k, P_k), less the start's level. Terms
        (M + S + C, padded, n) are x, second-order terms, indicators of the C classes present, and zeros. The
        indicators (C, n) are returned too; None when there is one class.
        """
        n_starts, n_kernels, _ = expanded.coefficients.shape
        first, last = self._classes(start, stop)
        terms, indicators = self._terms(start, stop)
        values = expanded.coefficients_for(first, last, self._type) @ terms
        offsets = expanded.at_origin[..., first]
        if indicators is not None:
            offsets = namespace(offsets).zeros_like(offsets)
        if self.delicate:
            places = self._places(self.delicate, n_kernels)
            at_mean = take(expanded.at_mean.reshape(-1, self.n_classes), places, axis=0)
            better = self._from_differences(self._exact(start, stop, terms), expanded).to(self._type)
            if indicators is None:
                offsets = replaced(offsets.reshape(-1), places, at_mean[:, first])
                offsets = offsets.reshape(n_starts, n_kernels)
            else:
                codes = self._order.codes[start:stop]  # type: ignore[index]
                better = better + take(at_mean.to(self._type), codes, axis=1)
            values = values.index_copy_(0, places, better)
        return values.reshape(n_starts, n_kernels, -1), offsets.to(self._type), terms, indicators

    def _places(self, kernels: list[tuple[int, int]], n_kernels: int) -> Array:
        """Return the places (q,) of some kernels among those of all starts, on the device."""
        return sent_once(np.array([r * n_kernels + k for r, k in kernels]), self._X)

    def _from_differences(self, x: Array, expanded: Expanded) -> Array:
        """Return log-densities (q, n), less those at the means, of delicate kernels and rows x (M, n).

        They are float64, as the rows are.
        """
        n_kernels, n_features = expanded.means.shape[1:]
        places = self._places(self.delicate, n_kernels)
        means = take(expanded.means.reshape(-1, n_features), places, axis=0)
        whiteners = expanded.factor.whitener
        shared = whiteners.shape[1] < n_kernels  # by all kernels of a start
        kernels = [(r, 0) for r, _ in self.delicate] if shared else self.delicate
        own_places = self._places(kernels, whiteners.shape[1])
        whiteners = take(whiteners.reshape(-1, *whiteners.shape[2:]), own_places, axis=0)
        parts, most = [], max(1, self._operations.chunk // (x.shape[0] * x.shape[1]))
        for a in range(0, len(means), most):
            difference, own = x - means[a : a + most, :, None], whiteners[a : a + most]
            white = self.structure.whiten(own, difference)
            parts.append((white * white).sum(1))
        xp = namespace(x)
        return -0.5 * clip(xp.concat(parts), 0.0, xp.finfo(self._type).max / 1e8)

    def _collect(self, start: int, stop: int, expanded: Expanded, with_moments: bool) -> Statistics:
        """Return the statistics of rows start … stop − 1, log-likelihoods less the levels."""
        xp, (n_starts, n_kernels, _) = namespace(self._X), expanded.coefficients.shape
        n_shared, n_features = self.n_coefficients, self.n_features
        values, offsets, terms, indicators = self._log_joint(start, stop, expanded)
        weights = None if self._order.weights is None else self._order.weights[start:stop]
        own = None if weights is None else weights.to(self._type)
        responsibilities, log_sums, mass = self._operations.normalise(values, offsets, own)  # (E)
        log_sums = log_sums.double() if weights is None else log_sums.double() * weights
        if indicators is None:
            log_likelihood = xp.sum(log_sums, axis=1, keepdims=True)
        else:
            log_likelihood = log_sums @ indicators.double().T
        log_likelihood = self._in_all_classes(log_likelihood, start, stop)
        if not with_moments:
            zeros, mass = xp.zeros_like(expanded.coefficients), xp.zeros_like(expanded.at_mean)
            return Statistics(log_likelihood, mass, zeros[..., :n_features], zeros[..., n_features:])
        flat = responsibilities.reshape(n_starts * n_kernels, stop - start)
        # This order of the factors is 10 to 25 % faster on an H200.
        sums = (terms @ flat.T).T.double()
        first, second = sums[:, :n_features], sums[:, n_features:n_shared]
        if self.recentred:
            places = self._places(self.recentred, n_kernels)
            origins = take(expanded.origins.reshape(-1, n_features), places, axis=0)
            shares = take(flat, places, axis=0).to(origins.dtype)
            better = self._about_origins(self._exact(start, stop, terms), origins, shares)
            first, second = replaced(first, places, better[0]), replaced(second, places, better[1])
        if indicators is None:
            mass = mass[..., None]
        else:
            mass = sums[:, n_shared : n_shared + len(indicators)].reshape(n_starts, n_kernels, -1)
        return Statistics(
            log_likelihood,
            self._in_all_classes(mass, start, stop),
            first.reshape(n_starts, n_kernels, -1),
            second.reshape(n_starts, n_kernels, -1),
        )

    def _about_origins(self, x: Array, origins: Array, shares: Array) -> tuple[Array, Array]:
        """Return first (q, M) and second moments (q, S) of rows x (M, n) with shares (q, n) about origins."""
        first, second, structure, xp = [], [], self.structure, namespace(x)
        whole = x.shape[1] - x.shape[1] % _PIECE
        for origin, share in zip(origins, shares, strict=True):
            difference = (x - origin[:, None])[None]
            weighted = difference * share
            first.append(weighted.sum(-1))
            # In pieces: one product with a small result would occupy a single multiprocessor.
            both, shape = (difference, weighted), (1, len(x), -1, _PIECE)
            pieces = [a[..., :whole].reshape(shape).permute(0, 2, 3, 1) for a in both]
            rest = [a[..., whole:].mT for a in both]
            parts = [structure.second_moment(*pieces).sum(1)] if whole else []
            parts += [structure.second_moment(*rest)] if whole < x.shape[1] else []
            second.append(structure.pack(reduce(add, parts)))
        return xp.concat(first), xp.concat(second)

    def _in_all_classes(self, sums: Array, start: int, stop: int) -> Array:
        """Return sums (…, C) over the classes of rows start … stop − 1 as sums (…, L) over all classes."""
        first, last = self._classes(start, stop)
        before, after = first, self.n_classes - 1 - last
        if not before and not after:
            return sums
        zeros = sums.new_zeros((*sums.shape[:-1], before + after))
        return namespace(sums).concat([zeros[..., :before], sums, zeros[..., before:]], axis=-1)

    def _classes(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first and the last class with rows in start … stop − 1."""
        first, last = np.searchsorted(self._order.bounds, [start, stop - 1], side="right") - 1
        return int(first), int(last)


def log_densities(
    X: Array, parameters: Parameters, structure: Structure, weights: FloatArray | None = None
) -> Array:
    """Return the kernels' log-densities (N, K) of complete rows X (N, M), or of mixtures with weights (K, L).

    Parameters are those of one model, in the coordinates of the rows.
    """
    xp, n_features = namespace(X), X.shape[1]
    frame = frame_of(parameters, structure)
    unweighted = replace(parameters.batch(), weights=np.ones((1, len(parameters.means), 1)))
    inside = frame.enter(unweighted, structure).map(lambda array: as_float64(array, X))
    scale, shift = as_float64(frame.scale, X), as_float64(frame.shift, X)
    cuts = [slice(a, a + _SCANNED) for a in range(0, len(X), _SCANNED)]
    parts = [xp.all(xp.abs(X[cut] / scale - shift) <= MODEL_RANGE, axis=1) for cut in cuts]
    is_near = np.concatenate([to_numpy(part) for part in parts])
    results, indices = [], []
    # Rows near the model are evaluated from expanded terms, whatever the others are.
    for index, bound in ((np.flatnonzero(is_near), MODEL_RANGE), (np.flatnonzero(~is_near), FARTHEST)):
        if not len(index):
            continue
        some = X if len(index) == len(X) else pick(X, index)
        framed = replace(frame, bound=np.full(n_features, bound))
        rows = FramedRows(some, order_by_class(some, None, 1, None), framed, structure)
        expanded = expand(inside, structure, rows.bounds)
        level = float(to_numpy(expanded.levels)[0]) - frame.log_volume()

        def reduced(values: Array, level: float = level) -> Array:
            own = values[0] + level
            return own.T if weights is None else log_mix(own, weights).T

        results += rows.map_joints(expanded, reduced)
        indices.append(index)
    found = xp.concat(results)
    return found if len(indices) == 1 else pick(found, np.argsort(np.concatenate(indices)))
