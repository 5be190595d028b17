"""The E-step of many kernels: kernels that are provably irrelevant to a tile of rows are skipped.

Rows are grouped by a home kernel, the most likely one when they were last sorted, and a group is cut into
tiles of rows at similar distances from it. A row at the distance ρ from its home kernel a, in the metric of
that kernel, is from kernel k at a distance of at least ‖W_k(μ_a − μ_k)‖ − s ρ, where s is the half-width of
kernel a in the direction of the steepest ascent of that distance at μ_a. That bounds the responsibility of
kernel k in all rows of a tile from above by the largest ρ in it. A pass has three steps:

1. for each group, list the kernels that may matter to each of its tiles: first by distances of means and
   largest widths only, then by the bound above;
2. for each tile, evaluate the kernels of its list, and keep the responsibilities;
3. for each kernel, add up the moments of the tiles that list it.

Every step is split into tasks by tiles or kernels, and each sum belongs to one task: results are bitwise the
same for any number of threads. Which home a row has changes the cost and the order of sums, never what may be
skipped.
"""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, misc"

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..compute import simd
from ..compute.simd import LANES, add, fma, load, splat, store
from ..compute.simd import compiled as _compile
from ..compute.threads import Workers
from ..model import FloatArray, IntArray, Statistics
from . import compiled
from .compiled import _Data, _Model, _Sizes
from .reference import Kernels, Rows

# Skipped responsibilities, times 1 + d² of the row's squared distance d², sum up to less than this per row.
_SKIPPED = 1e-13
# log(1 + d²) ≤ _LOG_SLOPE d² + _LOG_RISE: what the factor 1 + d² costs.
_LOG_SLOPE, _LOG_RISE = 0.005, 4.32
# A kernel of less mass than this share of an average one is never skipped, so that its own sums are exact.
_LIGHT = 1e-3
# The mass of a weight whose rows were all skipped.
_LEAST_MASS = 1e-120
# Responsibilities below this share of a kernel's mean one do not change its moments.
_NEGLIGIBLE = 1e-22
# Relative errors of distances and widths are far below this, times their condition.
_ROUNDING = 1e-12
# Rows of a tile.
_TILE = 64
# A tile ends where distances exceed so many times its smallest one, plus so many widths.
_STRETCH, _STEP = 1.4, 3.0
# Tiles with more than this share of the kernels are mixed anew and evaluate all kernels.
_MOST_KERNELS = 0.25
# If tiles would meet more than this share of the kernels in all, skipping does not pay; it is tried again
# after 1, 2, 4, … passes, up to so many.
_MOST_PAIRS, _MOST_WAITING = 0.5, 16
# Rows are sorted again if the most likely kernel of this share of them is another one.
_STALE = 0.01
# Distances that are computed at a time to find the first home of rows, and the largest value in them.
_ASSIGNED, _FARTHEST = 1 << 20, 1e15
# Responsibilities that are held between the steps 2 and 3.
_HELD = 1 << 22


class _Geometry(NamedTuple):
    """What the bounds need of the kernels."""

    means: Any  # (K, M)
    by_feature: Any  # (M, K): the same
    peak: Any  # (K,): largest log-joint at the mean, of all classes
    whitener: Any  # (K, M, M)
    root: Any  # the inverses of the whiteners
    narrow: Any  # (K,): at most the smallest singular value of the whitener
    steep: Any  # (K,): norm of the whitener
    wide: Any  # (K,): norm of its inverse
    always: Any  # (K,): whether a kernel is never skipped


class _Tiles(NamedTuple):
    """Tiles of rows."""

    order: Any  # (N,): rows, tile after tile, by class in a tile
    start: Any  # (T + 1,): first row of each tile in `order`
    home: Any  # (T,): home kernel of its rows
    group: Any  # (K + 1,): first tile of each home kernel


class _Lists(NamedTuple):
    """Kernels of each tile."""

    kernels: Any  # memory for lists, and at its end one of all kernels
    start: Any  # (T,): where the list of a tile begins
    count: Any  # (T,): its length


class _Held(NamedTuple):
    """Rows and responsibilities of some tiles between the steps 2 and 3."""

    x: Any  # rows of each tile, (M, rows)
    by_row: Any  # the same, (rows, width), if loops are not unrolled
    weights: Any  # (rows,)
    values: Any  # responsibilities of each tile, (list, rows)
    rows_at: Any  # (tiles + 1,): first row of each tile, padded to vectors
    values_at: Any  # (tiles + 1,): first number of each tile in `values`


@_compile
def _resized(s, tile):
    """Return sizes with another number of rows of a tile."""
    return _Sizes(
        s.n_rows, s.n_features, s.n_starts, s.n_kernels, s.n_classes, tile, s.block, s.n_blocks,
        s.width, s.depth, s.white, s.moments, s.kind, s.rows, s.step, s.terms,
    )  # fmt: skip


@_compile
def _gather(data, order, n, tile, width, x, by_row):
    """Write rows order[:n] in the frame into x (M, tile) and, if it has memory, by_row (tile, width)."""
    for start in range(0, n, LANES):
        stop = min(start + LANES, n)
        for j in range(len(data.scale)):
            for i in range(start, stop):
                value = (
                    data.flat[order[i] * data.steps[0] + j * data.steps[1]] * data.scale[j] - data.shift[j]
                )
                x[j * tile + i] = min(max(value, -data.limit), data.limit)
        if len(by_row):
            for i in range(start, stop):
                for j in range(len(data.scale)):
                    by_row[i * width + j] = x[j * tile + i]


@_compile
def _fill(values, a, b, number):
    """Set values a … b − 1 to a number, and no others: other threads write beside them."""
    some = splat(number)
    while a + LANES <= b:
        store(values, a, some)
        a += LANES
    for i in range(a, b):
        values[i] = number


@_compile
def _sum(values, a, b):
    """Return the sum of whole vectors a … b − 1."""
    some = splat(0.0)
    for i in range(a, b, LANES):
        some = add(some, load(values, i))
    return simd.total(some)


@_compile
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
        for j in range(n_features):
            each += whitener[i, j] * ahead[j]
        total += each * each
        for j in range(n_features):
            along[j] += each * whitener[i, j]
    white[:] = 0.0
    for i in range(n_features):
        for j in range(n_features):
            white[j] += root[i, j] * along[i]
    for j in range(n_features):
        width += white[j] * white[j]
    distance = math.sqrt(total)
    if distance == 0.0:
        return 0.0, np.inf
    condition = geometry.steep[a] * geometry.wide[a]
    width = math.sqrt(width) / distance + _ROUNDING * geometry.steep[k] * geometry.wide[a]
    return distance - _ROUNDING * geometry.steep[k] * math.sqrt(length), width * (1.0 + _ROUNDING * condition)


@_compile
def _matters(peak, distance, radius, lowest, limit):
    """Return whether a kernel so far from rows within `radius`, of log-joints ≥ lowest, may matter."""
    square = max(distance, 0.0) ** 2
    most = peak + _LOG_RISE - (0.5 - _LOG_SLOPE) * square - lowest
    return not most + _ROUNDING * (square + radius * radius + abs(lowest)) < limit


@lru_cache
def _lister(size: int) -> Any:
    """Return the compiled work of a thread in the first step."""

    @_compile
    def work(counter, n_tasks, sizes, data, model, geometry, tiles, limit, lists, used, scratch):
        n_features, n_kernels, n_classes = sizes.n_features, sizes.n_kernels, sizes.n_classes
        x, values, unit, half = scratch.x, scratch.values, LANES if size else 2 * LANES, splat(-0.5)
        gaps, distances, widths = np.empty(n_kernels), np.empty(n_kernels), np.empty(n_kernels)
        kept, known = np.zeros(-(-n_kernels // 8) * 8, np.uint8), np.empty(n_kernels, np.bool_)
        words, found, vectors = kept.view(np.uint64), np.empty(n_kernels, np.int32), np.empty((3, n_features))
        room = len(lists.kernels) - n_kernels
        while used[0] <= room:
            a = simd.take_numbers(counter, 1)
            if a >= n_tasks:
                break
            if tiles.group[a] == tiles.group[a + 1]:
                continue
            gaps[:] = 0.0
            for j in range(n_features):
                own = geometry.means[a, j]
                for k in range(n_kernels):
                    gaps[k] += (own - geometry.by_feature[j, k]) ** 2
            for k in range(n_kernels):
                gaps[k] = math.sqrt(gaps[k])
            known[:] = False
            for t in range(tiles.group[a], tiles.group[a + 1]):
                start, n = tiles.start[t], tiles.start[t + 1] - tiles.start[t]
                own_sizes = _resized(sizes, -(-n // unit) * unit)
                step = own_sizes.tile
                _gather(data, tiles.order[start:], n, step, sizes.width, x, scratch.by_row[:0])
                _fill(values, 0, step, 0.0)
                if size:
                    for r in range(0, step, LANES):
                        lengths = simd.distance(
                            x, r, step, model.means, a * sizes.width,
                            model.whitener, a * sizes.white, size,
                        )  # fmt: skip
                        store(values, r, fma(half, lengths, load(values, r)))
                else:
                    compiled._add_distances(x, own_sizes, model, a, scratch.few, values, 0)
                radius, lowest, reach = 0.0, np.inf, 0.0
                for i in range(n):
                    c = data.codes[tiles.order[start + i]] if n_classes > 1 else 0
                    radius = max(radius, -2.0 * values[i])
                    lowest = min(lowest, model.base[a * n_classes + c] + values[i])
                    length = 0.0
                    for j in range(n_features):
                        length += (x[j * step + i] - geometry.means[a, j]) ** 2
                    reach = max(reach, length)
                radius, reach = math.sqrt(radius), (1.0 + _ROUNDING) * math.sqrt(reach)
                for k in range(n_kernels):
                    kept[k] = geometry.always[k] | _matters(
                        geometry.peak[k], (gaps[k] - reach) * geometry.narrow[k], radius, lowest, limit
                    )
                count = 0
                for word in range(len(words)):
                    if words[word]:
                        for k in range(8 * word, min(8 * word + 8, n_kernels)):
                            found[count] = k
                            count += kept[k]
                n_found, count = count, 0
                for place in range(n_found):
                    k = found[place]
                    if not known[k]:
                        known[k] = True
                        distances[k], widths[k] = _far(geometry, a, k, vectors[0], vectors[1], vectors[2])
                    gap = distances[k] - widths[k] * radius
                    found[count] = k
                    count += (
                        k == a or geometry.always[k] or _matters(geometry.peak[k], gap, radius, lowest, limit)
                    )
                # A crowded tile will evaluate all kernels.
                at = simd.take_numbers(used, count if count <= _MOST_KERNELS * n_kernels else n_kernels)
                lists.start[t], lists.count[t] = at, count
                if at + count <= room:
                    for place in range(count):
                        lists.kernels[at + place] = found[place]

    return work


@lru_cache
def _evaluator(size: int) -> Any:
    """Return the compiled work of a thread in the second step."""

    @_compile
    def work(
        counter, n_tasks, sizes, data, model, peak, tiles, first_tile, lists, held, logs, best, key, scratch
    ):
        n_features, n_classes, unit = sizes.n_features, sizes.n_classes, LANES if size else 2 * LANES
        bounds, present, half = scratch.bounds, scratch.present, splat(-0.5)
        highest, which = np.empty(sizes.tile), np.empty(sizes.tile, np.int64)
        while True:
            task = simd.take_numbers(counter, 1)
            if task >= n_tasks:
                break
            t = first_tile + task
            start, n = tiles.start[t], tiles.start[t + 1] - tiles.start[t]
            own_sizes = _resized(sizes, -(-n // unit) * unit)
            step, row = own_sizes.tile, held.rows_at[task]
            x = held.x[row * n_features :]
            by_row = held.by_row[row * sizes.width :] if len(held.by_row) else held.by_row
            order = tiles.order[start:]
            _gather(data, order, n, step, sizes.width, x, by_row)
            weights, values = held.weights[row:], held.values[held.values_at[task] :]
            _fill(weights, 0, n, 1.0)
            _fill(weights, n, step, 0.0)
            if len(data.weights):
                for i in range(n):
                    weights[i] = data.weights[order[i]]
            n_present, bounds[0] = 0, 0
            for i in range(n):
                c = data.codes[order[i]] if n_classes > 1 else 0
                if i == 0 or c != present[n_present - 1]:
                    present[n_present], bounds[n_present] = c, i
                    n_present += 1
            bounds[n_present] = n
            highest[:] = -np.inf
            which[:] = 0
            for place in range(lists.count[t]):
                k, at = lists.kernels[lists.start[t] + place], place * step
                for p in range(n_present):
                    base = model.base[k * n_classes + present[p]]
                    _fill(values, at + bounds[p], at + bounds[p + 1], base)
                _fill(values, at + n, at + step, 0.0)
                if size:
                    for r in range(0, step, LANES):
                        lengths = simd.distance(
                            x, r, step, model.means, k * sizes.width,
                            model.whitener, k * sizes.white, size,
                        )  # fmt: skip
                        store(values, at + r, fma(half, lengths, load(values, at + r)))
                else:
                    compiled._add_distances(x, own_sizes, model, k, scratch.few, values, at)
                for i in range(step):
                    better = values[at + i] > highest[i]
                    highest[i] = values[at + i] if better else highest[i]
                    which[i] = k if better else which[i]
            for i in range(n):
                best[order[i]] = which[i]
                key[order[i]] = math.sqrt(max(0.0, 2.0 * (peak[which[i]] - highest[i])))
            compiled._normalise(values, step, None, lists.count[t], 0, step, weights, scratch.logs)
            for i in range(n):
                logs[order[i]] = scratch.logs[i]

    return work


@lru_cache
def _collector(size: int) -> Any:
    """Return the compiled work of a thread in the third step."""

    @_compile
    def work(counter, n_tasks, sizes, data, model, tiles, first_tile, held, pairs, mass, moments, scratch):
        n_features, n_classes, n_rows = sizes.n_features, sizes.n_classes, sizes.n_rows
        unit = LANES if size else 2 * LANES
        while True:
            k = simd.take_numbers(counter, 1)
            if k >= n_tasks:
                break
            own = 0.0
            for pair in range(pairs[0][k], pairs[0][k + 1]):
                task, at = pairs[1][pair], pairs[2][pair]
                t = first_tile + task
                start, n = tiles.start[t], tiles.start[t + 1] - tiles.start[t]
                if n_classes == 1:
                    shares = _sum(held.values, at, at + -(-n // unit) * unit)
                    mass[k] += shares
                    own += shares
                else:
                    for i in range(n):
                        mass[k * n_classes + data.codes[tiles.order[start + i]]] += held.values[at + i]
                        own += held.values[at + i]
            least = _NEGLIGIBLE * own / n_rows
            for pair in range(pairs[0][k], pairs[0][k + 1]):
                task, at = pairs[1][pair], pairs[2][pair]
                t, row = first_tile + task, held.rows_at[task]
                n = tiles.start[t + 1] - tiles.start[t]
                count = 0
                for i in range(n):
                    scratch.index[count] = i
                    count += held.values[at + i] > least
                if count == 0:
                    continue
                step = -(-n // unit) * unit
                if not size:
                    place = row * sizes.width
                    scratch.by_row[: n * sizes.width] = held.by_row[place : place + n * sizes.width]
                    compiled._add_sums(
                        _resized(sizes, step), model, k, scratch, n, held.values, at,
                        moments, k * sizes.moments,
                    )  # fmt: skip
                    continue
                x, values = held.x[row * n_features :], held.values[at:]
                if 3 * count <= n:
                    few = -(-count // LANES) * LANES
                    for j in range(n_features):
                        for c in range(count):
                            scratch.x[j * few + c] = x[j * step + scratch.index[c]]
                    for c in range(few):
                        scratch.weights[c] = values[scratch.index[c]] if c < count else 0.0
                    x, values, step = scratch.x, scratch.weights, few
                simd.add_moments(
                    x, 0, step, step, values, 0, model.origins, k * sizes.width,
                    moments, k * sizes.moments, size,
                )  # fmt: skip

    return work


@_compile
def _invert_lists(lists, first_tile, n_tiles, values_at, rows_at, starts, tile_of, place_of):
    """List the tiles of each kernel, and where its responsibilities are, in the order of the tiles."""
    starts[:] = 0
    for task in range(n_tiles):
        t = first_tile + task
        for place in range(lists.count[t]):
            starts[lists.kernels[lists.start[t] + place] + 1] += 1
    for k in range(len(starts) - 1):
        starts[k + 1] += starts[k]
    for task in range(n_tiles):
        t = first_tile + task
        for place in range(lists.count[t]):
            k = lists.kernels[lists.start[t] + place]
            tile_of[starts[k]] = task
            place_of[starts[k]] = values_at[task] + place * (rows_at[task + 1] - rows_at[task])
            starts[k] += 1
    for k in range(len(starts) - 1, 0, -1):
        starts[k] = starts[k - 1]
    starts[0] = 0


@_compile
def _cut(order, home, key, n_kernels, start, tile_home, group):
    """Cut rows that are ordered by home and key into tiles; return their number."""
    count, n_rows = 0, len(order)
    i = 0
    for a in range(n_kernels):
        group[a] = count
        end = i
        while end < n_rows and home[order[end]] == a:
            end += 1
        while i < end:
            start[count], tile_home[count] = i, a
            count += 1
            farthest, stop = _STRETCH * key[order[i]] + _STEP, min(i + _TILE, end)
            while i < stop and key[order[i]] <= farthest:
                i += 1
            if i == start[count - 1]:  # a key that is not a number
                i = stop
    group[n_kernels] = count
    start[count] = n_rows
    return count


@dataclass
class Groups:
    """How rows are grouped, from pass to pass, and when skipping kernels is tried again."""

    home: IntArray  # (N,): kernel of each row
    key: FloatArray  # (N,): its distance from that kernel
    always: np.ndarray  # (K,): kernels that are never skipped
    tiles: _Tiles | None = None
    # Whether homes are the most likely kernels, not only near ones. The second pass that fails finds them by
    # evaluating all kernels; the first does not, since blocks are seen in a single pass.
    evaluated: bool = False
    wait: int = 0  # passes before skipping is tried again
    patience: int = 1  # passes to wait after a failure


def expect(
    rows: Rows,
    kernels: Kernels,
    origins: FloatArray,
    pool: Workers,
    groups: Groups | None = None,
    *,
    with_moments: bool = True,
    unrolled: bool = True,
) -> tuple[Statistics | None, Groups | None]:
    """Do the E-step of one start; see `compiled.expect`.

    Returns the statistics, or None where skipping does not pay and where covariances are not full, and the
    groups for the next pass.
    """
    n_kernels, structure = kernels.means.shape[1], kernels.structure
    if structure.shared or not structure.triangular:
        return None, groups
    prepared = compiled._prepare(rows, kernels, origins, near=False, unrolled=unrolled)
    size, sizes, model = prepared
    job = _Job(size, sizes._replace(tile=_TILE), compiled._data(rows), model, pool)
    if groups is None or len(groups.always) != n_kernels:
        home, key = _nearest(rows, kernels.means[0], pool)
        if rows.codes is not None:
            # Homes without weight in the row's class bound nothing: such rows get tiles of their own.
            key[kernels.log_weights[0][home, rows.codes] == -np.inf] = np.inf
        groups = Groups(home, key, np.zeros(n_kernels, dtype=bool))
    if groups.wait:
        groups.wait -= 1
        return None, groups
    if groups.tiles is None:
        groups.tiles = _tiles(groups, n_kernels, rows.codes)
    total = float(len(rows.X)) if rows.weights is None else float(rows.weights.sum())
    while True:
        geometry = _geometry(kernels, job.sizes, model, groups.always, pool)
        lists = _list(job, geometry, groups.tiles)
        if lists is None and (groups.evaluated or groups.patience == 1):
            groups.wait, groups.patience = groups.patience, min(2 * groups.patience, _MOST_WAITING)
            return None, groups
        tiles, lists = _mix(groups.tiles, lists, n_kernels, rows.codes)
        sums, best, key = _sums(job, geometry.peak, tiles, lists, with_moments)
        light = (sums[1][0].sum(axis=-1) < _LIGHT * total / n_kernels) & (geometry.peak > -np.inf)
        if not with_moments or not np.any(light & ~groups.always):
            break
        groups.always |= light
    if not groups.evaluated or np.count_nonzero(best != groups.home) > _STALE * len(best):
        groups = replace(groups, home=best, key=key, tiles=None, evaluated=True)
    # A weight that is zero would stay zero: what was skipped is small, not nothing.
    likelihood, mass, moments = sums
    mass = np.where((mass == 0) & (kernels.log_weights > -np.inf), _LEAST_MASS, mass)
    return compiled.statistics_of(rows, kernels, origins, prepared, (likelihood, mass, moments)), groups


class _Job(NamedTuple):
    """What all steps need."""

    size: int  # M if loops are unrolled, otherwise zero
    sizes: _Sizes
    data: _Data
    model: _Model
    pool: Workers

    def run(self, work: Any, n_tasks: int, *arguments: Any) -> None:
        """Do all tasks on all threads."""
        counter, sizes = np.zeros(1, np.int64), self.sizes._replace(n_kernels=1, rows=1)
        self.pool.run(
            lambda: work(counter, n_tasks, *arguments, compiled._scratch(sizes, self.size)), n_tasks
        )


def _nearest(rows: Rows, means: FloatArray, pool: Workers) -> tuple[IntArray, FloatArray]:
    """Return the nearest mean of each row (N,), and its distance, to a few digits."""
    points = means.astype(np.float32)
    squares = 0.5 * np.einsum("kd,kd->k", points, points)
    chunk = max(64, _ASSIGNED // len(means))
    starts = range(0, len(rows.X), chunk)

    def work(a: int) -> tuple[IntArray, FloatArray]:
        x = np.clip(rows.take(a, a + chunk).T, -_FARTHEST, _FARTHEST).astype(np.float32)
        home = (squares - x @ points.T).argmin(axis=1)
        return home, np.linalg.norm(x - points[home], axis=1)

    home, key = zip(*pool.map(work, starts), strict=True)
    return np.concatenate(home), np.concatenate(key).astype(np.float64)


def _tiles(groups: Groups, n_kernels: int, codes: IntArray | None) -> _Tiles:
    """Return the tiles of grouped rows."""
    order = np.lexsort((groups.key, groups.home))
    most = len(order) + 1
    start, home, group = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(n_kernels + 1, np.int64)
    count = _cut(order, groups.home, groups.key, n_kernels, start, home, group)
    start = start[: count + 1].copy()
    if codes is not None:
        order = order[np.lexsort((codes[order], np.repeat(np.arange(count), np.diff(start))))]
    return _Tiles(order, start, home[:count].copy(), group)


@_compile
def _measure(counter, n_tasks, whitener, root, narrow, steep, wide):
    """Invert whiteners (K, M, M), and bound their smallest singular values; do the tasks of a thread."""
    n_features = whitener.shape[1]
    powers = np.empty((2, n_features, n_features))
    while True:
        k = simd.take_numbers(counter, 1)
        if k >= n_tasks:
            break
        own, inverse, square, other = whitener[k], root[k], powers[0], powers[1]
        trace, norm = 0.0, 0.0
        for i in range(n_features):
            inverse[i, :] = 0.0
            for j in range(i):
                for e in range(i):
                    inverse[i, e] -= own[i, j] * inverse[j, e]
            inverse[i, i] = 1.0
            for e in range(i + 1):
                inverse[i, e] /= own[i, i]
                trace += inverse[i, e] ** 2
                norm += own[i, e] ** 2
        square[:] = 0.0
        for i in range(n_features):
            for j in range(n_features):
                other[j, i] = inverse[i, j] / math.sqrt(trace)
        for j in range(n_features):
            for i in range(n_features):
                for e in range(n_features):
                    square[i, e] += other[j, i] * other[j, e]
        # The largest eigenvalue of P / tr P is at most the norm of its fourth power, to the power of 1/4.
        for _ in range(2):
            other[:] = 0.0
            for i in range(n_features):
                for j in range(n_features):
                    for e in range(n_features):
                        other[i, e] += square[i, j] * square[j, e]
            square, other = other, square
        largest = 0.0
        for i in range(n_features):
            largest = max(largest, np.abs(square[i]).sum())
        narrow[k] = (1.0 - _ROUNDING) / math.sqrt(trace * math.sqrt(math.sqrt(largest)))
        steep[k], wide[k] = math.sqrt(norm), math.sqrt(trace)


def _geometry(kernels: Kernels, sizes: _Sizes, model: _Model, always: np.ndarray, pool: Workers) -> _Geometry:
    """Return what the bounds need of the kernels."""
    n_kernels, n_features = sizes.n_kernels, sizes.n_features
    means = np.ascontiguousarray(model.means.reshape(n_kernels, sizes.width)[:, :n_features])
    peak = model.base.reshape(n_kernels, -1).max(axis=1)
    narrow, steep, wide = np.empty((3, n_kernels))
    whitener = np.ascontiguousarray(kernels.factor.whitener[0])
    root, counter = np.empty_like(whitener), np.zeros(1, np.int64)
    given = n_kernels, whitener, root, narrow, steep, wide
    pool.run(lambda: _measure(counter, *given), n_kernels)
    return _Geometry(means, np.ascontiguousarray(means.T), peak, whitener, root, narrow, steep, wide, always)


def _list(job: _Job, geometry: _Geometry, tiles: _Tiles) -> _Lists | None:
    """Do the first step; return None if too few kernels can be skipped."""
    n_tiles, n_kernels = len(tiles.home), job.sizes.n_kernels
    most = int(_MOST_PAIRS * n_tiles * n_kernels)
    lists = _Lists(np.empty(most + n_kernels, np.int32), *np.zeros((2, n_tiles), np.int64))
    lists.kernels[most:] = np.arange(n_kernels)
    used, limit = np.zeros(1, np.int64), math.log(_SKIPPED / n_kernels)
    work = _lister(job.size)
    job.run(work, n_kernels, job.sizes, job.data, job.model, geometry, tiles, limit, lists, used)
    return lists if used[0] <= most else None


def _mix(
    tiles: _Tiles, lists: _Lists | None, n_kernels: int, codes: IntArray | None
) -> tuple[_Tiles, _Lists]:
    """Return tiles in which the rows of crowded ones, or all rows if there are no lists, meet all kernels."""
    if lists is None:
        nothing = np.zeros(len(tiles.home), np.int64)
        lists = _Lists(np.arange(n_kernels, dtype=np.int32), nothing, nothing + n_kernels)
    crowded = lists.count > _MOST_KERNELS * n_kernels
    if not crowded.any():
        return tiles, lists
    lengths = np.diff(tiles.start)
    mixed = np.repeat(crowded, lengths)
    rest = tiles.order[mixed]
    if codes is not None:
        rest = rest[np.argsort(codes[rest], kind="stable")]
    parts = np.diff(np.append(np.arange(0, len(rest), _TILE), len(rest)))
    start = np.cumsum(np.concatenate([[0], lengths[~crowded], parts]))
    at = len(lists.kernels) - n_kernels
    return tiles._replace(order=np.concatenate([tiles.order[~mixed], rest]), start=start), _Lists(
        lists.kernels,
        np.concatenate([lists.start[~crowded], np.full(len(parts), at)]),
        np.concatenate([lists.count[~crowded], np.full(len(parts), n_kernels)]),
    )


def _sums(
    job: _Job, peak: FloatArray, tiles: _Tiles, lists: _Lists, with_moments: bool
) -> tuple[tuple[FloatArray, FloatArray, FloatArray], IntArray, FloatArray]:
    """Do the second and third steps: return sums, and the most likely kernel and its distance of each row."""
    size, sizes, data, model = job[:4]
    n_rows, n_kernels, n_classes, n_features = (
        sizes.n_rows,
        sizes.n_kernels,
        sizes.n_classes,
        sizes.n_features,
    )
    unit = LANES if size else 2 * LANES
    steps = -(-np.diff(tiles.start) // unit) * unit
    rows_at, values_at = (np.cumsum([0, *each]) for each in (steps, steps * lists.count))
    cuts = _cuts(rows_at, values_at, _HELD // sizes.width)
    n_held, n_values = (max(at[b] - at[a] for a, b in cuts) for at in (rows_at, values_at))
    memory = [np.zeros(n) for n in (n_held * n_features, 0 if size else n_held * sizes.width, n_held)]
    values, logs, key, best = (
        np.empty(n_values),
        np.empty(n_rows),
        np.empty(n_rows),
        np.empty(n_rows, np.int64),
    )
    mass = np.zeros((1, n_kernels, n_classes))
    moments = np.zeros((1, n_kernels, sizes.moments if with_moments else 0))
    for a, b in cuts:
        held = _Held(
            memory[0],
            memory[1],
            memory[2],
            values,
            rows_at[a : b + 1] - rows_at[a],
            values_at[a : b + 1] - values_at[a],
        )
        work = _evaluator(size)
        job.run(work, b - a, sizes, data, model, peak, tiles, a, lists, held, logs, best, key)
        if not with_moments:
            continue
        n_pairs = int(lists.count[a:b].sum())
        pairs = tuple(np.empty(n, np.int64) for n in (n_kernels + 1, n_pairs, n_pairs))
        _invert_lists(lists, a, b - a, held.values_at, held.rows_at, *pairs)
        sums = (each.reshape(-1) for each in (mass, moments))
        work = _collector(size)
        job.run(work, n_kernels, sizes, data, model, tiles, a, held, pairs, *sums)
    codes = data.codes if n_classes > 1 else np.zeros(n_rows, np.int64)
    likelihood = np.bincount(codes, weights=logs, minlength=n_classes).astype(np.float64)[None]
    return (likelihood, mass, moments), best, key


def _cuts(rows_at: IntArray, values_at: IntArray, most_rows: int) -> list[tuple[int, int]]:
    """Cut tiles into parts, first and last tile, whose rows and responsibilities can be held."""
    cuts, n_tiles = [0], len(rows_at) - 1
    while cuts[-1] < n_tiles:
        ends = [
            np.searchsorted(at, at[cuts[-1]] + most, side="right") - 1
            for at, most in ((rows_at, most_rows), (values_at, _HELD))
        ]
        cuts.append(max(cuts[-1] + 1, int(min(ends))))
    return list(pairwise(cuts))
