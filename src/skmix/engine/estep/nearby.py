"""The E-step of many kernels: kernels that are provably irrelevant to a tile of rows are skipped.

Rows are sorted by a home kernel, the most likely one when they were last sorted, and the rows of a home are
cut into tiles at similar distances from it. A row at the distance ρ from its home kernel a, in the metric of
that kernel, is from kernel k at a distance of at least ‖W_k(μ_a − μ_k)‖ − s ρ, where s is the half-width of
kernel a in the direction of the steepest ascent of that distance at μ_a. That bounds the responsibility of
kernel k in all rows of a tile from above by the largest ρ in it. A pass has two steps:

1. for each home, list the kernels that may matter to each of its tiles: first by distances of means and
   largest widths only, then by the bound above;
2. do the E-step of `compiled`, in which tiles meet the kernels of their lists.

A few rows and kernels tell in advance whether that pays. Lists, the order of sums and that decision do not
depend on the number of threads: results are bitwise the same for any. A row's home changes the cost and the
order of sums, never what may be skipped.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..compute import simd
from ..compute.native import jit
from ..compute.simd import LANES, ROWS, add, fma, load, multiply, splat, store, subtract
from ..compute.threads import Workers
from ..compute.translation import inner
from ..model import BoolArray, FloatArray, IntArray, Statistics
from ..structures.linalg import invert_lower
from . import compiled
from .compiled import (
    NEGLIGIBLE_SHARE,
    BlockSums,
    Job,
    Likeliest,
    Sizes,
    Tiles,
    add_distances,
    fill,
    gather_tile,
)
from .reference import Kernels, Rows

# Skipping kernel k in row n changes the kernel's own sums by r, r y and r y yᵀ, where r is its responsibility
# and y the whitened row, ‖y‖ = d: by no more than r (1 + d²), in the kernel's own units. It is skipped only
# if a bound of r (1 + d²) is below `SKIPPED` / K, so that all kernels skipped in a row change less than that.
SKIPPED = 1e-13
# Slope of a line above log(1 + d²): log(1 + d²) ≤ `LOG_SLOPE` d² + `LOG_RISE`. With it the logarithm of the
# bound is linear in d², and a lower bound of d is all that is needed of the rows.
LOG_SLOPE = 0.005
# Height of that line at zero.
LOG_RISE = 4.32
# Kernels of less than this times the average mass are never skipped: they would notice small changes.
LIGHT = 1e-3
# The mass of a weight whose rows were all skipped: a weight of zero would stay zero.
LEAST_MASS = 1e-120
# Relative errors of distances and widths are far below this, times their condition.
ROUNDING = 1e-12
# A tile ends where distances exceed this multiple of its smallest one, plus `_STEP`.
_STRETCH = 1.4
# Widths of a home by which distances in a tile may always differ.
_STEP = 3.0
# Rows of tiles that meet more than this share of the kernels go to other tiles, which evaluate all kernels.
_MOST_KERNELS = 0.25
# Skipping does not pay if all tiles together would meet more than this share of the kernels.
_MOST_PAIRS = 0.5
# Skipping is tried if tiles are expected to meet less than this share.
_EXPECTED_PAIRS = 0.35
# Rows in the estimate of that share.
_SAMPLE = 128
# Kernels that are compared with each of these rows.
_KERNELS_OF_ROW = 64
# Cost of a bound, in evaluations of a row and kernel.
_BOUND_COST = 24
# Skipping is tried again 1, 2, 4, … passes after a failure, but no later than this.
_MOST_WAITING = 4
# Distances that are computed at a time to find the nearest means.
_ASSIGNED = 1 << 20
# Largest value of a row in single precision: its squares stay finite.
_LARGEST_SINGLE = 1e15
# Kernels whose widths are computed at a time.
_MEASURED = 256
# Rows are sorted again if the most likely kernel of this share of them has changed.
_STALE = 0.01


class _Geometry(NamedTuple):
    """The kernels as the bounds need them; K' is K, padded to vectors."""

    limit: float  # of the logarithm of a responsibility that may be skipped
    means: Any  # (K, M)
    in_blocks: Any  # (K' / 2 LANES, M, 2 LANES): the same
    opposite: Any  # (K', M): −2 times the same
    norms: Any  # (K',): at most ‖μ‖²; infinite beyond the last kernel
    peak: Any  # (K',): largest log-joint at the mean, of all classes
    width: Any  # (K',): at least the largest standard deviation
    whitener: Any  # (K, M, M)
    root: Any  # (K, M, M): the inverses of the whiteners
    steep: Any  # (K,): norm of the whitener
    wide: Any  # (K,): norm of its inverse
    always: Any  # (K,): whether a kernel is never skipped


@inner
def _far(geometry, a, k, ahead, white, along):
    """Return a lower bound of kernel k's distance from the mean of kernel a, and an upper bound of s."""
    n_features = len(ahead)
    length = 0.0
    for j in range(n_features):
        ahead[j] = geometry.means[a, j] - geometry.means[k, j]
        length += ahead[j] * ahead[j]
        along[j] = 0.0
    total, width = 0.0, 0.0
    whitener, root = geometry.whitener[k], geometry.root[a]
    for i in range(n_features):
        each = 0.0
        for j in range(i + 1):
            each += whitener[i, j] * ahead[j]
        total += each * each
        for j in range(i + 1):
            along[j] += each * whitener[i, j]
    for i in range(n_features):
        white[i] = 0.0
    for i in range(n_features):
        for j in range(i + 1):
            white[j] += root[i, j] * along[i]
    for j in range(n_features):
        width += white[j] * white[j]
    distance = math.sqrt(total)
    if distance == 0.0:
        return 0.0, np.inf
    condition = geometry.steep[a] * geometry.wide[a]
    width = math.sqrt(width) / distance + ROUNDING * geometry.steep[k] * geometry.wide[a]
    return distance - ROUNDING * geometry.steep[k] * math.sqrt(length), width * (1.0 + ROUNDING * condition)


@inner
def _matters(peak, distance, radius, lowest, limit):
    """Return whether a kernel at this distance may matter to rows within `radius`, of log-joints ≥ lowest."""
    square = max(distance, 0.0) ** 2
    most = peak + LOG_RISE - (0.5 - LOG_SLOPE) * square - lowest
    return not most + ROUNDING * (square + radius * radius + abs(lowest)) < limit


@jit
def _estimate_share(geometry, homes, radii, lowest, n_each, vectors, share):
    """Write the share of kernels that may matter to rows of these homes, judged by `n_each` kernels."""
    n_kernels = len(geometry.means)
    step, count, total = max(1, n_kernels // n_each), 0, 0
    for i in range(len(homes)):
        for k in range(i % step, n_kernels, step):
            distance, width = _far(geometry, homes[i], k, vectors[0], vectors[1], vectors[2])
            gap = distance - width * radii[i]
            count += _matters(geometry.peak[k], gap, radii[i], lowest[i], geometry.limit)
            total += 1
    share[0] = count / total


@inner
def _add_squares(geometry, first, squares):
    """Write squared distances (ROWS, K') of ROWS means from all, less the norms of the former."""
    padded, n_features = len(geometry.peak), geometry.means.shape[1]
    # ‖μ_a − μ_k‖² = ‖μ_a‖² + (‖μ_k‖² − 2 μ_a μ_k)
    for i in range(ROWS):
        for k in range(0, padded, LANES):
            store(squares, i * padded + k, load(geometry.norms, k))
    for k in range(0, padded, 2 * LANES):
        simd.add_products(
            geometry.opposite, first * n_features, n_features, 1, geometry.in_blocks, k * n_features,
            2 * LANES, n_features, squares, k, padded, ROWS, 2,
        )  # fmt: skip


@inner
def _extent(values, lengths, base, at, scratch, n_present):
    """Return the largest distances of rows from their home, its own and Euclidean, and the least log-joint.

    `values` are −½ times the squared distances, `lengths` the squared Euclidean ones, base[at:] log-joints at
    the mean for each class.
    """
    radius, reach, lowest = 0.0, 0.0, np.inf
    for p in range(n_present):
        c = scratch.present[p]
        for i in range(scratch.bounds[c], scratch.bounds[c + 1]):
            radius, reach = max(radius, -2.0 * values[i]), max(reach, lengths[i])
            lowest = min(lowest, base[at + c] + values[i])
    return math.sqrt(radius), (1.0 + ROUNDING) * math.sqrt(reach), lowest


@inner
def _screen(geometry, squares, norm, extent, highest, found):
    """List kernels by the squared distances of their means from a home's, squares (K',) + norm.

    Kernel k matters only if its mean is within reach + width √(2x), x = its peak − lowest − …; and
    √x ≤ (s + x / s) / 2 for any s. Returns the length of the list.
    """
    radius, reach, lowest = extent
    constant = LOG_RISE - geometry.limit - lowest + ROUNDING * (radius * radius + abs(lowest))
    root, scale = math.sqrt(max(highest + constant, 1.0)), math.sqrt(0.5 - LOG_SLOPE - ROUNDING)
    offset, slope, count = 0.5 * (root + constant / root) / scale, 0.5 / (root * scale), 0
    offsets, slopes, reaches, norms = splat(offset), splat(slope), splat(reach), splat(norm)
    for start in range(0, len(geometry.peak), LANES):
        most = fma(fma(slopes, load(geometry.peak, start), offsets), load(geometry.width, start), reaches)
        if simd.any_above(subtract(multiply(most, most), add(load(squares, start), norms)), 0.0):
            for k in range(start, start + LANES):
                own = (slope * geometry.peak[k] + offset) * geometry.width[k] + reach
                found[count] = k
                count += own * own > squares[k] + norm
    return count


@inner
def _select(geometry, a, extent, known, distances, widths, vectors, n_found, found):
    """Keep kernels of a list that may matter to rows of home a; return how many.

    Bounds of a home are computed once: `known` tells which of `distances` and `widths` (K,) there are.
    """
    (radius, _, lowest), count = extent, 0
    for place in range(n_found):
        k = found[place]
        if not known[k]:
            known[k] = True
            distances[k], widths[k] = _far(geometry, a, k, vectors[0], vectors[1], vectors[2])
        gap = distances[k] - widths[k] * radius
        found[count] = k
        count += (
            k == a or geometry.always[k] or _matters(geometry.peak[k], gap, radius, lowest, geometry.limit)
        )
    return count


@jit
def _work(counter, n_tasks, job, geometry, used, scratch, listing):
    unrolled, sizes, data, model, tiles = job.unrolled, job.sizes, job.data, job.model, job.tiles
    n_features, n_kernels, padded = sizes.n_features, sizes.n_kernels, len(geometry.peak)
    x, values, lengths, unit = scratch.x, scratch.values, scratch.logs, LANES if unrolled[0] else 2 * LANES
    highest, always, squares, found, known, distances, widths, vectors = listing
    room = len(tiles.kernels)
    while used[0] <= room:
        task = simd.take_numbers(counter, 1)
        if task >= n_tasks:
            break
        _add_squares(geometry, task * ROWS, squares)
        for a in range(task * ROWS, min((task + 1) * ROWS, n_kernels)):
            own, mean_at = squares[a % ROWS * padded : (a % ROWS + 1) * padded], a * sizes.width
            own[a] = -np.inf
            for i in range(len(always)):
                own[always[i]] = -np.inf
            for k in range(n_kernels):
                known[k] = False
            for t in range(tiles.block[a], tiles.block[a + 1]):
                start, n = tiles.start[t], tiles.start[t + 1] - tiles.start[t]
                tile = -(-n // unit) * unit
                present = gather_tile(data, tiles.order, start, n, tile, sizes, scratch, scratch.by_row[:0])
                fill(values, 0, tile, 0.0)
                if unrolled[0]:
                    simd.call(
                        unrolled[0], x, 0, tile, tile, model.means, mean_at, model.whitener, a * sizes.white,
                        values, 0,
                    )  # fmt: skip
                else:
                    add_distances(x, tile, sizes, model, a, scratch.few, values, 0)
                for r in range(0, tile, LANES):
                    length = splat(0.0)
                    for j in range(n_features):
                        ahead = subtract(load(x, j * tile + r), splat(model.means[mean_at + j]))
                        length = fma(ahead, ahead, length)
                    store(lengths, r, length)
                extent = _extent(values, lengths, model.base, a * sizes.n_classes, scratch, present)
                count = n_kernels
                if extent[2] > -np.inf:
                    count = _screen(geometry, own, geometry.norms[a], extent, highest, found)
                    count = _select(geometry, a, extent, known, distances, widths, vectors, count, found)
                crowded = count > _MOST_KERNELS * n_kernels
                if crowded:
                    count = n_kernels
                at = simd.take_numbers(used, count)
                tiles.first[t], tiles.count[t] = at, count
                if at + count <= room:
                    for place in range(count):
                        tiles.kernels[at + place] = place if crowded else found[place]


@jit
def _assign_slots(tiles, kernels, place, n_slots):
    """Give each kernel that a block of tiles meets a place for its sums, in `tiles.slots`.

    Writes the kernel of each place into `kernels`, and the number of places. `place` (K,) begins with −1.
    """
    count = 0
    for b in range(len(tiles.block) - 1):
        first = count
        for t in range(tiles.block[b], tiles.block[b + 1]):
            for i in range(tiles.first[t], tiles.first[t] + tiles.count[t]):
                k = tiles.kernels[i]
                if place[k] < first:
                    place[k], kernels[count] = count, k
                    count += 1
                tiles.slots[i] = place[k]
    n_slots[0] = count


@jit
def _add_slots(kernels, parts, totals):
    """Add sums (S, n) of each place to those of its kernel (K, n)."""
    for slot in range(len(kernels)):
        for i in range(parts.shape[1]):
            totals[kernels[slot], i] += parts[slot, i]


@jit
def _cut(order, home, key, n_kernels, tile, start, first_tile):
    """Cut rows ordered by home and key into tiles, and write the first tile of each home (K + 1,)."""
    count, i, n_rows = 0, 0, len(order)
    for a in range(n_kernels):
        first_tile[a], end = count, i
        while end < n_rows and home[order[end]] == a:
            end += 1
        while i < end:
            start[count] = i
            count += 1
            farthest, stop = _STRETCH * key[order[i]] + _STEP, min(i + tile, end)
            while i < stop and key[order[i]] <= farthest:
                i += 1
            if i == start[count - 1]:  # the key is NaN
                i = stop
    first_tile[n_kernels], start[count] = count, n_rows


@dataclass
class Homes:
    """The homes of rows, kept from pass to pass, and when skipping kernels is tried again."""

    always: BoolArray  # (K,): kernels that are never skipped
    home: IntArray | None = None  # (N,): kernel of each row
    tiles: Tiles | None = None  # their tiles, without kernels; a block for each home
    evaluated: bool = False  # whether homes were the most likely kernels, not only the nearest means
    wait: int = 0  # passes before skipping is tried again
    patience: int = 1  # passes to wait after a failure

    def sort(self, likeliest: Likeliest, peak: FloatArray, tile: int, *, evaluated: bool) -> Tiles:
        """Sort rows by their most likely kernels, whose log-joints at the mean are `peak` (K,)."""
        self.home, self.evaluated = likeliest.kernel, evaluated
        key = np.sqrt(np.maximum(2.0 * (peak[self.home] - likeliest.log_joint), 0.0))
        order, n_kernels = np.lexsort((key, self.home)), len(self.always)
        start, block = np.empty(len(key) + 1, np.int64), np.empty(n_kernels + 1, np.int64)
        _cut(order, self.home, key, n_kernels, tile, start, block)
        self.tiles = Tiles(order, start[: block[-1] + 1].copy(), block)
        return self.tiles

    def give_up(self) -> None:
        """Evaluate all kernels for some passes."""
        self.tiles, self.wait = None, self.patience
        self.patience = min(2 * self.patience, _MOST_WAITING)


def expect(
    rows: Rows,
    kernels: Kernels,
    origins: FloatArray,
    pool: Workers,
    homes: Homes | None = None,
    *,
    with_moments: bool = True,
) -> tuple[Statistics, Homes | None]:
    """Do the E-step of one start, without irrelevant kernels where it pays; see `compiled.expect`.

    Returns the statistics and the homes for the next pass.
    """
    dense = partial(compiled.expect, rows, kernels, origins, pool, with_moments=with_moments)
    n_kernels = kernels.means.shape[1]
    if homes is None or len(homes.always) != n_kernels:
        homes = Homes(np.zeros(n_kernels, dtype=bool))
    if homes.wait:
        homes.wait -= 1
        return dense(), homes
    job = compiled.prepare(rows, kernels, origins, near=False)._replace(with_moments=with_moments)
    geometry = _geometry(kernels, job, pool, homes.always)
    tiles, size = homes.tiles, job.sizes.tile
    if tiles is None:
        if not _pays(rows, kernels, geometry, pool):
            homes.give_up()
            return dense(), homes
        tiles = homes.sort(_nearest(rows, kernels, pool), np.zeros(n_kernels), size, evaluated=False)
    likeliest = Likeliest.empty(len(rows.X))
    sums = _skip(job._replace(tiles=tiles, likeliest=likeliest), geometry, pool)
    if sums is not None:
        # A weight of zero would stay zero, but what was skipped is only small.
        mass = np.where((sums[1] == 0) & (kernels.log_weights > -np.inf), LEAST_MASS, sums[1])
        found = compiled.statistics_of(rows, kernels, origins, job.sizes, (sums[0], mass, sums[2]))
    elif homes.evaluated:
        homes.give_up()
        return dense(), homes
    else:
        # The most likely kernels may be better homes than the nearest means.
        found = dense(likeliest=likeliest)
    if not homes.evaluated or np.count_nonzero(likeliest.kernel != homes.home) > _STALE * len(rows.X):
        homes.sort(likeliest, geometry.peak[:n_kernels], size, evaluated=True)
    return found, homes


def _skip(job: Job, geometry: _Geometry, pool: Workers) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Do both steps, until no kernel of little mass was skipped; return None if too few can be skipped."""
    weights, n_kernels, always = job.data.weights, job.sizes.n_kernels, geometry.always
    light = LIGHT / n_kernels * (float(weights.sum()) if len(weights) else job.sizes.n_rows)
    while True:
        listed = _list(job, geometry, pool)
        if listed is None:
            return None
        least = np.where(always, 0.0, NEGLIGIBLE_SHARE * light)
        sums = _sums(job._replace(tiles=_arrange(listed, job.sizes)._replace(least=least)), pool)
        more = (sums[1].sum(axis=(0, 2)) < light) & (geometry.peak[:n_kernels] > -np.inf) & ~always
        if not job.with_moments or not np.any(more):
            return sums
        always |= more


def _nearest(rows: Rows, kernels: Kernels, pool: Workers) -> Likeliest:
    """Return the nearest mean of each row as its most likely kernel, to a few digits."""
    means = kernels.means[0].astype(np.float32)
    # ½‖x‖² − ½‖x − μ‖² = xμ − ½‖μ‖²
    points = np.column_stack([means, -0.5 * np.square(means).sum(axis=1)]).T
    chunk = max(64, _ASSIGNED // len(means))

    def work(a: int) -> tuple[IntArray, FloatArray]:
        x = np.clip(rows.cut(a, a + chunk).T, -_LARGEST_SINGLE, _LARGEST_SINGLE).astype(np.float32)
        home = (np.column_stack([x, np.ones(len(x), np.float32)]) @ points).argmax(axis=1)
        return home, -0.5 * np.square(x - means[home]).sum(axis=1, dtype=np.float64)

    home, log_joint = map(np.concatenate, zip(*pool.map(work, range(0, len(rows.X), chunk)), strict=True))
    if rows.codes is not None:
        # Homes without weight in the row's class bound nothing: such rows get tiles of their own.
        log_joint[kernels.log_weights[0][home, rows.codes] == -np.inf] = -np.inf
    return Likeliest(home, log_joint)


def _pays(rows: Rows, kernels: Kernels, geometry: _Geometry, pool: Workers) -> bool:
    """Return whether skipping kernels is expected to pay, by some rows at even distances."""
    n_rows, n_kernels = len(rows.X), kernels.means.shape[1]
    n_some = min(_SAMPLE, n_rows)
    some = np.arange(n_some) * n_rows // n_some
    codes = None if rows.codes is None else rows.codes[some]
    sample = replace(rows, X=rows.X[some], codes=codes, weights=None)
    found = Likeliest.empty(n_some)
    compiled.expect(sample, kernels, kernels.means, pool, with_moments=False, likeliest=found)
    codes = np.zeros(n_some, dtype=np.int64) if codes is None else codes
    peak = kernels.constants[0, found.kernel] + kernels.log_weights[0, found.kernel, codes]
    with np.errstate(invalid="ignore"):
        radii = np.sqrt(np.maximum(2.0 * (peak - found.log_joint), 0.0))
    share, vectors = np.empty(1), np.empty((3, kernels.means.shape[2]))
    _estimate_share(geometry, found.kernel, radii, found.log_joint, _KERNELS_OF_ROW, vectors, share)
    return bool(share[0] * (1.0 + _BOUND_COST * n_kernels / n_rows) <= _EXPECTED_PAIRS)


def _measure(whitener: FloatArray) -> tuple[FloatArray, ...]:
    """Return the inverses (K, M, M) of whiteners, bounds of their norms, and norms of both (K,)."""
    root = invert_lower(whitener)
    trace = np.square(root).sum(axis=(1, 2))
    square = root @ root.mT / trace[:, None, None]
    square = square @ square
    # Any norm of P² bounds its largest eigenvalue. The Frobenius norm is tighter for long kernels, the row
    # sum for round ones.
    largest = np.minimum(np.linalg.norm(square, axis=(1, 2)), np.abs(square).sum(axis=2).max(axis=1))
    width = (1.0 + ROUNDING) * np.sqrt(trace * np.sqrt(largest))
    return root, width, np.linalg.norm(whitener, axis=(1, 2)), np.sqrt(trace)


def _geometry(kernels: Kernels, job: Job, pool: Workers, always: BoolArray) -> _Geometry:
    means, n_kernels = np.ascontiguousarray(kernels.means[0]), len(always)
    n_features, more = means.shape[1], -n_kernels % (2 * LANES)
    whitener = np.ascontiguousarray(kernels.factor.whitener[0])
    parts = [whitener[a : a + _MEASURED] for a in range(0, n_kernels, _MEASURED)]
    root, width, steep, wide = map(np.concatenate, zip(*pool.map(_measure, parts), strict=True))
    padded = np.pad(means, ((0, more), (0, 0)))
    blocks = np.swapaxes(padded.reshape(-1, 2 * LANES, n_features), 1, 2)
    norms = np.pad((1.0 - ROUNDING) * np.square(means).sum(axis=1), (0, more), constant_values=np.inf)
    peak = np.pad(job.model.base.reshape(n_kernels, -1).max(axis=1), (0, more), mode="minimum")
    width, flat = np.pad(width, (0, more)), compiled.flat
    return _Geometry(
        math.log(SKIPPED / n_kernels), means, flat(blocks), flat(-2.0 * padded), flat(norms), flat(peak),
        flat(width), whitener, root, steep, wide, always,
    )  # fmt: skip


def _list(job: Job, geometry: _Geometry, pool: Workers) -> Tiles | None:
    """Do the first step: return tiles with their kernels, or None if too few can be skipped."""
    tiles, sizes, n_tiles = job.tiles, job.sizes, len(job.tiles.start) - 1
    kernels = np.empty(int(_MOST_PAIRS * n_tiles * sizes.n_kernels), np.int32)
    first, count = np.zeros((2, n_tiles), np.int64)
    tiles = tiles._replace(kernels=kernels, first=first, count=count)
    used, counter = np.zeros(1, np.int64), np.zeros(1, np.int64)
    n_tasks, few = -(-sizes.n_kernels // ROWS), sizes._replace(padded_kernels=1)
    given = n_tasks, job._replace(tiles=tiles), geometry, used
    pool.run(lambda: _work(counter, *given, compiled.scratch_of(few), _listing(geometry)), n_tasks)
    return tiles._replace(kernels=kernels[: used[0]]) if used[0] <= len(kernels) else None


def _listing(geometry: _Geometry) -> tuple[Any, ...]:
    """Return what lists need: the highest peak, kernels that are never skipped, and memory."""
    (n_kernels, n_features), padded = geometry.means.shape, len(geometry.peak)
    memory = np.empty(ROWS * padded), np.empty(padded + 1, np.int32), np.empty(n_kernels, dtype=bool)
    more = *np.empty((2, n_kernels)), np.empty((3, n_features))
    return float(geometry.peak.max()), np.flatnonzero(geometry.always), *memory, *more


def _arrange(tiles: Tiles, sizes: Sizes) -> Tiles:
    """Return tiles in blocks of about the same work; rows of crowded tiles are gathered in full ones."""
    lengths, crowded = np.diff(tiles.start), tiles.count == sizes.n_kernels
    mixed = np.repeat(crowded, lengths)
    n_mixed = np.count_nonzero(mixed)
    parts = np.diff(np.append(np.arange(0, n_mixed, sizes.tile), n_mixed))
    chosen = np.concatenate([np.flatnonzero(~crowded), np.flatnonzero(crowded)[: len(parts)]])
    lengths, count = np.concatenate([lengths[~crowded], parts]), tiles.count[chosen]
    work = np.cumsum(lengths * count)
    cuts = np.searchsorted(work, work[-1] * np.arange(1, sizes.n_blocks) // sizes.n_blocks)
    return tiles._replace(
        order=np.concatenate([tiles.order[~mixed], tiles.order[mixed]]),
        start=np.concatenate([[0], np.cumsum(lengths)]),
        block=np.concatenate([[0], cuts, [len(work)]]),
        first=tiles.first[chosen],
        count=count,
        slots=np.empty_like(tiles.kernels),
    )


def _sums(job: Job, pool: Workers) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Do the second step: return likelihood (1, C), mass (1, K, C) and padded moments (1, K, moments)."""
    sizes, tiles, n_blocks = job.sizes, job.tiles, len(job.tiles.block) - 1
    kernels, place = np.empty(n_blocks * sizes.n_kernels, np.int64), np.full(sizes.n_kernels, -1)
    slots = np.empty(1, np.int64)
    _assign_slots(tiles, kernels, place, slots)
    n_slots = int(slots[0])
    n_moments = sizes.moments if job.with_moments else 0
    parts = np.zeros((n_slots, sizes.n_classes)), np.zeros((n_slots, n_moments))
    sums = BlockSums(np.zeros(n_blocks * sizes.n_classes), *(each.reshape(-1) for each in parts))
    compiled.run(pool, n_blocks, job._replace(sums=sums))
    totals = np.zeros((sizes.n_kernels, sizes.n_classes)), np.zeros((sizes.n_kernels, n_moments))
    for part, total in zip(parts, totals, strict=True):
        _add_slots(kernels[:n_slots], part, total)
    return sums.likelihood.reshape(n_blocks, -1).sum(axis=0)[None], totals[0][None], totals[1][None]
