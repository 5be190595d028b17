"""The E-step of many kernels on a device: kernels that are provably irrelevant to a tile of rows are skipped.

This is the method of `nearby` in few large operations. Rows are sorted by their home kernel, the most likely
one in the pass before, and by their distance from it, and cut into tiles. A row at the distance ρ from its
home kernel a, in the metric of that kernel, is from kernel k at a distance of at least
‖W_k(μ_a − μ_k)‖ − s ρ, where s is the half-width of kernel a in the direction of the steepest ascent of that
distance at μ_a. A pass lists the kernels that may matter to each group of rows with the same home, by the
distances of means and largest widths and then by the bound above, and so pairs of tiles and kernels;
evaluates the pairs; and adds up their moments, sorted by kernel.

Arrays of pairs have a capacity, so that the host need not wait for their number: an optimistic pass assumes
that the number fits. Sums over the pairs of a tile or of a kernel are made in their order: a pass gives
the same bits every time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from ..compute.arrays import Array, device_of, namespace, occurs, operations_of, to_numpy
from ..compute.operations import exponentials
from .relevance import LEAST_MASS, LIGHT, LOG_RISE, LOG_SLOPE, ROUNDING, SKIPPED

# Rows of a tile.
_TILE = 64
# Rows at more than so many times the median distance in their group, plus so many widths, are put together.
_STRETCH, _STEP = 1.4, 3.0
# Skipping is taken to pay if there are no more pairs than this share of all: a guess of how much slower an
# operation is on a pair than in a product with all kernels. Kernels may be looked at closely for this share.
_MOST_PAIRS, _MOST_CANDIDATES = 1 / 16, 1 / 4
# Where it does not pay it is tried again after 1, 2, 4, … passes, up to so many.
_MOST_WAITING = 16
# Log-joints of all pairs that are held, in chunks of a device.
_HELD = 4
# Capacities are this many times the number of pairs, rounded up to a multiple, and four times it at most.
_MARGIN, _ROUND = 1.25, 1024
# Log-weights below this are those of zero.
_LOG_ZERO = -1e29
# Largest squared distance by which rows are sorted.
_FARTHEST = 1e16


@dataclass(frozen=True)
class Rows:
    """Rows on a device."""

    take: Callable[[Array], Array]  # rows (n, M) in the frame, by their numbers (n,)
    n_rows: int
    codes: Array | None  # (N,): classes; None for one
    weights: Array | None  # (N,)
    total: float  # sum of the weights
    precision: str  # of products


@dataclass(frozen=True)
class Kernels:
    """Kernels of one start, and where to take their moments."""

    means: Array  # (K, M)
    whitener: Array  # (K, M, M)
    base: Array  # (K, L): log-joints at the mean; very low where a weight is zero
    origins: Array  # (K, M): of the moments

    @property
    def peak(self) -> Array:
        """Largest log-joints (K,) of all classes."""
        return namespace(self.base).max(self.base, axis=1)


@dataclass(frozen=True)
class _Tiles:
    """T tiles of B rows of K + 1 groups; the last tiles are empty."""

    order: Array  # (N,): rows, tile after tile
    place: Array  # (N,): their places among all T · B
    count: Array  # (K + 1,): tiles of each group
    home: Array  # (T,): home kernel
    filled: Array  # (T, B): which places have a row
    x: Array  # (T, B, M): rows in the frame
    weights: Array  # (T, B): zero at places without a row
    codes: Array | None  # (T, B): classes


@dataclass(frozen=True)
class _Reach:
    """How far the rows of groups are from their home kernels; of no meaning where there is no row."""

    home: Array  # (K + 1,): home kernel
    radius: Array  # (K + 1,): largest distance in its metric
    length: Array  # (K + 1,): largest Euclidean distance from its mean
    level: Array  # (K + 1,): at most the lowest log-joint of a row with it


@dataclass(frozen=True)
class _Pairs:
    """P tiles and kernels that may matter to them, sorted by tile; the last ones are spare."""

    tile: Array  # (P,)
    kernel: Array  # (P,)
    alive: Array  # (P,): False where spare
    of_tiles: Any  # what sums up the pairs of each tile
    fits: Array  # whether there was room for all


class NearbyKernels:
    """Passes over rows that skip kernels, and what they know of the rows from the pass before."""

    def __init__(self) -> None:
        self._home: Array = None  # (N,): kernel of each row; overwritten in every pass
        self._key: Array = None  # (N,): its distance from that kernel; overwritten, too
        self._always: Array = None  # (K,): kernels that are never skipped
        self._n_changes = 0  # of the last one
        self._capacities = [0, 0]  # of candidates and pairs
        self._wait, self._patience = 0, 1  # passes before skipping is tried again, and after a failure

    @property
    def assumed(self) -> tuple[int, ...]:
        """What an optimistic pass assumes: of these numbers nothing while it evaluates all kernels."""
        return () if self._home is None else (self._n_changes, *self._capacities)

    def is_due(self) -> bool:
        """Count a pass; return whether skipping should be tried again in it."""
        if not self._wait:
            return False
        self._wait -= 1
        return not self._wait

    def collect(
        self,
        rows: Rows,
        kernels: Kernels,
        find_homes: Callable[[], tuple[Array, Array]],
        moments: bool = True,
    ) -> tuple[Array, Array, Array, Array] | None:
        """Do the E-step of one start.

        Returns log-likelihood (L,), mass (K, L), first (K, M) and second moments (K, M, M) about the origins;
        None where skipping does not pay. `find_homes` returns the most likely kernel (N,) of each row and its
        log-joint, by evaluating all kernels.
        """
        if self._wait:
            return None
        operations, found, is_short = operations_of(kernels.means), None, False
        try:
            found = self._collect(rows, kernels, find_homes, moments)
        except Exception as error:
            if not operations.is_out_of_memory(error):
                raise
            is_short, self._patience = True, _MOST_WAITING
        if found is None:
            self._home = self._key = None
            self._capacities = [0, 0]
            self._wait, self._patience = self._patience + 1, min(2 * self._patience, _MOST_WAITING)
        if is_short:
            # Not before: the error's traceback holds the arrays.
            operations.release()
        return found

    def _collect(
        self, rows: Rows, kernels: Kernels, find_homes: Callable[[], tuple[Array, Array]], moments: bool
    ) -> tuple[Array, Array, Array, Array] | None:
        n_kernels, peak = kernels.means.shape[0], kernels.peak
        if self._home is None or self._always.shape[0] != n_kernels:
            self._home, highest = find_homes()
            self._key = _distance(peak, self._home, highest)
            self._always = namespace(peak).zeros_like(peak) > 0.0
            self._n_changes += 1
        tiles = _cut(rows, self._home, self._key, n_kernels)
        reach = _measure(tiles, kernels)
        while True:
            pairs = self._list(tiles, reach, kernels)
            if pairs is None:
                return None
            with operations_of(peak).precision(rows.precision):
                found = self._sums(tiles, pairs, kernels, moments)
            if not moments:
                return found
            mass = found[1]
            xp = namespace(mass)
            light = xp.sum(mass, axis=-1) < LIGHT / n_kernels * rows.total
            if not occurs(light & (peak > _LOG_ZERO) & ~self._always):
                break
            self._always = self._always | light
            self._n_changes += 1
        mass = xp.where((mass == 0.0) & (kernels.base > _LOG_ZERO), LEAST_MASS, mass)
        return found[0], mass, *found[2:]

    def _list(self, tiles: _Tiles, reach: _Reach, kernels: Kernels) -> _Pairs | None:
        """Return the pairs that may matter; None if there are too many."""
        xp, operations = namespace(kernels.means), operations_of(kernels.means)
        n_tiles, n_kernels = tiles.home.shape[0], kernels.means.shape[0]
        n_all, held = tiles.order.shape[0] * n_kernels / _TILE, _HELD * operations.chunk // _TILE
        roots = operations.invert_lower(kernels.whitener)
        numbers = _count(_near(tiles, reach, kernels, roots, self._always))
        capacity = self._capacity(0, numbers[-1], min(_MOST_CANDIDATES * n_all, 16 * held))
        if capacity is None:
            return None
        index, alive = _places(numbers, capacity)
        group, kernel = index // n_kernels, index % n_kernels
        matters = alive & _relevant(group, kernel, reach, kernels, roots, self._always)
        index, alive = _places(_count(matters), capacity)
        group = xp.where(alive, _take(group, index), n_kernels + 1)
        kernel = _take(kernel, index)

        # Each tile of a group meets each kernel of its list.
        sizes = _lengths(group, n_kernels + 1)
        ends = xp.cumulative_sum(sizes * tiles.count)
        capacity = self._capacity(1, ends[-1], min(_MOST_PAIRS * n_all, held))
        if capacity is None:
            return None
        turn = _numbers(capacity, ends)
        alive = turn < ends[-1]
        group = _clip(xp.searchsorted(ends, turn, side="right"), None, n_kernels)
        before, size = _take(ends - sizes * tiles.count, group), _take(sizes, group)
        size = _clip(size, 1, None)
        starts, first = (xp.cumulative_sum(each) - each for each in (sizes, tiles.count))
        tile = _take(first, group) + (turn - before) // size
        index = _take(starts, group) + (turn - before) % size
        kernel = _take(kernel, xp.where(alive, index, 0))
        of_tiles = operations.segments(_lengths(xp.where(alive, tile, n_tiles), n_tiles), capacity)
        fits = (numbers[-1] <= self._capacities[0]) & (ends[-1] <= capacity)
        return _Pairs(xp.where(alive, tile, 0), kernel, alive, of_tiles, fits)

    def _capacity(self, which: int, count: Array, most: float) -> int | None:
        """Return the room for a number, which only careful passes read; None if it exceeds `most`."""
        capacity = self._capacities[which]
        if not capacity or occurs((count > capacity) | (4 * count + 4 * _ROUND < capacity)):
            n_places = int(to_numpy(count))
            if n_places > most:
                return None
            capacity = self._capacities[which] = _ROUND * math.ceil((_MARGIN * n_places + 1) / _ROUND)
        return capacity

    def _sums(
        self, tiles: _Tiles, pairs: _Pairs, kernels: Kernels, moments: bool
    ) -> tuple[Array, Array, Array, Array]:
        """Evaluate all pairs; return the sums, and remember the most likely kernels."""
        xp, (n_kernels, n_features) = namespace(kernels.means), kernels.means.shape
        values = _evaluate(tiles, pairs, kernels)
        highest = pairs.of_tiles.max(values)
        above = _take(highest, pairs.tile)
        self._remember(tiles, pairs, kernels, highest, values == above)
        joint = exponentials(values - above)
        total = pairs.of_tiles.sum(joint)
        log_sums = xp.astype(xp.log(total) + highest, xp.float64, copy=False)
        log_sums = xp.where(tiles.filled, log_sums * tiles.weights, 0.0)
        likelihood = _by_class(log_sums, tiles.codes, kernels.base.shape[1])
        if not moments:
            zeros = xp.zeros_like(kernels.whitener)
            return likelihood, xp.zeros_like(kernels.base), zeros[..., 0], zeros
        weights = xp.astype(tiles.weights, values.dtype, copy=False)
        share = xp.where(tiles.filled, weights / total, 0.0)
        responsibilities = joint * _take(share, pairs.tile)
        sums = _moments(tiles, pairs, kernels, responsibilities)
        first, second = sums[:, :n_features], sums[:, n_features : n_features * (n_features + 1)]
        second = xp.reshape(second, (n_kernels, n_features, n_features))
        return likelihood, sums[:, n_features * (n_features + 1) :], first, second

    def _remember(
        self, tiles: _Tiles, pairs: _Pairs, kernels: Kernels, highest: Array, is_best: Array
    ) -> None:
        """Overwrite the homes and keys by those of this pass: what is skipped is never the most likely.

        An optimistic pass without room for all pairs will be repeated from the same homes.
        """
        xp, place = namespace(highest), tiles.place
        number = xp.astype(pairs.kernel, highest.dtype)[:, None]
        best = pairs.of_tiles.max(xp.where(is_best, number, -1.0))
        home = xp.astype(_clip(_take(xp.reshape(best, (-1,)), place), 0.0, None), xp.int64)
        value = xp.astype(_take(xp.reshape(highest, (-1,)), place), xp.float64, copy=False)
        for own, new in ((self._home, home), (self._key, _distance(kernels.peak, home, value))):
            new = xp.where(pairs.fits, new, _take(own, tiles.order))
            operations_of(own).put(own, tiles.order, new)


def _count(condition: Array) -> Array:
    """Return how often a condition (n,) holds up to each place."""
    xp = namespace(condition)
    return xp.cumulative_sum(xp.astype(condition, xp.int64))


def _places(numbers: Array, capacity: int) -> tuple[Array, Array]:
    """Return the places (P,) where a condition holds, from its `_count` (n,), and which are not spare."""
    xp, turn = namespace(numbers), 1 + _numbers(capacity, numbers)
    alive = turn <= numbers[-1]
    return xp.where(alive, xp.searchsorted(numbers, turn), 0), alive


def _numbers(n: int, example: Array) -> Array:
    """Return the numbers 0 … n − 1 on the example's device."""
    return namespace(example).arange(n, device=device_of(example))


def _distance(peak: Array, home: Array, value: Array) -> Array:
    """Return about how far rows (n,) of a log-joint are from their home kernels (n,)."""
    xp = namespace(peak)
    square = 2.0 * (_take(peak, home) - value)
    # Rows are sorted by it: it must be a number.
    return xp.sqrt(xp.where(square < _FARTHEST, _clip(square, 0.0, None), _FARTHEST))


def _take(array: Array, index: Array) -> Array:
    """Return the entries of an array (n, …) at places (q,) of it."""
    return operations_of(array).take(array, index)


def _clip(values: Array, lowest: float | None, highest: float | None) -> Array:
    """Return values between two numbers; NaN stays."""
    return operations_of(values).clip(values, lowest, highest)


def _chunks(n: int, width: int, chunk: int) -> list[tuple[int, int]]:
    """Cut n items of `width` numbers each into chunks."""
    step = max(1, chunk // width)
    return [(a, min(a + step, n)) for a in range(0, n, step)]


def _lengths(sorted_numbers: Array, n_segments: int) -> Array:
    """Return how often each of the numbers 0 … n_segments − 1 occurs in a sorted array (n,)."""
    xp = namespace(sorted_numbers)
    bounds = xp.searchsorted(sorted_numbers, _numbers(n_segments + 1, sorted_numbers))
    return bounds[1:] - bounds[:-1]


def _indicators(codes: Array, n_classes: int, dtype: Any) -> Array:
    """Return which class rows (…) are of, (…, L)."""
    return namespace(codes).astype(codes[..., None] == _numbers(n_classes, codes), dtype)


def _by_class(values: Array, codes: Array | None, n_classes: int) -> Array:
    """Return the sums (L,) of values (T, B) of rows of each class."""
    xp = namespace(values)
    if codes is None:
        return xp.sum(values)[None]
    values, codes = xp.reshape(values, (-1,)), xp.reshape(codes, (-1,))
    cuts = _chunks(values.shape[0], n_classes, operations_of(values).chunk)
    return reduce(add, (values[a:b] @ _indicators(codes[a:b], n_classes, values.dtype) for a, b in cuts))


def _cut(rows: Rows, home: Array, key: Array, n_kernels: int) -> _Tiles:
    """Sort rows by home and key, and cut each group into tiles; rows far from their homes are the last group.

    That group has the home of the one before: its tiles will meet almost all kernels.
    """
    xp, operations, n_rows, device = namespace(key), operations_of(key), rows.n_rows, device_of(key)
    # Each group ends with a tile that is not full.
    n_tiles = n_rows // _TILE + n_kernels + 1
    order = xp.argsort(xp.astype(home, xp.float64) + key / (1.0 + key), stable=True)
    group, key = _take(home, order), _take(key, order)
    sizes = _lengths(group, n_kernels)
    middle = _clip(xp.cumulative_sum(sizes) - (sizes + 1) // 2, None, n_rows - 1)
    farthest = _STRETCH * _take(key, middle) + _STEP
    group = xp.where(key > _take(farthest, group), n_kernels, group)
    again = xp.argsort(group, stable=True)
    order, group = _take(order, again), _take(group, again)
    sizes = _lengths(group, n_kernels + 1)
    tiles = (sizes + _TILE - 1) // _TILE
    ends = xp.cumulative_sum(tiles)
    # From a row's place in the order to that in the tiles: earlier groups are padded.
    padding = (ends - tiles) * _TILE - (xp.cumulative_sum(sizes) - sizes)
    place = _numbers(n_rows, key) + _take(padding, group)
    index = operations.put(xp.zeros(n_tiles * _TILE, dtype=xp.int64, device=device), place, order)
    weights = xp.ones_like(key) if rows.weights is None else _take(rows.weights, order)
    weights = operations.put(xp.zeros(n_tiles * _TILE, dtype=xp.float64, device=device), place, weights)
    filled = operations.put(weights < 0.0, place, xp.ones_like(key) > 0.0)
    return _Tiles(
        order,
        place,
        tiles,
        _clip(xp.searchsorted(ends, _numbers(n_tiles, key), side="right"), None, n_kernels - 1),
        xp.reshape(filled, (n_tiles, _TILE)),
        xp.reshape(rows.take(index), (n_tiles, _TILE, -1)),
        xp.reshape(weights, (n_tiles, _TILE)),
        None if rows.codes is None else xp.reshape(_take(rows.codes, index), (n_tiles, _TILE)),
    )


def _base(kernels: Kernels, kernel: Array, codes: Array | None) -> Array:
    """Return log-joints at the means of kernels (n,) for rows of classes (n, B): (n, B) or (n, 1)."""
    xp, n_classes = namespace(kernel), kernels.base.shape[1]
    if codes is None:
        return _take(kernels.base, kernel)
    index = kernel[:, None] * n_classes + codes
    return xp.reshape(_take(xp.reshape(kernels.base, (-1,)), xp.reshape(index, (-1,))), index.shape)


def _measure(tiles: _Tiles, kernels: Kernels) -> _Reach:
    """Measure how far the rows of groups are from their home kernels."""
    xp, operations, parts = namespace(tiles.home), operations_of(tiles.home), []
    n_kernels, n_features = kernels.means.shape
    for a, b in _chunks(tiles.home.shape[0], 3 * _TILE * n_features, operations.chunk):
        home, filled = tiles.home[a:b], tiles.filled[a:b, :]
        ahead = xp.astype(tiles.x[a:b, ...], xp.float64, copy=False)
        ahead = ahead - _take(kernels.means, home)[:, None, :]
        white = ahead @ xp.matrix_transpose(_take(kernels.whitener, home))
        squares, lengths = (xp.sum(each * each, axis=-1) for each in (white, ahead))
        base = _base(kernels, home, None if tiles.codes is None else tiles.codes[a:b, :])
        each = xp.stack([squares, lengths, 0.5 * squares - base], axis=-1)
        parts.append(xp.max(xp.where(filled[..., None], each, -math.inf), axis=1))
    largest = operations.segments(tiles.count, tiles.home.shape[0]).max(xp.concat(parts))
    square, length, depth = largest[:, 0], largest[:, 1], largest[:, 2]
    return _Reach(
        _clip(_numbers(n_kernels + 1, square), None, n_kernels - 1),
        xp.sqrt(square),
        (1.0 + ROUNDING) * xp.sqrt(length),
        -depth - ROUNDING * (square + xp.abs(depth)),
    )


def _relevant_distance(peak: Array, level: Array, n_kernels: int) -> Array:
    """Return the distance beyond which kernels of a peak are irrelevant to rows of log-joints ≥ level."""
    xp, limit = namespace(peak), math.log(SKIPPED / n_kernels)
    square = (peak + (LOG_RISE - limit) - level) * (1.0 / (0.5 - LOG_SLOPE - ROUNDING))
    return xp.sqrt(_clip(square, 0.0, None))


def _near(tiles: _Tiles, reach: _Reach, kernels: Kernels, roots: Array, always: Array) -> Array:
    """Return which kernels may matter to groups, ((K + 1) · K,), by distances of means and largest widths."""
    xp, (n_kernels, n_features), means = namespace(roots), kernels.means.shape, kernels.means
    squares, widest, peak, parts = xp.sum(means**2, axis=1), _largest_width(roots), kernels.peak, []
    for a, b in _chunks(n_kernels + 1, 4 * n_kernels, operations_of(roots).chunk):
        home = reach.home[a:b]
        gaps = _take(squares, home)[:, None] + squares
        # Less the rounding of a product of M features, with a margin.
        gaps = gaps * (1.0 - 4e-16 * (n_features + 8)) - 2.0 * (_take(means, home) @ means.T)
        needed = _relevant_distance(peak, reach.level[a:b, None], n_kernels) * widest
        # Numbers that are not comparable are not far.
        far = xp.sqrt(_clip(gaps, 0.0, None)) > needed + reach.length[a:b, None]
        parts.append(xp.reshape((always | ~far) & (tiles.count[a:b, None] > 0), (-1,)))
    return xp.concat(parts)


def _largest_width(roots: Array) -> Array:
    """Return upper bounds (K,) of the largest singular values of matrices (K, M, M)."""
    xp = namespace(roots)
    trace = xp.sum(roots * roots, axis=(-2, -1))
    power = (roots @ xp.matrix_transpose(roots)) / trace[:, None, None]
    # The largest eigenvalue of P / tr P is at most the norm of its fourth power, to the power of 1/4.
    power = power @ power
    power = power @ power
    largest = xp.max(xp.sum(xp.abs(power), axis=-1), axis=-1)
    return (1.0 + ROUNDING) * xp.sqrt(trace * largest**0.25)


def _relevant(
    group: Array, kernel: Array, reach: _Reach, kernels: Kernels, roots: Array, always: Array
) -> Array:
    """Return which kernels (P,) may matter to groups (P,), by the half-widths of the home kernels."""
    xp, (n_kernels, n_features) = namespace(roots), kernels.means.shape
    steep, wide = (xp.sqrt(xp.sum(m * m, axis=(-2, -1))) for m in (kernels.whitener, roots))
    peak, parts = kernels.peak, []
    for a, b in _chunks(group.shape[0], 4 * n_features**2, operations_of(roots).chunk):
        own, k = group[a:b], kernel[a:b]
        home = _take(reach.home, own)
        ahead = _take(kernels.means, home) - _take(kernels.means, k)
        whitener = _take(kernels.whitener, k)
        white = whitener @ ahead[..., None]
        ascent = xp.matrix_transpose(white) @ whitener @ _take(roots, home)
        distance = xp.sqrt(xp.sum(white * white, axis=(-2, -1)))
        width = xp.sqrt(xp.sum(ascent * ascent, axis=(-2, -1))) / distance
        own_steep, own_wide = _take(steep, k), _take(wide, home)
        width = width + ROUNDING * own_steep * own_wide
        width = width * (1.0 + ROUNDING * _take(steep, home) * own_wide)
        distance = distance - ROUNDING * own_steep * xp.sqrt(xp.sum(ahead * ahead, axis=-1))
        level, radius = _take(reach.level, own), _take(reach.radius, own)
        far = distance - width * radius > _relevant_distance(_take(peak, k), level, n_kernels)
        parts.append(_take(always, k) | (k == home) | ~far)
    return xp.concat(parts)


def _evaluate(tiles: _Tiles, pairs: _Pairs, kernels: Kernels) -> Array:
    """Return the log-joints (P, B) of all pairs."""
    xp, dtype, parts = namespace(tiles.x), tiles.x.dtype, []
    means, whitener = (xp.astype(each, dtype, copy=False) for each in (kernels.means, kernels.whitener))
    width = 3 * _TILE * means.shape[1]
    for a, b in _chunks(pairs.tile.shape[0], width, operations_of(tiles.x).chunk):
        tile, kernel = pairs.tile[a:b], pairs.kernel[a:b]
        ahead = _take(tiles.x, tile) - _take(means, kernel)[:, None, :]
        white = ahead @ xp.matrix_transpose(_take(whitener, kernel))
        codes = None if tiles.codes is None else _take(tiles.codes, tile)
        base = xp.astype(_base(kernels, kernel, codes), dtype, copy=False)
        parts.append(base - 0.5 * xp.sum(white * white, axis=-1))
    return xp.concat(parts)


def _moments(tiles: _Tiles, pairs: _Pairs, kernels: Kernels, responsibilities: Array) -> Array:
    """Return sums (K, M + M² + L) of rows about the origins, of their products, and of responsibilities."""
    operations, dtype = operations_of(tiles.x), tiles.x.dtype
    xp, (n_kernels, n_features), n_classes = namespace(tiles.x), kernels.means.shape, kernels.base.shape[1]
    numbers = xp.where(pairs.alive, pairs.kernel, n_kernels)
    order = xp.argsort(numbers, stable=True)
    numbers = _take(numbers, order)
    origins, total = xp.astype(kernels.origins, dtype, copy=False), 0.0
    width = _TILE * (3 * n_features + n_classes) + 2 * n_features**2
    for a, b in _chunks(order.shape[0], width, operations.chunk):
        own = order[a:b]
        tile, kernel = _take(pairs.tile, own), _take(pairs.kernel, own)
        shares = _take(responsibilities, own)
        ahead = _take(tiles.x, tile) - _take(origins, kernel)[:, None, :]
        weighted = ahead * shares[..., None]
        if tiles.codes is None:
            mass = xp.sum(shares, axis=1)[:, None]
        else:
            indicators = _indicators(_take(tiles.codes, tile), n_classes, dtype)
            mass = (shares[:, None, :] @ indicators)[:, 0, :]
        second = xp.reshape(xp.matrix_transpose(weighted) @ ahead, (-1, n_features**2))
        sums = xp.astype(xp.concat([xp.sum(weighted, axis=1), second, mass], axis=1), xp.float64, copy=False)
        total += operations.segments(_lengths(numbers[a:b], n_kernels), b - a).sum(sums)
    return total
